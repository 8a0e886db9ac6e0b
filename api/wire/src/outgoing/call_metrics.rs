//! Metrics of outgoing calls: numbers, outcomes, and durations until the head of the response.
//!
//! Endpoints are created in many modules that do not depend on the metrics. Every endpoint has an egress, and
//! the egress has a reference to the families in which calls are counted.

use std::time::Instant;

use http::{Method, StatusCode};

use crate::metrics::families::Calls;

/// Counts a call to `host` that began at `began`; a call without a code failed.
pub(super) fn counted(
    calls: &Calls,
    host: &str,
    port: u16,
    method: &Method,
    code: Option<StatusCode>,
    began: Instant,
) {
    let host = format!("{host}:{port}");
    let code = code.map_or_else(|| "<error>".to_owned(), |code| code.as_u16().to_string());
    calls.requests.count(&[&code, &host, method.as_str()]);
    calls.durations.time(&[&host, method.as_str()], began.elapsed());
}

/// Step at which a connection through an egress proxy failed.
#[derive(Clone, Copy)]
pub(super) enum DialStage {
    /// The proxy could not be reached.
    Connect,
    /// The proxy could not reach the other server.
    Proxy,
}

/// Counts a connection through an egress proxy. `labels` are the protocol and the transport of the proxy;
/// `began` is the start time of the attempt.
pub(super) fn tunnelled(calls: &Calls, labels: [&str; 2], outcome: Result<(), DialStage>, began: Instant) {
    let [protocol, transport] = labels;
    calls.tunnels_begun.count(&labels);
    match outcome {
        Ok(()) => calls.tunnel_durations.time(&labels, began.elapsed()),
        Err(stage) => {
            let stage = match stage {
                DialStage::Connect => "connect",
                DialStage::Proxy => "proxy",
            };
            calls.tunnel_failures.count(&[protocol, transport, stage]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use http::HeaderMap;

    use super::*;
    use crate::outgoing::{Endpoint, Networks, get};

    #[tokio::test]
    async fn outgoing_calls_are_counted_in_the_metrics_of_their_own_server() {
        let [one, other] = [(); 2].map(|()| Arc::<Calls>::default());
        // The socket keeps the port, so no other process gets the port, but it does not listen.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        let endpoint = Endpoint::at_port("127.0.0.1", port, "/", None).unwrap();
        let failed = |calls: &Calls| {
            let series = calls.requests.series(&["<error>", &format!("127.0.0.1:{port}"), "GET"]);
            series.map_or(0, |count| count.load(Ordering::Relaxed))
        };
        for (calls, expected) in [(&one, [1, 0]), (&one, [2, 0]), (&other, [2, 1])] {
            let networks = Networks::default().counted(calls);
            let endpoint = endpoint.clone().through(&networks.cluster);
            assert!(get(&endpoint, HeaderMap::new(), Duration::from_secs(60)).await.is_err());
            assert_eq!([&one, &other].map(|calls| failed(calls)), expected);
        }
        assert!(get(&endpoint, HeaderMap::new(), Duration::from_secs(60)).await.is_err());
        assert_eq!([&one, &other].map(|calls| failed(calls)), [2, 1]);
    }
}
