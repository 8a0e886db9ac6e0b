//! The last stages of a trail: the content of the response, and the time when it is sent.
//!
//! The response is recorded while it is sent, so only the recorded bytes are kept in memory. A response with
//! one object is recorded for every encoding. A list is recorded only if the list is sent as JSON.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::body::Body as _;

use super::{AuditStage, Trail};
use objects::representation::answer::{Reported, ResponseObject};
use values::json::{self, Value};
use wire::response::Response;
use wire::server::body::Observer;
use wire::server::upgrade::attach;

/// Maximum size of a response whose object is recorded, so that the server never holds a whole long list in
/// memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Records the response to a request whose handler panicked.
pub fn panicked(trail: &Trail) {
    trail.status(StatusCode::INTERNAL_SERVER_ERROR, None);
    trail.reach(AuditStage::Panic);
}

/// Records the response to a request with refused credentials. Such a request has only this event.
pub fn unauthenticated(trail: &Trail, response: &Response) {
    report(trail, response);
    trail.reach(AuditStage::ResponseStarted);
}

/// Records a response, now or when it is sent. If `long_running` is set, the response may last long, and the
/// head of the response causes an event.
pub fn answered(trail: Arc<Trail>, long_running: bool, response: Response) -> Response {
    report(&trail, &response);
    if long_running {
        trail.reach(AuditStage::ResponseStarted);
    }
    if trail.wants_response() && !long_running {
        record_object(&trail, &response);
    }
    let is = |name, expected| response.headers().get(name).is_some_and(|value| value == expected);
    let is_reported = response.extensions().get::<Reported>().is_some();
    let gathers = trail.wants_response()
        && !is_reported
        && !long_running
        && response.status() != StatusCode::NOT_ACCEPTABLE
        && is(CONTENT_TYPE, "application/json");
    let gathered =
        Gathered { text: gathers.then(Vec::new), is_compressed: is(CONTENT_ENCODING, "gzip"), trail };
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        attach(&response, gathered);
        return response;
    }
    if response.body().is_end_stream() {
        return response;
    }
    response.map(|body| body.observed(gathered))
}

/// Records the object of a response that is sent in an encoding other than JSON.
fn record_object(trail: &Trail, response: &Response) {
    let object = match response.extensions().get::<ResponseObject>() {
        Some(ResponseObject::Text(text)) => json::parse(text).ok(),
        Some(ResponseObject::Tree(object)) => Some(Value::Object(object.as_ref().clone())),
        None => None,
    };
    if let Some(object) = object {
        trail.response(object);
    }
}

/// Records the outcome. A 406 is not an API object, so only its code is recorded.
fn report(trail: &Trail, response: &Response) {
    let is_encoded = response.status() != StatusCode::NOT_ACCEPTABLE;
    let status = response.extensions().get::<Reported>().filter(|_| is_encoded);
    trail.status(response.status(), status.map(|Reported(status)| status.as_ref()));
    if trail.wants_response()
        && let Some(Reported(status)) = status
    {
        trail.response(Value::Object(status.as_ref().clone()));
    }
}

/// The recorded part of a response that is being sent. Dropping the value ends the trail, because the response
/// was sent or the client has disconnected.
struct Gathered {
    trail: Arc<Trail>,
    /// The bytes that were sent so far; `None` if the response is not recorded.
    text: Option<Vec<u8>>,
    is_compressed: bool,
}

impl Observer for Gathered {
    fn chunk(&mut self, chunk: &Bytes) {
        if let Some(text) = &mut self.text {
            if text.len() + chunk.len() > ANSWER_BYTES_MAX {
                self.text = None;
            } else {
                text.extend_from_slice(chunk);
            }
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        if let Some(text) = self.text.take() {
            let text = if self.is_compressed { inflated(&text) } else { Some(text) };
            // Documents without a kind are not API objects.
            let object = text.and_then(|text| json::parse(&text).ok()).filter(|it| it.get("kind").is_some());
            if let Some(object) = object {
                self.trail.response(object);
            }
        }
        self.trail.reach(AuditStage::ResponseComplete);
    }
}

fn inflated(compressed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let read = GzDecoder::new(compressed).take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut text).ok()?;
    (read <= ANSWER_BYTES_MAX).then_some(text)
}
