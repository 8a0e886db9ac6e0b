//! The connection layer: sockets, TLS and HTTP framing around one [`Handler`].
//!
//! ```text
//! accept ─► TLS handshake ─► ALPN ─┬─ h2 ──────┐
//!   │            │                 └─ http/1.1 ┴─► Handler ─► Body
//!   └ bound      └ timeout             │
//!                                      └ supervision: head timeout, idle timeout, drain, cut
//! ```
//!
//! Invariants: every wait for a peer has a limit in [`Limits`]. A panic in the handler becomes a 500 response
//! to its request and does not affect other requests. A body that its producer did not finish never looks
//! complete to the client. This layer does not depend on resources, users or files: callers pass certificates
//! as bytes, and the authenticators map a client certificate to a user later.

pub mod body;
mod connection;
pub mod frames;
mod head;
mod lifecycle;
pub mod poll_gate;
mod quiet_period;
mod serve;
mod tls;
mod turns;
pub mod upgrade;
pub mod websocket;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use auth::authn::x509::PeerCertificates;
use futures_util::future::BoxFuture;
use rustls::pki_types::CertificateDer;
use tokio::sync::OwnedSemaphorePermit;

pub use body::{Aborted, Body, BodyError, BodySender, ClientGone, read_body, read_charged};
pub use connection::{Incoming, panic_response};
pub use lifecycle::{DrainLimit, InFlight, Lifecycle, LifecycleStage, Shutdown};
pub use serve::{Drained, serve};
pub use tls::{
    CertificateError, NamedCertificate, ServerTls, ServingCertificate, TlsSettings, server_config,
};

/// A request from a connection; [`read_body`] reads the body.
pub type Request = http::Request<Incoming>;
/// A response to be sent on a connection.
pub type Response = http::Response<Body>;

/// Maximum size of a piece of a response that is encrypted and sent in one call: four TLS records, less the
/// chunk size that HTTP/1.1 writes before it. Smaller pieces cost more system calls; a larger piece would be
/// in memory in both plain and encrypted form while it waits for a slow reader.
pub const PIECE_BYTES: usize = ENCRYPTED_BYTES_MAX - 64;

/// Maximum number of encrypted bytes of a connection that may wait for its socket.
const ENCRYPTED_BYTES_MAX: usize = 64 * 1024;

/// Response extension that asks the connection to accept no further requests after those in progress.
#[derive(Clone, Copy, Debug)]
pub struct Retire;

/// Answers requests. A server uses one value for all its connections.
///
/// Connections use a trait object, not a type parameter. With a type parameter, the crate that names the
/// handler type would compile the code of the connections, together with all code below the handler.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the client disconnects, and a panic in it becomes a
    /// 500. The request has an extension, a [`CancellationToken`](values::cancellation::CancellationToken),
    /// that cancels its computations in these cases.
    fn handle<'h>(&'h self, request: Request, connection: &'h Arc<ConnectionInfo>)
    -> BoxFuture<'h, Response>;

    /// Called when a connection fails in its TLS handshake.
    fn handshake_failed(&self) {}
}

/// The connection that a request arrived on; shared by all its requests.
///
/// The connection counts against [`Limits::connections_max`], and delays a drain, for as long as a reference
/// to this value exists: a handler that takes over the connection (an upgrade) keeps it until the end.
pub struct ConnectionInfo {
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Certificate chain that the client sent. Only possession of the private key has been checked;
    /// authentication checks the issuer.
    pub certificates: PeerCertificates,
    /// Memory that this connection may use for responses.
    pub allotment: values::memory::Allotment,
    permit: Option<OwnedSemaphorePermit>,
    /// Whether the flow of the last request of this connection has many requests in progress.
    is_crowded: AtomicBool,
}

impl ConnectionInfo {
    /// Returns a connection that no server counts, for calling a handler directly.
    pub fn detached(remote: SocketAddr, certificates: Vec<CertificateDer<'static>>) -> Self {
        ConnectionInfo {
            remote,
            certificates: PeerCertificates::new(certificates),
            allotment: values::memory::Allotment::default(),
            permit: None,
            is_crowded: AtomicBool::new(false),
        }
    }

    /// Sets whether the flow of the current request has many requests in progress. If `is_crowded` is true,
    /// the connection takes turns with other such connections, until its next request.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.is_crowded.store(is_crowded, Ordering::Relaxed);
    }

    fn is_crowded(&self) -> bool {
        self.is_crowded.load(Ordering::Relaxed)
    }

    /// Returns the remaining time until a certificate expires; `None` if there are no certificates.
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

/// Maximum number of bytes in a request body (docs/api/paths-and-verbs.md#timeouts-and-limits).
pub const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// All limits of the connection layer. The defaults are for production; tests shorten the waits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of concurrent connections. Further connections wait in the listen backlog. At about 30
    /// KiB for an idle connection (measured, including TLS), the default stays below half a gigabyte.
    pub connections_max: u32,
    /// Time limit from accept to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Time limit from the first byte of a request head to the last byte of the head (on a new connection:
    /// from the start of the connection). This limit protects against clients that send their head very
    /// slowly.
    pub head_timeout: Duration,
    /// Time without any request in flight after which the connection is closed. Clients pool connections for
    /// 90 s.
    pub idle_timeout: Duration,
    /// Maximum time for which a write may make no progress because the peer reads nothing. The default is
    /// longer than the default retention of history, so that a watcher that was only stopped for a while can
    /// resume. The default is about as long as the kernel waits for a dead peer.
    pub write_stall_timeout: Duration,
    /// Maximum time after the last response in which the peer must finish sending and close. If this server
    /// closed the connection with unread input, the connection would be reset, and the reset could destroy
    /// the response, for example the refusal of a large body.
    pub linger_timeout: Duration,
    /// Maximum size of the request line and headers, in bytes. The value is below the 1 MiB of upstream,
    /// because a client that is not authenticated yet can make the server use this much memory per stream.
    /// URLs and tokens need far less. On HTTP/1.1 the value is also the number of response bytes that may
    /// wait for a slow reader. Above this number, the server produces no more bytes.
    pub head_bytes_max: u32,
    /// Maximum number of concurrent requests on an HTTP/2 connection. A client process may watch hundreds of
    /// resources over one connection, so the default is far above upstream's 100.
    pub http2_streams_max: u32,
    /// Maximum number of unread request body bytes per HTTP/2 stream. The limit per connection is twice this
    /// number.
    pub http2_window_bytes: u32,
    /// Number of response bytes that may wait on an HTTP/2 stream. At this number, the server produces no
    /// more bytes. The limit is small, because each watch has a stream. The limit is below [`PIECE_BYTES`],
    /// so that no second piece is produced while one piece waits.
    pub http2_send_buffer_bytes: usize,
    /// Interval of HTTP/2 pings to a silent peer. Pings detect dead peers of watches.
    pub http2_ping_interval: Duration,
    /// Time limit for the reply to an HTTP/2 ping.
    pub http2_ping_timeout: Duration,
    /// Time without any request after which a draining server closes idle HTTP/1.1 connections: a request
    /// that is sent while the server closes would be lost.
    pub drain_idle_grace: Duration,
    /// Maximum time for which a draining server keeps idle HTTP/1.1 connections open while requests still
    /// arrive on any connection.
    pub drain_idle_max: Duration,
    /// Maximum time for which requests in flight may continue during a drain before their connections are
    /// cut.
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
