//! Moving a store between the server's own log and etcd: which of them a data directory serves, and the steps of each way
//! (docs/api/etcd.md#moving).
//!
//! ```text
//! to etcd   log ─ level, follow ─► etcd │ the log has stopped ─► the rest ─► compare ─► storage: etcd ─► no mark
//! to log    etcd ─ follow ─► copy       │ mark: left          ─► the rest ─► compare ─► copy becomes log ─► storage: log
//! ```
//!
//! What is left of the bar is done while the store is served, and may be repeated. A crash anywhere leaves a directory that is served
//! from where it was, or from where it is then; never from a half-filled one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use api::state::allocation::Ports;
use engine::{Change, Engine, Expected, LossCounts, Revision, Write};
use replica::Replica;
use replica::digests::Digests;
use replica::moving::{Levelled, MoveError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use values::naming::Naming;

use crate::etcd::{self, COPY_DIR, EtcdConfig};
use crate::files;
use crate::flags::Direction;

/// File that says where the objects of a data directory are, once they were moved.
const STORAGE_FILE: &str = "storage";

/// File with the name of the store, by which marks in etcd tell stores apart.
const ID_FILE: &str = "store-id";

/// Directory of the server's own log.
const LOG_DIR: &str = "log";

/// What the log is called once its store is elsewhere.
const MOVED_DIR: &str = "log.moved";

/// How far above the source's revision the first object in etcd is: room for what the source writes meanwhile.
pub const ROOM: u64 = 2000;

/// Room that is not doubled any more before the objects are written: the source may write as fast as etcd does.
const ROOM_MAX: u64 = 64 * ROOM;

/// Pause before a move that failed is begun again.
pub const PAUSE: Duration = Duration::from_secs(5);

/// Where the objects of a data directory are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// In the server's own log.
    Log,
    /// In etcd.
    Etcd,
}

/// What a start does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Where it serves from.
    pub place: Place,
    /// Where it moves the store meanwhile.
    pub moves: Option<Direction>,
}

/// Where the directory says that its objects are.
///
/// # Errors
/// The file cannot be read, or says something else.
pub fn recorded(data_dir: &Path) -> anyhow::Result<Option<Place>> {
    let path = data_dir.join(STORAGE_FILE);
    match files::read_if_there(&path)?.as_deref() {
        None => Ok(None),
        Some(b"log\n") => Ok(Some(Place::Log)),
        Some(b"etcd\n") => Ok(Some(Place::Etcd)),
        Some(_) => bail!("{} says neither log nor etcd", path.display()),
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

/// The name of the store of a directory, made when it has none.
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

/// Has the directory say that its store has this name.
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

/// What a start with these flags does in a directory.
///
/// # Errors
/// The objects are elsewhere.
pub fn plan(data_dir: &Path, etcd: Option<&EtcdConfig>) -> anyhow::Result<Plan> {
    let recorded = recorded(data_dir)?;
    let has_log = data_dir.join(LOG_DIR).exists();
    decide(etcd.map(|etcd| etcd.live), recorded, has_log).with_context(|| data_dir.display().to_string())
}

fn decide(etcd: Option<Option<Direction>>, recorded: Option<Place>, has_log: bool) -> anyhow::Result<Plan> {
    let stays = |place| Ok(Plan { place, moves: None });
    match (etcd, recorded) {
        (None, Some(Place::Etcd)) => bail!("the objects were moved to etcd: --etcd-servers is needed"),
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

/// Refuses to move a store with losses that nobody accepted: etcd knows nothing of them, and what is absent there is gone.
///
/// # Errors
/// It has some.
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
    /// Takes the etcd for the store of the directory, whose revision is `source`. `open` opens a copy.
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

    /// The newest revision of etcd, as far as the copy has it.
    pub fn revision(&self) -> Revision {
        self.engine.revision()
    }

    /// Writes all that there is of a store that does not change.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn fill(&self, source: &Engine, progress: impl FnMut(u64)) -> Result<Levelled, MoveError> {
        self.replica.catch_up().await?;
        self.replica.level(&source.snapshot(), source.revision(), progress).await
    }

    /// Writes all that there is, and then what changes, until the source has stopped.
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
            // What the source writes while etcd's revision is raised comes out of the room, and writing all objects takes time too.
            if source.revision().get() + ROOM / 2 > base.get() && room < ROOM_MAX {
                room *= 2;
                continue;
            }
            self.replica.catch_up().await?;
            let snapshot = source.snapshot();
            let tail = source.tail(snapshot.revision(), bytes::Bytes::new())?;
            let levelled = self.replica.level(&snapshot, floor, |_| {}).await?;
            drop(snapshot);
            tracing::info!(?levelled, source = source.revision().get(), "etcd has what the log had");
            if source.revision() >= base {
                // Clients of the source know revisions that objects in etcd have too: once more, further above.
                room = 2 * (room + source.revision().since(floor));
                continue;
            }
            match self.replica.keep_up(source, tail, floor, ready, stopped.clone()).await {
                Ok(_) => return Ok(()),
                Err(MoveError::Tail(why)) => tracing::warn!(%why, "the log went ahead of its move"),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what is left of a source that has stopped, compares, and has the directory served from etcd.
    ///
    /// # Errors
    /// The directory is served from its log still.
    pub async fn finish(self, source: &Engine) -> anyhow::Result<Digests> {
        let snapshot = source.snapshot();
        let newest = snapshot.revision();
        self.replica.raise(newest, 1).await?;
        self.replica.catch_up().await?;
        // Above everything that clients know of the source.
        let levelled = self.replica.level(&snapshot, newest, |_| {}).await?;
        self.replica.catch_up().await?;
        let digests = self.replica.compare(&snapshot, &self.engine.snapshot())?;
        drop(snapshot);
        record(&self.data_dir, Place::Etcd)?;
        // Until here a crash leaves a log that is served; from here on an etcd whose mark the next start takes away.
        self.replica.conclude().await?;
        self.replica.catch_up().await?;
        // A client that knows a revision of the source reads anew. The newest change stays: by it the next start knows its copy.
        self.engine.compact(self.engine.revision().before()).await?;
        tracing::info!(
            ?levelled,
            source = newest.get(),
            revision = self.engine.revision().get(),
            objects = digests.values().map(|digest| digest.objects).sum::<u64>(),
            "the store is moved to etcd"
        );
        self.following.abort();
        self.engine.close().await;
        Ok(digests)
    }
}

/// Puts the log of a store that was moved to etcd aside. It must be closed.
///
/// # Errors
/// It cannot be renamed.
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

/// Has no server write to etcd any more, and makes the copy, which is followed, the server's own log. `open` opens a leader.
///
/// # Errors
/// The directory is served from etcd still, unless the last step failed.
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
    tracing::info!(revision = last.get(), objects, "the store is moved to the server's own log");
    Ok(digests)
}

/// Makes a copy that nothing follows any more the server's own log.
///
/// # Errors
/// See there.
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
