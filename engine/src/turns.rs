//! The sequencer's turns, and who takes them: a thread of its own, or the caller of a follower's small batch.
//!
//! ```text
//! commit, large batches ─► queue ─► wake the thread ─► turn
//! small batches ─────────► queue ─► turn, where the sequencer is free and need not wait for the disk
//! ```
//!
//! To wake a thread costs more than to write a few records, and so does waking the caller when they are written. Where a sync
//! follows, that hides in it; a follower's records are published without one, since they can be read again elsewhere.

use parking_lot::Mutex;

use crate::commit::{DISK_FULL_RETRY, Sequencer};
use crate::queue::Queue;
use crate::status::StoreStatus;
use crate::types::Applied;
use crate::workers::or_abort;

/// A batch whose records take more is left to the thread: the caller has other tasks to do.
const SMALL_BATCH_BYTES: usize = 64 * 1024;

/// What a record takes in the log beside its key and payload, at most.
const RECORD_BYTES: usize = 256;

/// The sequencer, for one turn at a time. It is not there before the start, and goes when the store is closed.
pub(crate) struct Turns(Mutex<Option<Sequencer>>);

impl Turns {
    pub fn new() -> Turns {
        Turns(Mutex::new(None))
    }

    pub fn start(&self, sequencer: Sequencer) {
        *self.0.lock() = Some(sequencer);
    }

    /// No more turns are taken.
    pub fn stop(&self) {
        *self.0.lock() = None;
    }

    /// Takes turns until the queue is closed and empty, then syncs, and lets the sequencer go. For its thread.
    pub fn run(&self, queue: &Queue, status: &StoreStatus) {
        loop {
            queue.wait(status.disk_is_full().then_some(DISK_FULL_RETRY));
            let mut sequencer = self.0.lock();
            let Some(working) = &mut *sequencer else { return };
            if !working.turn() {
                working.finish();
                *sequencer = None;
                return;
            }
        }
    }

    /// Commits what waits, for the caller of a batch of so many bytes. False where that is left to the thread.
    pub fn try_turn(&self, batch_bytes: usize) -> bool {
        if batch_bytes > SMALL_BATCH_BYTES {
            return false;
        }
        let Some(mut sequencer) = self.0.try_lock() else { return false };
        match &mut *sequencer {
            Some(working) if working.needs_no_disk(SMALL_BATCH_BYTES) => {
                or_abort(|| working.commit_waiting());
                true
            }
            _ => false,
        }
    }
}

/// What a batch takes in the log, at most.
pub(crate) fn batch_bytes(batch: &[Applied]) -> usize {
    batch.iter().map(|applied| RECORD_BYTES + applied.key.len() + applied.payload_bytes()).sum()
}

const _: () = assert!(crate::record::HEAD_BYTES + 64 <= RECORD_BYTES);
