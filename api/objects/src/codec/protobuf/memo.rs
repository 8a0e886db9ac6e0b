//! What was made of parts of objects before: objects that are served one after the other are much alike, so what a part
//! becomes is kept and copied where the same text comes again (docs/decisions/0016-every-representation-at-the-speed-of-json.md).
//!
//! ```text
//! place in the object ─► slot { field, text, bytes }     the text goes on as it did ─► the bytes, and the text is skipped
//! ```
//!
//! Exact: a part is one whole JSON object or list, which ends where it ends whatever follows, and its bytes depend on
//! the field, the text and the depth alone. A place where parts keep differing is tried rarely. What is kept has a limit.

use types::schema::table::Field;

/// Most bytes of texts and of what was made of them.
pub const MEMO_BYTES: usize = 40 * 1024;

/// Places. Two that meet in one slot replace each other.
const SLOTS: usize = 128;

/// Longest text that is kept.
const TEXT_BYTES_MAX: usize = 12 * 1024;

/// Shortest text that is kept: a shorter one is written faster than it is looked up.
const TEXT_BYTES_MIN: usize = 24;

/// Texts in a row that differed until a place is tried rarely.
const MISSES: u8 = 4;

/// How rarely: twice in so many times, one after the other, so that a run of equal parts is noticed.
const RARELY: u8 = 16;

/// A part of an object that was written before.
#[derive(Debug, Default)]
struct Slot {
    /// Address of the field; types outlive the memo.
    field: usize,
    depth: usize,
    text: Vec<u8>,
    bytes: Vec<u8>,
    /// Texts in a row that differed.
    misses: u8,
    /// Counts while the place is tried rarely.
    turn: u8,
}

/// Parts of objects with what they became.
#[derive(Debug, Default)]
pub struct Memo {
    slots: Vec<Slot>,
    kept_bytes: usize,
}

/// What is known of the text at some place.
pub(super) enum Known<'m> {
    /// It begins with so many bytes that became these.
    Part(usize, &'m [u8]),
    /// Nothing: what it becomes is to be kept in this slot.
    New(usize),
    /// Nothing, and it is not to be kept.
    Nothing,
}

impl Memo {
    /// What the text `rest`, a value of `field` at the place with that hash, begins with.
    #[inline]
    pub(super) fn look(&mut self, field: &Field, place: u32, depth: usize, rest: &[u8]) -> Known<'_> {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, Slot::default);
        }
        let at = (place.wrapping_mul(0x9e37_79b1) >> 25) as usize % SLOTS;
        let slot = &mut self.slots[at];
        if slot.misses >= MISSES {
            slot.turn = (slot.turn + 1) % RARELY;
            if slot.turn > 1 {
                return Known::Nothing;
            }
        }
        let is_same = slot.field == std::ptr::from_ref(field) as usize && slot.depth == depth;
        if is_same && !slot.text.is_empty() && rest.starts_with(&slot.text) {
            slot.misses = 0;
            let slot = &self.slots[at];
            return Known::Part(slot.text.len(), &slot.bytes);
        }
        slot.misses = slot.misses.saturating_add(1);
        Known::New(at)
    }

    /// Keeps what a text became.
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

    /// Bytes that are kept.
    #[cfg(test)]
    pub(super) fn kept_bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.text.capacity() + slot.bytes.capacity()).sum()
    }
}
