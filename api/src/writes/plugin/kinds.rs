//! The kind and the type of the object in a write. The kind and the type can be specific to a subresource.

use types::schema::registry::Resource;
use types::schema::table::Message;
use values::json::{Object, Value};

/// The group and version, with the kind or the plural name.
pub type Named<'r> = (&'r str, &'r str, &'r str);

/// Returns the kind of a write: the kind of the object, which may be specific to a subresource, or the kind of the
/// resource if the write has no object.
pub fn kind_of<'r>(object: Option<&'r Object>, resource: &'r Resource) -> Named<'r> {
    let text = |name: &str| object.and_then(|object| object.get(name)).and_then(Value::as_str);
    match (text("apiVersion"), text("kind")) {
        (Some(api_version), Some(kind)) => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            (group, version, kind)
        }
        _ => (&resource.group, &resource.version, &resource.table.kind),
    }
}

/// Returns the kind that a rule or policy matched. If the object is an instance of the matched resource, the
/// result is the kind of that resource. Otherwise the result is `requested`, which is the same for all
/// versions of the resource.
pub fn matched_kind<'r>(requested: Named<'r>, matched: &'r Resource, subresource: &str) -> Named<'r> {
    if is_whole(subresource) {
        return (&matched.group, &matched.version, &matched.table.kind);
    }
    requested
}

/// Returns whether the objects of a write to `subresource` are instances of the resource itself. Only such
/// objects exist in each version of the resource.
pub fn is_whole(subresource: &str) -> bool {
    matches!(subresource, "" | "status" | "ephemeralcontainers" | "resize" | "approval" | "finalize")
}

/// Returns the message type of the object in a write.
pub fn message_of<'r>(object: &Object, resource: &'r Resource, subresource: &str) -> &'r Message {
    let is_own = object.get("kind").and_then(Value::as_str) == Some(&*resource.table.kind);
    match resource.subresource(subresource) {
        Some(subresource) if !is_own => &subresource.table.message,
        _ => &resource.table.message,
    }
}
