//! Rules for the names of drivers, pools, attributes and shares.

use super::super::super::path::FieldPath;
use super::super::super::{Validator, names, scalar_formats};
use crate::device_limits::{DOMAIN_MAX, IDENTIFIER_MAX};
use types::schema::table::ValueFormat;
use values::field::{FieldError, go_quote};

/// Maximum length of the name of a pool in bytes.
const POOL_MAX: usize = 253;
/// Maximum length in bytes of a whole name in a path: domain, slash and identifier. Longer names are
/// shortened in the middle.
const SHOWN_MAX: usize = DOMAIN_MAX + 1 + IDENTIFIER_MAX;

/// Checks the name of a request, a device or a counter set.
pub(super) fn label(validator: &mut Validator, path: &FieldPath, name: &str) {
    validator.refuse(path, name, names::label(name));
}

/// Checks the name of a driver. The letters may have either case.
pub(super) fn driver(validator: &mut Validator, path: &FieldPath, name: &str) {
    if name.is_empty() {
        return validator.required(path, "");
    }
    scalar_formats::check_form(ValueFormat::Driver, path, name, &mut validator.errors);
}

/// Checks the name of a pool, which consists of subdomains separated by slashes.
pub(super) fn pool(validator: &mut Validator, path: &FieldPath, name: &str) {
    if name.is_empty() {
        return validator.required(path, "");
    }
    if name.len() > POOL_MAX {
        validator.errors.push(FieldError::too_long(path, POOL_MAX));
    }
    for part in name.split('/') {
        if validator.has_enough() {
            return;
        }
        validator.refuse(path, part, names::subdomain(part));
    }
}

/// Checks the name of an attribute or a capacity: `[domain/]identifier`. A name with more than one slash is
/// not checked here.
pub(super) fn qualified(validator: &mut Validator, path: &FieldPath, name: &str) {
    let parts: Vec<&str> = name.split('/').collect();
    match *parts {
        [identifier] => self::identifier(validator, path, identifier),
        [domain, identifier] => {
            if domain.is_empty() {
                validator.invalid(path, "", "the domain must not be empty");
            } else {
                driver(validator, path, domain);
            }
            if identifier.is_empty() {
                validator.invalid(path, "", "the name must not be empty");
            } else {
                self::identifier(validator, path, identifier);
            }
        }
        _ => {}
    }
}

/// Checks the name of an attribute, which must have a domain.
pub(super) fn fully_qualified(validator: &mut Validator, path: &FieldPath, name: &str) {
    qualified(validator, path, name);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        validator.invalid(path, name, detail);
    }
}

fn identifier(validator: &mut Validator, path: &FieldPath, name: &str) {
    if name.len() > IDENTIFIER_MAX {
        validator.errors.push(FieldError::too_long(path, IDENTIFIER_MAX));
    }
    validator.refuse(path, name, names::identifier(name));
}

/// Returns the key of a map in the form that error paths contain.
pub(super) fn shortened_key(key: &str) -> String {
    if key.len() <= SHOWN_MAX {
        return key.to_owned();
    }
    let kept = SHOWN_MAX - "...".len();
    let head = &key.as_bytes()[..kept.div_ceil(2)];
    let tail = &key.as_bytes()[key.len() - kept / 2..];
    format!("{}...{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail))
}

/// Checks the ID of a share, which is a UUID in lower case.
pub(super) fn share(validator: &mut Validator, path: &FieldPath, id: &str) {
    if let Some(fault) = uuid_fault(id) {
        return validator.invalid(path, id, format!("error validating uid: {fault}"));
    }
    if id.len() != UUID_LEN || id.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let detail = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase \
                      hexadecimal characters";
        validator.invalid(path, id, detail);
    }
}

const UUID_LEN: usize = 36;
const URN: &str = "urn:uuid:";

/// Returns the reason why a text is not a UUID. A UUID has one of four forms: plain, in braces, as a URN, or
/// without dashes.
fn uuid_fault(text: &str) -> Option<String> {
    let format = || Some("invalid UUID format".to_owned());
    let bytes = text.as_bytes();
    let plain = match bytes.len() {
        UUID_LEN => bytes,
        45 => {
            let (prefix, rest) = bytes.split_at(URN.len());
            if !prefix.eq_ignore_ascii_case(URN.as_bytes()) {
                let prefix = go_quote(&String::from_utf8_lossy(prefix));
                return Some(format!("invalid urn prefix: {prefix}"));
            }
            rest
        }
        38 => match bytes {
            [b'{', inner @ .., b'}'] => inner,
            _ => return Some("invalid bracketed UUID format".to_owned()),
        },
        32 => return if bytes.iter().all(u8::is_ascii_hexdigit) { None } else { format() },
        other => return Some(format!("invalid UUID length: {other}")),
    };
    let fits = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    if plain.iter().enumerate().all(fits) { None } else { format() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_one_of_four_forms() {
        let plain = "01234567-89ab-cdef-0123-456789abcdef";
        for (text, want) in [
            (plain, None),
            ("0123456789abcdef0123456789ABCDEF", None),
            ("{01234567-89ab-cdef-0123-456789abcdef}", None),
            ("URN:uuid:01234567-89ab-cdef-0123-456789abcdef", None),
            ("x", Some("invalid UUID length: 1")),
            ("01234567x89ab-cdef-0123-456789abcdef", Some("invalid UUID format")),
            ("(01234567-89ab-cdef-0123-456789abcdef)", Some("invalid bracketed UUID format")),
            ("urn:guid:01234567-89ab-cdef-0123-456789abcdef", Some(r#"invalid urn prefix: "urn:guid:""#)),
        ] {
            assert_eq!(uuid_fault(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn long_keys_are_shortened_in_the_middle() {
        assert_eq!(shortened_key(&"a".repeat(96)), "a".repeat(96));
        let long = format!("{}{}", "a".repeat(60), "b".repeat(60));
        assert_eq!(shortened_key(&long), format!("{}...{}", "a".repeat(47), "b".repeat(46)));
    }
}
