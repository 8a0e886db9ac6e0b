//! Checks of names, label keys and label values, with the reference server's messages.
//!
//! Every check returns the messages for its failures, and none for a valid name. The checks are written by hand instead
//! of with regular expressions: names are short, and the checks run for every label of every write. Keys and values of
//! labels follow the rules that selectors have for them.

use crate::types::schema::table::NameRule;
/// `[prefix/]name`: keys of labels and annotations, finalizers, resource names.
pub(crate) use crate::types::selector::rules::label_key_errors as qualified;
/// The value of a label.
pub(crate) use crate::types::selector::rules::label_value_errors as label_value;

/// Longest RFC 1123 and 1035 label.
const LABEL_MAX: usize = 63;
/// Longest RFC 1123 subdomain, and longest key of a config map.
const SUBDOMAIN_MAX: usize = 253;

/// Messages of the failures.
pub(crate) type Faults = Vec<String>;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// A message with examples and the exact regular expression. The space after each comma but the last
/// is double, as the reference server has it.
fn sentence(text: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn is_label(text: &str, first: fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let inner = |byte: &u8| is_lower_or_digit(byte) || *byte == b'-';
    bytes.first().is_some_and(first) && bytes.last().is_some_and(is_lower_or_digit) && bytes.iter().all(inner)
}

fn is_lower_or_digit(byte: &u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// An RFC 1123 label.
pub(crate) fn label(name: &str) -> Faults {
    let mut faults = Vec::new();
    if name.len() > LABEL_MAX {
        faults.push(too_long(LABEL_MAX));
    }
    if !is_label(name, is_lower_or_digit) {
        faults.push(if name.split('.').all(|part| is_label(part, is_lower_or_digit)) {
            "must not contain dots".to_owned()
        } else {
            let text = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                        must start and end with an alphanumeric character";
            sentence(text, LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}

/// An RFC 1123 subdomain.
pub fn subdomain(name: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        faults.push(too_long(SUBDOMAIN_MAX));
    }
    if !name.split('.').all(|part| is_label(part, is_lower_or_digit)) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        faults.push(sentence(text, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    faults
}

/// An RFC 1123 subdomain whose labels may have underscores, also in front.
pub(crate) fn subdomain_with_underscore(name: &str) -> Faults {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        faults.push(too_long(SUBDOMAIN_MAX));
    }
    let fits = |part: &str| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        let inner = |byte: &u8| is_lower_or_digit(byte) || matches!(byte, b'-' | b'_');
        bytes.first().is_some_and(is_lower_or_digit)
            && bytes.last().is_some_and(is_lower_or_digit)
            && bytes.iter().all(inner)
    };
    if !name.split('.').all(fits) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or \
                    '.', and must start and end with an alphanumeric character";
        let label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
        faults.push(sentence(text, &format!("{label}(\\.{label})*"), &["example.com"]));
    }
    faults
}

/// An RFC 1123 subdomain behind `*.`.
pub(crate) fn wildcard_subdomain(name: &str) -> Faults {
    let mut faults = Vec::new();
    if name.len() > SUBDOMAIN_MAX {
        faults.push(too_long(SUBDOMAIN_MAX));
    }
    let bare = name.strip_prefix("*.");
    if !bare.is_some_and(|bare| bare.split('.').all(|part| is_label(part, is_lower_or_digit))) {
        let text = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                    consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
        faults.push(sentence(text, &format!("\\*\\.{LABEL}(\\.{LABEL})*"), &["*.example.com"]));
    }
    faults
}

/// The name of an HTTP header.
pub(crate) fn http_header(name: &str) -> Faults {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Vec::new();
    }
    let text = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![sentence(text, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// An RFC 1035 label.
pub(crate) fn label_1035(name: &str) -> Faults {
    let mut faults = Vec::new();
    if name.len() > LABEL_MAX {
        faults.push(too_long(LABEL_MAX));
    }
    if !is_label(name, u8::is_ascii_lowercase) {
        let text = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                    alphabetic character, and end with an alphanumeric character";
        faults.push(sentence(text, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    faults
}

/// A segment of a URL path.
pub(crate) fn path_segment(name: &str) -> Faults {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let found = ["/", "%"].into_iter().filter(|part| name.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}

/// A name by the rule of its kind.
pub(crate) fn by_rule(rule: NameRule, name: &str) -> Faults {
    match rule {
        NameRule::Subdomain => subdomain(name),
        NameRule::Label => label(name),
        NameRule::PathSegment => path_segment(name),
    }
}

/// The base of a generated name: the rule of the kind, a trailing dash tolerated.
pub(crate) fn generate_base(rule: NameRule, base: &str) -> Faults {
    match base.strip_suffix('-') {
        Some(stem) if !stem.is_empty() => by_rule(rule, &format!("{stem}a")),
        _ => by_rule(rule, base),
    }
}

/// What is wrong with an API version, which is `[group/]version` or nothing.
pub(crate) fn group_version_fault(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

/// The reason of a condition.
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

/// A key of a config map or secret.
pub(crate) fn config_key(key: &str) -> Faults {
    let mut faults = Vec::new();
    if key.len() > SUBDOMAIN_MAX {
        faults.push(too_long(SUBDOMAIN_MAX));
    }
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

/// The name of an environment variable.
pub(crate) fn environment_variable(name: &str) -> Faults {
    if name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=') {
        return Vec::new();
    }
    let text =
        "a valid environment variable name must consist only of printable ASCII characters other than '='";
    vec![text.to_owned()]
}

/// The name of a port that others refer to.
pub(crate) fn port_name(name: &str) -> Faults {
    let mut faults = Vec::new();
    if name.len() > 15 {
        faults.push(too_long(15));
    }
    if !name.bytes().all(|byte| is_lower_or_digit(&byte) || byte == b'-') {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_or_refused_by_rule() {
        // Facts: validation, generic. (check, taken, refused)
        type Check = fn(&str) -> Faults;
        let long = |len: usize| "a".repeat(len);
        let cases: [(Check, Vec<String>, Vec<String>); 7] = [
            (label, texts("a 0-a a-b"), [texts("A a.b -a a- a_b"), vec![String::new(), long(64)]].concat()),
            (
                subdomain,
                [texts("a a.b 1.2-3"), vec![long(253)]].concat(),
                [texts("a..b .a a. A a_b a.-b"), vec![String::new(), long(254)]].concat(),
            ),
            (label_1035, texts("a a-1"), texts("1a -a a- A")),
            (path_segment, texts("a:b system:x ..."), texts(". .. a/b a%b")),
            (
                qualified,
                texts("a A.b_c example.com/Name x/1"),
                [texts("/a a/ a/b/c -a a- A.b/c? Ex/a"), vec![String::new()]].concat(),
            ),
            (label_value, [texts("a A.b_c 1"), vec![String::new()]].concat(), texts("-a a- a/b ä")),
            (config_key, texts("a .a A_b-c ..."), texts(". .. ..a a/b")),
        ];
        for (check, taken, refused) in &cases {
            for name in taken.iter().filter(|name| *name != "...") {
                assert_eq!(check(name), Faults::new(), "{name}");
            }
            for name in refused {
                assert!(!check(name).is_empty(), "{name}");
            }
        }
    }

    fn texts(list: &str) -> Vec<String> {
        list.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn sentences_are_those_of_the_reference_server() {
        for (faults, want) in [
            (
                subdomain("A"),
                r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (
                label_value("a/b"),
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            (
                label("A"),
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ),
            (config_key(".."), "must not be '..'"),
            (path_segment("a/b"), "may not contain '/'"),
            (port_name("http-"), "must not begin or end with a hyphen"),
            (label(&"a".repeat(64)), "must be no more than 63 characters"),
            (qualified(&format!("{}/x", "a".repeat(254))), "prefix part must be no more than 253 bytes"),
            (
                qualified("a/b/c"),
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
            ),
        ] {
            assert_eq!(faults, [want]);
        }
    }

    #[test]
    fn a_generated_name_may_end_in_a_dash_before_its_suffix() {
        assert!(generate_base(NameRule::Label, "web-").is_empty());
        assert!(!generate_base(NameRule::Label, "web--A-").is_empty());
        assert!(!generate_base(NameRule::Label, "-").is_empty());
    }
}
