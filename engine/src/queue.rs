//! What waits for the sequencer: proposals of callers, and chores of the housekeeper.
//!
//! `callers → room → proposals ─┬─► batch → sequencer`
//! `housekeeper → one chore ────┘`
//!
//! Callers wait outside when too much is queued, so memory is bounded by bytes and not by callers. There is at most
//! one chore, and its maker is told when it is done.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, oneshot};

use crate::chores::Chore;
use crate::error::CommitError;
use crate::signature::Signature;
use crate::types::{ATTRIBUTES_BYTES_MAX, Change, Committed, KEY_BYTES_MAX, VALUE_BYTES_MAX, Write};

/// Bytes of proposals that may wait in the queue; callers beyond wait outside. As much again may be in the batch in the
/// making, and in the one being written.
const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a proposal costs in the queue beside its bytes.
const PROPOSAL_BYTES: usize = 4096;
/// Most writes in one batch: they all wait for the last of them to be encoded.
pub(crate) const BATCH_WRITES_MAX: usize = 1024;
/// Proposals that the sequencer is woken for while a batch is being brought to disk: encoding so many takes some ten times
/// as long as waking up.
const PROPOSALS_WOKEN_FOR: usize = 64;

/// A write on its way, and where its answer goes.
pub(crate) struct Proposal {
    pub write: Write,
    /// Of the state written.
    pub signature: Signature,
    pub answer: oneshot::Sender<Result<Committed, CommitError>>,
}

/// Proposals on their way to the sequencer.
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    /// A chore was done, or will not be.
    done: Condvar,
    /// Room in the queue, in units of [`PROPOSAL_BYTES`].
    room: Semaphore,
}

#[derive(Default)]
struct QueueState {
    proposals: VecDeque<Proposal>,
    /// The room they take.
    weight: usize,
    chore: Option<Chore>,
    /// A chore was taken and is not done yet.
    at_chore: bool,
    closed: bool,
    /// The sequencer sleeps and must be woken once so many proposals wait; 0: it is awake.
    wanted: usize,
    /// The last append that was done on the appender's thread.
    appended: u64,
}

impl QueueState {
    /// Whether the sequencer sleeps, which it has to be woken from.
    fn wake(&mut self) -> bool {
        std::mem::take(&mut self.wanted) > 0
    }
}

/// What the sequencer waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// A proposal.
    Proposed,
    /// The end of that append, or proposals enough to be worth waking up for.
    Appended(u64),
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

    /// Hands `write`, signed so, over and returns its outcome. Once it is in the queue it is carried out even if the
    /// future is dropped.
    pub async fn submit(&self, write: Write, signature: Signature) -> Result<Committed, CommitError> {
        check_limits(&write)?;
        let weight = weight(&write);
        let permit = self.room.acquire_many(weight).await.map_err(|_| CommitError::Closed)?;
        let outcome = self.push(write, signature, weight).ok_or(CommitError::Closed)?;
        permit.forget();
        outcome.await.unwrap_or(Err(CommitError::Closed))
    }

    /// Hands `write`, a delete within the limits, over without waiting; `None` when there is no room or no more is
    /// taken.
    pub fn try_submit(&self, write: Write) -> Option<oneshot::Receiver<Result<Committed, CommitError>>> {
        let weight = weight(&write);
        let permit = self.room.try_acquire_many(weight).ok()?;
        let outcome = self.push(write, Signature::NONE, weight)?;
        permit.forget();
        Some(outcome)
    }

    fn push(
        &self,
        write: Write,
        signature: Signature,
        weight: u32,
    ) -> Option<oneshot::Receiver<Result<Committed, CommitError>>> {
        let (answer, outcome) = oneshot::channel();
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.proposals.push_back(Proposal { write, signature, answer });
        state.weight += weight as usize;
        if state.proposals.len() >= state.wanted && state.wake() {
            self.arrived.notify_one();
        }
        Some(outcome)
    }

    /// Asks for `chore`; the one before must be done.
    pub fn ask(&self, chore: Chore) {
        let mut state = self.state.lock();
        debug_assert!(state.chore.is_none() && !state.at_chore, "one chore at a time");
        state.chore = Some(chore);
        if state.wake() {
            self.arrived.notify_one();
        }
    }

    /// Hears that an append is done.
    pub fn appended(&self, number: u64) {
        let mut state = self.state.lock();
        state.appended = number;
        if state.wake() {
            self.arrived.notify_one();
        }
    }

    /// Whether a chore is asked for and not done yet.
    pub fn has_chore(&self) -> bool {
        let state = self.state.lock();
        !state.closed && (state.chore.is_some() || state.at_chore)
    }

    /// Whether it is closed: no chore is done any more, one that was asked for neither.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Waits until there is no chore.
    pub fn wait_for_chore(&self) {
        let mut state = self.state.lock();
        while !state.closed && (state.chore.is_some() || state.at_chore) {
            self.done.wait(&mut state);
        }
    }

    /// Takes the chore, if there is one; [`Queue::chore_done`] has to follow.
    pub fn take_chore(&self) -> Option<Chore> {
        let mut state = self.state.lock();
        let chore = state.chore.take();
        state.at_chore = chore.is_some();
        chore
    }

    /// The chore taken is done but for what is left of it, which is to be taken next.
    pub fn chore_done(&self, left: Option<Chore>) {
        let mut state = self.state.lock();
        state.at_chore = false;
        state.chore = left;
        if state.chore.is_none() {
            self.done.notify_all();
        }
    }

    /// Takes no more proposals; those waiting are still carried out.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.arrived.notify_one();
        self.done.notify_all();
    }

    /// Closes the queue and lets go of what waits in it, whose callers then hear that the store is closed.
    pub fn abandon(&self) {
        self.close();
        let mut state = self.state.lock();
        state.proposals.clear();
        state.weight = 0;
        state.chore = None;
    }

    /// Fills `batch` with what waits, or sleeps until something does, for at most `patience`; a chore counts, and so does
    /// what `until` says. False once the queue is closed and empty.
    pub fn take(&self, batch: &mut VecDeque<Proposal>, until: Until, patience: Option<Duration>) -> bool {
        let mut state = self.state.lock();
        let (wanted, appended) = match until {
            Until::Proposed => (1, u64::MAX),
            Until::Appended(number) => (PROPOSALS_WOKEN_FOR, number),
        };
        while state.proposals.len() < wanted && state.appended < appended && state.chore.is_none() {
            if state.closed {
                break;
            }
            state.wanted = wanted;
            match patience {
                None => self.arrived.wait(&mut state),
                Some(patience) => {
                    if self.arrived.wait_for(&mut state, patience).timed_out() {
                        break;
                    }
                }
            }
        }
        state.wanted = 0;
        if state.closed && state.proposals.is_empty() {
            return false;
        }
        let freed = if batch.is_empty() && state.proposals.len() <= BATCH_WRITES_MAX {
            // The callers wait for this lock: all at once, and what was empty goes back.
            std::mem::swap(batch, &mut state.proposals);
            std::mem::take(&mut state.weight)
        } else {
            let room = BATCH_WRITES_MAX.saturating_sub(batch.len()).min(state.proposals.len());
            let start = batch.len();
            batch.extend(state.proposals.drain(..room));
            let freed = batch.range(start..).map(|proposal| weight(&proposal.write) as usize).sum();
            state.weight -= freed;
            freed
        };
        drop(state);
        self.room.add_permits(freed);
        true
    }
}

fn weight(write: &Write) -> u32 {
    let payload = match &write.change {
        Change::Put(payload) | Change::Delete(Some(payload)) => {
            payload.attributes.len() + payload.value.len()
        }
        Change::Delete(None) => 0,
    };
    // Limits were checked: this is some thousands at most, and the queue has room for it when empty.
    1 + (payload / PROPOSAL_BYTES) as u32
}

fn check_limits(write: &Write) -> Result<(), CommitError> {
    let len = write.key.len();
    if len == 0 || len > KEY_BYTES_MAX {
        return Err(CommitError::KeyLength { len, max: KEY_BYTES_MAX });
    }
    if let Change::Put(payload) | Change::Delete(Some(payload)) = &write.change {
        let len = payload.attributes.len();
        if len > ATTRIBUTES_BYTES_MAX {
            return Err(CommitError::AttributesTooLarge { len, max: ATTRIBUTES_BYTES_MAX });
        }
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
