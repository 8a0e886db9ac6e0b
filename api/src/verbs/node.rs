//! Subresources that a node's agent answers: log, exec, attach, portforward and the proxies. There is no way from here
//! to a node, so after what the reference server checks itself the answer is the one it gives when it reaches none
//! (docs/api/subresources.md#connections-to-nodes).

use std::num::{IntErrorKind, ParseIntError};

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::{Call, admit};
use crate::field::{FieldError, go_quote};
use crate::json::{Object, Value};
use crate::object::{at, meta};
use crate::request::Verb;
use crate::response::{Response, respond};
use crate::status::{Reason, Status, Subject};
use crate::store;

/// Answers a permitted request.
///
/// # Errors
/// Always one, but for the log of a pod that nobody runs, which is empty.
pub async fn connect(call: &mut Call<'_>) -> Result<Response, Status> {
    let info = call.info;
    let (name, subresource) = (&info.name, info.subresource.as_str());
    if matches!(subresource, "exec" | "attach" | "portforward") && call.info.verb != Verb::Create {
        // The permission to look at a pod is none to act in it, whatever method opens the connection.
        call.api.authorize_create(call.proof).await?;
    }
    if subresource != "log" {
        admit::connect(call).await?;
    }
    if subresource == "log" {
        check_log_options(call)?;
    }
    let key = store::key(call.resource, call.info.namespace_of(call.resource), name);
    let Some(stored) = call.store().get(&key)? else {
        return Err(Status::not_found(call.subject(name)));
    };
    let object = stored.object(call.resource)?;
    match (&*call.resource.table.kind, subresource) {
        ("Pod", "proxy") => match text(&object, "status.podIP") {
            "" => Err(Status::bad_request("address not allowed")),
            address => Err(unreachable_service(address)),
        },
        ("Pod", "portforward") => Err(unreachable_pod(call, &object)?),
        ("Pod", "log") => {
            check_container(call, &object)?;
            if text(&object, "spec.nodeName").is_empty() {
                return Ok(nothing());
            }
            Err(unreachable_pod(call, &object)?)
        }
        ("Pod", _) => {
            check_container(call, &object)?;
            Err(unreachable_pod(call, &object)?)
        }
        ("Node", _) => Err(unreachable_node(&object)),
        (_, _) => Err(Status::new(
            Reason::ServiceUnavailable,
            format!("no endpoints available for {} \"{name}\"", call.resource.table.singular),
        )),
    }
}

fn text<'o>(object: &'o Object, path: &str) -> &'o str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// No content, and so no type of it.
fn nothing() -> Response {
    let mut response = respond(StatusCode::NO_CONTENT, "text/plain", Bytes::new());
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

/// 400 for options of a log that are no numbers, 422 for numbers out of their range.
fn check_log_options(call: &Call<'_>) -> Result<(), Status> {
    let mut errors = Vec::new();
    let (mut tail, mut limit, mut since) = (None, None, None);
    for (name, slot) in [("sinceSeconds", &mut since), ("tailLines", &mut tail), ("limitBytes", &mut limit)] {
        *slot = call.query.first(name).filter(|text| !text.is_empty()).map(go_integer).transpose()?;
    }
    let mut at_least = |name: &str, value: Option<i64>, least: i64, detail: &str| {
        if let Some(value) = value.filter(|value| *value < least) {
            errors.push(FieldError::invalid(name, &Value::Int(value), detail));
        }
    };
    at_least("tailLines", tail, 0, "must be greater than or equal to 0");
    at_least("limitBytes", limit, 1, "must be greater than 0");
    let since_time = call.query.first("sinceTime").is_some_and(|text| !text.is_empty());
    if since_time && since.is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden("", why));
    } else {
        at_least("sinceSeconds", since, 1, "must be greater than 0");
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(Subject { group: "", kind: "PodLogOptions", name: &call.info.name }, &errors))
}

/// A signed number, or 400 in Go's words.
fn go_integer(text: &str) -> Result<i64, Status> {
    text.parse().map_err(|error: ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", go_quote(text)))
    })
}

/// A connection is into one container: the one that is named, the only one, or the one that the pod names itself.
fn check_container(call: &Call<'_>, pod: &Object) -> Result<(), Status> {
    let name = meta(pod, "name");
    let names = |list: &str| -> Vec<&str> {
        let list = at(pod, &format!("spec.{list}")).and_then(Value::as_array).unwrap_or_default();
        list.iter().map(|container| container.str_at(&["name"])).collect()
    };
    let (containers, init, ephemeral) =
        (names("containers"), names("initContainers"), names("ephemeralContainers"));
    let default = format!("kubectl.{}", call.api.naming().label("default-container"));
    let own = pod.get("metadata").map_or("", |metadata| metadata.str_at(&["annotations", &default]));
    let asked = call.query.first("container").filter(|asked| !asked.is_empty());
    match asked {
        Some(asked) if [&containers, &init, &ephemeral].iter().any(|names| names.contains(&asked)) => Ok(()),
        Some(asked) => Err(Status::bad_request(format!("container {asked} is not valid for pod {name}"))),
        None if containers.len() == 1 || containers.contains(&own) => Ok(()),
        None => {
            let mut why = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                containers.join(" ")
            );
            if !init.is_empty() {
                why.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
            }
            Err(Status::bad_request(why))
        }
    }
}

/// Why the agent on the pod's node cannot be asked.
fn unreachable_pod(call: &Call<'_>, pod: &Object) -> Result<Status, Status> {
    let node = text(pod, "spec.nodeName");
    if node.is_empty() {
        let name = meta(pod, "name");
        return Ok(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let resource = call.types.registry().resource("", "v1", "nodes").ok_or_else(Status::no_such_route)?;
    let Some(stored) = call.store().get(&store::key(resource, "", node))? else {
        return Ok(Status::not_found(Subject { group: "", kind: "nodes", name: node }));
    };
    Ok(unreachable_node(&stored.object(resource)?))
}

/// Kinds of node addresses in the order in which they are tried, and the port of the agent.
const ADDRESSES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
const AGENT_PORT: i64 = 10250;

/// Why a node cannot be asked: it says no address, or nothing answers there.
fn unreachable_node(node: &Object) -> Status {
    let addresses = at(node, "status.addresses").and_then(Value::as_array).unwrap_or_default();
    let preferred = ADDRESSES.iter().find_map(|kind| {
        addresses.iter().find(|address| address.str_at(&["type"]) == *kind).map(|a| a.str_at(&["address"]))
    });
    let Some(address) = preferred else {
        return Status::new(Reason::Unknown, "no preferred addresses found; known addresses: []");
    };
    let port = at(node, "status.daemonEndpoints.kubeletEndpoint.Port").and_then(Value::as_i64);
    let port = port.filter(|port| *port != 0).unwrap_or(AGENT_PORT);
    let why = format!("error dialing backend: dial tcp {address}:{port}: connect: no route to host");
    Status::new(Reason::Unknown, why)
}

fn unreachable_service(address: &str) -> Status {
    let why = format!("error trying to reach service: dial tcp {address}: connect: no route to host");
    Status::new(Reason::ServiceUnavailable, why)
}
