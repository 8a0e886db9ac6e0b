//! Keepalive probes on silent TCP connections. The probes detect a peer that disappeared even if this process
//! has nothing to send.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Silence before the first probe, and between probes. The system gives up after a fixed number of probes (9
/// on Linux), so a peer that disappeared is detected within five minutes.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// Enables keepalive probes. A connection that cannot be probed is used without probes; its other limits
/// still apply.
pub fn probe(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "keepalive of a connection not set");
    }
}
