//! Forms of names: domains and paths that begin with one, with the texts of kube-apiserver's errors. Source: RFC 1123.

/// Bytes that a domain may have.
const SUBDOMAIN_LEN_MAX: usize = 253;

/// What is wrong with a part of a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Fault<'n> {
    /// The part.
    pub(crate) value: &'n str,
    pub(crate) why: &'static str,
}

/// What is wrong with a key that must be a domain, a slash and a path. About the whole key there is one fault only.
pub(crate) fn domain_prefixed_path(key: &str) -> Vec<Fault<'_>> {
    let Some((domain, path)) =
        key.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return vec![Fault { value: key, why: "must be a domain-prefixed path (such as \"acme.io/foo\")" }];
    };
    let mut faults: Vec<Fault<'_>> =
        subdomain_faults(domain).map(|why| Fault { value: domain, why }).collect();
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/_-.~%!$&'()*+,;=:".contains(c);
    if !path.chars().all(is_path) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        faults.push(Fault { value: path, why });
    }
    faults
}

/// Whether this is a domain.
pub(crate) fn is_subdomain(text: &str) -> bool {
    subdomain_faults(text).next().is_none()
}

/// Whether this is a label of a domain, at most 63 bytes.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && has_label_form(text)
}

/// What is wrong with a domain.
fn subdomain_faults(text: &str) -> impl Iterator<Item = &'static str> {
    const LENGTH: &str = "must be no more than 253 characters";
    const FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
        must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let length = (text.len() > SUBDOMAIN_LEN_MAX).then_some(LENGTH);
    let form = (!text.split('.').all(has_label_form)).then_some(FORM);
    length.into_iter().chain(form)
}

fn has_label_form(label: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().copied().is_some_and(is_word)
        && bytes.last().copied().is_some_and(is_word)
        && bytes.iter().all(|byte| is_word(*byte) || *byte == b'-')
}
