//! Caches for plugins: the parsed objects of a collection, and whether a collection is empty.
//!
//! A cached result is never stale. The engine keeps the revision of the last change of each collection. A
//! result that was computed from a snapshot is used only if the collection has not changed since that snapshot.
//! While a collection does not change, each use of the cache costs one read of that revision, regardless of the
//! number of objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use engine::{Engine, KeyRange, LastChange, Revision, Snapshot};
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::writes::server::store::ObjectStorage;
use objects::store;
use types::schema::registry::Resource;
use values::json::Object;
use values::status::Status;

/// A check whether a resource has objects, which does not read the objects.
pub struct Collection {
    keys: KeyRange,
    changed: LastChange,
    /// Newest revision at which the collection was empty; 0 if no such revision is known.
    empty_at: AtomicU64,
}

impl Collection {
    /// Returns the collection of a resource in this store.
    pub fn new(engine: &Engine, resource: &Resource) -> Collection {
        let prefix = store::collection(resource, "");
        Collection {
            keys: KeyRange::prefix(&prefix),
            changed: engine.last_change(prefix),
            empty_at: AtomicU64::new(0),
        }
    }

    /// Returns whether the collection has no objects.
    pub fn is_empty(&self, engine: &Engine) -> bool {
        let empty_at = self.empty_at.load(Ordering::Acquire);
        if empty_at != 0 && self.changed.revision().get() <= empty_at {
            return true;
        }
        let snapshot = engine.snapshot();
        let is_empty = snapshot.range(self.keys.clone()).next().is_none();
        if is_empty {
            self.empty_at.fetch_max(snapshot.revision().get(), Ordering::AcqRel);
        }
        is_empty
    }
}

/// The parsed objects of a collection, in the order of their names.
pub type Listed<T> = Arc<[Arc<T>]>;

/// Parsed objects by key, each with the revision of its object. Requests read snapshots of different
/// revisions. A request with an older snapshot neither replaces nor removes the result from a newer snapshot.
/// Otherwise the object would be parsed again, and a parsed webhook configuration would open new connections.
struct Known<T>(HashMap<Bytes, (Revision, Arc<T>)>);

impl<T> Default for Known<T> {
    fn default() -> Known<T> {
        Known(HashMap::new())
    }
}

impl<T> Known<T> {
    fn get(&self, key: &[u8], revision: Revision) -> Option<Arc<T>> {
        let (known, parsed) = self.0.get(key)?;
        (*known == revision).then(|| parsed.clone())
    }

    /// Keeps the parsed form of an object and returns the parsed form to use. If another request has parsed the
    /// same revision in the meantime, the result of that request is returned, so that all requests share one
    /// parsed form.
    fn keep(&mut self, key: &Bytes, revision: Revision, parsed: Arc<T>) -> Arc<T> {
        match self.0.get(key) {
            Some((known, other)) if *known == revision => other.clone(),
            Some((known, _)) if *known > revision => parsed,
            _ => {
                self.0.insert(key.clone(), (revision, parsed.clone()));
                parsed
            }
        }
    }

    /// Removes an object that is missing from a snapshot at revision `at`.
    fn forget(&mut self, key: &[u8], at: Revision) {
        if self.0.get(key).is_some_and(|(known, _)| *known <= at) {
            self.0.remove(key);
        }
    }

    /// Removes all objects that are missing from a snapshot at revision `at`.
    fn sweep(&mut self, at: Revision, is_held: impl Fn(&[u8]) -> bool) {
        self.0.retain(|key, (known, _)| *known > at || is_held(key));
    }
}

/// Number of objects that [`Parsed::get`] keeps without checking that the objects still exist.
const FEW: usize = 64;

/// The parsed objects of one collection. An object is parsed again when its revision changes.
pub struct Parsed<T> {
    resource: Arc<Resource>,
    collection: Collection,
    parse: Box<dyn Fn(&Object) -> T + Send + Sync>,
    known: Mutex<Known<T>>,
    /// The parsed form of all objects at one revision.
    all: ArcSwapOption<(Revision, Listed<T>)>,
}

impl<T> Parsed<T> {
    /// Returns a cache in which nothing is parsed yet.
    pub fn new(
        store: &ObjectStorage,
        resource: Arc<Resource>,
        parse: impl Fn(&Object) -> T + Send + Sync + 'static,
    ) -> Parsed<T> {
        Parsed {
            collection: Collection::new(store.engine(), &resource),
            resource,
            parse: Box::new(parse),
            known: Mutex::default(),
            all: ArcSwapOption::empty(),
        }
    }

    /// Returns whether the collection has no objects.
    pub fn is_empty(&self, store: &ObjectStorage) -> bool {
        self.collection.is_empty(store.engine())
    }

    /// Returns one parsed object.
    ///
    /// # Errors
    /// Fails if the object cannot be read.
    pub fn get(&self, store: &ObjectStorage, namespace: &str, name: &str) -> Result<Option<Arc<T>>, Status> {
        let key = store::key(&self.resource, namespace, name);
        let snapshot = store.snapshot();
        let Some(entry) = snapshot.get(&key) else {
            self.known.lock().forget(&key, snapshot.revision());
            return Ok(None);
        };
        let known = self.known.lock().get(entry.key(), entry.revision());
        if known.is_some() {
            return Ok(known);
        }
        let parsed = self.parsed(entry)?;
        self.sweep(&snapshot, FEW);
        Ok(Some(parsed))
    }

    /// Drops cached objects that no longer exist, if the cache has more than `few` objects and more than twice
    /// as many as the collection.
    fn sweep(&self, snapshot: &Snapshot, few: usize) {
        let mut known = self.known.lock();
        if known.0.len() > few && known.0.len() as u64 > 2 * snapshot.count(&self.collection.keys) {
            known.sweep(snapshot.revision(), |key| snapshot.get(key).is_some());
        }
    }

    /// Returns the parsed objects of a namespace, or of the cluster if `namespace` is empty.
    ///
    /// # Errors
    /// Fails if an object cannot be read.
    pub fn list(&self, store: &ObjectStorage, namespace: &str) -> Result<Listed<T>, Status> {
        if !namespace.is_empty() {
            if self.is_empty(store) {
                return Ok(Listed::default());
            }
            let keys = KeyRange::prefix(&store::collection(&self.resource, namespace));
            return self.read(&store.snapshot(), keys);
        }
        if let Some(all) = &*self.all.load()
            && self.collection.changed.revision() <= all.0
        {
            return Ok(all.1.clone());
        }
        let snapshot = store.snapshot();
        let listed = self.read(&snapshot, self.collection.keys.clone())?;
        self.sweep(&snapshot, 0);
        if self.all.load().as_ref().is_none_or(|all| all.0 < snapshot.revision()) {
            self.all.store(Some(Arc::new((snapshot.revision(), listed.clone()))));
        }
        Ok(listed)
    }

    fn read(&self, snapshot: &Snapshot, keys: KeyRange) -> Result<Listed<T>, Status> {
        snapshot.range(keys).map(|entry| self.parsed(entry)).collect()
    }

    fn parsed(&self, entry: engine::Entry) -> Result<Arc<T>, Status> {
        let revision = entry.revision();
        if let Some(parsed) = self.known.lock().get(entry.key(), revision) {
            return Ok(parsed);
        }
        let key = entry.key().clone();
        let object = store::read(entry)?.object(&self.resource)?;
        let parsed = Arc::new((self.parse)(&object));
        Ok(self.known.lock().keep(&key, revision, parsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::write::server_fixture::TestServer;

    #[tokio::test]
    async fn the_parse_cache_drops_deleted_objects_after_single_reads() {
        let server = TestServer::start();
        let parsed = Parsed::new(&server.store, server.types.resource("", "v1", "namespaces"), |_| ());
        let get = |name: &str| parsed.get(&server.store, "", name).unwrap().is_some();
        for n in 0..3 * FEW {
            let (name, body) = (format!("n{n}"), format!(r#"{{"metadata":{{"name":"n{n}"}}}}"#));
            assert_eq!(server.send("POST /api/v1/namespaces", &body).await.0, 201, "{name}");
            assert!(get(&name), "{name}");
            if n > 0 {
                let finalized = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"finalizers":[]}}}}"#);
                assert_eq!(
                    server.send(&format!("DELETE /api/v1/namespaces/{name}"), "").await.0,
                    200,
                    "{name}"
                );
                let path = format!("PUT /api/v1/namespaces/{name}/finalize");
                assert_eq!(server.send(&path, &finalized).await.0, 200, "{name}");
            }
            assert!(parsed.known.lock().0.len() <= FEW + 1, "{name}");
        }
        assert!(get("n0") && !get("n1"));
    }

    #[tokio::test]
    async fn the_parse_cache_drops_deleted_objects_after_a_list() {
        let server = TestServer::start();
        let classes = server.types.resource("scheduling", "v1", "priorityclasses");
        let parsed = Parsed::new(&server.store, classes, |_| ());
        let path = "/apis/scheduling.k8s.io/v1/priorityclasses";
        for (request, body, code, listed) in [
            (format!("POST {path}"), r#"{"metadata":{"name":"a"},"value":1}"#, 201, 1),
            (format!("DELETE {path}/a"), "", 200, 0),
        ] {
            assert_eq!(server.send(&request, body).await.0, code, "{request}");
            assert_eq!(parsed.list(&server.store, "").unwrap().len(), listed, "{request}");
            assert_eq!(parsed.known.lock().0.len(), listed, "{request}");
        }
    }

    fn revision(at: u64) -> Revision {
        Revision::new(at)
    }

    #[test]
    fn concurrent_requests_share_one_parsed_object() {
        let (mut known, key) = (Known::default(), Bytes::from_static(b"/a"));
        let first = known.keep(&key, revision(5), Arc::new("first"));
        let second = known.keep(&key, revision(5), Arc::new("second"));
        assert!(Arc::ptr_eq(&first, &second), "parsed twice at the same time");
        assert_eq!(known.get(&key, revision(5)).as_deref(), Some(&"first"));
    }

    #[test]
    fn a_parse_from_an_older_snapshot_does_not_replace_a_newer_one() {
        let (mut known, key) = (Known::default(), Bytes::from_static(b"/a"));
        known.keep(&key, revision(5), Arc::new("newer"));
        assert_eq!(
            *known.keep(&key, revision(3), Arc::new("older")),
            "older",
            "the request uses what it read"
        );
        known.forget(&key, revision(4));
        known.sweep(revision(4), |_| false);
        assert_eq!(known.get(&key, revision(5)).as_deref(), Some(&"newer"));
        assert!(known.get(&key, revision(3)).is_none());
        known.sweep(revision(5), |_| true);
        assert!(known.get(&key, revision(5)).is_some(), "held");
        known.sweep(revision(5), |_| false);
        assert!(known.get(&key, revision(5)).is_none(), "removed from the store");
    }

    #[test]
    fn a_changed_object_is_parsed_again() {
        let (mut known, key) = (Known::default(), Bytes::from_static(b"/a"));
        known.keep(&key, revision(5), Arc::new("old"));
        assert!(known.get(&key, revision(6)).is_none());
        assert_eq!(*known.keep(&key, revision(6), Arc::new("new")), "new");
        assert_eq!(known.get(&key, revision(6)).as_deref(), Some(&"new"));
    }
}
