//! Files that may change while the server runs.
//!
//! They are read again every few seconds and compared: notifications miss what mounted volumes do, which is to swap
//! a link above the file. A change that cannot be used is logged once, and what was there before goes on.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Between two looks.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Some files that are only useful together.
pub struct Watched {
    paths: Vec<PathBuf>,
    last: Vec<Vec<u8>>,
}

impl Watched {
    /// Starts from the present contents; a file that cannot be read counts as empty.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let last = paths.iter().map(|path| fs::read(path).unwrap_or_default()).collect();
        Watched { paths, last }
    }

    /// The contents, in the order of the paths, if any of them changed since the last look. A file that cannot be
    /// read is in the middle of being replaced: it has not changed until it can be.
    pub fn changed(&mut self) -> Option<&[Vec<u8>]> {
        let now: Vec<_> = self.paths.iter().map(fs::read).collect::<Result<_, _>>().ok()?;
        if now == self.last {
            return None;
        }
        self.last = now;
        Some(&self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::scratch::Scratch;

    #[test]
    fn a_change_is_seen_once_and_a_missing_file_is_not_one() {
        let dir = Scratch::new();
        let (one, two) = (dir.join("one"), dir.join("two"));
        fs::write(&one, "1").unwrap();
        fs::write(&two, "2").unwrap();
        let mut watched = Watched::new(vec![one.clone(), two.clone()]);
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
