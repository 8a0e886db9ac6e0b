//! Durations as Go writes them: `1h2m3.5s`. The stored form is the shortest text for the same nanoseconds.

use std::borrow::Cow;

use go::duration::{parse, to_text};

/// Returns the canonical form of `text`.
///
/// # Errors
/// The error message for text that is not a duration, or whose nanoseconds exceed 64 bits.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    let nanos = parse(text).map_err(|error| error.to_string())?;
    let rewritten = to_text(nanos);
    Ok(if rewritten == text { Cow::Borrowed(text) } else { Cow::Owned(rewritten) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write_as_go_does() {
        for (text, want) in [
            ("0", Ok("0s")),
            ("0s", Ok("0s")),
            ("90s", Ok("1m30s")),
            ("1h", Ok("1h0m0s")),
            ("1h0m0s", Ok("1h0m0s")),
            ("1.5s", Ok("1.5s")),
            ("1500ms", Ok("1.5s")),
            ("100us", Ok("100µs")),
            ("-2m", Ok("-2m0s")),
            (".5m", Ok("30s")),
            ("1.0000000009s", Ok("1s")),
            ("0.3333333333333333333h", Ok("20m0s")),
            ("-9223372036854775808ns", Ok("-2562047h47m16.854775808s")),
            ("9223372036854775807ns", Ok("2562047h47m16.854775807s")),
            ("", Err("time: invalid duration \"\"")),
            ("x", Err("time: invalid duration \"x\"")),
            ("5", Err("time: missing unit in duration \"5\"")),
            ("5y", Err("time: unknown unit \"y\" in duration \"5y\"")),
            ("9223372036854775808ns", Err("time: invalid duration \"9223372036854775808ns\"")),
        ] {
            let got = canonical(text);
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text}");
        }
    }
}
