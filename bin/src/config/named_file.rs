//! Files that are named in flags and read at the start.

use std::path::PathBuf;

use crate::host::files::{self, opening};

/// A file that is read at the start.
#[derive(Clone, Debug)]
pub struct NamedFile {
    /// Path of the file, for messages and for reading it again.
    pub path: PathBuf,
    /// Contents of the file at the start.
    pub bytes: Vec<u8>,
}

/// Reads a file. If the file cannot be opened, the error has the message of kube-apiserver.
///
/// # Errors
/// The file cannot be read.
pub fn named(path: PathBuf) -> anyhow::Result<NamedFile> {
    let bytes = files::read(&path).map_err(|error| opening(&path, &error))?;
    Ok(NamedFile { path, bytes })
}
