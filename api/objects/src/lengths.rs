//! Cache of the lengths of encoded objects, for encodings that write a length before the content.
//!
//! The key is the revision, which identifies one version of one object. The cache is a table of fixed size,
//! in which a newer length replaces an older length in the same slot. A length that is not cached is computed
//! by encoding the object again.

use engine::Revision;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Capacity of the cache. Each length takes 8 bytes.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 20;

/// Number of slots that are allocated together, when the first length is stored in one of the slots.
const PAGE_SLOTS: usize = 4096;

/// Number of bits of a slot that contain the length. The other bits contain the upper bits of the revision.
/// The index of the slot contains the lower bits.
const LENGTH_BITS: u32 = 22;

/// Part of an object whose encoded length is cached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MeasuredForm {
    /// Whole objects with all members.
    Whole,
    /// Only the metadata of objects.
    Metadata,
}

/// Cached lengths by form and revision.
#[derive(Debug)]
pub struct Lengths([Box<[Page]>; 2]);

type Page = OnceLock<Box<[AtomicU64]>>;

impl Default for Lengths {
    fn default() -> Lengths {
        let pages = || (0..SLOTS / PAGE_SLOTS).map(|_| Page::new()).collect();
        Lengths([pages(), pages()])
    }
}

impl Lengths {
    /// Returns the length of the version written at `revision`, if it is cached.
    #[inline]
    pub fn get(&self, form: MeasuredForm, revision: Revision) -> Option<u64> {
        let place = place(revision);
        let page = self.0[form as usize][place / PAGE_SLOTS].get()?;
        let held = page[place % PAGE_SLOTS].load(Relaxed);
        (held != 0 && held >> LENGTH_BITS == revision.get() >> SLOT_BITS)
            .then_some(held & ((1 << LENGTH_BITS) - 1))
    }

    /// Caches a length, except 0 and lengths of 4 MiB or more.
    pub fn put(&self, form: MeasuredForm, revision: Revision, bytes: usize) {
        // Revisions are below 2^62, so the upper bits of a revision fit into a slot.
        let slot = (revision.get() >> SLOT_BITS) << LENGTH_BITS | bytes as u64;
        if (1..1 << LENGTH_BITS).contains(&bytes) {
            let place = place(revision);
            let page = self.0[form as usize][place / PAGE_SLOTS]
                .get_or_init(|| (0..PAGE_SLOTS).map(|_| AtomicU64::new(0)).collect());
            page[place % PAGE_SLOTS].store(slot, Relaxed);
        }
    }
}

/// Returns the index of the slot of a revision. Objects that are created together have consecutive revisions
/// and therefore use consecutive slots.
fn place(revision: Revision) -> usize {
    revision.get() as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remembered_length_belongs_to_its_revision_or_is_forgotten() {
        let lengths = Lengths::default();
        assert_eq!(lengths.get(MeasuredForm::Whole, Revision::new(7)), None);
        lengths.put(MeasuredForm::Whole, Revision::new(7), 100);
        lengths.put(MeasuredForm::Whole, Revision::new(8), (1 << LENGTH_BITS) - 1);
        lengths.put(MeasuredForm::Whole, Revision::new(9), 1 << LENGTH_BITS);
        lengths.put(MeasuredForm::Whole, Revision::new(10), 0);
        let largest = (1 << 62) - 1;
        lengths.put(MeasuredForm::Whole, Revision::new(largest), 5);
        for (revision, length) in [
            (7, Some(100)),
            (8, Some((1 << LENGTH_BITS) - 1)),
            (9, None),
            (10, None),
            (largest, Some(5)),
            (0, None),
        ] {
            assert_eq!(lengths.get(MeasuredForm::Whole, Revision::new(revision)), length, "{revision}");
            assert_eq!(lengths.get(MeasuredForm::Metadata, Revision::new(revision)), None, "{revision}");
        }
        let same_place = 7 + SLOTS as u64;
        assert_eq!(lengths.get(MeasuredForm::Whole, Revision::new(same_place)), None);
        lengths.put(MeasuredForm::Whole, Revision::new(same_place), 50);
        assert_eq!(
            (
                lengths.get(MeasuredForm::Whole, Revision::new(same_place)),
                lengths.get(MeasuredForm::Whole, Revision::new(7))
            ),
            (Some(50), None)
        );
    }
}
