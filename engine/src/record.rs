//! One committed write as bytes. All integers are little-endian; records begin at multiples of 8.
//!
//! ```text
//! offset size  field
//!      0    4  head crc     of: segment salt, record offset, bytes 4 to the end of the key
//!      4    4  body crc     of: attributes, value
//!      8    8  revision     1 or more
//!     16    8  created      revision of the put that made the key exist
//!     24    8  previous     revision of the key's state before this one; 0 when it did not exist
//!     32    8  synced       highest revision known to be on disk when this record was written
//!     40    4  value length, with its stamp
//!     44    4  attributes length
//!     48    4  stamp offset in the value
//!     52    2  key length
//!     54    1  stamp length in digits; 0: not stamped
//!     55    1  kind         1 put, 2 delete
//!     56       key, attributes, value, zeros up to a multiple of 8
//! ```
//!
//! The head has a checksum of its own so that a damaged body still tells its key, revision and length, and so
//! that a scan can find the next record after damage without checksumming megabytes at each step. Salt and
//! offset are in it so that bytes which merely look like a record (a value that contains one, a leftover of an
//! earlier use of the block) are not taken for one. `synced` is what lets recovery tell a torn tail from damage.

use bytes::Bytes;

use crate::sabotage;
use crate::types::{ATTRIBUTES_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Bytes before the key.
pub(crate) const HEAD_BYTES: usize = 56;
/// Records begin at multiples of this, so that offsets fit 32 bits and a search for one takes few steps.
pub(crate) const ALIGN: usize = 8;
/// Digits of the largest revision.
pub(crate) const STAMP_BYTES_MAX: usize = 20;
/// Revisions stay below this: far more than can ever be written, and arithmetic on them cannot overflow.
pub(crate) const REVISION_END: u64 = 1 << 62;
/// Longest record.
pub(crate) const RECORD_BYTES_MAX: usize =
    HEAD_BYTES + KEY_BYTES_MAX + ATTRIBUTES_BYTES_MAX + VALUE_BYTES_MAX + STAMP_BYTES_MAX + ALIGN;

/// What a write did to its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// The key has a new state.
    Put,
    /// The key is gone.
    Delete,
}

/// A stored state: slices of the mapped segment, which they keep alive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The key.
    pub key: Bytes,
    /// The attributes as they were written.
    pub attributes: Bytes,
    /// The value as it was written, with the revision stamped in.
    pub value: Bytes,
}

/// The fixed fields of a record, within their limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Head {
    pub revision: u64,
    pub created: u64,
    pub previous: u64,
    pub synced: u64,
    pub kind: EventKind,
    pub key_len: usize,
    pub attributes_len: usize,
    pub value_len: usize,
    /// Where the digits of the revision stand in the value.
    pub stamp: Option<Stamp>,
    body_crc: u32,
}

/// The place of a stamp in a stored value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    pub offset: usize,
    pub len: usize,
}

impl Head {
    /// Reads the head at the start of `bytes` without looking at checksums; `None` when a field is out of its
    /// limits or the record does not fit `bytes`. Cheap: a search calls it at every step.
    fn parse(bytes: &[u8]) -> Option<Head> {
        let kind = match bytes.get(55)? {
            1 => EventKind::Put,
            2 => EventKind::Delete,
            _ => return None,
        };
        let u64_at = |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let stamp = Stamp { offset: u32_at(48) as usize, len: usize::from(bytes[54]) };
        let head = Head {
            revision: u64_at(8),
            created: u64_at(16),
            previous: u64_at(24),
            synced: u64_at(32),
            kind,
            key_len: usize::from(u16::from_le_bytes([bytes[52], bytes[53]])),
            attributes_len: u32_at(44) as usize,
            value_len: u32_at(40) as usize,
            stamp: (stamp.len > 0).then_some(stamp),
            body_crc: u32_at(4),
        };
        let sound = (1..REVISION_END).contains(&head.revision)
            && (1..=head.revision).contains(&head.created)
            && head.previous < head.revision
            && head.synced < head.revision
            && (1..=KEY_BYTES_MAX).contains(&head.key_len)
            && head.attributes_len <= ATTRIBUTES_BYTES_MAX
            && head.value_len <= VALUE_BYTES_MAX + STAMP_BYTES_MAX
            && stamp.len <= STAMP_BYTES_MAX
            && stamp.offset + stamp.len <= head.value_len
            && head.record_len() <= bytes.len();
        sound.then_some(head)
    }

    /// Reads and checks the head and key of the record at the start of `bytes`, which lies at `offset` of the
    /// segment with that salt. The body is not checked.
    pub fn read(bytes: &[u8], salt: u64, offset: u64) -> Option<Head> {
        let head = Head::parse(bytes)?;
        let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let computed = head_crc(&bytes[4..HEAD_BYTES + head.key_len], salt, offset);
        (computed == stored || sabotage::crc_ignored()).then_some(head)
    }

    /// Length of the whole record, padding included.
    pub fn record_len(&self) -> usize {
        padded(HEAD_BYTES + self.key_len + self.attributes_len + self.value_len)
    }

    /// The key in the record's bytes.
    pub fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[HEAD_BYTES..HEAD_BYTES + self.key_len]
    }

    /// Whether attributes and value are what was written.
    pub fn body_is_sound(&self, bytes: &[u8]) -> bool {
        let start = HEAD_BYTES + self.key_len;
        let computed = crc32fast::hash(&bytes[start..start + self.attributes_len + self.value_len]);
        computed == self.body_crc || sabotage::crc_ignored()
    }

    /// The parts of the record, sharing its bytes. Check them first.
    pub fn record(&self, bytes: &Bytes) -> Record {
        let attributes = HEAD_BYTES + self.key_len;
        let value = attributes + self.attributes_len;
        Record {
            key: bytes.slice(HEAD_BYTES..attributes),
            attributes: bytes.slice(attributes..value),
            value: bytes.slice(value..value + self.value_len),
        }
    }
}

/// What [`append`] writes. The value is given in two parts, with the revision's digits to go between them.
pub(crate) struct Draft<'a> {
    pub revision: u64,
    pub created: u64,
    pub previous: u64,
    pub synced: u64,
    pub kind: EventKind,
    pub key: &'a [u8],
    pub attributes: &'a [u8],
    pub value: &'a [u8],
    /// The second part of the value, when it is stamped.
    pub value_after_stamp: Option<&'a [u8]>,
}

impl Draft<'_> {
    /// Length of the record it will become, padding included.
    pub fn record_len(&self) -> usize {
        let stamped = self.value_after_stamp.map_or(0, |rest| rest.len() + digits(self.revision));
        padded(HEAD_BYTES + self.key.len() + self.attributes.len() + self.value.len() + stamped)
    }
}

/// Appends the record to `out`; it will stand at `offset` of the segment with that salt. Lengths have been
/// checked against the limits. Every byte is copied once.
pub(crate) fn append(out: &mut Vec<u8>, draft: &Draft<'_>, salt: u64, offset: u64) {
    let start = out.len();
    out.reserve(draft.record_len());
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.extend_from_slice(draft.key);
    let body = out.len();
    out.extend_from_slice(draft.attributes);
    let value = out.len();
    out.extend_from_slice(draft.value);
    let stamp_offset = out.len() - value;
    let mut stamp_len = 0;
    if let Some(rest) = draft.value_after_stamp {
        let mut buffer = [0u8; STAMP_BYTES_MAX];
        let stamp = decimal(draft.revision, &mut buffer);
        stamp_len = stamp.len();
        out.extend_from_slice(stamp);
        out.extend_from_slice(rest);
    }
    let value_len = out.len() - value;
    let body_crc = crc32fast::hash(&out[body..]);
    out.resize(start + padded(out.len() - start), 0);

    let head = &mut out[start..body];
    head[4..8].copy_from_slice(&body_crc.to_le_bytes());
    head[8..16].copy_from_slice(&draft.revision.to_le_bytes());
    head[16..24].copy_from_slice(&draft.created.to_le_bytes());
    head[24..32].copy_from_slice(&draft.previous.to_le_bytes());
    head[32..40].copy_from_slice(&draft.synced.to_le_bytes());
    head[40..44].copy_from_slice(&(value_len as u32).to_le_bytes());
    head[44..48].copy_from_slice(&(draft.attributes.len() as u32).to_le_bytes());
    head[48..52].copy_from_slice(&(if stamp_len > 0 { stamp_offset as u32 } else { 0 }).to_le_bytes());
    head[52..54].copy_from_slice(&(draft.key.len() as u16).to_le_bytes());
    head[54] = stamp_len as u8;
    head[55] = match draft.kind {
        EventKind::Put => 1,
        EventKind::Delete => 2,
    };
    let crc = head_crc(&head[4..], salt, offset);
    head[..4].copy_from_slice(&crc.to_le_bytes());
}

fn head_crc(bytes: &[u8], salt: u64, offset: u64) -> u32 {
    let mut place = [0; 16];
    let salt = if sabotage::salt_ignored() { 0 } else { salt };
    place[..8].copy_from_slice(&salt.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&place);
    crc.update(bytes);
    crc.finalize()
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

fn digits(n: u64) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

fn decimal(mut n: u64, buffer: &mut [u8; STAMP_BYTES_MAX]) -> &[u8] {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(revision: u64) -> Draft<'static> {
        Draft {
            revision,
            created: 1,
            previous: 3,
            synced: 2,
            kind: EventKind::Put,
            key: b"/a/b",
            attributes: b"x=y",
            value: b"{\"v\":\"",
            value_after_stamp: Some(b"\"}"),
        }
    }

    fn encoded(draft: &Draft<'_>) -> Bytes {
        let mut out = Vec::new();
        append(&mut out, draft, 7, 64);
        assert_eq!(out.len(), draft.record_len());
        Bytes::from(out)
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = encoded(&draft(1234));
        assert_eq!(bytes.len(), 80);
        assert_eq!(bytes[8..16], 1234u64.to_le_bytes());
        assert_eq!(bytes[16..24], 1u64.to_le_bytes());
        assert_eq!(bytes[24..32], 3u64.to_le_bytes());
        assert_eq!(bytes[32..40], 2u64.to_le_bytes());
        assert_eq!(bytes[40..56], [12, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 4, 0, 4, 1]);
        assert_eq!(&bytes[56..], b"/a/bx=y{\"v\":\"1234\"}\0\0\0\0\0");
    }

    #[test]
    fn the_stamp_is_the_revision_in_decimal() {
        for revision in [4, 9, 10, 99, 100, 12_345_678_901, REVISION_END - 1] {
            let bytes = encoded(&draft(revision));
            let head = Head::read(&bytes, 7, 64).unwrap();
            assert!(head.body_is_sound(&bytes));
            let record = head.record(&bytes);
            assert_eq!(record.key, &b"/a/b"[..]);
            assert_eq!(record.attributes, &b"x=y"[..]);
            assert_eq!(record.value, format!("{{\"v\":\"{revision}\"}}").as_bytes());
            let stamp = head.stamp.unwrap();
            assert_eq!(
                record.value[stamp.offset..stamp.offset + stamp.len],
                *revision.to_string().as_bytes()
            );
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed_except_in_the_padding() {
        let good = encoded(&draft(1234));
        for bit in 0..(HEAD_BYTES + 4 + 3 + 12) * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let whole = Head::read(&bytes, 7, 64).is_some_and(|head| head.body_is_sound(&bytes));
            assert!(!whole, "bit {bit}");
            // Damage in the body leaves the head readable: the key is still known.
            let in_body = bit / 8 >= HEAD_BYTES + 4;
            assert_eq!(Head::read(&bytes, 7, 64).is_some(), in_body, "bit {bit}");
        }
    }

    #[test]
    fn a_record_counts_only_in_its_own_place() {
        let bytes = encoded(&draft(1234));
        assert!(Head::read(&bytes, 7, 72).is_none());
        assert!(Head::read(&bytes, 8, 64).is_none());
        assert!(Head::read(&bytes[..72], 7, 64).is_none());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut random = crate::testing::Random::new(5);
        for _ in 0..20_000 {
            let len = random.below(120) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            if len > 55 {
                bytes[55] = 1;
                bytes[40..52].fill(0);
            }
            assert!(Head::read(&bytes, 7, 64).is_none());
        }
    }
}
