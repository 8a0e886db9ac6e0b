//! Strings in double quotes, as Go's `%q` writes them (`strconv.Quote`).

use std::fmt::{self, Write};

/// Displays a string in double quotes; quotes, backslashes and characters that are not printable are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'s>(pub &'s str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        self.0.chars().try_for_each(|c| write_escaped(f, c))?;
        f.write_char('"')
    }
}

fn write_escaped(out: &mut impl Write, c: char) -> fmt::Result {
    match c {
        '"' | '\\' => write!(out, "\\{c}"),
        '\u{7}' => out.write_str("\\a"),
        '\u{8}' => out.write_str("\\b"),
        '\u{c}' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\u{b}' => out.write_str("\\v"),
        '\0'..='\u{1f}' | '\u{7f}' => write!(out, "\\x{:02x}", u32::from(c)),
        _ if is_printable(c) => out.write_char(c),
        '\u{80}'..='\u{ffff}' => write!(out, "\\u{:04x}", u32::from(c)),
        _ => write!(out, "\\U{:08x}", u32::from(c)),
    }
}

/// Returns whether a character is printable, as `strconv.IsPrint` decides. Letters, marks, numbers,
/// punctuation, symbols and the ASCII space are printable; other separators, control, private-use and
/// unassigned characters are not.
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    // `str::escape_debug` escapes by the same Unicode categories, but escapes combining marks only at the
    // start of a text.
    let mut bytes = [b'a', 0, 0, 0, 0];
    let end = 1 + c.encode_utf8(&mut bytes[1..]).len();
    std::str::from_utf8(&bytes[..end]).is_ok_and(|text| text.escape_debug().count() == 2)
}

/// Returns `text` in double quotes, as [`Quoted`] displays it.
pub fn quote(text: &str) -> String {
    Quoted(text).to_string()
}

/// Returns `bytes` in double quotes like [`quote`]; bytes that are not UTF-8 become `\x` escapes.
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        // Writing to a string does not fail.
        let _ = chunk.valid().chars().try_for_each(|c| write_escaped(&mut out, c));
        let _ = chunk.invalid().iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"));
    }
    out.push('"');
    out
}

/// Displays a list of strings as `["a" "b"]`.
#[derive(Clone, Copy, Debug)]
pub struct QuotedList<'l>(pub &'l [String]);

impl fmt::Display for QuotedList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (at, item) in self.0.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { " " } else { "" }, Quoted(item))?;
        }
        f.write_char(']')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_escape_quotes_and_characters_that_do_not_print() {
        for (text, quoted) in [
            ("", r#""""#),
            ("jane", r#""jane""#),
            (r#"a"b\c"#, r#""a\"b\\c""#),
            ("a\nb\u{1}", r#""a\nb\x01""#),
            ("\u{7}\u{8}\u{c}\r\t\u{b}\u{7f}", r#""\a\b\f\r\t\v\x7f""#),
            ("é\u{202e}", "\"é\\u202e\""),
            // A combining mark and a symbol print; separators, controls, private and unassigned characters do
            // not.
            ("\u{301}e\u{301}☺\u{1f600}\u{fffd}", "\"\u{301}e\u{301}☺\u{1f600}\u{fffd}\""),
            ("\u{85}\u{a0}\u{ad}\u{2003}\u{2028}\u{feff}", r#""\u0085\u00a0\u00ad\u2003\u2028\ufeff""#),
            ("\u{e000}\u{ffff}\u{e0001}\u{10ffff}", r#""\ue000\uffff\U000e0001\U0010ffff""#),
        ] {
            assert_eq!(quote(text), quoted);
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_escaped() {
        assert_eq!(quote_bytes(b"\x00\x07\x7f\xffa\"\xc3\xa9"), r#""\x00\a\x7f\xffa\"é""#);
    }
}
