//! Maintenance steps: small, bounded edits of the index and the segment list that the sequencer makes between batches.
//!
//! Only the sequencer publishes roots, so every change of a root goes through it. It carries a step out in parts of some
//! ten microseconds and commits a batch between two of them. A step does no I/O.

use std::sync::Arc;

use bytes::Bytes;

use crate::history::Version;
use crate::index::Tree;
use crate::log::{Log, Segments};
use crate::reclaim::Move;
use crate::segment::Segment;
use crate::types::Revision;

/// Keys or records that one maintenance step may be about.
pub(crate) const STEP_KEYS: usize = 256;
/// The same while batches are large: enough for some of them, so that maintenance need not come after
/// each.
pub(crate) const STEP_KEYS_MAX: usize = 1024;
/// Keys or records that are dealt with between two batches of one write. A leaf of the index is copied for each, which
/// takes a microsecond or two, so a lone writer waits for less than it takes to sync.
const PART_KEYS_MIN: usize = 8;
/// The same after a batch of many.
const PART_KEYS_MAX: usize = 256;
/// How many more for each write in the batch before: maintenance must not fall behind those who give it work.
const PART_KEYS_PER_WRITE: usize = 4;

/// Keys or records to be dealt with after a batch of so many writes.
pub(crate) fn part_keys(batch_writes: usize) -> usize {
    (batch_writes * PART_KEYS_PER_WRITE).clamp(PART_KEYS_MIN, PART_KEYS_MAX)
}

/// One of them.
pub(crate) enum MaintenanceStep {
    /// History before this revision cannot be read any more.
    Forget(Revision),
    /// What is forgotten goes from the histories of these keys.
    Prune(Vec<Bytes>),
    /// The same, and thoroughly.
    PruneFully(Vec<Bytes>),
    /// The index may refer to this segment from now on.
    Adopt(Arc<Segment>),
    /// These records are to be read in their new places.
    Move(Vec<Move>),
    /// This segment takes the place of those that it was made from. Left undone while the index refers to one of
    /// them.
    Replace(Arc<Segment>),
}

/// Carries a part of `step` out, of about `keys` keys, and returns what is left of it; and the oldest readable revision,
/// which is `oldest` unless the maintenance step raises it.
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
            part(&mut all, keys).for_each(|key| tree.prune(&key, oldest, &mut freed));
            (!all.is_empty()).then_some(MaintenanceStep::Prune(all))
        }
        MaintenanceStep::PruneFully(mut all) => {
            part(&mut all, keys).for_each(|key| tree.prune_fully(&key, oldest, &mut freed));
            (!all.is_empty()).then_some(MaintenanceStep::PruneFully(all))
        }
        MaintenanceStep::Adopt(segment) => {
            log.set_segments(segments.with_rewritten(segment));
            None
        }
        MaintenanceStep::Move(mut all) => {
            for Move { key, from, to } in part(&mut all, keys) {
                if tree.relocate(&key, &from, to) {
                    freed(&from);
                    if let Some(segment) = segments.get(to.segment) {
                        segment.add_live(to.len());
                    }
                }
            }
            (!all.is_empty()).then_some(MaintenanceStep::Move(all))
        }
        MaintenanceStep::Replace(segment) => {
            let replaced = segments.replacing(&segment);
            if nothing_refers_to_what_goes(&segments, &replaced) {
                log.set_segments(replaced);
            }
            None
        }
    };
    (left, oldest)
}

/// The last `count` of `all`, which they are taken from.
fn part<T>(all: &mut Vec<T>, count: usize) -> std::vec::Drain<'_, T> {
    all.drain(all.len().saturating_sub(count)..)
}

fn nothing_refers_to_what_goes(before: &Segments, after: &Segments) -> bool {
    let mut going = before.all().iter().filter(|segment| after.get(segment.header.number).is_none());
    going.all(|segment| segment.live() == 0)
}
