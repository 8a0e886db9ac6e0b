//! Validation of label keys and label values, with the error texts (docs/api/writes.md#metadata-rules).
//!
//! A key is `[prefix/]name`: the prefix a lower-case DNS subdomain of at most 253 bytes, the name at most 63 letters,
//! digits, `-`, `_` and `.`, with a letter or digit at both ends. A value is empty or has the form of a name.

const NAME_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;

const NAME_TEXT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
                          'my_value',  or '12345', regex used for validation is \
                          '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                              or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
                              regex used for validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// The errors of a label key; empty if it is valid.
pub fn label_key_errors(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {NAME_TEXT} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            errors.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            errors.extend(subdomain_errors(prefix).into_iter().map(|error| format!("prefix part {error}")));
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_BYTES_MAX {
        errors.push(format!("name part {}", too_long(NAME_BYTES_MAX)));
    }
    if !is_name(name) {
        errors.push(format!("name part {NAME_TEXT}"));
    }
    errors
}

/// The errors of a label value; empty if it is valid.
pub fn label_value_errors(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > NAME_BYTES_MAX {
        errors.push(too_long(NAME_BYTES_MAX));
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(VALUE_TEXT.to_owned());
    }
    errors
}

/// The errors of a DNS subdomain (RFC 1123); empty if it is valid.
pub fn subdomain_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > SUBDOMAIN_BYTES_MAX {
        errors.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !name.split('.').all(is_dns_part) {
        errors.push(SUBDOMAIN_TEXT.to_owned());
    }
    errors
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_name(name: &str) -> bool {
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let at_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    at_end(bytes.first()) && at_end(bytes.last()) && bytes.iter().all(inside)
}

fn is_dns_part(part: &str) -> bool {
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_validated() {
        let long = |n| "a".repeat(n);
        for (key, errors) in [
            ("app".to_owned(), 0),
            ("example.com/My_Name.1".to_owned(), 0),
            (format!("{}/{}", long(253), long(63)), 0),
            (String::new(), 2),
            ("/x".to_owned(), 1),
            ("x/".to_owned(), 2),
            ("a/b/c".to_owned(), 1),
            ("Upper.com/x".to_owned(), 1),
            ("a..b/x".to_owned(), 1),
            ("-a".to_owned(), 1),
            ("a_".to_owned(), 1),
            ("ä".to_owned(), 1),
            (long(64), 1),
            (format!("{}/x", long(254)), 1),
        ] {
            assert_eq!(label_key_errors(&key).len(), errors, "{key}");
        }
        for (value, errors) in [
            ("", 0),
            ("v1.2_3-x", 0),
            ("-", 1),
            ("a b", 1),
            (&*long(63), 0),
            (&*long(64), 1),
            (&*"-".repeat(64), 2),
        ] {
            assert_eq!(label_value_errors(value).len(), errors, "{value}");
        }
    }

    #[test]
    fn errors_read_as_clients_expect() {
        assert_eq!(
            label_key_errors("a b"),
            [
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(
            label_value_errors("a b"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
        assert_eq!(label_value_errors(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert_eq!(
            subdomain_errors("A"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
    }
}
