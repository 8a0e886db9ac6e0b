//! The memory of answers that no verb charges: documents, and answers that other servers make.
//!
//! ```text
//! document of the server ─► charged by its kind before it is made ─► charged by its size
//! answer of another server ─► connection charged before it is made ─► chunks charged as they come
//! any other answer ─► its bytes charged when it is made, or refused
//! ```

use http::StatusCode;

use super::Permitted;
use objects::negotiate::Output;
use objects::representation::answer::respond_status;
use values::memory::{Account, Charge, Document, FREE_ANSWER_BYTES};
use values::status::Status;
use wire::response::Response;
use wire::server::upgrade::attach;

/// The charges of a request that another server answers: for the connection to that server, and for its answer.
pub(super) struct Relay {
    connection: Charge,
    account: Account,
}

impl Relay {
    /// Charges the connection to the other server before it is made.
    pub(super) fn begin(request: &Permitted<'_>) -> Result<Relay, Status> {
        let connection = request.context.memory().relay().map_err(Status::no_memory)?;
        Ok(Relay { connection, account: request.account.clone() })
    }

    /// The answer of the other server: its connection is charged until the answer or the tunnel has ended, and its chunks as
    /// they come.
    pub(super) fn charge(self, response: Response) -> Response {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            attach(&response, self.connection);
            return response;
        }
        response.map(|body| body.charging(self.account).keeping(self.connection))
    }
}

/// The kind of document that a path outside the resource API leads to, where one is made for each answer. Other paths have
/// short answers, documents that all answers share, or streams.
pub(super) fn document_at(path: &str) -> Option<Document> {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match path {
        "/metrics" => Some(Document::Metrics),
        "/metrics/slis" => Some(Document::Indicators),
        "/statusz" | "/flagz" => Some(Document::Page),
        "/" => Some(Document::Discovery),
        _ if is_below("/debug/pprof") => Some(Document::Profile),
        _ if is_below("/debug/api_priority_and_fairness") => Some(Document::FlowControl),
        _ if is_below("/api") || is_below("/apis") => Some(Document::Discovery),
        _ if is_below("/logs") => Some(Document::Page),
        _ => None,
    }
}

/// The answer with its bytes charged, or the refusal that there is no room for it. It does not wait: the bytes are there, and
/// would be there while it waits.
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
