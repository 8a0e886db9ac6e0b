//! Counters and sizes of a store.

use crate::losses::LossCounts;
use crate::types::Revision;

/// Counters and sizes of a store, each exact at some moment during the call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Newest published revision; 0 for an empty store.
    pub revision: Revision,
    /// Newest revision that is known durable.
    pub synced: Revision,
    /// Oldest revision at which the whole store can be read.
    pub oldest: Revision,
    /// Revision of the checkpoint that the next opening would begin with; 0 if there is no checkpoint.
    pub checkpoint: Revision,
    /// Keys that exist at `revision`.
    pub keys: u64,
    /// Versions of keys in the index, tombstones included.
    pub versions: u64,
    /// Writes whose time to live has not passed yet, including writes that later writes have replaced.
    pub expiring: u64,
    /// Keys deleted because of their expiry since the store was opened.
    pub expired: u64,
    /// Number of segment files.
    pub segments: u64,
    /// Size of all segment files in bytes, including the part not yet written, most of which takes no room on
    /// disk.
    pub segment_bytes: u64,
    /// Bytes of all records, including segment headers and records that no reader can reach.
    pub record_bytes: u64,
    /// Bytes of the records that readers can reach, history included.
    pub live_bytes: u64,
    /// The part of `live_bytes` that is history: states and deletes that are not the newest state of a key that
    /// exists. [`Options::history_bytes_max`](crate::Options::history_bytes_max) limits these bytes.
    pub retained_bytes: u64,
    /// Bytes of the records that no reader can reach; reclamation frees them over time.
    pub dead_bytes: u64,
    /// Bytes that reclamation has copied since the store was opened.
    pub rewritten_bytes: u64,
    /// Batches written since the store was opened; `commits / batches` is the gain of group commit.
    pub batches: u64,
    /// Writes committed since the store was opened.
    pub commits: u64,
    /// Revisions whose records, including their keys, were found damaged when the store was opened.
    pub lost_revisions: u64,
    /// Revisions and records that cannot be read and are not accepted as lost.
    pub unaccepted: LossCounts,
    /// Pages of segments that the disk could not read when a reader accessed them. Records in these pages
    /// read as damaged.
    pub unreadable_pages: u64,
    /// Number of existing tails.
    pub tails: u64,
}
