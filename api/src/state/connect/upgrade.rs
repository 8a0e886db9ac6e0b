//! Forwards upgrades: the server sends the request with its headers to the target, and a 101 turns both
//! connections into a tunnel (docs/api/nodes.md#streams).
//!
//! An error response of the target is forwarded to the client. A successful response without an upgrade is an
//! error.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::forward::{forwarded_for, passed_on};
use super::tunnel::relay;
use values::status::{Status, StatusReason};
use wire::outgoing::{self, Endpoint, Failure, Lease, Opened};
use wire::response::Response;
use wire::server::Shutdown;
use wire::server::upgrade::Switch;

/// A request for an upgrade.
pub struct UpgradeRequest<'a> {
    /// The client's connection, which can be switched.
    pub switch: Switch,
    /// The HTTP method of the request.
    pub method: &'a Method,
    /// The headers, which name the protocol.
    pub headers: &'a HeaderMap,
    /// Address of the client.
    pub peer: IpAddr,
    /// Ends tunnels when the server drains.
    pub shutdown: Shutdown,
}

/// Forwards an upgrade, and all bytes that follow the upgrade. `answered_within` limits the time until the
/// response.
///
/// # Errors
/// The target was not reached, or its response is invalid.
pub async fn pass(
    endpoint: &Endpoint,
    request: UpgradeRequest<'_>,
    answered_within: Duration,
) -> Result<Response, Status> {
    let mut headers = request.headers.clone();
    forwarded_for(&mut headers, request.peer);
    match open(endpoint, request.method, headers, answered_within).await? {
        UpgradeOutcome::Refused(response) => Ok(response),
        UpgradeOutcome::Agreed { headers, agent } => {
            let shutdown = request.shutdown;
            Ok(request.switch.take_over(headers, move |client| async move {
                let Some(agent) = agent.into_stream().await else { return };
                tokio::select! {
                    () = relay(client, agent) => {}
                    () = shutdown.wait_for_drain() => {}
                }
            }))
        }
    }
}

/// The response of a target to a request for an upgrade.
pub(super) enum UpgradeOutcome {
    /// The target accepted: the headers of its response, and its connection.
    Agreed { headers: HeaderMap, agent: UpgradedConnection },
    /// The target returned an error.
    Refused(Response),
}

/// The connection of a target that accepted the upgrade.
pub(super) struct UpgradedConnection {
    on: OnUpgrade,
    connection: Lease,
}

impl UpgradedConnection {
    /// Returns the byte stream; `None` if the connection failed.
    pub(super) async fn into_stream(self) -> Option<TokioIo<Upgraded>> {
        let upgraded = self.on.await.ok();
        // At this point the task of the connection has handed the connection over.
        drop(self.connection);
        upgraded.map(TokioIo::new)
    }
}

/// Requests an upgrade from a target.
pub(super) async fn open(
    endpoint: &Endpoint,
    method: &Method,
    headers: HeaderMap,
    answered_within: Duration,
) -> Result<UpgradeOutcome, Status> {
    let opened = request(endpoint, method, headers, answered_within).await;
    let opened = opened.map_err(|failure| match failure {
        Failure::Timeout => Status::new(StatusReason::Unknown, "context deadline exceeded"),
        // The message of the dialer shows whether a connection was established.
        failure if failure.to_string().starts_with("dial tcp") || failure.to_string().contains("tls:") => {
            Status::new(StatusReason::Unknown, format!("error dialing backend: {failure}"))
        }
        failure => Status::new(StatusReason::Unknown, failure.to_string()),
    })?;
    let code = opened.response.status();
    if code == StatusCode::SWITCHING_PROTOCOLS {
        let headers = opened.response.headers().clone();
        let agent = agreed(opened);
        return Ok(UpgradeOutcome::Agreed { headers, agent });
    }
    if code.as_u16() < 400 {
        let why = format!("invalid upgrade response: status code {}", code.as_u16());
        return Err(Status::new(StatusReason::Unknown, why));
    }
    Ok(UpgradeOutcome::Refused(passed_on(opened, false)))
}

/// Returns the connection of a 101 response.
pub(super) fn agreed(opened: Opened) -> UpgradedConnection {
    UpgradedConnection { on: hyper::upgrade::on(opened.response), connection: opened.connection }
}

/// Sends a request without a body for an upgrade, and waits for the head of the response.
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
