//! The data that plugins may look up: objects at the newest revision, authorization decisions, and the served
//! types.
//!
//! There is no copy that could lag: every read takes a snapshot of the store.

use std::sync::Arc;

use auth::Authorizer;
use engine::{Engine, Snapshot};

use super::quota::Ledger;
use objects::conversion::Converter;
use objects::services::Services;
use objects::store::backends::Backends;
use objects::store::{self, Stored};
use types::convert;
use types::features::Features;
use types::schema::registry::{Registry, Resource};
use types::served::{Served, Types};
use values::json::Object;
use values::naming::Naming;
use values::status::Status;
use wire::metrics::Metrics;

/// The handle that plugins get when they are created. Clones share their contents.
#[derive(Clone)]
pub struct Lookup {
    /// The stores that keep the objects.
    pub backends: Arc<Backends>,
    /// The built-in resource types.
    pub builtin: Registry,
    /// The types that are served.
    pub types: Arc<Types>,
    /// Converts objects of custom types between their versions.
    pub converter: Arc<Converter>,
    /// The authorizers of the server.
    pub authorizer: Arc<Authorizer>,
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// The feature gates of the server.
    pub features: Features,
    /// The counters of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// The resolver of service addresses.
    pub services: Arc<Services>,
    /// The ledger of what writes have taken from quotas.
    pub quotas: Arc<Ledger>,
}

impl Lookup {
    /// Returns the types that are served now.
    pub fn served(&self) -> Arc<Served> {
        self.types.now()
    }

    /// Returns a built-in resource. `group` is the stem of the group name, without the suffix of the naming
    /// profile.
    ///
    /// # Panics
    /// Panics if the resource does not exist. Plugins call this once, for built-in resources, when they are
    /// created.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Arc<Resource> {
        let found = [true, false].into_iter().find_map(|suffixed| {
            self.builtin.resource(&self.naming.group(group, suffixed && !group.is_empty()), version, plural)
        });
        found.cloned().unwrap_or_else(|| panic!("{group}/{version} {plural} is built in"))
    }

    /// Returns the revision log of all resources that have no separate store.
    pub fn engine(&self) -> &Engine {
        self.backends.main().engine()
    }

    /// Returns a snapshot of that log at its newest revision.
    pub fn snapshot(&self) -> Snapshot {
        self.engine().snapshot()
    }

    fn snapshot_of(&self, resource: &Resource) -> Snapshot {
        self.backends.of(resource).engine().snapshot()
    }

    /// Returns one object in its stored form. `namespace` is empty for cluster-scoped objects.
    ///
    /// # Errors
    /// Fails if the object cannot be read.
    pub fn stored(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Stored>, Status> {
        self.snapshot_of(resource).get(&store::key(resource, namespace, name)).map(store::read).transpose()
    }

    /// Returns one object, in the stored version.
    ///
    /// # Errors
    /// Fails if the object cannot be read.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Object>, Status> {
        self.stored(resource, namespace, name)?.map(|stored| stored.object(resource)).transpose()
    }

    /// Converts an object from one version to another.
    ///
    /// # Errors
    /// 500 if the object cannot be converted.
    pub async fn converted(
        &self,
        object: Object,
        (from, to): (&Resource, &Resource),
    ) -> Result<Object, Status> {
        let stored = convert::to_stored(from, object, self.naming)?;
        let object = convert::to_served(to, stored, self.naming)?;
        self.converter.between(object, to).await
    }

    /// Returns the objects of a namespace in the order of their names. An empty `namespace` means the whole
    /// cluster.
    ///
    /// # Errors
    /// Fails if an object cannot be read.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Status> {
        let entries = self.snapshot_of(resource).prefix(&store::collection(resource, namespace));
        entries.map(|entry| store::read(entry)?.object(resource)).collect()
    }
}
