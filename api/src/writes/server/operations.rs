//! The part of the server for its operator: its life, limits and measurements, and what it says about itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::state::debug::Debugging;
use crate::state::log_files::LogFiles;
use tokio::sync::watch;
use types::version::ServerVersion;
use values::memory::Memory;
use wire::metrics::Metrics;
use wire::server::Lifecycle;
use wire::traces::Tracer;

/// Limits that an operator may set, and what the server records.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest duration of a request that is not long-running.
    pub request_timeout: Duration,
    /// Shortest lifetime of a watch whose client sets none.
    pub min_request_timeout: Duration,
    /// Time during which `/livez` ignores startup checks that fail.
    pub livez_grace_period: Duration,
    /// Lifetime of an event after each write. 0 means that events live until a client deletes them.
    pub event_ttl: Duration,
    /// Period over which the server spreads the ends of watches when it drains.
    pub watch_grace: Duration,
    /// Whether each write stores its author.
    pub records_authors: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            livez_grace_period: Duration::ZERO,
            event_ttl: Duration::from_secs(3_600),
            watch_grace: Duration::ZERO,
            records_authors: true,
        }
    }
}

/// The service through which pods reach this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnService {
    /// Address of the server inside the cluster, if known.
    pub advertised: Option<SocketAddr>,
    /// Port on which the server listens.
    pub port: u16,
    /// Node port that also reaches the server.
    pub node_port: Option<u16>,
    /// Whether the server maintains endpoints for the service.
    pub has_endpoints: bool,
}

impl Default for OwnService {
    fn default() -> OwnService {
        OwnService { advertised: None, port: 443, node_port: None, has_endpoints: true }
    }
}

/// The state and the settings of the server as a process.
pub struct Operations {
    /// Startup and shutdown state.
    pub lifecycle: Lifecycle,
    /// Time limits that the operator set.
    pub limits: Limits,
    /// The counters of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The account of the memory that requests use.
    pub memory: Arc<Memory>,
    /// Selection of the requests that are traced, if any.
    pub tracer: Option<Tracer>,
    /// The log files that are served, if any.
    pub log_files: Option<Arc<dyn LogFiles>>,
    /// Log level and profiles of the process, for the paths of debugging.
    pub debugging: Debugging,
    /// The flags of the process, for display.
    pub flags: Vec<(String, String)>,
    /// The version that the server reports.
    pub version: ServerVersion,
    /// Name of the host on which the server runs.
    pub host_name: String,
    /// Address at which clients reach the server.
    pub address: SocketAddr,
    /// The service through which pods reach this server.
    pub own_service: OwnService,
    /// PEM of the authorities with which clients inside the cluster verify this server. Every namespace has a
    /// copy, which follows a replacement.
    pub root_ca: watch::Sender<String>,
    /// Whether the server sets the finalizers `orphan` and `foregroundDeletion` of the garbage collector. The
    /// collector then also runs, unless it is deselected.
    pub collects_garbage: bool,
    /// Start of the server.
    pub started: Instant,
}

impl Operations {
    /// Returns the default operations of a server that starts now and that clients reach at `address`.
    pub fn new(address: SocketAddr) -> Operations {
        Operations {
            lifecycle: Lifecycle::new(),
            limits: Limits::default(),
            metrics: Arc::default(),
            memory: Arc::default(),
            tracer: None,
            log_files: None,
            debugging: Debugging::default(),
            flags: Vec::new(),
            version: ServerVersion::default(),
            host_name: "localhost".to_owned(),
            address,
            own_service: OwnService::default(),
            root_ca: watch::Sender::new(String::new()),
            collects_garbage: true,
            started: Instant::now(),
        }
    }

    /// Replaces the authorities with which clients inside the cluster verify this server.
    pub fn replace_root_ca(&self, root_ca: String) {
        self.root_ca.send_if_modified(|known| std::mem::replace(known, root_ca) != *known);
    }

    /// Returns how long the server has been running.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns whether `/livez` still ignores startup checks that fail.
    pub fn is_within_livez_grace(&self) -> bool {
        self.started.elapsed() < self.limits.livez_grace_period
    }
}
