//! Formats that the validation of custom objects enforces: formats of strings, and ranges of numbers.
//!
//! If a format does not belong to the type of its schema, the format is published but has no effect. Names of
//! string formats may contain dashes anywhere, so `date-time` and `datetime` are the same format. A format
//! accepts the values on which Kubernetes clients rely. The standard of the format may accept other values.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use cel::library::formats::{is_date, is_date_time, is_uuid};
use go::url::Url;
use regex::Regex;

/// Function that checks whether a string has a format.
type Check = fn(&str) -> bool;

/// Enforced string formats, sorted by name.
const FORMATS: [(&str, Check); 26] = [
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit())),
    ("byte", is_base64),
    ("cidr", is_cidr),
    ("creditcard", is_credit_card),
    ("date", is_date),
    ("datetime", is_date_time),
    ("duration", is_duration),
    ("email", is_email),
    ("hexcolor", |text| matches(&HEX_COLOR, text)),
    ("hostname", is_hostname),
    ("ipv4", |text| text.contains('.') && address(text).is_some()),
    ("ipv6", |text| text.contains(':') && address(text).is_some()),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("k8slongname", is_long_name),
    ("k8sshortname", is_short_name),
    ("mac", is_mac),
    ("password", |_| true),
    ("rgbcolor", |text| matches(&RGB_COLOR, text)),
    ("ssn", |text| matches(&SSN, text)),
    ("uri", is_uri),
    ("uuid", |text| is_uuid(text, None)),
    ("uuid3", |text| is_uuid(text, Some(b'3'))),
    ("uuid4", |text| is_uuid(text, Some(b'4'))),
    ("uuid5", |text| is_uuid(text, Some(b'5'))),
];

/// Returns whether a format has an effect on values of a JSON Schema type. `kind` is empty if the schema
/// declares no type or two types.
pub fn is_enforced(kind: &str, format: &str) -> bool {
    match kind {
        "" | "string" => find(format).is_some(),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    }
}

/// Returns whether a format is known for values of a type. `quantity` is known, although validation does not
/// enforce it.
pub fn is_known(kind: &str, format: &str) -> bool {
    is_enforced(kind, format)
        || (matches!(kind, "" | "string") && format.split('-').collect::<String>() == "quantity")
}

/// Returns whether `text` has the format; `None` if the format is not a format of strings.
pub fn has(format: &str, text: &str) -> Option<bool> {
    find(format).map(|check| check(text))
}

fn find(format: &str) -> Option<Check> {
    if format.is_empty() {
        return None; // nearly all nodes of a schema have no format
    }
    let name = if format.contains('-') { &*format.replace('-', "") } else { format };
    FORMATS.binary_search_by(|(other, _)| (*other).cmp(name)).ok().map(|at| FORMATS[at].1)
}

/// A constant regular expression, which is compiled at its first use.
type Expression = LazyLock<Option<Regex>>;

static HEX_COLOR: Expression = LazyLock::new(|| Regex::new("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static RGB_COLOR: Expression = LazyLock::new(|| {
    let part = r"[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*";
    Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).ok()
});
static SSN: Expression = LazyLock::new(|| Regex::new("^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok());
static HOSTNAME: Expression = LazyLock::new(|| {
    let char = r"[a-zA-Z0-9\p{S}\p{L}]";
    let inner = r"[a-zA-Z0-9\-\p{S}\p{L}]";
    Regex::new(&format!(
        r"^({char}((-?{char}{{0,62}})?)|({char}(({inner}{{0,61}}{char})?)(\.)){{1,}}{char}(-?{char}){{1,62}})$"
    ))
    .ok()
});
static BASE64: Expression = LazyLock::new(|| {
    Regex::new("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$").ok()
});
static DURATION: Expression = LazyLock::new(|| Regex::new(r"([0-9]+)[\t\n\x0C\r ]*([A-Za-zµ]+)").ok());

fn matches(expression: &Expression, text: &str) -> bool {
    expression.as_ref().is_some_and(|expression| expression.is_match(text))
}

fn is_base64(text: &str) -> bool {
    matches(&BASE64, text) && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// Parses an IP address like Go before version 1.17, because the reference server uses this parser here. The numbers
/// of an IPv4 address may have leading zeros. An IPv6 address must not have a zone.
fn address(text: &str) -> Option<IpAddr> {
    let dotted = |text: &str| {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = text.split('.');
        let mut octets = [0; 4];
        for octet in &mut octets {
            *octet = parts.next().filter(|part| is_number(part))?.parse::<u8>().ok()?;
        }
        parts.next().is_none().then(|| Ipv4Addr::from(octets))
    };
    if !text.contains(':') {
        return dotted(text).map(IpAddr::V4);
    }
    // An IPv6 address may end with an IPv4 address.
    let plain = match text.rsplit_once(':').filter(|(_, last)| last.contains('.')) {
        Some((first, last)) => format!("{first}:{}", dotted(last)?),
        None => text.to_owned(),
    };
    plain.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn is_cidr(text: &str) -> bool {
    let Some((network, bits)) = text.split_once('/') else { return false };
    let most = if network.contains(':') { 128 } else { 32 };
    let is_number = bits.len() <= 3 && !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    address(network).is_some() && is_number && bits.parse::<u32>().is_ok_and(|bits| bits <= most)
}

/// Returns whether the text is a credit card number: its digits have a valid Luhn checksum, and its length and prefix
/// belong to a known type of card.
fn is_credit_card(text: &str) -> bool {
    static CARD: Expression = LazyLock::new(|| {
        Regex::new(
            "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|(222[1-9]|22[3-9][0-9]|2[3-6][0-9]{2}|27[01][0-9]|2720)\
             [0-9]{12}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|\
             (?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$",
        )
        .ok()
    });
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let digit = |byte: u8| u32::from(byte - b'0');
    let sum: u32 = (digits.bytes().rev().enumerate())
        .map(|(at, byte)| if at % 2 == 1 { doubled(digit(byte)) } else { digit(byte) })
        .sum();
    matches(&CARD, &digits) && sum.is_multiple_of(10)
}

/// Returns whether the text is a duration: in the syntax of Go, or as numbers with the names of units.
fn is_duration(text: &str) -> bool {
    duration(text).is_some()
}

/// Parses a duration to nanoseconds.
pub fn duration(text: &str) -> Option<i64> {
    const MICRO: i64 = 1_000;
    const SECOND: i64 = 1_000_000_000;
    const DAY: i64 = 86_400 * SECOND;
    /// Names of units, the common prefix of longer names of the same unit, and nanoseconds.
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", MICRO),
        (&["ms"], "milli", 1_000 * MICRO),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3_600 * SECOND),
        (&["d"], "day", DAY),
        (&["w"], "week", 7 * DAY),
    ];
    if let Ok(nanoseconds) = go::duration::parse(text) {
        return Some(nanoseconds);
    }
    let mut sum: Option<i64> = None;
    for found in DURATION.as_ref().into_iter().flat_map(|expression| expression.captures_iter(text)) {
        let (_, [number, unit]) = found.extract();
        let number: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        let is_it = |names: &[&str], start: &str| names.contains(&&*unit) || unit.starts_with(start);
        if let Some((_, _, each)) = UNITS.iter().find(|(names, start, _)| is_it(names, start)) {
            sum = Some(sum.unwrap_or(0).wrapping_add(number.wrapping_mul(*each)));
        }
    }
    sum
}

/// Returns whether the text is an e-mail address, alone or in angle brackets after a name.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        None => text,
        Some(named) => match named.rsplit_once('<') {
            None => return false,
            Some((name, address)) if is_phrase(name.trim_matches([' ', '\t'])) => address,
            Some(_) => return false,
        },
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let is_local = if quoted { is_quoted(local) } else { is_dot_atom(local) };
    let is_domain = match domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(literal) => literal.parse::<Ipv4Addr>().is_ok() || is_literal_ipv6(literal),
        None => is_dot_atom(domain),
    };
    is_local && is_domain
}

fn is_literal_ipv6(literal: &str) -> bool {
    literal.strip_prefix("IPv6:").is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

fn is_phrase(name: &str) -> bool {
    name.is_empty()
        || (name.len() >= 2 && name.starts_with('"') && name.ends_with('"') && is_quoted(name))
        || name.split([' ', '\t']).filter(|word| !word.is_empty()).all(is_dot_atom)
}

/// Returns whether the quotes inside a quoted text are escaped.
fn is_quoted(text: &str) -> bool {
    let mut chars = text[1..text.len() - 1].chars();
    while let Some(char) = chars.next() {
        match char {
            '"' => return false,
            '\\' if chars.next().is_none() => return false,
            char if char.is_ascii_control() && char != '\t' => return false,
            _ => {}
        }
    }
    true
}

fn is_dot_atom(text: &str) -> bool {
    let is_atom_char =
        |char: char| char.is_ascii_alphanumeric() || !char.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(char);
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_char))
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && matches(&HOSTNAME, text)
}

fn digits_of(text: &str) -> String {
    text.chars().filter(|char| !matches!(char, '-' | ' ' | '\t' | '\n' | '\r' | '\x0C')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = digits_of(text);
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(u32::from(byte - b'0')),
        _ => None,
    };
    let Some((last, first)) = text.as_bytes().split_last().filter(|(_, first)| first.len() == 9) else {
        return false;
    };
    let first: Option<u32> = (1..).zip(first).map(|(weight, byte)| Some(weight * digit(*byte)?)).sum();
    let last = if matches!(last, b'X' | b'x') { Some(10) } else { digit(*last) };
    first.zip(last).is_some_and(|(first, last)| (first + 10 * last).is_multiple_of(11))
}

fn is_isbn13(text: &str) -> bool {
    let text = digits_of(text);
    let is_long = text.len() == 13 && text.bytes().all(|byte| byte.is_ascii_digit());
    let weighted = |(at, byte): (usize, u8)| u32::from(byte - b'0') * if at % 2 == 0 { 1 } else { 3 };
    is_long && text.bytes().enumerate().map(weighted).sum::<u32>().is_multiple_of(10)
}

/// Returns whether the text is a MAC address: six, eight or twenty bytes in hexadecimal, separated by colons
/// or dashes, or in groups of four digits separated by dots.
fn is_mac(text: &str) -> bool {
    let separator = match text.as_bytes() {
        [_, _, b':', ..] => ':',
        [_, _, b'-', ..] => '-',
        [_, _, _, _, b'.', ..] => '.',
        _ => return false,
    };
    let width = if separator == '.' { 4 } else { 2 };
    let mut groups = 0;
    let is_hex = text.split(separator).all(|group| {
        groups += 1;
        group.len() == width && group.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    is_hex && [6, 8, 20].contains(&(groups * width / 2))
}

fn is_uri(text: &str) -> bool {
    Url::parse_request(text).is_ok()
}

fn is_short_name(text: &str) -> bool {
    names::label(text).is_empty()
}

fn is_long_name(text: &str) -> bool {
    names::subdomain(text).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_formats_is_sorted() {
        assert!(FORMATS.is_sorted_by(|(a, _), (b, _)| a < b));
    }

    #[test]
    fn a_format_applies_only_to_its_own_type() {
        // Type, format, whether it is enforced, whether it is known.
        for (kind, format, enforced, known) in [
            ("string", "date-time", true, true),
            ("string", "datetime", true, true),
            ("", "k8s-short-name", true, true),
            ("string", "quantity", false, true),
            ("string", "int32", false, false),
            ("integer", "int32", true, true),
            ("integer", "int64", true, true),
            ("integer", "uint32", false, false),
            ("integer", "date", false, false),
            ("number", "float", true, true),
            ("number", "double", true, true),
            ("number", "int64", false, false),
            ("array", "cidr", false, false),
            ("object", "uri", false, false),
            ("boolean", "byte", false, false),
            ("string", "", false, false),
        ] {
            let got = (is_enforced(kind, format), is_known(kind, format));
            assert_eq!(got, (enforced, known), "{kind} {format}");
        }
        assert_eq!(has("int32", "anything"), None);
    }

    #[test]
    fn each_string_format_accepts_valid_and_refuses_invalid_texts() {
        for (format, accepted, refused) in [
            (
                "bsonobjectid",
                &["507f1f77bcf86cd799439011"][..],
                &["", "507f1f77bcf86cd79943901g", "507f"][..],
            ),
            ("byte", &["YQ==", "YWJj"], &["", "YQ", "Y Q=", "!"]),
            (
                "cidr",
                &["10.0.0.0/8", "fd00::/64", "010.0.0.0/8", "::ffff:1.2.3.4/128"],
                &["10.0.0.0", "10.0.0.0/33", "a/8", "10.0.0.0/+8", "fe80::1%eth0/64"],
            ),
            ("creditcard", &["4111 1111 1111 1111", "5555555555554444"], &["4111111111111112", "", "0"]),
            ("date", &["2024-02-29"], &["2023-02-29", "2024-2-29", "20240229", "2024-02-29x", "+024-02-29"]),
            (
                "date-time",
                &["2024-01-02T03:04:05Z", "2024-01-02t03:04:05.123+01:00", "2024-01-02T03:04:05-00:00"],
                &[
                    "yesterday",
                    "2024-01-02",
                    "2024-01-02T24:04:05Z",
                    "2024-01-02T03:04:05",
                    "2024-13-02T03:04:05Z",
                ],
            ),
            ("duration", &["1h30m", "5 days", "2w", "100ms", "0"], &["", "h", "1 fortnight", "-"]),
            (
                "email",
                &["a@b", "A B <a.b@c.org>", "\"a b\"@c"],
                &["", "a", "a@", "@b", "a b@c", "a@b c", "<a@b"],
            ),
            ("hexcolor", &["#fff", "00FF00"], &["#ff", "#ggg", "#fffff"]),
            ("hostname", &["a", "a.example.com", "1a.b-c.de"], &["", "-a", "a..b", "a_b.com", "a.b."]),
            (
                "ipv4",
                &["1.2.3.4", "01.2.3.4", "1.2.3.04", "::ffff:1.2.3.4", "000.0.0.0255"],
                &["1.2.3", "::1", "1.2.3.256", "1.2.3.", "1.2.3.4.5", "1.2.3.+4", "", "1.2.3.4%a"],
            ),
            (
                "ipv6",
                &["::1", "fe80::1", "::ffff:1.2.3.4", "::ffff:1.2.3.04"],
                &["1.2.3.4", ":", "12345::", "fe80::1%eth0", "::1.2.3"],
            ),
            (
                "isbn",
                &["0-306-40615-2", "978-3-16-148410-0", "080442957X"],
                &["0306406153", "9783161484101", ""],
            ),
            ("k8s-long-name", &["a.b-c.d1"], &["", "A", "a..b", "-a"]),
            ("k8s-short-name", &["a-1"], &["a.b", "", "a-"]),
            (
                "mac",
                &["00:1b:44:11:3a:b7", "001b.4411.3ab7", "00-1b-44-11-3a-b7-00-00"],
                &["00:1b", "g0:1b:44:11:3a:b7"],
            ),
            ("password", &["", "x"], &[]),
            ("rgbcolor", &["rgb(0,31,255)", "rgb( 1 , 2 , 3 )"], &["rgb(1,2)", "rgb(256,0,0)", "1,2,3"]),
            ("ssn", &["000-00-0000", "123 45 6789"], &["1234-56-789", "a"]),
            (
                "uri",
                &["http://a.b/c?d=e", "/a", "mailto:x", "urn:a:b"],
                &["", "a", "a/b", "http://a b/", "http://[::1", "1a:b", "http://a/%zz"],
            ),
            (
                "uuid",
                &["a8098c1a-f86e-11da-bd1a-00112444be1e", "A8098C1AF86E11DABD1A00112444BE1E"],
                &["a8098c1a", "", "a8098c1a-f86e-11da-bd1a-00112444be1g"],
            ),
            ("uuid3", &["bcd02e22-68f0-3046-a512-327cca9def8f"], &["bcd02e22-68f0-4046-a512-327cca9def8f"]),
            ("uuid4", &["025b0d74-00a2-4048-bf57-227c5111bb34"], &["025b0d74-00a2-4048-cf57-227c5111bb34"]),
            ("uuid5", &["886313e1-3b8a-5372-9b90-0c9aee199e5d"], &["886313e1-3b8a-3372-9b90-0c9aee199e5d"]),
        ] {
            for text in accepted {
                assert_eq!(has(format, text), Some(true), "{text:?} is a {format}");
            }
            for text in refused {
                assert_eq!(has(format, text), Some(false), "{text:?} is no {format}");
            }
        }
    }
}
