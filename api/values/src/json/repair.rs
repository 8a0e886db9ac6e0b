//! Repair of strings that are not valid Unicode, as in Go's `encoding/json`: each byte that is not UTF-8, and
//! each unpaired surrogate, becomes U+FFFD.
//!
//! The repair runs only after a text was rejected.

use super::syntax_error;

const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

/// Returns `text` with its strings repaired; `None` if `text` is not one JSON document.
pub fn repaired(text: &[u8]) -> Option<Vec<u8>> {
    if syntax_error(text).is_some() {
        return None;
    }
    // In a JSON document, backslashes and non-ASCII bytes occur only in strings.
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\' || !byte.is_ascii()) {
        let (plain, from) = rest.split_at(at);
        let (len, is_whole) = if from[0] == b'\\' { escape(from) } else { character(from) };
        let (found, after) = from.split_at(len.min(from.len()));
        out.extend_from_slice(plain);
        out.extend_from_slice(if is_whole { found } else { REPLACEMENT });
        rest = after;
    }
    out.extend_from_slice(rest);
    Some(out)
}

/// Returns the length of the escape at the start of `text`, and whether it encodes a character.
fn escape(text: &[u8]) -> (usize, bool) {
    const HIGH: std::ops::Range<u16> = 0xd800..0xdc00;
    const LOW: std::ops::Range<u16> = 0xdc00..0xe000;
    match unit(text) {
        None => (2, true),
        Some(high) if HIGH.contains(&high) => match unit(&text[6..]) {
            Some(low) if LOW.contains(&low) => (12, true),
            _ => (6, false),
        },
        Some(unit) => (6, !LOW.contains(&unit)),
    }
}

/// Returns the code unit of the `\uXXXX` escape at the start of `text`.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns the length of the character at the start of `text`, and whether it is valid. An invalid byte
/// counts as one character.
fn character(text: &[u8]) -> (usize, bool) {
    let chunk = text[..text.len().min(4)].utf8_chunks().next();
    match chunk.and_then(|chunk| chunk.valid().chars().next()) {
        Some(character) => (character.len_utf8(), true),
        None => (1, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_strings_are_repaired_like_those_of_the_json_decoder_of_go() {
        for (text, want) in [
            (&br#"{"a":"x\n\u00e9"}"#[..], r#"{"a":"x\n\u00e9"}"#),
            (b"\"a\xffb\"", "\"a\u{fffd}b\""),
            (b"\"\xed\xa0\x80\"", "\"\u{fffd}\u{fffd}\u{fffd}\""),
            (b"\"\xe2\x82\"", "\"\u{fffd}\u{fffd}\""),
            ("\"é😀\\\\\"".as_bytes(), "\"é😀\\\\\""),
            (br#""\ud800""#, "\"\u{fffd}\""),
            (br#""\udc00x""#, "\"\u{fffd}x\""),
            (br#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (br#""\ud83d\ud83d\ude00""#, "\"\u{fffd}\\ud83d\\ude00\""),
            (br#""\ud83d\u0041""#, "\"\u{fffd}\\u0041\""),
            (br#""\\ud800""#, r#""\\ud800""#),
        ] {
            assert_eq!(repaired(text).map(String::from_utf8), Some(Ok(want.to_owned())), "{want}");
        }
        for text in [&b"\xff"[..], b"{\xff}", b"\"\xff", b""] {
            assert_eq!(repaired(text), None, "{text:?}");
        }
    }
}
