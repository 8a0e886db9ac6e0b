//! Bloom filters: what the index knows of a state beside its place, so that a filtered scan passes over most states
//! without touching their records.
//!
//! ```text
//! attributes ─► BloomScheme::filter ─► Bloom filter, in the key's slot ─► BloomQuery ─► what gets through is looked at
//! ```
//!
//! What the bits mean is known to the caller that opens the store. A query may let through what is not wanted, but never holds
//! back what is, as long as a Bloom filter has every bit that is required of the states it stands for. Only the newest
//! state of a key is signed: what was before is always looked at.
//!
//! Bloom filters are made of the stored attributes and can be made again at any time. A checkpoint keeps them so that
//! opening need not; one that has none, or such of another kind, is opened once at the price of reading the attributes
//! of every key, in the order in which they lie on disk.

use std::sync::Arc;

use crate::index::Tree;
use crate::record::{EventKind, Head};
use crate::segment::Segment;

/// Bytes of a Bloom filter.
pub(crate) const BLOOM_BYTES: usize = 16;

/// 128 bits about a state. In two words, as in one it would take half a word more in each slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BloomFilter([u64; 2]);

impl BloomFilter {
    /// Gets through every query that only asks for bits.
    pub const UNKNOWN: BloomFilter = BloomFilter([u64::MAX; 2]);
    /// Has no bit.
    pub const NONE: BloomFilter = BloomFilter([0; 2]);

    /// A Bloom filter with these bits.
    pub const fn from_bits(bits: u128) -> BloomFilter {
        BloomFilter([bits as u64, (bits >> 64) as u64])
    }

    /// Its bits.
    pub const fn bits(self) -> u128 {
        self.0[0] as u128 | ((self.0[1] as u128) << 64)
    }

    fn and(self, other: BloomFilter) -> BloomFilter {
        BloomFilter([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    fn or(self, other: BloomFilter) -> BloomFilter {
        BloomFilter([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    fn has(self, bits: BloomFilter) -> bool {
        self.and(bits) == bits
    }

    /// As a checkpoint stores it.
    pub(crate) fn to_bytes(self) -> [u8; BLOOM_BYTES] {
        self.bits().to_le_bytes()
    }

    /// From what a checkpoint stores.
    pub(crate) fn from_bytes(bytes: [u8; BLOOM_BYTES]) -> BloomFilter {
        BloomFilter::from_bits(u128::from_le_bytes(bytes))
    }
}

/// How states are signed.
#[derive(Clone, Copy, Debug)]
pub struct BloomScheme {
    /// Says which function this is: a checkpoint's Bloom filters are believed if they are of the same kind. A function
    /// that signs anything differently is of another kind. 0: nothing is signed.
    pub kind: u32,
    /// The Bloom filter of a state with these attributes. Called at each commit, on the caller's thread, and for what the
    /// log says when the store is opened; any bytes may come, and equal ones are signed equally.
    pub filter: fn(&[u8]) -> BloomFilter,
}

impl Default for BloomScheme {
    /// Signs nothing: every state gets through every query.
    fn default() -> BloomScheme {
        BloomScheme { kind: 0, filter: |_| BloomFilter::UNKNOWN }
    }
}

impl BloomScheme {
    /// The Bloom filter of a record whose head is sound. A delete is never looked for; what cannot be read must be looked
    /// at, so that the reader meets the damage.
    pub(crate) fn of_record(&self, head: &Head, record: &[u8]) -> BloomFilter {
        match head.kind {
            EventKind::Delete => BloomFilter::NONE,
            EventKind::Put if self.kind == 0 || !head.attributes_are_sound(record) => BloomFilter::UNKNOWN,
            EventKind::Put => (self.filter)(head.attributes_in(record)),
        }
    }

    /// Signs every key of `tree` anew, by what its records in `segments` say.
    pub(crate) fn make_blooms(&self, tree: &mut Tree, segments: &[Arc<Segment>]) {
        let mut states = Vec::with_capacity(tree.live() as usize);
        let mut blooms = Vec::with_capacity(tree.size().keys as usize);
        let mut cursor = tree.cursor(b"");
        while let Some((_, slot)) = cursor.next_slot() {
            let newest = slot.newest;
            if newest.is_delete() {
                blooms.push(BloomFilter::NONE);
            } else {
                states.push((newest.segment, newest.offset(), newest.len(), blooms.len()));
                blooms.push(BloomFilter::UNKNOWN);
            }
        }
        drop(cursor);
        states.sort_unstable();
        for of_segment in states.chunk_by(|a, b| a.0 == b.0) {
            let number = of_segment[0].0;
            let Some(segment) = segments.iter().find(|segment| segment.header.number == number) else {
                continue;
            };
            for &(_, offset, len, at) in of_segment {
                let Ok(bytes) = segment.file.read(offset, len) else { continue };
                if let Some(head) = Head::read(&bytes, segment.header.salt, offset) {
                    blooms[at] = self.of_record(&head, &bytes);
                }
            }
        }
        tree.set_blooms(&mut blooms.into_iter());
    }
}

/// What Bloom filters must have for their states to be looked at.
#[derive(Clone, Debug)]
pub struct BloomQuery {
    /// Bits that all must have.
    required: BloomFilter,
    /// Each of these must be met.
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug)]
struct Clause {
    /// Concerns Bloom filters only whose bits under the first are the second.
    concerned: (BloomFilter, BloomFilter),
    /// Those must have all the bits of one of these.
    any: Vec<BloomFilter>,
}

impl Default for BloomQuery {
    /// Lets everything through.
    fn default() -> BloomQuery {
        BloomQuery { required: BloomFilter::NONE, clauses: Vec::new() }
    }
}

impl BloomQuery {
    /// Lets through from now on only what has all the bits of one of `any`.
    pub fn require(&mut self, any: Vec<BloomFilter>) {
        self.require_where(BloomFilter::NONE, BloomFilter::NONE, any);
    }

    /// The same for those Bloom filters only whose bits under `mask` are `value`; others may pass.
    pub fn require_where(&mut self, mask: BloomFilter, value: BloomFilter, any: Vec<BloomFilter>) {
        match any[..] {
            [bits] if mask == BloomFilter::NONE => self.required = self.required.or(bits),
            _ => self.clauses.push(Clause { concerned: (mask, value), any }),
        }
    }

    /// Whether it lets everything through.
    pub fn is_open(&self) -> bool {
        self.required == BloomFilter::NONE && self.clauses.is_empty()
    }

    /// Whether a state with this Bloom filter is to be looked at.
    #[inline]
    pub fn lets_through(&self, bloom: BloomFilter) -> bool {
        bloom.has(self.required)
            && self.clauses.iter().all(|clause| {
                let (mask, value) = clause.concerned;
                bloom.and(mask) != value || clause.any.iter().any(|&bits| bloom.has(bits))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_lets_through_what_has_the_bits_of_one_of_each() {
        let bits = |bits: &[u128]| bits.iter().map(|&bits| BloomFilter::from_bits(bits)).collect::<Vec<_>>();
        let high = 1 << 100;
        let mut query = BloomQuery::default();
        assert!(query.is_open() && query.lets_through(BloomFilter::NONE));
        query.require(bits(&[0b1]));
        query.require(bits(&[high]));
        query.require(bits(&[0b110, 0b1000]));
        // Where the two bits at 16 are 01, one of these.
        let (mask, value) = (BloomFilter::from_bits(0b11 << 16), BloomFilter::from_bits(0b01 << 16));
        query.require_where(mask, value, bits(&[0b10000]));
        assert!(!query.is_open());
        for (bloom, passes) in [
            (high | 0b111, true),
            (high | 0b1001, true),
            (high | 0b1011, true),
            (0b111, false),
            (high | 0b110, false),
            (high | 0b101, false),
            (high | 0b111 | (0b01 << 16), false),
            (high | 0b10111 | (0b01 << 16), true),
            (high | 0b111 | (0b11 << 16), true),
            (high | 0b111 | (0b10 << 16), true),
            (u128::MAX, true),
            (0, false),
        ] {
            assert_eq!(query.lets_through(BloomFilter::from_bits(bloom)), passes, "{bloom:#b}");
            let bloom = BloomFilter::from_bits(bloom);
            assert_eq!(BloomFilter::from_bytes(bloom.to_bytes()), bloom);
        }
    }

    #[test]
    fn a_slot_has_room_for_a_bloom_and_no_more() {
        assert_eq!((size_of::<BloomFilter>(), align_of::<BloomFilter>()), (BLOOM_BYTES, 8));
    }
}
