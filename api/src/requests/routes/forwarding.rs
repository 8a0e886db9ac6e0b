//! Requests that another server answers: an extension server, or a server on the same store
//! (docs/api/extension-servers.md#requests, docs/api/peers.md#requests-of-others).

use http::HeaderValue;

use crate::requests::request::{Permitted, Request};
use crate::requests::request_labels;
use crate::state::extension::{Extension, proxy};
use crate::state::peers;
use objects::store::Addresses;
use values::status::{Status, StatusReason};
use wire::outgoing::Guard;
use wire::response::Response;

/// Metric label for the component that ends requests for extension servers.
const AGGREGATOR: &str = "aggregator";

/// Passes on a request for a type that an extension server serves.
pub(super) async fn forward(permitted: Permitted<'_>, extension: &Extension) -> Result<Response, Status> {
    let Permitted { request, proof, incoming, .. } = permitted;
    let Request { head, info, query, .. } = request;
    let (server, peer) = (request.server(), request.peer());
    // A service that leads back to this server would pass the request on in an endless loop.
    let guard = Guard::NotOwn(server.outgoing.nodes.own_addresses().clone());
    let endpoint = extension.is_available().then(|| extension.endpoint(&server.outgoing.services));
    let endpoint = endpoint.map(|endpoint| endpoint.map(|endpoint| endpoint.guarded(guard)));
    let Some(Ok(endpoint)) = endpoint else {
        let response = proxy::unavailable();
        let mut labels = request_labels::ended(info, &head.headers, query);
        // Only known resources become label values, so that clients cannot create series.
        if !extension.has_reported(&info.resource, &info.subresource) {
            (labels.resource, labels.subresource) = ("", "");
        }
        request_labels::count_end(
            &server.operations.metrics,
            response.status(),
            AGGREGATOR,
            labels,
            &extension.path(),
        );
        return Ok(response);
    };
    let shutdown = server.operations.lifecycle.shutdown();
    let (path, user, mark) = (&*info.path, proof.user(), None);
    let claims = &server.outgoing.extensions.settings().claims;
    let forwarded = proxy::Forwarded { head, path, user, claims, peer, incoming, shutdown, mark };
    Ok(proxy::forward(&endpoint, forwarded).await)
}

/// Returns the servers on the same store that serve the requested resource, if this server does not serve it.
/// The result is empty if one of these servers passed on the request.
pub(super) fn servers_of_missing_resource(request: &Request<'_>) -> Vec<String> {
    let (server, types, info) = (request.server(), request.types(), &request.info);
    let is_here = || types.registry().resource(&info.group, &info.version, &info.resource).is_some();
    let was_passed_on = || request.headers().get(&peers::PASSED_ON).is_some_and(|value| value == "true");
    if !info.is_resource || !server.outgoing.peers.passes_on() || is_here() || was_passed_on() {
        return Vec::new();
    }
    server.outgoing.peers.serving(&info.group, &info.version, &info.resource)
}

/// Forwards a request for a resource that this server does not serve. The target is one of `servers`, which
/// are the servers on the same store that serve the resource.
pub(super) async fn pass_on(permitted: Permitted<'_>, servers: Vec<String>) -> Result<Response, Status> {
    let Permitted { request, proof, incoming, .. } = permitted;
    let Request { head, info, .. } = request;
    let (server, peer) = (request.server(), request.peer());
    let addresses = match server.store.ledger() {
        Some(ledger) => ledger.announced().await?,
        None => Addresses::new(),
    };
    let reached = servers.iter().filter_map(|peer| addresses.get(peer).cloned()).collect();
    let endpoint = server.outgoing.peers.one_of(reached).and_then(|(host, port)| {
        let endpoint = server.outgoing.peers.at(host, port);
        endpoint.inspect_err(|why| tracing::warn!(why, "request not forwarded to a peer")).ok()
    });
    let Some(endpoint) = endpoint else {
        let message = "Error getting ip and port info of the remote server while proxying";
        return Err(Status::new(StatusReason::ServiceUnavailable, message));
    };
    let shutdown = server.operations.lifecycle.shutdown();
    let mark = Some((peers::PASSED_ON, HeaderValue::from_static("true")));
    let (path, user) = (&*info.path, proof.user());
    let claims = &server.outgoing.extensions.settings().claims;
    let forwarded = proxy::Forwarded { head, path, user, claims, peer, incoming, shutdown, mark };
    let response = proxy::forward(&endpoint, forwarded).await;
    let code = response.status();
    server.operations.metrics.rerouted.count(&[code.as_str(), &info.group, &info.resource, &info.version]);
    Ok(response)
}
