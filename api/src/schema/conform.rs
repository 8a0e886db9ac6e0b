//! Tree to canonical tree by schema: what `decode` does to text, done to the outcome of a patch.
//!
//! The tree is handed to decode's visitors as if it were being parsed, so both obey one set of rules. Values are
//! moved, not copied. Depth is bounded here, because a patch can nest deeper than any text it was made of.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::decode::{DecodeError, Decoded, read_root};
use super::decode_report::Report;
use super::table::Message;
use crate::json::{DEPTH_MAX, Key, Value};

/// Makes `value` an object of type `message`: types checked, unknown fields dropped and reported, fields in schema
/// order, scalars canonical.
///
/// # Errors
/// As [`decode`](super::decode::decode).
pub fn conform(message: &'static Message, value: Value) -> Result<Decoded, DecodeError> {
    let report = Report::default();
    let read = read_root(&report, message, Source { value, depth: DEPTH_MAX });
    report.finish(read, |halt| halt.0)
}

/// How decoding ends early: with the error already in the report, or with this sentence.
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
    /// Levels that may still be entered.
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
    /// The value of the member whose name was handed out last.
    value: Value,
    depth: usize,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Halt> {
        let Some((name, value)) = self.members.next() else { return Ok(None) };
        self.value = value;
        match name {
            // Names from the schema are looked up without making a string of them.
            Key::Borrowed(name) => seed.deserialize(name.into_deserializer()),
            Key::Owned(name) => seed.deserialize(StringDeserializer::new(name)),
        }
        .map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Halt> {
        seed.deserialize(Source { value: std::mem::take(&mut self.value), depth: self.depth })
    }
}
