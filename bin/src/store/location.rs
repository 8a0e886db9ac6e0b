//! The location of the objects of a data directory: the server's own log, or etcd (docs/api/etcd.md#moving).
//!
//! The file `storage` records the location after the store has been moved. The file `store-id` has the unique name of
//! the store, which marks in etcd contain.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::host::files;

/// Name of the file that records the location of the objects after a move.
const STORAGE_FILE: &str = "storage";

/// Name of the file with the unique name of the store, which marks in etcd contain.
const ID_FILE: &str = "store-id";

/// Name of the directory of the server's own log.
const LOG_DIR: &str = "log";

/// Returns the directory of the server's own log in a data directory.
pub fn log_dir(data_dir: &Path) -> PathBuf {
    data_dir.join(LOG_DIR)
}

/// The direction in which a store is moved while it is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// From the server's own log to etcd.
    ToEtcd,
    /// From etcd to the server's own log.
    ToLog,
}

/// The location of the objects of a data directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreLocation {
    /// The objects are in the server's own log.
    Log,
    /// The objects are in etcd.
    Etcd,
}

/// The location that a start serves from, and the live move that it begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plan {
    /// The location from which the server serves the objects.
    pub location: StoreLocation,
    /// Direction of the live move of the store, if there is one.
    pub moves: Option<Direction>,
}

/// Returns the recorded location of the objects, or `None` if there is no record.
///
/// # Errors
/// The file cannot be read, or has unknown contents.
pub fn recorded(data_dir: &Path) -> anyhow::Result<Option<StoreLocation>> {
    let path = data_dir.join(STORAGE_FILE);
    match files::read_if_there(&path)?.as_deref() {
        None => Ok(None),
        Some(b"log\n") => Ok(Some(StoreLocation::Log)),
        Some(b"etcd\n") => Ok(Some(StoreLocation::Etcd)),
        Some(_) => bail!("{} must contain log or etcd", path.display()),
    }
}

/// Records the location of the objects.
///
/// # Errors
/// The file cannot be written.
pub fn record(data_dir: &Path, location: StoreLocation) -> anyhow::Result<()> {
    let text = match location {
        StoreLocation::Log => "log\n",
        StoreLocation::Etcd => "etcd\n",
    };
    files::write_private(&data_dir.join(STORAGE_FILE), text.as_bytes())?;
    files::sync_dir(data_dir)
}

/// Returns the unique name of the store in a data directory. Creates a name if the store has no name yet.
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

/// Records the unique name of the store in a data directory.
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

/// Returns the plan of a start in a data directory. `etcd` is `None` if the flags have no endpoints of etcd. Otherwise
/// it has the direction of the live migration in the flags, if any.
///
/// # Errors
/// The objects are not in the location that the flags select.
pub fn plan(data_dir: &Path, etcd: Option<Option<Direction>>) -> anyhow::Result<Plan> {
    let recorded = recorded(data_dir)?;
    let has_log = log_dir(data_dir).exists();
    decide(etcd, recorded, has_log).with_context(|| data_dir.display().to_string())
}

fn decide(
    etcd: Option<Option<Direction>>,
    recorded: Option<StoreLocation>,
    has_log: bool,
) -> anyhow::Result<Plan> {
    let stays = |location| Ok(Plan { location, moves: None });
    match (etcd, recorded) {
        (None, Some(StoreLocation::Etcd)) => {
            bail!("the objects were moved to etcd: start with --etcd-servers")
        }
        (None, _) => stays(StoreLocation::Log),
        (Some(None), Some(StoreLocation::Log)) => {
            bail!("the objects were moved from etcd to this directory: start without --etcd-servers")
        }
        (Some(None), _) => stays(StoreLocation::Etcd),
        (Some(Some(Direction::ToEtcd)), Some(StoreLocation::Etcd)) => stays(StoreLocation::Etcd),
        (Some(Some(Direction::ToEtcd)), None) if !has_log => stays(StoreLocation::Etcd),
        (Some(moves @ Some(Direction::ToEtcd)), _) => Ok(Plan { location: StoreLocation::Log, moves }),
        (Some(Some(Direction::ToLog)), Some(StoreLocation::Log)) => stays(StoreLocation::Log),
        (Some(moves @ Some(Direction::ToLog)), _) => Ok(Plan { location: StoreLocation::Etcd, moves }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_starts_from_the_location_that_has_the_objects() {
        use Direction::{ToEtcd, ToLog};
        use StoreLocation::{Etcd, Log};
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
            let got = decide(etcd, recorded, has_log).ok().map(|plan| (plan.location, plan.moves));
            assert_eq!(got, want, "{etcd:?} {recorded:?} {has_log}");
        }
    }
}
