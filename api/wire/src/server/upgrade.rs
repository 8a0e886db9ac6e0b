//! Connections that change from HTTP to another protocol. The request asks for the change, and the response
//! is 101. From then on a task owns the byte stream.
//!
//! ```text
//! request ─Switch::asked─► Switch ─take_over(101, task)─► response
//!                                                         └─► task: bytes in both directions, until it ends
//! ```
//!
//! The task holds the `ConnectionInfo` of the connection, so the connection still counts as open. The task
//! also holds, until its end, the values that other modules attach to the response ([`attach`]). Only
//! HTTP/1.1 has such upgrades. This module is independent of the protocol after the upgrade.

use std::any::Any;
use std::sync::Arc;

use futures_util::FutureExt;
use http::header::{CONNECTION, HeaderMap, HeaderName, UPGRADE};
use http::{StatusCode, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use super::{Body, ConnectionInfo, Request, Response};

/// The byte stream of a connection that no longer uses HTTP.
pub type UpgradedStream = TokioIo<Upgraded>;

/// Values that live as long as the task that took over a connection.
#[derive(Clone, Default)]
struct Attached(Arc<Mutex<Vec<Box<dyn Any + Send>>>>);

/// A connection whose client asked for a change to another protocol.
#[derive(Clone)]
pub struct Switch {
    on: OnUpgrade,
    connection: Arc<ConnectionInfo>,
}

impl Switch {
    /// Returns the change of protocols that the request asks for, if any.
    pub fn requested(request: &Request, connection: &Arc<ConnectionInfo>) -> Option<Self> {
        let is_requested = request.version() == Version::HTTP_11 && requests_upgrade(request.headers());
        let on = request.extensions().get::<OnUpgrade>().filter(|_| is_requested)?.clone();
        Some(Switch { on, connection: connection.clone() })
    }

    /// Answers 101 with `headers`, and passes the connection to `task`.
    pub fn take_over<F, T>(self, headers: HeaderMap, task: T) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
        T: FnOnce(UpgradedStream) -> F + Send + 'static,
    {
        let Switch { on, connection } = self;
        let attached = Attached::default();
        let held = attached.clone();
        let upgraded = async move {
            match on.await {
                // Boxed, because the task may live for days and should not keep the space that its creation
                // needed.
                Ok(upgraded) => Box::pin(task(TokioIo::new(upgraded))).await,
                Err(error) => tracing::debug!(%error, "connection not upgraded"),
            }
            held.0.lock().clear();
            drop(connection);
        };
        tokio::spawn(upgraded.boxed());
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers;
        response.extensions_mut().insert(attached);
        response
    }
}

/// Keeps `held` until the task that takes over the connection has ended. If no task takes over the
/// connection, `held` is dropped at once.
pub fn attach<T: Send + 'static>(response: &Response, held: T) {
    if let Some(attached) = response.extensions().get::<Attached>() {
        attached.0.lock().push(Box::new(held));
    }
}

/// Returns whether headers ask for another protocol.
pub fn requests_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE) && has_token(headers, &CONNECTION, "upgrade")
}

/// Returns whether a header with a list of tokens, in one value or several, contains this token, ignoring
/// case.
pub fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}
