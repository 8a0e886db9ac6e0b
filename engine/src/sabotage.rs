//! Protections that tests can take away, to see that a checker notices (feature `fault`).
//!
//! One function for each, called at the place that it protects. Without the feature every one of them is a constant
//! `false`, and nothing of it is left in a server.

macro_rules! sabotages {
    ($($(#[doc = $doc:literal])+ $variant:ident $function:ident;)+) => {
        /// A protection to take away.
        #[cfg(feature = "fault")]
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Sabotage {
            $($(#[doc = $doc])+ $variant,)+
        }

        #[cfg(feature = "fault")]
        impl Sabotage {
            /// All of them.
            pub const ALL: &[Sabotage] = &[$(Sabotage::$variant,)+];
        }

        $(
            $(#[doc = $doc])+
            #[cfg(feature = "fault")]
            pub(crate) fn $function() -> bool {
                CHOSEN.get() == Some(Sabotage::$variant)
            }

            $(#[doc = $doc])+
            #[cfg(not(feature = "fault"))]
            pub(crate) const fn $function() -> bool {
                false
            }
        )+
    };
}

sabotages! {
    /// A batch is published and acknowledged without being synced.
    AckBeforeSync ack_before_sync;
    /// After a failed sync, writes are taken as before.
    WritesAfterFailedSync writes_after_failed_sync;
    /// The condition of a write is not looked at.
    ExpectationSkipped expectation_skipped;
    /// What a disk that was suddenly full has taken of a refused batch is left there.
    RefusedWriteLeft refused_write_left;
    /// No checksum of any file is compared.
    CrcIgnored crc_ignored;
    /// Checksums do not depend on the segment's salt.
    SaltIgnored salt_ignored;
    /// The segment before is not synced when a new one is begun.
    RollWithoutSync roll_without_sync;
    /// A segment gets its name before its header is on disk.
    RenameBeforeSync rename_before_sync;
    /// Nothing notes that the log goes on in a new segment.
    HighWaterNotRaised high_water_not_raised;
    /// Nothing notes how far the log is on disk while it is written.
    HighWaterNotNoted high_water_not_noted;
    /// The directory is not synced after a segment got its name.
    NoDirSync no_dir_sync;
    /// Opening keeps records that no sync shows to be durable and that are torn, as if they were damaged.
    TornTailKept torn_tail_kept;
    /// What follows the end of the log is not overwritten.
    TornTailNotCleared torn_tail_not_cleared;
    /// What opening finds is shown before it is synced.
    RecoveryWithoutSync recovery_without_sync;
    /// Opening takes what it can read for what a sync will bring to disk.
    TailNotRewritten tail_not_rewritten;
    /// Only the first copy of a segment's header is looked at.
    SecondHeaderIgnored second_header_ignored;
    /// Opening does not look at how far later records and the high-water mark say that the log was on disk.
    SyncedMarksIgnored synced_marks_ignored;
    /// A checkpoint's Bloom filters are believed although they are of another kind.
    BloomKindIgnored bloom_kind_ignored;
    /// A checkpoint that opening cannot begin with tells nothing of the log's end.
    WitnessIgnored witness_ignored;
    /// History is forgotten in favour of states that are not on disk yet.
    ForgottenForUnsynced forgotten_for_unsynced;
    /// The store deletes a key although it was written again since its time was set.
    ExpiryUnconditional expiry_unconditional;
    /// A rewritten segment gets its name before its contents are on disk.
    RewriteNamedBeforeSync rewrite_named_before_sync;
    /// A checkpoint gets its name before its contents are on disk.
    CheckpointNamedBeforeSync checkpoint_named_before_sync;
    /// The directory is not synced after a checkpoint got its name.
    CheckpointNameNotSynced checkpoint_name_not_synced;
    /// A checkpoint is begun while the index refers to a segment that is no part of the log yet.
    CheckpointWhileMoving checkpoint_while_moving;
    /// A checkpoint speaks of what is not on disk yet.
    CheckpointOfUnsynced checkpoint_of_unsynced;
    /// Superseded segments are removed before there is a checkpoint that does without them.
    RetiredBeforeCheckpoint retired_before_checkpoint;
    /// Nothing is left of a delete whose key has older states elsewhere in the log.
    TombstoneDropped tombstone_dropped;
    /// What cannot be read where the log ends is taken for a torn end.
    UnreadableEndCut unreadable_end_cut;
    /// A tail passes over revisions that it cannot read.
    HolePassedOver hole_passed_over;
}

#[cfg(feature = "fault")]
thread_local! {
    /// Per thread, as a stepped engine works on its test's thread and tests run beside each other.
    static CHOSEN: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// While this lives, a protection is gone for engines that are stepped on this thread.
#[cfg(feature = "fault")]
#[derive(Debug)]
#[must_use]
pub struct Sabotaged(());

#[cfg(feature = "fault")]
impl Sabotaged {
    /// Takes `sabotage` away, in place of any other.
    pub fn with(sabotage: Sabotage) -> Sabotaged {
        CHOSEN.set(Some(sabotage));
        Sabotaged(())
    }
}

#[cfg(feature = "fault")]
impl Drop for Sabotaged {
    fn drop(&mut self) {
        CHOSEN.set(None);
    }
}
