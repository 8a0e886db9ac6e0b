//! Tools for the files of a store: reading, checking, copying and creating stores without opening them.
//!
//! ```text
//! directory ─► Store: which files make the log ─► Records: every record, and what is damaged
//!                                                   │
//!                                                   ├─► survey   keys, bytes, consistency of all parts
//!                                                   ├─► backup   the same log, in another directory
//!                                                   └─► restore, compact   a new log with the same states
//! ```
//!
//! These tools never write into a store that they read, hold its lock only for a moment, and request nothing
//! from an engine. So they work on damaged stores and while an engine is running. In a log that is being
//! written to, these tools accept the same records as recovery: all records that are known durable
//! (`docs/format.md`).

mod backup;
mod checkpoints;
mod creation;
mod damage;
mod files;
mod receive;
mod records;
mod restore;
mod survey;
mod target;
mod verify;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chain::{self, LogOrder};
use crate::checkpoint;
use crate::header::{FORMAT_VERSION, HeaderError, RECORDS_START};
use crate::high_water::{self, HighWaterMark};
use crate::io::File;
use crate::losses::Losses;
pub use crate::offline::backup::backup;
pub(crate) use crate::offline::creation::interrupted;
pub use crate::offline::damage::{Damage, Problem};
use crate::offline::files::ReadFile;
pub use crate::offline::receive::Receiver;
pub use crate::offline::records::{LogItem, LogRecord, RecordKind, Records};
pub use crate::offline::restore::{RestorePoint, RestoreSummary, restore};
pub use crate::offline::survey::{KeyState, SegmentSummary, Survey};
pub use crate::offline::target::{BackupSummary, PendingBackup};
pub use crate::offline::verify::survey;
use crate::segment::Segment;
use crate::types::{Revision, SegmentNumber};

#[cfg(test)]
mod backups_test;

/// Reason why a tool failed. Each message is one line and names the path.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// The directory does not exist or contains no segment.
    #[error("no store in {}", dir.display())]
    NoStore {
        /// The directory in which a store was expected.
        dir: PathBuf,
    },
    /// The machine stopped while a backup was being replaced. The backup is complete, under another name.
    #[error("no store in {}: the replacement of a backup was interrupted; the complete earlier backup is in {}", dir.display(), replaced.display())]
    Interrupted {
        /// The directory in which a store was expected.
        dir: PathBuf,
        /// The directory that contains the backup.
        replaced: PathBuf,
    },
    /// A later release wrote this store.
    #[error("{}: store format {found} is newer than {supported}, the newest this release reads: use the release that wrote it, or a later one", path.display())]
    NewerFormat {
        /// The file with the newer format version.
        path: PathBuf,
        /// The format version found.
        found: u32,
        /// The newest format version this release reads.
        supported: u32,
    },
    /// An engine, or another tool, has the directory open.
    #[error("{} is in use by another process", dir.display())]
    InUse {
        /// The directory that is in use.
        dir: PathBuf,
    },
    /// The target of a copy is its source.
    #[error("{} cannot be copied to itself", dir.display())]
    SameDirectory {
        /// The directory of the source and of the target.
        dir: PathBuf,
    },
    /// The target contains something other than an earlier backup of this store.
    #[error("{} contains something other than a backup of this store: choose an empty directory", dir.display())]
    OtherStore {
        /// The directory of the target.
        dir: PathBuf,
    },
    /// A file of the log is missing or damaged as a whole, so no states can be restored from the rest.
    #[error("{}: {damage}", dir.display())]
    Incomplete {
        /// The directory of the store.
        dir: PathBuf,
        /// The damage or the missing file.
        damage: Box<Damage>,
    },
    /// The location for a new store already exists.
    #[error("{} already exists", dir.display())]
    NotEmpty {
        /// The location for the new store.
        dir: PathBuf,
    },
    /// Damage makes the requested states uncertain. Nothing was created.
    #[error("{} in {}, the first: {damage}", match damages { 1 => "one damage".to_owned(), n => format!("{n} damages") }, dir.display())]
    Damaged {
        /// The directory of the store.
        dir: PathBuf,
        /// Number of damages that were found.
        damages: u64,
        /// The first damage that was found.
        damage: Box<Damage>,
    },
    /// The requested revision was compacted.
    #[error("revision {asked} is no longer readable, the oldest is {oldest}")]
    Compacted {
        /// The revision that was requested.
        asked: Revision,
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The requested revision was never written.
    #[error("revision {asked} does not exist, the newest is {newest}")]
    Future {
        /// The revision that was requested.
        asked: Revision,
        /// The newest revision of the store.
        newest: Revision,
    },
    /// The requested revision or time is before the first write.
    #[error("{} begins later: its first record has revision {first} and was written at {time_ms} ms since 1970", dir.display())]
    BeforeFirst {
        /// The directory of the store.
        dir: PathBuf,
        /// Revision of the first record of the store.
        first: Revision,
        /// Time of the first record of the store, in milliseconds since 1970.
        time_ms: u64,
    },
    /// The revisions of the store are so high that a new store cannot have higher revisions.
    #[error("{}: the revisions are so high that a new store cannot have higher ones", dir.display())]
    NoRevisionsLeft {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// The received bytes are not a backup: another program answered, or the bytes were changed on the way.
    #[error("the received data are not a backup: {what}")]
    NoBackup {
        /// Description of the error.
        what: &'static str,
    },
    /// A later release sent this backup.
    #[error(
        "the server sends a backup of version {found}, and {supported} is the newest this release reads: use the release of the server, or a later one"
    )]
    NewerTransfer {
        /// The transfer version that was found.
        found: u32,
        /// The newest version this release reads.
        supported: u32,
    },
    /// The transfer ended before the backup was complete.
    #[error("the transfer ended early: {received} of {total} bytes were received")]
    CutShort {
        /// Bytes of records received.
        received: u64,
        /// Total bytes of records; 0 if the transfer ended before the total was received.
        total: u64,
    },
    /// The sender reported that it cannot continue.
    #[error("the server ended the transfer: {reason}")]
    GivenUp {
        /// The reason that the sender reported.
        reason: String,
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

impl OfflineError {
    fn io(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> OfflineError + use<> {
        let path = path.to_owned();
        move |source| OfflineError::Io { path, operation, source }
    }
}

/// Maximum number of times that a directory is read because files disappear in the meantime. Reclamation
/// removes files only after it has created their replacements, so the second attempt usually succeeds.
const ATTEMPTS_MAX: u32 = 20;

/// The files of a directory, by name.
struct Listed {
    in_use: bool,
    /// The high-water mark, read before the directory was listed.
    high_water: Option<HighWaterMark>,
    /// Numbers of the segments, in ascending order.
    numbers: Vec<SegmentNumber>,
    /// Revision and file of each checkpoint.
    checkpoints: Vec<(Revision, ReadFile)>,
}

impl Listed {
    fn read(dir: &Path) -> Result<Listed, OfflineError> {
        let no_store = || OfflineError::NoStore { dir: dir.to_owned() };
        let in_use = match files::is_in_use(dir) {
            Ok(in_use) => in_use,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(no_store()),
            Err(error) => return Err(OfflineError::io(dir, "look whether it is in use")(error)),
        };
        // The mark is read before the list, which then contains every segment that the mark may name.
        let high_water =
            ReadFile::open(&dir.join(high_water::NAME)).ok().and_then(|file| HighWaterMark::read(&file));
        let list = match std::fs::read_dir(dir) {
            Ok(list) => list,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(match interrupted(dir) {
                    Some(replaced) => OfflineError::Interrupted { dir: dir.to_owned(), replaced },
                    None => no_store(),
                });
            }
            Err(error) => return Err(OfflineError::io(dir, "list the directory")(error)),
        };
        let (mut numbers, mut checkpoints) = (Vec::new(), Vec::new());
        for entry in list {
            let entry = entry.map_err(OfflineError::io(dir, "list the directory"))?;
            // The store uses no names that are not UTF-8.
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            numbers.extend(Segment::number(name));
            // If a checkpoint cannot be opened, it was replaced by a newer one, or the tool only takes longer
            // without it.
            let checkpoint = checkpoint::revision(name).zip(ReadFile::open(&entry.path()).ok());
            checkpoints.extend(checkpoint);
        }
        if numbers.is_empty() && high_water.is_none() {
            return Err(no_store());
        }
        numbers.sort_unstable();
        Ok(Listed { in_use, high_water, numbers, checkpoints })
    }
}

/// The directory of a store, with open files. The files stay readable when reclamation removes them.
pub struct Store {
    dir: PathBuf,
    in_use: bool,
    /// The segments of the log, in order.
    segments: Vec<Arc<Segment>>,
    /// Segments that other segments supersede, and that wait to be removed.
    superseded: Vec<Arc<Segment>>,
    /// The checkpoints: revision and file.
    checkpoints: Vec<(Revision, ReadFile)>,
    /// The highest revision in the high-water mark and in the checkpoints with a sound header. The log was
    /// synced up to this revision before the mark or the checkpoint was written.
    known_durable: Revision,
    /// Damage of whole files.
    damage: Vec<Damage>,
    oldest: Revision,
}

impl Store {
    /// Opens the files of the store in `dir` for reading. Damage is not an error; see [`Store::damage`].
    pub fn open(dir: &Path) -> Result<Store, OfflineError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Store::open_once(dir)? {
                Some(store) if store.is_complete() || !store.in_use || attempts == ATTEMPTS_MAX => {
                    return Ok(store);
                }
                // A file disappeared, or a new file was not in the list yet: read the directory again.
                _ if attempts < ATTEMPTS_MAX => {}
                _ => return Err(OfflineError::NoStore { dir: dir.to_owned() }),
            }
        }
    }

    /// Reads the directory once; returns `None` if a file disappeared in the meantime.
    fn open_once(dir: &Path) -> Result<Option<Store>, OfflineError> {
        Store::from_listed(dir, Listed::read(dir)?)
    }

    /// Opens the listed files; returns `None` if a file has disappeared since the listing.
    fn from_listed(dir: &Path, listed: Listed) -> Result<Option<Store>, OfflineError> {
        let Listed { in_use, high_water, numbers, mut checkpoints } = listed;
        let (mut segments, mut damage) = (Vec::new(), Vec::new());
        for number in numbers {
            let name = Segment::name(number);
            let path = dir.join(&name);
            let opened = ReadFile::open(&path)
                .map_err(HeaderError::Io)
                .and_then(|file| Segment::open(number, Arc::new(file)));
            match opened {
                Ok(segment) => {
                    if !has_equal_headers(&*segment.file) {
                        damage.push(Damage::for_file(&name, Problem::HeaderCopy));
                    }
                    segments.push(Arc::new(segment));
                }
                Err(HeaderError::Newer(found)) => {
                    return Err(OfflineError::NewerFormat { path, found, supported: FORMAT_VERSION });
                }
                Err(HeaderError::Damaged) => damage.push(Damage::for_file(&name, Problem::Header)),
                Err(HeaderError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(HeaderError::Io(error)) => {
                    damage.push(Damage::for_file(&name, Problem::Unreadable(error.to_string())));
                }
            }
        }
        let headers: Vec<_> = segments.iter().map(|segment| segment.header).collect();
        let LogOrder { log, gaps } = chain::order(&headers);
        let missing = gaps.into_iter().map(|behind| Segment::name(headers[behind].number));
        damage.extend(missing.map(|behind| Damage::for_file(&behind, Problem::MissingBefore)));
        if let Some(mark) = high_water.filter(|mark| !mark.is_reached_by(&headers)) {
            damage.push(Damage::for_file(&Segment::name(mark.number), Problem::MissingEnd));
        } else if log.is_empty() {
            damage.push(Damage::for_file("", Problem::NoSegment));
        }
        let strangers = headers.iter().filter(|header| header.store != headers[0].store);
        damage.extend(
            strangers.map(|stranger| Damage::for_file(&Segment::name(stranger.number), Problem::OtherStore)),
        );
        let superseded = (0..segments.len()).filter(|at| !log.contains(at)).map(|at| segments[at].clone());
        let superseded = superseded.collect();
        let log: Vec<_> = log.into_iter().map(|at| segments[at].clone()).collect();
        let rewritten = log.iter().filter_map(|segment| segment.header.rewritten).map(|it| it.oldest);
        let oldest =
            rewritten.chain(log.iter().map(|segment| segment.note().oldest)).max().unwrap_or(Revision::ZERO);
        checkpoints.sort_unstable_by_key(|(revision, _)| *revision);
        let sound =
            checkpoints.iter().rev().find(|(revision, file)| checkpoints::proves_durable(*revision, file));
        let known_durable = sound.map_or(Revision::ZERO, |(revision, _)| *revision);
        let is_ours = |mark: &HighWaterMark| headers.iter().all(|header| header.store == mark.store);
        let noted = high_water.filter(is_ours).map_or(Revision::ZERO, |mark| mark.durable);
        let known_durable = known_durable.max(noted);
        Ok(Some(Store {
            dir: dir.to_owned(),
            in_use,
            segments: log,
            superseded,
            checkpoints,
            known_durable,
            damage,
            oldest,
        }))
    }

    /// Returns the directory of the store.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns whether an engine had the store open when the directory was read.
    pub fn in_use(&self) -> bool {
        self.in_use
    }

    /// Returns the oldest revision at which everything can be read.
    pub fn oldest(&self) -> Revision {
        self.oldest
    }

    /// Returns the damage of whole files: damaged headers and missing files, in no particular order.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Returns whether no file of the log is missing or damaged as a whole.
    fn is_complete(&self) -> bool {
        self.check_complete().is_ok()
    }

    /// Returns the highest revision known durable: according to the last segment, which is read again, a
    /// checkpoint, or the high-water mark.
    fn synced(&self) -> Revision {
        self.segments.last().map_or(Revision::ZERO, records::noted_durable).max(self.known_durable)
    }

    /// Iterates over the segments of the log in order, then over the superseded segments.
    fn all(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.iter().chain(&self.superseded)
    }

    fn check_complete(&self) -> Result<(), OfflineError> {
        match self.damage.iter().find(|damage| damage.problem != Problem::HeaderCopy) {
            None => Ok(()),
            Some(damage) => {
                Err(OfflineError::Incomplete { dir: self.dir.clone(), damage: Box::new(damage.clone()) })
            }
        }
    }

    /// Returns the revision of the newest checkpoint, if there is one.
    pub fn checkpoint(&self) -> Option<Revision> {
        self.checkpoints.last().map(|(revision, _)| *revision)
    }

    /// Returns the number of bytes that may contain records. A walk over all records reads this many bytes.
    pub fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| records::written_end(&*segment.file) - RECORDS_START).sum()
    }

    /// Returns all losses of the log, for [`Engine::accept_losses`](crate::Engine::accept_losses). Calls
    /// `on_damage` for each damage, and `on_progress` with the number of bytes read.
    ///
    /// # Errors
    /// A file is missing or damaged as a whole, so it is unknown which revisions are lost with it.
    pub fn losses(
        &self,
        mut on_damage: impl FnMut(&Damage),
        mut on_progress: impl FnMut(u64),
    ) -> Result<Losses, OfflineError> {
        self.check_complete()?;
        let mut losses = Losses::default();
        let mut records = self.records();
        while let Some(found) = records.next() {
            let damage = match found {
                LogItem::Record(record) if !record.is_sound() => record.damage(Problem::Body),
                LogItem::Record(_) => {
                    on_progress(records.bytes_done());
                    continue;
                }
                LogItem::Damage(damage) => damage,
                LogItem::Torn { .. } => continue,
            };
            damage.add_to(&mut losses);
            on_damage(&damage);
        }
        Ok(losses)
    }

    /// Iterates over all records of the log in order, and over its damage. The memory of the iterator does
    /// not grow with the log.
    pub fn records(&self) -> Records<'_> {
        Records::new(self)
    }
}

/// Returns whether both copies of a header are equal. A copy that cannot be read has already been reported.
fn has_equal_headers(file: &dyn File) -> bool {
    let copy = |at| file.read(at, crate::header::HEADER_BYTES).ok();
    copy(0) == copy(crate::header::SECOND_HEADER as u64)
}
