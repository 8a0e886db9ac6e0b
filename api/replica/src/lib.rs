//! One API on a distributed log: a server whose writes etcd decides, and whose engine follows them (docs/api/etcd.md).
//!
//! ```text
//! write ─► commit ─► transaction on mod_revision ─► etcd ─┐
//!             └─ waits until the engine has the revision  │ one stream of all changes
//! quorum read ─► barrier ─► etcd's revision ─► the same   ▼
//! everything else ─► engine ◄─ apply ◄─ follower (fill: one paged range at a revision, then the stream)
//! ```
//!
//! The revisions of the engine are etcd's. The stream covers all keys, so each revision of etcd comes by: those of keys that are
//! no objects leave a mark, and waiting for a revision needs no further question. What the engine has is a copy: when it
//! does not fit etcd any more, it is thrown away and filled again. Conflicts are decided by etcd alone.
//! This module knows kinds as far as their form, and no requests.

mod addresses;
mod allocated;
mod apply;
mod barrier;
mod commit;
pub mod compaction;
mod counting;
pub mod definitions;
pub mod digests;
mod fetch;
mod fill;
mod follower;
mod in_service;
pub mod keys;
mod lease;
mod mark;
pub mod moving;
mod own;
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
use self::counting::Serving;
use self::keys::Keys;
use self::lease::Leases;
use self::own::OwnWrites;
use self::stored_values::Values;
use api::state::allocation::Ports;
use api::state::secrecy::Secrecy;
use types::schema::registry::Registry;
use values::naming::Naming;

pub use self::fill::Continuation;

/// How long a write or a quorum read waits for the engine to have what etcd has decided.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// Pause between two looks at etcd's health.
const HEALTH_PAUSE: Duration = Duration::from_secs(1);

/// A server's part in a store that etcd keeps.
pub struct Replica {
    client: Client,
    engine: Engine,
    keys: Keys,
    values: Values,
    naming: &'static Naming,
    /// How values are encrypted, if any are.
    secrecy: Option<Arc<Secrecy>>,
    /// The range of node ports, as it is written.
    ports: String,
    /// How long objects with a lease live in a store that this copy becomes.
    lease_ttl: Option<Duration>,
    /// The revision at which this server made the mark of a move; 0: it made none (docs/api/etcd.md#moving).
    claim: AtomicI64,
    /// Whether the store was moved from this etcd to another place.
    has_left: AtomicBool,
    /// The types that are served, once they are.
    serving: OnceLock<Serving>,
    barrier: Arc<Barrier>,
    leases: Leases,
    /// What this server is writing.
    own: OwnWrites,
    /// Ports that are taken and that no service has.
    leaks: Mutex<repair::Leaks>,
    /// Has the follower begin its stream anew: it is behind, and nothing comes.
    stalled: Notify,
    /// Why the copy cannot go on being one.
    broken: watch::Sender<Option<Broken>>,
    /// What is wrong between the server and etcd, if anything.
    trouble: Mutex<Option<String>>,
    /// What the last look at etcd found.
    health: Mutex<Result<(), String>>,
}

/// Why the engine's copy is none of this etcd's store any more. The process ends, and its next start fills a new copy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub String);

impl Replica {
    /// The part of a server whose engine, a follower, has the copy. Nothing is asked yet.
    pub fn new(
        client: Client,
        engine: Engine,
        naming: &'static Naming,
        (prefix, ports): (&str, &Ports),
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

    /// With values that are encrypted so.
    #[must_use]
    pub fn with_secrecy(self, secrecy: Option<Arc<Secrecy>>) -> Replica {
        Replica { secrecy, ..self }
    }

    /// A value of etcd as it was before it was encrypted.
    fn opened(&self, etcd_key: &[u8], value: &Bytes) -> Result<Bytes, SealError> {
        let Some(secrecy) = &self.secrecy else { return Ok(value.clone()) };
        Ok(secrecy.opened(etcd_key, value)?.map_or_else(|| value.clone(), Bytes::from))
    }

    /// Has the copy note that objects with a lease live so long after each write: it may become a store of its own.
    #[must_use]
    pub fn noting_leases(self, ttl: Duration) -> Replica {
        Replica { lease_ttl: (!ttl.is_zero()).then_some(ttl), ..self }
    }

    /// The client of etcd.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Resolves once the copy cannot go on being one.
    pub async fn broken(&self) -> Broken {
        let mut broken = self.broken.subscribe();
        // The sender lives as long as `self`.
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

    /// What is wrong between the server and etcd, as the follower sees it.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Looks again and again whether etcd answers a quorum read within `timeout`. Never ends.
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

    /// The key of the mark of a move.
    fn mark_key(&self) -> bytes::Bytes {
        format!("{}{}", self.keys.prefix(), mark::MARK).into()
    }

    fn claimed(&self) -> i64 {
        self.claim.load(Ordering::Acquire)
    }

    /// Whether the store was moved from this etcd to another place: nothing here is the newest state any more.
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// The newest revision of the copy.
    pub fn revision(&self) -> Revision {
        self.engine.revision()
    }
}

/// A revision of etcd as the engine counts.
fn revision(number: i64) -> Revision {
    Revision::new(number.unsigned_abs())
}

/// A revision of the engine as etcd counts.
fn number(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}
