//! Encodes a tree as YAML in the format of the reference server (docs/api/encodings.md#json-and-yaml-output).
//!
//! The output has block style with two spaces per level. Lists are not indented below their key. Members are
//! sorted. A string is quoted if YAML 1.1 would read its text as another type. Long lines are folded, except
//! in member names.
//!
//! Our reader and other readers read the output back as the same tree. Therefore a string is unquoted only if
//! every reader reads the text as a string.

use std::cmp::Ordering;

use super::scalar::{self, Resolved};
use crate::cancellation;
use crate::json::{self, Object, Value};

/// Maximum length of a key that is written before its colon on one line; readers do not search further for
/// the colon.
const KEY_BYTES_MAX: usize = 128;
/// A line ends at the first space after this many columns, if the text can continue on the next line.
const FOLD_COLUMN: usize = 80;

/// Appends `value` as a document, with a final newline.
pub fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Object(members) if !members.is_empty() => write_members(members, 0, out),
        Value::Array(items) if !items.is_empty() => items.iter().for_each(|item| write_item(item, out)),
        flat => {
            write_flat(flat, 0, out);
            out.push(b'\n');
        }
    }
}

/// Appends one member of an object, without indentation. Several calls produce one mapping.
pub fn write_member(name: &str, value: &Value, out: &mut Vec<u8>) {
    member(name, value, 0, out);
}

/// Appends one item of a list without indentation, below its key.
pub fn write_item(value: &Value, out: &mut Vec<u8>) {
    item(value, 0, out);
}

/// Compares names for the order of members. Letters are in alphabetic order, and numbers in names are
/// compared by value, so that `a2` comes before `a10`.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.chars().peekable(), b.chars().peekable());
    // Whether the common prefix ends in a number that is not zero.
    let mut in_number = false;
    while let (Some(&x), Some(&y)) = (left.peek(), right.peek()) {
        if x == y {
            in_number = x.is_ascii_digit() && (in_number || x != '0');
            left.next();
            right.next();
            continue;
        }
        if x.is_alphabetic() != y.is_alphabetic() {
            // Non-letters come first.
            return x.is_alphabetic().cmp(&y.is_alphabetic());
        }
        if x.is_alphabetic() || !(x.is_ascii_digit() || y.is_ascii_digit()) {
            return x.cmp(&y);
        }
        let digits = |text: &mut dyn Iterator<Item = char>| -> String {
            text.take_while(char::is_ascii_digit).collect()
        };
        let (m, n) = (digits(&mut left), digits(&mut right));
        let size = |digits: &str| {
            let digits = if in_number { digits } else { digits.trim_start_matches('0') };
            (digits.len(), digits.to_owned())
        };
        return size(&m).cmp(&size(&n)).then(m.len().cmp(&n.len())).then(x.cmp(&y));
    }
    a.len().cmp(&b.len())
}

fn write_members(members: &Object, level: usize, out: &mut Vec<u8>) {
    for (at, (name, value)) in sorted(members).into_iter().enumerate() {
        if at > 0 {
            indent(level, out);
        }
        member(name, value, level, out);
    }
}

fn sorted(members: &Object) -> Vec<(&str, &Value)> {
    let mut sorted: Vec<(&str, &Value)> = members.iter().collect();
    sorted.sort_by(|(a, _), (b, _)| compare_names(a, b));
    sorted
}

/// Writes one member, including the end of its line. The caller has indented the line.
fn member(name: &str, value: &Value, level: usize, out: &mut Vec<u8>) {
    cancellation::step();
    if name.len() > KEY_BYTES_MAX {
        out.extend_from_slice(b"? ");
        write_text(name, Line::begin(None, out));
        out.push(b'\n');
        indent(level, out);
    } else {
        write_text(name, Line::begin(None, out));
    }
    out.push(b':');
    match value {
        Value::Object(members) if !members.is_empty() => {
            out.push(b'\n');
            indent(level + 1, out);
            write_members(members, level + 1, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push(b'\n');
            for value in items {
                indent(level, out);
                item(value, level, out);
            }
        }
        flat => {
            out.push(b' ');
            write_flat(flat, level, out);
            out.push(b'\n');
        }
    }
}

/// Writes one item, including the end of its line. The caller has indented the line.
fn item(value: &Value, level: usize, out: &mut Vec<u8>) {
    cancellation::step();
    out.extend_from_slice(b"- ");
    match value {
        Value::Object(members) if !members.is_empty() => write_members(members, level + 1, out),
        Value::Array(items) if !items.is_empty() => {
            for (at, value) in items.iter().enumerate() {
                if at > 0 {
                    indent(level + 1, out);
                }
                item(value, level + 1, out);
            }
        }
        flat => {
            write_flat(flat, level, out);
            out.push(b'\n');
        }
    }
}

fn indent(level: usize, out: &mut Vec<u8>) {
    (0..level).for_each(|_| out.extend_from_slice(b"  "));
}

/// Writes a scalar or an empty container.
fn write_flat(value: &Value, level: usize, out: &mut Vec<u8>) {
    match value {
        Value::Array(_) => out.extend_from_slice(b"[]"),
        Value::Object(_) => out.extend_from_slice(b"{}"),
        Value::String(text) if is_literal(text) => write_literal(text, level, out),
        Value::String(text) => write_text(text, Line::begin(Some(level + 1), out)),
        // Without a fraction, a reader would read an integer, and integers have no negative zero.
        Value::Float(zero) if *zero == 0.0 && zero.is_sign_negative() => out.extend_from_slice(b"-0.0"),
        scalar => json::write(scalar, out),
    }
}

/// Returns whether a multi-line text is written as a literal block. In a literal block, white space at the
/// ends of lines and control characters would be lost or invisible.
fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && text.chars().all(|c| c == '\n' || is_printable(c))
        && text.lines().all(|line| !line.ends_with(' '))
}

fn write_literal(text: &str, level: usize, out: &mut Vec<u8>) {
    out.push(b'|');
    // Readers take the indentation from the first line that is not empty. If this line begins with white
    // space, the indentation must be given as a number.
    if text.starts_with([' ', '\n']) {
        out.push(b'2');
    }
    // The chomping indicator: a block ends in one newline by default, `+` keeps all newlines, and `-` removes
    // every newline.
    let (lines, chomp) = match text.strip_suffix('\n') {
        None => (text, "-"),
        Some(lines) if lines.is_empty() || lines.ends_with('\n') => (lines, "+"),
        Some(lines) => (lines, ""),
    };
    out.extend_from_slice(chomp.as_bytes());
    for line in lines.split('\n') {
        out.push(b'\n');
        if !line.is_empty() {
            indent(level + 1, out);
            out.extend_from_slice(line.as_bytes());
        }
    }
}

/// The line to which a text is appended.
struct Line<'a> {
    out: &'a mut Vec<u8>,
    /// Number of characters in the line so far.
    column: usize,
    /// The level of the lines that continue the text; `None` keeps the text on one line.
    continuation: Option<usize>,
}

impl<'a> Line<'a> {
    fn begin(continuation: Option<usize>, out: &'a mut Vec<u8>) -> Self {
        let start = out.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let column = out[start..].iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
        Line { out, column, continuation }
    }

    fn push(&mut self, c: char) {
        self.out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.column += 1;
    }

    fn push_ascii(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        self.column += text.len();
    }

    /// Ends the line instead of writing a space if the line is long enough. A reader converts this line break
    /// to a space. Returns whether the line was ended.
    fn fold(&mut self) -> bool {
        let Some(level) = self.continuation.filter(|_| self.column > FOLD_COLUMN) else { return false };
        self.out.push(b'\n');
        indent(level, self.out);
        self.column = 2 * level;
        true
    }

    /// Returns whether the line stays short enough with `text`, so that it need not be folded at a space of
    /// `text`.
    fn has_room(&self, text: &str) -> bool {
        self.continuation.is_none() || self.column + text.len() <= FOLD_COLUMN
    }
}

/// Writes a string that is not a literal block, with quotes if necessary.
fn write_text(text: &str, mut line: Line<'_>) {
    if !text.chars().all(is_printable) {
        return write_escaped(text, line);
    }
    let means_itself = scalar::resolve(text) == Resolved::Text
        && text != "<<" // as a key, `<<` is a merge
        && !is_sexagesimal(text)
        && !is_date(text);
    if !means_itself {
        write_escaped(text, line);
    } else if is_plain(text) {
        write_words(text, false, &mut line);
    } else {
        line.push('\'');
        write_words(text, true, &mut line);
        line.push('\'');
    }
}

/// Writes the characters of a plain or single-quoted scalar.
fn write_words(text: &str, is_quoted: bool, line: &mut Line<'_>) {
    if line.has_room(text) && !(is_quoted && text.contains('\'')) {
        return line.out.extend_from_slice(text.as_bytes());
    }
    let mut follows_space = false;
    for (at, c) in text.char_indices() {
        // A reader removes white space at both sides of the end of a line.
        let can_fold = c == ' ' && !follows_space && at > 0 && text[at + 1..].starts_with(|next| next != ' ');
        if !(can_fold && line.fold()) {
            if is_quoted && c == '\'' {
                line.push(c);
            }
            line.push(c);
        }
        follows_space = c == ' ';
    }
}

/// Returns whether a character may be written unescaped. goyaml escapes every character outside of the basic
/// multilingual plane. Some readers treat U+2028 and U+2029 as the end of a line, and other readers treat
/// them as characters of the text.
fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
        && c <= '\u{ffff}'
}

/// Returns whether the text can be a plain scalar: no character is special at its position.
fn is_plain(text: &str) -> bool {
    let starts_well = |text: &str| {
        let mut chars = text.chars();
        match chars.next() {
            None => false,
            Some('-' | '?' | ':') => chars.next().is_some_and(|next| next != ' '),
            Some(first) => !"#,[]{}&*!|>'\"%@` ".contains(first),
        }
    };
    starts_well(text)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
}

/// Returns whether a text is a base-60 number, such as `1:30:00.5`, which some readers of YAML 1.1 accept.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut parts = whole.split(':');
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let first =
        parts.next().is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()) && digits(part));
    let rest: Vec<&str> = parts.collect();
    let in_base = |part: &&str| part.parse::<u8>().is_ok_and(|part| part < 60) && !part.starts_with('+');
    first && !rest.is_empty() && rest.iter().all(in_base) && digits(fraction)
}

/// Returns whether a text is a date or a time that some readers convert, such as `2001-01-01` or
/// `2001-1-1T0:0:0Z`.
fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let number = |part: &str, lens: std::ops::RangeInclusive<usize>| {
        lens.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let year = parts.next().is_some_and(|part| number(part, 4..=4));
    let month = parts.next().is_some_and(|part| number(part, 1..=2));
    let rest = parts.next().unwrap_or_default();
    let day = rest.split(['T', 't', ' ']).next().unwrap_or_default();
    year && month && number(day, 1..=2)
}

fn write_escaped(text: &str, mut line: Line<'_>) {
    // goyaml escapes every character of a text that begins with a byte order mark.
    let has_mark = text.starts_with('\u{feff}');
    line.push('"');
    let mut follows_space = false;
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        let is_space = c == ' ' && !has_mark;
        if has_mark || !is_printable(c) || matches!(c, '"' | '\\') {
            write_escape(c, &mut line);
        } else if is_space && !follows_space && at > 0 && !rest.is_empty() && line.fold() {
            if rest.starts_with(' ') {
                line.push('\\');
            }
        } else {
            line.push(c);
        }
        follows_space = is_space;
    }
    line.push('"');
}

fn write_escape(c: char, line: &mut Line<'_>) {
    let short = match c {
        '\0' => "\\0",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        '\x1b' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{a0}' => "\\_",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        c => {
            let code = u32::from(c);
            return line.push_ascii(&match code {
                ..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            });
        }
    };
    line.push_ascii(short);
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn text(json: &str) -> String {
        let mut out = Vec::new();
        write(&json::parse(json.as_bytes()).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn documents_are_written_as_upstream_writes_them() {
        for (json, want) in [
            ("null", "null\n"),
            ("{}", "{}\n"),
            ("[]", "[]\n"),
            (r#"{"b":1,"a":[]}"#, "a: []\nb: 1\n"),
            (r#"{"k":{"z":null,"y":{"x":true}}}"#, "k:\n  \"y\":\n    x: true\n  z: null\n"),
            (
                r#"{"l":[1,"a",{"b":1,"a":[2]},[],[[3],4]]}"#,
                "l:\n- 1\n- a\n- a:\n  - 2\n  b: 1\n- []\n- - - 3\n  - 4\n",
            ),
            (
                r#"{"t":"a\nb\n","u":"a\nb","v":"a\n\nb\n\n"}"#,
                "t: |\n  a\n  b\nu: |-\n  a\n  b\nv: |+\n  a\n\n  b\n\n",
            ),
            (r#"[{"t":"a\nb"}]"#, "- t: |-\n    a\n    b\n"),
            (r#"["a\nb"]"#, "- |-\n  a\n  b\n"),
            (r#"{"a":1.5,"b":1e30}"#, "a: 1.5\nb: 1e+30\n"),
            (r#"{"a10":1,"a2":1,"a":1,"B":1,"a-1":1}"#, "B: 1\na: 1\na-1: 1\na2: 1\na10: 1\n"),
        ] {
            assert_eq!(text(json), want, "{json}");
        }
    }

    #[test]
    fn strings_are_quoted_where_they_would_read_as_another_type() {
        for (string, want) in [
            ("plain text", "plain text"),
            ("", "\"\""),
            ("yes", "\"yes\""),
            ("y", "\"y\""),
            ("null", "\"null\""),
            ("~", "\"~\""),
            ("0644", "\"0644\""),
            ("1_000", "\"1_000\""),
            ("1:30", "\"1:30\""),
            ("1:99", "1:99"),
            ("1e3", "\"1e3\""),
            (".inf", "\".inf\""),
            ("<<", "\"<<\""),
            ("2001-01-01T00:00:00Z", "\"2001-01-01T00:00:00Z\""),
            ("2001-01-x", "2001-01-x"),
            ("10.0.0.1", "10.0.0.1"),
            ("100m", "100m"),
            ("a: b", "'a: b'"),
            ("a:b", "a:b"),
            ("a:", "'a:'"),
            ("a #b", "'a #b'"),
            ("#a", "'#a'"),
            ("*a", "'*a'"),
            ("- a", "'- a'"),
            ("-a", "-a"),
            ("-", "'-'"),
            ("---", "'---'"),
            ("it's", "it's"),
            ("'", "''''"),
            (" a", "' a'"),
            ("a ", "'a '"),
            ("\t", "\"\\t\""),
            ("a\u{0}b", "\"a\\0b\""),
            ("\u{1}\u{7}\u{1b}\u{7f}", "\"\\x01\\a\\e\\x7F\""),
            ("ü€", "ü€"),
            ("\u{a0}a", "\u{a0}a"),
            ("\u{85}", "\"\\N\""),
            ("\u{2028}", "\"\\L\""),
            ("😀 a", "\"\\U0001F600 a\""),
            ("\u{feff}x ä\u{a0}", "\"\\uFEFF\\x78\\x20\\xE4\\_\""),
            ("a\u{feff}x", "\"a\\uFEFFx\""),
            (" a\nb", "|2-\n   a\n  b"),
            ("\na", "|2-\n\n  a"),
            ("a \nb", "\"a \\nb\""),
            ("a\n ", "\"a\\n \""),
            ("a\r\nb", "\"a\\r\\nb\""),
            ("\n", "|2+\n"),
            ("\n\n", "|2+\n\n"),
        ] {
            let mut out = Vec::new();
            write(&string.into(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{want}\n"), "{string:?}");
        }
    }

    #[test]
    fn yaml_lines_are_folded_at_a_space_after_eighty_columns() {
        let a = |count| "a".repeat(count);
        // A plain text below `k: ` begins at column three, a quoted text at column four.
        for (string, want) in [
            (format!("{} b c", a(77)), format!("{} b\n  c", a(77))),
            (format!("{} b c", a(78)), format!("{}\n  b c", a(78))),
            (format!("{} b", a(120)), format!("{}\n  b", a(120))),
            (format!("{}  b", a(120)), format!("{}  b", a(120))),
            (format!("{} b ", a(120)), format!("'{}\n  b '", a(120))),
            (format!("{} ", a(120)), format!("'{} '", a(120))),
            (format!("'{} it's", a(77)), format!("'''{}\n  it''s'", a(77))),
            (format!("{}\t b  c d", a(77)), format!("\"{}\\t\n  b  c d\"", a(77))),
            (format!("{}\t  b", a(77)), format!("\"{}\\t\n  \\ b\"", a(77))),
            (format!("{}\t ", a(77)), format!("\"{}\\t \"", a(77))),
            (format!("{} ü", "ü".repeat(77)), format!("{} ü", "ü".repeat(77))),
            (format!("{} ü", "ü".repeat(78)), format!("{}\n  ü", "ü".repeat(78))),
        ] {
            let mut object = Object::new();
            object.push("k", string.as_str().into());
            let json = Value::from(object);
            let mut out = Vec::new();
            write(&json, &mut out);
            assert_eq!(String::from_utf8(out.clone()).unwrap(), format!("k: {want}\n"), "{string:?}");
            assert_eq!(parse(&out).unwrap().value, json);
        }
        let words = format!("{}b", "word ".repeat(30));
        let mut out = Vec::new();
        write(&Value::Array(vec![Value::Array(vec![words.as_str().into()])]), &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("- - word word"), "{text}");
        assert_eq!(text.lines().nth(1).map(|line| line.starts_with("    word")), Some(true), "{text}");
    }

    #[test]
    fn encoded_yaml_parses_to_the_same_tree() {
        let long = "k".repeat(5000);
        let words = "- it's #a word ".repeat(20);
        let spaced = "\t a  b   😀 \\ \"c\" ".repeat(20);
        let strings = [
            "",
            "a",
            "yes",
            "a: b",
            "- x",
            "'",
            "\"",
            "\\",
            "a\nb",
            "a\n",
            "\na",
            "a\n\n",
            " \n",
            "a\r\nb",
            "\u{85}",
            "\u{feff}x",
            "\u{10ffff}",
            "? a",
            "[a",
            "}",
            "%x",
            "@",
            "`",
            "a,b",
            "!x",
            "&x",
            "|",
            ">",
            "=",
            "1",
            "1.",
            "0x1",
            "a\tb",
            "\ta",
            "a\t",
            "x\n  y\n z",
            "# c",
            "...",
            "a\n---\nb",
            " a\n  b",
            "\n\n a\n",
            "\u{feff} \u{2028}\u{1}",
            &long,
            &words,
            &spaced,
        ];
        for a in strings {
            for b in strings {
                let mut members = Object::new();
                members.insert(a.to_owned(), b.into());
                members.insert("list".to_owned(), Value::Array(vec![a.into(), Value::Array(vec![b.into()])]));
                let mut inner = Object::new();
                inner.insert(b.to_owned(), Value::Array(vec![a.into()]));
                members.insert("inner".to_owned(), inner.into());
                let mut out = Vec::new();
                write(&Value::Object(members.clone()), &mut out);
                let read = parse(&out)
                    .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&out)));
                members.members_mut().sort_by(|(a, _), (b, _)| compare_names(a, b));
                assert_eq!(read.value, Value::Object(members), "{:?}", String::from_utf8_lossy(&out));
            }
        }
    }
}
