//! Bringing a batch to disk while the next one is made.
//!
//! ```text
//! sequencer ─ begin ─► one append ─► thread: allocate, write, sync ─► outcome ─► sequencer, which the queue wakes
//! ```
//!
//! There is at most one append under way, and all that is done here is done to the disk: what the batch means, when it is
//! published and who is answered is the sequencer's. An append is begun only after the one before succeeded, so a
//! failure never has anything of a later batch behind it on the disk.
//!
//! The thread is a help and not a need: whoever waits for an append that nobody has begun carries it out. A simulation
//! has no thread and takes its turns when it likes.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::Refusal;
use crate::io::is_disk_full;
use crate::log::Stretch;
use crate::queue::Queue;
use crate::sabotage;
use crate::types::Durability;
use crate::vitals::{Vitals, log_failed, refusal};

/// A batch on its way to disk.
pub(crate) struct Append {
    /// Where it goes.
    pub stretch: Stretch,
    pub bytes: Arc<Vec<u8>>,
    /// The last revision in it.
    pub revision: u64,
    pub durability: Durability,
}

impl Append {
    /// Brings it to disk, or with relaxed durability to the operating system. When the disk is full nothing of it is left
    /// there.
    pub fn carry_out(self, vitals: &Vitals) -> Result<(), Refusal> {
        let Append { stretch, bytes, revision, durability } = self;
        stretch.allocate().map_err(|error| refusal("write", &error))?;
        if let Err(error) = stretch.write(&bytes) {
            return Err(taken_back(&stretch, &error));
        }
        match durability {
            Durability::Sync if !sabotage::ack_before_sync() => vitals.sync(&stretch.segment, revision),
            Durability::Sync | Durability::Relaxed => Ok(()),
        }
    }
}

/// Only a file system that copies on write can be full when blocks are there. Nobody may ever see a refused write, so
/// whatever part of it was written has to be gone before the refusal is told.
fn taken_back(stretch: &Stretch, error: &io::Error) -> Refusal {
    if is_disk_full(error) && (sabotage::refused_write_left() || stretch.erase().is_ok()) {
        return Refusal::DiskFull;
    }
    log_failed("write", error)
}

/// The place of the one append under way.
pub(crate) struct Appender {
    state: Mutex<State>,
    /// There is something to do, or never will be again.
    asked: Condvar,
    /// It is done.
    done: Condvar,
    /// Whether what was begun is done: looked at all the time.
    is_done: AtomicBool,
    vitals: Arc<Vitals>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct State {
    stage: Stage,
    /// Appends begun so far; the last of them is the one under way.
    number: u64,
    stop: bool,
}

#[derive(Default)]
enum Stage {
    #[default]
    Resting,
    Asked(Append),
    UnderWay,
    Done(Result<(), Refusal>),
}

impl Appender {
    /// One that tells `queue` of each append that its thread has done.
    pub fn new(vitals: Arc<Vitals>, queue: Arc<Queue>) -> Appender {
        Appender {
            state: Mutex::default(),
            asked: Condvar::new(),
            done: Condvar::new(),
            is_done: AtomicBool::new(false),
            vitals,
            queue,
        }
    }

    /// Has `append` carried out; [`Appender::wait`] has to follow. Returns its number, by which the queue knows it.
    pub fn begin(&self, append: Append) -> u64 {
        let mut state = self.state.lock();
        debug_assert!(matches!(state.stage, Stage::Resting), "one append at a time");
        state.stage = Stage::Asked(append);
        self.is_done.store(false, Ordering::Release);
        state.number += 1;
        self.asked.notify_one();
        state.number
    }

    /// Whether the append under way is done. Costs nothing.
    pub fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Waits for the append that was begun and returns its outcome. It has let go of its bytes by then.
    pub fn wait(&self) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        loop {
            match std::mem::take(&mut state.stage) {
                Stage::Asked(append) => {
                    drop(state);
                    return append.carry_out(&self.vitals);
                }
                Stage::Done(outcome) => return outcome,
                under_way => {
                    debug_assert!(matches!(under_way, Stage::UnderWay), "nothing was begun");
                    state.stage = under_way;
                    self.done.wait(&mut state);
                }
            }
        }
    }

    /// Carries out what is begun until stopped.
    pub fn run(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            if !self.carry_out_one(&mut state) {
                self.asked.wait(&mut state);
            }
        }
    }

    /// Carries out what was begun, without a thread; false when nothing was.
    #[cfg(feature = "fault")]
    pub fn turn(&self) -> bool {
        self.carry_out_one(&mut self.state.lock())
    }

    /// Ends [`Appender::run`], once nobody begins anything any more.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.asked.notify_one();
    }

    fn carry_out_one(&self, state: &mut MutexGuard<'_, State>) -> bool {
        let append = match std::mem::replace(&mut state.stage, Stage::UnderWay) {
            Stage::Asked(append) => append,
            other => {
                state.stage = other;
                return false;
            }
        };
        let number = state.number;
        let outcome = MutexGuard::unlocked(state, || {
            // A broken invariant must not leave the sequencer waiting.
            let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| append.carry_out(&self.vitals)));
            outcome.unwrap_or_else(|_| Err(self.vitals.gave_up()))
        });
        state.stage = Stage::Done(outcome);
        self.is_done.store(true, Ordering::Release);
        self.done.notify_one();
        MutexGuard::unlocked(state, || self.queue.appended(number));
        true
    }
}
