//! Opening: segments in order → index, newest revision, and the place to go on writing.
//!
//! Every record was written with the highest revision known to be on disk at that time (`synced`), and when the
//! log rests that is noted in the segment's first block. Let S be the highest of these. Then
//!
//! - an invalid record with a revision of at most S was acknowledged once: **damage**. It is reported, its key
//!   reads as damaged where the head still tells the key, and everything else is served;
//! - an invalid record above S belongs to the last batch, whose sync never returned: a **torn tail**. It and
//!   all that follows it is cut: overwritten with zeros, so that no leftover is ever taken for a record.
//!
//! Segments before the last were synced before the next was made, so all invalid bytes in them are damage. What
//! is found and kept is made durable before anybody reads it: after a crash of the process alone it may exist in
//! memory only. That takes more than a sync: had one failed before, the kernel takes the pages for clean, shows them
//! to us and has nothing to write. So what no record vouches for is written again, the zeros behind it as well, and
//! the names of the files are synced like their bytes.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::error::OpenError;
use crate::header::{FORMAT_VERSION, Header, HeaderError, RECORDS_START};
use crate::index::Tree;
use crate::io::Storage;
use crate::log::{NEXT_NAME, Segments, install};
use crate::sabotage;
use crate::segment::Segment;
use crate::snapshot::Root;

/// What was found on disk.
pub(crate) struct Recovered {
    pub root: Root,
    /// The segment to go on in.
    pub current: Arc<Segment>,
    /// Where its next record goes.
    pub position: u64,
    /// Revisions whose records are damaged so far that not even their keys are known.
    pub lost_revisions: u64,
    pub record_bytes: u64,
    /// The highest time of a record; 0 when there is none.
    pub time_ms: u64,
}

/// Reads the log in `storage`, makes one if there is none, and leaves it ready to be written to.
pub(crate) fn recover(storage: &dyn Storage, segment_bytes: u64) -> Result<Recovered, OpenError> {
    let failed = |name: &str, operation| {
        let path = storage.path(name);
        move |source| OpenError::Io { path: path.clone(), operation, source }
    };
    let names = storage.list().map_err(failed("", "list the store's directory"))?;
    if names.iter().any(|name| name == NEXT_NAME) {
        storage.remove(NEXT_NAME).map_err(failed(NEXT_NAME, "remove an unfinished segment"))?;
    }
    if !sabotage::recovery_without_sync() {
        // The process may have ended between giving a segment its name and syncing that.
        storage.sync_dir().map_err(failed("", "sync the store's directory"))?;
    }
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| Segment::number(name)).collect();
    numbers.sort_unstable();
    let mut segments = Vec::with_capacity(numbers.len());
    for (at, &number) in numbers.iter().enumerate() {
        let expected = 1 + at as u32;
        if number != expected {
            return Err(OpenError::MissingSegment { path: storage.path(&Segment::name(expected)) });
        }
        segments.push(open(storage, number)?);
    }
    if segments.is_empty() {
        let create = || {
            let file = storage.create(NEXT_NAME, segment_bytes)?;
            let (salt, store) = (storage.entropy(), storage.entropy());
            let header = Header { number: 1, after: 0, first_revision: 1, salt, store, rewritten: None };
            install(storage, header, file)
        };
        segments.push(create().map_err(failed(&Segment::name(1), "create the first segment"))?);
    }

    let mut state = Scan {
        tree: Tree::default(),
        revision: 0,
        time_ms: 0,
        lost_revisions: 0,
        record_bytes: 0,
        doubtful: None,
    };
    let last = segments.len() - 1;
    for (at, segment) in segments.iter().enumerate() {
        let read_failed = failed(&Segment::name(segment.header.number), "read");
        // A segment says what came before it, so records missing at the end of the one before are noticed.
        state.missing_until(storage, segment, segment.header.first_revision);
        let synced = if at < last { u64::MAX } else { last_synced(segment).map_err(&read_failed)? };
        let end = state.scan(storage, segment, synced).map_err(&read_failed)?;
        segment.advance(end);
        if at == last {
            state.missing_until(storage, segment, synced + 1);
        }
    }
    let current = segments[last].clone();
    let name = Segment::name(current.header.number);
    let doubtful = state.doubtful.unwrap_or(current.end());
    write_again(&current, doubtful..current.end()).map_err(failed(&name, "write the end again"))?;
    clear_from(storage, &current, current.end()).map_err(failed(&name, "clear the torn end"))?;
    if !sabotage::recovery_without_sync() {
        current.file.sync_data().map_err(failed(&name, "sync"))?;
    }
    Ok(Recovered {
        root: Root {
            revision: state.revision,
            oldest: 0,
            tree: state.tree,
            segments: Segments::new(segments),
        },
        position: current.end(),
        current,
        lost_revisions: state.lost_revisions,
        record_bytes: state.record_bytes,
        time_ms: state.time_ms,
    })
}

fn open(storage: &dyn Storage, number: u32) -> Result<Arc<Segment>, OpenError> {
    let name = Segment::name(number);
    let path = storage.path(&name);
    let opened = storage.open(&name).map_err(HeaderError::Io).and_then(|file| Segment::open(number, file));
    opened.map(Arc::new).map_err(|error| match error {
        HeaderError::Newer(found) => OpenError::NewerFormat { path, found, supported: FORMAT_VERSION },
        HeaderError::Damaged => OpenError::BadHeader { path },
        HeaderError::Io(source) => OpenError::Io { path, operation: "open", source },
    })
}

/// What must have been on disk when the segment was last written to.
fn last_synced(segment: &Segment) -> io::Result<u64> {
    let mut walk = segment.walk(RECORDS_START, written_end(segment)?, segment.header.first_revision - 1)?;
    // What is before the segment was synced before the segment was made.
    let mut synced = (segment.header.first_revision - 1).max(segment.note().synced);
    while let Some(found) = walk.next() {
        synced = synced.max(found.head.synced);
    }
    Ok(synced)
}

/// Where the part of the file ends that may hold anything.
fn written_end(segment: &Segment) -> io::Result<u64> {
    let mut end = RECORDS_START;
    while let Some(stretch) = segment.file.written(end)? {
        if stretch.end <= end {
            break;
        }
        end = stretch.end;
    }
    Ok(end.min(segment.file.size()).max(RECORDS_START.min(segment.file.size())))
}

/// The index in the making.
struct Scan {
    tree: Tree,
    /// The newest revision accounted for.
    revision: u64,
    /// The highest time of a record.
    time_ms: u64,
    lost_revisions: u64,
    record_bytes: u64,
    /// Where the first record of the last segment begins that nothing says is on disk.
    doubtful: Option<u64>,
}

impl Scan {
    /// Adds the records of `segment`; returns where they end. What is invalid above `synced` ends them.
    fn scan(&mut self, storage: &dyn Storage, segment: &Arc<Segment>, synced: u64) -> io::Result<u64> {
        let mut walk = segment.walk(RECORDS_START, written_end(segment)?, self.revision)?;
        let mut end = RECORDS_START;
        while let Some(found) = walk.next() {
            let revision = found.head.revision;
            if revision > self.revision + 1 {
                if self.revision + 1 > synced {
                    break;
                }
                self.missing_until(storage, segment, revision);
            }
            if !found.head.body_is_sound(&found.bytes) {
                if revision > synced && !sabotage::torn_tail_kept() {
                    break;
                }
                tracing::error!(
                    path = %storage.path(&Segment::name(segment.header.number)).display(),
                    offset = found.offset,
                    revision,
                    key = %String::from_utf8_lossy(found.head.key(&found.bytes)),
                    "a record is damaged; its key reads as damaged until it is written again"
                );
            }
            if revision > synced && self.doubtful.is_none() {
                self.doubtful = Some(found.offset);
            }
            let len = found.bytes.len();
            self.tree.push(found.head.key(&found.bytes), found.version(segment.header.number));
            segment.mark(revision, found.offset);
            self.revision = revision;
            self.time_ms = self.time_ms.max(found.head.time_ms);
            self.record_bytes += len as u64;
            end = found.offset + len as u64;
        }
        Ok(end)
    }

    /// Accounts for the revisions before `revision` that no record was found for.
    fn missing_until(&mut self, storage: &dyn Storage, segment: &Segment, revision: u64) {
        let missing: Range<u64> = self.revision + 1..revision;
        if missing.is_empty() {
            return;
        }
        tracing::error!(
            path = %storage.path(&Segment::name(segment.header.number)).display(),
            first = missing.start,
            last = missing.end - 1,
            "records are damaged beyond telling their keys; these show their states before, if they had any"
        );
        self.lost_revisions += missing.end - missing.start;
        self.revision = missing.end - 1;
    }
}

/// Writes what stands there once more, so that the next sync has to bring it to disk.
fn write_again(segment: &Segment, range: Range<u64>) -> io::Result<()> {
    if range.is_empty() || sabotage::tail_not_rewritten() {
        return Ok(());
    }
    let bytes = segment.file.read(range.start, (range.end - range.start) as usize)?;
    segment.file.write_at(range.start, &bytes)
}

/// Overwrites with zeros whatever is behind the end of the log, and zeros as well: see the head of this file.
fn clear_from(storage: &dyn Storage, segment: &Segment, end: u64) -> io::Result<()> {
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
        tracing::warn!(
            path = %storage.path(&Segment::name(segment.header.number)).display(),
            offset = end,
            "cut a torn end of the log: writes that were under way at a crash and never acknowledged"
        );
    }
    Ok(())
}
