//! Progress of the log, stage by stage, and the order that the stages must keep.
//!
//! ```text
//! reclaimed ≤ compacted    ≤ published ≤ synced ≤ appended
//! reclaimed ≤ checkpointed ≤ published
//! ```
//!
//! The order is asserted at opening and after every transition, even in a production server. No input can
//! break it, so a broken order is a bug of the program and ends the process
//! (`docs/decisions/0012-a-broken-invariant-ends-the-process.md`). Two of the relations have exceptions: with
//! relaxed durability readers may see revisions that are not synced, and without a checkpoint recovery reads
//! the log, which is complete without the reclaimed segments.

use crate::sabotage;
use crate::snapshot::Root;
use crate::types::{Durability, Revision};

/// The stages of the log. The value of a stage is the revision that the stage has reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stages {
    durability: Durability,
    /// Highest first revision of a segment that was rewritten and removed.
    pub reclaimed: Revision,
    /// Oldest revision that is readable.
    pub compacted: Revision,
    /// Revision of the newest checkpoint; 0 if there is no checkpoint.
    pub checkpointed: Revision,
    /// Newest revision that readers can read.
    pub published: Revision,
    /// Newest revision that is known durable.
    pub synced: Revision,
    /// Newest revision in the log's file.
    pub appended: Revision,
}

impl Stages {
    /// Returns the initial stages of a store: everything in `root` is durable, and the newest checkpoint has
    /// revision `checkpointed`.
    pub fn at_opening(root: &Root, checkpointed: Revision, durability: Durability) -> Stages {
        let rewritten = root.segments.in_order().iter().filter(|segment| segment.header.rewritten.is_some());
        let stages = Stages {
            durability,
            reclaimed: rewritten.map(|segment| segment.header.first_revision).max().unwrap_or(Revision::ZERO),
            compacted: root.oldest,
            checkpointed,
            published: root.revision,
            synced: root.revision,
            appended: root.revision,
        };
        stages.check();
        stages
    }

    /// Makes one transition and checks the order.
    pub fn advance(&mut self, transition: impl FnOnce(&mut Stages)) {
        transition(self);
        self.check();
    }

    /// Panics unless the stages are in order.
    fn check(&self) {
        let may_show_unsynced = self.durability != Durability::Sync || sabotage::ack_before_sync();
        let may_lack_checkpoint =
            self.checkpointed == Revision::ZERO || sabotage::retired_before_checkpoint();
        assert!(self.reclaimed <= self.compacted, "readable history was removed: {self:?}");
        assert!(
            self.reclaimed <= self.checkpointed || may_lack_checkpoint,
            "the checkpoint refers to segments that were removed: {self:?}"
        );
        assert!(self.compacted <= self.published, "the newest state was forgotten: {self:?}");
        assert!(self.checkpointed <= self.published, "the checkpoint is newer than the store: {self:?}");
        assert!(
            self.checkpointed <= self.synced || sabotage::checkpoint_of_unsynced(),
            "the checkpoint refers to revisions that a crash can undo: {self:?}"
        );
        assert!(
            self.published <= self.synced || may_show_unsynced,
            "readers see revisions that a crash can undo: {self:?}"
        );
        assert!(self.published <= self.appended, "readers see revisions that are not in the log: {self:?}");
        assert!(
            self.synced <= self.appended,
            "a sync counts for revisions that are not in the log: {self:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERED: Stages = Stages {
        durability: Durability::Sync,
        reclaimed: Revision::new(10),
        compacted: Revision::new(20),
        checkpointed: Revision::new(30),
        published: Revision::new(40),
        synced: Revision::new(50),
        appended: Revision::new(60),
    };

    fn holds(stages: Stages) -> bool {
        std::panic::catch_unwind(|| stages.check()).is_ok()
    }

    #[test]
    fn each_commit_stage_never_passes_the_stages_it_depends_on() {
        let relaxed = Stages { durability: Durability::Relaxed, ..ORDERED };
        for (stages, is_ordered) in [
            (ORDERED, true),
            (Stages { reclaimed: Revision::new(21), ..ORDERED }, false),
            (
                Stages {
                    reclaimed: Revision::new(21),
                    compacted: Revision::new(25),
                    checkpointed: Revision::new(20),
                    ..ORDERED
                },
                false,
            ),
            (Stages { checkpointed: Revision::ZERO, ..ORDERED }, true),
            (Stages { compacted: Revision::new(41), ..ORDERED }, false),
            (Stages { checkpointed: Revision::new(41), ..ORDERED }, false),
            (Stages { published: Revision::new(51), ..ORDERED }, false),
            (Stages { published: Revision::new(51), ..relaxed }, true),
            (Stages { published: Revision::new(51), durability: Durability::Replicated, ..ORDERED }, true),
            (Stages { published: Revision::new(61), ..relaxed }, false),
            (Stages { checkpointed: Revision::new(35), synced: Revision::new(34), ..relaxed }, false),
            (Stages { synced: Revision::new(61), ..ORDERED }, false),
        ] {
            assert_eq!(holds(stages), is_ordered, "{stages:?}");
        }
    }
}
