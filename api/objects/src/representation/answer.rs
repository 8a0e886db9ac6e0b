//! Responses with one stored object, with a Status of success, or with the Status of an error.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::{Renderer, status_body};
use crate::negotiate::Output;
use values::json::{Object, Value};
use values::request_scope;
use values::status::Status;
use wire::response::{Response, respond, respond_shared};
use wire::server::Body;

/// The Status of a response, attached to the response as an extension. The recorder of request outcomes then
/// need not decode the response body, whose encoding depends on the client.
#[derive(Clone, Debug)]
pub struct Reported(pub Arc<Object>);

/// The object of a response that is not JSON, attached to the response as an extension. Recorders then need
/// not decode the response body.
#[derive(Clone, Debug)]
pub enum ResponseObject {
    /// The object as JSON text.
    Text(Bytes),
    /// The object as a tree.
    Tree(Arc<Object>),
}

/// Responds with a Status that is not an error, in the requested representation.
pub fn respond_success(code: StatusCode, status: &Object, output: &Output) -> Response {
    let mut response = respond(code, output.media_type, status_body(status, output));
    response.extensions_mut().insert(Reported(Arc::new(status.clone())));
    response
}

/// Upper bound of the size of an object in another encoding, as a multiple of the size of its stored text.
const FORM_MULTIPLE: usize = 3;

/// Responds with one stored object in the requested representation. If the response uses the stored form, the
/// response refers to the stored bytes without a copy.
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

/// Responds with one object that was just written, in the requested representation.
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
        response.extensions_mut().insert(ResponseObject::Text(text));
    }
    Ok(response)
}

/// Responds with the stored text and the newline at the end of a document.
fn respond_parts(code: StatusCode, renderer: &Renderer, stored: Bytes) -> Response {
    let mut response = respond(code, renderer.media_type(), Bytes::new());
    *response.body_mut() = Body::parts([stored, Bytes::from_static(b"\n")]);
    response
}

/// Responds with an error in the encoding of `output`. The transform of `output` does not apply.
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
