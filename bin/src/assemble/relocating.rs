//! The live migration of a run. A migration begins while the store is served, and ends after the server has stopped
//! serving.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::{Engine, Role};
use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::assemble::opened::{OpenStore, StoreOpener};
use crate::store::location::{Direction, StoreLocation, recorded};
use crate::store::relocation::{self, IntoEtcd};

/// Pause between a failed migration and the next run, which serves the store from its old location again.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The live migration of a run, if the flags ask for one.
pub struct Migration {
    /// Notified when the server may stop serving the old location.
    may_move: Arc<Notify>,
    /// Set to true when the server has stopped.
    stop: watch::Sender<bool>,
    /// The task that copies objects to etcd while they are served.
    approaching: Option<JoinHandle<anyhow::Result<IntoEtcd>>>,
}

impl Migration {
    /// Begins the migration that the plan of the store requires, if any.
    pub fn begin(store: &OpenStore) -> Migration {
        let (may_move, stop) = (Arc::new(Notify::new()), watch::Sender::new(false));
        let approaching = match store.plan.moves {
            None => None,
            Some(Direction::ToLog) => {
                may_move.notify_one();
                None
            }
            Some(Direction::ToEtcd) => {
                let (opener, source, ready) = (store.opener.clone(), store.engine.clone(), may_move.clone());
                let stopped = stop.subscribe();
                Some(tokio::spawn(
                    async move { approach_etcd(&opener, &source, &ready, stopped).await }.boxed(),
                ))
            }
        };
        Migration { may_move, stop, approaching }
    }

    /// Waits until the server may stop serving the old location. If there is no migration, this function
    /// never returns.
    pub async fn may_move(&self) {
        self.may_move.notified().await;
    }

    /// Finishes the migration after the server has stopped. If this fails, the store stays at its old location.
    pub async fn finish(self, store: &OpenStore) {
        self.stop.send_replace(true);
        let moved = match (self.approaching, store.copies.main()) {
            (Some(approaching), _) => end_at_etcd(approaching, &store.engine).await,
            (None, Some((engine, replica))) => {
                let open = |dir: &Path| store.opener.open(dir, Role::Leader);
                relocation::out_of_etcd(store.opener.data_dir(), engine, replica, open).await.map(drop)
            }
            (None, None) => Ok(()),
        };
        if let Err(error) = moved {
            tracing::error!(
                error = format!("{error:#}"),
                "live migration failed: the store is still served from its old location"
            );
            tokio::time::sleep(FAILED_PAUSE).await;
        }
    }
}

/// Renames the log of a data directory if the store was moved to etcd. The log must be closed.
///
/// # Errors
/// The record of the location cannot be read, or the log cannot be renamed.
pub fn put_moved_log_aside(data_dir: &Path) -> anyhow::Result<()> {
    if recorded(data_dir)? == Some(StoreLocation::Etcd) {
        relocation::put_log_aside(data_dir)?;
    }
    Ok(())
}

/// Begins a migration into etcd.
async fn into_etcd(opener: &StoreOpener, source: &Engine) -> anyhow::Result<IntoEtcd> {
    let etcd = opener.etcd.as_ref().context("no etcd is configured")?;
    relocation::must_be_whole(source, opener.data_dir())?;
    let open = |dir: &Path| opener.open(dir, Role::Follower);
    IntoEtcd::begin(etcd, opener.data_dir(), opener.limits, source.revision(), open).await
}

/// Copies a store to etcd while the store is served. Notifies `ready` when the server may stop serving the
/// source, and returns once `stopped` is true. If a copy fails, a new copy starts, so that no change is lost.
async fn approach_etcd(
    opener: &StoreOpener,
    source: &Engine,
    ready: &Notify,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<IntoEtcd> {
    loop {
        let error = match into_etcd(opener, source).await {
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

/// Finishes a migration into etcd. The caller must have stopped all writes to the log.
async fn end_at_etcd(
    approaching: JoinHandle<anyhow::Result<IntoEtcd>>,
    source: &Engine,
) -> anyhow::Result<()> {
    let into = approaching.await.context("the move failed")??;
    into.finish(source).await.map(drop)
}
