//! One file of records.
//!
//! ```text
//! offset size
//!      0   64  header
//!   2048   64  the header once more
//!   4096       records, without gaps, each at a multiple of 8; zeros after the last
//!
//! header: 0  8 magic "REVLOG\r\n"    24  8 first revision
//!         8  4 format version       32  8 salt of the records' checksums
//!        12  4 zero                 40 20 zero
//!        16  8 segment number       60  4 crc32 of bytes 0..60
//! ```
//!
//! Every later format keeps magic, version and crc in these places, so that it can be told from damage. A file
//! has its final name only once its header is on disk. Space for records is written with zeros a little ahead of
//! them: a sync that need not allocate blocks is about a third faster, and a full disk is noticed before any
//! byte of a batch is written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::io::File;
use crate::record::{ALIGN, HEAD_BYTES, Head, REVISION_END};

/// The format this release writes, and the newest it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Where records begin: the header has a disk block to itself, so that no record write ever touches it.
pub(crate) const RECORDS_START: u64 = 4096;

const MAGIC: [u8; 8] = *b"REVLOG\r\n";
const HEADER_BYTES: usize = 64;
const SECOND_HEADER: usize = 2048;

/// Zeros written at a time. A sync running meanwhile has to wait for at most this much more.
const FILL_STEP: u64 = 256 * 1024;
/// Bytes between two marks: the most a reader walks over before it finds its place.
const MARK_BYTES: u64 = 64 * 1024;

/// A segment, with what the running engine knows about it.
pub(crate) struct Segment {
    pub number: u32,
    /// Lowest revision that may be in it: one more than the highest before it.
    pub first_revision: u64,
    pub salt: u64,
    pub file: Arc<dyn File>,
    /// End of the records that readers may see.
    end: AtomicU64,
    /// Some records and where they are, in order: (revision, offset).
    marks: Mutex<Vec<(u64, u64)>>,
    /// How far the file has been written with zeros or records.
    filled: AtomicU64,
    /// Held while zeros are written.
    filling: Mutex<()>,
}

/// Why a file is not a segment.
pub(crate) enum HeaderError {
    Newer(u32),
    Damaged,
    Io(io::Error),
}

impl Segment {
    /// File name of a segment. Names sort like numbers.
    pub fn name(number: u32) -> String {
        format!("{number:010}.segment")
    }

    /// The number of the segment with that file name.
    pub fn number(name: &str) -> Option<u32> {
        let digits = name.strip_suffix(".segment").filter(|d| d.len() == 10)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    }

    /// Writes the header into a new file. The caller syncs.
    pub fn create(number: u32, first_revision: u64, salt: u64, file: Arc<dyn File>) -> io::Result<Segment> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&u64::from(number).to_le_bytes());
        header[24..32].copy_from_slice(&first_revision.to_le_bytes());
        header[32..40].copy_from_slice(&salt.to_le_bytes());
        let crc = crc32fast::hash(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        let mut block = [0; RECORDS_START as usize];
        block[..HEADER_BYTES].copy_from_slice(&header);
        block[SECOND_HEADER..SECOND_HEADER + HEADER_BYTES].copy_from_slice(&header);
        file.write_at(0, &block)?;
        Ok(Segment::with(number, first_revision, salt, file))
    }

    /// Reads the header of an existing file.
    pub fn open(number: u32, file: Arc<dyn File>) -> Result<Segment, HeaderError> {
        for at in [0, SECOND_HEADER as u64] {
            if file.size() < RECORDS_START {
                break;
            }
            let header = file.read(at, HEADER_BYTES).map_err(HeaderError::Io)?;
            let u32_at =
                |at| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let u64_at = |at| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
            if header[..8] != MAGIC || crc32fast::hash(&header[..60]) != u32_at(60) {
                continue;
            }
            if u32_at(8) > FORMAT_VERSION {
                return Err(HeaderError::Newer(u32_at(8)));
            }
            if u64_at(16) == u64::from(number) && (1..REVISION_END).contains(&u64_at(24)) {
                return Ok(Segment::with(number, u64_at(24), u64_at(32), file));
            }
        }
        Err(HeaderError::Damaged)
    }

    fn with(number: u32, first_revision: u64, salt: u64, file: Arc<dyn File>) -> Segment {
        Segment {
            number,
            first_revision,
            salt,
            file,
            end: AtomicU64::new(RECORDS_START),
            marks: Mutex::new(Vec::new()),
            filled: AtomicU64::new(RECORDS_START),
            filling: Mutex::new(()),
        }
    }

    /// End of the records that readers may see.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Lets readers see the records up to `end`.
    pub fn advance(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Remembers where a record is, when the last one remembered is far enough behind.
    pub fn mark(&self, revision: u64, offset: u64) {
        let mut marks = self.marks.lock();
        if marks.last().is_none_or(|&(_, last)| offset >= last + MARK_BYTES) {
            marks.push((revision, offset));
        }
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

    /// The records from `offset` to `end`, those of revision `after` or less taken for leftovers.
    pub fn walk(&self, offset: u64, end: u64, after: u64) -> io::Result<Walk> {
        let data = self.file.read(offset, end.saturating_sub(offset) as usize)?;
        Ok(Walk { data, base: offset, salt: self.salt, at: 0, last: after })
    }

    /// The published records that may have revision `from` or more, beginning at most a mark's distance before.
    pub fn walk_from(&self, from: u64) -> io::Result<Walk> {
        let marks = self.marks.lock();
        let at = marks.partition_point(|&(revision, _)| revision <= from);
        let (before, offset) = match at.checked_sub(1).map(|at| marks[at]) {
            Some((revision, offset)) => (revision - 1, offset),
            None => (self.first_revision - 1, RECORDS_START),
        };
        drop(marks);
        self.walk(offset, self.end().max(offset), before)
    }
}

/// One record met on a walk. Its head is sound, its body unchecked.
pub(crate) struct Found {
    /// Offset in the segment.
    pub offset: u64,
    pub head: Head,
    /// The whole record.
    pub bytes: Bytes,
}

/// A walk over the records of a segment, in order. Where there should be a record and is none, it looks for
/// the next one. Ends when there is no further record.
pub(crate) struct Walk {
    data: Bytes,
    base: u64,
    salt: u64,
    at: usize,
    last: u64,
}

impl Walk {
    /// The next record.
    pub fn next(&mut self) -> Option<Found> {
        let mut at = self.at;
        // The search after damage tries every aligned place. Few have a kind and lengths that make sense, and
        // only for those a checksum over at most one key is computed, so it stays linear.
        while at + HEAD_BYTES <= self.data.len() {
            let bytes = &self.data[at..];
            if let Some(head) = Head::read(bytes, self.salt, self.base + at as u64)
                && head.revision > self.last
            {
                let found = Found {
                    offset: self.base + at as u64,
                    head,
                    bytes: self.data.slice(at..at + head.record_len()),
                };
                self.last = head.revision;
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
    use crate::record::{self, Draft, EventKind};
    use crate::testing::TempDir;

    fn segment(dir: &Dir) -> Segment {
        Segment::create(1, 1, 99, dir.create(&Segment::name(1), 1 << 20).unwrap()).unwrap()
    }

    fn draft(revision: u64, value: &[u8]) -> Draft<'_> {
        Draft {
            revision,
            created: 1,
            previous: 0,
            synced: 0,
            kind: EventKind::Put,
            key: b"/k",
            attributes: b"",
            value,
            value_after_stamp: None,
        }
    }

    #[test]
    fn names_and_numbers_belong_together() {
        assert_eq!(Segment::name(7), "0000000007.segment");
        assert_eq!(Segment::number(&Segment::name(u32::MAX)), Some(u32::MAX));
        for name in ["lock", "7.segment", "00000000x7.segment", "+000000007.segment", "9999999999.segment"] {
            assert_eq!(Segment::number(name), None, "{name}");
        }
    }

    #[test]
    fn either_copy_of_the_header_will_do() {
        let temp = TempDir::new();
        let dir = Dir::open(temp.path()).unwrap().unwrap();
        let file = segment(&dir).file;
        for broken in [0, SECOND_HEADER as u64] {
            let good = file.read(broken + 30, 1).unwrap()[0];
            file.write_at(broken + 30, &[good ^ 4]).unwrap();
            let read = Segment::open(1, file.clone()).ok().unwrap();
            assert_eq!((read.first_revision, read.salt), (1, 99));
            file.write_at(broken + 30, &[good]).unwrap();
        }
        assert!(matches!(Segment::open(2, file.clone()), Err(HeaderError::Damaged)));
        file.write_at(0, &[0; 4096]).unwrap();
        assert!(matches!(Segment::open(1, file), Err(HeaderError::Damaged)));
        let short = dir.create("short", 64).unwrap();
        assert!(matches!(Segment::open(1, short), Err(HeaderError::Damaged)));
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
        record::append(&mut forged, &draft(50, b"forged"), 98, RECORDS_START + 64 + 64);
        let mut out = Vec::new();
        let mut offsets = Vec::new();
        for (revision, value) in [(1, &b"one"[..]), (2, &forged), (3, b"three")] {
            offsets.push(RECORDS_START + out.len() as u64);
            let at = RECORDS_START + out.len() as u64;
            record::append(&mut out, &draft(revision, value), 99, at);
        }
        segment.file.write_at(RECORDS_START, &out).unwrap();
        let walk = |after| {
            let mut walk = segment.walk(RECORDS_START, 1 << 20, after).unwrap();
            std::iter::from_fn(|| walk.next()).map(|f| (f.head.revision, f.offset)).collect::<Vec<_>>()
        };
        assert_eq!(walk(0), [(1, offsets[0]), (2, offsets[1]), (3, offsets[2])]);
        // The head of the second goes bad.
        segment.file.write_at(offsets[1] + 9, &[1]).unwrap();
        assert_eq!(walk(0), [(1, offsets[0]), (3, offsets[2])]);
        // Records no younger than what came before are leftovers.
        assert_eq!(walk(2), [(3, offsets[2])]);
    }
}
