//! Fast decoding of text to a tree by schema, without a tokenizer. For an ordinary document, this module
//! produces the same result as `decode` in a third of the time.
//!
//! ```text
//! compact JSON ──Cursor──► members found by name in the type ─► tree in schema order
//!      └── anything unusual ─► None: the caller uses the general decoder, which reports errors
//! ```
//!
//! A document is unusual if it has blanks between tokens, escapes in field names, control characters, unknown
//! or repeated fields, values of the wrong type, deep nesting, or one of a few rare kinds. Client libraries
//! write compact text, and so does this server. A test verifies that both decoders produce the same tree.

use std::borrow::Cow;
use std::cell::Cell;

use ::bytes::Bytes;
use serde::de::{DeserializeSeed, IgnoredAny};
use smallvec::SmallVec;

use super::builtin;
use super::decode::decode_own;
use super::decode_form::{present_value, zero_element, zero_field, zero_member};
use super::decode_raw::{compact, nesting};
use super::encode::encode;
use super::handle::Ref;
use super::raw_tree::RAW;
use super::scalars::{duration, time};
use super::table::{Field, Kind, List, Map, Message};
use values::json::compact::JsonCursor;
use values::json::{self, Key, Object, ReadMembers, Value};
use values::{base64_text, cancellation};

/// Author of a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Author {
    /// The text comes from a client, so its scalars may have any accepted form.
    Client,
    /// This server wrote the text, and its checksum is verified, so its scalars are canonical.
    Server,
}

/// Decodes a document as an object of type `message`; returns `None` if the document is unusual.
pub(super) fn straight(message: &Message, text: &[u8], author: Author) -> Option<Object> {
    let mut reader = Reader { cursor: JsonCursor::new(text)?, author, settling: None, known: None };
    let object = reader.object(message)?;
    reader.cursor.is_at_end().then_some(object)
}

/// Decodes a client's text like [`straight`]. `known` is an object of this server with settled parts. Parts
/// that have the same bytes in `known` are not decoded: both objects share settled parts, and field sets are
/// copied.
pub(super) fn straight_with_known(message: &Message, text: &[u8], known: &Object) -> Option<Object> {
    let known = Some(Known { object: known, field_sets: field_sets(known) });
    let mut reader = Reader { cursor: JsonCursor::new(text)?, author: Author::Client, settling: None, known };
    let object = reader.object(message)?;
    reader.cursor.is_at_end().then_some(object)
}

/// Returns the texts of the field sets in an object's managed fields.
fn field_sets(object: &Object) -> SmallVec<[&str; 4]> {
    let entries = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    let entries = entries.and_then(Value::as_array).unwrap_or_default();
    let texts = entries.iter().filter_map(|entry| entry.get("fieldsV1")).filter_map(Value::as_str);
    texts.filter(|text| text.starts_with('{')).collect()
}

/// Decodes the server's text like [`straight`] and settles the objects in the text, except metadata. Objects of
/// built-in types are decoded at the first access. An object with the same bytes in `beside` is not decoded again: both
/// trees share one settled object.
pub(super) fn settled(message: &Message, stored: &Bytes, beside: Option<&mut Object>) -> Option<Object> {
    let settling = Some(Settling { stored, beside, words: Vec::new() });
    let mut reader =
        Reader { cursor: JsonCursor::of_server(stored)?, author: Author::Server, settling, known: None };
    let object = reader.object(message)?;
    reader.cursor.is_at_end().then_some(object)
}

/// Replaces parts of `new` by equal settled parts of `old`, so that both objects share these parts. Both objects are of
/// type `message`. A part of `old` that was not decoded yet is compared by its text. If the texts are equal, this part
/// gets its members from `new`.
pub(super) fn share(message: &Message, new: &mut Object, old: &Object) {
    let mut words = Vec::new();
    for (name, value) in new.iter_mut() {
        let (Value::Object(own), Some(Value::Object(part))) = (value, old.get(name)) else { continue };
        if !part.is_settled() || own.is_one_with(part) {
            continue;
        }
        let kind = message.position(name.as_bytes()).map(|at| &message.fields[at].kind);
        let is_same = match (part.unread_text(), kind) {
            (Some(text), Some(Kind::Message(of))) => {
                words.clear();
                encode(of, own, &mut words);
                words == *text
            }
            _ => own.has_same_members(part),
        };
        if is_same {
            part.fill(std::mem::take(own).into_members());
            *own = part.clone();
        }
    }
}

impl ReadMembers for Message {
    /// Reads a text that does not match this type, for example a text from a newer release, without a schema.
    fn read_members(&self, text: &Bytes) -> Vec<(Key, Value)> {
        let as_it_stands = || match json::parse(text) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        };
        decode_own(self, text).unwrap_or_else(|_| as_it_stands()).into_members()
    }
}

/// Builds the object from values with the ascending positions of their fields. The values are moved out of
/// `found`.
fn complete(message: &Message, found: &mut SmallVec<[(usize, DecodedValue); 16]>) -> Object {
    let (fields, always) = (&*message.fields, message.always_written());
    let mut members: Vec<(Key, Value)> = Vec::with_capacity(found.len() + always.len());
    let mut always = always.iter().copied().peekable();
    let zero = |at: usize| {
        let field = &fields[at];
        (field.name.clone(), zero_field(field))
    };
    for (at, value) in found.drain(..) {
        let Some(value) = value else { continue };
        while let Some(before) = always.next_if(|always| *always < at) {
            members.push(zero(before));
        }
        always.next_if_eq(&at);
        members.push((fields[at].name.clone(), value));
    }
    members.extend(always.map(zero));
    members.into_iter().collect()
}

struct Reader<'t> {
    cursor: JsonCursor<'t>,
    author: Author,
    settling: Option<Settling<'t>>,
    known: Option<Known<'t>>,
}

/// An object that the client may have read before it sends the changed text.
struct Known<'t> {
    object: &'t Object,
    field_sets: SmallVec<[&'t str; 4]>,
}

/// State for settling the parts of an object.
struct Settling<'t> {
    /// The whole stored text.
    stored: &'t Bytes,
    /// The object that will replace the decoded object in the store.
    beside: Option<&'t mut Object>,
    /// Buffer for the encoding of a part.
    words: Vec<u8>,
}

impl Settling<'_> {
    /// Settles the part of `beside` at `field` if the stored text at `at` equals the encoding of the part.
    /// Returns the part and the length of its text.
    fn same(&mut self, field: &Field, at: usize) -> Option<(Object, usize)> {
        let Kind::Message(message) = &field.kind else { return None };
        let part = self.beside.as_mut()?.get_mut(&field.name)?.as_object_mut()?;
        self.words.clear();
        encode(message, part, &mut self.words);
        // An object ends at its closing bracket, so a text that starts with the whole encoding contains
        // exactly this object.
        self.stored.get(at..)?.starts_with(&self.words).then_some(())?;
        part.settle(self.stored.slice(at..at + self.words.len()));
        Some((part.clone(), self.words.len()))
    }
}

/// A decoded value; `None` for `null` and for scalars whose text means "not set".
type DecodedValue = Option<Value>;

impl<'t> Reader<'t> {
    fn object(&mut self, message: &Message) -> Option<Object> {
        let mut found: SmallVec<[(usize, DecodedValue); 16]> = SmallVec::new();
        let mut ascending = true;
        let mut more = self.cursor.enter(b'{', b'}')?;
        while more {
            let at = message.position(self.cursor.field_name()?)?;
            let field = &message.fields[at];
            let value = if self.cursor.depth() > 1 {
                self.value(&field.kind)?
            } else if let Some(part) = self.known_part(field) {
                Some(Value::Object(part))
            } else if self.settling.is_some() {
                self.part(field)?
            } else {
                self.value(&field.kind)?
            };
            let value = present_value(field, value);
            ascending &= found.last().is_none_or(|(last, _)| *last < at);
            found.push((at, value));
            more = self.cursor.more(b'}')?;
        }
        if !ascending {
            found.sort_unstable_by_key(|(at, _)| *at);
            if found.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
        }
        Some(complete(message, &mut found))
    }

    /// Returns the known object at a field of the root, if the text at the cursor begins with the encoding of
    /// this object.
    fn known_part(&mut self, field: &Field) -> Option<Object> {
        let part = self.known.as_ref()?.object.get(&field.name)?.as_object()?;
        let words = part.settled_text()?;
        // An object ends at its closing bracket, so a text that starts with the whole encoding contains
        // exactly this object.
        self.cursor.rest().starts_with(words).then_some(())?;
        self.cursor.skip(words.len());
        Some(part.clone())
    }

    /// Reads the value of a field of the root object, and keeps the text of a nested object so that the
    /// object can be shared.
    fn part(&mut self, field: &Field) -> Option<DecodedValue> {
        cancellation::step();
        let start = self.cursor.position();
        let is_part = matches!(field.kind, Kind::Message(_)) && field.name != "metadata";
        let settling = self.settling.as_mut().filter(|_| is_part);
        if let Some((part, len)) = settling.and_then(|settling| settling.same(field, start)) {
            self.cursor.skip(len);
            return Some(Some(Value::Object(part)));
        }
        if let (true, Kind::Message(Ref::Static(of)), Some(settling)) = (is_part, &field.kind, &self.settling)
            && self.cursor.peek() == b'{'
        {
            self.cursor.raw()?;
            let text = settling.stored.slice(start..self.cursor.position());
            return Some(Some(Value::Object(Object::unread(text, *of))));
        }
        let mut value = self.value(&field.kind)?;
        if let (true, Some(Value::Object(part)), Some(settling)) = (is_part, &mut value, &self.settling) {
            part.settle(settling.stored.slice(start..self.cursor.position()));
        }
        Some(value)
    }

    fn list(&mut self, list: &List) -> Option<DecodedValue> {
        let mut items = Vec::new();
        let mut more = self.cursor.enter(b'[', b']')?;
        while more {
            items.push(self.value(&list.item.kind)?.unwrap_or_else(|| zero_element(&list.item)));
            more = self.cursor.more(b']')?;
        }
        let is_managed_fields =
            |kind: &Kind| matches!(kind, Kind::Message(message) if message.is(builtin::MANAGED_FIELDS_ENTRY));
        if items.is_empty() && is_managed_fields(&list.item.kind) {
            return None; // an empty list drops all ownership; the general decoder handles it
        }
        Some(Some(Value::Array(items)))
    }

    fn map(&mut self, map: &Map) -> Option<DecodedValue> {
        let mut members: Vec<(Key, Value)> = Vec::new();
        let mut ascending = true;
        let mut more = self.cursor.enter(b'{', b'}')?;
        while more {
            let name = self.cursor.name()?;
            if let Some(value) = self.value(&map.value.kind)?.or_else(|| zero_member(&map.value)) {
                ascending &= members.last().is_none_or(|(last, _)| **last < *name);
                members.push((Key::Owned(name.into_owned()), value));
            }
            more = self.cursor.more(b'}')?;
        }
        if !ascending {
            json::sort_members(&mut members);
            if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
        }
        Some(Some(Value::Object(members.into_iter().collect())))
    }

    /// Reads one value of a kind.
    fn value(&mut self, kind: &Kind) -> Option<DecodedValue> {
        cancellation::step();
        if self.cursor.word("null") {
            return Some(None);
        }
        let value = match kind {
            Kind::Message(message) => Value::Object(self.object(message)?),
            Kind::List(list) => return self.list(list),
            Kind::Map(map) => return self.map(map),
            Kind::String => Value::String(self.cursor.string()?.into_owned()),
            Kind::Bool if self.cursor.word("true") => Value::Bool(true),
            Kind::Bool if self.cursor.word("false") => Value::Bool(false),
            Kind::Int64 => Value::Int(self.cursor.integer()?),
            Kind::Int32 => Value::Int(i32::try_from(self.cursor.integer()?).ok()?.into()),
            Kind::IntOrString if self.cursor.peek() == b'"' => {
                Value::String(self.cursor.string()?.into_owned())
            }
            Kind::IntOrString => Value::Int(i32::try_from(self.cursor.integer()?).ok()?.into()),
            Kind::Bytes | Kind::Time | Kind::MicroTime | Kind::Duration | Kind::Quantity => {
                return self.formed(kind);
            }
            Kind::FieldsV1 => Value::String(self.field_set()?),
            Kind::Json | Kind::RawExtension => self.anything()?,
            Kind::Bool | Kind::Double => return None,
            Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_) => return None,
        };
        Some(Some(value))
    }

    /// Reads a scalar that is stored as a string in canonical form.
    fn formed(&mut self, kind: &Kind) -> Option<DecodedValue> {
        let text: Cow<'_, str> = if matches!(kind, Kind::Quantity) && self.cursor.peek() != b'"' {
            self.cursor.integer()?.to_string().into()
        } else {
            self.cursor.string()?
        };
        if self.author == Author::Server {
            return Some(Some(Value::String(text.into_owned())));
        }
        let canonical = match kind {
            Kind::Bytes => base64_text::canonical(&text).ok().map(Some),
            Kind::Time => time::canonical_seconds(&text).ok(),
            Kind::MicroTime => time::canonical_micros(&text).ok(),
            Kind::Duration => duration::canonical(&text).ok().map(Some),
            Kind::Quantity => quantity::canonical(&text).ok().map(Some),
            _ => None,
        };
        Some(canonical?.map(|canonical| Value::String(canonical.into_owned())))
    }

    /// Reads a field set as text.
    fn field_set(&mut self) -> Option<String> {
        let rest = self.cursor.rest();
        let known = self.known.iter().flat_map(|known| &known.field_sets);
        if let Some(text) = known.copied().find(|text| rest.starts_with(text.as_bytes())) {
            self.cursor.skip(text.len());
            return Some(text.to_owned());
        }
        let text = self.cursor.raw().filter(|text| text.starts_with('{'))?;
        if self.author == Author::Server {
            return Some(text.to_owned());
        }
        serde_json::from_str::<IgnoredAny>(text).ok()?;
        compact(text).ok()
    }

    /// Reads a value without a schema.
    fn anything(&mut self) -> Option<Value> {
        let text = self.cursor.raw()?;
        if nesting(text.as_bytes()) > self.cursor.levels_left() {
            return None;
        }
        let mut source = serde_json::Deserializer::from_str(text);
        let repeated = Cell::new(false);
        let value = RAW.noting_repeated(&repeated).deserialize(&mut source).ok()?;
        source.end().ok()?;
        (!repeated.get()).then_some(value)
    }
}

#[cfg(test)]
#[path = "decode_straight_test.rs"]
mod tests;
