//! Addresses as Go's `net/url` takes them apart, as far as they are checked here.

use super::quote;

/// The parts of an address that checks ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Url<'t> {
    /// Before the colon; empty for a relative reference.
    pub scheme: &'t str,
    /// Before the host: a name, perhaps with a password; `None` where there is neither.
    pub user: Option<&'t str>,
    /// The host with its port; empty where there is none.
    pub host: &'t str,
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
    let (mut user, mut host) = (None, "");
    if let Some(authority) = rest.strip_prefix("//") {
        let authority = authority.split('/').next().unwrap_or_default();
        (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
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
    for (part, of_path) in [(rest, true), (fragment, false)] {
        let part = if of_path {
            part.strip_prefix("//").map_or(part, |rest| rest.find('/').map_or("", |at| &rest[at..]))
        } else {
            part
        };
        if let Some(odd) = odd_escape(part) {
            return failed(format!("invalid URL escape {}", quote(odd)));
        }
    }
    Ok(Url { scheme, user, host, query, fragment })
}

/// The first escape that is none: a percent sign with what follows it.
fn odd_escape(text: &str) -> Option<&str> {
    text.match_indices('%').map(|(at, _)| &text[at..]).find_map(|rest| {
        let is_escape =
            rest.as_bytes().get(1..3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let end = rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at);
        (!is_escape).then(|| &rest[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_errors_are_those_of_go() {
        for (text, want) in [
            ("https://a.example:8443/x?b=c#d", "https None a.example:8443 b=c d"),
            ("HTTPS://u:p@a", "HTTPS Some(\"u:p\") a  "),
            ("x", " None   "),
            ("https://", "https None   "),
            ("http://u:p@example.com?a#b", "http Some(\"u:p\") example.com a b"),
            ("https://a/%20x y", "https None a  "),
            ("https://a/%zzz", "parse \"https://a/%zzz\": invalid URL escape \"%zz\""),
            ("https://a/b%2", "parse \"https://a/b%2\": invalid URL escape \"%2\""),
            (":::", "parse \":::\": missing protocol scheme"),
            ("1:b", "parse \"1:b\": first path segment in URL cannot contain colon"),
            ("https://exa mple.com", "parse \"https://exa mple.com\": invalid character \" \" in host name"),
            ("https://a:b", "parse \"https://a:b\": invalid port \":b\" after host"),
            ("https://[::1]:8443", "https None [::1]:8443  "),
        ] {
            let got = match parse(text) {
                Ok(Url { scheme, user, host, query, fragment }) => {
                    format!("{scheme} {user:?} {host} {query} {fragment}")
                }
                Err(why) => why,
            };
            assert_eq!(got, want, "{text}");
        }
    }
}
