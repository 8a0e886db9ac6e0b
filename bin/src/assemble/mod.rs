//! The life of a serving process: from a checked configuration to a ready server, and from a signal to the
//! exit.
//!
//! ```text
//! listen ─► data directory ─► store ─► credentials ─► handler ─► custom types ─► serve ─► upgrade ─► bootstrap ─► controllers ─► ready
//! moved  ─► stop accepting ─► drain ─► controllers end ─► the rest is moved ─► close the store ─► start again, in the same process
//! signal ─► not ready ─► shutdown delay ─► refuse (if configured) ─► stop accepting ─► drain ─► controllers end ─► close the store, audit log and traces ─► exit 0
//! ```
//!
//! Every step of a shutdown has a deadline, so that no step that hangs delays the exit (ending.rs).
//!
//! The listener is opened first, so that a port in use leaves the data directory untouched; connections wait
//! in its backlog until serving begins. docs/api/operations.md#shutdown has the order of the shutdown.

pub mod credentials;
mod rotation;
mod tokens;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use api::state::debug::Debugging;
use api::state::policy::EngineAccounts;
use api::state::tokens::external::External;
use api::writes::context::{Context as Api, OwnService, Parts};
use auth::authn::NameDomains;
use engine::{Engine, Role};
use futures_util::future::join_all;
use objects::store::backends::Backends;
use replica::Replica;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use wire::metrics::Metrics;
use wire::outgoing::Egress;
use wire::server::{Drained, Lifecycle, LifecycleStage, Limits};
use wire::traces::export::{Collector, Connecting, Waiting};
use wire::traces::{Tracer, export};

use crate::assemble::credentials::{Credentials, PKI_DIR};
use crate::assemble::rotation::Followed;
use crate::audit;
use crate::config::authentication::{self, Bundles};
use crate::config::encryption::EncryptionConfig;
use crate::config::extension;
use crate::config::traces::TracingConfig;
use crate::config::{self, Config};
use crate::flags::{Direction, Durability};
use crate::host::debug_socket;
use crate::host::ending::Ending;
use crate::host::files;
use crate::host::log_files;
use crate::host::machine;
use crate::host::notify;
use crate::remote::signer;
use crate::store::copies::Copies;
use crate::store::identity;
use crate::store::losses;
use crate::store::relocation::{self, IntoEtcd, Place};
use crate::store::upgrade;

/// Maximum time that the exit waits for the last spans.
const TRACES_FLUSH_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Maximum time that the exit waits for a checkpoint, which makes the next start faster.
const CHECKPOINT_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// Maximum disk space that is reserved for deletes, for updates that continue a deletion (such as the removal of a
/// finalizer) and for leases: enough for ten of the largest objects, or for a hundred thousand deletes.
const RESERVE_BYTES: u64 = 16 << 20;

/// The action that follows the end of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// The process ends with its exit code.
    End,
    /// The server starts another run in the same process, because the store has moved.
    Again,
}

/// The socket that connections wait at, kept from one run to the next.
pub type Kept = Option<std::net::TcpListener>;

/// The parts of the process that outlive a run.
pub struct Process {
    /// The counters of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Log level and profiles.
    pub debugging: Debugging,
    /// Start of the process, for the log.
    pub started: Instant,
}

/// Serves until a signal ends the process, or the store has moved. `ending` listens for signals, and ends the
/// process if this function does not.
///
/// # Errors
/// An error of one line, if the start fails.
pub async fn run(
    config: Config,
    process: Process,
    ending: &Ending,
    kept: &mut Kept,
) -> anyhow::Result<After> {
    let Process { metrics, debugging, started } = process;
    let lifecycle = Lifecycle::new();
    let selection = config.controllers.clone();
    ending.attach(&lifecycle);
    machine::raise_open_files();
    let listener = match kept {
        Some(kept) => kept.try_clone().and_then(tokio::net::TcpListener::from_std),
        None => machine::listen(config.bind, config.shares_port)?.into_std().and_then(|listener| {
            *kept = Some(listener.try_clone()?);
            tokio::net::TcpListener::from_std(listener)
        }),
    };
    let listener = listener.context("cannot keep the listening socket")?;
    let address = listener.local_addr().context("cannot read the listening address")?;

    let mut serving_debug = JoinSet::new();
    if let Some(path) = &config.debug_socket {
        serving_debug.spawn(debug_socket::serve(path.clone(), debugging.clone()));
    }

    files::private_dir(&config.data_dir)?;
    let secrecy = config.encryption.as_ref().map(EncryptionConfig::enforce).transpose()?;
    let etcd = config.etcd.as_ref().map(|etcd| etcd.encrypted(secrecy.clone()));
    let config = Config { secrecy, etcd, ..config };
    let plan = relocation::plan(&config.data_dir, config.etcd.as_ref())?;
    let served_etcd = config.etcd.as_ref().filter(|_| plan.place == Place::Etcd);
    if plan.place == Place::Etcd {
        config::remember_profile(&config.data_dir, config.naming)?;
    }
    let copies = match served_etcd {
        None => Copies::default(),
        Some(etcd) => {
            let open = |dir: &Path| open_store(&config, dir, Role::Follower);
            let limits = (&config.ranges.ports, config.event_ttl);
            let opened = Copies::open(etcd, &config.data_dir, config.naming, limits, open);
            unless_stopped(&lifecycle, opened).await?
        }
    };
    let engine = match copies.main() {
        Some((engine, _)) => engine.clone(),
        None => {
            let log_dir = config.data_dir.join("log");
            upgrade::check_for_store(&config.data_dir, &log_dir)?;
            let engine = open_store(&config, &log_dir, Role::Leader)?;
            identity::settle(&engine, &config.data_dir, config.naming).await?;
            engine
        }
    };
    // Losses are reported only for the server's own log: a damaged copy of etcd is filled again.
    let mut reporting = JoinSet::new();
    if copies.main().is_none() {
        losses::report(&engine, &config.data_dir).await;
        reporting.spawn(losses::follow(engine.clone(), config.data_dir.clone()));
    }
    let mut engines = copies.engines_apart();
    engines.push(engine.clone());
    ending.attach_stores(engines.clone());
    let mut following_etcd = copies.follow();
    unless_stopped(&lifecycle, copies.caught_up()).await?;
    let credentials = Arc::new(Credentials::prepare(&config, address)?);
    let (tracer, exporting) =
        config.traces.as_ref().map(|(config, egress)| traced(config, egress, &lifecycle)).unzip();
    let (exporter, spans) = exporting.unzip();
    let external = match &config.authentication.tokens.endpoint {
        Some(path) => Some(unless_stopped(&lifecycle, signer::open(path, metrics.clone())).await?),
        None => None,
    };
    let (handler, bundles) = api_of(
        &config,
        &credentials,
        address,
        copies.backends(&engine),
        lifecycle.clone(),
        (metrics, debugging, tracer),
        external,
    )?;
    copies.serve(&handler.shared_types(), handler.metrics());
    let sink = handler.auditor().map(|auditor| auditor.sink.clone());
    ending.attach_outlets(sink.clone(), spans.clone());

    api::system::startup::load_types(&handler).context("cannot read the definitions of custom types")?;
    lifecycle.advance(LifecycleStage::TypesServed);
    let tls =
        wire::server::server_config(credentials.serving.clone(), &config.tls).map_err(|why| anyhow!(why))?;
    tls.name_authorities(&credentials.client_cas);
    let usual = Limits::default();
    let limits = Limits {
        drain_timeout: config.request_timeout.max(config.watch_grace),
        http2_streams_max: config.streams_max.unwrap_or(usual.http2_streams_max),
        ..usual
    };
    let serving = tokio::spawn(wire::server::serve(
        listener,
        tls.clone(),
        handler.clone(),
        limits,
        lifecycle.shutdown(),
    ));
    let following = tokio::spawn({
        let (config, credentials, api) = (config.clone(), credentials.clone(), handler.clone());
        async move {
            let followed = Followed { bundles: &bundles, tls: &tls, api: &api };
            rotation::follow(&config, &credentials, &followed).await;
        }
    });
    if copies.main().is_none() {
        // Objects read from etcd already have the defaults of this release.
        upgrade::bring_up(&config.data_dir, &handler).await?;
    }
    let prepared = prepared(&handler, &lifecycle).await;
    let outcome = prepared.context("cannot create the bootstrap objects")?;
    lifecycle.advance(LifecycleStage::Bootstrapped);
    tracing::debug!(?outcome, "bootstrap");
    // Once a client has seen the server ready, the next start must find the records of this start or report
    // their loss.
    let noting = engine.clone();
    let noted = tokio::task::spawn_blocking(move || noting.note_durable()).await;
    if let Err(refusal) = noted.context("the store cannot be synced")? {
        return Err(anyhow!("the store's log failed: {refusal}"));
    }
    let controllers = api::system::controllers::start(handler.clone(), &selection);
    lifecycle.advance(LifecycleStage::Serving);
    notify::ready();
    let kubeconfig = credentials.kubeconfig.display();
    tracing::info!(
        address = %format_args!("https://{address}"),
        data_dir = %config.data_dir.display(),
        version = config.version.git_version(),
        commit = crate::BUILD.commit,
        naming = config.naming.profile,
        durability = config.durability.as_str(),
        authorization_mode = %config.authorization,
        ready_ms = started.elapsed().as_millis() as u64,
        connect = format!("export KUBECONFIG={kubeconfig}"),
        "serving"
    );

    let mut tending = copies.tend();
    let (may_move, stop) = (Arc::new(Notify::new()), watch::Sender::new(false));
    let approaching = match plan.moves {
        None => None,
        Some(Direction::ToLog) => {
            may_move.notify_one();
            None
        }
        Some(Direction::ToEtcd) => {
            let (config, source, ready) = (config.clone(), engine.clone(), may_move.clone());
            let stopped = stop.subscribe();
            Some(tokio::spawn(async move { approach_etcd(&config, &source, &ready, stopped).await }))
        }
    };
    // A failed log takes no more writes: the process ends, and its next start recovers the store. The same
    // applies to a copy that cannot continue, which the next start fills again.
    let mut moves = false;
    let failed: Option<anyhow::Error> = tokio::select! {
        () = lifecycle.reached(LifecycleStage::Leaving) => None,
        () = may_move.notified() => {
            moves = true;
            None
        }
        refusal = engine.failed() => Some(anyhow!("the store's log failed: {refusal}")),
        broken = copies.broken() => Some(broken),
    };
    if !moves {
        notify::stopping();
        ending.begin();
    }
    let phases = ending.phases();
    if failed.is_none() && !moves {
        tracing::info!(delay_s = config.shutdown_delay.as_secs_f32(), "shutdown begins, no longer ready");
        tokio::time::sleep(config.shutdown_delay).await;
        if config.edge.refuses_when_leaving {
            lifecycle.advance(LifecycleStage::Refusing);
            let longest = Instant::now() + config.request_timeout.max(config.watch_grace);
            if until(longest.min(phases.drain.cut_at), lifecycle.idle()).await.is_none() {
                tracing::warn!("requests still in flight, closing the port");
            }
        }
    }
    // The checkpoint is written while the last requests finish.
    let preparing = (failed.is_none() && !moves)
        .then(|| tokio::spawn(async move { join_all(engines.iter().map(Engine::prepare_to_close)).await }));
    if !moves {
        // Close the copy of the socket that was kept for another run: while it is open, new connections wait
        // at it and are reset at the end.
        *kept = None;
    }
    lifecycle.limit_drain(phases.drain);
    lifecycle.advance(LifecycleStage::Draining);
    let drained = serving.await.context("the listener failed")?;
    following.abort();
    if until(phases.controllers, controllers.stop()).await.is_none() {
        tracing::warn!("controllers did not stop in time, the shutdown goes on without them");
    }
    if moves {
        stop.send_replace(true);
        let moved = match (approaching, copies.main()) {
            (Some(approaching), _) => end_at_etcd(approaching, &engine).await,
            (None, Some((engine, replica))) => end_at_log(&config, engine, replica).await,
            (None, None) => Ok(()),
        };
        if let Err(error) = moved {
            tracing::error!(
                error = format!("{error:#}"),
                "live migration failed: the store is still served from its old location"
            );
            tokio::time::sleep(MOVE_PAUSE).await;
        }
    }
    reporting.abort_all();
    following_etcd.abort_all();
    tending.abort_all();
    // The steps run concurrently, so that one that hangs takes no time from the others.
    lifecycle.advance(LifecycleStage::Stopped);
    let closing_store = until(phases.last, async {
        if let Some(preparing) = preparing {
            let _ = tokio::time::timeout(CHECKPOINT_MAX, preparing).await;
        }
        engine.close().await;
        copies.close().await;
    });
    let closing_audit = async {
        let Some(sink) = sink else { return Ok(0) };
        tokio::task::spawn_blocking(move || sink.close(phases.last)).await
    };
    let flushing_spans = async {
        let Some(exporter) = exporter else { return 0 };
        // Unsent spans delay the exit only for a short time.
        let longest = Instant::now() + TRACES_FLUSH_MAX;
        match until(longest.min(phases.last), exporter).await {
            Some(_) => 0,
            None => spans.map_or(0, |spans| spans.count()),
        }
    };
    let (closed, audit_events_lost, spans_lost) = tokio::join!(closing_store, closing_audit, flushing_spans);
    let audit_events_lost = audit_events_lost.context("the audit log failed")?;
    if closed.is_none() {
        tracing::error!("the store did not close in time, the next start recovers it");
    } else if moves && relocation::recorded(&config.data_dir)? == Some(Place::Etcd) {
        relocation::put_log_aside(&config.data_dir)?;
    }
    let Drained { connections_cut, requests_cut } = drained;
    match moves {
        true => tracing::info!(connections_cut, requests_cut, "serving the store again"),
        false => {
            tracing::info!(connections_cut, requests_cut, audit_events_lost, spans_lost, "stopped");
        }
    }
    // The socket file must be removed before the process ends.
    until(phases.last, serving_debug.shutdown()).await;
    let after = if moves { After::Again } else { After::End };
    failed.map_or(Ok(after), Err)
}

/// Returns the outcome of `work`, or `None` if it has not finished at `limit`.
async fn until<T>(limit: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(limit.into(), work).await.ok()
}

/// How long the start retries if etcd does not answer, and the pause between attempts.
const PREPARE_WAIT: (std::time::Duration, std::time::Duration) =
    (std::time::Duration::from_secs(60), std::time::Duration::from_secs(1));

/// Creates the bootstrap objects. If etcd decides writes and does not answer, the whole function retries for
/// a while. Each step leaves correct objects unchanged, so the outcome of the first attempt does not matter.
async fn prepared(
    api: &Api,
    lifecycle: &Lifecycle,
) -> Result<api::writes::bootstrap::Outcome, values::status::Status> {
    let until = Instant::now() + PREPARE_WAIT.0;
    loop {
        let error = match api::system::startup::prepare(api).await {
            Err(error) if api.ledger().is_some() && error.code.is_server_error() => error,
            outcome => return outcome,
        };
        if Instant::now() >= until {
            return Err(error);
        }
        tracing::warn!(%error, "bootstrap objects not written yet, trying again");
        tokio::select! {
            () = tokio::time::sleep(PREPARE_WAIT.1) => {}
            () = lifecycle.reached(LifecycleStage::Leaving) => return Err(error),
        }
    }
}

/// Pause before the store is served again from its old location, after a failed move.
const MOVE_PAUSE: std::time::Duration = std::time::Duration::from_secs(1);

/// Begins a move into etcd.
async fn into_etcd(config: &Config, source: &Engine) -> anyhow::Result<IntoEtcd> {
    let etcd = config.etcd.as_ref().context("no etcd is named")?;
    relocation::must_be_whole(source, &config.data_dir)?;
    let open = |dir: &Path| open_store(config, dir, Role::Follower);
    let ports = (&config.ranges.ports, config.event_ttl);
    IntoEtcd::begin(etcd, &config.data_dir, config.naming, ports, source.revision(), open).await
}

/// Moves a store into etcd while it is served. Notifies `ready` when the source may stop, and returns once
/// `stopped` is set. Starts again after each failure, which loses nothing.
async fn approach_etcd(
    config: &Config,
    source: &Engine,
    ready: &Notify,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<IntoEtcd> {
    loop {
        let error = match into_etcd(config, source).await {
            Ok(into) => match into.approach(source, ready, stopped.clone()).await {
                Ok(()) => return Ok(into),
                Err(error) => error.into(),
            },
            Err(error) => error,
        };
        if *stopped.borrow() {
            return Err(error);
        }
        tracing::error!(error = format!("{error:#}"), "live migration to etcd failed, starting again");
        tokio::time::sleep(relocation::PAUSE).await;
    }
}

/// Finishes a move into etcd, once nothing writes to the log any more.
async fn end_at_etcd(
    approaching: tokio::task::JoinHandle<anyhow::Result<IntoEtcd>>,
    source: &Engine,
) -> anyhow::Result<()> {
    let into = approaching.await.context("the move failed")??;
    into.finish(source).await.map(drop)
}

/// Finishes a move out of etcd, once the server has stopped serving.
async fn end_at_log(config: &Config, engine: &Engine, replica: &Replica) -> anyhow::Result<()> {
    let open = |dir: &Path| open_store(config, dir, Role::Leader);
    relocation::out_of_etcd(&config.data_dir, engine, replica, open).await.map(drop)
}

/// Returns the tracer, the task that sends the spans until the server has stopped, and the counter of unsent spans.
fn traced(
    config: &TracingConfig,
    egress: &Egress,
    lifecycle: &Lifecycle,
) -> (Tracer, (tokio::task::JoinHandle<()>, Waiting)) {
    let (queue, spans) = tokio::sync::mpsc::channel(export::QUEUED_MAX);
    let waiting = Waiting::new(&queue);
    let lifecycle = lifecycle.clone();
    let stopped = async move { lifecycle.reached(LifecycleStage::Stopped).await };
    let (endpoint, egress) = (config.endpoint.clone(), egress.clone());
    let target = endpoint.clone();
    let connect = move || -> Connecting {
        let (target, egress) = (target.clone(), egress.clone());
        Box::pin(async move {
            let (host, port) = target.rsplit_once(':').unwrap_or((&target, ""));
            let port = port.parse().map_err(|_| format!("{target} has no port"))?;
            let stream = egress.connect(host.trim_matches(['[', ']']), port).await;
            stream.map_err(|failure| failure.to_string())
        })
    };
    let collector = Collector { endpoint, connect: Arc::new(connect) };
    let exporter =
        tokio::spawn(export::run(collector, "apiserver".to_owned(), spans, waiting.clone(), stopped));
    (Tracer::new(config.per_million, queue), (exporter, waiting))
}

/// Runs a step of the start that may take long, and fails if a signal arrives first.
async fn unless_stopped<T>(
    lifecycle: &Lifecycle,
    step: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        outcome = step => outcome,
        () = lifecycle.reached(LifecycleStage::Leaving) => Err(anyhow!("stopped while waiting for another server")),
    }
}

/// Opens a store in a directory as the leader or a follower.
fn open_store(config: &Config, dir: &Path, role: Role) -> anyhow::Result<Engine> {
    let durability = match (role, config.durability) {
        // Records of a copy that a crash of the machine loses are read from etcd again.
        (Role::Follower, _) => engine::Durability::Replicated,
        (Role::Leader, Durability::Sync) => engine::Durability::Sync,
        (Role::Leader, Durability::Relaxed) => engine::Durability::Relaxed,
    };
    Ok(Engine::open(engine::Options {
        durability,
        history_retention: config.history_retention,
        bloom_scheme: types::bloom::SCHEME,
        role,
        seal: config.secrecy.clone().map(|secrecy| secrecy as Arc<dyn engine::Seal>),
        // A full local disk does not change which writes etcd accepts.
        reserve_bytes: if role == Role::Leader { RESERVE_BYTES } else { 0 },
        ..engine::Options::new(dir)
    })?)
}

/// Builds the request handler, and the credentials that are reloaded while the server runs.
fn api_of(
    config: &Config,
    credentials: &Credentials,
    address: SocketAddr,
    backends: Backends,
    lifecycle: Lifecycle,
    (metrics, debugging, tracer): (Arc<Metrics>, Debugging, Option<Tracer>),
    external: Option<External>,
) -> anyhow::Result<(Arc<Api>, Bundles)> {
    let engine = backends.main().engine();
    let domains = NameDomains::new(config.naming.domain);
    let accounts = Arc::new(EngineAccounts::new(engine.clone(), config.naming));
    let (account_tokens, tokens) = tokens::prepare(config, accounts.clone(), address, &domains, external)?;
    let client_cas = &credentials.client_cas;
    let (authenticator, bundles) = authentication::chain(
        &config.authentication,
        client_cas,
        config.naming,
        accounts,
        account_tokens,
        &tokens.signer,
    )?;
    let limits = api::writes::context::Limits {
        request_timeout: config.request_timeout,
        min_request_timeout: config.min_request_timeout,
        livez_grace_period: config.livez_grace_period,
        event_ttl: config.event_ttl,
        watch_grace: config.watch_grace,
    };
    let root_ca = credentials.root_ca.clone();
    let mut extensions = config.extensions.settings.clone();
    extension::tell_own_authority(&mut extensions, &credentials.client_cas);
    let nodes = config.authorization.nodes(engine.clone());
    for warning in &config.features.warnings {
        tracing::warn!("{warning}");
    }
    let parts = Parts {
        naming: config.naming,
        allows_privileged: config.allow_privileged,
        backends,
        authenticator,
        lifecycle,
        limits,
        address,
        root_ca,
        tokens,
        certificates: config.signing.settings(&config.data_dir.join(PKI_DIR)),
        ranges: config.ranges.clone(),
        features: config.features.clone(),
        enablement: config.enablement.clone(),
        fairness: config.fairness,
        edge: config.edge.clone(),
        flags: config.flags.clone(),
        log_files: config.serves_log_files.then(|| Arc::new(log_files::Directory::default()) as _),
        debugging,
        tracer,
        extensions,
        peers: config.peers.settings(
            address,
            config.advertise_address,
            config.extensions.settings.certificate.clone(),
            config.naming,
            &config.extensions.settings.networks,
        ),
        nodes: config.nodes.nodes.clone(),
        secrecy: config.secrecy.clone(),
        version: config.version.clone(),
        host_name: machine::node_name(),
        own_service: OwnService {
            advertised: machine::advertised_address(address, config.advertise_address),
            port: address.port(),
            ..config.own_service
        },
        collects_garbage: config.collects_garbage,
        admission: config.admission.clone(),
        auditor: config.audit.as_ref().map(|config| audit::auditor(config, &metrics)).transpose()?.flatten(),
        metrics,
    };
    let api = Api::assemble(parts, config.authorization.modules(&nodes))?;
    let follow = config.authorization.clone().follow(nodes, api.shared_authorizer(), api.metrics().clone());
    tokio::spawn(follow);
    Ok((api, bundles))
}
