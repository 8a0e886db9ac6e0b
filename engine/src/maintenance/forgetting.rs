//! Compaction at work: `raise the oldest readable revision → have the index forget, key by key → note it on disk`.
//!
//! `compaction.rs` decides which revisions are forgotten. When keys are deleted on a full disk, history is kept for a shorter
//! time than configured: the deleted states are history, and their space cannot be given back before they are forgotten.

use std::time::Duration;

use super::rate::Rate;
use super::{NAP_MAX, RETRY, Tools, Turn};
use crate::compaction;
use crate::sabotage;
use crate::status::Shortage;
use crate::steps::MaintenanceStep;
use crate::types::Revision;

/// How long history is kept at most while keys are deleted on a full disk: long enough for a client that reads page by page
/// or follows closely, short enough that the reserve lasts. Clients that need more read again (410).
const RETENTION_ON_FULL: Duration = Duration::from_secs(2);

/// How far it is.
pub(super) struct Forgetting {
    /// When history is looked at next, in milliseconds since 1970.
    next_at_ms: u64,
    /// When it is noted again, after that has failed.
    note_at_ms: u64,
    /// Keys with records up to here are pruned.
    pruned: Revision,
    /// The oldest readable revision that is noted on disk.
    noted: Revision,
}

impl Forgetting {
    /// All before `oldest` is forgotten.
    pub fn new(oldest: Revision) -> Forgetting {
        Forgetting { next_at_ms: 0, note_at_ms: 0, pruned: oldest, noted: oldest }
    }

    /// Raises the oldest readable revision, then has the index forget what lies before it.
    pub fn turn(&mut self, tools: &Tools, rate: &Rate, now_ms: u64) -> Turn {
        if !tools.queue.is_free() {
            return Turn::Waiting;
        }
        let root = tools.hub.root();
        if self.pruned < root.oldest {
            let (keys, next) = compaction::touched(&root, self.pruned, rate.step_keys());
            self.pruned = next.unwrap_or(root.oldest);
            tools.queue.ask(MaintenanceStep::Prune(keys));
            return Turn::Waiting;
        }
        if self.noted < root.oldest && now_ms >= self.note_at_ms {
            let noted = root.segments.in_order().last().is_none_or(|segment| {
                let written = segment.write_note(Revision::ZERO, root.oldest).inspect_err(|error| {
                    tracing::warn!("cannot note that history was forgotten: {error}");
                });
                let synced = tools.status.synced();
                // A sync that fails is told there, and nothing is written any more.
                written.is_ok() && tools.status.sync(segment, synced).is_ok()
            });
            if !noted {
                self.note_at_ms = now_ms + RETRY.as_millis() as u64;
                return Turn::Idle(RETRY.min(NAP_MAX));
            }
            self.noted = root.oldest;
            tools.requests.tell(|progress| progress.compacted = root.oldest);
            return Turn::Worked;
        }
        let wanted = tools.requests.compact_to().min(root.revision);
        if wanted > tools.status.synced()
            && wanted > root.oldest
            && let Some(segment) = root.segments.in_order().last()
        {
            // Who asked does not wait for a sync that comes by itself. One that fails is told there.
            let _ = tools.status.sync(segment, root.revision);
        }
        let synced = match sabotage::forgotten_for_unsynced() {
            true => root.revision,
            false => tools.status.synced(),
        };
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
        if target > root.oldest {
            tools.queue.ask(MaintenanceStep::Forget(target));
            return Turn::Waiting;
        }
        Turn::Idle(Duration::from_millis(self.next_at_ms.saturating_sub(now_ms).max(1)).min(NAP_MAX))
    }
}
