//! JSON documents as trees, for code that must look inside an object.
//!
//! Reads build no tree; they copy stored bytes. `object` explains how members are held.
//!
//! `text → parse → Value → write → text`. Representations of stored text are made from the text itself with `scan`;
//! ordinary text is read into typed values with `compact`. This module knows JSON only: no schemas, no kinds.

pub mod compact;
mod exact;
mod indent;
mod members;
pub mod names;
mod number;
mod object;
mod parse;
mod repair;
pub mod scan;
mod shown;
mod structures;
mod write;

pub use exact::{parse_exact, parse_exact_reporting_duplicates};
pub use go::json::syntax_error;
pub use indent::Indenter;
pub use number::plain_number;
#[cfg(any(test, feature = "testing"))]
pub use object::sharing;
pub use object::{Key, Object, ReadMembers};
pub use parse::{DEPTH_MAX, MemberCollector, ParseError, Tree, parse, parse_reporting_duplicates};
pub use repair::repaired;
pub use shown::go_print;
pub use structures::structures_in;
pub use write::{write, write_escaped, write_items, write_members, write_pretty, write_sorted, write_string};

/// One JSON value. Integers that fit an `i64` stay exact; every other number is a double, as the reference
/// server reads them, unless its words are asked for.
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
    /// A number in its own words, which neither of the two above would keep. Only [`parse_exact`] and its siblings make
    /// such numbers, and only reading by a schema takes them: quantities keep the words, all other kinds the number.
    Number(Box<str>),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

impl Value {
    /// Whether the values are equal but for the order of the members of objects.
    pub fn is_same_in_any_order(&self, other: &Value) -> bool {
        super::cancellation::step();
        match (self, other) {
            (Value::Object(own), Value::Object(others)) => {
                own.is_one_with(others) || own.has_same_members(others)
            }
            (Value::Array(own), Value::Array(others)) => {
                own.len() == others.len() && own.iter().zip(others).all(|(a, b)| a.is_same_in_any_order(b))
            }
            _ => self == other,
        }
    }

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

    /// Objects and arrays in this value, itself included; those that are settled do not count.
    #[inline] // most values are neither, and are not worth a call
    pub fn structures(&self) -> usize {
        match self {
            Value::Array(items) => 1 + items.iter().map(Value::structures).sum::<usize>(),
            Value::Object(object) if object.is_settled() => 0,
            Value::Object(object) => object.structures(),
            _ => 0,
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

    /// Sorts the members of this object and of all below it by name.
    pub fn sort_names(&mut self) {
        match self {
            Value::Object(object) => {
                let members = object.members_mut();
                members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                members.iter_mut().for_each(|(_, value)| value.sort_names());
            }
            Value::Array(items) => items.iter_mut().for_each(Value::sort_names),
            _ => {}
        }
    }

    /// Makes doubles of the numbers in their own words; those that are too large for one become infinite.
    pub fn round_numbers(&mut self) {
        match self {
            Value::Number(words) => *self = Value::Float(words.parse().unwrap_or(f64::INFINITY)),
            Value::Array(items) => items.iter_mut().for_each(Value::round_numbers),
            Value::Object(object) => {
                object.members_mut().iter_mut().for_each(|(_, value)| value.round_numbers())
            }
            _ => {}
        }
    }

    /// The string at `path`, or the empty string.
    pub fn str_at(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or("")
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

/// A list of texts.
impl From<&[String]> for Value {
    fn from(texts: &[String]) -> Self {
        Value::Array(texts.iter().map(|text| text.as_str().into()).collect())
    }
}

impl From<Key> for Value {
    fn from(text: Key) -> Self {
        Value::String(text.into_owned())
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
