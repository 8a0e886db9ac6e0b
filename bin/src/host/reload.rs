//! Watches files that may change while the server runs.
//!
//! The server reads and compares the files every few seconds. Notifications of changes are not used: a
//! mounted volume replaces a symbolic link in the path, and notifications for the file do not report this
//! replacement. An invalid change is logged once, and the previous contents stay in use.

use std::path::PathBuf;
use std::time::Duration;

use crate::host::files;

/// Time between two reads.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Time between two reads of files for authentication. The time is short, so that a removed key soon stops
/// working.
pub const BUNDLE_INTERVAL: Duration = Duration::from_secs(1);

/// A group of files that are reloaded together.
pub struct FileGroup {
    paths: Vec<PathBuf>,
    last: Vec<Vec<u8>>,
}

impl FileGroup {
    /// Creates a group with the current contents. An unreadable file counts as empty.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let last = paths.iter().map(|path| files::read(path).unwrap_or_default()).collect();
        FileGroup { paths, last }
    }

    /// Returns the contents from the last read, in the order of the paths.
    pub fn contents(&self) -> &[Vec<u8>] {
        &self.last
    }

    /// Reads all files, and returns their contents in the order of the paths, if a file has changed since the
    /// last call. If a file cannot be read, it is probably being replaced, so this function returns `None`.
    pub fn changed(&mut self) -> Option<&[Vec<u8>]> {
        let now: Vec<_> = self.paths.iter().map(files::read).collect::<Result<_, _>>().ok()?;
        if now == self.last {
            return None;
        }
        self.last = now;
        Some(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn a_changed_file_is_reported_once_and_a_missing_file_is_not_a_change() {
        let dir = Scratch::new();
        let (one, two) = (dir.join("one"), dir.join("two"));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        let mut watched = FileGroup::new(vec![one.clone(), two.clone()]);
        assert_eq!(watched.changed(), None);
        fs::write(&two, "3").unwrap();
        assert_eq!(watched.changed(), Some(&[b"1".to_vec(), b"3".to_vec()][..]));
        assert_eq!(watched.changed(), None);
        fs::remove_file(&one).unwrap();
        assert_eq!(watched.changed(), None);
        fs::write(&one, "4").unwrap();
        assert!(watched.changed().is_some());
    }
}
