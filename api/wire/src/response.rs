//! Responses: a status code, a media type and a body.
//!
//! Knows nothing of objects; answers made of these are in `representation::answer`.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::server::Body;

/// A response on its way out.
pub type Response = http::Response<Body>;

/// A response with a body of `media_type`.
pub fn respond(code: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The same with bytes that are charged already, or that cost nothing ([`Body::shared`]).
pub fn respond_shared(code: StatusCode, media_type: &'static str, body: Bytes) -> Response {
    respond(code, media_type, Bytes::new()).map(|_| Body::shared(body))
}

/// Plain text, as the few answers that are no objects are sent.
pub fn respond_text(code: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = respond(code, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
