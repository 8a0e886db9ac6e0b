//! Where a backup goes: beside an earlier one of the same store, of which it takes over what it can.
//!
//! What is taken over, or was copied, is read back and checked record by record. Damage that the source has is told
//! of and kept as it is; the rest of the copy is worth having.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::header::{Header, Numbering, RECORDS_START};
use crate::io::{File, Storage, read_around};
use crate::offline::damage::{Damage, Problem};
use crate::offline::making::Making;
use crate::offline::records::Scanner;
use crate::offline::{OfflineError, Store};
use crate::segment::Segment;
use crate::transfer::Held;
use crate::types::{Revision, SegmentNumber};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1024 * 1024;

/// What a backup did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BackedUp {
    /// The revision at which it is consistent. Every write acknowledged before it began is in it.
    pub revision: Revision,
    /// The lowest revision that can be read from it.
    pub oldest: Revision,
    /// Segments copied, and the bytes of their records.
    pub copied: (u64, u64),
    /// Segments that an earlier backup had already, and the bytes of their records.
    pub kept: (u64, u64),
    /// How many damages were told of. They are in the copy as they are in the store.
    pub damages: u64,
}

/// A backup that is complete and not in its place yet. Dropped, it is removed, and what is in the place stays.
#[must_use]
pub struct Ready {
    making: Making,
    done: BackedUp,
}

impl Ready {
    /// What it is.
    pub fn done(&self) -> &BackedUp {
        &self.done
    }

    /// Puts it into its place, durably, instead of what is there.
    pub fn place(self) -> Result<BackedUp, OfflineError> {
        self.making.finish()?;
        Ok(self.done)
    }
}

/// A segment's file that was copied, and the first place of what could not be read, if any.
pub(super) struct Copied {
    pub file: Arc<dyn File>,
    pub unreadable: Option<(u64, std::io::Error)>,
}

/// A backup in the making.
pub(super) struct Target {
    path: PathBuf,
    making: Making,
    earlier: Option<Store>,
    pub done: BackedUp,
}

impl Target {
    /// Begins one in `path`, which has an earlier one, or nothing.
    pub fn begin(path: &Path) -> Result<Target, OfflineError> {
        let making = Making::begin(path)?;
        let earlier = match Store::open(path) {
            Ok(earlier) => Some(earlier),
            Err(OfflineError::NoStore { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Target { path: path.to_owned(), making, earlier, done: BackedUp::default() })
    }

    /// Refuses to go on when what is there is not of the store with that identity.
    pub fn must_be_of(&self, store: u64) -> Result<(), OfflineError> {
        let first = self.earlier.iter().flat_map(|earlier| earlier.segments.first()).next();
        match first {
            Some(stranger) if stranger.header.store != store => {
                Err(OfflineError::OtherStore { dir: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The segment with that header which is there already.
    pub fn earlier(&self, header: &Header) -> Option<Arc<Segment>> {
        let segments = self.earlier.iter().flat_map(|earlier| &earlier.segments);
        segments.clone().find(|had| had.header == *header).cloned()
    }

    /// The complete and sound segments that are there already. Reads them all; `on_progress` hears the bytes done and
    /// the bytes there are.
    pub fn held(&self, mut on_progress: impl FnMut(u64, u64)) -> Vec<Held> {
        let Some(earlier) = &self.earlier else { return Vec::new() };
        let (mut done, total) = (0, earlier.data_bytes());
        let mut all = Vec::new();
        for (at, segment) in earlier.segments.iter().enumerate() {
            // Nothing says that the last one is complete, unless it was written as a whole.
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

    /// Takes over a segment that is there already, with records up to `end`.
    pub fn keep(&mut self, had: &Arc<Segment>, end: u64) -> Result<(), OfflineError> {
        if !self.making.keep(&Segment::name(had.header.number)) {
            let block = self.read_block(had)?;
            let copied = self.copy(had, end, &block, |_| ())?;
            if let Some((_, reason)) = copied.unreadable {
                // A moment ago it was whole.
                return Err(self.failed(had.header.number)(reason));
            }
        }
        self.done.kept = (self.done.kept.0 + 1, self.done.kept.1 + end - RECORDS_START);
        Ok(())
    }

    /// The first block of a segment, notes included.
    pub fn read_block(&self, segment: &Segment) -> Result<Bytes, OfflineError> {
        let path = self.making.dir().path(&Segment::name(segment.header.number));
        segment.file.read(0, RECORDS_START as usize).map_err(OfflineError::io(&path, "copy"))
    }

    /// Begins a segment's file of `size` bytes with that first block.
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

    /// What to do with a failure to write that segment.
    pub fn failed(&self, number: SegmentNumber) -> impl FnOnce(std::io::Error) -> OfflineError + use<> {
        OfflineError::io(&self.making.dir().path(&Segment::name(number)), "write")
    }

    /// Copies the records of `segment` up to `end` behind `block`, with zeros for what cannot be read; synced.
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

    /// Takes a copied segment for what it is, once it has been read back: all revisions before `end_revision`,
    /// with `bytes` of records.
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
        let mut tell = |damage: &Damage| {
            self.done.damages += 1;
            on_damage(damage);
        };
        if let Some((offset, reason)) = unreadable {
            let what =
                Damage::of_file(&Segment::name(header.number), Problem::Unreadable(reason.to_string()));
            tell(&Damage { offset: Some(offset), ..what });
        }
        check(&copy, end_revision, &mut tell);
        self.done.copied = (self.done.copied.0 + 1, self.done.copied.1 + bytes);
        Ok(())
    }

    /// It is complete.
    pub fn ready(self) -> Ready {
        Ready { making: self.making, done: self.done }
    }
}

/// Tells what is wrong with the records of a segment that has all revisions from its first one to `end`, exclusive,
/// or is rewritten; returns by what it is known.
pub(super) fn check(segment: &Arc<Segment>, end: Revision, tell: &mut dyn FnMut(&Damage)) -> Held {
    let name = Segment::name(segment.header.number);
    let mut revision = segment.header.first_revision.before();
    let (mut records, mut last) = (0, None);
    let mut scanner = Scanner::new(segment.clone(), revision);
    let lost = |from: Revision, until: Revision| {
        let damage = Damage::of_file(&name, Problem::Lost);
        Damage { revisions: Some((from, until)), ..damage }
    };
    while let Some(raw) = scanner.next() {
        records += 1;
        match segment.header.numbering {
            _ if segment.header.rewritten.is_some() => {}
            Numbering::Dense if raw.head.revision > revision.next() => {
                tell(&lost(revision.next(), raw.head.revision.before()));
            }
            // It may have shared the revision of either neighbour.
            Numbering::Sparse if raw.skipped > 0 => {
                tell(&lost(revision.max(Revision::FIRST), raw.head.revision))
            }
            _ => {}
        }
        if !raw.head.body_is_sound(&raw.bytes) {
            tell(&Damage {
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
            tell(&lost(segment.header.first_revision, rewritten.last_revision));
        }
        None if revision.next() < end => tell(&lost(revision.next(), end.before())),
        _ => {}
    }
    if let Some((offset, reason)) = scanner.unreadable {
        tell(&Damage { offset: Some(offset), ..Damage::of_file(&name, Problem::Unreadable(reason)) });
    }
    Held { header: segment.header, end: scanner.expected, last }
}
