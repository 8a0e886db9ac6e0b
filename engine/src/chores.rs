//! What the sequencer does for the housekeeper between two batches: small, bounded edits of the index and of the
//! list of segments. The disk is not touched here.
//!
//! Only the sequencer publishes roots, so whatever changes one goes through it. Each chore is a millisecond at most,
//! and between two of them a batch is committed.

use std::sync::Arc;

use bytes::Bytes;

use crate::history::Version;
use crate::index::Tree;
use crate::log::{Log, Segments};
use crate::reclaim::Move;
use crate::segment::Segment;

/// Keys or records that one chore may be about.
pub(crate) const CHORE_KEYS_MAX: usize = 256;

/// One of them.
pub(crate) enum Chore {
    /// History before this revision cannot be read any more.
    Forget(u64),
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

/// Carries `chore` out; `oldest` is the oldest readable revision, and so is what is returned.
pub(crate) fn carry_out(chore: Chore, tree: &mut Tree, log: &mut Log, oldest: u64) -> u64 {
    let segments = log.segments().clone();
    let mut freed = |version: &Version| {
        if let Some(segment) = segments.get(version.segment) {
            segment.take_live(version.len());
        }
    };
    match chore {
        Chore::Forget(revision) => return revision.max(oldest),
        Chore::Prune(keys) => keys.iter().for_each(|key| tree.prune(key, oldest, &mut freed)),
        Chore::PruneFully(keys) => keys.iter().for_each(|key| tree.prune_fully(key, oldest, &mut freed)),
        Chore::Adopt(segment) => log.set_segments(segments.with_rewritten(segment)),
        Chore::Move(moves) => {
            for Move { key, from, to } in moves {
                if tree.relocate(&key, &from, to) {
                    freed(&from);
                    if let Some(segment) = segments.get(to.segment) {
                        segment.add_live(to.len());
                    }
                }
            }
        }
        Chore::Replace(segment) => {
            let replaced = segments.replacing(&segment);
            if nothing_refers_to_what_goes(&segments, &replaced) {
                log.set_segments(replaced);
            }
        }
    }
    oldest
}

fn nothing_refers_to_what_goes(before: &Segments, after: &Segments) -> bool {
    let mut going = before.all().iter().filter(|segment| after.get(segment.header.number).is_none());
    going.all(|segment| segment.live() == 0)
}
