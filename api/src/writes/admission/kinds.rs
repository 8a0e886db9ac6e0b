//! The kind and the type of the object of a write, which may be an object of a subresource.

use types::schema::registry::Resource;
use types::schema::table::Message;
use values::json::{Object, Value};

/// Group, version, and kind or plural name.
pub type Named<'r> = (&'r str, &'r str, &'r str);

/// The kind of a write: that of its object, which a subresource may have of its own, or of the resource where there is no
/// object.
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

/// The kind as which a write was matched: that of the matched resource where the object is one of it, and otherwise its own
/// kind, which is the same for all versions of the resource.
pub fn matched_kind<'r>(requested: Named<'r>, matched: &'r Resource, subresource: &str) -> Named<'r> {
    if is_whole(subresource) {
        return (&matched.group, &matched.version, &matched.table.kind);
    }
    requested
}

/// Whether the objects of a write are those of its resource, which have a form in each version.
pub fn is_whole(subresource: &str) -> bool {
    matches!(subresource, "" | "status" | "ephemeralcontainers" | "resize" | "approval" | "finalize")
}

/// The type of the object of a write.
pub fn message_of<'r>(object: &Object, resource: &'r Resource, subresource: &str) -> &'r Message {
    let is_own = object.get("kind").and_then(Value::as_str) == Some(&*resource.table.kind);
    match resource.subresource(subresource) {
        Some(subresource) if !is_own => &subresource.table.message,
        _ => &resource.table.message,
    }
}
