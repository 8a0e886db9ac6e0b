//! A store's directory in the making, beside the place it is for, and put there as a whole.
//!
//! ```text
//! DIR/log       what is there now, if anything: complete at every moment
//! DIR/log.next  the new files ─► each synced ─► exchanged with DIR/log in one step ─► the old files removed
//! ```
//!
//! A process that ends in between leaves `log` as it was, and a `log.next` that the next attempt removes. Both are
//! locked meanwhile, so that neither an engine nor a second attempt gets between.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::io::{Dir, LOCK_NAME, Storage};
use crate::offline::OfflineError;

/// The directory in the making.
pub(super) struct Making {
    /// The place it is for.
    place: PathBuf,
    path: PathBuf,
    dir: Dir,
    /// Held while there is something in the place already.
    _present: Option<Dir>,
    done: bool,
}

impl Making {
    /// Begins a directory for `place`, which nobody may have open.
    pub fn begin(place: &Path) -> Result<Making, OfflineError> {
        let mut name = place.as_os_str().to_owned();
        name.push(".next");
        let path = PathBuf::from(name);
        let present = place.exists().then(|| lock(place)).transpose()?;
        let dir = lock(&path)?;
        clear(&path)?;
        Ok(Making { place: place.to_owned(), path, dir, _present: present, done: false })
    }

    /// Where the files go.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The file of that name which is in the place already becomes part of the new directory. False where the file
    /// system cannot have a file in two directories.
    pub fn keep(&self, name: &str) -> bool {
        fs::hard_link(self.place.join(name), self.path.join(name)).is_ok()
    }

    /// Puts the directory in its place, durably. Its files have been synced.
    pub fn finish(mut self) -> Result<(), OfflineError> {
        self.dir.sync_dir().map_err(OfflineError::io(&self.path, "sync"))?;
        let flags = if self.place.exists() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        renameat_with(CWD, &self.path, CWD, &self.place, flags)
            .map_err(|error| OfflineError::io(&self.path, "put into its place")(error.into()))?;
        self.done = true;
        let parent = parent(&self.place);
        let sync = || fs::File::open(parent)?.sync_all();
        sync().map_err(OfflineError::io(parent, "sync"))?;
        // Under this name is now what was in the place.
        if self.path.exists() { remove(&self.path) } else { Ok(()) }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.done {
            // Given up: what is left is only in the way, and the next attempt would remove it as well.
            let _ = remove(&self.path);
        }
    }
}

/// Opens a directory, made if absent, that nobody else has open.
fn lock(path: &Path) -> Result<Dir, OfflineError> {
    match Dir::open(path) {
        Ok(Some(dir)) => Ok(dir),
        Ok(None) => Err(OfflineError::InUse { dir: path.to_owned() }),
        Err((operation, source)) => Err(OfflineError::Io { path: path.to_owned(), operation, source }),
    }
}

/// Removes the files in a directory but its lock. Other directories in it are not ours.
fn clear(path: &Path) -> Result<(), OfflineError> {
    let failed = |path: &Path| OfflineError::io(path, "remove");
    for entry in fs::read_dir(path).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?;
        if entry.file_name() != LOCK_NAME {
            fs::remove_file(entry.path()).map_err(failed(&entry.path()))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), OfflineError> {
    clear(path)?;
    let lock = path.join(LOCK_NAME);
    fs::remove_file(&lock).map_err(OfflineError::io(&lock, "remove"))?;
    fs::remove_dir(path).map_err(OfflineError::io(path, "remove"))
}

/// The directory that `path` is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
