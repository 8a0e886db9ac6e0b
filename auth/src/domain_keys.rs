//! Checks keys of the form `<domain>/<path>`, with kube-apiserver's error texts.

/// An error about the domain of a key, the path of a key, or the whole key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fault<'n> {
    pub(crate) value: &'n str,
    pub(crate) why: String,
}

/// Returns the errors of a key that must consist of a domain, a slash and a path. If one of these parts is
/// missing, the result is a single error about the whole key.
pub(crate) fn domain_prefixed_path(key: &str) -> Vec<Fault<'_>> {
    let Some((domain, path)) =
        key.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        return vec![Fault {
            value: key,
            why: "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned(),
        }];
    };
    let faults = names::subdomain(domain).into_iter();
    let mut faults: Vec<Fault<'_>> = faults.map(|why| Fault { value: domain, why }).collect();
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/_-.~%!$&'()*+,;=:".contains(c);
    if !path.chars().all(is_path) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        faults.push(Fault { value: path, why: why.to_owned() });
    }
    faults
}
