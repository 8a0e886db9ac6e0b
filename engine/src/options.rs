//! Settings for opening a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::bloom::BloomScheme;
use crate::seal::Seal;
use crate::types::{Durability, Role, SEGMENT_BYTES_DEFAULT};

/// Settings for opening a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the store; created with mode 0700 if it does not exist.
    pub dir: PathBuf,
    /// Size of new segment files in bytes, between [`SEGMENT_BYTES_MIN`](crate::SEGMENT_BYTES_MIN) and
    /// [`SEGMENT_BYTES_MAX`](crate::SEGMENT_BYTES_MAX). Existing segments keep their size.
    pub segment_bytes: u64,
    /// The moment at which the store acknowledges a write.
    pub durability: Durability,
    /// The time for which history stays readable: the store compacts older states and events in the
    /// background. Zero keeps only the newest states, `Duration::MAX` keeps everything.
    pub history_retention: Duration,
    /// Maximum bytes of history, within `history_retention`: if the records of history take more bytes, the store
    /// compacts the oldest history in the background. The newest states of keys do not count. `u64::MAX` means no
    /// limit; any other limit is reduced to a fourth of the disk if it is larger. The limit is kept with a precision of
    /// 128 KiB, or of two records if they are larger, and is exceeded while writers are faster than compaction.
    pub history_bytes_max: u64,
    /// The Bloom filters of states, for filtered scans ([`RangeScan::filtered`](crate::RangeScan::filtered)).
    pub bloom_scheme: BloomScheme,
    /// Whether this store assigns revisions or follows another store.
    pub role: Role,
    /// The seal for values; `None` stores the values unchanged.
    pub seal: Option<Arc<dyn Seal>>,
    /// Maximum disk space kept back, as files in the directory, for deletes and essential writes when the
    /// disk is full; limited to twice the segment size. In addition, room for a copy of one segment, which
    /// reclamation needs, is kept back, and new segments are no larger than 1/32 of the disk. 0 means that
    /// nothing is kept back and that segments have the configured size.
    pub reserve_bytes: u64,
    /// The clock for commit times, expiry and retention; `None` for the clock of the machine. This clock may stand
    /// still and jump ([`Engine::clock_moved`](crate::Engine::clock_moved)); commit times never go back. The pace of
    /// background maintenance follows the clock of the machine.
    pub clock: Option<fn() -> SystemTime>,
}

impl Options {
    /// Returns the options of a durable store in `dir` with segments of the default size, without compaction
    /// and without Bloom filters.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            durability: Durability::Sync,
            history_retention: Duration::MAX,
            history_bytes_max: u64::MAX,
            bloom_scheme: BloomScheme::default(),
            role: Role::Leader,
            seal: None,
            reserve_bytes: 0,
            clock: None,
        }
    }
}
