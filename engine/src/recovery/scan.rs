//! The walk over the log's records at opening, which adds the records to the index and distinguishes damage
//! from a torn tail.
//!
//! An invalid record at or below the revision known to be durable is damage: it is reported, and the walk
//! continues. An invalid record above that revision ends the log. The head of `recovery.rs` has the rules
//! and their reasons. The walk writes nothing, and does not decide which segments make up the log.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::blooms::filter_of_record;
use crate::bloom::BloomScheme;
use crate::header::{Numbering, RECORDS_START};
use crate::index::Tree;
use crate::io::Storage;
use crate::losses::Losses;
use crate::sabotage;
use crate::segment::{FoundRecord, Segment};
use crate::types::{CommitTime, Revision};

/// Returns the revision that was durable when the segment was last written to; at least `known`. Records
/// before the segment's end are not read.
pub(super) fn last_synced(segment: &Segment, known: Revision) -> io::Result<Revision> {
    let mut walk =
        segment.walk(segment.end(), written_end(segment)?, segment.header.first_revision.before())?;
    // Everything before a segment was synced before the segment was made.
    let mut synced = (segment.header.first_revision.before()).max(segment.note().synced).max(known);
    while let Some(found) = walk.next() {
        synced = synced.max(found.head.synced);
    }
    if sabotage::synced_marks_ignored() {
        return Ok(known.max(segment.header.first_revision.before()));
    }
    Ok(synced)
}

/// Returns the end of the part of the file that may hold data.
fn written_end(segment: &Segment) -> io::Result<u64> {
    let mut end = RECORDS_START;
    while let Some(stretch) = segment.file.written(end)? {
        if stretch.end <= end {
            break;
        }
        end = stretch.end;
    }
    Ok(end.min(segment.file.size()).max(RECORDS_START.min(segment.file.size())))
}

/// The state of the walk: the index built so far, and the results.
#[derive(Default)]
pub(super) struct LogScan {
    pub tree: Tree,
    pub bloom_scheme: BloomScheme,
    /// The newest revision that was found or reported as missing.
    pub revision: Revision,
    /// The highest time of a record.
    pub time: CommitTime,
    pub lost_revisions: u64,
    /// Unreadable records among those that were scanned.
    pub losses: Losses,
    /// Offset of the first record of the last segment that is not known durable.
    pub doubtful: Option<u64>,
    /// Offset at which the scan of the last segment ended; behind the segment's end if the last revision
    /// lacks records.
    pub stopped_at: u64,
    /// The oldest revision that must be readable. Versions that are not needed to read at this revision and
    /// later are not in the tree.
    pub oldest: Revision,
}

impl LogScan {
    /// Adds the records of `segment` from its end on, and moves the end behind them. An invalid record above
    /// `synced`, or a revision above `synced` that lacks some of its records, ends the scan.
    pub fn scan(
        &mut self,
        storage: &dyn Storage,
        segment: &Arc<Segment>,
        synced: Revision,
    ) -> io::Result<()> {
        let mut walk = segment.walk(segment.end(), written_end(segment)?, self.revision)?;
        // The records of a revision that is not complete yet.
        let mut part: Vec<FoundRecord> = Vec::new();
        while let Some(found) = walk.next() {
            let revision = found.head.revision;
            let is_missing = match segment.header.numbering {
                Numbering::Dense => revision > self.revision.next(),
                Numbering::Sparse => {
                    found.skipped > 0 || part.first().is_some_and(|first| first.head.revision != revision)
                }
            };
            if is_missing {
                let first_missing = part.first().map_or(self.revision.next(), |found| found.head.revision);
                if first_missing > synced {
                    break;
                }
                part.drain(..).for_each(|found| self.add(segment, &found));
                self.missing_before(storage, segment, revision);
            }
            if !found.head.body_is_sound(&found.bytes) {
                if revision > synced && !sabotage::torn_tail_kept() {
                    break;
                }
                self.log_damage(storage, segment, &found);
            }
            if revision > synced && self.doubtful.is_none() {
                self.doubtful = Some(found.offset);
            }
            let has_more = found.head.more;
            part.push(found);
            if !has_more {
                part.drain(..).for_each(|found| self.add(segment, &found));
            }
        }
        if let Some(last) = part.last() {
            self.stopped_at = last.offset + last.bytes.len() as u64;
            let revision = last.head.revision;
            if revision <= synced {
                part.drain(..).for_each(|found| self.add(segment, &found));
                self.missing_before(storage, segment, revision.next());
            }
        }
        Ok(())
    }

    /// Adds the records of a segment that reclamation wrote.
    pub fn scan_rewritten(&mut self, storage: &dyn Storage, segment: &Arc<Segment>) -> io::Result<()> {
        let Some(rewritten) = segment.header.rewritten else { return Ok(()) };
        let mut walk = segment.walk(RECORDS_START, rewritten.end, self.revision)?;
        let (mut records, mut end) = (0, RECORDS_START);
        while let Some(found) = walk.next() {
            if found.head.revision > rewritten.last_revision {
                break;
            }
            if !found.head.body_is_sound(&found.bytes) {
                self.log_damage(storage, segment, &found);
            }
            if found.skipped > 0 {
                self.lost_between(segment, found.head.revision);
            }
            self.add(segment, &found);
            records += 1;
            end = found.offset + found.bytes.len() as u64;
        }
        let lost = u64::from(rewritten.records.saturating_sub(records));
        if lost > 0 {
            tracing::error!(
                path = %storage.path(&Segment::name(segment.header.number)).display(),
                records = lost,
                "records are damaged and their keys are unknown: these keys show their previous states, if any"
            );
            self.lost_revisions += lost;
        }
        if end < rewritten.end {
            self.lost_between(segment, rewritten.last_revision.next());
        }
        segment.advance(rewritten.end);
        self.revision = rewritten.last_revision;
        Ok(())
    }

    /// Notes that a record is lost between the newest record and the record of revision `next`, in a segment
    /// that lacks other records on purpose.
    fn lost_between(&mut self, segment: &Segment, next: Revision) {
        let (first, last) = match segment.header.numbering {
            Numbering::Dense => (self.revision.next(), next.before()),
            // The records on both sides may share their revisions with the lost one.
            Numbering::Sparse => (self.revision.max(Revision::FIRST), next),
        };
        let first = first.max(segment.header.first_revision);
        let segment_last = segment.header.rewritten.map_or(last, |rewritten| rewritten.last_revision);
        self.losses.lost.insert(first, last.min(segment_last));
    }

    fn add(&mut self, segment: &Arc<Segment>, found: &FoundRecord) {
        let bloom = filter_of_record(&self.bloom_scheme, &found.head, &found.bytes);
        self.tree.push(found.head.key(&found.bytes), found.version(segment.header.number), bloom);
        segment.marks().pass(found.head.revision, found.offset);
        segment.advance(found.offset + found.bytes.len() as u64);
        self.revision = found.head.revision;
        self.time = self.time.max(found.head.time);
    }

    /// Reports that records before the record of `revision` were not found.
    fn missing_before(&mut self, storage: &dyn Storage, segment: &Segment, revision: Revision) {
        if !self.missing_until(storage, segment, revision) {
            // The missing records share a revision with a record that was found.
            self.log_missing(storage, segment, self.revision..self.revision.next());
        }
    }

    /// Reports the revisions lower than `revision` that have no record. Returns whether there are such
    /// revisions.
    pub fn missing_until(&mut self, storage: &dyn Storage, segment: &Segment, revision: Revision) -> bool {
        let missing: Range<Revision> = self.revision.next()..revision;
        if missing.is_empty() {
            return false;
        }
        self.revision = missing.end.before();
        self.log_missing(storage, segment, missing);
        true
    }

    fn log_missing(&mut self, storage: &dyn Storage, segment: &Segment, missing: Range<Revision>) {
        tracing::error!(
            path = %storage.path(&Segment::name(segment.header.number)).display(),
            first = missing.start.get(),
            last = missing.end.before().get(),
            "records are damaged and their keys are unknown: these keys show their previous states, if any"
        );
        self.lost_revisions += missing.end.since(missing.start);
        self.losses.lost.insert(missing.start, missing.end.before());
    }

    fn log_damage(&mut self, storage: &dyn Storage, segment: &Segment, found: &FoundRecord) {
        self.losses.damaged.insert(found.head.revision, found.head.revision);
        tracing::error!(
            path = %storage.path(&Segment::name(segment.header.number)).display(),
            offset = found.offset,
            revision = found.head.revision.get(),
            key = %String::from_utf8_lossy(found.head.key(&found.bytes)),
            "a record is damaged; its key reads as damaged until it is written again"
        );
    }
}
