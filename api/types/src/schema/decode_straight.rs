//! Text to tree by schema with no tokenizer in between: what `decode` says of an ordinary document, in a third of the
//! time.
//!
//! ```text
//! compact JSON ──Cursor──► members found by name in the type ─► tree in schema order
//!      └── anything unusual ─► None: the reader that knows all of JSON, and has the words for what is wrong
//! ```
//!
//! Unusual are blanks between tokens, escapes in field names, control characters, unknown and repeated fields, values
//! of the wrong type, deep nesting, and the few kinds that are rare. Clients' libraries write compact text, and so does
//! this server. Both ways make the same tree, and a test holds them to it.

use std::borrow::Cow;
use std::cell::Cell;

use ::bytes::Bytes;
use serde::de::{DeserializeSeed, IgnoredAny};
use smallvec::SmallVec;

use super::builtin;
use super::decode::decode_own;
use super::decode_form::{given, zero_element, zero_field, zero_member};
use super::decode_raw::{RAW, compact, nesting};
use super::encode::encode;
use super::handle::Ref;
use super::scalars::{duration, time};
use super::table::{Field, Kind, List, Map, Message};
use values::base64_text;
use values::cancellation;
use values::json::compact::Cursor;
use values::json::{self, Key, Object, ReadMembers, Value};

/// Who wrote a text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Author {
    /// A client: scalars may be in any form.
    Client,
    /// This server, and a checksum says that it is what was written: scalars are canonical.
    Server,
}

/// Reads a document as an object of type `message`; `None` where there is something unusual about it.
pub(super) fn straight(message: &Message, text: &[u8], author: Author) -> Option<Object> {
    let mut reader = Reader { cursor: Cursor::new(text)?, author, settling: None, known: None };
    let object = reader.object(message)?;
    reader.cursor.is_at_end().then_some(object)
}

/// As [`straight`] for a client's text. What it has in the very words of `known`, an object of this server with settled
/// parts, is not read: settled parts become parts of both, and field sets are copied.
pub(super) fn known(message: &Message, text: &[u8], known: &Object) -> Option<Object> {
    let known = Some(Known { object: known, field_sets: field_sets(known) });
    let mut reader = Reader { cursor: Cursor::new(text)?, author: Author::Client, settling: None, known };
    let object = reader.object(message)?;
    reader.cursor.is_at_end().then_some(object)
}

/// The texts of the fields that the managers of an object own.
fn field_sets(object: &Object) -> SmallVec<[&str; 4]> {
    let entries = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
    let entries = entries.and_then(Value::as_array).unwrap_or_default();
    let texts = entries.iter().filter_map(|entry| entry.get("fieldsV1")).filter_map(Value::as_str);
    texts.filter(|text| text.starts_with('{')).collect()
}

/// As [`straight`] for the server's text, with the objects in it settled, but for metadata. Those of built-in types are read
/// when they are first looked at. Those that `beside` has in the same words are not read again: they become one settled
/// object, in both.
pub(super) fn settled(message: &Message, stored: &Bytes, beside: Option<&mut Object>) -> Option<Object> {
    let settling = Some(Settling { stored, beside, words: Vec::new() });
    let mut reader =
        Reader { cursor: Cursor::of_server(stored)?, author: Author::Server, settling, known: None };
    let object = reader.object(message)?;
    reader.cursor.is_at_end().then_some(object)
}

/// Takes from `old`, an object of type `message`, its settled parts that say what those of `new` say, so that both share
/// them. What was not read yet is compared by its text, and need not be read any more.
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
    /// What is not of this type, as of a release that knew more, is taken as it stands.
    fn read_members(&self, text: &Bytes) -> Vec<(Key, Value)> {
        let as_it_stands = || match json::parse(text) {
            Ok(Value::Object(object)) => object,
            _ => Object::new(),
        };
        decode_own(self, text).unwrap_or_else(|_| as_it_stands()).into_members()
    }
}

/// The object of these values, which stand beside the ascending positions of their fields and are taken from there.
fn complete(message: &Message, found: &mut SmallVec<[(usize, Given); 16]>) -> Object {
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
    cursor: Cursor<'t>,
    author: Author,
    settling: Option<Settling<'t>>,
    known: Option<Known<'t>>,
}

/// What a client may have been given and gives back.
struct Known<'t> {
    object: &'t Object,
    field_sets: SmallVec<[&'t str; 4]>,
}

/// What settling the parts of an object takes.
struct Settling<'t> {
    /// The whole text.
    stored: &'t Bytes,
    /// An object that is to take its place.
    beside: Option<&'t mut Object>,
    /// Room to write parts of it.
    words: Vec<u8>,
}

impl Settling<'_> {
    /// The part of `beside` called like this one, if `rest` begins with what it is written as; settled then, and how
    /// long its text is.
    fn same(&mut self, field: &Field, at: usize) -> Option<(Object, usize)> {
        let Kind::Message(message) = &field.kind else { return None };
        let part = self.beside.as_mut()?.get_mut(&field.name)?.as_object_mut()?;
        self.words.clear();
        encode(message, part, &mut self.words);
        // An object ends where its bracket closes, so what begins with all of it is it.
        self.stored.get(at..)?.starts_with(&self.words).then_some(())?;
        part.settle(self.stored.slice(at..at + self.words.len()));
        Some((part.clone(), self.words.len()))
    }
}

/// A value as decoding means it: `null`, and scalars whose text means "not set", are none.
type Given = Option<Value>;

impl<'t> Reader<'t> {
    fn object(&mut self, message: &Message) -> Option<Object> {
        let mut found: SmallVec<[(usize, Given); 16]> = SmallVec::new();
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
            let value = given(field, value);
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

    /// The known part at a field of the root, if the text goes on with the words that it is written in.
    fn known_part(&mut self, field: &Field) -> Option<Object> {
        let part = self.known.as_ref()?.object.get(&field.name)?.as_object()?;
        let words = part.settled_text()?;
        // An object ends where its bracket closes, so what begins with all of it is it.
        self.cursor.rest().starts_with(words).then_some(())?;
        self.cursor.skip(words.len());
        Some(part.clone())
    }

    /// The whole value of a field of the root, settled.
    fn part(&mut self, field: &Field) -> Option<Given> {
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

    fn list(&mut self, list: &List) -> Option<Given> {
        let mut items = Vec::new();
        let mut more = self.cursor.enter(b'[', b']')?;
        while more {
            items.push(self.value(&list.item.kind)?.unwrap_or_else(|| zero_element(&list.item)));
            more = self.cursor.more(b']')?;
        }
        let is_managed_fields =
            |kind: &Kind| matches!(kind, Kind::Message(message) if message.is(builtin::MANAGED_FIELDS_ENTRY));
        if items.is_empty() && is_managed_fields(&list.item.kind) {
            return None; // means something of its own
        }
        Some(Some(Value::Array(items)))
    }

    fn map(&mut self, map: &Map) -> Option<Given> {
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
            members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
            if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return None;
            }
        }
        Some(Some(Value::Object(members.into_iter().collect())))
    }

    /// One value of a kind.
    fn value(&mut self, kind: &Kind) -> Option<Given> {
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

    /// A scalar that is kept as a string in canonical form.
    fn formed(&mut self, kind: &Kind) -> Option<Given> {
        let text: Cow<'_, str> = if matches!(kind, Kind::Quantity) && self.cursor.peek() != b'"' {
            self.cursor.integer()?.to_string().into()
        } else {
            self.cursor.string()?
        };
        if self.author == Author::Server {
            return Some(Some(Value::String(text.into_owned())));
        }
        let kept = match kind {
            Kind::Bytes => base64_text::canonical(&text).ok().map(Some),
            Kind::Time => time::canonical_seconds(&text).ok(),
            Kind::MicroTime => time::canonical_micros(&text).ok(),
            Kind::Duration => duration::canonical(&text).ok().map(Some),
            Kind::Quantity => quantity::canonical(&text).ok().map(Some),
            _ => None,
        };
        Some(kept?.map(|kept| Value::String(kept.into_owned())))
    }

    /// The text of a field set.
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

    /// A value without a schema.
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
