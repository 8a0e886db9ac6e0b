//! Recovery: opens a store from the newest sound checkpoint and the log behind it, and determines the index,
//! the newest revision and the position of the next record.
//!
//! `files → which of them make the log (chain.rs) → index of the newest sound checkpoint, or an empty one
//!  → walk the log behind it → cut the torn tail → remove superseded files`
//!
//! Several places say which revisions are durable: every record contains the highest revision known durable
//! when it was written (`synced`); a note in the first block of an idle segment says so too; a checkpoint,
//! even one that opening cannot use, never refers to anything that was not durable; and the high-water mark
//! notes a durable revision. Let S be the highest of these revisions. Then
//!
//! - an invalid record with a revision of at most S was acknowledged once: **damage**. The damage is
//!   reported, the key of the record reads as damaged if the head still shows the key, and everything else is
//!   served;
//! - an invalid record above S belongs to the last batch, whose sync never returned: a **torn tail**. The
//!   record and all that follows is cut: overwritten with zeros, so that no stale bytes are ever taken for a
//!   record.
//!
//! Each segment except the last was synced before the next one was made, so all invalid bytes in it are
//! damage. Records that are kept are made durable before readers see them: after a crash of the process alone
//! they may exist only in memory. A sync does not suffice for this. If an earlier sync failed, the kernel
//! treats the pages as clean: it shows them to readers and has nothing to write. So records that are not
//! known durable are written again, as are the zeros behind them, and the names of the files are synced like
//! their bytes.
//!
//! Bytes that the disk cannot read are treated like any damage, unless the log would end there: then the
//! store is not opened, because the bytes may have been acknowledged.
//!
//! A rewritten segment lacks revisions on purpose; its header contains its number of records.

mod scan;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::bloom::BloomScheme;
use crate::chain;
use crate::checkpoint;
use crate::error::OpenError;
use crate::expiry::DueVersion;
use crate::header::{FORMAT_VERSION, Header, HeaderError, Numbering, RECORDS_START};
use crate::high_water::{HighWater, HighWaterMark};
use crate::history;
use crate::index::Tree;
use crate::io::Storage;
use crate::log::{NEXT_NAME, Segments, install};
use crate::losses::Losses;
use crate::reclaim;
use crate::record::{HEAD_BYTES, Head};
use crate::recovery::scan::{LogScan, last_synced};
use crate::sabotage;
use crate::segment::Segment;
use crate::snapshot::Root;
use crate::types::{CommitTime, KEY_BYTES_MAX, Revision, SegmentNumber};

/// The state of a store after recovery.
pub(crate) struct Recovered {
    pub root: Root,
    /// Offset of the next record in the last segment.
    pub position: u64,
    /// The high-water mark, which names the last segment.
    pub high_water: HighWater,
    /// Revisions whose records are damaged so far that their keys are unknown.
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
    /// Size of its image, in bytes.
    pub bytes: u64,
    /// Number of revisions that were lost to damage when it was made.
    pub lost_revisions: u64,
}

/// Recovers the store in `storage`, or creates one if the directory is empty, and prepares it for writing.
pub(crate) fn recover(
    storage: &dyn Storage,
    segment_bytes: u64,
    bloom_scheme: BloomScheme,
    numbering: Numbering,
) -> Result<Recovered, OpenError> {
    let failed = |name: &str, operation| {
        let path = storage.path(name);
        move |source| OpenError::Io { path: path.clone(), operation, source }
    };
    let names = storage.list().map_err(failed("", "list the store's directory"))?;
    for unfinished in [NEXT_NAME, reclaim::NEXT_NAME, checkpoint::NEXT_NAME] {
        if names.iter().any(|name| name == unfinished) {
            storage.remove(unfinished).map_err(failed(unfinished, "remove an unfinished file"))?;
        }
    }
    if !sabotage::recovery_without_sync() {
        // The process may have ended after it renamed a segment and before it synced the directory.
        storage.sync_dir().map_err(failed("", "sync the store's directory"))?;
    }
    let mut numbers: Vec<SegmentNumber> = names.iter().filter_map(|name| Segment::number(name)).collect();
    numbers.sort_unstable();
    let found: Vec<_> = numbers.iter().map(|&number| open(storage, number)).collect::<Result<_, _>>()?;
    if let Some(stranger) = found.iter().find(|segment| segment.header.store != found[0].header.store) {
        return Err(OpenError::OtherStore { path: storage.path(&Segment::name(stranger.header.number)) });
    }
    let high_water = HighWater::open(storage);
    let headers: Vec<_> = found.iter().map(|segment| segment.header).collect();
    if let Some(mark) = high_water.mark().filter(|mark| !mark.is_reached_by(&headers)) {
        return Err(OpenError::MissingEnd {
            path: storage.path(&Segment::name(mark.number)),
            first_revision: mark.first_revision,
        });
    }
    let mut checkpoints: Vec<Revision> = names.iter().filter_map(|name| checkpoint::revision(name)).collect();
    checkpoints.sort_unstable();

    let start = match ScanStart::from_checkpoints(storage, &found, &checkpoints, bloom_scheme) {
        Ok(start) => start,
        Err(witnesses) => ScanStart::from_segments(storage, &found, &witnesses, bloom_scheme)?,
    };
    let ScanStart { mut segments, used, mut state, first_to_scan, numbers_given, known_durable } = start;
    let is_ours = |mark: &HighWaterMark| {
        headers.iter().all(|header| header.store == mark.store) && !sabotage::synced_marks_ignored()
    };
    let noted_durable = high_water.mark().filter(is_ours).map_or(Revision::ZERO, |mark| mark.durable);
    let known_durable = known_durable.max(noted_durable);
    let numbers_given = numbers_given.max(numbers.last().copied().unwrap_or_default());
    let goes_on = segments.last().is_some_and(|last| last.header.rewritten.is_none());
    let begin = |last: Option<&Arc<Segment>>, number, first_revision| {
        let next = begin(storage, segment_bytes, last, number, first_revision, numbering);
        next.map_err(failed(&Segment::name(number), "begin a segment"))
    };
    if !goes_on {
        let after_last =
            |last: &Arc<Segment>| last.header.rewritten.map_or(Revision::FIRST, |it| it.last_revision.next());
        let first_revision = segments.last().map_or(Revision::FIRST, after_last);
        segments.push(begin(segments.last(), numbers_given.next(), first_revision)?);
    }
    let mut numbers_given =
        numbers_given.max(segments.iter().map(|s| s.header.number).max().unwrap_or_default());

    let last = segments.len() - 1;
    let mut is_end_lost = false;
    for (at, segment) in segments.iter().enumerate().skip(first_to_scan) {
        let read_failed = failed(&Segment::name(segment.header.number), "read");
        // Each segment states its first revision, so records missing at the end of the segment before it are
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
    let mut current = segments[last].clone();
    let name = Segment::name(current.header.number);
    let stopped_at = state.stopped_at.max(current.end());
    end_is_readable(&current, stopped_at).map_err(|source| {
        let (path, offset) = (storage.path(&name), stopped_at);
        OpenError::UnreadableEnd { path, offset, source }
    })?;
    let doubtful = state.doubtful.unwrap_or(current.end()).min(current.end());
    write_again(&current, doubtful..current.end()).map_err(failed(&name, "write the end again"))?;
    clear_from(storage, &current, current.end(), is_end_lost).map_err(failed(&name, "clear the torn end"))?;
    if !sabotage::recovery_without_sync() {
        current.file.sync_data().map_err(failed(&name, "sync"))?;
    }
    // If revisions may have gaps, only the first revision of a next segment reveals that records are missing
    // at the end of this one.
    let has_lost_end = is_end_lost && current.header.numbering == Numbering::Sparse;
    if has_lost_end || numbering > current.header.numbering {
        numbers_given = numbers_given.next();
        current = begin(Some(&current), numbers_given, state.revision.next())?;
        segments.push(current.clone());
    }
    high_water.raise(storage, &current.header);
    remove_superseded(storage, &found, &segments, &checkpoints, used.as_ref());

    let oldest = oldest(&segments).max(state.oldest).min(state.revision);
    if oldest > state.oldest {
        state.tree = state.tree.pruned(oldest);
    }
    let noted = current.note().synced.max(current.header.first_revision.before());
    if state.revision > noted {
        tracing::info!(
            revision = state.revision.get(),
            noted = noted.get(),
            "the store was not closed: the log was read from its recorded end to its actual end"
        );
    }
    let segments = Segments::new(segments);
    let expiring = count_live_bytes(&state.tree, &segments);
    Ok(Recovered {
        position: current.end(),
        high_water,
        root: Root { revision: state.revision, oldest, tree: state.tree, segments, end: current.end() },
        lost_revisions: state.lost_revisions,
        losses: state.losses,
        time: state.time,
        numbers_given,
        checkpoint: used,
        expiring,
    })
}

/// Begins the segment to be written to: the first one of the store, or the one behind `last`, which is
/// durable.
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

/// The starting point of the walk over the log.
struct ScanStart {
    /// The segments of the log, in order.
    segments: Vec<Arc<Segment>>,
    used: Option<UsedCheckpoint>,
    state: LogScan,
    /// Index of the first segment that is to be scanned.
    first_to_scan: usize,
    numbers_given: SegmentNumber,
    /// Everything up to this revision is known to have been durable.
    known_durable: Revision,
}

/// Facts that follow from a checkpoint even if opening cannot begin with it: everything up to its revision
/// was durable.
struct Witness {
    revision: Revision,
    store: u64,
    /// Number and salt of the last segment of the log.
    last: (SegmentNumber, u64),
    /// A revision that is in that segment, or will be.
    last_holds: Revision,
}

impl ScanStart {
    /// Starts at the beginning of the log, without a checkpoint.
    fn from_segments(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        witnesses: &[Witness],
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, OpenError> {
        let missing = |number| OpenError::MissingSegment { path: storage.path(&Segment::name(number)) };
        let headers: Vec<_> = found.iter().map(|segment| segment.header).collect();
        let log = chain::from_headers(&headers).map_err(|gap| missing(gap.number))?;
        let is_ours = |witness: &&Witness| headers.iter().all(|header| header.store == witness.store);
        let mut known_durable = Revision::ZERO;
        for witness in witnesses.iter().filter(is_ours) {
            // Other segments reveal a missing segment except at the end of the log, so the checkpoints are
            // checked for it.
            let reaches = |header: &Header| {
                let stands_for = header.rewritten.map_or(Revision::ZERO, |rewritten| rewritten.last_revision);
                (header.number, header.salt) == witness.last
                    || stands_for >= witness.last_holds
                    || header.first_revision > witness.last_holds
            };
            if !headers.iter().any(reaches) {
                return Err(missing(witness.last.0));
            }
            known_durable = known_durable.max(witness.revision);
        }
        let segments = log.iter().map(|&at| found[at].clone()).collect();
        let state = LogScan { bloom_scheme, ..LogScan::default() };
        Ok(ScanStart {
            segments,
            used: None,
            state,
            first_to_scan: 0,
            numbers_given: SegmentNumber::NONE,
            known_durable,
        })
    }

    /// Starts from the newest of `checkpoints` that is sound and fits the segments. Otherwise returns the
    /// facts that follow from the checkpoints.
    fn from_checkpoints(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        checkpoints: &[Revision],
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, Vec<Witness>> {
        let mut witnesses = Vec::new();
        for &revision in checkpoints.iter().rev() {
            match ScanStart::from_checkpoint(storage, found, revision, bloom_scheme) {
                Ok(start) => return Ok(start),
                Err(witness) => witnesses.extend(witness),
            }
            tracing::warn!(
                path = %storage.path(&checkpoint::name(revision)).display(),
                "a checkpoint is damaged or does not fit the log; the log is read instead"
            );
        }
        Err(witnesses)
    }

    fn from_checkpoint(
        storage: &dyn Storage,
        found: &[Arc<Segment>],
        revision: Revision,
        bloom_scheme: BloomScheme,
    ) -> Result<ScanStart, Option<Witness>> {
        let file = storage.open(&checkpoint::name(revision)).map_err(|_| None)?;
        let loading = checkpoint::load(revision, &*file).ok_or(None)?;
        let contents = &loading.contents;
        let witness = contents.segments.last().map(|last| Witness {
            revision,
            store: contents.store,
            last: (last.number, last.salt),
            last_holds: if last.end == RECORDS_START { revision.next() } else { revision },
        });
        let start = ScanStart::from_image(found, revision, loading, bloom_scheme);
        start.ok_or(witness.filter(|_| !sabotage::witness_ignored()))
    }

    /// Starts from a loaded image. Returns `None` if the image does not fit the segments, or its keys are
    /// damaged.
    fn from_image(
        found: &[Arc<Segment>],
        revision: Revision,
        loading: checkpoint::CheckpointLoader,
        bloom_scheme: BloomScheme,
    ) -> Option<ScanStart> {
        let contents = loading.contents.clone();
        let headers: Vec<_> = found.iter().map(|segment| segment.header).collect();
        let log =
            chain::from_checkpoint(&headers, contents.store, &contents.segments, contents.numbers_given)?;
        let segments: Vec<_> = log.iter().map(|&at| found[at].clone()).collect();
        let first_to_scan = contents.segments.len() - 1;
        let fits = contents.segments.iter().zip(&segments).all(|(image, segment)| {
            let end_is_right = segment.header.rewritten.is_none_or(|rewritten| rewritten.end == image.end);
            end_is_right && image.end <= segment.file.size()
        });
        let goes_on_in = &segments[first_to_scan].header;
        if !fits || goes_on_in.rewritten.is_some() || goes_on_in.first_revision > revision.next() {
            return None;
        }
        let oldest = oldest(&segments).max(contents.oldest).min(revision);
        let bytes = loading.bytes();
        let (mut tree, has_blooms) = loading.tree(oldest, bloom_scheme.kind)?;
        if !has_blooms && bloom_scheme.kind != 0 {
            tracing::info!(
                "the checkpoint has no Bloom filters of this release; the attributes in the log are read"
            );
            bloom_scheme.make_blooms(&mut tree, &segments);
        }
        for (image, segment) in contents.segments.into_iter().zip(&segments) {
            segment.advance(image.end);
            segment.set_marks(image.marks.into());
        }
        let state = LogScan {
            tree,
            bloom_scheme,
            revision,
            time: contents.time,
            lost_revisions: contents.lost_revisions,
            oldest,
            ..LogScan::default()
        };
        let used = Some(UsedCheckpoint { revision, bytes, lost_revisions: contents.lost_revisions });
        let numbers_given = contents.numbers_given;
        Some(ScanStart { segments, used, state, first_to_scan, numbers_given, known_durable: revision })
    }
}

/// Returns the oldest readable revision according to the segments.
fn oldest(segments: &[Arc<Segment>]) -> Revision {
    let said = segments.iter().map(|segment| {
        let rewritten = segment.header.rewritten.map_or(Revision::ZERO, |rewritten| rewritten.oldest);
        rewritten.max(segment.note().oldest)
    });
    said.max().unwrap_or(Revision::ZERO)
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
    // newest one is removed first.
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

/// Counts the live bytes of each segment, and returns the expiries of the live keys.
fn count_live_bytes(tree: &Tree, segments: &Segments) -> Vec<DueVersion> {
    let mut expiring = Vec::new();
    tree.visit_slots(&mut |slot| {
        for version in history::iter(&slot.newest, &slot.older) {
            if let Some(segment) = segments.get(version.segment) {
                segment.add_live(version.len());
            }
        }
        expiring.extend(DueVersion::from_newest(&slot.newest));
    });
    expiring
}

fn open(storage: &dyn Storage, number: SegmentNumber) -> Result<Arc<Segment>, OpenError> {
    let name = Segment::name(number);
    let path = storage.path(&name);
    let opened = storage.open(&name).map_err(HeaderError::Io).and_then(|file| Segment::open(number, file));
    opened.map(Arc::new).map_err(|error| match error {
        HeaderError::Newer(found) => OpenError::NewerFormat { path, found, supported: FORMAT_VERSION },
        HeaderError::Damaged => OpenError::BadHeader { path },
        HeaderError::Io(source) => OpenError::Io { path, operation: "open", source },
    })
}

/// Checks that the bytes at the end of the log can be read. Bytes that are not a sound record were never
/// acknowledged, but that is unknown if the disk cannot read them. A mapping shows zeros for such bytes
/// (`mapping.rs`), so they are read without it.
fn end_is_readable(segment: &Segment, end: u64) -> io::Result<()> {
    if sabotage::unreadable_end_cut() {
        return Ok(());
    }
    let left = (segment.file.size() - end) as usize;
    let mut head = vec![0; left.min(HEAD_BYTES + KEY_BYTES_MAX)];
    segment.file.read_into(end, &mut head)?;
    // A sound head contains the length of its record.
    let head = Head::read(&segment.file.read(end, left)?, segment.header.salt, end);
    let mut record = vec![0; head.map_or(0, |head| head.record_len())];
    segment.file.read_into(end, &mut record)
}

/// Writes the bytes in the range again, so that the next sync writes them to the disk.
fn write_again(segment: &Segment, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() || sabotage::tail_not_rewritten() {
        return Ok(());
    }
    let bytes = segment.file.read(range.start, (range.end - range.start) as usize)?;
    segment.file.write_at(range.start, &bytes)
}

/// Overwrites everything behind the end of the log with zeros, existing zeros included; the head of this file
/// explains why.
fn clear_from(storage: &dyn Storage, segment: &Segment, end: u64, is_end_lost: bool) -> io::Result<()> {
    static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
    let mut cleared = false;
    let mut at = end;
    segment.assume_filled(end);
    while let Some(stretch) = segment.file.written(at)? {
        if stretch.start == at {
            segment.assume_filled(stretch.end);
        }
        at = stretch.start;
        while at < stretch.end {
            let len = (stretch.end - at).min(ZEROS.len() as u64) as usize;
            let bytes = segment.file.read(at, len)?;
            cleared |= bytes.iter().any(|&b| b != 0);
            if !sabotage::torn_tail_not_cleared() {
                segment.file.write_at(at, &ZEROS[..len])?;
            }
            at += len as u64;
        }
    }
    if cleared {
        let path = storage.path(&Segment::name(segment.header.number));
        let path = path.display();
        if is_end_lost {
            // Some of the cleared records were acknowledged.
            tracing::error!(%path, offset = end, "removed the rest of the lost end of the log");
        } else {
            tracing::warn!(
                %path,
                offset = end,
                "cut the torn tail of the log: writes that a crash interrupted and that were never acknowledged"
            );
        }
    }
    Ok(())
}
