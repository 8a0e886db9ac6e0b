//! Assignment of resources to engines, and of writes to their ledgers.
//!
//! ```text
//! resource, key ─► Backends ─┬─► the main backend: all other resources
//!                            └─► a separate backend: the resources with its key prefixes
//! ```
//!
//! Each backend has its own revisions. Revisions of different backends cannot be compared.

use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Event, LossCounts, RangeScan, Revision, Snapshot, Tail, TailError};
use futures_util::future::select_all;

use super::Ledger;
use crate::lengths::Lengths;
use types::schema::registry::Resource;

/// An engine with its ledger and its cache of item lengths, which belong to the revisions of the engine.
pub struct Backend {
    engine: Engine,
    ledger: Option<Arc<dyn Ledger>>,
    lengths: Arc<Lengths>,
}

impl Backend {
    /// Creates a backend. If the engine follows a ledger, `ledger` decides the writes.
    pub fn new(engine: Engine, ledger: Option<Arc<dyn Ledger>>) -> Backend {
        Backend { engine, ledger, lengths: Arc::default() }
    }

    /// Returns the engine of this backend.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the ledger that decides writes; `None` if the engine itself decides writes.
    pub fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.ledger.as_ref()
    }

    /// Returns the cache of item lengths for lists whose encoding writes lengths first.
    pub fn lengths(&self) -> &Arc<Lengths> {
        &self.lengths
    }
}

/// All backends of a server.
pub struct Backends {
    main: Backend,
    apart: Vec<Apart>,
}

/// A separate backend for the keys that begin with one of its prefixes.
struct Apart {
    prefixes: Vec<String>,
    backend: Backend,
}

fn begins_with_one(key: &[u8], prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

impl Backends {
    /// Creates backends from the main backend and from separate backends. A separate backend stores the
    /// resources whose keys begin with one of its prefixes.
    pub fn new(main: Backend, apart: Vec<(Vec<String>, Backend)>) -> Backends {
        let apart = apart.into_iter().map(|(prefixes, backend)| Apart { prefixes, backend });
        Backends { main, apart: apart.collect() }
    }

    /// Returns the backend of all resources that have no separate backend.
    pub fn main(&self) -> &Backend {
        &self.main
    }

    /// Returns the backend that stores a resource.
    pub fn backend_for(&self, resource: &Resource) -> &Backend {
        match &resource.storage {
            Some(storage) if !self.apart.is_empty() => self.holding(storage.key_prefix.as_bytes()),
            _ => &self.main,
        }
    }

    /// Returns the backend that contains a key.
    pub fn holding(&self, key: &[u8]) -> &Backend {
        let apart = self.apart.iter().find(|apart| begins_with_one(key, &apart.prefixes));
        apart.map_or(&self.main, |apart| &apart.backend)
    }

    /// Returns all backends, the main backend first.
    pub fn all(&self) -> impl Iterator<Item = &Backend> {
        std::iter::once(&self.main).chain(self.separate())
    }

    /// Returns the separate backends.
    pub fn separate(&self) -> impl Iterator<Item = &Backend> {
        self.apart.iter().map(|apart| &apart.backend)
    }

    /// Returns whether two resources are stored in the same backend, so that their states are of the same
    /// revision.
    pub fn are_together(&self, one: &Resource, other: &Resource) -> bool {
        std::ptr::eq(self.backend_for(one), self.backend_for(other))
    }

    /// Returns whether at least one engine no longer accepts writes.
    pub fn have_failed(&self) -> bool {
        self.all().any(|backend| backend.engine.health().is_err())
    }

    /// Returns the total number of revisions and records in all backends that cannot be read and whose loss
    /// the operator has not accepted.
    pub fn unaccepted_losses(&self) -> LossCounts {
        self.all().fold(LossCounts::default(), |sum, backend| {
            let counts = *backend.engine.watch_losses().borrow();
            LossCounts { lost: sum.lost + counts.lost, damaged: sum.damaged + counts.damaged }
        })
    }

    /// Returns whether all records can be read. If the result is `true`, an object that is not found does not
    /// exist. If the result is `false`, the record of the object may be unreadable. A controller must then not delete
    /// an object because another object is not found.
    pub fn is_whole(&self) -> bool {
        self.unaccepted_losses().is_empty()
    }

    /// Resolves when [`Self::is_whole`] returns `whole`.
    pub async fn until_whole(&self, whole: bool) {
        // Subscribes before the check, so that no change is missed.
        let mut watches: Vec<_> = self.all().map(|backend| backend.engine.watch_losses()).collect();
        while self.is_whole() != whole {
            let changes = watches.iter_mut().map(|watch| Box::pin(watch.changed()));
            if select_all(changes).await.0.is_err() {
                // The engine is closed, so the task of the caller will also end soon.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the size of each log in bytes, the log of the main backend first.
    pub fn record_bytes(&self) -> Vec<u64> {
        self.all().map(|backend| backend.engine.stats().record_bytes).collect()
    }

    /// Returns the newest revisions of the backend of a resource and of the main backend.
    pub fn revisions(&self, resource: &Resource) -> [Revision; 2] {
        [self.backend_for(resource), &self.main].map(|backend| backend.engine.revision())
    }

    /// Returns snapshots of the newest states of all backends.
    pub fn snapshots(&self) -> Snapshots {
        let apart = self.apart.iter().map(|apart| (apart.prefixes.clone(), apart.backend.engine.snapshot()));
        Snapshots { main: self.main.engine.snapshot(), apart: apart.collect() }
    }

    /// Returns all changes after these snapshots. Changes that follow each other within `gathered` may be
    /// returned together.
    ///
    /// # Errors
    /// Fails if an engine is closed.
    pub fn changes(&self, after: &Snapshots, gathered: Duration) -> Result<BackendChanges, TailError> {
        let tail = |backend: &Backend, after: &Snapshot, prefix: &str| {
            let tail = backend.engine.tail(after.revision(), prefix.to_owned().into())?;
            Ok::<_, TailError>((prefix.to_owned(), tail.gathering(gathered)))
        };
        let mut tails = vec![tail(&self.main, &after.main, "")?];
        for (Apart { prefixes, backend }, (_, after)) in self.apart.iter().zip(&after.apart) {
            for prefix in prefixes {
                tails.push(tail(backend, after, prefix)?);
            }
        }
        Ok(BackendChanges {
            tails,
            apart: self.apart.iter().flat_map(|apart| apart.prefixes.clone()).collect(),
        })
    }
}

/// Snapshots of all backends, each pinned at its own revision.
pub struct Snapshots {
    main: Snapshot,
    /// Snapshots of the separate backends, with the key prefixes of their resources.
    apart: Vec<(Vec<String>, Snapshot)>,
}

impl Snapshots {
    /// Returns the entries whose keys begin with `prefix`, in key order. All entries must belong to one
    /// resource.
    pub fn prefix(&self, prefix: &[u8]) -> RangeScan {
        self.holding(prefix).prefix(prefix)
    }

    /// Returns the snapshot that contains a key, or all keys with this prefix.
    pub fn holding(&self, key: &[u8]) -> &Snapshot {
        let apart = self.apart.iter().find(|(prefixes, _)| begins_with_one(key, prefixes));
        apart.map_or(&self.main, |(_, snapshot)| snapshot)
    }
}

/// The changes of all backends. Changes in the main backend to resources of separate backends are ignored.
pub struct BackendChanges {
    /// Tails with their key prefixes. The first tail is polled first, and is then moved to the end.
    tails: Vec<(String, Tail)>,
    apart: Vec<String>,
}

impl BackendChanges {
    /// Returns the next changes of one backend, in order. The result is empty if all of these changes are
    /// ignored. This function is cancel safe.
    ///
    /// # Errors
    /// The errors of [`Tail::next`].
    pub async fn next(&mut self, most: usize) -> Result<Vec<Arc<Event>>, TailError> {
        if let [(_, tail)] = &mut self.tails[..] {
            return tail.next(most).await;
        }
        let next = self.tails.iter_mut().map(|(_, tail)| Box::pin(tail.next(most)));
        let (events, at, _) = select_all(next).await;
        let mut events = events?;
        if self.tails[at].0.is_empty() {
            events.retain(|event| !begins_with_one(&event.key, &self.apart));
        }
        self.tails.rotate_left(at + 1);
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use engine::{Change, Durability, Expected, Options, Payload, Write};
    use testkit::TempDir;

    use super::*;
    use crate::store::key;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;

    /// Opens an engine in a new subdirectory.
    fn opened(directory: &TempDir, name: &str) -> Engine {
        let options =
            Options { durability: Durability::Relaxed, ..Options::new(directory.path().join(name)) };
        Engine::open(options).unwrap()
    }

    async fn put(engine: &Engine, key: &[u8]) {
        let change = Change::Put(Payload::default());
        let write = Write { key: key.to_vec().into(), expected: Expected::Any, change };
        engine.commit(write).await.unwrap();
    }

    #[tokio::test]
    async fn watches_follow_the_backend_that_stores_their_resource() {
        let registry = Registry::new(&KUBERNETES);
        let resource = |plural: &str| registry.resource("", "v1", plural).unwrap().clone();
        let (events, maps) = (resource("events"), resource("configmaps"));
        let (event, map) = (key(&events, "n", "e"), key(&maps, "n", "m"));
        let directory = TempDir::new();
        let (main, other) = (opened(&directory, "main"), opened(&directory, "other"));
        let prefix = events.stored().key_prefix.clone();
        let apart = vec![(vec![prefix], Backend::new(other.clone(), None))];
        let backends = Backends::new(Backend::new(main.clone(), None), apart);
        let before = backends.snapshots();
        // Events in the main backend, and config maps in the other backend, are ignored.
        for (engine, keys) in [(&main, [&event, &map, &map]), (&other, [&map, &event, &event])] {
            for key in keys {
                put(engine, key).await;
            }
        }
        for (resource, key, engine) in [(&events, &event, &other), (&maps, &map, &main)] {
            assert_eq!(backends.backend_for(resource).engine().revision(), engine.revision());
            let entry = |snapshots: &Snapshots| snapshots.holding(key).get(key).map(|entry| entry.revision());
            assert_eq!(entry(&before), None);
            assert_eq!(entry(&backends.snapshots()), Some(engine.revision()));
            assert_eq!(backends.snapshots().prefix(key).count(), 1);
        }
        let mut changes = backends.changes(&before, Duration::ZERO).unwrap();
        let mut changed_keys = Vec::new();
        while changed_keys.len() < 4 {
            changed_keys.extend(changes.next(1).await.unwrap().iter().map(|event| event.key.clone()));
        }
        changed_keys.sort();
        assert_eq!(changed_keys, [&map, &map, &event, &event]);
    }
}
