//! A cursor that reads compact JSON into typed values without a tokenizer.
//!
//! ```text
//! bytes ── UTF-8, no control characters ──► Cursor ── enter, name, string, integer … more ──► a typed value
//!                                             └── anything unusual ─► None: the caller uses the general parser
//! ```
//!
//! Unlike [`Scan`], which trusts its input, the cursor checks the grammar of everything it reads: commas
//! separate members, integers have JSON's form, strings are well-formed, and nesting is bounded. The cursor
//! returns `None` for white space between tokens and for escapes in field names. The text of values skipped
//! with [`JsonCursor::raw`] is not checked; the caller must check it.

use std::borrow::Cow;

use super::scan::{Scan, Text};

/// Maximum nesting that the cursor reads. Objects of built-in types, except schemas, have fewer than thirty
/// levels.
const DEPTH_MAX: usize = 64;

/// A position in a text. After a method has returned `None`, the position is unspecified.
#[derive(Debug)]
pub struct JsonCursor<'t> {
    text: &'t str,
    scan: Scan<'t>,
    /// Number of open brackets.
    depth: usize,
}

impl<'t> JsonCursor<'t> {
    /// Creates a cursor at the start of `text`, which may end with white space. Returns `None` if the text is
    /// not UTF-8, or if control characters occur before this white space.
    pub fn new(text: &'t [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_ascii_end();
        // An unescaped control character is invalid in a JSON string, and at best white space between tokens.
        // The compiler vectorizes the fold.
        let has_control = text.bytes().fold(false, |found, byte| found | (byte < b' '));
        (!has_control).then(|| JsonCursor::at_start(text))
    }

    /// Creates a cursor at the start of a stored text whose checksum was verified. Returns `None` if the text
    /// is not UTF-8.
    pub fn of_server(text: &'t [u8]) -> Option<Self> {
        std::str::from_utf8(text).ok().map(JsonCursor::at_start)
    }

    fn at_start(text: &'t str) -> Self {
        JsonCursor { text, scan: Scan::new(text.as_bytes()), depth: 0 }
    }

    /// Returns the number of bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.scan.position()
    }

    /// Returns the number of open brackets.
    #[inline]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of further levels that may be entered.
    pub fn levels_left(&self) -> usize {
        DEPTH_MAX - self.depth
    }

    /// Returns whether the whole text was read.
    pub fn is_at_end(&self) -> bool {
        self.scan.is_at_end()
    }

    /// Returns the next byte without reading it; 0 at the end.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.scan.peek()
    }

    /// Returns the unread part of the text.
    #[inline]
    pub fn rest(&self) -> &'t [u8] {
        self.scan.rest()
    }

    /// Skips `word` if the unread text starts with it. Returns whether `word` was skipped.
    #[inline]
    pub fn word(&mut self, word: &str) -> bool {
        self.scan.word(word)
    }

    /// Skips `len` bytes that the caller has already examined.
    pub fn skip(&mut self, len: usize) {
        self.scan.skip(len);
    }

    /// Skips an opening bracket, and also `end`, its closing bracket, if the container is empty. Returns
    /// whether the container has members or elements.
    #[inline]
    pub fn enter(&mut self, begin: u8, end: u8) -> Option<bool> {
        if self.depth == DEPTH_MAX || !self.scan.take(begin) {
            return None;
        }
        let is_empty = self.scan.take(end);
        self.depth += usize::from(!is_empty);
        Some(!is_empty)
    }

    /// Skips the comma after a member or element, or `end`, the closing bracket. Returns whether another
    /// member or element follows.
    #[inline]
    pub fn more(&mut self, end: u8) -> Option<bool> {
        if self.scan.take(b',') {
            return (self.scan.peek() != end).then_some(true);
        }
        self.depth -= 1;
        self.scan.take(end).then_some(false)
    }

    /// Reads a field name without escapes, and its colon.
    #[inline]
    pub fn field_name(&mut self) -> Option<&'t [u8]> {
        self.scan.name().filter(|name| !name.is_escaped).map(|name| name.raw)
    }

    /// Reads a member name, which may have escapes, and its colon.
    #[inline]
    pub fn name(&mut self) -> Option<Cow<'t, str>> {
        let name = self.string()?;
        self.scan.take(b':').then_some(name)
    }

    /// Reads a string and returns it unescaped.
    #[inline]
    pub fn string(&mut self) -> Option<Cow<'t, str>> {
        let string = self.scan.string()?;
        if string.is_escaped {
            return unescaped_text(string).map(Cow::Owned);
        }
        let end = self.scan.position() - 1;
        self.text.get(end - string.raw.len()..end).map(Cow::Borrowed)
    }

    /// Reads an integer that fits into 64 bits; `None` for other numbers.
    pub fn integer(&mut self) -> Option<i64> {
        let text = self.scan.number()?;
        let is_plain = match text.strip_prefix('-').unwrap_or(text).as_bytes() {
            b"0" => text == "0",
            [b'1'..=b'9', ..] => true,
            _ => false,
        };
        text.parse().ok().filter(|_| is_plain)
    }

    /// Skips a value of any kind and returns its text. Only the balance of its brackets is checked.
    pub fn raw(&mut self) -> Option<&'t str> {
        let start = self.scan.position();
        self.scan.value()?;
        self.text.get(start..self.scan.position())
    }
}

fn unescaped_text(string: Text<'_>) -> Option<String> {
    String::from_utf8(string.unescaped()?.into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Key, Value, parse_reporting_duplicates};

    /// Reads a whole text into a value with the cursor.
    fn read(text: &[u8]) -> Option<Value> {
        let mut cursor = JsonCursor::new(text)?;
        let value = value(&mut cursor)?;
        assert!(cursor.levels_left() == DEPTH_MAX, "as many brackets are closed as were opened");
        cursor.is_at_end().then_some(value)
    }

    fn value(cursor: &mut JsonCursor<'_>) -> Option<Value> {
        Some(match cursor.peek() {
            b'"' => Value::String(cursor.string()?.into_owned()),
            b'{' => {
                let mut members: Vec<(Key, Value)> = Vec::new();
                let mut more = cursor.enter(b'{', b'}')?;
                while more {
                    members.push((Key::Owned(cursor.name()?.into_owned()), value(cursor)?));
                    more = cursor.more(b'}')?;
                }
                Value::Object(members.into_iter().collect())
            }
            b'[' => {
                let mut items = Vec::new();
                let mut more = cursor.enter(b'[', b']')?;
                while more {
                    items.push(value(cursor)?);
                    more = cursor.more(b']')?;
                }
                Value::Array(items)
            }
            _ if cursor.word("null") => Value::Null,
            _ if cursor.word("true") => Value::Bool(true),
            _ if cursor.word("false") => Value::Bool(false),
            _ => Value::Int(cursor.integer()?),
        })
    }

    #[test]
    fn the_json_cursor_reads_the_same_values_as_the_general_parser() {
        for text in [
            "{}",
            "[]",
            "[[],{}]",
            r#"{"a":1,"b":[true,false,null],"c":{"d":"e"}}"#,
            r#"["","é😀","\u00e9\ud83d\ude00\n\"\\\/"]"#,
            r#"{"\u0061":1}"#,
            "[0,-1,9223372036854775807,-9223372036854775808]",
            "{} \r\n\t",
            "7",
        ] {
            let other = parse_reporting_duplicates(text.as_bytes()).unwrap();
            assert_eq!(read(text.as_bytes()).map(|value| (value, Vec::new())), Some(other), "{text}");
        }
    }

    #[test]
    fn the_json_cursor_refuses_unusual_and_hostile_texts() {
        for (what, texts) in [
            ("half a value", r#"{ [ " - nul tru {"a" {"a": {"a":1 [1 [1, "a "a\ "a\" "#),
            ("more than a value", r#"{}{} [[]]] {"a":1}} 1,2 truefalse """" {}, {}: {}["#),
            ("no value", "} ] , : a ' / # \u{feff}{}"),
            ("brackets of two kinds", r#"[} {] [1} {"a":1] [{]} {"a":[}"#),
            ("commas", r#"[,] {,} [1,] [1,,2] [,1] [[][]] [[],] {"a":1,} {"a":1"b":2} {,"a":1} ["a""b"]"#),
            ("colons", r#"{"a"1} {"a",1} {"a"} {"a"::1} [1:2] {"a":1:2} {:1}"#),
            ("names", "{1:2} {a:1} {null:1} {[]:1}"),
            ("numbers", "01 -0 -01 00 +1 --1 1- 1-1 1.0 1e3 1E3 .5 0x1 1_0 NaN Infinity ١ 0.0"),
            ("large numbers", "9223372036854775808 -9223372036854775809 99999999999999999999999999999999"),
            ("escapes", r#""\x" "\u12" "\u12g4" "\ud800" "\ude00" "\ud800\u0041" "\ud800x" {"\x":1}"#),
        ] {
            for text in texts.split_ascii_whitespace() {
                assert_eq!(read(text.as_bytes()), None, "{what}: {text}");
            }
        }
        for blank in ["", " ", " {}", "{ }", "[1, 2]", "[1 ,2]", "[1 2]", "[1 ]", "{\"a\" :1}", "{\"a\": 1}"]
        {
            assert_eq!(read(blank.as_bytes()), None, "{blank:?}");
        }
        for control in b'\0'..b' ' {
            for around in ["\"ab\"", "[1,2]", "{\"a\":1}"] {
                for position in 0..around.len() {
                    let mut text = around.as_bytes().to_vec();
                    text.insert(position, control);
                    assert_eq!(read(&text), None, "{control} at {position} of {around}");
                }
            }
        }
        for bytes in
            [&b"\"\xff\""[..], b"\"\xc3\"", b"\"\xed\xa0\x80\"", b"\xef\xbb\xbf{}", b"{\"\xc3\\u0041\":1}"]
        {
            assert_eq!(read(bytes), None, "{bytes:?}");
            assert!(JsonCursor::of_server(bytes).is_none_or(|_| bytes.starts_with(b"\xef")), "{bytes:?}");
        }
    }

    #[test]
    fn the_json_cursor_limits_the_nesting_depth() {
        for (levels, is_read) in [(1, true), (64, true), (65, false), (1 << 20, false)] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(read(text.as_bytes()).is_some(), is_read, "{levels} arrays");
            let text = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
            assert_eq!(read(text.as_bytes()).is_some(), is_read, "{levels} objects");
            assert_eq!(read("[".repeat(levels).as_bytes()), None, "{levels} arrays that do not end");
        }
        // Skipped values have no depth limit and use no stack.
        let text = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert_eq!(JsonCursor::new(text.as_bytes()).unwrap().raw(), Some(&*text));
        // Closed brackets do not count towards the depth.
        let wide = format!("[{}[]]", "[[]],".repeat(1000));
        assert!(read(wide.as_bytes()).is_some());
    }

    #[test]
    fn field_names_have_no_escapes_and_member_names_may() {
        for (text, field, name) in [
            (r#""a":1"#, Some("a"), Some("a")),
            (r#""":1"#, Some(""), Some("")),
            (r#""\u0061":1"#, None, Some("a")),
            (r#""\x":1"#, None, None),
            (r#""a" :1"#, None, None),
            (r#""a""#, None, None),
            ("a:1", None, None),
        ] {
            let cursor = || JsonCursor::new(text.as_bytes()).unwrap();
            assert_eq!(cursor().field_name(), field.map(str::as_bytes), "{text}");
            assert_eq!(cursor().name().as_deref(), name, "{text}");
        }
    }

    #[test]
    fn the_json_cursor_skips_whole_values() {
        let text = r#"{"a":{"b":"}é"},"c":2}"#;
        let mut cursor = JsonCursor::of_server(text.as_bytes()).unwrap();
        assert_eq!(cursor.enter(b'{', b'}'), Some(true));
        assert_eq!((cursor.field_name(), cursor.raw()), (Some(&b"a"[..]), Some(r#"{"b":"}é"}"#)));
        assert_eq!((cursor.depth(), cursor.more(b'}')), (1, Some(true)));
        cursor.skip(r#""c":2"#.len());
        assert_eq!((cursor.more(b'}'), cursor.depth(), cursor.position()), (Some(false), 0, text.len()));
        assert!(cursor.is_at_end());
        // Reading beyond the end returns nothing.
        assert_eq!((cursor.peek(), cursor.raw(), cursor.string(), cursor.integer()), (0, None, None, None));
        for text in ["", ",", "}", "[", "[\"", "{\"a\":[}"] {
            assert_eq!(JsonCursor::of_server(text.as_bytes()).unwrap().raw(), None, "{text}");
        }
    }
}
