//! Request attributes: the data that authorizers read, borrowed from the request
//! (docs/api/authorization.md#request-attributes).

use std::fmt;

use go::Quoted;

use crate::identity::User;

/// The attributes of one request. An absent value is an empty string.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'r> {
    /// The authenticated user who sends the request.
    pub user: &'r User,
    /// Verb of the request: `get`, `list`, `create`, … For a path outside the resource API, the verb is the
    /// HTTP method in lower case.
    pub verb: &'r str,
    /// Whether the request is for a resource. If true, the fields from `group` to `name` are set. If false,
    /// only `path` is set.
    pub resource_request: bool,
    /// Full API group; empty for the core group.
    pub group: &'r str,
    /// API version in the path.
    pub version: &'r str,
    /// Plural name of the resource.
    pub resource: &'r str,
    /// Subresource, for example `status`; empty for the object itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-wide requests. For a request for a namespace object, the field has the
    /// name of that namespace (docs/api/authorization.md#rbac).
    pub namespace: &'r str,
    /// Name of the object. The name is also set if a field selector requires one name
    /// (docs/api/paths-and-verbs.md#request-info).
    pub name: &'r str,
    /// Path of the request URL.
    pub path: &'r str,
    /// Selectors that restrict a list, a watch or the deletion of a collection.
    pub selectors: Selectors<'r>,
}

/// The requirements of a request's selectors. The request reads only objects that meet all requirements. A
/// requirement that cannot be parsed is left out. The authorization request then covers more objects than the
/// request reads, but never fewer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selectors<'r> {
    /// Requirements of the field selector.
    pub fields: &'r [FieldRequirement],
    /// Requirements of the label selector.
    pub labels: &'r [LabelRequirement],
}

/// A requirement that a field has a certain value, or that it does not have this value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldRequirement {
    /// Path of the field.
    pub field: String,
    /// Whether the field must have `value`. If false, the field must not have `value`.
    pub is_equal: bool,
    /// Value with which the field is compared.
    pub value: String,
}

/// A requirement on a label.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelRequirement {
    /// Name of the label.
    pub key: String,
    /// Operator: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// Values of the operators `In` and `NotIn`; otherwise empty.
    pub values: Vec<String>,
}

impl Attributes<'_> {
    /// Returns the attributes of a request for a path outside the resource API.
    pub fn path<'r>(user: &'r User, verb: &'r str, path: &'r str) -> Attributes<'r> {
        Attributes {
            user,
            verb,
            resource_request: false,
            group: "",
            version: "",
            resource: "",
            subresource: "",
            namespace: "",
            name: "",
            path,
            selectors: Selectors::default(),
        }
    }
}

/// Formats the attributes as `User "u" cannot get resource "pods" in API group "" in the namespace "ns"`
/// (docs/api/authorization.md#authorizers), without HTML escapes.
impl fmt::Display for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User {} cannot {} ", Quoted(&self.user.name), self.verb)?;
        if !self.resource_request {
            return write!(f, "path {}", Quoted(self.path));
        }
        match self.subresource {
            "" => write!(f, "resource {}", Quoted(self.resource))?,
            subresource => write!(f, "resource {}", Quoted(&format!("{}/{subresource}", self.resource)))?,
        }
        write!(f, " in API group {} ", Quoted(self.group))?;
        match self.namespace {
            "" => f.write_str("at the cluster scope"),
            namespace => write!(f, "in the namespace {}", Quoted(namespace)),
        }
    }
}
