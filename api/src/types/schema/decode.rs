//! Text to tree by schema, in one pass: the write path's first step (ARCHITECTURE.md).
//!
//! ```text
//! JSON text ─┬─ decode_straight ─► the same object, where nothing is unusual (nearly always)
//!            └─ serde_json ─► Single / Many / Members visitors, driven by Field::kind and Field::shape
//!                             ├─► object: known fields in schema order, scalars canonical
//!                             └─► strict: unknown and duplicate fields, in document order
//! ```
//!
//! The tree that comes out is canonical: it has exactly the members that the stored form is written with. Fields
//! left out when zero are absent when zero; fields always written are there (`"status":{}`, `"rules":null`). So
//! two equal objects have equal trees, and everything that follows (defaults, patches, field sets) sees what
//! clients see. `conform` drives the same visitors over a tree. Unlike the reference server, decoding stops
//! at the first type error, without looking for a syntax error behind it.
//!
//! This module knows no kinds: the caller checks `kind`, `apiVersion` and the namespace.

use std::fmt;

use ::bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::builtin;
use super::decode_form::{given, is_always_written, zero_element, zero_field, zero_member, zero_object};
use super::decode_inner::read_inner;
use super::decode_raw::{RAW, field_set_text};
use super::decode_report::{At, Path, Report, Step, message_name, mismatch, type_name};
use super::decode_straight::{self, Author, settled, straight};
use super::scalars::{bytes, duration, quantity, time};
use super::table::{Element, Field, Kind, List, Map, Message, Unknown};
use crate::values::json::{Key, Object, ParseError, Value};

/// An object read by schema.
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// The object in canonical form.
    pub object: Object,
    /// What strict decoding objects to (docs/api/encodings.md#strict-decoding): `unknown field "spec.foo"`,
    /// `duplicate field "a.b[0].c"`; each at most once, in document order, at most 100.
    pub strict: Vec<String>,
}

/// Why a text or tree is not an object of the wanted type.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The sentence as the reference server words it, for the wrapper of docs/api/writes.md#request-body.
    pub message: String,
    /// Where, with indices: `spec.containers[0].ports`; empty for syntax errors and the top level.
    pub path: String,
}

/// Reads one JSON document as an object of type `message`.
///
/// Unknown fields are dropped and of duplicate ones the last stays; both are reported in `strict`. Costs one
/// pass over the text; nesting beyond [`json::DEPTH_MAX`](crate::values::json::DEPTH_MAX) is an error.
///
/// # Errors
/// Text that is no JSON, and values of the wrong type. Source: docs/api/writes.md#request-body,
/// docs/api/encodings.md#strict-decoding.
pub fn decode(message: &Message, text: &[u8]) -> Result<Decoded, DecodeError> {
    match straight(message, text, Author::Client) {
        Some(object) => Ok(Decoded { object, strict: Vec::new() }),
        None => decode_any(message, text),
    }
}

/// As [`decode`] for a text that is probably a changed copy of `known`, an object of this server with settled parts
/// ([`decode_settled`]). Settled parts that the text has in the same words are not read: they are parts of both objects.
///
/// # Errors
/// As [`decode`].
pub fn decode_known(message: &Message, text: &[u8], known: &Object) -> Result<Decoded, DecodeError> {
    match decode_straight::known(message, text, known) {
        Some(object) => Ok(Decoded { object, strict: Vec::new() }),
        None => decode_any(message, text),
    }
}

/// Reads text that this server wrote in canonical form, and whose checksum was compared.
///
/// # Errors
/// As [`decode`], for text that is something else.
pub fn decode_own(message: &Message, text: &[u8]) -> Result<Object, DecodeError> {
    match straight(message, text, Author::Server) {
        Some(object) => Ok(object),
        None => decode_any(message, text).map(|decoded| decoded.object),
    }
}

/// As [`decode_own`], with the parts of the object settled (see [`Object::settle`]), but for its metadata.
///
/// # Errors
/// As [`decode_own`].
pub fn decode_settled(message: &Message, text: &Bytes) -> Result<Object, DecodeError> {
    settled(message, text, None).map_or_else(|| decode_own(message, text), Ok)
}

/// As [`decode_settled`]. Parts that `beside`, which is to take its place, has in the same words are not read: they are
/// one in both objects then.
///
/// # Errors
/// As [`decode_own`].
pub fn decode_beside(message: &Message, text: &Bytes, beside: &mut Object) -> Result<Object, DecodeError> {
    settled(message, text, Some(beside)).map_or_else(|| decode_own(message, text), Ok)
}

/// [`decode`] for text that was accepted under another schema: kind, version and metadata of objects inside the object are
/// left out where they are not what they are to be now.
///
/// # Errors
/// As [`decode`].
pub fn decode_record(message: &Message, text: &[u8]) -> Result<Decoded, DecodeError> {
    decode_reporting(message, text, Report::of_record())
}

/// [`decode`] for documents of any form.
pub(super) fn decode_any(message: &Message, text: &[u8]) -> Result<Decoded, DecodeError> {
    decode_reporting(message, text, Report::of_text())
}

fn decode_reporting(message: &Message, text: &[u8], report: Report) -> Result<Decoded, DecodeError> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let read = read_root(&report, message, &mut source).and_then(|object| source.end().map(|()| object));
    report.finish(message, read, |error| ParseError::of(text, &error).to_string())
}

pub(super) fn read_root<'de, D: Deserializer<'de>>(
    report: &Report,
    message: &Message,
    source: D,
) -> Result<Object, D::Error> {
    match source.deserialize_any(Root { report, message })? {
        Some(object) => Ok(object),
        None => Ok(zero_object(message)), // the document `null`
    }
}

/// Reads one value by itself; `None` for what counts as none.
pub(super) fn read_value<'de, D: Deserializer<'de>>(
    report: &Report,
    kind: &Kind,
    source: D,
) -> Result<Option<Value>, D::Error> {
    Single { report, kind, path: None, is_free: false }.deserialize(source)
}

/// Reads one element of a list by itself.
pub(super) fn read_item<'de, D: Deserializer<'de>>(
    report: &Report,
    item: &Element,
    source: D,
) -> Result<Value, D::Error> {
    Ok(read_value(report, &item.kind, source)?.unwrap_or_else(|| zero_element(item)))
}

/// Reads a whole document; `None` for `null`.
struct Root<'c> {
    report: &'c Report,
    message: &'c Message,
}

/// The visits that are wrong for whole documents.
macro_rules! refuse {
    ($($visit:ident($found:ty) = $name:literal;)*) => {$(
        fn $visit<E: serde::de::Error>(self, _: $found) -> Result<Option<Object>, E> {
            Err(mismatch(self.report, None, $name, &message_name(self.message)))
        }
    )*};
}

impl<'de> Visitor<'de> for Root<'_> {
    type Value = Option<Object>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&message_name(self.message))
    }

    refuse! {
        visit_bool(bool) = "bool";
        visit_i64(i64) = "number";
        visit_u64(u64) = "number";
        visit_f64(f64) = "number";
        visit_str(&str) = "string";
    }

    fn visit_unit<E>(self) -> Result<Option<Object>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Option<Object>, A::Error> {
        Err(mismatch(self.report, None, "array", &message_name(self.message)))
    }

    fn visit_map<A: MapAccess<'de>>(self, source: A) -> Result<Option<Object>, A::Error> {
        read_message(self.report, self.message, None, source).map(Some)
    }
}

/// Reads one value of a kind; `None` for `null` and for scalars whose text means "not set".
#[derive(Clone, Copy)]
pub(super) struct Single<'c> {
    pub(super) report: &'c Report,
    pub(super) kind: &'c Kind,
    pub(super) path: At<'c>,
    /// A value of a wrong type is kept as it is: validation has the words for it.
    pub(super) is_free: bool,
}

impl<'de> DeserializeSeed<'de> for Single<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Option<Value>, D::Error> {
        if matches!(self.kind, Kind::FieldsV1) {
            return field_set_text(self.report, self.path, source);
        }
        source.deserialize_any(self)
    }
}

impl Single<'_> {
    fn wrong<E: serde::de::Error>(self, found: &str) -> E {
        mismatch(self.report, self.path, found, &type_name(self.kind))
    }

    fn float<E: serde::de::Error>(self, number: f64) -> Result<Option<Value>, E> {
        match self.kind {
            Kind::Double | Kind::Json | Kind::RawExtension => Ok(Some(plain_number(number))),
            Kind::Quantity => self.text(&number.to_string()),
            _ if self.is_free => Ok(Some(plain_number(number))),
            Kind::Int32 | Kind::Int64 | Kind::IntOrString => Err(self.wrong(&format!("number {number}"))),
            _ => Err(self.wrong("number")),
        }
    }

    /// A scalar given as text that the visitor does not own.
    fn text<E: serde::de::Error>(self, text: &str) -> Result<Option<Value>, E> {
        let scalar = match self.kind {
            Kind::String | Kind::Json | Kind::RawExtension | Kind::IntOrString => {
                return Ok(Some(Value::String(text.to_owned())));
            }
            _ if self.is_free => return Ok(Some(Value::String(text.to_owned()))),
            Kind::Bytes => bytes::canonical(text).map(Some),
            Kind::Time => time::canonical_seconds(text),
            Kind::MicroTime => time::canonical_micros(text),
            Kind::Duration => duration::canonical(text).map(Some),
            Kind::Quantity => quantity::canonical(text).map(Some).map_err(str::to_owned),
            _ => return Err(self.wrong("string")),
        };
        match scalar {
            Ok(kept) => Ok(kept.map(|kept| Value::String(kept.into_owned()))),
            Err(sentence) => Err(self.report.fail(self.path, sentence)),
        }
    }
}

/// Whole doubles become integers, as reading the text they are written as makes them.
pub(crate) fn plain_number(number: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if number.fract() != 0.0 || number.abs() >= 1e19 || (number == 0.0 && number.is_sign_negative()) {
        return Value::Float(number);
    }
    if number.abs() < EXACT {
        return Value::Int(number as i64);
    }
    // Larger ones are written in their shortest digits, filled up with zeros, which may be another integer.
    number.to_string().parse().map_or(Value::Float(number), Value::Int)
}

impl<'de> Visitor<'de> for Single<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&type_name(self.kind))
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Option<Value>, E> {
        match self.kind {
            Kind::Bool | Kind::SchemaOrBool(_) | Kind::Json | Kind::RawExtension => {
                Ok(Some(Value::Bool(value)))
            }
            _ if self.is_free => Ok(Some(Value::Bool(value))),
            _ => Err(self.wrong("bool")),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Option<Value>, E> {
        match self.kind {
            _ if self.is_free => Ok(Some(Value::Int(value))),
            Kind::Int32 | Kind::IntOrString if i32::try_from(value).is_err() => {
                Err(self.wrong(&format!("number {value}")))
            }
            Kind::Int32 | Kind::Int64 | Kind::IntOrString | Kind::Double => Ok(Some(Value::Int(value))),
            Kind::Json | Kind::RawExtension => Ok(Some(Value::Int(value))),
            Kind::Quantity => self.text(&value.to_string()),
            _ => Err(self.wrong("number")),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Option<Value>, E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.float(value as f64),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Option<Value>, E> {
        self.float(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Option<Value>, E> {
        self.text(value)
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Option<Value>, E> {
        if matches!(self.kind, Kind::String) { Ok(Some(Value::String(value))) } else { self.text(&value) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, source: A) -> Result<Option<Value>, A::Error> {
        match self.kind {
            Kind::List(list) => read_list(self, list, source).map(Some),
            Kind::SchemaOrArray(message) => {
                let item = &Kind::Message(message.clone());
                read_items(Single { kind: item, ..self }, source, || Value::Object(zero_object(message)))
                    .map(|items| Some(Value::Array(items)))
            }
            Kind::SchemaOrStrings(_) => {
                read_items(Single { kind: &Kind::String, ..self }, source, || Value::String(String::new()))
                    .map(|items| Some(Value::Array(items)))
            }
            Kind::Json | Kind::RawExtension => RAW.visit_seq(source).map(Some),
            _ if self.is_free => RAW.visit_seq(source).map(Some),
            _ => Err(self.wrong("array")),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, source: A) -> Result<Option<Value>, A::Error> {
        match self.kind {
            Kind::Message(message)
            | Kind::SchemaOrArray(message)
            | Kind::SchemaOrBool(message)
            | Kind::SchemaOrStrings(message) => read_message(self.report, message, self.path, source)
                .map(|object| Some(Value::Object(object))),
            Kind::Map(map) => read_map(self, map, source).map(Some),
            Kind::Json | Kind::RawExtension => RAW.visit_map(source).map(Some),
            _ if self.is_free => RAW.visit_map(source).map(Some),
            _ => Err(self.wrong("object")),
        }
    }
}

fn read_message<'de, A: MapAccess<'de>>(
    report: &Report,
    message: &Message,
    parent: At<'_>,
    mut source: A,
) -> Result<Object, A::Error> {
    // Values beside the position of their field; documents mostly have few fields, and mostly in some order.
    let mut given: SmallVec<[(usize, Option<Value>); 12]> = SmallVec::new();
    let mut seen: SmallVec<[u64; 2]> = SmallVec::from_elem(0, message.fields.len().div_ceil(64));
    let mut ascending = true;
    let mut preserved: Vec<(Key, Value)> = Vec::new();
    while let Some(found) = source.next_key_seed(FieldName { message })? {
        let at = match found {
            Ok(at) => at,
            Err(name) => {
                match message.unknown {
                    Unknown::Prune => {
                        report.note("unknown", parent, &name);
                        source.next_value::<IgnoredAny>()?;
                    }
                    Unknown::Preserve => preserved.push((Key::Owned(name), source.next_value_seed(RAW)?)),
                    Unknown::Refuse => {
                        return Err(report.fail(
                            parent,
                            format!("unknown field {}", crate::values::field::go_quote(&name)),
                        ));
                    }
                }
                continue;
            }
        };
        let field = &message.fields[at];
        let path = Path { parent, step: Step::Field(message, field) };
        let (word, bit) = (at / 64, 1u64 << (at % 64));
        let repeated = seen[word] & bit != 0;
        if repeated {
            report.note("duplicate", parent, &field.name);
        }
        seen[word] |= bit;
        let is_free = message.custom && is_described_by_schema(field);
        let single = Single { report, kind: &field.kind, path: Some(&path), is_free };
        let value = if message.embedded && matches!(&*field.name, "kind" | "apiVersion" | "metadata") {
            read_inner(&path, single, &mut source)?
        } else {
            source.next_value_seed(single)?
        };
        let value = self::given(field, value);
        if repeated && let Some(slot) = given.iter_mut().find(|(position, _)| *position == at) {
            slot.1 = value;
            continue;
        }
        ascending &= given.last().is_none_or(|(last, _)| *last < at);
        given.push((at, value));
    }
    if !ascending {
        given.sort_unstable_by_key(|(at, _)| *at);
    }
    let mut members = Vec::with_capacity(given.len() + 2);
    let mut given = given.into_iter().peekable();
    for (at, field) in message.fields.iter().enumerate() {
        let value = given.next_if(|(position, _)| *position == at).and_then(|(_, value)| value);
        match value {
            Some(value) => members.push((field.name.clone(), value)),
            None if is_always_written(field) => members.push((field.name.clone(), zero_field(field))),
            None => {}
        }
    }
    members.extend(sorted(preserved, |name| report.note("duplicate", parent, name)));
    Ok(members.into_iter().collect())
}

/// Whether a field of a type made at run time is not one of those that every object has.
fn is_described_by_schema(field: &Field) -> bool {
    field.pointer && !matches!(&field.kind, Kind::Message(message) if !message.custom)
}

/// Position of the field that a member name names, or the name if there is none.
struct FieldName<'c> {
    message: &'c Message,
}

impl<'de> DeserializeSeed<'de> for FieldName<'_> {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName<'_> {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.message.position(name.as_bytes()).ok_or_else(|| name.to_owned()))
    }
}

fn read_list<'de, A: SeqAccess<'de>>(whole: Single<'_>, list: &List, source: A) -> Result<Value, A::Error> {
    let mut items =
        read_items(Single { kind: &list.item.kind, ..whole }, source, || zero_element(&list.item))?;
    if items.is_empty() && is_managed_fields(&list.item.kind) {
        // An empty list means what a list of one empty entry means: forget who owns what. Other empty lists of built-in
        // types are the same as none and leave no trace.
        items.push(Value::Object(Object::new()));
    }
    Ok(Value::Array(items))
}

/// Reads the elements of a list, each of the kind of `item`, which stands where the list does; `null` is what `absent`
/// makes.
fn read_items<'de, A: SeqAccess<'de>>(
    item: Single<'_>,
    mut source: A,
    absent: impl Fn() -> Value,
) -> Result<Vec<Value>, A::Error> {
    let mut items = Vec::new();
    loop {
        let path = Path { parent: item.path, step: Step::Index(items.len()) };
        match source.next_element_seed(Single { path: Some(&path), ..item })? {
            Some(value) => items.push(value.unwrap_or_else(&absent)),
            None => return Ok(items),
        }
    }
}

fn is_managed_fields(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(message) if message.is(builtin::MANAGED_FIELDS_ENTRY))
}

fn read_map<'de, A: MapAccess<'de>>(whole: Single<'_>, map: &Map, mut source: A) -> Result<Value, A::Error> {
    let Single { report, path: parent, .. } = whole;
    let mut members: Vec<(Key, Value)> = Vec::new();
    let mut ascending = true;
    while let Some(name) = source.next_key::<String>()? {
        let value = {
            let path = Path { parent, step: Step::Key(&name) };
            let value = Single { kind: &map.value.kind, path: Some(&path), ..whole };
            source.next_value_seed(value)?.or_else(|| zero_member(&map.value))
        };
        let Some(value) = value else { continue };
        ascending &= members.last().is_none_or(|(last, _)| last.as_ref() < name.as_str());
        members.push((Key::Owned(name), value));
    }
    if !ascending {
        members = sorted(members, |name| report.note("duplicate", parent, name));
    }
    Ok(Value::Object(members.into_iter().collect()))
}

/// Members sorted by name, the last of equal ones kept; the others' names are told in document order.
fn sorted(members: Vec<(Key, Value)>, mut duplicate: impl FnMut(&str)) -> Vec<(Key, Value)> {
    let mut placed: Vec<(usize, (Key, Value))> = members.into_iter().enumerate().collect();
    placed.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b)); // stable: equal names stay in document order
    let mut repeated: Vec<(usize, Key)> = Vec::new();
    let mut kept: Vec<(Key, Value)> = Vec::with_capacity(placed.len());
    for (at, (name, value)) in placed {
        match kept.last_mut() {
            Some(last) if last.0 == name => {
                last.1 = value;
                repeated.push((at, name));
            }
            _ => kept.push((name, value)),
        }
    }
    repeated.sort_unstable_by_key(|(at, _)| *at);
    repeated.iter().for_each(|(_, name)| duplicate(name));
    kept
}

#[cfg(test)]
#[path = "decode_test.rs"]
mod tests;
