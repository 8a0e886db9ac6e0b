//! The first step: converts bytes to text. This step determines the encoding, and finds the first character
//! that YAML does not allow.
//!
//! A stream is UTF-8 unless it begins with the byte order mark of UTF-16. A disallowed character is an error
//! only when the scanner comes near it. The reference server reads in blocks of 512 bytes: it never reads a
//! disallowed character that follows the first document by more than one block, and it reports an earlier
//! syntax error first. The text of a [`Source`] therefore ends where the block of that character begins.

use std::borrow::Cow;

use super::document::YamlError;

/// Number of bytes that the reference server reads at a time.
const BLOCK_BYTES: usize = 512;

/// The text that can be scanned.
pub(super) struct Source<'t> {
    pub text: Cow<'t, str>,
    /// The error to report when the scanner reaches the end of the text; `None` if the text is complete.
    pub error: Option<YamlError>,
}

/// Decodes a stream of bytes in a single pass.
pub(super) fn read(bytes: &[u8]) -> Source<'_> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => read_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => read_utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => read_utf8(rest),
        _ => read_utf8(bytes),
    }
}

fn read_utf8(bytes: &[u8]) -> Source<'_> {
    let (valid, broken) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            (std::str::from_utf8(valid).unwrap_or_default(), Some(invalid_sequence(rest)))
        }
    };
    match disallowed(valid) {
        Some(at) => cut(valid, at, CONTROL),
        None => match broken {
            Some(what) => cut(valid, valid.len(), what),
            None => Source { text: valid.into(), error: None },
        },
    }
}

const CONTROL: &str = "control characters are not allowed";

/// Returns the text before the block that contains the character at `at`.
fn cut<'t>(text: &'t str, at: usize, what: &str) -> Source<'t> {
    let mut end = 0;
    while end + BLOCK_BYTES <= at {
        end += BLOCK_BYTES;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
    }
    Source { text: text[..end].into(), error: Some(YamlError::Reader(what.to_owned())) }
}

/// Returns the position of the first character that YAML does not allow.
fn disallowed(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // All other bytes from 0x80 on belong to allowed characters.
    let is_suspect =
        |byte: u8| matches!(byte, ..0x20 | 0x7f | 0xc2 | 0xef) && !matches!(byte, b'\t' | b'\n' | b'\r');
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|&byte| is_suspect(byte))?;
        match bytes[at] {
            0xc2 if bytes[at + 1] == 0x85 || bytes[at + 1] >= 0xa0 => at += 2,
            0xef if bytes[at + 1] != 0xbf || bytes[at + 2] < 0xbe => at += 3,
            _ => return Some(at),
        }
    }
}

/// Returns why the first sequence of these bytes is not UTF-8.
fn invalid_sequence(bytes: &[u8]) -> &'static str {
    let first = bytes.first().copied().unwrap_or_default();
    let width = match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return "invalid leading UTF-8 octet",
    };
    let Some(sequence) = bytes.get(..width) else { return "incomplete UTF-8 octet sequence" };
    if sequence[1..].iter().any(|byte| byte & 0xc0 != 0x80) {
        return "invalid trailing UTF-8 octet";
    }
    match (first, sequence[1]) {
        (0xc0 | 0xc1, _) | (0xe0, ..0xa0) | (0xf0, ..0x90) => "invalid length of a UTF-8 sequence",
        _ => "invalid Unicode character",
    }
}

fn read_utf16<'t>(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Source<'t> {
    let (pairs, odd) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(c) => text.push(c),
            Err(error) => {
                let is_low = error.unpaired_surrogate() >= 0xdc00;
                let what =
                    if is_low { "unexpected low surrogate area" } else { "expected low surrogate area" };
                return owned_cut(text, what);
            }
        }
    }
    if let Some(at) = disallowed(&text) {
        text.truncate(at);
        return owned_cut(text, CONTROL);
    }
    if !odd.is_empty() {
        return owned_cut(text, "incomplete UTF-16 character");
    }
    Source { text: text.into(), error: None }
}

fn owned_cut<'t>(mut text: String, what: &str) -> Source<'t> {
    if let Some(at) = disallowed(&text) {
        text.truncate(at);
        return owned_cut(text, CONTROL);
    }
    let Source { text: prefix, error } = cut(&text, text.len(), what);
    let prefix = prefix.len();
    text.truncate(prefix);
    Source { text: text.into(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_bytes_are_decoded_up_to_the_first_forbidden_character() {
        let long = "x".repeat(600);
        for (bytes, text, error) in [
            (&b"a: 1"[..], "a: 1", None),
            (b"\xef\xbb\xbfa", "a", None),
            (b"\xff\xfea\0:\0", "a:", None),
            (b"\xfe\xff\0a\x20\x28", "a\u{2028}", None),
            (
                "\u{85}\u{a0}\u{d7ff}\u{e000}\u{fffd}\u{10000}\t\r\n".as_bytes(),
                "\u{85}\u{a0}\u{d7ff}\u{e000}\u{fffd}\u{10000}\t\r\n",
                None,
            ),
            (b"a\x00", "", Some(CONTROL)),
            (b"a\x7f", "", Some(CONTROL)),
            ("a\u{80}".as_bytes(), "", Some(CONTROL)),
            ("a\u{fffe}".as_bytes(), "", Some(CONTROL)),
            (b"\xff", "", Some("invalid leading UTF-8 octet")),
            (b"\xc3", "", Some("incomplete UTF-8 octet sequence")),
            (b"\xc3(", "", Some("invalid trailing UTF-8 octet")),
            (b"\xc0\x80", "", Some("invalid length of a UTF-8 sequence")),
            (b"\xed\xa0\x80", "", Some("invalid Unicode character")),
            (b"\xff\xfe\0\xdc", "", Some("unexpected low surrogate area")),
            (b"\xff\xfea", "", Some("incomplete UTF-16 character")),
            (format!("{long}\x01").as_bytes(), &long[..512], Some(CONTROL)),
            (format!("\x02{long}\x01").as_bytes(), "", Some(CONTROL)),
        ] {
            let source = read(bytes);
            assert_eq!(source.text, text, "{bytes:?}");
            let error = error.map(|what: &str| YamlError::Reader(what.to_owned()));
            assert_eq!(source.error, error, "{bytes:?}");
        }
    }
}
