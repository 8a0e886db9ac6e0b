//! The served types: registry, discovery and OpenAPI documents as one value, and the one place where it is replaced.
//!
//! ```text
//! change: Registry ─► Registry ─► Served ─ swap ─► requests that begin from now on
//!                                   └──── signal ─► watches of types that went · controllers
//! ```
//!
//! A request takes the value once, at its start, and sees the same types in its documents and in its verbs to its end,
//! however often they change meanwhile. The value is dropped with the last request that has it. Documents are rendered
//! at their first request, and those of versions that a change leaves alone are kept, so a swap costs what making the
//! registry costs.
//!
//! Built-in types are in every value, and are the same in all of them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::discovery::{Discovery, Foreign};
use crate::openapi::OpenApi;
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
    /// The types of a registry. `server_address` is where `/api` sends clients; `other_paths` are the paths outside the
    /// resource API.
    pub fn new(registry: Registry, server_address: String, other_paths: Vec<String>) -> Self {
        let registry = Arc::new(registry);
        Served {
            openapi: OpenApi::new(registry.clone(), &other_paths),
            discovery: Discovery::new(registry.clone(), server_address, other_paths),
            registry,
        }
    }

    /// The same types, beside what these other servers serve.
    fn beside(&self, foreign: Arc<[Foreign]>) -> Self {
        Served {
            openapi: self.openapi.beside(&foreign),
            discovery: self.discovery.beside(foreign),
            registry: self.registry.clone(),
        }
    }

    /// The same types, with the groups of these peers in the aggregated document.
    fn among(&self, peers: Arc<[Vec<Value>]>) -> Self {
        let (openapi, registry) = (self.openapi.with(self.registry.clone()), self.registry.clone());
        Served { discovery: self.discovery.among(peers), openapi, registry }
    }

    /// The same server with other types.
    fn with(&self, registry: Registry) -> Self {
        let registry = Arc::new(registry);
        Served {
            discovery: self.discovery.with(registry.clone()),
            openapi: self.openapi.with(registry.clone()),
            registry,
        }
    }

    /// The resource types.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The discovery documents.
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// The OpenAPI documents.
    pub fn openapi(&self) -> &OpenApi {
        &self.openapi
    }

    /// Whether this very type is served, and not another one in its place.
    pub fn has(&self, resource: &Arc<Resource>) -> bool {
        let found = self.registry.resource(&resource.group, &resource.version, &resource.table.plural);
        found.is_some_and(|found| Arc::ptr_eq(found, resource))
    }
}

/// The types that are served now.
#[derive(Debug)]
pub struct Types {
    now: ArcSwap<Served>,
    /// Held while a registry is made from the one before. Readers do not take it.
    changing: Mutex<()>,
    changed: watch::Sender<()>,
}

impl Types {
    /// These, to begin with.
    pub fn new(served: Served) -> Self {
        Types {
            now: ArcSwap::from_pointee(served),
            changing: Mutex::new(()),
            changed: watch::Sender::new(()),
        }
    }

    /// Those of this moment.
    pub fn now(&self) -> Arc<Served> {
        self.now.load_full()
    }

    /// Serves what `make` makes of the registry, to every request that begins after the call. Changes come one after the
    /// other; `make` must not begin another one.
    ///
    /// # Errors
    /// Those of `make`; nothing changes then.
    pub fn change<E>(&self, make: impl FnOnce(&Registry) -> Result<Registry, E>) -> Result<(), E> {
        let _changing = self.changing.lock();
        let now = self.now.load();
        let next = now.with(make(now.registry())?);
        self.now.store(Arc::new(next));
        self.changed.send_replace(());
        Ok(())
    }

    /// Shows what other servers serve in the documents of requests that begin after the call.
    pub fn show(&self, foreign: Arc<[Foreign]>) {
        let _changing = self.changing.lock();
        let next = self.now.load().beside(foreign);
        self.now.store(Arc::new(next));
    }

    /// Shows the groups of these peers in the aggregated document of requests that begin after the call.
    pub fn show_peers(&self, peers: Arc<[Vec<Value>]>) {
        let _changing = self.changing.lock();
        let next = self.now.load().among(peers);
        self.now.store(Arc::new(next));
    }

    /// Ends once this very type is not served any more: it went, or there is another one in its place.
    pub fn retired(self: &Arc<Self>, resource: &Arc<Resource>) -> impl Future<Output = ()> + Send + 'static {
        let (types, resource, mut changes) = (self.clone(), resource.clone(), self.changes());
        async move {
            // The sender lives as long as `types`.
            while types.now().has(&resource) && changes.changed().await.is_ok() {}
        }
    }

    /// Tells of every change from now on; several may be told as one.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
