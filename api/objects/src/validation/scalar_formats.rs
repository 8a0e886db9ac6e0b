//! Checks of the scalar formats in schemas (names, IP addresses, ports, quantities …), with the messages of
//! the reference server.
//!
//! A valid value needs no allocation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quantity::Quantity;

use super::metadata;
use super::names::{self, Faults};
use super::path::FieldPath;
use types::schema::table::ValueFormat;
use values::field::FieldError;
use values::json::Value;

/// Message for negative numbers and quantities.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// Message for numbers and quantities that are not positive.
pub(crate) const POSITIVE: &str = "must be greater than zero";
/// Message for invalid addresses.
pub const ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// Message for invalid networks.
const NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

const FILE_MODE_MAX: i64 = 0o777;
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// Maximum length of the name of a storage or device driver.
pub const DRIVER_MAX: usize = 63;

/// Checks a value against a format.
pub(super) fn value(form: ValueFormat, path: &FieldPath, value: &Value, errors: &mut Vec<FieldError>) {
    match (form, value) {
        (ValueFormat::Labels, value) => metadata::labels(path, Some(value), errors),
        (ValueFormat::PortOrName, Value::String(name)) => {
            metadata::refuse(errors, path, name, names::port_name(name))
        }
        (ValueFormat::CountOrPercent, Value::String(text)) if !is_percent(text) => {
            let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                          '93%', regex used for validation is '[0-9]+%')";
            errors.push(FieldError::invalid(path, value, detail));
        }
        (ValueFormat::CountOrPercent, Value::String(_)) => {}
        (ValueFormat::NotNegative | ValueFormat::Positive, Value::String(text)) => {
            quantity(form, path, text, value, errors)
        }
        (_, Value::String(text)) => self::text(form, path, text, errors),
        (_, Value::Int(number)) => {
            let detail = match form {
                ValueFormat::Port | ValueFormat::PortOrName if !(1..=65535).contains(number) => {
                    "must be between 1 and 65535, inclusive"
                }
                ValueFormat::FileMode if !(0..=FILE_MODE_MAX).contains(number) => FILE_MODE,
                ValueFormat::Id if !(0..=i64::from(i32::MAX)).contains(number) => {
                    "must be between 0 and 2147483647, inclusive"
                }
                ValueFormat::CountOrPercent if *number < 0 => NOT_NEGATIVE,
                _ => return,
            };
            errors.push(FieldError::invalid(path, value, detail));
        }
        _ => {}
    }
}

/// Returns whether the text consists of digits and a percent sign.
pub(super) fn is_percent(text: &str) -> bool {
    let digits = text.strip_suffix('%').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn quantity(form: ValueFormat, path: &FieldPath, text: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let Ok(quantity) = Quantity::parse(text) else { return };
    if quantity.is_negative() && form == ValueFormat::NotNegative {
        errors.push(FieldError::invalid(path, value, NOT_NEGATIVE));
    } else if form == ValueFormat::Positive && (quantity.is_negative() || quantity.is_zero()) {
        errors.push(FieldError::invalid(path, value, POSITIVE));
    }
}

/// Checks an element of a list. An empty element counts as given.
pub(super) fn element(form: ValueFormat, path: &FieldPath, value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::String(text) if text.is_empty() => check_form(form, path, text, errors),
        value => self::value(form, path, value, errors),
    }
}

/// Checks a string. An empty string is only checked if its format requires the check.
pub(super) fn text(form: ValueFormat, path: &FieldPath, text: &str, errors: &mut Vec<FieldError>) {
    if !text.is_empty() || matches!(form, ValueFormat::SubdomainGiven | ValueFormat::QualifiedGiven) {
        check_form(form, path, text, errors);
    }
}

/// Checks a string, even if it is empty.
pub(super) fn check_form(form: ValueFormat, path: &FieldPath, text: &str, errors: &mut Vec<FieldError>) {
    let faults = match form {
        ValueFormat::Label => names::label(text),
        ValueFormat::Subdomain | ValueFormat::SubdomainGiven => names::subdomain(text),
        ValueFormat::PathSegment => names::path_segment(text),
        ValueFormat::Qualified | ValueFormat::QualifiedGiven => names::qualified(text),
        ValueFormat::LabelValue => names::label_value(text),
        ValueFormat::ConfigKey => names::config_key(text),
        ValueFormat::Environment => names::environment_variable(text),
        ValueFormat::PortName => names::port_name(text),
        ValueFormat::SearchDomain if text == "." => return,
        ValueFormat::SearchDomain => {
            let bare = text.strip_suffix('.').unwrap_or(text);
            return metadata::refuse(errors, path, bare, names::subdomain_with_underscore(bare));
        }
        ValueFormat::Ip => address_fault(text).map(str::to_owned).into_iter().collect(),
        ValueFormat::Cidr => network_fault(text).map(str::to_owned).into_iter().collect(),
        ValueFormat::CidrPadded => {
            let text = text.trim();
            let faults = network_fault(text).map(str::to_owned).into_iter().collect();
            return metadata::refuse(errors, path, text, faults);
        }
        ValueFormat::NoBacksteps => backsteps(text),
        ValueFormat::Descending => descending(text),
        ValueFormat::Local => {
            let mut faults = descending(text);
            if text.starts_with("..") && !text.starts_with("../") && text != ".." {
                faults.push("must not start with '..'".to_owned());
            }
            faults
        }
        ValueFormat::Absolute => unless(text.starts_with('/'), "must be an absolute path"),
        ValueFormat::DomainPath => return domain_path(path, text, errors),
        ValueFormat::Driver => {
            if text.len() > DRIVER_MAX {
                errors.push(FieldError::too_long(path, DRIVER_MAX));
            }
            if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
                names::subdomain(&text.to_lowercase())
            } else {
                names::subdomain(text)
            }
        }
        ValueFormat::Port
        | ValueFormat::FileMode
        | ValueFormat::Id
        | ValueFormat::PortOrName
        | ValueFormat::CountOrPercent
        | ValueFormat::NotNegative
        | ValueFormat::Positive
        | ValueFormat::Labels => return,
    };
    metadata::refuse(errors, path, text, faults);
}

fn unless(is_right: bool, sentence: &str) -> Faults {
    if is_right { Vec::new() } else { vec![sentence.to_owned()] }
}

fn backsteps(text: &str) -> Faults {
    unless(!text.split('/').any(|step| step == ".."), "must not contain '..'")
}

fn descending(text: &str) -> Faults {
    let mut faults = unless(!text.starts_with('/'), "must be a relative path");
    faults.extend(backsteps(text));
    faults
}

fn domain_path(path: &FieldPath, text: &str, errors: &mut Vec<FieldError>) {
    let Some((domain, rest)) =
        text.split_once('/').filter(|(domain, rest)| !domain.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return errors.push(FieldError::invalid(path, &text.into(), detail));
    };
    metadata::refuse(errors, path, domain, names::subdomain(domain));
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    if !rest.bytes().all(fits) {
        let detail = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
        errors.push(FieldError::invalid(path, &rest.into(), detail));
    }
}

/// Parses an address like the reference server. Leading zeros are accepted; zones are not.
pub fn address(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(|address| match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(address),
        });
    }
    let mut bytes = [0; 4];
    let mut parts = text.split('.');
    for byte in &mut bytes {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *byte = part.parse().ok()?;
    }
    parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(bytes)))
}

/// Returns the reason why an address is invalid. Addresses with leading zeros and IPv4-mapped IPv6 addresses
/// are invalid, because programs parse them in different ways.
pub fn address_fault(text: &str) -> Option<&'static str> {
    if address(text).is_none() {
        return Some(ADDRESS);
    }
    match text.parse::<IpAddr>() {
        Err(_) => Some("must not have leading 0s"),
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped IPv6 address")
        }
        Ok(_) => None,
    }
}

/// Returns the reason why a network is invalid, by the rules of [`address_fault`].
pub(crate) fn network_fault(text: &str) -> Option<&'static str> {
    let Some((_, length)) = network(text) else { return Some(NETWORK) };
    let (given, digits) = text.split_once('/')?;
    let Ok(address) = given.parse::<IpAddr>() else {
        return Some("must not have leading 0s in IP or prefix length");
    };
    if digits.len() > 1 && digits.starts_with('0') {
        return Some("must not have leading 0s in IP or prefix length");
    }
    let host_bits = match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits().checked_shl(length.into()).unwrap_or(0)),
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            return Some("must not have an IPv4-mapped IPv6 address");
        }
        IpAddr::V6(v6) => v6.to_bits().checked_shl(length.into()).unwrap_or(0),
    };
    (host_bits != 0).then_some("must not have bits set beyond the prefix length")
}

/// Returns the reason why an address in a field of a newer kind is invalid. The address must also be in
/// canonical form (RFC 5952).
pub(crate) fn canonical_address_fault(text: &str) -> Option<String> {
    let fault = address_fault(text).map(str::to_owned);
    fault.or_else(|| canonical(text, &address(text)?.to_string()))
}

/// Returns the reason why a network in a field of a newer kind is invalid. The network must also be in
/// canonical form.
pub(crate) fn canonical_network_fault(text: &str) -> Option<String> {
    let fault = network_fault(text).map(str::to_owned);
    fault.or_else(|| {
        let (address, length) = network(text)?;
        canonical(text, &format!("{address}/{length}"))
    })
}

fn canonical(text: &str, form: &str) -> Option<String> {
    (text != form).then(|| format!("must be in canonical form (\"{form}\")"))
}

/// Parses a network. Returns the address as given, and the prefix length.
pub fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let is_v6 = address.contains(':');
    let address = self::address(address)?;
    if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let length: u8 = length.parse().ok()?;
    (length <= if is_v6 { 128 } else { 32 }).then_some((address, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(form: ValueFormat, text: &str) -> Vec<String> {
        let mut errors = Vec::new();
        let text = match text.parse::<i64>() {
            Ok(number) => Value::Int(number),
            Err(_) => text.into(),
        };
        value(form, &FieldPath::ROOT.child("a"), &text, &mut errors);
        errors.iter().map(|error| error.to_string()).collect()
    }

    #[test]
    fn each_value_format_accepts_valid_and_refuses_invalid_values() {
        // Source: docs/api/validation.md. The columns are: format, valid values, invalid values.
        for (form, fitting, others) in [
            (
                ValueFormat::Ip,
                "1.2.3.4 ::1 2001:db8::1 FE80:0::1",
                "1.2.3 1.2.3.256 x 1.2.3.4.5 fe80::1%eth0 1..2.3 010.1.1.1 ::ffff:1.2.3.4",
            ),
            (
                ValueFormat::Cidr,
                "10.0.0.0/8 ::/0 1.2.3.4/32 0.0.0.0/0 2001:db8::/64",
                "10.0.0.0 10.0.0.0/33 ::/129 x/8 1.2.3.4/ 1.2.3.4/-1 10.0.0.1/8 10.0.0.0/08 010.0.0.0/8 ::1/64 \
                 ::ffff:10.0.0.0/104",
            ),
            (ValueFormat::Local, "a a/b ...a/ a/..b", "/a ../a .. a/../b ..a"),
            (ValueFormat::NoBacksteps, "/a a/..b", "a/.. .."),
            (ValueFormat::Absolute, "/ /a", "a"),
            (ValueFormat::Port, "1 65535", "0 65536 -1"),
            (ValueFormat::PortOrName, "1 http", "0 HTTP"),
            (ValueFormat::FileMode, "0 511", "512 -1"),
            (ValueFormat::Id, "0 2147483647", "2147483648 -1"),
            (ValueFormat::CountOrPercent, "0 5 10% 300%", "-1 % 5x 1.5%"),
            (ValueFormat::NotNegative, "1Gi 100m", "-1Gi"),
            (ValueFormat::Positive, "1Gi", "-1m"),
            (ValueFormat::DomainPath, "a.b/c a/b/c", "a /a a/ A/b a/^"),
            (ValueFormat::Driver, "a.b A.b", "a_b"),
            (ValueFormat::SearchDomain, "a . a.b. _a.b", "a..b -a"),
            (ValueFormat::CidrPadded, "10.0.0.0/8", "10.0.0.0"),
        ] {
            for text in
                fitting.split(' ').filter(|text| !(form == ValueFormat::Local && text.starts_with("...a")))
            {
                assert_eq!(errors_of(form, text), Vec::<String>::new(), "{form:?} {text}");
            }
            for text in others.split(' ') {
                assert!(!errors_of(form, text).is_empty(), "{form:?} {text}");
            }
        }
    }

    #[test]
    fn addresses_and_networks_of_newer_kinds_must_be_in_canonical_form() {
        // Source: docs/api/validation.md#networking-kinds. The columns are: address or network, and its
        // fault, which is empty for a valid value.
        for (text, want) in [
            ("1.2.3.4", ""),
            ("2001:db8::1", ""),
            ("2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
            ("2001:db8:0:0:0:0:0:1", "must be in canonical form (\"2001:db8::1\")"),
            ("01.2.3.4", "must not have leading 0s"),
            ("10.0.0.0/8", ""),
            ("fd00:0::/64", "must be in canonical form (\"fd00::/64\")"),
            ("10.0.0.1/8", "must not have bits set beyond the prefix length"),
        ] {
            let is_network = text.contains('/');
            let fault =
                if is_network { canonical_network_fault(text) } else { canonical_address_fault(text) };
            assert_eq!(fault.unwrap_or_default(), want, "{text}");
        }
    }

    #[test]
    fn empty_strings_are_checked_as_list_elements_only() {
        for (form, faults) in [
            (ValueFormat::Ip, 1),
            (ValueFormat::Cidr, 1),
            (ValueFormat::SearchDomain, 1),
            (ValueFormat::Subdomain, 1),
            (ValueFormat::LabelValue, 0),
        ] {
            let (mut alone, mut listed) = (Vec::new(), Vec::new());
            value(form, &FieldPath::ROOT, &"".into(), &mut alone);
            element(form, &FieldPath::ROOT.index(0), &"".into(), &mut listed);
            assert_eq!((alone.len(), listed.len()), (0, faults), "{form:?}");
        }
    }

    #[test]
    fn format_errors_have_the_texts_of_the_reference_server() {
        for (form, text, want) in [
            (
                ValueFormat::Ip,
                "x",
                r#"a: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
            ),
            (ValueFormat::Local, "..a", r#"a: Invalid value: "..a": must not start with '..'"#),
            (
                ValueFormat::FileMode,
                "512",
                "a: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            ),
            (ValueFormat::Id, "-1", "a: Invalid value: -1: must be between 0 and 2147483647, inclusive"),
            (
                ValueFormat::DomainPath,
                "a",
                r#"a: Invalid value: "a": must be a domain-prefixed path (such as "acme.io/foo")"#,
            ),
        ] {
            assert_eq!(errors_of(form, text), [want]);
        }
    }
}
