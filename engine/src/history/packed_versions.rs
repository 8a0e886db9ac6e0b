//! The packed encoding of the versions in a full chunk of a history. The encoding exists only in memory.

use super::{ChunkVersions, DELETED, RecordLocation, Version};
use crate::types::{Revision, SegmentNumber};

/// Offsets in a packed chunk: revisions of the oldest and of the newest version (u64), number of versions (u8),
/// versions.
pub(super) const OLDEST_AT: usize = 0;
pub(super) const NEWEST_AT: usize = 8;
pub(super) const COUNT_AT: usize = 16;
const PACKED_AT: usize = 17;

/// Number of bytes that are reserved for each packed version. Most versions take less.
const PACKED_BYTES: usize = 14;

const IS_DELETE: u8 = 1;
/// The created revision differs from the created revision of the next newer version.
const HAS_CREATED: u8 = 2;
/// The segment differs from the segment of the next newer version.
const HAS_SEGMENT: u8 = 4;
const HAS_EXPIRY: u8 = 8;

pub(super) fn revision_in(bytes: &[u8], at: usize) -> Revision {
    let number = bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Revision::new(number)
}

/// Packs `versions`, which are sorted from the oldest to the newest. The packed chunk begins with the newest version.
/// Each version is stored as the difference to the next newer version, in about eleven bytes: flags, distance of the
/// revisions, offset, length, and the fields that differ. All of these fields except the flags are LEB128 numbers.
pub(super) fn pack(versions: &[Version]) -> ChunkVersions {
    let mut out = Vec::with_capacity(PACKED_AT + versions.len() * PACKED_BYTES);
    let revision = |version: Option<&Version>| version.map_or(0, |version| version.revision.get());
    out.extend_from_slice(&revision(versions.first()).to_le_bytes());
    out.extend_from_slice(&revision(versions.last()).to_le_bytes());
    out.push(versions.len() as u8);
    let mut after = Unpacking::new(&out).after;
    for version in versions.iter().rev() {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(version.is_delete(), IS_DELETE)
            | flag(version.created != after.created, HAS_CREATED)
            | flag(version.segment != after.segment, HAS_SEGMENT)
            | flag(version.expires_s > 0, HAS_EXPIRY);
        out.push(flags);
        push_number(after.revision.get().wrapping_sub(version.revision.get()), &mut out);
        push_number(version.location.offset_units.into(), &mut out);
        push_number(version.len() as u64, &mut out);
        if flags & HAS_CREATED != 0 {
            push_number(version.revision.get().wrapping_sub(version.created.get()), &mut out);
        }
        if flags & HAS_SEGMENT != 0 {
            push_number(version.segment.get().into(), &mut out);
        }
        if flags & HAS_EXPIRY != 0 {
            push_number(version.expires_s.into(), &mut out);
        }
        after = *version;
    }
    ChunkVersions::Packed(out.into())
}

fn push_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// An iterator over the versions of a packed chunk, from the newest to the oldest.
#[derive(Clone)]
pub(super) struct Unpacking<'h> {
    rest: &'h [u8],
    left: u8,
    /// The version that was returned last.
    after: Version,
}

impl<'h> Unpacking<'h> {
    pub(super) fn new(bytes: &'h [u8]) -> Unpacking<'h> {
        let after = Version {
            revision: revision_in(bytes, NEWEST_AT),
            created: Revision::ZERO,
            segment: SegmentNumber::NONE,
            expires_s: 0,
            location: RecordLocation { offset_units: 0, len_and_kind: 0 },
        };
        Unpacking { rest: &bytes[PACKED_AT..], left: bytes[COUNT_AT], after }
    }

    #[inline]
    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        while let Some((&byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 63 {
                break;
            }
        }
        number
    }
}

impl Iterator for Unpacking<'_> {
    type Item = Version;

    fn next(&mut self) -> Option<Version> {
        self.left = self.left.checked_sub(1)?;
        let (&flags, rest) = self.rest.split_first()?;
        self.rest = rest;
        let revision = self.after.revision.get().wrapping_sub(self.number());
        let (offset_units, len) = (self.number() as u32, self.number() as u32);
        let has = |flag| flags & flag != 0;
        let created = if has(HAS_CREATED) {
            Revision::new(revision.wrapping_sub(self.number()))
        } else {
            self.after.created
        };
        let segment =
            if has(HAS_SEGMENT) { SegmentNumber::new(self.number() as u32) } else { self.after.segment };
        let expires_s = if has(HAS_EXPIRY) { self.number() as u32 } else { 0 };
        let len_and_kind = len | if has(IS_DELETE) { DELETED } else { 0 };
        let location = RecordLocation { offset_units, len_and_kind };
        self.after = Version { revision: Revision::new(revision), created, segment, expires_s, location };
        Some(self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::CHUNK_LEN;
    use crate::history::tests::version;

    #[test]
    fn a_packed_version_takes_a_third_of_its_size() {
        let versions: Vec<Version> = (0..CHUNK_LEN as u64)
            .map(|n| {
                let location = RecordLocation::new(8 * 1_000_000 + n * 200_000, 1_200, false);
                Version {
                    location,
                    segment: SegmentNumber::new(7),
                    ..version(Revision::new(9_000_000 + n * 700))
                }
            })
            .collect();
        let ChunkVersions::Packed(bytes) = pack(&versions) else { panic!("it is packed") };
        assert!(bytes.len() <= 32 * CHUNK_LEN / 3, "{} bytes", bytes.len());
    }
}
