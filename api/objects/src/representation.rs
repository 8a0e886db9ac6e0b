//! Representations in which stored objects are served: as documents, list items and watch events.
//!
//! ```text
//! stored bytes ─served version─► Renderer ─┬─ json: whole · table · metadata only ─┬─ yaml: the same
//!                                          │                                       └─ cbor: the same, no tables
//!                                          └─ protobuf: whole · metadata only
//! ```
//!
//! A [`Renderer`] produces the representation that one request negotiated for the objects of one resource. An
//! `Encoding` contains the state of the encoder; each encoding has its own type. All functions append to a
//! buffer. Plain JSON is copied. Protobuf, table rows and metadata are built from the stored text. YAML and
//! CBOR are built from the tree of one object at a time.

pub mod answer;
mod cbor;
#[cfg(test)]
mod cell_reuse_test;
mod json;
mod protobuf;
pub mod shared;
mod yaml;

pub use protobuf::FRAME_BYTES;

use engine::Revision;
use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use jiff::Timestamp;

use crate::store::decode_stored;
use types::convert;
use types::discovery;
use types::schema::decode::decode;
use types::schema::{builtin, complete_empty};

use crate::negotiate::{self, Output, Transform};
use types::schema::encode::{encode, prefix_len};
use types::schema::registry::Resource;
use types::schema::table::Message;
use types::table::{IncludeObject, TableFormat};
use values::json::{Object, parse};
use values::memory::Account;
use values::naming::Naming;
use values::query::Query;
use values::status::{Status, StatusReason};
use wire::metrics::Metrics;
use wire::response::{Response, respond};

use crate::lengths::{self, Lengths};

/// Metadata of a list, as sent to the client.
#[derive(Clone, Debug, Default)]
pub struct ListMeta {
    /// Revision of the collection, sent as its resourceVersion.
    pub revision: Revision,
    /// Continue token for the next chunk; empty in the last chunk.
    pub continue_token: String,
    /// Number of items after this chunk; `None` if the number is unknown or not reported.
    pub remaining: Option<u64>,
}

/// Size of a list. Only the values that the encoding requires are valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListSize {
    /// Number of items in the chunk.
    pub items: u64,
    /// Total length of the items in bytes.
    pub bytes: u64,
}

/// Information about the items of a list. An encoding needs this information before the encoding can write the first
/// byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SizeNeeded {
    /// The encoding needs no information.
    Nothing,
    /// The number of items.
    Items,
    /// The number of items and the total length of the items.
    Bytes,
}

/// Types of watch events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventType {
    /// The object was created or begins to match the selector.
    Added,
    /// The object was changed and matches the selector.
    Modified,
    /// The object was deleted or no longer matches the selector.
    Deleted,
    /// All events up to a revision were sent.
    Bookmark,
    /// The watch ends with an error. The event contains a Status.
    Error,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// An object to be rendered.
#[derive(Clone, Copy)]
struct RenderInput<'b> {
    /// The stored bytes of the object.
    stored: &'b [u8],
    /// The JSON of the object in the served version. If no conversion is needed, `served` equals `stored`.
    served: &'b [u8],
}

/// An encoder of objects. If a function fails, the output is unchanged.
trait Encoding: Send + Sync {
    /// Appends one object as a whole document.
    fn document(&mut self, object: RenderInput<'_>, out: &mut Vec<u8>) -> Result<(), Status>;

    /// Appends the part of a list document that does not depend on its items. Appends nothing if the encoding
    /// needs no size. [`Encoding::list_head`] writes this part again at the beginning of its output.
    fn list_opening(&self, _: &mut Vec<u8>) {}

    /// Returns an encoder for further items of the same list, or for further events of the same watch. The
    /// first item or event must come from the original encoder. The caller concatenates the outputs of
    /// several encoders in order.
    fn fork(&self) -> Box<dyn Encoding>;

    /// Appends the start of a list document, up to its first item. Only the parts of `size` that
    /// [`Renderer::size_needed`] requires are valid.
    fn list_head(&mut self, meta: &ListMeta, size: ListSize, out: &mut Vec<u8>) -> Result<(), Status>;

    /// Appends one item, after the separator that precedes the item.
    fn list_item(&mut self, object: RenderInput<'_>, first: bool, out: &mut Vec<u8>) -> Result<(), Status>;

    /// Appends the end of a list document.
    fn list_tail(&self, out: &mut Vec<u8>);

    /// Appends one watch event with its frame. Negotiation does not choose an encoding without watches for a
    /// watch.
    fn event(&mut self, _: EventType, _: RenderInput<'_>, _: &mut Vec<u8>) -> Result<(), Status> {
        Err(Status::internal("there are no watches in this encoding"))
    }

    /// Appends the watch event of an error. The transform of the response does not apply to the Status.
    fn error_event(&self, _: &Status, _: &mut Vec<u8>) {}
}

/// Renderer of the objects of one resource for one response.
pub struct Renderer {
    resource: Arc<Resource>,
    naming: &'static Naming,
    output: Output,
    encoding: Box<dyn Encoding>,
    metrics: Arc<Metrics>,
    /// Account that is charged for the memory of the response.
    account: Account,
    /// Cache of item lengths, which all clients share; `None` for representations that need no lengths.
    lengths: Option<(Arc<Lengths>, lengths::MeasuredForm)>,
}

/// Parameters of a renderer: the resource, the negotiated representation, and the shared counters and caches.
#[derive(Clone, Copy)]
pub struct RendererParameters<'c> {
    /// The resource whose objects are rendered.
    pub resource: &'c Arc<Resource>,
    /// Naming profile in which objects are served.
    pub naming: &'static Naming,
    /// Encoding and transform that were negotiated.
    pub output: Output,
    /// Query parameters of the request. Tables use the parameter `includeObject`.
    pub query: &'c Query,
    /// Metrics that count rendered objects.
    pub metrics: &'c Arc<Metrics>,
    /// Cache of the lengths of items that were rendered before.
    pub lengths: &'c Arc<Lengths>,
    /// Account that is charged for the memory of the response.
    pub account: &'c Account,
    /// Time to which ages in tables are relative; `None` for the current time.
    pub time: Option<Timestamp>,
}

impl Renderer {
    /// Creates the renderer for the response to a request.
    ///
    /// # Errors
    /// 400 if a parameter for tables is invalid.
    pub fn new(parameters: RendererParameters<'_>) -> Result<Self, Status> {
        let RendererParameters { resource, naming, output, .. } = parameters;
        let encoding: Box<dyn Encoding> = match output.encoding {
            negotiate::Encoding::Json => Box::new(json::Json::new(&parameters)?),
            negotiate::Encoding::Yaml => Box::new(yaml::Yaml::new(&parameters)?),
            negotiate::Encoding::Cbor => Box::new(cbor::Cbor::new(&parameters)?),
            negotiate::Encoding::Protobuf => Box::new(protobuf::Protobuf::new(&parameters)),
        };
        let metrics = parameters.metrics.clone();
        let is_remembered = output.encoding == negotiate::Encoding::Protobuf && resource.is_stored_form();
        let form = match output.transform {
            Transform::PartialObject | Transform::PartialObjectList => lengths::MeasuredForm::Metadata,
            Transform::None | Transform::Table => lengths::MeasuredForm::Whole,
        };
        let lengths = is_remembered.then(|| (parameters.lengths.clone(), form));
        let account = parameters.account.clone();
        Ok(Renderer { resource: resource.clone(), naming, output, encoding, metrics, account, lengths })
    }

    /// Returns the resource whose objects are rendered.
    pub fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    /// Returns the account that is charged for the memory of the response.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Returns whether objects are sent in their stored form, which is compact JSON of the stored version.
    pub fn is_as_stored(&self) -> bool {
        self.output.encoding == negotiate::Encoding::Json
            && self.output.transform == Transform::None
            && !self.output.pretty
            && self.resource.is_stored_form()
    }

    /// Returns the media type of documents and lists.
    pub fn media_type(&self) -> &'static str {
        self.output.media_type
    }

    /// Returns the media type of watches.
    pub fn watch_media_type(&self) -> Cow<'static, str> {
        match self.output.encoding {
            negotiate::Encoding::Json | negotiate::Encoding::Yaml => self.output.media_type.into(),
            negotiate::Encoding::Cbor => negotiate::CBOR_SEQUENCE.into(),
            negotiate::Encoding::Protobuf => format!("{};stream=watch", self.output.media_type).into(),
        }
    }

    /// Returns the JSON of the object in the served version. Borrows the stored bytes if no conversion is
    /// needed.
    fn served_json<'b>(&self, stored: &'b [u8]) -> Result<Cow<'b, [u8]>, Status> {
        if self.resource.is_stored_form() {
            return Ok(Cow::Borrowed(stored));
        }
        let object = decode_stored(&self.resource, stored)?;
        let object = convert::to_served(&self.resource, object, self.naming)?;
        let mut out = Vec::with_capacity(stored.len());
        encode(&self.resource.table.message, &object, &mut out);
        Ok(Cow::Owned(out))
    }

    /// Returns the JSON text of the object if the response contains the whole object in another encoding.
    pub fn text_beside(&self, stored: &Bytes) -> Result<Option<Bytes>, Status> {
        let is_whole = self.output.transform == Transform::None;
        if !is_whole || self.output.encoding == negotiate::Encoding::Json {
            return Ok(None);
        }
        Ok(Some(match self.served_json(stored)? {
            Cow::Borrowed(_) => stored.clone(),
            Cow::Owned(text) => text.into(),
        }))
    }

    /// Renders one object as a whole document.
    pub fn document(&mut self, stored: &Bytes) -> Result<Bytes, Status> {
        let served = self.served_json(stored)?;
        let mut out = Vec::with_capacity(served.len() + 64);
        self.encoding.document(RenderInput { stored, served: &served }, &mut out)?;
        Ok(out.into())
    }

    /// Responds with an object that is not of the requested resource, such as a scale or a review. The table
    /// columns of the resource do not apply to the object, so the object is served only as a whole or as metadata.
    /// `object` contains its kind and version.
    pub fn respond_foreign(
        output: &Output,
        code: StatusCode,
        message: &Message,
        object: &Object,
    ) -> Result<Response, Status> {
        // A Status has no object metadata, so a Status is always sent whole.
        if output.transform == Transform::PartialObject && !std::ptr::eq(message, builtin::STATUS) {
            let api_version = format!("{}/{}", output.words.meta_group(), output.meta_version.as_str());
            let mut partial = Object::new();
            partial.push("kind", "PartialObjectMetadata".into());
            partial.push("apiVersion", api_version.into());
            partial.push("metadata", object.get("metadata").cloned().unwrap_or_else(|| Object::new().into()));
            let whole = Output { transform: Transform::None, ..*output };
            return Self::respond_foreign(&whole, code, builtin::PARTIAL_OBJECT_METADATA, &partial);
        }
        let body = match output.encoding {
            negotiate::Encoding::Json => json::foreign(message, object, output.pretty),
            negotiate::Encoding::Yaml => yaml::foreign(message, object)?,
            negotiate::Encoding::Cbor => cbor::foreign(message, object),
            negotiate::Encoding::Protobuf => protobuf::foreign(message, object)?,
        };
        let mut response = respond(code, output.media_type, body);
        if output.encoding != negotiate::Encoding::Json {
            response.extensions_mut().insert(answer::ResponseObject::Tree(Arc::new(object.clone())));
        }
        Ok(response)
    }

    /// Responds with a table of one object of type `message` that is not of the requested resource. If the
    /// resource is custom, the table has the columns of the resource, as in the reference server. Only JSON
    /// and YAML support tables.
    pub fn respond_foreign_table(
        resource: &Resource,
        output: &Output,
        query: &Query,
        message: &Message,
        object: &Object,
    ) -> Result<Response, Status> {
        let include = IncludeObject::parse(query.first("includeObject").unwrap_or_default())?;
        let format = if resource.table.message.custom {
            TableFormat::for_resource(&resource.table, output.words)
        } else {
            TableFormat::for_columns(builtin::columns(message), output.words).map(Arc::new)
        };
        let format = format.map_err(Status::internal)?;
        let table = json::foreign_table(output, &format, include, message, object)?;
        let body = match output.encoding {
            negotiate::Encoding::Yaml => yaml::of_json(&table)?,
            _ => table,
        };
        Ok(respond(StatusCode::OK, output.media_type, body))
    }

    /// Responds with a list of objects that are not stored. The list has the resourceVersion `revision`.
    pub fn respond_foreign_list(mut self, revision: Revision, objects: &[Bytes]) -> Result<Response, Status> {
        let renderer = &mut self;
        let mut items = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            renderer.list_item(object, at == 0, &mut items)?;
        }
        let mut out = Vec::new();
        let meta = ListMeta { revision, ..ListMeta::default() };
        let size = ListSize { items: objects.len() as u64, bytes: items.len() as u64 };
        renderer.list_head(&meta, size, &mut out)?;
        out.extend_from_slice(&items);
        renderer.list_tail(&mut out);
        Ok(respond(StatusCode::OK, renderer.media_type(), out))
    }

    /// Returns the information about the items that [`list_head`](Self::list_head) needs.
    pub fn size_needed(&self) -> SizeNeeded {
        match self.output.encoding {
            negotiate::Encoding::Json | negotiate::Encoding::Yaml => SizeNeeded::Nothing,
            negotiate::Encoding::Cbor => SizeNeeded::Items,
            negotiate::Encoding::Protobuf => SizeNeeded::Bytes,
        }
    }

    /// Returns the length of the list item for the object version at `revision`, if the length is cached.
    pub fn known_item_len(&self, revision: Revision) -> Option<u64> {
        let (lengths, form) = self.lengths.as_ref()?;
        lengths.get(*form, revision)
    }

    /// Caches the length of an item if the representation needs lengths.
    pub fn remember_item_len(&self, revision: Revision, bytes: usize) {
        if let Some((lengths, form)) = &self.lengths {
            lengths.put(*form, revision, bytes);
        }
    }

    /// Returns a renderer for further items of the same list, or for further events of the same watch. The
    /// first item or event must come from the original renderer. The caller concatenates the outputs of
    /// several renderers in order. The new renderer has its own memo of converted parts, of at most
    /// `MEMO_BYTES` of the protobuf codec.
    pub fn fork(&self) -> Renderer {
        Renderer {
            resource: self.resource.clone(),
            naming: self.naming,
            output: self.output,
            encoding: self.encoding.fork(),
            metrics: self.metrics.clone(),
            account: self.account.clone(),
            lengths: self.lengths.clone(),
        }
    }

    /// Appends the part of [`Renderer::list_head`] that does not depend on the size.
    pub fn list_opening(&self, out: &mut Vec<u8>) {
        self.encoding.list_opening(out);
    }

    /// Appends the start of a list document, up to its first item. Only the parts of `size` that
    /// [`Renderer::size_needed`] requires are used.
    pub fn list_head(&mut self, meta: &ListMeta, size: ListSize, out: &mut Vec<u8>) -> Result<(), Status> {
        self.encoding.list_head(meta, size, out)
    }

    /// Appends one item of a list, after the separator that precedes the item.
    pub fn list_item(&mut self, stored: &[u8], first: bool, out: &mut Vec<u8>) -> Result<(), Status> {
        let served = self.served_json(stored)?;
        self.encoding.list_item(RenderInput { stored, served: &served }, first, out)
    }

    /// Appends the beginning of a list item that is sent in its stored form, and returns the rest of the item
    /// as a slice of the stored bytes. Returns `None` for other representations.
    pub fn list_item_stored(&self, stored: &Bytes, first: bool, out: &mut Vec<u8>) -> Option<Bytes> {
        if !self.is_as_stored() {
            return None;
        }
        if !first {
            out.push(b',');
        }
        out.push(b'{');
        let begin = if self.resource.table.message.custom { 1 } else { prefix_len(stored) };
        Some(stored.slice(begin.min(stored.len())..))
    }

    /// Appends the end of a list document.
    pub fn list_tail(&self, out: &mut Vec<u8>) {
        self.encoding.list_tail(out);
    }

    /// Returns whether documents are indented. Lists are rendered without indentation, and indented when they
    /// are sent.
    pub fn is_pretty(&self) -> bool {
        self.output.pretty && self.output.encoding == negotiate::Encoding::Json
    }

    /// Appends one watch event.
    pub fn event(&mut self, kind: EventType, stored: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
        let served = self.served_json(stored)?;
        self.encoding.event(kind, RenderInput { stored, served: &served }, out)
    }

    /// Appends a bookmark at `revision`. `initial_end` marks the end of the initial events
    /// (docs/api/watches.md#watch-start).
    pub fn bookmark(&mut self, revision: Revision, initial_end: bool, out: &mut Vec<u8>) {
        let mut metadata = Object::new();
        metadata.push("resourceVersion", revision.to_string().into());
        if initial_end {
            // The client waits for the annotation of its own naming profile, but a request for plain JSON
            // does not contain the profile. Therefore the bookmark has one annotation for each profile.
            let mut annotations = Object::new();
            for words in self.naming.understood() {
                let domain = words.group_suffix.trim_start_matches('.');
                annotations.push(format!("{domain}/initial-events-end"), "true".into());
            }
            metadata.push("annotations", annotations.into());
        }
        let mut object = Object::new();
        object.push("kind", self.resource.table.kind.clone().into());
        object.push("apiVersion", self.resource.api_version.as_str().into());
        object.push("metadata", metadata.into());
        complete_empty(&self.resource.table.message, &mut object);
        let mut encoded = Vec::new();
        encode(&self.resource.table.message, &object, &mut encoded);
        let bookmark = RenderInput { stored: &encoded, served: &encoded };
        if let Err(error) = self.encoding.event(EventType::Bookmark, bookmark, out) {
            tracing::error!(%error, "a bookmark could not be encoded");
        }
    }

    /// Appends an ERROR event. The transform of the response does not apply to the Status.
    pub fn error_event(&self, status: &Status, out: &mut Vec<u8>) {
        self.encoding.error_event(status, out);
    }
}

/// Returns the response body for a Status, which is given as a tree.
pub fn status_body(status: &Object, output: &Output) -> Bytes {
    match output.encoding {
        negotiate::Encoding::Json => json::status(status, output.pretty),
        negotiate::Encoding::Yaml => yaml::status(status),
        negotiate::Encoding::Cbor => cbor::status(status),
        negotiate::Encoding::Protobuf => protobuf::status(status),
    }
}

/// Returns the response with a discovery document in the negotiated encoding.
///
/// # Errors
/// Fails if the document does not match its own type.
pub fn discovery(naming: &Naming, answer: discovery::Answer) -> Result<http::Response<Bytes>, Status> {
    let discovery::Answer { response, encoding, .. } = answer;
    let write: fn(&Message, &Object) -> Result<Bytes, Status> = match encoding {
        discovery::DiscoveryEncoding::Json => return Ok(response),
        discovery::DiscoveryEncoding::Yaml => yaml::foreign,
        discovery::DiscoveryEncoding::Protobuf(_) => protobuf::foreign,
    };
    let (head, body) = response.into_parts();
    if body.is_empty() {
        return Ok(http::Response::from_parts(head, body));
    }
    let tree = parse(&body).map_err(Status::internal)?;
    let kind = tree.str_at(&["kind"]);
    let no_type = || Status::internal(format!("no type for a document of kind {kind}"));
    let message = builtin::message(naming, &discovery::message_of(kind)).ok_or_else(no_type)?;
    let object = decode(message, &body).map_err(Status::internal)?.object;
    Ok(http::Response::from_parts(head, write(message, &object)?))
}

/// Returns the position of the digits of the resourceVersion. In the stored form only strings precede this
/// member, and quotes in strings are escaped, so the first match is the member itself.
fn revision_range(stored: &[u8]) -> Option<std::ops::Range<usize>> {
    const MEMBER: &[u8] = b"\"resourceVersion\":\"";
    let start = stored.windows(MEMBER.len()).position(|window| window == MEMBER)? + MEMBER.len();
    let len = stored[start..].iter().position(|&byte| byte == b'"')?;
    Some(start..start + len)
}

/// Returns an object with another resourceVersion, for the event of an object that no longer matches the
/// selector (docs/api/watches.md#watch-events).
pub fn with_revision(stored: &Bytes, revision: Revision) -> Bytes {
    let Some(range) = revision_range(stored) else { return stored.clone() };
    let mut moved = BytesMut::with_capacity(stored.len() + 20);
    moved.extend_from_slice(&stored[..range.start]);
    moved.extend_from_slice(revision.to_string().as_bytes());
    moved.extend_from_slice(&stored[range.end..]);
    moved.freeze()
}

/// Returns a 406 if a list representation was requested for a single object.
pub fn refuse_list_transform(output: &Output, resource: &Resource) -> Result<(), Status> {
    let kind = &resource.table.kind;
    match output.transform {
        Transform::PartialObjectList => Err(Status::new(
            StatusReason::NotAcceptable,
            format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{})",
                internal_type(resource, kind, "Unstructured")
            ),
        )),
        _ => Ok(()),
    }
}

/// Returns the Go type that the reference server uses for objects of `kind`. The package is the first label
/// of the group's name. `custom` is the type of all custom resources.
fn internal_type(resource: &Resource, kind: &str, custom: &str) -> String {
    if resource.table.message.custom {
        return format!("unstructured.{custom}");
    }
    let package = match resource.group.split('.').next().unwrap_or_default() {
        // The events of both groups have the same type.
        "" | "events" => "core",
        package => package,
    };
    format!("{package}.{kind}")
}

/// Returns a 406 if an object representation was requested for a list.
pub fn refuse_object_transform(output: &Output, resource: &Resource) -> Result<(), Status> {
    let kind = &resource.table.list_kind;
    match output.transform {
        Transform::PartialObject => Err(Status::new(
            StatusReason::NotAcceptable,
            format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{})",
                internal_type(resource, kind, "UnstructuredList")
            ),
        )),
        _ => Ok(()),
    }
}

/// Returns the bytes of a payload in the form in which they would be stored at `revision`. A dry run responds
/// with these bytes.
pub fn stamped(payload: &engine::Payload, revision: Revision) -> Bytes {
    let Some(at) = payload.stamp_at else { return payload.value.clone() };
    let (head, tail) = payload.value.split_at(at as usize);
    let mut stamped = BytesMut::with_capacity(payload.value.len() + 20);
    stamped.extend_from_slice(head);
    stamped.extend_from_slice(revision.to_string().as_bytes());
    stamped.extend_from_slice(tail);
    stamped.freeze()
}
