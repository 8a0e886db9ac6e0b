//! Passes a request on to an extension server, and its answer back as it comes (docs/api/extension-servers.md#requests).

use std::io::Write;
use std::net::IpAddr;

use auth::User;
use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::{Stream, StreamExt};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, LOCATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyStream, Either, Empty};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};

use super::identify;
use crate::outgoing::{self, Endpoint, Opened};
use crate::response::{Response, respond_text};
use crate::server::{Aborted, Body, Incoming};

/// What stays as it is in a path.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// What stays as it is in a query.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Headers between two ends of a connection, which are not passed on (RFC 9110 section 7.6.1).
const OF_CONNECTION: [HeaderName; 6] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, HOST];

/// A request that is passed on.
pub struct Forwarded<'f> {
    /// Method and headers as they came.
    pub head: &'f Head,
    /// Decoded path.
    pub path: &'f str,
    /// Who asks.
    pub user: &'f User,
    /// Address of the client.
    pub peer: IpAddr,
    /// The body.
    pub incoming: Incoming,
}

/// The answer while a server is known not to be available.
pub fn unavailable() -> Response {
    respond_text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

/// Passes a request on. No answer is 503, one that points elsewhere 502.
pub async fn forward(endpoint: &Endpoint, forwarded: Forwarded<'_>) -> Response {
    let unreachable = |why: String| {
        let text = format!("error trying to reach service: {why}\n");
        respond_text(StatusCode::SERVICE_UNAVAILABLE, text)
    };
    let target = target(forwarded.path, forwarded.head.uri.query());
    let endpoint = match endpoint.to(&target) {
        Ok(endpoint) => endpoint,
        Err(why) => return unreachable(why),
    };
    // Asked for where the client did not say what it takes, and undone on the way back.
    let inflates = !forwarded.head.headers.contains_key(ACCEPT_ENCODING);
    let request = request(&endpoint, forwarded);
    match outgoing::open(&endpoint, request).await {
        Ok(opened) => answer(&endpoint, opened, inflates),
        Err(failure) => unreachable(failure.to_string()),
    }
}

/// Path and query as Go writes them: the path encoded anew, the parameters sorted by name.
fn target(path: &str, query: Option<&str>) -> String {
    let mut target = utf8_percent_encode(path, PATH).to_string();
    let mut pairs: Vec<[String; 2]> = query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            [name, value].map(|text| encoded(&text.replace('+', " ")))
        })
        .collect();
    pairs.sort_by(|[a, _], [b, _]| a.cmp(b));
    for (at, [name, value]) in pairs.iter().enumerate() {
        target.push(if at == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        target.push_str(value);
    }
    target
}

/// A part of a query, encoded anew.
fn encoded(text: &str) -> String {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    percent_encode(&bytes, PARAMETER).to_string().replace("%20", "+")
}

fn request(endpoint: &Endpoint, forwarded: Forwarded<'_>) -> Request<Either<Incoming, Empty<Bytes>>> {
    let Forwarded { head, path, user, peer, incoming } = forwarded;
    let mut headers = without_connection(&head.headers);
    let of_identity = |name: &HeaderName| *name == AUTHORIZATION || name.as_str().starts_with("x-remote-");
    let drop: Vec<HeaderName> = headers.keys().filter(|name| of_identity(name)).cloned().collect();
    for name in drop {
        headers.remove(name);
    }
    identify(&mut headers, user);
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    let before = head.headers.get("x-forwarded-for").and_then(|value| value.to_str().ok());
    set("x-forwarded-for", &before.map_or_else(|| peer.to_string(), |before| format!("{before}, {peer}")));
    set("x-forwarded-host", endpoint.url().authority().map_or("", |authority| authority.as_str()));
    set("x-forwarded-proto", "https");
    set("x-forwarded-uri", &cleaned(path));
    if !headers.contains_key(ACCEPT_ENCODING) {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let has_body = !matches!(head.method, Method::GET | Method::HEAD);
    if !has_body {
        headers.remove(CONTENT_LENGTH);
    }
    let body = if has_body { Either::Left(incoming) } else { Either::Right(Empty::new()) };
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = headers;
    request
}

/// A path without `.` and `..`, as it is shown.
fn cleaned(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

fn without_connection(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_of_connection = OF_CONNECTION.contains(name)
            || matches!(
                name.as_str(),
                "keep-alive" | "proxy-connection" | "proxy-authenticate" | "proxy-authorization"
            )
            || named.iter().any(|named| named == name.as_str());
        if !is_of_connection {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

fn answer(endpoint: &Endpoint, opened: Opened, inflates: bool) -> Response {
    let Opened { response, connection } = opened;
    let (head, body) = response.into_parts();
    // Without a length the end of the connection is that of the body, however the server closes it.
    let ends_with_connection =
        ![CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| head.headers.contains_key(name));
    if head.status.is_redirection()
        && head.status != StatusCode::NOT_MODIFIED
        && head.headers.contains_key(LOCATION)
    {
        return respond_text(
            StatusCode::BAD_GATEWAY,
            "the backend attempted to redirect this request, which is not permitted\n",
        );
    }
    let mut headers = without_connection(&head.headers);
    if let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok())
        && location.starts_with('/')
        && let Some(authority) = endpoint.url().authority()
        && let Ok(location) = HeaderValue::from_str(&format!("https://{authority}{location}"))
    {
        headers.insert(LOCATION, location);
    }
    let mut length = headers.remove(CONTENT_LENGTH);
    let is_empty = hyper::body::Body::is_end_stream(&body);
    let inflates = inflates && headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    if inflates {
        headers.remove(CONTENT_ENCODING);
        length = None;
    }
    let mut response = http::Response::new(if is_empty {
        Body::empty()
    } else {
        let chunks = BodyStream::new(body).filter_map(move |frame| async move {
            match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) if ends_with_connection && outgoing::is_cut(&error) => None,
                Err(_) => Some(Err(Aborted)),
            }
        });
        let chunks = if inflates { inflated(chunks).boxed() } else { chunks.boxed() };
        Body::stream(chunks).with(connection)
    });
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    if let Some(length) = length.filter(|_| !is_empty) {
        response.headers_mut().insert(CONTENT_LENGTH, length);
    }
    response
}

/// The text of compressed chunks, chunk by chunk.
fn inflated(
    chunks: impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send {
    let decoder = GzDecoder::new(Vec::new());
    chunks.scan(decoder, |decoder, chunk| {
        let text = chunk.and_then(|chunk| {
            decoder.write_all(&chunk).and_then(|()| decoder.flush()).map_err(|_| Aborted)?;
            Ok(Bytes::from(std::mem::take(decoder.get_mut())))
        });
        std::future::ready(Some(text))
    })
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[tokio::test]
    async fn compressed_answers_are_inflated_as_they_come() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"one two three").unwrap();
        let whole = encoder.finish().unwrap();
        let parts: Vec<Result<Bytes, Aborted>> =
            whole.chunks(5).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
        let text: Vec<_> = inflated(futures_util::stream::iter(parts)).collect().await;
        let text: Vec<u8> = text.into_iter().flat_map(|part| part.unwrap()).collect();
        assert_eq!(text, b"one two three");
        let broken = futures_util::stream::iter([Ok(Bytes::from_static(b"no gzip at all"))]);
        assert!(inflated(broken).collect::<Vec<_>>().await[0].is_err());
    }

    #[test]
    fn targets_are_written_anew() {
        for (path, query, wanted) in [
            ("/apis/g/v1/things", None, "/apis/g/v1/things"),
            ("/apis/g/v1/a b/ü", Some(""), "/apis/g/v1/a%20b/%C3%BC"),
            ("/x", Some("x=%20y&x=%2F&a=1"), "/x?a=1&x=+y&x=%2F"),
            ("/x", Some("watch"), "/x?watch="),
        ] {
            assert_eq!(target(path, query), wanted);
        }
        assert_eq!(cleaned("/apis/g/v1/things/../x/./y/"), "/apis/g/v1/x/y");
    }

    #[test]
    fn headers_of_the_connection_stay_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Own"),
            ("x-own", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("accept", "a/b"),
            ("host", "h"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let kept = without_connection(&headers);
        assert_eq!(kept.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
