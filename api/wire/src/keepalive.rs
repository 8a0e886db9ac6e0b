//! Probes on silent TCP connections, so that a peer that vanished is found although nothing is to be sent.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Silence before the first probe, and between probes. The system gives up after its number of them (9 on Linux), so a
/// peer that is gone is found within five minutes.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// Begins to probe. A connection that cannot be probed is used as it is: its other bounds remain.
pub fn probe(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
        tracing::debug!(%error, "a connection is not probed");
    }
}
