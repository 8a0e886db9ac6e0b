//! Helpers shared by the engine's integration tests: a temporary directory, pseudo-random numbers, short
//! writes.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use engine::{Change, CommitError, Committed, Durability, Engine, Entry, Expected, Options, Payload, Write};

/// A new directory that is removed when dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("engine-it-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the segment files, oldest first.
    pub fn segments(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "segment")).collect();
        files.sort();
        files
    }

    /// Returns the checkpoint files.
    pub fn checkpoints(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "checkpoint")).collect()
    }

    /// Removes the checkpoints, so that the log must be read.
    pub fn remove_checkpoints(&self) {
        self.checkpoints().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Pseudo-random numbers from a seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
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
