//! Byte strings in standard base64 with padding.
//!
//! Parsing accepts and drops line breaks inside the text and stray bits after the last byte. The stored form
//! contains neither.

use std::borrow::Cow;

use base64::Engine;
use go::base64::{STANDARD, standard};

/// Returns the canonical form of `text`.
///
/// # Errors
/// An error message if `text` is not base64. The message contains the position of the first invalid byte.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    if is_canonical(text.as_bytes()) {
        return Ok(Cow::Borrowed(text));
    }
    standard(text).map(|bytes| Cow::Owned(encode(&bytes)))
}

/// Returns the number of bytes that canonical `text` encodes, without decoding it.
pub fn decoded_len(text: &str) -> usize {
    let padding = text.bytes().rev().take_while(|&byte| byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

/// Decodes `text`, which must not have line breaks; returns `None` if it is not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Returns the canonical text of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Returns the six bits that a base64 letter encodes; 64 for every other byte.
fn bits(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 64,
    }
}

fn is_canonical(text: &[u8]) -> bool {
    if !text.len().is_multiple_of(4) {
        return false;
    }
    let padding = text.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
    let letters = &text[..text.len() - padding];
    let spare = match padding {
        0 => 0,
        1 => 0b11,
        _ => 0b1111,
    };
    letters.iter().all(|&byte| bits(byte) < 64) && letters.last().is_none_or(|&last| bits(last) & spare == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_checked_and_kept_canonical() {
        for (text, want) in [
            ("", Ok("")),
            ("aGk=", Ok("aGk=")),
            ("aGVsbG8gd29ybGQ=", Ok("aGVsbG8gd29ybGQ=")),
            ("aGVs\nbG8g\r\nd29ybGQ=", Ok("aGVsbG8gd29ybGQ=")),
            ("aGl=", Ok("aGk=")), // stray bits after the last byte
            ("aG!=", Err("illegal base64 data at input byte 2")),
            ("aGk", Err("illegal base64 data at input byte 0")),
        ] {
            let got = canonical(text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text}");
        }
        assert_eq!(decoded_len("aGk="), 2);
        assert_eq!(decoded_len("aGVsbG8gd29ybGQ="), 11);
    }
}
