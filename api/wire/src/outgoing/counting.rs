//! The numbers of outgoing calls: how many, with which outcome, and how long they took until the head of the answer.
//!
//! Endpoints are made in many places, and none of them knows the metrics: a process has one place where its calls are
//! counted.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::{Method, StatusCode};

use super::{Endpoint, Failure};
use crate::metrics::Metrics;

/// Where calls are counted, once it is known.
static COUNTED: OnceLock<Arc<Metrics>> = OnceLock::new();

/// Counts all calls of the process from now on. The first to ask gets them.
pub fn count_in(metrics: &Arc<Metrics>) {
    let _ = COUNTED.set(metrics.clone());
}

/// Counts a call that has no connection.
pub(super) async fn counted_without<C>(
    endpoint: &Endpoint,
    method: &Method,
    connecting: impl Future<Output = Result<C, Failure>>,
) -> Result<C, Failure> {
    let began = Instant::now();
    connecting.await.inspect_err(|_| counted(endpoint, method, None, began))
}

/// Counts a call that began then; without a code it failed.
pub(super) fn counted(endpoint: &Endpoint, method: &Method, code: Option<StatusCode>, began: Instant) {
    let Some(metrics) = COUNTED.get() else { return };
    let (host, port) = endpoint.address();
    let host = format!("{host}:{port}");
    let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_u16().to_string());
    metrics.outgoing.requests.count(&[&code, &host, method.as_str()]);
    metrics.outgoing.durations.time(&[&host, method.as_str()], began.elapsed());
}

/// Where a connection through the proxy of a network failed.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// The proxy was not reached.
    Connect,
    /// It did not reach the other server.
    Proxy,
}

/// Counts a connection that was begun then through the proxy of a network, by its protocol and transport.
pub(super) fn tunnelled(labels: [&str; 2], outcome: Result<(), Stage>, began: Instant) {
    let Some(metrics) = COUNTED.get() else { return };
    let [protocol, transport] = labels;
    metrics.outgoing.tunnels_begun.count(&labels);
    match outcome {
        Ok(()) => metrics.outgoing.tunnel_durations.time(&labels, began.elapsed()),
        Err(stage) => {
            let stage = match stage {
                Stage::Connect => "connect",
                Stage::Proxy => "proxy",
            };
            metrics.outgoing.tunnel_failures.count(&[protocol, transport, stage]);
        }
    }
}
