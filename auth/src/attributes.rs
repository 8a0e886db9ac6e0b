//! Request attributes: everything an authorizer may look at, borrowed from the request
//! (docs/api/authorization.md#request-attributes).

use std::fmt;

use go::Quoted;

use crate::identity::User;

/// The attributes of one request. Absent parts are empty strings.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'r> {
    /// The authenticated user.
    pub user: &'r User,
    /// `get`, `list`, `create`, …; for other paths the lower-case HTTP method.
    pub verb: &'r str,
    /// Whether `group` to `name` have a meaning; otherwise `path` has.
    pub resource_request: bool,
    /// Full API group; empty for the core group.
    pub group: &'r str,
    /// API version.
    pub version: &'r str,
    /// Plural resource name.
    pub resource: &'r str,
    /// Subresource.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-wide requests. A request for a namespace object is in that namespace
    /// (docs/api/authorization.md#rbac).
    pub namespace: &'r str,
    /// Name of the object; also set when a field selector requires one name
    /// (docs/api/paths-and-verbs.md#request-info).
    pub name: &'r str,
    /// Path of the URL.
    pub path: &'r str,
    /// What restricts a list, a watch or a deletion of a collection.
    pub selectors: Selectors<'r>,
}

/// The requirements of a request's selectors, all of which hold of what it reads. One that cannot be read is left out:
/// then more is asked for than is needed, never less.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selectors<'r> {
    /// On fields.
    pub fields: &'r [FieldRequirement],
    /// On labels.
    pub labels: &'r [LabelRequirement],
}

/// A field that must have a value, or must not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FieldRequirement {
    /// Path of the field.
    pub field: String,
    /// Whether it must have the value.
    pub is_equal: bool,
    /// The value.
    pub value: String,
}

/// A condition on a label.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelRequirement {
    /// Name of the label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: &'static str,
    /// Values of `In` and `NotIn`.
    pub values: Vec<String>,
}

impl Attributes<'_> {
    /// Attributes of a request for a path outside the resource API.
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

/// Formats `User "u" cannot get resource "pods" in API group "" in the namespace "ns"`
/// (docs/api/authorization.md#authorizers), not HTML-escaped.
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
