//! JSON responses: the stored bytes unchanged, a table row, or only the metadata.
//!
//! The stored form starts with `{"kind":"…","apiVersion":"…",`. An item of a built-in list is the same bytes
//! without that prefix, because such items have neither member (docs/api/lists.md#read-consistency). Items of
//! custom types are whole objects. Lists and documents end with a newline, and each event is one line.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::{Encoding, EventType, ListMeta, ListSize, RendererParameters, Shown};
use crate::negotiate::{self, Output, Transform};
use types::schema::encode::{encode, prefix_len};
use types::schema::registry::Resource;
use types::schema::table::Message;
use types::table::{self, Headers, IncludeObject, PartialWriter, RowError, TableFormat, TableWriter};
use values::json::{self, Object, ParseError, Value};
use values::status::{Status, StatusReason};

/// Encoder of one JSON response.
pub(super) struct Json {
    resource: Arc<Resource>,
    pretty: bool,
    form: Form,
    /// Time to which ages are relative; `None` for the present.
    time: Option<Timestamp>,
}

/// Representation of an object.
enum Form {
    /// The whole object.
    Plain,
    /// A table row.
    Table {
        writer: TableWriter,
        /// Whether to send the column definitions with the next object. In a watch, only the first event has
        /// them.
        headers: Headers,
    },
    /// The metadata only.
    Partial(PartialWriter),
}

impl Json {
    pub(super) fn new(wanted: &RendererParameters<'_>) -> Result<Self, Status> {
        let (resource, naming, output) = (wanted.resource, wanted.naming, wanted.output);
        let form = match output.transform {
            Transform::None => Form::Plain,
            Transform::Table => {
                let include = IncludeObject::parse(wanted.query.first("includeObject").unwrap_or_default())?;
                let table = resource.storage.as_ref().map_or(&resource.table, |storage| &storage.table);
                let format = TableFormat::for_resource(table, naming).map_err(Status::internal)?;
                let now = wanted.time.unwrap_or_else(Timestamp::now);
                let writer = format.writer(output.meta_version, output.words, include, now);
                Form::Table { writer, headers: Headers::Shown }
            }
            Transform::PartialObject | Transform::PartialObjectList => {
                Form::Partial(PartialWriter::new(output.meta_version, output.words))
            }
        };
        let pretty = output.pretty && output.encoding == negotiate::Encoding::Json;
        Ok(Json { resource: resource.clone(), pretty, form, time: wanted.time })
    }

    /// Forks the encoder; see [`Encoding::fork`].
    pub(super) fn fork(&self) -> Self {
        let form = match &self.form {
            Form::Plain => Form::Plain,
            Form::Table { writer, .. } => Form::Table { writer: writer.fork(), headers: Headers::Omitted },
            Form::Partial(writer) => Form::Partial(writer.fork()),
        };
        Json { resource: self.resource.clone(), pretty: self.pretty, form, time: self.time }
    }

    /// Appends one object that is not part of a list.
    fn show(&mut self, object: Shown<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        match &mut self.form {
            Form::Plain => out.extend_from_slice(object.served),
            Form::Table { writer, headers } => {
                let headers = std::mem::replace(headers, Headers::Omitted);
                writer.single(object.stored, object.served, headers, out).map_err(unreadable)?;
            }
            Form::Partial(writer) => {
                if !writer.object(object.served, out) {
                    return Err(unreadable(RowError::NoMetadata));
                }
            }
        }
        Ok(())
    }
}

impl Encoding for Json {
    fn document(&mut self, object: Shown<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        self.show(object, out)?;
        finish_document(out, self.pretty);
        Ok(())
    }

    fn list_head(&mut self, meta: &ListMeta, _: ListSize, out: &mut Vec<u8>) -> Result<(), Status> {
        let revision = meta.revision.to_string();
        let has_empty_token = self.resource.table.message.custom && matches!(self.form, Form::Plain);
        let token = Some(meta.continue_token.as_str());
        let meta = table::ListMeta {
            resource_version: &revision,
            continue_token: token.filter(|token| has_empty_token || !token.is_empty()),
            remaining: meta.remaining.filter(|remaining| *remaining > 0),
        };
        match &mut self.form {
            Form::Table { writer, .. } => writer.head(&meta, Headers::Shown, out),
            Form::Partial(writer) => writer.list_head(&meta, out),
            Form::Plain => {
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

    fn list_item(&mut self, object: Shown<'_>, first: bool, out: &mut Vec<u8>) -> Result<(), Status> {
        let Shown { stored, served } = object;
        match &mut self.form {
            Form::Table { writer, .. } => writer.row(stored, served, out).map_err(unreadable),
            Form::Partial(writer) => {
                let written = writer.list_item(served, out);
                if written { Ok(()) } else { Err(unreadable(RowError::NoMetadata)) }
            }
            Form::Plain => {
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
        match &self.form {
            Form::Table { writer, .. } => writer.tail(out),
            Form::Partial(writer) => writer.list_tail(out),
            Form::Plain => out.extend_from_slice(b"]}\n"),
        }
    }

    fn event(&mut self, kind: EventType, object: Shown<'_>, out: &mut Vec<u8>) -> Result<(), Status> {
        if let Form::Table { writer, .. } = &mut self.form {
            // Ages are relative to the time of each event, because a watch can last long.
            writer.set_now(self.time.unwrap_or_else(Timestamp::now));
        }
        let start = out.len();
        event_head(kind, out);
        let shown = self.show(object, out);
        match shown {
            Ok(()) => out.extend_from_slice(b"}\n"),
            Err(_) => out.truncate(start),
        }
        shown
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

/// Encodes an object that is not of the request's resource.
pub(super) fn foreign(message: &Message, object: &Object, pretty: bool) -> Bytes {
    let mut out = Vec::new();
    encode(message, object, &mut out);
    finish_document(&mut out, pretty);
    out.into()
}

/// Encodes the table of an object that is not of the request's resource.
pub(super) fn foreign_table(
    output: &Output,
    format: &Arc<TableFormat>,
    include: IncludeObject,
    message: &Message,
    object: &Object,
) -> Result<Bytes, Status> {
    let mut writer = format.writer(output.meta_version, output.words, include, Timestamp::now());
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

/// Ends a document: indented without a final newline, or compact with one
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
