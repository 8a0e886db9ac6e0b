//! The context of all requests: the parts of the server, put together once at start and shared from then on.
//!
//! Nothing here serves a request. Modules below the request chain reach the store, the registry and the other parts
//! through a [`Context`]; it knows neither verbs nor routes.

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
use crate::state::connect::Nodes;
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
use objects::custom::established::{Changes, Established};
use objects::negotiate::{Formats, Objects};
use objects::services::Services;
use objects::store::backends::Backends;
use objects::store::{self, Ledger, Part, Reach, Store};
use types::enablement::Enablement;
use types::features::{Feature, Features};
use types::schema::registry::{Registry, Resource};
use types::served::{Served, Types};
use values::memory::Memory;
use values::naming::Naming;
use values::status::{Reason, Status, Subject};
use wire::metrics::Metrics;
use wire::outgoing;
use wire::server::Lifecycle;
use wire::traces::Tracer;

/// How long a read waits for a revision that has not happened (docs/api/lists.md#read-consistency).
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// Bounds that an operator may set.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest a request may take that is not long-running.
    pub request_timeout: Duration,
    /// Shortest lifetime of a watch whose client names none.
    pub min_request_timeout: Duration,
    /// How long unfinished start-up counts as alive.
    pub livez_grace_period: Duration,
    /// How long an event lives after each write; zero: until a client deletes it.
    pub event_ttl: Duration,
    /// The time over which the ends of watches are spread when the server drains.
    pub watch_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            request_timeout: Duration::from_secs(60),
            min_request_timeout: Duration::from_secs(1800),
            livez_grace_period: Duration::ZERO,
            event_ttl: Duration::from_secs(3_600),
            watch_grace: Duration::ZERO,
        }
    }
}

/// The service by which pods reach this server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnService {
    /// Where the server is reached from inside the cluster, if that is known.
    pub advertised: Option<SocketAddr>,
    /// Port at which the server listens.
    pub port: u16,
    /// Port of nodes at which it is reached too.
    pub node_port: Option<u16>,
    /// Whether endpoints are kept.
    pub has_endpoints: bool,
}

impl Default for OwnService {
    fn default() -> OwnService {
        OwnService { advertised: None, port: 443, node_port: None, has_endpoints: true }
    }
}

/// The server: everything a request may need, shared by all of them.
pub struct Context {
    itself: Weak<Context>,
    backends: Arc<Backends>,
    builtin: Registry,
    types: Arc<Types>,
    naming: &'static Naming,
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
    own_service: OwnService,
    collects_garbage: bool,
    auditor: Option<Auditor>,
    fairness: Fairness,
    extensions: Extensions,
    peers: Peers,
    edge: edge::Settings,
    flags: Vec<(String, String)>,
    log_files: Option<Arc<dyn LogFiles>>,
    tracer: Option<Tracer>,
    nodes: Nodes,
    secrecy: Option<Arc<Secrecy>>,
    started: Instant,
}

/// The parts that a [`Context`] is assembled from.
pub struct Parts {
    /// Vocabulary.
    pub naming: &'static Naming,
    /// Where objects are kept.
    pub backends: Backends,
    /// Who asks.
    pub authenticator: Authenticator,
    /// Stage of the process.
    pub lifecycle: Lifecycle,
    /// Bounds.
    pub limits: Limits,
    /// Where clients reach the server.
    pub address: SocketAddr,
    /// PEM of the certificates by which clients inside know the server.
    pub root_ca: String,
    /// What is handed out to services.
    pub ranges: Ranges,
    /// How tokens of service accounts are made.
    pub tokens: Tokens,
    /// How certificates are signed.
    pub certificates: Certificates,
    /// Switches of behaviour.
    pub features: Features,
    /// The service by which pods reach this server.
    pub own_service: OwnService,
    /// Whether finalizers of the garbage collector are set, and it runs unless it is deselected.
    pub collects_garbage: bool,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Which admission plugins run.
    pub admission: admission::Settings,
    /// What is audited, if anything is.
    pub auditor: Option<Auditor>,
    /// Which built-in types are served.
    pub enablement: Enablement,
    /// How many requests run at once.
    pub fairness: fairness::Settings,
    /// How extension servers know this one.
    pub extensions: extension::Settings,
    /// How the other servers on the same store are known, and this one to them.
    pub peers: peers::Settings,
    /// What is done to requests before anything is known of them but their head.
    pub edge: edge::Settings,
    /// The flags of the process, for people who ask.
    pub flags: Vec<(String, String)>,
    /// Files of logs that are served.
    pub log_files: Option<Arc<dyn LogFiles>>,
    /// Which requests are traced, if any are.
    pub tracer: Option<Tracer>,
    /// How nodes, pods and services are reached.
    pub nodes: Nodes,
    /// How stored values are encrypted, if any are.
    pub secrecy: Option<Arc<Secrecy>>,
}

impl Context {
    /// Puts the server together, with these authorizers in their order.
    ///
    /// # Errors
    /// The engine was closed meanwhile.
    pub fn assemble(parts: Parts, modules: Vec<Module>) -> Result<Arc<Self>, engine::TailError> {
        outgoing::count_in(&parts.metrics);
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
        let types = Served::new(served, address.to_string(), paths);
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
        // Clients reach the server at its address, the advertised one, and the address of its service.
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
            own_service: parts.own_service,
            collects_garbage: parts.collects_garbage,
            auditor: parts.auditor,
            fairness: Fairness::new(parts.fairness),
            extensions: Extensions::new(parts.extensions),
            peers: Peers::new(parts.peers),
            edge: parts.edge,
            flags: parts.flags,
            log_files: parts.log_files,
            tracer: parts.tracer,
            nodes: parts.nodes,
            secrecy: parts.secrecy,
            metrics: parts.metrics.clone(),
            backends,
            builtin: registry,
            types,
            naming,
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

    /// Returns the context for a task that outlives the request.
    ///
    /// # Panics
    /// The context is being dropped.
    pub fn itself(&self) -> Arc<Context> {
        self.itself.upgrade().expect("whoever has a reference keeps the context")
    }

    /// Where objects are kept.
    pub fn backends(&self) -> &Backends {
        &self.backends
    }

    /// The revision log of all resources that are not kept apart, for the parts of the server that follow it. Requests open it by
    /// [`open`](Self::open).
    pub fn engine(&self) -> &Engine {
        self.backends.main().engine()
    }

    /// The revision log of a resource.
    pub fn engine_of(&self, resource: &Resource) -> &Engine {
        self.backends.of(resource).engine()
    }

    /// The store, opened by the permission of a request.
    ///
    /// # Panics
    /// The permission is for something else: a broken invariant, which is the request's 500.
    pub fn open<'c>(&'c self, proof: &Authorized<'_>, reach: Reach<'c>) -> Store<'c> {
        Store::open(&self.backends, proof, reach)
    }

    /// The same for one object of another resource, for which the permission stands by definition.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn open_derived<'c>(&'c self, proof: &Authorized<'_>, by: (Reach<'_>, Reach<'c>)) -> Store<'c> {
        Store::open_derived(&self.backends, proof, by)
    }

    /// The store, opened by a part of the server.
    pub fn open_for(&self, part: Part) -> Store<'_> {
        Store::open_for(&self.backends, part)
    }

    /// The whole main engine, opened by the permission for a path that is no resource.
    ///
    /// # Panics
    /// The permission is for something else.
    pub fn engine_for_path(&self, proof: &Authorized<'_>, path: &str) -> &Engine {
        store::engine_for_path(self.engine(), proof, path)
    }

    /// Who decides writes, where the engine follows.
    pub fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.backends.main().ledger()
    }

    /// Resolves once the engine has everything of a resource that was acknowledged before the call, by whichever server: at once
    /// where this server is alone on its store.
    ///
    /// # Errors
    /// As [`Ledger::current`].
    pub async fn current(&self, resource: &Resource) -> Result<(), Status> {
        match self.backends.of(resource).ledger() {
            None => Ok(()),
            Some(ledger) => ledger.current().await,
        }
    }

    /// The same of all that a write of the resource looks at: of the main backend as well, which has its namespace and what
    /// admission looks up.
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

    /// The types that are served, as they change.
    pub fn shared_types(&self) -> Arc<Types> {
        self.types.clone()
    }

    /// The built-in resource types, which are served at all times.
    pub fn builtin(&self) -> &Registry {
        &self.builtin
    }

    /// The types that are served now, with their documents. A request asks once, at its start.
    pub fn types(&self) -> Arc<Served> {
        self.types.now()
    }

    /// Serves other types from now on: what `make` makes of the registry. Built-in types must stay as they are.
    ///
    /// # Errors
    /// Those of `make`; nothing changes then.
    pub fn change_types<E>(&self, make: impl FnOnce(&Registry) -> Result<Registry, E>) -> Result<(), E> {
        self.types.change(make)
    }

    /// Ends once this very type is not served any more; `None` for one that is always served.
    pub fn retired(&self, resource: &Arc<Resource>) -> Option<impl Future<Output = ()> + Send + 'static> {
        (!resource.is_builtin()).then(|| self.types.retired(resource))
    }

    /// Tells of every change of the types from now on; several may be told as one.
    pub fn type_changes(&self) -> watch::Receiver<()> {
        self.types.changes()
    }

    /// The naming profile.
    pub fn naming(&self) -> &'static Naming {
        self.naming
    }

    /// The encodings that are served.
    pub fn formats(&self) -> Formats {
        self.formats
    }

    /// The authenticators.
    pub fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// The authorizers.
    pub fn authorizer(&self) -> &Authorizer {
        &self.authorizer
    }

    /// The authorizers, for those who replace them.
    pub fn shared_authorizer(&self) -> Arc<Authorizer> {
        self.authorizer.clone()
    }

    /// Stage of the process.
    pub fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// Bounds that the operator set.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The counters of `/metrics`.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Room for the backups under way.
    pub fn backups(&self) -> &Backups {
        &self.backups
    }

    /// The account of memory that requests take.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The resource of namespaces, which every namespaced write looks up.
    pub fn namespaces(&self) -> &Arc<Resource> {
        &self.namespaces
    }

    /// The resource of definitions of custom types, which every creation of a custom object looks up.
    pub fn definitions(&self) -> &Arc<Resource> {
        &self.definitions
    }

    /// Serves other custom types from now on. `change` says which, and must not begin another change.
    pub fn establish<T>(&self, change: impl FnOnce(&mut Established, &mut Changes) -> T) -> T {
        let mut established = self.established.lock();
        let mut changes = Changes::default();
        let told = change(&mut established, &mut changes);
        if !changes.is_empty() {
            // What peers said of these types does not count, also where they go before anyone looked.
            if self.ledger().is_some() && self.peers.note(changes.versions(), Instant::now()) {
                self.show_peers();
            }
            let Ok(()) = self.change_types(|registry| Ok::<_, Infallible>(changes.apply(registry)));
        }
        told
    }

    /// Where services are reached by what calls them for the server.
    pub fn services(&self) -> &Services {
        &self.lookup().services
    }

    /// Converts objects of custom types between their versions.
    pub fn converter(&self) -> &Arc<Converter> {
        &self.converter
    }

    /// The plugins that every write passes.
    pub fn admission(&self) -> &admission::Chain {
        &self.admission
    }

    /// What admission looks things up with; its controllers do so too.
    pub fn lookup(&self) -> &admission::Lookup {
        &self.lookup
    }

    /// Creations under way in namespaces.
    pub fn creations(&self) -> &Creations {
        &self.creations
    }

    /// PEM of the authorities by which clients inside the cluster verify this server; every namespace has a copy.
    pub fn root_ca(&self) -> &str {
        &self.root_ca
    }

    /// Addresses and ports of services.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Settings of service account tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// How certificates are signed.
    pub fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    /// Feature gates.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Address of this server inside the cluster, for its own service; `None` if it is unknown.
    pub fn advertised(&self) -> Option<SocketAddr> {
        self.own_service.advertised
    }

    /// The service by which pods reach this server.
    pub fn own_service(&self) -> &OwnService {
        &self.own_service
    }

    /// What is audited, if anything is.
    pub fn auditor(&self) -> Option<&Auditor> {
        self.auditor.as_ref()
    }

    /// Decides which requests run.
    pub fn fairness(&self) -> &Fairness {
        &self.fairness
    }

    /// The extension servers.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// What is done to requests before anything is known of them but their head.
    pub fn edge(&self) -> &edge::Settings {
        &self.edge
    }

    /// How stored values are encrypted, if any are.
    pub fn secrecy(&self) -> Option<&Arc<Secrecy>> {
        self.secrecy.as_ref()
    }

    /// How nodes, pods and services are reached.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The other servers on the same store.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Shows what peers serve in the aggregated discovery document.
    pub fn show_peers(&self) {
        self.types.show_peers(self.peers.groups());
    }

    /// Shows what extension servers serve in the discovery documents.
    pub fn show_foreign(&self) {
        self.types.show(self.extensions.foreign());
    }

    /// Files of logs that are served.
    pub fn log_files(&self) -> Option<&Arc<dyn LogFiles>> {
        self.log_files.as_ref()
    }

    /// The flags of the process, for people who ask.
    pub fn flags(&self) -> &[(String, String)] {
        &self.flags
    }

    /// Which requests are traced, if any are.
    pub fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// How long the process serves.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether `/livez` still ignores checks of the start that fail.
    pub fn is_within_livez_grace(&self) -> bool {
        self.started.elapsed() < self.limits.livez_grace_period
    }

    /// Whether a garbage collector acts on the finalizers `orphan` and `foregroundDeletion`.
    pub fn collects_garbage(&self) -> bool {
        self.collects_garbage
    }

    /// Waits until the store of a resource has reached `revision`, for a bounded time; 0 is always reached.
    pub async fn wait_for_revision(&self, resource: &Resource, revision: Revision) -> Result<(), Status> {
        let engine = self.engine_of(resource);
        if revision <= engine.revision() {
            return Ok(());
        }
        let reached = tokio::time::timeout(FRESHNESS_WAIT, engine.reached(revision)).await;
        reached.map_err(|_| Status::too_large_resource_version(revision, engine.revision(), 1))
    }

    /// What a client hears when the engine took a write for another reason than a conflict.
    pub fn commit_failed(&self, error: &CommitError) -> Status {
        match error {
            CommitError::Conflict { .. } => Status::internal("unexpected conflict"),
            CommitError::KeyLength { .. }
            | CommitError::AttributesTooLarge { .. }
            | CommitError::ValueTooLarge { .. } => {
                Status::new(Reason::RequestEntityTooLarge, error.to_string())
            }
            CommitError::Refused { .. } | CommitError::Closed => {
                tracing::error!(%error, "write refused by the store");
                Status::new(Reason::ServiceUnavailable, error.to_string())
            }
            // The reason of which the API conventions say that the outcome of the call is unknown.
            CommitError::OutcomeUnknown(_) => {
                tracing::error!(%error, "outcome of a write is unknown");
                Status::internal(error)
            }
            CommitError::Damaged(error) => Status::new(Reason::StorageReadError, error.to_string()),
            CommitError::StampOutOfRange { .. } => Status::internal(error),
        }
    }

    /// Whether the user of an allowed request may create its object as well: a PUT or an apply on an object that does
    /// not exist creates it.
    ///
    /// # Errors
    /// 403 where the authorizers do not allow it.
    pub async fn authorize_create(&self, proof: &Authorized<'_>) -> Result<(), Status> {
        let attributes = Attributes { verb: "create", ..*proof.attributes() };
        self.authorizer
            .authorize(&attributes)
            .await
            .map(drop)
            .map_err(|denied| forbidden(&attributes, &denied.message))
    }
}

/// 403 about the resource that a request asked for.
pub fn forbidden(attributes: &Attributes<'_>, message: &str) -> Status {
    let subject = Subject { group: attributes.group, kind: attributes.resource, name: attributes.name };
    Status::forbidden(subject, message)
}

/// The parts of a server whose checks its list of paths shows.
fn health_parts(fairness: fairness::Settings, extensions: &extension::Settings) -> Vec<health::Part> {
    let of_requests = match fairness.is_shared {
        true => health::Part::FairShares,
        false => health::Part::Bounds,
    };
    let certificate = extensions.certificate.as_ref().map(|_| health::Part::Certificate);
    std::iter::once(of_requests).chain(certificate).collect()
}
