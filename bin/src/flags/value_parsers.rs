//! Parsers of flag values. Invalid values cause the errors of Go's parsers, as in kube-apiserver.

use std::net::IpAddr;

use go::quote;

/// Parses an IP address. Blanks around the address are ignored.
pub fn ip(text: &str) -> Result<IpAddr, String> {
    text.trim().parse().map_err(|_| format!("failed to parse IP: {}", quote(text)))
}

/// Elements separated by commas. A value of a repeatable flag has this type.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct List(Vec<String>);

impl List {
    /// Returns the elements of all values.
    pub fn all(values: &[List]) -> Vec<String> {
        values.iter().flat_map(|List(elements)| elements).cloned().collect()
    }
}

impl From<&str> for List {
    /// Splits the text at commas; an empty text is an empty list.
    fn from(text: &str) -> Self {
        let elements = text.split(',').map(str::to_owned);
        List(if text.is_empty() { Vec::new() } else { elements.collect() })
    }
}

/// Parses `name=value`. The value may contain further `=`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("malformed pair, expect string=string")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// A port to listen on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Port {
    /// A port number. The server checks the range of the number later.
    Number(i64),
    /// Any free port.
    Free,
}

/// Parses a port number, or `free`.
pub fn port(text: &str) -> Result<Port, String> {
    if text == "free" { Ok(Port::Free) } else { integer(text).map(Port::Number) }
}

/// Parses an integer in the range of `N` in Go's syntax: `10`, `-1`, `0x1f`, `0o17`, `017`, `0b11`, `1_000`.
pub fn integer<N: TryFrom<i128>>(text: &str) -> Result<N, String> {
    let failed = |why: &str| format!("strconv.ParseInt: parsing {}: {why}", quote(text));
    let (is_negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let (radix, digits) = radix(digits);
    let may_begin_so = radix != 10 || !digits.starts_with('_');
    if !may_begin_so || digits.ends_with('_') || digits.contains("__") {
        return Err(failed("invalid syntax"));
    }
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(failed("invalid syntax"));
    }
    let number = i128::from_str_radix(&digits, radix).ok();
    let number = number.map(|number| if is_negative { -number } else { number });
    number.and_then(|number| N::try_from(number).ok()).ok_or_else(|| failed("value out of range"))
}

/// Returns the base of a number, and the digits after the prefix of the base.
fn radix(text: &str) -> (u32, &str) {
    let Some(rest) = text.strip_prefix('0').filter(|rest| !rest.is_empty()) else { return (10, text) };
    match rest.as_bytes()[0] {
        b'x' | b'X' => (16, &rest[1..]),
        b'o' | b'O' => (8, &rest[1..]),
        b'b' | b'B' => (2, &rest[1..]),
        _ => (8, rest),
    }
}

/// Parses a floating-point number.
pub fn float(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("strconv.ParseFloat: parsing {}: invalid syntax", quote(text)))
}

/// Parses a floating-point number and rounds it to single precision.
pub fn float32(text: &str) -> Result<f32, String> {
    float(text).map(|number| number as f32)
}

/// Parses a level of detail of the log, which must not have a sign. Values above 255 become 255.
pub fn level(text: &str) -> Result<u8, String> {
    let failed = |why: &str| format!("strconv.ParseUint: parsing {}: {why}", quote(text));
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(failed("invalid syntax"));
    }
    match text.parse::<i32>() {
        Ok(level) => Ok(u8::try_from(level).unwrap_or(u8::MAX)),
        Err(_) => Err(failed("value out of range")),
    }
}

/// Checks levels of detail for modules, as pattern=N separated by commas.
pub fn levels(text: &str) -> Result<(), String> {
    for item in text.split(',').filter(|item| !item.is_empty()) {
        match item.split('=').collect::<Vec<_>>()[..] {
            [pattern, number] if !pattern.is_empty() && !number.is_empty() => {
                level(number).map_err(|why| format!("parsing verbosity in {}: {why}", quote(item)))?;
            }
            _ => return Err(format!("{} does not have the pattern=N format", quote(item))),
        }
    }
    Ok(())
}

/// Checks a size such as 64Ki.
pub fn quantity(text: &str) -> Result<(), String> {
    quantity::canonical(text).map(drop).map_err(str::to_owned)
}

/// Parses a number of bytes such as 64Ki. The number must not be negative, and is rounded up to whole bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let size = quantity::Quantity::parse(text.trim())?;
    u64::try_from(size.rounded_up()).map_err(|_| "must not be negative".to_owned())
}

/// Parses the value of a Boolean flag.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {}: invalid syntax", quote(text))),
    }
}

/// The error of kube-apiserver for a negative value of each flag. kube-apiserver parses such values, and refuses them
/// in a later step.
const NEGATIVE: &[(&str, &str)] = &[
    ("--livez-grace-period", "--livez-grace-period can not be a negative value"),
    ("--min-request-timeout", "--min-request-timeout can not be negative value"),
    ("--request-timeout", "--request-timeout can not be negative value"),
    (
        "--service-account-max-token-expiration",
        "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
    ),
    ("--shutdown-delay-duration", "--shutdown-delay-duration can not be negative value"),
    (
        "--shutdown-watch-termination-grace-period",
        "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
    ),
];

/// Returns the error for an invalid value of a flag.
pub fn invalid(flag: &str, value: &str, why: &str) -> String {
    let is_negative = value.starts_with('-')
        && (why.ends_with("must not be negative") || why.ends_with("value out of range"));
    if is_negative && let Some((_, text)) = NEGATIVE.iter().find(|(name, _)| *name == flag) {
        return (*text).to_owned();
    }
    if flag == "--service-cluster-ip-range" {
        return why.to_owned();
    }
    if flag == "--log-format" {
        return format!("format: Invalid value: {}: Unsupported log format", quote(value));
    }
    // The only flag of the server that has a short form.
    let displayed_flag = if flag == "--v" { "-v, --v" } else { flag };
    format!("invalid argument {} for {} flag: {why}", quote(value), quote(displayed_flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_values_have_the_errors_of_kube_apiserver() {
        for (flag, value, why, want) in [
            (
                "--request-timeout",
                "-1s",
                "must not be negative",
                "--request-timeout can not be negative value",
            ),
            (
                "--min-request-timeout",
                "-1",
                "strconv.ParseInt: parsing \"-1\": value out of range",
                "--min-request-timeout can not be negative value",
            ),
            (
                "--service-account-max-token-expiration",
                "-1h",
                "must not be negative",
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
            ),
            (
                "--request-timeout",
                "x",
                "time: invalid duration \"x\"",
                "invalid argument \"x\" for \"--request-timeout\" flag: time: invalid duration \"x\"",
            ),
            (
                "--log-format",
                "xml",
                "must be text or json",
                "format: Invalid value: \"xml\": Unsupported log format",
            ),
        ] {
            assert_eq!(invalid(flag, value, why), want);
        }
    }

    #[test]
    fn verbosity_levels_must_not_be_negative() {
        for (text, want) in [
            ("4", Ok(4)),
            ("300", Ok(255)),
            ("-1", Err("strconv.ParseUint: parsing \"-1\": invalid syntax")),
            ("", Err("strconv.ParseUint: parsing \"\": invalid syntax")),
            ("2147483648", Err("strconv.ParseUint: parsing \"2147483648\": value out of range")),
        ] {
            assert_eq!(level(text), want.map_err(str::to_owned), "{text}");
        }
        for (text, want) in [
            ("", ""),
            ("a=1,b*=2,", ""),
            ("a", "\"a\" does not have the pattern=N format"),
            ("a=1=2", "\"a=1=2\" does not have the pattern=N format"),
            ("a=x", "parsing verbosity in \"a=x\": strconv.ParseUint: parsing \"x\": invalid syntax"),
        ] {
            assert_eq!(levels(text).err().unwrap_or_default(), want, "{text}");
        }
    }

    #[test]
    fn numbers_are_read_within_the_range_of_their_type() {
        for (text, want) in [
            ("0", Ok(0)),
            ("65535", Ok(65_535)),
            ("65536", Err("strconv.ParseInt: parsing \"65536\": value out of range")),
            ("-1", Err("strconv.ParseInt: parsing \"-1\": value out of range")),
            (
                "99999999999999999999",
                Err("strconv.ParseInt: parsing \"99999999999999999999\": value out of range"),
            ),
            ("", Err("strconv.ParseInt: parsing \"\": invalid syntax")),
            ("-", Err("strconv.ParseInt: parsing \"-\": invalid syntax")),
            ("1x", Err("strconv.ParseInt: parsing \"1x\": invalid syntax")),
            ("0x10", Ok(16)),
            ("0X1f", Ok(31)),
            ("0b11", Ok(3)),
            ("0o17", Ok(15)),
            ("017", Ok(15)),
            ("00", Ok(0)),
            ("1_000", Ok(1000)),
            ("0x_1_0", Ok(16)),
            ("08", Err("strconv.ParseInt: parsing \"08\": invalid syntax")),
            ("0x", Err("strconv.ParseInt: parsing \"0x\": invalid syntax")),
            ("_1", Err("strconv.ParseInt: parsing \"_1\": invalid syntax")),
            ("1__0", Err("strconv.ParseInt: parsing \"1__0\": invalid syntax")),
            ("1_", Err("strconv.ParseInt: parsing \"1_\": invalid syntax")),
            ("+-1", Err("strconv.ParseInt: parsing \"+-1\": invalid syntax")),
            ("\u{fc}", Err("strconv.ParseInt: parsing \"\u{fc}\": invalid syntax")),
        ] {
            assert_eq!(integer::<u16>(text), want.map_err(str::to_owned), "{text}");
        }
    }
}
