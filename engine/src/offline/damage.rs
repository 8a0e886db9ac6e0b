//! Descriptions of damage that an operator can act on: location, revisions and key.

use std::fmt;

use bytes::Bytes;

use crate::losses::Losses;
use crate::types::Revision;

/// A single damage of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damage {
    /// Name of the file within the store's directory; empty if the damage concerns no particular file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: Option<u64>,
    /// First and last revision that are affected.
    pub revisions: Option<(Revision, Revision)>,
    /// The affected key, if it is known.
    pub key: Option<Bytes>,
    /// Kind of the damage.
    pub problem: Problem,
}

/// Kind of a damage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    /// A copy of a header is damaged; the other copy suffices.
    HeaderCopy,
    /// Both copies of a header are damaged, so none of the file's records can be checked.
    Header,
    /// A segment is missing before this one.
    MissingBefore,
    /// This segment is missing at the end of the log, as the high-water mark shows.
    MissingEnd,
    /// There is no segment with a readable header.
    NoSegment,
    /// The file belongs to another store than the other files.
    OtherStore,
    /// A checkpoint is damaged. Opening takes longer, but no data is lost.
    Checkpoint,
    /// A checkpoint does not agree with the log.
    Index,
    /// The operating system cannot read the file or a part of it.
    Unreadable(String),
    /// A record's attributes or value do not match their checksums, so the key reads as damaged at this
    /// revision.
    Body,
    /// Records are so damaged that their keys are unknown. Readers of these keys get the previous states.
    Lost,
    /// A record refers to another previous state than the log contains.
    History,
    /// A record is older than the record before it.
    Time,
}

impl Damage {
    /// Adds the revisions that cannot be read because of this damage. Returns false if they are unknown.
    pub(crate) fn add_to(&self, losses: &mut Losses) -> bool {
        let (set, revisions) = match (&self.problem, self.revisions) {
            (Problem::Lost, Some(revisions)) => (&mut losses.lost, revisions),
            (Problem::Body, Some(revisions)) => (&mut losses.damaged, revisions),
            // Records in an unreadable part are reported as separate damages, but the records of an
            // unreadable file are not.
            (Problem::Unreadable(_), _) => return self.offset.is_some(),
            // These damages make no record of the log unreadable.
            (
                Problem::HeaderCopy | Problem::Checkpoint | Problem::Index | Problem::History | Problem::Time,
                _,
            ) => return true,
            _ => return false,
        };
        set.insert(revisions.0, revisions.1);
        true
    }

    pub(crate) fn for_file(name: &str, problem: Problem) -> Damage {
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

/// Writes one line: location and problem, then revisions and key.
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
