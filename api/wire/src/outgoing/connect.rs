//! Connections to other servers. A connection is dialed directly or through a proxy, and is encrypted if the
//! endpoint requires it. The protocol is HTTP/1, or HTTP/2 if many calls may share the connection.
//!
//! Each step has its own time limit, in addition to the time limit of the call. The amount of response data
//! that a connection buffers is bounded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::Method;
use hyper::client::conn::http1;
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio_rustls::TlsConnector;

use super::connection::{Connection, Live, SHARED_MAX};
use super::endpoint::Security;
use super::error::Ends;
use super::{Endpoint, Failure};
use crate::http2::{self, AnyBody};
use crate::stream::AnyStream;

/// Maximum number of bytes of a response that are buffered before the reader takes them. This number also
/// bounds the head of the response.
const READ_BYTES_MAX: usize = 128 * 1024;

/// Maximum number of headers of a response.
const HEADERS_MAX: usize = 256;

/// Time limit of the TLS handshake, without the time for the TCP connection. The HTTP client of the reference
/// server has the same limit.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of bytes of all responses that are buffered on a shared connection: the sum of the limits
/// of the responses, so that a slow reader does not block other readers.
const CONNECTION_BYTES_MAX: u32 = (SHARED_MAX * READ_BYTES_MAX) as u32;

/// Time after which an idle HTTP/2 connection is probed, as in the reference server's HTTP client.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// Time limit for the reply to a probe, as in the reference server's HTTP client.
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

/// Opens a connection for one call. The connection uses HTTP/1, because the call may be an upgrade. A failure
/// is counted as a failed call.
pub(super) async fn connect(
    endpoint: &Endpoint,
    method: &Method,
) -> Result<(http1::SendRequest<AnyBody>, Connection), Failure> {
    let connecting = async {
        let reached = reach(endpoint, &[]).await?;
        begin(reached.stream, reached.ends).await
    };
    counted_without(endpoint, method, connecting).await
}

/// Opens a connection for many calls, with HTTP/2 if the server supports it. A failure is counted as a failed
/// call.
pub(super) async fn connect_for_many(endpoint: &Endpoint, method: &Method) -> Result<Live, Failure> {
    let connecting = async {
        let Reached { stream, ends, is_http2 } = reach(endpoint, &[HTTP_2, HTTP_1]).await?;
        if is_http2 {
            return begin_http2(stream, ends).await;
        }
        let (sender, connection) = begin(stream, ends).await?;
        Ok(Live::http1(sender, connection))
    };
    counted_without(endpoint, method, connecting).await
}

/// An open connection, plain or encrypted.
struct Reached {
    stream: AnyStream,
    ends: Ends,
    /// Whether the server chose HTTP/2 in the TLS handshake.
    is_http2: bool,
}

/// Connects to a server. `protocols` are the versions of HTTP that the TLS handshake offers (RFC 7301), in
/// order of preference.
async fn reach(endpoint: &Endpoint, protocols: &[&[u8]]) -> Result<Reached, Failure> {
    let (host, port) = endpoint.address();
    let dialed =
        tokio::time::timeout(endpoint.dial_timeout(), endpoint.egress().reach(host, port, endpoint.guard()))
            .await;
    let (stream, ends) = dialed.unwrap_or_else(|_| Err(Failure::dial_timeout(host, port)))?;
    let Security::Tls { config, name } = endpoint.security() else {
        return Ok(Reached { stream, ends, is_http2: false });
    };
    let mut config = config.clone();
    if !protocols.is_empty() {
        // The copies share certificates, keys and resumable sessions.
        Arc::make_mut(&mut config).alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    }
    let handshake = TlsConnector::from(config).connect(name.clone(), stream);
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => {
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP_2);
            Ok(Reached { stream: Box::new(stream), ends, is_http2 })
        }
        Ok(Err(error)) => Err(Failure::handshake(&error, ends)),
        Err(_) => Err(Failure::Other("net/http: TLS handshake timeout".to_owned())),
    }
}

/// Starts HTTP/1 on a connection.
async fn begin(stream: AnyStream, ends: Ends) -> Result<(http1::SendRequest<AnyBody>, Connection), Failure> {
    // Some servers compare header names in their usual capitalization.
    let mut http = http1::Builder::new();
    http.title_case_headers(true).max_buf_size(READ_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) =
        http.handshake(TokioIo::new(stream)).await.map_err(|error| Failure::exchange(&error, ends))?;
    let connection = tokio::spawn(connection.with_upgrades().boxed());
    Ok((sender, Connection::new(connection.abort_handle(), ends)))
}

/// Starts HTTP/2 on a connection.
async fn begin_http2(stream: AnyStream, ends: Ends) -> Result<Live, Failure> {
    let mut http = Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_header_list_size(READ_BYTES_MAX as u32)
        .initial_stream_window_size(READ_BYTES_MAX as u32)
        .initial_connection_window_size(CONNECTION_BYTES_MAX)
        .keep_alive_interval(PROBE_INTERVAL)
        .keep_alive_timeout(PROBE_TIMEOUT)
        .keep_alive_while_idle(true);
    let begun = http2::begin_with(&http, stream).await;
    let (sender, connection) = begun.map_err(|error| Failure::exchange(&error, ends))?;
    Ok(Live::http2(sender, Connection::new(connection.abort_handle(), ends)))
}
