//! Requests of callers to background maintenance, and its progress.
//!
//! `callers → wishes → Requests → Maintenance → Progress → callers`
//!
//! A request is a number that only grows, so any number of callers can share one and no request is lost.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::types::Revision;

/// Requests to background maintenance, and its answers.
pub(crate) struct Requests {
    wanted: Mutex<Wanted>,
    woken: Condvar,
    /// Updated from time to time; see [`Progress`].
    pub progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Wanted {
    /// Revision before which history is to be compacted.
    compact_to: Revision,
    /// Minimum revision of the requested checkpoint.
    checkpoint: Revision,
    /// Number of requests to be notified when there is no work left.
    rests: u64,
    woken: bool,
    stop: bool,
}

/// Progress of background maintenance.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    /// History before this revision is compacted, also in the index, and that is noted on disk.
    pub compacted: Revision,
    /// Revision of the newest checkpoint.
    pub checkpoint: Revision,
    /// Number of requests for notification that are answered: there was no work left after they were made.
    pub rests: u64,
}

impl Requests {
    pub fn new() -> Requests {
        Requests {
            wanted: Mutex::default(),
            woken: Condvar::new(),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    /// Requests that history before `revision` be compacted.
    pub fn compact(&self, revision: Revision) {
        self.want(|wanted| wanted.compact_to = wanted.compact_to.max(revision));
    }

    /// Requests a checkpoint of at least `revision`.
    pub fn checkpoint(&self, revision: Revision) {
        self.want(|wanted| wanted.checkpoint = wanted.checkpoint.max(revision));
    }

    /// Requests a notification when there is no work left. Returns the value of [`Progress::rests`] to wait
    /// for.
    pub fn rest(&self) -> u64 {
        self.want(|wanted| wanted.rests += 1);
        self.wanted.lock().rests
    }

    /// Returns the highest revision before which a caller wants history to be compacted.
    pub fn compact_to(&self) -> Revision {
        self.wanted.lock().compact_to
    }

    /// Returns the highest revision of which a caller wants a checkpoint.
    pub fn wanted_checkpoint(&self) -> Revision {
        self.wanted.lock().checkpoint
    }

    /// Returns the number of requests for a notification.
    pub fn rests(&self) -> u64 {
        self.wanted.lock().rests
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
        self.want(|wanted| wanted.stop = true);
    }

    fn want(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.lock();
        change(&mut wanted);
        wanted.woken = true;
        self.woken.notify_one();
    }

    /// Sleeps until a caller requests something, at most for `nap`. Returns false if maintenance must stop.
    pub(super) fn sleep(&self, nap: Duration) -> bool {
        let mut wanted = self.wanted.lock();
        if !wanted.woken && !wanted.stop {
            self.woken.wait_for(&mut wanted, nap);
        }
        wanted.woken = false;
        !wanted.stop
    }
}
