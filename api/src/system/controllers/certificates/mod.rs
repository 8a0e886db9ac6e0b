//! Certificate signing requests: the controllers approve requests of nodes, sign approved requests, and
//! delete old requests (docs/api/controllers.md#certificates).
//!
//! ```text
//! tail on requests ─┬─ undecided, of a node ─► permitted? ─► /approval          (certificatesigningrequest-approving-controller)
//!                   ├─ approved, unsigned ─► accepted by its signer? ─► /status (certificatesigningrequest-signing-controller)
//!                   └─ old ─► delete                                            (certificatesigningrequest-cleaner-controller)
//! ```
//!
//! An event only triggers a check: each controller then checks all requests in the newest state. There are few
//! requests, because requests are deleted within a day.

mod approve;
mod clean;
mod sign;
mod signer;

pub(super) use approve::follow as approve;
pub(super) use clean::follow as clean;
pub(super) use sign::follow as sign;

use auth::authn::certificate_request::{Request, RequestError};
use bytes::Bytes;

use super::collections::objects;
use crate::writes::bootstrap::ObjectTarget;
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;
use types::schema::registry::Resource;
use values::clock;
use values::json::{Object, Value};
use values::object::meta;
use values::status::Status;

/// User name of the controllers, as in Kubernetes.
const CONTROLLER: &str = "certificate-controller";

/// Returns the resource, and the prefix of its keys.
fn resource<'a>(loopback: &Loopback<'a>) -> Result<(&'a Resource, Bytes), Status> {
    let (namespace, name) = (String::new(), String::new());
    let (group, resource) = ("certificates", "certificatesigningrequests");
    let resource = loopback.resource(&ObjectTarget { group, version: "v1", resource, namespace, name })?;
    Ok((resource, store::collection(resource, "")))
}

/// Returns all requests in the newest state.
fn all(server: &Server, prefix: &Bytes) -> impl Iterator<Item = Object> {
    let all = objects(&server.store.engine().snapshot(), prefix).into_iter();
    all.filter_map(|(_, object)| match object {
        Value::Object(object) => Some(object),
        _ => None,
    })
}

fn text<'o>(object: &'o Object, path: [&str; 2]) -> &'o str {
    object.get(path[0]).map_or("", |part| part.str_at(&[path[1]]))
}

fn usages(object: &Object) -> Vec<&str> {
    let usages = object.get("spec").and_then(|spec| spec.at(&["usages"])).and_then(Value::as_array);
    usages.unwrap_or_default().iter().filter_map(Value::as_str).collect()
}

/// Returns the PKCS #10 request in an object.
fn request(object: &Object) -> Result<Request, RequestError> {
    let pem = values::base64_text::decode(text(object, ["spec", "request"])).unwrap_or_default();
    Request::from_pem(&pem)
}

fn conditions(object: &Object) -> &[Value] {
    let conditions = object.get("status").and_then(|status| status.at(&["conditions"]));
    conditions.and_then(Value::as_array).unwrap_or_default()
}

/// Returns whether an object has a condition of this type. The status of such a condition is always true
/// (docs/api/authentication.md#certificate-signing-requests), so this function does not check the status.
fn has(object: &Object, kind: &str) -> bool {
    conditions(object).iter().any(|condition| condition.str_at(&["type"]) == kind)
}

fn is_signed(object: &Object) -> bool {
    !text(object, ["status", "certificate"]).is_empty()
}

/// Returns whether both objects are states of the same request.
fn is_same(one: &Object, other: &Object) -> bool {
    meta(one, "uid") == meta(other, "uid")
}

/// Returns a request with an additional condition.
fn with_condition(object: &Object, kind: &str, reason: &str, message: &str) -> Object {
    let mut new = object.clone();
    let status = new.object_entry("status");
    let members = [("type", kind), ("status", "True"), ("reason", reason), ("message", message)];
    let mut condition = Object::from_iter(members.map(|(name, text)| (name.into(), text.into())));
    condition.push("lastUpdateTime", clock::now().into());
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => conditions.push(condition.into()),
        None => _ = status.insert("conditions", Value::Array(vec![condition.into()])),
    }
    new
}
