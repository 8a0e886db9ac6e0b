//! Read-only access to files for a reader that does not own the store, by `pread`.
//!
//! Unlike the engine, these tools do not map files: a mapping shows zeros when the disk fails or a file
//! becomes shorter, and the tools must report such failures. An open file stays readable after its name is
//! removed, so reclamation does not disturb a reader.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

use crate::io::{File, LOCK_NAME};
use crate::platform::{self, cannot_lock_directories, written_stretch};

/// A file opened for reading.
pub(super) struct ReadFile {
    file: fs::File,
    size: u64,
}

impl ReadFile {
    /// Opens a regular file.
    pub fn open(path: &Path) -> io::Result<ReadFile> {
        // A pipe may have the name of a segment.
        let file = platform::open_without_waiting(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(ReadFile { size: metadata.len(), file })
    }
}

impl File for ReadFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading"))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        // The length may come from a file that was made to exhaust memory.
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        bytes.resize(len, 0);
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn written(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        written_stretch(&self.file, self.size, offset)
    }
}

/// Returns whether an engine has the store in `dir` open. Takes a shared lock for a moment to find out.
pub(super) fn is_in_use(dir: &Path) -> io::Result<bool> {
    match fs::File::open(dir).and_then(|directory| is_locked(&directory)) {
        Ok(false) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if cannot_lock_directories(&error) => {}
        other => return other,
    }
    // Earlier releases lock this file instead of the directory.
    match ReadFile::open(&dir.join(LOCK_NAME)) {
        Ok(lock) => is_locked(&lock.file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns whether another open file has an exclusive lock on `file`.
fn is_locked(file: &fs::File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(fs::TryLockError::WouldBlock) => Ok(true),
        Err(fs::TryLockError::Error(error)) => Err(error),
    }
}
