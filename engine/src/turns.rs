//! Turns of the sequencer. The sequencer's own thread takes the turns. A caller that applies a small batch to
//! a follower may take a turn itself.
//!
//! ```text
//! commit, large batches ─► queue ─► wake the thread ─► turn
//! small batches ─────────► queue ─► turn, if the sequencer is free and need not wait for the disk
//! ```
//!
//! Waking a thread costs more than writing a few records, and waking the caller after the write costs as much
//! again. If a sync follows, it takes much longer than the two wake-ups. A follower's records are published
//! without a sync, because they can be read again from the store that it follows.

use parking_lot::Mutex;

use crate::abort::or_abort;
use crate::commit::{DISK_FULL_RETRY, Sequencer};
use crate::queue::Queue;
use crate::status::StoreStatus;
use crate::types::Applied;

/// Maximum size of a batch that its caller writes itself. A larger batch is left to the thread, because the
/// caller has other tasks to do.
const SMALL_BATCH_BYTES: usize = 64 * 1024;

/// Maximum size of a record in the log in addition to its key and payload.
const RECORD_BYTES: usize = 256;

/// The sequencer, locked for one turn at a time; absent before the start and after the store is closed.
pub(crate) struct Turns(Mutex<Option<Sequencer>>);

impl Turns {
    pub fn new() -> Turns {
        Turns(Mutex::new(None))
    }

    pub fn start(&self, sequencer: Sequencer) {
        *self.0.lock() = Some(sequencer);
    }

    /// Removes the sequencer, so that no more turns are taken.
    pub fn stop(&self) {
        *self.0.lock() = None;
    }

    /// Takes turns until the queue is closed and empty, then syncs and drops the sequencer. Called by the
    /// sequencer's thread.
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

    /// Commits the waiting proposals on the thread of a caller whose batch has `batch_bytes`. Returns false
    /// if the sequencer's thread must do this instead.
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

/// Returns the maximum size of a batch in the log.
pub(crate) fn batch_bytes(batch: &[Applied]) -> usize {
    batch.iter().map(|applied| RECORD_BYTES + applied.key.len() + applied.payload_bytes()).sum()
}

const _: () = assert!(crate::record::HEAD_BYTES + 64 <= RECORD_BYTES);
