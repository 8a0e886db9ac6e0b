//! Stored states of keys, whose bytes are read on demand.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{BufMut, Bytes, BytesMut};

use crate::history::Version;
use crate::record::{self, Head, Record, STAMP_BYTES_MAX, Stamp};
use crate::seal::{self, SealError};
use crate::segment::Segment;
use crate::types::{Payload, Revision};

/// Reason why a stored state could not be read. Other keys are unaffected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The record's bytes do not match their checksum or cannot be read.
    #[error("stored state of {:?} at revision {revision} is damaged", String::from_utf8_lossy(key))]
    Damaged {
        /// The key of the damaged record.
        key: Bytes,
        /// The revision of the damaged state.
        revision: Revision,
    },
    /// The value cannot be sealed or opened.
    #[error("stored state of {:?} cannot be transformed: {why}", String::from_utf8_lossy(key))]
    Sealed {
        /// The key of the record.
        key: Bytes,
        /// The error of the seal.
        why: SealError,
    },
}

/// A stored state of a key. Cheap to clone and to keep: the bytes are read on demand. An entry keeps the file
/// of its segment open.
#[derive(Clone)]
pub struct Entry {
    key: Bytes,
    version: Version,
    segment: Arc<Segment>,
    /// The state before this delete, if the delete may have been stored without a final state.
    ended: Option<Arc<Entry>>,
}

impl Entry {
    pub(crate) fn new(key: Bytes, version: Version, segment: Arc<Segment>) -> Entry {
        Entry { key, version, segment, ended: None }
    }

    /// Returns this entry with `previous` as the state before it. If this entry is a delete that was stored
    /// without a final state, its readers get the previous state, with the revision of the delete as the
    /// stamp.
    pub(crate) fn ending(self, previous: Option<&Entry>) -> Entry {
        let may_lack_state =
            self.version.is_delete() && self.version.len() == record::tombstone_len(self.key.len());
        let ended = previous.filter(|_| may_lack_state).map(|previous| Arc::new(previous.clone()));
        Entry { ended, ..self }
    }

    /// Returns the key of this entry.
    pub fn key(&self) -> &Bytes {
        &self.key
    }

    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the revision that wrote this state.
    pub fn revision(&self) -> Revision {
        self.version.revision
    }

    /// Returns the revision of the put that created the key. Deleting a key and writing it again creates it
    /// anew.
    pub fn created(&self) -> Revision {
        self.version.created
    }

    /// Returns the time at which the store deletes the key unless the key is written again, in seconds since
    /// 1970; `None` if the key does not expire.
    pub fn expires_s(&self) -> Option<u32> {
        (self.version.expires_s > 0).then_some(self.version.expires_s)
    }

    /// Returns whether the key was deleted at this revision.
    pub fn is_delete(&self) -> bool {
        self.version.is_delete()
    }

    /// Reads the time at which this state was committed.
    ///
    /// # Errors
    /// The head of the record cannot be read.
    pub fn committed_at(&self) -> Result<SystemTime, ReadError> {
        let (head, _) = self.head()?;
        Ok(SystemTime::UNIX_EPOCH + Duration::from_millis(head.time.ms()))
    }

    /// Returns the length of the stored record in bytes: a little more than key, attributes and value
    /// together.
    pub fn stored_len(&self) -> usize {
        self.ended.as_ref().map_or(self.version.len(), |ended| ended.stored_len().max(self.version.len()))
    }

    /// Reads the state and verifies its checksum. Copies nothing, unless the value was sealed or a delete was
    /// stored without a final state. May wait for the disk.
    pub fn read(&self) -> Result<Record, ReadError> {
        match self.without_state()? {
            None => self.read_with_head().map(|(_, record)| record),
            Some(ended) => ended.read_stamped(self.version.revision),
        }
    }

    /// Returns the previous state if this is a delete without a final state.
    fn without_state(&self) -> Result<Option<&Entry>, ReadError> {
        match &self.ended {
            Some(ended) if self.head()?.0.tombstone => Ok(Some(ended)),
            _ => Ok(None),
        }
    }

    /// Reads like [`Entry::read`], with `revision` in place of the stamp.
    fn read_stamped(&self, revision: Revision) -> Result<Record, ReadError> {
        let (head, record) = self.read_with_head()?;
        let Some(Stamp { offset, len }) = head.stamp else { return Ok(record) };
        let mut digits = [0; STAMP_BYTES_MAX];
        let mut value = BytesMut::with_capacity(record.value.len() + STAMP_BYTES_MAX);
        value.put_slice(&record.value[..offset]);
        value.put_slice(record::decimal(revision.get(), &mut digits));
        value.put_slice(&record.value[offset + len..]);
        Ok(Record { value: value.freeze(), ..record })
    }

    /// Calls `look` with the value, which is verified as in [`Entry::read`]. Callers that read many values
    /// and do not keep them use this function, because it changes no reference counts that other readers
    /// share.
    pub fn with_value<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, ReadError> {
        if self.segment.seal().is_none()
            && self.ended.is_none()
            && let Some(bytes) = self.segment.file.in_memory(self.version.offset(), self.version.len())
        {
            let head = self.head_in(bytes).filter(|head| head.body_is_sound(bytes));
            return head.map(|head| look(head.value_in(bytes))).ok_or_else(|| self.damaged());
        }
        self.read().map(|record| look(&record.value))
    }

    /// Reads the state as the payload of a write that stores the same state again. The payload has no stamp,
    /// because the store inserts the revision of the new record. The payload has no time to live.
    ///
    /// # Errors
    /// As for [`Entry::read`].
    pub fn payload(&self) -> Result<Payload, ReadError> {
        let (head, record) = self.read_with_head()?;
        let payload = Payload { attributes: record.attributes, value: record.value, ..Payload::default() };
        let Some(Stamp { offset, len }) = head.stamp else { return Ok(payload) };
        let mut value = BytesMut::with_capacity(payload.value.len() - len);
        value.put_slice(&payload.value[..offset]);
        value.put_slice(&payload.value[offset + len..]);
        Ok(Payload { value: value.freeze(), stamp_at: u32::try_from(offset).ok(), ..payload })
    }

    /// Reads the attributes only and verifies their own checksum; the value is not read.
    pub fn attributes(&self) -> Result<Bytes, ReadError> {
        if let Some(ended) = self.without_state()? {
            return ended.attributes();
        }
        let (head, bytes) = self.head()?;
        if !head.attributes_are_sound(&bytes) {
            return Err(self.damaged());
        }
        Ok(head.attributes(&bytes))
    }

    pub(crate) fn read_with_head(&self) -> Result<(Head, Record), ReadError> {
        let (head, bytes) = self.head()?;
        if !head.body_is_sound(&bytes) {
            return Err(self.damaged());
        }
        let record = head.record(bytes);
        match self.segment.seal() {
            None => Ok((head, record)),
            Some(seal) => seal::open_sealed(seal, head, record)
                .map_err(|why| ReadError::Sealed { key: self.key.clone(), why }),
        }
    }

    /// Returns the record's bytes and its head. The head is verified and belongs to this entry; the rest is
    /// not verified yet.
    fn head(&self) -> Result<(Head, Bytes), ReadError> {
        let bytes = self.segment.file.read(self.version.offset(), self.version.len());
        let bytes = bytes.map_err(|_| self.damaged())?;
        self.head_in(&bytes).map(|head| (head, bytes)).ok_or_else(|| self.damaged())
    }

    /// Returns the head of the record in `bytes`; `None` if the head is damaged or belongs to another record.
    fn head_in(&self, bytes: &[u8]) -> Option<Head> {
        Head::read(bytes, self.segment.header.salt, self.version.offset())
            .filter(|head| head.revision == self.version.revision && head.key(bytes) == &self.key[..])
    }

    fn damaged(&self) -> ReadError {
        self.segment.note_damaged(self.version.revision);
        ReadError::Damaged { key: self.key.clone(), revision: self.version.revision }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("revision", &self.version.revision)
            .field("created", &self.version.created)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::options::Options;
    use crate::testing::TempDir;
    use crate::types::{Change, Expected, Payload, Write};

    #[tokio::test]
    async fn a_borrowed_value_is_verified_like_a_read_value() {
        let dir = TempDir::new();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for key in ["/sound", "/damaged"] {
            let payload = Payload {
                attributes: Bytes::new(),
                value: Bytes::from(format!("value of {key}")),
                stamp_at: None,
                ttl: None,
                essential: false,
            };
            let change = Change::Put(payload);
            let write = Write { key: Bytes::from_static(key.as_bytes()), expected: Expected::Absent, change };
            engine.commit(write).await.unwrap();
        }
        let entry = |key: &str| engine.snapshot().get(key.as_bytes()).unwrap();
        let (sound, damaged) = (entry("/sound"), entry("/damaged"));
        let look = |entry: &Entry| entry.with_value(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(look(&sound).unwrap(), "value of /sound");
        assert_eq!(look(&damaged).unwrap(), "value of /damaged");

        for file in std::fs::read_dir(dir.path()).unwrap() {
            let path = file.unwrap().path();
            if Segment::number(&path.file_name().unwrap().to_string_lossy()).is_none() {
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(17).position(|bytes| bytes == b"value of /damaged").unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"V", at as u64).unwrap();
        }
        assert_eq!(look(&sound).unwrap(), "value of /sound");
        for error in [look(&damaged).unwrap_err(), damaged.read().unwrap_err()] {
            assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
        }
    }
}
