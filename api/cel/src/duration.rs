//! Durations: signed nanoseconds in 64 bits, about ±292 years.
//!
//! Text is read as a sequence of decimal numbers with units (`1h30m`, `1.5s`, `-2us`). It is written in two
//! forms: as seconds (`5400s`, what `string(duration)` gives) and in units (`1h30m0s`, what people read).

use std::fmt::Write;

/// A span of time in nanoseconds, about ±292 years.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Duration {
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// Nanoseconds in a second.
pub const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Reads `text` as nanoseconds; `None` when it is malformed or out of range.
///
/// The form is `[+-](number unit)+` with the units ns, us, µs, ms, s, m and h; `0` needs no unit. Digits beyond
/// the nanosecond are dropped.
pub fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // The sum may reach 2^63, the magnitude of the lowest duration.
    const MAGNITUDE_MAX: u64 = 1 << 63;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = leading_integer(rest)?;
        let whole_digits = rest.len() - after.len();
        rest = after;
        let (mut fraction, mut scale, mut fraction_digits) = (0, 1.0, 0);
        if let Some(after_point) = rest.strip_prefix('.') {
            let digits = after_point.bytes().take_while(u8::is_ascii_digit).count();
            (fraction, scale) = leading_fraction(&after_point[..digits]);
            fraction_digits = digits;
            rest = &after_point[digits..];
        }
        if whole_digits == 0 && fraction_digits == 0 {
            return None;
        }
        let unit_len = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = unit_nanos(&rest[..unit_len])?;
        rest = &rest[unit_len..];
        let mut value = whole.checked_mul(unit).filter(|&value| value <= MAGNITUDE_MAX)?;
        if fraction > 0 {
            // The product of a fraction below 1 and a unit of at most an hour fits easily.
            value = value.checked_add((fraction as f64 * (unit as f64 / scale)) as u64)?;
        }
        total = total.checked_add(value).filter(|&total| total <= MAGNITUDE_MAX)?;
    }
    if negative { Some((total as i64).wrapping_neg()) } else { i64::try_from(total).ok() }
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The number at the start of `text` and what follows it; `None` when it does not fit. No digits are a zero.
fn leading_integer(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let mut value: u64 = 0;
    for digit in text[..digits].bytes() {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|&v| v <= 1 << 63)?;
    }
    Some((value, &text[digits..]))
}

/// The digits of a fraction as an integer and the power of ten it is divided by; digits that do not fit are dropped.
fn leading_fraction(digits: &str) -> (u64, f64) {
    let (mut value, mut scale): (u64, f64) = (0, 1.0);
    for digit in digits.bytes() {
        if value > (i64::MAX as u64) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > 1 << 63 {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value, scale)
}

/// The seconds of `nanos` with the shortest fraction that reads back, and `s`: `5400s`, `-0.5s`.
pub fn to_seconds_text(nanos: i64) -> String {
    format!("{}s", seconds(nanos))
}

/// The duration in hours, minutes and seconds: `1h30m0s`, `1.5ms`, `0s`.
pub fn to_units_text(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let mut text = String::from(if nanos < 0 { "-" } else { "" });
    if magnitude == 0 {
        return "0s".into();
    }
    if magnitude < 1_000_000_000 {
        let (unit, digits) = match magnitude {
            0..1_000 => ("ns", 0),
            1_000..1_000_000 => ("µs", 3),
            _ => ("ms", 6),
        };
        push_decimal(&mut text, magnitude, digits);
        text.push_str(unit);
        return text;
    }
    let (whole, nanos) = (magnitude / 1_000_000_000, magnitude % 1_000_000_000);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        _ = write!(text, "{minutes}m");
    }
    push_decimal(&mut text, seconds * 1_000_000_000 + nanos, 9);
    text.push('s');
    text
}

/// Writes `value / 10^digits` without trailing zeros.
fn push_decimal(text: &mut String, value: u64, digits: u32) {
    let scale = 10_u64.pow(digits);
    _ = write!(text, "{}", value / scale);
    let fraction = value % scale;
    if fraction != 0 {
        let padded = format!("{fraction:0width$}", width = digits as usize);
        _ = write!(text, ".{}", padded.trim_end_matches('0'));
    }
}

/// The duration as a fractional number of seconds.
pub fn seconds(nanos: i64) -> f64 {
    // The whole part and the fraction are converted apart, which keeps the fraction's digits of long durations.
    (nanos / NANOS_PER_SECOND) as f64 + (nanos % NANOS_PER_SECOND) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_units() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1h", Some(3_600_000_000_000)),
            ("+1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("1µs", Some(1_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("1.0000000009s", Some(1_000_000_000)),
            ("9223372036854775807ns", Some(i64::MAX)),
            ("-9223372036854775808ns", Some(i64::MIN)),
            ("9223372036854775808ns", None),
            ("2562048h", None),
            ("", None),
            ("-", None),
            ("1", None),
            ("1H", None),
            (".s", None),
            ("1 s", None),
            ("1hé", None),
        ] {
            assert_eq!(parse(text), nanos, "{text}");
        }
    }

    #[test]
    fn durations_are_written_in_seconds_and_in_units() {
        for (nanos, in_seconds, in_units) in [
            (0, "0s", "0s"),
            (1, "0.000000001s", "1ns"),
            (1_500, "0.0000015s", "1.5µs"),
            (-1_000_000, "-0.001s", "-1ms"),
            (5_400_000_000_000, "5400s", "1h30m0s"),
            (-93_784_000_000_005, "-93784.000000005s", "-26h3m4.000000005s"),
            (60_000_000_000, "60s", "1m0s"),
        ] {
            assert_eq!(to_seconds_text(nanos), in_seconds);
            assert_eq!(to_units_text(nanos), in_units);
        }
    }
}
