//! JSON rules and messages of Go's `encoding/json`: which field a member sets, and the errors for invalid
//! JSON and for values of a wrong type, including those of the Kubernetes object decoder on top of it.
//! Clients may compare these messages with fixed texts.
//!
//! [`syntax_error`] is called only for texts that were refused. The function scans the bytes once, and keeps
//! the open containers in a vector instead of recursing.

use std::fmt::Display;

/// Maximum nesting depth of containers in the reference server.
const DEPTH_MAX: usize = 10_000;

/// The Go type of the members that identify an object's type, as Go prints it.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The Go type of an arbitrary object, as Go prints it.
pub const MAP: &str = "map[string]interface {}";

/// Returns the kind of value in a JSON document, as Go's decoder names it; `None` for an empty text.
pub fn kind(text: &[u8]) -> Option<&'static str> {
    Some(match text.trim_ascii_start().first()? {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        b'n' => "null",
        _ => "number",
    })
}

/// Returns the error for a value that is not of the type `expected`; `found` is its kind as [`kind`] names
/// it.
pub fn unfit(found: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {found} into Go value of type {expected}")
}

/// Returns the error for a value of the member `place` that is not of the type `expected`.
pub fn unfit_member(found: &str, place: &str, expected: &str) -> String {
    format!("json: cannot unmarshal {found} into Go struct field {place} of type {expected}")
}

/// Returns the error for an object whose type is unknown because the text cannot be parsed.
pub fn undecided(why: &dyn Display) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// Returns the error like [`undecided`] for a document that is `found` (such as `array`) instead of an
/// object.
pub fn no_version_kind(found: &str) -> String {
    undecided(&unfit(found, TYPE_META))
}

/// Returns the error like [`undecided`] for a member `name` (`apiVersion` or `kind`) that is `found` (such as
/// `number`) instead of a string.
pub fn odd_version_kind(found: &str, name: &str) -> String {
    undecided(&unfit_member(found, &format!(".{name}"), "string"))
}

/// Returns the first syntax error of `text`; `None` if it is a JSON document.
pub fn syntax_error(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    match scanner.document() {
        Ok(()) => None,
        Err(Fault::End) => Some("unexpected end of JSON input".to_owned()),
        Err(Fault::Byte(byte, place)) => Some(format!("invalid character {} {place}", quoted(byte))),
    }
}

/// Returns whether a member called `name` sets the field `field`, whose name is ASCII. Go compares names
/// without regard to case, and two characters outside ASCII fold to ASCII letters.
pub fn sets_field(name: &str, field: &str) -> bool {
    let folded = name.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    });
    folded.eq(field.chars().map(|c| c.to_ascii_lowercase()))
}

/// Reason why the scan ended.
enum Fault {
    End,
    /// A byte that is invalid at its position.
    Byte(u8, String),
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
}

/// Kind of an open container.
#[derive(Clone, Copy, PartialEq)]
enum Container {
    Array,
    Object,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Fault> {
        let mut open: Vec<Container> = Vec::new();
        loop {
            // The next byte begins a value.
            let is_empty = match self.space()? {
                b'{' => {
                    self.open(&mut open, Container::Object)?;
                    self.space()? == b'}'
                }
                b'[' => {
                    self.open(&mut open, Container::Array)?;
                    self.space()? == b']'
                }
                _ => {
                    self.scalar()?;
                    self.after_value(&mut open)?;
                    if open.is_empty() {
                        return self.end();
                    }
                    self.key(&open)?;
                    continue;
                }
            };
            if is_empty {
                self.at += 1;
                open.pop();
                self.after_value(&mut open)?;
                if open.is_empty() {
                    return self.end();
                }
            }
            self.key(&open)?;
        }
    }

    fn open(&mut self, open: &mut Vec<Container>, container: Container) -> Result<(), Fault> {
        let bracket = self.text[self.at];
        self.at += 1;
        open.push(container);
        if open.len() > DEPTH_MAX { Err(fault(bracket, "exceeded max depth")) } else { Ok(()) }
    }

    /// Consumes the bytes after a value: a comma before the next value, or the ends of containers.
    fn after_value(&mut self, open: &mut Vec<Container>) -> Result<(), Fault> {
        while let Some(container) = open.last() {
            match (self.space()?, container) {
                (b',', Container::Object) => {
                    self.at += 1;
                    return match self.space()? {
                        b'"' => Ok(()),
                        byte => Err(fault(byte, "looking for beginning of object key string")),
                    };
                }
                (b',', Container::Array) => {
                    self.at += 1;
                    return Ok(());
                }
                (b'}', Container::Object) | (b']', Container::Array) => {
                    self.at += 1;
                    open.pop();
                }
                (byte, Container::Object) => return Err(fault(byte, "after object key:value pair")),
                (byte, Container::Array) => return Err(fault(byte, "after array element")),
            }
        }
        Ok(())
    }

    /// Consumes the name of a member and its colon, if an object is open.
    fn key(&mut self, open: &[Container]) -> Result<(), Fault> {
        if open.last() != Some(&Container::Object) {
            return Ok(());
        }
        match self.space()? {
            b'"' => self.string()?,
            byte => return Err(fault(byte, "looking for beginning of object key string")),
        }
        match self.space()? {
            b':' => self.at += 1,
            byte => return Err(fault(byte, "after object key")),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        match self.space() {
            Ok(byte) => Err(fault(byte, "after top-level value")),
            Err(_) => Ok(()),
        }
    }

    fn scalar(&mut self) -> Result<(), Fault> {
        match self.space()? {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(),
            byte => Err(fault(byte, "looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), Fault> {
        for expected in word.bytes() {
            match self.inside() {
                byte if byte == expected => self.at += 1,
                byte => {
                    let place = format!("in literal {word} (expecting {})", quoted(expected));
                    return Err(Fault::Byte(byte, place));
                }
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' => match self.inside() {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => self.at += 1,
                    b'u' => {
                        self.at += 1;
                        for _ in 0..4 {
                            match self.inside() {
                                byte if byte.is_ascii_hexdigit() => self.at += 1,
                                byte => return Err(fault(byte, "in \\u hexadecimal character escape")),
                            }
                        }
                    }
                    byte => return Err(fault(byte, "in string escape code")),
                },
                byte if byte < 0x20 => return Err(fault(byte, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        match self.inside() {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            byte => return Err(fault(byte, "in numeric literal")),
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// Consumes one or more digits.
    fn digit(&mut self, place: &str) -> Result<(), Fault> {
        match self.inside() {
            b'0'..=b'9' => self.digits(),
            byte => return Err(fault(byte, place)),
        }
        Ok(())
    }

    fn digits(&mut self) {
        while matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// Skips white space and returns the next byte without consuming it.
    fn space(&mut self) -> Result<u8, Fault> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek()
    }

    /// Returns the next byte inside a literal, a number or an escape. As in Go's scanner, the end of the text
    /// counts as a blank.
    fn inside(&self) -> u8 {
        self.peek().unwrap_or(b' ')
    }

    fn peek(&self) -> Result<u8, Fault> {
        self.text.get(self.at).copied().ok_or(Fault::End)
    }
}

fn fault(byte: u8, place: &str) -> Fault {
    Fault::Byte(byte, place.to_owned())
}

/// Quotes a byte as Go quotes the character with that number.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte => {
            let text = crate::quote(&char::from(byte).to_string());
            format!("'{}'", &text[1..text.len() - 1])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_type_errors_name_the_kind_of_the_value() {
        for (text, want) in [
            ("", None),
            (" {}", Some("object")),
            ("\n[]", Some("array")),
            ("\"a\"", Some("string")),
            ("true", Some("bool")),
            ("false", Some("bool")),
            ("null", Some("null")),
            ("-1", Some("number")),
        ] {
            assert_eq!(kind(text.as_bytes()), want, "{text}");
        }
        for (found, want) in [
            (unfit("bool", "int32"), "json: cannot unmarshal bool into Go value of type int32"),
            (
                unfit_member("number", "A.b", "string"),
                "json: cannot unmarshal number into Go struct field A.b of type string",
            ),
            (
                no_version_kind("array"),
                "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { \
                 APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
            ),
            (
                odd_version_kind("number", "kind"),
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of \
                 type string",
            ),
        ] {
            assert_eq!(found, want);
        }
    }

    #[test]
    fn field_names_match_in_any_case() {
        for (name, want) in [
            ("apiVersion", true),
            ("APIVERSION", true),
            ("apiver\u{17f}ion", true),
            ("apiVersio", false),
            ("apiVersions", false),
            ("\u{430}piVersion", false),
        ] {
            assert_eq!(sets_field(name, "apiVersion"), want, "{name}");
        }
        assert!(sets_field("\u{212a}ind", "kind"));
    }

    #[test]
    fn syntax_errors_are_worded_as_clients_know_them() {
        const END: &str = "unexpected end of JSON input";
        for (text, want) in [
            ("", END),
            (" ", END),
            ("{", END),
            ("[1,", END),
            ("\"a", END),
            ("-", "invalid character ' ' in numeric literal"),
            ("nul", "invalid character ' ' in literal null (expecting 'l')"),
            ("[tru", "invalid character ' ' in literal true (expecting 'e')"),
            ("1.", "invalid character ' ' after decimal point in numeric literal"),
            ("1e", "invalid character ' ' in exponent of numeric literal"),
            ("1e+", "invalid character ' ' in exponent of numeric literal"),
            ("\"\\", "invalid character ' ' in string escape code"),
            ("\"\\u12", "invalid character ' ' in \\u hexadecimal character escape"),
            ("this is", "invalid character 'h' in literal true (expecting 'r')"),
            ("not", "invalid character 'o' in literal null (expecting 'u')"),
            ("garbage", "invalid character 'g' looking for beginning of value"),
            ("{a", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{\"a\":[{}}", "invalid character '}' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
        ] {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(want), "{text}");
        }
        assert_eq!(
            syntax_error(b"\x81").as_deref(),
            Some("invalid character '\\u0081' looking for beginning of value")
        );
        for text in
            ["1", "[]", " {\"a\":[1,{\"b\":{}},\"\\u00e9\"],\"c\":-1.5e+3} ", "[[],{},null,true,false]"]
        {
            assert_eq!(syntax_error(text.as_bytes()), None, "{text}");
        }
        for (level, want) in [
            ("[", "invalid character '[' exceeded max depth"),
            ("{\"a\":", "invalid character '{' exceeded max depth"),
        ] {
            assert_eq!(syntax_error(level.repeat(20_000).as_bytes()).as_deref(), Some(want));
        }
    }
}
