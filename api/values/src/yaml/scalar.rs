//! Resolves YAML scalars with the rules of YAML 1.1, as the library of the reference server does.
//!
//! `yes`, `on` and `y` are booleans; `0644`, `0o644`, `0x1f` and `0b1` are integers, with underscores
//! anywhere; `1:30` and dates are strings. Quoted scalars are strings; tagged scalars have the type of their
//! tag.

use cel::number::format_double;

use crate::json::Value;
use crate::json::plain_number;

/// The type of a scalar. Every type except strings includes the value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Resolved {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that fits into an unsigned 64-bit integer, but not into a signed 64-bit integer.
    Uint(u64),
    /// A float, including infinity and NaN, which have no JSON form.
    Float(f64),
    /// A string: the text of the scalar itself.
    Text,
}

impl Resolved {
    /// Returns the value in a JSON tree.
    ///
    /// # Errors
    /// JSON cannot express the number; the error is the number as Go writes it.
    pub fn value(self, text: String) -> Result<Value, &'static str> {
        Ok(match self {
            Resolved::Null => Value::Null,
            Resolved::Bool(value) => Value::Bool(value),
            Resolved::Int(value) => Value::Int(value),
            Resolved::Uint(value) => Value::Number(value.to_string().into()),
            Resolved::Float(value) if value.is_nan() => return Err("NaN"),
            Resolved::Float(f64::INFINITY) => return Err("+Inf"),
            Resolved::Float(f64::NEG_INFINITY) => return Err("-Inf"),
            Resolved::Float(value) => plain_number(value),
            Resolved::Text => Value::String(text),
        })
    }
}

/// Prefix of the tags that the specification defines.
pub(super) const CORE_PREFIX: &str = "tag:yaml.org,2002:";

/// The tag of a scalar.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Tag {
    /// There is no tag.
    #[default]
    Absent,
    /// The tag `!`.
    NonSpecific,
    Str,
    Int,
    Float,
    Bool,
    Null,
    Timestamp,
    Binary,
    Merge,
    /// Any other tag; the scalar keeps its text.
    Other,
}

impl Tag {
    /// Returns the tag with this full name.
    pub(super) fn by_name(name: &str) -> Self {
        match name.strip_prefix(CORE_PREFIX) {
            Some("str") => Tag::Str,
            Some("int") => Tag::Int,
            Some("float") => Tag::Float,
            Some("bool") => Tag::Bool,
            Some("null") => Tag::Null,
            Some("timestamp") => Tag::Timestamp,
            Some("binary") => Tag::Binary,
            Some("merge") => Tag::Merge,
            None if name == "!" => Tag::NonSpecific,
            _ => Tag::Other,
        }
    }
}

/// Resolves an unquoted scalar without a tag.
pub(super) fn resolve(text: &str) -> Resolved {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Resolved::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Resolved::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Resolved::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Resolved::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Resolved::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Resolved::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or(Resolved::Text),
    }
}

/// Resolves a scalar with a tag.
///
/// # Errors
/// The text is not of the type that the tag requires.
pub(super) fn resolve_tagged(tag: Tag, text: &str) -> Result<Resolved, String> {
    let expected = match tag {
        Tag::Absent => return Ok(resolve(text)),
        Tag::Str | Tag::NonSpecific | Tag::Merge | Tag::Binary | Tag::Other => return Ok(Resolved::Text),
        Tag::Timestamp if is_timestamp(text) => return Ok(Resolved::Text),
        Tag::Timestamp => "timestamp",
        Tag::Int => "int",
        Tag::Float => "float",
        Tag::Bool => "bool",
        Tag::Null => "null",
    };
    let resolved = resolve(text);
    let found = match resolved {
        Resolved::Float(_) => "float",
        Resolved::Int(_) | Resolved::Uint(_) => "int",
        Resolved::Bool(_) => "bool",
        Resolved::Null => "null",
        Resolved::Text => "str",
    };
    match (resolved, tag) {
        (Resolved::Int(number), Tag::Float) => Ok(Resolved::Float(number as f64)),
        _ if found == expected => Ok(resolved),
        _ => Err(format!("cannot decode !!{found} `{text}` as a !!{expected}")),
    }
}

/// Decodes the base64 of a `!!binary` scalar to text.
///
/// # Errors
/// The scalar is not base64.
pub(super) fn binary(text: &str) -> Result<String, String> {
    let bytes =
        go::base64::standard(text).map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether a text is a timestamp: `2001-1-2`, `2001-1-2 3:04:05.6` or `2001-01-02T03:04:05.6Z`. An
/// offset may replace the `Z`.
fn is_timestamp(text: &str) -> bool {
    let Some((date, rest)) = text.split_once(['T', 't', ' ']).or(Some((text, ""))) else { return false };
    let number =
        |text: &str, digits: std::ops::RangeInclusive<usize>, range: std::ops::RangeInclusive<u32>| {
            digits.contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_digit())
                && text.parse().is_ok_and(|number| range.contains(&number))
        };
    let parts: Vec<&str> = date.split('-').collect();
    let &[year, month, day] = parts.as_slice() else { return false };
    let civil = || jiff::civil::Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok();
    if !number(year, 4..=4, 0..=9999)
        || !number(month, 1..=2, 1..=12)
        || !number(day, 1..=2, 1..=31)
        || civil().is_none()
    {
        return false;
    }
    if date.len() == text.len() {
        return true;
    }
    let is_zoned = text.as_bytes()[date.len()] != b' ';
    let (clock, zone) = match rest.find(['Z', '+', '-']) {
        Some(at) if is_zoned => rest.split_at(at),
        None if !is_zoned => (rest, ""),
        _ => return false,
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let times: Vec<&str> = clock.split(':').collect();
    let &[hour, minute, second] = times.as_slice() else { return false };
    let is_offset = |offset: &str| {
        offset
            .split_once(':')
            .is_some_and(|(hours, minutes)| number(hours, 2..=2, 0..=24) && number(minutes, 2..=2, 0..=60))
    };
    number(hour, 1..=2, 0..=23)
        && number(minute, 1..=2, 0..=59)
        && number(second, 1..=2, 0..=59)
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
        && (!is_zoned || zone == "Z" || zone.get(1..).is_some_and(is_offset))
}

/// Returns the number that an unquoted scalar denotes, if any.
fn number(text: &str) -> Option<Resolved> {
    let plain = match text.as_bytes().first()? {
        b'.' => return decimal(&without_separators(text)?),
        b'0'..=b'9' | b'+' | b'-' => text.replace('_', ""),
        _ => return None,
    };
    integer(&plain).or_else(|| decimal(&plain))
}

/// Returns the text without underscores, each of which must stand between two digits.
fn without_separators(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let is_separator = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let mut underscores = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_');
    underscores.all(|(at, _)| is_separator(at)).then(|| text.replace('_', ""))
}

/// Parses a 64-bit integer. The prefix determines the base; a leading zero alone means octal.
fn integer(text: &str) -> Option<Resolved> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' | b'+' => text.split_at(1),
        _ => ("", text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() {
        return None;
    }
    let size = digits.chars().try_fold(0_i128, |sum, digit| {
        sum.checked_mul(radix.into())?.checked_add(digit.to_digit(radix)?.into())
    })?;
    match i64::try_from(if sign == "-" { -size } else { size }) {
        Ok(exact) => Some(Resolved::Int(exact)),
        Err(_) if sign.is_empty() => u64::try_from(size).ok().map(Resolved::Uint),
        Err(_) => None,
    }
}

/// Parses `[-+]?(.digits|digits[.digits])([eE][-+]?digits)?`.
fn decimal(text: &str) -> Option<Resolved> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.strip_prefix(['-', '+']).unwrap_or(exponent)),
        None => (unsigned, "0"),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_digits = !whole.is_empty() || mantissa.len() > 1 && mantissa.contains('.');
    if !has_digits || exponent.is_empty() || ![whole, fraction, exponent].into_iter().all(are_digits) {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite()).map(Resolved::Float)
}

/// The type of a key for comparisons with other keys; the keys `1`, `1.0` and `"1"` are different.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum KeyKind {
    Text,
    Bool,
    Int,
    Float,
    Null,
}

/// A key of a mapping.
#[derive(Clone, Debug)]
pub(super) struct MappingKey {
    /// Name of the member in JSON.
    pub name: String,
    pub kind: KeyKind,
    /// The key as Go writes it in messages.
    pub message_text: String,
    /// Reason why JSON cannot represent the member; the message also contains the value.
    pub unsupported: Option<&'static str>,
}

/// Converts a scalar to a key.
pub(super) fn key(resolved: Resolved, text: String) -> MappingKey {
    let plain = |kind, name: String| MappingKey { message_text: name.clone(), name, kind, unsupported: None };
    match resolved {
        Resolved::Text => {
            MappingKey { message_text: go::quote(&text), name: text, kind: KeyKind::Text, unsupported: None }
        }
        Resolved::Bool(value) => plain(KeyKind::Bool, value.to_string()),
        Resolved::Int(value) => plain(KeyKind::Int, value.to_string()),
        Resolved::Float(value) => {
            // The reference server writes the name with the digits of a 32-bit number.
            let name = match value as f32 {
                f32::INFINITY => ".inf".to_owned(),
                f32::NEG_INFINITY => "-.inf".to_owned(),
                value if value.is_nan() => ".nan".to_owned(),
                value => format_double(value.to_string().parse().unwrap_or_default()),
            };
            MappingKey { name, kind: KeyKind::Float, message_text: format_double(value), unsupported: None }
        }
        Resolved::Uint(value) => {
            let message_text = format!("{value:#x}");
            MappingKey {
                name: value.to_string(),
                kind: KeyKind::Int,
                message_text,
                unsupported: Some("uint64"),
            }
        }
        Resolved::Null => MappingKey {
            name: "null".to_owned(),
            kind: KeyKind::Null,
            message_text: "<nil>".to_owned(),
            unsupported: Some("%!s(<nil>)"),
        },
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_resolve_as_in_yaml_1_1() {
        use Resolved::{Bool, Float, Int, Null, Text, Uint};
        for (text, want) in [
            ("", Null),
            ("~", Null),
            ("yes", Bool(true)),
            ("On", Bool(true)),
            ("y", Bool(true)),
            ("NO", Bool(false)),
            ("yEs", Text),
            ("0", Int(0)),
            ("-0", Int(0)),
            ("+12", Int(12)),
            ("1_000", Int(1000)),
            ("0644", Int(420)),
            ("0o644", Int(420)),
            ("-0x1F", Int(-31)),
            ("0b101", Int(5)),
            ("-0b11", Int(-3)),
            ("08", Float(8.0)), // not octal, so decimal
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", Uint(9_223_372_036_854_775_808)),
            ("0xffffffffffffffff", Uint(u64::MAX)),
            ("18446744073709551616", Float(18_446_744_073_709_551_616.0)),
            ("+18446744073709551615", Float(18_446_744_073_709_551_615.0)),
            ("0xffffffffffffffffff", Text),
            ("1.0", Float(1.0)),
            ("1.", Float(1.0)),
            (".5", Float(0.5)),
            (".5_0", Float(0.5)),
            ("._5", Text),
            ("1__0.5", Float(10.5)),
            ("-1.5e3", Float(-1500.0)),
            ("1e-3", Float(0.001)),
            ("1e999", Text),
            (".", Text),
            (".e5", Text),
            ("-", Text),
            ("1e", Text),
            ("1.2.3", Text),
            ("0x", Text),
            ("1:30", Text),
            ("2001-01-01", Text),
            ("100m", Text),
            ("+", Text),
            ("infinity", Text),
            ("NaN", Text),
            ("<<", Text),
            (".inf", Float(f64::INFINITY)),
        ] {
            assert_eq!(resolve(text), want, "{text}");
        }
    }

    #[test]
    fn a_yaml_tag_determines_the_type_of_a_scalar_or_refuses_it() {
        use Resolved::{Bool, Float, Int, Null, Text};
        for (name, text, want) in [
            ("str", "1", Ok(Text)),
            ("int", "1", Ok(Int(1))),
            ("float", "1", Ok(Float(1.0))),
            ("bool", "yes", Ok(Bool(true))),
            ("null", "~", Ok(Null)),
            ("binary", "aGk=", Ok(Text)),
            ("mine", "1", Ok(Text)),
            ("timestamp", "2001-1-2", Ok(Text)),
            ("timestamp", "2001-01-02T3:04:05.6+01:00", Ok(Text)),
            ("timestamp", "2001-01-02 03:04:05", Ok(Text)),
            ("timestamp", "2001-02-30", Err("cannot decode !!str `2001-02-30` as a !!timestamp")),
            ("timestamp", "5", Err("cannot decode !!int `5` as a !!timestamp")),
            ("int", "x", Err("cannot decode !!str `x` as a !!int")),
            ("int", "5.0", Err("cannot decode !!float `5.0` as a !!int")),
            ("bool", "1", Err("cannot decode !!int `1` as a !!bool")),
        ] {
            let tag = Tag::by_name(&format!("{CORE_PREFIX}{name}"));
            assert_eq!(resolve_tagged(tag, text), want.map_err(str::to_owned), "!!{name} {text}");
        }
        assert_eq!(binary("aG\nk="), Ok("hi".to_owned()));
        assert!(binary("?").is_err());
    }

    #[test]
    fn yaml_keys_are_converted_to_the_names_of_the_reference_server() {
        for (text, name, message_text) in [
            ("a\"b", "a\"b", r#""a\"b""#),
            ("0x10", "16", "16"),
            ("yes", "true", "true"),
            ("2.5", "2.5", "2.5"),
            ("1.0", "1", "1"),
            ("1e6", "1e+06", "1e+06"),
            ("3.14159265358979", "3.1415927", "3.14159265358979"),
            ("1e300", ".inf", "1e+300"),
            (".inf", ".inf", "+Inf"),
        ] {
            let key = key(resolve(text), text.to_owned());
            assert_eq!(
                (key.name.as_str(), key.message_text.as_str(), key.unsupported),
                (name, message_text, None),
                "{text}"
            );
        }
        assert_eq!(key(Resolved::Uint(u64::MAX), String::new()).message_text, "0xffffffffffffffff");
    }
}
