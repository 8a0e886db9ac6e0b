//! Compaction decisions: the oldest revision that must stay readable, and the keys whose history can be
//! compacted.
//!
//! History older than the retention is found by the times in the records. The oldest readable revision is
//! raised first. Then the log between the old and the new oldest revision is walked, because every key with
//! history to compact was written there, and the index drops the history key by key. So the cost of a
//! compaction depends on the number of writes in that range, not on the size of the store.

use std::time::Duration;

use bytes::Bytes;

use crate::segment::Segment;
use crate::snapshot::Root;
use crate::types::{CommitTime, Revision};

/// Maximum interval between compactions. With a long retention, a precision of seconds suffices.
const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Minimum interval between compactions, for a short retention.
const INTERVAL_MIN: Duration = Duration::from_millis(500);

/// Returns the interval between compactions; `None` means that history is never compacted.
pub(crate) fn interval(retention: Duration) -> Option<Duration> {
    (retention < Duration::MAX).then(|| (retention / 16).clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// Returns the oldest revision that must stay readable at `now_ms`: the newest revision at the beginning of
/// the retention period. The result is at most `synced`, but never lower than the present oldest readable
/// revision.
pub(crate) fn target(root: &Root, retention: Duration, now_ms: u64, synced: Revision) -> Revision {
    if retention == Duration::MAX {
        return root.oldest;
    }
    let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let revision = match (retention_ms, now_ms.checked_sub(retention_ms)) {
        // A retention of zero does not depend on the clock.
        (0, _) => root.revision,
        (_, Some(since_ms)) => newest_until(root, CommitTime::from_ms(since_ms)),
        (_, None) => Revision::ZERO,
    };
    // A revision that a crash may undo must not replace older states.
    revision.min(synced).max(root.oldest)
}

/// Returns the oldest revision that must stay readable if history may take at most `bytes_max` bytes. The result is at
/// most `synced`, but never lower than the present oldest readable revision. Because the effect of a compaction is
/// known only afterwards, the caller compacts and then calls this function again.
pub(crate) fn target_within(root: &Root, bytes_max: u64, synced: Revision) -> Revision {
    // When an overwrite can no longer be read as an event, the state that it replaced can no longer be read either,
    // and that state is about as large as the overwrite. So a compaction that advances over some bytes of the log
    // frees at most about the same number of bytes of history.
    let mut excess = root.segments.retained_bytes().saturating_sub(bytes_max);
    let mut target = root.oldest;
    for segment in root.segments.starting_at(root.oldest.next()) {
        let marks = segment.marks_until(root.revision);
        let before = marks.partition_point(|mark| mark.revision <= root.oldest).checked_sub(1);
        let start = before.map_or(crate::header::RECORDS_START, |at| marks[at].offset);
        let bytes = root.end_of(segment).saturating_sub(start);
        let behind = marks.partition_point(|mark| mark.offset <= start + excess.min(bytes));
        if let Some(last) = behind.checked_sub(1) {
            target = target.max(marks[last].revision.before());
        }
        excess = excess.saturating_sub(bytes);
        if excess == 0 {
            break;
        }
    }
    // A revision that a crash may undo must not replace older states.
    target.min(synced).max(root.oldest)
}

/// Returns the newest revision committed at or before `time`, or the oldest readable revision if that is
/// newer.
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

/// Returns the keys of the records from revision `from` to the root's oldest readable one, in ascending
/// order: `max` keys, or a few more if the last revision has several. Also returns the revision to continue
/// from; `None` if no record follows.
pub(crate) fn written_keys(root: &Root, from: Revision, max: usize) -> (Vec<Bytes>, Option<Revision>) {
    let mut keys = Vec::with_capacity(max);
    let mut last = Revision::ZERO;
    let mut next = None;
    'segments: for segment in root.segments.starting_at(from) {
        // The keys of a segment that cannot be read now are pruned when they are written again.
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
    fn the_compaction_interval_follows_the_retention() {
        for (retention_s, interval_ms) in [(0, 500), (8, 500), (16, 1_000), (300, 10_000), (1 << 30, 10_000)]
        {
            let interval = interval(Duration::from_secs(retention_s));
            assert_eq!(interval, Some(Duration::from_millis(interval_ms)), "{retention_s} s");
        }
        assert_eq!(interval(Duration::MAX), None);
    }
}
