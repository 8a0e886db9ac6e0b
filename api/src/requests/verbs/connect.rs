//! Connections through the server: exec, attach and portforward, which a node's agent answers, and the
//! proxies to nodes, pods and services (docs/api/nodes.md).
//!
//! `options ─► admission ─► permission to create ─► target ─► upgrade or request (crate::state::connect)`
//!
//! The code after admission reads the options that admission returns, not the query, because plugins may have
//! changed the options.

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};

use super::{Call, Wire, admit};
use crate::state::connect::forward::{encode, encoded_path, without_credentials};
use crate::state::connect::proxy::{self, ProxyRequest};
use crate::state::connect::target::{Agent, Name};
use crate::state::connect::upgrade::{self, UpgradeRequest};
use crate::state::connect::{AGENT_ANSWER_TIMEOUT, SERVICE_ANSWER_TIMEOUT, exec, portforward};
use objects::store::{self, Component};
use types::attributes::Selection;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::{at, meta};
use values::status::{Status, Subject};
use wire::outgoing::Endpoint;
use wire::response::Response;
use wire::server::upgrade::Switch;

/// Answers a permitted request.
///
/// # Errors
/// A plugin or an authorizer refused, an object does not exist, or the target cannot be reached.
pub async fn connect(call: &mut Call<'_>) -> Result<Response, Status> {
    if call.request.query.first("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let options = admit::connect(call).await?;
    let Some(wire) = call.wire.take() else { return Err(Status::method_not_allowed()) };
    if call.info.subresource == "proxy" {
        return to_target(call, wire, text(&options, "path")).await;
    }
    to_agent(call, wire, &options).await
}

/// Connects to the agent of a node, for exec, attach and portforward.
async fn to_agent(call: &Call<'_>, wire: Wire, options: &Object) -> Result<Response, Status> {
    // Permission to get a pod does not permit exec, even if a GET request opens the connection.
    call.server().access.authorize_create(call.proof).await?;
    let pod = stored_object(call, call.resource, &call.info.name)?;
    let subresource = call.info.subresource.as_str();
    let (namespace, name) = (meta(&pod, "namespace"), meta(&pod, "name"));
    let path = match subresource {
        "portforward" => format!("/portForward/{namespace}/{name}"),
        verb => format!("/{verb}/{namespace}/{name}/{}", container(call, &pod, text(options, "container"))?),
    };
    if text(&pod, "spec.nodeName").is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let agent = agent_of(call, &pod)?;
    let endpoint =
        call.server().outgoing.nodes.of_agent(&agent, &target_of(subresource, options, &path), true)?;
    let Some(switch) = wire.switch.clone() else {
        return Err(Status::bad_request("Upgrade request required"));
    };
    let headers = without_credentials(call.request.headers());
    let shutdown = call.server().operations.lifecycle.shutdown();
    match call.upgrade.clone().filter(|_| !agent.takes_websockets) {
        Some(upgrade) if subresource != "portforward" && exec::offers_protocol(&headers) => {
            let streams = exec::Streams {
                stdin: flag(options, "stdin"),
                stdout: flag(options, "stdout"),
                stderr: flag(options, "stderr"),
                tty: flag(options, "tty"),
            };
            Ok(exec::pass(endpoint, upgrade, streams, shutdown, AGENT_ANSWER_TIMEOUT))
        }
        Some(upgrade) if subresource == "portforward" && portforward::offers_protocol(&headers) => {
            let request = upgrade_request(switch, &headers, call);
            portforward::pass(&endpoint, upgrade, request, AGENT_ANSWER_TIMEOUT).await
        }
        _ => upgrade::pass(&endpoint, upgrade_request(switch, &headers, call), AGENT_ANSWER_TIMEOUT).await,
    }
}

fn upgrade_request<'a>(switch: Switch, headers: &'a HeaderMap, call: &Call<'a>) -> UpgradeRequest<'a> {
    let shutdown = call.server().operations.lifecycle.shutdown();
    let request = call.request;
    UpgradeRequest { switch, method: &request.head.method, headers, peer: request.peer(), shutdown }
}

/// Returns the path and query for the agent. The query contains the options, sorted, with the parameter names
/// that agents use.
fn target_of(subresource: &str, options: &Object, path: &str) -> String {
    let all = |name: &str| options.get(name).and_then(Value::as_array).unwrap_or_default();
    let mut pairs: Vec<(&str, String)> = Vec::new();
    if subresource == "portforward" {
        let ports: Vec<String> =
            all("ports").iter().filter_map(Value::as_i64).map(|port| port.to_string()).collect();
        pairs.extend((!ports.is_empty()).then(|| ("port", ports.join(","))));
    } else {
        let words = all("command").iter().filter_map(Value::as_str);
        pairs.extend(words.map(|word| ("command", word.to_owned())));
        let names = [("error", "stderr"), ("input", "stdin"), ("output", "stdout"), ("tty", "tty")];
        let given = names.into_iter().filter(|(_, ours)| flag(options, ours));
        pairs.extend(given.map(|(theirs, _)| (theirs, "1".to_owned())));
    }
    let (path, query) = (encoded_path(path), encode(pairs));
    if query.is_empty() { path } else { format!("{path}?{query}") }
}

fn flag(options: &Object, name: &str) -> bool {
    options.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// Connects to the target of a proxy. `own` is the path at the target.
async fn to_target(call: &Call<'_>, wire: Wire, own: &str) -> Result<Response, Status> {
    let id = call.info.name.as_str();
    let (head, path) = (&call.request.head, call.info.path.as_str());
    let location = proxy::location(own);
    let target = proxy::target(&location, head.uri.query());
    let kind = call.resource.table.singular.as_ref();
    let Some(name) = Name::parse(id) else {
        return Err(Status::bad_request(format!("invalid {kind} request \"{id}\"")));
    };
    let object = stored_object(call, call.resource, name.name)?;
    let nodes = &call.server().outgoing.nodes;
    let endpoint = match kind {
        "node" => nodes.of_node(&nodes.agent(&object)?, name, &target).await?,
        "pod" => nodes.of_pod(&object, name, &target)?,
        _ => behind(call, &object, id, name, &target)?,
    };
    if let Some(switch) = wire.switch.clone() {
        let headers = without_credentials(&head.headers);
        let request = upgrade_request(switch, &headers, call);
        return upgrade::pass(&endpoint, request, SERVICE_ANSWER_TIMEOUT).await;
    }
    if location.is_empty() && matches!(head.method, Method::GET | Method::HEAD) {
        return Ok(proxy::moved(head, path));
    }
    let proxied =
        ProxyRequest { head, path, location: &location, peer: call.request.peer(), incoming: wire.incoming };
    proxy::pass(&endpoint, proxied, SERVICE_ANSWER_TIMEOUT).await
}

/// Returns the endpoint of one of the pods of a service.
fn behind(
    call: &Call<'_>,
    service: &Object,
    id: &str,
    name: Name<'_>,
    target: &str,
) -> Result<Endpoint, Status> {
    let naming = call.server().types.naming;
    let builtin = |group: &str, plural: &str| -> Result<&Arc<Resource>, Status> {
        call.server().types.builtin.resource(group, "v1", plural).ok_or_else(Status::no_such_route)
    };
    let (slices, pods) = (builtin(&naming.group("discovery", true), "endpointslices")?, builtin("", "pods")?);
    let namespace = call.info.namespace.as_str();
    let label = format!("{}={}", naming.label("service-name"), name.name);
    let selection = Selection::parse(&label, "", &slices.table, &slices.table)?;
    let store = call.server().store.open_for(Component::Routing);
    let mut found = Vec::new();
    for entry in store.view().prefix(&store::collection(slices, namespace)) {
        if let Some(stored) = store::read_selected(slices, &selection, entry)? {
            found.push(stored.object(slices)?);
        }
    }
    let pod = |name: &str| {
        let stored = store.get(&store::key(pods, namespace, name)).ok()??;
        stored.object(pods).ok()
    };
    call.server().outgoing.nodes.of_service(service, &found, id, name, target, pod)
}

/// Returns an object, or 404.
pub fn stored_object(call: &Call<'_>, resource: &Arc<Resource>, name: &str) -> Result<Object, Status> {
    store::check_key_name(name)?;
    let key = store::key(resource, call.info.namespace_of(resource), name);
    let subject = Subject { group: &resource.group, kind: &resource.table.plural, name };
    let Some(stored) = call.server().store.open_for(Component::Routing).get(&key)? else {
        return Err(Status::not_found(subject));
    };
    stored.object(resource)
}

/// Returns the agent on the node of a pod.
pub fn agent_of(call: &Call<'_>, pod: &Object) -> Result<Agent, Status> {
    let nodes = call.server().types.builtin.resource("", "v1", "nodes").ok_or_else(Status::no_such_route)?;
    let node = stored_object(call, nodes, text(pod, "spec.nodeName")).map_err(|status| match status.code {
        // The request names the pod, so the error must not disclose the node.
        StatusCode::NOT_FOUND => {
            Status::not_found(Subject { group: "", kind: "pods", name: meta(pod, "name") })
        }
        _ => status,
    });
    call.server().outgoing.nodes.agent(&node?)
}

/// Returns the string at `path` in an object, or an empty string if the object has no string there.
pub fn text<'o>(object: &'o Object, path: &str) -> &'o str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the container for the request: the container named `requested`, the only container, or the default
/// container of the pod.
pub fn container<'p>(call: &Call<'_>, pod: &'p Object, requested: &str) -> Result<&'p str, Status> {
    let name = meta(pod, "name");
    let names = |list: &str| -> Vec<&'p str> {
        let list = at(pod, &format!("spec.{list}")).and_then(Value::as_array).unwrap_or_default();
        list.iter().map(|container| container.str_at(&["name"])).collect()
    };
    let (containers, init, ephemeral) =
        (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let default = format!("kubectl.{}", call.server().types.naming.label("default-container"));
    let own = pod.get("metadata").map_or("", |metadata| metadata.str_at(&["annotations", &default]));
    if !requested.is_empty() {
        let mut all = [&containers, &init, &ephemeral].into_iter().flatten();
        let found = all.find(|name| **name == requested).copied();
        return found.ok_or_else(|| {
            Status::bad_request(format!("container {requested} is not valid for pod {name}"))
        });
    }
    match containers.as_slice() {
        [only] => Ok(only),
        _ if containers.contains(&own) => Ok(own),
        [] => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        several => {
            let mut why = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                several.join(" ")
            );
            if !init.is_empty() {
                why.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Status::bad_request(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn agents_receive_the_options_of_the_connection() {
        for (subresource, options, want) in [
            (
                "exec",
                r#"{"command":["ls","-l"],"stdout":true,"tty":false}"#,
                "/x?command=ls&command=-l&output=1",
            ),
            ("exec", r#"{"stdin":true,"stderr":true,"tty":true}"#, "/x?error=1&input=1&tty=1"),
            ("attach", "{}", "/x"),
            ("portforward", r#"{"ports":[80,443]}"#, "/x?port=80%2C443"),
            ("portforward", "{}", "/x"),
        ] {
            assert_eq!(target_of(subresource, &object(options), "/x"), want, "{subresource} {options}");
        }
    }
}
