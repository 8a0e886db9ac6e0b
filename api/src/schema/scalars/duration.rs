//! Durations as Go writes them: `1h2m3.5s`, kept as the shortest such text of the same nanoseconds.

use std::borrow::Cow;

/// The canonical form of `text`.
///
/// # Errors
/// The sentence for text that is no duration, or one that does not fit 64 bits of nanoseconds.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    let nanos = parse(text)?;
    let kept = format(nanos);
    Ok(if kept == text { Cow::Borrowed(text) } else { Cow::Owned(kept) })
}

/// Nanoseconds that `text` stands for.
///
/// # Errors
/// As [`canonical`].
pub fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", crate::field::go_quote(text));
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let whole_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole = &rest[..whole_len];
        rest = &rest[whole_len..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let len = after.bytes().take_while(u8::is_ascii_digit).count();
            fraction = &after[..len];
            rest = &after[len..];
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_len = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let (unit, after) = rest.split_at(unit_len);
        let scale: u64 = match unit {
            "" => {
                return Err(format!("time: missing unit in duration {}", crate::field::go_quote(text)));
            }
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => {
                return Err(format!(
                    "time: unknown unit {} in duration {}",
                    crate::field::go_quote(other),
                    crate::field::go_quote(text)
                ));
            }
        };
        rest = after;
        let mut part = match whole {
            "" => 0,
            digits => digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)).ok_or_else(invalid)?,
        };
        // Digits below a nanosecond are cut; eighteen of them are more than any unit can use.
        let mut place = scale;
        for digit in fraction.bytes().take(18) {
            place /= 10;
            part = part.checked_add(u64::from(digit - b'0') * place).ok_or_else(invalid)?;
        }
        total = total.checked_add(part).filter(|&sum| sum <= 1 << 63).ok_or_else(invalid)?;
    }
    match (negative, i64::try_from(total)) {
        (true, _) => Ok((total as i64).wrapping_neg()),
        (false, Ok(nanos)) => Ok(nanos),
        (false, Err(_)) => Err(invalid()),
    }
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
