//! Disk space that is kept back for the work that must continue when the disk is full.
//!
//! ```text
//! opening, and room again ─► fill: files with blocks and no content ◄────────────────────────────┐
//! the disk is full ─┬► an essential write takes pieces of the writers' part (release)            │ all pieces are back:
//!                   └► reclamation takes pieces of its own part (copying), one at a time         │ ordinary writes are
//!                      the sequencer refuses ordinary writes meanwhile ──────────────────────────┘ accepted again
//! ```
//!
//! On a full disk a delete is stored without a state, so it needs one or two hundred bytes. Deletes and other essential
//! writes take space from the writers' part. This space becomes free again only after reclamation has copied the live
//! records of a segment, so the reserve has a second part, which only reclamation may use: enough space for a copy of
//! one segment. Segments are small on a small disk ([`segment_bytes`]), so both parts together take at most a tenth of
//! the disk.
//!
//! Recovery ignores these files. At opening, files whose size differs from the present piece size are
//! replaced.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::io::{Clock, Storage, is_disk_full};

/// Prefix of the names of all files of the reserve.
const NAME: &str = "reserve-";
/// Prefix of the names of the reserve files that only reclamation may use.
const COPIES_NAME: &str = "reserve-copies-";

/// Maximum size of a piece, in bytes. A large record takes several pieces.
const PIECE_BYTES_MAX: u64 = 4 << 20;
/// Minimum size of a piece, in bytes.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Divisor of the disk's capacity that limits the size of a segment, so that a copy of one segment is a small
/// part of the disk.
const SEGMENT_DISK_DIVISOR: u64 = 32;
/// Minimum size of the segments on a small disk.
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Divisor of the disk's capacity that limits the part of the reserve for reclamation. The part grows with the largest
/// existing segment, because segments of an earlier release may be larger than the segments of this release.
const COPIES_DISK_DIVISOR: u64 = 8;
/// Divisor of the disk's free space that limits the first reserve.
const FREE_DIVISOR: u64 = 2;

/// Time for which released room stays free before the writers' part takes it back.
const RELEASED_MIN: Duration = Duration::from_secs(5);

/// Returns the size of new segments on a disk with room for `capacity` bytes of this store, at most
/// `configured`. The limit is a power of two, so that a disk whose capacity changes a little leads to the
/// same size.
pub(crate) fn segment_bytes(configured: u64, capacity: u64) -> u64 {
    let fitting = (capacity / SEGMENT_DISK_DIVISOR).max(SEGMENT_BYTES_MIN);
    configured.min(1 << fitting.ilog2())
}

/// The reserve of a store; see the module.
pub(crate) struct Reserve {
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
    piece_bytes: u64,
    writers: ReservePart,
    copies: ReservePart,
    /// Whether reclamation has removed pieces that were not created again yet.
    is_lent: AtomicBool,
    /// Locked while a piece is turned into free room and that room is used, so that no other writer uses it.
    taking: Mutex<()>,
}

/// A part of the reserve: the pieces whose names have the same prefix.
struct ReservePart {
    name: &'static str,
    /// Number of pieces that should exist.
    target: usize,
    held: Mutex<HeldPieces>,
}

struct HeldPieces {
    /// Number of existing pieces, which have the lowest numbers.
    count: usize,
    /// Time of the last release, in milliseconds since 1970.
    released_ms: Option<u64>,
}

impl ReservePart {
    fn name(&self, at: usize) -> String {
        format!("{}{at:02}", self.name)
    }

    /// Creates missing pieces until all of them exist or the disk has no more room. Returns whether all of them exist.
    fn fill(&self, held: &mut HeldPieces, storage: &dyn Storage, piece_bytes: u64) -> bool {
        while held.count < self.target {
            let name = self.name(held.count);
            let created = storage.create(&name, piece_bytes).and_then(|file| file.reserve(0, piece_bytes));
            if created.is_err() {
                let _ = storage.remove(&name);
                return false;
            }
            held.count += 1;
        }
        true
    }

    /// Removes up to `count` pieces. Returns whether the disk has more room now.
    fn release(&self, count: usize, storage: &dyn Storage, now_ms: u64) -> bool {
        let mut held = self.held.lock();
        let released = count.min(held.count);
        for _ in 0..released {
            held.count -= 1;
            if storage.remove(&self.name(held.count)).is_err() {
                return false;
            }
        }
        if released == 0 {
            return false;
        }
        held.released_ms = Some(now_ms);
        // Some file systems free the blocks only once the removal is durable.
        storage.sync_dir().is_ok()
    }
}

impl Reserve {
    /// Opens a reserve of at most `bytes` for writers, on a store whose new segments have `segment_bytes` and whose
    /// largest segment has `largest` bytes of records. Creates missing pieces until all of them exist or the disk has
    /// no more room. If `bytes` is 0 there is no reserve.
    pub fn open(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        bytes: u64,
        segment_bytes: u64,
        largest: u64,
    ) -> Reserve {
        let piece_bytes = (segment_bytes / 4).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        let names = storage.list().unwrap_or_default();
        let present = |name: &'static str| {
            let is_piece = |at: &usize| {
                let name = format!("{name}{at:02}");
                names.contains(&name) && storage.open(&name).is_ok_and(|file| file.size() == piece_bytes)
            };
            (0..).take_while(is_piece).count()
        };
        let (writers_held, copies_held) = (present(NAME), present(COPIES_NAME));
        let capacity = storage.capacity().unwrap_or(u64::MAX);
        let (mut writers, mut copies) = (0, 0);
        if bytes > 0 {
            let largest = largest.min(capacity / COPIES_DISK_DIVISOR);
            writers = bytes.min(2 * segment_bytes) / piece_bytes;
            // An additional piece covers the header and the zeros that the log writes ahead in the meantime.
            copies = segment_bytes.max(largest).div_ceil(piece_bytes) + 1;
            if writers_held + copies_held == 0 {
                // The first start must not fill a disk that is nearly full.
                let most = storage.free_bytes().unwrap_or(0) / FREE_DIVISOR / piece_bytes;
                copies = copies.min(most);
                writers = writers.min(most - copies);
            }
        }
        let part = |name, target: u64, count: usize| {
            let target = target as usize;
            ReservePart {
                name,
                target,
                held: Mutex::new(HeldPieces { count: count.min(target), released_ms: None }),
            }
        };
        let reserve = Reserve {
            piece_bytes,
            writers: part(NAME, writers, writers_held),
            copies: part(COPIES_NAME, copies, copies_held),
            is_lent: AtomicBool::new(false),
            taking: Mutex::new(()),
            storage,
            clock,
        };
        let is_piece = |name: &str| {
            [&reserve.writers, &reserve.copies]
                .iter()
                .any(|part| (0..part.held.lock().count).any(|at| part.name(at) == name))
        };
        for superfluous in names.iter().filter(|name| name.starts_with(NAME) && !is_piece(name)) {
            let _ = reserve.storage.remove(superfluous);
        }
        reserve.fill();
        reserve
    }

    /// Returns whether the store has a reserve.
    pub fn is_used(&self) -> bool {
        self.copies.target > 0
    }

    /// Returns whether the disk has some room in addition to the reserve. Without a reserve this is unknown
    /// until a write is tried, so the function returns true.
    pub fn has_spare_room(&self) -> bool {
        !self.is_used() || self.storage.free_bytes().is_ok_and(|free| free >= self.piece_bytes)
    }

    /// Returns whether reclamation has used room of the reserve that was not taken back yet.
    pub fn is_lent(&self) -> bool {
        self.is_lent.load(Ordering::Acquire)
    }

    /// Returns the number of bytes that reclamation may take.
    pub fn copy_bytes(&self) -> u64 {
        self.copies.held.lock().count as u64 * self.piece_bytes
    }

    /// Creates the missing pieces of reclamation's part, and the missing pieces of the writers' part unless
    /// some of them were released within [`RELEASED_MIN`]. Returns whether all pieces exist.
    pub fn fill(&self) -> bool {
        let copies_whole = self.fill_copies();
        let mut held = self.writers.held.lock();
        let is_lent = |at: u64| self.clock.now_ms().abs_diff(at) < RELEASED_MIN.as_millis() as u64;
        if held.released_ms.is_some_and(is_lent) {
            return copies_whole && held.count == self.writers.target;
        }
        copies_whole && self.writers.fill(&mut held, &*self.storage, self.piece_bytes)
    }

    /// Reserves disk space for copies again, after reclamation has used the reserve. Returns whether the
    /// reserve for copies is complete.
    pub fn fill_copies(&self) -> bool {
        let mut held = self.copies.held.lock();
        let is_whole = self.copies.fill(&mut held, &*self.storage, self.piece_bytes);
        if is_whole {
            self.is_lent.store(false, Ordering::Release);
        }
        is_whole
    }

    /// Frees room for `bytes` of an essential write. Returns whether room was freed.
    pub fn release(&self, bytes: u64) -> bool {
        let pieces = bytes.div_ceil(self.piece_bytes).max(1);
        self.writers.release(
            usize::try_from(pieces).unwrap_or(usize::MAX),
            &*self.storage,
            self.clock.now_ms(),
        )
    }

    /// Locks the use of freed room: as long as the guard lives, reclamation cannot use the room that the holder frees,
    /// and the holder cannot use the room that reclamation frees. Writes on a full disk take this lock.
    pub fn lock_freed_room(&self) -> MutexGuard<'_, ()> {
        self.taking.lock()
    }

    /// Calls `write`, a repeatable write of reclamation. If the disk is full, this function frees pieces of
    /// reclamation's part one by one and calls `write` again, until it succeeds.
    pub fn write_copy<T>(&self, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match write() {
            Err(error) if is_disk_full(&error) => {}
            outcome => return outcome,
        }
        let _taking = self.taking.lock();
        loop {
            match write() {
                Err(error) if is_disk_full(&error) && self.copies.release(1, &*self.storage, 0) => {
                    self.is_lent.store(true, Ordering::Release);
                }
                outcome => return outcome,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Dir, SystemClock};
    use crate::testing::TempDir;

    fn storage(temp: &TempDir) -> Arc<dyn Storage> {
        Arc::new(Dir::open(temp.path()).ok().flatten().unwrap())
    }

    fn files(storage: &Arc<dyn Storage>) -> Vec<String> {
        let mut names: Vec<String> = storage.list().unwrap();
        names.retain(|name| name.starts_with(NAME));
        names.sort();
        names
    }

    #[test]
    fn segments_are_smaller_on_a_small_disk() {
        for (capacity_mb, kib) in [
            (1, 256),
            (7, 256),
            (20, 512),
            (40, 1024),
            (80, 2048),
            (200, 4096),
            (2048, 65536),
            (1 << 20, 65536),
        ] {
            assert_eq!(segment_bytes(64 << 20, capacity_mb << 20), kib << 10, "{capacity_mb} MB");
        }
        assert_eq!(segment_bytes(64 << 20, u64::MAX), 64 << 20);
        assert_eq!(segment_bytes(4096, 1 << 40), 4096);
    }

    #[test]
    fn released_reserve_pieces_are_filled_again_and_surplus_ones_are_removed() {
        let temp = TempDir::new();
        let storage = storage(&temp);
        let open = |bytes| Reserve::open(storage.clone(), Arc::new(SystemClock), bytes, 256 << 10, 0);
        let reserve = open(3 * PIECE_BYTES_MIN + 1);
        assert!(reserve.is_used() && reserve.fill() && !reserve.is_lent());
        let writers = ["reserve-00", "reserve-01", "reserve-02"];
        let copies: Vec<_> = (0..5).map(|at| format!("reserve-copies-{at:02}")).collect();
        let expected = |writers: &[&str]| {
            writers.iter().map(|name| (*name).to_owned()).chain(copies.iter().cloned()).collect::<Vec<_>>()
        };
        assert_eq!(files(&storage), expected(&writers));
        assert!(reserve.release(PIECE_BYTES_MIN + 1));
        assert_eq!(files(&storage), expected(&writers[..1]));
        assert!(!reserve.fill(), "it was lent just now");
        assert!(reserve.release(1) && !reserve.release(1), "writers cannot take the other part");
        assert_eq!(reserve.copy_bytes(), 5 * PIECE_BYTES_MIN);
        reserve.writers.held.lock().released_ms = None;
        assert!(reserve.fill());
        assert_eq!(files(&storage), expected(&writers));
        assert!(open(PIECE_BYTES_MIN).fill());
        assert_eq!(files(&storage), expected(&writers[..1]));
        // Pieces of another size, from an earlier release, are replaced.
        storage.create("reserve-00", PIECE_BYTES_MAX).unwrap();
        assert!(open(2 * PIECE_BYTES_MIN).fill());
        assert_eq!(files(&storage), expected(&writers[..2]));
        assert_eq!(storage.open("reserve-00").unwrap().size(), PIECE_BYTES_MIN);
        let none = open(0);
        assert!(!none.is_used() && none.fill() && !none.release(1));
        assert_eq!(files(&storage), Vec::<String>::new());
    }

    #[test]
    fn a_reclamation_copy_borrows_reserve_pieces_one_at_a_time_and_returns_them() {
        let temp = TempDir::new();
        let storage = storage(&temp);
        let reserve = Reserve::open(storage.clone(), Arc::new(SystemClock), PIECE_BYTES_MIN, 256 << 10, 0);
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let mut attempts = 0;
        let written = reserve.write_copy(|| {
            attempts += 1;
            if attempts < 4 { Err(full()) } else { Ok(attempts) }
        });
        // The second attempt is made under the lock. The third attempt is the first one after a piece was
        // freed.
        assert_eq!((written.unwrap(), reserve.copy_bytes()), (4, 3 * PIECE_BYTES_MIN));
        assert!(reserve.is_lent());
        assert!(reserve.fill() && !reserve.is_lent());
        assert!(reserve.write_copy(|| Err::<(), _>(full())).is_err());
        assert_eq!((reserve.copy_bytes(), reserve.is_lent()), (0, true));
        assert!(reserve.write_copy(|| Err::<(), _>(io::Error::other("bad"))).is_err());
        assert!(reserve.fill_copies() && !reserve.is_lent());
    }
}
