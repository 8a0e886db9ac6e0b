//! How connections to other servers are made, by the network that they are in: directly, or through a proxy.
//!
//! ```text
//! control plane   webhooks that a URL names, token and permission reviews, audit, traces
//! cluster         nodes, pods, services; webhooks and API servers that are services
//! etcd            the members of etcd
//! ```
//!
//! Host names are resolved by the proxy. Timeouts are those of the caller.

use std::sync::Arc;

use super::Failure;
use super::connect::dial;
use super::error::Ends;
use super::guard::Guard;
use super::proxy::Proxy;
use super::tunnel::Tunnel;
use crate::stream::AnyStream;

/// The networks of an EgressSelectorConfiguration.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    /// Where nodes, pods and services are.
    pub cluster: Egress,
    /// Where this server is.
    pub control_plane: Egress,
    /// Where etcd is.
    pub etcd: Egress,
    /// Whether a configuration says how they are reached.
    pub is_configured: bool,
}

/// How connections into one network are made.
#[derive(Clone, Debug, Default)]
pub struct Egress(Way);

#[derive(Clone, Debug, Default)]
enum Way {
    #[default]
    Direct,
    /// The proxy of a kubeconfig file.
    Proxy(Arc<Proxy>),
    /// The proxy of the network.
    Tunnel(Arc<Tunnel>),
}

impl Egress {
    /// Through the proxy with this URL.
    ///
    /// # Errors
    /// It is no URL of a proxy.
    pub(super) fn by_url(url: &str) -> Result<Egress, String> {
        Ok(Egress(Way::Proxy(Arc::new(Proxy::read(url)?))))
    }

    /// Through a proxy that this server has a connection of its own to.
    pub fn by_tunnel(tunnel: Tunnel) -> Egress {
        Egress(Way::Tunnel(Arc::new(tunnel)))
    }

    /// Whether no proxy is asked.
    pub fn is_direct(&self) -> bool {
        matches!(self.0, Way::Direct)
    }

    /// A connection to a server. Its ends are known where it is made directly; `guard` is asked there alone, because a proxy
    /// is another host.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn reach(
        &self,
        host: &str,
        port: u16,
        guard: &Guard,
    ) -> Result<(AnyStream, Ends), Failure> {
        match &self.0 {
            Way::Direct => {
                let stream = dial(host, port, guard).await?;
                let ends = stream.local_addr().ok().zip(stream.peer_addr().ok());
                Ok((Box::new(stream), ends))
            }
            Way::Proxy(proxy) => Ok((Box::new(proxy.dial(host, port).await?), None)),
            Way::Tunnel(tunnel) => Ok((tunnel.dial(host, port).await?, None)),
        }
    }

    /// A connection to a server.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self, host: &str, port: u16) -> Result<AnyStream, Failure> {
        self.reach(host, port, &Guard::Open).await.map(|(stream, _)| stream)
    }
}

/// A server as proxies are told of it.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
