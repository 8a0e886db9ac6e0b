//! Availability of extension servers: each extension server is checked independently, and its APIService and
//! the discovery documents contain the result (docs/api/extension-servers.md#availability).
//!
//! ```text
//! begin ─► one check of each server ─────► ended ─► tell ─┬─► condition Available ─► store
//!            └ running check: again at its end             └─► questions (extension_documents.rs) ─► documents
//! ```
//!
//! A server that responds slowly delays only its own result. The availability of a server does not wait for
//! its discovery and OpenAPI documents.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use hashbrown::HashMap;
use http::header::{ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, HeaderValue};

use super::WRITES_MAX;
use super::api_service_objects::{GROUP, all, target};
use super::condition::Condition;
use super::extension_documents::{asker, learn};
use crate::state::extension::{Extension, identify};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use values::json::{Object, Value};
use values::status::Status;
use wire::outgoing::{self, Service};

/// Time limit of one request, and number of attempts before a server counts as unavailable.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 5;

/// User agent of the request, which is the user agent of Go's HTTP client.
const AGENT: &str = "Go-http-client/1.1";

/// Error message for a server that exceeds the time limit.
const TIMED_OUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

/// Running checks and running queries of documents: at most one check and one query for each APIService.
pub(super) struct Checks<'a> {
    server: &'a Server,
    running: FuturesUnordered<BoxFuture<'a, Ended>>,
    checked: Turns,
    queried: Turns,
}

/// The APIServices for which an operation is running. The value is true if the operation must be repeated after its
/// end.
#[derive(Default)]
struct Turns(HashMap<String, bool>);

impl Turns {
    /// Returns whether the operation may begin now. An operation that is running already is marked to be
    /// repeated.
    fn begin(&mut self, name: &str) -> bool {
        if let Some(again) = self.0.get_mut(name) {
            *again = true;
            return false;
        }
        self.0.insert(name.to_owned(), false);
        true
    }

    /// Ends the operation. Returns whether the operation must be repeated.
    fn end(&mut self, name: &str) -> bool {
        self.0.remove(name) == Some(true)
    }
}

/// An operation that has ended.
pub(super) enum Ended {
    Check(AvailabilityResult),
    Questions(Arc<Extension>),
}

/// The result of a check.
pub(super) struct AvailabilityResult {
    extension: Arc<Extension>,
    verdict: Result<(), Unavailable>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(server: &'a Server) -> Checks<'a> {
        Checks {
            server,
            running: FuturesUnordered::new(),
            checked: Turns::default(),
            queried: Turns::default(),
        }
    }

    /// Begins checks of the selected extension servers. A running check is repeated after it ends.
    pub(super) fn begin(&mut self, which: impl Fn(&Extension) -> bool) {
        let server = self.server;
        for extension in server.outgoing.extensions.all() {
            if which(&extension) && self.checked.begin(&extension.name) {
                let check = async move {
                    Ended::Check(AvailabilityResult { verdict: check(server, &extension).await, extension })
                };
                self.running.push(check.boxed());
            }
        }
    }

    /// Begins to query the documents of an extension server. A running query is repeated after it ends.
    fn begin_query(&mut self, extension: Arc<Extension>) {
        let server = self.server;
        if self.queried.begin(&extension.name) {
            let query = async move {
                learn(server, &extension).await;
                Ended::Questions(extension)
            };
            self.running.push(query.boxed());
        }
    }

    /// Waits until an operation has ended, and returns all operations that have ended. This function is cancel
    /// safe.
    pub(super) async fn ended(&mut self) -> Vec<Ended> {
        let Some(first) = self.running.next().await else { return std::future::pending().await };
        let mut ended = vec![first];
        while let Some(Some(next)) = self.running.next().now_or_never() {
            ended.push(next);
        }
        ended
    }

    /// Publishes the results. The conditions are written concurrently, so that they share syncs. If a write
    /// is refused, its error is returned after the other writes.
    pub(super) async fn publish(&mut self, ended: Vec<Ended>) -> Result<(), Status> {
        let server = self.server;
        let mut is_changed = false;
        let mut found = Vec::new();
        for ended in ended {
            match ended {
                Ended::Check(checked) => {
                    let extension = checked.extension.clone();
                    let again = self.checked.end(&extension.name);
                    // The result of a server that was replaced or removed in the meantime is dropped.
                    if server.outgoing.extensions.has(&extension) {
                        is_changed |= extension.set_available(checked.verdict.is_ok());
                        if checked.verdict.is_ok() {
                            self.begin_query(extension.clone());
                        }
                        found.push(checked);
                    }
                    if again {
                        self.begin(|other| other.name == extension.name);
                    }
                }
                Ended::Questions(extension) => {
                    // The server may have been replaced in the meantime.
                    let again = self.queried.end(&extension.name);
                    let mut all = server.outgoing.extensions.all().into_iter();
                    if again && let Some(now) = all.find(|other| other.name == extension.name) {
                        self.begin_query(now);
                    }
                }
            }
        }
        if is_changed {
            server.show_foreign();
        }
        let reports = found.into_iter().map(|AvailabilityResult { extension, verdict }| async move {
            let (status, reason, message) = match verdict {
                Ok(()) => ("True", "Passed", "all checks passed".to_owned()),
                Err((reason, message)) => ("False", reason, message),
            };
            report(server, &extension.name, status, reason, &message).await
        });
        let mut outcomes = stream::iter(reports).buffer_unordered(WRITES_MAX);
        let mut result = Ok(());
        while let Some(outcome) = outcomes.next().await {
            result = result.and(outcome);
        }
        result
    }
}

/// Reason and message of an unavailable server.
type Unavailable = (&'static str, String);

/// Checks the service of an extension server, and queries the server's version.
async fn check(server: &Server, extension: &Extension) -> Result<(), Unavailable> {
    let Service { namespace, name, port } = &extension.service;
    let snapshot = server.store.engine().snapshot();
    let failed = |status: Status| {
        (
            "ServiceAccessError",
            format!("service/{name} in \"{namespace}\" cannot be checked due to: {status}"),
        )
    };
    let loopback = Loopback::new(server);
    let resource = loopback.resource(&target("", "services", "")).map_err(failed)?;
    let stored = snapshot.get(&store::key(resource, namespace, name));
    let stored = stored.map(|entry| store::read(entry).and_then(|stored| stored.object(resource)));
    let Some(service) = stored.transpose().map_err(failed)? else {
        return Err(("ServiceNotFound", format!("service/{name} in \"{namespace}\" is not present")));
    };
    let spec = service.get("spec").unwrap_or(&Value::Null);
    if spec.str_at(&["type"]) == "ClusterIP" {
        let ports = spec.get("ports").and_then(Value::as_array).unwrap_or_default();
        let found = ports.iter().find(|one| one.get("port").and_then(Value::as_i64) == Some((*port).into()));
        let Some(found) = found else {
            let message = format!("service/{name} in \"{namespace}\" is not listening on port {port}");
            return Err(("ServicePortError", message));
        };
        let slices = loopback.resource(&target("discovery", "endpointslices", "")).map_err(failed)?;
        let label = format!("{}/service-name", server.types.naming.domain);
        let of_service = |slice: &Value| slice.str_at(&["metadata", "labels", &label]) == name;
        let slices: Vec<Value> = all(&snapshot, slices, namespace).into_iter().filter(of_service).collect();
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in \"{namespace}\"");
            return Err(("EndpointsNotFound", message));
        }
        let port_name = found.str_at(&["name"]);
        if !slices.iter().any(|slice| has_endpoints(slice, port_name)) {
            let message = format!(
                "endpointslices for service/{name} in \"{namespace}\" have no addresses with port name \"{port_name}\""
            );
            return Err(("MissingEndpoints", message));
        }
    }
    query_resources(server, extension).await.map_err(|why| ("FailedDiscoveryCheck", why))
}

/// Returns whether a slice has an endpoint that listens on a port.
fn has_endpoints(slice: &Value, port_name: &str) -> bool {
    let list = |name: &str| slice.get(name).and_then(Value::as_array).unwrap_or_default();
    let is_ready = |endpoint: &Value| {
        endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool).unwrap_or(true)
            && endpoint.get("addresses").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    };
    list("ports").iter().any(|port| port.str_at(&["name"]) == port_name)
        && list("endpoints").iter().any(is_ready)
}

/// Queries the resources of a server's version. Any successful response is sufficient.
async fn query_resources(server: &Server, extension: &Extension) -> Result<(), String> {
    let endpoint = extension.endpoint(&server.outgoing.services)?;
    let url = endpoint.url().clone();
    let mut headers = HeaderMap::new();
    identify(&mut headers, &asker())?;
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match outgoing::get(&endpoint, headers.clone(), ANSWERED_WITHIN).await {
            Ok((code, _)) if code.is_success() => return Ok(()),
            Ok((code, _)) => why = format!("bad status from {url}: {}", code.as_u16()),
            Err(outgoing::Failure::Timeout) => {
                why = format!("Get \"{url}\": {TIMED_OUT}");
                break;
            }
            Err(failure) => {
                why = failure.to_string();
                if let Some(call) = why.strip_suffix(": context deadline exceeded") {
                    why = format!("{call}: {TIMED_OUT}");
                    break;
                }
            }
        }
    }
    Err(format!("failing or missing response from {url}: {why}"))
}

/// Reports an APIService without an extension server as available.
pub(super) async fn report_local(server: &Server, name: &str) -> Result<(), Status> {
    report(server, name, "True", "Local", "Local APIServices are always available").await
}

/// Writes the condition Available, if it differs from the stored condition.
async fn report(
    server: &Server,
    name: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<(), Status> {
    let metrics = &server.operations.metrics;
    let is_unavailable = status == "False";
    if metrics
        .unavailable
        .series(&[name])
        .is_some_and(|before| before.swap(is_unavailable.into(), Ordering::Relaxed) == 0 && is_unavailable)
    {
        metrics.became_unavailable.count(&[name, reason]);
    }
    let loopback = Loopback::new(server);
    let resource = loopback.resource(&target(GROUP, "apiservices", ""))?;
    let condition = Condition { kind: "Available", status, reason, message };
    let make = |old: &Object| {
        let conditions = old.get("status").and_then(|status| status.get("conditions"));
        let mut conditions = conditions.and_then(Value::as_array).unwrap_or_default().to_vec();
        if condition.is_in(&conditions) {
            return None;
        }
        condition.put(&mut conditions);
        let mut new = old.clone();
        new.object_entry("status").insert("conditions", Value::Array(conditions));
        Some(new)
    };
    loopback.change(resource, ObjectName::cluster_scoped(name), Endpoint::Status, make).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writes::write::server_fixture::TestServer;
    use values::json::parse;

    const API_SERVICE: &str = r#"{"metadata":{"name":"v1.g.io"},"spec":{"group":"g.io","version":"v1",
        "groupPriorityMinimum":1,"versionPriority":1,"insecureSkipTLSVerify":true,
        "service":{"namespace":"n","name":"s","port":1}}}"#;

    /// Returns a service with these ports.
    fn service(ports: &str) -> String {
        format!(r#"{{"metadata":{{"name":"s"}},"spec":{{"clusterIP":"10.0.0.9","ports":[{ports}]}}}}"#)
    }

    /// Returns an endpoint slice of the service, with one endpoint that is ready if `ready` is set.
    fn slice(name: &str, port: &str, ready: bool) -> String {
        format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"kubernetes.io/service-name":"s"}}}},"addressType":"IPv4",
                "ports":[{{"name":"{port}","port":7}}],
                "endpoints":[{{"addresses":["10.1.0.1"],"conditions":{{"ready":{ready}}}}}]}}"#
        )
    }

    #[tokio::test]
    async fn the_available_condition_names_the_reason_of_unavailability() {
        let server = TestServer::start();
        server.send("POST /api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
        let made = server.send("POST /apis/apiregistration.k8s.io/v1/apiservices", API_SERVICE).await;
        assert_eq!(made.0, 201, "{made:?}");
        let services = "/api/v1/namespaces/n/services";
        let slices = "/apis/discovery.k8s.io/v1/namespaces/n/endpointslices";
        let external =
            r#"{"metadata":{"name":"s"},"spec":{"type":"ExternalName","externalName":"localhost"}}"#;
        let refused = "failing or missing response from https://localhost:1/apis/g.io/v1: Get \
                       \"https://localhost:1/apis/g.io/v1\": dial tcp 127.0.0.1:1: connect: connection refused";
        // Columns: the object that is written first, and the condition afterwards.
        for (request, body, reason, message) in [
            ("", String::new(), "ServiceNotFound", r#"service/s in "n" is not present"#),
            (
                &format!("POST {services}"),
                service(r#"{"name":"p","port":2}"#),
                "ServicePortError",
                r#"service/s in "n" is not listening on port 1"#,
            ),
            (
                &format!("MERGE {services}/s"),
                service(r#"{"name":"p","port":1}"#),
                "EndpointsNotFound",
                r#"cannot find endpointslices for service/s in "n""#,
            ),
            (
                &format!("POST {slices}"),
                slice("other", "q", true),
                "MissingEndpoints",
                r#"endpointslices for service/s in "n" have no addresses with port name "p""#,
            ),
            (
                &format!("POST {slices}"),
                slice("waits", "p", false),
                "MissingEndpoints",
                r#"endpointslices for service/s in "n" have no addresses with port name "p""#,
            ),
            (
                &format!("DELETE {services}/s"),
                String::new(),
                "ServiceNotFound",
                r#"service/s in "n" is not present"#,
            ),
            (&format!("POST {services}"), external.to_owned(), "FailedDiscoveryCheck", refused),
        ] {
            if !request.is_empty() {
                let (code, _, answer) = server.send(request, &body).await;
                assert!(code < 300, "{request}: {code} {answer:?}");
            }
            server.outgoing.extensions.configure(&[parse(API_SERVICE.as_bytes()).unwrap()], |_| false);
            let mut checks = Checks::new(&server);
            checks.begin(|_| true);
            let ended = checks.ended().await;
            checks.publish(ended).await.unwrap();
            let path = "GET /apis/apiregistration.k8s.io/v1/apiservices/v1.g.io";
            let (_, _, shown) = server.send(path, "").await;
            let conditions = shown.at(&["status", "conditions"]).and_then(Value::as_array).unwrap();
            let members = ["type", "status", "reason", "message"].map(|name| conditions[0].str_at(&[name]));
            assert_eq!(
                (conditions.len(), members),
                (1, ["Available", "False", reason, message]),
                "{request}"
            );
        }
    }
}
