//! Collections as plugins use them: what was made of their objects, and whether there are any.
//!
//! Nothing lags behind the store: what was made of a snapshot is used as long as the engine's number of the last change
//! says that nothing changed since. A write that asks about a collection in which nothing happens costs one read of
//! that number, however many objects there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use engine::{Engine, KeyRange, LastChange, Revision, Snapshot};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::lookup::Lookup;
use crate::objects::store;
use crate::types::schema::registry::Resource;
use crate::values::json::Object;
use crate::values::status::Status;

/// All objects of a resource, as far as they can be told from none.
pub struct Collection {
    keys: KeyRange,
    changed: LastChange,
    /// The newest revision at which there was none; 0 for none known.
    empty_at: AtomicU64,
}

impl Collection {
    /// The objects of a resource in this store.
    pub fn new(engine: &Engine, resource: &Resource) -> Collection {
        let prefix = store::collection(resource, "");
        Collection {
            keys: KeyRange::prefix(&prefix),
            changed: engine.last_change(prefix),
            empty_at: AtomicU64::new(0),
        }
    }

    /// Whether there is no object.
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

/// What was made of the objects of a collection, in the order of their names.
pub type Listed<T> = Arc<[Arc<T>]>;

/// What is made of the objects of one collection. An object is parsed anew when it has another revision than before.
pub struct Parsed<T> {
    resource: Arc<Resource>,
    collection: Collection,
    parse: Box<dyn Fn(&Object) -> T + Send + Sync>,
    known: Mutex<HashMap<Bytes, (Revision, Arc<T>)>>,
    /// All of them at one revision.
    all: ArcSwapOption<(Revision, Listed<T>)>,
}

impl<T> Parsed<T> {
    /// Nothing parsed yet.
    pub fn new(
        lookup: &Lookup,
        resource: Arc<Resource>,
        parse: impl Fn(&Object) -> T + Send + Sync + 'static,
    ) -> Parsed<T> {
        Parsed {
            collection: Collection::new(&lookup.engine, &resource),
            resource,
            parse: Box::new(parse),
            known: Mutex::default(),
            all: ArcSwapOption::empty(),
        }
    }

    /// Whether there is no object of it.
    pub fn is_empty(&self, lookup: &Lookup) -> bool {
        self.collection.is_empty(&lookup.engine)
    }

    /// One object.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn get(&self, lookup: &Lookup, namespace: &str, name: &str) -> Result<Option<Arc<T>>, Status> {
        let key = store::key(&self.resource, namespace, name);
        let Some(entry) = lookup.snapshot().get(&key) else {
            self.known.lock().remove(&key);
            return Ok(None);
        };
        self.parsed(entry).map(Some)
    }

    /// The objects of a namespace, or of the cluster for an empty one.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn list(&self, lookup: &Lookup, namespace: &str) -> Result<Listed<T>, Status> {
        if !namespace.is_empty() {
            if self.is_empty(lookup) {
                return Ok(Listed::default());
            }
            let keys = KeyRange::prefix(&store::collection(&self.resource, namespace));
            return self.read(&lookup.snapshot(), keys);
        }
        if let Some(all) = &*self.all.load()
            && self.collection.changed.revision() <= all.0
        {
            return Ok(all.1.clone());
        }
        let snapshot = lookup.snapshot();
        let listed = self.read(&snapshot, self.collection.keys.clone())?;
        // Objects that are gone are forgotten once they outnumber those that are there.
        let mut known = self.known.lock();
        if known.len() > 2 * listed.len() {
            known.retain(|key, _| snapshot.get(key).is_some());
        }
        drop(known);
        self.all.store(Some(Arc::new((snapshot.revision(), listed.clone()))));
        Ok(listed)
    }

    fn read(&self, snapshot: &Snapshot, keys: KeyRange) -> Result<Listed<T>, Status> {
        snapshot.range(keys).map(|entry| self.parsed(entry)).collect()
    }

    fn parsed(&self, entry: engine::Entry) -> Result<Arc<T>, Status> {
        let revision = entry.revision();
        if let Some((known, parsed)) = self.known.lock().get(entry.key())
            && *known == revision
        {
            return Ok(parsed.clone());
        }
        let key = entry.key().clone();
        let object = store::read(entry)?.object(&self.resource)?;
        let parsed = Arc::new((self.parse)(&object));
        self.known.lock().insert(key, (revision, parsed.clone()));
        Ok(parsed)
    }
}
