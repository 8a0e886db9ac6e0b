//! What a plugin of admission is told, and what it may say beside its decision.

use auth::User;

use crate::context::Context;
use crate::json::Object;
use crate::query::WriteOptions;
use crate::schema::registry::Resource;
use crate::store::Store;
use crate::verbs::options::DeleteOptions;

/// What is done with an object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// A new object, or a question or command that is an object of its own (a review, a binding, an eviction).
    Create,
    /// Another state of an object.
    Update,
    /// The end of an object, or of those of a collection.
    Delete,
    /// A connection to what an object stands for.
    Connect,
}

/// The options of the request.
#[derive(Clone, Copy, Debug)]
pub enum Options<'r> {
    /// None: a connect, or a write of the server itself.
    None,
    /// Of a POST.
    Create(&'r WriteOptions),
    /// Of a PUT.
    Update(&'r WriteOptions),
    /// Of a PATCH of any kind.
    Patch(&'r WriteOptions),
    /// Of a DELETE.
    Delete(&'r DeleteOptions),
}

/// One write as a plugin sees it. `New` is `&mut Object` at the mutating point and `&Object` at the validating one.
pub struct Record<'r, New> {
    /// The server.
    pub api: &'r Context,
    /// The store, opened by the permission of the write.
    pub store: Store<'r>,
    /// The writer.
    pub user: &'r User,
    /// What is done.
    pub operation: Operation,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The options of the request.
    pub options: Options<'r>,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: &'r str,
    /// Name; empty for a collection, and for a new object whose name is to be generated.
    pub name: &'r str,
    /// The object as it is stored, in the version of the request. Given where a plugin reads objects.
    pub old: Option<&'r Object>,
    /// The object as it is to be, in the version of the request; none for deletions and connects.
    pub new: Option<New>,
}

/// What the plugins have to say beside their decision.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Review {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit event: key and value.
    pub annotations: Vec<(String, String)>,
}
