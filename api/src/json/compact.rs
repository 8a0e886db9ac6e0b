//! Reading compact JSON of anybody into something that has a type, without a tokenizer in between.
//!
//! ```text
//! bytes ── UTF-8, no control characters ──► Cursor ── enter, name, string, integer … more ──► what the reader makes of it
//!                                             └── anything unusual ─► None: the reader that knows all of JSON is asked
//! ```
//!
//! Where [`Scan`] follows text that is known to be good, this holds texts to the grammar as far as the reader looks at
//! them: a comma stands between two members and nowhere else, integers are written as JSON writes them, strings mean
//! something, and nesting has a bound. Unusual are blanks between tokens and escapes in the names of fields, too. What is
//! passed over whole ([`Cursor::raw`]) is for the reader to judge.

use std::borrow::Cow;

use super::scan::{Scan, Text};

/// Deepest nesting that is usual. Objects of built-in types, but for schemas, stay below thirty.
const DEPTH_MAX: usize = 64;

/// A place in a text. Every `None` is the end of reading: where the cursor stands then means nothing.
#[derive(Debug)]
pub struct Cursor<'t> {
    text: &'t str,
    scan: Scan<'t>,
    /// Brackets that are open.
    depth: usize,
}

impl<'t> Cursor<'t> {
    /// The start of `text`, which may end with white space; `None` if it is no UTF-8 or has other control characters.
    pub fn new(text: &'t [u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_ascii_end();
        // No string has one unescaped, and between tokens they are blanks. A fold looks at many bytes at once.
        let has_control = text.bytes().fold(false, |found, byte| found | (byte < b' '));
        (!has_control).then(|| Cursor::at_start(text))
    }

    /// The start of a text which a checksum says is as this server wrote it; `None` if it is no UTF-8.
    pub fn of_server(text: &'t [u8]) -> Option<Self> {
        std::str::from_utf8(text).ok().map(Cursor::at_start)
    }

    fn at_start(text: &'t str) -> Self {
        Cursor { text, scan: Scan::new(text.as_bytes()), depth: 0 }
    }

    /// Bytes that were passed over.
    #[inline]
    pub fn position(&self) -> usize {
        self.scan.position()
    }

    /// Brackets that are open.
    #[inline]
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Levels that may still be entered.
    pub fn levels_left(&self) -> usize {
        DEPTH_MAX - self.depth
    }

    /// Whether everything was passed over.
    pub fn is_at_end(&self) -> bool {
        self.scan.is_at_end()
    }

    /// The next byte, which is not passed over; 0 at the end.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.scan.peek()
    }

    /// Passes over `word`, if it comes next.
    #[inline]
    pub fn word(&mut self, word: &str) -> bool {
        self.scan.word(word)
    }

    /// Passes over `len` bytes that somebody knows.
    pub fn skip(&mut self, len: usize) {
        self.scan.skip(len);
    }

    /// Passes over the bracket that begins an object or array, and over `end`, which closes it, if nothing is in it.
    /// Returns whether something is.
    #[inline]
    pub fn enter(&mut self, begin: u8, end: u8) -> Option<bool> {
        if self.depth == DEPTH_MAX || !self.scan.take(begin) {
            return None;
        }
        let is_empty = self.scan.take(end);
        self.depth += usize::from(!is_empty);
        Some(!is_empty)
    }

    /// Passes over the comma behind a member or element, or over `end`, which closes what has been entered. Returns
    /// whether another one follows.
    #[inline]
    pub fn more(&mut self, end: u8) -> Option<bool> {
        if self.scan.take(b',') {
            return (self.scan.peek() != end).then_some(true);
        }
        self.depth -= 1;
        self.scan.take(end).then_some(false)
    }

    /// Passes over the name of a field and its colon. The name is as it is meant.
    #[inline]
    pub fn field_name(&mut self) -> Option<&'t [u8]> {
        self.scan.name().filter(|name| !name.is_escaped).map(|name| name.raw)
    }

    /// Passes over a name that somebody chose, and its colon.
    #[inline]
    pub fn name(&mut self) -> Option<Cow<'t, str>> {
        let name = self.string()?;
        self.scan.take(b':').then_some(name)
    }

    /// Passes over a string and returns what it means.
    #[inline]
    pub fn string(&mut self) -> Option<Cow<'t, str>> {
        let string = self.scan.string()?;
        if string.is_escaped {
            return meant(string).map(Cow::Owned);
        }
        let end = self.scan.position() - 1;
        self.text.get(end - string.raw.len()..end).map(Cow::Borrowed)
    }

    /// Passes over a number without fraction or exponent, as JSON writes it, that fits 64 bits.
    pub fn integer(&mut self) -> Option<i64> {
        let text = self.scan.number()?;
        let is_plain = match text.strip_prefix('-').unwrap_or(text).as_bytes() {
            b"0" => text == "0",
            [b'1'..=b'9', ..] => true,
            _ => false,
        };
        text.parse().ok().filter(|_| is_plain)
    }

    /// Passes over a value, whatever it is, and returns its text, which is balanced and not looked at otherwise.
    pub fn raw(&mut self) -> Option<&'t str> {
        let start = self.scan.position();
        self.scan.value()?;
        self.text.get(start..self.scan.position())
    }
}

fn meant(string: Text<'_>) -> Option<String> {
    String::from_utf8(string.unescaped()?.into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Key, Value, parse_reporting_duplicates};

    /// All of a text, as the simplest reader would read it.
    fn read(text: &[u8]) -> Option<Value> {
        let mut cursor = Cursor::new(text)?;
        let value = value(&mut cursor)?;
        assert!(cursor.levels_left() == DEPTH_MAX, "as many brackets are closed as were opened");
        cursor.is_at_end().then_some(value)
    }

    fn value(cursor: &mut Cursor<'_>) -> Option<Value> {
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
    fn what_is_read_is_what_the_other_reader_says() {
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
    fn unusual_and_hostile_texts_are_not_read() {
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
                for place in 0..around.len() {
                    let mut text = around.as_bytes().to_vec();
                    text.insert(place, control);
                    assert_eq!(read(&text), None, "{control} at {place} of {around}");
                }
            }
        }
        for bytes in
            [&b"\"\xff\""[..], b"\"\xc3\"", b"\"\xed\xa0\x80\"", b"\xef\xbb\xbf{}", b"{\"\xc3\\u0041\":1}"]
        {
            assert_eq!(read(bytes), None, "{bytes:?}");
            assert!(Cursor::of_server(bytes).is_none_or(|_| bytes.starts_with(b"\xef")), "{bytes:?}");
        }
    }

    #[test]
    fn nesting_has_a_bound() {
        for (levels, is_read) in [(1, true), (64, true), (65, false), (1 << 20, false)] {
            let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
            assert_eq!(read(text.as_bytes()).is_some(), is_read, "{levels} arrays");
            let text = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
            assert_eq!(read(text.as_bytes()).is_some(), is_read, "{levels} objects");
            assert_eq!(read("[".repeat(levels).as_bytes()), None, "{levels} arrays that do not end");
        }
        // What is passed over whole has no bound, and costs no stack.
        let text = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert_eq!(Cursor::new(text.as_bytes()).unwrap().raw(), Some(&*text));
        // What is closed makes room.
        let wide = format!("[{}[]]", "[[]],".repeat(1000));
        assert!(read(wide.as_bytes()).is_some());
    }

    #[test]
    fn names_of_fields_are_not_escaped_and_others_may_be() {
        for (text, field, name) in [
            (r#""a":1"#, Some("a"), Some("a")),
            (r#""":1"#, Some(""), Some("")),
            (r#""\u0061":1"#, None, Some("a")),
            (r#""\x":1"#, None, None),
            (r#""a" :1"#, None, None),
            (r#""a""#, None, None),
            ("a:1", None, None),
        ] {
            let cursor = || Cursor::new(text.as_bytes()).unwrap();
            assert_eq!(cursor().field_name(), field.map(str::as_bytes), "{text}");
            assert_eq!(cursor().name().as_deref(), name, "{text}");
        }
    }

    #[test]
    fn a_value_is_passed_over_whole_and_what_is_known_by_its_length() {
        let text = r#"{"a":{"b":"}é"},"c":2}"#;
        let mut cursor = Cursor::of_server(text.as_bytes()).unwrap();
        assert_eq!(cursor.enter(b'{', b'}'), Some(true));
        assert_eq!((cursor.field_name(), cursor.raw()), (Some(&b"a"[..]), Some(r#"{"b":"}é"}"#)));
        assert_eq!((cursor.depth(), cursor.more(b'}')), (1, Some(true)));
        cursor.skip(r#""c":2"#.len());
        assert_eq!((cursor.more(b'}'), cursor.depth(), cursor.position()), (Some(false), 0, text.len()));
        assert!(cursor.is_at_end());
        // Nothing comes of going on where the text is over.
        assert_eq!((cursor.peek(), cursor.raw(), cursor.string(), cursor.integer()), (0, None, None, None));
        for text in ["", ",", "}", "[", "[\"", "{\"a\":[}"] {
            assert_eq!(Cursor::of_server(text.as_bytes()).unwrap().raw(), None, "{text}");
        }
    }
}
