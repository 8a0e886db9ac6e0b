//! What plugins may look up: objects in the store's newest state, the authorizer, and the types that are served.
//!
//! There is no copy that could lag behind: every read takes a snapshot of the store.

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

/// The handle that plugins get when they are made. Copies share what is behind it.
#[derive(Clone)]
pub struct Lookup {
    /// Where objects are kept.
    pub backends: Arc<Backends>,
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

    /// The revision log of all resources that are not kept apart.
    pub fn engine(&self) -> &Engine {
        self.backends.main().engine()
    }

    /// Its newest state.
    pub fn snapshot(&self) -> Snapshot {
        self.engine().snapshot()
    }

    fn snapshot_of(&self, resource: &Resource) -> Snapshot {
        self.backends.of(resource).engine().snapshot()
    }

    /// One object as it is stored; the namespace of cluster-scoped ones is empty.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn stored(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Stored>, Status> {
        self.snapshot_of(resource).get(&store::key(resource, namespace, name)).map(store::read).transpose()
    }

    /// One object, in the stored version.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Object>, Status> {
        self.stored(resource, namespace, name)?.map(|stored| stored.object(resource)).transpose()
    }

    /// An object of one version in another.
    ///
    /// # Errors
    /// 500 where it cannot be converted.
    pub async fn converted(
        &self,
        object: Object,
        (from, to): (&Resource, &Resource),
    ) -> Result<Object, Status> {
        let stored = convert::to_stored(from, object, self.naming)?;
        let object = convert::to_served(to, stored, self.naming)?;
        self.converter.between(object, to).await
    }

    /// The objects of a namespace, or of the cluster for an empty one, in the order of their names.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Status> {
        let entries = self.snapshot_of(resource).prefix(&store::collection(resource, namespace));
        entries.map(|entry| store::read(entry)?.object(resource)).collect()
    }
}
