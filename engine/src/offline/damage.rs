//! What can be wrong with a store, told so that an operator can act on it: where, which revisions, which key.

use std::fmt;

use bytes::Bytes;

use crate::losses::Losses;
use crate::types::Revision;

/// One thing that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Name of the file within the store's directory; empty when it is about none in particular.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: Option<u64>,
    /// First and last revision concerned.
    pub revisions: Option<(Revision, Revision)>,
    /// The key concerned, where it is still known.
    pub key: Option<Bytes>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    /// One copy of a header is damaged; the other one suffices.
    HeaderCopy,
    /// Both copies of a header are damaged: none of the file's records can be checked.
    Header,
    /// A segment is missing before this one.
    MissingBefore,
    /// This segment is missing at the end of the log, as the high-water mark shows.
    MissingEnd,
    /// There is no segment whose header can be read.
    NoSegment,
    /// The file belongs to another store than the rest.
    OtherStore,
    /// A checkpoint is damaged. Opening takes longer and loses nothing.
    Checkpoint,
    /// A checkpoint does not say what the log says.
    Index,
    /// The operating system cannot read it.
    Unreadable(String),
    /// A record's attributes or value do not match their checksums: the key reads as damaged at this revision.
    Body,
    /// Records are damaged so far that not even their keys are known: these show their states before.
    Lost,
    /// A record names another state before it than the log has.
    History,
    /// A record is older than the one before it.
    Time,
}

impl Damage {
    /// Adds the revisions that cannot be read because of it; false where they are not known.
    pub(crate) fn add_to(&self, losses: &mut Losses) -> bool {
        let (set, revisions) = match (&self.problem, self.revisions) {
            (Problem::Lost, Some(revisions)) => (&mut losses.lost, revisions),
            (Problem::Body, Some(revisions)) => (&mut losses.damaged, revisions),
            // Records in an unreadable place are damages of their own; a whole file is not walked over.
            (Problem::Unreadable(_), _) => return self.offset.is_some(),
            // These cost nothing that is in the log.
            (
                Problem::HeaderCopy | Problem::Checkpoint | Problem::Index | Problem::History | Problem::Time,
                _,
            ) => return true,
            _ => return false,
        };
        set.insert(revisions.0, revisions.1);
        true
    }

    pub(crate) fn of_file(name: &str, problem: Problem) -> Damage {
        Damage { file: name.to_owned(), offset: None, revisions: None, key: None, problem }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Problem::HeaderCopy => "one of the two copies of the header is damaged",
            Problem::Header => "the header is damaged: none of the records in this file can be checked",
            Problem::MissingBefore => "a segment is missing before this one",
            Problem::MissingEnd => "the segment is missing, and the log went on in it",
            Problem::NoSegment => "there is no segment with a sound header",
            Problem::OtherStore => "the file belongs to another store",
            Problem::Checkpoint => "the checkpoint is damaged, which costs time on opening and nothing else",
            Problem::Index => "the checkpoint does not say what the log says",
            Problem::Unreadable(reason) => return write!(f, "cannot be read: {reason}"),
            Problem::Body => "the record does not match its checksum",
            Problem::Lost => "records are damaged beyond telling their keys",
            Problem::History => "the record does not continue the history of its key",
            Problem::Time => "the record is older than the one before it",
        })
    }
}

/// One line: problem, then place, revisions and key.
impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}", self.file)?;
            if let Some(offset) = self.offset {
                write!(f, " at byte {offset}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}", self.problem)?;
        match self.revisions {
            Some((first, last)) if first == last => write!(f, ", revision {first}")?,
            Some((first, last)) => write!(f, ", revisions {first} to {last}")?,
            None => {}
        }
        if let Some(key) = &self.key {
            write!(f, ", key {:?}", String::from_utf8_lossy(key))?;
        }
        Ok(())
    }
}
