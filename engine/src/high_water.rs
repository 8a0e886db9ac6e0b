//! The high-water mark: a note beside the log of the last segment it reached.
//!
//! `segment installed → mark raised`. Each segment names the one before it, so a segment missing in the middle is noticed;
//! only the mark tells that one is missing at the end. Invariants: the mark never names a segment that was not durable
//! before, and it only rises. It may be late: a crash, or a disk that takes no write, leaves it at an earlier segment, and
//! opening raises it. It knows nothing of records. Layout: `docs/format.md`.

use std::io;
use std::sync::Arc;

use crate::header::{Header, u32_at, u64_at};
use crate::io::{File, Storage};
use crate::sabotage;
use crate::types::{Revision, SegmentNumber};

/// Name of the file.
pub(crate) const NAME: &str = "high-water";

const FILE_BYTES: u64 = 4096;
/// The mark stands in one of two places in turns, so that a torn write leaves the one before.
const PLACES: [u64; 2] = [0, 2048];
const MARK_BYTES: usize = 48;
const MAGIC: [u8; 8] = *b"REVHIGH\n";
/// The layout this release writes, and the newest it reads.
const VERSION: u32 = 1;

/// A segment that the log reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Mark {
    /// The store that the segment belongs to.
    pub store: u64,
    /// The segment's number.
    pub number: SegmentNumber,
    /// The lowest revision that may be in it.
    pub first_revision: Revision,
}

impl Mark {
    fn of(header: &Header) -> Mark {
        Mark { store: header.store, number: header.number, first_revision: header.first_revision }
    }

    /// Whether segments with these headers reach as far: the marked segment is there, or one that stands for it or came
    /// after it. A mark of another store says nothing of them.
    pub fn is_reached_by(&self, headers: &[Header]) -> bool {
        let is_stranger = headers.first().is_some_and(|header| header.store != self.store);
        let reaches = |header: &Header| match header.rewritten {
            Some(rewritten) => rewritten.last_revision >= self.first_revision,
            None => header.number == self.number || header.first_revision > self.first_revision,
        };
        is_stranger || headers.iter().any(reaches)
    }

    fn bytes(&self, sequence: u32) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_revision.get().to_le_bytes());
        bytes[32..36].copy_from_slice(&self.number.get().to_le_bytes());
        let crc = crc32fast::hash(&bytes[..MARK_BYTES - 4]).to_le_bytes();
        bytes[MARK_BYTES - 4..].copy_from_slice(&crc);
        bytes
    }

    /// The mark in `bytes` and its sequence; `None` when it is damaged, absent or of a later layout.
    fn from_bytes(bytes: &[u8]) -> Option<(u32, Mark)> {
        let is_sound = bytes[..8] == MAGIC
            && u32_at(bytes, 8) == VERSION
            && crc32fast::hash(&bytes[..MARK_BYTES - 4]) == u32_at(bytes, MARK_BYTES - 4);
        let mark = Mark {
            store: u64_at(bytes, 16),
            number: SegmentNumber::new(u32_at(bytes, 32)),
            first_revision: Revision::new(u64_at(bytes, 24)),
        };
        is_sound.then(|| (u32_at(bytes, 12), mark))
    }

    /// The newest sound mark in a file, with its sequence. What cannot be read is no mark: the file guards others and
    /// must not keep a sound store from opening.
    fn newest(file: &dyn File) -> Option<(u32, Mark)> {
        let mark_at = |at| {
            let mut bytes = [0; MARK_BYTES];
            file.read_into(at, &mut bytes).ok()?;
            Mark::from_bytes(&bytes)
        };
        PLACES.into_iter().filter_map(mark_at).max_by_key(|&(sequence, _)| sequence)
    }

    /// The mark in a file that is only read.
    pub fn read(file: &dyn File) -> Option<Mark> {
        (file.size() >= FILE_BYTES).then(|| Mark::newest(file)).flatten().map(|(_, mark)| mark)
    }
}

/// The file of a store that is open.
pub(crate) struct HighWater {
    file: Option<Arc<dyn File>>,
    sequence: u32,
    mark: Option<Mark>,
}

impl HighWater {
    /// Reads the file of the store in `storage`, if there is one.
    pub fn open(storage: &dyn Storage) -> HighWater {
        let file = storage.open(NAME).ok().filter(|file| file.size() >= FILE_BYTES);
        let newest = file.as_deref().and_then(Mark::newest);
        let (sequence, mark) = newest.map_or((0, None), |(sequence, mark)| (sequence, Some(mark)));
        HighWater { file, sequence, mark }
    }

    /// What it says; `None` when it says nothing that can be believed.
    pub fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Has it name the segment with this header, which is durable. A failure is logged and leaves the mark where it was.
    pub fn raise(&mut self, storage: &dyn Storage, header: &Header) {
        let mark = Mark::of(header);
        if self.mark == Some(mark) || sabotage::high_water_not_raised() {
            return;
        }
        match self.write(storage, mark) {
            Ok(()) => self.mark = Some(mark),
            Err(error) => {
                tracing::warn!(path = %storage.path(NAME).display(), "cannot note how far the log reaches: {error}");
            }
        }
    }

    fn write(&mut self, storage: &dyn Storage, mark: Mark) -> io::Result<()> {
        let (file, is_new) = match &self.file {
            Some(file) => (file.clone(), false),
            None => (storage.create(NAME, FILE_BYTES)?, true),
        };
        let sequence = self.sequence.wrapping_add(1);
        file.write_at(PLACES[sequence as usize % 2], &mark.bytes(sequence))?;
        file.sync_data()?;
        if is_new {
            storage.sync_dir()?;
        }
        (self.file, self.sequence) = (Some(file), sequence);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::Rewritten;
    use crate::io::Dir;
    use crate::testing::{HEADER, REWRITTEN, TempDir};

    fn header(number: u32, first: u64) -> Header {
        Header { number: SegmentNumber::new(number), first_revision: Revision::new(first), ..HEADER }
    }

    #[test]
    fn a_log_reaches_its_mark_by_the_segment_itself_its_stand_in_or_a_later_one() {
        let mark = Mark::of(&header(7, 100));
        let stand_in = |last| {
            let rewritten = Rewritten { last_revision: Revision::new(last), ..REWRITTEN.rewritten.unwrap() };
            Header {
                number: SegmentNumber::new(9),
                first_revision: Revision::new(50),
                rewritten: Some(rewritten),
                ..HEADER
            }
        };
        for (headers, is_reached) in [
            (vec![], false),
            (vec![header(6, 50)], false),
            (vec![header(6, 50), header(7, 100)], true),
            (vec![header(8, 120)], true),
            (vec![stand_in(99)], false),
            (vec![stand_in(100)], true),
            (vec![Header { store: mark.store + 1, ..header(1, 1) }], true),
        ] {
            assert_eq!(mark.is_reached_by(&headers), is_reached, "{headers:?}");
        }
    }

    #[test]
    fn the_newest_sound_mark_counts_and_a_damaged_one_leaves_the_one_before() {
        let temp = TempDir::new();
        let storage = Dir::open(temp.path()).unwrap().unwrap();
        let mut high_water = HighWater::open(&storage);
        assert_eq!(high_water.mark(), None);
        for number in 1..=3 {
            high_water.raise(&storage, &header(number, u64::from(number) * 10));
            assert_eq!(
                HighWater::open(&storage).mark(),
                Some(Mark::of(&header(number, u64::from(number) * 10)))
            );
        }
        let file = storage.open(NAME).unwrap();
        file.write_at(PLACES[1] + 30, &[0xff]).unwrap();
        assert_eq!(Mark::read(&*file), Some(Mark::of(&header(2, 20))));
        file.write_at(PLACES[0] + 30, &[0xff]).unwrap();
        assert_eq!(Mark::read(&*file), None);
        for (size, text) in [(0, ""), (5, "REVHI")] {
            let file = storage.create("short", size).unwrap();
            file.write_at(0, text.as_bytes()).unwrap();
            assert_eq!(Mark::read(&*file), None);
        }
    }
}
