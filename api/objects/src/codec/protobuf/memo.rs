//! A cache of encoded parts of objects. Objects that are served in sequence are often similar. The cache
//! keeps the encoded bytes of a part and copies them for the next part with the same text
//! (docs/decisions/0016-every-representation-at-the-speed-of-json.md).
//!
//! ```text
//! location in the object ─► slot { field, text, bytes }     the input begins with text ─► copy bytes, skip the text
//! ```
//!
//! A hit always returns the correct bytes. The encoding of a part depends only on its field, text and depth.
//! A part is a whole JSON object or list, so the text after the part cannot change the end of the part. A
//! slot with many consecutive misses is tried rarely. The size of the cache is limited.

use types::schema::table::Field;

/// Maximum number of bytes of cached texts and their encoded forms.
pub const MEMO_BYTES: usize = 40 * 1024;

/// Number of slots. Two locations that share a slot replace each other.
const SLOTS: usize = 128;

/// Length of the longest text that is cached.
const TEXT_BYTES_MAX: usize = 12 * 1024;

/// Length of the shortest text that is cached; encoding a shorter text is faster than a lookup.
const TEXT_BYTES_MIN: usize = 24;

/// Number of consecutive misses after which a slot is tried rarely.
const MISSES: u8 = 4;

/// A rarely tried slot is tried in two consecutive lookups out of `RARELY` lookups. Two consecutive tries detect
/// consecutive equal parts.
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
    /// Number of lookups, modulo [`RARELY`], while the slot is tried rarely.
    turn: u8,
}

/// A cache of encoded parts of objects.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Vec<Slot>,
    cached_bytes: usize,
}

/// Result of a lookup.
pub(super) enum MemoLookup<'m> {
    /// A hit: the number of bytes of the text, and the encoded form of the text.
    Part(usize, &'m [u8]),
    /// A miss; the caller should keep the encoded form in this slot.
    New(usize),
    /// A miss; the caller should not keep the encoded form.
    Nothing,
}

impl Memo {
    /// Looks up the text `rest`, which begins with a value of `field`. `place` is the hash of the location.
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
        self.cached_bytes -= slot.text.capacity() + slot.bytes.capacity();
        slot.text.clear();
        slot.bytes.clear();
        let needed = text.len().max(slot.text.capacity()) + bytes.len().max(slot.bytes.capacity());
        let is_kept = (TEXT_BYTES_MIN..=TEXT_BYTES_MAX).contains(&text.len())
            && bytes.len() <= 2 * TEXT_BYTES_MAX
            && self.cached_bytes + needed <= MEMO_BYTES;
        if is_kept {
            slot.field = std::ptr::from_ref(field) as usize;
            slot.depth = depth;
            for (kept, new) in [(&mut slot.text, text), (&mut slot.bytes, bytes)] {
                kept.reserve_exact(new.len());
                kept.extend_from_slice(new);
            }
        }
        self.cached_bytes += slot.text.capacity() + slot.bytes.capacity();
    }

    /// Returns the number of cached bytes.
    #[cfg(test)]
    pub(super) fn cached_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.text.capacity() + slot.bytes.capacity()).sum()
    }
}
