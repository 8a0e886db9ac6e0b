//! Protections that tests can disable, to prove that a checker notices the missing protection (feature
//! `fault`).
//!
//! Each protection has a function, which the protected code calls. Without the feature every function is a
//! constant `false`, and the compiler removes it from a server.

macro_rules! sabotages {
    ($($(#[doc = $doc:literal])+ $variant:ident $function:ident;)+) => {
        /// A protection that can be disabled.
        #[cfg(feature = "fault")]
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Sabotage {
            $($(#[doc = $doc])+ $variant,)+
        }

        #[cfg(feature = "fault")]
        impl Sabotage {
            /// All protections that can be disabled.
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
    /// After a failed sync, the store takes writes as before.
    WritesAfterFailedSync writes_after_failed_sync;
    /// The condition of a write is not checked.
    ExpectationSkipped expectation_skipped;
    /// Bytes of a refused batch that were written before the disk was full are left in the file.
    RefusedWriteLeft refused_write_left;
    /// No checksum of any file is verified.
    CrcIgnored crc_ignored;
    /// Checksums do not depend on the segment's salt.
    SaltIgnored salt_ignored;
    /// The previous segment is not synced when a new segment is begun.
    RollWithoutSync roll_without_sync;
    /// A segment gets its name before its header is durable.
    RenameBeforeSync rename_before_sync;
    /// The high-water mark is not raised when the log continues in a new segment.
    HighWaterNotRaised high_water_not_raised;
    /// The high-water mark does not note the durable revision while the log is written.
    HighWaterNotNoted high_water_not_noted;
    /// The directory is not synced after a segment got its name.
    NoDirSync no_dir_sync;
    /// Opening keeps torn records that are not known durable, as if they were damaged.
    TornTailKept torn_tail_kept;
    /// Bytes behind the end of the log are not overwritten.
    TornTailNotCleared torn_tail_not_cleared;
    /// Readers see recovered records before they are synced.
    RecoveryWithoutSync recovery_without_sync;
    /// Opening assumes that a sync makes everything durable that can be read.
    TailNotRewritten tail_not_rewritten;
    /// Only the first copy of a segment's header is read.
    SecondHeaderIgnored second_header_ignored;
    /// Opening ignores the durable revisions in later records and in the high-water mark.
    SyncedMarksIgnored synced_marks_ignored;
    /// A checkpoint's Bloom filters are used although they are of another kind.
    BloomKindIgnored bloom_kind_ignored;
    /// A checkpoint that opening cannot begin with is ignored when the log's end is checked.
    WitnessIgnored witness_ignored;
    /// History is compacted up to a revision that is not durable yet.
    ForgottenForUnsynced forgotten_for_unsynced;
    /// The store deletes an expired key although it was written again after its expiry was set.
    ExpiryUnconditional expiry_unconditional;
    /// A rewritten segment gets its name before its contents are durable.
    RewriteNamedBeforeSync rewrite_named_before_sync;
    /// A checkpoint gets its name before its contents are durable.
    CheckpointNamedBeforeSync checkpoint_named_before_sync;
    /// The directory is not synced after a checkpoint got its name.
    CheckpointNameNotSynced checkpoint_name_not_synced;
    /// A checkpoint is begun while the index refers to a segment that is not part of the log yet.
    CheckpointWhileMoving checkpoint_while_moving;
    /// A checkpoint refers to records that are not durable yet.
    CheckpointOfUnsynced checkpoint_of_unsynced;
    /// Superseded segments are removed before there is a checkpoint that does not refer to them.
    RetiredBeforeCheckpoint retired_before_checkpoint;
    /// A delete is dropped although older states of its key remain in the log.
    TombstoneDropped tombstone_dropped;
    /// An unreadable end of the log is treated as a torn tail.
    UnreadableEndCut unreadable_end_cut;
    /// A tail skips revisions that it cannot read.
    HolePassedOver hole_passed_over;
}

#[cfg(feature = "fault")]
thread_local! {
    /// The choice is per thread, because a stepped engine works on its test's thread and tests run in
    /// parallel.
    static CHOSEN: std::cell::Cell<Option<Sabotage>> = const { std::cell::Cell::new(None) };
}

/// Disables a protection for engines that are stepped on this thread, until this value is dropped.
#[cfg(feature = "fault")]
#[derive(Debug)]
#[must_use]
pub struct Sabotaged(());

#[cfg(feature = "fault")]
impl Sabotaged {
    /// Disables the protection `sabotage`, and enables all other protections.
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
