//! URLs as Go parses and formats them (`net/url`), with Go's error messages. A *request URI* is an absolute
//! URI or an absolute path without a fragment; a *URL* may be relative and have a fragment.

use std::collections::HashMap;

use crate::address::parse_address;
use crate::quote;

/// A component of a URI; the characters that must be escaped differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum UriComponent {
    Host,
    /// The zone of an IPv6 address, after the `%25`.
    Zone,
    Path,
    Userinfo,
    Query,
    Fragment,
}

/// A parsed URI. Host, path and user are unescaped, so they are bytes and not always valid text.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Url {
    scheme: String,
    /// The text after the scheme, if it does not begin with a slash.
    opaque: String,
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    host: Vec<u8>,
    /// Whether there was a scheme and a path, but no `//host`.
    omit_host: bool,
    path: Vec<u8>,
    /// The path as written, if escaping `path` gives another text.
    raw_path: String,
    /// Whether the URI ends with a lone `?`.
    force_query: bool,
    query: String,
    fragment: Vec<u8>,
    /// The fragment as written, if escaping `fragment` gives another text.
    raw_fragment: String,
}

impl Url {
    /// Parses a request URI, in which `#` has no meaning.
    ///
    /// # Errors
    /// The message of Go's `ParseRequestURI`.
    pub fn parse_request(text: &str) -> Result<Self, String> {
        parse(text, true).map_err(|why| failed(text, &why))
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// The message of Go's `Parse`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = parse(before, false).map_err(|why| failed(before, &why))?;
        url.fragment = unescape(fragment, UriComponent::Fragment).map_err(|why| failed(text, &why))?;
        if escape(&url.fragment, UriComponent::Fragment) != fragment {
            url.raw_fragment = fragment.to_owned();
        }
        Ok(url)
    }

    /// Returns the scheme in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the escaped user name, with the password if there is one; `None` if the URL has neither.
    pub fn user(&self) -> Option<String> {
        let (name, password) = self.user.as_ref()?;
        let name = escape(name, UriComponent::Userinfo);
        Some(match password {
            Some(password) => format!("{name}:{}", escape(password, UriComponent::Userinfo)),
            None => name,
        })
    }

    /// Returns the text after `?`, as written.
    pub fn raw_query(&self) -> &str {
        &self.query
    }

    /// Returns the text after `#`, unescaped.
    pub fn fragment(&self) -> String {
        lossy(&self.fragment)
    }

    /// Returns host and port, unescaped.
    pub fn host(&self) -> String {
        lossy(&self.host)
    }

    /// Returns the host without the port, and without the brackets of an IPv6 address.
    pub fn hostname(&self) -> String {
        let host = self.split_port().0;
        let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]"));
        lossy(bare.unwrap_or(host))
    }

    /// Returns the digits after the colon of the host; empty without a port.
    pub fn port(&self) -> String {
        lossy(self.split_port().1)
    }

    /// Returns the escaped path: the path as written if its escaping is valid, otherwise the path escaped
    /// anew.
    pub fn escaped_path(&self) -> String {
        if is_escaped(&self.raw_path, UriComponent::Path) {
            return self.raw_path.clone();
        }
        if self.path == b"*" { "*".to_owned() } else { escape(&self.path, UriComponent::Path) }
    }

    /// Returns the parameters of the query: each key once, in order of first appearance, with its values in
    /// order. Malformed parameters are left out.
    pub fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut parameters: Vec<(String, Vec<String>)> = Vec::new();
        let mut places = HashMap::new();
        for parameter in
            self.query.split('&').filter(|parameter| !parameter.is_empty() && !parameter.contains(';'))
        {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let (Ok(key), Ok(value)) =
                (unescape(key, UriComponent::Query), unescape(value, UriComponent::Query))
            else {
                continue;
            };
            let (key, value) = (lossy(&key), lossy(&value));
            let place = *places.entry(key.clone()).or_insert(parameters.len());
            if place == parameters.len() {
                parameters.push((key, Vec::new()));
            }
            parameters[place].1.push(value);
        }
        parameters
    }

    fn split_port(&self) -> (&[u8], &[u8]) {
        match self.host.iter().rposition(|&byte| byte == b':') {
            Some(colon) if self.host[colon + 1..].iter().all(u8::is_ascii_digit) => {
                (&self.host[..colon], &self.host[colon + 1..])
            }
            _ => (&self.host, &[]),
        }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out = format!("{}:", self.scheme);
        }
        if !self.opaque.is_empty() {
            out.push_str(&self.opaque);
        } else {
            let has_authority = !self.host.is_empty() || self.user.is_some();
            let written = !self.scheme.is_empty() || has_authority;
            if written && (has_authority || !self.omit_host) {
                if has_authority || !self.path.is_empty() {
                    out.push_str("//");
                }
                if let Some(user) = self.user() {
                    out.push_str(&user);
                    out.push('@');
                }
                out.push_str(&escape(&self.host, UriComponent::Host));
            }
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
                out.push('/');
            }
            if out.is_empty() && path.split('/').next().is_some_and(|segment| segment.contains(':')) {
                out.push_str("./");
            }
            out.push_str(&path);
        }
        if self.force_query || !self.query.is_empty() {
            out.push('?');
            out.push_str(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push('#');
            if is_escaped(&self.raw_fragment, UriComponent::Fragment) {
                out.push_str(&self.raw_fragment)
            } else {
                out.push_str(&escape(&self.fragment, UriComponent::Fragment))
            }
        }
        f.write_str(&out)
    }
}

fn failed(text: &str, why: &str) -> String {
    format!("parse {}: {why}", quote(text))
}

fn parse(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() && is_request {
        return Err("empty url".to_owned());
    }
    let mut url = Url::default();
    if text == "*" {
        url.path = b"*".to_vec();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let rest = match rest.split_once('?') {
        Some((before, "")) => {
            url.force_query = true;
            before
        }
        Some((before, query)) => {
            url.query = query.to_owned();
            before
        }
        None => rest,
    };
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            url.opaque = rest.to_owned();
            return Ok(url);
        }
        if is_request {
            return Err("invalid URI for request".to_owned());
        }
        if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let path = match rest.strip_prefix("//") {
        Some(after) if !url.scheme.is_empty() || !is_request && !after.starts_with('/') => {
            let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
            url.read_authority(authority)?;
            path
        }
        _ => {
            url.omit_host = !url.scheme.is_empty();
            rest
        }
    };
    url.path = unescape(path, UriComponent::Path)?;
    if escape(&url.path, UriComponent::Path) != path {
        url.raw_path = path.to_owned();
    }
    Ok(url)
}

/// Returns the scheme and the rest after its colon; the scheme is empty if the text does not begin with a
/// scheme.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

impl Url {
    fn read_authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = read_host(&self.scheme, host)?;
        let Some(user) = user else { return Ok(()) };
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(valid) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        self.user = Some(match user.split_once(':') {
            Some((name, password)) => {
                (unescape(name, UriComponent::Userinfo)?, Some(unescape(password, UriComponent::Userinfo)?))
            }
            None => (unescape(user, UriComponent::Userinfo)?, None),
        });
        Ok(())
    }
}

fn read_host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match host.rfind('[') {
        None => {
            // In a web URL, the first colon begins the port, because a host name has no colon. URLs with
            // other schemes may list several hosts; the last colon begins the port.
            let is_web = matches!(scheme, "http" | "https");
            if let Some(colon) = if is_web { host.find(':') } else { host.rfind(':') } {
                check_port(&host[colon..])?;
            }
            unescape(host, UriComponent::Host)
        }
        Some(0) => read_literal(host),
        Some(_) => Err("invalid IP-literal".to_owned()),
    }
}

/// Parses an address in brackets, which may have a zone after `%25` (RFC 6874), and its port.
fn read_literal(host: &str) -> Result<Vec<u8>, String> {
    let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
    check_port(&host[end + 1..])?;
    let literal = &host[1..end];
    let unescaped = match literal.find("%25") {
        Some(zone) => {
            [unescape(&literal[..zone], UriComponent::Host)?, unescape(&literal[zone..], UriComponent::Zone)?]
                .concat()
        }
        None => unescape(literal, UriComponent::Host)?,
    };
    match parse_address(&lossy(&unescaped)) {
        Ok(parsed) if parsed.address.is_ipv6() => {
            Ok([b"[", &*unescaped, b"]", &host.as_bytes()[end + 1..]].concat())
        }
        Ok(_) => Err("invalid IP-literal".to_owned()),
        Err(error) => Err(format!("invalid host: {error}")),
    }
}

/// Checks the text after a name or an address: it must be empty, or a colon and digits.
fn check_port(port: &str) -> Result<(), String> {
    let digits = if port.is_empty() { Some("") } else { port.strip_prefix(':') };
    if digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        Ok(())
    } else {
        Err(format!("invalid port {} after host", quote(port)))
    }
}

fn unescape(text: &str, component: UriComponent) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let invalid = |at: usize| {
        let escape = &bytes[at..bytes.len().min(at + 3)];
        Err(format!("invalid URL escape {}", quote(&lossy(escape))))
    };
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let digit = |at: usize| bytes.get(at).and_then(|&digit| (digit as char).to_digit(16));
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else { return invalid(at) };
                let value = (high * 16 + low) as u8;
                // In a host, only characters outside of ASCII are escaped. The `%` before the zone of an
                // IPv6 address is written as `%25`.
                let allowed = match component {
                    UriComponent::Host => value >= 0x80 || value == b'%',
                    UriComponent::Zone => {
                        value == b'%' || value == b' ' || !must_escape(value, UriComponent::Host)
                    }
                    UriComponent::Path
                    | UriComponent::Userinfo
                    | UriComponent::Query
                    | UriComponent::Fragment => true,
                };
                if !allowed {
                    return invalid(at);
                }
                out.push(value);
                at += 3;
            }
            b'+' if component == UriComponent::Query => {
                out.push(b' ');
                at += 1;
            }
            _ if matches!(component, UriComponent::Host | UriComponent::Zone)
                && byte < 0x80
                && must_escape(byte, component) =>
            {
                return Err(format!("invalid character {} in host name", quote(&text[at..=at])));
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    Ok(out)
}

fn escape(bytes: &[u8], component: UriComponent) -> String {
    const HEX: [u8; 16] = *b"0123456789ABCDEF";
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if must_escape(byte, component) {
            out.push('%');
            out.push(HEX[usize::from(byte >> 4)].into());
            out.push(HEX[usize::from(byte & 15)].into());
        } else {
            out.push(byte.into());
        }
    }
    out
}

/// Returns whether a byte must be escaped (RFC 3986, but quotes and angle brackets are allowed in hosts).
fn must_escape(byte: u8, component: UriComponent) -> bool {
    let plain = match component {
        UriComponent::Host | UriComponent::Zone => b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte),
        UriComponent::Path => b"-_.~$&+,/:;=@".contains(&byte),
        UriComponent::Userinfo => b"-_.~$&+,;=".contains(&byte),
        UriComponent::Query => b"-_.~".contains(&byte),
        UriComponent::Fragment => b"-_.~$&+,/:;=?@!()*".contains(&byte),
    };
    !plain && !byte.is_ascii_alphanumeric()
}

/// Returns whether a text as written is a valid escaping of its component; false for an empty text.
fn is_escaped(text: &str, component: UriComponent) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte, component))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_and_written() {
        for (text, written, host, port, path) in [
            ("https://example.com:80/path/to?a=b#f%20g", None, "example.com:80", "80", "/path/to"),
            ("http://user:pa%20ss@host/", None, "host", "", "/"),
            ("http://[::1]:8080/x", None, "[::1]:8080", "8080", "/x"),
            ("https://a.com/#", Some("https://a.com/"), "a.com", "", "/"),
            ("/path?x=1", None, "", "", "/path"),
            ("//host/p", None, "host", "", "/p"),
            ("mailto:a@b.c", None, "", "", ""),
            ("https://é.com/ü", Some("https://%C3%A9.com/%C3%BC"), "é.com", "", "/%C3%BC"),
            ("https://a.com/a b", Some("https://a.com/a%20b"), "a.com", "", "/a%20b"),
            ("https://a.com/%2Fx/../y", None, "a.com", "", "/%2Fx/../y"),
            ("http://a.com:/", None, "a.com:", "", "/"),
            ("http://", Some("http:"), "", "", ""),
            ("HTTP://A.com", Some("http://A.com"), "A.com", "", ""),
            ("https://a.com?", None, "a.com", "", ""),
            ("file:///etc", None, "", "", "/etc"),
            ("file:/etc", None, "", "", "/etc"),
            ("*", None, "", "", "*"),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{error}"));
            let got = (url.to_string(), url.host(), url.port(), url.escaped_path());
            let want = (written.unwrap_or(text), host, port, path);
            assert_eq!(
                got,
                (want.0.to_owned(), want.1.to_owned(), want.2.to_owned(), want.3.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_the_error_of_go() {
        for (text, want) in [
            (":::", "missing protocol scheme"),
            ("1:b", "first path segment in URL cannot contain colon"),
            ("https://exa mple.com", "invalid character \" \" in host name"),
            ("https://exa%zzmple.com", "invalid URL escape \"%zz\""),
            ("https://a/b%2", "invalid URL escape \"%2\""),
            ("https://a:b", "invalid port \":b\" after host"),
            ("https://a b:c", "invalid port \":c\" after host"),
            ("https://a:80:80/", "invalid port \":80:80\" after host"),
            ("https://::1/", "invalid port \"::1\" after host"),
            ("https://[::1", "missing ']' in host"),
            ("https://[::1]x", "invalid port \"x\" after host"),
            ("https://[fe80::1%25%2f]", "invalid URL escape \"%2f\""),
            ("https://a[::1]", "invalid IP-literal"),
            ("https://[1.2.3.4]", "invalid IP-literal"),
            ("https://[a]", "invalid host: ParseAddr(\"a\"): unable to parse IP"),
            ("https://u v@a", "net/url: invalid userinfo"),
            ("https://a/#%z", "invalid URL escape \"%z\""),
        ] {
            assert_eq!(Url::parse(text), Err(format!("parse {}: {want}", quote(text))));
        }
        let before_fragment = "parse \"https://a/%z\": invalid URL escape \"%z\"";
        assert_eq!(Url::parse("https://a/%z#f"), Err(before_fragment.to_owned()));
        for (text, want) in [
            ("", "empty url"),
            ("a\tb", "net/url: invalid control character in URL"),
            ("../x", "invalid URI for request"),
            (":", "missing protocol scheme"),
            ("https://a b.com", "invalid character \" \" in host name"),
            ("https://a.com#", "invalid character \"#\" in host name"),
            ("http://a.com:port/", "invalid port \":port\" after host"),
            ("https://a.com/%zz", "invalid URL escape \"%zz\""),
            ("https://a.com/%z", "invalid URL escape \"%z\""),
            ("https://a%41.com/", "invalid URL escape \"%41\""),
            ("http://[::1", "missing ']' in host"),
            ("http://a b@c/", "net/url: invalid userinfo"),
        ] {
            assert_eq!(Url::parse_request(text), Err(format!("parse {}: {want}", quote(text))));
        }
    }

    #[test]
    fn url_components_are_split_as_by_go() {
        for (text, want) in [
            ("https://a.example:8443/x?b=c#d%20e", "https None a.example:8443 b=c d e"),
            ("HTTPS://u:p@a", "https Some(\"u:p\") a  "),
            ("https://u:p%20@a", "https Some(\"u:p%20\") a  "),
            ("x", " None   "),
            ("", " None   "),
            ("https://", "https None   "),
            ("https://a/%20x y", "https None a  "),
            ("https://[::1]:8443", "https None [::1]:8443  "),
            ("https://a%c3%a4/", "https None aä  "),
            ("https://[fe80::1%25e%41]:1", "https None [fe80::1%eA]:1  "),
            ("postgres://a:1,b:2/x", "postgres None a:1,b:2  "),
            ("mailto:a%zz", "mailto None   "),
        ] {
            let url = Url::parse(text).unwrap_or_else(|error| panic!("{error}"));
            let (scheme, user, host) = (url.scheme(), url.user(), url.host());
            let got = format!("{scheme} {user:?} {host} {} {}", url.raw_query(), url.fragment());
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn url_queries_keep_their_order_and_omit_malformed_pairs() {
        let url = Url::parse("/?a=b&a=c+d&;x&q=%zz&e&=f&d=e%20f").unwrap_or_else(|error| panic!("{error}"));
        let query: Vec<_> =
            url.query().into_iter().map(|(key, values)| format!("{key}={}", values.join(","))).collect();
        assert_eq!(query, ["a=b,c d", "e=", "=f", "d=e f"]);
    }
}
