//! The component of the server for the operator: lifecycle, limits, metrics, traces and diagnostics.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::state::debug::Debugging;
use crate::state::log_files::LogFiles;
use crate::state::testing::Testing;
use tokio::sync::watch;
use types::version::ServerVersion;
use values::memory::Memory;
use wire::metrics::Metrics;
use wire::server::Lifecycle;
use wire::traces::Tracer;

/// Time limits that an operator can set, and whether writes store their authors.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest duration of a request that is not long-running.
    pub request_timeout: Duration,
    /// Shortest lifetime of a watch whose client does not set a timeout.
    pub min_request_timeout: Duration,
    /// Time during which `/livez` ignores startup checks that fail.
    pub livez_grace_period: Duration,
    /// Lifetime of an event after its last write. 0 means that events do not expire.
    pub event_ttl: Duration,
    /// Period over which a draining server distributes the ends of watches.
    pub watch_grace: Duration,
    /// Whether each write stores the name of its author.
    pub records_authors: bool,
    /// Time after which a newer write invalidates the continue tokens of a list. 0 means that the tokens are
    /// valid as long as the history is kept.
    pub continue_ttl: Duration,
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
            continue_ttl: Duration::from_secs(300),
        }
    }
}

/// The service through which pods reach this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnService {
    /// Address of the server inside the cluster, if it is known.
    pub advertised: Option<SocketAddr>,
    /// Port on which the server listens.
    pub port: u16,
    /// Node port through which clients also reach the server.
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
    /// The log files that the server serves, if any.
    pub log_files: Option<Arc<dyn LogFiles>>,
    /// Log level and profiles of the process, for the debugging paths.
    pub debugging: Debugging,
    /// The test features, if they are served.
    pub testing: Option<Arc<Testing>>,
    /// The flags of the process, for `/flagz`.
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
    /// copy. After a replacement, the copies are updated.
    pub root_ca: watch::Sender<String>,
    /// Whether the server sets the finalizers `orphan` and `foregroundDeletion` of the garbage collector. If
    /// the value is true, the garbage collector also runs, unless the operator disabled it.
    pub collects_garbage: bool,
    /// Time at which the server started.
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
            testing: None,
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

    /// Returns the time since the start of the server.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns whether `/livez` still ignores startup checks that fail.
    pub fn is_within_livez_grace(&self) -> bool {
        self.started.elapsed() < self.limits.livez_grace_period
    }
}
