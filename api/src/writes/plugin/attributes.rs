//! The attributes of a write that admission gets in addition to the objects.

use auth::User;

use super::options::Options;
use super::target::Operation;
use types::schema::registry::Resource;

/// The object that is written, the user who writes it, and the options of the write.
#[derive(Clone, Copy, Debug)]
pub struct WriteAttributes<'w> {
    /// The user who makes the write.
    pub user: &'w User,
    /// The operation on the object.
    pub operation: Operation,
    /// The options of the request.
    pub options: Options<'w>,
    /// The resource, in the version of the request.
    pub resource: &'w Resource,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: &'w str,
    /// Name of the object. The name is empty for a creation, because the new object contains its name or
    /// requests a generated name. The name is also empty if admission handles an object of a deleted
    /// collection.
    pub name: &'w str,
}

impl WriteAttributes<'_> {
    /// Returns whether the write is a dry run, which runs all steps except the commit.
    pub fn dry_run(&self) -> bool {
        self.options.dry_run()
    }
}
