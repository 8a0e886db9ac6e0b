//! CBOR responses, which contain the same data as the JSON response. The schema determines which fields are
//! byte strings (docs/api/encodings.md#cbor).
//!
//! ```text
//! document  d9 d9 f7 {…}
//! list      d9 d9 f7 { kind, items [ n items ], metadata, apiVersion }     n must be known first
//! event     d9 d9 f7 { type, object }                                      one after the other
//! ```

use bytes::Bytes;

use super::json::{Json, unreadable_json};
use super::{Encoding, EventType, ListMeta, ListSize, RenderInput, RendererParameters};
use crate::codec::cbor;
use types::schema::table::{Message, Ref};
use values::json::{self, Object, Value};
use values::status::Status;

/// Encoder of one CBOR response.
pub(super) struct Cbor {
    json: Json,
    message: Ref<Message>,
    tail: Vec<u8>,
    scratch: Vec<u8>,
}

impl Cbor {
    pub(super) fn new(parameters: &RendererParameters<'_>) -> Result<Self, Status> {
        let message = parameters.resource.table.message.clone();
        Ok(Cbor { json: Json::new(parameters)?, message, tail: Vec::new(), scratch: Vec::new() })
    }

    /// Appends the object whose JSON is `text`.
    fn transcode(&self, text: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
        match json::parse(text).map_err(unreadable_json)? {
            Value::Object(object) => cbor::encode(&self.message, &object, out),
            other => cbor::write(&other, out),
        }
        Ok(())
    }
}

impl Encoding for Cbor {
    fn document(&mut self, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.document(object, &mut self.scratch)?;
        out.extend_from_slice(&cbor::SELF_DESCRIBED);
        self.transcode(&self.scratch, out)
    }

    fn list_head(&mut self, meta: &ListMeta, size: ListSize, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.list_head(meta, size, &mut self.scratch)?;
        self.json.list_tail(&mut self.scratch);
        let list = json::parse(&self.scratch).map_err(unreadable_json)?;
        let members = list.as_object().cloned().unwrap_or_default();
        out.extend_from_slice(&cbor::SELF_DESCRIBED);
        cbor::write_map_head(members.len(), out);
        let mut members: Vec<(&str, &Value)> = members.iter().collect();
        members.sort_unstable_by_key(|(name, _)| (name.len(), *name));
        let mut is_behind = false;
        self.tail.clear();
        for (name, value) in members {
            let to = if is_behind { &mut self.tail } else { &mut *out };
            cbor::write_text(name, to);
            if name == "items" {
                is_behind = true;
                cbor::write_array_head(size.items, out);
            } else {
                cbor::write(value, to);
            }
        }
        Ok(())
    }

    fn list_item(&mut self, object: RenderInput<'_>, first: bool, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.list_item(object, first, &mut self.scratch)?;
        let text = self.scratch.strip_prefix(b",").unwrap_or(&self.scratch);
        self.transcode(text, out)
    }

    fn fork(&self) -> Box<dyn Encoding> {
        let (message, tail, scratch) = (self.message.clone(), Vec::new(), Vec::new());
        Box::new(Cbor { json: self.json.fork(), message, tail, scratch })
    }

    fn list_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tail);
    }

    fn event(&mut self, kind: EventType, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.document(object, &mut self.scratch)?;
        let start = out.len();
        event_head(kind, out);
        self.transcode(&self.scratch, out).inspect_err(|_| out.truncate(start))
    }

    fn error_event(&self, status: &Status, out: &mut Vec<u8>) {
        event_head(EventType::Error, out);
        cbor::write(&status.to_value(), out);
    }
}

/// Appends the start of an event, up to its object.
fn event_head(kind: EventType, out: &mut Vec<u8>) {
    out.extend_from_slice(&cbor::SELF_DESCRIBED);
    cbor::write_map_head(2, out);
    cbor::write_text("type", out);
    cbor::write_text(kind.as_str(), out);
    cbor::write_text("object", out);
}

/// Encodes an object that is not of the requested resource.
pub(super) fn foreign(message: &Message, object: &Object) -> Bytes {
    let mut out = cbor::SELF_DESCRIBED.to_vec();
    cbor::encode(message, object, &mut out);
    out.into()
}

/// Encodes a Status as CBOR.
pub(super) fn status(status: &Object) -> Bytes {
    let mut out = cbor::SELF_DESCRIBED.to_vec();
    cbor::write(&Value::Object(status.clone()), &mut out);
    out.into()
}
