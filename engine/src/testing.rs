//! Helpers shared by this crate's own tests: a temporary directory, pseudo-random numbers, and headers of
//! segments.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::header::{Header, Numbering, Rewritten};
use crate::types::{Revision, SegmentNumber};

/// The header of a segment as the log writes it.
pub(crate) const HEADER: Header = Header {
    number: SegmentNumber::new(7),
    after: SegmentNumber::new(6),
    first_revision: Revision::new(100),
    salt: 99,
    store: 55,
    numbering: Numbering::Dense,
    rewritten: None,
};

/// The header of a rewritten segment.
pub(crate) const REWRITTEN: Header = Header {
    rewritten: Some(Rewritten {
        last_revision: Revision::new(200),
        oldest: Revision::new(250),
        records: 3,
        end: 5_000,
        tombstone_bytes: 80,
        tombstones_since: Revision::new(90),
    }),
    ..HEADER
};

/// A new directory that is removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("engine-test-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Pseudo-random numbers from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

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
