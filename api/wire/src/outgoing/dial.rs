//! Direct TCP connections to a host and port.

use tokio::net::TcpStream;

use super::Failure;
use super::guard::Guard;
use crate::keepalive;

/// Connects to a host: tries its addresses in order, except those that `guard` refuses, until a connection
/// succeeds. If all addresses fail, the result is the failure of the first address.
pub(super) async fn dial(host: &str, port: u16, guard: &Guard) -> Result<TcpStream, Failure> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|_| Failure::unknown_host(host))?;
    let mut first = None;
    for address in addresses {
        if guard.refuses(address) {
            first.get_or_insert_with(|| Failure::not_allowed(address));
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                keepalive::probe(&stream);
                return Ok(stream);
            }
            Err(error) => {
                first.get_or_insert_with(|| Failure::connect(&address.to_string(), &error));
            }
        }
    }
    Err(first.unwrap_or_else(|| Failure::unknown_host(host)))
}

/// Returns the host and port of a server in the form that proxies expect.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
