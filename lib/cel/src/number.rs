//! Numbers: text forms, comparisons across the three numeric types, and exact conversions.
//!
//! Doubles are formatted like `%g` with the fewest digits that give the same value when parsed; the text has
//! an exponent for values below 10⁻⁴ and from 10⁶ on. The parser accepts decimal and hexadecimal text, `inf`,
//! `infinity` and `nan`.

use std::cmp::Ordering;
use std::fmt::Write;

/// 2⁶³ as a double: the first value above the range of int.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
/// 2⁶⁴ as a double: the first value above the range of uint.
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

/// Formats a double: `1`, `0.5`, `1e+06`, `1.5e-07`, `NaN`, `+Inf`.
pub fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let mut text = mantissa.to_string();
    let sign = if exponent < 0 { '-' } else { '+' };
    _ = write!(text, "e{sign}{:02}", exponent.abs());
    text
}

/// Parses a double; `None` if the text is malformed or the value is too large.
///
/// Underscores may stand between digits, the names of the special values are case-insensitive, and
/// hexadecimal numbers need a binary exponent (`0x1.8p1`).
pub fn parse_double(text: &str) -> Option<f64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = |magnitude: f64| if negative { -magnitude } else { magnitude };
    if ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
        return Some(signed(f64::INFINITY));
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    let prefixed = unsigned.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
    let digits = remove_underscores(unsigned, prefixed)?;
    let magnitude = if prefixed {
        parse_hexadecimal(&digits[2..])?
    } else {
        if !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
            return None;
        }
        // A sign at this position would be a second sign.
        if digits.starts_with(['+', '-']) {
            return None;
        }
        digits.parse::<f64>().ok()?
    };
    magnitude.is_finite().then(|| signed(magnitude))
}

/// Removes the underscores from a number; `None` if an underscore is neither between two digits nor after the
/// base prefix.
fn remove_underscores(text: &str, hexadecimal: bool) -> Option<String> {
    if !text.contains('_') {
        return Some(text.to_string());
    }
    let is_digit = |byte: u8| byte.is_ascii_digit() || hexadecimal && byte.is_ascii_hexdigit();
    let bytes = text.as_bytes();
    for (i, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_') {
        let after_digit = i > 0 && is_digit(bytes[i - 1]) || hexadecimal && i == 2;
        let before_digit = bytes.get(i + 1).is_some_and(|byte| is_digit(*byte));
        if !after_digit || !before_digit {
            return None;
        }
    }
    Some(text.replace('_', ""))
}

/// Parses the text after `0x`: hexadecimal digits with an optional point, and a binary exponent in decimal.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Beyond this exponent the value is zero or infinite for any digits.
    let exponent: i64 = if unsigned.len() > 6 { 999_999 } else { unsigned.parse().ok()? };
    let mut exponent = if text.contains("p-") || text.contains("P-") { -exponent } else { exponent };
    let (mut mantissa, mut seen_point, mut any_digit): (u64, bool, bool) = (0, false, false);
    for c in digits.chars() {
        if c == '.' && !seen_point {
            seen_point = true;
            continue;
        }
        let digit = u64::from(c.to_digit(16)?);
        any_digit = true;
        let full = mantissa >> 58 != 0;
        if full {
            // The lowest bit records whether a dropped digit was nonzero, because rounding depends on it.
            mantissa |= u64::from(digit != 0);
        } else {
            mantissa = mantissa << 4 | digit;
        }
        // A digit has four bits. A digit after the point lowers the exponent; a dropped digit raises it.
        exponent += 4 * (i64::from(full) - i64::from(seen_point));
    }
    if !any_digit {
        return None;
    }
    let mut value = mantissa as f64;
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        value *= 2_f64.powi(step as i32);
        exponent -= step;
    }
    Some(value)
}

/// Parses an unsigned decimal integer. A plus sign is not allowed.
pub fn parse_uint(text: &str) -> Option<u64> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// Parses a boolean in one of the twelve forms of Go's `ParseBool`.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Returns the integral part of a double as int; `None` if it is out of range. The lowest int counts as out
/// of range, as in the reference.
pub fn double_to_int(value: f64) -> Option<i64> {
    (value > -INT_END && value < INT_END).then_some(value as i64)
}

/// Returns the integral part of a double as uint; `None` if it is out of range.
pub fn double_to_uint(value: f64) -> Option<u64> {
    (0.0..UINT_END).contains(&value).then_some(value as u64)
}

/// Returns the int that equals a double, if there is one.
pub fn double_to_int_exact(value: f64) -> Option<i64> {
    double_to_int(value).filter(|int| *int as f64 == value)
}

/// Returns the uint that equals a double, if there is one.
pub fn double_to_uint_exact(value: f64) -> Option<u64> {
    double_to_uint(value).filter(|uint| *uint as f64 == value)
}

/// Compares an int and a uint.
pub fn compare_int_uint(int: i64, uint: u64) -> Ordering {
    u64::try_from(int).map_or(Ordering::Less, |int| int.cmp(&uint))
}

/// Compares an int and a double. A double outside the int range is above or below every int; inside the
/// range, the int is first rounded to a double. `None` for NaN.
pub fn compare_int_double(int: i64, double: f64) -> Option<Ordering> {
    if double < -INT_END {
        return Some(Ordering::Greater);
    }
    if double > INT_END {
        return Some(Ordering::Less);
    }
    (int as f64).partial_cmp(&double)
}

/// Compares a uint and a double, like [`compare_int_double`].
pub fn compare_uint_double(uint: u64, double: f64) -> Option<Ordering> {
    if double < 0.0 {
        return Some(Ordering::Greater);
    }
    if double > UINT_END {
        return Some(Ordering::Less);
    }
    (uint as f64).partial_cmp(&double)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_with_the_fewest_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (1e6, "1e+06"),
            (123_456_789_012.0, "1.23456789012e+11"),
            (1e21, "1e+21"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn doubles_are_parsed() {
        for (text, value) in [
            ("1", Some(1.0)),
            ("+1.5e3", Some(1500.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1_000", Some(1000.0)),
            ("1__0", None),
            ("_1", None),
            ("-Inf", Some(f64::NEG_INFINITY)),
            ("infinity", Some(f64::INFINITY)),
            ("1e309", None),
            ("1e-400", Some(0.0)),
            ("0x1p-2", Some(0.25)),
            ("0X1.8p1", Some(3.0)),
            ("0x_1p0", Some(1.0)),
            ("0x123456789abcdef01p0", Some(20_988_295_479_420_645_000.0)),
            ("0x1", None),
            ("0xp1", None),
            ("--1", None),
            (" 1", None),
            ("1u", None),
            ("e5", None),
            ("", None),
            ("+nan", None),
        ] {
            assert_eq!(parse_double(text), value, "{text}");
        }
        assert!(parse_double("NaN").is_some_and(f64::is_nan));
    }

    #[test]
    fn numbers_of_different_types_are_ordered() {
        use Ordering::{Equal, Greater, Less};
        for (int, double, ordering) in [
            (1, 1.5, Some(Less)),
            (i64::MAX, 9_223_372_036_854_775_807.0, Some(Equal)),
            (9_007_199_254_740_993, 9_007_199_254_740_992.0, Some(Equal)),
            (i64::MIN, -1e19, Some(Greater)),
            (0, f64::NAN, None),
        ] {
            assert_eq!(compare_int_double(int, double), ordering);
        }
        assert_eq!(compare_uint_double(u64::MAX, 1.8446744073709552e19), Some(Equal));
        assert_eq!(compare_uint_double(0, -0.5), Some(Greater));
        assert_eq!(compare_int_uint(-1, 0), Less);
        assert_eq!(compare_int_uint(2, 1), Greater);
    }

    #[test]
    fn doubles_convert_to_integers_inside_the_range_only() {
        assert_eq!(double_to_int(-1.9), Some(-1));
        assert_eq!(double_to_int(INT_END), None);
        assert_eq!(double_to_int(-INT_END), None);
        assert_eq!(double_to_int(f64::NAN), None);
        assert_eq!(double_to_uint(-0.5), None);
        assert_eq!(double_to_uint(1.9), Some(1));
        assert_eq!(double_to_int_exact(1.5), None);
    }
}
