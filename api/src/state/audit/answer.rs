//! The last stages of a trail: what the answer says, and when it is sent.
//!
//! An answer is observed on its way to the client, so nothing of it is kept but what is recorded. The object of an
//! answer is recorded in any encoding; a list only if it is sent as JSON.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::body::Body as _;

use super::{Stage, Trail};
use objects::representation::answer::{Reported, Shown};
use values::json::{self, Value};
use wire::response::Response;
use wire::server::body::Observer;
use wire::server::upgrade::attach;

/// Longest answer whose object is recorded, so that no list makes the server hold it whole.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Records the answer of a request whose handler panicked.
pub fn panicked(trail: &Trail) {
    trail.status(StatusCode::INTERNAL_SERVER_ERROR, None);
    trail.reach(Stage::Panic);
}

/// Records the answer to credentials that were refused: the only event of such a request.
pub fn unauthenticated(trail: &Trail, response: &Response) {
    report(trail, response);
    trail.reach(Stage::ResponseStarted);
}

/// Records an answer, at once or when it is sent. `long_running`: the answer may last, and its head is an event.
pub fn answered(trail: Arc<Trail>, long_running: bool, response: Response) -> Response {
    report(&trail, &response);
    if long_running {
        trail.reach(Stage::ResponseStarted);
    }
    if trail.wants_response() && !long_running {
        record_shown(&trail, &response);
    }
    let is = |name, wanted| response.headers().get(name).is_some_and(|value| value == wanted);
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

/// Records the object of an answer that is sent in another form than JSON.
fn record_shown(trail: &Trail, response: &Response) {
    let object = match response.extensions().get::<Shown>() {
        Some(Shown::Text(text)) => json::parse(text).ok(),
        Some(Shown::Tree(object)) => Some(Value::Object(object.as_ref().clone())),
        None => None,
    };
    if let Some(object) = object {
        trail.response(object);
    }
}

/// Records the outcome. A refusal to encode answers is no object of the API, so only its code is recorded.
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

/// An answer on its way; the trail ends when this is dropped, whether all was sent or the client went away.
struct Gathered {
    trail: Arc<Trail>,
    /// What was sent so far; none if it is not recorded.
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
            // Documents without a kind are no objects of the API.
            let object = text.and_then(|text| json::parse(&text).ok()).filter(|it| it.get("kind").is_some());
            if let Some(object) = object {
                self.trail.response(object);
            }
        }
        self.trail.reach(Stage::ResponseComplete);
    }
}

fn inflated(compressed: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let read = GzDecoder::new(compressed).take(ANSWER_BYTES_MAX as u64 + 1).read_to_end(&mut text).ok()?;
    (read <= ANSWER_BYTES_MAX).then_some(text)
}
