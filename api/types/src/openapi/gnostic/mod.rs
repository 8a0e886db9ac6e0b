//! Encoding of document trees as protobuf in the layout of `gnostic` (`openapi_v2.proto`,
//! `openapi_v3.proto`).
//!
//! A small encoder serves both versions. A table (`layout`) maps each JSON member to its field number in each
//! version and to its form. Members that the table does not list are omitted unless they are extensions
//! (`x-…`), which are written as named YAML text (JSON is also YAML). Scalars are always written, including zeros.
//! Every reader accepts zeros.

pub(super) mod layout;

use prost::encoding::{WireType, encode_key, encode_varint};

use super::dialect::Dialect;
use values::json::{self, Value};

/// Field numbers in 2.0 and 3.0; 0 if the version has no such field.
pub(super) type Numbers = [u32; 2];

/// No field in either version.
const NONE: Numbers = [0, 0];

/// Returns the number for `dialect`.
pub(super) fn number_in(dialect: Dialect, numbers: Numbers) -> u32 {
    match dialect {
        Dialect::V2 => numbers[0],
        Dialect::V3 => numbers[1],
    }
}

/// The mapping of an object to a message.
pub(super) struct MessageMapping {
    /// JSON member, field numbers, form. The list is short enough for a linear search.
    pub members: &'static [(&'static str, Numbers, FieldMapping)],
    /// Field numbers of the extensions.
    pub extensions: Numbers,
    /// Field and form of all other members, which are encoded as `{1: name, 2: value}`.
    pub rest: Option<(Numbers, FieldMapping)>,
}

/// The mapping of a value to a field.
#[derive(Clone, Copy)]
pub(super) enum FieldMapping {
    /// A string.
    Text,
    /// A boolean.
    Flag,
    /// A double.
    Number,
    /// An `int64`.
    Integer,
    /// Any value, as a message with YAML text in field 2.
    Any,
    /// A message of the given layout.
    Message(&'static MessageMapping),
    /// Each element of an array under the same number; a value that is not an array counts as one element.
    Each(&'static FieldMapping),
    /// Each member of an object under the same number, as `{1: name, 2: value}`.
    Named(&'static FieldMapping),
    /// A message with a single field of the given form.
    Wrap(Numbers, &'static FieldMapping),
    /// A form that depends on version and value; `None` omits the value.
    Choice(fn(Dialect, &Value) -> Option<&'static FieldMapping>),
}

/// Appends the fields of `value` according to `layout`.
pub(super) fn message(dialect: Dialect, layout: &MessageMapping, value: &Value, out: &mut Vec<u8>) {
    let Some(members) = value.as_object() else { return };
    let extensions = number_in(dialect, layout.extensions);
    for (name, value) in members.iter() {
        if let Some((_, numbers, form)) = layout.members.iter().find(|(known, ..)| *known == name) {
            let number = number_in(dialect, *numbers);
            if number != 0 {
                field(dialect, number, form, value, out);
            }
        } else if name.starts_with("x-") {
            if extensions != 0 {
                entry(dialect, extensions, name, value, &FieldMapping::Any, out);
            }
        } else if let Some((numbers, form)) = &layout.rest {
            entry(dialect, number_in(dialect, *numbers), name, value, form, out);
        }
    }
}

/// Appends `value` as field `number`.
fn field(dialect: Dialect, number: u32, form: &FieldMapping, value: &Value, out: &mut Vec<u8>) {
    match form {
        FieldMapping::Text => bytes(number, value.as_str().unwrap_or("").as_bytes(), out),
        FieldMapping::Flag => varint(number, u64::from(value.as_bool().unwrap_or(false)), out),
        // Protobuf writes negative integers in two's complement.
        FieldMapping::Integer => varint(number, value.as_i64().unwrap_or(0).cast_unsigned(), out),
        FieldMapping::Number => {
            let double = match value {
                Value::Int(n) => *n as f64,
                Value::Float(n) => *n,
                _ => 0.0,
            };
            encode_key(number, WireType::SixtyFourBit, out);
            out.extend_from_slice(&double.to_le_bytes());
        }
        FieldMapping::Any => nested(number, out, |out| {
            let mut yaml = Vec::new();
            json::write(value, &mut yaml);
            yaml.push(b'\n');
            bytes(2, &yaml, out);
        }),
        FieldMapping::Message(layout) => nested(number, out, |out| message(dialect, layout, value, out)),
        FieldMapping::Each(form) => match value {
            Value::Array(elements) => {
                elements.iter().for_each(|element| field(dialect, number, form, element, out))
            }
            element => field(dialect, number, form, element, out),
        },
        FieldMapping::Named(form) => {
            for (name, value) in value.as_object().into_iter().flat_map(|members| members.iter()) {
                entry(dialect, number, name, value, form, out);
            }
        }
        FieldMapping::Wrap(inner, form) => {
            nested(number, out, |out| field(dialect, number_in(dialect, *inner), form, value, out))
        }
        FieldMapping::Choice(choose) => {
            if let Some(form) = choose(dialect, value) {
                field(dialect, number, form, value, out);
            }
        }
    }
}

/// A large map of a document: the field number of its entries and their layout.
pub(super) struct Section {
    /// Field number of an entry in the message of the section.
    pub number: Numbers,
    /// Form of the values.
    pub form: FieldMapping,
}

impl Section {
    /// Appends one entry to the content of the section.
    pub(super) fn add(&self, dialect: Dialect, name: &str, value: &Value, out: &mut Vec<u8>) {
        entry(dialect, number_in(dialect, self.number), name, value, &self.form, out);
    }
}

fn entry(dialect: Dialect, number: u32, name: &str, value: &Value, form: &FieldMapping, out: &mut Vec<u8>) {
    nested(number, out, |out| {
        bytes(1, name.as_bytes(), out);
        field(dialect, 2, form, value, out);
    });
}

fn varint(number: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

/// Appends a length-delimited field.
pub(super) fn bytes(number: u32, content: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// Appends a message whose length is not known in advance. The message is written to `out` and then moved to
/// make room for the length.
fn nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    encode_key(number, WireType::LengthDelimited, out);
    let start = out.len();
    write(out);
    let mut length = [0; 10];
    let mut rest = &mut length[..];
    encode_varint((out.len() - start) as u64, &mut rest);
    let used = 10 - rest.len();
    out.splice(start..start, length[..used].iter().copied());
}
