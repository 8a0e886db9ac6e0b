//! Which parts of an object a table needs, and the reader that builds a tree of exactly those.
//!
//! ```text
//! metadata{name,creationTimestamp},spec.containers?,status{phase,conditions{type,status}}
//! ```
//!
//! A *selection* is a comma-separated list of dotted paths; braces group what follows a common path, lists are
//! transparent (a selection below a list holds for each element), and `?` at the end asks for the shape only: whether
//! it is there and how many elements or members it has. Everything not selected is skipped by the tokenizer
//! without an allocation, which is what makes a table row cost a fraction of parsing the object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::json::{Key, Object, ParseError, Value};

/// What is wanted of one value and of what is below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// All of it.
    whole: bool,
    /// How many members or elements there are.
    shape: bool,
    /// These members (of each element, for a list).
    members: Vec<(Key, Reads)>,
}

impl Reads {
    /// Adds a selection written in the module's notation. Selections are part of the program, so a malformed one
    /// is read as far as it goes instead of being an error; the tests of the helpers would show it.
    pub fn select(&mut self, selection: &'static str) {
        let mut rest = selection;
        self.select_group(&mut rest);
    }

    fn select_group(&mut self, rest: &mut &'static str) {
        loop {
            let mut node = &mut *self;
            loop {
                let end = rest.find(['.', ',', '{', '}', '?']).unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                *rest = after;
                if !name.is_empty() {
                    node = node.member(Key::Borrowed(name));
                }
                match after.as_bytes().first() {
                    Some(b'.') => *rest = &after[1..],
                    Some(b'{') => {
                        *rest = &after[1..];
                        node.select_group(rest);
                        break;
                    }
                    Some(b'?') => {
                        *rest = &after[1..];
                        node.shape = true;
                        break;
                    }
                    _ => {
                        node.whole = true;
                        break;
                    }
                }
            }
            match rest.as_bytes().first() {
                Some(b',') => *rest = &rest[1..],
                Some(b'}') => {
                    *rest = &rest[1..];
                    return;
                }
                _ => return,
            }
        }
    }

    /// Adds one path; of its end only the shape when `shape` says so.
    pub fn path<'k>(&mut self, names: impl IntoIterator<Item = &'k str>, shape: bool) {
        let node = names.into_iter().fold(self, |node, name| node.member(Key::Owned(name.to_owned())));
        if shape {
            node.shape = true;
        } else {
            node.whole = true;
        }
    }

    fn member(&mut self, name: Key) -> &mut Reads {
        let at = match self.members.iter().position(|(key, _)| *key == name) {
            Some(at) => at,
            None => {
                self.members.push((name, Reads::default()));
                self.members.len() - 1
            }
        };
        &mut self.members[at].1
    }

    /// The selected parts of the object in `stored`. Members that only count towards a shape have empty names and
    /// null values; scalars that nobody asked for are null.
    ///
    /// # Errors
    /// `stored` is not one JSON document.
    pub fn read(&self, stored: &[u8]) -> Result<Value, ParseError> {
        let mut source = serde_json::Deserializer::from_slice(stored);
        let value = self.deserialize(&mut source)?;
        source.end()?;
        Ok(value)
    }

    /// What is wanted of a list's elements: its shape says nothing about them.
    fn element_is_skipped(&self) -> bool {
        !self.whole && self.members.is_empty()
    }
}

impl<'de> DeserializeSeed<'de> for &Reads {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Reads {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        // A string where only a shape or members are wanted could be a megabyte that nobody looks at.
        Ok(if self.whole { Value::String(value.to_owned()) } else { Value::Null })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        if self.element_is_skipped() {
            while source.next_element::<IgnoredAny>()?.is_some() {
                items.push(Value::Null);
            }
        } else {
            while let Some(item) = source.next_element_seed(self)? {
                items.push(item);
            }
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        if self.whole {
            let mut members = Vec::new();
            while let Some(name) = source.next_key::<String>()? {
                members.push((Key::Owned(name), source.next_value_seed(self)?));
            }
            return Ok(Value::Object(members.into_iter().collect()));
        }
        let mut members = Vec::with_capacity(self.members.len());
        while let Some(found) = source.next_key_seed(Name(&self.members))? {
            match found {
                Some((name, below)) => members.push((name.clone(), source.next_value_seed(below)?)),
                None => {
                    source.next_value::<IgnoredAny>()?;
                    if self.shape {
                        members.push((Key::Borrowed(""), Value::Null));
                    }
                }
            }
        }
        Ok(Value::Object(members.into_iter().collect::<Object>()))
    }
}

/// Looks a member name up among the wanted ones without copying it.
struct Name<'r>(&'r [(Key, Reads)]);

impl<'de, 'r> DeserializeSeed<'de> for Name<'r> {
    type Value = Option<(&'r Key, &'r Reads)>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Self::Value, D::Error> {
        source.deserialize_str(self)
    }
}

impl<'de, 'r> Visitor<'de> for Name<'r> {
    type Value = Option<(&'r Key, &'r Reads)>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(key, _)| key == name).map(|(key, below)| (key, below)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn only_what_is_selected_is_read() {
        let text =
            br#"{"a":{"b":1,"c":[{"x":"y","z":2},{"z":3}]},"d":{"e":"long","f":{}},"g":[1,2,3],"h":"s"}"#;
        for (selection, want) in [
            ("a.b", r#"{"a":{"b":1}}"#),
            ("a{b,c.z},h", r#"{"a":{"b":1,"c":[{"z":2},{"z":3}]},"h":"s"}"#),
            ("d?", r#"{"d":{"":null,"":null}}"#),
            ("d{e?},g?", r#"{"d":{"e":null},"g":[null,null,null]}"#),
            ("a{c{x},b?},q", r#"{"a":{"b":1,"c":[{"x":"y"},{}]}}"#),
            ("a.c,d.f", r#"{"a":{"c":[{"x":"y","z":2},{"z":3}]},"d":{"f":{}}}"#),
        ] {
            let mut reads = Reads::default();
            reads.select(selection);
            let mut out = Vec::new();
            json::write(&reads.read(text).unwrap(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{selection}");
        }
    }

    #[test]
    fn selections_of_several_cells_add_up() {
        let mut reads = Reads::default();
        reads.select("a.b");
        reads.path(["a", "x.y/z"], false);
        reads.path(["n"], true);
        let mut same = Reads::default();
        same.select("a{b},n?");
        same.path(["a", "x.y/z"], false);
        assert_eq!(reads, same);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let mut reads = Reads::default();
        reads.select("a");
        for text in ["", "{\"a\":", "{\"a\":1}x", "{\"b\":[1,]}"] {
            assert!(reads.read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
