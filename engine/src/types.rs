//! The words of the public interface: what a caller writes, what it gets back, and the limits on both.
//!
//! Keys are ordered bytes; attributes and values are opaque bytes. Nothing here knows what they mean.

use std::fmt;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::bloom::BloomScheme;
use crate::losses::LossCounts;
use crate::seal::Seal;
use crate::snapshot::Entry;

/// Longest key, in bytes. A name of 253 bytes in a namespace of 63 under a group and resource of 253 each fits
/// with room to spare, and a tree node of 64 such keys still is only 64 KiB.
pub const KEY_BYTES_MAX: usize = 1024;

/// Most attributes of one record, in bytes. Attributes are what list filters read (labels and selectable
/// fields); they are bounded by the object they come from, and an object may carry 256 KiB of annotations and
/// labels together.
pub const ATTRIBUTES_BYTES_MAX: usize = 256 * 1024;

/// Largest value of one record, in bytes, before its stamp. Requests are limited to 3 MiB; stored forms grow by
/// defaults and managed fields, and twice the request and a bit is more than they ever take.
pub const VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Smallest segment size honoured. Below this, file creation would dominate writing.
pub const SEGMENT_BYTES_MIN: u64 = 64 * 1024;

/// Largest segment size honoured. Space is given back by whole segments, so a larger one would keep dead bytes
/// for long; record offsets would allow 32 GiB.
pub const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Segment size when the caller has no opinion: 64 MiB is about 18 000 typical records.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;

/// Most records in one call of [`Engine::apply`](crate::Engine::apply). A transaction of etcd has at most 128 operations
/// unless it is configured otherwise, but one of them may delete a range of keys.
pub const APPLIED_RECORDS_MAX: usize = 65_536;

/// Most bytes of attributes and values in one call of [`Engine::apply`](crate::Engine::apply): half of what may wait for
/// the sequencer.
pub const APPLIED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of the store; made (mode 0700) when absent.
    pub dir: PathBuf,
    /// Size of new segment files in bytes, brought into
    /// [`SEGMENT_BYTES_MIN`]`..=`[`SEGMENT_BYTES_MAX`]. Existing segments keep theirs.
    pub segment_bytes: u64,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// How long what was can still be read and followed: states and events older than this are forgotten in the
    /// background. Zero keeps the present only, `Duration::MAX` everything.
    pub history_retention: Duration,
    /// How states are signed for filtered scans ([`Scan::filtered`](crate::Scan::filtered)).
    pub bloom_scheme: BloomScheme,
    /// Where revisions come from.
    pub role: Role,
    /// How values are sealed and opened, if any are.
    pub seal: Option<Arc<dyn Seal>>,
    /// How much of the disk is kept back at most, as files in the directory, for deletes and essential writes when the disk
    /// is full; twice a segment at most. Room for a copy of one segment, which reclamation needs, comes on top of it, and new
    /// segments are no larger than a 32nd of the disk. 0: nothing is kept back, and segments have the configured size.
    pub reserve_bytes: u64,
}

impl Options {
    /// A durable store in `dir` with segments of the default size that forgets nothing and signs nothing.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        Options {
            dir: dir.into(),
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            durability: Durability::Sync,
            history_retention: Duration::MAX,
            bloom_scheme: BloomScheme::default(),
            role: Role::Leader,
            seal: None,
            reserve_bytes: 0,
        }
    }
}

/// Place of a committed write in the store's one order. The first write has revision 1; revisions are never reused.
///
/// [`Revision::ZERO`] is the empty store, before the first write.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Revision(u64);

impl Revision {
    /// Before the first write.
    pub const ZERO: Revision = Revision(0);
    /// Of the first write.
    pub const FIRST: Revision = Revision(1);
    /// Not before any write.
    pub const MAX: Revision = Revision(u64::MAX);

    /// The revision with that number.
    pub const fn new(number: u64) -> Revision {
        Revision(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision of the write after this one.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// The revision before this one; [`Revision::ZERO`] has none before it and gives itself.
    #[must_use]
    pub const fn before(self) -> Revision {
        Revision(self.0.saturating_sub(1))
    }

    /// How many revisions there are after `earlier` up to this one; 0 when it is not later.
    pub const fn since(self, earlier: Revision) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl FromStr for Revision {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Revision, ParseIntError> {
        text.parse().map(Revision)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a write was committed: milliseconds since 1970, not less than of the write before.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct CommitTime(u64);

impl CommitTime {
    /// Of an empty store.
    pub const ZERO: CommitTime = CommitTime(0);
    /// The first that has no place in a record.
    pub const END: CommitTime = CommitTime(1 << 48);

    /// The time that many milliseconds after the beginning of 1970.
    pub const fn from_ms(ms: u64) -> CommitTime {
        CommitTime(ms)
    }

    /// Milliseconds since 1970.
    pub const fn ms(self) -> u64 {
        self.0
    }
}

/// Number of a segment, which its file is named by. Numbers are given in order and never again.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct SegmentNumber(u32);

impl SegmentNumber {
    /// Before the first segment.
    pub const NONE: SegmentNumber = SegmentNumber(0);
    /// Of the first segment.
    pub const FIRST: SegmentNumber = SegmentNumber(1);

    /// The number as it is in a file.
    pub const fn new(number: u32) -> SegmentNumber {
        SegmentNumber(number)
    }

    /// As it is in a file.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number that is given after this one.
    #[must_use]
    pub const fn next(self) -> SegmentNumber {
        SegmentNumber(self.0 + 1)
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the revisions of a store come from. A store may be opened in another role than before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Role {
    /// The store assigns them to writes ([`Engine::commit`](crate::Engine::commit)), one to each, without gaps.
    #[default]
    Leader,
    /// They come with the records ([`Engine::apply`](crate::Engine::apply)); the store deletes nothing by itself.
    Follower,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// After its bytes are on stable storage. A crash of the machine loses nothing that was acknowledged.
    #[default]
    Sync,
    /// After its bytes were handed to the operating system; they are synced in the background soon after. A
    /// crash of the process loses nothing, **a crash of the machine loses the last acknowledged writes** (those
    /// since the last background sync, usually some milliseconds).
    Relaxed,
    /// As `Relaxed`, but synced once a second: for a follower, which is sent again what a crash of the machine takes.
    Replicated,
}

/// One proposed write.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key written, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
    /// What must hold for the key at the moment the write gets its revision.
    pub expected: Expected,
    /// What becomes of the key.
    pub change: Change,
}

/// The condition of a write, checked against the newest state including writes earlier in the same batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// No condition. (A delete still needs something to delete.)
    Any,
    /// The key must not exist.
    Absent,
    /// The key must exist and its newest state must carry this revision.
    Revision(Revision),
}

/// What becomes of a key.
#[derive(Clone, Debug)]
pub enum Change {
    /// The key has this state from now on.
    Put(Payload),
    /// The key is gone from now on. The record keeps a final state, stamped with the deletion's own revision:
    /// the given one, or for `None` the newest stored one with its stamp replaced. On a full disk the record keeps no
    /// state: readers of the delete get the newest stored one with its stamp replaced, in either case.
    Delete(Option<Payload>),
}

impl Change {
    /// Whether it is to be taken on a full disk.
    pub(crate) fn is_essential(&self) -> bool {
        match self {
            Change::Put(payload) => payload.essential,
            Change::Delete(_) => true,
        }
    }

    /// Bytes of attributes and value that it carries.
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Change::Put(payload) | Change::Delete(Some(payload)) => {
                payload.attributes.len() + payload.value.len()
            }
            Change::Delete(None) => 0,
        }
    }
}

/// The state a write carries.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// Opaque bytes kept beside the value, at most [`ATTRIBUTES_BYTES_MAX`].
    pub attributes: Bytes,
    /// Opaque bytes, at most [`VALUE_BYTES_MAX`].
    pub value: Bytes,
    /// Byte offset in `value` at which the record's own revision is inserted, in decimal without leading
    /// zeros: `{"v":""}` with `stamp_at: Some(6)` is stored as `{"v":"42"}` by the write with revision 42.
    /// At most `value.len()`.
    pub stamp_at: Option<u32>,
    /// How long after the commit the key is deleted, unless it is written again before: the next write's time to
    /// live counts then, or that it has none. Full seconds, rounded up. Of no meaning in a delete.
    pub ttl: Option<Duration>,
    /// The write is taken on a full disk, as deletes are, as long as the reserve lasts ([`Options::reserve_bytes`]).
    pub essential: bool,
}

/// A record whose revision was given elsewhere, as a follower is handed it.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its revision: greater than the store's newest, and not less than that of the record before it in the batch.
    /// Records of one revision are one transaction, in one batch, each about another key.
    pub revision: Revision,
    /// The revision of the put that made the key exist: the key's own where it exists, and at most `revision`.
    pub created: Revision,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
    /// What became of it. A time to live is kept, and counts once the store is opened as a [`Role::Leader`]: until then the end
    /// of it comes as a delete.
    pub change: Change,
}

impl Applied {
    /// Bytes of attributes and value.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.change.payload_bytes()
    }
}

/// A write that took place.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The revision it got.
    pub revision: Revision,
    /// Reads back the stored, stamped bytes; for a delete, the final state.
    pub entry: Entry,
}

/// A stretch of the key space, half open: `start` belongs to it, `end` does not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Bytes,
    /// First key after the range; `None` reaches to the end of the key space.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// Every key that begins with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        // The first key after all of them: the prefix with its last byte below 0xff raised by one.
        let end = prefix.iter().rposition(|&b| b != 0xff).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bytes::from(end)
        });
        KeyRange { start: Bytes::copy_from_slice(prefix), end }
    }

    /// The keys of this range that are `key` or greater.
    pub fn from(mut self, key: &[u8]) -> KeyRange {
        if key > &self.start[..] {
            self.start = Bytes::copy_from_slice(key);
        }
        self
    }

    /// The keys of this range that are greater than `key`: where a scan that ended with `key` goes on.
    pub fn after(self, key: &[u8]) -> KeyRange {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        self.from(&next)
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }
}

/// Numbers about a store, each exact at some moment during the call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Newest published revision; 0 for an empty store.
    pub revision: Revision,
    /// Newest revision known to be on stable storage.
    pub synced: Revision,
    /// Lowest revision at which the whole store can be read.
    pub oldest: Revision,
    /// Revision of the checkpoint that opening would begin with; 0: there is none.
    pub checkpoint: Revision,
    /// Keys that exist at `revision`.
    pub keys: u64,
    /// States of keys that the index knows, deletes included.
    pub versions: u64,
    /// Writes with a time to live that is not over, replaced ones included.
    pub expiring: u64,
    /// Keys deleted since the store was opened because their time was over.
    pub expired: u64,
    /// Segment files.
    pub segments: u64,
    /// Bytes of all segment files, including the part not yet written, most of which takes no room on disk.
    pub segment_bytes: u64,
    /// Bytes of all records, headers and records that no reader can reach included.
    pub record_bytes: u64,
    /// Bytes of the records that readers can reach; the rest is given back in time.
    pub live_bytes: u64,
    /// Bytes that giving space back has copied since the store was opened.
    pub rewritten_bytes: u64,
    /// Batches written since the store was opened; `commits / batches` is the gain of group commit.
    pub batches: u64,
    /// Writes committed since the store was opened.
    pub commits: u64,
    /// Revisions whose record was found damaged beyond its key when the store was opened.
    pub lost_revisions: u64,
    /// Revisions and records that cannot be read and that nobody has accepted as lost.
    pub unaccepted: LossCounts,
    /// Pages of segments that the disk could not read when a reader looked at them. Records in them read as damaged.
    pub unreadable_pages: u64,
    /// Tails that exist.
    pub tails: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_ends_at_the_first_key_after_the_prefix() {
        for (prefix, end) in [
            (&b"/a/"[..], Some(&b"/a0"[..])),
            (b"a\xff", Some(b"b")),
            (b"a\xff\xff", Some(b"b")),
            (b"\xff", None),
            (b"", None),
        ] {
            let range = KeyRange::prefix(prefix);
            assert_eq!(range.end.as_deref(), end, "{prefix:?}");
            assert!(range.contains(prefix));
        }
    }

    #[test]
    fn a_resumed_range_starts_right_after_the_last_key_seen() {
        let range = KeyRange::prefix(b"/a/").after(b"/a/x");
        assert!(!range.contains(b"/a/x"));
        assert!(range.contains(b"/a/x\0"));
        // A key before the range does not widen it.
        assert_eq!(KeyRange::prefix(b"/a/").after(b"/").start, &b"/a/"[..]);
    }
}
