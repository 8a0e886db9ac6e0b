//! Responses: bodies with their media type, and errors as `Status` documents (docs/api/errors.md#encoding-of-errors).

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use crate::json::{Object, Value};
use crate::negotiate::Output;
use crate::representation::{self, Renderer};
use crate::server::Body;
use crate::status::Status;

/// A response on its way out.
pub type Response = http::Response<Body>;

/// A response with a body of `media_type`.
pub fn respond(code: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = http::Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A Status that is no error, in the form asked for.
pub fn respond_success(code: StatusCode, status: &Object, output: &Output) -> Response {
    respond(code, output.media_type, representation::status_body(status, output))
}

/// One stored object in the form asked for.
pub fn respond_object(mut renderer: Renderer, code: StatusCode, stored: &Bytes) -> Result<Response, Status> {
    Ok(respond(code, renderer.media_type(), renderer.document(stored)?))
}

/// An error, in the form of `output` without its transform.
pub fn respond_status(status: &Status, output: &Output) -> Response {
    let body = match status.to_value() {
        Value::Object(object) => object,
        _ => Object::new(),
    };
    let mut response = respond_success(status.code, &body, output);
    let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if wait > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait));
    }
    response
}

/// Plain text, as the few answers that are no objects are sent.
pub fn respond_text(code: StatusCode, text: impl Into<Bytes>) -> Response {
    let mut response = respond(code, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
