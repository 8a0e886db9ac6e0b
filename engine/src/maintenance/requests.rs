//! Requests of callers to background maintenance, and its progress.
//!
//! `callers → wishes → Requests → Maintenance → Progress → callers`
//!
//! A request is a number that only grows, so several callers can share a request, and no request is lost.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::types::Revision;

/// Requests to background maintenance, and its answers.
pub(crate) struct Requests {
    requested: Mutex<RequestedWork>,
    woken: Condvar,
    /// Updated from time to time; see [`Progress`].
    pub progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct RequestedWork {
    /// Revision before which history must be compacted.
    compact_to: Revision,
    /// Minimum revision of the requested checkpoint.
    checkpoint: Revision,
    /// Number of requests for a notification when there is no work left.
    rests: u64,
    /// Number of reports that the clock was moved.
    clock_moves: u64,
    woken: bool,
    stop: bool,
}

/// Progress of background maintenance.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    /// The index has dropped the history before this revision, and the compaction is noted on disk.
    pub compacted: Revision,
    /// Revision of the newest checkpoint.
    pub checkpoint: Revision,
    /// Number of answered requests for a notification: after these requests were made, there was no work
    /// left.
    pub rests: u64,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            requested: Mutex::default(),
            woken: Condvar::new(),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    /// Requests that history before `revision` be compacted.
    pub fn compact(&self, revision: Revision) {
        self.record(|work| work.compact_to = work.compact_to.max(revision));
    }

    /// Requests a checkpoint of at least `revision`.
    pub fn checkpoint(&self, revision: Revision) {
        self.record(|work| work.checkpoint = work.checkpoint.max(revision));
    }

    /// Requests a notification when there is no work left. Returns the value of [`Progress::rests`] to wait
    /// for.
    pub fn rest(&self) -> u64 {
        self.record(|work| work.rests += 1);
        self.requested.lock().rests
    }

    /// Returns the highest revision before which a caller wants history to be compacted.
    pub fn compact_to(&self) -> Revision {
        self.requested.lock().compact_to
    }

    /// Returns the highest revision for which a caller has requested a checkpoint.
    pub fn requested_checkpoint(&self) -> Revision {
        self.requested.lock().checkpoint
    }

    /// Returns the number of requests for a notification.
    pub fn rests(&self) -> u64 {
        self.requested.lock().rests
    }

    /// Reports that the clock was moved, so that expiry and retention read the new time now.
    pub fn clock_moved(&self) {
        self.record(|work| work.clock_moves += 1);
    }

    /// Returns the number of reports that the clock was moved.
    pub fn clock_moves(&self) -> u64 {
        self.requested.lock().clock_moves
    }

    /// Changes the progress that callers see.
    pub fn update_progress(&self, change: impl FnOnce(&mut Progress)) {
        self.progress.send_if_modified(|progress| {
            let before = *progress;
            change(progress);
            *progress != before
        });
    }

    /// Ends [`Maintenance::run`](super::Maintenance::run).
    pub fn stop(&self) {
        self.record(|work| work.stop = true);
    }

    fn record(&self, change: impl FnOnce(&mut RequestedWork)) {
        let mut work = self.requested.lock();
        change(&mut work);
        work.woken = true;
        self.woken.notify_one();
    }

    /// Sleeps until a caller requests something, at most for `nap`. Returns false if maintenance must stop.
    pub(super) fn sleep(&self, nap: Duration) -> bool {
        let mut work = self.requested.lock();
        if !work.woken && !work.stop {
            self.woken.wait_for(&mut work, nap);
        }
        work.woken = false;
        !work.stop
    }
}
