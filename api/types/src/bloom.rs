//! Bloom filters of selector attributes, and the query with which a list skips objects that cannot match.
//!
//! ```text
//! bits 0–31    layout of the slots, as in the attributes
//! bits 32–127  a Bloom filter: for each label 2 bits of its key and 3 of key and value, for each non-empty slot 3 of
//!              its index and text
//! ```
//!
//! The 5 labels and 6 texts of a pod set about a third of the bits. With a selector `key=value`, the server
//! therefore reads about 4 of 100 objects that do not match. Invariant: an object that matches is never
//! skipped. Negative conditions require no bits. In another layout, a slot contains another field, so field
//! conditions apply only to objects with the same layout. If attributes are unreadable, or were omitted
//! because of their size, the filter is unknown. An unknown filter passes every query.
//!
//! Checkpoints contain the filters, so a change of the result of [`filter`] must increase [`KIND`].

use engine::{BloomFilter, BloomQuery, BloomScheme};

use crate::attributes::{Attributes, Selection};
use crate::selector::label::{Operator, Requirement};

/// Version of the filters that [`filter`] computes.
pub const KIND: u32 = 1;

/// The engine's scheme for computing the Bloom filters of stored objects.
pub const SCHEME: BloomScheme = BloomScheme { kind: KIND, filter };

/// First bit and number of bits of the filter.
const FILTER_START: u32 = 32;
const FILTER_BITS: u64 = 96;

const LAYOUT: BloomFilter = BloomFilter::from_bits(u32::MAX as u128);

/// Maximum number of values of an `in` requirement for which the query tests each value. For a longer list,
/// the query tests only the key, because each value costs one comparison with every filter, and because a
/// long list of values would match the filters of most objects anyway.
pub const VALUES_MAX: usize = 32;

/// An element that sets bits of a filter.
#[derive(Clone, Copy)]
enum Element<'a> {
    Key(&'a [u8]),
    Label(&'a [u8], &'a [u8]),
    Slot(usize, &'a [u8]),
}

/// Returns the Bloom filter of encoded selector attributes.
pub fn filter(attributes: &[u8]) -> BloomFilter {
    let attributes = Attributes::new(attributes);
    let Some(layout) = attributes.layout() else { return BloomFilter::UNKNOWN };
    let mut all = u128::from(layout);
    for (key, value) in attributes.raw_labels() {
        all |= bits(Element::Key(key)) | bits(Element::Label(key, value));
    }
    for (slot, text) in attributes.raw_fields().enumerate().filter(|(_, text)| !text.is_empty()) {
        all |= bits(Element::Slot(slot, text));
    }
    BloomFilter::from_bits(all)
}

/// Returns a query that passes every object that `selection` selects.
pub fn query(selection: &Selection) -> BloomQuery {
    let mut query = BloomQuery::default();
    for requirement in selection.label().requirements() {
        if let Some(any) = required(requirement) {
            query.require(any);
        }
    }
    let layout = BloomFilter::from_bits(selection.layout().into());
    for (slot, text) in selection.field().required_texts().filter(|(_, text)| !text.is_empty()) {
        let bits = BloomFilter::from_bits(bits(Element::Slot(slot, text.as_bytes())));
        query.require_where(LAYOUT, layout, vec![bits]);
    }
    query
}

/// Returns alternative sets of bits. Every matching object has all bits of at least one of these sets.
/// Returns `None` if the requirement implies no bits.
fn required(requirement: &Requirement) -> Option<Vec<BloomFilter>> {
    let key = requirement.key().as_bytes();
    let has_key = bits(Element::Key(key));
    match requirement.operator() {
        Operator::DoesNotExist | Operator::NotEquals | Operator::NotIn => None,
        Operator::Equals | Operator::DoubleEquals | Operator::In
            if requirement.values().len() <= VALUES_MAX =>
        {
            let with = |value: &String| has_key | bits(Element::Label(key, value.as_bytes()));
            Some(requirement.values().iter().map(|value| BloomFilter::from_bits(with(value))).collect())
        }
        Operator::Equals
        | Operator::DoubleEquals
        | Operator::In
        | Operator::Exists
        | Operator::GreaterThan
        | Operator::LessThan => Some(vec![BloomFilter::from_bits(has_key)]),
    }
}

/// Returns the bits of the filter that represent `element`.
fn bits(element: Element<'_>) -> u128 {
    let (count, hash) = match element {
        Element::Key(key) => (2, hash(1, &[key])),
        Element::Label(key, value) => (3, hash(2, &[key, b"=", value])),
        Element::Slot(slot, text) => (3, hash(3, &[&(slot as u32).to_le_bytes(), text])),
    };
    // Three 32-bit numbers from different parts of the hash, each reduced to a bit of the filter.
    let numbers = [hash >> 32, hash & 0xffff_ffff, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32];
    let bit = |number: u64| 1_u128 << (FILTER_START + ((number * FILTER_BITS) >> 32) as u32);
    numbers[..count].iter().fold(0, |bits, &number| bits | bit(number))
}

/// Returns FNV-1a over the parts with a final mix. Without the final mix, the high bits of short texts are
/// similar.
fn hash(seed: u8, parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    let mut hash = std::iter::once(&seed).chain(bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
