//! Types of the public interface: writes, their results, and the limits on both.
//!
//! Keys are ordered bytes. Attributes and values are opaque bytes, which the engine does not interpret.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

/// Maximum length of a key, in bytes. A name of 253 bytes in a namespace of 63 bytes under a group and a
/// resource of 253 bytes each fits with room to spare, and a tree node of 64 such keys still takes only 64
/// KiB.
pub const KEY_BYTES_MAX: usize = 1024;

/// Maximum size of the attributes of one record, in bytes. List filters read the attributes (labels and
/// selectable fields). The size of the attributes is bounded by the object they come from, and an object may
/// carry 256 KiB of annotations and labels together.
pub const ATTRIBUTES_BYTES_MAX: usize = 256 * 1024;

/// Maximum size of a record's value, in bytes, before the stamp is inserted. Requests are limited to 3 MiB.
/// Defaults and managed fields make the stored form larger, but it has at most a little more than twice the
/// bytes of the request.
pub const VALUE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Minimum segment size; smaller sizes are raised to it. Below this size, creating files would take more time
/// than writing.
pub const SEGMENT_BYTES_MIN: u64 = 64 * 1024;

/// Maximum segment size; larger sizes are lowered to it. Reclamation frees whole segments, so a larger
/// segment would keep dead bytes for long. Record offsets would allow 32 GiB.
pub const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// Default segment size: 64 MiB holds about 18 000 typical records.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 * 1024 * 1024;

/// Maximum number of records in one call of [`Engine::apply`](crate::Engine::apply). A transaction of etcd
/// has at most 128 operations unless it is configured otherwise, but a single operation may delete a range of
/// keys.
pub const APPLIED_RECORDS_MAX: usize = 65_536;

/// Maximum bytes of attributes and values in one call of [`Engine::apply`](crate::Engine::apply): half of the
/// bytes that may wait for the sequencer.
pub const APPLIED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Exclusive upper limit of revisions: far more than can ever be written, so arithmetic on revisions cannot
/// overflow.
pub(crate) const REVISION_END: Revision = Revision::new(1 << 62);

/// Position of a committed write in the store's single order. The first write has revision 1; revisions are
/// never reused.
///
/// [`Revision::ZERO`] is the empty store, before the first write.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Revision(u64);

impl Revision {
    /// The revision of the empty store, before the first write.
    pub const ZERO: Revision = Revision(0);
    /// The revision of the first write.
    pub const FIRST: Revision = Revision(1);
    /// The highest revision, which no write reaches.
    pub const MAX: Revision = Revision(u64::MAX);

    /// Returns the revision with the given number.
    pub const fn new(number: u64) -> Revision {
        Revision(number)
    }

    /// Returns the number of the revision.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the revision of the write after this one.
    #[must_use]
    pub const fn next(self) -> Revision {
        Revision(self.0 + 1)
    }

    /// Returns the revision before this one. [`Revision::ZERO`] returns itself.
    #[must_use]
    pub const fn before(self) -> Revision {
        Revision(self.0.saturating_sub(1))
    }

    /// Returns the number of revisions after `earlier` up to and including this one; 0 if this one is not
    /// later.
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

/// Time of a commit, in milliseconds since 1970; never lower than the time of the previous write.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct CommitTime(u64);

impl CommitTime {
    /// The time of an empty store.
    pub const ZERO: CommitTime = CommitTime(0);
    /// The first time that does not fit into the 48 bits of a record.
    pub const END: CommitTime = CommitTime(1 << 48);

    pub const fn from_ms(ms: u64) -> CommitTime {
        CommitTime(ms)
    }

    pub const fn ms(self) -> u64 {
        self.0
    }
}

/// Number of a segment, from which the name of its file is made. Numbers are given in ascending order and
/// never reused.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct SegmentNumber(u32);

impl SegmentNumber {
    /// The number before the number of the first segment.
    pub const NONE: SegmentNumber = SegmentNumber(0);
    /// The number of the first segment.
    pub const FIRST: SegmentNumber = SegmentNumber(1);

    pub const fn new(number: u32) -> SegmentNumber {
        SegmentNumber(number)
    }

    pub const fn get(self) -> u32 {
        self.0
    }

    #[must_use]
    pub const fn next(self) -> SegmentNumber {
        SegmentNumber(self.0 + 1)
    }

    #[must_use]
    pub const fn before(self) -> SegmentNumber {
        SegmentNumber(self.0.saturating_sub(1))
    }
}

impl fmt::Display for SegmentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Source of a store's revisions. A store may be opened in another role than before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Role {
    /// The store assigns the revisions, one to each write ([`Engine::commit`](crate::Engine::commit)),
    /// without gaps.
    #[default]
    Leader,
    /// The revisions come with the records ([`Engine::apply`](crate::Engine::apply)); the store deletes
    /// nothing by itself.
    Follower,
}

/// Moment at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// A write is acknowledged after its bytes are on stable storage. A crash of the machine loses no
    /// acknowledged write.
    #[default]
    Sync,
    /// A write is acknowledged after its bytes were handed to the operating system; the store syncs them in
    /// the background soon after. A crash of the process loses nothing, but **a crash of the machine loses
    /// the last acknowledged writes**: the writes since the last background sync, usually of some
    /// milliseconds.
    Relaxed,
    /// As with `Relaxed`, but the store syncs once a second. This mode is for a follower, which reads again
    /// the records that a crash of the machine loses.
    Replicated,
}

/// A proposed write to one key.
#[derive(Clone, Debug)]
pub struct Write {
    /// The key to write, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
    /// The condition that must hold for the key when the write gets its revision.
    pub expected: Expected,
    /// The new state of the key.
    pub change: Change,
}

/// The condition of a write, checked against the newest state, which includes writes earlier in the same
/// batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// No condition. (A delete still fails if the key does not exist.)
    Any,
    /// The key must not exist.
    Absent,
    /// The key must exist and its newest state must carry this revision.
    Revision(Revision),
}

/// The new state of a key.
#[derive(Clone, Debug)]
pub enum Change {
    /// The key has this state from now on.
    Put(Payload),
    /// The key is deleted. The record keeps a final state, stamped with the deletion's own revision: the
    /// given state, or for `None` the newest stored state with its stamp replaced. On a full disk the record
    /// keeps no state, even if a state is given; readers of the delete then get the newest stored state with
    /// its stamp replaced.
    Delete(Option<Payload>),
    /// The key is deleted as by `Delete(None)`, and the record has these attributes in place of the stored
    /// ones. Writers that store attributes of the delete itself use this variant.
    DeleteStored(Bytes),
}

impl Change {
    /// Returns whether the write is accepted on a full disk.
    pub(crate) fn is_essential(&self) -> bool {
        match self {
            Change::Put(payload) => payload.essential,
            Change::Delete(_) | Change::DeleteStored(_) => true,
        }
    }

    /// Returns the number of bytes of attributes and value in this change.
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Change::Put(payload) | Change::Delete(Some(payload)) => {
                payload.attributes.len() + payload.value.len()
            }
            Change::Delete(None) => 0,
            Change::DeleteStored(attributes) => attributes.len(),
        }
    }
}

/// State of a key as a write carries it.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// Opaque bytes kept next to the value, at most [`ATTRIBUTES_BYTES_MAX`].
    pub attributes: Bytes,
    /// Opaque bytes of the state, at most [`VALUE_BYTES_MAX`].
    pub value: Bytes,
    /// Byte offset in `value` at which the store inserts the record's own revision, in decimal without
    /// leading zeros: the write with revision 42 stores `{"v":""}` with `stamp_at: Some(6)` as `{"v":"42"}`.
    /// At most `value.len()`.
    pub stamp_at: Option<u32>,
    /// Time after the commit at which the store deletes the key, rounded up to full seconds. A later write of
    /// the key replaces this time, even if that write has no time to live. Ignored in a delete.
    pub ttl: Option<Duration>,
    /// Whether the write is accepted on a full disk, as deletes are, as long as the reserve lasts
    /// ([`Options::reserve_bytes`](crate::Options::reserve_bytes)).
    pub essential: bool,
}

/// A record whose revision another store assigned, as handed to a follower.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Revision of the record: greater than the newest revision of the store, and not lower than the revision
    /// of the previous record in the batch. Records of one revision form one transaction; they are in one
    /// batch, and each has a different key.
    pub revision: Revision,
    /// The revision of the put that created the key. If the key exists, this is the created revision in the
    /// store. The value is at most `revision`.
    pub created: Revision,
    /// The key, 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: Bytes,
    /// The new state of the key. A time to live is stored but has no effect until the store is opened as a
    /// [`Role::Leader`]; until then the expiry of a key arrives as a delete from the other store.
    pub change: Change,
}

impl Applied {
    pub(crate) fn payload_bytes(&self) -> usize {
        self.change.payload_bytes()
    }
}

/// A half-open range of keys: the range includes `start` and excludes `end`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Bytes,
    /// First key after the range; `None` extends the range to the end of the key space.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// Returns the range of all keys.
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// Returns the range of all keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        // The range ends at the prefix with its last byte below 0xff raised by one: the first key after all
        // keys with the prefix.
        let end = prefix.iter().rposition(|&b| b != 0xff).map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bytes::from(end)
        });
        KeyRange { start: Bytes::copy_from_slice(prefix), end }
    }

    /// Returns the keys of this range that are `key` or greater.
    pub fn from(mut self, key: &[u8]) -> KeyRange {
        if key > &self.start[..] {
            self.start = Bytes::copy_from_slice(key);
        }
        self
    }

    /// Returns the keys of this range that are greater than `key`, to resume a scan that ended with `key`.
    pub fn after(self, key: &[u8]) -> KeyRange {
        let mut next = Vec::with_capacity(key.len() + 1);
        next.extend_from_slice(key);
        next.push(0);
        self.from(&next)
    }

    /// Returns whether `key` lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }
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
        // A key before the range does not widen the range.
        assert_eq!(KeyRange::prefix(b"/a/").after(b"/").start, &b"/a/"[..]);
    }
}
