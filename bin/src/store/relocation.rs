//! Moves of a store between the server's own log and etcd: the steps in each direction (docs/api/etcd.md#moving).
//!
//! ```text
//! to etcd   log ─ level, follow ─► etcd │ the log has stopped ─► the rest ─► compare ─► storage: etcd ─► no mark
//! to log    etcd ─ follow ─► copy       │ mark: left          ─► the rest ─► compare ─► copy becomes log ─► storage: log
//! ```
//!
//! The steps to the left of the bar run while the store is served, and may be repeated. After a crash at any
//! time, the directory is served from its old location or from its new location, and this location is
//! complete.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use engine::{Change, Engine, Expected, LossCounts, Revision, Write};
use futures_util::FutureExt;
use replica::Replica;
use replica::digests::Digests;
use replica::migration::{Levelled, MoveError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::host::files;
use crate::store::etcd::{self, COPY_DIR, CopyLimits, EtcdSettings, ROOM};
use crate::store::location::{StoreLocation, log_dir, record, store_id};

/// Name of the directory of the log after the store was moved to etcd.
const MOVED_DIR: &str = "log.moved";

/// Maximum distance between the revision of the source and the revisions in etcd. When this maximum is
/// reached, the objects are written even if the distance may be too small, because a source that writes as
/// fast as etcd would use up any distance.
const ROOM_MAX: u64 = 64 * ROOM;

/// Pause after a failed move, before the next attempt.
pub const PAUSE: Duration = Duration::from_secs(5);

/// Refuses to move a store with losses that the operator has not accepted. etcd does not record losses, so in etcd a
/// lost object would count as deleted.
///
/// # Errors
/// The store has such losses.
pub fn must_be_whole(source: &Engine, data_dir: &Path) -> anyhow::Result<()> {
    let LossCounts { lost, damaged } = source.losses().unaccepted_counts();
    if lost == 0 && damaged == 0 {
        return Ok(());
    }
    bail!(
        "{}: {lost} lost revisions and {damaged} unreadable records cannot be moved: restore the store from a backup, or \
         accept the loss with accept-loss",
        data_dir.display()
    )
}

/// A move into etcd that has begun.
pub struct IntoEtcd {
    engine: Engine,
    replica: Arc<Replica>,
    following: JoinHandle<()>,
    data_dir: std::path::PathBuf,
}

impl Drop for IntoEtcd {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl IntoEtcd {
    /// Marks the etcd for a move of the store in `data_dir`. `source` is the revision of this store. `open`
    /// opens a local copy.
    ///
    /// # Errors
    /// Another store uses the etcd, or it cannot be reached.
    pub async fn begin(
        settings: &EtcdSettings,
        data_dir: &Path,
        limits: CopyLimits,
        source: Revision,
        open: impl Fn(&Path) -> anyhow::Result<Engine>,
    ) -> anyhow::Result<IntoEtcd> {
        let opened = settings.open(data_dir, limits, Some(source), open).await;
        let (engine, replica) = opened?;
        let following = tokio::spawn(replica.clone().follow().boxed());
        Ok(IntoEtcd { engine, replica, following, data_dir: data_dir.to_owned() })
    }

    /// Returns the newest revision of etcd in the copy.
    pub fn revision(&self) -> Revision {
        self.engine.revision()
    }

    /// Writes all objects of the store `source` to etcd. The store must not change.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn fill(&self, source: &Engine, progress: impl FnMut(u64)) -> Result<Levelled, MoveError> {
        self.replica.catch_up().await?;
        self.replica.level(&source.snapshot(), source.revision(), progress).await
    }

    /// Writes all objects, then all changes, to etcd, until the source has stopped.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn approach(
        &self,
        source: &Engine,
        ready: &Notify,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), MoveError> {
        let mut room = ROOM;
        loop {
            let floor = source.revision();
            let base = self.replica.raise(floor, room).await?;
            // The distance shrinks, because the source continues to write while the revision of etcd is
            // raised and all objects are written.
            if source.revision().get() + ROOM / 2 > base.get() && room < ROOM_MAX {
                room *= 2;
                continue;
            }
            self.replica.catch_up().await?;
            let snapshot = source.snapshot();
            let tail = source.tail(snapshot.revision(), bytes::Bytes::new())?;
            let levelled = self.replica.level(&snapshot, floor, |_| {}).await?;
            drop(snapshot);
            tracing::info!(?levelled, source = source.revision().get(), "etcd has caught up with the log");
            if source.revision() >= base {
                // The source has reached revisions of objects in etcd, and clients of the source may know these
                // revisions. So write all objects again, at higher revisions.
                room = 2 * (room + source.revision().since(floor));
                continue;
            }
            match self.replica.keep_up(source, tail, floor, ready, stopped.clone()).await {
                Ok(_) => return Ok(()),
                Err(MoveError::Tail(why)) => {
                    tracing::warn!(%why, "the log dropped history that the move had not copied, copying again")
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the remaining changes of a source that has stopped, compares both stores, and records that the
    /// objects are in etcd.
    ///
    /// # Errors
    /// A step failed. The directory is still served from its log.
    pub async fn finish(self, source: &Engine) -> anyhow::Result<Digests> {
        let snapshot = source.snapshot();
        let newest = snapshot.revision();
        self.replica.raise(newest, 1).await?;
        self.replica.catch_up().await?;
        // Write changes at revisions above all revisions that clients of the source may know.
        let levelled = self.replica.level(&snapshot, newest, |_| {}).await?;
        self.replica.catch_up().await?;
        let digests = self.replica.compare(&snapshot, &self.engine.snapshot())?;
        drop(snapshot);
        record(&self.data_dir, StoreLocation::Etcd)?;
        // If the process crashes before this point, the next start serves the log. If it crashes after this
        // point, the next start serves the objects from etcd, and removes the mark.
        self.replica.conclude().await?;
        self.replica.catch_up().await?;
        // Compact the copy, so that clients with a revision of the source must list again. Keep the newest change,
        // because the next start uses it to check whether the copy fits etcd.
        self.engine.compact(self.engine.revision().before()).await?;
        tracing::info!(
            ?levelled,
            source = newest.get(),
            revision = self.engine.revision().get(),
            objects = digests.values().map(|digest| digest.objects).sum::<u64>(),
            "store moved to etcd"
        );
        self.following.abort();
        self.engine.close().await;
        Ok(digests)
    }
}

/// Renames the log of a store that was moved to etcd. The log must be closed.
///
/// # Errors
/// The log cannot be renamed.
pub fn put_log_aside(data_dir: &Path) -> anyhow::Result<()> {
    let (log, aside) = (log_dir(data_dir), data_dir.join(MOVED_DIR));
    if !log.exists() {
        return Ok(());
    }
    if aside.exists() {
        std::fs::remove_dir_all(&aside).with_context(|| format!("cannot remove {}", aside.display()))?;
    }
    std::fs::rename(&log, &aside).with_context(|| format!("cannot rename {}", log.display()))?;
    files::sync_dir(data_dir)
}

/// Stops all writes to etcd, waits until the copy has the last write, and turns the copy into the server's own log. The
/// copy must follow etcd during the call. `open` opens a leader.
///
/// # Errors
/// Fails if a step failed. The directory is then still served from etcd, except if the last step failed.
pub async fn out_of_etcd(
    data_dir: &Path,
    engine: &Engine,
    replica: &Replica,
    open: impl Fn(&Path) -> anyhow::Result<Engine>,
) -> anyhow::Result<Digests> {
    let last = replica.leave(&store_id(data_dir)?).await?;
    replica.reach(last).await?;
    let unreadable = replica.unreadable().await?;
    if !unreadable.is_empty() {
        replica.conclude().await?;
        bail!("these keys cannot be read, and would be lost: {}", unreadable.join(", "));
    }
    let digests = settle(data_dir, engine, replica, open).await?;
    let objects: u64 = digests.values().map(|digest| digest.objects).sum();
    tracing::info!(revision = last.get(), objects, "store moved to the server's own log");
    Ok(digests)
}

/// Turns a copy into the server's own log. The copy must no longer follow etcd. `open` opens a leader.
///
/// # Errors
/// The same errors as those of [`out_of_etcd`].
pub async fn settle(
    data_dir: &Path,
    engine: &Engine,
    replica: &Replica,
    open: impl Fn(&Path) -> anyhow::Result<Engine>,
) -> anyhow::Result<Digests> {
    let snapshot = engine.snapshot();
    let digests = replica.digests(&snapshot)?;
    let leftovers = replica.leftovers(&snapshot)?;
    drop(snapshot);
    engine.close().await;
    let copy = data_dir.join(COPY_DIR);
    let leader = open(&copy)?;
    for key in leftovers {
        let write = Write { key, expected: Expected::Any, change: Change::Delete(None) };
        leader.commit(write).await?;
    }
    leader.close().await;
    drop(leader);
    put_log_aside(data_dir)?;
    let log = log_dir(data_dir);
    std::fs::rename(&copy, &log).with_context(|| format!("cannot rename {}", copy.display()))?;
    record(data_dir, StoreLocation::Log)?;
    etcd::forget_cluster(data_dir)?;
    Ok(digests)
}
