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
//! Each request has its own connection to its target and a few buffers; nothing is kept for a client that
//! does not read. The module knows neither verbs nor the store: callers pass the objects.

pub mod exec;
pub mod forward;
mod html;
mod messages;
mod outlet;
pub mod portforward;
pub mod proxy;
mod spdy;
pub mod target;
pub mod tunnel;
pub mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::wire::outgoing::{Credentials, Egress, Identity, OwnAddresses, Tls};

/// Port of a node's agent that does not say its own.
pub const AGENT_PORT: u16 = 10250;

/// Until an agent has begun its answer. Pods and services have [`SERVICE_ANSWER_TIMEOUT`], as their clients may wait for
/// something to happen.
pub const AGENT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Until a pod or a service has begun its answer.
pub const SERVICE_ANSWER_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// What an operator says about nodes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Kinds of node addresses in the order in which they are preferred.
    pub address_types: Vec<String>,
    /// PEM of the certificate and the key by which agents know this server.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// PEM of the authorities that agents are verified against; none: any certificate will do.
    pub authorities: Option<Vec<u8>>,
    /// Until the connection to an agent is made.
    pub timeout: Duration,
    /// How nodes, pods and services are reached.
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

/// How nodes, pods and services are reached.
#[derive(Clone, Debug)]
pub struct Nodes {
    address_types: Vec<String>,
    timeout: Duration,
    egress: Egress,
    /// How agents are called from now on; all copies share it.
    agents: Arc<ArcSwap<Agents>>,
    /// Where this server is, to which no request of a client leads back.
    own: OwnAddresses,
    /// Pods and services are reached by address, which no certificate can be expected to name.
    service: Tls,
}

/// How agents know this server, and it them.
#[derive(Debug)]
struct Agents {
    verified: Tls,
    unverified: Tls,
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
        Ok(Agents { verified: Tls::new(&verified)?, unverified: Tls::new(&unverified)? })
    }
}

impl Nodes {
    /// Reads the certificates of the settings.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn new(settings: Settings) -> Result<Nodes, String> {
        let Settings { address_types, certificate, authorities, timeout, egress } = settings;
        let agents = Agents::new(certificate, authorities.as_deref())?;
        let service = Tls::new(&Credentials { is_unverified: true, ..Credentials::default() })?;
        let (agents, own) = (Arc::new(ArcSwap::from_pointee(agents)), OwnAddresses::default());
        Ok(Nodes { address_types, timeout, egress, agents, own, service })
    }

    /// Where this server is.
    pub fn own_addresses(&self) -> &OwnAddresses {
        &self.own
    }

    /// Calls agents with other certificates from the next connection on.
    ///
    /// # Errors
    /// They cannot be read; what was in use stays.
    pub fn replace(
        &self,
        certificate: Option<(Vec<u8>, Vec<u8>)>,
        authorities: Option<&[u8]>,
    ) -> Result<(), String> {
        self.agents.store(Arc::new(Agents::new(certificate, authorities)?));
        Ok(())
    }
}
