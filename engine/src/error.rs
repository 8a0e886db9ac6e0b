//! Errors of the store: one enum for each family of operations, with a variant for each reaction of the
//! caller.

use std::io;
use std::path::PathBuf;

use crate::entry::{Entry, ReadError};
use crate::io::is_disk_full;
use crate::types::Revision;

/// Advice for an operator whose store lacks a file or has an unreadable file.
const FILE_BACK: &str =
    "put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup";

/// Reason why a store was not opened. Opening has changed nothing, except that it may have created the
/// directory. Each message is one line and names the path.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another handle in this process, has the store open.
    #[error("store {} is in use by another process", dir.display())]
    InUse {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// The machine stopped while a backup in this directory was being replaced by another one. The old backup
    /// is complete, under another name.
    #[error("{}: there is no store at this path, because the replacement of the store was interrupted: rename {} to this path", dir.display(), replaced.display())]
    Interrupted {
        /// The directory where the store should be.
        dir: PathBuf,
        /// The path where the complete old backup is.
        replaced: PathBuf,
    },
    /// A later release wrote this store.
    #[error("{}: store format {found} is newer than {supported}, the newest this release reads: start the release that wrote it, or a later one", path.display())]
    NewerFormat {
        /// The file with the newer format version.
        path: PathBuf,
        /// The format version found.
        found: u32,
        /// The newest format version this release reads.
        supported: u32,
    },
    /// Both copies of a segment's header are damaged, so none of its records can be checked.
    #[error("{}: both copies of its header are damaged, or it belongs to another store: {}", path.display(), FILE_BACK)]
    BadHeader {
        /// The path of the segment.
        path: PathBuf,
    },
    /// A segment is missing that other segments or a checkpoint refer to.
    #[error("{}: segment is missing: {}", path.display(), FILE_BACK)]
    MissingSegment {
        /// The path where the segment should be.
        path: PathBuf,
    },
    /// The last segment is missing, as the high-water mark shows. The revisions of the missing segment were
    /// acknowledged and would be assigned again.
    #[error("{}: segment is missing, and with it all revisions from {first_revision} on: {}", path.display(), FILE_BACK)]
    MissingEnd {
        /// The path where the segment should be.
        path: PathBuf,
        /// The lowest revision that may have been in the segment.
        first_revision: Revision,
    },
    /// The directory contains a segment of another store.
    #[error("{}: segment belongs to another store: put the right file back, or restore the store from a backup", path.display())]
    OtherStore {
        /// The path of the segment.
        path: PathBuf,
    },
    /// The end of the log cannot be read, so it is unknown whether an acknowledged write is there.
    #[error("{}: the end of the log, at byte {offset}, cannot be read: {source}: on a sound disk, create a store of the readable records with restore --skip-damaged, or restore a backup", path.display())]
    UnreadableEnd {
        /// The path of the last segment.
        path: PathBuf,
        /// The offset at which the sound records of the segment end.
        offset: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A call to the operating system failed.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// The file or directory of the failed operation.
        path: PathBuf,
        /// The operation that was attempted.
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Reason why a write was not committed. Unless a variant says otherwise, nothing was written and the store
/// is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The condition did not hold, so the caller reads the key again and decides whether to retry. Also
    /// returned for the deletion of a key that does not exist.
    #[error("{}", match current { Some(entry) => format!("key is at revision {}", entry.revision()), None => "key does not exist".into() })]
    Conflict {
        /// The newest state of the key; `None` if the key does not exist.
        current: Option<Entry>,
    },
    /// The key is empty or longer than `max` bytes.
    #[error("key of {len} bytes, must have 1 to {max}")]
    KeyLength {
        /// Length of the key in bytes.
        len: usize,
        /// The limit, [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
        max: usize,
    },
    /// The attributes are larger than the limit.
    #[error("attributes of {len} bytes, more than {max}")]
    AttributesTooLarge {
        /// Length of the attributes in bytes.
        len: usize,
        /// The limit, [`ATTRIBUTES_BYTES_MAX`](crate::ATTRIBUTES_BYTES_MAX).
        max: usize,
    },
    /// The value is larger than the limit.
    #[error("value of {len} bytes, more than {max}")]
    ValueTooLarge {
        /// Length of the value in bytes.
        len: usize,
        /// The limit, [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
        max: usize,
    },
    /// The offset of the stamp lies outside of the value.
    #[error("stamp at {stamp_at} in a value of {len} bytes")]
    StampOutOfRange {
        /// The offset that the write gave.
        stamp_at: u32,
        /// Length of the value in bytes.
        len: usize,
    },
    /// `Delete(None)` needs the stored state, but that state is damaged. `Delete(Some(…))` works.
    #[error(transparent)]
    Damaged(ReadError),
    /// The store takes no writes at present. This write was not committed and never will be.
    #[error("write refused: {0}")]
    Refused(Refusal),
    /// Writing the log failed while it carried this write: **it is unknown whether the write is committed**.
    /// No reader has seen the write. The next opening of the store decides whether the write is committed or
    /// lost.
    #[error("it is unknown whether the write was committed: {0}")]
    OutcomeUnknown(Refusal),
    /// The engine was closed. Writes that were queued at that moment were still committed and answered.
    #[error("store is closed")]
    Closed,
}

/// Reason why a batch was not applied to a follower. Unless a variant says otherwise, no record of the batch
/// was applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The batch begins at or below the newest revision of the store. The caller continues with the records
    /// after `newest`.
    #[error("the store is at revision {newest} already")]
    NotNewer {
        /// The newest revision of the store.
        newest: Revision,
    },
    /// The revision of record `at` is lower than the revision of the record before it.
    #[error("the revision of record {at} is lower than the one before it")]
    Order {
        /// Position of the record in the batch.
        at: usize,
    },
    /// Record `at` has the same key as another record of the same revision.
    #[error("the key of record {at} is written twice at its revision")]
    KeyTwice {
        /// Position of the record in the batch.
        at: usize,
    },
    /// Record `at` gives its key another created revision than the store has.
    #[error("the key of record {at} was created at revision {created}")]
    Created {
        /// Position of the record in the batch.
        at: usize,
        /// The created revision in the store.
        created: Revision,
    },
    /// Record `at` deletes a key that does not exist.
    #[error("the key of record {at} does not exist")]
    NothingToDelete {
        /// Position of the record in the batch.
        at: usize,
    },
    /// Record `at` has a key, a state or a revision outside of the limits.
    #[error("record {at} exceeds a limit")]
    Limits {
        /// Position of the record in the batch.
        at: usize,
    },
    /// The batch is empty or has more than [`APPLIED_RECORDS_MAX`](crate::APPLIED_RECORDS_MAX) records or
    /// [`APPLIED_BYTES_MAX`](crate::APPLIED_BYTES_MAX) bytes.
    #[error("a batch of {records} records and {bytes} bytes is empty or too large")]
    Size {
        /// Number of records in the batch.
        records: usize,
        /// Bytes of attributes and values in the batch.
        bytes: usize,
    },
    /// `Delete(None)` needs the stored state, but that state is damaged. The revisions before this write
    /// were applied.
    #[error(transparent)]
    Damaged(ReadError),
    /// The store takes no writes at present. The first revisions of the batch may have been applied, each one
    /// completely: the caller continues after the newest revision of the store.
    #[error("records refused: {0}")]
    Refused(Refusal),
    /// The store is a leader, which assigns revisions itself.
    #[error("the store is not a follower")]
    Leader,
    /// The engine was closed. Batches that were queued at that moment were still applied and answered.
    #[error("store is closed")]
    Closed,
}

/// Reason why a store takes no writes. Reads continue to work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// The disk has no room for the write. **The write was not committed and never will be.** The store takes
    /// writes again once there is room.
    #[error("no space left on the store's disk")]
    DiskFull,
    /// The store follows another store, which assigns the revisions. Nothing was written.
    #[error("the store is a follower")]
    Follower,
    /// Writing or syncing the log failed. Writes that were in progress have an unknown outcome
    /// ([`CommitError::OutcomeUnknown`]); later writes are not written. The refusal lasts until the store is
    /// opened again: after a failed sync the kernel may have dropped the dirty pages, so a later success
    /// would prove nothing.
    #[error("{operation} failed ({reason}); the store must be reopened")]
    LogFailed {
        /// The operation that failed.
        operation: &'static str,
        /// The error text of the operating system.
        reason: String,
    },
}

impl Refusal {
    /// Returns the permanent refusal for an `operation` that failed with `error`.
    pub(crate) fn log_failed(operation: &'static str, error: &io::Error) -> Refusal {
        Refusal::LogFailed { operation, reason: error.to_string() }
    }

    /// Returns the refusal for an `operation` that failed with `error` and has changed nothing.
    pub(crate) fn from_error(operation: &'static str, error: &io::Error) -> Refusal {
        if is_disk_full(error) { Refusal::DiskFull } else { Refusal::log_failed(operation, error) }
    }
}

/// Reason why a backup was not begun.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BackupError {
    /// The bytes that describe what the receiver holds cannot be decoded.
    #[error("the list of segments that the backup already has is invalid")]
    Held,
    /// The newest acknowledged revisions cannot be synced.
    #[error("{0}")]
    Refused(Refusal),
}

/// Reason why there is no snapshot at a revision.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotError {
    /// The revision was compacted.
    #[error("revision is compacted, the oldest readable is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The revision is not published yet.
    #[error("revision lies in the future, the newest is {current}")]
    Future {
        /// The newest published revision.
        current: Revision,
    },
}

/// Reason why history was not compacted. Nothing was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CompactError {
    /// The store is already compacted beyond the revision.
    #[error("revision is compacted, the oldest readable is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The revision is not published yet.
    #[error("revision lies in the future, the newest is {current}")]
    Future {
        /// The newest published revision.
        current: Revision,
    },
    /// The engine was closed during the call; the history may or may not have been compacted.
    #[error("store is closed")]
    Closed,
}

/// Reason why a tail ended. The caller starts again from a new snapshot.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TailError {
    /// Events that the tail has not returned yet were compacted.
    #[error("events are compacted, the oldest readable revision is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// A record is so damaged that its key is unknown. The record may belong to this tail, so continuing
    /// could hide an event.
    #[error("the record of revision {revision} is damaged")]
    Damaged {
        /// The first unreadable revision.
        revision: Revision,
    },
    /// The engine was closed.
    #[error("store is closed")]
    Closed,
}
