//! Durations as Go writes them: `1h2m3.5s`, kept as the shortest such text of the same nanoseconds.

use std::borrow::Cow;

pub use auth::go::duration::parse;

/// The canonical form of `text`.
///
/// # Errors
/// The sentence for text that is no duration, or one that does not fit 64 bits of nanoseconds.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    let nanos = parse(text).map_err(|error| error.to_string())?;
    let kept = format(nanos);
    Ok(if kept == text { Cow::Borrowed(text) } else { Cow::Owned(kept) })
}

/// The canonical text of so many nanoseconds.
pub fn format(nanos: i64) -> String {
    let size = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    if size == 0 {
        return "0s".to_owned();
    }
    if size < 1_000_000_000 {
        let (unit, scale, places) = match size {
            0..1_000 => ("ns", 1, 0),
            1_000..1_000_000 => ("µs", 1_000, 3),
            _ => ("ms", 1_000_000, 6),
        };
        return format!("{sign}{}{unit}", decimal(size, scale, places));
    }
    let seconds = decimal(size % 60_000_000_000, 1_000_000_000, 9);
    let minutes = size / 60_000_000_000;
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, m) => format!("{sign}{m}m{seconds}s"),
        (h, m) => format!("{sign}{h}h{m}m{seconds}s"),
    }
}

/// `value / scale` with at most `places` digits behind the point and no trailing zeros.
fn decimal(value: u64, scale: u64, places: usize) -> String {
    let (whole, rest) = (value / scale, value % scale);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = format!("{rest:0places$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
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
