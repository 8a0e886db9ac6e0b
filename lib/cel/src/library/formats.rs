//! Named string formats: `format.dns1123Label().validate(name)`.
//!
//! Validation returns an optional list of messages, which is empty for a valid text. Source: the validation
//! of Kubernetes object names and the formats of OpenAPI schemas.

use go::url::Url;

use crate::cost::rules::{self, PATTERN_FACTOR, TEXT_FACTOR, arg_size};
use crate::cost::{CallEstimate, CallSite};
use crate::error::EvalError;
use crate::library::opaque::{self, opaque_type};
use crate::library::{Call, Function, Implementation, Library, Overload, Version};
use crate::types::Type;
use crate::value::Value;

const SINCE: Version = Version::new(1, 31);

/// Size of the pattern that estimates assume for every format.
const ESTIMATED_PATTERN_SIZE: f64 = 128.0;

/// A format for the validation of texts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

/// Each format with its name, the function that returns it, and the implementation of that function.
const FORMATS: [(Format, &str, &str, Implementation); 13] = [
    (Format::Dns1123Label, "dns1123Label", "format.dns1123Label", |_| give(Format::Dns1123Label)),
    (Format::Dns1123Subdomain, "dns1123Subdomain", "format.dns1123Subdomain", |_| {
        give(Format::Dns1123Subdomain)
    }),
    (Format::Dns1035Label, "dns1035Label", "format.dns1035Label", |_| give(Format::Dns1035Label)),
    (Format::QualifiedName, "qualifiedName", "format.qualifiedName", |_| give(Format::QualifiedName)),
    (Format::Dns1123LabelPrefix, "dns1123LabelPrefix", "format.dns1123LabelPrefix", |_| {
        give(Format::Dns1123LabelPrefix)
    }),
    (Format::Dns1123SubdomainPrefix, "dns1123SubdomainPrefix", "format.dns1123SubdomainPrefix", |_| {
        give(Format::Dns1123SubdomainPrefix)
    }),
    (Format::Dns1035LabelPrefix, "dns1035LabelPrefix", "format.dns1035LabelPrefix", |_| {
        give(Format::Dns1035LabelPrefix)
    }),
    (Format::LabelValue, "labelValue", "format.labelValue", |_| give(Format::LabelValue)),
    (Format::Uri, "uri", "format.uri", |_| give(Format::Uri)),
    (Format::Uuid, "uuid", "format.uuid", |_| give(Format::Uuid)),
    (Format::Byte, "byte", "format.byte", |_| give(Format::Byte)),
    (Format::Date, "date", "format.date", |_| give(Format::Date)),
    (Format::DateTime, "datetime", "format.datetime", |_| give(Format::DateTime)),
];

/// Returns the type `kubernetes.NamedFormat`.
pub fn format_type() -> Type {
    Type::object("kubernetes.NamedFormat")
}

opaque_type!(Format, format_type);

/// Returns the declarations of the library.
pub fn library() -> Library {
    let since = |overload: Overload| Overload { since: SINCE, ..overload };
    let messages = Type::optional(Type::list(Type::String));
    let validate = Overload::member("format-validate", [format_type(), Type::String], messages);
    let named = Overload::function("format-named", [Type::String], Type::optional(format_type()));
    let mut functions = vec![
        Function::new("validate", [since(validate).computed_by(validate_text).costing(estimate, actual)]),
        Function::new(
            "format.named",
            [since(named).computed_by(find).costing(rules::nominal, rules::nominal_actual)],
        ),
    ];
    functions.extend(FORMATS.iter().map(|&(_, _, function, implementation)| {
        let overload = Overload::function(function, [], format_type());
        Function::new(function, [since(overload).computed_by(implementation)])
    }));
    Library { functions, types: vec![(format_type(), SINCE)] }
}

impl Format {
    /// Returns the error messages about `text`; empty if it is valid.
    fn validate(self, text: &str) -> Vec<String> {
        let unless = |valid: bool, message: &str| if valid { Vec::new() } else { vec![message.to_owned()] };
        match self {
            Self::Dns1123Label => names::label(text),
            Self::Dns1123Subdomain => names::subdomain(text),
            Self::Dns1035Label => names::label_1035(text),
            Self::QualifiedName => names::qualified(text),
            Self::Dns1123LabelPrefix => names::label(&names::generated(text)),
            Self::Dns1123SubdomainPrefix => names::subdomain(&names::generated(text)),
            Self::Dns1035LabelPrefix => names::label_1035(&names::generated(text)),
            Self::LabelValue => names::label_value(text),
            Self::Uri => Url::parse_request(text).err().into_iter().collect(),
            Self::Uuid => unless(is_uuid(text, None), "does not match the UUID format"),
            Self::Byte => unless(is_base64(text), "invalid base64"),
            Self::Date => unless(is_date(text), "invalid date"),
            Self::DateTime => unless(is_date_time(text), "invalid datetime"),
        }
    }

    /// Returns the size of the reference's regular expression for the format. Only cost estimates use the
    /// size.
    fn pattern_size(self) -> u64 {
        match self {
            Self::Dns1123Label | Self::Dns1035Label | Self::Dns1123LabelPrefix | Self::Dns1035LabelPrefix => {
                30
            }
            Self::Dns1123Subdomain | Self::Dns1123SubdomainPrefix | Self::QualifiedName => 60,
            Self::LabelValue => 40,
            Self::Uri => 1104,
            Self::Uuid => 70,
            Self::Byte => 84,
            Self::Date | Self::DateTime => 72,
        }
    }
}

fn give<'v>(format: Format) -> Result<Value<'v>, EvalError> {
    Ok(opaque::value(format))
}

fn find<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [Value::String(name)] = call.args else { return Err(EvalError::no_such_overload()) };
    let found = FORMATS.iter().find(|format| format.1 == &**name);
    Ok(found.map_or(Value::Optional(None), |format| Value::some(opaque::value(format.0))))
}

fn validate_text<'v>(call: &Call<'_, 'v>) -> Result<Value<'v>, EvalError> {
    let [format, Value::String(text)] = call.args else { return Err(EvalError::no_such_overload()) };
    let messages = opaque::expect::<Format>(format)?.validate(text);
    if messages.is_empty() {
        return Ok(Value::Optional(None));
    }
    let messages: Vec<_> = messages.into_iter().map(Value::string).collect();
    Ok(Value::some(Value::list(messages)))
}

fn estimate(site: &dyn CallSite) -> Option<CallEstimate> {
    let reading = site.size(1).times_factor(TEXT_FACTOR);
    Some(CallEstimate::cost(reading.times_factor(ESTIMATED_PATTERN_SIZE * PATTERN_FACTOR)))
}

fn actual(args: &[Value<'_>], _: &Value<'_>) -> u64 {
    let format = args.first().and_then(opaque::get::<Format>);
    format.map_or(rules::CALL_COST, |format| rules::matching_actual(arg_size(args, 1), format.pattern_size()))
}

/// Returns whether a text is a UUID of this version: thirty-two hexadecimal digits with or without dashes.
/// For versions 4 and 5, the variant is checked as well.
pub fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let mut rest = text;
    let mut groups = [""; 5];
    for (at, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(len) else { return false };
        (groups[at], rest) = (group, after);
    }
    let is_hex = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_version = version.is_none_or(|version| groups[2].as_bytes()[0] == version);
    let has_variant = !matches!(version, Some(b'4' | b'5'))
        || matches!(groups[3].as_bytes()[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B');
    rest.is_empty() && is_hex && is_version && has_variant
}

/// Returns whether a text is padded base64; an empty text is not.
fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    !text.is_empty() && text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

/// Returns whether a text is a valid date `YYYY-MM-DD` (RFC 3339 full-date).
pub fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |from: usize, to: usize| {
        let digits = &bytes[from..to];
        digits
            .iter()
            .all(u8::is_ascii_digit)
            .then(|| digits.iter().fold(0u16, |n, d| n * 10 + u16::from(d - b'0')))
    };
    let (Some(year), Some(month), Some(day)) = (number(0, 4), number(5, 7), number(8, 10)) else {
        return false;
    };
    jiff::civil::Date::new(year as i16, month as i8, day as i8).is_ok()
}

/// Returns whether a text is a date and time, `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)`.
pub fn is_date_time(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    let two = |text: &str, max: &str| text.len() == 2 && is_digits(text) && text <= max;
    let clock: Vec<_> = clock.split(':').collect();
    let [hour, minute, second] = clock[..] else { return false };
    // Any character may introduce the fraction, because the reference's pattern has an unescaped dot.
    let mut chars = rest.chars();
    chars.next();
    let after_digits = chars.as_str().trim_start_matches(|c: char| c.is_ascii_digit());
    let has_fraction = after_digits.len() < chars.as_str().len();
    let is_zone = |zone: &str| {
        zone == "z"
            || zone.strip_prefix(['+', '-']).is_some_and(|offset| {
                offset.len() == 5 && offset.split(':').all(|part| part.len() == 2 && is_digits(part))
            })
    };
    is_date(date)
        && two(hour, "23")
        && two(minute, "59")
        && two(second, "59")
        && (is_zone(rest) || has_fraction && is_zone(after_digits))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_is_valid_and_say_what_is_not() {
        use Format::*;
        let long = "a".repeat(64);
        let far = format!("{}/b", "a".repeat(254));
        for (format, text, want) in [
            (Dns1123Label, "1a-b", ""),
            (Dns1123Label, "a.b", "must not contain dots"),
            (Dns1123Label, "A", "a lowercase RFC 1123 label"),
            (Dns1123Label, long.as_str(), "must be no more than 63 characters"),
            (Dns1123LabelPrefix, "a--", ""),
            (Dns1123LabelPrefix, "-", "a lowercase RFC 1123 label"),
            (Dns1035Label, "1a", "a DNS-1035 label"),
            (Dns1123Subdomain, "a.1b", ""),
            (Dns1123SubdomainPrefix, "", "a lowercase RFC 1123 subdomain"),
            (QualifiedName, "a.com/B_c", ""),
            (QualifiedName, "/b", "prefix part must be non-empty"),
            (QualifiedName, "a/b/c", "a valid label key must consist"),
            (QualifiedName, "A/b", "prefix part a lowercase"),
            (QualifiedName, far.as_str(), "prefix part must be no more than 253 bytes"),
            (LabelValue, "", ""),
            (LabelValue, long.as_str(), "must be no more than 63 bytes"),
            (Uri, "x", "parse \"x\": invalid URI"),
            (Uuid, "123e4567-e89b-12d3-a456-426614174000", ""),
            (Uuid, "123E4567e89b12d3a456426614174000", ""),
            (Uuid, "123e4567-e89b-12d3-a456-42661417400", "does not match"),
            (Byte, "YQ==", ""),
            (Byte, "YWI=", ""),
            (Byte, "", "invalid base64"),
            (Byte, "Y===", "invalid base64"),
            (Byte, "YQ", "invalid base64"),
            (Date, "2024-02-29", ""),
            (Date, "0000-01-01", ""),
            (Date, "2023-02-29", "invalid date"),
            (Date, "2024-2-29", "invalid date"),
            (DateTime, "2024-02-29T12:34:56Z", ""),
            (DateTime, "2024-02-29t12:34:56.789+01:00", ""),
            (DateTime, "2024-02-29T12:34:56", "invalid datetime"),
            (DateTime, "2024-02-29T24:00:00Z", "invalid datetime"),
            (DateTime, "2024-02-29 12:34:56Z", "invalid datetime"),
        ] {
            let messages = format.validate(text);
            assert_eq!(messages.is_empty(), want.is_empty(), "{format:?} {text}: {messages:?}");
            assert!(
                messages.first().is_none_or(|message| message.starts_with(want)),
                "{format:?} {text}: {messages:?}"
            );
        }
    }
}
