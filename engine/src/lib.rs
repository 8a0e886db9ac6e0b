//! A revision log: a store of keys and values under one global order of revisions, in which every retained
//! revision stays readable.
//!
//! ```text
//! commit ─► queue ─► sequencer ────────► segment file ─► sync ─► publish root ─┬─► snapshots (reads)
//!                    check, stamp, encode                                      └─► tails (watches)
//! ```
//!
//! A single writer assigns revisions. Readers hold an immutable root of a copy-on-write B-tree and read
//! values as slices of mapped files. A tail replays the log and then follows it. `docs/format.md` describes
//! the layout of the files. This crate handles bytes, revisions and files; it does not interpret the bytes.

mod abort;
mod append;
mod applied;
mod assemble;
mod backup;
mod bloom;
mod chain;
mod checkpoint;
mod commit;
mod compaction;
mod decide;
mod entry;
mod error;
mod event;
mod expiry;
#[cfg(feature = "fault")]
pub mod fault;
mod header;
mod high_water;
mod history;
mod idle;
mod index;
mod io;
mod last_change;
mod ledger;
mod log;
mod losses;
mod maintenance;
pub mod offline;
mod options;
mod platform;
mod points;
mod queue;
mod reclaim;
mod record;
mod recovery;
mod reserve;
mod sabotage;
mod seal;
mod segment;
mod segments;
mod snapshot;
mod stages;
mod stats;
mod status;
mod steps;
#[cfg(test)]
mod testing;
mod throttle;
mod time;
mod transfer;
mod turns;
mod types;
mod watch;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use parking_lot::Mutex;

pub use crate::backup::Outgoing;
pub use crate::bloom::{BloomFilter, BloomQuery, BloomScheme};
pub use crate::entry::{Entry, ReadError};
pub use crate::error::{
    ApplyError, BackupError, CommitError, CompactError, OpenError, Refusal, SnapshotError, TailError,
};
pub use crate::event::{Event, MEMO_SLOTS, Memo};
use crate::expiry::Expiry;
use crate::high_water::HighWater;
use crate::io::{Clock, Dir, Storage, SystemClock};
pub use crate::last_change::LastChange;
use crate::losses::LossRegistry;
pub use crate::losses::{LEDGER_KEY, LossCounts, LossReport, Losses, RevisionSet};
use crate::maintenance::{Progress, Requests};
pub use crate::options::Options;
pub use crate::points::OldestPoint;
pub use crate::queue::Committed;
use crate::queue::Queue;
pub use crate::record::{EventKind, Record};
pub use crate::seal::{OpenedValue, Seal, SealError};
pub use crate::snapshot::{ChangedKey, FilteredScan, RangeScan, Snapshot};
pub use crate::stats::Stats;
use crate::status::StoreStatus;
use crate::transfer::HeldSegment;
use crate::turns::Turns;
pub use crate::types::{
    APPLIED_BYTES_MAX, APPLIED_RECORDS_MAX, ATTRIBUTES_BYTES_MAX, Applied, Change, Durability, Expected,
    KEY_BYTES_MAX, KeyRange, Payload, Revision, Role, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN, VALUE_BYTES_MAX, Write,
};
use crate::watch::Hub;
pub use crate::watch::Tail;

/// Maximum time that an essential write waits for room on a full disk, and the maximum number of attempts.
/// The store attempts the write again once a second and whenever reclamation has freed space.
const ESSENTIAL_ROOM_WAIT: Duration = Duration::from_secs(10);
const ESSENTIAL_ROOM_LOOKS_MAX: u32 = 40;

/// An open store. Clones are handles to the same store. Dropping the last handle closes the store as
/// [`Engine::close`] does; the drop waits only for the writes in progress.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    turns: Arc<Turns>,
    hub: Arc<Hub>,
    status: Arc<StoreStatus>,
    expiry: Arc<Expiry>,
    requests: Arc<Requests>,
    /// Whether the store has a reserve for a full disk. The reserve itself is not kept here because it holds
    /// the directory's lock.
    has_reserve: bool,
    lost_revisions: u64,
    losses: Arc<LossRegistry>,
    high_water: Arc<HighWater>,
    durability: Durability,
    bloom_scheme: BloomScheme,
    role: Role,
    closed: tokio::sync::watch::Receiver<bool>,
    /// The worker thread that ends last.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Opens the store in `options.dir`, creates it if it does not exist, and recovers from a crash.
    ///
    /// Opening reads the newest sound checkpoint and the log after it. Without a checkpoint it reads the
    /// whole log: about one second for each gigabyte that is in the page cache, otherwise as fast as the disk
    /// allows.
    pub fn open(options: Options) -> Result<Engine, OpenError> {
        if let Some(replaced) = offline::interrupted(&options.dir) {
            return Err(OpenError::Interrupted { dir: options.dir, replaced });
        }
        let failed = |operation, source| OpenError::Io { path: options.dir.clone(), operation, source };
        let dir = Dir::open(&options.dir).map_err(|(operation, source)| failed(operation, source))?;
        let dir = dir.ok_or_else(|| OpenError::InUse { dir: options.dir.clone() })?;
        Engine::open_on(Arc::new(dir), Arc::new(SystemClock), &options, watch::RING_EVENTS_MAX)
    }

    fn open_on(
        storage: Arc<dyn Storage>,
        clock: Arc<dyn Clock>,
        options: &Options,
        ring_events_max: usize,
    ) -> Result<Engine, OpenError> {
        let configured = options.segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let segment_bytes = match options.reserve_bytes {
            0 => configured,
            // If the capacity of the disk cannot be determined, opening soon fails anyway.
            _ => reserve::segment_bytes(configured, storage.capacity().unwrap_or(u64::MAX)),
        };
        let options = Options { segment_bytes, ..options.clone() };
        let (engine, workers) = Engine::assemble(storage, clock, &options, ring_events_max)?;
        let thread = workers.start().map_err(|source| OpenError::Io {
            path: options.dir.clone(),
            operation: "start a thread",
            source,
        })?;
        *engine.0.thread.lock() = Some(thread);
        Ok(engine)
    }

    /// Commits `write` and returns its revision and stored state. The future resolves after about one sync,
    /// which all writes of a batch share; by then the write is durable (see [`Durability`]) and visible to
    /// readers. The call waits while the queue is full. A queued write is carried out even if the future is
    /// dropped.
    ///
    /// A delete or an essential write that finds the disk full waits about ten seconds for reclamation to
    /// make room.
    ///
    /// # Errors
    /// See [`CommitError`]. Only [`CommitError::OutcomeUnknown`] leaves the outcome open.
    pub async fn commit(&self, write: Write) -> Result<Committed, CommitError> {
        if self.0.role == Role::Follower {
            return Err(CommitError::Refused(Refusal::Follower));
        }
        let bloom = self.bloom(&write.change);
        if !write.change.is_essential() || !self.0.has_reserve {
            return self.0.queue.submit(write, bloom).await;
        }
        let mut room_looks = self.0.status.room_looks();
        let began = Instant::now();
        for looks in 0..ESSENTIAL_ROOM_LOOKS_MAX {
            room_looks.mark_unchanged();
            let outcome = self.0.queue.submit(write.clone(), bloom).await;
            if !matches!(outcome, Err(CommitError::Refused(Refusal::DiskFull)))
                || began.elapsed() >= ESSENTIAL_ROOM_WAIT
            {
                return outcome;
            }
            // The first attempt may have been refused together with ordinary writes of its batch. Later
            // attempts wait until reclamation has made room.
            if looks > 0 && room_looks.changed().await.is_err() {
                return outcome;
            }
        }
        self.0.queue.submit(write, bloom).await
    }

    /// Applies records whose revisions were assigned by another store, and returns the newest revision of
    /// this store afterwards. The store must be open as a [`Role::Follower`]. Durability and visibility are
    /// as with [`Engine::commit`]. The batch is carried out even if the future is dropped. Records of one
    /// revision become visible and durable together.
    ///
    /// # Errors
    /// See [`ApplyError`]. After [`Refusal::LogFailed`] it is unknown how much of the batch is on disk.
    pub async fn apply(&self, batch: Vec<Applied>) -> Result<Revision, ApplyError> {
        if self.0.role == Role::Leader {
            return Err(ApplyError::Leader);
        }
        applied::check_form(&batch)?;
        let blooms = batch.iter().map(|applied| self.bloom(&applied.change)).collect();
        let bytes = turns::batch_bytes(&batch);
        self.0.queue.submit_applied(batch, blooms, || self.0.turns.try_turn(bytes)).await
    }

    fn bloom(&self, change: &Change) -> BloomFilter {
        match change {
            Change::Put(payload) => (self.0.bloom_scheme.filter)(&payload.attributes),
            Change::Delete(_) | Change::DeleteStored(_) => BloomFilter::NONE,
        }
    }

    /// Returns a snapshot of the newest revision. Takes some tens of nanoseconds.
    pub fn snapshot(&self) -> Snapshot {
        let root = self.0.hub.root();
        let revision = root.revision;
        Snapshot::new(root, revision)
    }

    /// Returns a snapshot of the store as of `revision`. Revision 0 is the empty store.
    pub fn snapshot_at(&self, revision: Revision) -> Result<Snapshot, SnapshotError> {
        let root = self.0.hub.root();
        if revision > root.revision {
            return Err(SnapshotError::Future { current: root.revision });
        }
        let oldest = root.oldest.max(self.0.hub.gap_until());
        if revision < oldest {
            return Err(SnapshotError::Compacted { oldest });
        }
        Ok(Snapshot::new(root, revision))
    }

    /// Returns the newest published revision; 0 if nothing was ever written.
    pub fn revision(&self) -> Revision {
        self.0.hub.revision()
    }

    /// Resolves once a revision of at least `revision` is published, or once the engine is closed, so that no caller
    /// waits forever. To distinguish the two cases, callers compare [`Engine::revision`] afterwards.
    pub async fn reached(&self, revision: Revision) {
        self.0.hub.reached(revision).await;
    }

    /// Follows the events with a revision greater than `after` whose key begins with `prefix`. `after` may be
    /// in the future: the tail skips all events up to `after`. A tail costs nothing while no event matches.
    pub fn tail(&self, after: Revision, prefix: Bytes) -> Result<Tail, TailError> {
        Tail::begin(&self.0.hub, after, prefix)
    }

    /// Notes that the records applied from now on, up to revision `until`, carry only the final states of
    /// keys instead of every change. Tails that require all changes end, and revisions before `until` can no
    /// longer be read. This note is not stored on disk: the caller compacts these revisions
    /// ([`Engine::compact`]) once `until` is reached.
    pub fn pass_over(&self, until: Revision) {
        self.0.hub.pass_over(until);
    }

    /// Returns a tracker of the newest change of any key that begins with `prefix`, starting now. A result
    /// computed from a snapshot stays valid as long as the tracker has no change after the revision of the
    /// snapshot.
    pub fn last_change(&self, prefix: Bytes) -> LastChange {
        self.0.hub.last_change(prefix)
    }

    /// Returns `Ok` if the store takes writes, otherwise the reason why it does not.
    pub fn health(&self) -> Result<(), Refusal> {
        self.0.status.refusal.lock().clone().map_or(Ok(()), Err)
    }

    /// Resolves with the reason once writing or syncing the log has failed, so that the store takes no writes
    /// until it is opened again. Never resolves on a healthy store.
    pub async fn failed(&self) -> Refusal {
        self.0.status.log_failed().await
    }

    /// Returns the revisions and records that cannot be read, and which of these losses are accepted. While
    /// some losses are not accepted, a key that seems absent may have a lost record, so nothing may be
    /// deleted because of an absent key.
    pub fn losses(&self) -> LossReport {
        self.0.losses.report()
    }

    /// Returns a receiver of the number of losses that are not accepted. The number changes while the store is open,
    /// because readers find damage that opening did not detect.
    pub fn watch_losses(&self) -> tokio::sync::watch::Receiver<LossCounts> {
        self.0.losses.watch()
    }

    /// Writes a record that lists the known losses, unless the newest such record in the log already lists
    /// them. Returns whether it wrote a record. Without this record, an opening that begins with a
    /// checkpoint finds at most the number of revisions that were lost before the checkpoint.
    ///
    /// # Errors
    /// See [`Engine::commit`].
    pub async fn note_losses(&self) -> Result<bool, CommitError> {
        match self.0.losses.to_note() {
            Some(ledger) => {
                self.write_ledger(&ledger).await?;
                self.0.losses.noted(ledger);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Accepts all known losses, and the losses in `found`, which is the result of a scan of the whole store.
    /// The acceptance is durable once the future resolves; losses found later are not accepted. Returns
    /// whether there was any loss to accept.
    ///
    /// # Errors
    /// See [`Engine::commit`].
    pub async fn accept_losses(&self, found: &Losses) -> Result<bool, CommitError> {
        match self.0.losses.to_accept(found) {
            Some(ledger) => {
                self.write_ledger(&ledger).await?;
                self.0.losses.accepted(ledger);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    async fn write_ledger(&self, ledger: &LossReport) -> Result<(), CommitError> {
        let payload = Payload { value: ledger.encode().into(), essential: true, ..Payload::default() };
        let key = Bytes::from_static(LEDGER_KEY);
        self.commit(Write { key, expected: Expected::Any, change: Change::Put(payload) }).await.map(drop)
    }

    /// Syncs all writes that are committed by now, and notes on disk that they are durable. If the log lacks
    /// some of these revisions later, opening reports damage instead of treating the log as one that ends
    /// earlier. The store does this by itself once a second while there are writes. Blocks for two syncs.
    ///
    /// # Errors
    /// The log cannot be synced. A failure to write the high-water mark is only logged.
    pub fn note_durable(&self) -> Result<(), Refusal> {
        let root = self.0.hub.root();
        let status = &self.0.status;
        if let Some(last) = root.segments.in_order().last()
            && status.synced() < root.revision
        {
            status.sync(last, root.revision)?;
        }
        if let Err(error) = self.0.high_water.note(root.revision) {
            tracing::warn!("cannot record how far the log is durable: {error}");
        }
        Ok(())
    }

    /// Returns the store fingerprint, which all files of the store have in common. A restored store gets a
    /// new one.
    pub fn store_number(&self) -> u64 {
        self.0.hub.root().segments.in_order().first().map_or(0, |segment| segment.header.store)
    }

    /// Returns the moment at which this store acknowledges a write.
    pub fn durability(&self) -> Durability {
        self.0.durability
    }

    /// Unmaps the pages that reads have mapped. Useful for a caller that has just read everything once; bytes
    /// that are read again come from the page cache.
    pub fn release_pages(&self) {
        self.0.hub.root().segments.all().iter().for_each(|segment| segment.file.release_pages());
    }

    /// Compacts history before `revision` regardless of the retention, so that `revision` becomes the oldest
    /// readable one. Resolves once the index has dropped the history and the compaction is noted on disk.
    /// Reclamation frees the disk space later.
    pub async fn compact(&self, revision: Revision) -> Result<(), CompactError> {
        let root = self.0.hub.root();
        if revision > root.revision {
            return Err(CompactError::Future { current: root.revision });
        }
        if revision < root.oldest {
            return Err(CompactError::Compacted { oldest: root.oldest });
        }
        self.0.requests.compact(revision);
        self.progress(|progress| progress.compacted >= revision).await.ok_or(CompactError::Closed)
    }

    /// Reports that the clock of the store ([`Options::clock`]) was moved. The store then deletes keys that are
    /// expired by now and compacts history that is too old by now, without waiting for its next regular check.
    pub fn clock_moved(&self) {
        self.0.requests.clock_moved();
    }

    /// Resolves once a checkpoint with all writes that are committed by now is on disk, or the store is
    /// closed.
    pub async fn checkpoint(&self) {
        let revision = self.revision();
        self.0.requests.checkpoint(revision);
        self.progress(|progress| progress.checkpoint >= revision).await;
    }

    /// Prepares the store for closing: writes a checkpoint if the next opening would otherwise read more bytes
    /// of the log than a checkpoint has. The future resolves when the checkpoint is written, when no checkpoint
    /// is needed, or when the store is closed.
    pub async fn prepare_to_close(&self) {
        let root = self.0.hub.root();
        let checkpointed = self.0.status.stages().checkpointed;
        let behind = root.bytes_until(root.revision).saturating_sub(root.bytes_until(checkpointed));
        if behind >= checkpoint::WORTH_BYTES.max(checkpoint::image_bytes(&root)) {
            drop(root);
            self.checkpoint().await;
        }
    }

    /// Resolves once compaction, expiry, reclamation and checkpoints have no work for the time being, or the
    /// store is closed. Under steady writes this may take long.
    pub async fn settled(&self) {
        let rest = self.0.requests.rest();
        self.progress(|progress| progress.rests >= rest).await;
    }

    /// Waits until `so_far` returns true for the progress of background maintenance. Returns `None` if the
    /// store was closed before.
    async fn progress(&self, so_far: impl Fn(&Progress) -> bool) -> Option<()> {
        let mut progress = self.0.requests.progress.subscribe();
        let mut closed = self.0.closed.clone();
        tokio::select! {
            reached = progress.wait_for(|progress| so_far(progress)) => reached.ok().map(|_| ()),
            _ = closed.wait_for(|closed| *closed) => None,
        }
    }

    /// Begins a backup of the store as of its newest revision, for a receiver that already has the segments
    /// in `held` (the result of [`offline::Receiver::held`]; empty if it has none). A slow receiver delays no
    /// commit. With [`Durability::Relaxed`] this call may wait for a sync.
    pub fn backup(&self, held: &[u8]) -> Result<Outgoing, BackupError> {
        let held = HeldSegment::decode(held).ok_or(BackupError::Held)?;
        let root = self.0.hub.root();
        let status = &self.0.status;
        if let Some(last) = root.segments.in_order().last()
            && status.synced() < root.revision
        {
            // A crash must not undo revisions that a backup contains.
            status.sync(last, root.revision).map_err(BackupError::Refused)?;
        }
        Ok(Outgoing::new(&root, held))
    }

    /// Returns the newest revision committed at or before `time`, or the oldest readable revision if that is
    /// newer.
    pub fn revision_at(&self, time: SystemTime) -> Revision {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        compaction::newest_until(&self.0.hub.root(), types::CommitTime::from_ms(ms))
    }

    /// Returns the newest revision committed at or before `time`, if the state at `time` is still readable.
    ///
    /// # Errors
    /// [`SnapshotError::Compacted`] if the history of `time` is no longer retained, or if the store did not
    /// exist then.
    pub fn readable_revision_at(&self, time: SystemTime) -> Result<Revision, SnapshotError> {
        let oldest = self.oldest();
        if oldest.time.is_none_or(|since| time < since) {
            return Err(SnapshotError::Compacted { oldest: oldest.revision });
        }
        Ok(self.revision_at(time).max(oldest.revision))
    }

    /// Returns the oldest point that can be read.
    pub fn oldest(&self) -> OldestPoint {
        points::oldest(&self.0.hub.root(), self.0.hub.gap_until())
    }

    /// Returns the time at which `revision` was committed; `None` if its record is no longer in the log.
    pub fn time_of(&self, revision: Revision) -> Option<SystemTime> {
        points::time_of(&self.0.hub.root(), revision)
    }

    /// Returns the time at which the first write after `revision` was committed. If the record of that write is no
    /// longer in the log, returns the time of a later write. Returns `None` if there is no such write.
    pub fn superseded_at(&self, revision: Revision) -> Option<SystemTime> {
        points::superseded_at(&self.0.hub.root(), revision)
    }

    /// Returns counters and sizes of the store.
    pub fn stats(&self) -> Stats {
        let root = self.0.hub.root();
        let status = &self.0.status;
        let segments = root.segments.all();
        let size = root.tree.size();
        let record_bytes: u64 = segments.iter().map(|segment| segment.record_bytes()).sum();
        let live_bytes = segments.iter().map(|segment| segment.live()).sum();
        Stats {
            revision: root.revision,
            synced: status.synced(),
            oldest: root.oldest,
            checkpoint: status.stages().checkpointed,
            keys: root.tree.live(),
            versions: size.versions,
            expiring: self.0.expiry.len() as u64,
            expired: status.expired.load(Ordering::Relaxed),
            segments: segments.len() as u64,
            segment_bytes: segments.iter().map(|segment| segment.file.size()).sum(),
            record_bytes,
            live_bytes,
            retained_bytes: root.segments.retained_bytes(),
            dead_bytes: record_bytes.saturating_sub(live_bytes),
            rewritten_bytes: status.rewritten_bytes.load(Ordering::Relaxed),
            batches: status.batches.load(Ordering::Relaxed),
            commits: status.commits.load(Ordering::Relaxed),
            lost_revisions: self.0.lost_revisions,
            unaccepted: *self.0.losses.watch().borrow(),
            unreadable_pages: segments.iter().map(|segment| segment.file.unreadable_pages()).sum(),
            tails: self.0.hub.tails(),
        }
    }

    /// Commits the queued writes, syncs, stops the threads and releases the directory. Later commits get
    /// [`CommitError::Closed`], tails end with [`TailError::Closed`]; snapshots can still be read.
    pub async fn close(&self) {
        self.0.queue.close();
        let mut closed = self.0.closed.clone();
        // An error means that the thread has ended, and then the store is closed too.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}
