//! Signatures of attributes, and what a selection requires of them: how a list passes over most of a collection without
//! touching it.
//!
//! ```text
//! bits 0–31    layout of the slots, as the attributes have it
//! bits 32–127  a Bloom filter: for each label 2 bits of its key and 3 of key and value, for each slot that has a text
//!              3 of its place and text
//! ```
//!
//! With the 5 labels and 6 texts of a pod about a third of the filter is set, so of a hundred objects that are not
//! selected by `key=value` some four are looked at for nothing. What is never held back: an object whose attributes hold
//! what is required. Conditions that something is *not* so require nothing. Slots mean other fields under another
//! layout, so what fields require is required only of those with the same layout; attributes that are unreadable, or
//! left out because they were too large, are signed as unknown.
//!
//! Signatures stand in checkpoints: whoever changes what [`sign`] makes of any attributes raises its kind.

use engine::{BloomFilter, BloomQuery, BloomScheme};

use crate::attributes::{Attributes, Selection};
use crate::selector::label::{Operator, Requirement};

/// Names what [`sign`] makes of attributes.
const KIND: u32 = 1;

/// How the engine signs what this crate stores.
pub const SIGNING: BloomScheme = BloomScheme { kind: KIND, filter: sign };

/// Where the filter begins, and the bits it has.
const FILTER_START: u32 = 32;
const FILTER_BITS: u64 = 96;

const LAYOUT: BloomFilter = BloomFilter::from_bits(u32::MAX as u128);

/// Values of one `in` that are looked for one by one. With more of them, having the key is all that is required: each
/// would be compared with every signature, and together they let through much of what there is.
const VALUES_MAX: usize = 32;

/// What a filter's bits are made of.
#[derive(Clone, Copy)]
enum Element<'a> {
    Key(&'a [u8]),
    Label(&'a [u8], &'a [u8]),
    Slot(usize, &'a [u8]),
}

/// The signature of encoded attributes.
pub fn sign(attributes: &[u8]) -> BloomFilter {
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

/// What lets through every object that `selection` selects.
pub fn sieve(selection: &Selection) -> BloomQuery {
    let mut sieve = BloomQuery::default();
    for requirement in selection.label().requirements() {
        if let Some(any) = required(requirement) {
            sieve.require(any);
        }
    }
    let layout = BloomFilter::from_bits(selection.layout().into());
    for (slot, text) in selection.field().required_texts().filter(|(_, text)| !text.is_empty()) {
        let bits = BloomFilter::from_bits(bits(Element::Slot(slot, text.as_bytes())));
        sieve.require_where(LAYOUT, layout, vec![bits]);
    }
    sieve
}

/// The bits of which an object must have one lot to fulfil the requirement; `None`: it may have any.
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

/// The bits of the filter that stand for `element`.
fn bits(element: Element<'_>) -> u128 {
    let (count, hash) = match element {
        Element::Key(key) => (2, hash(1, &[key])),
        Element::Label(key, value) => (3, hash(2, &[key, b"=", value])),
        Element::Slot(slot, text) => (3, hash(3, &[&(slot as u32).to_le_bytes(), text])),
    };
    // Three numbers of 32 bits from different ends of the hash, each brought down to a bit of the filter.
    let numbers = [hash >> 32, hash & 0xffff_ffff, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32];
    let bit = |number: u64| 1_u128 << (FILTER_START + ((number * FILTER_BITS) >> 32) as u32);
    numbers[..count].iter().fold(0, |bits, &number| bits | bit(number))
}

/// FNV-1a over the parts, stirred at the end: alone it leaves the high bits of short texts alike.
fn hash(seed: u8, parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    let mut hash = std::iter::once(&seed).chain(bytes).fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
#[path = "signature_test.rs"]
mod tests;
