//! How long objects are in a form that says its length before its first byte: remembered, because to find out is to
//! render them.
//!
//! A revision names one state of one object, so it is all there is to look up by. The memory is a table of a fixed
//! size in which a newer length replaces an older one: what is forgotten is rendered once more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lengths remembered at most; 8 bytes each, and only as many pages as were touched.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 20;

/// Bits of a slot that hold the length; the others hold what the slot's place does not say of the revision.
const LENGTH_BITS: u32 = 22;

/// Lengths by revision.
#[derive(Debug, Default)]
pub struct Lengths(OnceLock<Box<[AtomicU64]>>);

impl Lengths {
    /// The length of the state that was written at `revision`, if it is remembered.
    #[inline]
    pub fn get(&self, revision: u64) -> Option<u64> {
        let held = self.0.get()?[place(revision)].load(Relaxed);
        (held != 0 && held >> LENGTH_BITS == revision >> SLOT_BITS).then_some(held & ((1 << LENGTH_BITS) - 1))
    }

    /// Remembers it; lengths of 0 and of 4 MiB or more are not.
    pub fn put(&self, revision: u64, bytes: usize) {
        // Revisions end at 2^62, so the rest of one fits.
        let slot = (revision >> SLOT_BITS) << LENGTH_BITS | bytes as u64;
        if (1..1 << LENGTH_BITS).contains(&bytes) {
            self.0.get_or_init(|| (0..SLOTS).map(|_| AtomicU64::new(0)).collect())[place(revision)]
                .store(slot, Relaxed);
        }
    }
}

/// Revisions that follow each other, as those of objects made together do, are in slots that follow each other.
fn place(revision: u64) -> usize {
    revision as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_that_of_its_revision_or_forgotten() {
        let lengths = Lengths::default();
        assert_eq!(lengths.get(7), None);
        lengths.put(7, 100);
        lengths.put(8, (1 << LENGTH_BITS) - 1);
        lengths.put(9, 1 << LENGTH_BITS);
        lengths.put(10, 0);
        let largest = (1 << 62) - 1;
        lengths.put(largest, 5);
        for (revision, length) in [
            (7, Some(100)),
            (8, Some((1 << LENGTH_BITS) - 1)),
            (9, None),
            (10, None),
            (largest, Some(5)),
            (0, None),
        ] {
            assert_eq!(lengths.get(revision), length, "{revision}");
        }
        let same_place = 7 + SLOTS as u64;
        assert_eq!(lengths.get(same_place), None);
        lengths.put(same_place, 50);
        assert_eq!((lengths.get(same_place), lengths.get(7)), (Some(50), None));
    }
}
