//! The fourth phase of a run: requests are served, until a signal, a failure of the store, or a migration.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use api::system::controllers::{self, Controllers};
use api::writes::bootstrap::ReconcileCounts;
use api::writes::server::Server as Api;
use engine::Engine;
use futures_util::FutureExt;
use tokio::task::{JoinHandle, JoinSet};
use values::status::Status;
use wire::server::{Drained as Connections, Lifecycle, LifecycleStage, Limits};

use crate::assemble::Run;
use crate::assemble::credentials::Credentials;
use crate::assemble::opened::OpenStore;
use crate::assemble::prepared::{OutputSinks, Prepared};
use crate::assemble::relocating::Migration;
use crate::assemble::rotation::{self, Followed};
use crate::config::Config;
use crate::host::notify;
use crate::host::welcome::Welcome;
use crate::store::upgrade;

/// Maximum time of the retries if etcd does not respond during the start, and the pause between two attempts.
const BOOTSTRAP_WAIT: Duration = Duration::from_secs(60);
const BOOTSTRAP_PAUSE: Duration = Duration::from_secs(1);

/// A run that is ready.
pub struct Serving<'p> {
    pub(super) run: Run<'p>,
    pub(super) store: OpenStore,
    pub(super) outlets: OutputSinks,
    /// The task that serves connections.
    pub(super) connections: JoinHandle<Connections>,
    /// The task that reloads credentials.
    pub(super) rotation: JoinHandle<()>,
    pub(super) controllers: Controllers,
    /// The tasks that compact the etcd clusters and check their health.
    pub(super) tending: JoinSet<()>,
    pub(super) migration: Migration,
}

/// Reason why a run ends.
pub enum Reason {
    /// A signal asked the process to stop.
    Signal,
    /// The store moves. The process then serves the store from its new location.
    Moves,
    /// The store failed.
    Failed(anyhow::Error),
}

/// A run that must end, but still serves requests.
pub struct Leaving<'p> {
    pub(super) serving: Serving<'p>,
    pub(super) reason: Reason,
}

impl<'p> Prepared<'p> {
    /// Serves requests, creates the bootstrap objects, starts the controllers, and reports that the server is ready.
    ///
    /// # Errors
    /// The certificate cannot be served, or the store cannot be read or written.
    pub async fn serve(self) -> anyhow::Result<Serving<'p>> {
        let Prepared { run, port, store, credentials, handler, bundles, outlets } = self;
        let config = &run.config;
        let tls = wire::server::server_config(credentials.serving.clone(), &config.tls.offered);
        let tls = tls.map_err(|why| anyhow!(why))?;
        tls.name_authorities(&credentials.client_cas);
        let connections = wire::server::serve(
            port.listener,
            tls.clone(),
            handler.clone(),
            limits(config),
            run.lifecycle.shutdown(),
        );
        let connections = tokio::spawn(connections.boxed());
        let rotation = {
            let (config, credentials, api) = (config.clone(), credentials.clone(), handler.clone());
            async move {
                let followed = Followed { bundles: &bundles, tls: &tls, api: &api };
                rotation::follow(&config, &credentials, &followed).await;
            }
        };
        let rotation = tokio::spawn(rotation.boxed());
        if store.is_own_log() {
            // Objects read from etcd already have the defaults of this release.
            upgrade::bring_up(&config.store.data_dir, &handler).await?;
        }
        let outcome = bootstrap(&handler, &run.lifecycle).await;
        let outcome = outcome.context("cannot create the bootstrap objects")?;
        run.lifecycle.advance(LifecycleStage::Bootstrapped);
        tracing::debug!(?outcome, "bootstrap");
        note_durable(&store.engine).await?;
        let controllers = controllers::start(handler, &config.controllers.selection);
        run.lifecycle.advance(LifecycleStage::Serving);
        notify::ready();
        report(&run, &credentials);
        let (tending, migration) = (store.copies.tend(), Migration::begin(&store));
        Ok(Serving { run, store, outlets, connections, rotation, controllers, tending, migration })
    }
}

impl<'p> Serving<'p> {
    /// Serves until the run must end.
    pub async fn until_end(self) -> Leaving<'p> {
        // A failed log accepts no more writes, so the process ends, and the next start recovers the store. The process
        // also ends if a copy of etcd cannot continue; the next start fills the copy again.
        let reason = tokio::select! {
            () = self.run.lifecycle.reached(LifecycleStage::Leaving) => Reason::Signal,
            () = self.migration.may_move() => Reason::Moves,
            refusal = self.store.engine.failed() => {
                Reason::Failed(anyhow!("the store's log failed: {refusal}"))
            }
            broken = self.store.copies.broken() => Reason::Failed(broken),
            never = notify::keep_alive() => match never {},
        };
        Leaving { serving: self, reason }
    }
}

/// Divisor of the shutdown deadline: a twentieth of the deadline is for clients without a request in flight, and the
/// remaining time is for requests.
const CLIENT_WAIT_SHARE: u32 = 20;

/// Returns the limits of connections.
fn limits(config: &Config) -> Limits {
    let usual = Limits::default();
    let wait_max = config.requests.shutdown.deadline / CLIENT_WAIT_SHARE;
    Limits {
        linger_timeout: usual.linger_timeout.min(wait_max),
        drain_idle_grace: usual.drain_idle_grace.min(wait_max),
        drain_idle_max: usual.drain_idle_max.min(wait_max),
        drain_timeout: config.requests.drain_timeout(),
        http2_streams_max: config.tls.streams_max.unwrap_or(usual.http2_streams_max),
        ..usual
    }
}

/// Creates the bootstrap objects. If the objects are stored in etcd and etcd does not respond, this function
/// tries again for a limited time. A new attempt can start from the beginning, because each step leaves
/// correct objects unchanged.
async fn bootstrap(api: &Api, lifecycle: &Lifecycle) -> Result<ReconcileCounts, Status> {
    let until = Instant::now() + BOOTSTRAP_WAIT;
    loop {
        let error = match api::system::startup::prepare(api).await {
            Err(error) if api.store.ledger().is_some() && error.code.is_server_error() => error,
            outcome => return outcome,
        };
        if Instant::now() >= until {
            return Err(error);
        }
        tracing::warn!(%error, "bootstrap objects not written yet, trying again");
        tokio::select! {
            () = tokio::time::sleep(BOOTSTRAP_PAUSE) => {}
            () = lifecycle.reached(LifecycleStage::Leaving) => return Err(error),
        }
    }
}

/// Syncs the records that this start has written. The caller waits for the sync before it reports that the
/// server is ready, so that the next start finds these records or reports their loss.
async fn note_durable(engine: &Engine) -> anyhow::Result<()> {
    let noting = engine.clone();
    let noted = tokio::task::spawn_blocking(move || noting.note_durable()).await;
    noted
        .context("the store cannot be synced")?
        .map_err(|refusal| anyhow!("the store's log failed: {refusal}"))
}

/// Reports that the server is ready: a text for people if this is the first start in a terminal, otherwise a
/// log line.
fn report(run: &Run<'_>, credentials: &Arc<Credentials>) {
    let config = &run.config;
    if config.welcomes {
        let welcome = Welcome {
            url: &format!("https://{}", credentials.address()),
            data_dir: &config.store.data_dir,
            kubeconfig: &credentials.kubeconfig,
            profile: config.store.naming.profile,
            version: config.version.git_version(),
        };
        return welcome.print();
    }
    let kubeconfig = credentials.kubeconfig.display();
    tracing::info!(
        address = %format_args!("https://{}", credentials.address()),
        data_dir = %config.store.data_dir.display(),
        version = config.version.git_version(),
        commit = crate::BUILD.commit,
        naming = config.store.naming.profile,
        durability = config.store.durability.as_str(),
        authorization_mode = %config.authorization,
        ready_ms = run.process.started.elapsed().as_millis() as u64,
        connect = format!("export KUBECONFIG={kubeconfig}"),
        "serving"
    );
}
