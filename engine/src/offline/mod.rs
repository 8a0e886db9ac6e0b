//! The store as files: reading, checking, copying and making one without opening it.
//!
//! ```text
//! directory ─► Store: which files make the log ─► Records: every record, and what is damaged
//!                                                   │
//!                                                   ├─► survey   keys, bytes, agreement of all parts
//!                                                   ├─► backup   the same log, in another directory
//!                                                   └─► restore, compact   a new log with the same states
//! ```
//!
//! Nothing here writes into a store that it reads, takes its lock for longer than a look, or asks an engine for
//! anything: all of it works on damaged stores and beside a running engine. What it may believe of a log that is
//! being written to is what recovery would believe: all that is known to be on disk (`docs/format.md`).

mod backup;
mod checkpoints;
mod damage;
mod files;
mod making;
mod receive;
mod records;
mod restore;
mod survey;
mod target;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::chain::{self, Order};
use crate::checkpoint;
use crate::header::{FORMAT_VERSION, HeaderError, RECORDS_START};
use crate::high_water::{self, Mark};
use crate::io::File;
use crate::losses::Losses;
pub use crate::offline::backup::backup;
pub use crate::offline::damage::{Damage, Problem};
use crate::offline::files::ReadFile;
pub(crate) use crate::offline::making::interrupted;
pub use crate::offline::receive::Receiver;
pub use crate::offline::records::{Found, LogRecord, RecordKind, Records};
pub use crate::offline::restore::{Point, Restored, restore};
pub use crate::offline::survey::{KeyState, SegmentSummary, Survey, survey};
pub use crate::offline::target::{BackedUp, Ready};
use crate::segment::Segment;
use crate::types::{Revision, SegmentNumber};

#[cfg(test)]
mod backups_test;

/// Why a tool could not do its work. Each text is one line and names the path.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// There is no segment in the directory, or no directory.
    #[error("no store in {}", dir.display())]
    NoStore {
        /// Where one was looked for.
        dir: PathBuf,
    },
    /// A backup was about to be replaced when the machine stopped; it is complete, under another name.
    #[error("no store in {}: replacing it was interrupted, and {} is what was there", dir.display(), replaced.display())]
    Interrupted {
        /// Where a store was looked for.
        dir: PathBuf,
        /// Where it is.
        replaced: PathBuf,
    },
    /// A later release wrote this store.
    #[error("{}: store format {found} is newer than {supported}, the newest this release reads", path.display())]
    NewerFormat {
        /// The file that says so.
        path: PathBuf,
        /// The format version found.
        found: u32,
        /// The newest format version this release reads.
        supported: u32,
    },
    /// An engine, or another tool, has the directory open.
    #[error("{} is in use by another process", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The target of a copy is its source.
    #[error("{} cannot be copied to itself", dir.display())]
    SameDirectory {
        /// The directory.
        dir: PathBuf,
    },
    /// What is there already is not an earlier backup of this store.
    #[error("{} has another store: choose an empty directory", dir.display())]
    OtherStore {
        /// The directory.
        dir: PathBuf,
    },
    /// A file of the log is missing, or damaged as a whole, so that no state can be made of the rest.
    #[error("{}: {damage}", dir.display())]
    Incomplete {
        /// The store's directory.
        dir: PathBuf,
        /// What is missing.
        damage: Box<Damage>,
    },
    /// Something is there where a new store is to be made.
    #[error("{} is there already", dir.display())]
    NotEmpty {
        /// Where the new store was to be made.
        dir: PathBuf,
    },
    /// Damage makes the states that were asked for uncertain. Nothing was made.
    #[error("{} in {}, the first: {damage}", match damages { 1 => "one damage".to_owned(), n => format!("{n} damages") }, dir.display())]
    Damaged {
        /// The store's directory.
        dir: PathBuf,
        /// How many damages there are.
        damages: u64,
        /// The first of them.
        damage: Box<Damage>,
    },
    /// The history of that long ago is forgotten.
    #[error("revision {asked} is no longer there, the oldest is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: Revision,
        /// The oldest one that can be read.
        oldest: Revision,
    },
    /// That revision was never written.
    #[error("revision {asked} is not there, the newest is {newest}")]
    Future {
        /// The revision asked for.
        asked: Revision,
        /// The newest one.
        newest: Revision,
    },
    /// Nothing was written by the revision or time asked for.
    #[error("{} begins later: its first record has revision {first} and was written at {time_ms} ms since 1970", dir.display())]
    BeforeFirst {
        /// The store's directory.
        dir: PathBuf,
        /// Revision of its first record.
        first: Revision,
        /// Time of its first record, in milliseconds since 1970.
        time_ms: u64,
    },
    /// The store's revisions are so high that there are none above them to begin with.
    #[error("{} has used up its revisions", dir.display())]
    NoRevisionsLeft {
        /// The store's directory.
        dir: PathBuf,
    },
    /// What was received is not what a server sends: another program answered, or something on the way changed it.
    #[error("what was received is no backup: {what}")]
    NoBackup {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A later release sent this.
    #[error("the server sends a backup of version {found}, and {supported} is the newest this release reads")]
    NewerTransfer {
        /// The version found.
        found: u32,
        /// The newest version this release reads.
        supported: u32,
    },
    /// The transfer ended before the backup did.
    #[error("the transfer ended early: {received} of {total} bytes came")]
    CutShort {
        /// Bytes of records received.
        received: u64,
        /// How many there are; 0 when not even that came.
        total: u64,
    },
    /// The sender cannot go on, and says so.
    #[error("the server gave up: {reason}")]
    GivenUp {
        /// What it says.
        reason: String,
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

impl OfflineError {
    fn io(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> OfflineError + use<> {
        let path = path.to_owned();
        move |source| OfflineError::Io { path, operation, source }
    }
}

/// How often a directory is read again because files went away meanwhile. Reclaim removes files after it made
/// others, so the second look usually does.
const LOOKS_MAX: u32 = 20;

/// What a look at a directory finds by name.
struct Listed {
    in_use: bool,
    /// How far the log reached before the directory was listed.
    high_water: Option<Mark>,
    /// Of segments, ascending.
    numbers: Vec<SegmentNumber>,
    /// Revision and file.
    checkpoints: Vec<(Revision, ReadFile)>,
}

impl Listed {
    fn look(dir: &Path) -> Result<Listed, OfflineError> {
        let no_store = || OfflineError::NoStore { dir: dir.to_owned() };
        let in_use = match files::is_in_use(dir) {
            Ok(in_use) => in_use,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Err(no_store()),
            Err(error) => return Err(OfflineError::io(dir, "look whether it is in use")(error)),
        };
        // Before the list, which then has all that the mark may name.
        let high_water = ReadFile::open(&dir.join(high_water::NAME)).ok().and_then(|file| Mark::read(&file));
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
            // A name that is not UTF-8 is none of ours.
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            numbers.extend(Segment::number(name));
            // One that cannot be opened was replaced by a newer one, or costs no more than time.
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

/// A store's directory, with its files held open: they stay readable when reclaim removes them.
pub struct Store {
    dir: PathBuf,
    in_use: bool,
    /// The log, in order.
    segments: Vec<Arc<Segment>>,
    /// Files that others stand for, waiting to be removed.
    superseded: Vec<Arc<Segment>>,
    /// Images of the index: revision and file.
    checkpoints: Vec<(Revision, ReadFile)>,
    /// The highest revision of the high-water mark and of a checkpoint whose header is sound: the log was synced up to it
    /// first.
    known_durable: Revision,
    /// What is wrong with files as wholes.
    damage: Vec<Damage>,
    oldest: Revision,
}

impl Store {
    /// Opens the files of the store in `dir` for reading. Damage is no error; see [`Store::damage`].
    pub fn open(dir: &Path) -> Result<Store, OfflineError> {
        let mut looks = 0;
        loop {
            looks += 1;
            match Store::look(dir)? {
                Some(store) if store.is_whole() || !store.in_use || looks == LOOKS_MAX => return Ok(store),
                // A file went away, or a new one was not in the list yet: look again.
                _ if looks < LOOKS_MAX => {}
                _ => return Err(OfflineError::NoStore { dir: dir.to_owned() }),
            }
        }
    }

    /// One look at the directory; `None` when a file went away meanwhile.
    fn look(dir: &Path) -> Result<Option<Store>, OfflineError> {
        Store::of(dir, Listed::look(dir)?)
    }

    /// The files that were listed; `None` when one of them went away since.
    fn of(dir: &Path, listed: Listed) -> Result<Option<Store>, OfflineError> {
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
                    if !both_headers_stand(&*segment.file) {
                        damage.push(Damage::of_file(&name, Problem::HeaderCopy));
                    }
                    segments.push(Arc::new(segment));
                }
                Err(HeaderError::Newer(found)) => {
                    return Err(OfflineError::NewerFormat { path, found, supported: FORMAT_VERSION });
                }
                Err(HeaderError::Damaged) => damage.push(Damage::of_file(&name, Problem::Header)),
                Err(HeaderError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(HeaderError::Io(error)) => {
                    damage.push(Damage::of_file(&name, Problem::Unreadable(error.to_string())));
                }
            }
        }
        let headers: Vec<_> = segments.iter().map(|segment| segment.header).collect();
        let Order { log, gaps } = chain::order(&headers);
        let missing = gaps.into_iter().map(|behind| Segment::name(headers[behind].number));
        damage.extend(missing.map(|behind| Damage::of_file(&behind, Problem::MissingBefore)));
        if let Some(mark) = high_water.filter(|mark| !mark.is_reached_by(&headers)) {
            damage.push(Damage::of_file(&Segment::name(mark.number), Problem::MissingEnd));
        } else if log.is_empty() {
            damage.push(Damage::of_file("", Problem::NoSegment));
        }
        let strangers = headers.iter().filter(|header| header.store != headers[0].store);
        damage.extend(
            strangers.map(|stranger| Damage::of_file(&Segment::name(stranger.number), Problem::OtherStore)),
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
        let is_ours = |mark: &Mark| headers.iter().all(|header| header.store == mark.store);
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

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether an engine had it open when it was looked at.
    pub fn in_use(&self) -> bool {
        self.in_use
    }

    /// The lowest revision at which everything can be read.
    pub fn oldest(&self) -> Revision {
        self.oldest
    }

    /// What is wrong with files as wholes: headers, and files that are missing. In no order.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Whether no file of the log is missing, or damaged as a whole.
    fn is_whole(&self) -> bool {
        self.must_be_whole().is_ok()
    }

    /// The highest revision known to be on disk: the last segment says so, looked at anew, or a checkpoint or the high-water
    /// mark does.
    fn synced(&self) -> Revision {
        self.segments.last().map_or(Revision::ZERO, records::said_synced).max(self.known_durable)
    }

    /// The files of the log in order, then the superseded ones.
    fn all(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.segments.iter().chain(&self.superseded)
    }

    fn must_be_whole(&self) -> Result<(), OfflineError> {
        match self.damage.iter().find(|damage| damage.problem != Problem::HeaderCopy) {
            None => Ok(()),
            Some(damage) => {
                Err(OfflineError::Incomplete { dir: self.dir.clone(), damage: Box::new(damage.clone()) })
            }
        }
    }

    /// Revision of the newest checkpoint, if there is one.
    pub fn checkpoint(&self) -> Option<Revision> {
        self.checkpoints.last().map(|(revision, _)| *revision)
    }

    /// Bytes in which there may be records: what a walk over all of them reads.
    pub fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| records::written_end(&*segment.file) - RECORDS_START).sum()
    }

    /// All that cannot be read of the log, as [`Engine::accept_losses`](crate::Engine::accept_losses) takes it. Tells
    /// `on_damage` of each damage, and `on_progress` how many bytes are done.
    ///
    /// # Errors
    /// A file is missing or damaged as a whole: which revisions are lost with it is not known.
    pub fn losses(
        &self,
        mut on_damage: impl FnMut(&Damage),
        mut on_progress: impl FnMut(u64),
    ) -> Result<Losses, OfflineError> {
        self.must_be_whole()?;
        let mut losses = Losses::default();
        let mut records = self.records();
        while let Some(found) = records.next() {
            let damage = match found {
                Found::Record(record) if !record.is_sound() => record.damage(Problem::Body),
                Found::Record(_) => {
                    on_progress(records.bytes_done());
                    continue;
                }
                Found::Damage(damage) => damage,
                Found::Torn { .. } => continue,
            };
            damage.add_to(&mut losses);
            on_damage(&damage);
        }
        Ok(losses)
    }

    /// Every record of the log in order, and what is damaged. Memory does not grow with the log.
    pub fn records(&self) -> Records<'_> {
        Records::new(self)
    }
}

/// Whether both copies of a header say the same. One that cannot be read has been reported as such.
fn both_headers_stand(file: &dyn File) -> bool {
    let copy = |at| file.read(at, crate::header::HEADER_BYTES).ok();
    copy(0) == copy(crate::header::SECOND_HEADER as u64)
}
