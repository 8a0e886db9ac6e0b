//! The log directory of the machine, served at `/logs`.
//!
//! Paths in requests are already normalised, without `..` components. Symbolic links are followed, because
//! only the operator can create them in the directory.

use std::fs::File;
use std::path::PathBuf;

use api::state::log_files::{LogContent, LogFiles};

/// Directory in which programs of the machine write their logs.
const DIRECTORY: &str = "/var/log";

/// A directory of log files that the server serves.
pub struct Directory(PathBuf);

impl Default for Directory {
    fn default() -> Self {
        Directory(PathBuf::from(DIRECTORY))
    }
}

impl LogFiles for Directory {
    fn open(&self, path: &str, names_max: usize) -> std::io::Result<LogContent> {
        let path = self.0.join(path);
        let kind = std::fs::metadata(&path)?;
        if kind.is_dir() {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(&path)?.take(names_max) {
                let entry = entry?;
                let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
                names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
            }
            names.sort_unstable();
            return Ok(LogContent::Directory(names));
        }
        // Opening a pipe would block.
        if !kind.is_file() {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        Ok(LogContent::File { len: metadata.len(), modified: metadata.modified()?, content: Box::new(file) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::files::scratch::Scratch;

    #[test]
    fn log_files_are_listed_by_name_with_directories_marked() {
        let root = Scratch::new();
        std::fs::write(root.join("b.log"), "text").unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        let directory = Directory(root.to_path_buf());
        let LogContent::Directory(names) = directory.open("", 10).unwrap() else { panic!("no directory") };
        assert_eq!(names, ["a/", "b.log"]);
        let LogContent::File { len, .. } = directory.open("b.log", 10).unwrap() else { panic!("no file") };
        assert_eq!(len, 4);
        assert!(directory.open("none", 10).is_err());
    }
}
