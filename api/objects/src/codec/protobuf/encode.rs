//! Encodes a tree as protobuf. The output has the order and the zero values of the reference server, so that
//! equal objects have equal bytes (docs/api/encodings.md#protobuf).
//!
//! Fields are in ascending order of their numbers, map entries are sorted by key, and lists of numbers are
//! not packed. Scalars and structs that are not pointers are always written, including zero values; pointers, lists,
//! maps and bytes are written only if they are present.

use std::convert::Infallible;

use smallvec::SmallVec;

use super::wire::{write_bool, write_bytes, write_delimited, write_double, write_int};
use types::schema::decoded::DecodeError;
use types::schema::scalars::time;
use types::schema::table::{Field, Kind, Message, Shape, Text, WireField, WireMeaning};
use values::base64_text as base64;
use values::cancellation;
use values::json::{self, Object, Value};

/// Reason why an object cannot be encoded.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// The type has no protobuf form.
    #[error("type {0} has no protobuf form")]
    NoForm(Text),
    /// The tree does not match the type: the type of a field does not permit the value.
    #[error("field {field} cannot be written as protobuf")]
    Mismatch {
        /// Name of the field with the wrong value.
        field: Text,
    },
    /// The text does not match the type.
    #[error(transparent)]
    Text(#[from] DecodeError),
}

/// Appends the protobuf form of `object`, without envelope. Members that the type does not declare are not
/// written.
///
/// # Errors
/// Fails if the type has no protobuf form, or if the tree was not made by `decode` or `conform`. In this case
/// `out` is unchanged.
pub fn encode(message: &Message, object: &Object, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    let written = write_message(message, object, out);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_message(message: &Message, object: &Object, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if message.wire.is_empty() && !message.fields.is_empty() {
        return Err(EncodeError::NoForm(message.name.clone()));
    }
    // Members are nearly always in schema order, so one walk over the fields collects them.
    let mut values: SmallVec<[Option<&Value>; 24]> = SmallVec::from_elem(None, message.fields.len());
    let mut next = 0;
    for (name, value) in object.iter() {
        let ahead = message.fields[next..].iter().position(|field| field.name == name);
        let at = match ahead {
            Some(steps) => next + steps,
            None => match message.position(name.as_bytes()) {
                Some(at) => at,
                None => continue,
            },
        };
        values[at] = Some(value).filter(|value| !value.is_null());
        if ahead.is_some() {
            next = at + 1;
        }
    }
    for wire in &*message.wire {
        match wire.place {
            WireMeaning::Field(at) => {
                let field = &message.fields[usize::from(at)];
                write_field(field, values[usize::from(at)], out)?;
            }
            WireMeaning::Inlined(at) => {
                let inner = &message.inlined[usize::from(at)].message;
                write_delimited(wire.number, out, |out| write_message(inner, object, out))?;
            }
        }
    }
    Ok(())
}

/// Appends the encoding of an absent field.
pub(super) fn write_zero(message: &Message, wire: &WireField, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match wire.place {
        WireMeaning::Field(at) => write_field(&message.fields[usize::from(at)], None, out),
        WireMeaning::Inlined(at) => {
            let inner = &message.inlined[usize::from(at)].message;
            write_delimited(wire.number, out, |out| write_message(inner, &Object::new(), out))
        }
    }
}

fn write_field(field: &Field, value: Option<&Value>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let number = field.number;
    match (field.shape(), value) {
        (Shape::Single, None) if field.pointer || matches!(field.element(), Kind::Bytes) => Ok(()),
        (Shape::Single, value) => write_value(field, number, value.unwrap_or(&Value::Null), out),
        (_, None) => Ok(()),
        (Shape::List, Some(Value::Array(items))) => {
            items.iter().try_for_each(|item| write_value(field, number, item, out))
        }
        (Shape::WrappedList, Some(Value::Array(items))) if items.is_empty() => Ok(()),
        (Shape::WrappedList, Some(list)) => write_strings(field, number, list, out),
        (Shape::Map | Shape::MapOfLists, Some(Value::Object(members))) => write_map(field, members, out),
        (Shape::List | Shape::Map | Shape::MapOfLists, Some(_)) => {
            Err(EncodeError::Mismatch { field: field.name.clone() })
        }
    }
}

fn write_map(field: &Field, members: &Object, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut entry = |(name, value): (&str, &Value)| {
        write_delimited(field.number, out, |out| {
            write_bytes(1, name.as_bytes(), out);
            match (field.shape(), field.element(), value) {
                (Shape::MapOfLists, _, value) => write_strings(field, 2, value, out),
                (_, Kind::Bytes, Value::Null) => Ok(()),
                (_, _, value) => write_value(field, 2, value, out),
            }
        })
    };
    if members.iter().map(|(name, _)| name).is_sorted() {
        return members.iter().try_for_each(entry);
    }
    let mut sorted: Vec<(&str, &Value)> = members.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    sorted.into_iter().try_for_each(&mut entry)
}

/// Appends a list of strings as a separate message.
fn write_strings(field: &Field, number: u32, list: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    write_delimited(number, out, |out| {
        let items = match list {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            _ => return Err(EncodeError::Mismatch { field: field.name.clone() }),
        };
        items.iter().try_for_each(|item| write_value(field, 1, item, out))
    })
}

/// Appends one value as field `number`. `null` is written as the zero value.
fn write_value(field: &Field, number: u32, value: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    cancellation::step();
    static EMPTY: Object = Object::new();
    match (field.element(), value) {
        (Kind::Bool, Value::Bool(value)) => write_bool(number, *value, out),
        (Kind::Bool, Value::Null) => write_bool(number, false, out),
        (Kind::Int32 | Kind::Int64, Value::Int(value)) => write_int(number, *value, out),
        (Kind::Int32 | Kind::Int64, Value::Null) => write_int(number, 0, out),
        (Kind::Double, Value::Float(value)) => write_double(number, *value, out),
        (Kind::Double, Value::Int(value)) => write_double(number, *value as f64, out),
        (Kind::Double, Value::Null) => write_double(number, 0.0, out),
        (Kind::String, Value::String(text)) => write_bytes(number, text.as_bytes(), out),
        (Kind::String | Kind::Bytes, Value::Null) => write_bytes(number, b"", out),
        (Kind::Bytes, Value::String(text)) => {
            let bytes = base64::decode(text).ok_or_else(|| mismatch(field))?;
            write_bytes(number, &bytes, out);
        }
        (Kind::Message(message), Value::Object(object)) => {
            write_delimited(number, out, |out| write_message(message, object, out))?;
        }
        (Kind::Message(message), Value::Null) => {
            write_delimited(number, out, |out| write_message(message, &EMPTY, out))?;
        }
        (Kind::Time | Kind::MicroTime, value) => {
            let moment = match value {
                Value::String(text) => Some(time::unix(text).ok_or_else(|| mismatch(field))?),
                Value::Null => None,
                _ => return Err(mismatch(field)),
            };
            write_time(number, field.element(), moment, out);
        }
        (Kind::Duration, value) => {
            let nanos = match value {
                Value::String(text) => go::duration::parse(text).map_err(|_| mismatch(field))?,
                Value::Null => 0,
                _ => return Err(mismatch(field)),
            };
            write_duration(number, nanos, out);
        }
        (Kind::Quantity, value) => {
            let text = match value {
                Value::String(text) => text.as_str(),
                Value::Null => "0",
                _ => return Err(mismatch(field)),
            };
            write_one_bytes(number, text.as_bytes(), out);
        }
        (Kind::IntOrString, value) => {
            let value = match value {
                Value::Int(int) => IntOrText::Int(*int),
                Value::String(text) => IntOrText::Text(text),
                Value::Null => IntOrText::Int(0),
                _ => return Err(mismatch(field)),
            };
            write_int_or_text(number, value, out);
        }
        (Kind::FieldsV1, Value::String(text)) => write_one_bytes(number, text.as_bytes(), out),
        (Kind::RawExtension | Kind::FieldsV1 | Kind::Json, value) => {
            write_delimited(number, out, |out| {
                if value.is_null() {
                    return Ok(());
                }
                write_delimited(1, out, |out| {
                    json::write(value, out);
                    Ok::<_, EncodeError>(())
                })
            })?;
        }
        (Kind::SchemaOrArray(_) | Kind::SchemaOrBool(_) | Kind::SchemaOrStrings(_), value) => {
            write_delimited(number, out, |out| write_schema_or(field, value, out))?;
        }
        _ => return Err(mismatch(field)),
    }
    Ok(())
}

/// Returns the error for a field whose value has the wrong type.
fn mismatch(field: &Field) -> EncodeError {
    EncodeError::Mismatch { field: field.name.clone() }
}

/// Appends a message whose fields are written by `write`, which cannot fail.
fn write_fields(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let Ok(()) = write_delimited::<Infallible>(number, out, |out| {
        write(out);
        Ok(())
    });
}

/// Appends a message that has only field 1.
pub(super) fn write_one_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_fields(number, out, |out| write_bytes(1, bytes, out));
}

/// Appends a point in time, in seconds since 1970 and nanoseconds. `None` is the zero time. Only a
/// `MicroTime` has a fraction, with microsecond precision.
pub(super) fn write_time(number: u32, kind: &Kind, moment: Option<(i64, u32)>, out: &mut Vec<u8>) {
    write_fields(number, out, |out| {
        if let Some((seconds, nanos)) = moment {
            let nanos = if matches!(kind, Kind::Time) { 0 } else { nanos / 1000 * 1000 };
            write_int(1, seconds, out);
            write_int(2, nanos.into(), out);
        }
    });
}

/// Appends a duration in nanoseconds.
pub(super) fn write_duration(number: u32, nanos: i64, out: &mut Vec<u8>) {
    write_fields(number, out, |out| write_int(1, nanos, out));
}

/// Value of a field that accepts an integer or a text.
pub(super) enum IntOrText<'v> {
    Int(i64),
    Text(&'v str),
}

/// Appends an integer or a text.
pub(super) fn write_int_or_text(number: u32, value: IntOrText<'_>, out: &mut Vec<u8>) {
    let (which, int, text) = match value {
        IntOrText::Int(int) => (0, int, ""),
        IntOrText::Text(text) => (1, 0, text),
    };
    write_fields(number, out, |out| {
        write_int(1, which, out);
        write_int(2, int, out);
        write_bytes(3, text.as_bytes(), out);
    });
}

fn write_schema_or(field: &Field, value: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let mut schema = |number: u32, message: &Message, object: &Object| {
        write_delimited(number, out, |out| write_message(message, object, out))
    };
    match (field.element(), value) {
        (Kind::SchemaOrBool(message), Value::Object(object)) => {
            write_bool(1, true, out);
            write_delimited(2, out, |out| write_message(message, object, out))
        }
        (Kind::SchemaOrBool(_), Value::Bool(_) | Value::Null) => {
            write_bool(1, matches!(value, Value::Bool(true)), out);
            Ok(())
        }
        (Kind::SchemaOrArray(message) | Kind::SchemaOrStrings(message), Value::Object(object)) => {
            schema(1, message, object)
        }
        (Kind::SchemaOrArray(message), Value::Array(items)) => items.iter().try_for_each(|item| match item {
            Value::Object(object) => schema(2, message, object),
            Value::Null => schema(2, message, &Object::new()),
            _ => Err(EncodeError::Mismatch { field: field.name.clone() }),
        }),
        (Kind::SchemaOrStrings(_), Value::Array(items)) => {
            items.iter().try_for_each(|item| match item.as_str() {
                Some(text) => {
                    write_bytes(2, text.as_bytes(), out);
                    Ok(())
                }
                None => Err(EncodeError::Mismatch { field: field.name.clone() }),
            })
        }
        (_, Value::Null) => Ok(()),
        _ => Err(EncodeError::Mismatch { field: field.name.clone() }),
    }
}
