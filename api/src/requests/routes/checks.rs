//! Checks whether a resource has the path and the method of a request.

use http::Method;
use http::request::Parts as Head;

use crate::requests::verbs;
use crate::writes::server::Server;
use objects::request::{RequestInfo, Verb};
use types::schema::registry::Resource;
use values::status::{Status, Subject};

/// Returns whether the path of a request is valid for a custom type. The path must match the scope of the
/// type. Only lists and watches may use the path across all namespaces.
pub(super) fn has_custom_path(resource: &Resource, info: &RequestInfo) -> bool {
    match (resource.namespaced(), info.namespace.is_empty()) {
        (true, true) => matches!(info.verb, Verb::List | Verb::Watch),
        (namespaced, without_namespace) => namespaced != without_namespace,
    }
}

/// Returns 404 for a subresource that the custom type does not have, and 405 for a verb that the custom type does not
/// have.
pub(super) fn check_custom_method(resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    let subject = Subject { group: &resource.group, kind: &resource.table.plural, name: &info.name };
    let verbs: &[&str] = if info.subresource.is_empty() {
        resource.table.verbs
    } else {
        let mut subresources = resource.table.subresources.iter();
        let Some(table) = subresources.find(|table| table.name == info.subresource) else {
            return Err(Status::not_found(subject));
        };
        table.verbs
    };
    let verb = info.verb.as_str();
    if verbs.contains(&verb) { Ok(()) } else { Err(Status::not_supported(verb, subject)) }
}

/// Returns 415 for kinds of patches that custom types do not support, and 400 for a request that needs a name
/// but has no name.
pub(super) fn check_custom_request(
    server: &Server,
    head: &Head,
    resource: &Resource,
    info: &RequestInfo,
) -> Result<(), Status> {
    if info.verb == Verb::Patch {
        verbs::patch::kind_of(resource, server.types.formats, &head.headers)?;
    }
    let needs_name = matches!(info.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    if needs_name && info.name.is_empty() {
        return Err(Status::bad_request("name must be provided"));
    }
    Ok(())
}

/// Checks that the path matches the scope of the resource. A cluster-scoped resource has no namespaced path.
/// Objects of a namespaced resource can be written only at a namespaced path.
pub(super) fn check_scope(resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    // A namespace object counts as being in its own namespace, so the segments of the path are checked.
    let mut segments = info.path.split('/').skip_while(|segment| *segment != "namespaces");
    let is_namespace = info.resource == "namespaces" && segments.nth(2) != Some("namespaces");
    let namespaced_path = !info.namespace.is_empty() && !is_namespace;
    if namespaced_path != resource.namespaced() && (namespaced_path || info.name_in_path) {
        return Err(Status::no_such_route());
    }
    if resource.namespaced() && !namespaced_path {
        // The path for all namespaces exists only for resources with a list verb, and only for reads.
        if !resource.table.verbs.contains(&"list") {
            return Err(Status::no_such_route());
        }
        if !matches!(info.verb, Verb::List | Verb::Watch) {
            return Err(Status::method_not_allowed());
        }
    }
    if !info.subpath.is_empty() && info.subresource != "proxy" {
        return Err(Status::no_such_route());
    }
    Ok(())
}

/// Returns 405 for a verb that the resource does not have, and 404 for a subresource that the resource does not have.
pub(super) fn check_method(head: &Head, resource: &Resource, info: &RequestInfo) -> Result<(), Status> {
    if info.verb == Verb::Proxy {
        // These legacy paths are still recognized for authorization, but no longer served.
        return Err(Status::no_such_route());
    }
    if info.legacy_watch && !(info.subresource.is_empty() && resource.can("watch")) {
        return Err(Status::no_such_route()); // only resources that can be watched have such a path
    }
    if info.legacy_watch && !matches!(head.method, Method::GET | Method::HEAD) {
        return Err(Status::method_not_allowed());
    }
    if !info.subresource.is_empty() {
        let known = resource.table.subresources.iter().find(|table| table.name == info.subresource);
        let Some(table) = known else { return Err(Status::no_such_route()) };
        if table.connect && info.subresource == "proxy" {
            return Ok(()); // the target of a proxy may support any method
        }
        return if table.verbs.contains(&info.verb.as_str()) && head.method != Method::HEAD {
            Ok(())
        } else {
            Err(Status::method_not_allowed())
        };
    }
    const ON_ITEMS: [&str; 4] = ["get", "update", "patch", "delete"];
    if info.name_in_path && !resource.table.verbs.iter().any(|verb| ON_ITEMS.contains(verb)) {
        return Err(Status::no_such_route()); // a resource for commands only, which has no items
    }
    let wants_name = matches!(info.verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    let is_create_on_item = info.verb == Verb::Create && info.name_in_path;
    // A resource that supports list but not watch uses the path of the list for a watch, and the list refuses
    // the watch.
    let known = resource.can(info.verb.as_str()) || info.verb == Verb::Watch && resource.can("list");
    let is_unrouted = matches!(head.method, Method::OPTIONS | Method::HEAD);
    if !known || is_create_on_item || wants_name && info.name.is_empty() || is_unrouted {
        return Err(Status::method_not_allowed());
    }
    Ok(())
}
