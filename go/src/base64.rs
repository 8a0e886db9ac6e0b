//! Base64 in the alphabet of URLs and without padding, as Go's `encoding/base64` reads it (RFC 4648, section 5).

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Bits behind the last byte are not looked at.
const RAW_URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

/// The bytes of a text; line breaks in it are dropped.
///
/// # Errors
/// The text of Go's error, with the position of the first byte that does not fit.
pub fn raw_url(text: &str) -> Result<Vec<u8>, String> {
    let is_break = |c: char| matches!(c, '\r' | '\n');
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || is_break(c);
    let packed: String;
    let packed = match text.contains(is_break) {
        true => {
            packed = text.replace(is_break, "");
            &packed
        }
        false => text,
    };
    RAW_URL.decode(packed).map_err(|_| {
        // Without an odd character, the last one is alone.
        let at = text.find(|c| !is_fit(c)).unwrap_or(text.len().saturating_sub(1));
        format!("illegal base64 data at input byte {at}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
