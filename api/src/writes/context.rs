//! The context of all requests: the parts of the server, assembled once at startup and shared from then on.
//!
//! This module serves no requests. Modules below the request chain reach the store, the registry and the
//! other parts through a [`Context`], which knows neither verbs nor routes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use auth::authz::Module;
use auth::{Attributes, Authenticator, Authorized, Authorizer};
use engine::{CommitError, Engine, Revision};
use futures_util::future::try_join;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::state::allocation::{Allocations, Ranges};
use crate::state::audit::Auditor;
use crate::state::backup::Backups;
use crate::state::certificates::Certificates;
use crate::state::connect::NodeConnections;
use crate::state::debug::Debugging;
use crate::state::edge;
use crate::state::extension::{self, Extensions};
use crate::state::fairness::{self, Fairness};
use crate::state::health;
use crate::state::log_files::LogFiles;
use crate::state::peers::{self, Peers};
use crate::state::policy::EnginePolicy;
use crate::state::secrecy::Secrecy;
use crate::state::tokens::Tokens;
use crate::state::zpages;
use crate::writes::admission::{self, namespace_lifecycle::Creations};
use objects::conversion::Converter;
use objects::custom::established::{Established, RegistryChanges};
use objects::negotiate::{Formats, Objects};
use objects::services::Services;
use objects::store::backends::Backends;
use objects::store::{self, Ledger, Part, Reach, Store};
use objects::validation;
use types::enablement::Enablement;
use types::features::{Feature, Features};
use types::schema::registry::{Registry, Resource};
use types::served::{Served, Types};
use types::version::ServerVersion;
use values::memory::Memory;
use values::naming::Naming;
use values::status::{Status, StatusReason, Subject};
use wire::metrics::Metrics;
use wire::server::Lifecycle;
use wire::traces::Tracer;

/// Longest time for which a read waits for a revision that does not exist yet
/// (docs/api/lists.md#read-consistency).
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// Limits that an operator may set, and what the server records.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest duration of a request that is not long-running.
    pub request_timeout: Duration,
    /// Shortest lifetime of a watch whose client sets none.
    pub min_request_timeout: Duration,
    /// Time during which `/livez` ignores startup checks that fail.
    pub livez_grace_period: Duration,
    /// Lifetime of an event after each write. 0 means that events live until a client deletes them.
    pub event_ttl: Duration,
    /// Period over which the server spreads the ends of watches when it drains.
    pub watch_grace: Duration,
    /// Whether each write stores its author.
    pub records_authors: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            livez_grace_period: Duration::ZERO,
            event_ttl: Duration::from_secs(3_600),
            watch_grace: Duration::ZERO,
            records_authors: true,
        }
    }
}

/// The service through which pods reach this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnService {
    /// Address of the server inside the cluster, if known.
    pub advertised: Option<SocketAddr>,
    /// Port on which the server listens.
    pub port: u16,
    /// Node port that also reaches the server.
    pub node_port: Option<u16>,
    /// Whether the server maintains endpoints for the service.
    pub has_endpoints: bool,
}

impl Default for OwnService {
    fn default() -> OwnService {
        OwnService { advertised: None, port: 443, node_port: None, has_endpoints: true }
    }
}

/// The server: everything that a request may need, shared by all requests.
pub struct Context {
    itself: Weak<Context>,
    backends: Arc<Backends>,
    builtin: Registry,
    types: Arc<Types>,
    naming: &'static Naming,
    validation: validation::Settings,
    formats: Formats,
    authenticator: Authenticator,
    authorizer: Arc<Authorizer>,
    lifecycle: Lifecycle,
    limits: Limits,
    metrics: Arc<Metrics>,
    backups: Backups,
    memory: Arc<Memory>,
    namespaces: Arc<Resource>,
    definitions: Arc<Resource>,
    established: Mutex<Established>,
    converter: Arc<Converter>,
    admission: admission::Chain,
    lookup: admission::Lookup,
    creations: Creations,
    root_ca: String,
    allocations: Allocations,
    tokens: Tokens,
    certificates: Certificates,
    features: Features,
    version: ServerVersion,
    host_name: String,
    own_service: OwnService,
    collects_garbage: bool,
    auditor: Option<Auditor>,
    fairness: Fairness,
    extensions: Extensions,
    peers: Peers,
    edge: edge::Settings,
    flags: Vec<(String, String)>,
    log_files: Option<Arc<dyn LogFiles>>,
    debugging: Debugging,
    tracer: Option<Tracer>,
    nodes: NodeConnections,
    secrecy: Option<Arc<Secrecy>>,
    started: Instant,
}

/// The parts from which a [`Context`] is assembled.
pub struct Parts {
    /// The naming profile in use.
    pub naming: &'static Naming,
    /// Whether containers may be privileged.
    pub allows_privileged: bool,
    /// The stores that keep the objects.
    pub backends: Backends,
    /// The authenticators that identify users.
    pub authenticator: Authenticator,
    /// Startup and shutdown state of the process.
    pub lifecycle: Lifecycle,
    /// Time limits that the operator set.
    pub limits: Limits,
    /// Address at which clients reach the server.
    pub address: SocketAddr,
    /// PEM of the certificate authorities with which clients inside the cluster verify the server.
    pub root_ca: String,
    /// Ranges of addresses and ports for services.
    pub ranges: Ranges,
    /// Settings for tokens of service accounts.
    pub tokens: Tokens,
    /// Settings for the signing of certificates.
    pub certificates: Certificates,
    /// The feature gates of the server.
    pub features: Features,
    /// The version that the server reports.
    pub version: ServerVersion,
    /// Name of the host on which the server runs.
    pub host_name: String,
    /// The service through which pods reach this server.
    pub own_service: OwnService,
    /// Whether the server sets the finalizers of the garbage collector. The collector then also runs, unless
    /// it is deselected.
    pub collects_garbage: bool,
    /// The counters of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Selection and configuration of admission plugins.
    pub admission: admission::Settings,
    /// The auditor; `None` if nothing is audited.
    pub auditor: Option<Auditor>,
    /// Selection of the built-in types that are served.
    pub enablement: Enablement,
    /// Limits on the number of concurrent requests.
    pub fairness: fairness::Settings,
    /// Settings for the identification of this server to extension servers.
    pub extensions: extension::Settings,
    /// Settings for mutual identification of the servers on the same store.
    pub peers: peers::Settings,
    /// Settings for the checks that need only the head of a request.
    pub edge: edge::Settings,
    /// The flags of the process, for display.
    pub flags: Vec<(String, String)>,
    /// The log files that are served, if any.
    pub log_files: Option<Arc<dyn LogFiles>>,
    /// Log level and profiles of the process.
    pub debugging: Debugging,
    /// Selection of the requests that are traced, if any.
    pub tracer: Option<Tracer>,
    /// Settings for connections to nodes, pods and services.
    pub nodes: NodeConnections,
    /// Encryption of stored values, if configured.
    pub secrecy: Option<Arc<Secrecy>>,
}

impl Context {
    /// Assembles the server with these authorizers, in their order.
    ///
    /// # Errors
    /// Fails if the engine was closed in the meantime.
    pub fn assemble(parts: Parts, modules: Vec<Module>) -> Result<Arc<Self>, engine::TailError> {
        let Parts { naming, backends, authenticator, lifecycle, limits, address, root_ca, .. } = parts;
        let backends = Arc::new(backends);
        let engine = backends.main().engine().clone();
        let event_ttl = Some(limits.event_ttl).filter(|ttl| !ttl.is_zero());
        let registry = Registry::with_event_ttl(naming, event_ttl);
        let rbac_group = naming.group("rbac.authorization", true);
        let authorizer = Authorizer::new(modules, Arc::new(EnginePolicy::new(engine.clone())?), rbac_group);
        let authorizer = match parts.features.has(Feature::ConstrainedImpersonation) {
            true => authorizer,
            false => authorizer.without_constrained_impersonation(),
        };
        let authorizer = Arc::new(authorizer);
        let served = parts.enablement.of(&registry);
        let mut paths = health::paths(naming, &health_parts(parts.fairness, &parts.extensions));
        paths.extend(zpages::paths(&parts.features).map(str::to_owned));
        let types = Served::new(served, address.to_string(), paths, parts.version.git_version());
        let types = Arc::new(Types::new(types));
        let reaches_endpoints = parts.admission.reaches_endpoints();
        let services = Arc::new(Services::new(engine.clone(), &registry, naming, reaches_endpoints));
        let converter = Converter::new(services.clone(), naming)
            .calling(parts.extensions.system.clone(), parts.extensions.networks.clone());
        let converter = Arc::new(converter);
        let lookup = admission::Lookup {
            converter: converter.clone(),
            backends: backends.clone(),
            builtin: registry.clone(),
            types: types.clone(),
            authorizer: authorizer.clone(),
            naming,
            features: parts.features.clone(),
            metrics: parts.metrics.clone(),
            services,
            quotas: Arc::default(),
        };
        let namespaces = registry.resource("", "v1", "namespaces").cloned();
        let extensions = naming.group("apiextensions", true);
        let definitions = registry.resource(&extensions, "v1", "customresourcedefinitions").cloned();
        let allocations = Allocations::new(engine, &registry, parts.ranges);
        // Clients reach the server at its own address, the advertised address, and the address of its
        // service.
        let service = allocations.own_address().map(|ip| (ip, 443).into());
        let others = parts.own_service.advertised.into_iter().chain(service).collect();
        parts.nodes.own_addresses().set(parts.address, others);
        Ok(Arc::new_cyclic(|itself| Context {
            itself: itself.clone(),
            backups: Backups::default(),
            memory: Arc::default(),
            namespaces: namespaces.expect("a test holds that namespaces are built in"),
            definitions: definitions.expect("a test holds that definitions are built in"),
            established: Mutex::default(),
            allocations,
            tokens: parts.tokens,
            certificates: parts.certificates,
            formats: Formats {
                naming,
                cbor: parts.features.has(Feature::CborServingAndStorage),
                objects: Objects::Typed,
            },
            features: parts.features,
            version: parts.version,
            host_name: parts.host_name,
            own_service: parts.own_service,
            collects_garbage: parts.collects_garbage,
            auditor: parts.auditor,
            fairness: Fairness::new(parts.fairness),
            extensions: Extensions::new(parts.extensions),
            peers: Peers::new(parts.peers),
            edge: parts.edge,
            flags: parts.flags,
            log_files: parts.log_files,
            debugging: parts.debugging,
            tracer: parts.tracer,
            nodes: parts.nodes,
            secrecy: parts.secrecy,
            metrics: parts.metrics.clone(),
            backends,
            builtin: registry,
            types,
            naming,
            validation: validation::Settings { naming, allows_privileged: parts.allows_privileged },
            authenticator,
            authorizer,
            lifecycle,
            limits,
            converter,
            admission: admission::Chain::new(&parts.admission, &lookup, parts.metrics),
            lookup,
            creations: Creations::default(),
            root_ca,
            started: Instant::now(),
        }))
    }

    /// Returns a shared reference to this context, for a task that outlives the request.
    ///
    /// # Panics
    /// Panics if the context is being dropped.
    pub fn itself(&self) -> Arc<Context> {
        self.itself.upgrade().expect("whoever has a reference keeps the context")
    }

    /// Returns the stores that keep the objects.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// Returns the revision log of all resources that have no separate store, for parts of the server that
    /// follow the log. Requests use [`open`](Self::open).
    pub fn engine(&self) -> &Engine {
        self.backends.main().engine()
    }

    /// Returns the revision log of a resource.
    pub fn engine_of(&self, resource: &Resource) -> &Engine {
        self.backends.of(resource).engine()
    }

    /// Opens the store with the permission of a request.
    ///
    /// # Panics
    /// Panics if the permission is for something else. This is a broken invariant, and the request gets a
    /// 500.
    pub fn open<'c>(&'c self, proof: &Authorized<'_>, reach: Reach<'c>) -> Store<'c> {
        Store::open(&self.backends, proof, reach)
    }

    /// Opens the store for one object of another resource to which the permission extends by definition.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn open_derived<'c>(
        &'c self,
        proof: &Authorized<'_>,
        asked: Reach<'_>,
        reach: Reach<'c>,
    ) -> Store<'c> {
        Store::open_derived(&self.backends, proof, asked, reach)
    }

    /// Opens the store for a part of the server.
    pub fn open_for(&self, part: Part) -> Store<'_> {
        Store::open_for(&self.backends, part)
    }

    /// Returns the whole main engine, with the permission for a path that is not a resource.
    ///
    /// # Panics
    /// Panics if the permission is for something else.
    pub fn engine_for_path(&self, proof: &Authorized<'_>, path: &str) -> &Engine {
        store::engine_for_path(self.engine(), proof, path)
    }

    /// Returns the ledger that decides writes, if the engine follows one.
    pub fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.backends.main().ledger()
    }

    /// Resolves once the engine has every write to a resource that any server acknowledged before the call.
    /// Resolves immediately if this server is the only one on its store.
    ///
    /// # Errors
    /// As [`Ledger::current`].
    pub async fn current(&self, resource: &Resource) -> Result<(), Status> {
        match self.backends.of(resource).ledger() {
            None => Ok(()),
            Some(ledger) => ledger.current().await,
        }
    }

    /// Like [`Context::current`], for everything that a write to the resource reads. This includes the main
    /// backend, which has the namespace of the object and what admission looks up.
    ///
    /// # Errors
    /// As [`Ledger::current`].
    pub async fn current_for_write(&self, resource: &Resource) -> Result<(), Status> {
        let main = self.backends.main();
        match main.ledger().filter(|_| !std::ptr::eq(main, self.backends.of(resource))) {
            None => self.current(resource).await,
            Some(ledger) => try_join(ledger.current(), self.current(resource)).await.map(drop),
        }
    }

    /// Returns the served types as a shared handle that follows changes.
    pub fn shared_types(&self) -> Arc<Types> {
        self.types.clone()
    }

    /// Returns the built-in resource types, which are always served.
    pub fn builtin(&self) -> &Registry {
        &self.builtin
    }

    /// Returns the types that are served now, with their documents. A request calls this once, at its start.
    pub fn types(&self) -> Arc<Served> {
        self.types.now()
    }

    /// Replaces the served types by what `make` derives from the current registry. `make` must leave built-in
    /// types as they are.
    ///
    /// # Errors
    /// Returns the error of `make`; nothing changes in this case.
    pub fn change_types<E>(&self, make: impl FnOnce(&Registry) -> Result<Registry, E>) -> Result<(), E> {
        self.types.change(make)
    }

    /// Returns a future that ends once this exact type is no longer served; `None` for a type that is always
    /// served.
    pub fn retired(&self, resource: &Arc<Resource>) -> Option<impl Future<Output = ()> + Send + 'static> {
        (!resource.is_builtin()).then(|| self.types.retired(resource))
    }

    /// Returns a receiver that reports changes of the types from now on. Several changes may be reported as
    /// one.
    pub fn type_changes(&self) -> watch::Receiver<()> {
        self.types.changes()
    }

    /// Returns the naming profile in use.
    pub fn naming(&self) -> &'static Naming {
        self.naming
    }

    /// Returns the settings that determine which objects are valid.
    pub fn validation(&self) -> validation::Settings {
        self.validation
    }

    /// Returns the encodings that are served.
    pub fn formats(&self) -> Formats {
        self.formats
    }

    /// Returns the authenticators of the server.
    pub fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// Returns the authorizers of the server.
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// Returns a shared handle to the authorizers, for code that replaces them.
    pub fn shared_authorizer(&self) -> Arc<Authorizer> {
        self.authorizer.clone()
    }

    /// Returns the startup and shutdown state of the process.
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// Returns the time limits that the operator set.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters of `/metrics`.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns the limit on concurrent backups.
    pub fn backups(&self) -> &Backups {
        &self.backups
    }

    /// Returns the account of the memory that requests use.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns the resource of namespaces, which every namespaced write looks up.
    pub fn namespaces(&self) -> &Arc<Resource> {
        &self.namespaces
    }

    /// Returns the resource of definitions of custom types, which every creation of a custom object looks up.
    pub fn definitions(&self) -> &Arc<Resource> {
        &self.definitions
    }

    /// Changes the custom types that are served. `change` selects them, and must not begin another change.
    pub fn establish<T>(&self, change: impl FnOnce(&mut Established, &mut RegistryChanges) -> T) -> T {
        let mut established = self.established.lock();
        let mut changes = RegistryChanges::default();
        let told = change(&mut established, &mut changes);
        if !changes.is_empty() {
            // Reports of peers about these types are discarded, even if a type disappears before any request
            // used the report.
            if self.ledger().is_some() && self.peers.note(changes.versions(), Instant::now()) {
                self.show_peers();
            }
            let Ok(()) = self.change_types(|registry| Ok::<_, Infallible>(changes.apply(registry)));
        }
        told
    }

    /// Returns the resolver of service addresses for calls by the server.
    pub fn services(&self) -> &Services {
        &self.lookup().services
    }

    /// Returns the converter for objects of custom types between versions.
    pub fn converter(&self) -> &Arc<Converter> {
        &self.converter
    }

    /// Returns the admission plugins that every write passes.
    pub fn admission(&self) -> &admission::Chain {
        &self.admission
    }

    /// Returns the lookup that admission plugins and their controllers use.
    pub fn lookup(&self) -> &admission::Lookup {
        &self.lookup
    }

    /// Returns the creations under way in namespaces.
    pub fn creations(&self) -> &Creations {
        &self.creations
    }

    /// Returns the PEM of the authorities with which clients inside the cluster verify this server. Every
    /// namespace has a copy.
    pub fn root_ca(&self) -> &str {
        &self.root_ca
    }

    /// Returns the allocations of service addresses and ports.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Returns the settings of service account tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Returns the settings for the signing of certificates.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Returns the feature gates of the server.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Returns the address of this server inside the cluster, for its own service; `None` if unknown.
    pub fn advertised(&self) -> Option<SocketAddr> {
        self.own_service.advertised
    }

    /// Returns the version that the server reports.
    pub fn version(&self) -> &ServerVersion {
        &self.version
    }

    /// Returns the name of the host on which the server runs.
    pub fn host_name(&self) -> &str {
        &self.host_name
    }

    /// Returns the service through which pods reach this server.
    pub fn own_service(&self) -> &OwnService {
        &self.own_service
    }

    /// Returns the auditor; `None` if nothing is audited.
    pub fn auditor(&self) -> Option<&Auditor> {
        self.auditor.as_ref()
    }

    /// Returns the flow control that decides which requests run.
    pub fn fairness(&self) -> &Fairness {
        &self.fairness
    }

    /// Returns the extension servers known to this server.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the settings for the checks that need only the head of a request.
    pub fn edge(&self) -> &edge::Settings {
        &self.edge
    }

    /// Returns the encryption of stored values, if configured.
    pub fn secrecy(&self) -> Option<&Arc<Secrecy>> {
        self.secrecy.as_ref()
    }

    /// Returns the settings for connections to nodes, pods and services.
    pub fn nodes(&self) -> &NodeConnections {
        &self.nodes
    }

    /// Returns the other servers on the same store.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Adds what peers serve to the aggregated discovery document.
    pub fn show_peers(&self) {
        self.types.show_peers(self.peers.groups());
    }

    /// Adds what extension servers serve to the discovery documents.
    pub fn show_foreign(&self) {
        self.types.show(self.extensions.foreign());
    }

    /// Returns the log files that are served, if any.
    pub fn log_files(&self) -> Option<&Arc<dyn LogFiles>> {
        self.log_files.as_ref()
    }

    /// Returns the log level and the profiles of the process, for the paths of debugging.
    pub fn debugging(&self) -> &Debugging {
        &self.debugging
    }

    /// Returns the flags of the process, for display.
    pub fn flags(&self) -> &[(String, String)] {
        &self.flags
    }

    /// Returns the tracer, if requests are traced.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Returns how long the process has been serving.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns whether `/livez` still ignores startup checks that fail.
    pub fn is_within_livez_grace(&self) -> bool {
        self.started.elapsed() < self.limits.livez_grace_period
    }

    /// Returns whether a garbage collector handles the finalizers `orphan` and `foregroundDeletion`.
    pub fn collects_garbage(&self) -> bool {
        self.collects_garbage
    }

    /// Waits for a bounded time until the store of a resource has reached `revision`. Revision 0 counts as
    /// reached.
    pub async fn wait_for_revision(&self, resource: &Resource, revision: Revision) -> Result<(), Status> {
        let engine = self.engine_of(resource);
        if revision <= engine.revision() {
            return Ok(());
        }
        let reached = tokio::time::timeout(FRESHNESS_WAIT, engine.reached(revision)).await;
        reached.map_err(|_| Status::too_large_resource_version(revision.get(), engine.revision().get(), 1))
    }

    /// Returns the error for the client when the engine did not commit a write for a reason other than a
    /// conflict.
    pub fn commit_failed(&self, error: &CommitError) -> Status {
        match error {
            CommitError::Conflict { .. } => Status::internal("unexpected conflict"),
            CommitError::KeyLength { .. }
            | CommitError::AttributesTooLarge { .. }
            | CommitError::ValueTooLarge { .. } => {
                Status::new(StatusReason::RequestEntityTooLarge, error.to_string())
            }
            CommitError::Refused { .. } | CommitError::Closed => {
                tracing::error!(%error, "write refused by the store");
                Status::new(StatusReason::ServiceUnavailable, error.to_string())
            }
            // The API conventions assign this reason to an unknown outcome of a call.
            CommitError::OutcomeUnknown(_) => {
                tracing::error!(%error, "outcome of a write is unknown");
                Status::internal(error)
            }
            CommitError::Damaged(error) => Status::new(StatusReason::StorageReadError, error.to_string()),
            CommitError::StampOutOfRange { .. } => Status::internal(error),
        }
    }

    /// Checks that the user of an allowed request may also create the object, since a PUT or an apply on an
    /// object that does not exist creates it.
    ///
    /// # Errors
    /// 403 if the authorizers do not allow it.
    pub async fn authorize_create(&self, proof: &Authorized<'_>) -> Result<(), Status> {
        let attributes = Attributes { verb: "create", ..*proof.attributes() };
        self.authorizer
            .authorize(&attributes)
            .await
            .map(drop)
            .map_err(|denied| forbidden(&attributes, &denied.message))
    }
}

/// Returns a 403 about the resource that a request named.
pub fn forbidden(attributes: &Attributes<'_>, message: &str) -> Status {
    let subject = Subject { group: attributes.group, kind: attributes.resource, name: attributes.name };
    Status::forbidden(subject, message)
}

/// Returns the parts of a server whose checks appear in its list of paths.
fn health_parts(fairness: fairness::Settings, extensions: &extension::Settings) -> Vec<health::Part> {
    let of_requests = match fairness.is_shared {
        true => health::Part::FairShares,
        false => health::Part::Bounds,
    };
    let certificate = extensions.certificate.as_ref().map(|_| health::Part::Certificate);
    std::iter::once(of_requests).chain(certificate).collect()
}
