//! Read views pinned at one revision.
//!
//! A snapshot is a root and a revision. A snapshot never changes, holds no lock and never blocks a writer,
//! however long it lives, but it keeps the nodes and the segments of its root.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::bloom::BloomQuery;
use crate::entry::Entry;
use crate::header::RECORDS_START;
use crate::history::{self, Version};
use crate::index::{self, Cursor, KeySlot, Tree};
use crate::segment::Segment;
use crate::segments::Segments;
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
        // The index of a root never refers to a segment that the root does not list.
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
        let version = self.root.tree.at(key, self.revision).filter(|version| !version.is_delete())?;
        self.root.entry(Bytes::copy_from_slice(key), version)
    }

    /// Returns the retained versions of `key` at or before `until`, newest first: at most `most`, deletes
    /// included. The last retained version is the state at the oldest readable revision; the version itself
    /// may have a lower revision. A delete has the final state of the key. Newer versions are skipped in a
    /// logarithmic number of steps.
    pub fn versions(&self, key: &[u8], until: Revision, most: usize) -> Vec<Entry> {
        let until = until.min(self.revision);
        let Some(slot) = self.root.tree.slot(key) else { return Vec::new() };
        let key = Bytes::copy_from_slice(key);
        let versions = history::from(&slot.newest, &slot.older, until);
        let entries = versions.filter_map(|version| self.root.entry(key.clone(), version));
        // A delete at the end may need the state of the version before it.
        let entries: Vec<Entry> = entries.take(most.saturating_add(1)).collect();
        let older = entries.iter().skip(1).map(Some).chain([None]);
        let ended = entries.iter().zip(older).map(|(entry, older)| entry.clone().ending(older));
        ended.take(most).collect()
    }

    /// Returns the existing keys of `range` with their states, in key order. To resume after a key, narrow
    /// the range with [`KeyRange::after`].
    pub fn range(&self, range: KeyRange) -> RangeScan {
        let cursor = self.root.tree.range(&range.start, range.end);
        RangeScan { root: self.root.clone(), revision: self.revision, cursor, is_reading: false }
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

/// A key whose state differs in two snapshots.
#[derive(Clone, Debug)]
pub struct ChangedKey {
    /// The key whose states differ.
    pub key: Bytes,
    /// The live state in the earlier snapshot, if the key existed.
    pub before: Option<Entry>,
    /// The live state in the later snapshot, if the key exists.
    pub after: Option<Entry>,
}

impl Snapshot {
    /// Returns the keys whose states have other revisions in `later`, in key order. Both snapshots must have been taken
    /// at the then newest revision. The call visits all nodes of both indexes, but reads only the keys of nodes that
    /// the snapshots do not share.
    pub fn changed_keys(&self, later: &Snapshot) -> Vec<ChangedKey> {
        let differences = self.root.tree.differences(&later.root.tree).into_iter();
        let changed = differences.map(|found| ChangedKey {
            before: found.before.and_then(|version| self.root.entry(found.key.clone(), version)),
            after: found.after.and_then(|version| later.root.entry(found.key.clone(), version)),
            key: found.key,
        });
        changed.collect()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Iterator over the entries of a range, in key order. The memory of the iterator does not grow with the
/// range.
pub struct RangeScan {
    root: Arc<Root>,
    revision: Revision,
    cursor: Cursor,
    /// Whether the caller will read the entries, so that the scan prefetches their records.
    is_reading: bool,
}

impl Iterator for RangeScan {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let (key, version) = self.cursor.next(self.revision)?;
            if !version.is_delete() {
                self.prefetch(|_| true);
                return self.root.entry(key, version);
            }
        }
    }
}

/// Number of entries between the entry that a scan returns and the entry whose record it prefetches. The memory needs
/// this much time, and the cache has room for this many records.
const PREFETCH_AHEAD: usize = 3;
/// Maximum bytes of a record that are prefetched. The processor recognizes a sequential read and loads the rest of a
/// longer record by itself.
const PREFETCH_BYTES_MAX: usize = 4096;

impl RangeScan {
    /// Returns the same scan for a caller that will read the entries: the scan then loads records into the processor's
    /// cache a few entries ahead. Records that were written at different times are far apart, so the processor cannot
    /// predict the position of the next record.
    #[must_use]
    pub fn reading_values(self) -> RangeScan {
        RangeScan { is_reading: true, ..self }
    }

    fn prefetch(&self, is_wanted: impl FnOnce(&KeySlot) -> bool) {
        if self.is_reading
            && let Some(slot) = self.cursor.peek(PREFETCH_AHEAD)
            && is_wanted(slot)
            && let Some(segment) = self.root.segments.get(slot.newest.segment)
        {
            segment.file.prefetch(slot.newest.offset(), slot.newest.len().min(PREFETCH_BYTES_MAX));
        }
    }

    /// Returns the entries whose Bloom filter passes `query`. False positives are possible.
    pub fn filtered(self, query: BloomQuery) -> FilteredScan {
        FilteredScan { scan: self, query }
    }
}

/// Maximum number of keys that a scan skips before it yields; about 30 µs of work.
const SKIPPED_MAX: usize = 4096;

/// Iterator over the entries of a range that pass a query, in key order. The iterator returns `Some` for each
/// entry, and `None` after many keys without a match, so that a caller that finds few entries among many can
/// yield to other tasks.
pub struct FilteredScan {
    scan: RangeScan,
    query: BloomQuery,
}

impl Iterator for FilteredScan {
    type Item = Option<Entry>;

    fn next(&mut self) -> Option<Option<Entry>> {
        match self.scan.cursor.next_match(self.scan.revision, &self.query, SKIPPED_MAX)? {
            index::FilterStep::Skipped => Some(None),
            index::FilterStep::Match(key, version) => {
                self.scan.prefetch(|slot| self.query.matches(slot.bloom));
                self.scan.root.entry(key, version).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::Engine;
    use crate::options::Options;
    use crate::testing::TempDir;
    use crate::types::{Change, Expected, Payload, Write};

    #[tokio::test]
    async fn the_versions_of_a_key_are_returned_newest_first_until_compaction() {
        let dir = TempDir::new();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let write = async |key: &'static str, change| {
            let key = Bytes::from_static(key.as_bytes());
            let write = Write { key, expected: Expected::Any, change };
            engine.commit(write).await.unwrap().revision
        };
        let put = |attributes: &'static str, value: &'static str| {
            let (attributes, value) = (attributes.into(), value.into());
            Change::Put(Payload { attributes, value, stamp_at: Some(0), ..Payload::default() })
        };
        write("/a", put("p", ".one")).await;
        write("/b", put("", "")).await;
        write("/a", put("q", ".two")).await;
        write("/a", Change::DeleteStored("deleted".into())).await;
        write("/a", put("r", ".three")).await;
        write("/a", Change::Delete(None)).await;
        let shown = |snapshot: &Snapshot, most| {
            let versions = snapshot.versions(b"/a", Revision::MAX, most);
            let texts = versions.iter().map(|entry| {
                let record = entry.read().unwrap();
                let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
                let kind = if entry.is_delete() { "delete" } else { "put" };
                assert!(entry.committed_at().unwrap() <= SystemTime::now());
                format!("{kind} {} {}", text(&record.attributes), text(&record.value))
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        let newest = engine.snapshot();
        let all = "delete r 6.three, put r 5.three, delete deleted 4.two, put q 3.two, put p 1.one";
        assert_eq!(shown(&newest, 9), all);
        assert_eq!(shown(&newest, 1), "delete r 6.three");
        assert_eq!(shown(&newest, 0), "");
        assert_eq!(newest.versions(b"/a", Revision::new(3), 9).len(), 2);
        let then = engine.snapshot_at(Revision::new(4)).unwrap();
        assert_eq!(shown(&then, 2), "delete deleted 4.two, put q 3.two");
        assert!(engine.snapshot_at(Revision::ZERO).unwrap().versions(b"/a", Revision::MAX, 9).is_empty());
        assert!(newest.versions(b"/c", Revision::MAX, 9).is_empty());
        engine.compact(Revision::new(3)).await.unwrap();
        assert_eq!(shown(&engine.snapshot(), 9), all.strip_suffix(", put p 1.one").unwrap());
    }
}
