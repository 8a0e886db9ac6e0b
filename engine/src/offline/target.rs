//! The target of a backup: a directory made next to an earlier backup of the same store. Complete segments of
//! the earlier backup are kept.
//!
//! Segments that are kept or copied are read back and checked record by record. Damage in the source is
//! reported and copied unchanged, because the rest of the copy is still useful.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::header::{Header, Numbering, RECORDS_START};
use crate::io::{File, Storage, read_around};
use crate::offline::creation::NewDirectory;
use crate::offline::damage::{Damage, Problem};
use crate::offline::records::Scanner;
use crate::offline::{OfflineError, Store};
use crate::segment::Segment;
use crate::transfer::HeldSegment;
use crate::types::{Revision, SegmentNumber};

/// Number of bytes copied at a time.
const COPY_BYTES: u64 = 1024 * 1024;

/// Result of a backup.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BackupSummary {
    /// The revision at which the backup is consistent. The backup includes every write that was acknowledged
    /// before the backup began.
    pub revision: Revision,
    /// Oldest revision that can be read from the backup.
    pub oldest: Revision,
    /// Number of copied segments, and the bytes of their records.
    pub copied: (u64, u64),
    /// Number of segments kept from an earlier backup, and the bytes of their records.
    pub kept: (u64, u64),
    /// Number of reported damages. The copy has the same damages as the store.
    pub damages: u64,
}

/// A complete backup that is not in its final directory yet. Dropping the value removes the pending backup
/// and leaves the final directory unchanged.
#[must_use]
pub struct PendingBackup {
    making: NewDirectory,
    summary: BackupSummary,
}

impl PendingBackup {
    /// Moves the backup to its final directory, where it replaces the existing content. The move is durable.
    pub fn place(self) -> Result<BackupSummary, OfflineError> {
        self.making.finish()?;
        Ok(self.summary)
    }
}

/// A copied segment file, and the first position that could not be read, if any.
pub(super) struct Copied {
    pub file: Arc<dyn File>,
    pub unreadable: Option<(u64, std::io::Error)>,
}

/// A backup that is being made.
pub(super) struct Target {
    path: PathBuf,
    making: NewDirectory,
    earlier: Option<Store>,
    pub summary: BackupSummary,
}

impl Target {
    /// Begins a backup in `path`, which may contain an earlier backup.
    pub fn begin(path: &Path) -> Result<Target, OfflineError> {
        let making = NewDirectory::begin(path)?;
        let earlier = match Store::open(path) {
            Ok(earlier) => Some(earlier),
            Err(OfflineError::NoStore { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Target { path: path.to_owned(), making, earlier, summary: BackupSummary::default() })
    }

    /// Checks that the earlier backup, if any, belongs to the store with this fingerprint.
    pub fn check_store(&self, store: u64) -> Result<(), OfflineError> {
        let first = self.earlier.iter().flat_map(|earlier| earlier.segments.first()).next();
        match first {
            Some(stranger) if stranger.header.store != store => {
                Err(OfflineError::OtherStore { dir: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Returns the segment of the earlier backup with this header, if there is one.
    pub fn earlier(&self, header: &Header) -> Option<Arc<Segment>> {
        let segments = self.earlier.iter().flat_map(|earlier| &earlier.segments);
        segments.clone().find(|had| had.header == *header).cloned()
    }

    /// Returns descriptions of the complete and sound segments of the earlier backup. Reads all segments, and
    /// calls `on_progress` with the bytes done and the total bytes.
    pub fn held(&self, mut on_progress: impl FnMut(u64, u64)) -> Vec<HeldSegment> {
        let Some(earlier) = &self.earlier else { return Vec::new() };
        let (mut done, total) = (0, earlier.data_bytes());
        let mut all = Vec::new();
        for (at, segment) in earlier.segments.iter().enumerate() {
            // The last segment is not known to be complete, unless it was written as a whole.
            let end = match (earlier.segments.get(at + 1), segment.header.rewritten) {
                (Some(next), _) => next.header.first_revision,
                (None, Some(_)) => Revision::MAX,
                (None, None) => break,
            };
            let mut flaws = 0;
            let held = check(segment, end, &mut |_| flaws += 1);
            if flaws == 0 {
                all.push(held);
            }
            done += held.end - RECORDS_START;
            on_progress(done, total);
        }
        all
    }

    /// Keeps a segment of the earlier backup, with records up to `end`.
    pub fn keep(&mut self, had: &Arc<Segment>, end: u64) -> Result<(), OfflineError> {
        if !self.making.keep(&Segment::name(had.header.number)) {
            let block = self.read_block(had)?;
            let copied = self.copy(had, end, &block, |_| ())?;
            if let Some((_, reason)) = copied.unreadable {
                // The segment was readable a moment ago.
                return Err(self.failed(had.header.number)(reason));
            }
        }
        self.summary.kept = (self.summary.kept.0 + 1, self.summary.kept.1 + end - RECORDS_START);
        Ok(())
    }

    /// Reads the first block of a segment, including its notes.
    pub fn read_block(&self, segment: &Segment) -> Result<Bytes, OfflineError> {
        let path = self.making.dir().path(&Segment::name(segment.header.number));
        segment.file.read(0, RECORDS_START as usize).map_err(OfflineError::io(&path, "copy"))
    }

    /// Creates a segment's file of `size` bytes with this first block.
    pub fn create(
        &self,
        number: SegmentNumber,
        size: u64,
        block: &[u8],
    ) -> Result<Arc<dyn File>, OfflineError> {
        let name = Segment::name(number);
        let create = || {
            let file = self.making.dir().create(&name, size)?;
            file.write_at(0, block)?;
            Ok(file)
        };
        create().map_err(OfflineError::io(&self.making.dir().path(&name), "create"))
    }

    /// Returns a function that converts the I/O error of a write to this segment.
    pub fn failed(&self, number: SegmentNumber) -> impl FnOnce(std::io::Error) -> OfflineError + use<> {
        OfflineError::io(&self.making.dir().path(&Segment::name(number)), "write")
    }

    /// Writes `block`, then copies the records of `segment` up to `end`, with zeros for unreadable parts.
    /// Syncs the copy.
    pub fn copy(
        &self,
        segment: &Segment,
        end: u64,
        block: &[u8],
        mut on_progress: impl FnMut(u64),
    ) -> Result<Copied, OfflineError> {
        let number = segment.header.number;
        let file = self.create(number, segment.file.size(), block)?;
        let mut at = RECORDS_START;
        let mut bytes = vec![0; COPY_BYTES.min(end - at) as usize];
        let mut unreadable = None;
        while at < end {
            let bytes = &mut bytes[..(end - at).min(COPY_BYTES) as usize];
            unreadable = unreadable.or(read_around(&*segment.file, at, bytes));
            file.write_at(at, bytes).map_err(self.failed(number))?;
            at += bytes.len() as u64;
            on_progress(at - RECORDS_START);
        }
        file.sync_data().map_err(self.failed(number))?;
        Ok(Copied { file, unreadable })
    }

    /// Reads a copied segment back and counts it. The segment must have all revisions before `end_revision`,
    /// and has `bytes` of records.
    pub fn copied(
        &mut self,
        header: &Header,
        copied: Copied,
        end_revision: Revision,
        bytes: u64,
        on_damage: &mut dyn FnMut(&Damage),
    ) -> Result<(), OfflineError> {
        let Copied { file, unreadable } = copied;
        let read = Segment::open(header.number, file).ok().filter(|copy| copy.header == *header);
        let copy =
            Arc::new(read.ok_or_else(|| self.failed(header.number)(std::io::ErrorKind::InvalidData.into()))?);
        let mut report = |damage: &Damage| {
            self.summary.damages += 1;
            on_damage(damage);
        };
        if let Some((offset, reason)) = unreadable {
            let what =
                Damage::for_file(&Segment::name(header.number), Problem::Unreadable(reason.to_string()));
            report(&Damage { offset: Some(offset), ..what });
        }
        check(&copy, end_revision, &mut report);
        self.summary.copied = (self.summary.copied.0 + 1, self.summary.copied.1 + bytes);
        Ok(())
    }

    /// Returns the complete backup.
    pub fn ready(self) -> PendingBackup {
        PendingBackup { making: self.making, summary: self.summary }
    }
}

/// Reports the damage in a segment. Unless the segment is rewritten, it must have all revisions from its
/// first one up to, but not including, `end`. Returns the description of the segment.
pub(super) fn check(segment: &Arc<Segment>, end: Revision, report: &mut dyn FnMut(&Damage)) -> HeldSegment {
    let name = Segment::name(segment.header.number);
    let mut revision = segment.header.first_revision.before();
    let (mut records, mut last) = (0, None);
    let mut scanner = Scanner::new(segment.clone(), revision);
    let lost = |from: Revision, until: Revision| {
        let damage = Damage::for_file(&name, Problem::Lost);
        Damage { revisions: Some((from, until)), ..damage }
    };
    while let Some(raw) = scanner.next() {
        records += 1;
        match segment.header.numbering {
            _ if segment.header.rewritten.is_some() => {}
            Numbering::Dense if raw.head.revision > revision.next() => {
                report(&lost(revision.next(), raw.head.revision.before()));
            }
            // The missing record may share the revision of either neighbour.
            Numbering::Sparse if raw.skipped > 0 => {
                report(&lost(revision.max(Revision::FIRST), raw.head.revision))
            }
            _ => {}
        }
        if !raw.head.body_is_sound(&raw.bytes) {
            report(&Damage {
                file: name.clone(),
                offset: Some(raw.offset),
                revisions: Some((raw.head.revision, raw.head.revision)),
                key: Some(Bytes::copy_from_slice(raw.head.key(&raw.bytes))),
                problem: Problem::Body,
            });
        }
        revision = raw.head.revision;
        last = raw.bytes.first_chunk().map(|checksums| (raw.offset, *checksums));
    }
    match segment.header.rewritten {
        Some(rewritten) if records < rewritten.records => {
            report(&lost(segment.header.first_revision, rewritten.last_revision));
        }
        None if revision.next() < end => report(&lost(revision.next(), end.before())),
        _ => {}
    }
    if let Some((offset, reason)) = scanner.unreadable {
        report(&Damage { offset: Some(offset), ..Damage::for_file(&name, Problem::Unreadable(reason)) });
    }
    HeldSegment { header: segment.header, end: scanner.expected, last }
}
