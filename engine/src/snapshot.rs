//! Read views pinned at one revision, and the entries that they return.
//!
//! A snapshot is a root and a revision. A snapshot never changes, holds no lock and never blocks a writer,
//! however long it lives, but it keeps the nodes of its root and the segments they point into.

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::bloom::BloomQuery;
use crate::error::ReadError;
use crate::header::RECORDS_START;
use crate::history::Version;
use crate::index::{self, Cursor, Tree};
use crate::log::Segments;
use crate::record::{self, Head, Record, STAMP_BYTES_MAX, Stamp};
use crate::seal;
use crate::segment::Segment;
use crate::types::{KeyRange, Revision};

/// A published version of the store.
pub(crate) struct Root {
    /// The newest revision in this root.
    pub revision: Revision,
    /// The lowest revision at which everything can be read.
    pub oldest: Revision,
    pub tree: Tree,
    pub segments: Segments,
    /// Offset at which the records of the last segment end.
    pub end: u64,
}

impl Root {
    /// Returns the offset at which the records of `segment` end. The segment must be part of the log.
    pub fn end_of(&self, segment: &Segment) -> u64 {
        let last = self.segments.in_order().last();
        let is_last = last.is_some_and(|last| last.header.number == segment.header.number);
        if is_last { self.end } else { segment.end() }
    }

    /// Returns the approximate number of bytes of records up to `revision`; 0 for revision 0.
    pub fn bytes_until(&self, revision: Revision) -> u64 {
        if revision == Revision::ZERO {
            return 0;
        }
        let older =
            self.segments.in_order().iter().filter(|segment| segment.header.first_revision <= revision);
        let whole: u64 = older.map(|segment| segment.record_bytes()).sum();
        let last = self.segments.starting_at(revision).first();
        let behind = last.filter(|_| revision < self.revision).map_or(0, |segment| {
            let marks = segment.marks_until(revision);
            segment.end() - marks.last().map_or(RECORDS_START, |mark| mark.offset)
        });
        whole - behind
    }

    /// Returns the entry for a version of a key.
    pub fn entry(&self, key: Bytes, version: Version) -> Option<Entry> {
        // A root never points into a segment that it does not list.
        self.segments.entry(key, version)
    }
}

/// A read view of the store pinned at one revision.
#[derive(Clone)]
pub struct Snapshot {
    root: Arc<Root>,
    revision: Revision,
}

impl Snapshot {
    pub(crate) fn new(root: Arc<Root>, revision: Revision) -> Snapshot {
        Snapshot { root, revision }
    }

    /// Returns the revision of this snapshot.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the state of `key`; `None` if the key does not exist at this revision.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        let version = *self.root.tree.at(key, self.revision).filter(|version| !version.is_delete())?;
        self.root.entry(Bytes::copy_from_slice(key), version)
    }

    /// Returns the existing keys of `range` with their states, in key order. To resume after a key, narrow
    /// the range with [`KeyRange::after`].
    pub fn range(&self, range: KeyRange) -> RangeScan {
        let cursor = self.root.tree.range(&range.start, range.end);
        RangeScan { root: self.root.clone(), revision: self.revision, cursor }
    }

    /// Returns [`Snapshot::range`] over the keys that begin with `prefix`.
    pub fn prefix(&self, prefix: &[u8]) -> RangeScan {
        self.range(KeyRange::prefix(prefix))
    }

    /// Returns the number of existing keys in `range`. If the snapshot was taken at the then newest revision,
    /// this takes one step per tree level; at an older revision ([`snapshot_at`](crate::Engine::snapshot_at))
    /// it walks over the range.
    pub fn count(&self, range: &KeyRange) -> u64 {
        if range.end.as_ref().is_some_and(|end| *end <= range.start) {
            return 0;
        }
        let tree = &self.root.tree;
        if self.revision == self.root.revision {
            let end = range.end.as_ref().map_or(tree.live(), |end| tree.live_before(end));
            return end - tree.live_before(&range.start);
        }
        let mut cursor = tree.range(&range.start, range.end.clone());
        let versions = std::iter::from_fn(|| cursor.next(self.revision));
        versions.filter(|(_, version)| !version.is_delete()).count() as u64
    }

    /// Returns [`Snapshot::count`] over the keys that begin with `prefix`.
    pub fn count_prefix(&self, prefix: &[u8]) -> u64 {
        self.count(&KeyRange::prefix(prefix))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Iterator over the entries of a range, in key order. Its memory does not grow with the range.
pub struct RangeScan {
    root: Arc<Root>,
    revision: Revision,
    cursor: Cursor,
}

impl Iterator for RangeScan {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let (key, version) = self.cursor.next(self.revision)?;
            if !version.is_delete() {
                return self.root.entry(key, version);
            }
        }
    }
}

impl RangeScan {
    /// Returns the entries whose Bloom filter passes `query`. False positives are possible.
    pub fn filtered(self, query: BloomQuery) -> FilteredScan {
        FilteredScan { scan: self, query }
    }
}

/// Maximum number of keys that a scan skips before it yields; about 30 µs of work.
const SKIPPED_MAX: usize = 4096;

/// Iterator over the entries of a range that pass a query, in key order. The iterator returns `Some` for each
/// entry, and `None` after a long stretch without one, so that a caller that finds few entries among many can
/// yield to other tasks.
pub struct FilteredScan {
    scan: RangeScan,
    query: BloomQuery,
}

impl Iterator for FilteredScan {
    type Item = Option<Entry>;

    fn next(&mut self) -> Option<Option<Entry>> {
        let RangeScan { root, revision, cursor } = &mut self.scan;
        loop {
            match cursor.next_match(*revision, &self.query, SKIPPED_MAX)? {
                index::FilterStep::Skipped => return Some(None),
                index::FilterStep::Match(_, version) if version.is_delete() => {}
                index::FilterStep::Match(key, version) => return root.entry(key, version).map(Some),
            }
        }
    }
}

/// A stored state of a key. Cheap to clone and to keep: the bytes are read on demand. An entry keeps its
/// segment.
#[derive(Clone)]
pub struct Entry {
    key: Bytes,
    version: Version,
    segment: Arc<Segment>,
    /// The state before this delete, if the delete may have been stored without a final state.
    ended: Option<Arc<Entry>>,
}

impl Entry {
    pub(crate) fn new(key: Bytes, version: Version, segment: Arc<Segment>) -> Entry {
        Entry { key, version, segment, ended: None }
    }

    /// Returns this entry with `previous` as the state before it. A delete that was stored without a final
    /// state shows the previous state, with the delete's own revision as the stamp.
    pub(crate) fn ending(self, previous: Option<&Entry>) -> Entry {
        let may_lack_state =
            self.version.is_delete() && self.version.len() == record::tombstone_len(self.key.len());
        let ended = previous.filter(|_| may_lack_state).map(|previous| Arc::new(previous.clone()));
        Entry { ended, ..self }
    }

    /// Returns the key of this entry.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the revision that wrote this state.
    pub fn revision(&self) -> Revision {
        self.version.revision
    }

    /// Returns the revision of the put that created the key. Deleting a key and writing it again creates it
    /// anew.
    pub fn created(&self) -> Revision {
        self.version.created
    }

    /// Returns the time at which the store deletes the key if it is not written again, in seconds since 1970;
    /// `None` if it does not expire.
    pub fn expires_s(&self) -> Option<u32> {
        (self.version.expires_s > 0).then_some(self.version.expires_s)
    }

    /// Returns the length of the stored record in bytes: a little more than key, attributes and value
    /// together.
    pub fn stored_len(&self) -> usize {
        self.ended.as_ref().map_or(self.version.len(), |ended| ended.stored_len().max(self.version.len()))
    }

    /// Reads the state and verifies its checksum. Copies nothing, unless the value was sealed or a delete was
    /// stored without a final state. May wait for the disk.
    pub fn read(&self) -> Result<Record, ReadError> {
        match self.without_state()? {
            None => self.read_with_head().map(|(_, record)| record),
            Some(ended) => ended.read_stamped(self.version.revision),
        }
    }

    /// Returns the previous state if this is a delete without a final state.
    fn without_state(&self) -> Result<Option<&Entry>, ReadError> {
        match &self.ended {
            Some(ended) if self.head()?.0.tombstone => Ok(Some(ended)),
            _ => Ok(None),
        }
    }

    /// Reads like [`Entry::read`], with `revision` in place of the stamp.
    fn read_stamped(&self, revision: Revision) -> Result<Record, ReadError> {
        let (head, record) = self.read_with_head()?;
        let Some(Stamp { offset, len }) = head.stamp else { return Ok(record) };
        let mut digits = [0; STAMP_BYTES_MAX];
        let mut value = BytesMut::with_capacity(record.value.len() + STAMP_BYTES_MAX);
        value.put_slice(&record.value[..offset]);
        value.put_slice(record::decimal(revision.get(), &mut digits));
        value.put_slice(&record.value[offset + len..]);
        Ok(Record { value: value.freeze(), ..record })
    }

    /// Calls `look` with the value, verified as by [`Entry::read`]. For callers that read many values and
    /// keep none of them: they do not touch reference counts that other readers share.
    pub fn with_value<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, ReadError> {
        if self.segment.seal().is_none()
            && self.ended.is_none()
            && let Some(bytes) = self.segment.file.in_memory(self.version.offset(), self.version.len())
        {
            let head = self.head_in(bytes).filter(|head| head.body_is_sound(bytes));
            return head.map(|head| look(head.value_in(bytes))).ok_or_else(|| self.damaged());
        }
        self.read().map(|record| look(&record.value))
    }

    /// Reads the attributes only and verifies their own checksum; the value is not read.
    pub fn attributes(&self) -> Result<Bytes, ReadError> {
        if let Some(ended) = self.without_state()? {
            return ended.attributes();
        }
        let (head, bytes) = self.head()?;
        if !head.attributes_are_sound(&bytes) {
            return Err(self.damaged());
        }
        Ok(head.attributes(&bytes))
    }

    pub(crate) fn read_with_head(&self) -> Result<(Head, Record), ReadError> {
        let (head, bytes) = self.head()?;
        if !head.body_is_sound(&bytes) {
            return Err(self.damaged());
        }
        let record = head.record(bytes);
        match self.segment.seal() {
            None => Ok((head, record)),
            Some(seal) => seal::open_sealed(seal, head, record)
                .map_err(|why| ReadError::Sealed { key: self.key.clone(), why }),
        }
    }

    /// Returns the record's bytes and its head. The head is verified and belongs to this entry; the rest is
    /// not verified yet.
    fn head(&self) -> Result<(Head, Bytes), ReadError> {
        let bytes = self.segment.file.read(self.version.offset(), self.version.len());
        let bytes = bytes.map_err(|_| self.damaged())?;
        self.head_in(&bytes).map(|head| (head, bytes)).ok_or_else(|| self.damaged())
    }

    /// Returns the head of the record in `bytes`; `None` if it is damaged or belongs to another record.
    fn head_in(&self, bytes: &[u8]) -> Option<Head> {
        Head::read(bytes, self.segment.header.salt, self.version.offset())
            .filter(|head| head.revision == self.version.revision && head.key(bytes) == &self.key[..])
    }

    fn damaged(&self) -> ReadError {
        self.segment.note_damaged(self.version.revision);
        ReadError::Damaged { key: self.key.clone(), revision: self.version.revision }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("revision", &self.version.revision)
            .field("created", &self.version.created)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::testing::TempDir;
    use crate::types::{Change, Expected, Options, Payload, Write};

    #[tokio::test]
    async fn a_value_that_is_looked_at_is_checked_as_one_that_is_read() {
        let dir = TempDir::new();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for key in ["/sound", "/damaged"] {
            let payload = Payload {
                attributes: Bytes::new(),
                value: Bytes::from(format!("value of {key}")),
                stamp_at: None,
                ttl: None,
                essential: false,
            };
            let change = Change::Put(payload);
            let write = Write { key: Bytes::from_static(key.as_bytes()), expected: Expected::Absent, change };
            engine.commit(write).await.unwrap();
        }
        let entry = |key: &str| engine.snapshot().get(key.as_bytes()).unwrap();
        let (sound, damaged) = (entry("/sound"), entry("/damaged"));
        let look = |entry: &Entry| entry.with_value(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(look(&sound).unwrap(), "value of /sound");
        assert_eq!(look(&damaged).unwrap(), "value of /damaged");

        for file in std::fs::read_dir(dir.path()).unwrap() {
            let path = file.unwrap().path();
            if Segment::number(&path.file_name().unwrap().to_string_lossy()).is_none() {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(17).position(|bytes| bytes == b"value of /damaged").unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"V", at as u64).unwrap();
        }
        assert_eq!(look(&sound).unwrap(), "value of /sound");
        for error in [look(&damaged).unwrap_err(), damaged.read().unwrap_err()] {
            assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
        }
    }
}
