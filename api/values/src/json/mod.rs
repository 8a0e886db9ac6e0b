//! JSON documents as trees, for code that must look inside an object.
//!
//! Reads of objects build no tree; they copy stored bytes. `object` explains how members are stored in
//! memory.
//!
//! `text → parse → Value → write → text`. Other representations of an object are rendered from its stored
//! text with `scan`. Ordinary text is read into typed values with `compact`. This module does not depend on
//! schemas or kinds.

pub mod compact;
mod exact;
mod go_format;
mod indent;
mod key;
mod members;
pub mod names;
mod number;
mod number_words;
mod object;
mod parse;
mod repair;
pub mod scan;
mod structures;
mod write;

pub use exact::{parse_exact, parse_exact_reporting_duplicates};
pub use go::json::syntax_error;
pub use go_format::go_print;
pub use indent::Indenter;
pub use key::Key;
pub use number::plain_number;
#[cfg(any(test, feature = "testing"))]
pub use object::sharing;
pub use object::{Object, ReadMembers};
pub use parse::{DEPTH_MAX, MemberCollector, ParseError, Tree, parse, parse_reporting_duplicates};
pub use repair::repaired;
pub use structures::structures_in;
pub use write::{write, write_escaped, write_items, write_members, write_pretty, write_sorted, write_string};

/// A JSON value. Integers that fit into an `i64` stay exact. Every other number is a double, as in the
/// reference server, unless the caller requests its original text.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// The JSON value `null`.
    #[default]
    Null,
    /// A boolean, `true` or `false`.
    Bool(bool),
    /// A number without fraction or exponent that fits into 64 bits.
    Int(i64),
    /// Any other number, as a double.
    Float(f64),
    /// The original text of a number that is not a 64-bit integer. Only [`parse_exact`],
    /// [`parse_exact_reporting_duplicates`] and the YAML parser create this variant. Decoding by a schema
    /// keeps the text in quantities; all other types keep only the numeric value.
    Number(Box<str>),
    /// A string without its escapes.
    String(String),
    /// An array of values.
    Array(Vec<Value>),
    /// An object with its members.
    Object(Object),
}

/// Sorts members by name. Members with the same name keep their order.
pub fn sort_members(members: &mut [(Key, Value)]) {
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
}

impl Value {
    /// Returns whether the values are equal if the order of members is ignored.
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

    /// Returns the string; `None` for any other value.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    /// Returns the integer; `None` for any other value.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Returns the boolean; `None` for any other value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// Returns the elements of an array; `None` for any other value.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the elements of an array for modification; `None` for any other value.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the members of an object; `None` for any other value.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the members of an object for modification; `None` for any other value.
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(members) => Some(members),
            _ => None,
        }
    }

    /// Counts the objects and arrays in this value, including the value itself. Settled objects do not count.
    #[inline] // most values are scalars, for which a call costs too much
    pub fn structures(&self) -> usize {
        match self {
            Value::Array(items) => 1 + items.iter().map(Value::structures).sum::<usize>(),
            Value::Object(object) if object.is_settled() => 0,
            Value::Object(object) => object.structures(),
            _ => 0,
        }
    }

    /// Returns whether the value is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns the member `name`; `None` if this is not an object, or if the object lacks the member.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object().and_then(|members| members.get(name))
    }

    /// Follows member names from this value; `None` if a member is missing.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, name| value.get(name))
    }

    /// Sorts the members of this object and of all objects below it by name.
    pub fn sort_names(&mut self) {
        match self {
            Value::Object(object) => {
                let members = object.members_mut();
                sort_members(members);
                members.iter_mut().for_each(|(_, value)| value.sort_names());
            }
            Value::Array(items) => items.iter_mut().for_each(Value::sort_names),
            _ => {}
        }
    }

    /// Converts numbers that are kept as text to doubles. A number beyond the range of a double becomes
    /// infinite.
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

    /// Returns the string at `path`, or the empty string.
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

/// Creates an array of strings.
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
