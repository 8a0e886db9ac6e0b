//! The tree of a configuration, read from JSON as programs write it, with the names that the schema knows borrowed from
//! the schema.
//!
//! ```text
//! compact JSON ──Scan──► members by their types ─► tree, as it was given: nothing is completed, left out or judged
//!      └── anything unusual ─► None: whoever reads all of JSON or YAML has the words for it
//! ```
//!
//! Unusual are blanks between tokens, control characters, names that come twice or that no type declares, escapes in
//! names of fields, numbers that are no 64-bit integers, and deep nesting.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::typed::Type;
use crate::json::scan::{Scan, Text};
use crate::json::{Key, Object, Value};
use crate::schema::table::Message;

/// Deepest nesting that is usual. Objects of built-in types, but for schemas, stay below thirty.
const DEPTH_MAX: usize = 64;

/// The tree of `text`, an object of type `message`, as [`json::parse`](crate::json::parse) reads it; `None` for anything
/// unusual.
pub fn read(message: &'static Message, text: &[u8]) -> Option<Object> {
    let text = text.trim_ascii_end();
    let control_characters = text.iter().filter(|byte| **byte < b' ').count();
    let text = std::str::from_utf8(text).ok().filter(|_| control_characters == 0)?;
    let mut reader = Reader { text, scan: Scan::new(text.as_bytes()), depth: 0 };
    let object = reader.fields(message)?;
    reader.scan.is_at_end().then_some(object)
}

struct Reader<'t> {
    text: &'t str,
    scan: Scan<'t>,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn enter(&mut self, bracket: u8) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEPTH_MAX && self.scan.take(bracket)).then_some(())
    }

    fn leave(&mut self, bracket: u8) -> Option<()> {
        self.depth -= 1;
        self.scan.take(bracket).then_some(())
    }

    /// Passes over the comma after a member or element; `false` at the end of them.
    fn more(&mut self, end: u8) -> Option<bool> {
        let is_more = self.scan.more(end)?;
        (!is_more || self.scan.peek() != end).then_some(is_more)
    }

    /// The text between the quotes of the string that was passed over just now.
    fn meant(&self, string: Text<'t>) -> Option<Cow<'t, str>> {
        if string.is_escaped {
            return String::from_utf8(string.unescaped()?.into_owned()).ok().map(Cow::Owned);
        }
        let end = self.scan.position() - 1;
        self.text.get(end - string.raw.len()..end).map(Cow::Borrowed)
    }

    /// The members of a struct.
    fn fields(&mut self, message: &'static Message) -> Option<Object> {
        self.enter(b'{')?;
        let mut members: Vec<(Key, Value)> = Vec::new();
        let mut seen: SmallVec<[u64; 2]> = SmallVec::from_elem(0, message.fields.len().div_ceil(64));
        if self.scan.peek() != b'}' {
            members.reserve(8);
            loop {
                let name = self.scan.string().filter(|name| !name.is_escaped)?;
                let at = usize::from(message.position(name.raw)?);
                let (word, bit) = (at / 64, 1 << (at % 64));
                if !self.scan.take(b':') || seen[word] & bit != 0 {
                    return None;
                }
                seen[word] |= bit;
                let field = &message.fields[at];
                members.push((Key::Borrowed(field.name), self.value(Type::of_field(field))?));
                if !self.more(b'}')? {
                    break;
                }
            }
        }
        self.leave(b'}')?;
        Some(members.into_iter().collect())
    }

    /// The members of a map.
    fn members(&mut self, of: Type) -> Option<Object> {
        self.enter(b'{')?;
        let mut members: Vec<(Key, Value)> = Vec::new();
        let mut is_ascending = true;
        if self.scan.peek() != b'}' {
            loop {
                let name = self.scan.string()?;
                let name = self.meant(name)?;
                self.scan.take(b':').then_some(())?;
                is_ascending &= members.last().is_none_or(|(last, _)| **last < *name);
                members.push((Key::Owned(name.into_owned()), self.value(of)?));
                if !self.more(b'}')? {
                    break;
                }
            }
        }
        self.leave(b'}')?;
        if !is_ascending {
            let mut names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
            names.sort_unstable();
            if names.windows(2).any(|pair| pair[0] == pair[1]) {
                return None;
            }
        }
        Some(members.into_iter().collect())
    }

    fn items(&mut self, of: Type) -> Option<Vec<Value>> {
        self.enter(b'[')?;
        let mut items = Vec::new();
        if self.scan.peek() != b']' {
            loop {
                items.push(self.value(of)?);
                if !self.more(b']')? {
                    break;
                }
            }
        }
        self.leave(b']')?;
        Some(items)
    }

    /// A value where one of type `of` should be, whatever it is: the type only says which names there are below.
    fn value(&mut self, of: Type) -> Option<Value> {
        Some(match self.scan.peek() {
            b'"' => {
                let string = self.scan.string()?;
                Value::String(self.meant(string)?.into_owned())
            }
            b'{' => Value::Object(match of {
                Type::Struct { message, .. } => self.fields(message)?,
                Type::Map { value, .. } => self.members(Type::of_map_value(value))?,
                _ => self.members(Type::Deduced)?,
            }),
            b'[' => Value::Array(match of {
                Type::List { item, .. } => self.items(Type::of_kind(item))?,
                _ => self.items(Type::Deduced)?,
            }),
            b'n' if self.scan.word("null") => Value::Null,
            b't' if self.scan.word("true") => Value::Bool(true),
            b'f' if self.scan.word("false") => Value::Bool(false),
            _ => Value::Int(self.integer()?),
        })
    }

    /// A number without fraction or exponent, as JSON writes it.
    fn integer(&mut self) -> Option<i64> {
        let text = self.scan.number()?;
        let is_plain = match text.strip_prefix('-').unwrap_or(text).as_bytes() {
            b"0" => text == "0",
            [b'1'..=b'9', ..] => true,
            _ => false,
        };
        text.parse().ok().filter(|_| is_plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::protobuf::generate::{self, Random};
    use crate::json::{parse_reporting_duplicates, write};
    use crate::naming::KUBERNETES;
    use crate::schema::builtin;

    /// Reads a text both ways and says whether this one was enough.
    fn check(message: &'static Message, text: &[u8]) -> bool {
        let Some(object) = read(message, text) else { return false };
        let (value, duplicates) = parse_reporting_duplicates(text).unwrap();
        assert_eq!((Value::Object(object), duplicates), (value, Vec::new()));
        true
    }

    #[test]
    fn what_is_read_is_what_is_written() {
        let (mut random, mut made, mut read) = (Random(3), 0, 0);
        for &message in builtin::messages(&KUBERNETES) {
            for at in 0..24 {
                let mut object = generate::object(&mut random, message, 0).into();
                for _ in 0..at % 3 {
                    generate::disturb(&mut random, &mut object);
                }
                let mut text = Vec::new();
                write(&object, &mut text);
                if at % 4 == 3 {
                    // Any byte in any place.
                    let place = random.below(text.len());
                    text[place] = random.below(256) as u8;
                }
                made += 1;
                read += usize::from(check(message, &text));
            }
        }
        assert!(read > made / 2 && read < made, "{read} of {made}");
    }

    #[test]
    fn unusual_texts_are_left_to_others() {
        let message = builtin::message(&KUBERNETES, "api.core.v1.ConfigMap").unwrap();
        for (text, is_usual) in [
            (r#"{"metadata":{"name":"a","labels":{"b":"\u003cA\n","a":null}},"immutable":true}"#, true),
            ("{\"data\":{}}\n", true),
            (r#"{"metadata":{"generation":-12,"finalizers":["x",1,{}]}}"#, true),
            ("", false),
            ("[]", false),
            (r#"{"data":{}}}"#, false),
            (r#"{"data":{},}"#, false),
            (r#"{"data":{"a":"1",}}"#, false),
            (r#"{ "data":{}}"#, false),
            (r#"{"data" :{}}"#, false),
            (r#"{"dat\u0061":{}}"#, false),
            (r#"{"other":{}}"#, false),
            (r#"{"data":{},"data":{}}"#, false),
            (r#"{"data":{"b":"1","a":"2","b":"3"}}"#, false),
            (r#"{"data":{"a":1.0}}"#, false),
            (r#"{"data":{"a":-0}}"#, false),
            (r#"{"data":{"a":01}}"#, false),
            (r#"{"data":{"a":9223372036854775808}}"#, false),
            (r#"{"data":{"a":"\x"}}"#, false),
            (r#"{"data":{"a":"\ud800"}}"#, false),
            ("{\"data\":{\"a\":\"\t\"}}", false),
            (r#"{"data":{"a":nul}}"#, false),
        ] {
            assert_eq!(check(message, text.as_bytes()), is_usual, "{text}");
        }
        assert!(read(message, b"{\"data\":{\"a\":\"\xff\"}}").is_none());
        let deep = format!("{}{}", r#"{"data":"#, "[".repeat(100_000));
        assert!(read(message, deep.as_bytes()).is_none());
    }
}
