//! Resolves YAML scalars: YAML 1.1 as in the reference server's library.
//!
//! `yes`, `on` and `y` are booleans; `0644`, `0o644`, `0x1f` and `0b1` are integers, with underscores anywhere; `1:30`
//! and dates are strings. Quoted scalars are strings; tagged scalars have the type of their tag.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::types::schema::decode::plain_number;
use crate::values::json::Value;

/// A scalar of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    /// A value with a JSON form.
    Value(Value),
    /// An unquoted, untagged `<<`: as a key, it merges other mappings into this one.
    Merge,
    /// `.inf`, `-.inf` and `.nan`, which have no JSON form; spelled as Go does.
    NotFinite(&'static str),
}

/// The tags of the core schema, by the part after `!!`; `None` for application tags, which make strings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tag {
    Str,
    Int,
    Float,
    Bool,
    Null,
    Binary,
    Other,
}

impl Tag {
    /// The tag `!!name`.
    pub(super) fn by_name(name: &str) -> Self {
        match name {
            "int" => Tag::Int,
            "float" => Tag::Float,
            "bool" => Tag::Bool,
            "null" => Tag::Null,
            "binary" => Tag::Binary,
            "str" | "timestamp" => Tag::Str,
            _ => Tag::Other,
        }
    }
}

/// The value of an unquoted, untagged scalar.
pub(super) fn resolve(text: &str) -> Scalar {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::NotFinite("NaN"),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::NotFinite("+Inf"),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::NotFinite("-Inf"),
        "<<" => return Scalar::Merge,
        _ => number(text).unwrap_or_else(|| text.into()),
    };
    Scalar::Value(value)
}

/// The value of a scalar under a tag; the error names the type of the text.
pub(super) fn resolve_tagged(tag: Tag, text: &str) -> Result<Scalar, String> {
    let wanted = match tag {
        Tag::Str | Tag::Other => return Ok(Scalar::Value(text.into())),
        Tag::Binary => {
            let joined: String = text.split_ascii_whitespace().collect();
            let bytes = STANDARD
                .decode(joined)
                .map_err(|_| "!!binary value contains invalid base64 data".to_owned())?;
            return Ok(Scalar::Value(String::from_utf8_lossy(&bytes).into_owned().into()));
        }
        Tag::Int => "int",
        Tag::Float => "float",
        Tag::Bool => "bool",
        Tag::Null => "null",
    };
    let resolved = resolve(text);
    let found = match &resolved {
        Scalar::Merge => "merge",
        Scalar::NotFinite(_) | Scalar::Value(Value::Float(_)) => "float",
        Scalar::Value(Value::Int(_)) => "int",
        Scalar::Value(Value::Bool(_)) => "bool",
        Scalar::Value(Value::Null) => "null",
        Scalar::Value(_) => "str",
    };
    // Doubles without fraction were resolved as integers.
    if found == wanted || (wanted, found) == ("float", "int") {
        return Ok(resolved);
    }
    Err(format!("cannot decode !!{found} `{text}` as a !!{wanted}"))
}

/// The number of an unquoted scalar, if it is one.
fn number(text: &str) -> Option<Value> {
    if text.starts_with('.') {
        return decimal(text);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| decimal(&plain))
}

/// An integer whose prefix gives its base; a leading zero alone means octal.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'o' | b'O', ..] => (&digits[2..], 8),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let size = digits.chars().try_fold(0_i128, |sum, digit| {
        sum.checked_mul(radix.into())?.checked_add(digit.to_digit(radix)?.into())
    });
    let signed = size.map(|size| if negative { -size } else { size });
    match signed.and_then(|signed| i64::try_from(signed).ok()) {
        Some(exact) => Some(Value::Int(exact)),
        // Beyond 64 bits a number is a double, as it is in JSON.
        None if radix == 10 => None,
        None => {
            let sum = digits.chars().filter_map(|digit| digit.to_digit(radix));
            let size = sum.fold(0.0, |sum, digit| sum * f64::from(radix) + f64::from(digit));
            size.is_finite().then(|| Value::Float(if negative { -size } else { size }))
        }
    }
}

/// `[-+]?(.digits|digits[.digits])([eE][-+]?digits)?`
fn decimal(text: &str) -> Option<Value> {
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
    let value: f64 = text.parse().ok()?;
    value.is_finite().then(|| plain_number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoted_words_resolve_as_in_yaml_1_1() {
        use Value::{Bool, Float, Int, Null};
        for (text, want) in [
            ("", Null),
            ("~", Null),
            ("yes", Bool(true)),
            ("On", Bool(true)),
            ("y", Bool(true)),
            ("NO", Bool(false)),
            ("yEs", "yEs".into()),
            ("0", Int(0)),
            ("-0", Int(0)),
            ("+12", Int(12)),
            ("1_000", Int(1000)),
            ("0644", Int(420)),
            ("0o644", Int(420)),
            ("-0x1F", Int(-31)),
            ("0b101", Int(5)),
            ("08", Int(8)), // not octal, so decimal
            ("9223372036854775807", Int(i64::MAX)),
            ("-9223372036854775808", Int(i64::MIN)),
            ("9223372036854775808", Float(9_223_372_036_854_775_808.0)),
            ("0xffffffffffffffffff", Float(4_722_366_482_869_645_000_000.0)),
            ("1.0", Int(1)),
            ("1.", Int(1)),
            (".5", Float(0.5)),
            ("-1.5e3", Int(-1500)),
            ("1e-3", Float(0.001)),
            ("1e999", "1e999".into()),
            (".", ".".into()),
            (".e5", ".e5".into()),
            ("-", "-".into()),
            ("1e", "1e".into()),
            ("1.2.3", "1.2.3".into()),
            ("0x", "0x".into()),
            ("1:30", "1:30".into()),
            ("2001-01-01", "2001-01-01".into()),
            ("100m", "100m".into()),
            ("+", "+".into()),
            ("infinity", "infinity".into()),
            ("NaN", "NaN".into()),
        ] {
            assert_eq!(resolve(text), Scalar::Value(want), "{text}");
        }
        assert_eq!(resolve(".inf"), Scalar::NotFinite("+Inf"));
        assert_eq!(resolve("<<"), Scalar::Merge);
    }

    #[test]
    fn tags_decide_the_type_or_refuse_the_text() {
        for (name, text, want) in [
            ("str", "1", Ok(Value::from("1"))),
            ("int", "1", Ok(Value::Int(1))),
            ("float", "1", Ok(Value::Int(1))),
            ("bool", "yes", Ok(Value::Bool(true))),
            ("null", "~", Ok(Value::Null)),
            ("binary", "aGk=", Ok("hi".into())),
            ("binary", "aG\n k=", Ok("hi".into())),
            ("binary", "?", Err("!!binary value contains invalid base64 data")),
            ("int", "x", Err("cannot decode !!str `x` as a !!int")),
            ("bool", "1", Err("cannot decode !!int `1` as a !!bool")),
        ] {
            let want = want.map(Scalar::Value).map_err(str::to_owned);
            assert_eq!(resolve_tagged(Tag::by_name(name), text), want, "!!{name} {text}");
        }
    }
}
