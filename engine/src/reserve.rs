//! Room that is kept back on the disk for what has to go on when the disk is full: deletes, writes that their caller calls
//! essential, and the maintenance that gives space back.
//!
//! ```text
//! opening, and room again ─► fill: files with blocks and no content ◄──────────────┐
//! the disk is full ─► release: as many of them are removed as an essential write needs │ … all of them are back: ordinary
//!                     ordinary writes are refused at once meanwhile ──────────────────┘   writes are taken again
//! ```
//!
//! Without it a full store could not be made smaller: a delete keeps the object's last state for its watchers, so it takes as much
//! of the log as the object did. The reserve is at most a part of what is free when the store is opened; on a small disk there is
//! none, and full is full. The files mean nothing to recovery.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::io::Storage;

/// Begin of the names of its files.
const NAME: &str = "reserve-";

/// Bytes of a file: what the largest record needs, and what the log writes ahead of its records.
const PIECE_BYTES: u64 = 4 << 20;

/// The reserve is at most this part of what is free.
const PART_OF_FREE: u64 = 16;

/// How long released room stays free before it is taken back.
const LENT: Duration = Duration::from_secs(5);

/// See the module.
pub(crate) struct Reserve {
    storage: Arc<dyn Storage>,
    /// Files that are to be there.
    wanted: usize,
    held: Mutex<Held>,
}

struct Held {
    /// The first so many files are there.
    count: usize,
    released: Option<Instant>,
}

impl Reserve {
    /// Of at most `bytes`. What is missing of it is made, as far as there is room. Removes what an earlier run left beyond.
    pub fn open(storage: Arc<dyn Storage>, bytes: u64) -> Reserve {
        let names = storage.list().unwrap_or_default();
        let mut count = 0;
        while names.contains(&name(count)) {
            count += 1;
        }
        let free = storage.free_bytes().unwrap_or(0).saturating_add(count as u64 * PIECE_BYTES);
        let wanted = (bytes.min(free / PART_OF_FREE) / PIECE_BYTES) as usize;
        for superfluous in names.iter().filter(|name| name.starts_with(NAME)) {
            if !(0..wanted.min(count)).any(|at| name(at) == *superfluous) {
                let _ = storage.remove(superfluous);
            }
        }
        let held = Mutex::new(Held { count: count.min(wanted), released: None });
        let reserve = Reserve { storage, wanted, held };
        reserve.fill();
        reserve
    }

    /// Whether anything is kept back at all.
    pub fn is_used(&self) -> bool {
        self.wanted > 0
    }

    /// Whether all of it is there.
    pub fn is_whole(&self) -> bool {
        self.held.lock().count == self.wanted
    }

    /// Takes back what was released, unless that was just now. Says whether all of it is there.
    pub fn fill(&self) -> bool {
        let mut held = self.held.lock();
        if held.released.is_some_and(|at| at.elapsed() < LENT) {
            return held.count == self.wanted;
        }
        while held.count < self.wanted {
            let name = name(held.count);
            let made = self.storage.create(&name, PIECE_BYTES).and_then(|file| file.reserve(0, PIECE_BYTES));
            if made.is_err() {
                let _ = self.storage.remove(&name);
                return false;
            }
            held.count += 1;
        }
        true
    }

    /// Gives the disk room for `bytes`. Says whether it did.
    pub fn release(&self, bytes: u64) -> bool {
        let mut held = self.held.lock();
        let pieces = bytes.div_ceil(PIECE_BYTES).max(1) as usize;
        let released = pieces.min(held.count);
        for _ in 0..released {
            held.count -= 1;
            if self.storage.remove(&name(held.count)).is_err() {
                return false;
            }
        }
        if released > 0 {
            held.released = Some(Instant::now());
            // Some file systems free the blocks only once the removal is durable.
            return self.storage.sync_dir().is_ok();
        }
        false
    }
}

fn name(at: usize) -> String {
    format!("{NAME}{at:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Dir;
    use crate::testing::TempDir;

    #[test]
    fn what_is_released_comes_back_and_what_is_too_much_goes() {
        let temp = TempDir::new();
        let storage: Arc<dyn Storage> = Arc::new(Dir::open(temp.path()).ok().flatten().unwrap());
        let files = || {
            let mut names: Vec<String> = storage.list().unwrap();
            names.retain(|name| name.starts_with(NAME));
            names.sort();
            names
        };
        let reserve = Reserve::open(storage.clone(), 3 * PIECE_BYTES + 1);
        assert!(reserve.is_used() && reserve.is_whole());
        assert_eq!(files(), ["reserve-00", "reserve-01", "reserve-02"]);
        assert!(reserve.release(PIECE_BYTES + 1));
        assert_eq!(files(), ["reserve-00"]);
        assert!(!reserve.is_whole());
        assert!(!reserve.fill(), "it was lent just now");
        assert!(reserve.release(1) && !reserve.release(1), "there is no more");
        reserve.held.lock().released = None;
        assert!(reserve.fill() && files().len() == 3);
        let smaller = Reserve::open(storage.clone(), PIECE_BYTES);
        assert!(smaller.is_whole());
        assert_eq!(files(), ["reserve-00"]);
        let none = Reserve::open(storage.clone(), 0);
        assert!(!none.is_used() && none.is_whole() && !none.release(1));
        assert_eq!(files(), Vec::<String>::new());
    }
}
