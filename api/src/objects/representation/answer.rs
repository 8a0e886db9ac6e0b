//! Answers made of objects: one stored object, a Status that reports a success, and a Status that reports an error.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::{Renderer, status_body};
use crate::values::json::{Object, Value};
use crate::values::request_scope;
use crate::values::status::Status;
use crate::wire::negotiate::Output;
use crate::wire::response::{Response, respond, respond_shared};
use crate::wire::server::Body;

/// The Status that a response carries, as an extension of the response: what records the outcome of requests need not
/// read the body, which has the form that the client asked for.
#[derive(Clone, Debug)]
pub struct Reported(pub Arc<Object>);

/// The object that a response shows in another form than JSON, as an extension of the response: what records it need not read
/// that form.
#[derive(Clone, Debug)]
pub enum Shown {
    /// Its text in JSON.
    Text(Bytes),
    /// Its tree.
    Tree(Arc<Object>),
}

/// Returns a Status that is no error, in the form asked for.
pub fn respond_success(code: StatusCode, status: &Object, output: &Output) -> Response {
    let mut response = respond(code, output.media_type, status_body(status, output));
    response.extensions_mut().insert(Reported(Arc::new(status.clone())));
    response
}

/// What an object may come to in another form than the stored one, as a multiple of its stored text.
const FORM_MULTIPLE: usize = 3;

/// One object of the store in the form asked for. In its stored form nothing is copied: the answer refers to the file.
pub async fn respond_stored(
    renderer: Renderer,
    code: StatusCode,
    stored: &Bytes,
) -> Result<Response, Status> {
    if !renderer.is_as_stored() {
        return respond_object(renderer, code, stored).await;
    }
    Ok(respond_parts(code, &renderer, stored.clone()))
}

/// One object that was just written, in the form asked for.
pub async fn respond_object(
    mut renderer: Renderer,
    code: StatusCode,
    stored: &Bytes,
) -> Result<Response, Status> {
    if renderer.is_as_stored() {
        let charge = renderer.account().answer(stored.len()).await.map_err(Status::no_memory)?;
        return Ok(respond_parts(code, &renderer, charge.hold(stored.clone())));
    }
    let charge = renderer.account().answer(FORM_MULTIPLE * stored.len()).await.map_err(Status::no_memory)?;
    let began = Instant::now();
    let document = renderer.document(stored)?;
    request_scope::serialized(began.elapsed());
    let mut response = respond_shared(code, renderer.media_type(), charge.hold(document));
    if let Some(text) = renderer.text_beside(stored)? {
        response.extensions_mut().insert(Shown::Text(text));
    }
    Ok(response)
}

/// Returns the stored text, and the line break that ends a document.
fn respond_parts(code: StatusCode, renderer: &Renderer, stored: Bytes) -> Response {
    let mut response = respond(code, renderer.media_type(), Bytes::new());
    *response.body_mut() = Body::parts([stored, Bytes::from_static(b"\n")]);
    response
}

/// Returns an error, in the form of `output` without its transform.
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
