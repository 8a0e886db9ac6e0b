//! A file of records: a header block (`header.rs`), then records without gaps, each at an offset that is a
//! multiple of 8, then zeros.
//!
//! A file gets its final name only after its header is durable. The store writes zeros a little ahead of the
//! records: a sync that need not allocate blocks is about a third faster, and a full disk is noticed before
//! any byte of a batch is written.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::header::{Header, HeaderError, Note, Numbering, RECORDS_START};
use crate::history::{RecordLocation, Version};
use crate::io::File;
use crate::losses::LossRegistry;
use crate::record::{ALIGN, EventKind, HEAD_BYTES, Head};
use crate::seal::Seal;
use crate::types::{Revision, SegmentNumber};

/// Number of zero bytes written at a time. The next commit syncs the zeros together with its own bytes. A
/// commit that arrives while zeros are written waits for this write, about as long as a commit takes anyway.
pub(crate) const FILL_STEP: u64 = 32 * 1024;
/// Distance between two marks: the maximum number of bytes that a reader walks over to find its position.
const MARK_BYTES: u64 = 64 * 1024;

/// A segment file, with the state that the running engine keeps for it.
pub(crate) struct Segment {
    pub header: Header,
    pub file: Arc<dyn File>,
    /// End of the records that readers may see.
    end: AtomicU64,
    /// Positions of some records, in order.
    marks: Mutex<PositionMarks>,
    /// Offset up to which the file is filled with zeros or records.
    filled: AtomicU64,
    /// Locked while zeros are written.
    filling: Mutex<()>,
    /// Bytes of the records that the newest index refers to.
    live: AtomicU64,
    /// Bytes of the records that are the newest state of a key that exists; a part of `live`. The rest of `live` is
    /// retained history.
    newest: AtomicU64,
    /// The newest note. Locked while a note is written.
    note: Mutex<Note>,
    /// The seal that opens the values of this segment; all segments of a store have the same seal.
    seal: OnceLock<Arc<dyn Seal>>,
    /// The registry to which unreadable records are reported; all segments of a store have the same registry.
    losses: OnceLock<Arc<LossRegistry>>,
}

/// Position of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct PositionMark {
    pub revision: Revision,
    pub offset: u64,
}

/// Positions of some records, in order, [`MARK_BYTES`] or more apart.
#[derive(Default)]
pub(crate) struct PositionMarks {
    marks: Vec<PositionMark>,
    /// Revision of the last record for which [`PositionMarks::pass`] was called.
    passed: Revision,
}

impl From<Vec<PositionMark>> for PositionMarks {
    /// Creates marks from positions that are in order.
    fn from(marks: Vec<PositionMark>) -> PositionMarks {
        PositionMarks { marks, passed: Revision::ZERO }
    }
}

impl PositionMarks {
    /// Adds a mark for a record if the last mark is far enough behind and the record is the first of its
    /// revision: a walk from a mark must find all records of the mark's revision.
    pub fn pass(&mut self, revision: Revision, offset: u64) {
        let is_first = revision != std::mem::replace(&mut self.passed, revision);
        if is_first && self.marks.last().is_none_or(|last| offset >= last.offset + MARK_BYTES) {
            self.marks.push(PositionMark { revision, offset });
        }
    }

    /// Returns the number of marks at or before `revision`.
    fn until(&self, revision: Revision) -> usize {
        self.marks.partition_point(|mark| mark.revision <= revision)
    }
}

impl Segment {
    /// Returns the file name of a segment. Names sort like numbers.
    pub fn name(number: SegmentNumber) -> String {
        format!("{:010}.segment", number.get())
    }

    /// Returns the number of the segment with the given file name; `None` if the name is not the name of a
    /// segment.
    pub fn number(name: &str) -> Option<SegmentNumber> {
        let digits = name.strip_suffix(".segment").filter(|d| d.len() == 10)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().map(SegmentNumber::new).ok())?
    }

    /// Creates a segment by writing its header into a new file. The caller syncs.
    pub fn create(header: Header, file: Arc<dyn File>) -> io::Result<Segment> {
        file.write_at(0, &header.block())?;
        Ok(Segment::with(header, file, Note::default()))
    }

    /// Opens a segment by reading the header of an existing file.
    pub fn open(number: SegmentNumber, file: Arc<dyn File>) -> Result<Segment, HeaderError> {
        let header = Header::read(number, &*file)?;
        let note = Note::read(&*file, header.salt).map_err(HeaderError::Io)?;
        Ok(Segment::with(header, file, note))
    }

    fn with(header: Header, file: Arc<dyn File>, note: Note) -> Segment {
        Segment {
            header,
            file,
            end: AtomicU64::new(RECORDS_START),
            marks: Mutex::default(),
            filled: AtomicU64::new(RECORDS_START),
            filling: Mutex::new(()),
            live: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            note: Mutex::new(note),
            seal: OnceLock::new(),
            losses: OnceLock::new(),
        }
    }

    /// Sets the seal that opens values of this segment from now on.
    pub fn seal_with(&self, seal: &Arc<dyn Seal>) {
        // A seal that is already set stays.
        let _ = self.seal.set(seal.clone());
    }

    /// Sets the registry to which unreadable records of this segment are reported from now on.
    pub fn report_losses_to(&self, losses: &Arc<LossRegistry>) {
        // A registry that is already set stays.
        let _ = self.losses.set(losses.clone());
    }

    /// Uses the seal and the registry of `other`, a segment of the same store, from now on.
    pub fn share_with(&self, other: &Segment) {
        if let Some(seal) = other.seal() {
            self.seal_with(seal);
        }
        if let Some(losses) = other.losses.get() {
            self.report_losses_to(losses);
        }
    }

    /// Reports that the state that `revision` wrote to a known key cannot be read.
    pub fn note_damaged(&self, revision: Revision) {
        if let Some(losses) = self.losses.get() {
            losses.note_damaged(revision);
        }
    }

    /// Returns the seal that opens the values of this segment, if they may be sealed.
    pub fn seal(&self) -> Option<&Arc<dyn Seal>> {
        self.seal.get()
    }

    /// Returns the newest note.
    pub fn note(&self) -> Note {
        *self.note.lock()
    }

    /// Writes a note that everything up to `synced` is durable and history before `oldest` is compacted. The
    /// caller syncs if the note must be durable.
    pub fn write_note(&self, synced: Revision, oldest: Revision) -> io::Result<()> {
        let mut note = self.note.lock();
        let next = Note {
            sequence: note.sequence.wrapping_add(1).max(1),
            synced: note.synced.max(synced),
            oldest: note.oldest.max(oldest),
        };
        next.write(&*self.file, self.header.salt)?;
        *note = next;
        Ok(())
    }

    /// Returns the end of the records that readers may see.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Makes the records up to `end` visible to readers.
    pub fn advance(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Locks and returns the marks.
    pub fn marks(&self) -> MutexGuard<'_, PositionMarks> {
        self.marks.lock()
    }

    /// Returns the marks at or before `revision`.
    pub fn marks_until(&self, revision: Revision) -> Vec<PositionMark> {
        let marks = self.marks.lock();
        marks.marks[..marks.until(revision)].to_vec()
    }

    /// Sets the marks, which come from the checkpoint or from recovery.
    pub fn set_marks(&self, marks: PositionMarks) {
        *self.marks.lock() = marks;
    }

    /// Returns the bytes of all records, live or not.
    pub fn record_bytes(&self) -> u64 {
        self.end() - RECORDS_START
    }

    /// Returns the bytes of the records that the newest index refers to.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Acquire)
    }

    /// Adds `len` bytes to the bytes that the index refers to.
    pub fn add_live(&self, len: usize) {
        self.live.fetch_add(len as u64, Ordering::AcqRel);
    }

    /// Subtracts `len` bytes from the bytes that the index refers to.
    pub fn take_live(&self, len: usize) {
        let before = self.live.fetch_sub(len as u64, Ordering::AcqRel);
        debug_assert!(before >= len as u64, "more was let go than was there");
    }

    /// Returns the bytes of the records that are the newest state of a key that exists.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Adds the `len` bytes of a state that becomes the newest one of its key.
    pub fn add_newest(&self, len: usize) {
        self.newest.fetch_add(len as u64, Ordering::AcqRel);
    }

    /// Subtracts the `len` bytes of a state that is no longer the newest one of its key, or no longer in this segment.
    pub fn take_newest(&self, len: usize) {
        let before = self.newest.fetch_sub(len as u64, Ordering::AcqRel);
        debug_assert!(before >= len as u64, "a state stopped being the newest one twice");
    }

    /// Returns the offset up to which the file is filled with zeros or records.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// Notes that the file is already filled up to `end`.
    pub fn assume_filled(&self, end: u64) {
        self.filled.fetch_max(end, Ordering::AcqRel);
    }

    /// Writes zeros until the file is filled up to `target`; with `once`, writes at most [`FILL_STEP`] zeros.
    /// Returns at once if the file is filled. Never writes below the filled offset, so it never touches a
    /// record.
    pub fn fill(&self, target: u64, once: bool) -> io::Result<()> {
        static ZEROS: [u8; FILL_STEP as usize] = [0; FILL_STEP as usize];
        while self.filled() < target {
            let _filling = self.filling.lock();
            let start = self.filled();
            let end = (start + FILL_STEP).min(self.file.size());
            if start >= target || start >= end {
                break;
            }
            self.file.write_at(start, &ZEROS[..(end - start) as usize])?;
            self.filled.store(end, Ordering::Release);
            if once {
                break;
            }
        }
        Ok(())
    }

    /// Allocates blocks up to `target` without writing them as [`Segment::fill`] does. Reserved bytes count
    /// as filled.
    pub fn reserve(&self, target: u64) -> io::Result<()> {
        let _filling = self.filling.lock();
        let (start, end) = (self.filled(), target.min(self.file.size()));
        if start < end {
            self.file.reserve(start, end - start)?;
            self.filled.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// Walks over the records from `offset` to `end`. Records of revision `after` or lower are regarded as stale
    /// bytes.
    pub fn walk(&self, offset: u64, end: u64, after: Revision) -> io::Result<Walk> {
        let data = self.file.read(offset, end.saturating_sub(offset) as usize)?;
        Ok(Walk::over(data, offset, self.header.salt, after.next(), self.header.numbering))
    }

    /// Walks over the published records that may have revision `from` or higher. The walk begins at the last
    /// mark at or before `from`.
    pub fn walk_from(&self, from: Revision) -> io::Result<Walk> {
        let marks = self.marks.lock();
        let (before, offset) = match marks.until(from).checked_sub(1).map(|at| marks.marks[at]) {
            Some(mark) => (mark.revision.before(), mark.offset),
            None => (self.header.first_revision.before(), RECORDS_START),
        };
        drop(marks);
        self.walk(offset, self.end().max(offset), before)
    }
}

/// A record found by a walk. The head of the record is verified, but not the body.
pub(crate) struct FoundRecord {
    /// Offset of the record in the segment.
    pub offset: u64,
    /// Bytes before the record that should contain a record, but in which no record was found.
    pub skipped: u64,
    pub head: Head,
    /// The bytes of the whole record.
    pub bytes: Bytes,
}

impl FoundRecord {
    /// Returns the version that this record stores in segment `number`.
    pub fn version(&self, number: SegmentNumber) -> Version {
        Version {
            revision: self.head.revision,
            created: self.head.created,
            segment: number,
            expires_s: self.head.expires_s,
            location: RecordLocation::new(self.offset, self.bytes.len(), self.head.kind == EventKind::Delete),
        }
    }
}

/// A walk over the records of a segment, in order. If a record is damaged, the walk searches for the next record.
/// The walk ends when no record follows.
pub(crate) struct Walk {
    data: Bytes,
    base: u64,
    salt: u64,
    at: usize,
    /// Records with lower revisions are stale bytes.
    lowest: Revision,
    numbering: Numbering,
}

impl Walk {
    /// Walks over the records in `data`, which is at `base` in the segment with the given salt and numbering.
    /// Records below revision `lowest` are regarded as stale bytes.
    pub fn over(data: Bytes, base: u64, salt: u64, lowest: Revision, numbering: Numbering) -> Walk {
        Walk { data, base, salt, at: 0, lowest, numbering }
    }

    /// Returns the next record.
    pub fn next(&mut self) -> Option<FoundRecord> {
        let mut at = self.at;
        // After damage the search tries every aligned position. Only few positions have a valid kind and
        // valid lengths, and only for those a checksum over at most one key is computed, so the search stays
        // linear.
        while at + HEAD_BYTES <= self.data.len() {
            let bytes = &self.data[at..];
            if let Some(head) = Head::read(bytes, self.salt, self.base + at as u64)
                && head.revision >= self.lowest
            {
                let found = FoundRecord {
                    offset: self.base + at as u64,
                    skipped: (at - self.at) as u64,
                    head,
                    bytes: self.data.slice(at..at + head.record_len()),
                };
                self.lowest = self.numbering.lowest_after(head.revision);
                self.at = at + head.record_len();
                return Some(found);
            }
            at += ALIGN;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Dir, Storage};
    use crate::record::{self, NewRecord};
    use crate::testing::TempDir;

    fn segment(dir: &Dir) -> Segment {
        let header = Header {
            number: SegmentNumber::FIRST,
            after: SegmentNumber::NONE,
            first_revision: Revision::new(1),
            salt: 99,
            store: 5,
            numbering: Numbering::Dense,
            rewritten: None,
        };
        Segment::create(header, dir.create(&Segment::name(SegmentNumber::FIRST), 1 << 20).unwrap()).unwrap()
    }

    fn draft(revision: Revision, value: &[u8]) -> NewRecord<'_> {
        NewRecord {
            revision,
            created: Revision::new(1),
            previous: Revision::ZERO,
            synced: Revision::ZERO,
            time: crate::types::CommitTime::ZERO,
            expires_s: 0,
            kind: EventKind::Put,
            key: b"/k",
            attributes: b"",
            value,
            value_after_stamp: None,
            more: false,
            tombstone: false,
        }
    }

    #[test]
    fn segment_names_and_numbers_correspond() {
        assert_eq!(Segment::name(SegmentNumber::new(7)), "0000000007.segment");
        assert_eq!(
            Segment::number(&Segment::name(SegmentNumber::new(u32::MAX))),
            Some(SegmentNumber::new(u32::MAX))
        );
        for name in ["lock", "7.segment", "00000000x7.segment", "+000000007.segment", "9999999999.segment"] {
            assert_eq!(Segment::number(name), None, "{name}");
        }
    }

    #[test]
    fn filling_a_segment_does_not_overwrite_records() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let segment = segment(&dir);
        segment.fill(RECORDS_START + 10, false).unwrap();
        segment.file.write_at(RECORDS_START, b"record").unwrap();
        segment.fill(u64::MAX, false).unwrap();
        assert_eq!(segment.filled(), 1 << 20);
        assert_eq!(&segment.file.read(RECORDS_START, 6).unwrap()[..], b"record");
    }

    #[test]
    fn a_segment_walk_continues_after_damage_and_ignores_values_that_look_like_records() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let segment = segment(&dir);
        let mut forged = Vec::new();
        // A record for another segment: an attacker does not know the salt.
        record::append(&mut forged, &draft(Revision::new(50), b"forged"), 98, RECORDS_START + 80 + 80);
        let mut out = Vec::new();
        let mut offsets = Vec::new();
        for (revision, value) in [(1, &b"one"[..]), (2, &forged), (3, b"three")] {
            offsets.push(RECORDS_START + out.len() as u64);
            let at = RECORDS_START + out.len() as u64;
            record::append(&mut out, &draft(Revision::new(revision), value), 99, at);
        }
        segment.file.write_at(RECORDS_START, &out).unwrap();
        let walk = |after| {
            let mut walk = segment.walk(RECORDS_START, 1 << 20, after).unwrap();
            std::iter::from_fn(|| walk.next()).map(|f| (f.head.revision.get(), f.offset)).collect::<Vec<_>>()
        };
        assert_eq!(walk(Revision::ZERO), [(1, offsets[0]), (2, offsets[1]), (3, offsets[2])]);
        // Damage the head of the second record.
        segment.file.write_at(offsets[1] + 9, &[1]).unwrap();
        assert_eq!(walk(Revision::ZERO), [(1, offsets[0]), (3, offsets[2])]);
        // Records that are not newer than `after` are stale bytes.
        assert_eq!(walk(Revision::new(2)), [(3, offsets[2])]);
    }
}
