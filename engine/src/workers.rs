//! The threads of an open store and how they end: the sequencer, the keeper and maintenance.
//!
//! ```text
//! Engine ─ queue ─► sequencer ─ wishes ─► keeper
//!                    ▲ │ └─ the queue is closed and empty ─► tails end, the others end, storage is released,
//!            steps ──┘ └─ roots ─► maintenance                callers of close are notified
//! ```
//!
//! Each worker does its work in turns and sleeps between them. In a server each worker has a thread, and a
//! panic in one of them ends the process. A simulation takes the turns itself, so that their order follows
//! from a seed.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::abort::or_abort;
use crate::commit::Sequencer;
use crate::io::Storage;
use crate::log::Keeper;
use crate::maintenance::{Maintenance, Requests};
use crate::platform;
use crate::queue::Queue;
use crate::segment::Segment;
use crate::status::StoreStatus;
use crate::turns::Turns;
use crate::watch::Hub;

/// Levels by which the priority of background maintenance is lower: if other threads need the processor, maintenance gets a third of
/// their share. With a much smaller share, maintenance would fall behind the writers.
const MAINTENANCE_NICE: i32 = 5;

/// The workers of an open store before they are started.
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
    /// Set to `true` once all workers have ended and the storage is released.
    pub closing: tokio::sync::watch::Sender<bool>,
}

impl Workers {
    /// Starts a thread for each worker. The threads end when the queue is closed and empty; the returned
    /// thread ends last.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let keeper_thread = {
            let (keeper, storage, status) = (self.keeper.clone(), self.storage.clone(), self.status.clone());
            let segment_bytes = self.segment_bytes;
            let run = move || {
                // The status records a failure, and the next write reports it.
                let sync = |segment: &Segment, revision| drop(status.sync(segment, revision));
                or_abort(|| keeper.run(&*storage, segment_bytes, sync));
            };
            std::thread::Builder::new().name("engine-keeper".into()).spawn(run)?
        };
        // These handles end the threads that are already running if a later thread cannot be started.
        let (keeper, requests, turns) = (self.keeper.clone(), self.requests.clone(), self.turns.clone());
        let maintain = move || {
            platform::lower_priority(MAINTENANCE_NICE);
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
            // Dropping the storage releases the lock before the callers of close are notified.
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
