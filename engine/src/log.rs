//! The ordered segments of the log and the position of the next record.
//!
//! A new segment is made in steps that leave a complete log after a crash at any point. The steps are: sync the
//! previous segment; write the header into the new file under a temporary name and sync it; rename the file; sync the
//! directory; raise the high-water mark. A record may be written to the new segment only after these steps. So only the
//! last segment can have a torn tail, and a segment with its final name always has a header.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::header::{Header, NUMBER_END, Numbering, RECORDS_START};
use crate::high_water::HighWater;
use crate::io::{File, Storage, is_disk_full};
use crate::sabotage;
use crate::segment::{FILL_STEP, Segment};
use crate::segments::Segments;
use crate::types::{Revision, SegmentNumber};

/// Name of a segment file that is being made. Opening ignores its content.
pub(crate) const NEXT_NAME: &str = "next.segment";

/// Number of zero bytes that the log keeps ready after the last record. This number is large enough for some
/// hundred typical writes, and small enough that recovery searches these bytes for torn records in a short
/// time.
pub(crate) const FILL_AHEAD: u64 = 1024 * 1024;

/// Minimum size of a batch for which no zeros are written ahead. The sync of such a batch spends its time on the
/// bytes, not on the file system's block allocation, so zeros would not make it faster.
const BULK_BYTES: u64 = 128 * 1024;

/// The state of the log that its single writer uses.
pub(crate) struct Log {
    storage: Arc<dyn Storage>,
    segment_bytes: u64,
    segments: Segments,
    current: Arc<Segment>,
    /// Offset of the next record in the current segment.
    position: u64,
    /// Whether the last batch was large, in which case the next one is probably large as well.
    is_bulk: bool,
    numbers: Arc<Numbers>,
    /// Numbering of the segments that this log creates.
    numbering: Numbering,
    high_water: Arc<HighWater>,
}

/// Source of segment numbers; gives each number once.
pub(crate) struct Numbers(AtomicU32);

impl Numbers {
    /// Continues after `given`, the highest number given so far.
    pub fn new(given: SegmentNumber) -> Numbers {
        Numbers(AtomicU32::new(given.get()))
    }

    /// Returns the highest number given so far.
    pub fn highest(&self) -> SegmentNumber {
        SegmentNumber::new(self.0.load(Ordering::Acquire))
    }

    /// Returns the next number. Fails after 2^31 numbers, which a store with a new segment every second
    /// reaches in 68 years.
    pub fn next(&self) -> io::Result<SegmentNumber> {
        let next = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        if next >= NUMBER_END {
            return Err(io::Error::other("no number is left for a segment"));
        }
        Ok(SegmentNumber::new(next))
    }
}

impl Log {
    /// Creates the log of `segments`, of which there must be at least one. The log continues at `position` of
    /// the last segment.
    pub fn new(
        storage: Arc<dyn Storage>,
        segment_bytes: u64,
        segments: Segments,
        position: u64,
        high_water: Arc<HighWater>,
        numbers: Arc<Numbers>,
        numbering: Numbering,
    ) -> Log {
        let current = segments.in_order().last().expect("recovery leaves a segment to write to").clone();
        let is_bulk = false;
        Log { storage, segment_bytes, segments, current, position, is_bulk, numbers, numbering, high_water }
    }

    /// Replaces the segments of the log by `segments`, which must end with the current segment.
    pub fn set_segments(&mut self, segments: Segments) {
        self.segments = segments;
    }

    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    pub fn current(&self) -> &Arc<Segment> {
        &self.current
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether `bytes` more bytes fit into the current segment. If the file of the segment is larger
    /// than the size of new segments, only a first record may exceed that size: on a disk that has become
    /// small, reclamation needs small segments.
    pub fn has_room(&self, bytes: usize) -> bool {
        let end = self.position + bytes as u64;
        let is_within = end <= self.segment_bytes || self.position == RECORDS_START;
        is_within && end <= self.current.file.size()
    }

    /// Raises the durable revision of the high-water mark to `revision`, which must already be durable.
    pub fn note_durable(&self, revision: Revision) -> io::Result<()> {
        self.high_water.note(revision)
    }

    /// Allocates blocks for the next `bytes`. Fails without changing the log if the disk is full.
    pub fn allocate(&self, bytes: u64) -> io::Result<()> {
        let end = self.position + bytes;
        if bytes < BULK_BYTES || end <= self.current.filled() {
            return self.current.fill(end.min(self.current.file.size()), false);
        }
        match self.current.reserve(end + FILL_AHEAD) {
            // There may be room for these bytes alone.
            Err(error) if is_disk_full(&error) => self.current.reserve(end),
            reserved => reserved,
        }
    }

    /// Writes `bytes` at `ahead` bytes behind the end of the log. Readers cannot access the bytes before
    /// [`Log::advance`].
    pub fn write(&self, ahead: usize, bytes: &[u8]) -> io::Result<()> {
        self.current.file.write_at(self.position + ahead as u64, bytes)
    }

    /// Starts to write `len` bytes to the disk, beginning `ahead` bytes behind the end of the log, without
    /// waiting for the disk.
    pub fn begin_write_out(&self, ahead: usize, len: usize) {
        self.current.file.begin_write_out(self.position + ahead as u64, len as u64);
    }

    /// Undoes a write: overwrites the next `bytes` bytes with zeros and syncs.
    pub fn erase(&self, bytes: usize) -> io::Result<()> {
        self.write(0, &vec![0; bytes])?;
        self.current.file.sync_data()
    }

    /// Makes the next `bytes` bytes, which are already written, a part of the log.
    pub fn advance(&mut self, bytes: usize) {
        self.is_bulk = bytes as u64 >= BULK_BYTES;
        self.position += bytes as u64;
        self.current.advance(self.position);
    }

    /// Continues the log in a new segment that has room for a record of `record_len`. The current segment
    /// must be synced. After an error the log is unchanged.
    pub fn roll(&mut self, record_len: usize, first_revision: Revision, keeper: &Keeper) -> io::Result<()> {
        let needed = RECORDS_START + record_len as u64;
        let (file, filled) = match keeper.take_prepared() {
            Some(file) if file.size() >= needed => (file, FILL_AHEAD),
            _ => (self.storage.create(NEXT_NAME, self.segment_bytes.max(needed))?, 0),
        };
        let last = &self.current.header;
        let header = Header {
            number: self.numbers.next()?,
            after: last.number,
            first_revision,
            salt: self.storage.entropy(),
            store: last.store,
            numbering: self.numbering,
            rewritten: None,
        };
        let segment = install(&*self.storage, header, file)?;
        segment.share_with(&self.current);
        self.high_water.raise(&*self.storage, &header);
        segment.assume_filled(filled.min(segment.file.size()));
        self.segments = self.segments.with(segment.clone());
        self.current = segment;
        self.position = RECORDS_START;
        Ok(())
    }
}

/// Makes the new file [`NEXT_NAME`] a durable segment of the log. A disk-full error leaves no segment behind;
/// after any other error the log must be opened again.
pub(crate) fn install(
    storage: &dyn Storage,
    header: Header,
    file: Arc<dyn File>,
) -> io::Result<Arc<Segment>> {
    let segment = Segment::create(header, file)?;
    if !sabotage::rename_before_sync() {
        segment.file.sync_data()?;
    }
    // From here on it is unknown whether the new name is durable, and a log with an additional segment must
    // not be continued in the previous segment. So any error from here on, even a full disk, counts as a
    // failure of the log.
    storage.rename(NEXT_NAME, &Segment::name(header.number)).map_err(io::Error::other)?;
    if !sabotage::no_dir_sync() {
        storage.sync_dir().map_err(io::Error::other)?;
    }
    Ok(Arc::new(segment))
}

/// The helper of the log's writer. The keeper writes zeros ahead of the records, creates the next segment
/// before the writer needs it, and with relaxed durability syncs the log.
///
/// `writer → wishes → keeper thread`. The writer does not wait for the keeper: if the keeper is late, the
/// writer does the work itself.
pub(crate) struct Keeper {
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

#[derive(Default)]
struct Wishes {
    fill: Option<(Arc<Segment>, u64)>,
    prepare: bool,
    prepared: Option<Arc<dyn File>>,
    /// A segment to sync, the last revision that was written to it, and the latest time for the sync.
    sync: Option<(Arc<Segment>, Revision, Instant)>,
    stop: bool,
}

impl Keeper {
    pub fn new() -> Keeper {
        Keeper { wishes: Mutex::new(Wishes::default()), changed: Condvar::new() }
    }

    /// Requests the work that will be needed soon. The writer calls this function after each batch.
    pub fn look_ahead(&self, log: &Log) {
        let (size, filled) = (log.current.file.size(), log.current.filled());
        let target = (log.position + FILL_AHEAD).min(size);
        // The zeros are requested as soon as one step is missing. So each of the next commits syncs one more
        // step, and no commit has to sync all steps.
        let fill = !log.is_bulk && filled < target && (filled + FILL_STEP <= target || target == size);
        let prepare = log.position > size / 2;
        if fill || prepare {
            // If the keeper holds the lock because it is creating a file, the next batch requests the work
            // again.
            let Some(mut wishes) = self.wishes.try_lock() else { return };
            if fill {
                wishes.fill = Some((log.current.clone(), target));
            }
            wishes.prepare = prepare && wishes.prepared.is_none();
            let is_wanted = fill || wishes.prepare;
            drop(wishes);
            // A wake-up without work would take a processor from another thread.
            if is_wanted {
                self.changed.notify_one();
            }
        }
    }

    /// Requests a sync of `segment` within `wait`, after which everything up to `revision` is durable.
    pub fn sync_within(&self, wait: Duration, segment: &Arc<Segment>, revision: Revision) {
        let mut wishes = self.wishes.lock();
        // If a sync is already requested, its due time stays, so later writes do not delay it.
        let wished = wishes.sync.take().map(|(.., due)| due);
        wishes.sync = Some((segment.clone(), revision, wished.unwrap_or_else(|| Instant::now() + wait)));
        drop(wishes);
        if wished.is_none() {
            self.changed.notify_one();
        }
    }

    /// Takes the prepared file [`NEXT_NAME`], and cancels the request to prepare a file.
    fn take_prepared(&self) -> Option<Arc<dyn File>> {
        let mut wishes = self.wishes.lock();
        wishes.prepare = false;
        wishes.prepared.take()
    }

    /// Ends [`Keeper::run`] once the writer is gone.
    pub fn stop(&self) {
        self.wishes.lock().stop = true;
        self.changed.notify_one();
    }

    /// Does the requested work until [`Keeper::stop`] is called. `sync` syncs a segment up to a revision and
    /// handles its own failures. All other failures are ignored, because the writer gets the same failure and
    /// reports it.
    pub fn run(&self, storage: &dyn Storage, segment_bytes: u64, sync: impl Fn(&Segment, Revision)) {
        let mut wishes = self.wishes.lock();
        while !wishes.stop {
            if self.fulfil_one(&mut wishes, storage, segment_bytes, &sync, Instant::now()) {
                continue;
            }
            match wishes.sync.as_ref().map(|(.., due)| *due) {
                Some(due) => {
                    self.changed.wait_until(&mut wishes, due);
                }
                None => self.changed.wait(&mut wishes),
            }
        }
        drop(wishes);
        self.clean_up(storage);
    }

    /// Removes a prepared file that was not used, after the last turn.
    pub fn clean_up(&self, storage: &dyn Storage) {
        if self.wishes.lock().prepared.take().is_some() {
            // If the removal fails, the next opening removes the file.
            let _ = storage.remove(NEXT_NAME);
        }
    }

    /// Does one requested item, whether due or not, on the calling thread. Returns false if nothing is
    /// requested.
    #[cfg(feature = "fault")]
    pub fn turn(
        &self,
        storage: &dyn Storage,
        segment_bytes: u64,
        sync: &impl Fn(&Segment, Revision),
    ) -> bool {
        let mut wishes = self.wishes.lock();
        let due = wishes.sync.as_ref().map_or_else(Instant::now, |(.., due)| *due);
        self.fulfil_one(&mut wishes, storage, segment_bytes, sync, due)
    }

    /// Does one requested item. Returns false if nothing is requested or due.
    fn fulfil_one(
        &self,
        wishes: &mut MutexGuard<'_, Wishes>,
        storage: &dyn Storage,
        segment_bytes: u64,
        sync: &impl Fn(&Segment, Revision),
        now: Instant,
    ) -> bool {
        if let Some((segment, revision, _)) = wishes.sync.take_if(|(.., due)| *due <= now) {
            MutexGuard::unlocked(wishes, || sync(&segment, revision));
        } else if let Some((segment, target)) = wishes.fill.take() {
            let failed = MutexGuard::unlocked(wishes, || segment.fill(target, true).is_err());
            if !failed && segment.filled() < target && wishes.fill.is_none() {
                wishes.fill = Some((segment, target));
            }
        } else if std::mem::take(&mut wishes.prepare) {
            // The lock is held so that the writer does not create a file of the same name at the same time.
            // Only a writer that needs the next segment waits for the lock, and this writer would otherwise
            // have to create the file itself.
            if wishes.prepared.is_none() {
                // On a full disk the unfinished file must not take any room.
                let prepared = prepare(storage, segment_bytes).inspect_err(|_| {
                    let _ = storage.remove(NEXT_NAME);
                });
                wishes.prepared = prepared.ok();
            }
        } else {
            return false;
        }
        true
    }
}

/// Creates a new file with its first blocks allocated and synced.
fn prepare(storage: &dyn Storage, segment_bytes: u64) -> io::Result<Arc<dyn File>> {
    let file = storage.create(NEXT_NAME, segment_bytes)?;
    file.write_at(0, &vec![0; FILL_AHEAD.min(segment_bytes) as usize])?;
    file.sync_data()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Dir;
    use crate::testing::TempDir;

    fn log(temp: &TempDir) -> Log {
        let storage = Arc::new(Dir::open(temp.path()).unwrap().unwrap());
        let file = storage.create(NEXT_NAME, 1 << 16).unwrap();
        let header = Header {
            number: SegmentNumber::FIRST,
            after: SegmentNumber::NONE,
            first_revision: Revision::new(1),
            salt: 9,
            store: 5,
            numbering: Numbering::Dense,
            rewritten: None,
        };
        let first = install(&*storage, header, file).unwrap();
        let numbers = Arc::new(Numbers::new(SegmentNumber::FIRST));
        let segments = Segments::new(vec![first]);
        let high_water = Arc::new(HighWater::open(&*storage));
        Log::new(storage, 1 << 16, segments, RECORDS_START, high_water, numbers, Numbering::Dense)
    }

    fn names(temp: &TempDir) -> Vec<String> {
        let files = std::fs::read_dir(temp.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_revision_is_searched_in_the_segment_that_may_contain_it() {
        let temp = TempDir::new();
        let mut log = log(&temp);
        let keeper = Keeper::new();
        for first in [10, 20] {
            log.roll(100, Revision::new(first), &keeper).unwrap();
        }
        for (revision, number) in [(1, 1), (9, 1), (10, 2), (19, 2), (20, 3), (1_000, 3)] {
            assert_eq!(
                log.segments().starting_at(Revision::new(revision))[0].header.number,
                SegmentNumber::new(number),
                "{revision}"
            );
        }
        assert!(
            log.segments().get(SegmentNumber::new(2)).is_some()
                && log.segments().get(SegmentNumber::new(4)).is_none()
        );
        assert_eq!(
            names(&temp),
            ["0000000001.segment", "0000000002.segment", "0000000003.segment", "high-water", "lock"]
        );
    }

    #[test]
    fn a_segment_is_as_large_as_its_first_record_needs() {
        let temp = TempDir::new();
        let mut log = log(&temp);
        assert!(!log.has_room(1 << 16));
        log.roll(1 << 20, Revision::new(2), &Keeper::new()).unwrap();
        assert!(log.has_room(1 << 20) && !log.has_room((1 << 20) + 1));
    }

    #[test]
    fn requested_syncs_within_an_interval_become_one() {
        let temp = TempDir::new();
        let log = log(&temp);
        let keeper = Arc::new(Keeper::new());
        let synced = Arc::new(Mutex::new(Vec::new()));
        let thread = {
            let (keeper, storage, synced) = (keeper.clone(), log.storage.clone(), synced.clone());
            std::thread::spawn(move || {
                keeper.run(&*storage, 1 << 16, |_, revision| synced.lock().push((revision, Instant::now())));
            })
        };
        let (began, wait) = (Instant::now(), Duration::from_millis(300));
        for revision in 1..=50 {
            keeper.sync_within(wait, log.current(), Revision::new(revision));
        }
        let requested = began.elapsed();
        let until = |revision| {
            while synced.lock().last().is_none_or(|(synced, _)| *synced < Revision::new(revision)) {
                std::thread::yield_now();
            }
        };
        until(50);
        keeper.sync_within(Duration::ZERO, log.current(), Revision::new(51));
        until(51);
        keeper.stop();
        thread.join().unwrap();
        let synced = synced.lock();
        let revisions: Vec<_> = synced.iter().map(|(revision, _)| revision.get()).collect();
        assert!(revisions.ends_with(&[50, 51]), "{revisions:?}");
        // If this thread was interrupted between its requests, each further interval has a sync of its own.
        let intervals = requested.as_millis() / wait.as_millis();
        assert!(revisions.len() as u128 <= 2 + intervals, "{revisions:?} in {requested:?}");
        assert!(synced[0].1 >= began + wait, "{:?}", synced[0].1 - began);
    }

    #[test]
    fn the_log_keeper_prepares_the_next_segment_and_removes_it_when_it_stops() {
        let temp = TempDir::new();
        let mut log = log(&temp);
        let keeper = Arc::new(Keeper::new());
        let thread = {
            let (keeper, storage) = (keeper.clone(), log.storage.clone());
            std::thread::spawn(move || keeper.run(&*storage, 1 << 16, |_, _| ()))
        };
        log.advance(40_000);
        let mut rolled = 0;
        while rolled < 2 {
            keeper.look_ahead(&log);
            if log.current().filled() == 1 << 16 && keeper.wishes.lock().prepared.is_some() {
                log.roll(100, Revision::new(2), &keeper).unwrap();
                // The file was filled before it became a segment.
                assert_eq!(log.current().filled(), 1 << 16);
                log.advance(40_000);
                rolled += 1;
            }
            std::thread::yield_now();
        }
        while keeper.wishes.lock().prepared.is_none() {
            keeper.look_ahead(&log);
            std::thread::yield_now();
        }
        keeper.stop();
        thread.join().unwrap();
        assert_eq!(
            names(&temp),
            ["0000000001.segment", "0000000002.segment", "0000000003.segment", "high-water", "lock"]
        );
    }
}
