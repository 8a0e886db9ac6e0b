//! Forwarding of requests and responses, for proxies and extension servers: rewriting of paths and queries,
//! removal of headers, and streaming of bodies.

use std::io::Write;
use std::net::IpAddr;

use bytes::Bytes;
use flate2::write::GzDecoder;
use futures_util::{Stream, StreamExt};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, RANGE,
    SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode};

use wire::outgoing::{self, Lease, Opened};
use wire::response::{Response, respond_text};
use wire::server::{Aborted, Body};

/// Characters that are not escaped in a query.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Headers that apply to one connection and are not forwarded (RFC 9110 section 7.6.1).
const OF_CONNECTION: [HeaderName; 6] = [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, HOST];

/// Returns path and query as Go formats them: the path encoded again, the parameters sorted by name.
pub fn target(path: &str, query: Option<&str>) -> String {
    let mut target = utf8_percent_encode(path, outgoing::PATH).to_string();
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

/// Encodes a part of a query.
fn encoded(text: &str) -> String {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    percent_encode(&bytes, PARAMETER).to_string().replace("%20", "+")
}

/// Formats parameters as a query, in the given order.
pub fn encode<'n>(pairs: impl IntoIterator<Item = (&'n str, String)>) -> String {
    let pairs =
        pairs.into_iter().map(|(name, value)| format!("{}={}", encoded_text(name), encoded_text(&value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn encoded_text(text: &str) -> String {
    percent_encode(text.as_bytes(), PARAMETER).to_string().replace("%20", "+")
}

/// Encodes a path for a URL.
pub fn encoded_path(path: &str) -> String {
    utf8_percent_encode(path, outgoing::PATH).to_string()
}

/// Returns a path without `.` and `..`, for display.
pub fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Returns the headers without the headers that apply to one connection.
pub fn without_connection(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut remaining = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let is_of_connection = OF_CONNECTION.contains(name)
            || matches!(
                name.as_str(),
                "keep-alive" | "proxy-connection" | "proxy-authenticate" | "proxy-authorization"
            )
            || named.iter().any(|named| named == name.as_str());
        if !is_of_connection {
            remaining.append(name.clone(), value.clone());
        }
    }
    remaining
}

/// Returns the headers of a request without the credentials for this server.
pub fn without_credentials(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(AUTHORIZATION);
    let protocols: Vec<String> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.starts_with(auth::authn::bearer::PROTOCOL_PREFIX))
        .collect();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Ok(value) = HeaderValue::from_str(&protocols.join(", "))
        && !protocols.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
    }
    headers
}

/// Appends a client to the addresses from which a request came.
pub fn forwarded_for(headers: &mut HeaderMap, peer: IpAddr) {
    let before: Vec<&str> =
        headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok()).collect();
    let all = if before.is_empty() { peer.to_string() } else { format!("{}, {peer}", before.join(", ")) };
    if let Ok(value) = HeaderValue::from_str(&all) {
        headers.insert("x-forwarded-for", value);
    }
}

/// Requests a compressed response if the client has no preference and requests the whole body. Returns
/// whether the response must be decompressed.
pub fn accepts(method: &Method, headers: &mut HeaderMap) -> bool {
    let is_whole = *method != Method::HEAD && !headers.contains_key(RANGE);
    let inflates = is_whole && !headers.contains_key(ACCEPT_ENCODING);
    if inflates {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    }
    inflates
}

/// Returns the response with the headers that are forwarded. `inflates` means that [`accepts`] requested a
/// compressed response.
pub fn passed_on(opened: Opened, inflates: bool) -> Response {
    let Opened { response, connection } = opened;
    let (head, body) = response.into_parts();
    // Without a length, the body ends with the connection, regardless of how the server closes the connection.
    let ends_with_connection =
        ![CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| head.headers.contains_key(name));
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return respond_unrequested_upgrade(&head.headers);
    }
    let mut headers = without_connection(&head.headers);
    // The length of a chunked body must be ignored (RFC 9112, 6.3).
    if head.headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let is_empty = hyper::body::Body::is_end_stream(&body);
    let inflates = inflates && headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    if inflates && !is_empty {
        headers.remove(CONTENT_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    let mut response = http::Response::new(if is_empty {
        connection.give_back();
        Body::empty()
    } else {
        let chunks = chunks(body, connection, ends_with_connection);
        Body::stream(if inflates { inflated(chunks).boxed() } else { chunks.boxed() })
    });
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

/// Returns the response if the server switched protocols without a request to do so.
fn respond_unrequested_upgrade(headers: &HeaderMap) -> Response {
    let protocol =
        headers.get(UPGRADE).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default();
    let quoted = go::quote(&protocol);
    let text = format!("backend tried to switch protocol {quoted} when \"\" was requested\n");
    respond_text(StatusCode::BAD_GATEWAY, text)
}

/// Streams the body of a response. The connection may be reused after the end of the body.
fn chunks(
    body: Incoming,
    connection: Lease,
    ends_with_connection: bool,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send {
    futures_util::stream::unfold(Some((body, connection)), move |state| async move {
        let (mut body, connection) = state?;
        loop {
            match body.frame().await {
                None => {
                    connection.give_back();
                    return None;
                }
                Some(Ok(frame)) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    // A reader that has a length does not poll for the end of the body, so check for the end
                    // here.
                    if body.is_end_stream() {
                        connection.give_back();
                        return Some((Ok(bytes), None));
                    }
                    return Some((Ok(bytes), Some((body, connection))));
                }
                Some(Err(error)) if ends_with_connection && outgoing::is_cut(&error) => return None,
                Some(Err(_)) => return Some((Err(Aborted), None)),
            }
        }
    })
}

/// Number of compressed bytes that are decompressed at once. Deflate expands one byte to at most 1032 bytes, so
/// 64 bytes expand to about 64 KiB at most.
const INFLATED_AT_ONCE_BYTES: usize = 64;

/// Amount of text that is collected before the text is forwarded.
const INFLATED_BYTES: usize = 32 * 1024;

/// Decompresses chunks into pieces of at most [`INFLATED_BYTES`] plus the output of one more step, regardless
/// of the compression ratio. The next piece is produced when the client has taken the previous piece.
fn inflated(
    chunks: impl Stream<Item = Result<Bytes, Aborted>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, Aborted>> + Send {
    let state = (chunks.boxed(), GzDecoder::new(Vec::new()), Bytes::new());
    futures_util::stream::try_unfold(state, |(mut chunks, mut decoder, mut rest)| async move {
        loop {
            if rest.is_empty() {
                match chunks.next().await.transpose()? {
                    Some(chunk) => rest = chunk,
                    None => return Ok(None),
                }
            }
            inflate(&mut decoder, &mut rest).map_err(|_| Aborted)?;
            if !decoder.get_ref().is_empty() {
                let text = Bytes::from(std::mem::take(decoder.get_mut()));
                return Ok(Some((text, (chunks, decoder, rest))));
            }
        }
    })
}

/// Decompresses the beginning of `rest` until there is a piece of text, or `rest` is empty.
fn inflate(decoder: &mut GzDecoder<Vec<u8>>, rest: &mut Bytes) -> std::io::Result<()> {
    while !rest.is_empty() && decoder.get_ref().len() < INFLATED_BYTES {
        let step = rest.split_to(rest.len().min(INFLATED_AT_ONCE_BYTES));
        decoder.write_all(&step)?;
    }
    if rest.is_empty() { decoder.flush() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[tokio::test]
    async fn no_compressed_chunk_is_inflated_as_a_whole() {
        const TEXT_BYTES: usize = 64 << 20;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![0; TEXT_BYTES]).unwrap();
        let bomb = Bytes::from(encoder.finish().unwrap());
        assert!(bomb.len() < TEXT_BYTES / 900, "{}", bomb.len());
        let pieces = inflated(futures_util::stream::iter([Ok(bomb)]));
        let (total, longest) = pieces
            .fold((0, 0), |(total, longest): (usize, usize), piece| {
                let len = piece.unwrap().len();
                std::future::ready((total + len, longest.max(len)))
            })
            .await;
        assert_eq!(total, TEXT_BYTES);
        // The internal buffer of the decoder may be full when a step begins.
        assert!(longest <= INFLATED_BYTES + INFLATED_AT_ONCE_BYTES * 1032 + 32 * 1024, "{longest}");
    }

    #[tokio::test]
    async fn compressed_answers_are_inflated_while_they_arrive() {
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
    fn target_paths_and_queries_are_escaped_again() {
        for (path, query, want) in [
            ("/apis/g/v1/things", None, "/apis/g/v1/things"),
            ("/apis/g/v1/a b/ü", Some(""), "/apis/g/v1/a%20b/%C3%BC"),
            ("/x", Some("x=%20y&x=%2F&a=1"), "/x?a=1&x=+y&x=%2F"),
            ("/x", Some("watch"), "/x?watch="),
        ] {
            assert_eq!(target(path, query), want);
        }
        assert_eq!(cleaned("/apis/g/v1/things/../x/./y/"), "/apis/g/v1/x/y");
    }

    #[test]
    fn forwarded_requests_for_whole_answers_accept_gzip() {
        for (method, given, want) in [
            (Method::GET, None, true),
            (Method::DELETE, None, true),
            (Method::HEAD, None, false),
            (Method::GET, Some(RANGE), false),
            (Method::GET, Some(ACCEPT_ENCODING), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(given.clone().map(|name| (name, HeaderValue::from_static("x"))));
            assert_eq!(accepts(&method, &mut headers), want, "{method} {given:?}");
            assert_eq!(headers.get(ACCEPT_ENCODING).is_some_and(|value| value == "gzip"), want);
        }
    }

    #[test]
    fn connection_headers_are_not_forwarded() {
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
