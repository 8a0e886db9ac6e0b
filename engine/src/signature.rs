//! Signatures: what the index knows of a state beside its place, so that a filtered scan passes over most states
//! without touching their records.
//!
//! ```text
//! attributes ─► Signing::sign ─► Signature, in the key's slot ─► Sieve ─► what gets through is looked at
//! ```
//!
//! What the bits mean is known to whoever opens the store. A sieve may let through what is not wanted, but never holds
//! back what is, as long as a signature has every bit that is required of the states it stands for. Only the newest
//! state of a key is signed: what was before is always looked at.
//!
//! Signatures are made of the stored attributes and can be made again at any time. A checkpoint keeps them so that
//! opening need not; one that has none, or such of another kind, is opened once at the price of reading the attributes
//! of every key, in the order in which they lie on disk.

use std::sync::Arc;

use crate::index::Tree;
use crate::record::{EventKind, Head};
use crate::segment::Segment;

/// Bytes of a signature.
pub(crate) const SIGNATURE_BYTES: usize = 16;

/// 128 bits about a state. In two words, as in one it would take half a word more in each slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Signature([u64; 2]);

impl Signature {
    /// Gets through every sieve that only asks for bits.
    pub const UNKNOWN: Signature = Signature([u64::MAX; 2]);
    /// Has no bit.
    pub const NONE: Signature = Signature([0; 2]);

    /// A signature with these bits.
    pub const fn from_bits(bits: u128) -> Signature {
        Signature([bits as u64, (bits >> 64) as u64])
    }

    /// Its bits.
    pub const fn bits(self) -> u128 {
        self.0[0] as u128 | ((self.0[1] as u128) << 64)
    }

    fn and(self, other: Signature) -> Signature {
        Signature([self.0[0] & other.0[0], self.0[1] & other.0[1]])
    }

    fn or(self, other: Signature) -> Signature {
        Signature([self.0[0] | other.0[0], self.0[1] | other.0[1]])
    }

    fn has(self, bits: Signature) -> bool {
        self.and(bits) == bits
    }

    /// As a checkpoint stores it.
    pub(crate) fn to_bytes(self) -> [u8; SIGNATURE_BYTES] {
        self.bits().to_le_bytes()
    }

    /// From what a checkpoint stores.
    pub(crate) fn from_bytes(bytes: [u8; SIGNATURE_BYTES]) -> Signature {
        Signature::from_bits(u128::from_le_bytes(bytes))
    }
}

/// How states are signed.
#[derive(Clone, Copy, Debug)]
pub struct Signing {
    /// Says which function this is: a checkpoint's signatures are believed if they are of the same kind. A function
    /// that signs anything differently is of another kind. 0: nothing is signed.
    pub kind: u32,
    /// The signature of a state with these attributes. Called at each commit, on the caller's thread, and for what the
    /// log says when the store is opened; any bytes may come, and equal ones are signed equally.
    pub sign: fn(&[u8]) -> Signature,
}

impl Default for Signing {
    /// Signs nothing: every state gets through every sieve.
    fn default() -> Signing {
        Signing { kind: 0, sign: |_| Signature::UNKNOWN }
    }
}

impl Signing {
    /// The signature of a record whose head is sound. A delete is never looked for; what cannot be read must be looked
    /// at, so that somebody hears of it.
    pub(crate) fn of_record(&self, head: &Head, record: &[u8]) -> Signature {
        match head.kind {
            EventKind::Delete => Signature::NONE,
            EventKind::Put if self.kind == 0 || !head.attributes_are_sound(record) => Signature::UNKNOWN,
            EventKind::Put => (self.sign)(head.attributes_in(record)),
        }
    }

    /// Signs every key of `tree` anew, by what its records in `segments` say.
    pub(crate) fn sign_all(&self, tree: &mut Tree, segments: &[Arc<Segment>]) {
        let mut states = Vec::with_capacity(tree.live() as usize);
        let mut signatures = Vec::with_capacity(tree.size().keys as usize);
        let mut cursor = tree.cursor(b"");
        while let Some((_, slot)) = cursor.next_slot() {
            let newest = slot.newest;
            if newest.is_delete() {
                signatures.push(Signature::NONE);
            } else {
                states.push((newest.segment, newest.offset(), newest.len(), signatures.len()));
                signatures.push(Signature::UNKNOWN);
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
                    signatures[at] = self.of_record(&head, &bytes);
                }
            }
        }
        tree.sign(&mut signatures.into_iter());
    }
}

/// What signatures must have for their states to be looked at.
#[derive(Clone, Debug)]
pub struct Sieve {
    /// Bits that all must have.
    required: Signature,
    /// Each of these must be met.
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug)]
struct Clause {
    /// Concerns signatures only whose bits under the first are the second.
    concerned: (Signature, Signature),
    /// Those must have all the bits of one of these.
    any: Vec<Signature>,
}

impl Default for Sieve {
    /// Lets everything through.
    fn default() -> Sieve {
        Sieve { required: Signature::NONE, clauses: Vec::new() }
    }
}

impl Sieve {
    /// Lets through from now on only what has all the bits of one of `any`.
    pub fn require(&mut self, any: Vec<Signature>) {
        self.require_where(Signature::NONE, Signature::NONE, any);
    }

    /// The same for those signatures only whose bits under `mask` are `value`; others may pass.
    pub fn require_where(&mut self, mask: Signature, value: Signature, any: Vec<Signature>) {
        match any[..] {
            [bits] if mask == Signature::NONE => self.required = self.required.or(bits),
            _ => self.clauses.push(Clause { concerned: (mask, value), any }),
        }
    }

    /// Whether it lets everything through.
    pub fn is_open(&self) -> bool {
        self.required == Signature::NONE && self.clauses.is_empty()
    }

    /// Whether a state with this signature is to be looked at.
    #[inline]
    pub fn lets_through(&self, signature: Signature) -> bool {
        signature.has(self.required)
            && self.clauses.iter().all(|clause| {
                let (mask, value) = clause.concerned;
                signature.and(mask) != value || clause.any.iter().any(|&bits| signature.has(bits))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sieve_lets_through_what_has_the_bits_of_one_of_each() {
        let bits = |bits: &[u128]| bits.iter().map(|&bits| Signature::from_bits(bits)).collect::<Vec<_>>();
        let high = 1 << 100;
        let mut sieve = Sieve::default();
        assert!(sieve.is_open() && sieve.lets_through(Signature::NONE));
        sieve.require(bits(&[0b1]));
        sieve.require(bits(&[high]));
        sieve.require(bits(&[0b110, 0b1000]));
        // Where the two bits at 16 are 01, one of these.
        let (mask, value) = (Signature::from_bits(0b11 << 16), Signature::from_bits(0b01 << 16));
        sieve.require_where(mask, value, bits(&[0b10000]));
        assert!(!sieve.is_open());
        for (signature, passes) in [
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
            assert_eq!(sieve.lets_through(Signature::from_bits(signature)), passes, "{signature:#b}");
            let signature = Signature::from_bits(signature);
            assert_eq!(Signature::from_bytes(signature.to_bytes()), signature);
        }
    }

    #[test]
    fn a_slot_has_room_for_a_signature_and_no_more() {
        assert_eq!((size_of::<Signature>(), align_of::<Signature>()), (SIGNATURE_BYTES, 8));
    }
}
