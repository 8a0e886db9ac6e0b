//! The retained versions of one key, newest first.
//!
//! The newest version is in the tree's leaf; the older versions are in a chain of chunks behind it: `leaf slot → [v9 v8
//! v7] → [v6 v5 v4 v3] → …`. A chunk never changes once it is shared, so the histories in a root never change. Full
//! chunks are packed: there are many times more retained versions than keys, and most of them are never read. Each
//! chunk also has a pointer (a jump) to a chunk further back, chosen so that any depth is reached in a logarithmic
//! number of steps (Myers, "An applicative random-access stack"). A key that is written every second for days has a
//! long history, and a read far back must not walk over all of it.
//!
//! [`needed_count`] decides which versions a compaction keeps.

mod packed_versions;

use std::sync::Arc;

use self::packed_versions::{COUNT_AT, NEWEST_AT, OLDEST_AT, Unpacking, pack, revision_in};
use crate::record::RECORD_BYTES_MAX;
use crate::types::{Revision, SegmentNumber};

/// Location and properties of one stored state of a key. The size is limited to 32 bytes, because each key has at least
/// one version that is not packed.
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

/// Maximum number of versions in a chunk. With sixteen versions, the links and the head of a packed chunk cost about
/// five bytes for each version, and adding a version to a shared chunk copies at most 512 bytes.
const CHUNK_LEN: usize = 16;

/// A chunk of the versions that are older than the newest one.
#[derive(Debug)]
pub(crate) struct OlderVersions {
    versions: ChunkVersions,
    next: Option<Arc<OlderVersions>>,
    jump: Option<Arc<OlderVersions>>,
    /// Number of chunks behind this one.
    depth: u32,
    /// Number of versions in this chunk and all chunks behind it.
    total: u32,
}

/// The versions of a chunk. The first chunk of a history accepts further versions; the chunks behind it are packed.
#[derive(Clone, Debug)]
enum ChunkVersions {
    /// Oldest first.
    Open(Vec<Version>),
    Packed(Arc<[u8]>),
}

impl OlderVersions {
    /// Puts a chunk with these versions in front of `next`.
    fn link(versions: ChunkVersions, next: Option<Arc<OlderVersions>>) -> Arc<OlderVersions> {
        let len = versions.len() as u32;
        let Some(next) = next else {
            return Arc::new(OlderVersions { versions, next: None, jump: None, depth: 0, total: len });
        };
        let span =
            |from: &OlderVersions, to: Option<&Arc<OlderVersions>>| from.depth - to.map_or(0, |to| to.depth);
        // Two consecutive spans of equal length are joined into one span, like a carry in binary counting.
        let jump = match &next.jump {
            Some(far) if span(&next, Some(far)) == span(far, far.jump.as_ref()) => far.jump.clone(),
            _ => Some(next.clone()),
        };
        let (depth, total) = (next.depth + 1, next.total + len);
        Arc::new(OlderVersions { versions, next: Some(next), jump, depth, total })
    }
}

impl ChunkVersions {
    fn len(&self) -> usize {
        match self {
            ChunkVersions::Open(versions) => versions.len(),
            ChunkVersions::Packed(bytes) => usize::from(bytes[COUNT_AT]),
        }
    }

    fn oldest(&self) -> Revision {
        match self {
            ChunkVersions::Open(versions) => {
                versions.first().map_or(Revision::ZERO, |version| version.revision)
            }
            ChunkVersions::Packed(bytes) => revision_in(bytes, OLDEST_AT),
        }
    }

    fn newest(&self) -> Revision {
        match self {
            ChunkVersions::Open(versions) => {
                versions.last().map_or(Revision::ZERO, |version| version.revision)
            }
            ChunkVersions::Packed(bytes) => revision_in(bytes, NEWEST_AT),
        }
    }

    /// Iterates over the versions from the newest to the oldest.
    fn iter(&self) -> ChunkIter<'_> {
        match self {
            ChunkVersions::Open(versions) => ChunkIter::Open(versions.iter().rev()),
            ChunkVersions::Packed(bytes) => ChunkIter::Packed(Unpacking::new(bytes)),
        }
    }
}

#[derive(Clone)]
enum ChunkIter<'h> {
    Open(std::iter::Rev<std::slice::Iter<'h, Version>>),
    Packed(Unpacking<'h>),
}

impl Iterator for ChunkIter<'_> {
    type Item = Version;

    fn next(&mut self) -> Option<Version> {
        match self {
            ChunkIter::Open(versions) => versions.next().copied(),
            ChunkIter::Packed(versions) => versions.next(),
        }
    }
}

/// Adds `version` in front of `older`. Changes the first chunk in place if no root shares it.
pub(crate) fn push(older: &mut Option<Arc<OlderVersions>>, version: Version) {
    if let Some(chunk) = older.as_mut().and_then(Arc::get_mut)
        && let ChunkVersions::Open(versions) = &mut chunk.versions
        && versions.len() < CHUNK_LEN
    {
        versions.push(version);
        chunk.total += 1;
        return;
    }
    let first = match older.as_deref() {
        Some(OlderVersions { versions: ChunkVersions::Open(versions), next, .. }) => {
            if versions.len() < CHUNK_LEN {
                let mut copy = Vec::with_capacity(versions.len() + 1);
                copy.extend_from_slice(versions);
                copy.push(version);
                OlderVersions::link(ChunkVersions::Open(copy), next.clone())
            } else {
                let packed = OlderVersions::link(pack(versions), next.clone());
                OlderVersions::link(ChunkVersions::Open(vec![version]), Some(packed))
            }
        }
        _ => OlderVersions::link(ChunkVersions::Open(vec![version]), older.clone()),
    };
    *older = Some(first);
}

/// Returns the newest version among `newest` and `older` whose revision is at most `revision`.
pub(crate) fn at(
    newest: &Version,
    older: &Option<Arc<OlderVersions>>,
    revision: Revision,
) -> Option<Version> {
    if newest.revision <= revision {
        return Some(*newest);
    }
    chunk_at(older, revision)?.versions.iter().find(|version| version.revision <= revision)
}

/// Returns the newest chunk of `older` that has a version whose revision is at most `revision`.
fn chunk_at(older: &Option<Arc<OlderVersions>>, revision: Revision) -> Option<&OlderVersions> {
    let mut chunk = older.as_deref()?;
    // The search stops at the first chunk whose oldest version is not above `revision`. The search jumps as
    // long as all versions of the target are above `revision`.
    while chunk.versions.oldest() > revision {
        let target = match chunk.jump.as_deref() {
            Some(far) if far.versions.newest() > revision => far,
            _ => chunk.next.as_deref()?,
        };
        chunk = target;
    }
    Some(chunk)
}

/// Iterates over the versions whose revision is at most `revision`, from the newest to the oldest. The first of
/// these versions is reached in the same number of steps as with [`at`].
pub(crate) fn from<'h>(
    newest: &Version,
    older: &'h Option<Arc<OlderVersions>>,
    revision: Revision,
) -> impl Iterator<Item = Version> + use<'h> {
    let newest = Some(*newest).filter(|newest| newest.revision <= revision);
    let first = if newest.is_some() { older.as_deref() } else { chunk_at(older, revision) };
    let chunks = std::iter::successors(first, |chunk| chunk.next.as_deref());
    let older = chunks.flat_map(|chunk| chunk.versions.iter());
    newest.into_iter().chain(older.skip_while(move |version| version.revision > revision))
}

/// Iterates over the versions from the newest to the oldest.
pub(crate) fn iter<'h>(
    newest: &Version,
    older: &'h Option<Arc<OlderVersions>>,
) -> impl Iterator<Item = Version> + Clone + use<'h> {
    std::iter::once(*newest).chain(chunks(older).flat_map(|chunk| chunk.versions.iter()))
}

fn chunks(older: &Option<Arc<OlderVersions>>) -> impl Iterator<Item = &OlderVersions> + Clone {
    std::iter::successors(older.as_deref(), |chunk| chunk.next.as_deref())
}

/// Returns the number of versions, including the newest one.
pub(crate) fn len(older: &Option<Arc<OlderVersions>>) -> usize {
    1 + older.as_ref().map_or(0, |chunk| chunk.total as usize)
}

/// Builds the history of `versions`, which are sorted from the newest to the oldest. Returns `None` if
/// `versions` is empty.
pub(crate) fn from_newest_first(versions: &[Version]) -> Option<(Version, Option<Arc<OlderVersions>>)> {
    let (&newest, rest) = versions.split_first()?;
    let mut older = None;
    let mut left = rest.len();
    for chunk in rest.rchunks(CHUNK_LEN) {
        left -= chunk.len();
        let chunk: Vec<Version> = chunk.iter().rev().copied().collect();
        older = Some(OlderVersions::link(
            if left > 0 { pack(&chunk) } else { ChunkVersions::Open(chunk) },
            older,
        ));
    }
    Some((newest, older))
}

/// Returns the history of the newest `count` versions; `None` if `count` is 0. Allocates a link for each chunk, but
/// shares the packed versions.
pub(crate) fn truncated(
    newest: &Version,
    older: &Option<Arc<OlderVersions>>,
    count: usize,
) -> Option<(Version, Option<Arc<OlderVersions>>)> {
    let mut left = count.checked_sub(1)?;
    let mut whole = Vec::new();
    let mut last = None;
    for chunk in chunks(older) {
        let len = chunk.versions.len();
        if left < len {
            let mut versions: Vec<Version> = chunk.versions.iter().take(left).collect();
            versions.reverse();
            let is_first = whole.is_empty();
            last = (left > 0).then(|| if is_first { ChunkVersions::Open(versions) } else { pack(&versions) });
            break;
        }
        whole.push(&chunk.versions);
        left -= len;
    }
    let tail = last.map(|versions| OlderVersions::link(versions, None));
    Some((*newest, relinked(&whole, tail)))
}

/// Returns the older versions with `to` in place of `from`; `None` if `from` is not an older version of the key.
pub(crate) fn replaced(
    older: &Option<Arc<OlderVersions>>,
    from: &Version,
    to: Version,
) -> Option<Option<Arc<OlderVersions>>> {
    let mut before = Vec::new();
    for chunk in chunks(older) {
        if chunk.versions.oldest() > from.revision {
            before.push(&chunk.versions);
            continue;
        }
        let mut versions: Vec<Version> = chunk.versions.iter().collect();
        *versions.iter_mut().find(|version| *version == from)? = to;
        versions.reverse();
        let versions = match &chunk.versions {
            ChunkVersions::Open(_) => ChunkVersions::Open(versions),
            ChunkVersions::Packed(_) => pack(&versions),
        };
        let chunk = OlderVersions::link(versions, chunk.next.clone());
        return Some(relinked(&before, Some(chunk)));
    }
    None
}

/// Puts chunks with these versions, given from the newest to the oldest, in front of `older`.
fn relinked(chunks: &[&ChunkVersions], older: Option<Arc<OlderVersions>>) -> Option<Arc<OlderVersions>> {
    chunks.iter().rev().fold(older, |older, versions| Some(OlderVersions::link((*versions).clone(), older)))
}

/// Returns how many of the newest versions are needed to read at `oldest` and later; 0 if the key can be
/// dropped from the index.
///
/// The needed versions are all versions above `oldest`, and the version visible at `oldest`. A visible delete
/// has no state to read. The delete is needed only if `oldest` is its own revision, because a tail may have
/// reported the deletion.
pub(crate) fn needed_count(newest_first: impl Iterator<Item = Version>, oldest: Revision) -> usize {
    let mut count = 0;
    for version in newest_first {
        if version.revision > oldest {
            count += 1;
            continue;
        }
        count += usize::from(is_visible(&version, oldest));
        break;
    }
    count
}

/// Returns whether a reader at `oldest` may need `version`, the newest version at or before `oldest`.
fn is_visible(version: &Version, oldest: Revision) -> bool {
    !version.is_delete() || version.revision == oldest
}

/// Returns the [`needed_count`] of a history. If all versions of a chunk are needed, the chunk is counted without
/// decoding its versions.
pub(crate) fn needed(newest: &Version, older: &Option<Arc<OlderVersions>>, oldest: Revision) -> usize {
    if newest.revision <= oldest {
        return usize::from(is_visible(newest, oldest));
    }
    let mut count = 1;
    for chunk in chunks(older) {
        if chunk.versions.oldest() <= oldest {
            return count + needed_count(chunk.versions.iter(), oldest);
        }
        count += chunk.versions.len();
    }
    count
}

/// Returns the version that `revision` wrote, and whether this version is needed to read at `oldest` and
/// later.
pub(crate) fn exact(
    newest: &Version,
    older: &Option<Arc<OlderVersions>>,
    revision: Revision,
    oldest: Revision,
) -> Option<(Version, bool)> {
    let version = at(newest, older, revision).filter(|version| version.revision == revision)?;
    let is_last_before = || at(newest, older, oldest).is_some_and(|at_oldest| at_oldest.revision == revision);
    Some((version, revision > oldest || is_visible(&version, oldest) && is_last_before()))
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

    pub(super) fn version(revision: Revision) -> Version {
        let location = RecordLocation::new(64, 100, false);
        Version { revision, created: Revision::new(1), segment: SegmentNumber::NONE, expires_s: 0, location }
    }

    #[test]
    fn a_version_returns_the_fields_that_it_was_made_from() {
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
    fn compaction_keeps_the_versions_that_readers_can_still_request() {
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
            let oldest = Revision::new(oldest);
            let count = needed_count(versions.iter().copied(), oldest);
            let (newest, older) = from_newest_first(&versions).unwrap();
            assert_eq!(needed(&newest, &older, oldest), count, "{history} compacted at {oldest}");
            for (at, version) in versions.iter().enumerate() {
                let found = exact(&newest, &older, version.revision, oldest);
                assert_eq!(found, Some((*version, at < count)), "{history} compacted at {oldest}");
            }
            let words = versions[..count].iter().rev();
            let words = words.map(|v| format!("{}{}", v.revision, if v.is_delete() { 'd' } else { 'p' }));
            assert_eq!(words.collect::<Vec<_>>().join(" "), left, "{history} compacted at {oldest}");
        }
    }

    #[test]
    fn a_history_is_iterated_from_the_newest_version_and_rebuilt_from_the_iteration() {
        for len in [1, 2, 9, 16, 17, 18, 33, 34, 100] {
            let versions: Vec<_> = (1..=len).rev().map(|n| version(Revision::new(n))).collect();
            let (newest, older) = from_newest_first(&versions).unwrap();
            assert!(iter(&newest, &older).eq(versions.iter().copied()));
            assert_eq!(super::len(&older), versions.len());
            assert_eq!(at(&newest, &older, Revision::new(1)).map(|v| v.revision), Some(Revision::new(1)));
        }
        assert!(from_newest_first(&[]).is_none());
    }

    /// Returns `count` pseudo-random versions that differ in all fields, oldest first.
    fn various(seed: u64, count: u64) -> Vec<Version> {
        let mut random = crate::testing::Random(seed);
        let (mut revision, mut created, mut segment) = (1 + random.below(1 << 40), 1, 1);
        let mut version = || {
            let (distance_bits, len_bits) = (1 + random.below(30), 1 + random.below(20));
            revision += 1 + random.below(1 << distance_bits);
            created = if random.below(5) == 0 { revision - random.below(revision) } else { created };
            segment = if random.below(3) == 0 { random.below(1 << 32) as u32 } else { segment };
            let expires_s = if random.below(3) == 0 { random.below(1 << 32) as u32 } else { 0 };
            let len = 8 * random.below(1 << len_bits) as usize;
            let location = RecordLocation::new(8 * random.below(1 << 32), len, random.below(4) == 0);
            let (revision, created) = (Revision::new(revision), Revision::new(created));
            Version { revision, created, segment: SegmentNumber::new(segment), expires_s, location }
        };
        (0..count).map(|_| version()).collect()
    }

    #[test]
    fn changing_a_history_does_not_change_shared_copies() {
        for seed in 0..40 {
            let oldest_first = various(seed, 1 + seed * 3);
            let (mut newest, mut older) = (oldest_first[0], None);
            for version in &oldest_first[1..] {
                push(&mut older, newest);
                newest = *version;
            }
            let all: Vec<Version> = oldest_first.iter().rev().copied().collect();
            assert!(iter(&newest, &older).eq(all.iter().copied()), "seed {seed}");
            let (newest, built) = from_newest_first(&all).unwrap();
            assert!(iter(&newest, &built).eq(all.iter().copied()), "seed {seed}");
            for kept in 0..=all.len() {
                for older in [&older, &built] {
                    let cut = truncated(&newest, older, kept);
                    assert_eq!(cut.is_some(), kept > 0);
                    let Some((newest, mut cut)) = cut else { continue };
                    assert!(iter(&newest, &cut).eq(all[..kept].iter().copied()), "seed {seed}, {kept} kept");
                    assert_eq!(super::len(&cut), kept);
                    let added = Version { revision: newest.revision.next(), ..newest };
                    push(&mut cut, newest);
                    let more = [added].into_iter().chain(all[..kept].iter().copied());
                    assert!(iter(&added, &cut).eq(more), "seed {seed}, {kept} kept, and one more");
                }
            }
            for at in 1..all.len() {
                let to = Version { location: RecordLocation::new(64, 72, false), ..all[at] };
                let changed = replaced(&older, &all[at], to).unwrap();
                let expected = all.iter().enumerate().map(|(n, version)| if n == at { to } else { *version });
                assert!(iter(&newest, &changed).eq(expected), "seed {seed}, {at} changed");
            }
            assert!(replaced(&older, &newest, newest).is_none());
            assert!(iter(&newest, &older).eq(all.iter().copied()), "seed {seed}");
        }
    }

    #[test]
    fn versions_are_found_at_any_depth_and_shared_histories_do_not_change() {
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
                assert!(
                    from(newest, older, Revision::new(revision)).take(20).eq(iter(newest, older)
                        .skip_while(|version| version.revision.get() > revision)
                        .take(20)),
                    "from {revision}"
                );
                assert_eq!(
                    at(newest, older, Revision::new(revision)).map(|v| v.revision),
                    expected.map(Revision::new),
                    "at {revision}"
                );
            }
        }
    }

    #[test]
    fn a_lookup_far_back_in_history_takes_few_steps() {
        let (mut newest, mut older) = (version(Revision::new(1)), None);
        for n in 2..=100_000 {
            push(&mut older, newest);
            newest = version(Revision::new(n));
        }
        let mut steps = 0;
        let mut chunk = older.as_deref();
        while let Some(c) = chunk.filter(|c| c.versions.oldest() > Revision::new(1)) {
            let far = c.jump.as_deref().filter(|far| far.versions.newest() > Revision::new(1));
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
