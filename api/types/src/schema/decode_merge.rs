//! Merging of members that a document contains twice: Go's decoder reads the second value into the result of
//! the first value.
//!
//! ```text
//! {"a":{"x":1},"a":{"y":2}}      ──► {"a":{"x":1,"y":2}}        structs and maps
//! {"l":[{"x":1},{}],"l":[{"y":2}]} ──► {"l":[{"x":1,"y":2}]}    lists, element by element
//! ```
//!
//! Only documents of built-in types are merged. Objects of custom types are maps in the reference server, which
//! keeps the last member of a name. This module runs only after a repeated member with mergeable values was
//! found, and passes the merged tree to `conform`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::raw_tree::RAW;
use super::table::{Kind, Message};
use values::cancellation;
use values::json::{Key, MemberCollector, Value};

/// Returns whether two values of a kind are merged.
pub(super) fn is_merged(kind: &Kind) -> bool {
    matches!(kind, Kind::Message(_) | Kind::List(_) | Kind::Map(_))
}

/// Returns the tree of a document of type `message` with merged members, so that no struct has a member
/// twice; `None` if the text cannot be read.
pub(super) fn merged(message: &Message, text: &[u8]) -> Option<Value> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let value =
        Merged { of: Type::Message(message), is_pointer: true, before: None }.deserialize(&mut source);
    value.ok().filter(|_| source.end().is_ok())
}

/// The type of a value.
#[derive(Clone, Copy)]
enum Type<'m> {
    Message(&'m Message),
    Kind(&'m Kind),
}

/// Reader that merges a value into the earlier value of the same member.
struct Merged<'m> {
    of: Type<'m>,
    /// Whether `null` unsets the value; otherwise `null` has no effect.
    is_pointer: bool,
    before: Option<Value>,
}

impl<'de> DeserializeSeed<'de> for Merged<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        cancellation::step();
        source.deserialize_any(self)
    }
}

impl<'m> Merged<'m> {
    fn message(&self) -> Option<&'m Message> {
        match self.of {
            Type::Message(message) => Some(message),
            Type::Kind(Kind::Message(message)) => Some(message),
            Type::Kind(_) => None,
        }
    }

    /// Returns the members of the earlier value, which new members may overwrite.
    fn members(before: Option<Value>) -> MemberCollector {
        let mut members = MemberCollector::default();
        if let Some(Value::Object(before)) = before {
            for (name, value) in before.into_members() {
                members.set(name, value);
            }
        }
        members
    }
}

impl<'de> Visitor<'de> for Merged<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        let is_container = matches!(self.of, Type::Kind(Kind::List(_) | Kind::Map(_)));
        Ok(self.before.filter(|_| !self.is_pointer && !is_container).unwrap_or_default())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        RAW.visit_bool(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        RAW.visit_i64(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        RAW.visit_u64(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        RAW.visit_f64(value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        RAW.visit_str(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let Type::Kind(Kind::List(list)) = self.of else { return RAW.visit_seq(source) };
        let mut before = match self.before {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
        .into_iter();
        let mut items = Vec::new();
        loop {
            let item = Merged { of: Type::Kind(&list.item.kind), is_pointer: false, before: before.next() };
            match source.next_element_seed(item)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        if let Some(message) = self.message() {
            let mut members = Self::members(self.before);
            while let Some(name) = source.next_key::<String>()? {
                let value = match message.position(name.as_bytes()).map(|at| &message.fields[at]) {
                    Some(field) => source.next_value_seed(Merged {
                        of: Type::Kind(&field.kind),
                        is_pointer: field.pointer,
                        before: members.take(&name),
                    })?,
                    None => source.next_value_seed(RAW)?,
                };
                members.set(Key::Owned(name), value);
            }
            return Ok(members.finish().into());
        }
        let Type::Kind(Kind::Map(map)) = self.of else { return RAW.visit_map(source) };
        let mut members = Self::members(self.before);
        while let Some(name) = source.next_key::<String>()? {
            let value = Merged { of: Type::Kind(&map.value.kind), is_pointer: true, before: None };
            members.set(Key::Owned(name), source.next_value_seed(value)?);
        }
        Ok(members.finish().into())
    }
}
