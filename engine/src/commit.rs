//! Group commit: many writers, one sync; and while one batch is brought to disk, the next one is made.
//!
//! ```text
//! callers → queue → check, stamp, encode → batch in the making ─► append ─► publish root → answer
//!             ▲                                 (buffer, tree)    │    ▲
//!             └── wakes the sequencer ────────────────────────────┴ appender (append.rs): write, sync
//! ```
//!
//! Revisions are assigned here and nowhere else, in queue order. A caller hears "ok" only after its batch is
//! published, and a batch is published only after it is synced (or, with relaxed durability, handed to the
//! operating system). Even a refusal by conflict waits for that: it may rest on a write of the same batch, or of the
//! one before.
//!
//! Only the disk works beside the sequencer. The seams:
//!
//! - **Pending state** (tree, revision, the log's position) is that of the newest batch, published or not: conditions are
//!   judged on it, and records are encoded for their place behind it.
//! - **What a batch will publish** is put aside when its append is begun (`Flight`), and is published when that has
//!   succeeded, in the same order. At most one append is under way, so the log never has a gap.
//! - **When an append fails**, everything behind it was made on what did not come to be: it is refused with it, and
//!   pending state goes back to what is published.
//! - **Records vouch** for what is on disk when their own append is begun, not when they were encoded.
//! - **A new segment and a chore** have the sequencer to themselves: nothing is under way or in the making.
//!
//! A batch is given to the appender when it is large. The sync of a small one takes as long whatever is in it, so the next
//! better waits for more company: it is brought to disk on the sequencer's own thread, which also spares a lone writer the
//! way there and back.
//!
//! After a failed sync the log refuses every later write (`vitals.rs`). A full disk is met before a batch touches the log,
//! refuses that batch and what is behind it, and is tried again from time to time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::append::{Append, Appender};
use crate::chores::{self, Chore};
use crate::error::{CommitError, ReadError, Refusal};
use crate::history::{Place, Version};
use crate::index::Tree;
use crate::log::{Keeper, Log, Stretch};
use crate::queue::{BATCH_WRITES_MAX, Proposal, Queue, Until};
use crate::record::{self, Draft, EventKind, Head};
use crate::sabotage;
use crate::segment::Mark;
use crate::snapshot::{Entry, Root};
use crate::time::{Times, expiry_s};
use crate::types::{Change, Committed, Durability, Expected, Payload};
use crate::vitals::{Vitals, refusal};
use crate::watch::{Event, Hub, Memo};

/// A batch that has grown to this size is written. A larger one would gain nothing: at 4 MiB the sync is a
/// small part of the time.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How often room is looked for on a full disk.
const DISK_FULL_RETRY: Duration = Duration::from_secs(1);
/// How much room a disk that was full must have before writes are invited again.
const ROOM_TRIED: usize = 32 * 1024;

/// What the sequencer works with.
pub(crate) struct Tools {
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub vitals: Arc<Vitals>,
    pub keeper: Arc<Keeper>,
    pub appender: Arc<Appender>,
    pub durability: Durability,
    /// A batch of so many bytes is given to the appender.
    pub overlap_bytes: usize,
}

/// The one writer. Lives on its own thread.
pub(crate) struct Sequencer {
    queue: Arc<Queue>,
    hub: Arc<Hub>,
    vitals: Arc<Vitals>,
    keeper: Arc<Keeper>,
    log: Log,
    appender: Arc<Appender>,
    durability: Durability,
    overlap_bytes: usize,
    times: Times,
    /// The index including the writes of the batch in the making.
    tree: Tree,
    /// The newest revision assigned.
    revision: u64,
    /// Proposals taken from the queue; empty between turns, kept for its memory.
    arrived: VecDeque<Proposal>,
    /// The encoded records of the batch in the making; they will stand at the log's position.
    buffer: Vec<u8>,
    pending: Vec<Pending>,
    /// Writes since a chore had its turn.
    writes: usize,
    /// The batch whose append is under way.
    flight: Option<Flight>,
}

/// A batch that is brought to disk, and what becomes of it then.
struct Flight {
    /// Its append, by the appender's number; 0: it was not given to the appender.
    number: u64,
    stretch: Stretch,
    bytes: Arc<Vec<u8>>,
    /// What readers will see.
    root: Root,
    pending: Vec<Pending>,
    /// The time of its last record.
    time_ms: u64,
}

/// A proposal that was decided on.
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
        /// What its record vouches for.
        synced: u64,
    },
    /// The key's state, read from the batch's tree, is not what was expected.
    Conflict {
        key: Bytes,
        current: Option<Version>,
    },
    Error(CommitError),
}

impl Sequencer {
    /// Goes on with `log` from what is published.
    pub fn new(tools: Tools, log: Log, times: Times) -> Sequencer {
        let root = tools.hub.root();
        Sequencer {
            queue: tools.queue,
            hub: tools.hub,
            vitals: tools.vitals,
            keeper: tools.keeper,
            log,
            appender: tools.appender,
            durability: tools.durability,
            overlap_bytes: tools.overlap_bytes,
            times,
            tree: root.tree.clone(),
            revision: root.revision,
            arrived: VecDeque::new(),
            buffer: Vec::new(),
            pending: Vec::new(),
            writes: 0,
            flight: None,
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

    /// Makes a batch of what waits, or of what comes within `patience`, and has it brought to disk or brings it there
    /// itself; publishes what is there by now. False once the queue is closed and empty and all is answered.
    pub fn turn(&mut self, patience: Option<Duration>) -> bool {
        self.keeper.look_ahead(&self.log);
        let (until, patience) = match &self.flight {
            Some(flight) => (Until::Appended(flight.number), patience),
            // What is in the making takes along whoever has come by now, and no longer.
            None if !self.pending.is_empty() => (Until::Proposed, Some(Duration::ZERO)),
            None => (Until::Proposed, patience),
        };
        let mut arrived = std::mem::take(&mut self.arrived);
        let open = self.queue.take(&mut arrived, until, patience);
        if !open && self.flight.is_none() && self.pending.is_empty() {
            return false;
        }
        let count = arrived.len();
        if count == 0 && self.flight.is_none() && self.vitals.disk_is_full() {
            self.look_for_room();
        }
        self.writes += count;
        // Refusals have been answered and noted, here and below.
        for proposal in arrived.drain(..) {
            self.propose(proposal);
            if self.flight.is_some() && self.is_large() && self.appender.is_done() {
                // The disk does not wait for the rest.
                let _ = self.land();
            }
        }
        self.arrived = arrived;
        let is_full = self.pending.len() >= BATCH_WRITES_MAX;
        if self.flight.is_none() {
            let _ = self.launch();
        } else if count == 0 || is_full || self.appender.is_done() {
            let _ = self.land();
        }
        self.do_chore();
        true
    }

    /// Whether something that was taken from the queue is not answered yet.
    #[cfg(feature = "fault")]
    pub fn is_under_way(&self) -> bool {
        self.flight.is_some() || !self.pending.is_empty()
    }

    /// Does a part of a chore, if there is one, when nothing is under way.
    fn do_chore(&mut self) {
        if !self.queue.has_chore() {
            return;
        }
        let _ = self.flush();
        let keys = chores::part_keys(std::mem::take(&mut self.writes));
        if let Some(chore) = self.queue.take_chore() {
            let left = self.carry_out(chore, keys);
            self.queue.chore_done(left);
        }
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

    /// Decides on one proposal and encodes it into the batch.
    fn propose(&mut self, proposal: Proposal) {
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
            time_ms: self.times.next_ms(),
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
        let synced = draft.synced;
        let outcome = Outcome::Write { key: write.key, version, previous: current, synced };
        self.pending.push(Pending { answer, outcome });
    }

    /// The state of `current`, which may still be in the buffer, or under way.
    fn stored_state(&self, key: &Bytes, current: Version) -> Result<State, ReadError> {
        let root = self.hub.root();
        let (head, record) = if current.revision > root.revision {
            let (start, bytes) = match &self.flight {
                Some(flight) if current.revision <= flight.root.revision => {
                    (flight.stretch.offset, &flight.bytes[..])
                }
                _ => (self.log.position(), &self.buffer[..]),
            };
            let start = (current.offset() - start) as usize;
            let bytes = Bytes::copy_from_slice(&bytes[start..start + current.len()]);
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
        let is_full = !self.buffer.is_empty() && self.buffer.len() + len > BATCH_BYTES_MAX;
        if is_full || !self.log.has_room(self.buffer.len() + len) {
            self.flush()?;
        }
        if self.log.has_room(self.buffer.len() + len) { Ok(()) } else { self.roll(len) }
    }

    /// Goes on in a new segment; nothing is under way or in the making.
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

    /// Publishes and answers all that was proposed so far.
    fn flush(&mut self) -> Result<(), Refusal> {
        // Landing may launch what is in the making.
        while self.flight.is_some() {
            self.land()?;
        }
        self.launch()?;
        self.land()
    }

    /// Has the batch in the making brought to disk, when nothing is under way; a small one is there and published on return.
    fn launch(&mut self) -> Result<(), Refusal> {
        if self.buffer.is_empty() {
            // Whoever is to be told something now is told what is published.
            let (root, pending) = (self.hub.root(), std::mem::take(&mut self.pending));
            answer(pending, &root, Vec::new());
            return Ok(());
        }
        if self.is_large() {
            self.begin();
            return Ok(());
        }
        let (append, flight) = self.complete();
        let outcome = append.carry_out(&self.vitals);
        self.landed(flight, outcome)
    }

    /// Waits for what is under way, if anything is, and publishes it. A large batch in the making goes on its way first: the
    /// disk must not stand idle. A small one may grow meanwhile.
    fn land(&mut self) -> Result<(), Refusal> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let outcome = self.appender.wait();
        if outcome.is_ok() && self.is_large() {
            self.begin();
        }
        self.landed(flight, outcome)
    }

    /// Whether the batch in the making is worth the appender's thread.
    fn is_large(&self) -> bool {
        self.buffer.len() >= self.overlap_bytes
    }

    /// Gives the batch in the making to the appender, which has nothing to do.
    fn begin(&mut self) {
        let (append, flight) = self.complete();
        let number = self.appender.begin(append);
        self.flight = Some(Flight { number, ..flight });
    }

    /// Takes the batch in the making as it is: what is to be brought to disk, and what becomes of it then.
    fn complete(&mut self) -> (Append, Flight) {
        self.vouch();
        let stretch = self.log.next(self.buffer.len());
        self.log.advance(&stretch);
        let bytes = Arc::new(std::mem::take(&mut self.buffer));
        let append = Append {
            stretch: stretch.clone(),
            bytes: bytes.clone(),
            revision: self.revision,
            durability: self.durability,
        };
        let flight = Flight {
            number: 0,
            stretch,
            bytes,
            root: self.root(self.hub.root().oldest),
            pending: std::mem::take(&mut self.pending),
            time_ms: self.times.last_ms(),
        };
        (append, flight)
    }

    /// Publishes a batch and answers everybody in it; or refuses it, and all that was made behind it.
    fn landed(&mut self, flight: Flight, outcome: Result<(), Refusal>) -> Result<(), Refusal> {
        let Flight { stretch, bytes, root, pending, time_ms, .. } = flight;
        match &outcome {
            Ok(()) => {
                stretch.segment.advance(stretch.end());
                if self.durability == Durability::Relaxed {
                    self.keeper.sync_soon(&stretch.segment, root.revision);
                }
                let events = self.events(&pending, &stretch, &root);
                let root = self.hub.publish(root, &events);
                self.vitals.time_ms.store(time_ms, Ordering::Release);
                self.vitals.batches.fetch_add(1, Ordering::Relaxed);
                self.vitals.commits.fetch_add(events.len() as u64, Ordering::Relaxed);
                self.vitals.room_again();
                answer(pending, &root, events);
            }
            Err(refusal) => {
                self.vitals.refuse(refusal.clone());
                let mut refused = pending;
                if !sabotage::behind_refused_kept() || self.buffer.is_empty() {
                    let published = self.hub.root();
                    self.tree = published.tree.clone();
                    self.revision = published.revision;
                    self.log.retreat(&stretch);
                    self.buffer.clear();
                    refused.append(&mut self.pending);
                }
                for Pending { answer, .. } in refused {
                    let _ = answer.send(Err(CommitError::Refused(refusal.clone())));
                }
            }
        }
        self.reuse(bytes);
        outcome
    }

    /// Takes the memory of a batch that is done for the next one, unless that has its own already.
    fn reuse(&mut self, bytes: Arc<Vec<u8>>) {
        if self.buffer.capacity() == 0
            && let Some(mut bytes) = Arc::into_inner(bytes)
        {
            bytes.clear();
            // One huge batch must not keep its memory for good.
            bytes.shrink_to(BATCH_BYTES_MAX);
            self.buffer = bytes;
        }
    }

    /// Has the records of the batch in the making vouch for what has come to disk since they were encoded.
    fn vouch(&mut self) {
        let synced = self.vitals.synced.load(Ordering::Acquire);
        let (salt, position) = (self.log.current().header.salt, self.log.position());
        for pending in &self.pending {
            let Outcome::Write { version, synced: vouched, .. } = &pending.outcome else { continue };
            if *vouched < synced.min(version.revision - 1) {
                let synced = synced.min(version.revision - 1);
                let start = (version.offset() - position) as usize;
                record::vouch(&mut self.buffer[start..], synced, salt, version.offset());
            }
        }
    }

    /// The events of a batch, in order, and what its segment and the times are to know of it.
    fn events(&self, pending: &[Pending], stretch: &Stretch, root: &Root) -> Vec<Arc<Event>> {
        let segment = &stretch.segment;
        let mut events = Vec::with_capacity(pending.len());
        for pending in pending {
            if let Outcome::Write { key, version, previous, .. } = &pending.outcome {
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
        let writes = || {
            pending.iter().filter_map(|pending| match &pending.outcome {
                Outcome::Write { version, .. } => Some(version),
                Outcome::Conflict { .. } | Outcome::Error(_) => None,
            })
        };
        segment.mark(writes().map(|version| Mark { revision: version.revision, offset: version.offset() }));
        segment.add_live(writes().map(Version::len).sum());
        events
    }

    /// Tries on a full disk whether a write would do.
    fn look_for_room(&mut self) {
        if !self.log.has_room(ROOM_TRIED) && self.roll(ROOM_TRIED).is_err() {
            return;
        }
        if self.log.next(ROOM_TRIED).allocate().is_ok() {
            self.vitals.room_again();
        }
    }
}

/// Answers everybody in a batch that is published as `root`; `events` are its writes.
fn answer(pending: Vec<Pending>, root: &Root, events: Vec<Arc<Event>>) {
    let mut events = events.into_iter();
    for Pending { answer, outcome } in pending {
        let outcome = match outcome {
            Outcome::Error(error) => Err(error),
            Outcome::Conflict { key, current } => {
                Err(CommitError::Conflict { current: current.and_then(|version| root.entry(key, version)) })
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
