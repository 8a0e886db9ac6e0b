//! A store's directory in the making, beside the place it is for, and put there as a whole.
//!
//! ```text
//! DIR/log       what is there now, if anything: complete at every moment
//! DIR/log.next  the new files ─► each synced ─► exchanged with DIR/log in one step ─► the old files removed
//! ```
//!
//! A process that ends in between leaves `log` as it was, and a `log.next` that the next attempt removes. Both are
//! locked meanwhile, so that neither an engine nor a second attempt gets between.
//!
//! Some file systems cannot exchange (NFS, FAT, some FUSE). There it takes two steps, each on disk before the next:
//!
//! ```text
//! DIR/log ─► DIR/log.replaced, synced      DIR/log.next ─► DIR/log, synced      DIR/log.replaced removed
//! ```
//!
//! A crash between the two leaves no `log`, but what was in it, complete, under a name that nothing else has: the next
//! attempt gives it its old name before it does anything else, and a reader of it is told. A crash after
//! both leaves the new `log`, and a `log.replaced` that the next attempt removes. Never is there only half of one.

use std::fs;
use std::io;
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
    /// Begins a directory for `place`, which no process may have open.
    pub fn begin(place: &Path) -> Result<Making, OfflineError> {
        let (path, replaced) = (beside(place, NEXT), beside(place, REPLACED));
        if !place.exists() && replaced.exists() {
            move_durably(&replaced, place)
                .map_err(OfflineError::io(&replaced, "give it the name that it had"))?;
        }
        let present = place.exists().then(|| lock(place)).transpose()?;
        let dir = lock(&path)?;
        clear(&path)?;
        if replaced.exists() {
            remove(&replaced)?;
        }
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
    pub fn finish(self) -> Result<(), OfflineError> {
        self.finish_by(|from, to, flags| Ok(renameat_with(CWD, from, CWD, to, flags)?))
    }

    /// [`Making::finish`], with that way to do it in one step.
    fn finish_by(
        mut self,
        in_one_step: impl Fn(&Path, &Path, RenameFlags) -> io::Result<()>,
    ) -> Result<(), OfflineError> {
        self.dir.sync_dir().map_err(OfflineError::io(&self.path, "sync"))?;
        let failed = OfflineError::io(&self.path, "put into its place");
        let is_replaced = self.place.exists();
        let flags = if is_replaced { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        // Where what was in the place is afterwards.
        let replaced = match in_one_step(&self.path, &self.place, flags) {
            Ok(()) => self.path.clone(),
            Err(error) if !is_not_supported(&error) => return Err(failed(error)),
            Err(_) if is_replaced => self.replace_in_two_steps().map_err(failed)?,
            // Both are directories of ours: there is nothing that this could replace but an empty one.
            Err(_) => {
                fs::rename(&self.path, &self.place).map_err(failed)?;
                self.path.clone()
            }
        };
        self.done = true;
        sync_parent(&self.place)?;
        if is_replaced { remove(&replaced) } else { Ok(()) }
    }

    fn replace_in_two_steps(&self) -> io::Result<PathBuf> {
        let replaced = beside(&self.place, REPLACED);
        move_durably(&self.place, &replaced)?;
        match fs::rename(&self.path, &self.place) {
            Ok(()) => Ok(replaced),
            // As if nothing had been; should that fail too, the next attempt does it.
            Err(error) => {
                let _ = move_durably(&replaced, &self.place);
                Err(error)
            }
        }
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

/// Opens a directory, made if absent, that no other process has open.
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

/// What `place` is called while it is made.
const NEXT: &str = ".next";
/// What the old one is called between the two steps.
const REPLACED: &str = ".replaced";

fn beside(place: &Path, suffix: &str) -> PathBuf {
    let mut name = place.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The directory that was in `place`, if replacing it was interrupted between the two steps.
pub(crate) fn interrupted(place: &Path) -> Option<PathBuf> {
    let replaced = beside(place, REPLACED);
    (!place.exists() && replaced.exists()).then_some(replaced)
}

/// Whether a file system says that it does not know a flag of renaming.
fn is_not_supported(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP))
}

fn move_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    fs::File::open(parent(to))?.sync_all()
}

fn sync_parent(path: &Path) -> Result<(), OfflineError> {
    let parent = parent(path);
    let sync = || fs::File::open(parent)?.sync_all();
    sync().map_err(OfflineError::io(parent, "sync"))
}

/// The directory that `path` is in.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::testing::TempDir;

    /// A directory for `place` with one file that says `text`.
    fn making(place: &Path, text: &str) -> Making {
        let making = Making::begin(place).unwrap();
        fs::write(making.path.join("file"), text).unwrap();
        making
    }

    fn names(temp: &TempDir) -> Vec<String> {
        let list = fs::read_dir(temp.path()).unwrap();
        let mut names: Vec<_> = list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn said(place: &Path) -> String {
        fs::read_to_string(place.join("file")).unwrap()
    }

    #[test]
    fn a_file_system_that_cannot_exchange_gets_it_in_two_steps() {
        for refusal in [None, Some(Errno::INVAL), Some(Errno::NOSYS), Some(Errno::OPNOTSUPP)] {
            let temp = TempDir::new();
            let place = temp.path().join("log");
            for text in ["first", "second", "third"] {
                let made = making(&place, text);
                match refusal {
                    None => made.finish().unwrap(),
                    Some(errno) => made.finish_by(|_, _, _| Err(errno.into())).unwrap(),
                }
                assert_eq!(
                    (said(&place).as_str(), names(&temp)),
                    (text, vec!["log".to_owned()]),
                    "{refusal:?}"
                );
            }
        }
    }

    #[test]
    fn whatever_fails_leaves_what_was_there() {
        let temp = TempDir::new();
        let place = temp.path().join("log");
        making(&place, "first").finish().unwrap();
        let full = making(&place, "second").finish_by(|_, _, _| Err(Errno::NOSPC.into())).unwrap_err();
        assert!(full.to_string().contains("cannot put into its place: No space left"), "{full}");
        assert_eq!((said(&place).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
        // The second of the two steps fails.
        let gone = making(&place, "second").finish_by(|from, _, _| {
            remove(from).unwrap();
            Err(Errno::INVAL.into())
        });
        assert!(gone.is_err());
        assert_eq!((said(&place).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
    }

    /// Makes the directory anew with the same files but the lock.
    fn unlock(path: &Path) {
        let locked = path.with_extension("locked");
        fs::rename(path, &locked).unwrap();
        fs::create_dir(path).unwrap();
        for entry in fs::read_dir(&locked).unwrap().map(Result::unwrap) {
            if entry.file_name() != LOCK_NAME {
                fs::rename(entry.path(), path.join(entry.file_name())).unwrap();
            }
        }
        fs::remove_dir_all(&locked).unwrap();
    }

    #[test]
    fn a_crash_between_the_two_steps_is_made_good_by_the_next_attempt() {
        let temp = TempDir::new();
        let place = temp.path().join("log");
        making(&place, "first").finish().unwrap();
        let second = making(&place, "second");
        fs::rename(&place, temp.path().join("log.replaced")).unwrap();
        std::mem::forget(second);
        assert_eq!(names(&temp), ["log.next", "log.replaced"]);
        assert_eq!(interrupted(&place), Some(temp.path().join("log.replaced")));
        // Its process is gone, and with it its locks.
        unlock(&temp.path().join("log.replaced"));
        unlock(&temp.path().join("log.next"));
        drop(making(&place, "third"));
        assert_eq!((said(&place).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
        assert_eq!(interrupted(&place), None);
        // And one after both.
        fs::create_dir(temp.path().join("log.replaced")).unwrap();
        fs::write(temp.path().join("log.replaced/file"), "zeroth").unwrap();
        fs::write(temp.path().join("log.replaced/lock"), "").unwrap();
        drop(making(&place, "third"));
        assert_eq!((said(&place).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
    }
}
