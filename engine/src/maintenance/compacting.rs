//! The compaction part of maintenance:
//! `raise the oldest readable revision → prune the index, key by key → note it on disk`.
//!
//! `compaction.rs` decides which revisions are compacted. When keys are deleted on a full disk, history is
//! kept for a shorter time than configured: the deleted states are history, and their space cannot be
//! reclaimed before they are compacted.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::rate::Rate;
use super::{NAP_MAX, RETRY, Tools, Turn};
use crate::compaction;
use crate::sabotage;
use crate::snapshot::Root;
use crate::status::Shortage;
use crate::steps::MaintenanceStep;
use crate::types::Revision;

/// Maximum retention while keys are deleted on a full disk: long enough for a client that reads page by page
/// or follows closely, short enough that the reserve lasts. Clients that need older history start again
/// (410).
const RETENTION_ON_FULL: Duration = Duration::from_secs(2);

/// Maximum retention while the disk is full: history must not keep writers waiting.
const RETENTION_WHILE_FULL: Duration = Duration::from_secs(300);

/// If the size of history is limited, history takes at most one part in `DISK_SHARE` of the disk, so that it cannot
/// fill a small disk.
const DISK_SHARE: u64 = 4;
/// Time between two checks of the size of the disk.
const DISK_LOOK: Duration = Duration::from_secs(60);

/// Number of bytes committed between two checks of the size of history.
const LIMIT_CHECK_BYTES: u64 = 64 * 1024;

/// State of the compaction part.
pub(super) struct Compacting {
    /// Time of the next compaction, in milliseconds since 1970.
    next_at_ms: u64,
    /// Time of the next attempt to write the note after a failure.
    note_at_ms: u64,
    /// Keys with records up to this revision are pruned.
    pruned: Revision,
    /// The oldest readable revision that is noted on disk.
    noted: Revision,
    /// Bytes committed when the history was last found to be within its limit; `None` if it may exceed the limit.
    within_limit_at: Option<u64>,
    /// Number of moves of the clock that the choice of the oldest revision has taken into account.
    clock_moves: u64,
    /// Maximum bytes of history, and the time of the next check of the disk in milliseconds since 1970.
    bytes_max: u64,
    disk_look_at_ms: u64,
}

impl Compacting {
    /// Creates the state of a store in which all history before `oldest` is compacted.
    pub fn new(oldest: Revision) -> Compacting {
        Compacting {
            next_at_ms: 0,
            note_at_ms: 0,
            pruned: oldest,
            noted: oldest,
            within_limit_at: None,
            clock_moves: 0,
            bytes_max: u64::MAX,
            disk_look_at_ms: 0,
        }
    }

    /// Raises the oldest readable revision, then prunes the history before it from the index.
    pub fn turn(&mut self, tools: &Tools, rate: &Rate, now_ms: u64) -> Turn {
        if !tools.queue.is_free() {
            return Turn::Waiting;
        }
        let root = tools.hub.root();
        if self.pruned < root.oldest {
            let (keys, next) = compaction::written_keys(&root, self.pruned, rate.step_keys());
            self.pruned = next.unwrap_or(root.oldest);
            tools.queue.request_step(MaintenanceStep::Prune(keys));
            return Turn::Waiting;
        }
        if self.noted < root.oldest && now_ms >= self.note_at_ms {
            let noted = root.segments.in_order().last().is_none_or(|segment| {
                let written = segment.write_note(Revision::ZERO, root.oldest).inspect_err(|error| {
                    tracing::warn!("cannot record the compaction in the log: {error}");
                });
                let synced = tools.status.synced();
                // The status reports a failed sync, and no later write is accepted.
                written.is_ok() && tools.status.sync(segment, synced).is_ok()
            });
            if !noted {
                self.note_at_ms = now_ms + RETRY.as_millis() as u64;
                return Turn::Idle(RETRY.min(NAP_MAX));
            }
            self.noted = root.oldest;
            tools.requests.update_progress(|progress| progress.compacted = root.oldest);
            return Turn::Worked;
        }
        let requested = tools.requests.compact_to().min(root.revision);
        if requested > tools.status.synced()
            && requested > root.oldest
            && let Some(segment) = root.segments.in_order().last()
        {
            // A caller that requested a compaction must not wait for a later sync. The status reports a
            // failure.
            let _ = tools.status.sync(segment, root.revision);
        }
        let synced = if sabotage::forgotten_for_unsynced() { root.revision } else { tools.status.synced() };
        let limit = requested.min(synced);
        let mut target = root.oldest.max(limit);
        let retention = match tools.status.take_shortage(root.oldest) {
            Shortage::None if tools.status.disk_is_full() => tools.retention.min(RETENTION_WHILE_FULL),
            Shortage::None => tools.retention,
            Shortage::Deleted => tools.retention.min(RETENTION_ON_FULL),
            Shortage::Exhausted => Duration::ZERO,
        };
        let interval = compaction::interval(retention);
        let moves = tools.requests.clock_moves();
        if std::mem::replace(&mut self.clock_moves, moves) != moves {
            self.next_at_ms = now_ms;
        }
        if retention < tools.retention
            && let Some(interval) = interval
        {
            let soon_ms = if retention.is_zero() { 0 } else { interval.as_millis() as u64 };
            self.next_at_ms = self.next_at_ms.min(now_ms + soon_ms);
        }
        if now_ms >= self.next_at_ms
            && let Some(interval) = interval
        {
            self.next_at_ms = now_ms + interval.as_millis() as u64;
            target = target.max(compaction::target(&root, retention, tools.time_of_day.now_ms(), synced));
        }
        target = target.max(self.target_within_limit(tools, &root, synced, now_ms));
        if target > root.oldest {
            tools.queue.request_step(MaintenanceStep::Forget(target));
            return Turn::Waiting;
        }
        Turn::Idle(Duration::from_millis(self.next_at_ms.saturating_sub(now_ms).max(1)).min(NAP_MAX))
    }

    /// Returns the oldest revision that must stay readable so that history is within its limit.
    fn target_within_limit(&mut self, tools: &Tools, root: &Root, synced: Revision, now_ms: u64) -> Revision {
        if tools.history_bytes_max == u64::MAX {
            return root.oldest;
        }
        // If the clock was set back, the interval begins anew.
        let disk_look_ms = DISK_LOOK.as_millis() as u64;
        self.disk_look_at_ms = self.disk_look_at_ms.min(now_ms + disk_look_ms);
        if now_ms >= self.disk_look_at_ms {
            self.disk_look_at_ms = now_ms + disk_look_ms;
            let share = tools.storage.capacity().map_or(u64::MAX, |bytes| bytes / DISK_SHARE);
            let bytes_max = tools.history_bytes_max.min(share);
            if bytes_max < self.bytes_max {
                self.within_limit_at = None;
            }
            self.bytes_max = bytes_max;
        }
        let committed = tools.status.committed_bytes.load(Ordering::Relaxed);
        if self.within_limit_at.is_some_and(|then| committed.saturating_sub(then) < LIMIT_CHECK_BYTES) {
            return root.oldest;
        }
        let target = compaction::target_within(root, self.bytes_max, synced);
        // A compaction may free fewer bytes than expected, and revisions that are not synced yet cannot be compacted.
        let is_done = target == root.oldest && synced >= root.revision;
        let is_within = root.segments.retained_bytes() <= self.bytes_max;
        self.within_limit_at = (is_done || is_within).then_some(committed);
        target
    }
}
