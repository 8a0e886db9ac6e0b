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

/// Number of bytes committed between two checks of the size of history.
const LIMIT_CHECK_BYTES: u64 = 64 * 1024;

/// State of the compaction part.
pub(super) struct Forgetting {
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
}

impl Forgetting {
    /// Creates the state of a store in which all history before `oldest` is compacted.
    pub fn new(oldest: Revision) -> Forgetting {
        Forgetting { next_at_ms: 0, note_at_ms: 0, pruned: oldest, noted: oldest, within_limit_at: None }
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
                // A failed sync is reported by the status, and nothing is written any more.
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
        let wanted = tools.requests.compact_to().min(root.revision);
        if wanted > tools.status.synced()
            && wanted > root.oldest
            && let Some(segment) = root.segments.in_order().last()
        {
            // A caller that requested a compaction must not wait for a later sync. A failure is reported by
            // the status.
            let _ = tools.status.sync(segment, root.revision);
        }
        let synced = if sabotage::forgotten_for_unsynced() { root.revision } else { tools.status.synced() };
        let asked = wanted.min(synced);
        let mut target = root.oldest.max(asked);
        let retention = match tools.status.take_shortage(root.oldest) {
            Shortage::None => tools.retention,
            Shortage::Deleted => tools.retention.min(RETENTION_ON_FULL),
            Shortage::Exhausted => Duration::ZERO,
        };
        let interval = compaction::interval(retention);
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
            target = target.max(compaction::target(&root, retention, now_ms, synced));
        }
        target = target.max(self.target_within_limit(tools, &root, synced));
        if target > root.oldest {
            tools.queue.request_step(MaintenanceStep::Forget(target));
            return Turn::Waiting;
        }
        Turn::Idle(Duration::from_millis(self.next_at_ms.saturating_sub(now_ms).max(1)).min(NAP_MAX))
    }

    /// Returns the oldest revision that must stay readable so that history is within its limit.
    fn target_within_limit(&mut self, tools: &Tools, root: &Root, synced: Revision) -> Revision {
        if tools.history_bytes_max == u64::MAX {
            return root.oldest;
        }
        let committed = tools.status.committed_bytes.load(Ordering::Relaxed);
        if self.within_limit_at.is_some_and(|then| committed.saturating_sub(then) < LIMIT_CHECK_BYTES) {
            return root.oldest;
        }
        let target = compaction::target_within(root, tools.history_bytes_max, synced);
        // A compaction may free less than it was chosen to free, and revisions that are not synced yet must wait.
        let is_done = target == root.oldest && synced >= root.revision;
        let is_within = root.segments.retained_bytes() <= tools.history_bytes_max;
        self.within_limit_at = (is_done || is_within).then_some(committed);
        target
    }
}
