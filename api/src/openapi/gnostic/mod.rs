//! Encodes document trees as protobuf in the layout of `gnostic` (`openapi_v2.proto`, `openapi_v3.proto`).
//!
//! One small encoder is driven by tables that map each JSON member to a field number and a form. Members that no table
//! lists are dropped, except extensions (`x-…`), which are sent as named YAML text (JSON is YAML). Scalars are always
//! written, also when zero; every reader accepts that.

pub(super) mod v2;
pub(super) mod v3;

use prost::encoding::{WireType, encode_key, encode_varint};

use crate::json::{self, Value};

/// How an object becomes a message.
pub(super) struct Message {
    /// JSON member, field number, form; few enough for a linear search.
    pub members: &'static [(&'static str, u32, Form)],
    /// Field that takes the extensions; 0 = none.
    pub extensions: u32,
    /// Field and form of all other members, as `{1: name, 2: value}`.
    pub rest: Option<(u32, Form)>,
}

/// How a value becomes a field.
#[derive(Clone, Copy)]
pub(super) enum Form {
    /// String.
    Text,
    /// Boolean.
    Flag,
    /// Double.
    Number,
    /// `int64`.
    Integer,
    /// Any value, as a message with YAML text under 2.
    Any,
    /// A message.
    Message(&'static Message),
    /// Each element of an array under the same number; a value that is no array counts as one element.
    Each(&'static Form),
    /// Each member of an object under the same number, as `{1: name, 2: value}`.
    Named(&'static Form),
    /// A message with this one field.
    Wrap(u32, &'static Form),
    /// Depends on the value; `None` leaves it out.
    Choice(fn(&Value) -> Option<&'static Form>),
}

/// Appends the fields of `value` in the given `layout`.
pub(super) fn message(layout: &Message, value: &Value, out: &mut Vec<u8>) {
    let Some(members) = value.as_object() else { return };
    for (name, value) in members.iter() {
        if let Some((_, number, form)) = layout.members.iter().find(|(known, ..)| *known == name) {
            field(*number, form, value, out);
        } else if name.starts_with("x-") {
            if layout.extensions != 0 {
                entry(layout.extensions, name, value, &Form::Any, out);
            }
        } else if let Some((number, form)) = &layout.rest {
            entry(*number, name, value, form, out);
        }
    }
}

/// Appends `value` as field `number`.
fn field(number: u32, form: &Form, value: &Value, out: &mut Vec<u8>) {
    match form {
        Form::Text => bytes(number, value.as_str().unwrap_or("").as_bytes(), out),
        Form::Flag => varint(number, u64::from(value.as_bool().unwrap_or(false)), out),
        // Two's complement is how protobuf writes negative integers.
        Form::Integer => varint(number, value.as_i64().unwrap_or(0).cast_unsigned(), out),
        Form::Number => {
            let double = match value {
                Value::Int(n) => *n as f64,
                Value::Float(n) => *n,
                _ => 0.0,
            };
            encode_key(number, WireType::SixtyFourBit, out);
            out.extend_from_slice(&double.to_le_bytes());
        }
        Form::Any => nested(number, out, |out| {
            let mut yaml = Vec::new();
            json::write(value, &mut yaml);
            yaml.push(b'\n');
            bytes(2, &yaml, out);
        }),
        Form::Message(layout) => nested(number, out, |out| message(layout, value, out)),
        Form::Each(form) => match value {
            Value::Array(elements) => elements.iter().for_each(|element| field(number, form, element, out)),
            element => field(number, form, element, out),
        },
        Form::Named(form) => {
            for (name, value) in value.as_object().into_iter().flat_map(|members| members.iter()) {
                entry(number, name, value, form, out);
            }
        }
        Form::Wrap(inner, form) => nested(number, out, |out| field(*inner, form, value, out)),
        Form::Choice(choose) => {
            if let Some(form) = choose(value) {
                field(number, form, value, out);
            }
        }
    }
}

/// One of the large maps of a document: the field number of its entries and their layout.
pub(super) struct Section {
    /// Field of the entries inside the section's message.
    pub number: u32,
    /// Form of the values.
    pub form: Form,
}

impl Section {
    /// Appends one entry to the content of the section.
    pub(super) fn add(&self, name: &str, value: &Value, out: &mut Vec<u8>) {
        entry(self.number, name, value, &self.form, out);
    }
}

fn entry(number: u32, name: &str, value: &Value, form: &Form, out: &mut Vec<u8>) {
    nested(number, out, |out| {
        bytes(1, name.as_bytes(), out);
        field(2, form, value, out);
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

/// Appends a message whose length is known once it is written: it is written in place and moved by the length.
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
