//! Maintenance steps: small, bounded changes of the index and the segment list that the sequencer makes
//! between batches.
//!
//! Only the sequencer publishes roots, so it makes every change of a root. The sequencer carries out a step
//! in parts of some ten microseconds, and commits a batch between two parts. A step does no I/O.

use std::sync::Arc;

use bytes::Bytes;

use crate::history::Version;
use crate::index::Tree;
use crate::log::Log;
use crate::reclaim::RecordMove;
use crate::segment::Segment;
use crate::segments::Segments;
use crate::types::Revision;

/// Maximum number of keys or records in one maintenance step.
pub(crate) const STEP_KEYS: usize = 256;
/// Maximum number of keys or records in one maintenance step while batches are large: enough for several
/// batches, so that maintenance need not run after each one.
pub(crate) const STEP_KEYS_MAX: usize = 1024;
/// Number of keys or records that are processed after a batch of a single write. For each of them a leaf of
/// the index may be copied, which takes a microsecond or two, so a single writer waits for less time than a
/// sync takes.
const PART_KEYS_MIN: usize = 8;
/// Maximum number of keys or records that are processed after a large batch.
const PART_KEYS_MAX: usize = 256;
/// Number of keys or records that are processed for each write in the previous batch: maintenance must not
/// fall behind the writers.
const PART_KEYS_PER_WRITE: usize = 4;

/// Returns the number of keys or records that are processed after a batch of `batch_writes` writes.
pub(crate) fn part_keys(batch_writes: usize) -> usize {
    (batch_writes * PART_KEYS_PER_WRITE).clamp(PART_KEYS_MIN, PART_KEYS_MAX)
}

/// A change of the index or the segment list.
pub(crate) enum MaintenanceStep {
    /// Makes this revision the oldest readable one.
    Forget(Revision),
    /// Removes compacted versions from the histories of these keys.
    Prune(Vec<Bytes>),
    /// Removes compacted versions of these keys completely, as [`Tree::prune_fully`] does.
    PruneFully(Vec<Bytes>),
    /// Adds this segment to the segments that the index may refer to.
    Adopt(Arc<Segment>),
    /// Makes the index refer to the new positions of these records.
    Move(Vec<RecordMove>),
    /// Puts this segment into the log in place of the segments that it was made from. The step does nothing
    /// as long as the index refers to one of the replaced segments.
    Replace(Arc<Segment>),
}

/// Carries out a part of `step` for about `keys` keys. Returns the rest of the step, and the oldest readable
/// revision, which is `oldest` unless the step raises it.
pub(crate) fn carry_out(
    step: MaintenanceStep,
    keys: usize,
    tree: &mut Tree,
    log: &mut Log,
    oldest: Revision,
) -> (Option<MaintenanceStep>, Revision) {
    let segments = log.segments().clone();
    let mut freed = |version: &Version| {
        if let Some(segment) = segments.get(version.segment) {
            segment.take_live(version.len());
        }
    };
    let left = match step {
        MaintenanceStep::Forget(revision) => return (None, revision.max(oldest)),
        MaintenanceStep::Prune(mut all) => {
            take_last(&mut all, keys).for_each(|key| tree.prune(&key, oldest, &mut freed));
            (!all.is_empty()).then_some(MaintenanceStep::Prune(all))
        }
        MaintenanceStep::PruneFully(mut all) => {
            take_last(&mut all, keys).for_each(|key| tree.prune_fully(&key, oldest, &mut freed));
            (!all.is_empty()).then_some(MaintenanceStep::PruneFully(all))
        }
        MaintenanceStep::Adopt(segment) => {
            log.set_segments(segments.with_rewritten(segment));
            None
        }
        MaintenanceStep::Move(mut all) => {
            for RecordMove { key, from, to } in take_last(&mut all, keys) {
                let is_newest = tree.newest(&key).is_some_and(|newest| *newest == from && !from.is_delete());
                if tree.relocate(&key, &from, to) {
                    freed(&from);
                    if let Some(segment) = segments.get(to.segment) {
                        segment.add_live(to.len());
                    }
                    if is_newest {
                        segments.get(from.segment).inspect(|segment| segment.take_newest(from.len()));
                        segments.get(to.segment).inspect(|segment| segment.add_newest(to.len()));
                    }
                }
            }
            (!all.is_empty()).then_some(MaintenanceStep::Move(all))
        }
        MaintenanceStep::Replace(segment) => {
            let replaced = segments.replacing(&segment);
            if is_unreferenced(&segments, &replaced) {
                log.set_segments(replaced);
            }
            None
        }
    };
    (left, oldest)
}

/// Removes the last `count` of `all` and returns them.
fn take_last<T>(all: &mut Vec<T>, count: usize) -> std::vec::Drain<'_, T> {
    all.drain(all.len().saturating_sub(count)..)
}

fn is_unreferenced(before: &Segments, after: &Segments) -> bool {
    let mut going = before.all().iter().filter(|segment| after.get(segment.header.number).is_none());
    going.all(|segment| segment.live() == 0)
}
