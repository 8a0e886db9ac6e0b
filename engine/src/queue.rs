//! Input of the sequencer: proposals of callers, and at most one maintenance step.
//!
//! `callers → room → proposals ─┬─► batch → sequencer`
//! `maintenance → one step ─────┘`
//!
//! Callers wait outside of the queue when it is full, so the queued bytes are limited, however many callers
//! there are. There is at most one maintenance step, and maintenance is notified when the step is done.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, oneshot};

use crate::bloom::BloomFilter;
use crate::entry::Entry;
use crate::error::{ApplyError, CommitError};
use crate::steps::MaintenanceStep;
use crate::types::{
    APPLIED_BYTES_MAX, APPLIED_RECORDS_MAX, ATTRIBUTES_BYTES_MAX, Applied, Change, KEY_BYTES_MAX, Revision,
    VALUE_BYTES_MAX, Write,
};

/// Bytes of proposals that may wait in the queue; other callers wait outside. The batch that is being written
/// may have the same number of bytes.
const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Cost of a proposal in the queue in addition to its payload, in bytes.
const PROPOSAL_BYTES: usize = 4096;

/// Records of a follower's batch that count as one proposal. The cost of a record in addition to its payload
/// is a small part of [`PROPOSAL_BYTES`].
const APPLIED_PER_UNIT: usize = 32;
/// Maximum number of writes in one batch: all of them wait until the last one is encoded.
const BATCH_WRITES_MAX: usize = 1024;

/// The result of a committed write.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The revision that the write got.
    pub revision: Revision,
    /// The stored, stamped state; for a delete, the final state.
    pub entry: Entry,
}

/// Channel for the outcome of a commit.
pub(crate) type CommitAnswer = oneshot::Sender<Result<Committed, CommitError>>;
/// Channel for the newest revision after an applied batch.
pub(crate) type ApplyAnswer = oneshot::Sender<Result<Revision, ApplyError>>;

/// A proposal that waits for the sequencer, with the Bloom filters of the states it writes and the channel
/// for its answer.
pub(crate) enum Proposal {
    /// A proposed write: the sequencer checks its condition and assigns a revision.
    Commit { write: Write, bloom: BloomFilter, answer: CommitAnswer },
    /// Records that already have revisions.
    Apply { batch: Vec<Applied>, blooms: Vec<BloomFilter>, answer: ApplyAnswer },
}

impl Proposal {
    /// Returns the room that the proposal takes in the queue. The limits of the proposal were checked, so it
    /// fits into an empty queue.
    fn weight(&self) -> u32 {
        match self {
            Proposal::Commit { write, .. } => weight(1, write.change.payload_bytes()),
            Proposal::Apply { batch, .. } => {
                let payload_bytes = batch.iter().map(Applied::payload_bytes).sum();
                weight(1 + batch.len() / APPLIED_PER_UNIT, payload_bytes)
            }
        }
    }
}

/// The queue of proposals on their way to the sequencer.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    /// Notified when a maintenance step is done, or will not be carried out.
    done: Condvar,
    /// Free room in the queue, in units of [`PROPOSAL_BYTES`].
    room: Semaphore,
}

#[derive(Default)]
struct QueueState {
    proposals: VecDeque<Proposal>,
    step: Option<MaintenanceStep>,
    /// Whether a maintenance step was taken and is not done yet.
    at_step: bool,
    closed: bool,
    /// Whether the sequencer sleeps and must be woken.
    idle: bool,
}

impl Queue {
    pub fn new() -> Queue {
        Queue {
            state: Mutex::default(),
            arrived: Condvar::new(),
            done: Condvar::new(),
            room: Semaphore::new(QUEUE_BYTES_MAX / PROPOSAL_BYTES),
        }
    }

    /// Queues `write` with its Bloom filter and returns its outcome. A queued write is carried out even if
    /// the future is dropped.
    pub async fn submit(&self, write: Write, bloom: BloomFilter) -> Result<Committed, CommitError> {
        check_limits(&write)?;
        let (answer, outcome) = oneshot::channel();
        let proposal = Proposal::Commit { write, bloom, answer };
        self.push_when_room(proposal, true).await.ok_or(CommitError::Closed)?;
        outcome.await.unwrap_or(Err(CommitError::Closed))
    }

    /// Queues `batch`, whose form was checked, with the Bloom filters of its states, and returns its outcome.
    /// A queued batch is carried out even if the future is dropped. `take_turn` may carry out the batch at
    /// once, and returns whether it did. Otherwise the sequencer's thread carries out the batch.
    pub async fn submit_applied(
        &self,
        batch: Vec<Applied>,
        blooms: Vec<BloomFilter>,
        take_turn: impl FnOnce() -> bool,
    ) -> Result<Revision, ApplyError> {
        let (answer, outcome) = oneshot::channel();
        let proposal = Proposal::Apply { batch, blooms, answer };
        self.push_when_room(proposal, false).await.ok_or(ApplyError::Closed)?;
        if !take_turn() {
            self.wake();
        }
        outcome.await.unwrap_or(Err(ApplyError::Closed))
    }

    /// Waits for room and queues `proposal`; `None` if the queue is closed.
    async fn push_when_room(&self, proposal: Proposal, wakes: bool) -> Option<()> {
        let permit = self.room.acquire_many(proposal.weight()).await.ok()?;
        self.push(proposal, wakes)?;
        permit.forget();
        Some(())
    }

    /// Queues `write`, a delete within the limits, without waiting; `None` if there is no room or the queue
    /// is closed.
    pub fn try_submit(&self, write: Write) -> Option<oneshot::Receiver<Result<Committed, CommitError>>> {
        let (answer, outcome) = oneshot::channel();
        let proposal = Proposal::Commit { write, bloom: BloomFilter::NONE, answer };
        let permit = self.room.try_acquire_many(proposal.weight()).ok()?;
        self.push(proposal, true)?;
        permit.forget();
        Some(outcome)
    }

    /// Puts `proposal` into the queue; `None` if the queue is closed. With `wakes`, wakes the sequencer's
    /// thread if it sleeps.
    fn push(&self, proposal: Proposal, wakes: bool) -> Option<()> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.proposals.push_back(proposal);
        if wakes && std::mem::take(&mut state.idle) {
            self.arrived.notify_one();
        }
        Some(())
    }

    /// Wakes the sequencer's thread if it sleeps.
    fn wake(&self) {
        if std::mem::take(&mut self.state.lock().idle) {
            self.arrived.notify_one();
        }
    }

    /// Requests `step`. The previous step must be done.
    pub fn request_step(&self, step: MaintenanceStep) {
        let mut state = self.state.lock();
        debug_assert!(state.step.is_none() && !state.at_step, "one step at a time");
        state.step = Some(step);
        if std::mem::take(&mut state.idle) {
            self.arrived.notify_one();
        }
    }

    /// Returns whether a maintenance step can be requested. A step can be requested once the previous step
    /// is done.
    pub fn is_free(&self) -> bool {
        let state = self.state.lock();
        state.step.is_none() && !state.at_step
    }

    /// Returns whether the queue is closed. A closed queue carries out no maintenance step, not even a step
    /// that was requested before.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Waits until there is no maintenance step, at most for `patience`.
    pub fn wait_for_step(&self, patience: Duration) {
        let mut state = self.state.lock();
        if !state.closed && (state.step.is_some() || state.at_step) {
            self.done.wait_for(&mut state, patience);
        }
    }

    /// Takes the maintenance step, if there is one. The caller must call [`Queue::step_done`] afterwards.
    pub fn take_step(&self) -> Option<MaintenanceStep> {
        let mut state = self.state.lock();
        let step = state.step.take();
        state.at_step = step.is_some();
        step
    }

    /// Notes that the taken maintenance step is done except for `left`, which the next [`Queue::take_step`]
    /// returns.
    pub fn step_done(&self, left: Option<MaintenanceStep>) {
        let mut state = self.state.lock();
        state.at_step = false;
        state.step = left;
        if state.step.is_none() {
            self.done.notify_all();
        }
    }

    /// Closes the queue: it accepts no more proposals, but the waiting proposals are still carried out.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.arrived.notify_one();
        self.done.notify_all();
    }

    /// Closes the queue and drops the waiting proposals; their callers get the error that the store is
    /// closed.
    pub fn abandon(&self) {
        self.close();
        let mut state = self.state.lock();
        state.proposals.clear();
        state.step = None;
    }

    /// Waits until a proposal or a maintenance step is in the queue or the queue is closed, at most for
    /// `patience`.
    pub fn wait(&self, patience: Option<Duration>) {
        let mut state = self.state.lock();
        while state.proposals.is_empty() && state.step.is_none() && !state.closed {
            state.idle = true;
            match patience {
                None => self.arrived.wait(&mut state),
                Some(patience) => {
                    if self.arrived.wait_for(&mut state, patience).timed_out() {
                        break;
                    }
                }
            }
        }
        state.idle = false;
    }

    /// Moves waiting proposals into `batch`, which must be empty. Returns false once the queue is closed and
    /// empty.
    pub fn take(&self, batch: &mut VecDeque<Proposal>) -> bool {
        let mut state = self.state.lock();
        if state.proposals.is_empty() {
            return !state.closed;
        }
        debug_assert!(batch.is_empty(), "one batch at a time");
        if state.proposals.len() <= BATCH_WRITES_MAX {
            std::mem::swap(batch, &mut state.proposals);
        } else {
            batch.extend(state.proposals.drain(..BATCH_WRITES_MAX));
        }
        drop(state);
        self.room.add_permits(batch.iter().map(|proposal| proposal.weight() as usize).sum());
        true
    }
}

fn weight(records: usize, payload_bytes: usize) -> u32 {
    (records + payload_bytes / PROPOSAL_BYTES) as u32
}

// The largest batch of a follower fits into an empty queue.
const _: () = assert!(
    1 + APPLIED_RECORDS_MAX / APPLIED_PER_UNIT + APPLIED_BYTES_MAX / PROPOSAL_BYTES
        <= QUEUE_BYTES_MAX / PROPOSAL_BYTES
);

fn check_limits(write: &Write) -> Result<(), CommitError> {
    let len = write.key.len();
    if len == 0 || len > KEY_BYTES_MAX {
        return Err(CommitError::KeyLength { len, max: KEY_BYTES_MAX });
    }
    let len = match &write.change {
        Change::Put(payload) | Change::Delete(Some(payload)) => payload.attributes.len(),
        Change::DeleteStored(attributes) => attributes.len(),
        Change::Delete(None) => 0,
    };
    if len > ATTRIBUTES_BYTES_MAX {
        return Err(CommitError::AttributesTooLarge { len, max: ATTRIBUTES_BYTES_MAX });
    }
    if let Change::Put(payload) | Change::Delete(Some(payload)) = &write.change {
        let len = payload.value.len();
        if len > VALUE_BYTES_MAX {
            return Err(CommitError::ValueTooLarge { len, max: VALUE_BYTES_MAX });
        }
        if let Some(stamp_at) = payload.stamp_at.filter(|&at| at as usize > len) {
            return Err(CommitError::StampOutOfRange { stamp_at, len });
        }
    }
    Ok(())
}
