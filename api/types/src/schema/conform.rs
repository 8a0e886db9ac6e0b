//! Conversion of a tree to a canonical tree by schema. This module converts the results of patches, and
//! `decode` converts texts.
//!
//! The tree is passed to the visitors of `decode` as if it were being parsed, so both modules follow the same
//! rules. Values are moved, not copied. Depth is limited here, because the result of a patch can be nested
//! deeper than both the object and the patch. If an object differs from a known object by a few changes, only
//! the changed parts are read again.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use smallvec::SmallVec;

use super::decode::{Single, read_item, read_root, read_value};
use super::decode_form::{is_always_written, is_lost, present_value, zero_field};
use super::decode_report::Report;
use super::decoded::{DecodeError, Decoded};
use super::table::{Field, Kind, Message};
use values::cancellation;
use values::json::{DEPTH_MAX, Key, Object, Value};

/// Converts `value` to an object of type `message`: checks types, drops and reports unknown fields, puts
/// fields into schema order, and makes scalars canonical.
///
/// # Errors
/// The errors of [`decode`](super::decode::decode).
pub fn conform(message: &Message, value: Value) -> Result<Decoded, DecodeError> {
    let report = Report::default();
    let read = read_root(&report, message, Source { value, depth: DEPTH_MAX });
    report.finish(message, read, |halt| halt.0)
}

/// Converts `value` like [`conform`]. The value is mostly equal to `known`, which already conforms. Parts
/// that are equal at the same path stay unchanged.
///
/// # Errors
/// The same errors as [`conform`].
pub fn conform_changes(message: &Message, mut value: Value, known: &Object) -> Result<Decoded, DecodeError> {
    if let Value::Object(object) = &mut value
        && conforms_in_place(message, object, known)
    {
        return Ok(Decoded { object: std::mem::take(object), strict: Vec::new() });
    }
    // To report all problems with their locations, the whole object is read again. The second reading of a converted
    // value gives the same result.
    conform(message, value)
}

/// Converts `object` in place if there is nothing to report; parts that are equal to `known` at the same path
/// stay unchanged. Returns `false` if there is something to report. After `false`, only parts of the object conform,
/// and the caller must call [`conform`] for the report.
pub fn conforms_in_place(message: &Message, object: &mut Object, known: &Object) -> bool {
    members(message, object, known, DEPTH_MAX - 1).is_ok()
}

/// Converts a single value to a kind. Errors contain no path. Returns `None` for a value that counts as
/// absent.
///
/// # Errors
/// The errors of [`decode`](super::decode::decode).
pub fn conform_value(kind: &Kind, value: Value) -> Result<Option<Value>, DecodeError> {
    let report = Report::default();
    let read = reread(Single { report: &report, kind, path: None, is_free: false }, value);
    match (Report::default().absorb(report), read) {
        (Some(failure), _) => Err(failure),
        (None, Err(message)) => Err(DecodeError { message, path: String::new() }),
        (None, Ok(value)) => Ok(value),
    }
}

/// Error for a value that does not conform, or about which there is something to report.
struct Odd;

/// Converts the members of a struct. The values of the members may nest `depth` more levels.
fn members(message: &Message, object: &mut Object, known: &Object, depth: usize) -> Result<(), Odd> {
    // Positions of the given fields, with the positions of their members.
    let mut given: SmallVec<[(usize, usize); 24]> = SmallVec::new();
    let mut next_known = known.iter();
    for (at, (name, value)) in object.members_mut().iter_mut().enumerate() {
        let position = message.position(name.as_bytes()).ok_or(Odd)?;
        let field = &message.fields[position];
        // Fast path: nearly always both objects have the same members in the same order.
        let known = match next_known.next() {
            Some((other, known)) if *name == other => Some(known),
            _ => known.get(name),
        };
        if known.is_some_and(|known| known == value) || conform_field(field, value, known, depth)? {
            given.push((position, at));
        }
    }
    // From here on nothing can fail, so values can be moved.
    if !given.is_sorted() {
        given.sort_unstable();
    }
    let mut given = given.into_iter().peekable();
    let mut old = std::mem::take(object.members_mut());
    let members = object.members_mut();
    members.reserve(old.len());
    for (at, field) in message.fields.iter().enumerate() {
        let value = match given.next_if(|(position, _)| *position == at) {
            Some((_, member)) => std::mem::take(&mut old[member].1),
            None if is_always_written(field) => zero_field(field),
            None => continue,
        };
        members.push((field.name.clone(), value));
    }
    Ok(())
}

/// Converts the value of a field. The value may nest `depth` more levels. Returns whether the field is
/// present afterwards.
fn conform_field(field: &Field, value: &mut Value, known: Option<&Value>, depth: usize) -> Result<bool, Odd> {
    cancellation::step();
    let deeper = |levels: usize| depth.checked_sub(levels).ok_or(Odd);
    match (&field.kind, &mut *value, known) {
        (Kind::Message(message), Value::Object(object), Some(Value::Object(known))) => {
            members(message, object, known, deeper(1)?)?;
        }
        (Kind::List(list), Value::Array(items), Some(Value::Array(known)))
            if !items.is_empty() && matches!(list.item.kind, Kind::Message(_)) =>
        {
            for (at, item) in items.iter_mut().enumerate() {
                match (&list.item.kind, &mut *item, known.get(at)) {
                    (_, item, Some(known)) if *item == *known => {}
                    (Kind::Message(message), Value::Object(item), Some(Value::Object(known))) => {
                        members(message, item, known, deeper(2)?)?;
                    }
                    (_, item, _) => {
                        let source = Source { value: item.clone(), depth: deeper(1)? };
                        *item = clean(|report| read_item(report, &list.item, source))?;
                    }
                }
            }
        }
        (_, value, _) => {
            let source = Source { value: value.clone(), depth };
            match present_value(field, clean(|report| read_value(report, &field.kind, source))?) {
                Some(read) => *value = read,
                None => return Ok(false),
            }
        }
    }
    Ok(!is_lost(field, value))
}

/// Returns the result of `read`, or an error if `read` reports something.
fn clean<T>(read: impl FnOnce(&Report) -> Result<T, Halt>) -> Result<T, Odd> {
    let report = Report::default();
    let part = read(&report).map_err(|_| Odd)?;
    if report.is_empty() { Ok(part) } else { Err(Odd) }
}

/// Reads a value that is already a tree.
///
/// # Errors
/// The error message; empty if the report contains the error.
pub(super) fn reread(single: Single<'_>, value: Value) -> Result<Option<Value>, String> {
    single.deserialize(Source { value, depth: DEPTH_MAX }).map_err(|halt: Halt| halt.0)
}

/// Early end of decoding: the error is in the report, or is this message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Halt(String);

impl serde::de::Error for Halt {
    fn custom<T: std::fmt::Display>(sentence: T) -> Self {
        Halt(sentence.to_string())
    }
}

struct Source {
    value: Value,
    /// Number of levels that may still be entered.
    depth: usize,
}

impl<'de> Deserializer<'de> for Source {
    type Error = Halt;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        let deeper = || self.depth.checked_sub(1).ok_or_else(|| Halt("exceeded max depth".to_owned()));
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) => visitor.visit_i64(value),
            Value::Float(value) => visitor.visit_f64(value),
            // `visit_bytes` receives the original text of a number. No other value needs this method, because
            // JSON has no byte strings.
            Value::Number(words) => visitor.visit_bytes(words.as_bytes()),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter(), depth: deeper()? }),
            Value::Object(members) => {
                let members = members.into_members().into_iter();
                visitor.visit_map(Members { members, value: Value::Null, depth: deeper()? })
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Items {
    items: std::vec::IntoIter<Value>,
    depth: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Halt;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Halt> {
        let depth = self.depth;
        self.items.next().map(|value| seed.deserialize(Source { value, depth })).transpose()
    }
}

struct Members {
    members: std::vec::IntoIter<(Key, Value)>,
    /// Value of the member whose name was returned last.
    value: Value,
    depth: usize,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Halt> {
        let Some((name, value)) = self.members.next() else { return Ok(None) };
        self.value = value;
        match name {
            // Names from the schema are looked up without creating a string.
            Key::Borrowed(name) => seed.deserialize(name.into_deserializer()),
            Key::Owned(name) => seed.deserialize(StringDeserializer::new(name)),
        }
        .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Halt> {
        seed.deserialize(Source { value: std::mem::take(&mut self.value), depth: self.depth })
    }
}

#[cfg(test)]
#[path = "conform_test.rs"]
mod tests;
