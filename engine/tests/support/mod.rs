//! Helpers shared by the engine's integration tests: a temporary directory, pseudo-random numbers, short
//! writes.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use engine::{Change, CommitError, Committed, Durability, Engine, Entry, Expected, Options, Payload, Write};
#[allow(unused_imports, reason = "each test binary uses its own part")]
pub use testkit::Random;

/// A temporary directory for the files of a store.
pub struct TempDir(testkit::TempDir);

impl TempDir {
    pub fn new() -> TempDir {
        TempDir(testkit::TempDir::new())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the segment files, oldest first.
    pub fn segments(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "segment")).collect();
        files.sort();
        files
    }

    /// Returns the checkpoint files.
    pub fn checkpoints(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "checkpoint")).collect()
    }

    /// Removes the checkpoints, so that the log must be read.
    pub fn remove_checkpoints(&self) {
        self.checkpoints().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

pub fn options(temp: &TempDir, segment_bytes: u64, durability: Durability) -> Options {
    Options { segment_bytes, durability, ..Options::new(temp.path()) }
}

/// Opens a store with small segments, so that tests use several of them.
pub fn open(temp: &TempDir) -> Engine {
    Engine::open(options(temp, 256 * 1024, Durability::Sync)).unwrap()
}

pub fn payload(value: &str) -> Payload {
    Payload { value: Bytes::copy_from_slice(value.as_bytes()), ..Payload::default() }
}

pub async fn commit(
    engine: &Engine,
    key: &str,
    expected: Expected,
    change: Change,
) -> Result<Committed, CommitError> {
    engine.commit(Write { key: Bytes::copy_from_slice(key.as_bytes()), expected, change }).await
}

pub async fn put(engine: &Engine, key: &str, value: &str) -> Result<Committed, CommitError> {
    put_if(engine, key, Expected::Any, value).await
}

pub async fn put_if(
    engine: &Engine,
    key: &str,
    expected: Expected,
    value: &str,
) -> Result<Committed, CommitError> {
    commit(engine, key, expected, Change::Put(payload(value))).await
}

pub async fn delete(engine: &Engine, key: &str) -> Result<Committed, CommitError> {
    commit(engine, key, Expected::Any, Change::Delete(None)).await
}

pub fn value(entry: &Entry) -> String {
    String::from_utf8(entry.read().unwrap().value.to_vec()).unwrap()
}
