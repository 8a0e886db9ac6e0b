//! Requests of callers to background maintenance, and its progress.
//!
//! `callers → wishes → Requests → Maintenance → Progress → callers`
//!
//! A wish is a number that only grows, so that any number of callers can share one and none is lost.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::types::Revision;

/// What others ask of background maintenance, and hear from it.
pub(crate) struct Requests {
    wanted: Mutex<Wanted>,
    woken: Condvar,
    /// Raised from time to time; see [`Progress`].
    pub progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Wanted {
    /// History before this revision is to be forgotten.
    compact_to: Revision,
    /// A checkpoint of at least this revision is to be written.
    checkpoint: Revision,
    /// How often a caller asked to be told when there is nothing left to do.
    rests: u64,
    woken: bool,
    stop: bool,
}

/// How far background maintenance is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Progress {
    /// History before this revision is forgotten, in the index as well, and that is noted on disk.
    pub compacted: Revision,
    /// Revision of the newest checkpoint.
    pub checkpoint: Revision,
    /// So many that asked for it could have been told that there is nothing left to do.
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

    /// Asks that history before `revision` be forgotten.
    pub fn compact(&self, revision: Revision) {
        self.want(|wanted| wanted.compact_to = wanted.compact_to.max(revision));
    }

    /// Asks for a checkpoint of at least `revision`.
    pub fn checkpoint(&self, revision: Revision) {
        self.want(|wanted| wanted.checkpoint = wanted.checkpoint.max(revision));
    }

    /// Asks to be told when there is nothing left to do; returns which rest to wait for.
    pub fn rest(&self) -> u64 {
        self.want(|wanted| wanted.rests += 1);
        self.wanted.lock().rests
    }

    /// The highest revision before which a caller wants history to be forgotten.
    pub fn compact_to(&self) -> Revision {
        self.wanted.lock().compact_to
    }

    /// The highest revision of which a caller wants a checkpoint.
    pub fn wanted_checkpoint(&self) -> Revision {
        self.wanted.lock().checkpoint
    }

    /// How often a caller asked to be told when there is nothing left to do.
    pub fn rests(&self) -> u64 {
        self.wanted.lock().rests
    }

    /// Changes the progress that callers see.
    pub fn tell(&self, change: impl FnOnce(&mut Progress)) {
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

    /// Sleeps until a caller asks for something, for at most `nap`. False when it is to stop.
    pub(super) fn sleep(&self, nap: Duration) -> bool {
        let mut wanted = self.wanted.lock();
        if !wanted.woken && !wanted.stop {
            self.woken.wait_for(&mut wanted, nap);
        }
        wanted.woken = false;
        !wanted.stop
    }
}
