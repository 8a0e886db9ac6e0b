//! A server that uses etcd as its store: etcd decides the writes, and the engine follows them
//! (docs/api/etcd.md).
//!
//! ```text
//! write ─► commit ─► transaction on mod_revision ─► etcd ─┐
//!             └─ waits until the engine has the revision  │ one stream of all changes
//! quorum read ─► barrier ─► etcd's revision ─► the same   ▼
//! everything else ─► engine ◄─ apply ◄─ follower (fill: one paged range at a revision, then the stream)
//! ```
//!
//! The engine has the revisions of etcd. The stream covers all keys, so it delivers every revision of etcd. A
//! revision that changes no object adds a mark to the engine, so that waiting for a revision needs no further
//! request. The state of the engine is a copy: if the copy no longer matches etcd, it is discarded and filled
//! again. Only etcd decides conflicts. This crate depends on the encoding of types, but not on requests.

mod addresses;
mod allocated;
mod apply;
mod barrier;
mod change_counts;
mod commit;
pub mod compaction;
pub mod definitions;
pub mod digests;
mod fetch;
mod fill;
mod follower;
mod in_service;
pub mod keys;
mod lease;
pub mod migration;
mod migration_mark;
mod own_writes;
mod repair;
pub mod stored_values;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, Revision, SealError};
use etcd::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use self::barrier::Barrier;
use self::change_counts::Serving;
use self::keys::Keys;
use self::lease::Leases;
use self::own_writes::OwnWrites;
use self::stored_values::Values;
use api::state::allocation::Ports;
use api::state::secrecy::Secrecy;
use types::schema::registry::Registry;
use values::naming::Naming;

pub use self::fill::Continuation;

/// Maximum time for which a write or a quorum read waits until the engine has reached the revision of etcd.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// Pause between two health checks of etcd.
const HEALTH_PAUSE: Duration = Duration::from_secs(1);

/// The connection of a server to a store in etcd.
pub struct Replica {
    client: Client,
    engine: Engine,
    keys: Keys,
    values: Values,
    naming: &'static Naming,
    /// Encryption of values; `None` if it is not configured.
    secrecy: Option<Arc<Secrecy>>,
    /// The range of node ports, as text.
    ports: String,
    /// Time to live of objects with a lease; set if this copy may become a separate store.
    lease_ttl: Option<Duration>,
    /// The revision at which this server wrote the mark of a move; 0 if it wrote no mark
    /// (docs/api/etcd.md#moving).
    claim: AtomicI64,
    /// Whether the store was moved away from this etcd.
    has_left: AtomicBool,
    /// The served types; set when the server begins to serve them.
    serving: OnceLock<Serving>,
    barrier: Arc<Barrier>,
    leases: Leases,
    /// The writes of this server that are under way.
    own: OwnWrites,
    /// Ports that are allocated but do not belong to a service.
    leaks: Mutex<repair::Leaks>,
    /// Notifies the follower that the copy lags and the stream delivers nothing, so that the follower
    /// restarts the stream.
    stalled: Notify,
    /// The reason why the copy is broken; `None` if it is not broken.
    broken: watch::Sender<Option<Broken>>,
    /// The current problem between the server and etcd; `None` if there is no problem.
    trouble: Mutex<Option<String>>,
    /// The result of the last health check of etcd.
    health: Mutex<Result<(), String>>,
}

/// The reason why the engine's copy no longer matches the store in this etcd. The process ends, and its next
/// start fills a new copy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

impl Replica {
    /// Returns a replica whose copy is in `engine`. The engine must be a follower. This function sends no
    /// requests.
    pub fn new(
        client: Client,
        engine: Engine,
        naming: &'static Naming,
        prefix: &str,
        ports: &Ports,
    ) -> Replica {
        let registry = Registry::new(naming);
        Replica {
            client,
            engine,
            keys: Keys::new(&registry, prefix),
            values: Values::new(registry, naming),
            naming,
            secrecy: None,
            ports: ports.to_string(),
            lease_ttl: None,
            claim: AtomicI64::new(0),
            has_left: AtomicBool::new(false),
            serving: OnceLock::new(),
            barrier: Barrier::new(),
            leases: Leases::default(),
            own: OwnWrites::default(),
            leaks: Mutex::default(),
            stalled: Notify::new(),
            broken: watch::Sender::new(None),
            trouble: Mutex::default(),
            health: Mutex::new(Ok(())),
        }
    }

    /// Sets the encryption of values.
    #[must_use]
    pub fn with_secrecy(self, secrecy: Option<Arc<Secrecy>>) -> Replica {
        Replica { secrecy, ..self }
    }

    /// Decrypts a value from etcd if it is encrypted.
    fn opened(&self, etcd_key: &[u8], value: &Bytes) -> Result<Bytes, SealError> {
        let Some(secrecy) = &self.secrecy else { return Ok(value.clone()) };
        Ok(secrecy.opened(etcd_key, value)?.map_or_else(|| value.clone(), Bytes::from))
    }

    /// Makes the copy contain the time to live of objects with a lease, because the copy may become a
    /// separate store.
    #[must_use]
    pub fn noting_leases(self, ttl: Duration) -> Replica {
        Replica { lease_ttl: (!ttl.is_zero()).then_some(ttl), ..self }
    }

    /// Returns the client for etcd.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Resolves when the copy is broken.
    pub async fn broken(&self) -> Broken {
        let mut broken = self.broken.subscribe();
        // The sender exists as long as `self`.
        match broken.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_else(|| Broken("the copy is broken".to_owned())),
            Err(_) => std::future::pending().await,
        }
    }

    fn break_off(&self, why: String) {
        self.broken.send_if_modified(|broken| {
            let is_first = broken.is_none();
            broken.get_or_insert(Broken(why));
            is_first
        });
    }

    /// Returns the current problem between the server and etcd, as the follower detected it.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Checks repeatedly whether etcd answers a quorum read within `timeout`. Never returns.
    pub async fn watch_health(&self, timeout: Duration) {
        loop {
            let found = match tokio::time::timeout(timeout, self.newest()).await {
                Ok(found) => found.map(drop).map_err(|error| error.to_string()),
                Err(_) => Err("etcd does not answer in time".to_owned()),
            };
            if let Err(why) = &found {
                tracing::warn!(why, "etcd is not healthy");
            }
            *self.health.lock() = found;
            tokio::time::sleep(HEALTH_PAUSE).await;
        }
    }

    /// Returns the key of the mark of a move.
    fn mark_key(&self) -> bytes::Bytes {
        format!("{}{}", self.keys.prefix(), migration_mark::MARK).into()
    }

    fn claimed(&self) -> i64 {
        self.claim.load(Ordering::Acquire)
    }

    /// Returns whether the store was moved away from this etcd. The state of this etcd is then no longer the
    /// newest state of the store.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Returns the newest revision of the copy.
    pub fn revision(&self) -> Revision {
        self.engine.revision()
    }
}

/// Converts a revision from etcd's type.
fn revision(number: i64) -> Revision {
    Revision::new(number.unsigned_abs())
}

/// Converts a revision to etcd's type.
fn number(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}
