//! Decoding of text to a tree by schema in one pass: the first step of the write path (ARCHITECTURE.md).
//!
//! ```text
//! JSON text ─┬─ decode_straight ─► the same object, if nothing is unusual (nearly always)
//!            └─ serde_json ─► Single / Many / Members visitors, driven by Field::kind and Field::shape
//!                             ├─► object: known fields in schema order, scalars canonical
//!                             └─► strict: unknown and duplicate fields, in document order
//! ```
//!
//! The resulting tree is canonical: it has exactly the members of the stored form. A field that JSON omits for the zero
//! value is absent if the value is zero; a field that is always written is present (`"status":{}`, `"rules":null`). Two
//! equal objects therefore have equal trees, and all later steps (defaults, patches, field sets) work on the members
//! that clients see. `conform` drives the same visitors over a tree.
//!
//! A value of the wrong type does not stop decoding: the first such error is reported at the end. A type that
//! parses its own text (a time, a quantity, a port) stops decoding with its own error, and this error
//! replaces the first error. If a text is rejected, the decoder reads the text a second time in a careful mode: strings
//! are repaired as in Go's `encoding/json`, and integers are taken from their original text.
//!
//! This module contains no code for particular kinds: the caller checks `kind`, `apiVersion` and the namespace.

use std::fmt;

use ::bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::conform::conform;
use super::decode_form::{zero_element, zero_object};
use super::decode_members::{
    read_bytes, read_items, read_list, read_map, read_message, skip_items, skip_members,
};
use super::decode_merge::merged;
use super::decode_raw::field_set_text;
use super::decode_report::{At, DecodePath, Report, message_name, mismatched, type_name, with_repeated};
use super::decode_straight::{self, Author, settled, straight};
use super::decoded::{DecodeError, Decoded};
use super::scalars::{duration, time};
use super::table::{Element, Kind, Message};
use values::json::plain_number;
use values::json::{self, Object, ParseError, Value};
use values::{base64_text, cancellation};

/// Decodes one JSON document as an object of type `message`.
///
/// Unknown fields are dropped, and the last of several duplicate fields is kept; both are reported in
/// `strict`. Costs one pass over the text. Nesting beyond [`json::DEPTH_MAX`] is an error.
///
/// # Errors
/// The text is not JSON, or a value has the wrong type. Source: docs/api/writes.md#request-body,
/// docs/api/encodings.md#strict-decoding.
pub fn decode(message: &Message, text: &[u8]) -> Result<Decoded, DecodeError> {
    match straight(message, text, Author::Client) {
        Some(object) => Ok(Decoded { object, strict: Vec::new() }),
        None => decode_any(message, text),
    }
}

/// Decodes `text` like [`decode`]. The text is probably a changed copy of `known`, an object of this server
/// with settled parts ([`decode_settled`]). Settled parts that have the same bytes in the text are not
/// decoded; both objects share these parts.
///
/// # Errors
/// The same errors as [`decode`].
pub fn decode_known(message: &Message, text: &[u8], known: &Object) -> Result<Decoded, DecodeError> {
    match decode_straight::straight_with_known(message, text, known) {
        Some(object) => Ok(Decoded { object, strict: Vec::new() }),
        None => decode_any(message, text),
    }
}

/// Decodes text that this server wrote in canonical form and whose checksum was verified.
///
/// # Errors
/// The same errors as [`decode`], if this server did not write the text.
pub fn decode_own(message: &Message, text: &[u8]) -> Result<Object, DecodeError> {
    match straight(message, text, Author::Server) {
        Some(object) => Ok(object),
        None => decode_any(message, text).map(|decoded| decoded.object),
    }
}

/// Decodes like [`decode_own`], and settles the parts of the object except the metadata (see
/// [`Object::settle`]). Parts of built-in types are decoded at the first access.
///
/// # Errors
/// The same errors as [`decode_own`].
pub fn decode_settled(message: &Message, text: &Bytes) -> Result<Object, DecodeError> {
    settled(message, text, None).map_or_else(|| decode_own(message, text), Ok)
}

/// Decodes like [`decode_settled`]. `beside` is the object that will replace the decoded object in the store.
/// Parts that have the same bytes in both objects are not decoded; both objects share these parts.
///
/// # Errors
/// The same errors as [`decode_own`].
pub fn decode_sharing(message: &Message, text: &Bytes, beside: &mut Object) -> Result<Object, DecodeError> {
    settled(message, text, Some(beside)).map_or_else(|| decode_own(message, text), Ok)
}

/// Replaces parts of `new` by equal settled parts of `old`, so that both objects share these parts. Both
/// objects are of type `message`.
pub fn share(message: &Message, new: &mut Object, old: &Object) {
    decode_straight::share(message, new, old);
}

/// Decodes like [`decode`], for a text that was accepted under another schema. Kind, version and metadata of
/// objects inside the object are dropped if the current schema makes these members invalid.
///
/// # Errors
/// The same errors as [`decode`].
pub fn decode_record(message: &Message, text: &[u8]) -> Result<Decoded, DecodeError> {
    decode_reporting(message, text, Report::of_record())
}

/// Decodes like [`decode`], without the fast path for compact documents.
pub(super) fn decode_any(message: &Message, text: &[u8]) -> Result<Decoded, DecodeError> {
    decode_reporting(message, text, Report::of_text())
}

fn decode_reporting(message: &Message, text: &[u8], report: Report) -> Result<Decoded, DecodeError> {
    let careful = report.careful();
    read_text(message, text, report).or_else(|error| match json::repaired(text) {
        Some(text) => read_text(message, &text, careful),
        None => Err(error),
    })
}

fn read_text(message: &Message, text: &[u8], report: Report) -> Result<Decoded, DecodeError> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let read = read_root(&report, message, &mut source).and_then(|object| source.end().map(|()| object));
    let has_merged = report.has_merged();
    let may_have_repeated = message.custom && !report.is_lenient() && report.may_have_repeated();
    let mut decoded =
        report.finish(message, read, |error| ParseError::from_serde(text, &error).to_string())?;
    // In the reference server, objects of custom types are maps. Repeated members are therefore found
    // regardless of the schema.
    if may_have_repeated && let Ok((_, repeated)) = json::parse_reporting_duplicates(text) {
        decoded.strict = with_repeated(&repeated, decoded.strict);
    }
    if has_merged && let Some(tree) = merged(message, text) {
        decoded.object = conform(message, tree)?.object;
    }
    Ok(decoded)
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

/// Reads one value without a path; returns `None` for a value that counts as absent.
pub(super) fn read_value<'de, D: Deserializer<'de>>(
    report: &Report,
    kind: &Kind,
    source: D,
) -> Result<Option<Value>, D::Error> {
    Single { report, kind, path: None, is_free: false }.deserialize(source)
}

/// Reads one element of a list without a path.
pub(super) fn read_item<'de, D: Deserializer<'de>>(
    report: &Report,
    item: &Element,
    source: D,
) -> Result<Value, D::Error> {
    Ok(read_value(report, &item.kind, source)?.unwrap_or_else(|| zero_element(item)))
}

/// Visitor of a whole document; returns `None` for `null`.
struct Root<'c> {
    report: &'c Report,
    message: &'c Message,
}

/// Visitor methods for values that cannot be a whole document.
macro_rules! refuse {
    ($($visit:ident($found:ty) = $name:literal;)*) => {$(
        fn $visit<E: serde::de::Error>(self, _: $found) -> Result<Option<Object>, E> {
            self.wrong($name)
        }
    )*};
}

impl Root<'_> {
    fn wrong<E>(&self, found: &str) -> Result<Option<Object>, E> {
        self.report.mismatch(None, found, &message_name(self.message));
        Ok(None)
    }
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
        visit_bytes(&[u8]) = "number";
        visit_str(&str) = "string";
    }

    fn visit_unit<E>(self) -> Result<Option<Object>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, source: A) -> Result<Option<Object>, A::Error> {
        skip_items(source)?;
        self.wrong("array")
    }

    fn visit_map<A: MapAccess<'de>>(self, source: A) -> Result<Option<Object>, A::Error> {
        read_message(self.report, self.message, None, source).map(Some)
    }
}

/// Visitor of one value of a kind; returns `None` for `null` and for scalars whose text means "not set".
#[derive(Clone, Copy)]
pub(super) struct Single<'c> {
    pub(super) report: &'c Report,
    pub(super) kind: &'c Kind,
    pub(super) path: At<'c>,
    /// Whether a value of the wrong type is kept unchanged, so that validation reports it.
    pub(super) is_free: bool,
}

impl<'de> DeserializeSeed<'de> for Single<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Option<Value>, D::Error> {
        cancellation::step();
        if matches!(self.kind, Kind::FieldsV1) {
            return field_set_text(self.report, self.path, source);
        }
        let is_quantity = matches!(self.kind, Kind::Quantity) && !self.is_free;
        let is_scalar = || {
            !matches!(
                self.kind,
                Kind::Message(_)
                    | Kind::List(_)
                    | Kind::Map(_)
                    | Kind::Json
                    | Kind::RawExtension
                    | Kind::SchemaOrArray(_)
                    | Kind::SchemaOrBool(_)
                    | Kind::SchemaOrStrings(_)
            )
        };
        if is_quantity && self.report.is_text() || self.report.is_careful() && is_scalar() {
            return self.source_text(source);
        }
        source.deserialize_any(self)
    }
}

impl Single<'_> {
    /// Reports a value of the wrong type. The value counts as absent, unless its type parses its own text.
    fn wrong<E: serde::de::Error>(self, found: &str) -> Result<Option<Value>, E> {
        let into = |expected| mismatched(self.path, found, expected);
        let sentence = match self.kind {
            Kind::Time | Kind::MicroTime | Kind::Duration => into("string"),
            Kind::IntOrString => into("int32"),
            Kind::Quantity => quantity::FORMAT.to_owned(),
            Kind::SchemaOrBool(_) => "boolean or JSON schema expected".to_owned(),
            // The value is present but neither a schema nor a list; validation reports it.
            Kind::SchemaOrArray(_) | Kind::SchemaOrStrings(_) => return Ok(Some(Value::Array(Vec::new()))),
            _ => {
                let expected = match self.kind {
                    Kind::String => self.path.map_or("string", DecodePath::text_type).to_owned(),
                    kind => type_name(kind),
                };
                self.report.mismatch(self.path, found, &expected);
                return Ok(None);
            }
        };
        Err(self.report.fail(self.path, sentence))
    }

    /// Reads a scalar and keeps the original text of a number: quantities store the text, and errors print
    /// it.
    fn source_text<'de, D: Deserializer<'de>>(self, source: D) -> Result<Option<Value>, D::Error> {
        let raw = <&RawValue>::deserialize(source)?.get();
        if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            return serde_json::Deserializer::from_str(raw).deserialize_any(self).map_err(D::Error::custom);
        }
        self.words(raw)
    }

    /// Converts the original text of a number. `-0` is an integer, and `1e2` is not.
    fn words<E: serde::de::Error>(self, words: &str) -> Result<Option<Value>, E> {
        let number = || format!("number {words}");
        match (self.kind, words.parse::<i64>()) {
            (Kind::Quantity, _) if !self.is_free => self.text(words),
            (_, Ok(integer)) => self.visit_i64(integer),
            (Kind::Int32 | Kind::Int64 | Kind::IntOrString, _) if !self.is_free => self.wrong(&number()),
            _ => match words.parse::<f64>() {
                Ok(number) if number.is_finite() => self.float(number),
                _ if self.is_free || matches!(self.kind, Kind::Json | Kind::RawExtension) => {
                    Err(self.report.fail(self.path, go::json::unfit(&number(), "float64")))
                }
                _ if matches!(self.kind, Kind::Double) => self.wrong(&number()),
                _ => self.wrong("number"),
            },
        }
    }

    /// Reads a value of a type that parses its own text. The findings of strict decoding are dropped, and the
    /// paths of errors start at this value.
    fn decode_own_text<E: serde::de::Error>(
        self,
        read: impl FnOnce(Single<'_>) -> Result<Value, E>,
    ) -> Result<Option<Value>, E> {
        let part = self.report.part();
        let read = read(Single { report: &part, path: None, ..self });
        match part.into_failure() {
            Some(failure) => Err(self.report.fail(self.path, failure.message)),
            None => read.map(Some),
        }
    }

    fn float<E: serde::de::Error>(self, number: f64) -> Result<Option<Value>, E> {
        match self.kind {
            Kind::Double | Kind::Json | Kind::RawExtension => Ok(Some(plain_number(number))),
            _ if self.is_free => Ok(Some(plain_number(number))),
            Kind::Quantity => {
                let mut text = Vec::new();
                json::write(&Value::Float(number), &mut text);
                self.text(&String::from_utf8_lossy(&text))
            }
            // A tree represents the integer text `-0` as a negative zero.
            Kind::Int32 | Kind::Int64 | Kind::IntOrString
                if !self.report.is_text() && number == 0.0 && number.is_sign_negative() =>
            {
                Ok(Some(Value::Int(0)))
            }
            Kind::Int32 | Kind::Int64 | Kind::IntOrString => self.wrong(&format!("number {number}")),
            _ => self.wrong("number"),
        }
    }

    /// Converts a scalar from text that the visitor does not own.
    fn text<E: serde::de::Error>(self, text: &str) -> Result<Option<Value>, E> {
        let scalar = match self.kind {
            Kind::String | Kind::Json | Kind::RawExtension | Kind::IntOrString => {
                return Ok(Some(Value::String(text.to_owned())));
            }
            _ if self.is_free => return Ok(Some(Value::String(text.to_owned()))),
            Kind::Bytes => base64_text::canonical(text).map(Some),
            Kind::Time => time::canonical_seconds(text),
            Kind::MicroTime => time::canonical_micros(text),
            Kind::Duration => duration::canonical(text).map(Some),
            Kind::Quantity => quantity::canonical(text).map(Some).map_err(str::to_owned),
            _ => return self.wrong("string"),
        };
        match scalar {
            Ok(kept) => Ok(kept.map(|kept| Value::String(kept.into_owned()))),
            Err(sentence) if matches!(self.kind, Kind::Bytes) => {
                self.report.save(self.path, sentence);
                Ok(None)
            }
            Err(sentence) => Err(self.report.fail(self.path, sentence)),
        }
    }
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
            _ => self.wrong("bool"),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Option<Value>, E> {
        match self.kind {
            _ if self.is_free => Ok(Some(Value::Int(value))),
            Kind::Int32 | Kind::IntOrString if i32::try_from(value).is_err() => {
                self.wrong(&format!("number {value}"))
            }
            Kind::Int32 | Kind::Int64 | Kind::IntOrString | Kind::Double => Ok(Some(Value::Int(value))),
            Kind::Json | Kind::RawExtension => Ok(Some(Value::Int(value))),
            Kind::Quantity => self.text(&value.to_string()),
            _ => self.wrong("number"),
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

    /// Receives a number as text. Only deserializers over trees pass numbers as text.
    fn visit_bytes<E: serde::de::Error>(self, words: &[u8]) -> Result<Option<Value>, E> {
        self.words(&String::from_utf8_lossy(words))
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
            Kind::SchemaOrArray(message) => self.decode_own_text(|whole| {
                let item = &Kind::Message(message.clone());
                let absent = || Value::Object(zero_object(message));
                read_items(Single { kind: item, ..whole }, source, absent).map(Value::Array)
            }),
            Kind::SchemaOrStrings(_) => self.decode_own_text(|whole| {
                let absent = || Value::String(String::new());
                read_items(Single { kind: &Kind::String, ..whole }, source, absent).map(Value::Array)
            }),
            Kind::Json | Kind::RawExtension => self.report.raw().visit_seq(source).map(Some),
            Kind::Bytes => read_bytes(self, source).map(Some),
            _ if self.is_free => self.report.raw().visit_seq(source).map(Some),
            _ => {
                skip_items(source)?;
                self.wrong("array")
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, source: A) -> Result<Option<Value>, A::Error> {
        match self.kind {
            Kind::Message(message) => read_message(self.report, message, self.path, source)
                .map(|object| Some(Value::Object(object))),
            Kind::SchemaOrArray(message) | Kind::SchemaOrBool(message) | Kind::SchemaOrStrings(message) => {
                self.decode_own_text(|whole| {
                    read_message(whole.report, message, None, source).map(Value::Object)
                })
            }
            Kind::Map(map) => read_map(self, map, source).map(Some),
            Kind::Json | Kind::RawExtension => self.report.raw().visit_map(source).map(Some),
            _ if self.is_free => self.report.raw().visit_map(source).map(Some),
            _ => {
                skip_members(source)?;
                self.wrong("object")
            }
        }
    }
}

#[cfg(test)]
#[path = "decode_test.rs"]
mod tests;
