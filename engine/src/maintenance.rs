//! Background maintenance of an open store: compaction, expiry, segment reclamation, checkpoints, idle notes (`idle.rs`)
//! and reports of unreadable disk pages.
//!
//! ```text
//!             ┌─ expiring       due keys ──────────────► deletes ─► queue
//! Maintenance ┼─ forgetting     oldest, keys ──┐
//!             ├─ reclaiming     moves, segments ┴──────► steps ───► queue ─► sequencer
//!             └─ checkpointing  root ─► file, then superseded segments are removed
//! ```
//!
//! It works in turns, each a bounded piece: a step requested, a piece copied, a block written. No caller waits for it.
//! There is one maintenance step at a time; under many concurrent writes the parts go on with their own disk work while
//! the sequencer carries it out. A part that fails, mostly for lack of space, tries again after a while.
//!
//! On a full disk the parts free space as soon as possible: history is forgotten early once keys are deleted, reclamation
//! copies into room that is kept back for it, and a checkpoint that stands in the way of a superseded segment goes.

mod checkpointing;
mod expiring;
mod failing;
mod forgetting;
mod noting;
mod rate;
mod reclaiming;
mod requests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::checkpointing::Checkpointing;
use self::expiring::Expiring;
use self::failing::Failing;
use self::forgetting::Forgetting;
use self::noting::Noting;
use self::rate::{Rate, Tally};
use self::reclaiming::Reclaiming;
pub(crate) use self::requests::{Progress, Requests};
use crate::error::Refusal;
use crate::expiry::Expiry;
use crate::high_water::HighWater;
use crate::idle::{Due, Idle};
use crate::io::{Clock, Storage};
use crate::log::Numbers;
use crate::losses::LossRegistry;
use crate::queue::Queue;
use crate::recovery::Used;
use crate::reserve::Reserve;
use crate::status::StoreStatus;
use crate::types::Revision;
use crate::watch::Hub;

/// Longest it sleeps: expiry is told in seconds.
const NAP_MAX: Duration = Duration::from_secs(1);
/// How long it waits for a maintenance step before it looks whether there is something else to do.
const STEP_PATIENCE: Duration = Duration::from_millis(1);
/// How long it leaves alone what failed.
const RETRY: Duration = Duration::from_secs(5);

/// The parts of the work, each given the time in milliseconds since 1970.
const PARTS: [fn(&mut Maintenance, u64) -> Turn; 7] = [
    Maintenance::expire,
    Maintenance::compact,
    Maintenance::reclaim,
    Maintenance::checkpoint,
    Maintenance::note_idle,
    Maintenance::note_durable,
    Maintenance::tell_of_failures,
];

/// What a turn came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Something was done; there may be more.
    Worked,
    /// There is more, but a maintenance step has to be done first: one that was just asked for, or that of another part.
    Waiting,
    /// There is nothing to do for so long.
    Idle(Duration),
}

/// What background maintenance works with.
pub(crate) struct Tools {
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub status: Arc<StoreStatus>,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    pub numbers: Arc<Numbers>,
    pub expiry: Arc<Expiry>,
    pub requests: Arc<Requests>,
    pub retention: Duration,
    pub segment_bytes: u64,
    pub lost_revisions: u64,
    pub losses: Arc<LossRegistry>,
    pub high_water: Arc<HighWater>,
    /// Of what kind the index's Bloom filters are.
    pub signed: u32,
    /// Room on a full disk.
    pub reserve: Arc<Reserve>,
}

impl Tools {
    /// Whether the room that is left on the disk is for essential writes and for reclamation.
    pub fn is_short_of_room(&self) -> bool {
        self.reserve.is_used() && (self.status.disk_is_full() || self.reserve.is_lent())
    }
}

/// See the module.
pub(crate) struct Maintenance {
    tools: Tools,
    /// Which part of the work is looked at next.
    next_part: usize,
    /// The part that asked for the maintenance step which the sequencer is at.
    asked: Option<usize>,
    rate: Rate,
    expiring: Expiring,
    forgetting: Forgetting,
    reclaiming: Reclaiming,
    checkpointing: Checkpointing,
    idle: Idle,
    noting: Noting,
    failing: Failing,
}

impl Maintenance {
    /// Goes on from what recovery found.
    pub fn new(tools: Tools, checkpoint: Option<Used>) -> Maintenance {
        let root = tools.hub.root();
        let covered = checkpoint.as_ref().map_or(Revision::ZERO, |used| used.revision);
        tools.requests.progress.send_replace(Progress {
            compacted: root.oldest,
            checkpoint: covered,
            rests: 0,
        });
        Maintenance {
            next_part: 0,
            asked: None,
            rate: Rate::default(),
            expiring: Expiring::default(),
            forgetting: Forgetting::new(root.oldest),
            reclaiming: Reclaiming::default(),
            checkpointing: Checkpointing::new(&root, checkpoint),
            idle: Idle::new(
                root.segments.in_order().last().map_or(Revision::ZERO, |last| last.note().synced),
            ),
            noting: Noting::default(),
            failing: Failing::default(),
            tools,
        }
    }

    /// Works until it is told to stop.
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

    /// See [`Rate::press`].
    #[cfg(feature = "fault")]
    pub fn press(&mut self) {
        self.rate.press();
    }

    /// Does one piece of work.
    pub fn turn(&mut self) -> Turn {
        if self.tools.queue.is_closed() {
            // What was asked for last may not have been done.
            return Turn::Idle(NAP_MAX);
        }
        let failed = matches!(*self.tools.status.refusal.lock(), Some(Refusal::LogFailed { .. }));
        if failed {
            return Turn::Idle(NAP_MAX);
        }
        let now_ms = self.tools.clock.now_ms();
        let mut nap = NAP_MAX;
        self.look_at_rate(now_ms);
        if !self.rate.is_pressed() && !self.tools.queue.is_free() {
            return Turn::Waiting;
        }
        if self.tools.queue.is_free()
            && let Some(asked) = self.asked.take()
        {
            // It is the others' turn to ask for one.
            self.next_part = (asked + 1) % PARTS.len();
        }
        let mut waiting = false;
        // Who asks from here on may have something that is not looked at any more in this turn.
        let rests = self.tools.requests.rests();
        for _ in PARTS {
            // Each begins where the last one ended: none keeps the others from their work.
            let part = self.next_part;
            self.next_part = (part + 1) % PARTS.len();
            let was_free = self.tools.queue.is_free();
            let turn = PARTS[part](self, now_ms);
            if was_free && !self.tools.queue.is_free() {
                self.asked = Some(part);
            }
            match turn {
                Turn::Worked => return Turn::Worked,
                Turn::Waiting if self.rate.is_pressed() => waiting = true,
                Turn::Waiting => return Turn::Waiting,
                Turn::Idle(until) => nap = nap.min(until),
            }
        }
        if waiting {
            return Turn::Waiting;
        }
        if self.is_at_rest(now_ms) {
            self.tools.requests.tell(|progress| progress.rests = rests);
        }
        Turn::Idle(nap)
    }

    /// Whether nothing is left to do but what time brings.
    fn is_at_rest(&self, now_ms: u64) -> bool {
        self.expiring.is_at_rest()
            && self.reclaiming.is_at_rest(now_ms)
            && self.checkpointing.is_at_rest(now_ms)
    }

    fn expire(&mut self, now_ms: u64) -> Turn {
        self.expiring.turn(&self.tools, now_ms)
    }

    fn compact(&mut self, now_ms: u64) -> Turn {
        self.forgetting.turn(&self.tools, &self.rate, now_ms)
    }

    fn reclaim(&mut self, now_ms: u64) -> Turn {
        let turn = self.reclaiming.turn(&self.tools, &mut self.rate, now_ms);
        self.checkpointing.retire(self.reclaiming.take_retired());
        turn
    }

    fn checkpoint(&mut self, now_ms: u64) -> Turn {
        self.checkpointing.turn(&self.tools, &self.reclaiming, &mut self.rate, now_ms)
    }

    fn look_at_rate(&mut self, now_ms: u64) {
        let status = &self.tools.status;
        let committed = Tally {
            bytes: status.committed_bytes.load(Ordering::Relaxed),
            commits: status.commits.load(Ordering::Relaxed),
            batches: status.batches.load(Ordering::Relaxed),
        };
        self.rate.look(&self.tools.hub.root(), committed, now_ms);
    }

    fn tell_of_failures(&mut self, now_ms: u64) -> Turn {
        self.failing.turn(&self.tools, now_ms)
    }

    fn note_durable(&mut self, now_ms: u64) -> Turn {
        self.noting.turn(&self.tools, now_ms)
    }

    /// Notes in the log of a store that has gone idle that all of it is on disk.
    fn note_idle(&mut self, now_ms: u64) -> Turn {
        let root = self.tools.hub.root();
        if let Due::In(wait) = self.idle.look(root.revision, now_ms) {
            return Turn::Idle(wait);
        }
        let noted = root.segments.in_order().last().is_none_or(|segment| {
            let status = &self.tools.status;
            let is_synced = status.synced() >= root.revision;
            let note = || {
                let written = segment.write_note(root.revision, root.oldest);
                written.inspect_err(|error| tracing::warn!("cannot note that the log is complete: {error}"))
            };
            // On disk before it is said to be: with relaxed durability it may not be yet.
            (is_synced || status.sync(segment, root.revision).is_ok())
                && note().is_ok()
                && status.sync(segment, root.revision).is_ok()
        });
        if noted {
            self.idle.noted()
        } else {
            self.idle.failed(now_ms)
        }
        Turn::Worked
    }
}
