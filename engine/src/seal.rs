//! Sealing of stored values: usually encryption.
//!
//! ```text
//! given value ─ stamp ─► value, position of its stamp ─ Seal::seal ─► record ─ checksum, log
//! reader ◄─ value ◄─ remove the position of the stamp ◄─ Seal::open ◄─ record
//! ```
//!
//! Before a value is sealed, the position of its stamp is appended, so that a delete, which stores the last
//! state with its own revision, can stamp the value again. Keys and attributes are not sealed, because the
//! index and its filters are made from keys and attributes. Reclamation, backups and restores copy sealed
//! records unchanged and need no encryption keys. This module does not depend on the format of sealed values.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use crate::record::{Head, Record, STAMP_BYTES_MAX, Stamp, decimal};
use crate::types::{Revision, VALUE_BYTES_MAX};

/// Length of the encoded stamp position after a value: the offset (4 bytes) and the length (1 byte) of the
/// stamp.
const TRAILER_BYTES: usize = 5;

/// Reason why a value could not be sealed or opened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct SealError(pub String);

/// A conversion of values on their way to the log and back. The sequencer calls its methods, so they must not
/// block for long.
pub trait Seal: Send + Sync + fmt::Debug {
    /// Returns whether values of `key` are sealed when they are written.
    fn seals(&self, key: &[u8]) -> bool;

    /// Returns the bytes to store in place of `value`.
    ///
    /// # Errors
    /// The value cannot be sealed.
    fn seal(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>, SealError>;

    /// Returns the original of a stored value; `None` if the stored value is not sealed.
    ///
    /// # Errors
    /// The value cannot be opened: its encryption key is unknown, or it belongs to another key of the store.
    fn open(&self, key: &[u8], stored: &[u8]) -> Result<Option<OpenedValue>, SealError>;
}

/// A value that was sealed and has been opened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OpenedValue {
    /// The value before it was sealed.
    pub value: Vec<u8>,
    /// Whether the value would be sealed in another way if it were written now.
    pub outdated: bool,
}

/// Returns the sealed form of a value with its stamp; `None` if `seal` does not seal values of this key.
pub(crate) fn seal_value(
    seal: &Arc<dyn Seal>,
    key: &[u8],
    value: &Bytes,
    stamp: Option<&Range<usize>>,
    revision: Revision,
) -> Result<Option<Bytes>, SealError> {
    if !seal.seals(key) {
        return Ok(None);
    }
    let mut plain = BytesMut::with_capacity(value.len() + STAMP_BYTES_MAX + TRAILER_BYTES);
    let mut stamped = Stamp { offset: 0, len: 0 };
    match stamp {
        None => plain.extend_from_slice(value),
        Some(stamp) => {
            let mut digits = [0; STAMP_BYTES_MAX];
            let digits = decimal(revision.get(), &mut digits);
            stamped = Stamp { offset: stamp.start, len: digits.len() };
            plain.extend_from_slice(&value[..stamp.start]);
            plain.extend_from_slice(digits);
            plain.extend_from_slice(&value[stamp.end..]);
        }
    }
    plain.put_u32_le(stamped.offset as u32);
    plain.put_u8(stamped.len as u8);
    let sealed = seal.seal(key, &plain)?;
    if sealed.len() > VALUE_BYTES_MAX {
        return Err(SealError("the sealed value is too long".to_owned()));
    }
    Ok(Some(sealed.into()))
}

/// Returns a record with its value opened, and its head with the position of the stamp in that value.
pub(crate) fn open_sealed(
    seal: &Arc<dyn Seal>,
    mut head: Head,
    mut record: Record,
) -> Result<(Head, Record), SealError> {
    let Some(opened) = seal.open(&record.key, &record.value)? else {
        record.outdated = seal.seals(&record.key);
        return Ok((head, record));
    };
    let mut plain = Bytes::from(opened.value);
    let (offset, len) = match plain.last_chunk::<TRAILER_BYTES>() {
        Some([a, b, c, d, len]) => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, usize::from(*len)),
        None => return Err(SealError("the sealed value has no end".to_owned())),
    };
    plain.truncate(plain.len() - TRAILER_BYTES);
    if offset + len > plain.len() || len > STAMP_BYTES_MAX {
        return Err(SealError("the sealed value is not of its form".to_owned()));
    }
    head.stamp = (len > 0).then_some(Stamp { offset, len });
    record.value = plain;
    record.outdated = opened.outdated;
    Ok((head, record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::testing::TempDir;
    use crate::types::{Change, Expected, Payload, Write};
    use crate::{Engine, EventKind};

    /// A seal that inverts the bits of values below `/s/`.
    #[derive(Debug)]
    struct Inverted;

    const MARK: &[u8] = b"inverted:";

    impl Seal for Inverted {
        fn seals(&self, key: &[u8]) -> bool {
            key.starts_with(b"/s/")
        }

        fn seal(&self, _: &[u8], value: &[u8]) -> Result<Vec<u8>, SealError> {
            Ok(MARK.iter().copied().chain(value.iter().map(|byte| !byte)).collect())
        }

        fn open(&self, _: &[u8], stored: &[u8]) -> Result<Option<OpenedValue>, SealError> {
            let value = stored.strip_prefix(MARK).map(|rest| rest.iter().map(|byte| !byte).collect());
            Ok(value.map(|value| OpenedValue { value, outdated: false }))
        }
    }

    fn put(key: &str, text: &'static str, expected: Expected) -> Write {
        let payload = Payload {
            attributes: Bytes::from_static(b"a"),
            value: Bytes::from_static(text.as_bytes()),
            stamp_at: Some(4),
            ttl: None,
            essential: false,
        };
        Write { key: Bytes::copy_from_slice(key.as_bytes()), expected, change: Change::Put(payload) }
    }

    #[tokio::test]
    async fn sealed_values_are_read_unsealed_and_stamped_with_their_revision() {
        let dir = TempDir::new();
        let options = Options { seal: Some(Arc::new(Inverted)), ..Options::new(dir.path()) };
        let engine = Engine::open(options.clone()).unwrap();
        let mut tail = engine.tail(Revision::ZERO, Bytes::from_static(b"/")).unwrap();
        for key in ["/s/a", "/p/a"] {
            engine.commit(put(key, "rev:;secret-word", Expected::Absent)).await.unwrap();
        }
        let gone = Write {
            key: Bytes::from_static(b"/s/a"),
            expected: Expected::Revision(Revision::new(1)),
            change: Change::Delete(None),
        };
        engine.commit(gone).await.unwrap();
        for (value, kind) in [
            ("rev:1;secret-word", EventKind::Put),
            ("rev:2;secret-word", EventKind::Put),
            ("rev:3;secret-word", EventKind::Delete),
        ] {
            let events = tail.next(1).await.unwrap();
            let event = &events[0];
            assert_eq!((event.entry.read().unwrap().value, event.kind), (value.into(), kind));
            assert_eq!(event.entry.with_value(<[u8]>::to_vec).unwrap(), value.as_bytes());
        }
        drop((engine, tail));
        let files = std::fs::read_dir(dir.path()).unwrap().map(|file| std::fs::read(file.unwrap().path()));
        let stored: Vec<u8> = files.filter_map(Result::ok).flatten().collect();
        let count = stored.windows(11).filter(|bytes| bytes == b"secret-word").count();
        assert_eq!(count, 1, "only the value that is not to be sealed is in the files");

        let engine = Engine::open(options).unwrap();
        let entry = engine.snapshot().get(b"/p/a").unwrap();
        assert_eq!(entry.read().unwrap().value, "rev:2;secret-word");
    }
}
