//! Encoding of one committed write. All integers are little-endian; records begin at multiples of 8.
//!
//! ```text
//! offset size  field
//!      0    4  head crc     of: segment salt, record offset, bytes 4 to the end of the key
//!      4    4  value crc
//!      8    8  revision     1 or more
//!     16    8  created      revision of the put that created the key
//!     24    8  previous     revision of the key's state before this one; 0 if it did not exist
//!     32    8  synced       highest revision known durable when this record was written
//!     40    8  time         milliseconds since 1970; never lower than that of the record before
//!     48    4  value length, with its stamp
//!     52    4  attributes length
//!     56    4  attributes crc
//!     60    4  stamp offset in the value
//!     64    4  expires      second since 1970 at which the key expires; 0: never
//!     68    2  key length
//!     70    1  stamp length in digits; 0: not stamped
//!     71    1  kind         1 put, 2 delete, 3 tombstone; plus 128 when a record of the same revision follows
//!     72       key, attributes, value, zeros up to a multiple of 8
//! ```
//!
//! The head has its own checksum for two reasons: the key, the revision and the length of a record with a damaged body
//! are still known, and a scan finds the next record after damage without computing checksums over megabytes at each
//! step. The attributes have their own checksum, so that a list that filters by attributes need not read values. The
//! checksum of the head covers salt and offset, so that bytes which merely look like a record (a value that contains a
//! record, or stale bytes of an earlier use of the block) are not recognized as a record. Recovery uses `synced` to
//! distinguish a torn tail from damage.
//!
//! A tombstone is a delete without a final state. Reclamation replaces a delete by a tombstone when no reader
//! can reach its final state but an older state of the key may still exist in an earlier segment. The
//! sequencer writes a tombstone when the disk is full: readers that can reach the tombstone can also reach
//! the state before it.

use bytes::{Buf, Bytes};

use crate::sabotage;
use crate::types::{
    ATTRIBUTES_BYTES_MAX, CommitTime, KEY_BYTES_MAX, REVISION_END, Revision, VALUE_BYTES_MAX,
};

/// Bytes of a record before its key.
pub(crate) const HEAD_BYTES: usize = 72;
/// Alignment of records, so that offsets fit into 32 bits and the search for a record takes few steps.
pub(crate) const ALIGN: usize = 8;
/// Number of digits of the largest revision.
pub(crate) const STAMP_BYTES_MAX: usize = 20;
/// Flag in the kind of a record that is followed by another record of the same revision.
const MORE: u8 = 1 << 7;
/// Kind of a delete without a final state.
const TOMBSTONE: u8 = 3;
/// Maximum length of a record, in bytes.
pub(crate) const RECORD_BYTES_MAX: usize =
    HEAD_BYTES + KEY_BYTES_MAX + ATTRIBUTES_BYTES_MAX + VALUE_BYTES_MAX + STAMP_BYTES_MAX + ALIGN;

/// Kind of a write to a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// The key has a new state.
    Put,
    /// The key was deleted.
    Delete,
}

/// A stored state. The fields of the record are slices of the mapped segment and keep it alive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// Key of the stored state.
    pub key: Bytes,
    /// The attributes as they were written.
    pub attributes: Bytes,
    /// The value as it was written, with the revision stamped in.
    pub value: Bytes,
    /// Whether the value would be sealed in another way if it were written now.
    pub outdated: bool,
}

/// The fixed fields of a record, checked against their limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Head {
    pub revision: Revision,
    pub created: Revision,
    pub previous: Revision,
    pub synced: Revision,
    /// Commit time of the record.
    pub time: CommitTime,
    /// Time at which the key expires, in seconds since 1970; 0 means never.
    pub expires_s: u32,
    pub kind: EventKind,
    /// Whether this is a delete without a final state.
    pub tombstone: bool,
    /// Whether a record of the same revision follows. Meaningless in a segment that reclamation wrote.
    pub more: bool,
    pub key_len: usize,
    pub attributes_len: usize,
    pub value_len: usize,
    /// Position of the revision's digits in the value.
    pub stamp: Option<Stamp>,
    attributes_crc: u32,
    value_crc: u32,
}

/// Position of a stamp in a stored value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    pub offset: usize,
    pub len: usize,
}

impl Head {
    /// Reads the head at the start of `bytes` without verifying checksums. Returns `None` if a field is out
    /// of its limits or the record is longer than `bytes`. This function must be cheap, because a search
    /// calls it at every step.
    fn parse(bytes: &[u8]) -> Option<Head> {
        let fixed: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let (kind, tombstone) = match fixed[71] & !MORE {
            1 => (EventKind::Put, false),
            2 => (EventKind::Delete, false),
            TOMBSTONE => (EventKind::Delete, true),
            _ => return None,
        };
        let u64_at = |at: usize| fixed[at..at + 8].iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
        let u32_at = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let stamp = Stamp { offset: u32_at(60) as usize, len: usize::from(fixed[70]) };
        let head = Head {
            revision: Revision::new(u64_at(8)),
            created: Revision::new(u64_at(16)),
            previous: Revision::new(u64_at(24)),
            synced: Revision::new(u64_at(32)),
            time: CommitTime::from_ms(u64_at(40)),
            expires_s: u32_at(64),
            kind,
            tombstone,
            more: fixed[71] & MORE != 0,
            key_len: usize::from(u16::from_le_bytes([fixed[68], fixed[69]])),
            attributes_len: u32_at(52) as usize,
            value_len: u32_at(48) as usize,
            stamp: (stamp.len > 0).then_some(stamp),
            attributes_crc: u32_at(56),
            value_crc: u32_at(4),
        };
        let sound = (Revision::FIRST..REVISION_END).contains(&head.revision)
            && (Revision::FIRST..=head.revision).contains(&head.created)
            && head.previous < head.revision
            && head.synced < head.revision
            && head.time < CommitTime::END
            && (1..=KEY_BYTES_MAX).contains(&head.key_len)
            && head.attributes_len <= ATTRIBUTES_BYTES_MAX
            && head.value_len <= VALUE_BYTES_MAX + STAMP_BYTES_MAX
            && stamp.len <= STAMP_BYTES_MAX
            && stamp.offset + stamp.len <= head.value_len
            && head.record_len() <= bytes.len();
        sound.then_some(head)
    }

    /// Reads and verifies the head and key of the record at the start of `bytes`, which is at `offset` in the
    /// segment with the given salt. The body is not verified.
    pub fn read(bytes: &[u8], salt: u64, offset: u64) -> Option<Head> {
        let head = Head::parse(bytes)?;
        let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let computed = head_crc(&bytes[4..HEAD_BYTES + head.key_len], salt, offset);
        (computed == stored || sabotage::crc_ignored()).then_some(head)
    }

    /// Returns the length of the whole record, padding included.
    pub fn record_len(&self) -> usize {
        padded(HEAD_BYTES + self.key_len + self.attributes_len + self.value_len)
    }

    /// Returns the key in the record's bytes.
    pub fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[HEAD_BYTES..HEAD_BYTES + self.key_len]
    }

    /// Returns whether the attributes match their checksum.
    pub fn attributes_are_sound(&self, bytes: &[u8]) -> bool {
        crc32fast::hash(self.attributes_in(bytes)) == self.attributes_crc || sabotage::crc_ignored()
    }

    /// Returns whether attributes and value match their checksums.
    pub fn body_is_sound(&self, bytes: &[u8]) -> bool {
        self.attributes_are_sound(bytes)
            && (crc32fast::hash(self.value_in(bytes)) == self.value_crc || sabotage::crc_ignored())
    }

    /// Returns the value in the record's bytes. The caller verifies the value first.
    pub fn value_in<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = HEAD_BYTES + self.key_len + self.attributes_len;
        &bytes[start..start + self.value_len]
    }

    /// Returns the attributes as a shared slice of the record's bytes. The caller verifies the attributes
    /// first.
    pub fn attributes(&self, bytes: &Bytes) -> Bytes {
        bytes.slice_ref(self.attributes_in(bytes))
    }

    /// Returns the attributes in the record's bytes. The caller verifies the attributes first.
    pub fn attributes_in<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = HEAD_BYTES + self.key_len;
        &bytes[start..start + self.attributes_len]
    }

    /// Splits the record's bytes into a [`Record`] that shares them. The caller verifies the bytes first.
    pub fn record(&self, mut bytes: Bytes) -> Record {
        bytes.advance(HEAD_BYTES);
        let key = bytes.split_to(self.key_len);
        let attributes = bytes.split_to(self.attributes_len);
        bytes.truncate(self.value_len);
        Record { key, attributes, value: bytes, outdated: false }
    }
}

/// Input of [`append`]. The value has two parts if the digits of the revision are inserted between them.
#[derive(Clone, Copy)]
pub(crate) struct NewRecord<'a> {
    pub revision: Revision,
    pub created: Revision,
    pub previous: Revision,
    pub synced: Revision,
    pub time: CommitTime,
    pub expires_s: u32,
    pub kind: EventKind,
    pub key: &'a [u8],
    pub attributes: &'a [u8],
    pub value: &'a [u8],
    /// The part of the value after the stamp, if the value is stamped.
    pub value_after_stamp: Option<&'a [u8]>,
    /// Whether a record of the same revision follows.
    pub more: bool,
    /// Whether this is a delete without a final state; attributes and value are then empty.
    pub tombstone: bool,
}

impl NewRecord<'_> {
    /// Returns the length of the encoded record, padding included.
    pub fn record_len(&self) -> usize {
        let stamped = self.value_after_stamp.map_or(0, |rest| rest.len() + digits(self.revision.get()));
        padded(HEAD_BYTES + self.key.len() + self.attributes.len() + self.value.len() + stamped)
    }
}

/// Appends the record to `out`, for `offset` in the segment with the given salt. The caller has checked the
/// lengths against the limits. Every byte is copied once.
pub(crate) fn append(out: &mut Vec<u8>, record: &NewRecord<'_>, salt: u64, offset: u64) {
    let start = out.len();
    out.reserve(record.record_len());
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.extend_from_slice(record.key);
    let body = out.len();
    out.extend_from_slice(record.attributes);
    let value = out.len();
    out.extend_from_slice(record.value);
    let stamp_offset = out.len() - value;
    let mut stamp_len = 0;
    if let Some(rest) = record.value_after_stamp {
        let mut buffer = [0u8; STAMP_BYTES_MAX];
        let stamp = decimal(record.revision.get(), &mut buffer);
        stamp_len = stamp.len();
        out.extend_from_slice(stamp);
        out.extend_from_slice(rest);
    }
    let value_len = out.len() - value;
    let attributes_crc = crc32fast::hash(&out[body..value]);
    let value_crc = crc32fast::hash(&out[value..]);
    out.resize(start + padded(out.len() - start), 0);

    let head = &mut out[start..body];
    head[4..8].copy_from_slice(&value_crc.to_le_bytes());
    head[8..16].copy_from_slice(&record.revision.get().to_le_bytes());
    head[16..24].copy_from_slice(&record.created.get().to_le_bytes());
    head[24..32].copy_from_slice(&record.previous.get().to_le_bytes());
    head[32..40].copy_from_slice(&record.synced.get().to_le_bytes());
    head[40..48].copy_from_slice(&record.time.ms().to_le_bytes());
    head[48..52].copy_from_slice(&(value_len as u32).to_le_bytes());
    head[52..56].copy_from_slice(&(record.attributes.len() as u32).to_le_bytes());
    head[56..60].copy_from_slice(&attributes_crc.to_le_bytes());
    head[60..64].copy_from_slice(&(if stamp_len > 0 { stamp_offset as u32 } else { 0 }).to_le_bytes());
    head[64..68].copy_from_slice(&record.expires_s.to_le_bytes());
    head[68..70].copy_from_slice(&(record.key.len() as u16).to_le_bytes());
    head[70] = stamp_len as u8;
    head[71] = match record.kind {
        EventKind::Put => 1,
        EventKind::Delete if record.tombstone => TOMBSTONE,
        EventKind::Delete => 2,
    } | if record.more { MORE } else { 0 };
    seal(head, salt, offset);
}

/// Appends a copy of `record` from another segment for a new position. The body and its checksums stay
/// unchanged, so a damaged body still reads as damaged.
pub(crate) fn append_copy(out: &mut Vec<u8>, record: &[u8], head: &Head, salt: u64, offset: u64) {
    let start = out.len();
    out.extend_from_slice(record);
    seal(&mut out[start..start + HEAD_BYTES + head.key_len], salt, offset);
}

/// Appends a tombstone for `record`, which is a delete. The tombstone only says that the key is deleted from
/// the revision of the record on.
pub(crate) fn append_tombstone(out: &mut Vec<u8>, record: &[u8], head: &Head, salt: u64, offset: u64) {
    let start = out.len();
    let end = start + HEAD_BYTES + head.key_len;
    out.extend_from_slice(&record[..HEAD_BYTES + head.key_len]);
    // All lengths and the stamp are zero; the checksum of zero bytes is 0.
    out[start + 4..start + 8].fill(0);
    out[start + 48..start + 64].fill(0);
    out[start + 70] = 0;
    out[start + 71] = TOMBSTONE;
    seal(&mut out[start..end], salt, offset);
    out.resize(start + padded(out.len() - start), 0);
}

/// Writes the checksum of a head and its key.
fn seal(head: &mut [u8], salt: u64, offset: u64) {
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

/// Returns the length of a tombstone of a key, padding included.
pub(crate) fn tombstone_len(key_len: usize) -> usize {
    padded(HEAD_BYTES + key_len)
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(ALIGN)
}

fn digits(n: u64) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

pub(crate) fn decimal(mut n: u64, buffer: &mut [u8; STAMP_BYTES_MAX]) -> &[u8] {
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

    fn draft(revision: Revision) -> NewRecord<'static> {
        NewRecord {
            revision,
            created: Revision::new(1),
            previous: Revision::new(3),
            synced: Revision::new(2),
            time: CommitTime::from_ms(5),
            expires_s: 6,
            kind: EventKind::Put,
            key: b"/a/b",
            attributes: b"x=y",
            value: b"{\"v\":\"",
            value_after_stamp: Some(b"\"}"),
            more: false,
            tombstone: false,
        }
    }

    fn encoded(draft: &NewRecord<'_>) -> Bytes {
        let mut out = Vec::new();
        append(&mut out, draft, 7, 64);
        assert_eq!(out.len(), draft.record_len());
        Bytes::from(out)
    }

    #[test]
    fn a_record_has_the_documented_layout() {
        let bytes = encoded(&draft(Revision::new(1234)));
        assert_eq!(bytes.len(), 96);
        assert_eq!(bytes[8..16], 1234u64.to_le_bytes());
        assert_eq!(bytes[16..24], 1u64.to_le_bytes());
        assert_eq!(bytes[24..32], 3u64.to_le_bytes());
        assert_eq!(bytes[32..40], 2u64.to_le_bytes());
        assert_eq!(bytes[40..48], 5u64.to_le_bytes());
        assert_eq!(bytes[48..56], [12, 0, 0, 0, 3, 0, 0, 0]);
        assert_eq!(bytes[56..60], crc32fast::hash(b"x=y").to_le_bytes());
        assert_eq!(bytes[60..72], [6, 0, 0, 0, 6, 0, 0, 0, 4, 0, 4, 1]);
        assert_eq!(&bytes[72..], b"/a/bx=y{\"v\":\"1234\"}\0\0\0\0\0");
    }

    #[test]
    fn a_copied_record_is_valid_only_at_its_new_position() {
        let bytes = encoded(&draft(Revision::new(1234)));
        let head = Head::read(&bytes, 7, 64).unwrap();
        for flipped in [None, Some(HEAD_BYTES + 5), Some(HEAD_BYTES + 10)] {
            let mut source = bytes.to_vec();
            flipped.into_iter().for_each(|at| source[at] ^= 1);
            let mut copy = Vec::new();
            append_copy(&mut copy, &source, &head, 8, 128);
            assert!(Head::read(&copy, 7, 64).is_none());
            assert_eq!(Head::read(&copy, 8, 128), Some(head));
            // A damaged body still reads as damaged after the copy.
            assert_eq!(head.body_is_sound(&copy), flipped.is_none());
            assert_eq!(copy[4..], source[4..]);
        }
    }

    #[test]
    fn a_tombstone_keeps_only_the_key_and_its_revisions() {
        let bytes = encoded(&NewRecord { kind: EventKind::Delete, ..draft(Revision::new(1234)) });
        let head = Head::read(&bytes, 7, 64).unwrap();
        assert!(!head.tombstone);
        let mut out = Vec::new();
        append_tombstone(&mut out, &bytes, &head, 8, 128);
        assert_eq!(out.len(), 80);
        let tombstone = Head::read(&out, 8, 128).unwrap();
        assert!(tombstone.tombstone && tombstone.kind == EventKind::Delete && tombstone.body_is_sound(&out));
        assert_eq!(
            (tombstone.revision, tombstone.created, tombstone.previous),
            (Revision::new(1234), Revision::new(1), Revision::new(3))
        );
        assert_eq!((tombstone.time.ms(), tombstone.record_len()), (5, 80));
        let record = tombstone.record(Bytes::from(out.clone()));
        assert_eq!((&record.key[..], record.attributes.len(), record.value.len()), (&b"/a/b"[..], 0, 0));
        // The sequencer writes the same bytes.
        let new = NewRecord {
            kind: EventKind::Delete,
            expires_s: 6,
            attributes: b"",
            value: b"",
            value_after_stamp: None,
            tombstone: true,
            ..draft(Revision::new(1234))
        };
        let mut written = Vec::new();
        append(&mut written, &new, 8, 128);
        assert_eq!((written, tombstone_len(4)), (out, 80));
    }

    #[test]
    fn the_stamp_of_a_record_is_its_revision_in_decimal() {
        for revision in [4, 9, 10, 99, 100, 12_345_678_901, REVISION_END.before().get()] {
            let bytes = encoded(&draft(Revision::new(revision)));
            let head = Head::read(&bytes, 7, 64).unwrap();
            assert!(head.body_is_sound(&bytes));
            let record = head.record(bytes.clone());
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
        let good = encoded(&draft(Revision::new(1234)));
        for bit in 0..(HEAD_BYTES + 4 + 3 + 12) * 8 {
            let mut bytes = good.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let whole = Head::read(&bytes, 7, 64).is_some_and(|head| head.body_is_sound(&bytes));
            assert!(!whole, "bit {bit}");
            // Damage in the body leaves the head readable, so the key is still known.
            let in_body = bit / 8 >= HEAD_BYTES + 4;
            let head = Head::read(&bytes, 7, 64);
            assert_eq!(head.is_some(), in_body, "bit {bit}");
            // Damage in the value leaves the attributes usable.
            let in_value = bit / 8 >= HEAD_BYTES + 7;
            assert_eq!(head.is_some_and(|head| head.attributes_are_sound(&bytes)), in_value, "bit {bit}");
        }
    }

    #[test]
    fn a_record_is_valid_only_in_its_own_segment_and_position() {
        let bytes = encoded(&draft(Revision::new(1234)));
        assert!(Head::read(&bytes, 7, 72).is_none());
        assert!(Head::read(&bytes, 8, 64).is_none());
        assert!(Head::read(&bytes[..88], 7, 64).is_none());
    }

    #[test]
    fn decoding_arbitrary_bytes_as_a_record_does_not_panic() {
        let mut random = crate::testing::Random(5);
        for _ in 0..20_000 {
            let len = random.below(160) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            if len > HEAD_BYTES {
                bytes[71] = 1 + random.below(3) as u8;
                bytes[46..56].fill(0);
            }
            assert!(Head::read(&bytes, 7, 64).is_none());
        }
    }
}
