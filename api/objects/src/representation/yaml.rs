//! YAML responses, which contain the same data as the JSON response
//! (docs/api/encodings.md#json-and-yaml-output).
//!
//! Members are sorted, so a list consists of `apiVersion`, the items, `kind` and `metadata`, in this order.
//! The items can therefore be streamed. YAML does not support watches, and negotiation does not choose YAML
//! for a watch.

use std::cmp::Ordering;

use bytes::Bytes;

use super::json::{Json, unreadable_json};
use super::{Encoding, ListMeta, ListSize, RenderInput, RendererParameters};
use crate::negotiate::Transform;
use types::schema::encode::encode;
use types::schema::table::Message;
use values::json::{self, Object, Value};
use values::status::Status;
use values::yaml;

/// Encoder of one YAML response.
pub(super) struct Yaml {
    json: Json,
    /// Name of the list member that contains the items.
    items: &'static str,
    /// End of the current list, which is written after the items.
    tail: Vec<u8>,
    is_empty: bool,
    scratch: Vec<u8>,
}

/// Converts a JSON document to YAML.
pub(super) fn of_json(text: &[u8]) -> Result<Bytes, Status> {
    let mut out = Vec::new();
    yaml::write(&json::parse(text).map_err(unreadable_json)?, &mut out);
    Ok(out.into())
}

impl Yaml {
    pub(super) fn new(parameters: &RendererParameters<'_>) -> Result<Self, Status> {
        let items = if parameters.output.transform == Transform::Table { "rows" } else { "items" };
        let json = Json::new(parameters)?;
        Ok(Yaml { json, items, tail: Vec::new(), is_empty: true, scratch: Vec::new() })
    }
}

impl Encoding for Yaml {
    fn document(&mut self, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.document(object, &mut self.scratch)?;
        yaml::write(&json::parse(&self.scratch).map_err(unreadable_json)?, out);
        Ok(())
    }

    fn list_head(&mut self, meta: &ListMeta, size: ListSize, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.list_head(meta, size, &mut self.scratch)?;
        self.json.list_tail(&mut self.scratch);
        let list = json::parse(&self.scratch).map_err(unreadable_json)?;
        let mut members: Vec<_> = list.as_object().into_iter().flat_map(Object::iter).collect();
        members.sort_by(|(a, _), (b, _)| yaml::compare_names(a, b));
        self.tail.clear();
        self.is_empty = true;
        for (name, value) in members {
            match yaml::compare_names(name, self.items) {
                Ordering::Less => yaml::write_member(name, value, out),
                Ordering::Equal => {}
                Ordering::Greater => yaml::write_member(name, value, &mut self.tail),
            }
        }
        out.extend_from_slice(self.items.as_bytes());
        out.push(b':');
        Ok(())
    }

    fn list_item(&mut self, object: RenderInput<'_>, first: bool, out: &mut Vec<u8>) -> Result<(), Status> {
        self.scratch.clear();
        self.json.list_item(object, first, &mut self.scratch)?;
        let text = self.scratch.strip_prefix(b",").unwrap_or(&self.scratch);
        let item: Value = json::parse(text).map_err(unreadable_json)?;
        if std::mem::take(&mut self.is_empty) {
            out.push(b'\n');
        }
        yaml::write_item(&item, out);
        Ok(())
    }

    fn fork(&self) -> Box<dyn Encoding> {
        let (tail, scratch) = (Vec::new(), Vec::new());
        Box::new(Yaml { json: self.json.fork(), items: self.items, tail, is_empty: false, scratch })
    }

    fn list_tail(&self, out: &mut Vec<u8>) {
        if self.is_empty {
            out.extend_from_slice(b" []\n");
        }
        out.extend_from_slice(&self.tail);
    }
}

/// Encodes an object that is not of the requested resource.
pub(super) fn foreign(message: &Message, object: &Object) -> Result<Bytes, Status> {
    let mut text = Vec::new();
    encode(message, object, &mut text);
    let mut out = Vec::new();
    yaml::write(&json::parse(&text).map_err(unreadable_json)?, &mut out);
    Ok(out.into())
}

/// Encodes a Status as YAML.
pub(super) fn status(status: &Object) -> Bytes {
    let mut out = Vec::new();
    yaml::write(&Value::Object(status.clone()), &mut out);
    out.into()
}
