//! Which engine has the objects of a resource, and who decides their writes.
//!
//! ```text
//! resource, key ─► Backends ─┬─► the main one: all resources but
//!                            └─► those kept apart, each with revisions of its own
//! ```
//!
//! A revision means something in its own backend only.

use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Event, LossCounts, Revision, Scan, Snapshot, Tail, TailError};
use futures_util::future::select_all;

use super::Ledger;
use crate::lengths::Lengths;
use types::schema::registry::Resource;

/// An engine, and what belongs to its revisions.
pub struct Backend {
    engine: Engine,
    ledger: Option<Arc<dyn Ledger>>,
    lengths: Arc<Lengths>,
}

impl Backend {
    /// Of an engine; `ledger` decides the writes where the engine follows.
    pub fn new(engine: Engine, ledger: Option<Arc<dyn Ledger>>) -> Backend {
        Backend { engine, ledger, lengths: Arc::default() }
    }

    /// The revision log.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Who decides writes, where the engine follows.
    pub fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.ledger.as_ref()
    }

    /// Lengths of objects in lists that announce them.
    pub fn lengths(&self) -> &Arc<Lengths> {
        &self.lengths
    }
}

/// The backends of a server.
pub struct Backends {
    main: Backend,
    apart: Vec<Apart>,
}

/// A backend, and what the keys begin with of which it is that.
struct Apart {
    prefixes: Vec<String>,
    backend: Backend,
}

fn begins_with_one(key: &[u8], prefixes: &[String]) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
}

impl Backends {
    /// One for all resources, and those of the resources whose keys begin so.
    pub fn new(main: Backend, apart: Vec<(Vec<String>, Backend)>) -> Backends {
        let apart = apart.into_iter().map(|(prefixes, backend)| Apart { prefixes, backend });
        Backends { main, apart: apart.collect() }
    }

    /// The backend of all resources that are not kept apart.
    pub fn main(&self) -> &Backend {
        &self.main
    }

    /// The backend of a resource.
    pub fn of(&self, resource: &Resource) -> &Backend {
        match &resource.storage {
            Some(storage) if !self.apart.is_empty() => self.holding(storage.key_prefix.as_bytes()),
            _ => &self.main,
        }
    }

    /// The backend of a key.
    pub fn holding(&self, key: &[u8]) -> &Backend {
        let apart = self.apart.iter().find(|apart| begins_with_one(key, &apart.prefixes));
        apart.map_or(&self.main, |apart| &apart.backend)
    }

    /// All of them, the main one first.
    pub fn all(&self) -> impl Iterator<Item = &Backend> {
        std::iter::once(&self.main).chain(self.apart())
    }

    /// Those of the resources that are kept apart.
    pub fn apart(&self) -> impl Iterator<Item = &Backend> {
        self.apart.iter().map(|apart| &apart.backend)
    }

    /// Whether the objects of two resources are kept together, so that what is known of one is not older than the other.
    pub fn are_together(&self, one: &Resource, other: &Resource) -> bool {
        std::ptr::eq(self.of(one), self.of(other))
    }

    /// Whether the log of one takes no writes any more.
    pub fn have_failed(&self) -> bool {
        self.all().any(|backend| backend.engine.health().is_err())
    }

    /// How many revisions and records cannot be read without anybody having accepted that, in all backends together.
    pub fn unaccepted_losses(&self) -> LossCounts {
        self.all().fold(LossCounts::default(), |sum, backend| {
            let counts = *backend.engine.watch_losses().borrow();
            LossCounts { lost: sum.lost + counts.lost, damaged: sum.damaged + counts.damaged }
        })
    }

    /// Whether what is absent is known to be absent. While it is not, an object that is not found may be one whose record
    /// cannot be read, so nothing may be deleted because something else is not found.
    pub fn is_whole(&self) -> bool {
        self.unaccepted_losses().is_empty()
    }

    /// Resolves once [`Self::is_whole`] says `whole`.
    pub async fn until_whole(&self, whole: bool) {
        // Subscribed before the look, so that no change is missed.
        let mut watches: Vec<_> = self.all().map(|backend| backend.engine.watch_losses()).collect();
        while self.is_whole() != whole {
            let changes = watches.iter_mut().map(|watch| Box::pin(watch.changed()));
            if select_all(changes).await.0.is_err() {
                // The engine is gone, and with it everything that asks.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The bytes of each log, that of the main one first.
    pub fn record_bytes(&self) -> Vec<u64> {
        self.all().map(|backend| backend.engine.stats().record_bytes).collect()
    }

    /// The newest revisions of the backend of a resource and of the main one.
    pub fn revisions(&self, resource: &Resource) -> [Revision; 2] {
        [self.of(resource), &self.main].map(|backend| backend.engine.revision())
    }

    /// The newest state of all of them.
    pub fn snapshots(&self) -> Snapshots {
        let apart = self.apart.iter().map(|apart| (apart.prefixes.clone(), apart.backend.engine.snapshot()));
        Snapshots { main: self.main.engine.snapshot(), apart: apart.collect() }
    }

    /// All changes after these states, those that follow each other within `gathered` together.
    ///
    /// # Errors
    /// An engine was closed.
    pub fn changes(&self, after: &Snapshots, gathered: Duration) -> Result<Changes, TailError> {
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
        Ok(Changes { tails, apart: self.apart.iter().flat_map(|apart| apart.prefixes.clone()).collect() })
    }
}

/// States of all backends.
pub struct Snapshots {
    main: Snapshot,
    /// By what the keys begin with.
    apart: Vec<(Vec<String>, Snapshot)>,
}

impl Snapshots {
    /// The entries whose keys begin with `prefix`, which is that of one resource or within it, in key order.
    pub fn prefix(&self, prefix: &[u8]) -> Scan {
        self.holding(prefix).prefix(prefix)
    }

    /// The state that has the key, or the keys that begin so.
    pub fn holding(&self, key: &[u8]) -> &Snapshot {
        let apart = self.apart.iter().find(|(prefixes, _)| begins_with_one(key, prefixes));
        apart.map_or(&self.main, |(_, snapshot)| snapshot)
    }
}

/// The changes of all backends. What the main one has of resources that are kept apart does not count.
pub struct Changes {
    /// By the start of the keys; the next one is asked first.
    tails: Vec<(String, Tail)>,
    apart: Vec<String>,
}

impl Changes {
    /// The next ones, of one backend, in their order; none where nothing of them counts. Dropping the future loses nothing.
    ///
    /// # Errors
    /// As [`Tail::next`].
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
    use std::path::PathBuf;

    use engine::{Change, Durability, Expected, Options, Payload, Write};

    use super::*;
    use crate::store::key;
    use types::schema::registry::Registry;
    use values::naming::KUBERNETES;

    /// A directory that goes with this value.
    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Directory {
            Directory(std::env::temp_dir().join(format!("api-backends-{}", values::names::uid())))
        }

        /// An engine in a directory of its own below it.
        fn opened(&self, name: &str) -> Engine {
            let options = Options { durability: Durability::Relaxed, ..Options::new(self.0.join(name)) };
            Engine::open(options).unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    async fn put(engine: &Engine, key: &[u8]) {
        let change = Change::Put(Payload::default());
        let write = Write { key: key.to_vec().into(), expected: Expected::Any, change };
        engine.commit(write).await.unwrap();
    }

    #[tokio::test]
    async fn a_resource_that_is_kept_apart_is_followed_where_it_is() {
        let registry = Registry::new(&KUBERNETES);
        let resource = |plural: &str| registry.resource("", "v1", plural).unwrap().clone();
        let (events, maps) = (resource("events"), resource("configmaps"));
        let (event, map) = (key(&events, "n", "e"), key(&maps, "n", "m"));
        let directory = Directory::new();
        let (main, other) = (directory.opened("main"), directory.opened("other"));
        let prefix = events.stored().key_prefix.clone();
        let apart = vec![(vec![prefix], Backend::new(other.clone(), None))];
        let backends = Backends::new(Backend::new(main.clone(), None), apart);
        let before = backends.snapshots();
        // What the main one has of events, and the other one of maps, is none of theirs.
        for (engine, keys) in [(&main, [&event, &map, &map]), (&other, [&map, &event, &event])] {
            for key in keys {
                put(engine, key).await;
            }
        }
        for (resource, key, engine) in [(&events, &event, &other), (&maps, &map, &main)] {
            assert_eq!(backends.of(resource).engine().revision(), engine.revision());
            let entry = |snapshots: &Snapshots| snapshots.holding(key).get(key).map(|entry| entry.revision());
            assert_eq!(entry(&before), None);
            assert_eq!(entry(&backends.snapshots()), Some(engine.revision()));
            assert_eq!(backends.snapshots().prefix(key).count(), 1);
        }
        let mut changes = backends.changes(&before, Duration::ZERO).unwrap();
        let mut told = Vec::new();
        while told.len() < 4 {
            told.extend(changes.next(1).await.unwrap().iter().map(|event| event.key.clone()));
        }
        told.sort();
        assert_eq!(told, [&map, &map, &event, &event]);
    }
}
