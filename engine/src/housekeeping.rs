//! What an open store does by itself: forget history, delete what has expired, give space back, write checkpoints, and
//! note when it has gone idle (`idle.rs`).
//!
//! ```text
//!             ┌─ expiry      due keys ──────────────► deletes ─► queue
//! Housekeeper ┼─ compaction  oldest, keys ──┐
//!             ├─ reclaim     moves, segments ┴────► chores ───► queue ─► sequencer
//!             └─ checkpoint  root ─► file, then superseded segments are removed
//! ```
//!
//! It works in turns, each a bounded piece: a chore asked for, a quarter of a mebibyte copied, a block written. Nothing waits for
//! it, and it waits for nothing but its chores. What fails, for lack of space mostly, is tried again after a while.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{oneshot, watch};

use crate::checkpoint::{self, Beside};
use crate::chores::{CHORE_KEYS_MAX, Chore};
use crate::commit::Vitals;
use crate::compaction;
use crate::error::{CommitError, Refusal};
use crate::expiry::{Due, Expiry};
use crate::idle::{self, Idle};
use crate::io::{Clock, Storage, is_disk_full};
use crate::log::Numbers;
use crate::queue::Queue;
use crate::reclaim::{self, Candidate, Finished, Rewrite, Step};
use crate::recovery::Used;
use crate::sabotage;
use crate::segment::{Segment, Walk};
use crate::snapshot::Root;
use crate::types::{Change, Committed, Expected, Write};
use crate::watch::Hub;

/// Longest it sleeps: expiry is told in seconds.
const NAP_MAX: Duration = Duration::from_secs(1);
/// How long it leaves alone what failed.
const RETRY: Duration = Duration::from_secs(5);
/// Deletes of expired keys that may be under way.
const DELETES_MAX: usize = 64;
/// Bytes that reclaim copies in a second when there is no hurry: little beside what a disk does, and in small
/// steps, so that commits pass in between.
const RECLAIM_BYTES_PER_SECOND: u64 = 32 * 1024 * 1024;

/// What others ask of the housekeeper, and hear from it.
pub(crate) struct Requests {
    wanted: Mutex<Wanted>,
    woken: Condvar,
    /// Raised from time to time; see [`Progress`].
    pub progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Wanted {
    /// History before this revision is to be forgotten.
    compact_to: u64,
    /// A checkpoint of at least this revision is to be written.
    checkpoint: u64,
    /// How often somebody asked to be told when there is nothing left to do.
    rests: u64,
    woken: bool,
    stop: bool,
}

/// How far the housekeeper is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    /// History before this revision is forgotten, in the index as well, and that is noted on disk.
    pub compacted: u64,
    /// Revision of the newest checkpoint.
    pub checkpoint: u64,
    /// So many that asked for it could have been told that there is nothing left to do.
    pub rests: u64,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            wanted: Mutex::default(),
            woken: Condvar::new(),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    /// Asks that history before `revision` be forgotten.
    pub fn compact(&self, revision: u64) {
        self.want(|wanted| wanted.compact_to = wanted.compact_to.max(revision));
    }

    /// Asks for a checkpoint of at least `revision`.
    pub fn checkpoint(&self, revision: u64) {
        self.want(|wanted| wanted.checkpoint = wanted.checkpoint.max(revision));
    }

    /// Asks to be told when there is nothing left to do; returns which rest to wait for.
    pub fn rest(&self) -> u64 {
        self.want(|wanted| wanted.rests += 1);
        self.wanted.lock().rests
    }

    /// Ends [`Housekeeper::run`].
    pub fn stop(&self) {
        self.want(|wanted| wanted.stop = true);
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.lock();
        change(&mut wanted);
        wanted.woken = true;
        self.woken.notify_one();
    }

    /// Sleeps until somebody wants something, for at most `nap`. False when it is to stop.
    fn sleep(&self, nap: Duration) -> bool {
        let mut wanted = self.wanted.lock();
        if !wanted.woken && !wanted.stop {
            self.woken.wait_for(&mut wanted, nap);
        }
        wanted.woken = false;
        !wanted.stop
    }
}

/// The parts of the work, each given the time in milliseconds since 1970.
const PARTS: [fn(&mut Housekeeper, u64) -> Turn; 5] = [
    Housekeeper::expire,
    Housekeeper::compact,
    Housekeeper::reclaim,
    Housekeeper::checkpoint,
    Housekeeper::note_idle,
];

/// What a turn came to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// Something was done; there may be more.
    Worked,
    /// A chore has to be done first.
    Waiting,
    /// There is nothing to do for so long.
    Idle(Duration),
}

/// What the housekeeper works with.
pub(crate) struct Tools {
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub vitals: Arc<Vitals>,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    pub numbers: Arc<Numbers>,
    pub expiry: Arc<Expiry>,
    pub requests: Arc<Requests>,
    pub retention: Duration,
    pub segment_bytes: u64,
    pub lost_revisions: u64,
}

/// See the module.
pub(crate) struct Housekeeper {
    tools: Tools,
    /// Which part of the work is looked at next.
    next_part: usize,
    /// Deletes of expired keys under way.
    deletes: Vec<(Due, oneshot::Receiver<Result<Committed, CommitError>>)>,
    /// When history is looked at next, in milliseconds since 1970.
    compact_at_ms: u64,
    /// Keys with records up to here are pruned.
    pruned: u64,
    /// The oldest readable revision that is noted on disk.
    noted: u64,
    reclaim: Reclaim,
    /// Segments that damage keeps from being written anew.
    stuck: Vec<u32>,
    /// When reclaim goes on.
    reclaim_at_ms: u64,
    writer: Option<checkpoint::Writer>,
    /// When a checkpoint is tried again.
    checkpoint_at_ms: u64,
    newest: Option<Used>,
    /// Bytes of the log when the newest checkpoint was begun.
    log_bytes_then: u64,
    /// Checkpoints begun so far.
    begun: u64,
    /// Segments that the log does without, and how many checkpoints were begun before.
    retired: Vec<(Arc<Segment>, u64)>,
    /// Those of them that no checkpoint needs. One is removed in a turn: what the file system has to do for many at once
    /// would hold up the syncs of the log.
    superseded: Vec<Arc<Segment>>,
    idle: Idle,
}

enum Reclaim {
    Resting,
    Copying(Rewrite),
    /// The segment is adopted, the index is being told.
    Telling {
        finished: Finished,
        walk: Option<Walk>,
    },
    /// All moves are told and the chore that makes it count is asked for.
    Replacing(Finished),
}

impl Housekeeper {
    /// Goes on from what recovery found.
    pub fn new(tools: Tools, checkpoint: Option<Used>) -> Housekeeper {
        let root = tools.hub.root();
        let log_bytes_then = match &checkpoint {
            Some(used) => bytes_before(&root, used.revision),
            None => 0,
        };
        let progress = Progress {
            compacted: root.oldest,
            checkpoint: checkpoint.as_ref().map_or(0, |c| c.revision),
            rests: 0,
        };
        tools.requests.progress.send_replace(progress);
        tools.vitals.checkpoint.store(progress.checkpoint, Ordering::Relaxed);
        Housekeeper {
            next_part: 0,
            deletes: Vec::new(),
            compact_at_ms: 0,
            pruned: root.oldest,
            noted: root.oldest,
            reclaim: Reclaim::Resting,
            stuck: Vec::new(),
            reclaim_at_ms: 0,
            writer: None,
            checkpoint_at_ms: 0,
            newest: checkpoint,
            log_bytes_then,
            begun: 0,
            retired: Vec::new(),
            superseded: Vec::new(),
            idle: Idle::new(root.segments.in_order().last().map_or(0, |last| last.note().synced)),
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
                    self.tools.queue.wait_for_chore();
                    Duration::ZERO
                }
                Turn::Idle(nap) => nap,
            };
            if !requests.sleep(nap) {
                return;
            }
        }
    }

    /// Does one piece of work.
    pub fn turn(&mut self) -> Turn {
        if self.tools.queue.has_chore() {
            return Turn::Waiting;
        }
        let failed = matches!(*self.tools.vitals.refusal.lock(), Some(Refusal::LogFailed { .. }));
        if failed {
            return Turn::Idle(NAP_MAX);
        }
        let now_ms = self.tools.clock.now_ms();
        let mut nap = NAP_MAX;
        // Who asks from here on may have something that is not looked at any more in this turn.
        let rests = self.tools.requests.wanted.lock().rests;
        for _ in PARTS {
            // Each begins where the last one ended: none keeps the others from their work.
            let part = PARTS[self.next_part];
            self.next_part = (self.next_part + 1) % PARTS.len();
            match part(self, now_ms) {
                Turn::Idle(until) => nap = nap.min(until),
                worked => return worked,
            }
        }
        if self.is_at_rest(now_ms) {
            self.tell(|progress| progress.rests = rests);
        }
        Turn::Idle(nap)
    }

    /// Whether nothing is left to do but what time brings.
    fn is_at_rest(&self, now_ms: u64) -> bool {
        let pausing = now_ms < self.reclaim_at_ms || now_ms < self.checkpoint_at_ms;
        let working = !matches!(self.reclaim, Reclaim::Resting) || self.writer.is_some();
        !pausing && !working && self.deletes.is_empty()
    }

    fn tell(&self, change: impl FnOnce(&mut Progress)) {
        self.tools.requests.progress.send_if_modified(|progress| {
            let before = *progress;
            change(progress);
            *progress != before
        });
    }

    /// Deletes keys whose time is over, through the sequencer like everybody else.
    fn expire(&mut self, now_ms: u64) -> Turn {
        let mut again = Vec::new();
        let mut worked = false;
        let vitals = &self.tools.vitals;
        self.deletes.retain_mut(|(due, outcome)| match outcome.try_recv() {
            Err(TryRecvError::Empty) => true,
            Ok(Ok(_)) => {
                vitals.expired.fetch_add(1, Ordering::Relaxed);
                worked = true;
                false
            }
            Ok(Err(CommitError::Refused(_))) => {
                again.push(*due);
                false
            }
            Ok(Err(CommitError::Damaged(error))) => {
                tracing::error!("cannot delete an expired key: {error}");
                false
            }
            // It was written or deleted meanwhile, or the store is closed.
            Ok(Err(_)) | Err(TryRecvError::Closed) => false,
        });
        let retry_s = u32::try_from(now_ms / 1_000 + RETRY.as_secs()).unwrap_or(u32::MAX);
        again.into_iter().for_each(|due| self.tools.expiry.add(Due { at_s: retry_s, ..due }));

        let now_s = u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX);
        let due = self.tools.expiry.take_due(now_s, DELETES_MAX - self.deletes.len());
        let root = self.tools.hub.root();
        for due in due {
            worked = true;
            let Some(key) = key_of(&root, due.revision) else { continue };
            let write =
                Write { key, expected: Expected::Revision(due.revision), change: Change::Delete(None) };
            match self.tools.queue.try_submit(write) {
                Some(outcome) => self.deletes.push((due, outcome)),
                None => self.tools.expiry.add(Due { at_s: retry_s, ..due }),
            }
        }
        match (worked, self.deletes.is_empty()) {
            (true, _) => Turn::Worked,
            // Their answers come when the sequencer has had its turn.
            (false, false) => Turn::Idle(Duration::from_millis(5)),
            (false, true) => Turn::Idle(NAP_MAX),
        }
    }

    /// Raises the oldest readable revision, then has the index forget what lies before it.
    fn compact(&mut self, now_ms: u64) -> Turn {
        let root = self.tools.hub.root();
        if self.pruned < root.oldest {
            let (keys, next) = compaction::touched(&root, self.pruned, CHORE_KEYS_MAX);
            self.pruned = next.unwrap_or(root.oldest);
            self.tools.queue.ask(Chore::Prune(keys));
            return Turn::Waiting;
        }
        if self.noted < root.oldest && now_ms >= self.compact_at_ms {
            let noted = root.segments.in_order().last().is_none_or(|segment| {
                let written = segment.write_note(0, root.oldest).inspect_err(|error| {
                    tracing::warn!("cannot note that history was forgotten: {error}");
                });
                let synced = self.tools.vitals.synced.load(Ordering::Acquire);
                // A sync that fails is told there, and nothing is written any more.
                written.is_ok() && self.tools.vitals.sync(segment, synced).is_ok()
            });
            if !noted {
                self.compact_at_ms = now_ms + RETRY.as_millis() as u64;
                return Turn::Idle(RETRY.min(NAP_MAX));
            }
            self.noted = root.oldest;
            self.tell(|progress| progress.compacted = root.oldest);
            return Turn::Worked;
        }
        let synced = self.tools.vitals.synced.load(Ordering::Acquire);
        let asked = self.tools.requests.wanted.lock().compact_to.min(synced).min(root.revision);
        let mut target = root.oldest.max(asked);
        if now_ms >= self.compact_at_ms
            && let Some(interval) = compaction::interval(self.tools.retention)
        {
            self.compact_at_ms = now_ms + interval.as_millis() as u64;
            target = target.max(compaction::target(&root, self.tools.retention, now_ms, synced));
        }
        if target > root.oldest {
            self.tools.queue.ask(Chore::Forget(target));
            return Turn::Waiting;
        }
        Turn::Idle(Duration::from_millis(self.compact_at_ms.saturating_sub(now_ms).max(1)).min(NAP_MAX))
    }

    /// Writes segments anew that are mostly dead.
    fn reclaim(&mut self, now_ms: u64) -> Turn {
        if now_ms < self.reclaim_at_ms {
            return Turn::Idle(Duration::from_millis(self.reclaim_at_ms - now_ms));
        }
        match std::mem::replace(&mut self.reclaim, Reclaim::Resting) {
            Reclaim::Resting => self.begin_rewrite(now_ms),
            Reclaim::Copying(rewrite) => self.copy(rewrite, now_ms),
            Reclaim::Telling { mut finished, walk } => {
                if !finished.unneeded.is_empty() {
                    let rest = finished.unneeded.split_off(finished.unneeded.len().min(CHORE_KEYS_MAX));
                    let keys = std::mem::replace(&mut finished.unneeded, rest);
                    self.tools.queue.ask(Chore::PruneFully(keys));
                    self.reclaim = Reclaim::Telling { finished, walk };
                    return Turn::Waiting;
                }
                let mut walk = match walk.map_or_else(|| finished.walk(), Ok) {
                    Ok(walk) => walk,
                    Err(error) => return self.give_up_reclaim(&error, now_ms),
                };
                let moves = finished.moves(&mut walk, CHORE_KEYS_MAX);
                if moves.is_empty() {
                    self.tools.queue.ask(Chore::Replace(finished.segment.clone()));
                    self.reclaim = Reclaim::Replacing(finished);
                } else {
                    self.tools.queue.ask(Chore::Move(moves));
                    self.reclaim = Reclaim::Telling { finished, walk: Some(walk) };
                }
                Turn::Waiting
            }
            Reclaim::Replacing(finished) => {
                let root = self.tools.hub.root();
                let number = finished.segment.header.number;
                if root.segments.in_order().iter().any(|segment| segment.header.number == number) {
                    let retired = finished.sources.into_iter().map(|source| (source, self.begun));
                    self.retired.extend(retired);
                    if sabotage::retired_before_checkpoint() {
                        self.remove_retired(u64::MAX);
                    }
                } else {
                    debug_assert!(false, "the index refers to a segment that was written anew");
                    tracing::error!(number, "the index refers to a segment that was written anew; it stays");
                    self.stuck.extend(finished.sources.iter().map(|source| source.header.number));
                }
                Turn::Worked
            }
        }
    }

    fn begin_rewrite(&mut self, now_ms: u64) -> Turn {
        let root = self.tools.hub.root();
        if self.pruned < root.oldest {
            return Turn::Idle(NAP_MAX);
        }
        let candidates = candidates(&root, &self.stuck);
        let Some(range) = reclaim::choose(&candidates, self.tools.segment_bytes) else {
            return Turn::Idle(NAP_MAX);
        };
        match Rewrite::begin(&*self.tools.storage, root, range) {
            Ok(rewrite) => {
                self.reclaim = Reclaim::Copying(rewrite);
                Turn::Worked
            }
            Err(error) => self.give_up_reclaim(&error, now_ms),
        }
    }

    fn copy(&mut self, mut rewrite: Rewrite, now_ms: u64) -> Turn {
        let before = rewrite.written();
        let step = rewrite.step();
        let written = rewrite.written() - before;
        self.tools.vitals.rewritten_bytes.fetch_add(written, Ordering::Relaxed);
        self.reclaim_at_ms = now_ms + written * 1_000 / self.rate();
        match step {
            Ok(Step::More) => {
                self.reclaim = Reclaim::Copying(rewrite);
                Turn::Worked
            }
            Ok(Step::Complete) => match rewrite.finish(&*self.tools.storage, &self.tools.numbers) {
                Ok(finished) => {
                    self.tools.queue.ask(Chore::Adopt(finished.segment.clone()));
                    self.reclaim = Reclaim::Telling { finished, walk: None };
                    Turn::Waiting
                }
                Err(error) => self.give_up_reclaim(&error, now_ms),
            },
            Ok(Step::Damaged) => {
                self.stuck.extend(rewrite.source_numbers());
                let damaged = io::Error::other("a segment is damaged and stays as it is");
                self.give_up_reclaim(&damaged, now_ms)
            }
            Err(error) => self.give_up_reclaim(&error, now_ms),
        }
    }

    /// Bytes to be copied in a second: as many as it takes not to fall behind.
    fn rate(&self) -> u64 {
        let root = self.tools.hub.root();
        let bytes: u64 = root.segments.in_order().iter().map(|segment| segment.record_bytes()).sum();
        let live: u64 = root.segments.all().iter().map(|segment| segment.live()).sum();
        rate(bytes, live)
    }

    fn give_up_reclaim(&mut self, error: &io::Error, now_ms: u64) -> Turn {
        tracing::warn!("cannot give space back at present: {error}");
        // Opening would remove it as well.
        let _ = self.tools.storage.remove(reclaim::NEXT_NAME);
        self.reclaim = Reclaim::Resting;
        self.reclaim_at_ms = now_ms + RETRY.as_millis() as u64;
        Turn::Worked
    }

    /// Writes a checkpoint when enough has changed, and removes what it makes superfluous.
    fn checkpoint(&mut self, now_ms: u64) -> Turn {
        if now_ms < self.checkpoint_at_ms {
            return Turn::Idle(Duration::from_millis(self.checkpoint_at_ms - now_ms));
        }
        if let Some(segment) = self.superseded.pop() {
            self.remove(&Segment::name(segment.header.number));
            return Turn::Worked;
        }
        let outcome = match self.writer.take() {
            None => self.begin_checkpoint(),
            Some(mut writer) => match writer.step() {
                Ok(true) => {
                    self.writer = Some(writer);
                    Ok(Turn::Worked)
                }
                Ok(false) => self.finish_checkpoint(writer),
                Err(error) => Err(error),
            },
        };
        outcome.unwrap_or_else(|error| {
            self.checkpoint_at_ms = now_ms + RETRY.as_millis() as u64;
            self.log_bytes_then = 0;
            tracing::warn!("cannot write a checkpoint at present: {error}");
            let _ = self.tools.storage.remove(checkpoint::NEXT_NAME);
            if is_disk_full(&error) && !self.retired.is_empty() {
                // Space before speed: the log is complete without any checkpoint.
                self.remove_checkpoints(None);
                self.remove_retired(u64::MAX);
            }
            Turn::Worked
        })
    }

    fn begin_checkpoint(&mut self) -> io::Result<Turn> {
        let root = self.tools.hub.root();
        // While records move, the index refers to a segment that is no part of the log yet.
        let moving = matches!(self.reclaim, Reclaim::Telling { .. } | Reclaim::Replacing(_));
        let asked = self.tools.requests.wanted.lock().checkpoint;
        let newest = self.newest.as_ref();
        let due = CheckpointDue {
            asked: asked.min(root.revision) > newest.map_or(0, |newest| newest.revision),
            log_bytes: bytes_before(&root, root.revision).saturating_sub(self.log_bytes_then),
            image_bytes: newest.map_or(0, |newest| newest.bytes),
            retired_bytes: self.retired.iter().map(|(segment, _)| segment.record_bytes()).sum(),
            live_bytes: root.segments.all().iter().map(|segment| segment.live()).sum(),
            reclaiming: !matches!(self.reclaim, Reclaim::Resting),
        };
        if moving || !due.is_due(self.tools.segment_bytes) {
            return Ok(Turn::Idle(NAP_MAX));
        }
        let beside = Beside {
            time_ms: self.tools.vitals.time_ms.load(Ordering::Acquire),
            lost_revisions: self.tools.lost_revisions,
            numbers_given: self.tools.numbers.given(),
        };
        self.begun += 1;
        self.log_bytes_then = bytes_before(&root, root.revision);
        self.writer = Some(checkpoint::Writer::begin(&*self.tools.storage, root, beside)?);
        Ok(Turn::Worked)
    }

    fn finish_checkpoint(&mut self, writer: checkpoint::Writer) -> io::Result<Turn> {
        let root = writer.root().clone();
        let vitals = &self.tools.vitals;
        if vitals.synced.load(Ordering::Acquire) < root.revision && !sabotage::checkpoint_of_unsynced() {
            // It must not speak of what is not on disk. Earlier segments were synced when they were left.
            let last = root.segments.in_order().last();
            let synced = last.map_or(Ok(()), |last| vitals.sync(last, root.revision));
            synced.map_err(io::Error::other)?;
        }
        let bytes = writer.end();
        let name = writer.finish(&*self.tools.storage)?;
        self.newest = Some(Used { revision: root.revision, bytes });
        vitals.checkpoint.store(root.revision, Ordering::Relaxed);
        self.remove_checkpoints(Some(&name));
        self.remove_retired(self.begun);
        self.tell(|progress| progress.checkpoint = root.revision);
        Ok(Turn::Worked)
    }

    /// Notes in the log of a store that has gone idle that all of it is on disk.
    fn note_idle(&mut self, now_ms: u64) -> Turn {
        let root = self.tools.hub.root();
        match self.idle.look(root.revision, now_ms) {
            idle::Due::In(wait) => return Turn::Idle(wait),
            idle::Due::Now => {}
        }
        let noted = root.segments.in_order().last().is_none_or(|segment| {
            let vitals = &self.tools.vitals;
            let note = || {
                let written = segment.write_note(root.revision, root.oldest);
                written.inspect_err(|error| tracing::warn!("cannot note that the log is complete: {error}"))
            };
            // On disk before it is said to be: with relaxed durability it may not be yet.
            (vitals.synced.load(Ordering::Acquire) >= root.revision
                || vitals.sync(segment, root.revision).is_ok())
                && note().is_ok()
                && vitals.sync(segment, root.revision).is_ok()
        });
        if noted {
            self.idle.noted()
        } else {
            self.idle.failed(now_ms)
        }
        Turn::Worked
    }

    /// Removes all checkpoints but `kept`.
    fn remove_checkpoints(&mut self, kept: Option<&str>) {
        let Ok(names) = self.tools.storage.list() else { return };
        for name in names.iter().filter(|name| checkpoint::revision(name).is_some()) {
            if kept != Some(name) {
                self.remove(name);
            }
        }
        if kept.is_none() {
            self.newest = None;
            self.tools.vitals.checkpoint.store(0, Ordering::Relaxed);
            // Their names must be gone before the segments are that they speak of.
            let _ = self.tools.storage.sync_dir();
        }
    }

    /// Has segments removed that were retired before checkpoint number `begun` was begun.
    fn remove_retired(&mut self, begun: u64) {
        let (gone, kept): (Vec<_>, _) =
            std::mem::take(&mut self.retired).into_iter().partition(|&(_, at)| at < begun);
        self.retired = kept;
        self.superseded.extend(gone.into_iter().map(|(segment, _)| segment));
    }

    fn remove(&self, name: &str) {
        if let Err(error) = self.tools.storage.remove(name) {
            tracing::warn!(name, "cannot remove a superseded file: {error}");
        }
    }
}

/// What says whether a checkpoint is due.
struct CheckpointDue {
    /// Somebody asked for it.
    asked: bool,
    /// Bytes of the log that opening would have to read.
    log_bytes: u64,
    /// Bytes of the newest checkpoint.
    image_bytes: u64,
    /// Bytes of segments that wait for the next checkpoint to be removed.
    retired_bytes: u64,
    /// Bytes that the index refers to.
    live_bytes: u64,
    /// More may be retired soon.
    reclaiming: bool,
}

impl CheckpointDue {
    /// After as much log as a segment holds or, when the image is larger than that, as the image: it is written no
    /// more often than the log is. And when a tenth of what is live waits to be removed, or all that will.
    fn is_due(&self, segment_bytes: u64) -> bool {
        let much_log = self.log_bytes >= segment_bytes.max(self.image_bytes);
        let much_retired = self.retired_bytes > self.live_bytes / 10 && self.retired_bytes >= segment_bytes;
        let all_retired = self.retired_bytes > 0 && !self.reclaiming;
        self.asked || much_log || much_retired || all_retired
    }
}

/// Bytes that reclaim may copy in a second, when the log has `bytes` bytes of records and `live` of them are live:
/// more the more is dead.
fn rate(bytes: u64, live: u64) -> u64 {
    // In quarters of what is live.
    match bytes.saturating_mul(4) / live.max(1) {
        0..5 => RECLAIM_BYTES_PER_SECOND,
        5 => 2 * RECLAIM_BYTES_PER_SECOND,
        6 => 8 * RECLAIM_BYTES_PER_SECOND,
        _ => u64::MAX / 1_000,
    }
}

/// Bytes of records up to `revision`, about.
fn bytes_before(root: &Root, revision: u64) -> u64 {
    let older = root.segments.in_order().iter().filter(|segment| segment.header.first_revision <= revision);
    let whole: u64 = older.map(|segment| segment.record_bytes()).sum();
    let last = root.segments.starting_at(revision).first();
    let behind = last.filter(|_| revision < root.revision).map_or(0, |segment| {
        let marks = segment.marks_until(revision);
        segment.end() - marks.last().map_or(crate::header::RECORDS_START, |mark| mark.offset)
    });
    whole - behind
}

/// What each segment of the log but the last may give back.
fn candidates(root: &Root, stuck: &[u32]) -> Vec<Candidate> {
    let pairs = root.segments.in_order().windows(2);
    pairs
        .map(|pair| {
            let candidate = Candidate::of(&pair[0], pair[1].header.first_revision, root.oldest);
            let stuck = stuck.contains(&pair[0].header.number);
            Candidate { forgotten: candidate.forgotten && !stuck, ..candidate }
        })
        .collect()
}

/// The key that `revision` wrote, if its record is still there.
fn key_of(root: &Root, revision: u64) -> Option<Bytes> {
    let segment = root.segments.starting_at(revision).first()?;
    let mut walk = segment.walk_from(revision).ok()?;
    let found = std::iter::from_fn(|| walk.next()).find(|found| found.head.revision >= revision)?;
    (found.head.revision == revision).then(|| Bytes::copy_from_slice(found.head.key(&found.bytes)))
}

#[cfg(test)]
#[path = "housekeeping_test.rs"]
mod tests;
