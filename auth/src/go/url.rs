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
    let failed = |text: &str, why: String| format!("parse {}: {why}", quote(text));
    let (rest, fragment) = text.split_once('#').unwrap_or((text, ""));
    let url = without_fragment(rest).map_err(|why| failed(rest, why))?;
    check_escapes(fragment).map_err(|why| failed(text, why))?;
    Ok(Url { fragment, ..url })
}

fn without_fragment(text: &str) -> Result<Url<'_>, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = split_scheme(text)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url { scheme, user: None, host: "", query, fragment: "" };
    if !rest.starts_with('/') && !scheme.is_empty() {
        // What follows the scheme is of a form of its own.
        return Ok(url);
    }
    let mut path = rest;
    let has_authority = !scheme.is_empty() || !rest.starts_with("///");
    if let Some(rest) = rest.strip_prefix("//").filter(|_| has_authority) {
        let authority;
        (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        (url.user, url.host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        check_host(url.host)?;
        check_user(url.user.unwrap_or_default())?;
    }
    check_escapes(path)?;
    Ok(url)
}

/// The scheme, if there is one, and what follows it.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find([':', '/', '?']).filter(|at| text[*at..].starts_with(':'));
    let Some(end) = end else { return Ok(("", text)) };
    let (scheme, rest) = (&text[..end], &text[end + 1..]);
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    match scheme {
        "" => Err("missing protocol scheme".to_owned()),
        scheme if is_scheme => Ok((scheme, rest)),
        _ => Err("first path segment in URL cannot contain colon".to_owned()),
    }
}

/// Checks a host with its port: a name, or an address in brackets, which may have a zone behind `%25` (RFC 6874).
fn check_host(host: &str) -> Result<(), String> {
    let end = match host.starts_with('[') {
        true => Some(host.rfind(']').ok_or("missing ']' in host")?),
        false => None,
    };
    let port = match end {
        Some(end) => &host[end + 1..],
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let digits = if port.is_empty() { Some("") } else { port.strip_prefix(':') };
    if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {} after host", quote(port)));
    }
    let zone = end.and_then(|end| Some((host[..end].find("%25")?, end)));
    let Some((begin, end)) = zone else { return check_host_text(host, false) };
    check_host_text(&host[..begin], false)?;
    check_host_text(&host[begin..end], true)?;
    check_host_text(&host[end..], false)
}

/// Checks the characters and escapes of a host. Escapes stand for bytes outside ASCII or `%`; in a zone also for a space and
/// for what a host may have.
fn check_host_text(text: &str, in_zone: bool) -> Result<(), String> {
    // RFC 3986 allows these beside letters and digits; bytes outside ASCII pass too.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~".contains(c);
    for (at, c) in text.char_indices() {
        if c == '%' {
            let rest = &text[at..];
            let is_allowed = |byte: u8| match in_zone {
                _ if byte == b'%' => true,
                true => byte == b' ' || is_plain(char::from(byte)),
                false => !byte.is_ascii(),
            };
            if !escaped(rest).is_some_and(is_allowed) {
                return Err(invalid_escape(rest));
            }
        } else if c.is_ascii() && !is_plain(c) {
            return Err(format!("invalid character {} in host name", quote(&c.to_string())));
        }
    }
    Ok(())
}

/// Checks what stands before `@`.
fn check_user(user: &str) -> Result<(), String> {
    match user.chars().all(|c| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c)) {
        true => check_escapes(user),
        false => Err("net/url: invalid userinfo".to_owned()),
    }
}

/// Refuses a percent sign that begins no escape.
fn check_escapes(text: &str) -> Result<(), String> {
    let mut rests = text.match_indices('%').map(|(at, _)| &text[at..]);
    rests.find(|rest| escaped(rest).is_none()).map_or(Ok(()), |rest| Err(invalid_escape(rest)))
}

/// The byte that the escape at the beginning of a text stands for.
fn escaped(text: &str) -> Option<u8> {
    let digits = text.get(1..3).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}

/// The error of the escape at the beginning of a text.
fn invalid_escape(text: &str) -> String {
    let end = text.char_indices().nth(3).map_or(text.len(), |(at, _)| at);
    format!("invalid URL escape {}", quote(&text[..end]))
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
            ("https://exa%zzmple.com", "parse \"https://exa%zzmple.com\": invalid URL escape \"%zz\""),
            ("https://a%41", "parse \"https://a%41\": invalid URL escape \"%41\""),
            ("https://a%c3%a4/", "https None a%c3%a4  "),
            ("https://[::1", "parse \"https://[::1\": missing ']' in host"),
            ("https://[::1]x", "parse \"https://[::1]x\": invalid port \"x\" after host"),
            ("https://[fe80::1%25e%41]:1", "https None [fe80::1%25e%41]:1  "),
            ("https://[fe80::1%25%2f]", "parse \"https://[fe80::1%25%2f]\": invalid URL escape \"%2f\""),
            ("https://a b:c", "parse \"https://a b:c\": invalid port \":c\" after host"),
            ("https://u v@a", "parse \"https://u v@a\": net/url: invalid userinfo"),
            ("mailto:a%zz", "mailto None   "),
            ("https://a/%z#f", "parse \"https://a/%z\": invalid URL escape \"%z\""),
            ("https://a/#%z", "parse \"https://a/#%z\": invalid URL escape \"%z\""),
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
