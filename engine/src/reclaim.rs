//! Segment reclamation: rewrites segments that are mostly dead and drops records no reader can reach.
//!
//! ```text
//! log:  [1 ....][2 ..x.][3 x.xx][4 xxx.][5 ....]      x: needed
//!                └── choose ──────────┘
//!                [6 xxxxxx]  copy, sync, rename        then the index is updated, record by record, and
//! log:  [1 ....][6 xxxxxx][5 ....]                     6 takes the place of 2, 3 and 4
//! ```
//!
//! Only segments whose whole history is compacted are chosen, so no tail ever reads a rewritten one. One root decides from
//! beginning to end which records are needed; a change meanwhile costs at worst one record kept too long. No caller waits:
//! each step copies a bounded number of bytes, and old roots keep the old segments.

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
use crate::segment::{Found, Marks, Segment, Walk};
use crate::snapshot::Root;
use crate::throttle::WriteThrottle;
use crate::types::{Revision, SegmentNumber};

/// Name of a segment that is being written anew.
pub(crate) const NEXT_NAME: &str = "rewrite.segment";

/// Bytes of records that one step looks at, some hundred microseconds' worth: what is dead costs no more than that, and
/// a thread that wants the processor need not wait long for it.
const STEP_BYTES: usize = 1024 * 1024;
/// Segments that are written anew at once: what they give back should not be long in coming.
const SOURCES_MAX: usize = 8;
/// A segment is worth writing anew when less than this share of it, in percent, is live. At 60 a byte given back
/// costs at most one and a half bytes copied, and what is left holds at most 1.67 bytes for each live one.
const LIVE_PERCENT_MIN: u64 = 60;
/// On a full disk a segment is worth writing anew as soon as one part in so many of it is dead: deletes need what that gives
/// back. Tombstones of the deletes that led to so little take less than the writers' part of the reserve.
const GAIN_ON_FULL: u64 = 32;
/// But not for less than this: the header of a segment takes a page.
const GAIN_ON_FULL_MIN: u64 = 16 * 1024;
/// Segments smaller than a fourth of the usual size are put together when so many follow each other.
const SMALL_RUN: usize = 4;

/// What the choice of segments rests on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Candidate {
    /// Bytes of its records.
    pub bytes: u64,
    /// Bytes of records that the index refers to.
    pub live: u64,
    /// Bytes of tombstones.
    pub tombstones: u64,
    /// Whether all history in it is forgotten.
    pub forgotten: bool,
}

impl Candidate {
    /// What is known of the segment at `at` of the log, which is not the last, if the oldest readable revision is
    /// `oldest`.
    pub fn of(in_order: &[Arc<Segment>], at: usize, oldest: Revision) -> Candidate {
        let (segment, next_first) = (&in_order[at], in_order[at + 1].header.first_revision);
        let rewritten = segment.header.rewritten.filter(|_| has_states_for_tombstones(in_order, at));
        Candidate {
            bytes: segment.record_bytes(),
            live: segment.live(),
            tombstones: rewritten.map_or(0, |rewritten| rewritten.tombstone_bytes),
            // One without records has no revision of its own to stand for, and goes with the next.
            forgotten: next_first <= oldest.next() && segment.header.first_revision < next_first,
        }
    }

    /// Bytes that would be left of it.
    fn left(&self) -> u64 {
        (self.live + self.tombstones).min(self.bytes)
    }

    fn is_mostly_dead(&self) -> bool {
        self.forgotten && self.left() * 100 < self.bytes * LIVE_PERCENT_MIN
    }

    fn gives_back_enough_on_full(&self) -> bool {
        let gain = self.bytes - self.left();
        self.forgotten && gain >= GAIN_ON_FULL_MIN && gain * GAIN_ON_FULL >= self.bytes
    }
}

/// Which of the log's segments to write anew next on a full disk, where the copy has `room` bytes: the deadest that fits,
/// with its neighbours as far as they fit too. Wholly dead segments come first, and take no room to speak of.
pub(crate) fn choose_on_full(candidates: &[Candidate], room: u64) -> Option<Range<usize>> {
    let share = |candidate: &Candidate| candidate.left() * 1_000 / candidate.bytes.max(1);
    let fitting = (0..candidates.len())
        .filter(|&at| candidates[at].gives_back_enough_on_full() && candidates[at].left() <= room);
    let deadest = fitting.min_by_key(|&at| share(&candidates[at]))?;
    // A rewritten segment without live records is empty, and is merged with a neighbour.
    let goes = |candidate: &Candidate| {
        candidate.gives_back_enough_on_full() || candidate.forgotten && candidate.bytes == 0
    };
    Some(with_neighbours(candidates, deadest, room, goes))
}

/// Which of the log's segments to write anew next, if any: the deadest, with its neighbours as far as they are mostly
/// dead too and the result is no larger than `segment_bytes`; or else a row of small ones.
pub(crate) fn choose(candidates: &[Candidate], segment_bytes: u64) -> Option<Range<usize>> {
    let share = |candidate: &Candidate| candidate.left() * 1_000 / candidate.bytes.max(1);
    let dead = (0..candidates.len()).filter(|&at| candidates[at].is_mostly_dead());
    if let Some(deadest) = dead.min_by_key(|&at| share(&candidates[at])) {
        return Some(with_neighbours(candidates, deadest, segment_bytes, Candidate::is_mostly_dead));
    }
    let is_small = |candidate: &Candidate| candidate.forgotten && candidate.bytes < segment_bytes / 4;
    let mut start = 0;
    while start < candidates.len() {
        let row = candidates[start..].iter().take_while(|candidate| is_small(candidate)).count();
        if row >= SMALL_RUN {
            // Four of a fourth each fit; more may not.
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

/// The candidate at `first` with those before and behind it that go as well, as long as at most `left_max` bytes are left of
/// all of them.
fn with_neighbours(
    candidates: &[Candidate],
    first: usize,
    left_max: u64,
    goes: impl Fn(&Candidate) -> bool,
) -> Range<usize> {
    let mut range = first..first + 1;
    let mut left = candidates[first].left();
    let fits = |at: usize, left: u64| goes(&candidates[at]) && left + candidates[at].left() <= left_max;
    while range.len() < SOURCES_MAX && range.end < candidates.len() && fits(range.end, left) {
        left += candidates[range.end].left();
        range.end += 1;
    }
    while range.len() < SOURCES_MAX && range.start > 0 && fits(range.start - 1, left) {
        range.start -= 1;
        left += candidates[range.start].left();
    }
    range
}

/// Whether the state that `revision` wrote is needed to read at `oldest` and later, given the versions of its key
/// from the newest on.
fn is_needed<'h>(
    versions: impl Iterator<Item = &'h Version> + Clone,
    revision: Revision,
    oldest: Revision,
) -> Option<Version> {
    let kept = history::kept(versions.clone(), oldest);
    versions.take(kept).find(|version| version.revision == revision).copied()
}

/// Whether a delete must stay as a tombstone: somewhere in the log, outside of `sources`, a state that it ended may still
/// stand.
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

/// Whether the segment has no state that `delete`, or a delete before it, ended.
fn was_cleaned_of(segment: &Segment, delete: Revision) -> bool {
    segment.header.rewritten.is_some_and(|rewritten| rewritten.oldest >= delete)
}

/// Whether states may be left that tombstones in the segment at `at` of the log speak of. Otherwise it is worth writing it
/// anew for these as well.
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

/// How far a [`Rewrite`] is after a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    More,
    /// Every record is copied.
    Complete,
    /// There is a place without a record in one of the sources: what the index knows of there cannot be moved, and
    /// the sources stay as they are.
    Damaged,
}

enum Next {
    Record(Found),
    Nothing,
    Damage,
}

/// A record in its new place.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub key: Bytes,
    pub from: Version,
    pub to: Version,
}

/// One segment in the making.
pub(crate) struct Rewrite {
    root: Arc<Root>,
    sources: Vec<Arc<Segment>>,
    last_revision: Revision,
    file: Arc<dyn File>,
    salt: u64,
    /// The next source, and the walk over the one before it.
    next_source: usize,
    walk: Option<Walk>,
    /// Where the next record of that source is.
    expected: u64,
    /// Records to be written at `position`.
    buffer: Vec<u8>,
    position: u64,
    throttle: WriteThrottle,
    records: u32,
    tombstone_bytes: u64,
    tombstones_since: Option<Revision>,
    marks: Marks,
    /// Keys of which the root's index knows states that are not needed and lie in the sources.
    unneeded: Vec<Bytes>,
}

impl Rewrite {
    /// Begins to write the segments in `range` of the root's log anew, with those without records that share the first
    /// revision of the first of them: they are superseded with it.
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
        // Mostly a hole: what is not written takes no room.
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
            marks: Marks::default(),
            unneeded: Vec::new(),
            root,
        })
    }

    /// Copies what is needed of the next records, on a full disk into room of the reserve.
    pub fn step(&mut self, reserve: &Reserve) -> io::Result<Step> {
        let mut looked = 0;
        while looked < STEP_BYTES && self.buffer.len() < self.throttle.piece() {
            match self.next_record()? {
                Next::Record(found) => {
                    looked += found.bytes.len();
                    self.take(&found);
                }
                Next::Nothing => {
                    self.write(reserve)?;
                    return Ok(Step::Complete);
                }
                Next::Damage => return Ok(Step::Damaged),
            }
        }
        self.write(reserve)?;
        Ok(Step::More)
    }

    /// Brings the segment to disk under its name, once every record is copied.
    pub fn finish(self, storage: &dyn Storage, numbers: &Numbers, reserve: &Reserve) -> io::Result<Finished> {
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
        let segment = reserve.copying(|| Segment::create(header, self.file.clone()))?;
        segment.share_with(&self.sources[0]);
        segment.advance(self.position);
        segment.set_marks(self.marks);
        if !sabotage::rewrite_named_before_sync() {
            segment.file.sync_data()?;
        }
        storage.rename(NEXT_NAME, &Segment::name(header.number))?;
        storage.sync_dir()?;
        Ok(Finished {
            segment: Arc::new(segment),
            root: self.root,
            sources: self.sources,
            unneeded: self.unneeded,
        })
    }

    /// Numbers of the segments that are written anew.
    pub fn source_numbers(&self) -> Vec<SegmentNumber> {
        self.sources.iter().map(|source| source.header.number).collect()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.position - RECORDS_START
    }

    fn next_record(&mut self) -> io::Result<Next> {
        loop {
            if let Some(before) = self.next_source.checked_sub(1) {
                let source = &self.sources[before];
                if let Some(found) = self.walk.as_mut().and_then(Walk::next) {
                    if found.offset != self.expected {
                        return Ok(Next::Damage);
                    }
                    self.expected = found.offset + found.bytes.len() as u64;
                    return Ok(Next::Record(found));
                }
                if self.expected != source.end() {
                    return Ok(Next::Damage);
                }
                // What was read of it will not be read again soon.
                source.file.let_go();
            }
            let Some(source) = self.sources.get(self.next_source) else { return Ok(Next::Nothing) };
            self.next_source += 1;
            self.expected = RECORDS_START;
            let before = source.header.first_revision.before();
            self.walk = Some(source.walk(RECORDS_START, source.end(), before)?);
        }
    }

    fn take(&mut self, found: &Found) {
        let head = &found.head;
        let key = head.key(&found.bytes);
        let offset = self.position + self.buffer.len() as u64;
        let oldest = self.root.oldest;
        let slot = self.root.tree.slot(key);
        let versions = slot.map(|slot| history::iter(&slot.newest, &slot.older));
        let needed = versions.clone().and_then(|versions| is_needed(versions, head.revision, oldest));
        // A tombstone says less than the delete that the index may know: that one is gone from the index by now.
        if needed.is_some() && !head.tombstone {
            record::append_copy(&mut self.buffer, &found.bytes, head, self.salt, offset);
        } else {
            if versions.is_some_and(|mut versions| versions.any(|v| v.revision == head.revision)) {
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
        reserve.copying(|| throttle.write(&**file, *position, buffer))?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A segment that is on disk and of which the index is to be told.
pub(crate) struct Finished {
    pub segment: Arc<Segment>,
    /// What it was made from.
    pub root: Arc<Root>,
    pub sources: Vec<Arc<Segment>>,
    /// Keys to be pruned first.
    pub unneeded: Vec<Bytes>,
}

impl Finished {
    /// A walk over the new segment.
    pub fn walk(&self) -> io::Result<Walk> {
        let before = self.segment.header.first_revision.before();
        self.segment.walk(RECORDS_START, self.segment.end(), before)
    }

    /// The moves of up to `max` records of `walk`, which goes over the new segment, in the order of keys.
    pub fn moves(&self, walk: &mut Walk, max: usize) -> Vec<Move> {
        let mut moves = Vec::with_capacity(max);
        while moves.len() < max {
            let Some(found) = walk.next() else { break };
            let key = found.head.key(&found.bytes);
            // A tombstone is in no index.
            if let Some(&from) =
                self.root.tree.exact(key, found.head.revision).filter(|_| !found.head.tombstone)
            {
                let place = found.version(self.segment.header.number).place;
                let to = Version { segment: self.segment.header.number, place, ..from };
                moves.push(Move { key: Bytes::copy_from_slice(key), from, to });
            }
        }
        moves.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `bytes:live`, with `!` in front when its history is not forgotten.
    fn candidates(text: &str) -> Vec<Candidate> {
        text.split_whitespace()
            .map(|word| {
                let forgotten = !word.starts_with('!');
                let (bytes, live) = word.trim_start_matches('!').split_once(':').unwrap();
                let (live, tombstones) = live.split_once('+').unwrap_or((live, "0"));
                let [bytes, live, tombstones] =
                    [bytes, live, tombstones].map(|number| number.parse().unwrap());
                Candidate { bytes, live, tombstones, forgotten }
            })
            .collect()
    }

    #[test]
    fn the_deadest_segments_that_fit_into_one_are_chosen() {
        for (log, chosen) in [
            ("", None),
            ("100:100 100:60 100:99", None),
            ("100:59", Some(0..1)),
            ("!100:0 !100:10", None),
            ("100:100 100:0 100:100", Some(1..2)),
            ("100:50 100:20 100:50", Some(1..3)), // together 70; the third would make 120
            ("100:30 100:20 100:50", Some(0..3)),
            ("100:10 !100:10 100:5 100:5", Some(2..4)),
            ("100:10 100:90 100:5", Some(2..3)),
            ("100:5 100:0 100:0 100:0 100:0 100:0 100:0 100:0 100:0 100:0", Some(1..9)),
            // Tombstones cannot be got rid of by writing them once more.
            ("100:0+60 100:30+40", None),
            // Small ones, when there are enough of them in a row.
            ("20:20 20:20 20:20", None),
            ("100:90 20:20 20:20 20:20 20:20 100:90", Some(1..5)),
            ("20:20 20:20 !20:20 20:20 20:20", None),
            ("20:20 20:20 20:20 20:20 20:20 20:20", Some(0..5)), // 100 is the limit
            ("0:0 0:0 0:0 0:0", Some(0..4)),
            ("0:0", None),
        ] {
            assert_eq!(choose(&candidates(log), 100), chosen, "{log}");
        }
    }

    #[test]
    fn on_a_full_disk_the_deadest_segments_that_fit_the_room_are_chosen() {
        // In KiB; the copy has room for 100 of them.
        for (log, chosen) in [
            ("", None),
            ("100:100 100:90 100:80", Some(2..3)),
            ("100:86 100:85", None), // too little would be given back for a copy
            ("1000:900", None),      // does not fit
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
