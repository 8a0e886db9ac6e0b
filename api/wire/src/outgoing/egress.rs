//! Egress: how this server connects to the servers of a network, directly or through a proxy.
//!
//! ```text
//! control plane   webhooks that a URL names, token and permission reviews, audit, traces
//! cluster         nodes, pods, services; webhooks and API servers that are services
//! etcd            the members of etcd
//! ```
//!
//! The proxy resolves host names. The caller sets the timeouts.

use std::sync::Arc;

use super::Failure;
use super::dial::dial;
use super::error::Ends;
use super::guard::Guard;
use super::proxy::Proxy;
use super::tunnel::Tunnel;
use crate::metrics::families::Calls;
use crate::stream::AnyStream;

/// The networks of an EgressSelectorConfiguration.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    /// Egress to the network of nodes, pods and services.
    pub cluster: Egress,
    /// Egress to the network of this server.
    pub control_plane: Egress,
    /// Egress to the network of etcd.
    pub etcd: Egress,
    /// Whether an egress selector configuration was loaded. Such a configuration decides how connections to
    /// each network are made.
    pub is_configured: bool,
}

impl Networks {
    /// Sets the metrics in which calls to these networks are counted.
    #[must_use]
    pub fn counted(self, calls: &Arc<Calls>) -> Networks {
        let Networks { cluster, control_plane, etcd, is_configured } = self;
        let [cluster, control_plane, etcd] =
            [cluster, control_plane, etcd].map(|egress| Egress { calls: Some(calls.clone()), ..egress });
        Networks { cluster, control_plane, etcd, is_configured }
    }

    /// Returns an egress without a proxy, for servers that the proxies of the networks do not apply to.
    pub fn direct(&self) -> Egress {
        Egress { route: EgressRoute::Direct, calls: self.control_plane.calls.clone() }
    }
}

/// The way in which connections into one network are made.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    route: EgressRoute,
    /// The metrics in which calls are counted; `None` if they are not counted.
    calls: Option<Arc<Calls>>,
}

#[derive(Clone, Debug, Default)]
enum EgressRoute {
    #[default]
    Direct,
    /// The proxy of a kubeconfig file.
    Proxy(Arc<Proxy>),
    /// The proxy of the network.
    Tunnel(Arc<Tunnel>),
}

impl Egress {
    /// Creates an egress through the proxy with this URL.
    ///
    /// # Errors
    /// The URL is not the URL of a proxy.
    pub(super) fn by_url(url: &str) -> Result<Egress, String> {
        Ok(Egress { route: EgressRoute::Proxy(Arc::new(Proxy::read(url)?)), calls: None })
    }

    /// Creates an egress through the proxy of a network.
    pub fn by_tunnel(tunnel: Tunnel) -> Egress {
        Egress { route: EgressRoute::Tunnel(Arc::new(tunnel)), calls: None }
    }

    /// Returns this egress, or `other` if this egress is direct. Calls are counted in the metrics of `other`.
    pub(super) fn or(self, other: &Egress) -> Egress {
        let route = if self.is_direct() { other.route.clone() } else { self.route };
        Egress { route, calls: other.calls.clone() }
    }

    /// Returns the metrics in which calls are counted, if they are counted.
    pub(super) fn calls(&self) -> Option<&Calls> {
        self.calls.as_deref()
    }

    /// Returns whether connections are made without a proxy.
    pub fn is_direct(&self) -> bool {
        matches!(self.route, EgressRoute::Direct)
    }

    /// Connects to a server. The addresses of both ends are known only for a direct connection. `guard` is
    /// applied only to direct connections, because a proxy is another host.
    ///
    /// # Errors
    /// The connection cannot be made.
    pub(super) async fn reach(
        &self,
        host: &str,
        port: u16,
        guard: &Guard,
    ) -> Result<(AnyStream, Ends), Failure> {
        match &self.route {
            EgressRoute::Direct => {
                let stream = dial(host, port, guard).await?;
                let ends = stream.local_addr().ok().zip(stream.peer_addr().ok());
                Ok((Box::new(stream), ends))
            }
            EgressRoute::Proxy(proxy) => Ok((Box::new(proxy.dial(host, port).await?), None)),
            EgressRoute::Tunnel(tunnel) => Ok((tunnel.dial(host, port, self.calls()).await?, None)),
        }
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// The connection cannot be made.
    pub async fn connect(&self, host: &str, port: u16) -> Result<AnyStream, Failure> {
        self.reach(host, port, &Guard::Open).await.map(|(stream, _)| stream)
    }
}
