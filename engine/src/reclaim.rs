//! Segment reclamation: rewrites segments that are mostly dead and drops records that no reader can reach.
//!
//! ```text
//! log:  [1 ....][2 ..x.][3 x.xx][4 xxx.][5 ....]      x: needed
//!                └── choose ──────────┘
//!                [6 xxxxxx]  copy, sync, rename        then the index is updated, record by record, and
//! log:  [1 ....][6 xxxxxx][5 ....]                     6 takes the place of 2, 3 and 4
//! ```
//!
//! Only segments whose whole history is compacted are chosen, so no tail ever reads a rewritten segment. The
//! same root decides from beginning to end which records are needed; if the index changes in the meantime, a
//! record may be kept longer than needed. No caller waits for a rewrite: each step copies a bounded number of
//! bytes, and readers with old roots keep the old segments.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::header::{Header, RECORDS_START, Rewritten};
use crate::history::{self, Version};
use crate::io::{File, Storage};
use crate::log::Numbers;
use crate::record::{self, EventKind, Head};
use crate::reserve::Reserve;
use crate::sabotage;
use crate::segment::{FoundRecord, PositionMarks, Segment, Walk};
use crate::snapshot::Root;
use crate::throttle::WriteThrottle;
use crate::types::{Revision, SegmentNumber};

/// Name of a segment file that is being rewritten.
pub(crate) const NEXT_NAME: &str = "rewrite.segment";

/// Bytes of records that one step reads, whether they are needed or dead. A step takes some hundred
/// microseconds, so other threads do not wait long for the processor.
const STEP_BYTES: usize = 1024 * 1024;
/// Maximum number of segments that are rewritten together, so that their space is freed soon.
const SOURCES_MAX: usize = 8;
/// Share of live bytes, in percent, below which a segment is worth rewriting. At 60, freeing a byte costs at
/// most one and a half copied bytes, and the remaining segments take at most 1.67 bytes for each live byte.
const LIVE_PERCENT_MIN: u64 = 60;
/// On a full disk a segment is worth rewriting as soon as this fraction of it (one part in `GAIN_ON_FULL`) is
/// dead, because deletes need the freed space. The deletes that make such a small fraction dead leave
/// tombstones that fit into the writers' part of the reserve.
const GAIN_ON_FULL: u64 = 32;
/// Minimum number of bytes that a rewrite on a full disk must free. The header of the new segment alone takes
/// a page.
const GAIN_ON_FULL_MIN: u64 = 16 * 1024;
/// Number of consecutive segments, each smaller than a fourth of the usual size, that are merged.
const SMALL_RUN: usize = 4;

/// Properties of a segment that decide whether reclamation rewrites it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RewriteCandidate {
    /// Bytes of all records in the segment.
    pub bytes: u64,
    /// Bytes of the records that the index refers to.
    pub live: u64,
    /// Bytes of the tombstones that may still be needed.
    pub tombstones: u64,
    /// Whether all history in the segment is compacted.
    pub forgotten: bool,
}

impl RewriteCandidate {
    /// Returns the properties of segment number `at` in the order of the log, which must not be the last one.
    /// `oldest` is the oldest readable revision.
    pub fn from_log(in_order: &[Arc<Segment>], at: usize, oldest: Revision) -> RewriteCandidate {
        let (segment, next_first) = (&in_order[at], in_order[at + 1].header.first_revision);
        let rewritten = segment.header.rewritten.filter(|_| has_states_for_tombstones(in_order, at));
        RewriteCandidate {
            bytes: segment.record_bytes(),
            live: segment.live(),
            tombstones: rewritten.map_or(0, |rewritten| rewritten.tombstone_bytes),
            // A segment without records has no revision of its own, and is rewritten together with the next
            // segment.
            forgotten: next_first <= oldest.next() && segment.header.first_revision < next_first,
        }
    }

    /// Returns the number of bytes that a rewrite would keep.
    fn retained_bytes(&self) -> u64 {
        (self.live + self.tombstones).min(self.bytes)
    }

    fn is_mostly_dead(&self) -> bool {
        self.forgotten && self.retained_bytes() * 100 < self.bytes * LIVE_PERCENT_MIN
    }

    fn frees_enough_on_full(&self) -> bool {
        let gain = self.bytes - self.retained_bytes();
        self.forgotten && gain >= GAIN_ON_FULL_MIN && gain * GAIN_ON_FULL >= self.bytes
    }
}

/// Chooses the segments of the log to rewrite next on a full disk, where `room` bytes are available for the
/// copy: the segment with the largest dead share that fits, together with its neighbours as far as they fit.
/// Completely dead segments come first, because their copies take almost no room.
pub(crate) fn choose_on_full(candidates: &[RewriteCandidate], room: u64) -> Option<Range<usize>> {
    let share = |candidate: &RewriteCandidate| candidate.retained_bytes() * 1_000 / candidate.bytes.max(1);
    let fitting = (0..candidates.len())
        .filter(|&at| candidates[at].frees_enough_on_full() && candidates[at].retained_bytes() <= room);
    let deadest = fitting.min_by_key(|&at| share(&candidates[at]))?;
    // A rewritten segment without live records is empty, and is merged with a neighbour.
    let is_chosen = |candidate: &RewriteCandidate| {
        candidate.frees_enough_on_full() || candidate.forgotten && candidate.bytes == 0
    };
    Some(with_neighbours(candidates, deadest, room, is_chosen))
}

/// Chooses the segments of the log to rewrite next, if any: the segment with the largest dead share, together
/// with neighbours that are mostly dead too, as long as the result is no larger than `segment_bytes`. If no
/// segment is mostly dead, chooses several consecutive small segments.
pub(crate) fn choose(candidates: &[RewriteCandidate], segment_bytes: u64) -> Option<Range<usize>> {
    let share = |candidate: &RewriteCandidate| candidate.retained_bytes() * 1_000 / candidate.bytes.max(1);
    let dead = (0..candidates.len()).filter(|&at| candidates[at].is_mostly_dead());
    if let Some(deadest) = dead.min_by_key(|&at| share(&candidates[at])) {
        return Some(with_neighbours(candidates, deadest, segment_bytes, RewriteCandidate::is_mostly_dead));
    }
    let is_small = |candidate: &RewriteCandidate| candidate.forgotten && candidate.bytes < segment_bytes / 4;
    let mut start = 0;
    while start < candidates.len() {
        let row = candidates[start..].iter().take_while(|candidate| is_small(candidate)).count();
        if row >= SMALL_RUN {
            // Four segments of at most a fourth each always fit; more segments may not fit.
            let mut bytes = 0;
            let fitting = candidates[start..start + row].iter().take_while(|candidate| {
                bytes += candidate.bytes;
                bytes <= segment_bytes
            });
            return Some(start..start + fitting.count());
        }
        start += row + 1;
    }
    None
}

/// Returns the candidate at `first` together with the neighbours that satisfy `is_chosen`, as long as at most
/// `left_max` bytes of all of them are kept.
fn with_neighbours(
    candidates: &[RewriteCandidate],
    first: usize,
    left_max: u64,
    is_chosen: impl Fn(&RewriteCandidate) -> bool,
) -> Range<usize> {
    let mut range = first..first + 1;
    let mut retained_bytes = candidates[first].retained_bytes();
    let fits = |at: usize, retained_bytes: u64| {
        is_chosen(&candidates[at]) && retained_bytes + candidates[at].retained_bytes() <= left_max
    };
    while range.len() < SOURCES_MAX && range.end < candidates.len() && fits(range.end, retained_bytes) {
        retained_bytes += candidates[range.end].retained_bytes();
        range.end += 1;
    }
    while range.len() < SOURCES_MAX && range.start > 0 && fits(range.start - 1, retained_bytes) {
        range.start -= 1;
        retained_bytes += candidates[range.start].retained_bytes();
    }
    range
}

/// Returns whether a delete must stay as a tombstone, because a state that it ended may still be in the log,
/// outside of `sources`.
fn needs_tombstone(root: &Root, sources: &[Arc<Segment>], delete: &Head) -> bool {
    let in_order = root.segments.in_order();
    let first = in_order.partition_point(|segment| segment.header.first_revision <= delete.created);
    let overlapping = in_order[first.saturating_sub(1)..]
        .iter()
        .take_while(|segment| segment.header.first_revision < delete.revision);
    overlapping.into_iter().any(|segment| {
        let is_source = sources.iter().any(|source| source.header.number == segment.header.number);
        !is_source && !was_cleaned_of(segment, delete.revision) && !sabotage::tombstone_dropped()
    })
}

/// Returns whether the segment contains no state that was replaced at or before `delete`.
fn was_cleaned_of(segment: &Segment, delete: Revision) -> bool {
    segment.header.rewritten.is_some_and(|rewritten| rewritten.oldest >= delete)
}

/// Returns whether the log may contain states that tombstones of segment number `at` refer to. If it contains
/// no such states, a rewrite of the segment can drop these tombstones.
fn has_states_for_tombstones(in_order: &[Arc<Segment>], at: usize) -> bool {
    let Some(rewritten) = in_order[at].header.rewritten.filter(|rewritten| rewritten.tombstone_bytes > 0)
    else {
        return false;
    };
    for before in in_order[..at].iter().rev() {
        if !was_cleaned_of(before, rewritten.last_revision) {
            return true;
        }
        if before.header.first_revision <= rewritten.tombstones_since {
            break;
        }
    }
    false
}

/// Result of a step of a [`Rewrite`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RewriteStep {
    More,
    /// Every record was copied.
    Complete,
    /// A source has a gap without a sound record. Records that the index refers to in the gap cannot be
    /// moved, so the sources stay in the log.
    Damaged,
}

enum NextRecord {
    Record(FoundRecord),
    Nothing,
    Damage,
}

/// A move of a record to its new position.
#[derive(Clone, Debug)]
pub(crate) struct RecordMove {
    pub key: Bytes,
    pub from: Version,
    pub to: Version,
}

/// A segment that is being written as a copy of others.
pub(crate) struct Rewrite {
    root: Arc<Root>,
    sources: Vec<Arc<Segment>>,
    last_revision: Revision,
    file: Arc<dyn File>,
    salt: u64,
    /// Index of the next source, and the walk over the current source.
    next_source: usize,
    walk: Option<Walk>,
    /// Expected offset of the next record in the current source.
    expected: u64,
    /// Records to be written at `position`.
    buffer: Vec<u8>,
    position: u64,
    throttle: WriteThrottle,
    records: u32,
    tombstone_bytes: u64,
    tombstones_since: Option<Revision>,
    marks: PositionMarks,
    /// Keys with unneeded states that are in the sources and to which the root's index refers.
    unneeded: Vec<Bytes>,
}

impl Rewrite {
    /// Begins to rewrite the segments in `range` of the root's log. Segments without records that have the
    /// same first revision as the first of these segments are included, because they are superseded together
    /// with it.
    pub fn begin(
        storage: &dyn Storage,
        throttle: WriteThrottle,
        root: Arc<Root>,
        mut range: Range<usize>,
    ) -> io::Result<Rewrite> {
        let in_order = root.segments.in_order();
        let first_revision = in_order[range.start].header.first_revision;
        range.start = in_order.partition_point(|segment| segment.header.first_revision < first_revision);
        let sources = in_order[range.clone()].to_vec();
        let last_revision = in_order[range.end].header.first_revision.before();
        let bytes: u64 = sources.iter().map(|source| source.record_bytes()).sum();
        // Most of the file is a hole: bytes that are not written take no room.
        let file = storage.create(NEXT_NAME, RECORDS_START + bytes)?;
        Ok(Rewrite {
            sources,
            last_revision,
            file,
            salt: storage.entropy(),
            next_source: 0,
            walk: None,
            expected: RECORDS_START,
            buffer: Vec::new(),
            position: RECORDS_START,
            throttle,
            records: 0,
            tombstone_bytes: 0,
            tombstones_since: None,
            marks: PositionMarks::default(),
            unneeded: Vec::new(),
            root,
        })
    }

    /// Reads the next records and copies the needed ones. On a full disk the copy uses room of the reserve.
    pub fn step(&mut self, reserve: &Reserve) -> io::Result<RewriteStep> {
        let mut looked = 0;
        while looked < STEP_BYTES && self.buffer.len() < self.throttle.piece() {
            match self.next_record()? {
                NextRecord::Record(found) => {
                    looked += found.bytes.len();
                    self.take(&found);
                }
                NextRecord::Nothing => {
                    self.write(reserve)?;
                    return Ok(RewriteStep::Complete);
                }
                NextRecord::Damage => return Ok(RewriteStep::Damaged),
            }
        }
        self.write(reserve)?;
        Ok(RewriteStep::More)
    }

    /// Syncs the segment and renames its file to the final name. Every record must be copied already.
    pub fn finish(
        self,
        storage: &dyn Storage,
        numbers: &Numbers,
        reserve: &Reserve,
    ) -> io::Result<FinishedRewrite> {
        let first = &self.sources[0].header;
        let header = Header {
            number: numbers.next()?,
            after: first.after,
            first_revision: first.first_revision,
            salt: self.salt,
            store: first.store,
            numbering: self.sources.iter().map(|source| source.header.numbering).max().unwrap_or_default(),
            rewritten: Some(Rewritten {
                last_revision: self.last_revision,
                oldest: self.root.oldest,
                records: self.records,
                end: self.position,
                tombstone_bytes: self.tombstone_bytes,
                tombstones_since: self.tombstones_since.unwrap_or(Revision::ZERO),
            }),
        };
        let segment = reserve.write_copy(|| Segment::create(header, self.file.clone()))?;
        segment.share_with(&self.sources[0]);
        segment.advance(self.position);
        segment.set_marks(self.marks);
        if !sabotage::rewrite_named_before_sync() {
            segment.file.sync_data()?;
        }
        storage.rename(NEXT_NAME, &Segment::name(header.number))?;
        storage.sync_dir()?;
        Ok(FinishedRewrite {
            segment: Arc::new(segment),
            root: self.root,
            sources: self.sources,
            unneeded: self.unneeded,
        })
    }

    /// Returns the numbers of the segments that are being rewritten.
    pub fn source_numbers(&self) -> Vec<SegmentNumber> {
        self.sources.iter().map(|source| source.header.number).collect()
    }

    /// Returns the number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.position - RECORDS_START
    }

    fn next_record(&mut self) -> io::Result<NextRecord> {
        loop {
            if let Some(before) = self.next_source.checked_sub(1) {
                let source = &self.sources[before];
                if let Some(found) = self.walk.as_mut().and_then(Walk::next) {
                    if found.offset != self.expected {
                        return Ok(NextRecord::Damage);
                    }
                    self.expected = found.offset + found.bytes.len() as u64;
                    return Ok(NextRecord::Record(found));
                }
                if self.expected != source.end() {
                    return Ok(NextRecord::Damage);
                }
                // The pages of the source will not be read again soon.
                source.file.release_pages();
            }
            let Some(source) = self.sources.get(self.next_source) else { return Ok(NextRecord::Nothing) };
            self.next_source += 1;
            self.expected = RECORDS_START;
            let before = source.header.first_revision.before();
            self.walk = Some(source.walk(RECORDS_START, source.end(), before)?);
        }
    }

    fn take(&mut self, found: &FoundRecord) {
        let head = &found.head;
        let key = head.key(&found.bytes);
        let offset = self.position + self.buffer.len() as u64;
        let oldest = self.root.oldest;
        let slot = self.root.tree.slot(key);
        let known = slot.and_then(|slot| history::exact(&slot.newest, &slot.older, head.revision, oldest));
        // A needed record is copied. A tombstone in the source is not copied as a needed record, because it
        // lacks the state of its delete. When a tombstone exists, the index has already dropped that delete.
        if known.is_some_and(|(_, is_needed)| is_needed) && !head.tombstone {
            record::append_copy(&mut self.buffer, &found.bytes, head, self.salt, offset);
        } else {
            if known.is_some() {
                self.unneeded.push(Bytes::copy_from_slice(key));
            }
            if head.kind != EventKind::Delete || !needs_tombstone(&self.root, &self.sources, head) {
                return;
            }
            record::append_tombstone(&mut self.buffer, &found.bytes, head, self.salt, offset);
            self.tombstone_bytes += self.position + self.buffer.len() as u64 - offset;
            self.tombstones_since =
                Some(self.tombstones_since.map_or(head.created, |since| since.min(head.created)));
        }
        self.records += 1;
        self.marks.pass(head.revision, offset);
    }

    fn write(&mut self, reserve: &Reserve) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let Rewrite { throttle, file, position, buffer, .. } = self;
        reserve.write_copy(|| throttle.write(&**file, *position, buffer))?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A rewritten segment that is on disk but not yet in the index.
pub(crate) struct FinishedRewrite {
    pub segment: Arc<Segment>,
    /// The root and the segments from which the segment was made.
    pub root: Arc<Root>,
    pub sources: Vec<Arc<Segment>>,
    /// Keys that must be pruned before the records are moved.
    pub unneeded: Vec<Bytes>,
}

impl FinishedRewrite {
    /// Returns a walk over the new segment.
    pub fn walk(&self) -> io::Result<Walk> {
        let before = self.segment.header.first_revision.before();
        self.segment.walk(RECORDS_START, self.segment.end(), before)
    }

    /// Returns the moves of up to `max` records of `walk`, a walk over the new segment, in the order of keys.
    pub fn moves(&self, walk: &mut Walk, max: usize) -> Vec<RecordMove> {
        let mut moves = Vec::with_capacity(max);
        while moves.len() < max {
            let Some(found) = walk.next() else { break };
            let key = found.head.key(&found.bytes);
            // No index refers to a tombstone.
            if let Some(from) =
                self.root.tree.exact(key, found.head.revision).filter(|_| !found.head.tombstone)
            {
                let location = found.version(self.segment.header.number).location;
                let to = Version { segment: self.segment.header.number, location, ..from };
                moves.push(RecordMove { key: Bytes::copy_from_slice(key), from, to });
            }
        }
        moves.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses `bytes:live` or `bytes:live+tombstones`, with `!` in front if the history is not compacted.
    fn candidates(text: &str) -> Vec<RewriteCandidate> {
        text.split_whitespace()
            .map(|word| {
                let forgotten = !word.starts_with('!');
                let (bytes, live) = word.trim_start_matches('!').split_once(':').unwrap();
                let (live, tombstones) = live.split_once('+').unwrap_or((live, "0"));
                let [bytes, live, tombstones] =
                    [bytes, live, tombstones].map(|number| number.parse().unwrap());
                RewriteCandidate { bytes, live, tombstones, forgotten }
            })
            .collect()
    }

    #[test]
    fn reclamation_chooses_the_deadest_segments_whose_live_bytes_fit_into_one() {
        for (log, chosen) in [
            ("", None),
            ("100:100 100:60 100:99", None),
            ("100:59", Some(0..1)),
            ("!100:0 !100:10", None),
            ("100:100 100:0 100:100", Some(1..2)),
            ("100:50 100:20 100:50", Some(1..3)), // 70 together; the third would make 120
            ("100:30 100:20 100:50", Some(0..3)),
            ("100:10 !100:10 100:5 100:5", Some(2..4)),
            ("100:10 100:90 100:5", Some(2..3)),
            ("100:5 100:0 100:0 100:0 100:0 100:0 100:0 100:0 100:0 100:0", Some(1..9)),
            // Rewriting cannot remove needed tombstones.
            ("100:0+60 100:30+40", None),
            // Small segments are merged if there are enough consecutive ones.
            ("20:20 20:20 20:20", None),
            ("100:90 20:20 20:20 20:20 20:20 100:90", Some(1..5)),
            ("20:20 20:20 !20:20 20:20 20:20", None),
            ("20:20 20:20 20:20 20:20 20:20 20:20", Some(0..5)), // the limit is 100
            ("0:0 0:0 0:0 0:0", Some(0..4)),
            ("0:0", None),
        ] {
            assert_eq!(choose(&candidates(log), 100), chosen, "{log}");
        }
    }

    #[test]
    fn on_a_full_disk_reclamation_chooses_the_deadest_segments_that_fit_the_reserve() {
        // In KiB; the copy has room for 100 KiB.
        for (log, chosen) in [
            ("", None),
            ("100:100 100:90 100:80", Some(2..3)),
            ("100:86 100:85", None), // frees too little for a copy
            ("1000:900", None),      // does not fit the room
            ("1000:0 1000:900", Some(0..1)),
            ("!100:0 100:80", Some(1..2)),
            ("100:0 0:0 100:0 !100:0", Some(0..3)),
            ("100:50 100:40 100:20", Some(1..3)),
            ("100:0+90 100:80", Some(1..2)),
        ] {
            let mut candidates = candidates(log);
            for candidate in &mut candidates {
                candidate.bytes *= 1024;
                candidate.live *= 1024;
                candidate.tombstones *= 1024;
            }
            assert_eq!(choose_on_full(&candidates, 100 * 1024), chosen, "{log}");
        }
    }
}
