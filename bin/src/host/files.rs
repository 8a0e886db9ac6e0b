//! Small files that are replaced in one step: written under a temporary name, then renamed.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, anyhow};

/// Creates a directory and its parents, readable only by the owner; an existing directory is left unchanged.
pub fn private_dir(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create directory {}", path.display()))
}

/// Maximum size of a file that flags and configuration files name. Bundles of certificates and lists of
/// tokens are far smaller; the limit stops reads of endless devices such as `/dev/zero`.
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
    // Devices and pipes report no length, so the read itself is limited.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        Err(io::Error::new(io::ErrorKind::FileTooLarge, TooLong))
    } else {
        Ok(bytes)
    }
}

/// Returns the file's bytes, or `None` if it does not exist.
pub fn read_if_there(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the file by these bytes, readable only by its owner. After a crash the file has either its old or
/// its new contents; [`sync_dir`] makes the new ones durable. A file that already has these bytes is not
/// written. Returns whether the file was replaced.
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
    // A temporary file that a crash left may be incomplete or have another mode.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    // The sync must come before the rename: otherwise a crash could leave an empty file under the final name.
    file.sync_data()?;
    fs::rename(&beside, path)
}

/// Syncs the directory `path`, which makes earlier replacements in it durable.
pub fn sync_dir(path: &Path) -> anyhow::Result<()> {
    let sync = || fs::File::open(path)?.sync_all();
    sync().with_context(|| format!("cannot sync {}", path.display()))
}

/// Formats an error of opening a file as Go does.
pub fn opening(path: &Path, error: &io::Error) -> anyhow::Error {
    let why = match error.kind() {
        // Go can open a directory, but not read it.
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
    //! A directory that lives as long as its test.
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    pub struct Scratch(PathBuf);

    impl Scratch {
        pub fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("cluster-bin-{}-{count}", std::process::id()));
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
    fn a_file_without_end_is_refused() {
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
    fn files_are_private_replaced_whole_and_left_alone_when_equal() {
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
