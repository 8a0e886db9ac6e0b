//! Parsing of text to trees, with the tokenizer of serde_json.
//!
//! If several members have the same name, the last one wins, as in the reference server. Strict parsing also
//! reports the repeated names. serde_json limits the depth, so hostile nesting is an error and not a stack
//! overflow.

use std::cell::{Cell, RefCell};
use std::fmt;

use hashbrown::HashMap;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::number_words::{self, Words};
use super::{Key, Object, Value, repaired, syntax_error};
use crate::cancellation;

/// Maximum nesting that is accepted, which is the limit of serde_json.
pub const DEPTH_MAX: usize = 128;

/// Maximum number of duplicate members that are reported for one document
/// (docs/api/encodings.md#strict-decoding).
const REPORTED_MAX: usize = 100;

/// Reason why a text is not a JSON document.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    /// Creates the error that explains why serde_json rejected `text`.
    pub fn from_serde(text: &[u8], error: &serde_json::Error) -> Self {
        let out_of_range = || {
            let word = number_words::out_of_range(text).filter(|_| error.is_syntax())?;
            Some(go::json::unfit(&format!("number {word}"), "float64"))
        };
        ParseError(syntax_error(text).or_else(out_of_range).unwrap_or_else(|| error.to_string()))
    }
}

/// Parses one JSON document. Trailing white space is allowed; anything else after the document is an error.
/// Strings that are not valid Unicode are repaired.
pub fn parse(text: &[u8]) -> Result<Value, ParseError> {
    read(text, None)
}

/// Parses one JSON document and also returns the paths (`spec.containers[0].name`) of members that occur more
/// than once.
pub fn parse_reporting_duplicates(text: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    let watch = Duplicates::default();
    let value = read(text, Some(&watch))?;
    Ok((value, watch.into_found()))
}

fn read(text: &[u8], watch: Option<&Duplicates>) -> Result<Value, ParseError> {
    let tree = Tree { watch, ..Tree::with_floats(Value::Float) };
    read_unicode(text, tree).or_else(|error| match repaired(text) {
        Some(text) => read_unicode(&text, tree),
        None => Err(error),
    })
}

/// Parses like [`read`], but keeps numbers as text. `words` are the numbers of `text`.
pub(super) fn read_words(
    text: &[u8],
    words: &Words<'_>,
    watch: Option<&Duplicates>,
) -> Result<Value, ParseError> {
    let tree = Tree { watch, words: Some(words), ..Tree::with_floats(Value::Float) };
    let readable = words.readable.as_deref().unwrap_or(text);
    read_unicode(readable, tree).or_else(|error| match repaired(readable) {
        Some(text) => {
            words.rewind();
            read_unicode(&text, tree)
        }
        None => Err(error),
    })
}

fn read_unicode(text: &[u8], tree: Tree<'_>) -> Result<Value, ParseError> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let value = tree.deserialize(&mut source);
    let value = value.and_then(|value| source.end().map(|()| value));
    value.map_err(|error| ParseError::from_serde(text, &error))
}

/// Collector of the paths of duplicate members during parsing.
#[derive(Default)]
pub(super) struct Duplicates {
    path: RefCell<String>,
    found: RefCell<Vec<String>>,
}

impl Duplicates {
    /// Returns the paths that were found, in document order.
    pub(super) fn into_found(self) -> Vec<String> {
        self.found.into_inner()
    }

    fn report(&self, name: &str) {
        let path = self.path.borrow();
        let full = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let mut found = self.found.borrow_mut();
        if found.len() < REPORTED_MAX && !found.contains(&full) {
            found.push(full);
        }
    }

    /// Runs `inner` with the path extended by `step`.
    fn within<T>(&self, step: &str, inner: impl FnOnce() -> T) -> T {
        let before = self.path.borrow().len();
        {
            let mut path = self.path.borrow_mut();
            if before > 0 && !step.starts_with('[') {
                path.push('.');
            }
            path.push_str(step);
        }
        let result = inner();
        self.path.borrow_mut().truncate(before);
        result
    }
}

/// Collector of the members of one object. If a name occurs several times, the last value wins.
///
/// Lookups scan the names while there are few, and use a hash table once there are many, so that the cost of
/// a hostile object with a hundred thousand members is linear in its size.
#[derive(Default)]
pub struct MemberCollector {
    members: Vec<(Key, Value)>,
    by_name: Option<HashMap<Key, usize>>,
}

/// Number of members at which lookups begin to use the hash table.
const SCAN_MAX: usize = 32;

impl MemberCollector {
    /// Returns the position of the member `name`, if it was set.
    pub fn find(&self, name: &str) -> Option<usize> {
        match &self.by_name {
            Some(by_name) => by_name.get(name).copied(),
            None => self.members.iter().position(|(key, _)| key == name),
        }
    }

    /// Takes the value of the member `name` and leaves `null` at its position.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.find(name).map(|at| std::mem::take(&mut self.members[at].1))
    }

    /// Sets the member `name`, at its first position if it was set before. Returns whether the member was
    /// set before.
    pub fn set(&mut self, name: Key, value: Value) -> bool {
        if let Some(at) = self.find(&name) {
            self.members[at].1 = value;
            return true;
        }
        if let Some(by_name) = &mut self.by_name {
            by_name.insert(name.clone(), self.members.len());
        } else if self.members.len() == SCAN_MAX {
            let names = self.members.iter().map(|(key, _)| key).chain([&name]);
            self.by_name = Some(names.cloned().enumerate().map(|(at, key)| (key, at)).collect());
        }
        self.members.push((name, value));
        false
    }

    /// Returns the names that were set, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(name, _)| &**name)
    }

    /// Returns the collected members as an object.
    pub fn finish(self) -> Object {
        self.members.into_iter().collect()
    }
}

/// Deserializer of any value to a tree, which can also be used inside a larger deserialization.
#[derive(Clone, Copy)]
pub struct Tree<'w> {
    watch: Option<&'w Duplicates>,
    /// Original texts of the numbers; `None` if numbers are not kept as text.
    words: Option<&'w Words<'w>>,
    /// A flag that is set if an object has two members of the same name.
    repeated: Option<&'w Cell<bool>>,
    float: fn(f64) -> Value,
}

impl Tree<'static> {
    /// Creates a deserializer that converts numbers with a fraction or an exponent with `float`.
    pub const fn with_floats(float: fn(f64) -> Value) -> Self {
        Tree { watch: None, words: None, repeated: None, float }
    }
}

impl<'w> Tree<'w> {
    /// Returns this deserializer, changed so that it sets `repeated` if an object has two members of the same
    /// name.
    pub fn noting_repeated(self, repeated: &'w Cell<bool>) -> Self {
        Tree { repeated: Some(repeated), ..self }
    }

    fn number(&self, read: Value) -> Value {
        match self.words {
            Some(words) => words.next(read),
            None => read,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        cancellation::step();
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
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
        Ok(self.number(Value::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(self.number(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(self.number((self.float)(value)))
    }

    /// Receives a number as text. Only deserializers over trees pass numbers this way.
    fn visit_bytes<E: serde::de::Error>(self, words: &[u8]) -> Result<Value, E> {
        let words = String::from_utf8_lossy(words);
        match words.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok((self.float)(number)),
            _ => Err(E::custom(go::json::unfit(&format!("number {words}"), "float64"))),
        }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let next = match self.watch {
                Some(watch) => {
                    watch.within(&format!("[{}]", items.len()), || source.next_element_seed(self))?
                }
                None => source.next_element_seed(self)?,
            };
            match next {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut members = MemberCollector::default();
        while let Some(name) = source.next_key::<String>()? {
            let value = match self.watch {
                Some(watch) => {
                    if members.find(&name).is_some() {
                        watch.report(&name);
                    }
                    watch.within(&name, || source.next_value_seed(self))?
                }
                None => source.next_value_seed(self)?,
            };
            if members.set(Key::Owned(name), value)
                && let Some(repeated) = self.repeated
            {
                repeated.set(true);
            }
        }
        Ok(Value::Object(members.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    fn round(text: &str) -> String {
        let mut out = Vec::new();
        write(&parse(text.as_bytes()).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn documents_survive_reading_and_writing() {
        for (text, same) in [
            ("null", "null"),
            (" [1, -2, 3.5, 1e3, true] ", "[1,-2,3.5,1000,true]"),
            (r#"{"b":1,"a":{"c":[]}}"#, r#"{"b":1,"a":{"c":[]}}"#),
            (r#""<&>\u2028\n""#, r#""\u003c\u0026\u003e\u2028\n""#),
            ("18446744073709551615", "18446744073709552000"),
            // The parser must choose the nearest double. Otherwise numbers would change each time they are
            // read and written.
            ("1.7976931348623157416294033786585", "1.7976931348623157"),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"["\ud800"]"#, "[\"\u{fffd}\"]"),
        ] {
            assert_eq!(round(text), same, "{text}");
        }
    }

    #[test]
    fn duplicate_members_are_named_by_path() {
        let text = br#"{"spec":{"a":1,"a":2,"l":[{"x":1},{"y":1,"y":2}]},"spec":{}}"#;
        let (_, found) = parse_reporting_duplicates(text).unwrap();
        assert_eq!(found, ["spec.a", "spec.l[1].y", "spec"]);
    }

    #[test]
    fn an_object_of_many_members_keeps_the_last_of_equal_names_at_the_first_position() {
        let text: Vec<String> = (0..300).map(|n| format!("\"k{}\":{n}", n % 100)).collect();
        let value = parse(format!("{{{}}}", text.join(",")).as_bytes()).unwrap();
        let members = value.as_object().unwrap();
        assert_eq!(members.len(), 100);
        assert_eq!(members.iter().nth(7), Some(("k7", &Value::Int(207))));
    }

    #[test]
    fn bad_documents_are_errors_and_never_panics() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let large = parse(br#"{"a":[1,1e400]}"#).unwrap_err().to_string();
        assert_eq!(large, "json: cannot unmarshal number 1e400 into Go value of type float64");
        for text in ["", "{", "[1,]", "nul", "1 2", "\"\\x\"", "{\"a\"}", deep.as_str()] {
            assert!(parse(text.as_bytes()).is_err(), "{text:.20}");
        }
        // Invalid Unicode is replaced, as in Go's `encoding/json`.
        assert_eq!(parse(b"\"\xff\"").unwrap(), "\u{fffd}".into());
        assert_eq!(parse(b"\"\\ud800\"").unwrap(), "\u{fffd}".into());
    }
}
