//! Proxying of requests to nodes, pods and services, and of the responses (docs/api/nodes.md#proxies).
//!
//! ```text
//! client ─ /…/proxy/path?query ─► without headers of the connection ────► target
//!        ◄─ Location and links of HTML pages point to the proxy ────────
//! ```
//!
//! Bodies are streamed in both directions. If the target sends no response, the client receives a 503.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyStream, Either, Empty};

use super::forward::{accepts, cleaned, encoded_path, forwarded_for, passed_on, without_connection};
use super::html::Rewriter;
use values::status::{Status, StatusReason};
use wire::outgoing::{self, Endpoint, Failure, Opened};
use wire::response::Response;
use wire::server::{Aborted, Body, Incoming};

/// CORS headers. The proxy removes these headers, because with CORS headers a target could give pages of other origins
/// access to this server.
const OF_ORIGINS: [HeaderName; 4] = [
    http::header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    http::header::ACCESS_CONTROL_ALLOW_HEADERS,
    http::header::ACCESS_CONTROL_ALLOW_METHODS,
    http::header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// A request to proxy to a target.
pub struct ProxyRequest<'p> {
    /// Method, URL and headers as received.
    pub head: &'p Head,
    /// Decoded path of the request.
    pub path: &'p str,
    /// The part at the end of the path that belongs to the target, from [`location`].
    pub location: &'p str,
    /// Address of the client.
    pub peer: IpAddr,
    /// The body of the request.
    pub incoming: Incoming,
}

/// Returns the path at the target that the options of a connection name, without `.` and `..`. A trailing
/// slash is kept.
pub fn location(path: &str) -> String {
    let own = cleaned(path);
    match (own.as_str(), path.ends_with('/')) {
        ("/", true) => own,
        ("/", false) => String::new(),
        (_, true) => own + "/",
        (_, false) => own,
    }
}

/// Returns the path and query for the target.
pub fn target(location: &str, query: Option<&str>) -> String {
    let path = if location.is_empty() { "/".to_owned() } else { encoded_path(location) };
    match query {
        Some(query) if !query.is_empty() => format!("{path}?{query}"),
        _ => path,
    }
}

/// Returns a redirect for a read of the proxy path itself. The redirect adds a trailing slash, because the
/// links of a page are relative to such a path.
pub fn moved(head: &Head, path: &str) -> Response {
    let query = head.uri.query().filter(|query| !query.is_empty()).map(|query| format!("?{query}"));
    let location = format!("{}/{}", encoded_path(path), query.unwrap_or_default());
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Forwards a request. `answered_within` limits the time until the response begins.
///
/// # Errors
/// 503 if there is no response.
pub async fn pass(
    endpoint: &Endpoint,
    proxied: ProxyRequest<'_>,
    answered_within: Duration,
) -> Result<Response, Status> {
    let ProxyRequest { head, path, location, peer, incoming } = proxied;
    let mut headers = without_connection(&head.headers);
    headers.remove(AUTHORIZATION);
    let host = head.headers.get(HOST).cloned().or_else(|| {
        let authority = head.uri.authority()?;
        HeaderValue::from_str(authority.as_str()).ok()
    });
    if let Some(host) = &host {
        headers.insert(HOST, host.clone());
    }
    forwarded_for(&mut headers, peer);
    let shown = encoded_path(path.trim_end_matches('/'));
    if let Ok(uri) = HeaderValue::from_str(&format!("{shown}{}", if path.ends_with('/') { "/" } else { "" }))
    {
        headers.insert("x-forwarded-uri", uri);
    }
    let inflates = accepts(&head.method, &mut headers);
    let body = if hyper::body::Body::is_end_stream(&incoming) {
        Either::Right(Empty::<Bytes>::new())
    } else {
        Either::Left(incoming)
    };
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = headers;
    let answered = tokio::time::timeout(answered_within, outgoing::open(endpoint, request)).await;
    let opened = answered.unwrap_or(Err(Failure::Timeout)).map_err(|failure| {
        Status::new(StatusReason::ServiceUnavailable, format!("error trying to reach service: {failure}"))
    })?;
    let links = Links {
        prefix: path.strip_suffix(location).unwrap_or(path).to_owned(),
        target: endpoint.url().authority().map(ToString::to_string).unwrap_or_default(),
        own_host: host.and_then(|host| host.to_str().map(str::to_owned).ok()).unwrap_or_default(),
    };
    Ok(answer(opened, links, inflates, &head.method))
}

/// Returns the response, with links that lead through the proxy.
fn answer(opened: Opened, links: Links, inflates: bool, method: &Method) -> Response {
    let is_page = is_page(opened.response.headers());
    let mut response = passed_on(opened, inflates || is_page && *method != Method::HEAD);
    for name in OF_ORIGINS {
        response.headers_mut().remove(name);
    }
    if let Some(location) = response.headers().get(LOCATION) {
        let new = location.to_str().ok().and_then(|location| links.rewrite(location));
        if let Some(new) = new.and_then(|new| HeaderValue::from_str(&new).ok()) {
            response.headers_mut().insert(LOCATION, new);
        }
        return response;
    }
    let is_empty = hyper::body::Body::is_end_stream(response.body());
    if !is_page || is_empty || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| {
        let rewriter = Rewriter::new(move |link: &str| links.rewrite(link));
        // The final `None` marks the end of the body. At the end, the buffered part of the page is sent.
        let parts = BodyStream::new(body).map(Some).chain(futures_util::stream::iter([None]));
        let parts = parts.scan(rewriter, |rewriter, part| {
            let passed = match part {
                Some(Ok(frame)) => frame.into_data().map(|data| rewriter.feed(&data)).map_err(|_| Aborted),
                Some(Err(aborted)) => Err(aborted),
                None => Ok(rewriter.finish()),
            };
            std::future::ready(Some(passed.map(Bytes::from)))
        });
        Body::stream(parts.filter(|part| std::future::ready(!part.as_ref().is_ok_and(Bytes::is_empty))))
    })
}

/// Returns whether a response is an HTML page.
fn is_page(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media_type.split(';').next().unwrap_or_default().trim() == "text/html"
}

/// Rewrites links of a target so that they lead through the proxy.
struct Links {
    /// Path of the proxy.
    prefix: String,
    /// Host and port of the target.
    target: String,
    /// Host and port under which the client reaches this server.
    own_host: String,
}

impl Links {
    /// Rewrites a link to a path of the target. Returns `None` if the link does not change.
    fn rewrite(&self, link: &str) -> Option<String> {
        let (scheme, host, rest) = match link.split_once("//") {
            Some((scheme, rest)) if scheme.is_empty() || is_scheme(scheme) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (scheme, &rest[..end], &rest[end..])
            }
            _ => ("", "", link),
        };
        if !rest.starts_with('/') || !host.is_empty() && host != self.target && host != self.own_host {
            return None;
        }
        let (path, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let prefix = encoded_path(&self.prefix);
        let base = if host.is_empty() || host != self.own_host {
            String::new()
        } else {
            format!("{scheme}//{host}")
        };
        let path = if path.starts_with(&prefix) {
            path.to_owned()
        } else {
            let joined = cleaned(&format!("{prefix}/{path}"));
            if path.ends_with('/') && !joined.ends_with('/') { joined + "/" } else { joined }
        };
        let new = format!("{base}{path}{tail}");
        (new != link).then_some(new)
    }
}

/// Returns whether a text is a scheme followed by a colon.
fn is_scheme(text: &str) -> bool {
    text.strip_suffix(':').is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_the_proxied_target_are_rewritten_to_the_proxy() {
        let links = Links {
            prefix: "/api/v1/namespaces/n/pods/p/proxy".to_owned(),
            target: "10.0.0.1:80".to_owned(),
            own_host: "localhost:6443".to_owned(),
        };
        let proxy = "/api/v1/namespaces/n/pods/p/proxy";
        for (link, want) in [
            ("/", Some(format!("{proxy}/"))),
            ("/a/b?c=/d#e", Some(format!("{proxy}/a/b?c=/d#e"))),
            ("/a/../b/", Some(format!("{proxy}/b/"))),
            ("http://10.0.0.1:80/a", Some(format!("{proxy}/a"))),
            ("//10.0.0.1:80/a", Some(format!("{proxy}/a"))),
            ("https://localhost:6443/a", Some(format!("https://localhost:6443{proxy}/a"))),
            ("https://example.com/a", None),
            ("//example.com/a", None),
            ("a/b", None),
            ("?a=//b/c", None),
            ("#a", None),
            ("mailto:a@example.com", None),
            ("http://10.0.0.1:80", None),
            ("", None),
        ] {
            assert_eq!(links.rewrite(link), want, "{link}");
        }
        let own = format!("{proxy}/a");
        assert_eq!(links.rewrite(&own), None);
        assert_eq!(links.rewrite(&format!("http://10.0.0.1:80{own}")), Some(own));
    }

    #[test]
    fn the_path_of_a_proxied_request_keeps_its_slash() {
        for (path, want, proxied) in [
            ("", "", "/?q"),
            ("/", "/", "/?q"),
            ("/a/b", "/a/b", "/a/b?q"),
            ("/a/ü/", "/a/ü/", "/a/%C3%BC/?q"),
            ("/a/../../b", "/b", "/b?q"),
            ("a", "/a", "/a?q"),
        ] {
            let own = location(path);
            assert_eq!(own, want, "{path}");
            assert_eq!(target(&own, Some("q")), proxied);
        }
        assert_eq!(target("/a", None), "/a");
    }
}
