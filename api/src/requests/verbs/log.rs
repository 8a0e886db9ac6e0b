//! The log of a container, from the agent on the node of its pod (docs/api/nodes.md#logs).
//!
//! `options ─► pod ─► container ─► node ─► agent ─► text as it arrives`

use std::num::{IntErrorKind, ParseIntError};

use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, BodyStream, Empty, Limited};

use super::Call;
use super::connect::{agent_of, container, stored_object, text};
use crate::state::connect::AGENT_ANSWER_TIMEOUT;
use crate::state::connect::forward::{encode, encoded_path, passed_on};
use types::features::Feature;
use values::clock;
use values::field::{FieldError, go_quote};
use values::json::Value;
use values::object::meta;
use values::status::{Status, StatusReason, Subject};
use wire::outgoing::{self, Endpoint, Failure, Opened};
use wire::response::{Response, respond};
use wire::server::{Aborted, Body, Shutdown};

/// Maximum length of an agent's text that is returned to the client as an error.
const REFUSAL_BYTES_MAX: usize = 50_000;

/// Answers a permitted request.
///
/// # Errors
/// Options are invalid; the pod, the container or the node does not exist; or the agent does not answer
/// properly.
pub async fn read(call: &Call<'_>) -> Result<Response, Status> {
    let options = Options::read(call)?;
    let pod = stored_object(call, call.resource, &call.info.name)?;
    let container = container(call, &pod, call.request.query.first("container").unwrap_or_default())?;
    if text(&pod, "spec.nodeName").is_empty() {
        return Ok(nothing());
    }
    let agent = agent_of(call, &pod)?;
    let path = encoded_path(&format!(
        "/containerLogs/{}/{}/{container}",
        meta(&pod, "namespace"),
        meta(&pod, "name")
    ));
    let target = if options.query.is_empty() { path } else { format!("{path}?{}", options.query) };
    let endpoint = call.server().outgoing.nodes.of_agent(&agent, &target, options.is_verified)?;
    let opened = open_log(&endpoint).await.map_err(|failure| {
        let why = match failure {
            Failure::Timeout => "net/http: timeout awaiting response headers".to_owned(),
            failure => failure.to_string(),
        };
        Status::new(StatusReason::Unknown, format!("Get \"{}\": {why}", endpoint.url()))
    })?;
    let code = opened.response.status();
    if code.is_redirection() && opened.response.headers().contains_key(LOCATION) {
        let location = opened.response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        let why = format!("Get \"{}\": redirects forbidden", location.unwrap_or_default());
        return Err(Status::new(StatusReason::Unknown, why));
    }
    if !(200..=206).contains(&code.as_u16()) {
        return Err(refusal(opened, &call.info.name).await);
    }
    Ok(passed(opened, call.server().operations.lifecycle.shutdown()))
}

async fn open_log(endpoint: &Endpoint) -> Result<Opened, Failure> {
    let mut request = Request::new(Empty::<Bytes>::new());
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let answered = tokio::time::timeout(AGENT_ANSWER_TIMEOUT, outgoing::open(endpoint, request)).await;
    answered.unwrap_or(Err(Failure::Timeout))
}

/// Returns the text of the agent as a stream. The server aborts the stream when it shuts down.
fn passed(opened: Opened, shutdown: Shutdown) -> Response {
    let body = passed_on(opened, true).into_body();
    let chunks = BodyStream::new(body)
        .filter_map(|frame| std::future::ready(frame.map(|frame| frame.into_data().ok()).transpose()));
    let broken_off = futures_util::stream::once(async move {
        shutdown.wait_for_drain().await;
        Err(Aborted)
    });
    // The response ends as soon as one of the two combined streams ends.
    let chunks = futures_util::stream::select(
        chunks.map(Some).chain(futures_util::stream::iter([None])),
        broken_off.map(Some),
    );
    let chunks =
        chunks.take_while(|chunk| std::future::ready(chunk.is_some())).filter_map(std::future::ready);
    let mut response = respond(StatusCode::OK, "text/plain", Bytes::new());
    *response.body_mut() = Body::stream(chunks);
    response
}

/// Returns the agent's error response.
async fn refusal(opened: Opened, pod: &str) -> Status {
    let code = opened.response.status();
    let body = Limited::new(opened.response.into_body(), REFUSAL_BYTES_MAX).collect();
    let text = match tokio::time::timeout(AGENT_ANSWER_TIMEOUT, body).await {
        Ok(Ok(text)) => String::from_utf8_lossy(&text.to_bytes()).into_owned(),
        _ => String::new(),
    };
    Status::of_agent(code, &text, outgoing::unexpected_code(code, &text), pod)
}

/// Returns a response without content and without a media type.
fn nothing() -> Response {
    let mut response = respond(StatusCode::NO_CONTENT, "text/plain", Bytes::new());
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// The options of a log request.
struct Options {
    /// Query for the agent; parameters are sorted by name.
    query: String,
    /// Whether the certificate of the agent is verified.
    is_verified: bool,
}

impl Options {
    /// Parses the options. Returns 400 for options that cannot be parsed, and 422 for values out of range.
    fn read(call: &Call<'_>) -> Result<Options, Status> {
        let query = &call.request.query;
        let given = |name: &str| query.first(name).filter(|text| !text.is_empty());
        let number = |name: &str| given(name).map(go_integer).transpose();
        let (since, tail, limit) = (number("sinceSeconds")?, number("tailLines")?, number("limitBytes")?);
        let since_time = given("sinceTime").map(time).transpose()?;
        let stream = query.first("stream");
        let selects_streams = call.server().types.features.has(Feature::PodLogsQuerySplitStreams);
        let mut errors = Vec::new();
        let mut at_least = |name: &str, value: Option<i64>, least: i64, detail: &str| {
            if let Some(value) = value.filter(|value| *value < least) {
                errors.push(FieldError::invalid(name, &Value::Int(value), detail));
            }
        };
        at_least("tailLines", tail, 0, "must be greater than or equal to 0");
        at_least("limitBytes", limit, 1, "must be greater than 0");
        if since_time.is_some() && since.is_some() {
            let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden(WHOLE, why));
        } else {
            at_least("sinceSeconds", since, 1, "must be greater than 0");
        }
        match stream {
            Some(_) if !selects_streams => {
                errors.push(FieldError::forbidden("stream", "may not be specified"));
            }
            Some(stream) => {
                if !STREAMS.contains(&stream) {
                    errors.push(FieldError::not_supported("stream", &stream.into(), &STREAMS));
                }
                if stream != STREAMS[0] && tail.is_some() {
                    let why = "`tailLines` and specific `stream` are mutually exclusive for now";
                    errors.push(FieldError::forbidden(WHOLE, why));
                }
            }
            None => {}
        }
        if !errors.is_empty() {
            let subject = Subject { group: "", kind: "PodLogOptions", name: &call.info.name };
            return Err(Status::invalid(subject, &errors));
        }
        let flag = |name: &str| query.flag(name).then(|| "true".to_owned());
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let stream = stream.or(selects_streams.then_some(STREAMS[0])).map(str::to_owned);
        let parameters = [
            ("follow", flag("follow")),
            ("limitBytes", number(limit)),
            ("previous", flag("previous")),
            ("sinceSeconds", number(since)),
            ("sinceTime", since_time),
            ("stream", stream.filter(|_| selects_streams)),
            ("tailLines", number(tail)),
            ("timestamps", flag("timestamps")),
        ];
        let pairs = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let query_of_agent = encode(pairs);
        let is_verified = !query.flag("insecureSkipTLSVerifyBackend");
        Ok(Options { query: query_of_agent, is_verified })
    }
}

/// Field path of an error about the options as a whole.
const WHOLE: &str = "[]";

/// Names of the streams of a container; `All` selects both streams.
const STREAMS: [&str; 3] = ["All", "Stderr", "Stdout"];

/// Parses a time in the API's format. The message of the 400 for an invalid time is that of Go's `time`
/// package.
fn time(text: &str) -> Result<String, Status> {
    let seconds = clock::parse_seconds(text).ok_or_else(|| {
        let quoted = go_quote(text);
        Status::bad_request(format!(
            "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\""
        ))
    })?;
    Ok(clock::format_seconds(seconds))
}

/// Parses a signed number. The message of the 400 for an invalid number is that of Go's `strconv` package.
fn go_integer(text: &str) -> Result<i64, Status> {
    text.parse().map_err(|error: ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", go_quote(text)))
    })
}
