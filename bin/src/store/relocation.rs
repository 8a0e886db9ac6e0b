//! Moves of a store between the server's own log and etcd: which of them a data directory is served from, and
//! the steps in each direction (docs/api/etcd.md#moving).
//!
//! ```text
//! to etcd   log ─ level, follow ─► etcd │ the log has stopped ─► the rest ─► compare ─► storage: etcd ─► no mark
//! to log    etcd ─ follow ─► copy       │ mark: left          ─► the rest ─► compare ─► copy becomes log ─► storage: log
//! ```
//!
//! The steps to the left of the bar run while the store is served, and may be repeated. A crash at any time
//! leaves a directory that is served either from its old or from its new location, never from an incomplete
//! one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api::state::allocation::Ports;
use engine::{Change, Engine, Expected, LossCounts, Revision, Write};
use replica::Replica;
use replica::digests::Digests;
use replica::migration::{Levelled, MoveError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use values::naming::Naming;

use crate::config::etcd::{self, COPY_DIR, EtcdConfig};
use crate::flags::Direction;
use crate::host::files;

/// Name of the file that records where the objects of a data directory are, once they have been moved.
const STORAGE_FILE: &str = "storage";

/// Name of the file with the name of the store, which marks in etcd refer to.
const ID_FILE: &str = "store-id";

/// Name of the directory of the server's own log.
const LOG_DIR: &str = "log";

/// Name of the log's directory after its store has moved.
const MOVED_DIR: &str = "log.moved";

/// Distance between the source's revision and the first object in etcd: room for what the source writes
/// during the move.
pub const ROOM: u64 = 2000;

/// Limit above which the room is no longer doubled, and the objects are written although the room may be too small:
/// the source may write as fast as etcd, and would then use up any room.
const ROOM_MAX: u64 = 64 * ROOM;

/// Pause before a failed move starts again.
pub const PAUSE: Duration = Duration::from_secs(5);

/// The location of the objects of a data directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// The objects are in the server's own log.
    Log,
    /// The objects are in etcd.
    Etcd,
}

/// The actions of a start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The location that the server serves from.
    pub place: Place,
    /// The direction in which the store is moved meanwhile, if it is moved.
    pub moves: Option<Direction>,
}

/// Returns the location of the objects that the directory records; `None` if there is no record.
///
/// # Errors
/// The file cannot be read, or has unknown contents.
pub fn recorded(data_dir: &Path) -> anyhow::Result<Option<Place>> {
    let path = data_dir.join(STORAGE_FILE);
    match files::read_if_there(&path)?.as_deref() {
        None => Ok(None),
        Some(b"log\n") => Ok(Some(Place::Log)),
        Some(b"etcd\n") => Ok(Some(Place::Etcd)),
        Some(_) => bail!("{} must contain log or etcd", path.display()),
    }
}

fn record(data_dir: &Path, place: Place) -> anyhow::Result<()> {
    let text = match place {
        Place::Log => "log\n",
        Place::Etcd => "etcd\n",
    };
    files::write_private(&data_dir.join(STORAGE_FILE), text.as_bytes())?;
    files::sync_dir(data_dir)
}

/// Returns the name of the directory's store, and creates a name for a store without one.
///
/// # Errors
/// The file cannot be read or written.
pub fn store_id(data_dir: &Path) -> anyhow::Result<String> {
    let path = data_dir.join(ID_FILE);
    if let Some(id) = files::read_if_there(&path)? {
        return Ok(String::from_utf8_lossy(&id).trim().to_owned());
    }
    let id = values::names::uid();
    files::write_private(&path, format!("{id}\n").as_bytes())?;
    Ok(id)
}

/// Records the name of the directory's store.
///
/// # Errors
/// The file cannot be read or written.
pub fn write_store_id(data_dir: &Path, id: &str) -> anyhow::Result<()> {
    let path = data_dir.join(ID_FILE);
    let text = format!("{id}\n");
    if files::read_if_there(&path)?.as_deref() != Some(text.as_bytes()) {
        files::write_private(&path, text.as_bytes())?;
    }
    Ok(())
}

/// Returns the actions of a start with these flags in a directory.
///
/// # Errors
/// The objects are in another location than the flags say.
pub fn plan(data_dir: &Path, etcd: Option<&EtcdConfig>) -> anyhow::Result<Plan> {
    let recorded = recorded(data_dir)?;
    let has_log = data_dir.join(LOG_DIR).exists();
    decide(etcd.map(|etcd| etcd.live), recorded, has_log).with_context(|| data_dir.display().to_string())
}

fn decide(etcd: Option<Option<Direction>>, recorded: Option<Place>, has_log: bool) -> anyhow::Result<Plan> {
    let stays = |place| Ok(Plan { place, moves: None });
    match (etcd, recorded) {
        (None, Some(Place::Etcd)) => bail!("the objects were moved to etcd: start with --etcd-servers"),
        (None, _) => stays(Place::Log),
        (Some(None), Some(Place::Log)) => {
            bail!("the objects were moved from etcd to this directory: start without --etcd-servers")
        }
        (Some(None), _) => stays(Place::Etcd),
        (Some(Some(Direction::ToEtcd)), Some(Place::Etcd)) => stays(Place::Etcd),
        (Some(Some(Direction::ToEtcd)), None) if !has_log => stays(Place::Etcd),
        (Some(moves @ Some(Direction::ToEtcd)), _) => Ok(Plan { place: Place::Log, moves }),
        (Some(Some(Direction::ToLog)), Some(Place::Log)) => stays(Place::Log),
        (Some(moves @ Some(Direction::ToLog)), _) => Ok(Plan { place: Place::Etcd, moves }),
    }
}

/// Refuses to move a store with losses that the operator has not accepted: etcd does not know about losses,
/// so a missing object there counts as deleted.
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
    /// Claims the etcd for the store of the directory, whose revision is `source`. `open` opens a copy.
    ///
    /// # Errors
    /// The etcd is in use, or cannot be reached.
    pub async fn begin(
        config: &EtcdConfig,
        data_dir: &Path,
        naming: &'static Naming,
        (ports, event_ttl): (&Ports, Duration),
        source: Revision,
        open: impl Fn(&Path) -> anyhow::Result<Engine>,
    ) -> anyhow::Result<IntoEtcd> {
        let opened = config.open(data_dir, naming, (ports, event_ttl), Some(source), open).await;
        let (engine, replica) = opened?;
        let following = tokio::spawn(replica.clone().follow());
        Ok(IntoEtcd { engine, replica, following, data_dir: data_dir.to_owned() })
    }

    /// Returns the newest revision of etcd that the copy has.
    pub fn revision(&self) -> Revision {
        self.engine.revision()
    }

    /// Writes all objects of a store that does not change.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn fill(&self, source: &Engine, progress: impl FnMut(u64)) -> Result<Levelled, MoveError> {
        self.replica.catch_up().await?;
        self.replica.level(&source.snapshot(), source.revision(), progress).await
    }

    /// Writes all objects, then all changes, until the source has stopped.
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
            // Writes of the source use up the room while etcd's revision is raised; writing all objects takes
            // time too.
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
                // The source has reached revisions that objects in etcd also have, and its clients know them:
                // write all objects again, at higher revisions.
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
    /// directory is served from etcd.
    ///
    /// # Errors
    /// The directory is still served from its log.
    pub async fn finish(self, source: &Engine) -> anyhow::Result<Digests> {
        let snapshot = source.snapshot();
        let newest = snapshot.revision();
        self.replica.raise(newest, 1).await?;
        self.replica.catch_up().await?;
        // Use revisions above all those that clients of the source know.
        let levelled = self.replica.level(&snapshot, newest, |_| {}).await?;
        self.replica.catch_up().await?;
        let digests = self.replica.compare(&snapshot, &self.engine.snapshot())?;
        drop(snapshot);
        record(&self.data_dir, Place::Etcd)?;
        // After a crash before this point the next start serves the log. After a crash behind it the next start
        // serves etcd, and removes the mark.
        self.replica.conclude().await?;
        self.replica.catch_up().await?;
        // A client that knows a revision of the source must list again. The newest change is kept, because
        // the next start recognises its copy by it.
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
    let (log, aside) = (data_dir.join(LOG_DIR), data_dir.join(MOVED_DIR));
    if !log.exists() {
        return Ok(());
    }
    if aside.exists() {
        std::fs::remove_dir_all(&aside).with_context(|| format!("cannot remove {}", aside.display()))?;
    }
    std::fs::rename(&log, &aside).with_context(|| format!("cannot rename {}", log.display()))?;
    files::sync_dir(data_dir)
}

/// Stops all writes to etcd, waits until the copy has the last one, and turns the copy into the server's own log. The
/// copy must follow etcd during the call. `open` opens a leader.
///
/// # Errors
/// The directory is still served from etcd, unless the last step failed.
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
/// The same as those of [`out_of_etcd`].
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
    let log = data_dir.join(LOG_DIR);
    std::fs::rename(&copy, &log).with_context(|| format!("cannot rename {}", copy.display()))?;
    record(data_dir, Place::Log)?;
    etcd::forget_cluster(data_dir)?;
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_serves_from_where_the_objects_are() {
        use Direction::{ToEtcd, ToLog};
        use Place::{Etcd, Log};
        for (etcd, recorded, has_log, want) in [
            (None, None, true, Some((Log, None))),
            (None, Some(Log), true, Some((Log, None))),
            (None, Some(Etcd), false, None),
            (Some(None), None, false, Some((Etcd, None))),
            (Some(None), Some(Etcd), false, Some((Etcd, None))),
            (Some(None), Some(Log), true, None),
            (Some(Some(ToEtcd)), None, true, Some((Log, Some(ToEtcd)))),
            (Some(Some(ToEtcd)), None, false, Some((Etcd, None))),
            (Some(Some(ToEtcd)), Some(Log), true, Some((Log, Some(ToEtcd)))),
            (Some(Some(ToEtcd)), Some(Etcd), true, Some((Etcd, None))),
            (Some(Some(ToLog)), None, false, Some((Etcd, Some(ToLog)))),
            (Some(Some(ToLog)), Some(Etcd), true, Some((Etcd, Some(ToLog)))),
            (Some(Some(ToLog)), Some(Log), true, Some((Log, None))),
        ] {
            let got = decide(etcd, recorded, has_log).ok().map(|plan| (plan.place, plan.moves));
            assert_eq!(got, want, "{etcd:?} {recorded:?} {has_log}");
        }
    }
}
