//! Recovery: opens a store from the newest sound checkpoint and the log after it, and determines the index,
//! the newest revision and the position of the next record.
//!
//! `files → which of them make the log (chain.rs) → index of the newest sound checkpoint, or an empty one
//!  → walk the log behind it → cut the torn tail → remove superseded files`
//!
//! Several parts of the files show which revisions are durable. Every record contains the highest revision known
//! durable when it was written (`synced`), and a note in the first block of an idle segment contains such a
//! revision too. A checkpoint, even one that opening cannot use, never refers to anything that was not durable.
//! The high-water mark contains a durable revision. Let S be the highest of these revisions. Then
//!
//! - an invalid record with a revision of at most S was acknowledged once: **damage**. The damage is
//!   reported, the key of the record reads as damaged if the head still contains the key, and everything else
//!   is served;
//! - an invalid record above S belongs to the last batch, whose sync never returned: a **torn tail**. The record and
//!   all bytes after it are overwritten with zeros, so that stale bytes are never recognized as a record.
//!
//! Each segment except the last was synced before the next one was made, so all invalid bytes in such a
//! segment are damage. Records that are kept are made durable before readers see them: after a crash of the
//! process alone they may exist only in memory. A sync does not suffice for this. If an earlier sync failed,
//! the kernel treats the pages as clean: readers get these pages, but a sync does not write them. So records
//! that are not known durable are written again, as are the zeros behind them, and the directory is synced as
//! well.
//!
//! Bytes that the disk cannot read are treated like any damage, unless the log would end there: then the
//! store is not opened, because the bytes may have been acknowledged.
//!
//! A rewritten segment lacks revisions on purpose; its header contains its number of records.

mod blooms;
mod end;
mod files;
mod scan;
mod start;

use std::io;
use std::sync::Arc;

use self::end::secure_end;
use self::files::{FoundFiles, failed};
use self::scan::{LogScan, last_synced};
use self::start::{ScanStart, oldest};
use crate::bloom::BloomScheme;
use crate::checkpoint;
use crate::error::OpenError;
use crate::expiry::DueVersion;
use crate::header::{Header, Numbering};
use crate::high_water::HighWater;
use crate::history;
use crate::index::Tree;
use crate::io::Storage;
use crate::log::{NEXT_NAME, install};
use crate::losses::Losses;
use crate::segment::Segment;
use crate::segments::Segments;
use crate::snapshot::Root;
use crate::types::{CommitTime, Revision, SegmentNumber};

/// The state of a store after recovery.
pub(crate) struct Recovered {
    pub root: Root,
    /// Offset of the next record in the last segment.
    pub position: u64,
    /// The high-water mark, which names the last segment.
    pub high_water: HighWater,
    /// Revisions whose records are so damaged that their keys are unknown.
    pub lost_revisions: u64,
    /// Unreadable records among those that were scanned.
    pub losses: Losses,
    /// The highest time of a record; 0 if there are no records.
    pub time: CommitTime,
    /// The highest segment number given so far.
    pub numbers_given: SegmentNumber,
    /// The checkpoint that was used.
    pub checkpoint: Option<UsedCheckpoint>,
    /// Expiries of the live keys.
    pub expiring: Vec<DueVersion>,
}

/// A checkpoint that opening began with.
pub(crate) struct UsedCheckpoint {
    pub revision: Revision,
    /// Size of the checkpoint, in bytes.
    pub bytes: u64,
    /// Number of revisions that were lost to damage when the checkpoint was made.
    pub lost_revisions: u64,
}

/// Recovers the store in `storage`, or creates one if the directory is empty, and prepares it for writing.
pub(crate) fn recover(
    storage: &dyn Storage,
    segment_bytes: u64,
    bloom_scheme: BloomScheme,
    numbering: Numbering,
) -> Result<Recovered, OpenError> {
    let files = FoundFiles::read(storage)?;
    let start = ScanStart::find(storage, &files.segments, &files.checkpoints, bloom_scheme)?;
    let ScanStart { mut segments, used, mut state, first_to_scan, numbers_given, known_durable } = start;
    let known_durable = known_durable.max(files.noted_durable());
    let mut numbers_given = numbers_given.max(files.last_number());
    let begin = |last: Option<&Arc<Segment>>, number, first_revision| {
        let next = begin(storage, segment_bytes, last, number, first_revision, numbering);
        next.map_err(failed(storage, &Segment::name(number), "begin a segment"))
    };
    let goes_on = segments.last().is_some_and(|last| last.header.rewritten.is_none());
    if !goes_on {
        let after_last =
            |last: &Arc<Segment>| last.header.rewritten.map_or(Revision::FIRST, |it| it.last_revision.next());
        let first_revision = segments.last().map_or(Revision::FIRST, after_last);
        segments.push(begin(segments.last(), numbers_given.next(), first_revision)?);
    }
    numbers_given = numbers_given.max(segments.iter().map(|s| s.header.number).max().unwrap_or_default());

    let is_end_lost = scan_segments(storage, &segments, first_to_scan, known_durable, &mut state)?;
    let mut current = segments[segments.len() - 1].clone();
    secure_end(storage, &current, &state, is_end_lost)?;
    // If revisions may have gaps, only the first revision of a next segment reveals that records are missing
    // at the end of this one.
    let has_lost_end = is_end_lost && current.header.numbering == Numbering::Sparse;
    if has_lost_end || numbering > current.header.numbering {
        numbers_given = numbers_given.next();
        current = begin(Some(&current), numbers_given, state.revision.next())?;
        segments.push(current.clone());
    }
    files.high_water.raise(storage, &current.header);
    remove_superseded(storage, &files.segments, &segments, &files.checkpoints, used.as_ref());

    let oldest = oldest(&segments).max(state.oldest).min(state.revision);
    if oldest > state.oldest {
        state.tree = state.tree.pruned(oldest);
    }
    let noted = current.note().synced.max(current.header.first_revision.before());
    if state.revision > noted {
        tracing::info!(
            revision = state.revision.get(),
            noted = noted.get(),
            "the store was not closed properly: opening read the log beyond the last recorded position"
        );
    }
    let segments = Segments::new(segments);
    let expiring = count_live_bytes(&state.tree, &segments);
    Ok(Recovered {
        position: current.end(),
        high_water: files.high_water,
        root: Root { revision: state.revision, oldest, tree: state.tree, segments, end: current.end() },
        lost_revisions: state.lost_revisions,
        losses: state.losses,
        time: state.time,
        numbers_given,
        checkpoint: used,
        expiring,
    })
}

/// Walks over the segments from `first_to_scan` on. Returns whether acknowledged records are missing at the end of
/// the log.
fn scan_segments(
    storage: &dyn Storage,
    segments: &[Arc<Segment>],
    first_to_scan: usize,
    known_durable: Revision,
    state: &mut LogScan,
) -> Result<bool, OpenError> {
    let last = segments.len() - 1;
    let mut is_end_lost = false;
    for (at, segment) in segments.iter().enumerate().skip(first_to_scan) {
        let read_failed = failed(storage, &Segment::name(segment.header.number), "read");
        // Each segment states its first revision, so records missing at the end of the previous segment are
        // noticed.
        state.missing_until(storage, segment, segment.header.first_revision);
        if segment.header.rewritten.is_some() {
            state.scan_rewritten(storage, segment).map_err(&read_failed)?;
            continue;
        }
        let known = state.revision.max(known_durable);
        let synced =
            if at < last { Revision::MAX } else { last_synced(segment, known).map_err(&read_failed)? };
        state.scan(storage, segment, synced).map_err(&read_failed)?;
        if at == last {
            let found = state.revision;
            is_end_lost = state.missing_until(storage, segment, synced.next());
            if is_end_lost {
                tracing::error!(
                    path = %storage.path(&Segment::name(segment.header.number)).display(),
                    found = found.get(),
                    acknowledged = synced.get(),
                    "the log ends before the last known durable revision: its file was truncated or its end is damaged, and \
                     acknowledged writes are lost. Restore the store from a backup, or accept the loss with accept-loss"
                );
            }
        }
    }
    Ok(is_end_lost)
}

/// Creates the segment for the next records: the first segment of the store, or the segment after `last`,
/// which must be durable.
fn begin(
    storage: &dyn Storage,
    segment_bytes: u64,
    last: Option<&Arc<Segment>>,
    number: SegmentNumber,
    first_revision: Revision,
    numbering: Numbering,
) -> io::Result<Arc<Segment>> {
    let before = last.map(|last| &last.header);
    let header = Header {
        number,
        after: before.map_or(SegmentNumber::NONE, |header| header.number),
        first_revision,
        salt: storage.entropy(),
        store: before.map_or_else(|| storage.entropy(), |header| header.store),
        numbering,
        rewritten: None,
    };
    install(storage, header, storage.create(NEXT_NAME, segment_bytes)?)
}

/// Removes the files that do not belong to the store any more. A removal that fails is tried again at the
/// next opening.
fn remove_superseded(
    storage: &dyn Storage,
    found: &[Arc<Segment>],
    log: &[Arc<Segment>],
    checkpoints: &[Revision],
    used: Option<&UsedCheckpoint>,
) {
    let in_log = |number: SegmentNumber| log.iter().any(|segment| segment.header.number == number);
    let superseded = found.iter().filter(|segment| !in_log(segment.header.number));
    // A rewritten segment may depend on an earlier rewrite, and may lack tombstones because of it, so the
    // newest rewritten segment is removed first.
    let (rewritten, plain): (Vec<_>, Vec<_>) =
        superseded.partition(|segment| segment.header.rewritten.is_some());
    let mut numbers: Vec<SegmentNumber> = rewritten.iter().map(|segment| segment.header.number).collect();
    numbers.sort_unstable_by_key(|&number| std::cmp::Reverse(number));
    for name in numbers.into_iter().map(Segment::name) {
        let removed = storage.remove(&name).and_then(|()| storage.sync_dir());
        if let Err(error) = removed {
            tracing::warn!(path = %storage.path(&name).display(), "cannot remove a superseded file: {error}");
            break;
        }
    }
    let segments = plain.iter().map(|segment| segment.header.number);
    let stale = checkpoints.iter().filter(|&&revision| used.is_none_or(|used| used.revision != revision));
    let names = segments.map(Segment::name).chain(stale.map(|&revision| checkpoint::name(revision)));
    for name in names.collect::<Vec<_>>() {
        if let Err(error) = storage.remove(&name) {
            tracing::warn!(path = %storage.path(&name).display(), "cannot remove a superseded file: {error}");
        }
    }
}

/// Counts the live bytes of each segment and the newest states among them, and returns the expiries of the live keys.
fn count_live_bytes(tree: &Tree, segments: &Segments) -> Vec<DueVersion> {
    let mut expiring = Vec::new();
    // Versions that follow each other are mostly in the same segment, so their bytes are added together.
    let mut live = (SegmentNumber::NONE, 0);
    let mut add_live = |number: SegmentNumber, len: usize| {
        if number != live.0 {
            segments.get(live.0).inspect(|segment| segment.add_live(live.1));
            live = (number, 0);
        }
        live.1 += len;
    };
    tree.visit_slots(&mut |slot| {
        for version in history::iter(&slot.newest, &slot.older) {
            add_live(version.segment, version.len());
        }
        if !slot.newest.is_delete()
            && let Some(segment) = segments.get(slot.newest.segment)
        {
            segment.add_newest(slot.newest.len());
        }
        expiring.extend(DueVersion::from_newest(&slot.newest));
    });
    add_live(SegmentNumber::NONE, 0);
    expiring
}
