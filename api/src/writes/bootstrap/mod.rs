//! What must exist from the first start on: system namespaces, default roles and bindings, priority classes,
//! flow schemas and priority levels.
//!
//! ```text
//! bootstrap/*.json ─ desired ─► Desired ─┐
//!                                        ├─ plan ─► Step ─► ObjectStore (the ordinary write path)
//! store ──────────────── existing ───────┘
//! ```
//!
//! Deciding is pure (`plan`); writing goes through a trait, so this module knows no verbs and no engine. What
//! exists is read and compared first, and only differences are written: a second start writes nothing. All
//! writes of a phase are under way at once, so that on an empty store a couple of hundred objects share a few
//! syncs. Namespaces come first, because objects in them are refused without.

mod desired;
mod plan;

use std::future::Future;

use futures_util::future::try_join_all;

use values::json::Value;
use values::naming::Naming;

pub use desired::{Desired, Kind, desired, flow_control, namespaces};
pub use plan::{Step, autoupdate_spec_annotation, plan};

/// How often one object is tried again after another writer (another server on the same store) was faster.
const ATTEMPTS_MAX: usize = 5;

/// Which object is meant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// Group as the schema tables name it, without the suffix: `rbac.authorization`, or empty.
    pub group: &'static str,
    /// Version the object is written in.
    pub version: &'static str,
    /// Plural resource.
    pub resource: &'static str,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Written {
    /// It is stored.
    Done,
    /// The object is not as it was read (or is there, or is gone): read again.
    Conflict,
}

/// The write path, as far as this module needs it. Writes are made under the server's own identity
/// ([`Part::Loopback`](objects::store::Part::Loopback)) and pass defaulting and validation.
pub trait ObjectStore: Sync {
    /// Why a read or write could not be made at all.
    type Error: Send;

    /// The current object.
    fn get(&self, target: &Target) -> Result<Option<Value>, Self::Error>;

    /// Whether a read failed because the stored object is damaged, and not because the store cannot be reached.
    fn is_unreadable(error: &Self::Error) -> bool;

    /// Stores a new object; [`Written::Conflict`] if there is one.
    fn create(
        &self,
        target: &Target,
        object: Value,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;

    /// Stores `object`, which carries the resource version it was read at.
    fn update(
        &self,
        target: &Target,
        object: Value,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;

    /// Deletes the object if it is still `existing`.
    fn delete(
        &self,
        target: &Target,
        existing: &Value,
    ) -> impl Future<Output = Result<Written, Self::Error>> + Send;
}

/// What a reconciliation did, in numbers of objects.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Outcome {
    /// As they should be.
    pub unchanged: usize,
    /// Were missing.
    pub created: usize,
    /// Lacked something.
    pub updated: usize,
    /// Referred to another role.
    pub replaced: usize,
    /// Changed under our hands every time; left to the next start.
    pub given_up: usize,
}

/// Brings the store up to what `naming`'s profile wants, flow control left out.
///
/// Costs one read and one comparison per object; nothing is written where nothing is missing.
///
/// # Errors
/// The first failure of the store. Objects written by then stay; running it again completes the rest.
pub async fn reconcile<S: ObjectStore>(store: &S, naming: &Naming) -> Result<Outcome, S::Error> {
    let (first, then): (Vec<Desired>, Vec<Desired>) =
        desired(naming).into_iter().partition(|wanted| wanted.target.namespace.is_empty());
    let mut outcome = settle_all(store, &first, naming).await?;
    outcome += settle_all(store, &then, naming).await?;
    Ok(outcome)
}

/// The same for the objects of flow control, which have an owner of their own.
///
/// # Errors
/// Those of [`reconcile`].
pub async fn reconcile_flow_control<S: ObjectStore>(store: &S, naming: &Naming) -> Result<Outcome, S::Error> {
    settle_all(store, &flow_control(naming), naming).await
}

/// Brings these objects up to what is wanted, all at once.
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

/// Brings one object up to what is wanted.
async fn settle<S: ObjectStore>(store: &S, wanted: &Desired, naming: &Naming) -> Result<Settled, S::Error> {
    let target = &wanted.target;
    for _ in 0..ATTEMPTS_MAX {
        let existing = match store.get(target) {
            Err(error) if S::is_unreadable(&error) => {
                tracing::error!(
                    resource = target.resource,
                    namespace = target.namespace,
                    name = target.name,
                    "an object of the server is damaged and stays as it is: accept-loss lets it be written anew"
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
