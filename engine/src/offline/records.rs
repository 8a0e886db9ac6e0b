//! A walk over the log: every record in order, and everything that recovery would report as damage.
//!
//! The rules are the rules of recovery (`recovery.rs`, `docs/format.md`). At or below the highest revision
//! known durable, everything that is not a sound record is damage; above it, the first unsound record ends
//! the log. While an engine is running, the walk ends at that revision, because the engine is writing the
//! records after it.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;

use crate::header::{Header, Note, Numbering, RECORDS_START};
use crate::io::{File, read_around};
use crate::offline::Store;
use crate::offline::damage::{Damage, Problem};
use crate::record::{ALIGN, EventKind, Head, RECORD_BYTES_MAX};
use crate::segment::{FoundRecord as RawRecord, Segment, Walk};
use crate::types::Revision;

/// Number of bytes read at a time.
const WINDOW_BYTES: usize = 1024 * 1024;

/// Number of bytes searched together if there is no record at the expected position. The number is nearly
/// twice the length of the longest record, so that each search advances by nearly that length.
const SEARCH_BYTES: usize = 16 * 1024 * 1024;

/// An item of the walk over a log.
#[derive(Debug)]
pub enum LogItem {
    /// A record. The body of the record may be damaged: see [`LogRecord::is_sound`].
    Record(LogRecord),
    /// A damaged or missing part of the log.
    Damage(Damage),
    /// The log ends before the end of the written part of the file. The bytes after the log are writes that
    /// were in progress at a crash and were never acknowledged. Opening the store removes these bytes.
    Torn {
        /// Name of the segment's file.
        file: String,
        /// Offset at which the log ends, in bytes.
        offset: u64,
    },
}

/// Kind of a record in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecordKind {
    /// The key has a new state.
    Put,
    /// The key was deleted; the record carries its final state.
    Delete,
    /// The key was deleted; the record carries no state.
    Tombstone,
}

/// A record of the log with its location.
#[derive(Clone)]
pub struct LogRecord {
    segment: Arc<Segment>,
    offset: u64,
    head: Head,
    bytes: Bytes,
    sound: bool,
}

impl LogRecord {
    /// Returns the name of the segment's file.
    pub fn file(&self) -> String {
        Segment::name(self.segment.header.number)
    }

    /// Returns the offset of the record in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the revision of the record.
    pub fn revision(&self) -> Revision {
        self.head.revision
    }

    /// Returns the revision of the put that created the key.
    pub fn created(&self) -> Revision {
        self.head.created
    }

    /// Returns the commit time, in milliseconds since 1970.
    pub fn time_ms(&self) -> u64 {
        self.head.time.ms()
    }

    /// Returns the time at which the key expires, in seconds since 1970; `None` if it does not expire.
    pub fn expires_s(&self) -> Option<u32> {
        (self.head.expires_s > 0).then_some(self.head.expires_s)
    }

    /// Returns the kind of the record.
    pub fn kind(&self) -> RecordKind {
        match (self.head.kind, self.head.tombstone) {
            (EventKind::Put, _) => RecordKind::Put,
            (EventKind::Delete, false) => RecordKind::Delete,
            (EventKind::Delete, true) => RecordKind::Tombstone,
        }
    }

    /// Returns the key of the record.
    pub fn key(&self) -> Bytes {
        self.bytes.slice_ref(self.head.key(&self.bytes))
    }

    /// Returns the value; `None` if the body is damaged.
    pub fn value(&self) -> Option<Bytes> {
        self.sound.then(|| self.head.record(self.bytes.clone()).value)
    }

    /// Returns the length of the value in bytes.
    pub fn value_len(&self) -> usize {
        self.head.value_len
    }

    /// Returns the length of the whole record in bytes.
    pub fn stored_len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether attributes and value match their checksums. (Key and revision always do, because
    /// otherwise the bytes are not a record.)
    pub fn is_sound(&self) -> bool {
        self.sound
    }

    pub(super) fn into_segment(self) -> Arc<Segment> {
        self.segment
    }

    pub(super) fn previous(&self) -> Revision {
        self.head.previous
    }

    /// Describes the damage of the record.
    pub(super) fn damage(&self, problem: Problem) -> Damage {
        Damage {
            file: self.file(),
            offset: Some(self.offset),
            revisions: Some((self.revision(), self.revision())),
            key: Some(self.key()),
            problem,
        }
    }
}

impl fmt::Debug for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogRecord")
            .field("key", &String::from_utf8_lossy(&self.key()))
            .field("revision", &self.revision())
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

/// Iterator over the records and the damage of a log.
pub struct Records<'s> {
    store: &'s Store,
    /// Index of the next segment.
    next: usize,
    current: Option<SegmentWalk>,
    /// The newest revision that was found or reported as missing.
    revision: Revision,
    time_ms: u64,
    /// Items that were found but not returned yet.
    ready: VecDeque<LogItem>,
    bytes_before: u64,
}

/// The segment that is being walked.
struct SegmentWalk {
    scanner: Scanner,
    /// Highest revision known durable in this segment; [`Revision::MAX`] for a complete segment.
    synced: Revision,
    is_last: bool,
    records: u32,
    /// Records of a revision that is not complete yet.
    held: Vec<LogRecord>,
    /// Whether bytes were written to the file after the last valid record of the log.
    is_torn: bool,
}

impl<'s> Records<'s> {
    pub(super) fn new(store: &'s Store) -> Records<'s> {
        let ready = VecDeque::new();
        Records {
            store,
            next: 0,
            current: None,
            revision: Revision::ZERO,
            time_ms: 0,
            ready,
            bytes_before: 0,
        }
    }

    /// Returns the number of bytes walked, out of [`Store::data_bytes`].
    pub fn bytes_done(&self) -> u64 {
        let current = self.current.as_ref().map_or(0, |part| part.scanner.expected - RECORDS_START);
        self.bytes_before + current
    }

    /// Returns the newest revision that was found or reported as missing.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    fn enter(&mut self, segment: &Arc<Segment>) {
        self.lost_until(segment, None, segment.header.first_revision);
        let is_last = self.next == self.store.segments.len();
        let written_to = is_last && segment.header.rewritten.is_none();
        let synced = if written_to { self.store.synced() } else { Revision::MAX };
        let scanner = Scanner::new(segment.clone(), self.revision);
        self.current =
            Some(SegmentWalk { scanner, synced, is_last, records: 0, held: Vec::new(), is_torn: false });
    }

    /// Processes the next record of the current segment; returns false if no valid record follows.
    fn advance(&mut self, part: &mut SegmentWalk) -> bool {
        let expected = part.scanner.expected;
        let Some(raw) = part.scanner.next() else {
            self.unreadable(part);
            self.release_last(part);
            if self.is_torn_behind(part, expected) {
                self.torn(part, expected);
            }
            return false;
        };
        self.unreadable(part);
        let segment = part.scanner.segment.clone();
        let revision = raw.head.revision;
        let sound = raw.head.body_is_sound(&raw.bytes);
        let gap = (raw.offset > expected).then_some(expected);
        if segment.header.rewritten.is_some() {
            // Revisions are missing on purpose, so a loss is reported only if there are bytes that are not a
            // record.
            if gap.is_some() {
                self.lost_until(&segment, gap, revision);
            }
        } else {
            if self.store.in_use && revision > part.synced {
                return false;
            }
            let held = part.held.first().map(LogRecord::revision);
            let is_missing = match segment.header.numbering {
                Numbering::Dense => revision > self.revision.next(),
                Numbering::Sparse => gap.is_some() || held.is_some_and(|held| held != revision),
            };
            if is_missing {
                if held.unwrap_or(self.revision.next()) > part.synced {
                    self.torn(part, expected);
                    return false;
                }
                self.release(part);
                self.lost_before(&segment, gap, revision);
            }
            if !sound && revision > part.synced {
                self.torn(part, raw.offset);
                return false;
            }
        }
        let is_whole = !raw.head.more || segment.header.rewritten.is_some();
        let record = LogRecord { segment, offset: raw.offset, head: raw.head, bytes: raw.bytes, sound };
        part.held.push(record);
        if is_whole {
            self.release(part);
        }
        true
    }

    /// Adds the held records to the items that the walk returns.
    fn release(&mut self, part: &mut SegmentWalk) {
        for record in part.held.drain(..) {
            if record.time_ms() < self.time_ms {
                self.ready.push_back(LogItem::Damage(record.damage(Problem::Time)));
            }
            self.time_ms = self.time_ms.max(record.time_ms());
            self.revision = record.revision();
            part.records += 1;
            self.ready.push_back(LogItem::Record(record));
        }
    }

    /// Reports a revision at the segment's end that lacks some of its records.
    fn release_last(&mut self, part: &mut SegmentWalk) {
        let Some(held) = part.held.first().map(LogRecord::revision) else { return };
        if held > part.synced {
            self.torn(part, part.scanner.expected);
            return;
        }
        self.release(part);
        self.lost_before(&part.scanner.segment, Some(part.scanner.expected), held);
    }

    /// Reports the revisions that the segment should have but lacks.
    fn leave(&mut self, part: &SegmentWalk) {
        let segment = &part.scanner.segment;
        if let Some(rewritten) = segment.header.rewritten {
            if part.records < rewritten.records && part.scanner.expected != rewritten.end {
                self.lost_until(segment, Some(part.scanner.expected), rewritten.last_revision.next());
            }
            self.revision = self.revision.max(rewritten.last_revision);
        } else if part.is_last {
            // A checkpoint may refer to a segment that was made after the directory was read.
            let there = if self.store.in_use { noted_durable(segment) } else { part.synced };
            self.lost_until(segment, None, there.next());
        }
        self.bytes_before += part.scanner.end - RECORDS_START;
    }

    /// Reports the revisions lower than `revision` that have no record.
    fn lost_until(&mut self, segment: &Segment, offset: Option<u64>, revision: Revision) {
        if revision > self.revision.next() {
            self.lost(segment, offset, self.revision.next()..=revision.before());
            self.revision = revision.before();
        }
    }

    fn lost(&mut self, segment: &Segment, offset: Option<u64>, revisions: RangeInclusive<Revision>) {
        self.ready.push_back(LogItem::Damage(Damage {
            file: Segment::name(segment.header.number),
            offset,
            revisions: Some(revisions.into_inner()),
            key: None,
            problem: Problem::Lost,
        }));
    }

    /// Reports the missing records before a record of `revision`.
    fn lost_before(&mut self, segment: &Segment, offset: Option<u64>, revision: Revision) {
        match segment.header.numbering {
            Numbering::Dense => self.lost_until(segment, offset, revision),
            // The missing records may share the revision of either neighbour.
            Numbering::Sparse => {
                self.lost(segment, offset, self.revision.max(Revision::FIRST)..=revision);
                self.revision = self.revision.max(revision.before());
            }
        }
    }

    fn unreadable(&mut self, part: &mut SegmentWalk) {
        if let Some((offset, reason)) = part.scanner.unreadable.take() {
            let name = Segment::name(part.scanner.segment.header.number);
            let damage = Damage::for_file(&name, Problem::Unreadable(reason));
            self.ready.push_back(LogItem::Damage(Damage { offset: Some(offset), ..damage }));
        }
    }

    /// Truncates the log at `offset`, or at the first record that was held back, whichever comes first.
    fn torn(&mut self, part: &mut SegmentWalk, offset: u64) {
        let offset = part.held.drain(..).next().map_or(offset, |held| held.offset);
        part.is_torn = true;
        let file = Segment::name(part.scanner.segment.header.number);
        self.ready.push_back(LogItem::Torn { file, offset });
    }

    /// Returns whether a torn tail follows the end of the log: bytes other than zeros that are not known to
    /// have been durable, in a log that no engine is writing to.
    fn is_torn_behind(&self, part: &SegmentWalk, end: u64) -> bool {
        part.is_last
            && !part.is_torn
            && !self.store.in_use
            && self.revision >= part.synced
            && !is_zero(&*part.scanner.segment.file, end..part.scanner.end)
    }
}

impl Iterator for Records<'_> {
    type Item = LogItem;

    fn next(&mut self) -> Option<LogItem> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Some(found);
            }
            match self.current.take() {
                Some(mut part) => {
                    if self.advance(&mut part) {
                        self.current = Some(part);
                    } else {
                        self.leave(&part);
                    }
                }
                None => {
                    let segment = self.store.segments.get(self.next)?.clone();
                    self.next += 1;
                    self.enter(&segment);
                }
            }
        }
    }
}

/// Returns the highest durable revision according to the log's last segment. Reads the file again.
pub(super) fn noted_durable(segment: &Arc<Segment>) -> Revision {
    let before = segment.header.first_revision.before();
    let noted = Note::read(&*segment.file, segment.header.salt).map_or(Revision::ZERO, |note| note.synced);
    let mut scanner = Scanner::new(segment.clone(), before);
    let mut synced = before.max(noted);
    while let Some(raw) = scanner.next() {
        synced = synced.max(raw.head.synced);
    }
    synced
}

/// Returns the newest revision of at most `until` that recovery would find in the log's last segment, and the
/// end of its record.
pub(super) fn tail(store: &Store, until: Revision) -> (Revision, u64) {
    let Some(segment) = store.segments.last() else { return (Revision::ZERO, RECORDS_START) };
    let mut revision = segment.header.first_revision.before();
    if let Some(rewritten) = segment.header.rewritten {
        return (rewritten.last_revision, rewritten.end);
    }
    let synced = store.synced();
    let mut scanner = Scanner::new(segment.clone(), revision);
    let mut end = RECORDS_START;
    // The revision that is not complete yet.
    let mut part = None;
    while let Some(raw) = scanner.next() {
        let is_next = match segment.header.numbering {
            Numbering::Dense => raw.head.revision == revision.next(),
            Numbering::Sparse => raw.skipped == 0 && part.is_none_or(|part| part == raw.head.revision),
        };
        let follows = is_next || part.unwrap_or(revision.next()) <= synced;
        let sound = raw.head.revision <= synced || raw.head.body_is_sound(&raw.bytes);
        if raw.head.revision > until || !follows || !sound {
            break;
        }
        part = raw.head.more.then_some(raw.head.revision);
        if part.is_none_or(|part| part <= synced) {
            revision = raw.head.revision;
            end = scanner.expected;
        }
    }
    let lost = if store.in_use { noted_durable(segment) } else { synced };
    (revision.max(lost.min(until)), end)
}

/// Returns the end of the part of a file that may contain data.
pub(super) fn written_end(file: &dyn File) -> u64 {
    let mut end = RECORDS_START;
    while let Ok(Some(stretch)) = file.written(end) {
        if stretch.end <= end {
            break;
        }
        end = stretch.end;
    }
    end.min(file.size()).max(RECORDS_START)
}

fn is_zero(file: &dyn File, range: Range<u64>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(WINDOW_BYTES as u64) as usize;
        if file.read(at, len).is_ok_and(|bytes| bytes.iter().any(|&byte| byte != 0)) {
            return false;
        }
        at += len as u64;
    }
    true
}

/// Iterator over the records of one segment whose heads are sound. The iterator reads the file window by
/// window.
pub(super) struct Scanner {
    pub segment: Arc<Segment>,
    /// Offset at which the data ends.
    pub end: u64,
    /// Offset at which the next record must begin.
    pub expected: u64,
    /// The first position that could not be read, and the error.
    pub unreadable: Option<(u64, String)>,
    window: Range<u64>,
    walk: Walk,
    lowest: Revision,
}

impl Scanner {
    /// Scans the records with a revision greater than `after`.
    pub fn new(segment: Arc<Segment>, after: Revision) -> Scanner {
        let end = written_end(&*segment.file);
        let Header { salt, numbering, .. } = segment.header;
        let walk = Walk::over(Bytes::new(), RECORDS_START, salt, after.next(), numbering);
        let window = RECORDS_START..RECORDS_START;
        Scanner {
            end,
            expected: RECORDS_START,
            unreadable: None,
            window,
            walk,
            lowest: after.next(),
            segment,
        }
    }

    /// Returns the next record. Bytes between the expected position and the position of the record are
    /// damaged.
    pub fn next(&mut self) -> Option<RawRecord> {
        loop {
            if let Some(raw) = self.walk.next() {
                let skipped = raw.offset - self.expected;
                self.expected = raw.offset + raw.bytes.len() as u64;
                self.lowest = self.segment.header.numbering.lowest_after(raw.head.revision);
                return Some(RawRecord { skipped, ..raw });
            }
            if self.window.end >= self.end {
                return None;
            }
            let (start, len) = if self.window.start < self.expected || self.window.is_empty() {
                (self.expected, WINDOW_BYTES)
            } else if self.window.end - self.window.start < SEARCH_BYTES as u64 {
                // The record may be longer than the window.
                (self.window.start, SEARCH_BYTES)
            } else {
                // The window is long enough for any record that begins in its first part, and the search
                // found no record there.
                let behind = self.window.end - RECORD_BYTES_MAX as u64;
                (behind - behind % ALIGN as u64, SEARCH_BYTES)
            };
            let end = self.end.min(start + len as u64);
            let data = self.fill(start..end);
            let Header { salt, numbering, .. } = self.segment.header;
            self.walk = Walk::over(data, start, salt, self.lowest, numbering);
            self.window = start..end;
        }
    }

    /// Returns the bytes of the range, with zeros for unreadable parts.
    fn fill(&mut self, range: Range<u64>) -> Bytes {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if let Some((at, error)) = read_around(&*self.segment.file, range.start, &mut bytes) {
            self.unreadable.get_or_insert((at, error.to_string()));
        }
        bytes.into()
    }
}
