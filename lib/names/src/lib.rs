//! Checks of names: DNS labels and subdomains (RFC 1123, RFC 1035), qualified names and label values
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>), with the reference server's
//! messages.
//!
//! A check returns one message for each fault, and an empty list for a valid name. The checks are written by
//! hand instead of with regular expressions: names are short, and the checks run for every label of every
//! write.

/// Maximum length of a DNS label, of the name part of a label key, and of a label value.
const LABEL_MAX: usize = 63;
/// Maximum length of a DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

/// Regular expression of a DNS label.
pub const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Messages about the faults of a name.
pub type Faults = Vec<String>;

/// Returns a message with the regular expression and examples. As in the reference server, each comma except
/// the last is followed by two spaces.
pub fn sentence(text: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{text} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

/// Checks a DNS label (RFC 1123).
pub fn label(name: &str) -> Faults {
    let mut faults = longer_than(name, LABEL_MAX, "characters");
    if !has_label_form(name, is_lower_or_digit) {
        faults.push(if has_subdomain_form(name) {
            "must not contain dots".to_owned()
        } else {
            let text = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                        must start and end with an alphanumeric character";
            sentence(text, LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}

/// Checks a DNS label (RFC 1035).
pub fn label_1035(name: &str) -> Faults {
    let mut faults = longer_than(name, LABEL_MAX, "characters");
    if !has_label_form(name, |byte| byte.is_ascii_lowercase()) {
        let text = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                    alphabetic character, and end with an alphanumeric character";
        faults.push(sentence(text, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    faults
}

/// Checks a DNS subdomain (RFC 1123).
pub fn subdomain(name: &str) -> Faults {
    subdomain_within(name, "characters")
}

/// Checks a subdomain; `unit` is the unit of the maximum length in the message.
fn subdomain_within(name: &str, unit: &str) -> Faults {
    let mut faults = longer_than(name, SUBDOMAIN_MAX, unit);
    if !has_subdomain_form(name) {
        let text = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                    and must start and end with an alphanumeric character";
        faults.push(sentence(text, &format!("{LABEL}(\\.{LABEL})*"), &["example.com"]));
    }
    faults
}

/// Checks `[prefix/]name`: keys of labels and annotations, finalizers, names of resources.
pub fn qualified(key: &str) -> Faults {
    const REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let text = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                alphanumeric character";
    let form = || sentence(text, REGEX, &["MyName", "my.name", "123-abc"]);
    let mut faults = Faults::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            let form = form();
            return vec![format!(
                "a valid label key {form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let found = subdomain_within(prefix, "bytes").into_iter();
            faults.extend(found.map(|fault| format!("prefix part {fault}")));
            name
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults
        .extend(longer_than(name, LABEL_MAX, "bytes").into_iter().map(|fault| format!("name part {fault}")));
    if !is_word(name) {
        faults.push(format!("name part {}", form()));
    }
    faults
}

/// Checks a label value. A label value is empty, or has the form of the name part of a key.
pub fn label_value(value: &str) -> Faults {
    let mut faults = longer_than(value, LABEL_MAX, "bytes");
    if !value.is_empty() && !is_word(value) {
        let text = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                    must start and end with an alphanumeric character";
        let regex = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
        faults.push(sentence(text, regex, &["MyValue", "my_value", "12345"]));
    }
    faults
}

/// Returns the text that is checked for the prefix of a generated name. The prefix may end with a dash,
/// because a suffix follows. An `a` replaces such a dash and the character before the dash.
pub fn generated(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => prefix.to_owned(),
    }
}

/// Splits an API version, `[group/]version` or empty, into group and version.
///
/// # Errors
/// The message about a text with more than one slash.
pub fn group_version(text: &str) -> Result<(&str, &str), String> {
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    if version.contains('/') {
        Err(format!("unexpected GroupVersion string: {text}"))
    } else {
        Ok((group, version))
    }
}

/// Returns whether `name` is a subdomain, apart from its length.
pub fn has_subdomain_form(name: &str) -> bool {
    name.split('.').all(|part| has_label_form(part, is_lower_or_digit))
}

/// Returns a fault if a name is longer than `max` bytes.
pub fn longer_than(name: &str, max: usize, unit: &str) -> Faults {
    if name.len() > max { vec![format!("must be no more than {max} {unit}")] } else { Faults::new() }
}

fn has_label_form(text: &str, is_first: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&byte| is_first(byte))
        && bytes.last().is_some_and(|&byte| is_lower_or_digit(byte))
        && bytes.iter().all(|&byte| is_lower_or_digit(byte) || byte == b'-')
}

fn is_lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether `text` consists of letters, digits, dashes, underscores and dots, with a letter or a digit
/// at both ends.
fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_check_accepts_valid_and_refuses_invalid_names() {
        type Check = fn(&str) -> Faults;
        let long = |len: usize| "a".repeat(len);
        let cases: [(Check, Vec<String>, Vec<String>); 5] = [
            (label, texts("a 0-a a-b"), [texts("A a.b -a a- a_b"), vec![String::new(), long(64)]].concat()),
            (label_1035, texts("a a-1"), texts("1a -a a- A")),
            (
                subdomain,
                [texts("a a.b 1.2-3"), vec![long(253)]].concat(),
                [texts("a..b .a a. A a_b a.-b"), vec![String::new(), long(254)]].concat(),
            ),
            (
                qualified,
                [texts("a A.b_c example.com/Name x/1"), vec![format!("{}/{}", long(253), long(63))]].concat(),
                [texts("/a a/ a/b/c -a a- A.b/c? Ex/a a..b/x ä"), vec![String::new(), long(64)]].concat(),
            ),
            (
                label_value,
                [texts("a A.b_c 1"), vec![String::new(), long(63)]].concat(),
                [texts("-a a- a/b ä"), vec![long(64)]].concat(),
            ),
        ];
        for (check, taken, refused) in &cases {
            for name in taken {
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
    fn name_errors_have_the_texts_of_the_reference_server() {
        let long = |len: usize| "a".repeat(len);
        let name = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        for (faults, want) in [
            (
                label("A"),
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ),
            (label("a.b"), "must not contain dots"),
            (label(&long(64)), "must be no more than 63 characters"),
            (
                label_1035("1a"),
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            ),
            (
                subdomain("A"),
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ),
            (qualified("a b"), &format!("name part {name}")),
            (qualified("/a"), "prefix part must be non-empty"),
            (qualified(&format!("{}/x", long(254))), "prefix part must be no more than 253 bytes"),
            (
                qualified("a/b/c"),
                &format!(
                    "a valid label key {name} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                ),
            ),
            (
                label_value("a/b"),
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                 must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
                 used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
            ),
            (label_value(&long(64)), "must be no more than 63 bytes"),
        ] {
            assert_eq!(faults, [want]);
        }
    }

    #[test]
    fn an_api_version_has_at_most_one_slash() {
        for (text, want) in [
            ("", ("", "")),
            ("v1", ("", "v1")),
            ("a/v1", ("a", "v1")),
            ("/v1", ("", "v1")),
            ("a/", ("a", "")),
        ] {
            assert_eq!(group_version(text), Ok(want), "{text}");
        }
        assert_eq!(group_version("a/b/c"), Err("unexpected GroupVersion string: a/b/c".to_owned()));
    }

    #[test]
    fn generated_masks_the_end_of_a_prefix_with_a_trailing_dash() {
        for (prefix, want) in
            [("web-", "wea"), ("a--", "aa"), ("A-", "a"), ("é-", "a"), ("-", "-"), ("", ""), ("web", "web")]
        {
            assert_eq!(generated(prefix), want, "{prefix}");
        }
    }
}
