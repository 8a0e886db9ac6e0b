//! Backups: copies of a store as of one revision, from its directory, with or without a running engine.
//!
//! Complete segments never change, and the active segment only grows. So a backup consists of all segments that are in
//! the directory at one moment. From the last segment the backup takes only the records up to a revision that is known
//! durable. The backup keeps the files open, so it can still read a file that reclamation removes in the meantime. The
//! copy is a store like any other.
//!
//! A backup into a directory with an earlier backup of the same store copies only new segments: an existing
//! segment is kept if its header and all checksums show that it is the same segment and complete.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::header::{Note, RECORDS_START};
use crate::offline::damage::Damage;
use crate::offline::records::{tail, written_end};
use crate::offline::target::{PendingBackup, Target, check};
use crate::offline::{OfflineError, Store};
use crate::segment::Segment;
use crate::types::Revision;

/// A log that has not grown for this time is copied to its end. Records that a running engine has written are
/// durable after milliseconds. Records of a batch that the engine erases because of a full disk are gone as
/// quickly.
const QUIET: Duration = Duration::from_secs(1);

/// Interval between two reads of a log that is being written to.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Copies the store in `source` to a directory next to `target`, which may contain an earlier backup of the
/// same store. [`PendingBackup::place`] then puts the copy into `target`. Calls `on_damage` for damaged records, and
/// `on_progress` with the bytes done and the total bytes.
pub fn backup(
    source: &Path,
    target: &Path,
    on_damage: impl FnMut(&Damage),
    on_progress: impl FnMut(u64, u64),
) -> Result<PendingBackup, OfflineError> {
    let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    if same(source, target) {
        return Err(OfflineError::SameDirectory { dir: target.to_owned() });
    }
    let target = Target::begin(target)?;
    let (store, revision) = steady(source)?;
    copy(&store, revision, target, on_damage, on_progress)
}

/// Copies an opened store up to `revision`.
pub(super) fn copy(
    store: &Store,
    revision: Revision,
    mut target: Target,
    mut on_damage: impl FnMut(&Damage),
    mut on_progress: impl FnMut(u64, u64),
) -> Result<PendingBackup, OfflineError> {
    store.check_complete()?;
    let Some((last, completed)) = store.segments.split_last() else {
        return Err(OfflineError::NoStore { dir: store.dir.clone() });
    };
    target.check_store(last.header.store)?;
    (target.summary.revision, target.summary.oldest) = (revision, store.oldest());
    let (mut bytes, total) = (0, store.data_bytes());
    for (at, segment) in completed.iter().enumerate() {
        let end_revision = store.segments[at + 1].header.first_revision;
        let end = written_end(&*segment.file);
        let reusable = target.earlier(&segment.header).filter(|had| {
            let mut flaws = 0;
            let held = check(had, end_revision, &mut |_| flaws += 1);
            flaws == 0 && held.describes(segment, held.end)
        });
        match reusable {
            Some(had) => target.keep(&had, end)?,
            None => {
                let block = target.read_block(segment)?;
                let copied =
                    target.copy(segment, end, &block, |copied| on_progress(bytes + copied, total))?;
                target.copied(&segment.header, copied, end_revision, end - RECORDS_START, &mut on_damage)?;
            }
        }
        bytes += end - RECORDS_START;
        on_progress(bytes, total);
    }
    let (end, block) = match last.header.rewritten {
        Some(_) => (written_end(&*last.file), target.read_block(last)?),
        // The note about the log must be true for the copy.
        None => {
            let note = Note { sequence: 1, synced: revision, oldest: store.oldest() };
            (tail(store, revision).1, note.block(&last.header))
        }
    };
    let copied = target.copy(last, end, &block, |copied| on_progress(bytes + copied, total))?;
    target.copied(&last.header, copied, revision.next(), end - RECORDS_START, &mut on_damage)?;
    Ok(target.ready())
}

/// Opens the store and determines a revision that is known durable and includes everything written before the
/// call.
pub(super) fn steady(source: &Path) -> Result<(Store, Revision), OfflineError> {
    let written = |store: &Store| tail(store, Revision::MAX).0;
    let first = Store::open(source)?;
    let needed = written(&first);
    let begun = Instant::now();
    let mut store = first;
    loop {
        if !store.in_use {
            let revision = written(&store);
            return Ok((store, revision));
        }
        // The copy must not include anything that is not in these files.
        let synced = store.synced().min(written(&store));
        if synced >= needed {
            return Ok((store, synced));
        }
        if begun.elapsed() >= QUIET {
            if let Some(last) = store.segments.last() {
                let path = source.join(Segment::name(last.header.number));
                last.file.sync_data().map_err(OfflineError::io(&path, "sync"))?;
            }
            let still = written(&store).min(needed).max(synced);
            return Ok((store, still));
        }
        std::thread::sleep(LOOK_INTERVAL);
        store = Store::open(source)?;
    }
}
