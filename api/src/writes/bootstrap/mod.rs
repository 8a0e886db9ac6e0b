//! Bootstrap objects, which must exist from the first start on: system namespaces, default roles and
//! bindings, priority classes, flow schemas and priority levels.
//!
//! ```text
//! bootstrap/*.json ─ desired ─► Desired ─┐
//!                                        ├─ plan ─► Step ─► ObjectStore (the ordinary write path)
//! store ──────────────── existing ───────┘
//! ```
//!
//! Deciding is pure (`plan`). Writing goes through a trait, so this module knows neither verbs nor the
//! engine. Existing objects are read and compared first, and only differences are written, so a second start
//! writes nothing. All writes of a phase run concurrently, so that on an empty store a couple of hundred
//! objects share a few syncs. Namespaces come first, because objects in a missing namespace are refused.

mod desired;
mod plan;

use std::future::Future;

use futures_util::future::try_join_all;

use values::json::Value;
use values::naming::Naming;

pub use desired::{Desired, Kind, autoupdate_spec_annotation, desired, flow_control, namespaces};
pub use plan::{Step, plan};

/// Maximum number of attempts for one object when another writer (another server on the same store) changes
/// it first.
const ATTEMPTS_MAX: usize = 5;

/// The identity of an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Group as in the schema tables, without the suffix: `rbac.authorization`, or empty.
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

/// The outcome of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Written {
    /// The write is stored.
    Done,
    /// The object differs from what was read (or exists, or is gone), and must be read again.
    Conflict,
}

/// The part of the write path that this module needs. Writes are made under the server's own identity
/// ([`Component::Loopback`](objects::store::Component::Loopback)) and pass defaulting and validation.
pub trait ObjectStore: Sync {
    /// The reason why a read or write failed.
    type Error: Send;

    /// Returns the current object, if it exists.
    fn get(&self, target: &Target) -> Result<Option<Value>, Self::Error>;

    /// Returns whether a read failed because the stored object is damaged, and not because the store cannot
    /// be reached.
    fn is_unreadable(error: &Self::Error) -> bool;

    /// Stores a new object; returns [`Written::Conflict`] if it exists already.
    fn create(
        &self,
        target: &Target,
        object: Value,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;

    /// Stores `object`, which contains the resource version at which it was read.
    fn update(
        &self,
        target: &Target,
        object: Value,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;

    /// Deletes the object if it still equals `existing`.
    fn delete(
        &self,
        target: &Target,
        existing: &Value,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;
}

/// The result of a reconciliation, in numbers of objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// Objects that already were as wanted.
    pub unchanged: usize,
    /// Objects that were missing and have been created.
    pub created: usize,
    /// Objects that lacked something and have been updated.
    pub updated: usize,
    /// Bindings that referred to another role and have been replaced.
    pub replaced: usize,
    /// Objects that another writer changed on every attempt; the next start tries again.
    pub given_up: usize,
}

/// Creates and updates the bootstrap objects of the profile `naming`, except those of flow control.
///
/// The cost is one read and one comparison per object; nothing is written if nothing is missing.
///
/// # Errors
/// Returns the first failure of the store. Objects written until then stay; another run completes the rest.
pub async fn reconcile<S: ObjectStore>(store: &S, naming: &Naming) -> Result<Outcome, S::Error> {
    let (first, then): (Vec<Desired>, Vec<Desired>) =
        desired(naming).into_iter().partition(|wanted| wanted.target.namespace.is_empty());
    let mut outcome = settle_all(store, &first, naming).await?;
    outcome += settle_all(store, &then, naming).await?;
    Ok(outcome)
}

/// Creates and updates the objects of flow control, which have an owner of their own.
///
/// # Errors
/// As [`reconcile`].
pub async fn reconcile_flow_control<S: ObjectStore>(store: &S, naming: &Naming) -> Result<Outcome, S::Error> {
    settle_all(store, &flow_control(naming), naming).await
}

/// Creates and updates these objects concurrently.
async fn settle_all<S: ObjectStore>(
    store: &S,
    phase: &[Desired],
    naming: &Naming,
) -> Result<Outcome, S::Error> {
    let mut outcome = Outcome::default();
    for done in try_join_all(phase.iter().map(|wanted| settle(store, wanted, naming))).await? {
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

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, more: Outcome) {
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
async fn settle<S: ObjectStore>(store: &S, wanted: &Desired, naming: &Naming) -> Result<Settled, S::Error> {
    let target = &wanted.target;
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
        let (written, settled) = match plan(existing.as_ref(), wanted, naming) {
            Step::Keep => return Ok(Settled::Unchanged),
            Step::Create(object) => (store.create(target, object).await?, Settled::Created),
            Step::Update(object) => (store.update(target, object).await?, Settled::Updated),
            Step::Replace(object) => {
                let gone = match &existing {
                    Some(existing) => store.delete(target, existing).await?,
                    None => Written::Done,
                };
                match gone {
                    Written::Done => (store.create(target, object).await?, Settled::Replaced),
                    Written::Conflict => (Written::Conflict, Settled::Replaced),
                }
            }
        };
        if written == Written::Done {
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
