//! An engine on a simulated disk, with or without threads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::Disk;
use crate::Engine;
use crate::error::{ApplyError, CommitError, OpenError};
use crate::maintenance::Turn;
use crate::options::Options;
use crate::queue::Committed;
use crate::segment::Segment;
use crate::types::{Applied, Revision, Write};
use crate::workers::Workers;

/// Number of events that tails find in memory: a small number, so that tails also read from the log.
const RING_EVENTS_MAX: usize = 16;

/// Opens the store on `disk` without starting a thread: all work is done in turns of the [`Stepper`], on the
/// caller's thread. `options.dir` is ignored, and segments may be as small as two pages.
pub fn open(disk: &Disk, options: &Options) -> Result<(Engine, Stepper), OpenError> {
    let options =
        Options { segment_bytes: options.segment_bytes.max(2 * super::PAGE_BYTES), ..options.clone() };
    let disk = Arc::new(disk.clone());
    let (engine, workers) = Engine::assemble(disk.clone(), disk, &options, RING_EVENTS_MAX)?;
    Ok((engine, Stepper(workers)))
}

/// Opens the store on `disk` with threads, as on a real disk.
pub fn open_with_threads(disk: &Disk, options: &Options) -> Result<Engine, OpenError> {
    let disk = Arc::new(disk.clone());
    Engine::open_on(disk.clone(), disk, options, RING_EVENTS_MAX)
}

/// Polls a future for as long as it wakes itself, and returns its result; `None` if the future is still
/// pending then. Must not be called inside an asynchronous task, where tokio makes a future yield after some
/// time.
pub fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let flag = Arc::new(Flag(AtomicBool::new(true)));
    let waker = Waker::from(flag.clone());
    let mut future = pin!(future);
    while flag.0.swap(false, Ordering::SeqCst) {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
    }
    None
}

/// The workers of an engine, without threads: the caller lets each worker take its turns. Dropping the
/// stepper simulates a process that is killed: nothing more is written.
pub struct Stepper(Workers);

impl Stepper {
    /// Lets the sequencer commit the waiting writes, or check a full disk for room. Returns false once the
    /// engine is closed and no write waits.
    pub fn commit(&mut self) -> bool {
        self.0.sequencer.turn()
    }

    /// Commits a write, together with all waiting writes.
    pub fn write(&mut self, engine: &Engine, write: Write) -> Result<Committed, CommitError> {
        self.answer(engine.commit(write))
    }

    /// Applies a batch of a follower, together with all waiting writes.
    pub fn apply(&mut self, engine: &Engine, batch: Vec<Applied>) -> Result<Revision, ApplyError> {
        self.answer(engine.apply(batch))
    }

    fn answer<T>(&mut self, outcome: impl Future<Output = T>) -> T {
        let mut outcome = pin!(outcome);
        if let Some(outcome) = now(outcome.as_mut()) {
            return outcome;
        }
        // The sequencer may carry out maintenance steps before it answers, so it may need several turns.
        for _ in 0..100 {
            self.commit();
            if let Some(outcome) = now(outcome.as_mut()) {
                return outcome;
            }
        }
        panic!("the sequencer answers every caller that waits");
    }

    /// Lets the keeper do one requested item. Returns false if nothing is requested.
    pub fn keep(&mut self) -> bool {
        let status = &self.0.status;
        let sync = |segment: &Segment, revision| drop(status.sync(segment, revision));
        self.0.keeper.turn(&*self.0.storage, self.0.segment_bytes, &sync)
    }

    /// Lets background maintenance do one piece of work. Returns false if there is no work, or if the
    /// sequencer must carry out a maintenance step first.
    pub fn maintain(&mut self) -> bool {
        self.0.maintenance.turn() == Turn::Worked
    }

    /// Makes background maintenance work as under many concurrent writes: maintenance does not wait for its
    /// steps.
    pub fn assume_many_writers(&mut self) {
        self.0.maintenance.assume_many_writers();
    }

    /// Sets the size of the pieces in which a growing batch is written to the file.
    pub fn hand_over_in_pieces(&mut self, piece_bytes: usize) {
        self.0.sequencer.set_piece_bytes(piece_bytes);
    }

    /// Closes the store as a server does.
    pub fn close(self) {
        let Workers { mut sequencer, keeper, storage, queue, hub, closing, .. } = self.0;
        queue.close();
        while sequencer.turn() {}
        sequencer.finish();
        hub.close();
        keeper.clean_up(&*storage);
        let _ = closing.send(true);
    }
}
