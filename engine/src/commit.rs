//! Group commit: many writers, one sync.
//! `callers → queue → batch → check, stamp, encode → write → sync → publish root → answer`
//!
//! Revisions are assigned here and nowhere else, in queue order. A caller hears "ok" only after its batch is
//! published, and a batch is published only after it is synced (or, with relaxed durability, handed to the
//! operating system). Even a refusal by conflict waits for that: it may rest on a write of the same batch.
//! What arrives while a sync runs forms the next batch.
//!
//! After a failed sync the log refuses every later write: the kernel may have dropped the dirty pages, so a
//! retry proves nothing. A full disk is met before a batch touches the log, refuses that batch, and is tried
//! again from time to time.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::chores::{self, Chore};
use crate::error::{CommitError, ReadError, Refusal};
use crate::history::{Place, Version};
use crate::index::Tree;
use crate::io::is_disk_full;
use crate::log::{Keeper, Log};
use crate::queue::{Proposal, Queue};
use crate::record::{self, Draft, EventKind, Head};
use crate::sabotage;
use crate::segment::Segment;
use crate::snapshot::{Entry, Root};
use crate::time::{Times, expiry_s};
use crate::types::{Change, Committed, Durability, Expected, Payload};
use crate::watch::{Event, Hub, Memo};

/// A batch that has grown to this size is written. A larger one would gain nothing: at 4 MiB the sync is a
/// small part of the time.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How often room is looked for on a full disk.
const DISK_FULL_RETRY: Duration = Duration::from_secs(1);
/// How much room a disk that was full must have before writes are invited again.
const ROOM_TRIED: usize = 32 * 1024;

/// What others may know about the sequencer's state.
#[derive(Default)]
pub(crate) struct Vitals {
    pub synced: AtomicU64,
    pub batches: AtomicU64,
    pub commits: AtomicU64,
    /// Bytes of their records.
    pub committed_bytes: AtomicU64,
    /// Keys deleted because their time was over.
    pub expired: AtomicU64,
    /// Time of the newest record, in milliseconds since 1970.
    pub time_ms: AtomicU64,
    /// The checkpoint that opening would begin with, if it is sound; 0: none.
    pub checkpoint: AtomicU64,
    /// Bytes that reclaim has written since the store was opened.
    pub rewritten_bytes: AtomicU64,
    /// Whether every write will be refused until the store is opened again.
    has_failed: AtomicBool,
    /// Why writes are refused at present.
    pub refusal: Mutex<Option<Refusal>>,
    /// Held during a sync of the log, before the lock of `refusal`.
    syncing: Mutex<()>,
}

impl Vitals {
    /// Notes that writes are refused. What is permanent stays.
    fn refuse(&self, refusal: Refusal) {
        let mut current = self.refusal.lock();
        if matches!(&*current, Some(Refusal::LogFailed { .. })) || current.as_ref() == Some(&refusal) {
            return;
        }
        match &refusal {
            Refusal::DiskFull => tracing::warn!("writes are refused: {refusal}"),
            Refusal::LogFailed { .. } => {
                tracing::error!("writes are refused: {refusal}");
                self.has_failed.store(true, Ordering::Release);
            }
        }
        *current = Some(refusal);
    }

    /// Syncs `segment`, after which everything up to `revision` is on disk. One at a time, and none after one that
    /// failed: a failure is reported once, to one of those who sync, and the others hear of success.
    pub fn sync(&self, segment: &Segment, revision: u64) -> Result<(), Refusal> {
        let _alone = self.syncing.lock();
        if let Some(refusal) = self.failed() {
            return Err(refusal);
        }
        let synced = segment.file.sync_data().map_err(|error| log_failed("sync", &error));
        match &synced {
            Ok(()) => {
                self.synced.fetch_max(revision, Ordering::AcqRel);
            }
            Err(refusal) => self.refuse(refusal.clone()),
        }
        synced
    }

    /// Why every write will be refused until the store is opened again.
    fn failed(&self) -> Option<Refusal> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        let refusal = self.refusal.lock().clone();
        refusal.filter(|refusal| {
            matches!(refusal, Refusal::LogFailed { .. }) && !sabotage::writes_after_failed_sync()
        })
    }

    /// Hears that the sequencer ended in the middle of its work.
    pub fn gave_up(&self) {
        self.refuse(Refusal::LogFailed { operation: "sequencing", reason: "internal error".into() });
    }

    fn disk_is_full(&self) -> bool {
        matches!(&*self.refusal.lock(), Some(Refusal::DiskFull))
    }

    fn room_again(&self) {
        let mut current = self.refusal.lock();
        if matches!(&*current, Some(Refusal::DiskFull)) {
            tracing::info!("there is room on the store's disk again; writes resume");
            *current = None;
        }
    }
}

fn log_failed(operation: &'static str, error: &io::Error) -> Refusal {
    Refusal::LogFailed { operation, reason: error.to_string() }
}

fn refusal(operation: &'static str, error: &io::Error) -> Refusal {
    if is_disk_full(error) { Refusal::DiskFull } else { log_failed(operation, error) }
}

/// The one writer. Lives on its own thread.
pub(crate) struct Sequencer {
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub vitals: Arc<Vitals>,
    pub keeper: Arc<Keeper>,
    pub log: Log,
    pub durability: Durability,
    times: Times,
    /// The index including the writes of the batch in the making.
    tree: Tree,
    /// The newest revision assigned.
    revision: u64,
    /// Proposals taken from the queue; empty between turns, kept for its memory.
    batch: VecDeque<Proposal>,
    /// The encoded records of the batch in the making; they will stand at the log's position.
    buffer: Vec<u8>,
    pending: Vec<Pending>,
}

/// A proposal of the batch in the making that was decided on.
struct Pending {
    answer: oneshot::Sender<Result<Committed, CommitError>>,
    outcome: Outcome,
}

enum Outcome {
    /// It gets this place, and replaces that state.
    Write {
        key: Bytes,
        version: Version,
        previous: Option<Version>,
    },
    /// The key's state, read from the batch's tree, is not what was expected.
    Conflict {
        key: Bytes,
        current: Option<Version>,
    },
    Error(CommitError),
}

impl Sequencer {
    pub fn new(
        queue: Arc<Queue>,
        hub: Arc<Hub>,
        vitals: Arc<Vitals>,
        keeper: Arc<Keeper>,
        log: Log,
        durability: Durability,
        times: Times,
    ) -> Sequencer {
        let root = hub.root();
        let (tree, revision) = (root.tree.clone(), root.revision);
        let (batch, buffer, pending) = (VecDeque::new(), Vec::new(), Vec::new());
        Sequencer {
            queue,
            hub,
            vitals,
            keeper,
            log,
            durability,
            times,
            tree,
            revision,
            batch,
            buffer,
            pending,
        }
    }

    /// Works until the queue is closed and empty, then syncs.
    pub fn run(mut self) {
        loop {
            let patience = self.vitals.disk_is_full().then_some(DISK_FULL_RETRY);
            if !self.turn(patience) {
                break;
            }
        }
        self.finish();
    }

    /// Commits what waits, or what comes within `patience`. False once the queue is closed and empty.
    pub fn turn(&mut self, patience: Option<Duration>) -> bool {
        self.keeper.look_ahead(&self.log);
        let mut batch = std::mem::take(&mut self.batch);
        if !self.queue.take(&mut batch, patience) {
            return false;
        }
        if batch.is_empty() && self.vitals.disk_is_full() {
            self.look_for_room();
        }
        let keys = chores::part_keys(batch.len());
        let time_ms = self.times.next_ms();
        for proposal in batch.drain(..) {
            self.propose(proposal, time_ms);
        }
        self.batch = batch;
        // A refusal has been answered and noted.
        let _ = self.flush();
        if let Some(chore) = self.queue.take_chore() {
            let left = self.carry_out(chore, keys);
            self.queue.chore_done(left);
        }
        true
    }

    /// Does a part of a chore between two batches and publishes what it changed. Returns what is left of it.
    fn carry_out(&mut self, chore: Chore, keys: usize) -> Option<Chore> {
        let before = self.hub.root();
        let (left, oldest) = chores::carry_out(chore, keys, &mut self.tree, &mut self.log, before.oldest);
        self.hub.publish(self.root(oldest), &[]);
        left
    }

    /// Brings to disk what is not there yet, after the last turn, and notes that nothing is missing.
    pub fn finish(&mut self) {
        if self.vitals.failed().is_some() {
            return;
        }
        let revision = self.revision;
        if self.vitals.sync(self.log.current(), revision).is_ok() {
            let segment = self.log.current();
            let written = segment.write_note(revision, self.hub.root().oldest);
            if let Err(error) = written.and_then(|()| segment.file.sync_data()) {
                tracing::warn!("cannot note in the log that it is complete: {error}");
            }
        }
    }

    /// Decides on one proposal and encodes it into the batch, as written at `time_ms`.
    fn propose(&mut self, proposal: Proposal, time_ms: u64) {
        let Proposal { write, signature, answer } = proposal;
        if let Some(refusal) = self.vitals.failed() {
            let _ = answer.send(Err(CommitError::Refused(refusal)));
            return;
        }
        let current = self.tree.newest(&write.key).filter(|version| !version.is_delete()).copied();
        let as_expected = match write.expected {
            _ if sabotage::expectation_skipped() => true,
            Expected::Any => true,
            Expected::Absent => current.is_none(),
            Expected::Revision(revision) => current.is_some_and(|version| version.revision == revision),
        };
        let state = match (write.change, current) {
            (Change::Put(payload), _) if as_expected => Ok((EventKind::Put, State::from(payload))),
            (Change::Delete(Some(payload)), Some(_)) if as_expected => {
                Ok((EventKind::Delete, State { ttl: None, ..State::from(payload) }))
            }
            (Change::Delete(None), Some(current)) if as_expected => self
                .stored_state(&write.key, current)
                .map(|state| (EventKind::Delete, state))
                .map_err(|error| Outcome::Error(CommitError::Damaged(error))),
            // The condition does not hold, or there is nothing to delete.
            _ => Err(Outcome::Conflict { key: write.key.clone(), current }),
        };
        let (kind, state) = match state {
            Ok(state) => state,
            Err(outcome) => return self.pending.push(Pending { answer, outcome }),
        };
        let mut draft = Draft {
            revision: self.revision + 1,
            created: current.map_or(self.revision + 1, |version| version.created),
            previous: current.map_or(0, |version| version.revision),
            synced: 0,
            time_ms,
            expires_s: 0,
            kind,
            key: &write.key,
            attributes: &state.attributes,
            value: &state.value[..state.stamp.as_ref().map_or(state.value.len(), |stamp| stamp.start)],
            value_after_stamp: state.stamp.as_ref().map(|stamp| &state.value[stamp.end..]),
        };
        let len = draft.record_len();
        if let Err(refusal) = self.make_room(len) {
            let _ = answer.send(Err(CommitError::Refused(refusal)));
            return;
        }
        draft.expires_s = state.ttl.map_or(0, |ttl| expiry_s(draft.time_ms, ttl));
        draft.synced = self.vitals.synced.load(Ordering::Acquire).min(self.revision);
        let segment = self.log.current();
        let offset = self.log.position() + self.buffer.len() as u64;
        record::append(&mut self.buffer, &draft, segment.header.salt, offset);
        let deleted = kind == EventKind::Delete;
        let version = Version {
            revision: draft.revision,
            created: draft.created,
            segment: segment.header.number,
            expires_s: draft.expires_s,
            place: Place::new(offset, len, deleted),
        };
        self.revision = version.revision;
        self.tree.push(&write.key, version, signature);
        let outcome = Outcome::Write { key: write.key, version, previous: current };
        self.pending.push(Pending { answer, outcome });
    }

    /// The state of `current`, which may still be in the buffer.
    fn stored_state(&self, key: &Bytes, current: Version) -> Result<State, ReadError> {
        let root = self.hub.root();
        let (head, record) = if current.revision > root.revision {
            let start = (current.offset() - self.log.position()) as usize;
            let bytes = Bytes::copy_from_slice(&self.buffer[start..start + current.len()]);
            let head = Head::read(&bytes, self.log.current().header.salt, current.offset())
                .expect("a record just encoded reads back");
            (head, head.record(&bytes))
        } else {
            let damaged = || ReadError::Damaged { key: key.clone(), revision: current.revision };
            root.entry(key.clone(), current).ok_or_else(damaged)?.read_with_head()?
        };
        let stamp = head.stamp.map(|stamp| stamp.offset..stamp.offset + stamp.len);
        Ok(State { attributes: record.attributes, value: record.value, stamp, ttl: None })
    }

    /// Makes sure that a record of `len` bytes may follow in the buffer, writing what is in it if need be.
    fn make_room(&mut self, len: usize) -> Result<(), Refusal> {
        if !self.buffer.is_empty()
            && (self.buffer.len() + len > BATCH_BYTES_MAX || !self.log.has_room(self.buffer.len() + len))
        {
            self.flush()?;
        }
        if self.log.has_room(self.buffer.len() + len) { Ok(()) } else { self.roll(len) }
    }

    /// Goes on in a new segment; the buffer is empty.
    fn roll(&mut self, len: usize) -> Result<(), Refusal> {
        // With the old segment synced, only the last one can ever have a torn tail.
        let synced = match sabotage::roll_without_sync() {
            true => Ok(()),
            false => self.vitals.sync(self.log.current(), self.hub.revision()),
        };
        let rolled = synced.and_then(|()| {
            let rolled = self.log.roll(len, self.revision + 1, &self.keeper);
            rolled.map_err(|error| refusal("starting a segment", &error))
        });
        rolled.inspect_err(|refusal| self.vitals.refuse(refusal.clone()))
    }

    /// What is committed, as readers are to see it.
    fn root(&self, oldest: u64) -> Root {
        Root {
            revision: self.revision,
            oldest,
            tree: self.tree.clone(),
            segments: self.log.segments().clone(),
            end: self.log.position(),
        }
    }

    /// Writes the batch, publishes it and answers everybody in it.
    fn flush(&mut self) -> Result<(), Refusal> {
        let outcome = if self.buffer.is_empty() { Ok(()) } else { self.write() };
        let before = self.hub.root();
        match &outcome {
            Ok(()) if self.buffer.is_empty() => self.answer(&before, Vec::new()),
            Ok(()) => {
                let root = self.root(before.oldest);
                let events = self.events(&root);
                self.hub.publish(root, &events);
                self.vitals.time_ms.store(self.times.last_ms(), Ordering::Release);
                self.vitals.batches.fetch_add(1, Ordering::Relaxed);
                self.vitals.commits.fetch_add(events.len() as u64, Ordering::Relaxed);
                self.vitals.committed_bytes.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
                self.vitals.room_again();
                self.answer(&before, events);
            }
            Err(refusal) => {
                self.vitals.refuse(refusal.clone());
                self.tree = before.tree.clone();
                self.revision = before.revision;
                for Pending { answer, .. } in self.pending.drain(..) {
                    let _ = answer.send(Err(CommitError::Refused(refusal.clone())));
                }
            }
        }
        self.buffer.clear();
        // One huge batch must not keep its memory for good.
        self.buffer.shrink_to(BATCH_BYTES_MAX);
        outcome
    }

    /// Brings the buffer to disk, or to the operating system with relaxed durability.
    fn write(&mut self) -> Result<(), Refusal> {
        let len = self.buffer.len();
        self.log.allocate(len as u64).map_err(|error| refusal("write", &error))?;
        if let Err(error) = self.log.write(&self.buffer) {
            // Only a file system that copies on write can be full here. Nobody may ever see a refused write,
            // so whatever part of it was written has to be gone before the refusal is told.
            if is_disk_full(&error) && (sabotage::refused_write_left() || self.log.erase(len).is_ok()) {
                return Err(Refusal::DiskFull);
            }
            return Err(log_failed("write", &error));
        }
        match self.durability {
            Durability::Sync if sabotage::ack_before_sync() => {}
            Durability::Sync => {
                self.vitals.sync(self.log.current(), self.revision)?;
            }
            Durability::Relaxed => self.keeper.sync_soon(self.log.current(), self.revision),
        }
        self.log.advance(len);
        Ok(())
    }

    /// The events of the batch.
    fn events(&self, root: &Root) -> Vec<Arc<Event>> {
        let segment = self.log.current();
        let mut events = Vec::with_capacity(self.pending.len());
        let mut marks = segment.marks();
        let mut len = 0;
        for pending in &self.pending {
            if let Outcome::Write { key, version, previous } = &pending.outcome {
                marks.pass(version.revision, version.offset());
                len += version.len();
                self.times.committed(version);
                events.push(Arc::new(Event {
                    revision: version.revision,
                    kind: if version.is_delete() { EventKind::Delete } else { EventKind::Put },
                    key: key.clone(),
                    entry: Entry::new(key.clone(), *version, segment.clone()),
                    previous: previous.and_then(|previous| root.entry(key.clone(), previous)),
                    memo: Memo::default(),
                    audience: AtomicU32::new(0),
                }));
            }
        }
        segment.add_live(len);
        events
    }

    /// Answers everybody in the batch; `events` are its writes.
    fn answer(&mut self, before: &Root, events: Vec<Arc<Event>>) {
        let segment = self.log.current();
        let mut events = events.into_iter();
        for Pending { answer, outcome } in self.pending.drain(..) {
            let outcome = match outcome {
                Outcome::Error(error) => Err(error),
                Outcome::Conflict { key, current } => {
                    // The state in the way may have come with this very batch.
                    let entry = |version: Version| match version.revision > before.revision {
                        true => Some(Entry::new(key, version, segment.clone())),
                        false => before.entry(key, version),
                    };
                    Err(CommitError::Conflict { current: current.and_then(entry) })
                }
                Outcome::Write { version, .. } => match events.next() {
                    Some(event) => Ok(Committed { revision: version.revision, entry: event.entry.clone() }),
                    None => unreachable!("each write has its event"),
                },
            };
            // Who does not wait for the answer any more does not get it.
            let _ = answer.send(outcome);
        }
    }

    /// Tries on a full disk whether a write would do.
    fn look_for_room(&mut self) {
        if !self.log.has_room(ROOM_TRIED) && self.roll(ROOM_TRIED).is_err() {
            return;
        }
        if self.log.allocate(ROOM_TRIED as u64).is_ok() {
            self.vitals.room_again();
        }
    }
}

/// What a put or delete stores.
struct State {
    attributes: Bytes,
    value: Bytes,
    /// The bytes of the value that the stamp replaces.
    stamp: Option<Range<usize>>,
    ttl: Option<Duration>,
}

impl From<Payload> for State {
    fn from(payload: Payload) -> State {
        let stamp = payload.stamp_at.map(|at| at as usize..at as usize);
        State { attributes: payload.attributes, value: payload.value, stamp, ttl: payload.ttl }
    }
}
