//! The server: the components that are assembled once at startup, and that all requests and controllers
//! share.
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
//! The whole configuration of a server is in values, so a process can run several servers with different
//! configurations. This module serves no requests, and depends on neither verbs nor routes.

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
use crate::state::{extension, fairness, health, testing, zpages};
use crate::writes::creations::Creations;
use crate::writes::plugin::{Chain, Plugin};
use crate::writes::quotas::Ledger;
use objects::custom::established::{Established, RegistryChanges};

/// The configuration of a [`Server`], one field for each component.
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

/// Creates an admission plugin for a server. At the time of the call, the server does not have all plugins
/// yet.
pub type MakePlugin = Arc<dyn Fn(&Server) -> Arc<dyn Plugin> + Send + Sync>;

/// The server: the data and services for requests, shared by all requests.
pub struct Server {
    itself: Weak<Server>,
    /// The stores of the objects.
    pub store: Arc<ObjectStorage>,
    /// The types that are served.
    pub types: Arc<TypeCatalog>,
    /// Authentication, authorization, flow control and audit.
    pub access: Arc<AccessControl>,
    /// The other servers that the server calls.
    pub outgoing: Arc<OutgoingCalls>,
    /// The state and the settings of the process.
    pub operations: Arc<Operations>,
    /// The admission plugins that every write passes.
    pub admission: Chain,
    /// The shares of quotas that writes have taken.
    pub quotas: Arc<Ledger>,
    /// The creations in namespaces that are in progress.
    pub creations: Creations,
}

impl Server {
    /// Assembles a server.
    ///
    /// # Errors
    /// Fails if the engine is closed.
    pub fn assemble(settings: Settings) -> Result<Arc<Self>, TailError> {
        let Settings { store, types, access, outgoing, operations, admission } = settings;
        let engine = store.backends.main().engine().clone();
        let facts = DocumentFacts {
            address: operations.address.to_string(),
            other_paths: other_paths(
                &types,
                access.fairness,
                &outgoing.extensions,
                operations.testing.is_some(),
            ),
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

    /// Changes the custom types that are served. `change` describes the change, and must not call this
    /// method.
    pub fn establish<T>(&self, change: impl FnOnce(&mut Established, &mut RegistryChanges) -> T) -> T {
        let mut established = self.types.established.lock();
        let mut changes = RegistryChanges::default();
        let result = change(&mut established, &mut changes);
        if !changes.is_empty() {
            // Discard the reports of peers about the changed types, even if no request has used such a report
            // yet.
            let peers = &self.outgoing.peers;
            if self.store.ledger().is_some() && peers.note(changes.versions(), Instant::now()) {
                self.show_peers();
            }
            let Ok(()) = self.types.change(|registry| Ok::<_, Infallible>(changes.apply(registry)));
        }
        result
    }

    /// Adds the resources of peers to the aggregated discovery document.
    pub fn show_peers(&self) {
        self.types.served.show_peers(self.outgoing.peers.groups());
    }

    /// Adds the resources of extension servers to the discovery documents.
    pub fn show_foreign(&self) {
        self.types.served.show(self.outgoing.extensions.foreign());
    }
}

/// Returns the paths that a server serves outside the resource API.
fn other_paths(
    types: &types::Settings,
    fairness: fairness::Settings,
    extensions: &extension::Settings,
    has_test_features: bool,
) -> Vec<String> {
    let of_requests =
        if fairness.is_shared { health::OptionalPart::FairShares } else { health::OptionalPart::Bounds };
    let certificate = extensions.certificate.as_ref().map(|_| health::OptionalPart::Certificate);
    let parts: Vec<_> = std::iter::once(of_requests).chain(certificate).collect();
    let mut paths = health::paths(types.naming, &parts);
    paths.extend(zpages::paths(&types.features).map(str::to_owned));
    if has_test_features {
        paths.extend(testing::PATHS.map(str::to_owned));
    }
    paths
}
