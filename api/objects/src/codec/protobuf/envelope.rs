//! The envelope of protobuf objects: a four-byte prefix and a message `Unknown` that names the kind
//! (docs/api/encodings.md#protobuf).
//!
//! ```text
//! 6b 38 73 00 │ 0a typeMeta{0a apiVersion 12 kind} │ 12 raw │ 1a contentEncoding │ 22 contentType
//! ```
//!
//! All four fields are always written, and the last two are empty. For a list, the length of `raw` must be
//! known before its first item is written, so [`head`] takes the length as a parameter.

use super::wire::{Reader, WireError, write_bytes, write_delimited, write_varint};
use types::schema::table::Message;
use values::json::{Object, Value};

use super::encode::{EncodeError, encode};

/// The first bytes of every enveloped message.
pub const PREFIX: [u8; 4] = *b"\x6b\x38\x73\x00";

/// The fields after `raw`: contentEncoding and contentType, both empty.
pub const TAIL: [u8; 4] = *b"\x1a\x00\x22\x00";

/// Reason why bytes are not an enveloped message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EnvelopeError {
    /// The input is empty.
    #[error("empty data")]
    Empty,
    /// The bytes begin with another prefix.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// Nothing follows the prefix.
    #[error("empty body")]
    NoBody,
    /// The message `Unknown` cannot be read.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The message has a content encoding; no content encoding is supported.
    #[error("the content of the protobuf message is encoded, which is not supported")]
    Encoded,
}

/// The contents of an envelope.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Unknown<'b> {
    /// Group and version as written; may be empty.
    pub api_version: &'b str,
    /// Kind as written; may be empty.
    pub kind: &'b str,
    /// The message in the encoding that `content_type` specifies.
    pub raw: &'b [u8],
    /// Media type of `raw`; empty for protobuf.
    pub content_type: &'b str,
}

impl<'b> Unknown<'b> {
    /// Parses the envelope of `body`.
    pub fn read(body: &'b [u8]) -> Result<Self, EnvelopeError> {
        if body.is_empty() {
            return Err(EnvelopeError::Empty);
        }
        let bytes = body.strip_prefix(&PREFIX).ok_or(EnvelopeError::NoPrefix)?;
        if bytes.is_empty() {
            return Err(EnvelopeError::NoBody);
        }
        let mut unknown = Unknown::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, data)) = reader.next()? {
            match number {
                1 => {
                    let mut type_meta = Reader::new(data.bytes()?);
                    while let Some((number, data)) = type_meta.next()? {
                        match number {
                            1 => unknown.api_version = data.string()?,
                            2 => unknown.kind = data.string()?,
                            _ => {}
                        }
                    }
                }
                2 => unknown.raw = data.bytes()?,
                3 if !data.bytes()?.is_empty() => return Err(EnvelopeError::Encoded),
                4 => unknown.content_type = data.string()?,
                _ => {}
            }
        }
        Ok(unknown)
    }

    /// Returns whether `raw` contains JSON text instead of protobuf.
    pub fn holds_json(&self) -> bool {
        self.content_type == crate::negotiate::JSON
    }

    /// Inserts `kind` and `apiVersion` as the first members of a decoded object.
    pub fn name(&self, object: &mut Object) {
        let members = [("kind", self.kind), ("apiVersion", self.api_version)];
        let members = members.map(|(name, text)| (name.into(), Value::from(text)));
        object.members_mut().splice(0..0, members);
    }
}

/// Appends all bytes of the envelope before `raw`. The caller then appends `raw` and [`TAIL`].
pub fn head(api_version: &str, kind: &str, raw_len: u64, out: &mut Vec<u8>) {
    before_raw(api_version, kind, out);
    write_varint(2 << 3 | 2, out);
    write_varint(raw_len, out);
}

/// Appends all bytes of the envelope before the length of `raw`.
pub fn before_raw(api_version: &str, kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&PREFIX);
    let type_meta = |out: &mut Vec<u8>| {
        write_bytes(1, api_version.as_bytes(), out);
        write_bytes(2, kind.as_bytes(), out);
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(()) = write_delimited(1, out, type_meta);
}

/// Appends an enveloped message, whose content is appended by `raw`.
pub fn wrap<E>(
    api_version: &str,
    kind: &str,
    out: &mut Vec<u8>,
    raw: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    before_raw(api_version, kind, out);
    write_delimited(2, out, raw)?;
    out.extend_from_slice(&TAIL);
    Ok(())
}

/// Appends an enveloped object, with the `kind` and `apiVersion` that the object contains.
pub fn wrap_object(message: &Message, object: &Object, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    wrap(text("apiVersion"), text("kind"), out, |out| encode(message, object, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [&PREFIX, bytes].concat()
    }

    #[test]
    fn envelopes_are_written_and_opened() {
        let mut out = Vec::new();
        wrap("v1", "Pod", &mut out, |out| {
            out.extend_from_slice(b"raw");
            Ok::<_, ()>(())
        })
        .unwrap();
        let want = prefixed(b"\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x03raw\x1a\x00\x22\x00");
        assert_eq!(out, want);
        let opened = Unknown { api_version: "v1", kind: "Pod", raw: b"raw", content_type: "" };
        assert_eq!(Unknown::read(&out), Ok(opened));
        let mut parts = Vec::new();
        head("v1", "Pod", 3, &mut parts);
        parts.extend_from_slice(b"raw");
        parts.extend_from_slice(&TAIL);
        assert_eq!(parts, want);
    }

    #[test]
    fn bytes_without_a_protobuf_envelope_are_refused_with_the_texts_of_the_reference_server() {
        let no_prefix =
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        for (body, want) in [
            (vec![], "empty data"),
            (b"{}".to_vec(), no_prefix),
            (PREFIX[..3].to_vec(), no_prefix),
            (prefixed(b""), "empty body"),
            (prefixed(b"\x0a"), "unexpected EOF"),
            (prefixed(b"\x08\x01"), "proto: wrong wireType = 0"),
            (prefixed(b"\x0a\x03\x0a\x01\xff"), "proto: string field contains invalid UTF-8"),
            (
                prefixed(b"\x1a\x04gzip"),
                "the content of the protobuf message is encoded, which is not supported",
            ),
        ] {
            assert_eq!(Unknown::read(&body).unwrap_err().to_string(), want, "{body:x?}");
        }
        let bytes = prefixed(b"\x12\x00");
        let bare = Unknown::read(&bytes).unwrap();
        assert_eq!(bare, Unknown::default(), "kind and version may be left out");
    }
}
