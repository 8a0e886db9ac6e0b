//! Group commit: many writers, one sync.
//! `callers → queue → batch → decide (decide.rs) → append_record: stamp, encode → write → sync → publish root → answer`
//!
//! Only this module assigns revisions, in queue order. A caller gets a success only after its batch is published, and a
//! batch is published only after it is synced (or, with relaxed durability, handed to the operating system). Even a
//! conflict is answered only after its batch is published, because the conflict may result from a write of the same
//! batch. Proposals that arrive during a sync form the next batch.
//!
//! After a failed sync the log refuses every later write: the kernel may have dropped the dirty pages, so the success
//! of a retry would prove nothing. If the disk is full, the batch is refused, no byte of it stays in the log, and the
//! sequencer tries again from time to time. Until there is room, the sequencer accepts only essential writes, which may
//! use the reserve. The sequencer stores deletes without a final state, because a write that is meant to free space
//! must itself need only a small, constant space.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::append::{Appender, BATCH_BYTES_MAX};
use crate::applied;
use crate::bloom::BloomFilter;
use crate::decide::{self, Conflict, Draft, DraftState};
use crate::entry::{Entry, ReadError};
use crate::error::{ApplyError, CommitError, Refusal};
use crate::event::{Event, Memo};
use crate::history::{RecordLocation, Version};
use crate::index::Tree;
use crate::io::is_disk_full;
use crate::log::{Keeper, Log};
use crate::queue::{ApplyAnswer, CommitAnswer, Committed, Proposal, Queue};
use crate::record::{EventKind, NewRecord};
use crate::reserve::Reserve;
use crate::sabotage;
use crate::seal;
use crate::segment::FILL_STEP;
use crate::snapshot::Root;
use crate::status::StoreStatus;
use crate::steps::{self, MaintenanceStep};
use crate::time::{Times, expiry_s};
use crate::types::{Applied, CommitTime, Durability, Revision, Write};
use crate::watch::Hub;

/// Maximum time until the records of a follower are durable. The follower can read lost records again from the store
/// that it follows.
const REPLICATED_SYNC: Duration = Duration::from_secs(1);

/// Interval at which the sequencer checks a full disk for free room.
pub(crate) const DISK_FULL_RETRY: Duration = Duration::from_secs(1);
/// Room in bytes that a full disk must have again before ordinary writes are accepted.
const ROOM_TRIED: usize = 32 * 1024;

/// The components that a sequencer works with.
pub(crate) struct SequencerParts {
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub status: Arc<StoreStatus>,
    pub keeper: Arc<Keeper>,
    pub reserve: Arc<Reserve>,
    pub log: Log,
    pub durability: Durability,
    pub times: Times,
}

/// The single writer of the log, which works in turns (turns.rs).
pub(crate) struct Sequencer {
    parts: SequencerParts,
    /// The index, including the writes of the current batch.
    tree: Tree,
    /// The newest assigned revision.
    revision: Revision,
    /// Proposals taken from the queue. Empty between turns; kept so that its memory is reused.
    batch: VecDeque<Proposal>,
    /// The encoded records of the current batch.
    records: Appender,
    pending: Vec<Pending>,
    /// The writes of the current batch, in order.
    written: Vec<Written>,
    /// Whether the current batch has a write that is not essential.
    has_ordinary: bool,
    /// Time of the last check for free room.
    looked: Instant,
}

/// A record of the current batch.
struct Written {
    key: Bytes,
    version: Version,
    /// The live version that the write replaces, if the key exists.
    previous: Option<Version>,
}

/// A decided proposal of the current batch.
enum Pending {
    Commit { answer: CommitAnswer, outcome: Outcome },
    Applied { answer: ApplyAnswer, outcome: Result<Revision, ApplyError> },
}

impl Pending {
    /// Answers that the write was refused. If the log failed while it carried the write, the answer is that
    /// the outcome is unknown.
    fn refuse(self, refusal: Refusal) {
        match self {
            Pending::Commit { answer, outcome: Outcome::Written(_) }
                if matches!(refusal, Refusal::LogFailed { .. }) =>
            {
                drop(answer.send(Err(CommitError::OutcomeUnknown(refusal))));
            }
            Pending::Commit { answer, .. } => drop(answer.send(Err(CommitError::Refused(refusal)))),
            Pending::Applied { answer, .. } => drop(answer.send(Err(ApplyError::Refused(refusal)))),
        }
    }
}

enum Outcome {
    /// The write is the record with this position in the batch.
    Written(usize),
    /// The state of the key in the batch's tree is not the expected one.
    Conflict {
        key: Bytes,
        current: Option<Version>,
    },
    Error(CommitError),
}

impl Sequencer {
    /// Creates the sequencer, which continues after the newest published root.
    pub fn new(parts: SequencerParts) -> Sequencer {
        let root = parts.hub.root();
        Sequencer {
            parts,
            tree: root.tree.clone(),
            revision: root.revision,
            batch: VecDeque::new(),
            records: Appender::new(),
            pending: Vec::new(),
            written: Vec::new(),
            has_ordinary: false,
            looked: Instant::now(),
        }
    }

    /// Sets the size of the pieces in which a growing batch is written.
    #[cfg(feature = "fault")]
    pub fn set_piece_bytes(&mut self, piece_bytes: usize) {
        self.records.set_piece_bytes(piece_bytes);
    }

    /// Commits the waiting proposals, and carries out a part of a maintenance step. Returns false once the
    /// queue is closed and empty.
    pub fn turn(&mut self) -> bool {
        let Some(proposals) = self.commit_waiting() else { return false };
        if let Some(step) = self.parts.queue.take_step() {
            let left = self.carry_out(step, steps::part_keys(proposals));
            self.parts.queue.step_done(left);
            self.look_ahead();
        }
        true
    }

    /// Commits the waiting proposals and returns their number; `None` once the queue is closed and empty.
    pub fn commit_waiting(&mut self) -> Option<usize> {
        let mut batch = std::mem::take(&mut self.batch);
        if !self.parts.queue.take(&mut batch) {
            return None;
        }
        let proposals = batch.len();
        let is_time =
            batch.is_empty() || self.parts.reserve.is_used() && self.looked.elapsed() >= DISK_FULL_RETRY;
        if is_time && self.parts.status.disk_is_full() {
            self.check_for_room();
        }
        if !batch.is_empty() {
            let time = self.parts.times.next();
            for proposal in batch.drain(..) {
                match proposal {
                    Proposal::Commit { write, bloom, answer } => {
                        self.propose(write, bloom, answer, time);
                    }
                    Proposal::Apply { batch, blooms, answer } => {
                        let outcome = self.apply_batch(&batch, &blooms, time);
                        self.pending.push(Pending::Applied { answer, outcome });
                    }
                }
            }
        }
        self.batch = batch;
        // A failed flush has already answered the callers and recorded the refusal.
        let _ = self.flush();
        self.look_ahead();
        Some(proposals)
    }

    /// Lets the keeper prepare the blocks and the segment that will be needed soon. This does nothing on a
    /// full disk, where the remaining room is reserved.
    fn look_ahead(&self) {
        if !self.is_short_of_room() {
            self.parts.keeper.look_ahead(&self.parts.log);
        }
    }

    /// Returns whether the rest of the disk is reserved for essential writes and reclamation.
    fn is_short_of_room(&self) -> bool {
        self.parts.reserve.is_used() && (self.parts.status.disk_is_full() || self.parts.reserve.is_lent())
    }

    /// Returns whether `bytes` of records can probably be written without waiting for the disk.
    pub fn needs_no_disk(&self, bytes: usize) -> bool {
        matches!(self.parts.durability, Durability::Replicated)
            && self.parts.log.has_room(bytes)
            && !self.parts.status.disk_is_full()
    }

    /// Carries out a part of a maintenance step between two batches and publishes the result. Returns the
    /// rest of the step.
    fn carry_out(&mut self, step: MaintenanceStep, keys: usize) -> Option<MaintenanceStep> {
        let before = self.parts.hub.root();
        let (left, oldest) = steps::carry_out(step, keys, &mut self.tree, &mut self.parts.log, before.oldest);
        self.publish_root(oldest, &[]);
        left
    }

    /// Syncs the log after the last turn, and notes in the log that all of it is durable.
    pub fn finish(&mut self) {
        if self.parts.status.failed().is_some() {
            return;
        }
        let revision = self.revision;
        if self.parts.status.sync(self.parts.log.current(), revision).is_ok() {
            let segment = self.parts.log.current();
            let written = segment.write_note(revision, self.parts.hub.root().oldest);
            let noted = written.and_then(|()| segment.file.sync_data());
            if let Err(error) = noted.and_then(|()| self.parts.log.note_durable(revision)) {
                tracing::warn!("cannot record in the log that it is complete: {error}");
            }
        }
    }

    /// Decides on one proposal and applies its draft with the next revision and the commit time `time`.
    fn propose(&mut self, write: Write, bloom: BloomFilter, answer: CommitAnswer, time: CommitTime) {
        if let Some(refusal) = self.parts.status.failed() {
            let _ = answer.send(Err(CommitError::Refused(refusal)));
            return;
        }
        let Write { key, expected, change } = write;
        let is_essential = change.is_essential();
        let is_short_of_room = self.is_short_of_room();
        if !is_essential && is_short_of_room {
            self.parts.status.refuse(Refusal::DiskFull);
            let _ = answer.send(Err(CommitError::Refused(Refusal::DiskFull)));
            return;
        }
        let current = self.tree.newest(&key);
        let draft = match decide::decide(expected, change, current) {
            Ok(draft) if is_short_of_room => draft.without_final_state(),
            Ok(draft) => draft,
            Err(Conflict) => {
                let current = current.filter(|version| !version.is_delete()).copied();
                let outcome = Outcome::Conflict { key, current };
                return self.pending.push(Pending::Commit { answer, outcome });
            }
        };
        let state = match self.stored(&key, &draft) {
            Ok(state) => state,
            Err(error) => {
                let outcome = Outcome::Error(CommitError::Damaged(error));
                return self.pending.push(Pending::Commit { answer, outcome });
            }
        };
        let revision = self.revision.next();
        let state = match self.sealed(&key, &draft, state, revision) {
            Ok(state) => state,
            Err(error) => {
                let outcome = Outcome::Error(CommitError::Damaged(error));
                return self.pending.push(Pending::Commit { answer, outcome });
            }
        };
        let len = state.record(&key, &draft, revision, false).record_len();
        if let Err(refusal) = self.make_room(len, is_essential) {
            if is_short_of_room && refusal == Refusal::DiskFull {
                self.parts.status.note_essential_refused();
            }
            let _ = answer.send(Err(CommitError::Refused(refusal)));
            return;
        }
        self.has_ordinary |= !is_essential;
        if is_short_of_room && draft.kind == EventKind::Delete {
            self.parts.status.note_deleted_on_full(revision);
        }
        let record = state.record(&key, &draft, revision, false);
        let version = self.append_record(NewRecord { time, ..record }, draft.ttl, bloom);
        self.written.push(Written { key, version, previous: draft.previous });
        self.pending.push(Pending::Commit { answer, outcome: Outcome::Written(self.written.len() - 1) });
    }

    /// Applies a batch whose form was checked, with the commit time `time`. Returns the store's newest
    /// revision.
    fn apply_batch(
        &mut self,
        batch: &[Applied],
        blooms: &[BloomFilter],
        time: CommitTime,
    ) -> Result<Revision, ApplyError> {
        if let Some(refusal) = self.parts.status.failed() {
            return Err(ApplyError::Refused(refusal));
        }
        applied::check_continuation(batch, self.revision, |key| self.tree.newest(key))?;
        let mut blooms = blooms.iter();
        for transaction in batch.chunk_by(|before, next| before.revision == next.revision) {
            self.apply_revision(transaction, &mut blooms, time)?;
        }
        Ok(self.revision)
    }

    /// Applies the records of one revision, so that they are in the same batch and in the same segment.
    fn apply_revision(
        &mut self,
        transaction: &[Applied],
        blooms: &mut std::slice::Iter<'_, BloomFilter>,
        time: CommitTime,
    ) -> Result<(), ApplyError> {
        let mut drafts = Vec::with_capacity(transaction.len());
        let mut len = 0;
        for Applied { revision, created, key, change } in transaction {
            let current = self.tree.newest(key).filter(|version| !version.is_delete()).copied();
            let draft = decide::draft(change.clone(), current, Some(*created));
            let draft = draft.unwrap_or_else(|Conflict| unreachable!("the batch was checked for that"));
            let state = self.stored(key, &draft).map_err(ApplyError::Damaged)?;
            let state = self.sealed(key, &draft, state, *revision).map_err(ApplyError::Damaged)?;
            len += state.record(key, &draft, *revision, false).record_len();
            drafts.push((draft, state));
        }
        self.make_room(len, false).map_err(ApplyError::Refused)?;
        self.has_ordinary = true;
        let last = transaction.len() - 1;
        for (at, (applied, (draft, state))) in transaction.iter().zip(drafts).enumerate() {
            let record = state.record(&applied.key, &draft, applied.revision, at < last);
            let bloom = blooms.next().copied().unwrap_or(BloomFilter::UNKNOWN);
            let version = self.append_record(NewRecord { time, ..record }, draft.ttl, bloom);
            self.written.push(Written { key: applied.key.clone(), version, previous: draft.previous });
        }
        Ok(())
    }

    /// Encodes `record` into the batch, which must have room for it, and adds it to the index. The revision
    /// of the record is not lower than the newest one.
    fn append_record(&mut self, record: NewRecord<'_>, ttl: Option<Duration>, bloom: BloomFilter) -> Version {
        let record = NewRecord {
            expires_s: ttl.map_or(0, |ttl| expiry_s(record.time, ttl)),
            synced: self.parts.status.synced().min(record.revision.before()),
            ..record
        };
        let (NewRecord { revision, created, expires_s, .. }, len) = (record, record.record_len());
        let offset = self.records.push(&record, &self.parts.log);
        let segment = self.parts.log.current().header.number;
        let location = RecordLocation::new(offset, len, record.kind == EventKind::Delete);
        let version = Version { revision, created, segment, expires_s, location };
        self.revision = revision;
        self.tree.push(record.key, version, bloom);
        version
    }

    /// Returns the state that `draft` stores. Reads the previous state if the draft keeps it.
    fn stored(&self, key: &Bytes, draft: &Draft) -> Result<Stored, ReadError> {
        match (&draft.state, draft.previous) {
            (DraftState::Stored { attributes }, Some(previous)) => {
                let stored = self.stored_state(key, previous)?;
                let attributes = attributes.clone().unwrap_or(stored.attributes);
                Ok(Stored { attributes, ..stored })
            }
            (DraftState::Stored { .. }, None) => unreachable!("a delete is drafted for a key that exists"),
            (DraftState::Absent, _) => {
                Ok(Stored { attributes: Bytes::new(), value: Bytes::new(), stamp: None })
            }
            (DraftState::Given { attributes, value, stamp_at }, _) => Ok(Stored {
                attributes: attributes.clone(),
                value: value.clone(),
                stamp: stamp_at.map(|at| at as usize..at as usize),
            }),
        }
    }

    /// Returns the state as it is stored: sealed, if the seal applies to it.
    fn sealed(
        &self,
        key: &Bytes,
        draft: &Draft,
        state: Stored,
        revision: Revision,
    ) -> Result<Stored, ReadError> {
        let Some(seal) = self.parts.log.current().seal().filter(|_| !draft.is_without_state()) else {
            return Ok(state);
        };
        let sealed = seal::seal_value(seal, key, &state.value, state.stamp.as_ref(), revision)
            .map_err(|why| ReadError::Sealed { key: key.clone(), why })?;
        Ok(match sealed {
            Some(value) => Stored { value, stamp: None, ..state },
            None => state,
        })
    }

    /// Returns the state of `current`, which may belong to the current batch.
    fn stored_state(&self, key: &Bytes, current: Version) -> Result<Stored, ReadError> {
        let root = self.parts.hub.root();
        let (head, record) = if current.revision > root.revision {
            let (head, bytes) = self.records.record(current.offset(), current.len(), &self.parts.log);
            let record = head.record(Bytes::copy_from_slice(bytes));
            match self.parts.log.current().seal() {
                None => (head, record),
                Some(seal) => seal::open_sealed(seal, head, record)
                    .map_err(|why| ReadError::Sealed { key: key.clone(), why })?,
            }
        } else {
            let damaged = || ReadError::Damaged { key: key.clone(), revision: current.revision };
            root.entry(key.clone(), current).ok_or_else(damaged)?.read_with_head()?
        };
        let stamp = head.stamp.map(|stamp| stamp.offset..stamp.offset + stamp.len);
        Ok(Stored { attributes: record.attributes, value: record.value, stamp })
    }

    /// Makes sure that a record of `len` bytes may follow in the batch, and begins a new batch or segment if
    /// necessary. If an essential record needs a new segment, the new segment may use the reserve.
    fn make_room(&mut self, len: usize, is_essential: bool) -> Result<(), Refusal> {
        let end = self.records.len() + len;
        if !self.records.is_empty() && (end > BATCH_BYTES_MAX || !self.parts.log.has_room(end)) {
            self.flush()?;
        }
        if self.parts.log.has_room(self.records.len() + len) {
            return Ok(());
        }
        let reserve = self.parts.reserve.clone();
        let _taking = self.is_short_of_room().then(|| reserve.lock_freed_room());
        match self.roll(len) {
            Err(Refusal::DiskFull) if is_essential && self.parts.reserve.release(1) => self.roll(len),
            rolled => rolled,
        }
    }

    /// Continues in a new segment. The batch must be empty.
    fn roll(&mut self, len: usize) -> Result<(), Refusal> {
        // The old segment is synced first, so that only the last segment can have a torn tail.
        let synced = if sabotage::roll_without_sync() {
            Ok(())
        } else {
            self.parts.status.sync(self.parts.log.current(), self.parts.hub.revision())
        };
        let rolled = synced.and_then(|()| {
            let rolled = self.parts.log.roll(len, self.revision.next(), &self.parts.keeper);
            rolled.map_err(|error| Refusal::from_error("starting a segment", &error))
        });
        rolled.inspect_err(|refusal| self.parts.status.refuse(refusal.clone()))
    }

    /// Returns a root that contains all committed writes.
    fn root(&self, oldest: Revision) -> Root {
        Root {
            revision: self.revision,
            oldest,
            tree: self.tree.clone(),
            segments: self.parts.log.segments().clone(),
            end: self.parts.log.position(),
        }
    }

    /// Writes the batch, publishes it and answers all its proposals.
    fn flush(&mut self) -> Result<(), Refusal> {
        let written = if self.records.is_empty() { Ok(Vec::new()) } else { self.write() };
        let before = self.parts.hub.root();
        let outcome = match written {
            Ok(events) => {
                if !events.is_empty() {
                    self.publish(before.oldest, &events);
                }
                self.answer(&before, &events);
                Ok(())
            }
            Err(refusal) => {
                self.parts.status.refuse(refusal.clone());
                self.tree = before.tree.clone();
                self.revision = before.revision;
                self.pending.drain(..).for_each(|pending| pending.refuse(refusal.clone()));
                Err(refusal)
            }
        };
        self.records.clear();
        self.written.clear();
        self.has_ordinary = false;
        outcome
    }

    /// Writes the batch and syncs it, or with relaxed durability hands it to the operating system. Returns
    /// the events of the batch, which are made while the disk works.
    fn write(&mut self) -> Result<Vec<Arc<Event>>, Refusal> {
        // The first batch for which the disk has no room is refused as a whole, because its deletes contain
        // final states. The callers propose the essential writes of this batch again.
        let may_use_reserve = self.is_short_of_room() && !self.has_ordinary;
        let reserve = self.parts.reserve.clone();
        let taking = may_use_reserve.then(|| reserve.lock_freed_room());
        self.write_records().or_else(|refusal| {
            let needed = (self.records.len() as u64).saturating_add(FILL_STEP);
            if refusal != Refusal::DiskFull || !may_use_reserve {
                return Err(refusal);
            }
            if !reserve.release(needed) {
                self.parts.status.note_essential_refused();
                return Err(refusal);
            }
            self.records.rewind();
            self.write_records().inspect_err(|_| self.parts.status.note_essential_refused())
        })?;
        drop(taking);
        self.parts.status.advance(|stages| stages.appended = self.revision);
        let events = self.events();
        match self.parts.durability {
            Durability::Sync if sabotage::ack_before_sync() => {}
            Durability::Sync => {
                self.parts.status.sync(self.parts.log.current(), self.revision)?;
            }
            Durability::Relaxed => {
                self.parts.keeper.sync_within(Duration::ZERO, self.parts.log.current(), self.revision);
            }
            Durability::Replicated => {
                self.parts.keeper.sync_within(REPLICATED_SYNC, self.parts.log.current(), self.revision)
            }
        }
        self.parts.log.advance(self.records.len());
        Ok(events)
    }

    /// Writes the batch to the file. If the disk is full, nothing of the batch stays in the file.
    fn write_records(&mut self) -> Result<(), Refusal> {
        let Err(error) = self.records.write(&self.parts.log) else { return Ok(()) };
        // No reader may ever get a refused write, so its written part must be erased before the refusal is
        // answered.
        let is_gone =
            || sabotage::refused_write_left() || self.records.erase_written(&self.parts.log).is_ok();
        if is_disk_full(&error) && is_gone() {
            Err(Refusal::DiskFull)
        } else {
            Err(Refusal::log_failed("write", &error))
        }
    }

    /// Returns the events of the batch, which may still be refused.
    fn events(&self) -> Vec<Arc<Event>> {
        let segments = self.parts.log.segments();
        let event = |Written { key, version, previous }: &Written| {
            let previous = previous.and_then(|previous| segments.entry(key.clone(), previous));
            Arc::new(Event {
                revision: version.revision,
                kind: if version.is_delete() { EventKind::Delete } else { EventKind::Put },
                key: key.clone(),
                entry: Entry::new(key.clone(), *version, self.parts.log.current().clone())
                    .ending(previous.as_ref()),
                previous,
                memo: Memo::default(),
                audience: AtomicU32::new(0),
            })
        };
        self.written.iter().map(event).collect()
    }

    /// Publishes the batch with the given events to all readers.
    fn publish(&mut self, oldest: Revision, events: &[Arc<Event>]) {
        let segment = self.parts.log.current();
        let mut marks = segment.marks();
        for event in events {
            let version = event.entry.version();
            marks.pass(version.revision, version.offset());
            self.parts.times.committed(version);
        }
        drop(marks);
        segment.add_live(self.records.len());
        for Written { version, previous, .. } in &self.written {
            if !version.is_delete() {
                segment.add_newest(version.len());
            }
            if let Some(previous) = previous
                && let Some(segment) = self.parts.log.segments().get(previous.segment)
            {
                segment.take_newest(previous.len());
            }
        }
        self.publish_root(oldest, events);
        self.parts.status.time_ms.store(self.parts.times.last().ms(), Ordering::Release);
        self.parts.status.batches.fetch_add(1, Ordering::Relaxed);
        self.parts.status.commits.fetch_add(events.len() as u64, Ordering::Relaxed);
        self.parts.status.committed_bytes.fetch_add(self.records.len() as u64, Ordering::Relaxed);
        if !self.parts.reserve.is_used() {
            self.parts.status.resume_writes();
        }
    }

    /// Publishes all committed writes, with `oldest` as the oldest readable revision.
    fn publish_root(&self, oldest: Revision, events: &[Arc<Event>]) {
        self.parts.status.advance(|stages| (stages.published, stages.compacted) = (self.revision, oldest));
        self.parts.hub.publish(self.root(oldest), events);
    }

    /// Answers all proposals in the batch. `events` are the events of the batch.
    fn answer(&mut self, before: &Root, events: &[Arc<Event>]) {
        let segment = self.parts.log.current();
        for pending in self.pending.drain(..) {
            let (answer, outcome) = match pending {
                Pending::Commit { answer, outcome } => (answer, outcome),
                Pending::Applied { answer, outcome } => {
                    let _ = answer.send(outcome);
                    continue;
                }
            };
            let outcome = match outcome {
                Outcome::Error(error) => Err(error),
                Outcome::Conflict { key, current } => {
                    // The conflicting state may belong to this batch.
                    let entry = |version: Version| {
                        if version.revision > before.revision {
                            Some(Entry::new(key, version, segment.clone()))
                        } else {
                            before.entry(key, version)
                        }
                    };
                    Err(CommitError::Conflict { current: current.and_then(entry) })
                }
                Outcome::Written(at) => {
                    let event = &events[at];
                    Ok(Committed { revision: event.revision, entry: event.entry.clone() })
                }
            };
            // A caller that dropped its future gets no answer.
            let _ = answer.send(outcome);
        }
    }

    /// Checks whether a write would succeed now, while the disk counts as full.
    fn check_for_room(&mut self) {
        self.looked = Instant::now();
        let is_room = self.parts.reserve.fill() && self.parts.reserve.has_spare_room();
        self.parts.status.note_room_look();
        if !is_room {
            return;
        }
        if !self.parts.log.has_room(ROOM_TRIED) && self.roll(ROOM_TRIED).is_err() {
            return;
        }
        if self.parts.log.allocate(ROOM_TRIED as u64).is_ok() {
            self.parts.status.resume_writes();
        }
    }
}

/// The state that a put or a delete stores.
struct Stored {
    attributes: Bytes,
    value: Bytes,
    /// The bytes of the value that the stamp replaces; `None` if the value is not stamped.
    stamp: Option<Range<usize>>,
}

impl Stored {
    /// Returns the record that stores this state for `draft` at `revision`. The caller sets the times of the
    /// record.
    fn record<'a>(&'a self, key: &'a [u8], draft: &Draft, revision: Revision, more: bool) -> NewRecord<'a> {
        let (start, end) = match &self.stamp {
            Some(stamp) => (stamp.start, Some(stamp.end)),
            None => (self.value.len(), None),
        };
        NewRecord {
            revision,
            created: draft.created.unwrap_or(revision),
            previous: draft.previous.map_or(Revision::ZERO, |version| version.revision),
            synced: Revision::ZERO,
            time: CommitTime::ZERO,
            expires_s: 0,
            kind: draft.kind,
            key,
            attributes: &self.attributes,
            value: &self.value[..start],
            value_after_stamp: end.map(|end| &self.value[end..]),
            more,
            tombstone: draft.is_without_state(),
        }
    }
}
