//! Atomic creation of a store's directory: the directory is made next to its final location and then moved
//! there as a whole.
//!
//! ```text
//! DIR/log       the present files, if any: complete at every moment
//! DIR/log.next  the new files ─► each synced ─► exchanged with DIR/log in one step ─► the old files removed
//! ```
//!
//! A process that ends before the exchange leaves `log` unchanged, and a `log.next` that the next attempt
//! removes. Both directories are locked in the meantime, so that neither an engine nor a second attempt can
//! interfere.
//!
//! Some file systems cannot exchange directories (NFS, FAT, some FUSE). On such file systems the replacement
//! takes two steps, each durable before the next:
//!
//! ```text
//! DIR/log ─► DIR/log.replaced, synced      DIR/log.next ─► DIR/log, synced      DIR/log.replaced removed
//! ```
//!
//! A crash between the two steps leaves no `log`, but a `log.replaced` with the complete old content. The
//! next attempt first renames `log.replaced` to `log`; until then readers get an error that names
//! `log.replaced`. A crash after both steps leaves the new `log`, and a `log.replaced` that the next attempt
//! removes. There is a complete directory at every moment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::io::{Dir, LOCK_NAME, Storage};
use crate::offline::OfflineError;
use crate::platform::{RenameKind, is_not_supported, rename_in_one_step};

/// A directory that is being made.
pub(super) struct NewDirectory {
    /// The final location of the directory.
    target: PathBuf,
    path: PathBuf,
    dir: Dir,
    /// Lock of the existing directory at the final location, if there is one.
    _present: Option<Dir>,
    done: bool,
}

impl NewDirectory {
    /// Begins a directory for `target`. No other process may have `target` open.
    pub fn begin(target: &Path) -> Result<NewDirectory, OfflineError> {
        let (path, replaced) = (sibling(target, NEXT), sibling(target, REPLACED));
        if !target.exists() && replaced.exists() {
            move_durably(&replaced, target)
                .map_err(OfflineError::io(&replaced, "give it the name that it had"))?;
        }
        let present = target.exists().then(|| lock(target)).transpose()?;
        let dir = lock(&path)?;
        clear(&path)?;
        if replaced.exists() {
            remove(&replaced)?;
        }
        Ok(NewDirectory { target: target.to_owned(), path, dir, _present: present, done: false })
    }

    /// Returns the directory for the new files.
    pub fn dir(&self) -> &Dir {
        &self.dir
    }

    /// Makes the file `name` of the existing directory part of the new directory. Returns false if the file
    /// system cannot have a file in two directories.
    pub fn keep(&self, name: &str) -> bool {
        fs::hard_link(self.target.join(name), self.path.join(name)).is_ok()
    }

    /// Moves the directory to its final location and makes the move durable. The files of the directory must
    /// be synced.
    pub fn finish(self) -> Result<(), OfflineError> {
        self.finish_by(rename_in_one_step)
    }

    /// Moves the directory as [`NewDirectory::finish`] does, and calls `in_one_step` for the exchange in one
    /// step.
    fn finish_by(
        mut self,
        in_one_step: impl Fn(&Path, &Path, RenameKind) -> io::Result<()>,
    ) -> Result<(), OfflineError> {
        self.dir.sync_dir().map_err(OfflineError::io(&self.path, "sync"))?;
        let failed = OfflineError::io(&self.path, "put into its place");
        let is_replaced = self.target.exists();
        let kind = if is_replaced { RenameKind::Exchange } else { RenameKind::NoReplace };
        // The location of the old directory after the exchange.
        let replaced = match in_one_step(&self.path, &self.target, kind) {
            Ok(()) => self.path.clone(),
            Err(error) if !is_not_supported(&error) => return Err(failed(error)),
            Err(_) if is_replaced => self.replace_in_two_steps().map_err(failed)?,
            // Both directories belong to this module: the rename could only replace an empty directory.
            Err(_) => {
                fs::rename(&self.path, &self.target).map_err(failed)?;
                self.path.clone()
            }
        };
        self.done = true;
        sync_parent(&self.target)?;
        if is_replaced { remove(&replaced) } else { Ok(()) }
    }

    fn replace_in_two_steps(&self) -> io::Result<PathBuf> {
        let replaced = sibling(&self.target, REPLACED);
        move_durably(&self.target, &replaced)?;
        match fs::rename(&self.path, &self.target) {
            Ok(()) => Ok(replaced),
            // Moving the directory back restores the previous state. If moving it back fails too, the next
            // attempt moves it.
            Err(error) => {
                let _ = move_durably(&replaced, &self.target);
                Err(error)
            }
        }
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if !self.done {
            // The directory was abandoned. If the removal fails, the next attempt removes the directory.
            let _ = remove(&self.path);
        }
    }
}

/// Opens and locks a directory, which is created if it does not exist.
fn lock(path: &Path) -> Result<Dir, OfflineError> {
    match Dir::open(path) {
        Ok(Some(dir)) => Ok(dir),
        Ok(None) => Err(OfflineError::InUse { dir: path.to_owned() }),
        Err((operation, source)) => Err(OfflineError::Io { path: path.to_owned(), operation, source }),
    }
}

/// Removes the files in a directory except its lock. Subdirectories are not removed.
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

/// Suffix of the directory while it is made.
const NEXT: &str = ".next";
/// Suffix of the old directory between the two steps.
const REPLACED: &str = ".replaced";

fn sibling(target: &Path, suffix: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the old directory of `target` if its replacement was interrupted between the two steps.
pub(crate) fn interrupted(target: &Path) -> Option<PathBuf> {
    let replaced = sibling(target, REPLACED);
    (!target.exists() && replaced.exists()).then_some(replaced)
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

/// Returns the directory that contains `path`.
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

    /// Makes a directory for `target` with one file that contains `text`.
    fn making(target: &Path, text: &str) -> NewDirectory {
        let making = NewDirectory::begin(target).unwrap();
        fs::write(making.path.join("file"), text).unwrap();
        making
    }

    fn names(temp: &TempDir) -> Vec<String> {
        let list = fs::read_dir(temp.path()).unwrap();
        let mut names: Vec<_> = list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn file_text(target: &Path) -> String {
        fs::read_to_string(target.join("file")).unwrap()
    }

    #[test]
    fn a_directory_is_replaced_in_two_steps_if_the_file_system_cannot_exchange_names() {
        for refusal in [None, Some(Errno::INVAL), Some(Errno::NOSYS), Some(Errno::OPNOTSUPP)] {
            let temp = TempDir::new();
            let target = temp.path().join("log");
            for text in ["first", "second", "third"] {
                let made = making(&target, text);
                match refusal {
                    None => made.finish().unwrap(),
                    Some(errno) => made.finish_by(|_, _, _| Err(errno.into())).unwrap(),
                }
                assert_eq!(
                    (file_text(&target).as_str(), names(&temp)),
                    (text, vec!["log".to_owned()]),
                    "{refusal:?}"
                );
            }
        }
    }

    #[test]
    fn a_failed_replacement_leaves_the_previous_directory() {
        let temp = TempDir::new();
        let target = temp.path().join("log");
        making(&target, "first").finish().unwrap();
        let full = making(&target, "second").finish_by(|_, _, _| Err(Errno::NOSPC.into())).unwrap_err();
        assert!(full.to_string().contains("cannot put into its place: No space left"), "{full}");
        assert_eq!((file_text(&target).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
        // The second of the two steps fails.
        let gone = making(&target, "second").finish_by(|from, _, _| {
            remove(from).unwrap();
            Err(Errno::INVAL.into())
        });
        assert!(gone.is_err());
        assert_eq!((file_text(&target).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
    }

    /// Replaces the directory by a new one with the same files except the lock.
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
    fn the_next_attempt_completes_a_replacement_that_a_crash_interrupted() {
        let temp = TempDir::new();
        let target = temp.path().join("log");
        making(&target, "first").finish().unwrap();
        let second = making(&target, "second");
        fs::rename(&target, temp.path().join("log.replaced")).unwrap();
        std::mem::forget(second);
        assert_eq!(names(&temp), ["log.next", "log.replaced"]);
        assert_eq!(interrupted(&target), Some(temp.path().join("log.replaced")));
        // The process has ended, and its locks are released.
        unlock(&temp.path().join("log.replaced"));
        unlock(&temp.path().join("log.next"));
        drop(making(&target, "third"));
        assert_eq!((file_text(&target).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
        assert_eq!(interrupted(&target), None);
        // The process has ended after both steps.
        fs::create_dir(temp.path().join("log.replaced")).unwrap();
        fs::write(temp.path().join("log.replaced/file"), "zeroth").unwrap();
        fs::write(temp.path().join("log.replaced/lock"), "").unwrap();
        drop(making(&target, "third"));
        assert_eq!((file_text(&target).as_str(), names(&temp)), ("first", vec!["log".to_owned()]));
    }
}
