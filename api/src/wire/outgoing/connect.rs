//! Connections to other servers: dialed directly or through a proxy, encrypted if the endpoint says so, speaking HTTP/1.
//!
//! Each step has a time limit of its own, besides that of the call. What a connection holds of an answer before it is read
//! is bounded.

use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::endpoint::Security;
use super::{Endpoint, Failure};
use crate::wire::keepalive;

/// Most bytes of an answer that are held before the reader takes them, which also bounds its head; and most headers.
const READ_BYTES_MAX: usize = 128 * 1024;
const HEADERS_MAX: usize = 256;

/// For the TLS handshake after the TCP connection: that of the reference server's HTTP client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection; its task ends with this, when the call is over or given up.
#[derive(Debug)]
pub struct Connection(tokio::task::AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A new connection.
pub(super) async fn connect<B>(endpoint: &Endpoint) -> Result<(http1::SendRequest<B>, Connection), Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (host, port) = endpoint.address();
    let dial = async {
        match endpoint.proxy() {
            Some(proxy) => proxy.dial(host, port).await,
            None => dial(host, port).await,
        }
    };
    let dialed = tokio::time::timeout(endpoint.dial_timeout(), dial).await;
    let stream = dialed.unwrap_or_else(|_| Err(Failure::dial_timeout(host, port)))?;
    let _ = stream.set_nodelay(true);
    keepalive::probe(&stream);
    let Security::Tls { config, name } = endpoint.security() else { return begin(stream).await };
    let handshake = TlsConnector::from(config.clone()).connect(name.clone(), stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(stream) => begin(stream.map_err(|error| Failure::handshake(&error))?).await,
        Err(_) => Err(Failure::Other("net/http: TLS handshake timeout".to_owned())),
    }
}

/// Speaks HTTP on a connection.
async fn begin<B, S>(stream: S) -> Result<(http1::SendRequest<B>, Connection), Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // Some servers compare names of headers as they are usually written.
    let mut http = http1::Builder::new();
    http.title_case_headers(true).max_buf_size(READ_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) =
        http.handshake(TokioIo::new(stream)).await.map_err(|error| Failure::exchange(&error))?;
    let connection = tokio::spawn(connection.with_upgrades());
    Ok((sender, Connection(connection.abort_handle())))
}

/// Connects to the first address of a host that takes the connection; the failure names the first one.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|_| Failure::unknown_host(host))?;
    let mut first = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                first.get_or_insert_with(|| Failure::connect(&address.to_string(), &error));
            }
        }
    }
    Err(first.unwrap_or_else(|| Failure::unknown_host(host)))
}
