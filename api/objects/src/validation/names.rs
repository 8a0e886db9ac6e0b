//! Checks of names in objects, with the messages of the reference server. Further checks are in the crate
//! `names`.
//!
//! Every check returns a list of faults, which is empty for a valid name.

pub use ::names::{Faults, label, label_1035, label_value, qualified, subdomain};
use ::names::{LABEL, SUBDOMAIN_MAX, generated, has_subdomain_form, longer_than, sentence};

use types::schema::table::NameRule;

/// Checks an RFC 1123 subdomain whose labels may contain underscores and begin with underscores.
pub(crate) fn subdomain_with_underscore(name: &str) -> Faults {
    let mut faults = longer_than(name, SUBDOMAIN_MAX, "characters");
    let fits = |part: &str| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        let inner = |byte: u8| is_lower_or_digit(byte) || matches!(byte, b'-' | b'_');
        bytes.first().is_some_and(|&byte| is_lower_or_digit(byte))
            && bytes.last().is_some_and(|&byte| is_lower_or_digit(byte))
            && bytes.iter().all(|&byte| inner(byte))
    };
    if !name.split('.').all(fits) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                    '.', and must start and end with an alphanumeric character";
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        faults.push(sentence(text, &format!("{label}(\\.{label})*"), &["example.com"]));
    }
    faults
}

/// Checks that a name consists of `*.` and an RFC 1123 subdomain.
pub(crate) fn wildcard_subdomain(name: &str) -> Faults {
    let mut faults = longer_than(name, SUBDOMAIN_MAX, "characters");
    if !name.strip_prefix("*.").is_some_and(has_subdomain_form) {
        let text = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        faults.push(sentence(text, &format!("\\*\\.{LABEL}(\\.{LABEL})*"), &["*.example.com"]));
    }
    faults
}

/// Checks the name of an HTTP header.
pub(crate) fn http_header(name: &str) -> Faults {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![sentence(text, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// Checks a segment of a URL path.
pub(crate) fn path_segment(name: &str) -> Faults {
    match name {
        "." | ".." => vec![format!("may not be '{name}'")],
        _ => path_segment_start(name),
    }
}

/// Checks the prefix of a segment of a URL path.
fn path_segment_start(name: &str) -> Faults {
    let found = ["/", "%"].into_iter().filter(|part| name.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}

/// Checks a name by the rule of its kind.
pub(crate) fn by_rule(rule: NameRule, name: &str) -> Faults {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// Checks the prefix of a generated name by the rule of its kind.
pub(crate) fn generate_base(rule: NameRule, base: &str) -> Faults {
    match rule {
        NameRule::Subdomain | NameRule::Label => by_rule(rule, &generated(base)),
        NameRule::PathSegment => path_segment_start(base),
    }
}

/// Returns the reason why an API version is invalid. An API version is `[group/]version` or empty.
pub(crate) fn group_version_fault(text: &str) -> Option<String> {
    ::names::group_version(text).err()
}

/// Checks a C identifier.
pub fn identifier(name: &str) -> Faults {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let bytes = name.as_bytes();
    if bytes.first().is_some_and(is_first) && bytes.iter().all(|byte| is_first(byte) || byte.is_ascii_digit())
    {
        return Vec::new();
    }
    let text = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                alphanumeric characters or '_'";
    vec![sentence(text, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// Checks the reason of a condition.
pub(crate) fn condition_reason(reason: &str) -> Faults {
    let bytes = reason.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let is_end = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let fits = bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(inner);
    if fits {
        return Vec::new();
    }
    let text = "a condition reason must start with alphabetic character, optionally followed by a string of \
                alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    vec![sentence(text, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &examples)]
}

/// Checks a key of a config map or secret.
pub(crate) fn config_key(key: &str) -> Faults {
    let mut faults = longer_than(key, SUBDOMAIN_MAX, "characters");
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(fits) {
        let text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        faults.push(sentence(text, "[-._a-zA-Z0-9]+", &["key.name", "KEY_NAME", "key-name"]));
    }
    match key {
        "." | ".." => faults.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// Checks the name of an environment variable.
pub(crate) fn environment_variable(name: &str) -> Faults {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
        return Vec::new();
    }
    let text =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![text.to_owned()]
}

/// Checks the name of a port.
pub fn port_name(name: &str) -> Faults {
    let mut faults = longer_than(name, 15, "characters");
    if name.is_empty() || !name.bytes().all(|byte| is_lower_or_digit(byte) || byte == b'-') {
        faults.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        faults.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        faults.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        faults.push("must not begin or end with a hyphen".to_owned());
    }
    faults
}

fn is_lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_rule_accepts_valid_and_refuses_invalid_names() {
        // Source: the generic validation facts. The columns are: check, accepted names, refused names.
        type Check = fn(&str) -> Faults;
        let cases: [(Check, &str, &str); 5] = [
            (subdomain_with_underscore, "a _a.b a_b", "a..b a_ A a.-b"),
            (wildcard_subdomain, "*.a *.a.b", "a * *. *.a..b *a.b"),
            (path_segment, "a:b system:x ...", ". .. a/b a%b"),
            (config_key, "a .a A_b-c", ". .. ..a ... a/b"),
            (identifier, "a _ A_1", "1a a-b a.b ä"),
        ];
        for (check, taken, refused) in &cases {
            for name in taken.split(' ') {
                assert_eq!(check(name), Faults::new(), "{name}");
            }
            for name in refused.split(' ') {
                assert!(!check(name).is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn name_errors_have_the_texts_of_the_reference_server() {
        for (faults, want) in [
            (config_key(".."), "must not be '..'"),
            (path_segment("a/b"), "may not contain '/'"),
            (port_name("http-"), "must not begin or end with a hyphen"),
        ] {
            assert_eq!(faults, [want]);
        }
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash_before_its_suffix() {
        assert!(generate_base(NameRule::Label, "web-").is_empty());
        assert!(!generate_base(NameRule::Label, "-").is_empty());
        assert!(
            generate_base(NameRule::Subdomain, "webA-").is_empty(),
            "the character before the dash is not looked at"
        );
        assert!(generate_base(NameRule::PathSegment, "..").is_empty());
        assert!(!generate_base(NameRule::PathSegment, "a/").is_empty());
    }
}
