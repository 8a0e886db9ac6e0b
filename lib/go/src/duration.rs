//! Durations as Go parses and formats them (`time.ParseDuration`): `1h30m`, `1.5s`, `-250ms`, `0`, as signed
//! 64-bit nanoseconds.

use thiserror::Error;

use super::Quoted;

/// Absolute value of the smallest duration, one more than the greatest duration.
const SIZE_MAX: u64 = 1 << 63;

/// Reason why a text is not a duration. The messages equal the messages of Go.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DurationError {
    /// The text is not a sequence of numbers and units.
    #[error("time: invalid duration {}", Quoted(.0))]
    Invalid(String),
    /// The duration does not fit 64 bits of nanoseconds.
    #[error("time: invalid duration {}", Quoted(.0))]
    TooLong(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {}", Quoted(.0))]
    MissingUnit(String),
    /// A unit is not `ns`, `us`, `µs`, `ms`, `s`, `m` or `h`.
    #[error("time: unknown unit {} in duration {}", Quoted(.unit), Quoted(.text))]
    UnknownUnit {
        /// The unknown unit in the text.
        unit: String,
        /// The whole text of the duration.
        text: String,
    },
}

/// Parses a duration into nanoseconds. Fractions of a nanosecond are cut off.
///
/// # Errors
/// The text is not a duration, or does not fit 64 bits of nanoseconds.
pub fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
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
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let whole = match whole {
            "" => 0,
            digits => digits.parse::<u64>().ok().filter(|&n| n <= SIZE_MAX).ok_or_else(too_long)?,
        };
        let (unit, after) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        let scale: u64 = match unit {
            "" => return Err(DurationError::MissingUnit(text.to_owned())),
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            other => {
                return Err(DurationError::UnknownUnit { unit: other.to_owned(), text: text.to_owned() });
            }
        };
        let part = whole.checked_mul(scale).and_then(|part| part.checked_add(share(fraction, scale)));
        total = part
            .and_then(|part| total.checked_add(part))
            .filter(|&sum| sum <= SIZE_MAX)
            .ok_or_else(too_long)?;
        rest = after;
    }
    let signed = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
    signed.ok_or_else(too_long)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn is_of_number(c: char) -> bool {
    c == '.' || c.is_ascii_digit()
}

/// Returns `scale` multiplied by `0.fraction`; `fraction` is the digits after the decimal point. The
/// calculation uses floating point, as in Go.
fn share(fraction: &str, scale: u64) -> u64 {
    let (mut value, mut one) = (0_u64, 1.0);
    for digit in fraction.bytes() {
        if value > (SIZE_MAX - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > SIZE_MAX {
            break;
        }
        value = next;
        one *= 10.0;
    }
    (value as f64 * (scale as f64 / one)) as u64
}

/// Formats nanoseconds in hours, minutes and seconds: `1h30m0s`, `1.5ms`, `0s`.
pub fn to_text(nanos: i64) -> String {
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

/// Formats `value / scale` with at most `places` digits after the decimal point and without trailing zeros.
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

    const SECOND: i64 = 1_000_000_000;
    const MINUTE: i64 = 60 * SECOND;
    const HOUR: i64 = 60 * MINUTE;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("5s", 5 * SECOND),
            ("1478s", 1478 * SECOND),
            ("-5s", -5 * SECOND),
            ("+5s", 5 * SECOND),
            ("5.0s", 5 * SECOND),
            ("5.6s", 5 * SECOND + 600_000_000),
            ("5.s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("1.00s", SECOND),
            ("1.004s", SECOND + 4_000_000),
            ("1.0040s", SECOND + 4_000_000),
            ("100.00100s", 100 * SECOND + 1_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12µs", 12_000),
            ("12μs", 12_000),
            ("1500000µs", 1_500_000_000),
            ("13ms", 13_000_000),
            ("14s", 14 * SECOND),
            ("15m", 15 * MINUTE),
            ("16h", 16 * HOUR),
            ("1m30s", 90 * SECOND),
            ("1.5h", 90 * MINUTE),
            ("3h30m", 3 * HOUR + 30 * MINUTE),
            ("10.5s4m", 4 * MINUTE + 10 * SECOND + SECOND / 2),
            ("-2m3.4s", -(2 * MINUTE + 3 * SECOND + 400_000_000)),
            ("1h2m3s4ms5us6ns", HOUR + 2 * MINUTE + 3 * SECOND + 4_005_006),
            ("39h9m14.425s", 39 * HOUR + 9 * MINUTE + 14 * SECOND + 425_000_000),
            ("52763797000ns", 52_763_797_000),
            // Fractions of a nanosecond; more digits than fit in 64 bits; a fraction that is correct only in
            // floating point.
            ("1.0000000009s", SECOND),
            ("0.10000000000000000000000000001s", SECOND / 10),
            ("0.100000000000000000000h", 6 * MINUTE),
            ("0.3333333333333333333h", 20 * MINUTE),
            ("0.830103483285477580700h", 49 * MINUTE + 48 * SECOND + 372_539_827),
            ("9007199254740993ns", (1 << 53) + 1),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("9223372036s854ms775us807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-9223372036854775.808us", i64::MIN),
            ("-9223372036s854ms775us808ns", i64::MIN),
            ("2540400h", 2_540_400 * HOUR),
        ] {
            assert_eq!(parse(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_the_error_of_go() {
        for (text, message) in [
            ("", r#"time: invalid duration """#),
            ("3", r#"time: missing unit in duration "3""#),
            ("60", r#"time: missing unit in duration "60""#),
            ("-", r#"time: invalid duration "-""#),
            ("+", r#"time: invalid duration "+""#),
            ("--5s", r#"time: invalid duration "--5s""#),
            ("s", r#"time: invalid duration "s""#),
            (".", r#"time: invalid duration ".""#),
            ("-.", r#"time: invalid duration "-.""#),
            (".s", r#"time: invalid duration ".s""#),
            ("+.s", r#"time: invalid duration "+.s""#),
            ("soon", r#"time: invalid duration "soon""#),
            ("-s5", r#"time: invalid duration "-s5""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("5x", r#"time: unknown unit "x" in duration "5x""#),
            ("2d", r#"time: unknown unit "d" in duration "2d""#),
            ("1 s", r#"time: unknown unit " s" in duration "1 s""#),
            ("1e400s", r#"time: unknown unit "e" in duration "1e400s""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("9223372036854775.808us", r#"time: invalid duration "9223372036854775.808us""#),
            ("9223372036854ms775us808ns", r#"time: invalid duration "9223372036854ms775us808ns""#),
            ("-9223372036854775809ns", r#"time: invalid duration "-9223372036854775809ns""#),
            ("2562048h", r#"time: invalid duration "2562048h""#),
            ("9999999h", r#"time: invalid duration "9999999h""#),
            ("99999999999999999999999s", r#"time: invalid duration "99999999999999999999999s""#),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_are_written_in_their_units() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (-1_000_000, "-1ms"),
            (90 * MINUTE, "1h30m0s"),
            (-93_784_000_000_005, "-26h3m4.000000005s"),
            (MINUTE, "1m0s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(to_text(nanos), want);
            assert_eq!(parse(want), Ok(nanos), "{want}");
        }
    }
}
