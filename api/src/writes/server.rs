//! The server: its parts, assembled once at startup and shared by all requests and controllers.
//!
//! ```text
//! Settings of each part ─► Server ─┬─ store        the stores of the objects, allocation
//!                                  ├─ types        the served types, naming, validation
//!                                  ├─ access       users, permissions, flow control, audit
//!                                  ├─ outgoing     webhooks, extension servers, peers, nodes
//!                                  ├─ operations   life, limits, metrics, version
//!                                  └─ admission    the plugins that every write passes
//! ```
//!
//! A server has all of its configuration as values, so a process may run several that differ. This module
//! serves no requests, and knows neither verbs nor routes.

pub mod access;
pub mod operations;
pub mod outgoing;
pub mod store;
pub mod types;

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Instant;

use engine::TailError;

use self::access::AccessControl;
use self::operations::Operations;
use self::outgoing::OutgoingCalls;
use self::store::ObjectStorage;
use self::types::{DocumentFacts, TypeCatalog};
use crate::state::{extension, fairness, health, zpages};
use crate::writes::creations::Creations;
use crate::writes::plugin::{Chain, Plugin};
use crate::writes::quotas::Ledger;
use objects::custom::established::{Established, RegistryChanges};

/// The configuration of a [`Server`], by its parts.
pub struct Settings {
    /// The stores, and the allocation of addresses and ports.
    pub store: store::Settings,
    /// Types, naming and validation.
    pub types: types::Settings,
    /// Users, permissions, flow control and audit.
    pub access: access::Settings,
    /// Connections to other servers.
    pub outgoing: outgoing::Settings,
    /// State and settings of the process.
    pub operations: Operations,
    /// The admission plugins by name, in their order.
    pub admission: Vec<(&'static str, MakePlugin)>,
}

/// Creates an admission plugin for a server that is complete but for its plugins.
pub type MakePlugin = Arc<dyn Fn(&Server) -> Arc<dyn Plugin> + Send + Sync>;

/// The server: everything that a request may need, shared by all requests.
pub struct Server {
    itself: Weak<Server>,
    /// The stores of the objects.
    pub store: Arc<ObjectStorage>,
    /// The types that are served.
    pub types: Arc<TypeCatalog>,
    /// The access of users.
    pub access: Arc<AccessControl>,
    /// The other servers that the server calls.
    pub outgoing: Arc<OutgoingCalls>,
    /// The state and the settings of the process.
    pub operations: Arc<Operations>,
    /// The admission plugins that every write passes.
    pub admission: Chain,
    /// The shares of quotas that writes have taken.
    pub quotas: Arc<Ledger>,
    /// The creations under way in namespaces.
    pub creations: Creations,
}

impl Server {
    /// Assembles a server.
    ///
    /// # Errors
    /// Fails if the engine was closed in the meantime.
    pub fn assemble(settings: Settings) -> Result<Arc<Self>, TailError> {
        let Settings { store, types, access, outgoing, operations, admission } = settings;
        let engine = store.backends.main().engine().clone();
        let facts = DocumentFacts {
            address: operations.address.to_string(),
            other_paths: other_paths(&types, access.fairness, &outgoing.extensions),
            git_version: operations.version.git_version(),
        };
        let event_ttl = Some(operations.limits.event_ttl).filter(|ttl| !ttl.is_zero());
        let types = Arc::new(TypeCatalog::new(types, event_ttl, facts));
        let store = Arc::new(ObjectStorage::new(store, &types.builtin));
        let outgoing = Arc::new(OutgoingCalls::new(outgoing, &engine, &types));
        let access = Arc::new(AccessControl::new(access, &engine, &types)?);
        // Clients reach the server at its own address, the advertised address, and the address of its
        // service.
        let service = store.allocations.own_address().map(|ip| (ip, 443).into());
        let others = operations.own_service.advertised.into_iter().chain(service).collect();
        outgoing.nodes.own_addresses().set(operations.address, others);
        Ok(Arc::new_cyclic(|itself| {
            let mut server = Server {
                itself: itself.clone(),
                store,
                types,
                access,
                outgoing,
                admission: Chain::new(operations.metrics.clone()),
                operations: Arc::new(operations),
                quotas: Arc::default(),
                creations: Creations::default(),
            };
            for (name, make) in admission {
                let plugin = make(&server);
                server.admission.push(name, plugin);
            }
            server
        }))
    }

    /// Returns a shared reference to this server, for a task that outlives the request.
    ///
    /// # Panics
    /// Panics if the server is being dropped.
    pub fn itself(&self) -> Arc<Server> {
        self.itself.upgrade().expect("the holder of a reference keeps the server alive")
    }

    /// Changes the custom types that are served. `change` selects them, and must not begin another change.
    pub fn establish<T>(&self, change: impl FnOnce(&mut Established, &mut RegistryChanges) -> T) -> T {
        let mut established = self.types.established.lock();
        let mut changes = RegistryChanges::default();
        let result = change(&mut established, &mut changes);
        if !changes.is_empty() {
            // Reports of peers about these types are discarded, even if a type disappears before any request
            // used the report.
            let peers = &self.outgoing.peers;
            if self.store.ledger().is_some() && peers.note(changes.versions(), Instant::now()) {
                self.show_peers();
            }
            let Ok(()) = self.types.change(|registry| Ok::<_, Infallible>(changes.apply(registry)));
        }
        result
    }

    /// Adds what peers serve to the aggregated discovery document.
    pub fn show_peers(&self) {
        self.types.served.show_peers(self.outgoing.peers.groups());
    }

    /// Adds what extension servers serve to the discovery documents.
    pub fn show_foreign(&self) {
        self.types.served.show(self.outgoing.extensions.foreign());
    }
}

/// Returns the paths of a server outside the resource API.
fn other_paths(
    types: &types::Settings,
    fairness: fairness::Settings,
    extensions: &extension::Settings,
) -> Vec<String> {
    let of_requests =
        if fairness.is_shared { health::OptionalPart::FairShares } else { health::OptionalPart::Bounds };
    let certificate = extensions.certificate.as_ref().map(|_| health::OptionalPart::Certificate);
    let parts: Vec<_> = std::iter::once(of_requests).chain(certificate).collect();
    let mut paths = health::paths(types.naming, &parts);
    paths.extend(zpages::paths(&types.features).map(str::to_owned));
    paths
}
