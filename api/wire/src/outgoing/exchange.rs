//! Requests on connections to other servers, and their responses.
//!
//! A POST follows a few redirects to other HTTPS URLs; its deadline includes the redirects. Requests with
//! streamed responses do not follow redirects.

use std::io::Read;
use std::ops::Deref;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

use super::connect::{connect, connect_for_many};
use super::connection::{Connection, Live, Unsent};
use super::pool;
use super::{Endpoint, Failure, redirect, status_failure};
use crate::http2::{AnyBody, any_body};
use crate::traces;
use values::memory::{self, Charge};

/// Maximum number of bytes of a response that are read: far more than an object may have.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum number of retries within the deadline, if the server asks for a retry.
const RETRIES_MAX: usize = 10;

/// Maximum number of bytes of a review that are read: enough for a user with some ten thousand groups.
pub const REVIEW_BYTES_MAX: usize = 1024 * 1024;

/// Maximum length of a response whose bytes are not charged while they are read. The decoded form is always
/// charged.
const UNCHARGED_BYTES_MAX: usize = 16 * 1024;

/// The response to a successful call.
#[derive(Debug)]
pub struct Answer {
    /// Status code, 200 to 206.
    pub code: StatusCode,
    /// Response body; never empty.
    pub body: Reply,
}

/// A response body. Memory for the body, and for its decoded form, is charged until this value is dropped.
#[derive(Debug)]
pub struct Reply {
    bytes: Bytes,
    _charge: Charge,
}

impl Deref for Reply {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// Posts JSON and reads the whole response within `timeout`. `agent` is the user agent.
///
/// # Errors
/// There is no connection, or the response is late, is too long, or has a code other than success.
pub async fn post(
    endpoint: &Endpoint,
    agent: &str,
    body: Bytes,
    timeout: Duration,
) -> Result<Answer, Failure> {
    post_at_most(endpoint, agent, body, timeout, ANSWER_BYTES_MAX).await
}

/// Posts JSON like [`post`], with a limit on the size of the response.
///
/// # Errors
/// The same errors as those of [`post`].
pub async fn post_at_most(
    endpoint: &Endpoint,
    agent: &str,
    body: Bytes,
    timeout: Duration,
    bytes_max: usize,
) -> Result<Answer, Failure> {
    let deadline = Instant::now() + timeout;
    let call = async {
        for _ in 0..RETRIES_MAX {
            let (head, text) = follow(endpoint, agent, &body, bytes_max).await?;
            match retry_after(head.status, &head.headers) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return check_response(head.status, &head.headers, text),
            }
        }
        let text = "the server has received too many requests and has asked us to try again later".to_owned();
        Err(Failure::Code { code: 429, text })
    };
    let called = tokio::time::timeout_at(deadline, call).await;
    called.unwrap_or_else(|_| Err(Failure::Timeout.with_post_url(endpoint.url())))
}

/// A streamed response and its connection. Dropping this value ends the connection, unless other calls use it
/// too.
pub struct Opened {
    /// The response, whose body has not been read.
    pub response: Response<Incoming>,
    /// The connection, to be kept until the response has been read.
    pub connection: Lease,
}

/// A connection from which a response is read. Dropping the lease ends the connection, unless other calls use
/// it too.
pub struct Lease(Leased);

enum Leased {
    /// A connection that is used for this response only.
    Own { _connection: Connection },
    /// A connection that came from the pool of an endpoint, or that the pool can keep afterwards.
    Pooled(Box<(Endpoint, Live)>),
}

impl Lease {
    /// Returns the connection to the pool for the next call. The response must have been read to its end.
    pub fn give_back(self) {
        if let Leased::Pooled(pooled) = self.0 {
            let (endpoint, live) = *pooled;
            endpoint.pool().keep(endpoint.target(), live);
        }
    }
}

/// Sends a request with the URL of the endpoint, and waits for the head of the response. The caller sets the
/// headers; `Host` defaults to the host of the URL. The response may be an upgrade.
///
/// # Errors
/// There is no connection, or it broke before the response began.
pub async fn open<B>(endpoint: &Endpoint, request: Request<B>) -> Result<Opened, Failure>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    open_any(endpoint, request.map(any_body)).await
}

async fn open_any(endpoint: &Endpoint, mut request: Request<AnyBody>) -> Result<Opened, Failure> {
    let (mut sender, connection) = connect(endpoint, request.method()).await?;
    let path = endpoint.url().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|error| Failure::Other(format!("{error}")))?;
    let authority = endpoint.url().authority().map_or("", |authority| authority.as_str());
    let authority = HeaderValue::from_str(authority).map_err(|error| Failure::Other(error.to_string()))?;
    request.headers_mut().entry(HOST).or_insert(authority);
    traces::propagate(request.headers_mut());
    request.headers_mut().extend(endpoint.identity().clone());
    let (method, began) = (request.method().clone(), std::time::Instant::now());
    let answered = sender.send_request(request).await;
    endpoint.count(&method, answered.as_ref().ok().map(Response::status), began);
    let response = answered.map_err(|error| Failure::exchange(&error, connection.ends()))?;
    Ok(Opened { response, connection: Lease(Leased::Own { _connection: connection }) })
}

/// Sends a request that is not an upgrade, on a pooled or a new connection, and waits for the head of the
/// response. The connection may be returned to the pool after the response has been read
/// ([`Lease::give_back`]). The host is the host of the URL.
///
/// # Errors
/// There is no connection, or it broke before the response began.
pub async fn open_pooled<B>(endpoint: &Endpoint, request: Request<B>) -> Result<Opened, Failure>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    open_pooled_any(endpoint, request.map(any_body)).await
}

async fn open_pooled_any(endpoint: &Endpoint, mut request: Request<AnyBody>) -> Result<Opened, Failure> {
    traces::propagate(request.headers_mut());
    request.headers_mut().extend(endpoint.identity().clone());
    let method = request.method().clone();
    let (answered, began) = send(endpoint, request).await?;
    endpoint.count(&method, answered.as_ref().ok().map(|(response, _)| response.status()), began);
    let (response, live) = answered?;
    let connection = Lease(Leased::Pooled(Box::new((endpoint.clone(), live))));
    Ok(Opened { response, connection })
}

/// Sends a GET for the URL of the endpoint with these headers, and reads the whole response within `timeout`.
/// Returns the response even if its code is an error.
///
/// # Errors
/// There is no connection, or the response is late or too long.
pub async fn get(
    endpoint: &Endpoint,
    headers: HeaderMap,
    timeout: Duration,
) -> Result<(StatusCode, Reply), Failure> {
    let (head, text) = get_at_most(endpoint, headers, timeout, ANSWER_BYTES_MAX).await?;
    Ok((head.status, text))
}

/// Sends a GET like [`get`], with a limit on the size of the response, and returns the whole head of the
/// response.
///
/// # Errors
/// The same errors as those of [`get`].
pub async fn get_at_most(
    endpoint: &Endpoint,
    headers: HeaderMap,
    timeout: Duration,
    bytes_max: usize,
) -> Result<(http::response::Parts, Reply), Failure> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.headers_mut() = headers;
    let call = async {
        let opened = open(endpoint, request).await?;
        read(opened.response, bytes_max).await
    };
    let called = tokio::time::timeout(timeout, call).await.unwrap_or(Err(Failure::Timeout));
    called.map_err(|failure| failure.with_method_and_url("Get", endpoint.url()))
}

/// Sends a POST, follows its redirects, and returns the last response. Failures name the URL of the last
/// request.
async fn follow(
    endpoint: &Endpoint,
    agent: &str,
    body: &Bytes,
    bytes_max: usize,
) -> Result<(http::response::Parts, Reply), Failure> {
    let mut target = (Method::POST, endpoint.clone());
    let mut last = endpoint.url().clone();
    for _ in 0..redirect::REQUESTS_MAX {
        let (method, endpoint) = &target;
        let body = if *method == Method::POST { body.clone() } else { Bytes::new() };
        let answered = exchange(endpoint, method, agent, body, bytes_max).await;
        let (head, text) = answered.map_err(|failure| failure.with_post_url(endpoint.url()))?;
        match redirect::next(&head, method, endpoint)
            .map_err(|failure| failure.with_post_url(endpoint.url()))?
        {
            None => return Ok((head, text)),
            Some(next) => {
                last = endpoint.url().clone();
                target = next;
            }
        }
    }
    let why = format!("stopped after {} redirects", redirect::REQUESTS_MAX);
    Err(Failure::Other(why).with_post_url(&last))
}

/// Sends one request and reads the response.
async fn exchange(
    endpoint: &Endpoint,
    method: &Method,
    agent: &str,
    body: Bytes,
    bytes_max: usize,
) -> Result<(http::response::Parts, Reply), Failure> {
    let mut request = Request::builder();
    for (name, value) in endpoint.identity() {
        request = request.header(name, value);
    }
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let mut request = request
        .method(method)
        .header(USER_AGENT, agent)
        .header(ACCEPT, "application/json, */*")
        .header(ACCEPT_ENCODING, "gzip")
        .body(any_body(Full::new(body)))
        .map_err(|error| Failure::Other(error.to_string()))?;
    traces::propagate(request.headers_mut());
    let (answered, began) = send(endpoint, request).await?;
    endpoint.count(method, answered.as_ref().ok().map(|(response, _)| response.status()), began);
    let (response, connection) = answered?;
    let answer = read(response, bytes_max).await?;
    endpoint.pool().keep(endpoint.target(), connection);
    Ok(answer)
}

/// Sends a request on a pooled or a new connection. Also returns the time at which sending began. A pooled
/// connection that accepts no more data is discarded. A request that was written is not sent again, because
/// the server may have acted on it. A GET without a body is an exception, because it does not change
/// anything.
async fn send(
    endpoint: &Endpoint,
    mut request: Request<AnyBody>,
) -> Result<(Result<(Response<Incoming>, Live), Failure>, std::time::Instant), Failure> {
    let target = endpoint.target();
    for _ in 0..pool::TRIED_MAX {
        let Some(mut pooled) = endpoint.pool().take(&target) else { break };
        let began = std::time::Instant::now();
        let again =
            (request.method() == Method::GET && request.body().is_end_stream()).then(|| same(&request));
        match (pooled.send(endpoint.url(), request).await, again) {
            (Ok(response), _) => return Ok((Ok((response, pooled)), began)),
            (Err(Unsent::Request(unsent)), _) => request = *unsent,
            (Err(Unsent::Lost(_)), Some(again)) => request = again,
            (Err(Unsent::Lost(error)), None) => {
                return Ok((Err(Failure::exchange(&error, pooled.ends())), began));
            }
        }
    }
    let mut live = connect_for_many(endpoint, request.method()).await?;
    endpoint.pool().share(target, &live);
    let began = std::time::Instant::now();
    match live.send(endpoint.url(), request).await {
        Ok(response) => Ok((Ok((response, live)), began)),
        Err(Unsent::Lost(error)) => Ok((Err(Failure::exchange(&error, live.ends())), began)),
        Err(Unsent::Request(_)) => Ok((Err(Failure::Other("EOF".to_owned())), began)),
    }
}

/// Copies a request without a body.
fn same(request: &Request<AnyBody>) -> Request<AnyBody> {
    let mut same = Request::new(any_body(Empty::new()));
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    same
}

/// Reads a response. The bytes of a large response are charged before they are read. The decoded form is
/// charged before the caller decodes the body.
async fn read(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<(http::response::Parts, Reply), Failure> {
    let (head, mut body) = response.into_parts();
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Failure::TooLong);
    }
    let mut text = BytesMut::new();
    // A known length is charged at once. Otherwise bytes are charged as they arrive, each time twice the
    // number of bytes so far, because the buffer doubles.
    let exact = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut charges = Vec::new();
    let mut charged = UNCHARGED_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::Body)?;
        let Ok(bytes) = frame.into_data() else { continue };
        if text.len() + bytes.len() > bytes_max {
            return Err(Failure::TooLong);
        }
        if text.len() + bytes.len() > charged {
            let more = exact.unwrap_or(2 * text.len()).max(bytes.len());
            charges.push(memory::reply(more).await.map_err(|error| Failure::no_room(&error))?);
            charged += more;
        }
        text.extend_from_slice(&bytes);
    }
    let is_compressed = head.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip");
    let text = if is_compressed {
        // Deflate expands one byte to at most 1032 bytes (RFC 1951).
        let most = text.len().saturating_mul(1032).min(bytes_max);
        charges.push(memory::reply(2 * most).await.map_err(|error| Failure::no_room(&error))?);
        decompress(&text, bytes_max)?
    } else {
        text.freeze()
    };
    // The charges are released first, so that no call holds charges while it waits for its last charge.
    drop(charges);
    let charge = memory::decoded_reply(&text).await.map_err(|error| Failure::no_room(&error))?;
    Ok((head, Reply { bytes: text, _charge: charge }))
}

/// Decompresses a body to at most `bytes_max` bytes, the limit that also applies to uncompressed bodies.
fn decompress(body: &[u8], bytes_max: usize) -> Result<Bytes, Failure> {
    let mut text = Vec::new();
    let mut limited = GzDecoder::new(body).take(bytes_max as u64 + 1);
    limited.read_to_end(&mut text).map_err(|_| Failure::Body)?;
    if text.len() > bytes_max {
        return Err(Failure::TooLong);
    }
    Ok(text.into())
}

/// Returns how long a server asks the client to wait before a retry.
fn retry_after(code: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if code != StatusCode::TOO_MANY_REQUESTS && !code.is_server_error() {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn check_response(code: StatusCode, headers: &HeaderMap, body: Reply) -> Result<Answer, Failure> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Err(why) = status_failure::media_type(media_type) {
        return Err(Failure::Code { code: code.as_u16(), text: format!("Internal error occurred: {why}") });
    }
    if !(200..=206).contains(&code.as_u16()) {
        return Err(status_failure::failure(code, media_type, &body));
    }
    if body.is_empty() {
        let code = code.as_u16();
        let media_type = if media_type.is_empty() { "application/json" } else { media_type };
        let text = format!("0-length response with status code: {code} and content type: {media_type}");
        return Err(Failure::Code { code, text });
    }
    Ok(Answer { code, body })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn decompressed_answers_have_the_same_size_limit_as_plain_answers() {
        let gzip = |bytes: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&vec![b' '; bytes]).unwrap();
            encoder.finish().unwrap()
        };
        assert_eq!(decompress(&gzip(100), 100).unwrap().len(), 100);
        assert_eq!(decompress(&gzip(101), 100).unwrap_err(), Failure::TooLong);
        for body in [&b"no gzip"[..], &gzip(100)[..20], b""] {
            assert_eq!(decompress(body, 100).unwrap_err(), Failure::Body);
        }
    }

    #[test]
    fn an_answer_with_an_error_code_is_a_failure() {
        let text =
            |media_type: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, media_type.parse().unwrap())]);
        for (code, media_type, body, want) in [
            (200, "application/json", "{}", Ok("{}")),
            (201, "text/plain", "x", Ok("x")),
            (200, ";;", "{}", Err("Internal error occurred: mime: no media type")),
            (200, "a/b", "", Err("0-length response with status code: 200 and content type: a/b")),
            (
                302,
                "a/b",
                "",
                Err("the server responded with the status code 302 but did not return more information"),
            ),
            (403, "a/b", "no", Err("unknown")),
            (403, "text/plain", " no\n", Err("no")),
            (404, "a/b", "no", Err("the server could not find the requested resource")),
            (
                500,
                "text/html",
                "x\n",
                Err("an error on the server (\"x\") has prevented the request from succeeding"),
            ),
        ] {
            let code = StatusCode::from_u16(code).unwrap();
            let bytes = Bytes::from_static(body.as_bytes());
            let got = check_response(code, &text(media_type), Reply { bytes, _charge: Charge::default() });
            let got = got.map(|answer| answer.body.bytes).map_err(|failure| failure.to_string());
            assert_eq!(got, want.map(|body| Bytes::from_static(body.as_bytes())).map_err(str::to_owned));
        }
    }
}
