//! What can go wrong, one enum for each family of operations, cut by what the caller does next.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;

use crate::io::is_disk_full;
use crate::seal::SealError;
use crate::snapshot::Entry;
use crate::types::Revision;

/// The ways out for an operator whose store lacks a file, or has one that cannot be read.
const FILE_BACK: &str =
    "put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup";

/// Why a store was not opened. Nothing was changed, apart from a directory that may have been made. Each text is
/// one line and names the path.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another handle in this one, has the store open.
    #[error("store {} is in use by another process", dir.display())]
    InUse {
        /// The store's directory.
        dir: PathBuf,
    },
    /// A backup that stood here was about to be replaced by another when the machine stopped; it is complete, under
    /// another name.
    #[error("{}: no store is here, as replacing it was interrupted: give {} this name", dir.display(), replaced.display())]
    Interrupted {
        /// Where the store should be.
        dir: PathBuf,
        /// Where it is.
        replaced: PathBuf,
    },
    /// A later release wrote this store.
    #[error("{}: store format {found} is newer than {supported}, the newest this release reads: start the release that wrote it, or a later one", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The format version found.
        found: u32,
        /// The newest format version this release reads.
        supported: u32,
    },
    /// The header of a segment is damaged in both its copies, so none of its records can be checked.
    #[error("{}: both copies of its header are damaged, or it belongs to another store: {}", path.display(), FILE_BACK)]
    BadHeader {
        /// The segment.
        path: PathBuf,
    },
    /// A segment is gone that others, or a checkpoint, show to have been there.
    #[error("{}: segment is missing: {}", path.display(), FILE_BACK)]
    MissingSegment {
        /// Where it should be.
        path: PathBuf,
    },
    /// The last segment is gone, as the high-water mark shows: the revisions in it, which were acknowledged, would be
    /// given out again.
    #[error("{}: segment is missing, and with it all revisions from {first_revision} on: {}", path.display(), FILE_BACK)]
    MissingEnd {
        /// Where it should be.
        path: PathBuf,
        /// The lowest revision that may have been in it.
        first_revision: Revision,
    },
    /// A segment of another store lies in the directory.
    #[error("{}: segment belongs to another store: put the right file back, or restore the store from a backup", path.display())]
    OtherStore {
        /// The segment.
        path: PathBuf,
    },
    /// The place where the log ends cannot be read, so it is unknown whether an acknowledged write stands there.
    #[error("{}: the end of the log, at byte {offset}, cannot be read: {source}: make a store of what can be read, on a sound disk, with restore --skip-damaged, or restore one from a backup", path.display())]
    UnreadableEnd {
        /// The last segment.
        path: PathBuf,
        /// Where its sound records end.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system said no.
    #[error("{}: cannot {operation}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Why a write was not committed. Unless said otherwise nothing was written and the store is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The condition did not hold: read again and decide. Also the answer to deleting what does not exist.
    #[error("{}", match current { Some(entry) => format!("key is at revision {}", entry.revision()), None => "key does not exist".into() })]
    Conflict {
        /// The newest state; `None` when the key does not exist.
        current: Option<Entry>,
    },
    /// A key needs 1 to `max` bytes.
    #[error("key of {len} bytes, must have 1 to {max}")]
    KeyLength {
        /// Length of the key in bytes.
        len: usize,
        /// [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
        max: usize,
    },
    /// More attributes than a record may have.
    #[error("attributes of {len} bytes, more than {max}")]
    AttributesTooLarge {
        /// Length of the attributes in bytes.
        len: usize,
        /// [`ATTRIBUTES_BYTES_MAX`](crate::ATTRIBUTES_BYTES_MAX).
        max: usize,
    },
    /// A larger value than a record may have.
    #[error("value of {len} bytes, more than {max}")]
    ValueTooLarge {
        /// Length of the value in bytes.
        len: usize,
        /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
        max: usize,
    },
    /// The stamp's offset lies outside of the value.
    #[error("stamp at {stamp_at} in a value of {len} bytes")]
    StampOutOfRange {
        /// The offset asked for.
        stamp_at: u32,
        /// Length of the value in bytes.
        len: usize,
    },
    /// `Delete(None)` needs the stored state, and that is damaged. `Delete(Some(…))` works.
    #[error(transparent)]
    Damaged(ReadError),
    /// The store takes no writes at present. This one was not committed and never will be.
    #[error("write refused: {0}")]
    Refused(Refusal),
    /// Writing the log failed while it carried this write: **whether the write is committed is unknown**. No reader has
    /// seen it; once the store is opened again it is there, or it never will be.
    #[error("it is unknown whether the write was committed: {0}")]
    OutcomeUnknown(Refusal),
    /// The engine was closed. A write already queued then was still committed and answered.
    #[error("store is closed")]
    Closed,
}

/// Why a batch of a follower was not applied. Unless said otherwise nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The batch does not continue the store: hand over what follows `newest`.
    #[error("the store is at revision {newest} already")]
    NotNewer {
        /// The newest revision of the store.
        newest: Revision,
    },
    /// The revision of record `at` is lower than the one before it.
    #[error("the revision of record {at} is lower than the one before it")]
    Order {
        /// Position in the batch.
        at: usize,
    },
    /// Record `at` is about a key that another record of the same revision is about.
    #[error("the key of record {at} is written twice at its revision")]
    KeyTwice {
        /// Position in the batch.
        at: usize,
    },
    /// Record `at` says that its key was created at another revision than the store knows.
    #[error("the key of record {at} was created at revision {created}")]
    Created {
        /// Position in the batch.
        at: usize,
        /// When the key was created.
        created: Revision,
    },
    /// Record `at` deletes a key that does not exist.
    #[error("the key of record {at} does not exist")]
    NothingToDelete {
        /// Position in the batch.
        at: usize,
    },
    /// Record `at` has a key, a state or a revision outside of the limits on these, or a time to live.
    #[error("record {at} exceeds a limit")]
    Limits {
        /// Position in the batch.
        at: usize,
    },
    /// An empty batch, or one of more than [`APPLIED_RECORDS_MAX`](crate::APPLIED_RECORDS_MAX) records or
    /// [`APPLIED_BYTES_MAX`](crate::APPLIED_BYTES_MAX) bytes.
    #[error("a batch of {records} records and {bytes} bytes")]
    Size {
        /// Records in the batch.
        records: usize,
        /// Bytes of their states.
        bytes: usize,
    },
    /// `Delete(None)` needs the stored state, and that is damaged. The revisions before it were applied.
    #[error(transparent)]
    Damaged(ReadError),
    /// The store takes no writes at present. A first part of the batch may have been applied, in whole revisions: go on
    /// after the store's newest one.
    #[error("records refused: {0}")]
    Refused(Refusal),
    /// The store assigns revisions itself.
    #[error("the store is no follower")]
    Leader,
    /// The engine was closed. A batch already queued then was still applied and answered.
    #[error("store is closed")]
    Closed,
}

/// Why a store takes no writes. Reads go on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No room for the write. **The write was not committed and never will be.** Writes resume by themselves
    /// once there is room.
    #[error("no space left on the store's disk")]
    DiskFull,
    /// The store follows another one, which assigns the revisions. Nothing was written.
    #[error("the store is a follower")]
    Follower,
    /// Writing or syncing failed. Writes that were under way have an unknown outcome
    /// ([`CommitError::OutcomeUnknown`]); later ones are not written. Permanent until the store is opened again: after a failed sync the kernel may have dropped the
    /// dirty pages, so that a later success would prove nothing.
    #[error("{operation} failed ({reason}); the store must be reopened")]
    LogFailed {
        /// What failed.
        operation: &'static str,
        /// What the operating system said.
        reason: String,
    },
}

impl Refusal {
    /// Why `operation` met `error`, for all that follows.
    pub(crate) fn log_failed(operation: &'static str, error: &io::Error) -> Refusal {
        Refusal::LogFailed { operation, reason: error.to_string() }
    }

    /// Why `operation` met `error`, if it has changed nothing.
    pub(crate) fn of(operation: &'static str, error: &io::Error) -> Refusal {
        if is_disk_full(error) { Refusal::DiskFull } else { Refusal::log_failed(operation, error) }
    }
}

/// Why a backup was not begun.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BackupError {
    /// What is said to be held already is something else.
    #[error("the list of what is held already is none")]
    Held,
    /// What was acknowledged cannot be brought to disk.
    #[error("{0}")]
    Refused(Refusal),
}

/// Why a stored state could not be read. Other keys are unaffected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The record's bytes do not match their checksum, or cannot be read at all.
    #[error("stored state of {:?} at revision {revision} is damaged", String::from_utf8_lossy(key))]
    Damaged {
        /// The key.
        key: Bytes,
        /// The revision of the damaged state.
        revision: Revision,
    },
    /// The value cannot be sealed or opened.
    #[error("stored state of {:?} cannot be transformed: {why}", String::from_utf8_lossy(key))]
    Sealed {
        /// The key.
        key: Bytes,
        /// Why.
        why: SealError,
    },
}

/// Why there is no snapshot at a revision.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotError {
    /// That long ago is no longer kept.
    #[error("revision is compacted, the oldest readable is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// That revision is not there yet.
    #[error("revision lies in the future, the newest is {current}")]
    Future {
        /// The newest published revision.
        current: Revision,
    },
}

/// Why history was not forgotten. Nothing was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CompactError {
    /// More is forgotten already.
    #[error("revision is compacted, the oldest readable is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// That revision is not there yet.
    #[error("revision lies in the future, the newest is {current}")]
    Future {
        /// The newest published revision.
        current: Revision,
    },
    /// The engine was closed meanwhile; it may have been forgotten or not.
    #[error("store is closed")]
    Closed,
}

/// Why a tail cannot go on: start again from a fresh snapshot.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TailError {
    /// Events it has yet to see are no longer kept.
    #[error("events are compacted, the oldest readable revision is {oldest}")]
    Compacted {
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// A record on its way is damaged so far that not even its key is known: it may or may not belong to this
    /// tail, so going on could hide an event.
    #[error("the record of revision {revision} is damaged")]
    Damaged {
        /// The first unreadable revision.
        revision: Revision,
    },
    /// The engine was closed.
    #[error("store is closed")]
    Closed,
}
