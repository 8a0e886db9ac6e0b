//! Compaction decisions: the oldest revision that must stay readable, and the keys that have history to forget.
//!
//! History older than the retention is found by the times in the records. The oldest readable revision is raised first;
//! then the log between the old and the new one is walked, as every key with history to forget was written there, and the
//! index forgets it key by key. So a compaction costs what was written, not what is stored.

use std::time::Duration;

use bytes::Bytes;

use crate::segment::Segment;
use crate::snapshot::Root;
use crate::types::{CommitTime, Revision};

/// How often history is looked at when the retention is long: precision of seconds is enough then.
const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// How often at most, however short the retention.
const INTERVAL_MIN: Duration = Duration::from_millis(500);

/// How often to look for history to be forgotten; `None`: never.
pub(crate) fn interval(retention: Duration) -> Option<Duration> {
    (retention < Duration::MAX).then(|| (retention / 16).clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// The oldest revision that must stay readable at `now_ms`, at most `synced`: the one that was the newest when the
/// retention began. Not less than it is already.
pub(crate) fn target(root: &Root, retention: Duration, now_ms: u64, synced: Revision) -> Revision {
    if retention == Duration::MAX {
        return root.oldest;
    }
    let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let revision = match (retention_ms, now_ms.checked_sub(retention_ms)) {
        // Whatever the clock says.
        (0, _) => root.revision,
        (_, Some(since_ms)) => newest_until(root, CommitTime::from_ms(since_ms)),
        (_, None) => Revision::ZERO,
    };
    // What a crash may undo must not be what is kept in place of older states.
    revision.min(synced).max(root.oldest)
}

/// The newest revision committed at `time` or before; the oldest readable one when that is younger.
pub(crate) fn newest_until(root: &Root, time: CommitTime) -> Revision {
    let segments = root.segments.starting_at(root.oldest.next()).iter();
    let segments: Vec<_> = segments.filter(|segment| segment.record_bytes() > 0).collect();
    let is_old = |segment: &Segment, at: u64| {
        let end = root.end_of(segment);
        let first = segment.walk(at, end, Revision::ZERO).ok().and_then(|mut walk| walk.next());
        first.is_some_and(|found| found.head.time <= time)
    };
    let at = segments.partition_point(|segment| is_old(segment, crate::header::RECORDS_START));
    let Some(segment) = at.checked_sub(1).map(|at| segments[at]) else { return root.oldest };
    let marks = segment.marks_until(root.revision);
    let mark = marks.partition_point(|mark| is_old(segment, mark.offset)).checked_sub(1);
    let from = mark.map_or(segment.header.first_revision, |mark| marks[mark].revision);
    let mut newest = root.oldest;
    if let Ok(mut walk) = segment.walk_from(from) {
        while let Some(found) = walk.next() {
            if found.head.time > time || found.head.revision > root.revision {
                break;
            }
            newest = newest.max(found.head.revision);
        }
    }
    newest
}

/// The keys that records from revision `from` to the root's oldest readable one are about, in ascending order: `max`, or
/// a few more where a revision has several; and the revision to go on from, `None` when there are no more.
pub(crate) fn touched(root: &Root, from: Revision, max: usize) -> (Vec<Bytes>, Option<Revision>) {
    let mut keys = Vec::with_capacity(max);
    let mut last = Revision::ZERO;
    let mut next = None;
    'segments: for segment in root.segments.starting_at(from) {
        // A segment that cannot be read now is one whose keys are pruned when they are written again.
        let Ok(mut walk) = segment.walk_from(from) else { continue };
        while let Some(found) = walk.next() {
            let revision = found.head.revision;
            if revision > root.oldest {
                break 'segments;
            }
            if revision < from {
                continue;
            }
            if keys.len() >= max && revision > last {
                next = Some(revision);
                break 'segments;
            }
            last = revision;
            keys.push(Bytes::copy_from_slice(found.head.key(&found.bytes)));
        }
    }
    keys.sort_unstable();
    keys.dedup();
    (keys, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_retentions_are_looked_at_often_and_no_retention_never() {
        for (retention_s, interval_ms) in [(0, 500), (8, 500), (16, 1_000), (300, 10_000), (1 << 30, 10_000)]
        {
            let interval = interval(Duration::from_secs(retention_s));
            assert_eq!(interval, Some(Duration::from_millis(interval_ms)), "{retention_s} s");
        }
        assert_eq!(interval(Duration::MAX), None);
    }
}
