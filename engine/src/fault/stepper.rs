//! An engine on a simulated disk, with threads or without.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::Disk;
use crate::Engine;
use crate::error::{ApplyError, CommitError, OpenError};
use crate::maintenance::Turn;
use crate::segment::Segment;
use crate::types::{Applied, Committed, Options, Revision, Write};
use crate::workers::Workers;

/// Events that tails find in memory: few, so that they read from the log as well.
const RING_EVENTS_MAX: usize = 16;

/// Opens the store on `disk` without starting anything: whatever happens happens in a turn of the [`Stepper`], on
/// the caller's thread. `options.dir` is not looked at, and segments may be as small as two pages.
pub fn open(disk: &Disk, options: &Options) -> Result<(Engine, Stepper), OpenError> {
    let options =
        Options { segment_bytes: options.segment_bytes.max(2 * super::PAGE_BYTES), ..options.clone() };
    let disk = Arc::new(disk.clone());
    let (engine, workers) = Engine::assemble(disk.clone(), disk, &options, RING_EVENTS_MAX)?;
    Ok((engine, Stepper(workers)))
}

/// Opens the store on `disk` as it is opened on a real one.
pub fn open_with_threads(disk: &Disk, options: &Options) -> Result<Engine, OpenError> {
    let disk = Arc::new(disk.clone());
    Engine::open_on(disk.clone(), disk, options, RING_EVENTS_MAX)
}

/// The result of a future that is ready, or becomes so when it is asked again at once. Not for use inside of an
/// asynchronous task: there tokio wants to be given way after a while.
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

/// Takes the turns that threads take in a server. Dropping it is the end of a process that is killed: nothing more
/// is written.
pub struct Stepper(Workers);

impl Stepper {
    /// The sequencer commits what waits, or looks for room on a full disk. False once the engine is closed and
    /// nothing waits.
    pub fn commit(&mut self) -> bool {
        self.0.sequencer.turn()
    }

    /// Commits a write, together with whatever waits.
    pub fn write(&mut self, engine: &Engine, write: Write) -> Result<Committed, CommitError> {
        self.answer(engine.commit(write))
    }

    /// Applies a batch of a follower, together with whatever waits.
    pub fn apply(&mut self, engine: &Engine, batch: Vec<Applied>) -> Result<Revision, ApplyError> {
        self.answer(engine.apply(batch))
    }

    fn answer<T>(&mut self, outcome: impl Future<Output = T>) -> T {
        let mut outcome = pin!(outcome);
        if let Some(outcome) = now(outcome.as_mut()) {
            return outcome;
        }
        // Maintenance steps have their turn first.
        for _ in 0..100 {
            self.commit();
            if let Some(outcome) = now(outcome.as_mut()) {
                return outcome;
            }
        }
        panic!("the sequencer answers every caller that waits");
    }

    /// The keeper does one of the things wished of it; false when nothing is.
    pub fn keep(&mut self) -> bool {
        let status = &self.0.status;
        let sync = |segment: &Segment, revision| drop(status.sync(segment, revision));
        self.0.keeper.turn(&*self.0.storage, self.0.segment_bytes, &sync)
    }

    /// Background maintenance does one piece of work; false when there is nothing to do, or a maintenance step that the sequencer has to
    /// do first.
    pub fn maintain(&mut self) -> bool {
        self.0.maintenance.turn() == Turn::Worked
    }

    /// From now on background maintenance works as where many write at once: it does not wait for its maintenance steps.
    pub fn press(&mut self) {
        self.0.maintenance.press();
    }

    /// From now on batches of more than so many bytes are in the file in part while they grow.
    pub fn hand_over_in_pieces(&mut self, piece_bytes: usize) {
        self.0.sequencer.set_piece_bytes(piece_bytes);
    }

    /// Closes the store in the way a server does.
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
