//! The attributes of a write that admission sees, besides the objects.

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
    /// Name; empty for a new object, which contains its name or requests a generated one. Admission gets no
    /// name for the objects of a collection.
    pub name: &'w str,
}

impl WriteAttributes<'_> {
    /// Returns whether the write is a dry run, which does everything except the commit.
    pub fn dry_run(&self) -> bool {
        self.options.dry_run()
    }
}
