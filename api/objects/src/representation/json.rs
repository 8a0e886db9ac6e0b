//! JSON responses: the stored bytes unchanged, a table row, or only the metadata.
//!
//! The stored form starts with `{"kind":"…","apiVersion":"…",`. An item of a built-in list consists of the
//! same bytes without this prefix, because such items do not have these two members
//! (docs/api/lists.md#read-consistency). Items of custom types are whole objects. Lists and documents end
//! with a newline, and each event is one line.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::{Encoding, EventType, ListMeta, ListSize, RenderInput, RendererParameters};
use crate::negotiate::{self, Output, Transform};
use types::schema::encode::{encode, prefix_len};
use types::schema::registry::Resource;
use types::schema::table::Message;
use types::table::{self, Headers, IncludeObject, PartialWriter, RowError, TableFormat, TableWriter};
use values::clock;
use values::json::{self, Object, ParseError, Value};
use values::status::{Status, StatusReason};

/// Encoder of one JSON response.
pub(super) struct Json {
    resource: Arc<Resource>,
    pretty: bool,
    objects: ObjectWriter,
    /// Time to which ages are relative; `None` for the current time.
    time: Option<Timestamp>,
}

/// Writer of objects in one representation.
enum ObjectWriter {
    /// The whole object.
    Plain,
    /// A table row.
    Table {
        writer: TableWriter,
        /// Whether the next object includes the column definitions. In a watch, only the first event includes the
        /// column definitions.
        headers: Headers,
    },
    /// The metadata only.
    Partial(PartialWriter),
}

impl Json {
    pub(super) fn new(parameters: &RendererParameters<'_>) -> Result<Self, Status> {
        let (resource, naming, output) = (parameters.resource, parameters.naming, parameters.output);
        let objects = match output.transform {
            Transform::None => ObjectWriter::Plain,
            Transform::Table => {
                let include =
                    IncludeObject::parse(parameters.query.first("includeObject").unwrap_or_default())?;
                let table = resource.storage.as_ref().map_or(&resource.table, |storage| &storage.table);
                let format = TableFormat::for_resource(table, naming).map_err(Status::internal)?;
                let now = parameters.time.unwrap_or_else(clock::timestamp);
                let writer = format.writer(output.meta_version, output.words, include, now);
                ObjectWriter::Table { writer, headers: Headers::Shown }
            }
            Transform::PartialObject | Transform::PartialObjectList => {
                ObjectWriter::Partial(PartialWriter::new(output.meta_version, output.words))
            }
        };
        let pretty = output.pretty && output.encoding == negotiate::Encoding::Json;
        Ok(Json { resource: resource.clone(), pretty, objects, time: parameters.time })
    }

    /// Forks the encoder; see [`Encoding::fork`].
    pub(super) fn fork(&self) -> Self {
        let objects = match &self.objects {
            ObjectWriter::Plain => ObjectWriter::Plain,
            ObjectWriter::Table { writer, .. } => {
                ObjectWriter::Table { writer: writer.fork(), headers: Headers::Omitted }
            }
            ObjectWriter::Partial(writer) => ObjectWriter::Partial(writer.fork()),
        };
        Json { resource: self.resource.clone(), pretty: self.pretty, objects, time: self.time }
    }

    /// Appends one object that is not part of a list.
    fn show(&mut self, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        match &mut self.objects {
            ObjectWriter::Plain => out.extend_from_slice(object.served),
            ObjectWriter::Table { writer, headers } => {
                let headers = std::mem::replace(headers, Headers::Omitted);
                writer.single(object.stored, object.served, headers, out).map_err(unreadable)?;
            }
            ObjectWriter::Partial(writer) => {
                if !writer.object(object.served, out) {
                    return Err(unreadable(RowError::NoMetadata));
                }
            }
        }
        Ok(())
    }
}

impl Encoding for Json {
    fn document(&mut self, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        self.show(object, out)?;
        finish_document(out, self.pretty);
        Ok(())
    }

    fn list_head(&mut self, meta: &ListMeta, _: ListSize, out: &mut Vec<u8>) -> Result<(), Status> {
        let revision = meta.revision.to_string();
        let has_empty_token =
            self.resource.table.message.custom && matches!(self.objects, ObjectWriter::Plain);
        let token = Some(meta.continue_token.as_str());
        let meta = table::ListMeta {
            resource_version: &revision,
            continue_token: token.filter(|token| has_empty_token || !token.is_empty()),
            remaining: meta.remaining.filter(|remaining| *remaining > 0),
        };
        match &mut self.objects {
            ObjectWriter::Table { writer, .. } => writer.head(&meta, Headers::Shown, out),
            ObjectWriter::Partial(writer) => writer.list_head(&meta, out),
            ObjectWriter::Plain => {
                out.extend_from_slice(b"{\"kind\":");
                json::write_string(&self.resource.table.list_kind, out);
                out.extend_from_slice(b",\"apiVersion\":");
                json::write_string(&self.resource.api_version, out);
                out.extend_from_slice(b",\"metadata\":");
                meta.write(out);
                out.extend_from_slice(b",\"items\":[");
            }
        }
        Ok(())
    }

    fn list_item(&mut self, object: RenderInput<'_>, first: bool, out: &mut Vec<u8>) -> Result<(), Status> {
        let RenderInput { stored, served } = object;
        match &mut self.objects {
            ObjectWriter::Table { writer, .. } => writer.row(stored, served, out).map_err(unreadable),
            ObjectWriter::Partial(writer) => {
                let written = writer.list_item(served, out);
                if written { Ok(()) } else { Err(unreadable(RowError::NoMetadata)) }
            }
            ObjectWriter::Plain => {
                if !first {
                    out.push(b',');
                }
                let begin = if self.resource.table.message.custom { 1 } else { prefix_len(served) };
                out.push(b'{');
                out.extend_from_slice(&served[begin.min(served.len())..]);
                Ok(())
            }
        }
    }

    fn list_tail(&self, out: &mut Vec<u8>) {
        match &self.objects {
            ObjectWriter::Table { writer, .. } => writer.tail(out),
            ObjectWriter::Partial(writer) => writer.list_tail(out),
            ObjectWriter::Plain => out.extend_from_slice(b"]}\n"),
        }
    }

    fn event(&mut self, kind: EventType, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        if let ObjectWriter::Table { writer, .. } = &mut self.objects {
            // Ages are relative to the time of each event, because a watch can run for a long time.
            writer.set_now(self.time.unwrap_or_else(clock::timestamp));
        }
        let start = out.len();
        event_head(kind, out);
        let written = self.show(object, out);
        match written {
            Ok(()) => out.extend_from_slice(b"}\n"),
            Err(_) => out.truncate(start),
        }
        written
    }

    fn fork(&self) -> Box<dyn Encoding> {
        Box::new(self.fork())
    }

    fn error_event(&self, status: &Status, out: &mut Vec<u8>) {
        event_head(EventType::Error, out);
        json::write(&status.to_value(), out);
        out.extend_from_slice(b"}\n");
    }
}

fn event_head(kind: EventType, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_str().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

fn unreadable(error: RowError) -> Status {
    Status::new(StatusReason::StorageReadError, error.to_string())
}

/// Returns the error for stored JSON that cannot be parsed.
pub(super) fn unreadable_json(error: ParseError) -> Status {
    Status::new(StatusReason::StorageReadError, error.to_string())
}

/// Encodes an object that is not of the requested resource.
pub(super) fn foreign(message: &Message, object: &Object, pretty: bool) -> Bytes {
    let mut out = Vec::new();
    encode(message, object, &mut out);
    finish_document(&mut out, pretty);
    out.into()
}

/// Encodes the table of an object that is not of the requested resource.
pub(super) fn foreign_table(
    output: &Output,
    format: &Arc<TableFormat>,
    include: IncludeObject,
    message: &Message,
    object: &Object,
) -> Result<Bytes, Status> {
    let mut writer = format.writer(output.meta_version, output.words, include, clock::timestamp());
    let (mut served, mut out) = (Vec::new(), Vec::new());
    encode(message, object, &mut served);
    writer.single(&served, &served, Headers::Shown, &mut out).map_err(unreadable)?;
    finish_document(&mut out, output.pretty && output.encoding == negotiate::Encoding::Json);
    Ok(out.into())
}

/// Encodes a Status as JSON.
pub(super) fn status(status: &Object, pretty: bool) -> Bytes {
    let mut out = Vec::new();
    json::write(&Value::Object(status.clone()), &mut out);
    finish_document(&mut out, pretty);
    out.into()
}

/// Ends a document. An indented document has no final newline, and a compact document has one
/// (docs/api/encodings.md#json-and-yaml-output).
fn finish_document(out: &mut Vec<u8>, pretty: bool) {
    if pretty {
        let mut indented = Vec::with_capacity(out.len() * 2);
        json::Indenter::default().push(out, &mut indented);
        *out = indented;
    } else if out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
}
