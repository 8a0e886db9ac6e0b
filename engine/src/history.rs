//! The retained versions of one key, newest first.
//!
//! The newest version is in the tree's leaf; the older ones are in a chain of chunks behind it:
//! `leaf slot → [v9 v8 v7] → [v6 v5 v4 v3] → …`. A chunk never changes once it is shared, so that each root
//! keeps seeing its own past. Each chunk also has a jump to a chunk further back, chosen so that any depth is
//! reached in a logarithmic number of steps (Myers, "An applicative random-access stack"): a key written every
//! second for days has a long history, and reading far back must not walk over all of it.
//!
//! [`needed_count`] decides which versions a compaction keeps.

use std::sync::Arc;

use crate::record::RECORD_BYTES_MAX;
use crate::types::{Revision, SegmentNumber};

/// Location and properties of one stored state of a key. 32 bytes, because there is one for every retained
/// write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Version {
    /// The revision that wrote this state.
    pub revision: Revision,
    /// The revision of the put that created the key.
    pub created: Revision,
    /// The segment that contains the record.
    pub segment: SegmentNumber,
    /// Time at which the key expires, in seconds since 1970; 0 means never.
    pub expires_s: u32,
    pub location: RecordLocation,
}

/// Position and length of a record in a segment, and whether it is a delete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RecordLocation {
    /// Offset in the segment, in units of 8 bytes.
    offset_units: u32,
    /// Length of the record in bytes; the top bit is set for a delete.
    len_and_kind: u32,
}

const DELETED: u32 = 1 << 31;
const _: () = assert!(RECORD_BYTES_MAX < DELETED as usize);

impl RecordLocation {
    pub fn new(offset: u64, len: usize, deleted: bool) -> RecordLocation {
        debug_assert!(offset.is_multiple_of(8) && len < DELETED as usize);
        let kind = if deleted { DELETED } else { 0 };
        RecordLocation { offset_units: (offset / 8) as u32, len_and_kind: len as u32 | kind }
    }

    /// Encodes the value for a checkpoint.
    pub fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.offset_units) | u64::from(self.len_and_kind) << 32).to_le_bytes()
    }

    /// Decodes the value from a checkpoint.
    pub fn from_bytes(bytes: [u8; 8]) -> RecordLocation {
        let both = u64::from_le_bytes(bytes);
        RecordLocation { offset_units: both as u32, len_and_kind: (both >> 32) as u32 }
    }
}

impl Version {
    /// Returns the offset of the record in its segment, in bytes.
    pub fn offset(&self) -> u64 {
        u64::from(self.location.offset_units) * 8
    }

    /// Returns the length of the record in bytes.
    pub fn len(&self) -> usize {
        (self.location.len_and_kind & !DELETED) as usize
    }

    /// Returns whether this version deletes the key.
    pub fn is_delete(&self) -> bool {
        self.location.len_and_kind & DELETED != 0
    }
}

/// Versions in one chunk. With eight, the two links cost four bytes for each version, and adding a version to
/// a shared chunk copies at most 256 bytes.
const CHUNK_LEN: usize = 8;

/// A chunk of versions before the newest one, oldest first.
#[derive(Debug)]
pub(crate) struct OlderVersions {
    versions: Vec<Version>,
    next: Option<Arc<OlderVersions>>,
    jump: Option<Arc<OlderVersions>>,
    /// Number of chunks behind this one.
    depth: u32,
}

/// Adds `version` in front of `older`; in place if no root shares the first chunk.
pub(crate) fn push(older: &mut Option<Arc<OlderVersions>>, version: Version) {
    match older {
        Some(chunk) if chunk.versions.len() < CHUNK_LEN => match Arc::get_mut(chunk) {
            Some(chunk) => chunk.versions.push(version),
            None => {
                let mut versions = Vec::with_capacity(CHUNK_LEN);
                versions.extend_from_slice(&chunk.versions);
                versions.push(version);
                let (next, jump) = (chunk.next.clone(), chunk.jump.clone());
                *chunk = Arc::new(OlderVersions { versions, next, jump, depth: chunk.depth });
            }
        },
        _ => {
            let next = older.take();
            let (jump, depth) = match &next {
                None => (None, 0),
                Some(next) => {
                    let far = next.jump.as_ref();
                    let span = |from: &OlderVersions, to: Option<&Arc<OlderVersions>>| {
                        from.depth - to.map_or(0, |to| to.depth)
                    };
                    // Two spans of equal length in a row are joined into one, as in binary counting.
                    let jump = match far {
                        Some(far) if span(next, Some(far)) == span(far, far.jump.as_ref()) => {
                            far.jump.clone()
                        }
                        _ => Some(next.clone()),
                    };
                    (jump, next.depth + 1)
                }
            };
            // Most keys are written once or twice, so the first chunk starts small.
            let mut versions = Vec::with_capacity(if next.is_some() { CHUNK_LEN } else { 1 });
            versions.push(version);
            *older = Some(Arc::new(OlderVersions { versions, next, jump, depth }));
        }
    }
}

/// Returns the newest version among `newest` and `older` whose revision is at most `revision`.
pub(crate) fn at<'h>(
    newest: &'h Version,
    older: &'h Option<Arc<OlderVersions>>,
    revision: Revision,
) -> Option<&'h Version> {
    if newest.revision <= revision {
        return Some(newest);
    }
    let mut chunk = older.as_deref()?;
    // The search stops at the first chunk whose oldest version is not above `revision`. The search jumps as
    // long as all versions of the target are above `revision`.
    while chunk.versions.first().is_none_or(|oldest| oldest.revision > revision) {
        let target = match chunk.jump.as_deref() {
            Some(far) if far.versions.last().is_some_and(|v| v.revision > revision) => far,
            _ => chunk.next.as_deref()?,
        };
        chunk = target;
    }
    chunk.versions.iter().rev().find(|version| version.revision <= revision)
}

/// Iterates over the versions from the newest to the oldest.
pub(crate) fn iter<'h>(
    newest: &'h Version,
    older: &'h Option<Arc<OlderVersions>>,
) -> impl Iterator<Item = &'h Version> + Clone {
    let chunks = std::iter::successors(older.as_deref(), |chunk| chunk.next.as_deref());
    std::iter::once(newest).chain(chunks.flat_map(|chunk| chunk.versions.iter().rev()))
}

/// Builds the history of `versions`, newest first; `None` if there are no versions.
pub(crate) fn from_newest_first(versions: &[Version]) -> Option<(Version, Option<Arc<OlderVersions>>)> {
    let (&newest, rest) = versions.split_first()?;
    let mut older = None;
    rest.iter().rev().for_each(|&version| push(&mut older, version));
    Some((newest, older))
}

/// Returns how many of the newest versions are needed to read at `oldest` and later; 0 if the key can be
/// dropped from the index.
///
/// The needed versions are all versions above `oldest`, and the version visible at `oldest`. A visible delete
/// has no state to read. The delete is needed only if `oldest` is its own revision, because a tail may have
/// reported the deletion.
pub(crate) fn needed_count<'h>(newest_first: impl Iterator<Item = &'h Version>, oldest: Revision) -> usize {
    let mut count = 0;
    for version in newest_first {
        if version.revision > oldest {
            count += 1;
            continue;
        }
        if !version.is_delete() || version.revision == oldest {
            count += 1;
        }
        break;
    }
    count
}

impl Drop for OlderVersions {
    /// Drops the chain link by link: the derived drop would recurse once per chunk.
    fn drop(&mut self) {
        self.jump = None;
        let mut next = self.next.take();
        while let Some(mut chunk) = next.and_then(Arc::into_inner) {
            next = chunk.next.take();
            // `next` still holds the target of the jump, so dropping `chunk` here does not recurse.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(revision: Revision) -> Version {
        let location = RecordLocation::new(64, 100, false);
        Version { revision, created: Revision::new(1), segment: SegmentNumber::NONE, expires_s: 0, location }
    }

    #[test]
    fn a_version_gives_back_what_it_was_made_of() {
        for deleted in [false, true] {
            let v = Version {
                location: RecordLocation::new((1 << 34) + 8, 9_000_000, deleted),
                ..version(Revision::new(9))
            };
            assert_eq!((v.offset(), v.len(), v.is_delete()), ((1 << 34) + 8, 9_000_000, deleted));
        }
        assert_eq!(size_of::<Version>(), 32);
    }

    #[test]
    fn compaction_keeps_what_readers_may_still_ask_for() {
        // The history of one key, as revision + p(ut) or d(elete).
        for (history, oldest, left) in [
            ("1p 2p 4p", 3, "2p 4p"), // 2p is the state at revision 3
            ("1p 2p 4p", 4, "4p"),
            ("1p 2p 4p", 0, "1p 2p 4p"),
            ("1p 3d", 2, "1p 3d"),
            ("1p 3d", 3, "3d"), // at its own revision a delete is still reported
            ("1p 3d", 4, ""),   // the key is dropped
            ("1p 3d 6p", 5, "6p"),
            ("1p 3d 6p 9d", 7, "6p 9d"),
            ("5p", 4, "5p"), // younger than the compaction, so unchanged
            ("5p", 9, "5p"),
        ] {
            let versions: Vec<_> = history
                .split(' ')
                .map(|word| {
                    let (revision, kind) = word.split_at(1);
                    let location = RecordLocation::new(64, 100, kind == "d");
                    Version { location, ..version(revision.parse().unwrap()) }
                })
                .rev()
                .collect();
            let count = needed_count(versions.iter(), Revision::new(oldest));
            let words = versions[..count].iter().rev();
            let words = words.map(|v| format!("{}{}", v.revision, if v.is_delete() { 'd' } else { 'p' }));
            assert_eq!(words.collect::<Vec<_>>().join(" "), left, "{history} compacted at {oldest}");
        }
    }

    #[test]
    fn a_history_is_walked_from_its_newest_version_and_built_from_that_walk() {
        for len in [1, 2, 9, 100] {
            let versions: Vec<_> = (1..=len).rev().map(|n| version(Revision::new(n))).collect();
            let (newest, older) = from_newest_first(&versions).unwrap();
            assert!(iter(&newest, &older).eq(&versions));
            assert_eq!(at(&newest, &older, Revision::new(1)).map(|v| v.revision), Some(Revision::new(1)));
        }
        assert!(from_newest_first(&[]).is_none());
    }

    #[test]
    fn any_depth_is_found_and_shared_past_stays_as_it_was() {
        let (mut newest, mut older) = (version(Revision::new(2)), None);
        let mut roots = Vec::new();
        for n in 2..=2_000 {
            // Every other revision belongs to another key. Some pushes meet a shared chunk, others do not.
            push(&mut older, newest);
            newest = version(Revision::new(n * 2));
            if n % 7 == 0 {
                roots.push((newest, older.clone()));
            }
        }
        roots.push((newest, older));
        for (newest, older) in &roots {
            for revision in 0..=newest.revision.next().get() {
                let expected = Some(revision.min(newest.revision.get()) / 2 * 2).filter(|&r| r >= 2);
                assert_eq!(
                    at(newest, older, Revision::new(revision)).map(|v| v.revision),
                    expected.map(Revision::new),
                    "at {revision}"
                );
            }
        }
    }

    #[test]
    fn reading_far_back_takes_few_steps() {
        let (mut newest, mut older) = (version(Revision::new(1)), None);
        for n in 2..=100_000 {
            push(&mut older, newest);
            newest = version(Revision::new(n));
        }
        let mut steps = 0;
        let mut chunk = older.as_deref();
        while let Some(c) = chunk.filter(|c| c.versions[0].revision > Revision::new(1)) {
            let far =
                c.jump.as_deref().filter(|far| far.versions.last().unwrap().revision > Revision::new(1));
            chunk = far.or(c.next.as_deref());
            steps += 1;
        }
        assert!(steps < 60, "{steps} steps");
    }

    #[test]
    fn a_long_history_is_dropped_without_recursion() {
        let (newest, mut older) = (version(Revision::new(1)), None);
        for _ in 0..2_000_000 {
            push(&mut older, newest);
        }
        let second = older.clone();
        drop(older);
        drop(second);
    }
}
