//! Memory charges of responses that no verb charges: documents, and responses of other servers.
//!
//! ```text
//! document of the server ─► charged by its kind before it is made ─► charged by its size
//! response of another server ─► connection charged before it is made ─► chunks charged as they come
//! any other response ─► its bytes charged when it is made, or refused
//! ```

use http::StatusCode;

use crate::requests::request::Request;
use objects::negotiate::Output;
use objects::representation::answer::respond_status;
use values::memory::{Account, Charge, FREE_ANSWER_BYTES, GeneratedDocument};
use values::status::Status;
use wire::response::Response;
use wire::server::upgrade::attach;

/// Charges of a request that another server answers: for the connection to that server, and for its response.
pub(super) struct Relay {
    connection: Charge,
    account: Account,
}

impl Relay {
    /// Charges the connection to the other server before it is opened.
    pub(super) fn begin(request: &Request<'_>) -> Result<Relay, Status> {
        let connection = request.server().operations.memory.relay().map_err(Status::no_memory)?;
        Ok(Relay { connection, account: request.account.clone() })
    }

    /// Charges the response of the other server. The charge for the connection ends with the response or the
    /// tunnel. Each chunk is charged when it arrives.
    pub(super) fn charge(self, response: Response) -> Response {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            attach(&response, self.connection);
            return response;
        }
        response.map(|body| body.charging(self.account).keeping(self.connection))
    }
}

/// Returns the kind of the document at a path outside the resource API, if the server produces this document
/// for each request. Other paths have short responses, documents that all responses share, or streams.
pub(super) fn document_at(path: &str) -> Option<GeneratedDocument> {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        "/metrics" => Some(GeneratedDocument::Metrics),
        "/metrics/slis" => Some(GeneratedDocument::Indicators),
        "/statusz" | "/flagz" => Some(GeneratedDocument::Page),
        "/" => Some(GeneratedDocument::Discovery),
        _ if is_below("/debug/pprof") => Some(GeneratedDocument::Profile),
        _ if is_below("/debug/api_priority_and_fairness") => Some(GeneratedDocument::FlowControl),
        _ if is_below("/api") || is_below("/apis") => Some(GeneratedDocument::Discovery),
        _ if is_below("/logs") => Some(GeneratedDocument::Page),
        _ => None,
    }
}

/// Charges the bytes of a response, or replaces the response by a refusal if the memory budget is used up. This
/// function does not wait for memory, because the bytes of the response would stay in memory during the wait.
pub fn charged(response: Response, account: &Account, errors: &Output) -> Response {
    let bytes = response.body().uncharged_bytes();
    if bytes <= FREE_ANSWER_BYTES {
        return response;
    }
    match account.try_answer(bytes) {
        Ok(charge) => response.map(|body| body.charged(charge)),
        Err(error) => respond_status(&Status::no_memory(error), errors),
    }
}
