//! The target of a write: the operation, the resource and the subresource. The target is known before the
//! objects.

use types::schema::registry::Resource;

/// The operation on an object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// Creates an object, or submits a request that has the form of an object (a review, a binding, an
    /// eviction).
    Create,
    /// Changes an existing object to a new version.
    Update,
    /// Deletes an object, or the objects of a collection.
    Delete,
    /// Opens a connection to the node, pod or service that an object represents.
    Connect,
}

impl Operation {
    /// All operations that admission distinguishes.
    pub const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// Returns the name that webhooks and metrics use.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// The target of a write, without its objects.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// The operation on the resource.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'t Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'t str,
}

impl Target<'_> {
    /// Returns whether the target is this built-in resource itself, not one of its subresources. `group` is
    /// the stem of the group name, without the suffix of the naming profile.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource.is_of(group, plural)
    }

    /// Returns whether the operation creates an object of this built-in resource. `group` has the same
    /// meaning as in [`Target::is`].
    pub fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.is(group, plural)
    }
}
