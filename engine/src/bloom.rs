//! Bloom filters in the index, with which a filtered scan skips most states without reading their records.
//!
//! ```text
//! attributes ─► BloomScheme::filter ─► Bloom filter, in the key's slot ─► BloomQuery ─► read only what passes
//! ```
//!
//! The caller that opens the store defines the meaning of the bits. A query may accept a state that does not
//! match. A query never rejects a matching state, provided that the Bloom filter of the state has every bit
//! that a query for this state requires. Only the newest state of a key has a Bloom filter; older states are
//! always read.
//!
//! Bloom filters are computed from the stored attributes and can be recomputed at any time. A checkpoint
//! stores the filters, so that opening need not compute them. If a checkpoint has no Bloom filters, or filters
//! of another kind, opening reads the attributes of every key once, in the order of their positions on disk.

/// Size of a Bloom filter, in bytes.
pub(crate) const BLOOM_BYTES: usize = 16;

/// 128 bits that summarize a state, stored as two words because a `u128` would need half a word more in each
/// slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BloomFilter([u64; 2]);

impl BloomFilter {
    /// The filter with all bits set, for a state about which nothing is known.
    pub const UNKNOWN: BloomFilter = BloomFilter([u64::MAX; 2]);
    /// The filter with no bit set, for a state that no query looks for.
    pub const NONE: BloomFilter = BloomFilter([0; 2]);

    /// Creates a Bloom filter from its bits.
    pub const fn from_bits(bits: u128) -> BloomFilter {
        BloomFilter([bits as u64, (bits >> 64) as u64])
    }

    /// Returns the bits of the filter.
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

    /// Encodes the filter for a checkpoint.
    pub(crate) fn to_bytes(self) -> [u8; BLOOM_BYTES] {
        self.bits().to_le_bytes()
    }

    /// Decodes the filter from a checkpoint.
    pub(crate) fn from_bytes(bytes: [u8; BLOOM_BYTES]) -> BloomFilter {
        BloomFilter::from_bits(u128::from_le_bytes(bytes))
    }
}

/// The function that computes Bloom filters, and its kind.
#[derive(Clone, Copy, Debug)]
pub struct BloomScheme {
    /// Identifies the function: the Bloom filters of a checkpoint are used only if they are of the same
    /// kind. A function that computes any filter differently must have another kind number. 0 means that no
    /// filters are computed.
    pub kind: u32,
    /// Computes the Bloom filter of a state with these attributes. Called at each commit on the caller's
    /// thread, and for records of the log when the store is opened. The bytes may be arbitrary; equal bytes
    /// must give equal filters.
    pub filter: fn(&[u8]) -> BloomFilter,
}

impl Default for BloomScheme {
    /// Returns the scheme of a store without Bloom filters: every state passes every query.
    fn default() -> BloomScheme {
        BloomScheme { kind: 0, filter: |_| BloomFilter::UNKNOWN }
    }
}

/// The conditions that a Bloom filter must meet for its state to be read.
#[derive(Clone, Debug)]
pub struct BloomQuery {
    /// Bits that every filter must have.
    required: BloomFilter,
    /// Clauses, each of which must be met.
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug)]
struct Clause {
    /// A mask and a value: the clause applies only to filters whose bits under the mask equal the value.
    concerned: (BloomFilter, BloomFilter),
    /// A filter to which the clause applies must have all the bits of at least one of these filters.
    any: Vec<BloomFilter>,
}

impl Default for BloomQuery {
    /// Returns a query without conditions, which matches every filter.
    fn default() -> BloomQuery {
        BloomQuery { required: BloomFilter::NONE, clauses: Vec::new() }
    }
}

impl BloomQuery {
    /// Adds the condition that a filter has all the bits of at least one filter in `any`.
    pub fn require(&mut self, any: Vec<BloomFilter>) {
        self.require_where(BloomFilter::NONE, BloomFilter::NONE, any);
    }

    /// Adds the condition of [`BloomQuery::require`] only for filters whose bits under `mask` equal `value`;
    /// all other filters pass.
    pub fn require_where(&mut self, mask: BloomFilter, value: BloomFilter, any: Vec<BloomFilter>) {
        match any[..] {
            [bits] if mask == BloomFilter::NONE => self.required = self.required.or(bits),
            _ => self.clauses.push(Clause { concerned: (mask, value), any }),
        }
    }

    /// Returns whether every filter passes the query.
    pub fn is_open(&self) -> bool {
        self.required == BloomFilter::NONE && self.clauses.is_empty()
    }

    /// Returns whether a state with this Bloom filter must be read.
    #[inline]
    pub fn matches(&self, bloom: BloomFilter) -> bool {
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
    fn a_bloom_query_accepts_a_filter_with_the_bits_of_one_alternative_of_each_condition() {
        let bits = |bits: &[u128]| bits.iter().map(|&bits| BloomFilter::from_bits(bits)).collect::<Vec<_>>();
        let high = 1 << 100;
        let mut query = BloomQuery::default();
        assert!(query.is_open() && query.matches(BloomFilter::NONE));
        query.require(bits(&[0b1]));
        query.require(bits(&[high]));
        query.require(bits(&[0b110, 0b1000]));
        // If the two bits at 16 are 01, one of these bits is required.
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
            assert_eq!(query.matches(BloomFilter::from_bits(bloom)), passes, "{bloom:#b}");
            let bloom = BloomFilter::from_bits(bloom);
            assert_eq!(BloomFilter::from_bytes(bloom.to_bytes()), bloom);
        }
    }

    #[test]
    fn a_bloom_filter_fits_exactly_into_an_index_slot() {
        assert_eq!((size_of::<BloomFilter>(), align_of::<BloomFilter>()), (BLOOM_BYTES, 8));
    }
}
