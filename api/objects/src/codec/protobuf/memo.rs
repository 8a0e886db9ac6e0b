//! A cache of encoded parts of objects. Objects that are served one after the other are often similar, so the
//! encoded bytes of a part are kept and copied if the same text comes again
//! (docs/decisions/0016-every-representation-at-the-speed-of-json.md).
//!
//! ```text
//! location in the object ─► slot { field, text, bytes }     the input begins with text ─► copy bytes, skip the text
//! ```
//!
//! A hit always gives the correct bytes: the encoding of a part depends only on its field, text and depth, and
//! a part is one whole JSON object or list, so the text after it cannot change where it ends. A slot with many
//! misses is tried rarely. The size of the cache is limited.

use types::schema::table::Field;

/// Maximum number of bytes of cached texts and their encoded forms.
pub const MEMO_BYTES: usize = 40 * 1024;

/// Number of slots. Two locations that share a slot replace each other.
const SLOTS: usize = 128;

/// Length of the longest text that is cached.
const TEXT_BYTES_MAX: usize = 12 * 1024;

/// Length of the shortest text that is cached; encoding a shorter text is faster than looking it up.
const TEXT_BYTES_MIN: usize = 24;

/// Number of consecutive misses after which a slot is tried rarely.
const MISSES: u8 = 4;

/// A slot with many misses is tried in two consecutive lookups out of this many, so that a run of equal parts
/// is noticed.
const RARELY: u8 = 16;

/// A cached part of an object.
#[derive(Debug, Default)]
struct Slot {
    /// Address of the field's schema, which outlives the memo.
    field: usize,
    depth: usize,
    text: Vec<u8>,
    bytes: Vec<u8>,
    /// Number of consecutive misses.
    misses: u8,
    /// Counter of lookups while the slot is tried rarely.
    turn: u8,
}

/// A cache of encoded parts of objects.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Vec<Slot>,
    kept_bytes: usize,
}

/// Result of a lookup.
pub(super) enum MemoLookup<'m> {
    /// A hit: the text begins with this many bytes, whose encoded form follows.
    Part(usize, &'m [u8]),
    /// A miss: the encoded form should be kept in this slot.
    New(usize),
    /// A miss, and the encoded form should not be kept.
    Nothing,
}

impl Memo {
    /// Looks up the text `rest`, which begins with a value of `field` at the location with hash `place`.
    #[inline]
    pub(super) fn look(&mut self, field: &Field, place: u32, depth: usize, rest: &[u8]) -> MemoLookup<'_> {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, Slot::default);
        }
        let at = (place.wrapping_mul(0x9e37_79b1) >> 25) as usize % SLOTS;
        let slot = &mut self.slots[at];
        if slot.misses >= MISSES {
            slot.turn = (slot.turn + 1) % RARELY;
            if slot.turn > 1 {
                return MemoLookup::Nothing;
            }
        }
        let is_same = slot.field == std::ptr::from_ref(field) as usize && slot.depth == depth;
        if is_same && !slot.text.is_empty() && rest.starts_with(&slot.text) {
            slot.misses = 0;
            let slot = &self.slots[at];
            return MemoLookup::Part(slot.text.len(), &slot.bytes);
        }
        slot.misses = slot.misses.saturating_add(1);
        MemoLookup::New(at)
    }

    /// Stores the encoded form of a text.
    pub(super) fn keep(&mut self, at: usize, field: &Field, depth: usize, text: &[u8], bytes: &[u8]) {
        let Some(slot) = self.slots.get_mut(at) else { return };
        self.kept_bytes -= slot.text.capacity() + slot.bytes.capacity();
        slot.text.clear();
        slot.bytes.clear();
        let needed = text.len().max(slot.text.capacity()) + bytes.len().max(slot.bytes.capacity());
        let is_kept = (TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len())
            && bytes.len() <= 2 * TEXT_BYTES_MAX
            && self.kept_bytes + needed <= MEMO_BYTES;
        if is_kept {
            slot.field = std::ptr::from_ref(field) as usize;
            slot.depth = depth;
            for (kept, new) in [(&mut slot.text, text), (&mut slot.bytes, bytes)] {
                kept.reserve_exact(new.len());
                kept.extend_from_slice(new);
            }
        }
        self.kept_bytes += slot.text.capacity() + slot.bytes.capacity();
    }

    /// Returns the number of cached bytes.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.text.capacity() + slot.bytes.capacity()).sum()
    }
}
