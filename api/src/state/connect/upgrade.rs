//! Upgrades that are passed on: the request goes to the target with its headers, and an answer 101 turns both
//! connections into a tunnel (docs/api/nodes.md#streams).
//!
//! What the target answers instead is the client's answer if it says failure; a success without an upgrade is an error.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::forward::{forwarded_for, passed_on};
use super::tunnel::relay;
use values::status::{Reason, Status};
use wire::outgoing::{self, Endpoint, Failure, Lease, Opened};
use wire::response::Response;
use wire::server::Shutdown;
use wire::server::upgrade::Switch;

/// A request for an upgrade.
pub struct Asked<'a> {
    /// The client's connection.
    pub switch: Switch,
    /// The method.
    pub method: &'a Method,
    /// The headers, which say to which protocol.
    pub headers: &'a HeaderMap,
    /// Address of the client.
    pub peer: IpAddr,
    /// Ends tunnels when the server does.
    pub shutdown: Shutdown,
}

/// Passes an upgrade on, and from then on all bytes. `answered_within` bounds the answer.
///
/// # Errors
/// The target was not reached, or did not answer as a server does.
pub async fn pass(
    endpoint: &Endpoint,
    asked: Asked<'_>,
    answered_within: Duration,
) -> Result<Response, Status> {
    let mut headers = asked.headers.clone();
    forwarded_for(&mut headers, asked.peer);
    match open(endpoint, asked.method, headers, answered_within).await? {
        Outcome::Refused(response) => Ok(response),
        Outcome::Agreed { headers, agent } => {
            let shutdown = asked.shutdown;
            Ok(asked.switch.take_over(headers, move |client| async move {
                let Some(agent) = agent.taken().await else { return };
                tokio::select! {
                    () = relay(client, agent) => {}
                    () = shutdown.begun() => {}
                }
            }))
        }
    }
}

/// What a target made of a request for an upgrade.
pub(super) enum Outcome {
    /// It agrees: the headers of its answer, and its connection.
    Agreed { headers: HeaderMap, agent: Agreed },
    /// It says failure.
    Refused(Response),
}

/// The connection of a target that agreed.
pub(super) struct Agreed {
    on: OnUpgrade,
    connection: Lease,
}

impl Agreed {
    /// The bytes; `None` if the connection broke.
    pub(super) async fn taken(self) -> Option<TokioIo<Upgraded>> {
        let upgraded = self.on.await.ok();
        // Its task has given the connection away by now.
        drop(self.connection);
        upgraded.map(TokioIo::new)
    }
}

/// Asks a target for an upgrade.
pub(super) async fn open(
    endpoint: &Endpoint,
    method: &Method,
    headers: HeaderMap,
    answered_within: Duration,
) -> Result<Outcome, Status> {
    let opened = request(endpoint, method, headers, answered_within).await;
    let opened = opened.map_err(|failure| match failure {
        Failure::Timeout => Status::new(Reason::Unknown, "context deadline exceeded"),
        // Whether there was a connection shows in what the dialer says.
        failure if failure.to_string().starts_with("dial tcp") || failure.to_string().contains("tls:") => {
            Status::new(Reason::Unknown, format!("error dialing backend: {failure}"))
        }
        failure => Status::new(Reason::Unknown, failure.to_string()),
    })?;
    let code = opened.response.status();
    if code == StatusCode::SWITCHING_PROTOCOLS {
        let headers = opened.response.headers().clone();
        let agent = agreed(opened);
        return Ok(Outcome::Agreed { headers, agent });
    }
    if code.as_u16() < 400 {
        let why = format!("invalid upgrade response: status code {}", code.as_u16());
        return Err(Status::new(Reason::Unknown, why));
    }
    Ok(Outcome::Refused(passed_on(opened, false)))
}

/// The connection of an answer 101.
pub(super) fn agreed(opened: Opened) -> Agreed {
    Agreed { on: hyper::upgrade::on(opened.response), connection: opened.connection }
}

/// Sends a request without a body that asks for an upgrade, and waits for the head of the answer.
pub(super) async fn request(
    endpoint: &Endpoint,
    method: &Method,
    headers: HeaderMap,
    answered_within: Duration,
) -> Result<Opened, Failure> {
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method.clone();
    *request.headers_mut() = headers;
    let answered = tokio::time::timeout(answered_within, outgoing::open(endpoint, request)).await;
    answered.unwrap_or(Err(Failure::Timeout))
}
