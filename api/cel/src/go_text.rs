//! Writes strings and numbers as Go's `fmt` and `strconv` do, because error messages and unparsed expressions have that
//! form.

use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;

/// A string in double quotes with Go's escapes. Bytes that are not UTF-8 become `\x` escapes.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|c| quote_char(c, &mut out));
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
    out
}

/// Text in double quotes with Go's escapes.
pub(crate) fn quoted(text: &str) -> String {
    quote(text.as_bytes())
}

fn quote_char(c: char, out: &mut String) {
    let escape = match c {
        '"' | '\\' => c,
        '\x07' => 'a',
        '\x08' => 'b',
        '\x0c' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\x0b' => 'v',
        _ if is_printable(c) => return out.push(c),
        _ => {
            let _ = match c as u32 {
                code @ ..0x80 => write!(out, "\\x{code:02x}"),
                code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            };
            return;
        }
    };
    out.extend(['\\', escape]);
}

/// Letters, marks, numbers, punctuation, symbols, and the space.
fn is_printable(c: char) -> bool {
    static PRINTABLE: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"[\p{L}\p{M}\p{N}\p{P}\p{S}]").ok());
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => PRINTABLE.as_ref().is_some_and(|class| class.is_match(c.encode_utf8(&mut [0; 4]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_escape_what_is_not_printable() {
        for (bytes, text) in [
            (&b"a\"b\\c"[..], r#""a\"b\\c""#),
            ("é\u{200b}\u{1f600}\u{e0001}".as_bytes(), "\"é\\u200b\u{1f600}\\U000e0001\""),
            (b"\x00\x07\x7f\xff", r#""\x00\a\x7f\xff""#),
        ] {
            assert_eq!(quote(bytes), text);
        }
    }
}
