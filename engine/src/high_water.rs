//! The high-water mark: a file next to the log that notes the last segment of the log and a revision that is
//! durable.
//!
//! ```text
//! sequencer    segment installed ─► mark names it
//! maintenance  every second with writes, caller at the start, sequencer at the end ─► mark notes the durable revision
//! ```
//!
//! Each segment names the segment before it, so a missing segment in the middle is always noticed. Only the
//! mark reveals that the last segment is missing or was cut. Invariants: the mark never names a segment or a
//! revision that was not durable before, and the mark only rises. The mark may lag: a crash, or a disk that
//! takes no writes, leaves the mark unchanged. The file of the mark is synced separately, so no commit waits
//! for it; the beginning of a segment may wait for one such sync. `docs/format.md` describes the layout.

use std::io;
use std::sync::Arc;

use crate::header::{Header, u32_at, u64_at};
use parking_lot::Mutex;

use crate::io::{File, Storage};
use crate::sabotage;
use crate::types::{REVISION_END, Revision, SegmentNumber};

/// Name of the file of the mark.
pub(crate) const NAME: &str = "high-water";

const FILE_BYTES: u64 = 4096;
/// Offsets of the two copies, which are written alternately, so that a torn write leaves the previous copy
/// intact.
const PLACES: [u64; 2] = [0, 2048];
const MARK_BYTES: usize = 48;
const MAGIC: [u8; 8] = *b"REVHIGH\n";
/// Version of the layout that this release writes, and the newest that it reads.
const VERSION: u32 = 1;

/// The contents of the high-water mark: the last segment and the durable revision.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HighWaterMark {
    /// Fingerprint of the store that the log belongs to.
    pub store: u64,
    /// Number of the last segment.
    pub number: SegmentNumber,
    /// Lowest revision that may be in the last segment.
    pub first_revision: Revision,
    /// Revision up to which everything is durable; 0 in marks of earlier releases.
    pub durable: Revision,
}

impl HighWaterMark {
    fn from_header(header: &Header) -> HighWaterMark {
        HighWaterMark {
            store: header.store,
            number: header.number,
            first_revision: header.first_revision,
            // The previous segment is synced before this segment is made.
            durable: header.first_revision.before(),
        }
    }

    /// Returns whether segments with these headers reach the mark: the marked segment, its replacement, or a
    /// later segment is present. A mark of another store counts as reached.
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
        bytes[36..44].copy_from_slice(&self.durable.get().to_le_bytes());
        let crc = crc32fast::hash(&bytes[..MARK_BYTES - 4]).to_le_bytes();
        bytes[MARK_BYTES - 4..].copy_from_slice(&crc);
        bytes
    }

    /// Decodes a mark and its sequence number. Returns `None` if the bytes are damaged, empty or of a later
    /// layout.
    fn from_bytes(bytes: &[u8]) -> Option<(u32, HighWaterMark)> {
        let is_sound = bytes[..8] == MAGIC
            && u32_at(bytes, 8) == VERSION
            && crc32fast::hash(&bytes[..MARK_BYTES - 4]) == u32_at(bytes, MARK_BYTES - 4);
        let mark = HighWaterMark {
            store: u64_at(bytes, 16),
            number: SegmentNumber::new(u32_at(bytes, 32)),
            first_revision: Revision::new(u64_at(bytes, 24)),
            durable: Revision::new(u64_at(bytes, 36)),
        };
        let is_sound = is_sound && mark.durable < REVISION_END;
        is_sound.then(|| (u32_at(bytes, 12), mark))
    }

    /// Returns the newest sound mark in a file, with its sequence number. An unreadable mark counts as
    /// absent: the file protects other files and must not keep a sound store from opening.
    fn newest(file: &dyn File) -> Option<(u32, HighWaterMark)> {
        let mark_at = |at| {
            let mut bytes = [0; MARK_BYTES];
            file.read_into(at, &mut bytes).ok()?;
            HighWaterMark::from_bytes(&bytes)
        };
        PLACES.into_iter().filter_map(mark_at).max_by_key(|&(sequence, _)| sequence)
    }

    /// Reads the mark in a file without opening it for writing.
    pub fn read(file: &dyn File) -> Option<HighWaterMark> {
        (file.size() >= FILE_BYTES).then(|| HighWaterMark::newest(file)).flatten().map(|(_, mark)| mark)
    }
}

/// The file with the high-water mark of an open store.
pub(crate) struct HighWater(Mutex<State>);

/// Locked while the mark is written and synced.
struct State {
    file: Option<Arc<dyn File>>,
    sequence: u32,
    mark: Option<HighWaterMark>,
}

impl HighWater {
    /// Reads the mark of the store in `storage`, if its file exists.
    pub fn open(storage: &dyn Storage) -> HighWater {
        let file = storage.open(NAME).ok().filter(|file| file.size() >= FILE_BYTES);
        let newest = file.as_deref().and_then(HighWaterMark::newest);
        let (sequence, mark) = newest.map_or((0, None), |(sequence, mark)| (sequence, Some(mark)));
        HighWater(Mutex::new(State { file, sequence, mark }))
    }

    /// Returns the mark; `None` if the file has no sound mark.
    pub fn mark(&self) -> Option<HighWaterMark> {
        self.0.lock().mark
    }

    /// Raises the mark to the segment with this header, which must already be durable. A failure is logged
    /// and leaves the mark unchanged.
    pub fn raise(&self, storage: &dyn Storage, header: &Header) {
        let mut state = self.0.lock();
        let mark = HighWaterMark::from_header(header);
        let is_named = state.mark.is_some_and(|named| {
            (named.store, named.number, named.first_revision)
                == (mark.store, mark.number, mark.first_revision)
        });
        if is_named || sabotage::high_water_not_raised() {
            return;
        }
        let noted =
            state.mark.filter(|named| named.store == mark.store).map_or(Revision::ZERO, |it| it.durable);
        let mark = HighWaterMark { durable: mark.durable.max(noted), ..mark };
        if let Err(error) = state.create(storage).and_then(|()| state.write(mark)) {
            tracing::warn!(
                path = %storage.path(NAME).display(),
                "cannot record the high-water mark of the log: {error}"
            );
        }
    }

    /// Notes that everything up to `durable` is durable, which must already be true. Blocks for a sync of the
    /// mark's own file.
    pub fn note(&self, durable: Revision) -> io::Result<()> {
        let mut state = self.0.lock();
        match state.mark {
            Some(mark) if mark.durable < durable && !sabotage::high_water_not_noted() => {
                state.write(HighWaterMark { durable, ..mark })
            }
            _ => Ok(()),
        }
    }
}

impl State {
    /// Creates the file if it does not exist. The name of the file is durable before a mark is written to
    /// it.
    fn create(&mut self, storage: &dyn Storage) -> io::Result<()> {
        if self.file.is_none() {
            let file = storage.create(NAME, FILE_BYTES)?;
            storage.sync_dir()?;
            self.file = Some(file);
        }
        Ok(())
    }

    fn write(&mut self, mark: HighWaterMark) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let sequence = self.sequence.wrapping_add(1);
        file.write_at(PLACES[sequence as usize % 2], &mark.bytes(sequence))?;
        file.sync_data()?;
        (self.sequence, self.mark) = (sequence, Some(mark));
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
    fn a_high_water_mark_is_reached_by_its_segment_a_rewritten_one_or_a_later_one() {
        let mark = HighWaterMark::from_header(&header(7, 100));
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
    fn the_durable_revision_of_the_mark_only_rises_within_a_store() {
        let temp = TempDir::new();
        let storage = Dir::open(temp.path()).unwrap().unwrap();
        let high_water = HighWater::open(&storage);
        high_water.note(Revision::new(5)).unwrap();
        assert_eq!(high_water.mark(), None, "there is no segment yet");
        high_water.raise(&storage, &header(1, 1));
        for (noted, want) in [(3, 3), (7, 7), (5, 7)] {
            high_water.note(Revision::new(noted)).unwrap();
            assert_eq!(HighWater::open(&storage).mark().unwrap().durable, Revision::new(want));
        }
        high_water.raise(&storage, &header(1, 1));
        high_water.raise(&storage, &header(2, 8));
        assert_eq!(high_water.mark().unwrap().durable, Revision::new(7));
        high_water.raise(&storage, &header(3, 20));
        assert_eq!(
            high_water.mark().unwrap().durable,
            Revision::new(19),
            "what is before a segment is on disk"
        );
        high_water.raise(&storage, &Header { store: HEADER.store + 1, ..header(4, 10) });
        assert_eq!(high_water.mark().unwrap().durable, Revision::new(9), "another store begins anew");
    }

    #[test]
    fn the_newest_undamaged_high_water_mark_is_used() {
        let temp = TempDir::new();
        let storage = Dir::open(temp.path()).unwrap().unwrap();
        let high_water = HighWater::open(&storage);
        assert_eq!(high_water.mark(), None);
        for number in 1..=3 {
            high_water.raise(&storage, &header(number, u64::from(number) * 10));
            assert_eq!(
                HighWater::open(&storage).mark(),
                Some(HighWaterMark::from_header(&header(number, u64::from(number) * 10)))
            );
        }
        let file = storage.open(NAME).unwrap();
        file.write_at(PLACES[1] + 30, &[0xff]).unwrap();
        assert_eq!(HighWaterMark::read(&*file), Some(HighWaterMark::from_header(&header(2, 20))));
        file.write_at(PLACES[0] + 30, &[0xff]).unwrap();
        assert_eq!(HighWaterMark::read(&*file), None);
        for (size, text) in [(0, ""), (5, "REVHI")] {
            let file = storage.create("short", size).unwrap();
            file.write_at(0, text.as_bytes()).unwrap();
            assert_eq!(HighWaterMark::read(&*file), None);
        }
    }
}
