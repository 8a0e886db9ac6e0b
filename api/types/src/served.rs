//! The served types: registry, discovery and OpenAPI documents as one value, and the only module that
//! replaces this value.
//!
//! ```text
//! change: Registry ─► Registry ─► Served ─ swap ─► requests that begin from now on
//!                                   └──── signal ─► watches of removed types · controllers
//! ```
//!
//! A request takes the value once, at its start, and uses the same types in its documents and in its verbs
//! until its end, even if the served types change in the meantime. The value is dropped with the last request
//! that uses it. Documents are rendered at their first request, and documents of unchanged versions are kept,
//! so a swap costs only as much as building the registry.
//!
//! Every value contains the same built-in types.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::discovery::{Discovery, Foreign};
use crate::openapi::OpenApi;
use crate::past_types::PastTypes;
use crate::schema::registry::{Registry, Resource};
use values::json::Value;

/// The types that are served at one time, with their documents.
#[derive(Debug)]
pub struct Served {
    registry: Arc<Registry>,
    discovery: Discovery,
    openapi: OpenApi,
}

impl Served {
    /// Creates the value for the types of a registry. `server_address` is the address that `/api` gives to
    /// clients; `other_paths` are the paths outside the resource API; `git_version` is the version that the
    /// server reports.
    pub fn new(
        registry: Registry,
        server_address: String,
        other_paths: Vec<String>,
        git_version: &str,
    ) -> Self {
        let registry = Arc::new(registry);
        Served {
            openapi: OpenApi::new(registry.clone(), &other_paths, git_version.into()),
            discovery: Discovery::new(registry.clone(), server_address, other_paths),
            registry,
        }
    }

    /// Returns the same types, with the versions of these extension servers.
    fn with_foreign(&self, foreign: Arc<[Foreign]>) -> Self {
        Served {
            openapi: self.openapi.with_foreign(&foreign),
            discovery: self.discovery.with_foreign(foreign),
            registry: self.registry.clone(),
        }
    }

    /// Returns the same types, with the groups of these peers in the aggregated document.
    fn with_peers(&self, peers: Arc<[Vec<Value>]>) -> Self {
        let (openapi, registry) = (self.openapi.with(self.registry.clone()), self.registry.clone());
        Served { discovery: self.discovery.with_peers(peers), openapi, registry }
    }

    /// Returns a value with the types of `registry` and the other data of this value.
    fn with(&self, registry: Registry) -> Self {
        let registry = Arc::new(registry);
        Served {
            discovery: self.discovery.with(registry.clone()),
            openapi: self.openapi.with(registry.clone()),
            registry,
        }
    }

    /// Returns a value with the types of an earlier point in time. The types of extension servers and peers
    /// are omitted, because their past is unknown.
    pub fn of_past(&self, registry: Registry) -> Self {
        self.with(registry).with_foreign(Arc::default()).with_peers(Arc::default())
    }

    /// Returns the served resource types.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the discovery documents.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// Returns the OpenAPI documents.
    pub fn openapi(&self) -> &OpenApi {
        &self.openapi
    }

    /// Returns whether this resource is still served: the resource was neither replaced nor removed.
    pub fn has(&self, resource: &Arc<Resource>) -> bool {
        let found = self.registry.resource(&resource.group, &resource.version, &resource.table.plural);
        found.is_some_and(|found| Arc::ptr_eq(found, resource))
    }
}

/// The types that are served now; each request takes a reference to these types.
#[derive(Debug)]
pub struct Types {
    now: ArcSwap<Served>,
    /// Lock that is held while a registry is derived from the previous one. Readers do not take the lock.
    changing: Mutex<()>,
    changed: watch::Sender<()>,
    past: PastTypes<Served>,
}

impl Types {
    /// Creates the holder with its first value.
    pub fn new(served: Served) -> Self {
        Types {
            now: ArcSwap::from_pointee(served),
            changing: Mutex::new(()),
            changed: watch::Sender::new(()),
            past: PastTypes::default(),
        }
    }

    /// Returns the types that are served now.
    pub fn now(&self) -> Arc<Served> {
        self.now.load_full()
    }

    /// Returns the types of earlier points.
    pub fn past(&self) -> &PastTypes<Served> {
        &self.past
    }

    /// Serves the registry that `make` derives from the current registry, to every request that begins after
    /// the call. Changes are serialized, so `make` must not start another change.
    ///
    /// # Errors
    /// Errors of `make`. In this case the served types do not change.
    pub fn change<E>(&self, make: impl FnOnce(&Registry) -> Result<Registry, E>) -> Result<(), E> {
        let _changing = self.changing.lock();
        let now = self.now.load();
        let next = now.with(make(now.registry())?);
        self.now.store(Arc::new(next));
        self.changed.send_replace(());
        Ok(())
    }

    /// Adds the versions of extension servers to the documents of requests that begin after the call.
    pub fn show(&self, foreign: Arc<[Foreign]>) {
        let _changing = self.changing.lock();
        let next = self.now.load().with_foreign(foreign);
        self.now.store(Arc::new(next));
    }

    /// Adds the groups of these peers to the aggregated document of requests that begin after the call.
    pub fn show_peers(&self, peers: Arc<[Vec<Value>]>) {
        let _changing = self.changing.lock();
        let next = self.now.load().with_peers(peers);
        self.now.store(Arc::new(next));
    }

    /// Waits until this resource is no longer served, because it was removed or replaced.
    pub fn retired(self: &Arc<Self>, resource: &Arc<Resource>) -> impl Future<Output = ()> + Send + 'static {
        let (types, resource, mut changes) = (self.clone(), resource.clone(), self.changes());
        async move {
            // The sender lives as long as `types`.
            while types.now().has(&resource) && changes.changed().await.is_ok() {}
        }
    }

    /// Returns a receiver for all changes from now on; several changes may be reported as one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
