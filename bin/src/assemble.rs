//! The life of a serving process: from a checked configuration to a ready server, and from a signal to the exit.
//!
//! ```text
//! listen ─► data directory ─► store ─► credentials ─► handler ─► custom types ─► serve ─► upgrade ─► bootstrap ─► controllers ─► ready
//! signal ─► not ready ─► shutdown delay ─► stop accepting ─► drain ─► controllers end ─► close the store ─► exit 0
//! ```
//!
//! The listener is opened first, so that a port in use leaves the data directory untouched; connections wait in its
//! backlog until serving begins. The order of shutdown: docs/api/operations.md#shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow};
use api::context::{Context as Api, OwnService, Parts};
use api::metrics::Metrics;
use api::policy::EngineAccounts;
use api::server::{Lifecycle, Limits, Stage};
use auth::authn::NameDomains;
use engine::Engine;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::authentication::{self, Bundles};
use crate::config::{self, Config};
use crate::credentials::Credentials;
use crate::flags::Durability;
use crate::{audit, files, host, logging, tokens, upgrade};

/// Serves until a signal ends it. `started` is the start of the process, for the log.
///
/// # Errors
/// One that fits one line, when the start fails.
pub async fn run(config: Config, metrics: Arc<Metrics>, started: Instant) -> anyhow::Result<()> {
    let lifecycle = Lifecycle::new();
    let selection = config.controllers.clone();
    listen_to_signals(&lifecycle)?;
    host::raise_open_files();
    let listener = host::listen(config.bind)?;
    let address = listener.local_addr().context("cannot read the listening address")?;

    files::private_dir(&config.data_dir)?;
    config::remember_profile(&config.data_dir, config.naming)?;
    let engine = open_store(&config)?;
    let credentials = Arc::new(Credentials::prepare(&config, address)?);
    let (handler, bundles) =
        api_of(&config, &credentials, address, engine.clone(), lifecycle.clone(), metrics)?;
    let handler = Arc::new(handler);

    api::startup::load_types(&handler).context("cannot read the definitions of custom types")?;
    lifecycle.advance(Stage::TypesServed);
    let tls = api::server::server_config(credentials.serving.clone(), config.serves_http2);
    let limits =
        Limits { drain_timeout: config.request_timeout.max(config.watch_grace), ..Limits::default() };
    let serving =
        tokio::spawn(api::server::serve(listener, tls, handler.clone(), limits, lifecycle.shutdown()));
    let following = tokio::spawn({
        let credentials = credentials.clone();
        async move { credentials.follow(&bundles).await }
    });
    upgrade::bring_up(&config.data_dir, &handler).await?;
    let outcome = api::startup::prepare(&handler).await.context("cannot create the bootstrap objects")?;
    lifecycle.advance(Stage::Bootstrapped);
    tracing::debug!(?outcome, "bootstrap");
    let controllers = api::controllers::start(handler.clone(), &selection);
    lifecycle.advance(Stage::Serving);
    let kubeconfig = credentials.kubeconfig.display();
    tracing::info!(
        address = %format_args!("https://{address}"),
        data_dir = %config.data_dir.display(),
        naming = config.naming.profile,
        durability = config.durability.as_str(),
        authorization_mode = %config.authorization,
        ready_ms = started.elapsed().as_millis() as u64,
        connect = format!("export KUBECONFIG={kubeconfig}"),
        "serving"
    );

    // A failed log takes no more writes: the process ends, and its next start recovers the store.
    let log_failed = tokio::select! {
        () = lifecycle.reached(Stage::Leaving) => None,
        refusal = engine.failed() => Some(refusal),
    };
    if log_failed.is_none() {
        tracing::info!(delay_s = config.shutdown_delay.as_secs_f32(), "shutdown begins, no longer ready");
        tokio::time::sleep(config.shutdown_delay).await;
    }
    lifecycle.advance(Stage::Draining);
    let drained = serving.await.context("the listener failed")?;
    following.abort();
    controllers.stop().await;
    engine.close().await;
    if let Some(sink) = handler.auditor().map(|auditor| auditor.sink.clone()) {
        tokio::task::spawn_blocking(move || sink.close()).await.context("the audit log failed")?;
    }
    lifecycle.advance(Stage::Stopped);
    tracing::info!(connections_cut = drained.connections_cut, "stopped");
    log_failed.map_or(Ok(()), |refusal| Err(anyhow!("the store's log failed: {refusal}")))
}

/// Opens the store in the data directory.
fn open_store(config: &Config) -> anyhow::Result<Engine> {
    let durability = match config.durability {
        Durability::Sync => engine::Durability::Sync,
        Durability::Relaxed => engine::Durability::Relaxed,
    };
    Ok(Engine::open(engine::Options {
        durability,
        history_retention: config.history_retention,
        bloom_scheme: api::bloom::SCHEME,
        ..engine::Options::new(config.data_dir.join("log"))
    })?)
}

/// Builds the request handler.
fn api_of(
    config: &Config,
    credentials: &Credentials,
    address: SocketAddr,
    engine: Engine,
    lifecycle: Lifecycle,
    metrics: Arc<Metrics>,
) -> anyhow::Result<(Api, Bundles)> {
    let domains = NameDomains::new(config.naming.domain);
    let accounts = Arc::new(EngineAccounts::new(engine.clone(), config.naming));
    let (account_tokens, tokens) = tokens::prepare(config, accounts.clone(), address, &domains)?;
    let client_cas = &credentials.client_cas;
    let (authenticator, bundles) =
        authentication::chain(&config.authentication, client_cas, config.naming, accounts, account_tokens)?;
    let limits = api::context::Limits {
        request_timeout: config.request_timeout,
        min_request_timeout: config.min_request_timeout,
        livez_grace_period: config.livez_grace_period,
        event_ttl: config.event_ttl,
        watch_grace: config.watch_grace,
    };
    let root_ca = credentials.root_ca.clone();
    let nodes = config.authorization.nodes(engine.clone());
    for warning in &config.features.warnings {
        tracing::warn!("{warning}");
    }
    let parts = Parts {
        naming: config.naming,
        engine,
        authenticator,
        lifecycle,
        limits,
        address,
        root_ca,
        tokens,
        ranges: config.ranges.clone(),
        features: config.features.clone(),
        enablement: config.enablement.clone(),
        fairness: config.fairness,
        extensions: config.extensions.clone(),
        nodes: config.nodes.clone(),
        own_service: OwnService {
            advertised: host::advertised_address(address, config.advertise_address),
            port: address.port(),
            ..config.own_service
        },
        collects_garbage: config.collects_garbage,
        admission: config.admission.clone(),
        auditor: config.audit.as_ref().map(audit::auditor).transpose()?,
        metrics,
    };
    let api = Api::assemble(parts, config.authorization.modules(&nodes))?;
    let follow = config.authorization.clone().follow(nodes, api.shared_authorizer());
    tokio::spawn(follow);
    Ok((api, bundles))
}

/// The first signal begins the shutdown, the second one ends the process at once. A hangup counts: the terminal that
/// the server was started in is gone.
fn listen_to_signals(lifecycle: &Lifecycle) -> anyhow::Result<()> {
    let open = |kind| signal(kind).context("cannot listen to signals");
    let mut signals =
        [open(SignalKind::terminate())?, open(SignalKind::interrupt())?, open(SignalKind::hangup())?];
    let lifecycle = lifecycle.clone();
    tokio::spawn(async move {
        any(&mut signals).await;
        lifecycle.advance(Stage::Leaving);
        any(&mut signals).await;
        tracing::warn!("second signal, exiting without waiting");
        logging::flush();
        #[expect(clippy::disallowed_methods, reason = "the only exit that must not run destructors")]
        std::process::exit(1);
    });
    Ok(())
}

async fn any([terminate, interrupt, hangup]: &mut [Signal; 3]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
}
