//! The threads of an open store, and how they end: the sequencer, and beside it the keeper and maintenance.
//!
//! ```text
//! Engine ─ queue ─► sequencer ─ wishes ─► keeper
//!                    ▲ │ └─ the queue is closed and empty ─► tails end, the others end, storage is released,
//!            steps ──┘ └─ roots ─► maintenance                callers of close are notified
//! ```
//!
//! Each worker does its work in turns and sleeps between them. In a server each has a thread, and a panic in one ends the
//! process; a simulation takes the turns itself, so that their order follows from a seed.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::commit::Sequencer;
use crate::io::Storage;
use crate::log::Keeper;
use crate::maintenance::{Maintenance, Requests};
use crate::queue::Queue;
use crate::segment::Segment;
use crate::status::StoreStatus;
use crate::turns::Turns;
use crate::watch::Hub;

/// How far background maintenance stands back when others want the processor: its share is a third of theirs. Far less and it
/// would fall behind those who give it work.
const MAINTENANCE_NICE: i32 = 5;

/// What works for an open store, not yet at work.
pub(crate) struct Workers {
    pub sequencer: Sequencer,
    pub turns: Arc<Turns>,
    pub keeper: Arc<Keeper>,
    pub maintenance: Maintenance,
    pub requests: Arc<Requests>,
    pub storage: Arc<dyn Storage>,
    pub segment_bytes: u64,
    pub queue: Arc<Queue>,
    pub hub: Arc<Hub>,
    pub status: Arc<StoreStatus>,
    /// Hears `true` once nothing works any more and the storage is given free.
    pub closing: tokio::sync::watch::Sender<bool>,
}

impl Workers {
    /// Gives each worker a thread. They end when the queue is closed and empty; the thread returned is the last
    /// of them.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let keeper_thread = {
            let (keeper, storage, status) = (self.keeper.clone(), self.storage.clone(), self.status.clone());
            let segment_bytes = self.segment_bytes;
            let run = move || {
                // A failure is noted, and met by the next write.
                let sync = |segment: &Segment, revision| drop(status.sync(segment, revision));
                or_abort(|| keeper.run(&*storage, segment_bytes, sync));
            };
            std::thread::Builder::new().name("engine-keeper".into()).spawn(run)?
        };
        // What ends the threads that run already, when a later one cannot be started.
        let (keeper, requests, turns) = (self.keeper.clone(), self.requests.clone(), self.turns.clone());
        let maintain = move || {
            // On Linux this is about the thread that calls it. Where it is refused, commits wait a little longer.
            let _ = rustix::process::setpriority_process(None, MAINTENANCE_NICE);
            or_abort(|| self.maintenance.run());
        };
        let maintenance_thread = std::thread::Builder::new().name("engine-maintain".into()).spawn(maintain);
        let maintenance_thread = maintenance_thread.inspect_err(|_| keeper.stop())?;
        self.turns.start(self.sequencer);
        let run = move || {
            or_abort(|| self.turns.run(&self.queue, &self.status));
            self.queue.abandon();
            self.hub.close();
            self.keeper.stop();
            self.requests.stop();
            let _ = keeper_thread.join();
            let _ = maintenance_thread.join();
            // The lock goes with the storage, before callers hear that the store is closed.
            drop(self.storage);
            let _ = self.closing.send(true);
        };
        let spawned = std::thread::Builder::new().name("engine-commit".into()).spawn(run);
        spawned.inspect_err(|_| {
            turns.stop();
            keeper.stop();
            requests.stop();
        })
    }
}

/// Ends the process when `work` panics: an invariant is broken, and what the store would say or write from here on
/// cannot be trusted. What was acknowledged is on disk, and opening recovers it.
pub(crate) fn or_abort<T>(work: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!(
            "an invariant of the store is broken; the process ends, and a restart recovers the store"
        );
        std::process::abort()
    })
}
