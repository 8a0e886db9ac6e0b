//! Protobuf responses: objects that are transcoded by schema, or only their metadata, in an envelope
//! (docs/api/encodings.md#protobuf).
//!
//! ```text
//! document  envelope{ message }
//! list      envelope{ 1 metadata  2 item  2 item … }      no envelope around items
//! event     length, 4 bytes big-endian  WatchEvent{ 1 type  2 {1 envelope{ message }} }
//! ```
//!
//! The envelope starts with the length of its content, so the items of a list are measured before the list is
//! written. Negotiation does not choose protobuf for tables.

use std::sync::Arc;

use bytes::Bytes;

use super::{Encoding, EventType, ListMeta, ListSize, RenderInput, RendererParameters};
use crate::codec::protobuf::{
    EncodeError, Transcoder, encode, envelope, transcode, write_bytes, write_delimited,
};
use crate::negotiate::Transform;
use types::schema::builtin;
use types::schema::registry::Resource;
use types::schema::table::Message;
use types::table::{metadata_range, metadata_start};
use values::json::{Object, Value};
use values::status::{Status, StatusReason};

/// Encoder of one protobuf response.
pub(super) struct Protobuf {
    names: Names,
    messages: Messages,
}

/// Names that are written into envelopes.
#[derive(Clone)]
struct Names {
    api_version: String,
    kind: String,
    list_kind: String,
}

/// Writer of the messages inside envelopes.
struct Messages {
    resource: Arc<Resource>,
    /// Whether the client requested only the metadata.
    is_partial: bool,
    /// Transcoder with a memo of converted parts, because the next object often has the same parts; `None`
    /// for a single object.
    transcoder: Option<Transcoder>,
}

impl Protobuf {
    pub(super) fn new(parameters: &RendererParameters<'_>) -> Self {
        let resource = parameters.resource.clone();
        let is_partial =
            matches!(parameters.output.transform, Transform::PartialObject | Transform::PartialObjectList);
        let names = if is_partial {
            let (group, version) =
                (parameters.output.words.meta_group(), parameters.output.meta_version.as_str());
            Names {
                api_version: format!("{group}/{version}"),
                kind: "PartialObjectMetadata".to_owned(),
                list_kind: "PartialObjectMetadataList".to_owned(),
            }
        } else {
            Names {
                api_version: resource.api_version.clone(),
                kind: resource.table.kind.clone().into_owned(),
                list_kind: resource.table.list_kind.clone().into_owned(),
            }
        };
        Protobuf { names, messages: Messages { resource, is_partial, transcoder: None } }
    }
}

impl Messages {
    /// Appends the message of a single object.
    fn single(&self, served: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !self.is_partial {
            return transcode(&self.resource.table.message, served, out);
        }
        let metadata = metadata_range(served).map_or(&b"null"[..], |range| &served[range]);
        write_delimited(1, out, |out| transcode(builtin::OBJECT_META, metadata, out))
    }

    /// Appends the message of one object in a sequence.
    fn next(&mut self, served: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let Some(transcoder) = &mut self.transcoder else { return self.single(served, out) };
        if !self.is_partial {
            return transcoder.transcode(&self.resource.table.message, served, out);
        }
        let Some(start) = metadata_start(served) else { return self.single(served, out) };
        let begin = out.len();
        let mut is_written = false;
        write_delimited(1, out, |out| {
            is_written = transcoder.transcode_start(builtin::OBJECT_META, &served[start..], out);
            Ok::<_, EncodeError>(())
        })?;
        if is_written {
            return Ok(());
        }
        out.truncate(begin);
        self.single(served, out)
    }
}

impl Encoding for Protobuf {
    fn document(&mut self, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        let Protobuf { names, messages } = self;
        whole(out, |out| {
            envelope::wrap(&names.api_version, &names.kind, out, |out| messages.single(object.served, out))
        })
    }

    fn list_opening(&self, out: &mut Vec<u8>) {
        envelope::before_raw(&self.names.api_version, &self.names.list_kind, out);
    }

    fn list_head(&mut self, meta: &ListMeta, size: ListSize, out: &mut Vec<u8>) -> Result<(), Status> {
        let mut object = Object::new();
        object.push("resourceVersion", meta.revision.to_string().into());
        object.push("continue", meta.continue_token.as_str().into());
        if let Some(remaining) = meta.remaining.filter(|remaining| *remaining > 0) {
            object.push("remainingItemCount", Value::Int(i64::try_from(remaining).unwrap_or(i64::MAX)));
        }
        let mut metadata = Vec::new();
        write_delimited(1, &mut metadata, |out| encode(builtin::LIST_META, &object, out))
            .map_err(Status::internal)?;
        envelope::head(
            &self.names.api_version,
            &self.names.list_kind,
            metadata.len() as u64 + size.bytes,
            out,
        );
        out.extend_from_slice(&metadata);
        Ok(())
    }

    fn list_item(&mut self, object: RenderInput<'_>, _: bool, out: &mut Vec<u8>) -> Result<(), Status> {
        whole(out, |out| write_delimited(2, out, |out| self.messages.next(object.served, out)))
    }

    fn list_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&envelope::TAIL);
    }

    fn event(&mut self, kind: EventType, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        let Protobuf { names, messages } = self;
        whole(out, |out| {
            frame(kind, out, |out| {
                envelope::wrap(&names.api_version, &names.kind, out, |out| messages.next(object.served, out))
            })
        })
    }

    fn fork(&self) -> Box<dyn Encoding> {
        let Messages { resource, is_partial, .. } = &self.messages;
        let messages = Messages {
            resource: resource.clone(),
            is_partial: *is_partial,
            transcoder: Some(Transcoder::default()),
        };
        Box::new(Protobuf { names: self.names.clone(), messages })
    }

    fn error_event(&self, status: &Status, out: &mut Vec<u8>) {
        let body = match status.to_value() {
            Value::Object(object) => object,
            _ => Object::new(),
        };
        let written = whole(out, |out| {
            frame(EventType::Error, out, |out| envelope::wrap_object(builtin::STATUS, &body, out))
        });
        if let Err(error) = written {
            tracing::error!(%error, "an error event could not be written");
        }
    }
}

/// Size of the length prefix of each watch event.
pub const FRAME_BYTES: usize = 4;

/// Appends one watch frame. `object` appends the object inside the frame.
fn frame(
    kind: EventType,
    out: &mut Vec<u8>,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_BYTES]);
    write_bytes(1, kind.as_str().as_bytes(), out);
    write_delimited(2, out, |out| write_delimited(1, out, object))?;
    let len = u32::try_from(out.len() - start - FRAME_BYTES).unwrap_or(u32::MAX);
    out[start..start + FRAME_BYTES].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// Calls `write`. If `write` fails, removes the bytes that it appended.
fn whole(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), Status> {
    let start = out.len();
    write(out).map_err(|error| {
        out.truncate(start);
        Status::new(StatusReason::StorageReadError, error.to_string())
    })
}

/// Encodes an object that is not of the requested resource.
pub(super) fn foreign(message: &Message, object: &Object) -> Result<Bytes, Status> {
    let mut out = Vec::new();
    envelope::wrap_object(message, object, &mut out).map_err(Status::internal)?;
    Ok(out.into())
}

/// Encodes a Status as protobuf.
pub(super) fn status(status: &Object) -> Bytes {
    let mut out = Vec::new();
    if let Err(error) = envelope::wrap_object(builtin::STATUS, status, &mut out) {
        tracing::error!(%error, "a status could not be written");
    }
    out.into()
}
