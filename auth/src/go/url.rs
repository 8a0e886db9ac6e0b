//! Addresses as Go's `net/url` takes them apart, as far as they are checked here.

use super::quote;

/// The parts of an address that checks ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Url<'t> {
    /// Before the colon; empty for a relative reference.
    pub scheme: &'t str,
    /// Whether a user stands before the host.
    pub has_user: bool,
    /// Behind `?`.
    pub query: &'t str,
    /// Behind `#`.
    pub fragment: &'t str,
}

/// Takes an address apart.
///
/// # Errors
/// The text of Go's error.
pub fn parse(text: &str) -> Result<Url<'_>, String> {
    let failed = |why: String| Err(format!("parse {}: {why}", quote(text)));
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return failed("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = match rest.find([':', '/', '?']) {
        Some(0) if rest.starts_with(':') => return failed("missing protocol scheme".to_owned()),
        Some(at) if rest[at..].starts_with(':') => {
            let is_scheme = rest.starts_with(|c: char| c.is_ascii_alphabetic())
                && rest[..at].chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
            if !is_scheme {
                return failed("first path segment in URL cannot contain colon".to_owned());
            }
            (&rest[..at], &rest[at + 1..])
        }
        _ => ("", rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut has_user = false;
    if let Some(authority) = rest.strip_prefix("//") {
        let authority = authority.split('/').next().unwrap_or_default();
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        has_user = user.is_some();
        // RFC 3986 allows these in a host beside letters and digits; bytes outside ASCII pass too.
        let is_host =
            |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~%".contains(c);
        if let Some(odd) = host.chars().find(|c| !is_host(*c)) {
            return failed(format!("invalid character {} in host name", quote(&odd.to_string())));
        }
        let port = host.rsplit_once(']').map_or(host, |(_, after)| after).split_once(':');
        if let Some((_, port)) = port
            && !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return failed(format!("invalid port {} after host", quote(&format!(":{port}"))));
        }
    }
    Ok(Url { scheme, has_user, query, fragment })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_errors_are_those_of_go() {
        for (text, want) in [
            ("https://a.example:8443/x?b=c#d", "https false b=c d"),
            ("HTTPS://u:p@a", "HTTPS true  "),
            ("x", " false  "),
            ("http://u:p@example.com?a#b", "http true a b"),
            (":::", "parse \":::\": missing protocol scheme"),
            ("1:b", "parse \"1:b\": first path segment in URL cannot contain colon"),
            ("https://exa mple.com", "parse \"https://exa mple.com\": invalid character \" \" in host name"),
            ("https://a:b", "parse \"https://a:b\": invalid port \":b\" after host"),
            ("https://[::1]:8443", "https false  "),
        ] {
            let got = match parse(text) {
                Ok(url) => format!("{} {} {} {}", url.scheme, url.has_user, url.query, url.fragment),
                Err(why) => why,
            };
            assert_eq!(got, want, "{text}");
        }
    }
}
