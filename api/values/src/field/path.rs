//! A step of a field path in field ownership (docs/api/apply.md#field-sets).
//!
//! ```text
//! Field  .replicas                              f:replicas
//! Key    [containerPort=80,protocol="TCP"]      k:{"containerPort":80,"protocol":"TCP"}
//! Value  [="blue"]                              v:"blue"
//! Index  [3]                                    i:3
//! ```
//!
//! The order of steps is: members by name, then keyed elements key by key, then values, then indices. Texts
//! are borrowed where possible: from the schema tables, the object, or the text of a set.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Display, Write};

use super::go_quote;
use crate::json::{self, Value};

/// A step of a path into an object.
#[derive(Clone, Debug)]
pub enum Element<'t> {
    /// A member of a struct or map, by name.
    Field(Cow<'t, str>),
    /// The list element with these keys, which are sorted by name.
    Key(Vec<(Cow<'t, str>, KeyScalar<'t>)>),
    /// The element of a set with this value.
    Value(KeyScalar<'t>),
    /// The list element at this position. No schema produces such a step, but stored sets may contain it.
    Index(i64),
}

/// A value that identifies a list element.
#[derive(Clone, Debug)]
pub enum KeyScalar<'t> {
    /// A number without a fraction.
    Int(i64),
    /// Any other number, as a double.
    Float(f64),
    /// A string, borrowed if possible.
    Text(Cow<'t, str>),
    /// A boolean, `true` or `false`.
    Bool(bool),
    /// Any other JSON value. No schema produces such a value, but stored sets may contain it.
    Other(Box<Value>),
}

impl<'t> Element<'t> {
    /// Returns the step to the member called `name`.
    pub fn field(name: impl Into<Cow<'t, str>>) -> Self {
        Element::Field(name.into())
    }

    /// Converts the step to a step that owns its texts.
    pub fn into_owned(self) -> Element<'static> {
        match self {
            Element::Field(name) => Element::Field(Cow::Owned(name.into_owned())),
            Element::Key(keys) => Element::Key(
                keys.into_iter()
                    .map(|(name, value)| (Cow::Owned(name.into_owned()), value.into_owned()))
                    .collect(),
            ),
            Element::Value(value) => Element::Value(value.into_owned()),
            Element::Index(at) => Element::Index(at),
        }
    }
}

impl<'t> KeyScalar<'t> {
    /// Creates the scalar of `value` and borrows its text.
    pub fn from_ref(value: &'t Value) -> Self {
        match value {
            Value::Int(n) => KeyScalar::Int(*n),
            Value::Float(n) => KeyScalar::Float(*n),
            Value::String(text) => KeyScalar::Text(Cow::Borrowed(text)),
            Value::Bool(value) => KeyScalar::Bool(*value),
            other => KeyScalar::Other(Box::new(other.clone())),
        }
    }

    /// Creates the scalar of `value` and takes over its text.
    pub(super) fn from_value(value: Value) -> Self {
        match value {
            Value::Int(n) => KeyScalar::Int(n),
            Value::Float(n) => KeyScalar::Float(n),
            Value::String(text) => KeyScalar::Text(Cow::Owned(text)),
            Value::Bool(value) => KeyScalar::Bool(value),
            other => KeyScalar::Other(Box::new(other)),
        }
    }

    fn into_owned(self) -> KeyScalar<'static> {
        match self {
            KeyScalar::Int(n) => KeyScalar::Int(n),
            KeyScalar::Float(n) => KeyScalar::Float(n),
            KeyScalar::Text(text) => KeyScalar::Text(Cow::Owned(text.into_owned())),
            KeyScalar::Bool(value) => KeyScalar::Bool(value),
            KeyScalar::Other(value) => KeyScalar::Other(value),
        }
    }

    /// Appends the value as JSON.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            KeyScalar::Int(n) => json::write(&Value::Int(*n), out),
            KeyScalar::Float(n) => json::write(&Value::Float(*n), out),
            KeyScalar::Text(text) => json::write_string(text, out),
            KeyScalar::Bool(value) => json::write(&Value::Bool(*value), out),
            KeyScalar::Other(value) => json::write(value, out),
        }
    }

    /// Returns the rank in the order of types: numbers, strings, booleans, other values.
    fn rank(&self) -> u8 {
        match self {
            KeyScalar::Int(_) | KeyScalar::Float(_) => 0,
            KeyScalar::Text(_) => 1,
            KeyScalar::Bool(_) => 2,
            KeyScalar::Other(_) => 3,
        }
    }
}

impl Ord for KeyScalar<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (KeyScalar::Int(a), KeyScalar::Int(b)) => a.cmp(b),
            (KeyScalar::Int(a), KeyScalar::Float(b)) => (*a as f64).total_cmp(b),
            (KeyScalar::Float(a), KeyScalar::Int(b)) => a.total_cmp(&(*b as f64)),
            (KeyScalar::Float(a), KeyScalar::Float(b)) => a.total_cmp(b),
            (KeyScalar::Text(a), KeyScalar::Text(b)) => a.cmp(b),
            (KeyScalar::Bool(a), KeyScalar::Bool(b)) => a.cmp(b),
            (KeyScalar::Other(_), KeyScalar::Other(_)) => text_of(self).cmp(&text_of(other)),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

fn text_of(scalar: &KeyScalar<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    scalar.write(&mut out);
    out
}

impl Ord for Element<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        fn rank(element: &Element<'_>) -> u8 {
            match element {
                Element::Field(_) => 0,
                Element::Key(_) => 1,
                Element::Value(_) => 2,
                Element::Index(_) => 3,
            }
        }
        match (self, other) {
            // Fast path: a literal of a schema table is often compared with itself.
            (Element::Field(a), Element::Field(b)) if std::ptr::eq::<str>(&**a, &**b) => Ordering::Equal,
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => a.cmp(b),
            (Element::Value(a), Element::Value(b)) => a.cmp(b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

macro_rules! equality_by_order {
    ($($name:ident)*) => {$(
        impl PartialOrd for $name<'_> {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl Eq for $name<'_> {}
    )*};
}

equality_by_order! { KeyScalar Element }

impl Display for KeyScalar<'_> {
    /// Formats the value as in conflict messages: strings are quoted, all other values are JSON.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            KeyScalar::Text(text) => f.write_str(&go_quote(text)),
            other => f.write_str(&String::from_utf8_lossy(&text_of(other))),
        }
    }
}

impl Display for Element<'_> {
    /// Formats the step as `.name`, `[key=value,…]`, `[=value]` or `[3]`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                f.write_char('[')?;
                for (at, (name, value)) in keys.iter().enumerate() {
                    let comma = if at > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={value}")?;
                }
                f.write_char(']')
            }
            Element::Value(value) => write!(f, "[={value}]"),
            Element::Index(at) => write!(f, "[{at}]"),
        }
    }
}

/// Formats a path as in conflict messages: `.spec.containers[name="web"].image`.
pub fn display(path: &[&Element<'_>]) -> String {
    path.iter().fold(String::new(), |mut text, element| {
        write!(text, "{element}").expect("writing to memory cannot fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_elements_are_ordered_and_printed_as_documented() {
        let key = |pairs: &[(&'static str, KeyScalar<'static>)]| {
            Element::Key(pairs.iter().map(|(name, value)| (Cow::Borrowed(*name), value.clone())).collect())
        };
        let text = |text: &'static str| KeyScalar::Text(Cow::Borrowed(text));
        let ascending = [
            (Element::field("A"), ".A"),
            (Element::field("a"), ".a"),
            (Element::field("b.c"), ".b.c"),
            (key(&[("name", text("a"))]), r#"[name="a"]"#),
            (key(&[("port", KeyScalar::Int(9)), ("protocol", text("TCP"))]), r#"[port=9,protocol="TCP"]"#),
            (key(&[("port", KeyScalar::Int(10)), ("protocol", text("TCP"))]), r#"[port=10,protocol="TCP"]"#),
            (key(&[("port", KeyScalar::Int(10)), ("protocol", text("UDP"))]), r#"[port=10,protocol="UDP"]"#),
            (Element::Value(KeyScalar::Float(-0.5)), "[=-0.5]"),
            (Element::Value(KeyScalar::Int(2)), "[=2]"),
            (Element::Value(text("2")), r#"[="2"]"#),
            (Element::Value(KeyScalar::Bool(false)), "[=false]"),
            (Element::Value(KeyScalar::Other(Box::new(Value::Null))), "[=null]"),
            (Element::Index(2), "[2]"),
            (Element::Index(10), "[10]"),
        ];
        for (at, (a, shown)) in ascending.iter().enumerate() {
            assert_eq!(a.to_string(), *shown);
            for (other, (b, _)) in ascending.iter().enumerate() {
                assert_eq!(a.cmp(b), at.cmp(&other), "{a} and {b}");
            }
        }
        assert_eq!(KeyScalar::Int(2), KeyScalar::Float(2.0));
    }
}
