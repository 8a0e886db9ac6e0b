//! The bootstrap objects, which the server creates at its first start: system namespaces, default roles and
//! bindings, priority classes, flow schemas and priority levels.
//!
//! ```text
//! bootstrap/*.json ─ desired ─► Desired ─┐
//!                                        ├─ plan ─► BootstrapStep ─► ObjectStore (the ordinary write path)
//! store ──────────────── existing ───────┘
//! ```
//!
//! The module `plan` decides the step for each object and has no side effects. This module writes through a
//! trait, so it depends on neither the verbs nor the engine. The server first reads and compares the existing
//! objects, and writes only the objects that differ, so a second start makes no writes. All writes of a phase
//! run concurrently, so that the many objects of an empty store share a few syncs. Namespaces are in the
//! first phase, because objects in a missing namespace are refused.

mod desired;
mod plan;

use std::future::Future;

use futures_util::future::try_join_all;

use objects::store::ObjectName;
use values::json::Value;
use values::naming::Naming;

pub use desired::{Desired, Kind, autoupdate_spec_annotation, desired, flow_control, namespaces};
pub use plan::{BootstrapStep, plan};

/// Maximum number of attempts to write one object if another writer, such as another server on the same
/// store, keeps changing the object.
const ATTEMPTS_MAX: usize = 5;

/// The identity of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectTarget {
    /// Group in the notation of the schema tables, without the suffix of the naming profile, for example
    /// `rbac.authorization`. Empty for the core group.
    pub group: &'static str,
    /// Version in which the object is written.
    pub version: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectTarget {
    /// Returns the namespace and name.
    pub fn object_name(&self) -> ObjectName<'_> {
        ObjectName { namespace: &self.namespace, name: &self.name }
    }
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteResult {
    /// The write is stored.
    Done,
    /// Another writer changed, created or deleted the object after it was read. The caller must read the
    /// object again.
    Conflict,
}

/// The operations on stored objects that this module needs. Writes use the server's own identity
/// ([`Component::Loopback`](objects::store::Component::Loopback)) and pass defaulting and validation.
pub trait ObjectStore: Sync {
    /// The reason why a read or write failed.
    type Error: Send;

    /// Returns the current object, if it exists.
    fn get(&self, target: &ObjectTarget) -> Result<Option<Value>, Self::Error>;

    /// Returns whether a read failed because the stored object is damaged. Other errors mean that the store
    /// cannot be reached.
    fn is_unreadable(error: &Self::Error) -> bool;

    /// Stores a new object. Returns [`WriteResult::Conflict`] if the object already exists.
    fn create(
        &self,
        target: &ObjectTarget,
        object: Value,
    ) -> impl Future<Output = Result<WriteResult, Self::Error>> + Send;

    /// Stores a new version of an object. `object` contains the resourceVersion at which the object was read.
    fn update(
        &self,
        target: &ObjectTarget,
        object: Value,
    ) -> impl Future<Output = Result<WriteResult, Self::Error>> + Send;

    /// Deletes the object if the stored object still equals `existing`.
    fn delete(
        &self,
        target: &ObjectTarget,
        existing: &Value,
    ) -> impl Future<Output = Result<WriteResult, Self::Error>> + Send;
}

/// The result of a reconciliation, in numbers of objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReconcileCounts {
    /// Objects that already had their wanted state.
    pub unchanged: usize,
    /// Objects that were missing and have been created.
    pub created: usize,
    /// Objects that differed from their wanted state and have been updated.
    pub updated: usize,
    /// Bindings that referred to another role and have been replaced.
    pub replaced: usize,
    /// Objects that another writer changed on every attempt; the next start tries again.
    pub given_up: usize,
}

/// Creates and updates the bootstrap objects of the profile `naming`, except the objects of flow control.
///
/// The server reads and compares every object, and writes only objects that differ from their wanted state.
///
/// # Errors
/// Returns the first failure of the store. The objects that were written before the failure stay written.
/// Another run writes the remaining objects.
pub async fn reconcile<S: ObjectStore>(store: &S, naming: &Naming) -> Result<ReconcileCounts, S::Error> {
    let (first, then): (Vec<Desired>, Vec<Desired>) =
        desired(naming).into_iter().partition(|desired| desired.target.namespace.is_empty());
    let mut outcome = settle_all(store, &first, naming).await?;
    outcome += settle_all(store, &then, naming).await?;
    Ok(outcome)
}

/// Creates and updates the bootstrap objects of flow control.
///
/// # Errors
/// Fails in the same cases as [`reconcile`].
pub async fn reconcile_flow_control<S: ObjectStore>(
    store: &S,
    naming: &Naming,
) -> Result<ReconcileCounts, S::Error> {
    settle_all(store, &flow_control(naming), naming).await
}

/// Creates and updates the objects of one phase concurrently.
async fn settle_all<S: ObjectStore>(
    store: &S,
    phase: &[Desired],
    naming: &Naming,
) -> Result<ReconcileCounts, S::Error> {
    let mut outcome = ReconcileCounts::default();
    for done in try_join_all(phase.iter().map(|desired| create_or_update(store, desired, naming))).await? {
        match done {
            Settled::Unchanged => outcome.unchanged += 1,
            Settled::Created => outcome.created += 1,
            Settled::Updated => outcome.updated += 1,
            Settled::Replaced => outcome.replaced += 1,
            Settled::GivenUp => outcome.given_up += 1,
        }
    }
    Ok(outcome)
}

impl std::ops::AddAssign for ReconcileCounts {
    fn add_assign(&mut self, more: ReconcileCounts) {
        self.unchanged += more.unchanged;
        self.created += more.created;
        self.updated += more.updated;
        self.replaced += more.replaced;
        self.given_up += more.given_up;
    }
}

enum Settled {
    Unchanged,
    Created,
    Updated,
    Replaced,
    GivenUp,
}

/// Creates or updates one object.
async fn create_or_update<S: ObjectStore>(
    store: &S,
    desired: &Desired,
    naming: &Naming,
) -> Result<Settled, S::Error> {
    let target = &desired.target;
    for _ in 0..ATTEMPTS_MAX {
        let existing = match store.get(target) {
            Err(error) if S::is_unreadable(&error) => {
                tracing::error!(
                    resource = target.resource,
                    namespace = target.namespace,
                    name = target.name,
                    "bootstrap object is damaged and stays as it is: run accept-loss to have it recreated"
                );
                return Ok(Settled::Unchanged);
            }
            existing => existing?,
        };
        let (written, settled) = match plan(existing.as_ref(), desired, naming) {
            BootstrapStep::Keep => return Ok(Settled::Unchanged),
            BootstrapStep::Create(object) => (store.create(target, object).await?, Settled::Created),
            BootstrapStep::Update(object) => (store.update(target, object).await?, Settled::Updated),
            BootstrapStep::Replace(object) => {
                let gone = match &existing {
                    Some(existing) => store.delete(target, existing).await?,
                    None => WriteResult::Done,
                };
                match gone {
                    WriteResult::Done => (store.create(target, object).await?, Settled::Replaced),
                    WriteResult::Conflict => (WriteResult::Conflict, Settled::Replaced),
                }
            }
        };
        if written == WriteResult::Done {
            return Ok(settled);
        }
    }
    tracing::warn!(
        resource = target.resource,
        name = target.name,
        "bootstrap object keeps changing, left as it is"
    );
    Ok(Settled::GivenUp)
}

#[cfg(test)]
#[path = "bootstrap_test.rs"]
mod tests;
