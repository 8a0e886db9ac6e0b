//! The request, as expressions see it: the members of an `AdmissionRequest` of admission.k8s.io/v1, without the objects.

use std::sync::OnceLock;

use auth::User;

use crate::types::schema::registry::Resource;
use crate::types::schema::table::Message;
use crate::values::json::{Object, Value};
use crate::values::user;
use crate::writes::admission::Operation;

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

/// What a request is about.
pub struct Request<'r> {
    /// What is done.
    pub operation: Operation,
    /// The kind of the object, in the version that the policy or webhook matched.
    pub kind: Named<'r>,
    /// The resource, likewise.
    pub resource: Named<'r>,
    /// The kind, in the version of the request.
    pub request_kind: Named<'r>,
    /// The resource, in the version of the request.
    pub request_resource: Named<'r>,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Name of the object; empty when it is to be generated.
    pub name: &'r str,
    /// Namespace; empty for cluster-scoped objects, but a namespace is in itself.
    pub namespace: &'r str,
    /// The writer.
    pub user: &'r User,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The options of the request, with their kind; `null` for none.
    pub options: &'r Value,
    /// Made of the rest when an expression first reads it.
    pub made: OnceLock<Object>,
}

impl<'r> Request<'r> {
    /// The request as match conditions see it, if that differs: they see the matched kind, but the resource of the request.
    pub fn for_conditions(&self) -> Option<Request<'r>> {
        (self.resource != self.request_resource).then(|| Request {
            resource: self.request_resource,
            made: OnceLock::new(),
            ..*self
        })
    }

    /// The value of `request`. Made once.
    pub fn value(&self) -> &Object {
        self.made.get_or_init(|| {
            let named = |(group, version, name): Named<'_>, what: &'static str| {
                let mut members = Object::with_capacity(3);
                for (key, text) in [("group", group), ("version", version), (what, name)] {
                    members.insert(key, text.into());
                }
                Value::Object(members)
            };
            let mut members = Object::with_capacity(13);
            members.insert("uid", "".into());
            members.insert("kind", named(self.kind, "kind"));
            members.insert("resource", named(self.resource, "resource"));
            let text = |members: &mut Object, name: &'static str, text: &str| {
                if !text.is_empty() {
                    members.insert(name, text.into());
                }
            };
            text(&mut members, "subResource", self.subresource);
            members.insert("requestKind", named(self.request_kind, "kind"));
            members.insert("requestResource", named(self.request_resource, "resource"));
            text(&mut members, "requestSubResource", self.subresource);
            text(&mut members, "name", self.name);
            text(&mut members, "namespace", self.namespace);
            members.insert("operation", self.operation.as_str().into());
            members.insert("userInfo", user::info(self.user).into());
            members.insert("object", Value::Null);
            members.insert("oldObject", Value::Null);
            members.insert("dryRun", self.dry_run.into());
            members.insert("options", self.options.clone());
            members
        })
    }
}
