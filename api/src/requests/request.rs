//! The type [`Request`]. The pipeline creates one value for each request, and every later stage refers to this
//! value.
//!
//! ```text
//! Exchange  contains the Request, and the progress of the request through the steps of the pipeline
//! Permitted refers to the Request, and adds the proof of its permission and its body
//! Call      refers to the Request, and adds the resource and the response of a verb
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use auth::{Authorized, User};
use http::HeaderMap;
use http::HeaderValue;
use http::request::Parts as Head;

use crate::requests::past::Past;
use crate::state::audit::Trail;
use crate::state::testing::TestedRequest;
use crate::writes::origin::Origin;
use crate::writes::server::Server;
use objects::negotiate::Output;
use objects::request::RequestInfo;
use objects::store::Pending;
use types::served::Served;
use values::memory::Account;
use values::query::Query;
use values::status::Status;
use wire::server::{ConnectionInfo, Incoming};

/// A request without its body. The pipeline fills in the authenticated and impersonated users and the audit
/// trail before it serves the request.
pub struct Request<'c> {
    /// The server, and the types that were served when the request began.
    pub origin: Origin<'c>,
    /// The connection on which the request arrived.
    pub connection: &'c ConnectionInfo,
    /// Time at which the head of the request was read.
    pub received: Instant,
    /// Method, URL and headers of the request.
    pub head: Head,
    /// Query parameters of the URL.
    pub query: Query,
    /// Parsed method and URL; empty if the URL cannot be parsed.
    pub info: Arc<RequestInfo>,
    /// ID of the request in logs and audit events.
    pub audit_id: HeaderValue,
    /// Representation of errors: the requested one, if possible.
    pub errors: Output,
    /// Whether the client requested indented text.
    pub pretty: bool,
    /// The authenticated user; `None` before authentication.
    pub user: Option<Arc<User>>,
    /// The impersonated user, if the request runs as another user.
    pub impersonated: Option<Arc<User>>,
    /// The audit trail, from authentication to the response; `None` if the request is not audited.
    pub trail: Option<Arc<Trail>>,
    /// Account that memory for the request is charged to.
    pub account: Account,
    /// Earlier point at which the request reads; `None` for the present. The pipeline sets this field before it
    /// serves the request, and sets the types in `origin` to the types at this point.
    pub past: Option<Past>,
    /// Data about this request for the test features; `None` on a server without these features.
    pub tested: Option<Box<TestedRequest>>,
}

impl<'c> Request<'c> {
    /// Returns the context of the server.
    pub fn server(&self) -> &'c Server {
        self.origin.server
    }

    /// Returns the types that were served when the request began.
    pub fn types(&self) -> &Arc<Served> {
        &self.origin.types
    }

    /// Returns the headers of the request.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// Returns the IP address of the client.
    pub fn peer(&self) -> IpAddr {
        self.connection.remote.ip()
    }

    /// Returns the audit trail, if the request is audited.
    pub fn trail(&self) -> Option<&Trail> {
        self.trail.as_deref()
    }
}

/// A permitted request, with all data that is needed to serve it.
pub struct Permitted<'e> {
    /// The request after the steps of the pipeline.
    pub request: &'e Request<'e>,
    /// Proof that the request was authorized. The proof contains the user of the request.
    pub proof: &'e Authorized<'e>,
    /// The request body, which was not read yet.
    pub incoming: Incoming,
    /// Resolves when the store has all writes that were acknowledged before the request. `None` if the
    /// pipeline did not start this check in advance.
    pub newest: Option<Pending<'e, Result<(), Status>>>,
}
