//! The variable `request` of expressions: the members of an `AdmissionRequest` of admission.k8s.io/v1,
//! without the objects.

use std::sync::OnceLock;

use auth::User;

use crate::writes::plugin::Operation;
use crate::writes::plugin::kinds::Named;
use objects::user_info;
use values::json::{Object, Value};

/// The properties of a request that expressions can read.
pub struct PolicyRequest<'r> {
    /// The operation on the object.
    pub operation: Operation,
    /// The kind of the object, in the version that the policy or webhook matched.
    pub kind: Named<'r>,
    /// The resource, in the version that the policy or webhook matched.
    pub resource: Named<'r>,
    /// The kind, in the version of the request.
    pub request_kind: Named<'r>,
    /// The resource, in the version of the request.
    pub request_resource: Named<'r>,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Name of the object; empty if the server will generate the name.
    pub name: &'r str,
    /// Namespace; empty for cluster-scoped objects. The namespace of a namespace is its own name.
    pub namespace: &'r str,
    /// The user who makes the write.
    pub user: &'r User,
    /// Whether the write is a dry run, which stores nothing.
    pub dry_run: bool,
    /// The options of the request, with their kind; `null` for a connect.
    pub options: &'r Value,
    /// The value of `request`, built from the other fields on first read.
    pub value: OnceLock<Object>,
}

impl<'r> PolicyRequest<'r> {
    /// Returns the request that match conditions read, if it is different. In match conditions, `kind` has the
    /// matched version, but `resource` has the version of the request.
    pub fn for_conditions(&self) -> Option<PolicyRequest<'r>> {
        (self.resource != self.request_resource).then(|| PolicyRequest {
            resource: self.request_resource,
            value: OnceLock::new(),
            ..*self
        })
    }

    /// Returns the value of `request`. The first call builds the value.
    pub fn value(&self) -> &Object {
        self.value.get_or_init(|| {
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
            members.insert("userInfo", user_info::info(self.user).into());
            members.insert("object", Value::Null);
            members.insert("oldObject", Value::Null);
            members.insert("dryRun", self.dry_run.into());
            members.insert("options", self.options.clone());
            members
        })
    }
}
