//! Connections to nodes, pods and services: finding the target of a request, and the connection itself
//! (docs/api/nodes.md).
//!
//! ```text
//! name in the path ─► target ─► Endpoint ─┬─ proxy:   request and response, links rewritten ─► html
//!                                         ├─ upgrade: 101, then bytes both ways ─────────────► tunnel
//!                                         ├─ exec:    WebSocket v5 ◄─► SPDY/3.1 ─────────────► messages, spdy
//!                                         └─ logs:    the response as it arrives ────────────► forward
//! ```
//!
//! Each request has its own connection to its target and a few buffers; the server buffers no further data for
//! a client that does not read. This module depends on neither the verbs nor the store: callers pass the
//! objects.

pub mod exec;
pub mod forward;
mod html;
mod messages;
pub mod portforward;
pub mod proxy;
mod shared_writer;
mod spdy;
pub mod target;
pub mod tunnel;
pub mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use wire::outgoing::{ClientTls, Credentials, Egress, Identity, OwnAddresses};

/// Port of a node agent if the node does not set a port.
pub const AGENT_PORT: u16 = 10250;

/// Time until an agent must begin its response. The limit for pods and services is [`SERVICE_ANSWER_TIMEOUT`],
/// because clients of a pod or a service may wait for an event.
pub const AGENT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Time until a pod or a service must begin its response.
pub const SERVICE_ANSWER_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// The operator's settings for connections to nodes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Types of node addresses, in order of preference.
    pub address_types: Vec<String>,
    /// PEM of the certificate and the key with which this server identifies itself to agents.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM of the authorities that verify agents. `None` means that any certificate is accepted.
    pub authorities: Option<Vec<u8>>,
    /// Time limit for connecting to an agent.
    pub timeout: Duration,
    /// Network path to nodes, pods and services.
    pub egress: Egress,
}

impl Default for Settings {
    fn default() -> Settings {
        let types = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
        Settings {
            address_types: types.map(str::to_owned).to_vec(),
            certificate: None,
            authorities: None,
            timeout: Duration::from_secs(5),
            egress: Egress::default(),
        }
    }
}

/// Connection settings for nodes, pods and services.
#[derive(Clone, Debug)]
pub struct NodeConnections {
    address_types: Vec<String>,
    timeout: Duration,
    egress: Egress,
    /// The current TLS settings for agents, shared by all clones.
    agents: Arc<ArcSwap<Agents>>,
    /// The addresses of this server. A request of a client must not be forwarded to these addresses.
    own: OwnAddresses,
    /// TLS settings for pods and services. This server connects to the addresses of pods and services.
    /// Certificates usually do not contain these addresses, so the certificates are not verified.
    service: ClientTls,
}

/// TLS settings for node agents, with and without verification.
#[derive(Debug)]
struct Agents {
    verified: ClientTls,
    unverified: ClientTls,
}

impl Agents {
    fn new(certificate: Option<(Vec<u8>, Vec<u8>)>, authorities: Option<&[u8]>) -> Result<Agents, String> {
        let identity = &Identity { certificate, ..Identity::default() };
        let unverified =
            Credentials { identity: Some(identity), is_unverified: true, ..Credentials::default() };
        let verified = match authorities {
            Some(authorities) => {
                Credentials { identity: Some(identity), authorities, ..Credentials::default() }
            }
            None => unverified,
        };
        Ok(Agents { verified: ClientTls::new(&verified)?, unverified: ClientTls::new(&unverified)? })
    }
}

impl NodeConnections {
    /// Creates the settings and reads their certificates.
    ///
    /// # Errors
    /// Fails if the certificates cannot be read.
    pub fn new(settings: Settings) -> Result<NodeConnections, String> {
        let Settings { address_types, certificate, authorities, timeout, egress } = settings;
        let agents = Agents::new(certificate, authorities.as_deref())?;
        let service = ClientTls::new(&Credentials { is_unverified: true, ..Credentials::default() })?;
        let (agents, own) = (Arc::new(ArcSwap::from_pointee(agents)), OwnAddresses::default());
        Ok(NodeConnections { address_types, timeout, egress, agents, own, service })
    }

    /// Returns the addresses of this server.
    pub fn own_addresses(&self) -> &OwnAddresses {
        &self.own
    }

    /// Replaces the certificates for agents. Only new connections use the new certificates.
    ///
    /// # Errors
    /// Fails if the certificates cannot be read. The previous certificates then stay in use.
    pub fn replace(
        &self,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
        authorities: Option<&[u8]>,
    ) -> Result<(), String> {
        self.agents.store(Arc::new(Agents::new(certificate, authorities)?));
        Ok(())
    }
}
