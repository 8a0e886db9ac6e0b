//! Store status: the log's stages, counters, and the reason why writes are refused, if they are.
//!
//! The sequencer, the keeper and maintenance write it; readers take each value as of some moment. Syncs of the log go
//! through it one at a time, so that a failed sync is reported once and stops all later ones.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::error::Refusal;
use crate::sabotage;
use crate::segment::Segment;
use crate::stages::Stages;
use crate::types::{CommitTime, Revision};

/// What others may know about the sequencer's state.
pub(crate) struct StoreStatus {
    stages: Mutex<Stages>,
    pub batches: AtomicU64,
    pub commits: AtomicU64,
    /// Bytes of their records.
    pub committed_bytes: AtomicU64,
    /// Keys deleted because their time was over.
    pub expired: AtomicU64,
    /// Time of the newest record, in milliseconds since 1970.
    pub time_ms: AtomicU64,
    /// Bytes that reclaim has written since the store was opened.
    pub rewritten_bytes: AtomicU64,
    /// Whether every write will be refused until the store is opened again.
    has_failed: AtomicBool,
    /// Notified when `has_failed` becomes true.
    failure: Notify,
    /// Why writes are refused at present.
    pub refusal: Mutex<Option<Refusal>>,
    /// Held during a sync of the log, before the lock of `refusal`.
    syncing: Mutex<()>,
    /// The newest delete on a full disk: the space of the deleted states is wanted as soon as possible.
    deleted_on_full: AtomicU64,
    /// On a full disk an essential write was refused since this was looked at.
    essential_refused: AtomicBool,
    /// Raised when room may have been made, and now and then while the disk is full.
    room_looks: watch::Sender<u64>,
}

/// How urgently space is needed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shortage {
    /// History is kept as long as configured.
    None,
    /// Keys were deleted on a full disk, and their states are history that is not forgotten yet.
    Deleted,
    /// An essential write was refused on a full disk.
    Exhausted,
}

impl StoreStatus {
    /// Of a store whose log has come so far, and whose newest record has that time.
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

    /// How far the log has come.
    pub fn stages(&self) -> Stages {
        *self.stages.lock()
    }

    /// Makes one transition between the log's stages. Panics when it breaks their order.
    pub fn advance(&self, transition: impl FnOnce(&mut Stages)) {
        self.stages.lock().advance(transition);
    }

    /// Newest revision known to be on stable storage.
    pub fn synced(&self) -> Revision {
        self.stages.lock().synced
    }

    /// Notes that writes are refused. What is permanent stays.
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

    /// Syncs `segment`, after which everything up to `revision` is on disk. One at a time, and none after one that
    /// failed: a failure is reported once, to one of those who sync, and the others hear of success.
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

    /// Why every write will be refused until the store is opened again.
    pub fn failed(&self) -> Option<Refusal> {
        if !self.has_failed.load(Ordering::Acquire) {
            return None;
        }
        let refusal = self.refusal.lock().clone();
        refusal.filter(|refusal| {
            matches!(refusal, Refusal::LogFailed { .. }) && !sabotage::writes_after_failed_sync()
        })
    }

    /// Resolves once every write will be refused until the store is opened again. Returns why.
    pub async fn log_failed(&self) -> Refusal {
        loop {
            // Made before the look, so that a failure after it is not missed.
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

    pub fn room_again(&self) {
        let mut current = self.refusal.lock();
        if matches!(&*current, Some(Refusal::DiskFull)) {
            tracing::info!("there is room on the store's disk again; writes resume");
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

    /// How urgently history before `oldest` or later is to be forgotten. A refused essential write is reported once.
    pub fn take_shortage(&self, oldest: Revision) -> Shortage {
        if self.essential_refused.swap(false, Ordering::AcqRel) {
            return Shortage::Exhausted;
        }
        match Revision::new(self.deleted_on_full.load(Ordering::Acquire)) > oldest {
            true => Shortage::Deleted,
            false => Shortage::None,
        }
    }

    /// Has those look again who wait for room.
    pub fn note_room_look(&self) {
        self.room_looks.send_modify(|looks| *looks += 1);
    }

    /// Changes whenever a write that was refused for lack of room may be tried again.
    pub fn room_looks(&self) -> watch::Receiver<u64> {
        self.room_looks.subscribe()
    }
}
