//! The tree form of a JSON document, used where a write must look inside an object.
//!
//! Reads never build one: they move stored bytes. An object is a vector of members in the order in which
//! they will be written, because members are few, order matters on the wire, and a vector of pairs costs one
//! allocation where a map costs many. Keys that a schema knows are borrowed from its static tables.
//!
//! `text → parse → Value → write → text`. Renditions of stored text, of which there are many and which must be fast, go
//! over the text itself (`scan`). This module knows JSON only: no schemas, no kinds.

mod indent;
pub mod names;
mod parse;
pub mod scan;
mod write;

use std::borrow::Cow;

pub use indent::Indenter;
pub use parse::{DEPTH_MAX, MemberCollector, ParseError, Tree, parse, parse_reporting_duplicates};
pub use write::{write, write_escaped, write_pretty, write_string};

/// A member name: borrowed from the schema tables where the schema declares it, owned otherwise.
pub type Key = Cow<'static, str>;

/// One JSON value. Integers that fit an `i64` stay exact; every other number is a double, as the reference
/// server reads them.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without fraction or exponent that fits 64 bits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

/// Members in writing order; a name occurs at most once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object(Vec<(Key, Value)>);

impl Value {
    /// The string, if this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// The integer, if this is one.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// The boolean, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The elements, if this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The elements for change, if this is an array.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The members, if this is an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// The members for change, if this is an object.
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The member `name`, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object().and_then(|members| members.get(name))
    }

    /// Follows member names from here; `None` where one is missing.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, name| value.get(name))
    }

    /// The string at `path`, or the empty string.
    pub fn str_at(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or("")
    }
}

impl Object {
    /// An object without members.
    pub const fn new() -> Self {
        Object(Vec::new())
    }

    /// An object with room for `members`.
    pub fn with_capacity(members: usize) -> Self {
        Object(Vec::with_capacity(members))
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The member `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The member `name`, for change.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Whether there is a member `name`.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Sets member `name`, in its old place if it was there and at the end otherwise; returns the old value.
    pub fn insert(&mut self, name: impl Into<Key>, value: Value) -> Option<Value> {
        let name = name.into();
        match self.get_mut(&name) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.0.push((name, value));
                None
            }
        }
    }

    /// Appends a member that is known to be absent, without looking for it.
    pub fn push(&mut self, name: impl Into<Key>, value: Value) {
        let name = name.into();
        debug_assert!(!self.contains(&name), "member {name} is there already");
        self.0.push((name, value));
    }

    /// Removes member `name` and returns its value; the others keep their order.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// The member `name`, set to `null` first if it is absent.
    pub fn entry(&mut self, name: impl Into<Key>) -> &mut Value {
        let name = name.into();
        let at = match self.0.iter().position(|(key, _)| *key == name) {
            Some(at) => at,
            None => {
                self.0.push((name, Value::Null));
                self.0.len() - 1
            }
        };
        &mut self.0[at].1
    }

    /// The object at member `name`, made (or made anew from anything that is no object) when need be.
    pub fn object_entry(&mut self, name: impl Into<Key>) -> &mut Object {
        let slot = self.entry(name);
        if !matches!(slot, Value::Object(_)) {
            *slot = Value::Object(Object::new());
        }
        match slot {
            Value::Object(members) => members,
            _ => unreachable!("made an object just now"),
        }
    }

    /// The members in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value))
    }

    /// The members in order, values for change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Value)> {
        self.0.iter_mut().map(|member| (&*member.0, &mut member.1))
    }

    /// Keeps the members for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    /// The members in order, with their names as they are kept.
    pub fn members(&self) -> &[(Key, Value)] {
        &self.0
    }

    /// The members as their vector, for those who reorder or sort them.
    pub fn members_mut(&mut self) -> &mut Vec<(Key, Value)> {
        &mut self.0
    }

    /// The members, taken out.
    pub fn into_members(self) -> Vec<(Key, Value)> {
        self.0
    }
}

impl FromIterator<(Key, Value)> for Object {
    /// Collects members; the caller sees to it that no name comes twice.
    fn from_iter<T: IntoIterator<Item = (Key, Value)>>(members: T) -> Self {
        Object(members.into_iter().collect())
    }
}

impl From<Object> for Value {
    fn from(members: Object) -> Self {
        Value::Object(members)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}
