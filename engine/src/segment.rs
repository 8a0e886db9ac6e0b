//! One file of records: a header block (`header.rs`), then records without gaps, each at a multiple of 8, then
//! zeros.
//!
//! A file has its final name only once its header is on disk. Space for records is written with zeros a little
//! ahead of them: a sync that need not allocate blocks is about a third faster, and a full disk is noticed before
//! any byte of a batch is written.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use crate::header::{Header, HeaderError, Note, Numbering, RECORDS_START};
use crate::history::{Place, Version};
use crate::io::File;
use crate::losses::LossRegistry;
use crate::record::{ALIGN, EventKind, HEAD_BYTES, Head};
use crate::seal::Seal;
use crate::types::{Revision, SegmentNumber};

/// Zeros written at a time. The next commit syncs them with its own bytes, and waits for them if it comes while they are
/// written: about as long as it takes anyway.
pub(crate) const FILL_STEP: u64 = 32 * 1024;
/// Bytes between two marks: the most a reader walks over before it finds its place.
const MARK_BYTES: u64 = 64 * 1024;

/// A segment, with what the running engine knows about it.
pub(crate) struct Segment {
    pub header: Header,
    pub file: Arc<dyn File>,
    /// End of the records that readers may see.
    end: AtomicU64,
    /// Some records and where they are, in order.
    marks: Mutex<Marks>,
    /// How far the file has been written with zeros or records.
    filled: AtomicU64,
    /// Held while zeros are written.
    filling: Mutex<()>,
    /// Bytes of its records that the newest index refers to.
    live: AtomicU64,
    /// What was noted last. Held while a note is written.
    note: Mutex<Note>,
    /// How values in it are opened; the segments of a store have the same.
    seal: OnceLock<Arc<dyn Seal>>,
    /// The registry that hears of records that cannot be read; the segments of a store have the same.
    losses: OnceLock<Arc<LossRegistry>>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Mark {
    pub revision: Revision,
    pub offset: u64,
}

/// Some records and where they are, in order, [`MARK_BYTES`] or more apart.
#[derive(Default)]
pub(crate) struct Marks {
    marks: Vec<Mark>,
    /// Revision of the record passed last.
    passed: Revision,
}

impl From<Vec<Mark>> for Marks {
    /// Of marks in order.
    fn from(marks: Vec<Mark>) -> Marks {
        Marks { marks, passed: Revision::ZERO }
    }
}

impl Marks {
    /// Remembers where a record is, when the last one remembered is far enough behind and it is the first of its
    /// revision: a walk from a mark meets all records of the mark's revision.
    pub fn pass(&mut self, revision: Revision, offset: u64) {
        let is_first = revision != std::mem::replace(&mut self.passed, revision);
        if is_first && self.marks.last().is_none_or(|last| offset >= last.offset + MARK_BYTES) {
            self.marks.push(Mark { revision, offset });
        }
    }

    /// How many of them are of `revision` or before.
    fn until(&self, revision: Revision) -> usize {
        self.marks.partition_point(|mark| mark.revision <= revision)
    }
}

impl Segment {
    /// File name of a segment. Names sort like numbers.
    pub fn name(number: SegmentNumber) -> String {
        format!("{:010}.segment", number.get())
    }

    /// The number of the segment with that file name.
    pub fn number(name: &str) -> Option<SegmentNumber> {
        let digits = name.strip_suffix(".segment").filter(|d| d.len() == 10)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().map(SegmentNumber::new).ok())?
    }

    /// Writes the header into a new file. The caller syncs.
    pub fn create(header: Header, file: Arc<dyn File>) -> io::Result<Segment> {
        file.write_at(0, &header.block())?;
        Ok(Segment::with(header, file, Note::default()))
    }

    /// Reads the header of an existing file.
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
            note: Mutex::new(note),
            seal: OnceLock::new(),
            losses: OnceLock::new(),
        }
    }

    /// Values in it are opened so from now on.
    pub fn seal_with(&self, seal: &Arc<dyn Seal>) {
        // The first one stays.
        let _ = self.seal.set(seal.clone());
    }

    /// Records in it that cannot be read are reported there from now on.
    pub fn report_losses_to(&self, losses: &Arc<LossRegistry>) {
        // The first one stays.
        let _ = self.losses.set(losses.clone());
    }

    /// Values in it are opened, and losses reported, as those of `other`, a segment of the same store.
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

    /// How values in it are opened, if they may be sealed.
    pub fn seal(&self) -> Option<&Arc<dyn Seal>> {
        self.seal.get()
    }

    /// What was noted last.
    pub fn note(&self) -> Note {
        *self.note.lock()
    }

    /// Notes that all up to `synced` is on disk and history before `oldest` forgotten. The caller syncs, if it
    /// matters.
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

    /// End of the records that readers may see.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Lets readers see the records up to `end`.
    pub fn advance(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Those of its records whose places are remembered.
    pub fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock()
    }

    /// The remembered records up to `revision`.
    pub fn marks_until(&self, revision: Revision) -> Vec<Mark> {
        let marks = self.marks.lock();
        marks.marks[..marks.until(revision)].to_vec()
    }

    /// Takes over what was remembered when the store was open before.
    pub fn set_marks(&self, marks: Marks) {
        *self.marks.lock() = marks;
    }

    /// Bytes of records, whether anything refers to them or not.
    pub fn record_bytes(&self) -> u64 {
        self.end() - RECORDS_START
    }

    /// Bytes of its records that the newest index refers to.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Acquire)
    }

    /// The index refers to `len` bytes more.
    pub fn add_live(&self, len: usize) {
        self.live.fetch_add(len as u64, Ordering::AcqRel);
    }

    /// The index refers to `len` bytes less.
    pub fn take_live(&self, len: usize) {
        let before = self.live.fetch_sub(len as u64, Ordering::AcqRel);
        debug_assert!(before >= len as u64, "more was let go than was there");
    }

    /// How far the file has been written with zeros or records.
    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Acquire)
    }

    /// Records that the file has been written up to `end` already.
    pub fn assume_filled(&self, end: u64) {
        self.filled.fetch_max(end, Ordering::AcqRel);
    }

    /// Writes zeros until the file is filled up to `target`, or one step of them when `once`. Returns at once
    /// where it is filled. Never touches bytes below what is filled, hence no record.
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

    /// Makes sure that there are blocks up to `target`, without writing them as [`Segment::fill`] does. What is reserved
    /// counts as filled.
    pub fn reserve(&self, target: u64) -> io::Result<()> {
        let _filling = self.filling.lock();
        let (start, end) = (self.filled(), target.min(self.file.size()));
        if start < end {
            self.file.reserve(start, end - start)?;
            self.filled.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// The records from `offset` to `end`, those of revision `after` or less taken for leftovers.
    pub fn walk(&self, offset: u64, end: u64, after: Revision) -> io::Result<Walk> {
        let data = self.file.read(offset, end.saturating_sub(offset) as usize)?;
        Ok(Walk::over(data, offset, self.header.salt, after.next(), self.header.numbering))
    }

    /// The published records that may have revision `from` or more, beginning at most a mark's distance before.
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

/// One record met on a walk. Its head is sound, its body unchecked.
pub(crate) struct Found {
    /// Offset in the segment.
    pub offset: u64,
    /// Bytes before it in which no record was found although one should be there.
    pub skipped: u64,
    pub head: Head,
    /// The whole record.
    pub bytes: Bytes,
}

impl Found {
    /// The version it stores, being in segment `number`.
    pub fn version(&self, number: SegmentNumber) -> Version {
        Version {
            revision: self.head.revision,
            created: self.head.created,
            segment: number,
            expires_s: self.head.expires_s,
            place: Place::new(self.offset, self.bytes.len(), self.head.kind == EventKind::Delete),
        }
    }
}

/// A walk over the records of a segment, in order. Where there should be a record and is none, it looks for
/// the next one. Ends when there is no further record.
pub(crate) struct Walk {
    data: Bytes,
    base: u64,
    salt: u64,
    at: usize,
    /// Records with lower revisions are leftovers.
    lowest: Revision,
    numbering: Numbering,
}

impl Walk {
    /// The records in `data`, which stands at `base` of the segment with that salt and numbering; those below revision
    /// `lowest` are taken for leftovers.
    pub fn over(data: Bytes, base: u64, salt: u64, lowest: Revision, numbering: Numbering) -> Walk {
        Walk { data, base, salt, at: 0, lowest, numbering }
    }

    /// The next record.
    pub fn next(&mut self) -> Option<Found> {
        let mut at = self.at;
        // The search after damage tries every aligned place. Few have a kind and lengths that make sense, and
        // only for those a checksum over at most one key is computed, so it stays linear.
        while at + HEAD_BYTES <= self.data.len() {
            let bytes = &self.data[at..];
            if let Some(head) = Head::read(bytes, self.salt, self.base + at as u64)
                && head.revision >= self.lowest
            {
                let found = Found {
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
    fn names_and_numbers_belong_together() {
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
    fn filling_leaves_what_is_written_alone() {
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
    fn a_walk_goes_on_behind_damage_and_is_not_fooled_by_values_that_look_like_records() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let segment = segment(&dir);
        let mut forged = Vec::new();
        // Made for another segment: the attacker does not know the salt.
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
        // The head of the second goes bad.
        segment.file.write_at(offsets[1] + 9, &[1]).unwrap();
        assert_eq!(walk(Revision::ZERO), [(1, offsets[0]), (3, offsets[2])]);
        // Records no younger than what came before are leftovers.
        assert_eq!(walk(Revision::new(2)), [(3, offsets[2])]);
    }
}
