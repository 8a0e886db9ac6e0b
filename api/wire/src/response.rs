//! Responses: a status code, a media type and a body.
//!
//! This module does not depend on objects; `representation::answer` builds responses from objects.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::server::Body;

pub use crate::server::Response;

/// Returns a response with a body of `media_type`.
pub fn respond(code: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Returns a response with a body that is already charged to an account, or that costs nothing
/// ([`Body::shared`]).
pub fn respond_shared(code: StatusCode, media_type: &'static str, body: Bytes) -> Response {
    respond(code, media_type, Bytes::new()).map(|_| Body::shared(body))
}

/// Returns a plain text response, for the few responses that are not objects.
pub fn respond_text(code: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = respond(code, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
