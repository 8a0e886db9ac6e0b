//! Background maintenance of an open store: compaction, expiry, segment reclamation, checkpoints, idle notes
//! (`idle.rs`), reports of unreadable disk pages, and mapping of complete segments into memory.
//!
//! ```text
//!             ┌─ expiring       due keys ──────────────► deletes ─► queue
//! Maintenance ┼─ compacting     oldest, keys ──┐
//!             ├─ reclaiming     moves, segments ┴──────► steps ───► queue ─► sequencer
//!             └─ checkpointing  root ─► file, then superseded segments are removed
//! ```
//!
//! Maintenance works in turns. Each turn is a bounded piece of work: it requests a step, copies a piece, or
//! writes a block. No caller waits for maintenance. There is one maintenance step at a time; under many
//! concurrent writes the parts continue with their own disk work while the sequencer carries out the step. A
//! part that fails, usually for lack of space, tries again later.
//!
//! On a full disk the parts free space as soon as possible. History is compacted early once keys are deleted,
//! reclamation copies into room that is kept back for it, and a checkpoint that prevents the removal of a
//! superseded segment is removed.

mod checkpointing;
mod compacting;
mod expiring;
mod high_water_update;
mod mapping_ahead;
mod page_failures;
mod rate;
mod reclaiming;
mod requests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::checkpointing::Checkpointing;
use self::compacting::Compacting;
use self::expiring::Expiring;
use self::high_water_update::HighWaterUpdate;
use self::mapping_ahead::MappingAhead;
use self::page_failures::FailureReports;
use self::rate::{CommitTally, Rate};
use self::reclaiming::Reclaiming;
pub(crate) use self::requests::{Progress, Requests};
use crate::error::Refusal;
use crate::expiry::Expiry;
use crate::high_water::HighWater;
use crate::idle::{Idle, NoteDue};
use crate::io::{Clock, Storage};
use crate::log::Numbers;
use crate::losses::LossRegistry;
use crate::queue::Queue;
use crate::recovery::UsedCheckpoint;
use crate::reserve::Reserve;
use crate::status::StoreStatus;
use crate::types::{Revision, SegmentNumber};
use crate::watch::Hub;

/// Maximum sleep: expiry has a resolution of seconds.
const NAP_MAX: Duration = Duration::from_secs(1);
/// Time to wait for a maintenance step before looking for other work.
const STEP_PATIENCE: Duration = Duration::from_millis(1);
/// Time before failed work is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The parts of maintenance. The argument of each function is the time in milliseconds since 1970.
const PARTS: [fn(&mut Maintenance, u64) -> Turn; 8] = [
    Maintenance::expire,
    Maintenance::compact,
    Maintenance::reclaim,
    Maintenance::checkpoint,
    Maintenance::note_idle,
    Maintenance::note_durable,
    Maintenance::report_failures,
    Maintenance::map_ahead,
];

/// Result of a turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Some work was done, and there may be more.
    Worked,
    /// There is more work, but a maintenance step must finish first: a step that was just requested, or the
    /// step of another part.
    Waiting,
    /// There is no work until this time has passed.
    Idle(Duration),
}

/// The components that background maintenance uses.
pub(crate) struct Tools {
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub status: Arc<StoreStatus>,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    /// The clock for commit times, expiry and retention. The field `clock` is the clock for the pace of the
    /// work.
    pub time_of_day: Arc<dyn Clock>,
    pub numbers: Arc<Numbers>,
    pub expiry: Arc<Expiry>,
    pub requests: Arc<Requests>,
    pub retention: Duration,
    pub history_bytes_max: u64,
    pub segment_bytes: u64,
    pub lost_revisions: u64,
    pub losses: Arc<LossRegistry>,
    pub high_water: Arc<HighWater>,
    /// Kind of the index's Bloom filters.
    pub bloom_kind: u32,
    /// Disk space kept back for a full disk.
    pub reserve: Arc<Reserve>,
}

impl Tools {
    /// Returns whether the rest of the disk is reserved for essential writes and reclamation.
    pub fn is_short_of_room(&self) -> bool {
        self.reserve.is_used() && (self.status.disk_is_full() || self.reserve.is_lent())
    }
}

/// The state of background maintenance; see the module.
pub(crate) struct Maintenance {
    tools: Tools,
    /// Index of the part that runs next.
    next_part: usize,
    /// The part that requested the maintenance step in progress.
    requested_by: Option<usize>,
    rate: Rate,
    expiring: Expiring,
    compacting: Compacting,
    reclaiming: Reclaiming,
    checkpointing: Checkpointing,
    idle: Idle,
    high_water_update: HighWaterUpdate,
    page_failures: FailureReports,
    mapping_ahead: MappingAhead,
}

impl Maintenance {
    /// Creates the maintenance of a store that recovery has opened.
    pub fn new(tools: Tools, checkpoint: Option<UsedCheckpoint>) -> Maintenance {
        let root = tools.hub.root();
        let covered = checkpoint.as_ref().map_or(Revision::ZERO, |used| used.revision);
        tools.requests.progress.send_replace(Progress {
            compacted: root.oldest,
            checkpoint: covered,
            rests: 0,
        });
        Maintenance {
            next_part: 0,
            requested_by: None,
            rate: Rate::default(),
            expiring: Expiring::default(),
            compacting: Compacting::new(root.oldest),
            reclaiming: Reclaiming::default(),
            checkpointing: Checkpointing::new(&root, checkpoint),
            idle: Idle::new(
                root.segments.in_order().last().map_or(Revision::ZERO, |last| last.note().synced),
            ),
            high_water_update: HighWaterUpdate::default(),
            page_failures: FailureReports::default(),
            mapping_ahead: MappingAhead::new(
                root.segments.all().last().map_or(SegmentNumber::NONE, |last| last.header.number),
            ),
            tools,
        }
    }

    /// Works until it is stopped.
    pub fn run(mut self) {
        let requests = self.tools.requests.clone();
        loop {
            let nap = match self.turn() {
                Turn::Worked => Duration::ZERO,
                Turn::Waiting => {
                    self.tools.queue.wait_for_step(STEP_PATIENCE);
                    Duration::ZERO
                }
                Turn::Idle(nap) => nap,
            };
            if !requests.sleep(nap) {
                return;
            }
        }
    }

    /// Makes maintenance behave as described at [`Rate::assume_many_writers`].
    #[cfg(feature = "fault")]
    pub fn assume_many_writers(&mut self) {
        self.rate.assume_many_writers();
    }

    /// Does one piece of work.
    pub fn turn(&mut self) -> Turn {
        if self.tools.queue.is_closed() {
            // The last requested step may never be carried out, so waiting for it could take forever.
            return Turn::Idle(NAP_MAX);
        }
        let failed = matches!(*self.tools.status.refusal.lock(), Some(Refusal::LogFailed { .. }));
        if failed {
            return Turn::Idle(NAP_MAX);
        }
        let now_ms = self.tools.clock.now_ms();
        let mut nap = NAP_MAX;
        self.measure_rate(now_ms);
        if !self.rate.has_many_writers() && !self.tools.queue.is_free() {
            return Turn::Waiting;
        }
        if self.tools.queue.is_free()
            && let Some(requested_by) = self.requested_by.take()
        {
            // The other parts get their turns before this part can request another step.
            self.next_part = (requested_by + 1) % PARTS.len();
        }
        let mut waiting = false;
        // Requests made from here on may concern a part that has already had its turn.
        let rests = self.tools.requests.rests();
        for _ in PARTS {
            // Each turn begins with the part after the last one, so no part can prevent the work of the
            // others.
            let part = self.next_part;
            self.next_part = (part + 1) % PARTS.len();
            let was_free = self.tools.queue.is_free();
            let turn = PARTS[part](self, now_ms);
            if was_free && !self.tools.queue.is_free() {
                self.requested_by = Some(part);
            }
            match turn {
                Turn::Worked => return Turn::Worked,
                Turn::Waiting if self.rate.has_many_writers() => waiting = true,
                Turn::Waiting => return Turn::Waiting,
                Turn::Idle(until) => nap = nap.min(until),
            }
        }
        if waiting {
            return Turn::Waiting;
        }
        if self.is_at_rest(now_ms) {
            self.tools.requests.update_progress(|progress| progress.rests = rests);
        }
        Turn::Idle(nap)
    }

    /// Returns whether there is no work until more time has passed.
    fn is_at_rest(&self, now_ms: u64) -> bool {
        self.expiring.is_at_rest()
            && self.reclaiming.is_at_rest(now_ms)
            && self.checkpointing.is_at_rest(now_ms)
    }

    fn expire(&mut self, _: u64) -> Turn {
        self.expiring.turn(&self.tools, self.tools.time_of_day.now_ms())
    }

    fn compact(&mut self, now_ms: u64) -> Turn {
        self.compacting.turn(&self.tools, &self.rate, now_ms)
    }

    fn reclaim(&mut self, now_ms: u64) -> Turn {
        let turn = self.reclaiming.turn(&self.tools, &mut self.rate, now_ms);
        self.checkpointing.retire(self.reclaiming.take_retired());
        turn
    }

    fn checkpoint(&mut self, now_ms: u64) -> Turn {
        self.checkpointing.turn(&self.tools, &self.reclaiming, &mut self.rate, now_ms)
    }

    fn measure_rate(&mut self, now_ms: u64) {
        let status = &self.tools.status;
        let committed = CommitTally {
            bytes: status.committed_bytes.load(Ordering::Relaxed),
            commits: status.commits.load(Ordering::Relaxed),
            batches: status.batches.load(Ordering::Relaxed),
        };
        self.rate.measure(&self.tools.hub.root(), committed, now_ms);
    }

    fn report_failures(&mut self, now_ms: u64) -> Turn {
        self.page_failures.turn(&self.tools, now_ms)
    }

    fn map_ahead(&mut self, _now_ms: u64) -> Turn {
        self.mapping_ahead.turn(&self.tools)
    }

    fn note_durable(&mut self, now_ms: u64) -> Turn {
        self.high_water_update.turn(&self.tools, now_ms)
    }

    /// Writes a note into the log of an idle store, which says that the whole log is durable.
    fn note_idle(&mut self, now_ms: u64) -> Turn {
        let root = self.tools.hub.root();
        if let NoteDue::In(wait) = self.idle.check(root.revision, now_ms) {
            return Turn::Idle(wait);
        }
        let noted = root.segments.in_order().last().is_none_or(|segment| {
            let status = &self.tools.status;
            let is_synced = status.synced() >= root.revision;
            let note = || {
                let written = segment.write_note(root.revision, root.oldest);
                written.inspect_err(|error| {
                    tracing::warn!("cannot record in the log that it is complete: {error}")
                })
            };
            // The revision must be durable before the note is written. With relaxed durability, this may need
            // a sync.
            (is_synced || status.sync(segment, root.revision).is_ok())
                && note().is_ok()
                && status.sync(segment, root.revision).is_ok()
        });
        if noted {
            self.idle.mark_noted()
        } else {
            self.idle.mark_failed(now_ms)
        }
        Turn::Worked
    }
}
