//! Base64 decoding as in Go's `encoding/base64` (RFC 4648): line breaks in a text are dropped, and bits after
//! the last byte are ignored.

use std::borrow::Cow;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

/// The standard alphabet, with padding. Line breaks are not accepted; [`standard`] drops them.
pub const STANDARD: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The URL alphabet, with padding.
const URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The URL alphabet, without padding.
const RAW_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// Decodes a text in the standard alphabet, with padding.
///
/// # Errors
/// The message of Go's error, with the position of the first byte that does not fit.
pub fn standard(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(&*packed(text)).map_err(|_| illegal(text, [b'+', b'/'], true))
}

/// Decodes a text in the URL alphabet, with padding.
///
/// # Errors
/// See [`standard`].
pub fn url(text: &str) -> Result<Vec<u8>, String> {
    URL.decode(&*packed(text)).map_err(|_| illegal(text, [b'-', b'_'], true))
}

/// Decodes a text in the URL alphabet, without padding.
///
/// # Errors
/// See [`standard`].
pub fn raw_url(text: &str) -> Result<Vec<u8>, String> {
    RAW_URL.decode(&*packed(text)).map_err(|_| illegal(text, [b'-', b'_'], false))
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

fn packed(text: &str) -> Cow<'_, str> {
    if text.contains(is_break) { Cow::Owned(text.replace(is_break, "")) } else { Cow::Borrowed(text) }
}

/// Returns the error of a text that cannot be decoded. `symbols` are the characters of the alphabet other
/// than letters and digits.
fn illegal(text: &str, symbols: [u8; 2], is_padded: bool) -> String {
    format!("illegal base64 data at input byte {}", corrupt_at(text, symbols, is_padded))
}

/// Returns the position at which Go stops in a text that cannot be decoded: the byte that does not fit, or
/// the beginning of an incomplete last group, counted back from the end of the text.
fn corrupt_at(text: &str, symbols: [u8; 2], is_padded: bool) -> usize {
    let mut bytes = text.bytes().enumerate().filter(|(_, byte)| !is_break(char::from(*byte)));
    let mut in_group = 0;
    while let Some((at, byte)) = bytes.next() {
        if byte.is_ascii_alphanumeric() || symbols.contains(&byte) {
            in_group = (in_group + 1) % 4;
            continue;
        }
        if !is_padded || byte != b'=' || in_group < 2 {
            return at;
        }
        if in_group == 2 {
            match bytes.next() {
                Some((_, b'=')) => {}
                Some((at, _)) => return at - 1,
                None => return text.len(),
            }
        }
        return bytes.next().map_or(text.len(), |(garbage, _)| garbage);
    }
    text.len() - in_group
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_texts_are_read_as_go_reads_them() {
        for (text, want) in [
            ("", Ok(&[][..])),
            ("AQ==", Ok(&[1][..])),
            ("AR==", Ok(&[1][..])),
            ("A\nQ=\r\n=", Ok(&[1][..])),
            ("a\nG!=", Err("illegal base64 data at input byte 3")),
            ("aGk", Err("illegal base64 data at input byte 0")),
            ("aGkaG", Err("illegal base64 data at input byte 4")),
            ("aG\nk\n", Err("illegal base64 data at input byte 2")),
            ("=", Err("illegal base64 data at input byte 0")),
            ("AQ=", Err("illegal base64 data at input byte 3")),
            ("AQ=\nA", Err("illegal base64 data at input byte 3")),
            ("AQ==AQ", Err("illegal base64 data at input byte 4")),
            ("AQI=\n=", Err("illegal base64 data at input byte 5")),
        ] {
            assert_eq!(standard(text).as_deref().map_err(String::as_str), want, "{text}");
        }
    }

    #[test]
    fn texts_are_read_as_go_reads_them() {
        for (text, want) in [
            ("", Ok(&[][..])),
            ("AQ", Ok(&[1][..])),
            ("AR", Ok(&[1][..])),
            ("A\nQ", Ok(&[1][..])),
            ("_-8", Ok(&[255, 239][..])),
            ("AQ==", Err("illegal base64 data at input byte 2")),
            ("A+", Err("illegal base64 data at input byte 1")),
            ("AQABA", Err("illegal base64 data at input byte 4")),
            ("!!!", Err("illegal base64 data at input byte 0")),
        ] {
            let got = raw_url(text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text}");
        }
        for (text, want) in
            [("_-8=", Ok(&[255, 239][..])), ("_-8", Err("illegal base64 data at input byte 0"))]
        {
            assert_eq!(url(text).as_deref().map_err(String::as_str), want, "{text}");
        }
    }
}
