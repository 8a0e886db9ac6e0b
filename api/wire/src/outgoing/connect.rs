//! Connections to other servers: dialed directly or through a proxy, encrypted if the endpoint says so, speaking HTTP/1,
//! or HTTP/2 where many calls may share one.
//!
//! Each step has a time limit of its own, besides that of the call. What a connection holds of an answer before it is read
//! is bounded.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::counting::counted_without;
use super::endpoint::Security;
use super::error::Ends;
use super::guard::Guard;
use super::pool::{Live, SHARED_MAX};
use super::{Endpoint, Failure};
use crate::keepalive;
use crate::stream::AnyStream;

/// Most bytes of an answer that are held before the reader takes them, which also bounds its head; and most headers.
const READ_BYTES_MAX: usize = 128 * 1024;
const HEADERS_MAX: usize = 256;

/// For the TLS handshake after the TCP connection: that of the reference server's HTTP client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Most bytes of all answers on a shared connection that are held before their readers take them: what each of them may
/// hold, so that those who do not read hold up no others.
const CONNECTION_BYTES_MAX: u32 = (SHARED_MAX * READ_BYTES_MAX) as u32;

/// When a quiet HTTP/2 connection is probed, and how long the answer may take: as the reference server's HTTP client has it.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// Names of protocols in the TLS handshake.
const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// A connection; its task ends with this, when its last call is over or given up.
#[derive(Debug)]
pub struct Connection {
    task: tokio::task::AbortHandle,
    ends: Ends,
}

impl Connection {
    /// Its ends.
    pub(super) fn ends(&self) -> Ends {
        self.ends
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A new connection for one call, which may be an upgrade: it speaks HTTP/1. If there is none, the call is counted.
pub(super) async fn connect<B>(
    endpoint: &Endpoint,
    method: &Method,
) -> Result<(http1::SendRequest<B>, Connection), Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let connecting = async {
        let (stream, ends) = reach(endpoint, &[]).await?;
        match stream {
            Stream::Plain(stream) => begin(stream, ends).await,
            Stream::Tls(stream) => begin(stream, ends).await,
        }
    };
    counted_without(endpoint, method, connecting).await
}

/// A new connection for many calls: it speaks HTTP/2 where the server does. If there is none, the first is counted.
pub(super) async fn connect_for_many(endpoint: &Endpoint, method: &Method) -> Result<Live, Failure> {
    let connecting = async {
        let (stream, ends) = reach(endpoint, &[HTTP_2, HTTP_1]).await?;
        let (sender, connection) = match stream {
            Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(HTTP_2) => {
                return begin_http2(stream, ends).await;
            }
            Stream::Tls(stream) => begin(stream, ends).await?,
            Stream::Plain(stream) => begin(stream, ends).await?,
        };
        Ok(Live::one(sender, connection))
    };
    counted_without(endpoint, method, connecting).await
}

/// The bytes of a connection.
enum Stream {
    Plain(AnyStream),
    Tls(Box<TlsStream<AnyStream>>),
}

/// Reaches a server; `protocols` are those of HTTP that the TLS handshake offers (RFC 7301), the best one first.
async fn reach(endpoint: &Endpoint, protocols: &[&[u8]]) -> Result<(Stream, Ends), Failure> {
    let (host, port) = endpoint.address();
    let dialed =
        tokio::time::timeout(endpoint.dial_timeout(), endpoint.egress().reach(host, port, endpoint.guard()))
            .await;
    let (stream, ends) = dialed.unwrap_or_else(|_| Err(Failure::dial_timeout(host, port)))?;
    let Security::Tls { config, name } = endpoint.security() else {
        return Ok((Stream::Plain(stream), ends));
    };
    let mut config = config.clone();
    if !protocols.is_empty() {
        // What the copies share are certificates, keys and remembered sessions.
        Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    }
    let handshake = TlsConnector::from(config).connect(name.clone(), stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => Ok((Stream::Tls(Box::new(stream)), ends)),
        Ok(Err(error)) => Err(Failure::handshake(&error, ends)),
        Err(_) => Err(Failure::Other("net/http: TLS handshake timeout".to_owned())),
    }
}

/// Speaks HTTP/1 on a connection.
async fn begin<B, S>(stream: S, ends: Ends) -> Result<(http1::SendRequest<B>, Connection), Failure>
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
        http.handshake(TokioIo::new(stream)).await.map_err(|error| Failure::exchange(&error, ends))?;
    let connection = tokio::spawn(connection.with_upgrades());
    Ok((sender, Connection { task: connection.abort_handle(), ends }))
}

/// Speaks HTTP/2 on a connection.
async fn begin_http2(stream: Box<TlsStream<AnyStream>>, ends: Ends) -> Result<Live, Failure> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_header_list_size(READ_BYTES_MAX as u32)
        .initial_stream_window_size(READ_BYTES_MAX as u32)
        .initial_connection_window_size(CONNECTION_BYTES_MAX)
        .keep_alive_interval(PROBE_INTERVAL)
        .keep_alive_timeout(PROBE_TIMEOUT)
        .keep_alive_while_idle(true);
    let (sender, connection) =
        http.handshake(TokioIo::new(stream)).await.map_err(|error| Failure::exchange(&error, ends))?;
    let connection = tokio::spawn(connection);
    Ok(Live::two(sender, Connection { task: connection.abort_handle(), ends }))
}

/// Connects to the first address of a host that takes the connection and that `guard` does not refuse; the failure names the
/// first one.
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
