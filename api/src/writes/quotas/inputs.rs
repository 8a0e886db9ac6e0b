//! Inputs and refusals of the ledger and of its accounts: the request of a write, the stored quotas, and the
//! counted usage.

use engine::Revision;

use super::usage::Usage;
use crate::writes::plugin::Pending;
use crate::writes::pod::Amounts;
use values::json::{Object, Value};
use values::status::Status;

/// The operations of the ledger on the quotas in a store.
pub trait QuotaStore: Send + Sync {
    /// Returns whether the namespace has a quota.
    fn has_any(&self, namespace: &str) -> bool;

    /// Returns the quotas of a namespace, each with the revision at which it was read.
    ///
    /// # Errors
    /// Fails if a quota cannot be read.
    fn read(&self, namespace: &str) -> Result<Vec<(Revision, Object)>, Status>;

    /// Replaces the status of a quota that was read at revision `seen`. Returns `false` if the quota has
    /// changed in the meantime.
    fn replace(&self, seen: Revision, quota: Object) -> Pending<'_, bool>;
}

/// A write that requests a share of the quotas.
#[derive(Clone, Debug)]
pub struct QuotaRequest {
    /// Usage of the object as it will be stored.
    pub usage: Usage,
    /// Usage of the object as stored before the write; `None` for a new object.
    pub before: Option<Usage>,
    /// Prefix of the keys of the object's resource in the store.
    pub key_prefix: String,
    /// Whether the write is a dry run, which stores nothing.
    pub dry_run: bool,
}

/// The reason why a write gets no share.
pub enum QuotaRefusal {
    /// A quota would be exceeded; the text names the quota.
    Exceeded(String),
    /// No decision was made, because of this error.
    Failed(Status),
}

/// The usage of one quota in a snapshot of the store.
#[derive(Clone, Debug)]
pub struct Total {
    /// Uid of the quota object.
    pub uid: String,
    /// `spec.hard` of the quota that was counted.
    pub hard: Value,
    /// The usage of each resource in `hard`.
    pub used: Amounts,
}

/// A function that returns the revision of the counted snapshot for keys with a prefix.
pub type SnapshotRevision = dyn Fn(&str) -> Revision + Send + Sync;

/// Returns the error for a write or a recount whose decision took too long.
pub(super) fn timed_out() -> Status {
    Status::internal("resource quota evaluation timed out")
}
