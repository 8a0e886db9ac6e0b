//! The connection layer: sockets, TLS and HTTP framing around one [`Handler`].
//!
//! ```text
//! accept ─► TLS handshake ─► ALPN ─┬─ h2 ──────┐
//!   │            │                 └─ http/1.1 ┴─► Handler ─► Body
//!   └ bound      └ timeout             │
//!                                      └ supervision: head timeout, idle timeout, drain, cut
//! ```
//!
//! Invariants: every wait on a peer has a named bound in [`Limits`]; a panic in the handler becomes the 500 of that
//! request and affects no other; a body that its producer did not finish never looks complete to the client. This layer
//! knows no resources, users or files: certificates are passed as bytes, and the authenticators map a client
//! certificate to a user later.

pub mod body;
mod connection;
pub mod frames;
mod head;
mod lifecycle;
mod lull;
pub mod seldom;
mod serve;
mod tls;
mod turns;
pub mod upgrade;
pub mod websocket;
mod wire;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use auth::authn::x509::PeerCertificates;
use rustls::pki_types::CertificateDer;
use tokio::sync::OwnedSemaphorePermit;

pub use body::{Aborted, Body, BodyError, BodySender, Gone, read_body, read_charged};
pub use connection::{Incoming, panic_response};
pub use lifecycle::{DrainLimit, InFlight, Lifecycle, Shutdown, Stage};
pub use serve::{Drained, serve};
pub use tls::{CertificateError, NamedCertificate, ServingCertificate, Tls, TlsSettings, server_config};

/// A request as it comes off the connection; its body is read through [`read_body`].
pub type Request = http::Request<Incoming>;
/// A response as it goes onto the connection.
pub type Response = http::Response<Body>;

/// Largest piece of an answer that is encrypted and sent in one go: four TLS records, less the size that HTTP/1.1 writes before it.
/// Smaller pieces cost more calls of the kernel, and more of a larger one waits in two forms for a slow reader.
pub const PIECE_BYTES: usize = ENCRYPTED_BYTES_MAX - 64;

/// Encrypted bytes of a connection that may wait for its socket.
const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;

/// Asks, as an extension of a response, that its connection takes no more requests after those under way.
#[derive(Clone, Copy, Debug)]
pub struct Retire;

/// Answers requests. One value serves every connection.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the client goes away, and a panic in it becomes a 500. The request has, as an
    /// extension, the [`Token`](values::cancellation::Token) that ends its computations then.
    fn handle(
        &self,
        request: Request,
        connection: &Arc<ConnectionInfo>,
    ) -> impl Future<Output = Response> + Send;

    /// Hears that a connection ended in its TLS handshake.
    fn handshake_failed(&self) {}
}

/// The connection that a request arrived on; shared by all its requests.
///
/// The connection counts against [`Limits::connections_max`], and holds up a drain, for as long as a holder keeps
/// one of these: a handler that takes the connection over (an upgrade) keeps it until it is done.
pub struct ConnectionInfo {
    /// The peer.
    pub remote: SocketAddr,
    /// The certificate chain the client sent. Only possession of the private key has been checked; authentication
    /// checks the issuer.
    pub certificates: PeerCertificates,
    /// What this connection may hold of answers.
    pub allotment: values::memory::Allotment,
    permit: Option<OwnedSemaphorePermit>,
    /// Whether its last request is one of many.
    is_crowded: AtomicBool,
}

impl ConnectionInfo {
    /// A connection that no server counts, for driving a handler directly.
    pub fn detached(remote: SocketAddr, certificates: Vec<CertificateDer<'static>>) -> Self {
        ConnectionInfo {
            remote,
            certificates: PeerCertificates::new(certificates),
            allotment: values::memory::Allotment::default(),
            permit: None,
            is_crowded: AtomicBool::new(false),
        }
    }

    /// Notes whether the flow of the request that runs has much under way. If so, the connection takes turns with others of
    /// that kind, until its next request.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.is_crowded.store(is_crowded, Ordering::Relaxed);
    }

    fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// How much longer the certificates are valid; `None` without any.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.certificates.expires()?.duration_since(SystemTime::now()).unwrap_or_default())
    }

    fn counted(
        remote: SocketAddr,
        certificates: Vec<CertificateDer<'static>>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        ConnectionInfo { permit: Some(permit), ..Self::detached(remote, certificates) }
    }
}

impl std::fmt::Debug for ConnectionInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionInfo")
            .field("remote", &self.remote)
            .field("certificates", &self.certificates.certificates().len())
            .field("counted", &self.permit.is_some())
            .finish()
    }
}

/// Bytes of a request body, at most (docs/api/paths-and-verbs.md#timeouts-and-limits).
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Every bound of the connection layer. The defaults are for production; tests shorten the waits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at one time. Beyond it new ones wait in the listen backlog. At about 30 KiB for an idle
    /// connection (measured, TLS included), the default stays below half a gigabyte.
    pub connections_max: u32,
    /// From accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request head to its last (on a new connection: from its beginning). A client that
    /// trickles its head is cut here.
    pub head_timeout: Duration,
    /// Without any request in flight, before the connection is closed. Clients pool connections for 90 s.
    pub idle_timeout: Duration,
    /// Without the peer taking a single byte that waits for it. Longer than the default retention of history, so
    /// that a watcher that was merely stopped for a while still resumes; about what the kernel allows a dead peer.
    pub write_stall_timeout: Duration,
    /// After the last response, for the peer to finish sending and close. Closing on unread input would reset the
    /// connection and may destroy the response (a refused large body) on its way.
    pub linger_timeout: Duration,
    /// Request line and headers, in bytes. Upstream's stack allows 1 MiB; a client that was not identified yet can
    /// make us hold this much per stream, so it is less, though far more than URLs and tokens need.
    /// Over HTTP/1.1 it is also how much of an answer may wait for a slow reader before no more of it is made.
    pub head_bytes_max: u32,
    /// Requests at one time on an HTTP/2 connection. One client process watches hundreds of resources over one
    /// connection, so this is well above upstream's 100.
    pub http2_streams_max: u32,
    /// Unread request body bytes held per HTTP/2 stream, and twice that per connection.
    pub http2_window_bytes: u32,
    /// Response bytes that may wait on an HTTP/2 stream before no more of it is asked for. Small because there is one per watch,
    /// and below [`PIECE_BYTES`] so that there is no second piece beside one that waits.
    pub http2_send_buffer_bytes: usize,
    /// Between HTTP/2 pings to a silent peer, and how long its answer may take. Finds dead peers under watches.
    pub http2_ping_interval: Duration,
    /// See [`Limits::http2_ping_interval`].
    pub http2_ping_timeout: Duration,
    /// Once draining, how long no request must have come before HTTP/1.1 connections without one are closed: a request
    /// that crosses our closing on the wire would be lost.
    pub drain_idle_grace: Duration,
    /// How long they stay open at most, while requests go on coming.
    pub drain_idle_max: Duration,
    /// Once draining, how long requests in flight may go on before their connections are cut.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 16_384,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(90),
            write_stall_timeout: Duration::from_secs(15 * 60),
            linger_timeout: Duration::from_secs(3),
            head_bytes_max: 96 * 1024,
            http2_streams_max: 1000,
            http2_window_bytes: 128 * 1024,
            http2_send_buffer_bytes: 48 * 1024,
            http2_ping_interval: Duration::from_secs(30),
            http2_ping_timeout: Duration::from_secs(20),
            drain_idle_grace: Duration::from_millis(250),
            drain_idle_max: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(60),
        }
    }
}
