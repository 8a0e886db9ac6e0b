//! A copy of a store as of one revision, taken beside a running engine or without one.
//!
//! Segments that were completed never change, and the one being written to only grows: so the copy is all segments
//! of one look at the directory, the last one up to a revision that is known to be on disk. Files that reclaim
//! removes meanwhile are held open. The copy is a store like any other.
//!
//! A backup into a directory that has an earlier one of the same store copies only what that does not have: a
//! segment is kept when header and all checksums say that it is the same and whole.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::header::{Note, RECORDS_START};
use crate::io::{File, Storage};
use crate::offline::damage::{Damage, Problem};
use crate::offline::making::Making;
use crate::offline::records::{Scanner, tail, written_end};
use crate::offline::{OfflineError, Store};
use crate::segment::Segment;

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1024 * 1024;

/// A log that has not grown for so long is taken as it is. What a running engine has written is on disk after
/// milliseconds, and what it takes back (a batch that met a full disk) is gone as soon.
const QUIET: Duration = Duration::from_secs(1);

/// Between two looks at a log that is being written to.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a backup did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BackedUp {
    /// The revision at which it is consistent. Every write acknowledged before it began is in it.
    pub revision: u64,
    /// The lowest revision that can be read from it.
    pub oldest: u64,
    /// Segments copied, and their bytes.
    pub copied: (u64, u64),
    /// Segments that an earlier backup had already, and their bytes.
    pub kept: (u64, u64),
    /// How many damages were told of. They are in the copy as they are in the store.
    pub damages: u64,
}

/// Copies the store in `source` to `target`, replacing an earlier backup of the same store there in one step. Tells
/// `on_damage` of damaged records, and `on_progress` the bytes done and the bytes there are.
pub fn backup(
    source: &Path,
    target: &Path,
    mut on_damage: impl FnMut(&Damage),
    mut on_progress: impl FnMut(u64, u64),
) -> Result<BackedUp, OfflineError> {
    let same = |a: &Path, b: &Path| a.canonicalize().is_ok_and(|a| b.canonicalize().is_ok_and(|b| a == b));
    if same(source, target) {
        return Err(OfflineError::SameDirectory { dir: target.to_owned() });
    }
    let making = Making::begin(target)?;
    let earlier = match Store::open(target) {
        Ok(earlier) => Some(earlier),
        Err(OfflineError::NoStore { .. }) => None,
        Err(error) => return Err(error),
    };
    let (store, revision) = steady(source)?;
    store.must_be_whole()?;
    let Some((last, completed)) = store.segments.split_last() else {
        return Err(OfflineError::NoStore { dir: source.to_owned() });
    };
    if let Some(stranger) = earlier.iter().flat_map(|earlier| earlier.segments.first()).next()
        && stranger.header.store != last.header.store
    {
        return Err(OfflineError::OtherStore { dir: target.to_owned() });
    }

    let mut done = BackedUp { revision, oldest: store.oldest(), ..BackedUp::default() };
    let (mut bytes, total) = (0, store.data_bytes());
    for (at, segment) in completed.iter().enumerate() {
        let end = store.segments[at + 1].header.first_revision;
        let name = Segment::name(segment.header.number);
        let had =
            earlier.iter().flat_map(|earlier| &earlier.segments).find(|had| had.header == segment.header);
        let len = written_end(&*segment.file) - RECORDS_START;
        if had.is_some_and(|had| flaws(had, end).is_empty()) && making.keep(&name) {
            done.kept = (done.kept.0 + 1, done.kept.1 + len);
            bytes += len;
        } else {
            let copy = copy(&making, segment, written_end(&*segment.file), None, |copied| {
                on_progress(bytes + copied, total)
            })?;
            flaws(&copy, end).iter().for_each(|damage| {
                done.damages += 1;
                on_damage(damage);
            });
            done.copied = (done.copied.0 + 1, done.copied.1 + len);
            bytes += len;
        }
        on_progress(bytes, total);
    }
    let (end, note) = match last.header.rewritten {
        Some(_) => (written_end(&*last.file), None),
        // What it says of the log must hold for the copy.
        None => {
            (tail(&store, revision).1, Some(Note { sequence: 1, synced: revision, oldest: store.oldest() }))
        }
    };
    let copy = copy(&making, last, end, note, |copied| on_progress(bytes + copied, total))?;
    flaws(&copy, revision + 1).iter().for_each(|damage| {
        done.damages += 1;
        on_damage(damage);
    });
    done.copied = (done.copied.0 + 1, done.copied.1 + end - RECORDS_START);
    making.finish()?;
    Ok(done)
}

/// A look at the store and a revision up to which it is known to be on disk: not less than what was written when
/// this was called.
fn steady(source: &Path) -> Result<(Store, u64), OfflineError> {
    let written = |store: &Store| tail(store, u64::MAX).0;
    let first = Store::open(source)?;
    let wanted = written(&first);
    let begun = Instant::now();
    let mut store = first;
    loop {
        if !store.in_use {
            let revision = written(&store);
            return Ok((store, revision));
        }
        // Nothing is taken that is not in these files.
        let synced = store.synced().min(written(&store));
        if synced >= wanted {
            return Ok((store, synced));
        }
        if begun.elapsed() >= QUIET {
            if let Some(last) = store.segments.last() {
                let path = source.join(Segment::name(last.header.number));
                last.file.sync_data().map_err(OfflineError::io(&path, "sync"))?;
            }
            let still = written(&store).min(wanted).max(synced);
            return Ok((store, still));
        }
        std::thread::sleep(LOOK_INTERVAL);
        store = Store::open(source)?;
    }
}

/// What is wrong with the records of a segment that has all revisions from its first one to `end`, exclusive, or is
/// rewritten.
fn flaws(segment: &Arc<Segment>, end: u64) -> Vec<Damage> {
    let name = Segment::name(segment.header.number);
    let mut flaws = Vec::new();
    let mut last = segment.header.first_revision - 1;
    let mut records = 0;
    let mut scanner = Scanner::new(segment.clone(), last);
    let lost = |from: u64, until: u64| {
        let damage = Damage::of_file(&name, Problem::Lost);
        Damage { revisions: Some((from, until)), ..damage }
    };
    while let Some(raw) = scanner.next() {
        records += 1;
        if segment.header.rewritten.is_none() && raw.head.revision > last + 1 {
            flaws.push(lost(last + 1, raw.head.revision - 1));
        }
        if !raw.head.body_is_sound(&raw.bytes) {
            flaws.push(Damage {
                file: name.clone(),
                offset: Some(raw.offset),
                revisions: Some((raw.head.revision, raw.head.revision)),
                key: Some(Bytes::copy_from_slice(raw.head.key(&raw.bytes))),
                problem: Problem::Body,
            });
        }
        last = raw.head.revision;
    }
    match segment.header.rewritten {
        Some(rewritten) if records < rewritten.records => {
            flaws.push(lost(segment.header.first_revision, rewritten.last_revision));
        }
        None if last + 1 < end => flaws.push(lost(last + 1, end - 1)),
        _ => {}
    }
    if let Some((offset, reason)) = scanner.unreadable {
        flaws.push(Damage { offset: Some(offset), ..Damage::of_file(&name, Problem::Unreadable(reason)) });
    }
    flaws
}

/// Copies a segment up to `end`, with `note` in place of its own ones if there is one; synced.
fn copy(
    making: &Making,
    segment: &Arc<Segment>,
    end: u64,
    note: Option<Note>,
    mut on_progress: impl FnMut(u64),
) -> Result<Arc<Segment>, OfflineError> {
    let name = Segment::name(segment.header.number);
    let path = making.dir().path(&name);
    let mut write = || -> std::io::Result<Arc<dyn File>> {
        let file = making.dir().create(&name, segment.file.size())?;
        match note {
            Some(note) => {
                file.write_at(0, &segment.header.block())?;
                note.write(&*file, segment.header.salt)?;
            }
            None => file.write_at(0, &segment.file.read(0, RECORDS_START as usize)?)?,
        }
        let mut at = RECORDS_START;
        while at < end {
            let len = (end - at).min(COPY_BYTES);
            file.write_at(at, &segment.file.read(at, len as usize)?)?;
            at += len;
            on_progress(at - RECORDS_START);
        }
        file.sync_data()?;
        Ok(file)
    };
    let file = write().map_err(OfflineError::io(&path, "copy"))?;
    let copied = Segment::open(segment.header.number, file).ok().filter(|copy| copy.header == segment.header);
    copied
        .map(Arc::new)
        .ok_or_else(|| OfflineError::io(&path, "read back")(std::io::ErrorKind::InvalidData.into()))
}
