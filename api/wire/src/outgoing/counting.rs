//! Metrics of outgoing calls: numbers, outcomes, and durations until the head of the response.
//!
//! Endpoints are created in many modules that do not know the metrics, so the metrics of the process are a
//! global variable of this module.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::{Method, StatusCode};

use crate::metrics::Metrics;

/// Metrics in which calls are counted, once they are set.
static COUNTED: OnceLock<Arc<Metrics>> = OnceLock::new();

/// Counts all calls of the process in `metrics` from now on. Only the first call of this function has an
/// effect.
pub fn count_in(metrics: &Arc<Metrics>) {
    let _ = COUNTED.set(metrics.clone());
}

/// Counts a call that began at `began`; a call without a code failed.
pub(super) fn counted(host: &str, port: u16, method: &Method, code: Option<StatusCode>, began: Instant) {
    let Some(metrics) = COUNTED.get() else { return };
    let host = format!("{host}:{port}");
    let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_u16().to_string());
    metrics.outgoing.requests.count(&[&code, &host, method.as_str()]);
    metrics.outgoing.durations.time(&[&host, method.as_str()], began.elapsed());
}

/// Step at which a connection through an egress proxy failed.
#[derive(Clone, Copy)]
pub(super) enum Stage {
    /// The proxy could not be reached.
    Connect,
    /// The proxy could not reach the other server.
    Proxy,
}

/// Counts a connection through an egress proxy that was begun at `began`, by its protocol and transport.
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
