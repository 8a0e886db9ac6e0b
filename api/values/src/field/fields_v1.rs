//! The text form of field sets, as it is stored in managed fields (docs/api/apply.md#field-sets).
//!
//! ```text
//! {"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:port":{}}}}}
//! ```
//!
//! Each step is a member name. `{}` marks a path that is in the set if no path below it is in the set; `".":{}`
//! marks a path that is in the set together with paths below it. Parsing borrows names from the text and accepts
//! what the reference server accepts: any order, unknown kinds of steps, any value of `"."`. The written text is
//! canonical.

use std::borrow::Cow;

use super::path::{Element, KeyScalar};
use super::set::{FieldSet, Node};
use crate::json::{self, Value};

/// Maximum nesting that is parsed, so that a hostile text causes an error instead of a deep recursion. The
/// value leaves room for the surrounding object within the limit of JSON parsers ([`json::DEPTH_MAX`]).
pub const NESTING_MAX: usize = json::DEPTH_MAX - 28;

/// Reason why a text is not a field set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FieldsV1Error {
    /// The text is malformed JSON.
    #[error("unexpected text at byte {at}")]
    Syntax {
        /// Byte offset of the error in the text.
        at: usize,
    },
    /// A step is too short to have a kind, or has no colon after its kind.
    #[error("missing colon in path element {step:?}")]
    Step {
        /// The step as written in the text.
        step: String,
    },
    /// The value of a step is malformed.
    #[error("unreadable path element {step:?}")]
    Unreadable {
        /// The step as written in the text.
        step: String,
    },
    /// The text is nested deeper than [`NESTING_MAX`].
    #[error("nested too deep")]
    Depth,
}

impl<'t> FieldSet<'t> {
    /// Parses the text form.
    ///
    /// # Errors
    /// The text is not a JSON object of objects, or a step is malformed.
    pub fn parse(text: &'t str) -> Result<FieldSet<'t>, FieldsV1Error> {
        let mut reader = Reader { text, at: 0 };
        let (set, _) = reader.set(0)?;
        reader.skip_space();
        if reader.at < text.len() {
            return Err(reader.syntax());
        }
        Ok(set)
    }

    /// Appends the text form to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_members(false, out);
    }

    /// Returns the text form.
    pub fn text(&self) -> String {
        let mut out = Vec::with_capacity(256);
        self.write(&mut out);
        String::from_utf8(out).expect("names and the syntax around them are UTF-8")
    }

    fn write_members(&self, is_member: bool, out: &mut Vec<u8>) {
        out.push(b'{');
        let start = out.len();
        if is_member && !self.is_empty() {
            out.extend_from_slice(b"\".\":{}");
        }
        for node in self.nodes() {
            if out.len() > start {
                out.push(b',');
            }
            write_step(&node.element, out);
            out.push(b':');
            node.children.write_members(node.member, out);
        }
        out.push(b'}');
    }
}

/// Appends the step to the member called `name`.
pub fn write_field(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"f:");
    json::write_escaped(name, out);
    out.push(b'"');
}

/// Appends the step to the member called `name`, which must not need escapes.
pub fn write_plain_field(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\"f:");
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
}

/// Appends one step to `out`.
pub fn write_step(element: &Element<'_>, out: &mut Vec<u8>) {
    match element {
        Element::Field(name) => write_field(name, out),
        Element::Key(keys) => {
            out.extend_from_slice(b"\"k:{");
            for (at, (name, value)) in keys.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write_quoted(name, out);
                out.push(b':');
                write_scalar(value, out);
            }
            out.extend_from_slice(b"}\"");
        }
        Element::Value(value) => {
            out.extend_from_slice(b"\"v:");
            write_scalar(value, out);
            out.push(b'"');
        }
        Element::Index(at) => {
            out.extend_from_slice(format!("\"i:{at}\"").as_bytes());
        }
    }
}

/// Appends a scalar as JSON, escaped for use inside a JSON string.
fn write_scalar(value: &KeyScalar<'_>, out: &mut Vec<u8>) {
    match value {
        KeyScalar::Text(text) => write_quoted(text, out),
        other => {
            let start = out.len();
            other.write(out);
            escape_from(start, out);
        }
    }
}

/// Appends a JSON string, escaped for use inside another JSON string.
fn write_quoted(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\\\"");
    let start = out.len();
    json::write_escaped(text, out);
    escape_from(start, out);
    out.extend_from_slice(b"\\\"");
}

/// Escapes the bytes of `out` again, from offset `start` to the end. Names and numbers rarely need these
/// escapes.
fn escape_from(start: usize, out: &mut Vec<u8>) {
    if out[start..].iter().any(|byte| matches!(byte, b'"' | b'\\')) {
        let inner = out.split_off(start);
        json::write_escaped(std::str::from_utf8(&inner).expect("JSON is text"), out);
    }
}

/// Parses one step; returns `None` for an unknown kind of step.
fn read_step<'t>(step: Cow<'t, str>) -> Result<Option<Element<'t>>, FieldsV1Error> {
    let bytes = step.as_bytes();
    if bytes.len() < 2 || bytes[1] != b':' {
        return Err(FieldsV1Error::Step { step: step.into_owned() });
    }
    let rest = &step[2..];
    let unreadable = || FieldsV1Error::Unreadable { step: step.to_string() };
    Ok(Some(match bytes[0] {
        b'f' => Element::Field(match step {
            Cow::Borrowed(step) => Cow::Borrowed(&step[2..]),
            Cow::Owned(mut step) => {
                step.drain(..2);
                Cow::Owned(step)
            }
        }),
        b'k' => match json::parse(rest.as_bytes()) {
            Ok(Value::Object(members)) => {
                let members = members.into_members().into_iter();
                let mut keys: Vec<_> =
                    members.map(|(name, value)| (name, KeyScalar::from_value(value))).collect();
                keys.sort_by(|(a, _), (b, _)| a.cmp(b));
                Element::Key(keys)
            }
            _ => return Err(unreadable()),
        },
        b'v' => match json::parse(rest.as_bytes()) {
            Ok(value) => Element::Value(KeyScalar::from_value(value)),
            Err(_) => return Err(unreadable()),
        },
        b'i' => Element::Index(rest.parse().map_err(|_| unreadable())?),
        _ => return Ok(None),
    }))
}

/// Reader of the subset of JSON that field sets use.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn syntax(&self) -> FieldsV1Error {
        FieldsV1Error::Syntax { at: self.at }
    }

    fn skip_space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    }

    /// Skips white space, then consumes the next byte if it equals `byte`, and returns whether it is
    /// equal.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.as_bytes().get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), FieldsV1Error> {
        if self.takes(byte) { Ok(()) } else { Err(self.syntax()) }
    }

    /// Reads one object. Returns the paths below the object, and whether the path of the object itself is in
    /// the set (because of `"."`, or because the object is empty).
    fn set(&mut self, depth: usize) -> Result<(FieldSet<'t>, bool), FieldsV1Error> {
        if depth >= NESTING_MAX {
            return Err(FieldsV1Error::Depth);
        }
        self.skip_space();
        if self.text[self.at..].starts_with("null") {
            self.at += "null".len();
            return Ok((FieldSet::new(), true));
        }
        self.expect(b'{')?;
        let mut nodes: Vec<Node<'t>> = Vec::new();
        let mut is_member = false;
        if self.takes(b'}') {
            return Ok((FieldSet::new(), true));
        }
        loop {
            self.skip_space();
            let step = self.string()?;
            self.expect(b':')?;
            if step == "." {
                is_member = true;
                self.skip_value()?;
            } else {
                match read_step(step)? {
                    Some(element) => {
                        let (children, member) = self.set(depth + 1)?;
                        nodes.push(Node { element, member, children });
                    }
                    None => self.skip_value()?,
                }
            }
            if !self.takes(b',') {
                break;
            }
        }
        self.expect(b'}')?;
        is_member |= nodes.is_empty();
        Ok((FieldSet::from_nodes(nodes), is_member))
    }

    /// Reads a string, which is borrowed if it has no escapes.
    fn string(&mut self) -> Result<Cow<'t, str>, FieldsV1Error> {
        let start = self.at;
        if self.text.as_bytes().get(start) != Some(&b'"') {
            return Err(self.syntax());
        }
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        let mut is_escaped = false;
        loop {
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_escaped = true;
                    at += 2;
                }
                Some(0..=0x1f) | None => return Err(self.syntax()),
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        if !is_escaped {
            return Ok(Cow::Borrowed(&self.text[start + 1..at]));
        }
        let read = serde_json::from_str::<String>(&self.text[start..self.at]);
        read.map(Cow::Owned).map_err(|_| FieldsV1Error::Syntax { at: start })
    }

    /// Skips one JSON value of any kind.
    fn skip_value(&mut self) -> Result<(), FieldsV1Error> {
        let mut values =
            serde_json::Deserializer::from_str(&self.text[self.at..]).into_iter::<serde::de::IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => {
                self.at += values.byte_offset();
                Ok(())
            }
            _ => Err(self.syntax()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_sets_are_parsed_and_written_as_documented() {
        for (text, canonical, members) in [
            ("{}", "{}", 0),
            (r#"{"f:a":{}}"#, r#"{"f:a":{}}"#, 1),
            (r#" { "f:b" : {} , "f:a" : { "f:c" : {} } } "#, r#"{"f:a":{"f:c":{}},"f:b":{}}"#, 2),
            (r#"{"f:a":{".":{},"f:c":{}}}"#, r#"{"f:a":{".":{},"f:c":{}}}"#, 2),
            (r#"{"f:a":{"f:c":{},".":[1]}}"#, r#"{"f:a":{".":{},"f:c":{}}}"#, 2),
            (r#"{"f:a":null}"#, r#"{"f:a":{}}"#, 1),
            (r#"{"f:a":{"f:b":{}},"f:a":{}}"#, r#"{"f:a":{".":{},"f:b":{}}}"#, 2),
            (
                r#"{"k:{\"protocol\":\"TCP\",\"containerPort\":80}":{".":{},"f:x":{}}}"#,
                r#"{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:x":{}}}"#,
                2,
            ),
            (
                r#"{"i:2":{},"v:true":{},"v:\"x\"":{},"v:1":{},"k:{\"a\":1}":{},"f:z":{}}"#,
                r#"{"f:z":{},"k:{\"a\":1}":{},"v:1":{},"v:\"x\"":{},"v:true":{},"i:2":{}}"#,
                6,
            ),
            (r#"{"f:a\u003cb":{},"f:\"":{}}"#, r#"{"f:\"":{},"f:a\u003cb":{}}"#, 2),
            (r#"{"k:{\"n\":\"\u003c\"}":{}}"#, r#"{"k:{\"n\":\"\\u003c\"}":{}}"#, 1),
            // Steps of unknown kinds are skipped with everything below them.
            (r#"{"x:new":{"f:a":[{}]},"f:b":{"y:":{}}}"#, r#"{"f:b":{}}"#, 1),
            (r#"{"f:":{}}"#, r#"{"f:":{}}"#, 1),
        ] {
            let set = FieldSet::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((set.text().as_str(), set.len()), (canonical, members), "{text}");
            assert_eq!(FieldSet::parse(canonical).unwrap(), set);
        }
    }

    #[test]
    fn malformed_field_sets_are_refused() {
        let deep = format!("{}{}", r#"{"f:a":"#.repeat(100_000), "}".repeat(100_000));
        for text in [
            "",
            "[]",
            "{",
            "1",
            "{}x",
            r#"{"f:a"}"#,
            r#"{"f:a":1}"#,
            r#"{"f:a":{},}"#,
            r#"{"f:a":[]}"#,
            r#"{"f":{}}"#,
            r#"{"":{}}"#,
            r#"{"fa":{}}"#,
            r#"{"é:":{}}"#,
            r#"{"k:[]":{}}"#,
            r#"{"k:{":{}}"#,
            r#"{"v:":{}}"#,
            r#"{"i:x":{}}"#,
            r#"{"x:":}"#,
            "{\"f:\\",
            "{\"f:a\n\":{}}",
            r#"{"f:\ud800":{}}"#,
            deep.as_str(),
        ] {
            assert!(FieldSet::parse(text).is_err(), "{text:.40}");
        }
    }
}
