//! What is asked: everything an authorizer may look at (spec §5.11), borrowed from the request.

use std::fmt;

use crate::go::Quoted;
use crate::identity::User;

/// One question to the authorizers. Absent parts are empty strings.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'r> {
    /// Who asks.
    pub user: &'r User,
    /// `get`, `list`, `create`, …; for other paths the lower-case HTTP method.
    pub verb: &'r str,
    /// Whether `group` to `name` mean something; otherwise `path` does.
    pub resource_request: bool,
    /// Full API group; empty for the core group.
    pub group: &'r str,
    /// API version.
    pub version: &'r str,
    /// Plural resource name.
    pub resource: &'r str,
    /// Subresource.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-wide requests. Of a request for a namespace it is that namespace
    /// (semantics §19 item 21).
    pub namespace: &'r str,
    /// Name of the object, also where a field selector fixes it (semantics §3.2).
    pub name: &'r str,
    /// Path of the URL.
    pub path: &'r str,
}

impl Attributes<'_> {
    /// A question about a path outside the resource API.
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
        }
    }
}

/// The question as a sentence: `User "u" cannot get resource "pods" in API group "" in the namespace "ns"`
/// (semantics §14.1), not yet HTML-escaped.
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
