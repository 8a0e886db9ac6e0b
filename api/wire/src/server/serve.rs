//! The accept loop of a listener. The loop serves each connection in a task until shutdown begins, and then
//! waits for a bounded time until the connections have ended.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::connection::{self, Activity, Protocols, Server};
use super::quiet_period::QuietPeriod;
use super::turns::Turns;
use super::wire::Wire;
use super::{ConnectionInfo, ENCRYPTED_BYTES_MAX, Handler, Limits, Shutdown, tls};

/// Initial and maximum wait after the system had no resources for another connection.
const ACCEPT_BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Maximum time that the server waits until cut connections have ended.
const CUT_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval between two warnings that new connections wait until other connections end.
const LIMIT_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Response to clients that use plain HTTP on the TLS port.
const PLAIN_HTTP: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// Outcome of a drain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Drained {
    /// Number of connections that were still busy at the drain timeout and were cut.
    pub connections_cut: usize,
    /// Number of requests in progress on these connections.
    pub requests_cut: u64,
}

/// State that all connections of a server share.
struct Shared {
    tls: Arc<tls::ServerTls>,
    server: Server,
}

/// Serves connections from `listener` until `shutdown` begins, then drains.
///
/// When the drain begins, the listener closes at once. Requests in flight continue. Connections that have not
/// ended after [`Limits::drain_timeout`], or at the limit set in the lifecycle, are cut. Handlers end long
/// responses themselves when the shutdown begins.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<tls::ServerTls>,
    handler: Arc<dyn Handler>,
    limits: Limits,
    shutdown: Shutdown,
) -> Drained {
    let permits = Arc::new(Semaphore::new(limits.connections_max as usize));
    let turns = Turns::of_machine();
    let (protocols, quiet_period) = (Protocols::new(&limits), Arc::new(QuietPeriod::new()));
    let server = Server { handler, protocols, turns, quiet_period, limits, shutdown };
    let shared = Arc::new(Shared { tls, server });
    let mut connections = JoinSet::new();
    tokio::select! {
        () = shared.server.shutdown.wait_for_drain() => {}
        () = accept_all(&listener, &permits, &shared, &mut connections) => {}
    }
    drop(listener);

    let limits = &shared.server.limits;
    let limit = shared.server.shutdown.drain_limit();
    let at_most = |timeout: Duration, until: Option<Instant>| {
        until.map_or(timeout, |until| timeout.min(until.saturating_duration_since(Instant::now())))
    };
    let all_ended = permits.acquire_many(limits.connections_max);
    tokio::pin!(all_ended);
    let drain_timeout = at_most(limits.drain_timeout, limit.map(|limit| limit.cut_at));
    if tokio::time::timeout(drain_timeout, all_ended.as_mut()).await.is_ok() {
        return Drained { connections_cut: 0, requests_cut: 0 };
    }
    while connections.try_join_next().is_some() {}
    let connections_cut = connections.len();
    let requests_cut = shared.server.shutdown.under_way().load(Ordering::Relaxed);
    connections.abort_all();
    let cut_timeout = at_most(CUT_TIMEOUT, limit.map(|limit| limit.ended_at));
    let _ = tokio::time::timeout(cut_timeout, all_ended).await;
    Drained { connections_cut, requests_cut }
}

async fn accept_all(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
) {
    let mut backoff = Backoff::default();
    let mut warned: Option<Instant> = None;
    loop {
        let permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                if warned.is_none_or(|at| at.elapsed() > LIMIT_WARNING_INTERVAL) {
                    let limit = shared.server.limits.connections_max;
                    tracing::warn!(limit, "connection limit reached, new connections wait");
                    warned = Some(Instant::now());
                }
                let Ok(permit) = permits.clone().acquire_owned().await else { return };
                permit
            }
        };
        let accepted = loop {
            tokio::select! {
                accepted = listener.accept() => break accepted,
                // Joining connections that have ended frees their memory.
                Some(_) = connections.join_next() => {}
            }
        };
        match accepted {
            Ok((stream, remote)) => {
                backoff = Backoff::default();
                connections.spawn(serve_connection(stream, remote, permit, shared.clone()));
            }
            Err(error) => {
                if let Some(wait) = backoff.after(&error) {
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
}

/// Waits between attempts while the system is out of resources, and logs each such period once.
#[derive(Default)]
struct Backoff(Option<Duration>);

impl Backoff {
    fn after(&mut self, error: &io::Error) -> Option<Duration> {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            return None; // an error of only this connection
        }
        let wait = match self.0 {
            None => {
                tracing::warn!(%error, "cannot accept connections");
                ACCEPT_BACKOFF.0
            }
            Some(wait) => (wait * 2).min(ACCEPT_BACKOFF.1),
        };
        self.0 = Some(wait);
        Some(wait)
    }
}

async fn serve_connection(
    stream: TcpStream,
    remote: SocketAddr,
    permit: OwnedSemaphorePermit,
    shared: Arc<Shared>,
) {
    if let Err(error) = converse(stream, remote, permit, &shared).await {
        tracing::debug!(%remote, error = %chain(&*error), "connection ended");
    }
}

async fn converse(
    stream: TcpStream,
    remote: SocketAddr,
    permit: OwnedSemaphorePermit,
    shared: &Shared,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let limits = &shared.server.limits;
    stream.set_nodelay(true)?;
    let activity = Arc::new(Activity::new(shared.server.shutdown.under_way()));
    let handshake = async {
        let mut first = [0];
        let spoken = stream.peek(&mut first).await?;
        let mut wire = Wire::new(stream, activity.clone(), limits);
        if spoken > 0 && first[0].is_ascii_uppercase() {
            // The first letter of a method. TLS begins with byte 22.
            wire.write_all(PLAIN_HTTP).await?;
            wire.shutdown().await?;
            return Ok(None);
        }
        TlsAcceptor::from(shared.tls.current()).accept(wire).await.map(Some)
    };
    // Boxed, because the handshake needs much space for a moment, and the connection may live for days.
    let handshake = tokio::time::timeout(limits.handshake_timeout, handshake);
    let shaken = Box::pin(handshake).await;
    if !matches!(shaken, Ok(Ok(_))) {
        shared.server.handler.handshake_failed();
    }
    let Some(mut stream) = shaken?? else {
        return Ok(());
    };
    stream.get_mut().1.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
    let session = stream.get_ref().1;
    let http1 = session.alpn_protocol() != Some(tls::HTTP2);
    let certificates = session
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|certificate| CertificateDer::clone(certificate).into_owned())
        .collect();
    let info = Arc::new(ConnectionInfo::counted(remote, certificates, permit));
    Box::pin(connection::run(stream, http1, &shared.server, info, activity)).await?;
    Ok(())
}

/// Returns an error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_backs_off_only_if_the_system_lacks_resources() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after(&io::ErrorKind::ConnectionAborted.into()), None);
        let too_many_files = io::Error::from_raw_os_error(24);
        let waits: Vec<_> = (0..10).filter_map(|_| backoff.after(&too_many_files)).collect();
        assert_eq!((waits[0], waits[1]), (ACCEPT_BACKOFF.0, ACCEPT_BACKOFF.0 * 2));
        assert_eq!(waits.last(), Some(&ACCEPT_BACKOFF.1));
    }
}
