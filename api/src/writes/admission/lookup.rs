//! What plugins may look up: objects in the store's newest state, the authorizer, and the types that are served.
//!
//! There is no copy that could lag behind: every read takes a snapshot of the store. [`Parsed`] keeps what was made of
//! the objects of a collection, each together with the revision at which it was read.

use std::sync::Arc;

use auth::Authorizer;
use bytes::Bytes;
use engine::{Engine, Revision, Snapshot};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::quota::Ledger;
use crate::objects::conversion::Converter;
use crate::objects::services::Services;
use crate::objects::store::{self, Stored};
use crate::types::features::Features;
use crate::types::schema::registry::{Registry, Resource};
use crate::types::served::{Served, Types};
use crate::values::json::Object;
use crate::values::naming::Naming;
use crate::values::status::Status;
use crate::wire::metrics::Metrics;

/// The handle that plugins get when they are made. Copies share what is behind it.
#[derive(Clone)]
pub struct Lookup {
    /// The revision log.
    pub engine: Engine,
    /// The built-in types.
    pub builtin: Registry,
    /// The types that are served.
    pub types: Arc<Types>,
    /// Converts objects of custom types between their versions.
    pub converter: Arc<Converter>,
    /// The authorizers.
    pub authorizer: Arc<Authorizer>,
    /// The naming profile.
    pub naming: &'static Naming,
    /// Feature gates.
    pub features: Features,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where services are reached.
    pub services: Arc<Services>,
    /// Who may take how much of which quota.
    pub quotas: Arc<Ledger>,
}

impl Lookup {
    /// The types that are served now.
    pub fn served(&self) -> Arc<Served> {
        self.types.now()
    }

    /// A built-in resource; `group` is the stem of its group's name, without the suffix of the naming profile.
    ///
    /// # Panics
    /// There is none: plugins ask for built-in resources once, when they are made.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Arc<Resource> {
        let found = [true, false].into_iter().find_map(|suffixed| {
            self.builtin.resource(&self.naming.group(group, suffixed && !group.is_empty()), version, plural)
        });
        found.cloned().unwrap_or_else(|| panic!("{group}/{version} {plural} is built in"))
    }

    /// The newest state of the store.
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// One object as it is stored; the namespace of cluster-scoped ones is empty.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn stored(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Stored>, Status> {
        self.snapshot().get(&store::key(resource, namespace, name)).map(store::read).transpose()
    }

    /// One object, in the stored version.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Object>, Status> {
        self.stored(resource, namespace, name)?.map(|stored| stored.object(resource)).transpose()
    }

    /// The objects of a namespace, or of the cluster for an empty one, in the order of their names.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Status> {
        let entries = self.snapshot().prefix(&store::collection(resource, namespace));
        entries.map(|entry| store::read(entry)?.object(resource)).collect()
    }
}

/// What is made of the objects of one collection. An object is parsed anew when it has another revision than before;
/// asking costs a walk over the collection's part of the index.
pub struct Parsed<T> {
    resource: Arc<Resource>,
    parse: Box<dyn Fn(&Object) -> T + Send + Sync>,
    known: Mutex<HashMap<Bytes, (Revision, Arc<T>)>>,
}

impl<T> Parsed<T> {
    /// Nothing parsed yet.
    pub fn new(resource: Arc<Resource>, parse: impl Fn(&Object) -> T + Send + Sync + 'static) -> Parsed<T> {
        Parsed { resource, parse: Box::new(parse), known: Mutex::default() }
    }

    /// The resource.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// One object and its revision.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn get(&self, lookup: &Lookup, namespace: &str, name: &str) -> Result<Option<Arc<T>>, Status> {
        let key = store::key(&self.resource, namespace, name);
        let Some(entry) = lookup.snapshot().get(&key) else {
            self.known.lock().remove(&key);
            return Ok(None);
        };
        self.parsed(entry).map(|(_, parsed)| Some(parsed))
    }

    /// The objects of a namespace, or of the cluster for an empty one, in the order of their names, with revisions.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn list(&self, lookup: &Lookup, namespace: &str) -> Result<Vec<(Revision, Arc<T>)>, Status> {
        let prefix = store::collection(&self.resource, namespace);
        let mut seen = 0;
        let listed: Result<Vec<_>, Status> = lookup
            .snapshot()
            .prefix(&prefix)
            .inspect(|_| seen += 1)
            .map(|entry| self.parsed(entry))
            .collect();
        // Objects that are gone are forgotten once they outnumber those that are there.
        if namespace.is_empty() && self.known.lock().len() > 2 * seen {
            let snapshot = lookup.snapshot();
            self.known.lock().retain(|key, _| snapshot.get(key).is_some());
        }
        listed
    }

    fn parsed(&self, entry: engine::Entry) -> Result<(Revision, Arc<T>), Status> {
        let revision = entry.revision();
        if let Some((known, parsed)) = self.known.lock().get(entry.key())
            && *known == revision
        {
            return Ok((revision, parsed.clone()));
        }
        let key = entry.key().clone();
        let object = store::read(entry)?.object(&self.resource)?;
        let parsed = Arc::new((self.parse)(&object));
        self.known.lock().insert(key, (revision, parsed.clone()));
        Ok((revision, parsed))
    }
}
