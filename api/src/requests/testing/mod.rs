//! The paths of the test features (docs/api/testing.md): decodes and answers the requests.
//!
//! ```text
//! document.rs ─► respond_to ─┬─ clock · faults · quiescence · recording · snapshots · watches
//!                            └─ input: strict reading of bodies
//! ```
//!
//! All bodies and answers are JSON. An unknown field of a body is an error, so that a misspelled field cannot make a
//! test pass.

mod clock;
mod faults;
mod input;
mod quiescence;
mod recording;
mod snapshots;
mod watches;

use engine::Engine;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::requests::request::Request;
use crate::state::testing::{PATHS, Testing};
use values::status::Status;
use wire::response::{Response, respond, respond_text};

/// A request for the test features.
pub(super) struct FeatureCall<'r> {
    /// The test features of the server.
    pub features: &'r Testing,
    /// The authenticated and authorized request.
    pub request: &'r Request<'r>,
    /// The store that the request may access.
    pub engine: &'r Engine,
    /// The body of the request.
    pub body: &'r [u8],
}

impl FeatureCall<'_> {
    fn method(&self) -> &Method {
        &self.request.head.method
    }
}

/// Answers a request for a path of the test features.
///
/// # Errors
/// Fails with the status to send if the request is refused or fails.
pub(super) async fn respond_to(call: FeatureCall<'_>) -> Result<Response, Status> {
    let path = call.request.info.path.strip_prefix("/testing").unwrap_or_default();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let answer = match *segments {
        [] | [""] if *call.method() == Method::GET => Ok(json!({ "paths": PATHS })),
        [] | [""] => Err(Status::method_not_allowed()),
        ["clock"] => clock::respond(&call),
        ["faults"] => faults::respond(&call),
        ["faults", id] => faults::respond_one(&call, id),
        ["quiescence"] => quiescence::respond(&call).await,
        ["requests"] => recording::respond(&call),
        ["snapshots"] => snapshots::respond(&call).await,
        ["snapshots", name] => snapshots::respond_one(&call, name).await,
        ["snapshots", name, "restore"] => snapshots::restore(&call, name).await,
        ["watches"] => watches::respond(&call),
        _ => return Ok(respond_text(StatusCode::NOT_FOUND, "404 page not found\n")),
    };
    answer.map(|answer: Value| respond(StatusCode::OK, "application/json", format!("{answer}\n")))
}
