//! Base64 as Go's `encoding/base64` reads it (RFC 4648): line breaks in a text are dropped, and bits behind the last byte are
//! not looked at.

use std::borrow::Cow;

use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine, alphabet};

/// The usual alphabet, with padding. It reads no line breaks, which [`standard`] drops.
pub const STANDARD: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The alphabet of URLs, without padding.
const RAW_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The bytes of a text in the usual alphabet, with padding.
///
/// # Errors
/// The text of Go's error, with the position of the first byte that does not fit.
pub fn standard(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(&*packed(text)).map_err(|error| illegal(position(text, &error)))
}

/// The bytes of a text in the alphabet of URLs, without padding.
///
/// # Errors
/// As [`standard`].
pub fn raw_url(text: &str) -> Result<Vec<u8>, String> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || is_break(c);
    RAW_URL.decode(&*packed(text)).map_err(|_| {
        // Without an odd character, the last one is alone.
        illegal(text.find(|c| !is_fit(c)).unwrap_or(text.len().saturating_sub(1)))
    })
}

fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n')
}

fn packed(text: &str) -> Cow<'_, str> {
    if text.contains(is_break) { Cow::Owned(text.replace(is_break, "")) } else { Cow::Borrowed(text) }
}

fn illegal(at: usize) -> String {
    format!("illegal base64 data at input byte {at}")
}

/// Where in a text with line breaks the error of the text without them is.
fn position(text: &str, error: &DecodeError) -> usize {
    match *error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol { offset: at, .. } => {
            let kept = text.bytes().enumerate().filter(|(_, byte)| !is_break(char::from(*byte)));
            kept.map(|(original, _)| original).nth(at).unwrap_or(text.len())
        }
        DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len() / 4 * 4,
    }
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
            ("AQ==AQ", Err("illegal base64 data at input byte 2")),
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
    }
}
