//! Store status: the log's stages, counters, and the reason why writes are refused, if they are.
//!
//! The sequencer, the keeper and maintenance write the status; readers get each value as of some moment. All
//! syncs of the log go through the status, one at a time, so that a failed sync is reported once and stops
//! all later syncs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::error::Refusal;
use crate::sabotage;
use crate::segment::Segment;
use crate::stages::Stages;
use crate::types::{CommitTime, Revision};

/// The state of the sequencer that other components may read.
pub(crate) struct StoreStatus {
    stages: Mutex<Stages>,
    pub batches: AtomicU64,
    pub commits: AtomicU64,
    /// Bytes of the records of committed writes.
    pub committed_bytes: AtomicU64,
    /// Keys deleted because of their expiry.
    pub expired: AtomicU64,
    /// Time of the newest record, in milliseconds since 1970.
    pub time_ms: AtomicU64,
    /// Bytes that reclamation has written since the store was opened.
    pub rewritten_bytes: AtomicU64,
    /// Whether every write is refused until the store is opened again.
    has_failed: AtomicBool,
    /// Notified when `has_failed` becomes true.
    failure: Notify,
    /// Reason why writes are refused at present.
    pub refusal: Mutex<Option<Refusal>>,
    /// Locked during a sync of the log, before the lock of `refusal`.
    syncing: Mutex<()>,
    /// Revision of the newest delete on a full disk. Reclamation must free the space of the deleted states
    /// as soon as possible.
    deleted_on_full: AtomicU64,
    /// Whether an essential write was refused on a full disk since this flag was last read.
    essential_refused: AtomicBool,
    /// Incremented when reclamation may have made room, and periodically while the disk is full.
    room_looks: watch::Sender<u64>,
}

/// The urgency with which space is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shortage {
    /// No shortage: history is kept as long as configured.
    None,
    /// Keys were deleted on a full disk, and the history that contains their states is not compacted yet.
    Deleted,
    /// An essential write was refused on a full disk.
    Exhausted,
}

impl StoreStatus {
    /// Returns the status of a store with the given log stages, whose newest record has the given time.
    pub fn new(stages: Stages, time: CommitTime) -> StoreStatus {
        StoreStatus {
            stages: Mutex::new(stages),
            batches: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            committed_bytes: AtomicU64::new(0),
            expired: AtomicU64::new(0),
            time_ms: AtomicU64::new(time.ms()),
            rewritten_bytes: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            failure: Notify::new(),
            refusal: Mutex::default(),
            syncing: Mutex::default(),
            deleted_on_full: AtomicU64::new(0),
            essential_refused: AtomicBool::new(false),
            room_looks: watch::Sender::new(0),
        }
    }

    /// Returns the stages that the log has reached.
    pub fn stages(&self) -> Stages {
        *self.stages.lock()
    }

    /// Makes one transition between the log's stages. Panics if the transition breaks their order.
    pub fn advance(&self, transition: impl FnOnce(&mut Stages)) {
        self.stages.lock().advance(transition);
    }

    /// Returns the newest revision that is known durable.
    pub fn synced(&self) -> Revision {
        self.stages.lock().synced
    }

    /// Notes that writes are refused. A permanent refusal is never replaced.
    pub fn refuse(&self, refusal: Refusal) {
        let mut current = self.refusal.lock();
        if matches!(&*current, Some(Refusal::LogFailed { .. })) || current.as_ref() == Some(&refusal) {
            return;
        }
        let mut failed = false;
        match &refusal {
            Refusal::Follower => return,
            Refusal::DiskFull => tracing::warn!("writes are refused: {refusal}"),
            Refusal::LogFailed { .. } => {
                tracing::error!("writes are refused: {refusal}");
                self.has_failed.store(true, Ordering::Release);
                failed = true;
            }
        }
        *current = Some(refusal);
        drop(current);
        if failed {
            self.failure.notify_waiters();
        }
    }

    /// Syncs `segment`, after which everything up to `revision` is durable. Syncs run one at a time, and no
    /// sync runs after a failed one. A failure is reported by exactly one sync; the syncs that follow return
    /// the same refusal.
    pub fn sync(&self, segment: &Segment, revision: Revision) -> Result<(), Refusal> {
        let _alone = self.syncing.lock();
        if let Some(refusal) = self.failed() {
            return Err(refusal);
        }
        let synced = segment.file.sync_data().map_err(|error| Refusal::log_failed("sync", &error));
        match &synced {
            Ok(()) => self.advance(|stages| stages.synced = stages.synced.max(revision)),
            Err(refusal) => self.refuse(refusal.clone()),
        }
        synced
    }

    /// Returns the reason if every write is refused until the store is opened again.
    pub fn failed(&self) -> Option<Refusal> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        let refusal = self.refusal.lock().clone();
        refusal.filter(|refusal| {
            matches!(refusal, Refusal::LogFailed { .. }) && !sabotage::writes_after_failed_sync()
        })
    }

    /// Resolves with the reason once every write is refused until the store is opened again.
    pub async fn log_failed(&self) -> Refusal {
        loop {
            // The notification is registered before the check, so that a failure after the check is not
            // missed.
            let failure = self.failure.notified();
            if let Some(refusal) = self.failed() {
                return refusal;
            }
            failure.await;
        }
    }

    pub fn disk_is_full(&self) -> bool {
        matches!(&*self.refusal.lock(), Some(Refusal::DiskFull))
    }

    pub fn resume_writes(&self) {
        let mut current = self.refusal.lock();
        if matches!(&*current, Some(Refusal::DiskFull)) {
            tracing::info!("the store's disk has free space again, writes resume");
            *current = None;
        }
    }

    /// Notes that a key was deleted on a full disk, at `revision`.
    pub fn note_deleted_on_full(&self, revision: Revision) {
        self.deleted_on_full.fetch_max(revision.get(), Ordering::AcqRel);
    }

    /// Notes that an essential write was refused on a full disk.
    pub fn note_essential_refused(&self) {
        self.essential_refused.store(true, Ordering::Release);
    }

    /// Returns how urgently space is needed, if history before `oldest` is compacted already. Each refused
    /// essential write leads to at most one [`Shortage::Exhausted`].
    pub fn take_shortage(&self, oldest: Revision) -> Shortage {
        if self.essential_refused.swap(false, Ordering::AcqRel) {
            return Shortage::Exhausted;
        }
        if Revision::new(self.deleted_on_full.load(Ordering::Acquire)) > oldest {
            Shortage::Deleted
        } else {
            Shortage::None
        }
    }

    /// Wakes the writes that wait for room, so that they try again.
    pub fn note_room_look(&self) {
        self.room_looks.send_modify(|looks| *looks += 1);
    }

    /// Returns a receiver that changes whenever a write refused for lack of room may be tried again.
    pub fn room_looks(&self) -> watch::Receiver<u64> {
        self.room_looks.subscribe()
    }
}
