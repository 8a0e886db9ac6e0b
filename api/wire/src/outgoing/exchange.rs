//! Requests on connections to other servers, and their answers.
//!
//! A post follows redirects to other HTTPS URLs, a few of them and all within its deadline; answers that are read as they
//! come are not followed.

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

use super::connect::{Connection, connect, connect_for_many};
use super::counting::counted;
use super::pool::{self, Live, Sent, Unsent};
use super::{Endpoint, Failure, failed, redirect};
use crate::traces;
use values::memory::{self, Charge};

/// Most bytes of an answer that are read: far more than any object may have.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How often a server that asks for it is asked again within the deadline.
const RETRIES_MAX: usize = 10;

/// Most bytes of a review that are read: a user with some ten thousand groups.
pub const REVIEW_BYTES_MAX: usize = 1024 * 1024;

/// Longest answer that is read without a charge for its bytes. A charge for what it becomes is taken in any case.
const UNCHARGED_BYTES_MAX: usize = 16 * 1024;

/// An answer of a kind that says success.
#[derive(Debug)]
pub struct Answer {
    /// The code, 200 to 206.
    pub code: StatusCode,
    /// The body; never empty.
    pub body: Reply,
}

/// The body of an answer. Memory for it, and for what it becomes when it is decoded, is charged until this is dropped.
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

/// Posts JSON and reads the answer, all of it within `timeout`. `agent` names this server.
///
/// # Errors
/// No connection, no answer in time, an answer that is too long, or one of another code than success.
pub async fn post(
    endpoint: &Endpoint,
    agent: &str,
    body: Bytes,
    timeout: Duration,
) -> Result<Answer, Failure> {
    post_at_most(endpoint, agent, body, (timeout, ANSWER_BYTES_MAX)).await
}

/// The same for an answer of so many bytes at most.
///
/// # Errors
/// As those of [`post`].
pub async fn post_at_most(
    endpoint: &Endpoint,
    agent: &str,
    body: Bytes,
    (timeout, bytes_max): (Duration, usize),
) -> Result<Answer, Failure> {
    let deadline = Instant::now() + timeout;
    let call = async {
        for _ in 0..RETRIES_MAX {
            let (head, text) = follow(endpoint, agent, &body, bytes_max).await?;
            match retry_after(head.status, &head.headers) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return judge(head.status, &head.headers, text),
            }
        }
        let text = "the server has received too many requests and has asked us to try again later".to_owned();
        Err(Failure::Code { code: 429, text })
    };
    let called = tokio::time::timeout_at(deadline, call).await;
    called.unwrap_or_else(|_| Err(Failure::Timeout.of(endpoint.url())))
}

/// An answer that is read as it comes, and its connection, which ends with this.
pub struct Opened {
    /// The answer.
    pub response: Response<Incoming>,
    /// To be kept until the answer is read.
    pub connection: Lease,
}

/// A connection while an answer is read from it. It ends with this, unless others use it too.
pub struct Lease(Leased);

enum Leased {
    /// For this answer alone.
    Own { _connection: Connection },
    /// From the pool of an endpoint, or for it.
    Kept(Box<(Endpoint, Live)>),
}

impl Lease {
    /// The answer was read to its end: the connection may be kept for the next call.
    pub fn give_back(self) {
        if let Leased::Kept(kept) = self.0 {
            let (endpoint, live) = *kept;
            endpoint.pool().keep(&endpoint, live);
        }
    }
}

/// Sends a request whose path and headers are the caller's, and waits for the head of the answer. Without `Host` it is the
/// URL's. The answer may be an upgrade.
///
/// # Errors
/// No connection, or none that lasted until the answer began.
pub async fn open<B>(endpoint: &Endpoint, mut request: Request<B>) -> Result<Opened, Failure>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
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
    counted(endpoint, &method, answered.as_ref().ok().map(Response::status), began);
    let response = answered.map_err(|error| Failure::exchange(&error, connection.ends()))?;
    Ok(Opened { response, connection: Lease(Leased::Own { _connection: connection }) })
}

/// The same for a request that is no upgrade: on a connection that was kept, or a new one, which is kept once the answer is
/// read ([`Lease::give_back`]). The name of the server is the URL's.
///
/// # Errors
/// No connection, or none that lasted until the answer began.
pub async fn open_kept<B>(endpoint: &Endpoint, request: Request<B>) -> Result<Opened, Failure>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
    traces::propagate(request.headers_mut());
    request.headers_mut().extend(endpoint.identity().clone());
    let method = request.method().clone();
    let (answered, began) = send(endpoint, request).await?;
    counted(endpoint, &method, answered.as_ref().ok().map(|(response, _)| response.status()), began);
    let (response, live) = answered?;
    let connection = Lease(Leased::Kept(Box::new((endpoint.clone(), live))));
    Ok(Opened { response, connection })
}

/// Gets the endpoint's URL with these headers, all of it within `timeout`; says what came, whatever its code.
///
/// # Errors
/// No connection, no answer in time, or one that is too long.
pub async fn get(
    endpoint: &Endpoint,
    headers: HeaderMap,
    timeout: Duration,
) -> Result<(StatusCode, Reply), Failure> {
    let (head, text) = get_at_most(endpoint, headers, timeout, ANSWER_BYTES_MAX).await?;
    Ok((head.status, text))
}

/// The same for an answer of so many bytes at most, with its whole head.
///
/// # Errors
/// As those of [`get`].
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
    called.map_err(|failure| failure.of_method("Get", endpoint.url()))
}

/// A post and those requests that answers ask for instead of it; the last answer. Failures name the URL that was asked last.
async fn follow(
    endpoint: &Endpoint,
    agent: &str,
    body: &Bytes,
    bytes_max: usize,
) -> Result<(http::response::Parts, Reply), Failure> {
    let mut asked = (Method::POST, endpoint.clone());
    let mut last = endpoint.url().clone();
    for _ in 0..redirect::REQUESTS_MAX {
        let (method, endpoint) = &asked;
        let body = if *method == Method::POST { body.clone() } else { Bytes::new() };
        let answered = exchange(endpoint, method, (agent, body), bytes_max).await;
        let (head, text) = answered.map_err(|failure| failure.of(endpoint.url()))?;
        match redirect::next(&head, method, endpoint).map_err(|failure| failure.of(endpoint.url()))? {
            None => return Ok((head, text)),
            Some(next) => {
                last = endpoint.url().clone();
                asked = next;
            }
        }
    }
    let why = format!("stopped after {} redirects", redirect::REQUESTS_MAX);
    Err(Failure::Other(why).of(&last))
}

/// One request and its answer.
async fn exchange(
    endpoint: &Endpoint,
    method: &Method,
    (agent, body): (&str, Bytes),
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
        .body(Full::new(body).map_err(Into::into).boxed_unsync())
        .map_err(|error| Failure::Other(error.to_string()))?;
    traces::propagate(request.headers_mut());
    let (answered, began) = send(endpoint, request).await?;
    counted(endpoint, method, answered.as_ref().ok().map(|(response, _)| response.status()), began);
    let (response, connection) = answered?;
    let answer = read(response, bytes_max).await?;
    endpoint.pool().keep(endpoint, connection);
    Ok(answer)
}

/// Sends a request on a connection that was kept, or on a new one; says when it was sent. A kept one on which nothing could
/// be written any more is passed over. What was written is not sent again, as the server may have acted on it, but for a
/// GET without a body, which asks for no act.
async fn send(
    endpoint: &Endpoint,
    mut request: Request<Sent>,
) -> Result<(Result<(Response<Incoming>, Live), Failure>, std::time::Instant), Failure> {
    for _ in 0..pool::TRIED_MAX {
        let Some(mut kept) = endpoint.pool().take(endpoint) else { break };
        let began = std::time::Instant::now();
        let again =
            (request.method() == Method::GET && request.body().is_end_stream()).then(|| same(&request));
        match (kept.send(endpoint, request).await, again) {
            (Ok(response), _) => return Ok((Ok((response, kept)), began)),
            (Err(Unsent::Request(unsent)), _) => request = *unsent,
            (Err(Unsent::Lost(_)), Some(again)) => request = again,
            (Err(Unsent::Lost(error)), None) => {
                return Ok((Err(Failure::exchange(&error, kept.ends())), began));
            }
        }
    }
    let mut live = connect_for_many(endpoint, request.method()).await?;
    endpoint.pool().share(endpoint, &live);
    let began = std::time::Instant::now();
    match live.send(endpoint, request).await {
        Ok(response) => Ok((Ok((response, live)), began)),
        Err(Unsent::Lost(error)) => Ok((Err(Failure::exchange(&error, live.ends())), began)),
        Err(Unsent::Request(_)) => Ok((Err(Failure::Other("EOF".to_owned())), began)),
    }
}

/// A request without a body once more.
fn same(request: &Request<Sent>) -> Request<Sent> {
    let mut same = Request::new(Empty::new().map_err(Into::into).boxed_unsync());
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    same
}

/// Reads an answer. Its bytes are charged before they are read where they are many, and what they become before the caller
/// decodes them.
async fn read(
    response: Response<Incoming>,
    bytes_max: usize,
) -> Result<(http::response::Parts, Reply), Failure> {
    let (head, mut body) = response.into_parts();
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Failure::TooLong);
    }
    let mut text = BytesMut::new();
    // An announced length is charged at once. Other bytes are charged as they come, each time as many as there are already,
    // because the buffer doubles.
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
        // Deflate makes at most 1032 bytes of one (RFC 1951).
        let most = text.len().saturating_mul(1032).min(bytes_max);
        charges.push(memory::reply(2 * most).await.map_err(|error| Failure::no_room(&error))?);
        decompress(&text, bytes_max)?
    } else {
        text.freeze()
    };
    // Given back first, so that no call waits for the last charge while it has others.
    drop(charges);
    let charge = memory::decoded_reply(&text).await.map_err(|error| Failure::no_room(&error))?;
    Ok((head, Reply { bytes: text, _charge: charge }))
}

/// The text of a compressed body; no longer than that of another one.
fn decompress(body: &[u8], bytes_max: usize) -> Result<Bytes, Failure> {
    let mut text = Vec::new();
    let mut limited = GzDecoder::new(body).take(bytes_max as u64 + 1);
    limited.read_to_end(&mut text).map_err(|_| Failure::Body)?;
    if text.len() > bytes_max {
        return Err(Failure::TooLong);
    }
    Ok(text.into())
}

/// How long a server wants to be left alone before it is asked again.
fn retry_after(code: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if code != StatusCode::TOO_MANY_REQUESTS && !code.is_server_error() {
        return None;
    }
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn judge(code: StatusCode, headers: &HeaderMap, body: Reply) -> Result<Answer, Failure> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if let Err(why) = failed::media_type(media_type) {
        return Err(Failure::Code { code: code.as_u16(), text: format!("Internal error occurred: {why}") });
    }
    if !(200..=206).contains(&code.as_u16()) {
        return Err(failed::failure(code, media_type, &body));
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
    fn compressed_answers_are_no_longer_than_others() {
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
    fn answers_of_other_codes_than_success_are_failures() {
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
            let got = judge(code, &text(media_type), Reply { bytes, _charge: Charge::default() });
            let got = got.map(|answer| answer.body.bytes).map_err(|failure| failure.to_string());
            assert_eq!(got, want.map(|body| Bytes::from_static(body.as_bytes())).map_err(str::to_owned));
        }
    }
}
