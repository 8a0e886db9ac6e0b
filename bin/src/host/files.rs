//! Small files that are replaced in one step: a file is written under a temporary name, and then renamed.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, anyhow};

/// Creates a directory and its parents, readable only by the owner. Does not change an existing directory.
pub fn private_dir(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create directory {}", path.display()))
}

/// Maximum size of a file that is named in a flag or in a configuration file. CA bundles and lists of tokens
/// are far smaller. The limit ends the read of an endless device such as `/dev/zero`.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// The error for a file that exceeds the maximum size.
#[derive(Debug, thiserror::Error)]
#[error("the file has more than {FILE_BYTES_MAX} bytes, the most that is read of a configuration file")]
struct TooLong;

/// Reads a file that the operator has configured.
///
/// # Errors
/// The file cannot be read, or is longer than [`FILE_BYTES_MAX`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let len = file.metadata()?.len();
    if len > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, TooLong));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    // Devices and pipes report no length, so limit the read as well.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, TooLong))
    } else {
        Ok(bytes)
    }
}

/// Returns the contents of a file, or `None` if the file does not exist.
pub fn read_if_there(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the contents of a file, which only its owner can read. After a crash, the file has either the old
/// or the new contents. [`sync_dir`] makes the new contents durable. If the file already has these bytes, it
/// is not written. Returns whether the file was replaced.
pub fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<bool> {
    if read_if_there(path)?.as_deref() == Some(bytes) {
        return Ok(false);
    }
    replace(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // Remove the temporary file of an earlier crash, because it may have another mode.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    // Sync before the rename. Otherwise, after a crash, the file could be empty under its final name.
    file.sync_data()?;
    fs::rename(&beside, path)
}

/// Syncs the directory `path`, so that earlier replacements of its files are durable.
pub fn sync_dir(path: &Path) -> anyhow::Result<()> {
    let sync = || fs::File::open(path)?.sync_all();
    sync().with_context(|| format!("cannot sync {}", path.display()))
}

/// Converts an error of opening a file into the error of Go.
pub fn opening(path: &Path, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        // Go opens a directory without an error, and fails when it reads the directory.
        io::ErrorKind::IsADirectory => return anyhow!("read {}: is a directory", path.display()),
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    };
    anyhow!("open {}: {why}", path.display())
}

#[cfg(test)]
pub mod scratch {
    //! A directory that exists as long as its test runs.
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("cluster-bin-{}-{count}", std::process::id()));
            // A process with the same identifier may have been killed before it could remove its directories.
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl std::ops::Deref for Scratch {
        type Target = Path;
        fn deref(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scratch::Scratch;
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_file_of_unlimited_size_is_refused() {
        let dir = Scratch::new();
        fs::write(dir.join("small"), "text").unwrap();
        assert_eq!(read(dir.join("small")).unwrap(), b"text");
        let sparse = fs::File::create(dir.join("sparse")).unwrap();
        for (len, is_read) in [(FILE_BYTES_MAX, true), (FILE_BYTES_MAX + 1, false), (1 << 40, false)] {
            sparse.set_len(len).unwrap();
            assert_eq!(read(dir.join("sparse")).is_ok(), is_read, "{len}");
        }
        let endless = read("/dev/zero").unwrap_err();
        assert!(endless.to_string().starts_with("the file has more than 16777216 bytes"), "{endless}");
        assert_eq!(read(&*dir).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(read(dir.join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(read("/dev/null").unwrap(), b"");
    }

    #[test]
    fn private_files_are_replaced_atomically_and_kept_if_equal() {
        let dir = Scratch::new();
        let path = dir.join("deep/er/file");
        private_dir(path.parent().unwrap()).unwrap();
        assert_eq!(read_if_there(&path).unwrap(), None);
        fs::write(path.with_extension("new"), "left over").unwrap();
        write_private(&path, b"one").unwrap();
        let before = fs::metadata(&path).unwrap();
        assert_eq!(before.permissions().mode() & 0o777, 0o600);
        write_private(&path, b"one").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino());
        write_private(&path, b"two").unwrap();
        assert_eq!(read_if_there(&path).unwrap().unwrap(), b"two");
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
