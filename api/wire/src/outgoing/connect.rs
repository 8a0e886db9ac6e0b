//! Connections to other servers: dialed directly or through a proxy, encrypted if the endpoint requires it,
//! with HTTP/1, or with HTTP/2 where many calls may share a connection.
//!
//! Each step has its own time limit, in addition to that of the call. The amount of response data that a
//! connection buffers is bounded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection::{Connection, Live, SHARED_MAX};
use super::endpoint::Security;
use super::error::Ends;
use super::{Endpoint, Failure};
use crate::stream::AnyStream;

/// Maximum number of bytes of a response that are buffered before the reader takes them, which also bounds
/// its head; and maximum number of headers.
const READ_BYTES_MAX: usize = 128 * 1024;
const HEADERS_MAX: usize = 256;

/// Time limit of the TLS handshake after the TCP connection: that of the reference server's HTTP client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes of all responses that are buffered on a shared connection: the sum of the limits
/// of the responses, so that a slow reader does not block others.
const CONNECTION_BYTES_MAX: u32 = (SHARED_MAX * READ_BYTES_MAX) as u32;

/// Interval after which an idle HTTP/2 connection is probed, and time limit for the reply: as in the
/// reference server's HTTP client.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// Protocol names in the TLS handshake.
const HTTP_1: &[u8] = b"http/1.1";
const HTTP_2: &[u8] = b"h2";

/// Waits for a connection; a failure is counted as a failed call.
async fn counted_without<C>(
    endpoint: &Endpoint,
    method: &Method,
    connecting: impl Future<Output = Result<C, Failure>>,
) -> Result<C, Failure> {
    let began = Instant::now();
    connecting.await.inspect_err(|_| endpoint.count(method, None, began))
}

/// Opens a connection for one call, which may be an upgrade, so it uses HTTP/1. A failure is counted as a
/// failed call.
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

/// Opens a connection for many calls, with HTTP/2 if the server supports it. A failure is counted as a failed
/// call.
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
        Ok(Live::http1(sender, connection))
    };
    counted_without(endpoint, method, connecting).await
}

/// The byte stream of a connection, plain or encrypted.
enum Stream {
    Plain(AnyStream),
    Tls(Box<TlsStream<AnyStream>>),
}

/// Connects to a server. `protocols` are the versions of HTTP that the TLS handshake offers (RFC 7301), in
/// order of preference.
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
        // The copies share certificates, keys and resumable sessions.
        Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    }
    let handshake = TlsConnector::from(config).connect(name.clone(), stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => Ok((Stream::Tls(Box::new(stream)), ends)),
        Ok(Err(error)) => Err(Failure::handshake(&error, ends)),
        Err(_) => Err(Failure::Other("net/http: TLS handshake timeout".to_owned())),
    }
}

/// Starts HTTP/1 on a connection.
async fn begin<B, S>(stream: S, ends: Ends) -> Result<(http1::SendRequest<B>, Connection), Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    // Some servers compare header names in their usual spelling.
    let mut http = http1::Builder::new();
    http.title_case_headers(true).max_buf_size(READ_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) =
        http.handshake(TokioIo::new(stream)).await.map_err(|error| Failure::exchange(&error, ends))?;
    let connection = tokio::spawn(connection.with_upgrades());
    Ok((sender, Connection::new(connection.abort_handle(), ends)))
}

/// Starts HTTP/2 on a connection.
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
    Ok(Live::http2(sender, Connection::new(connection.abort_handle(), ends)))
}
