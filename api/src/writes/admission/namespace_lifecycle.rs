//! The plugin NamespaceLifecycle: namespaced objects, and commands on them such as an eviction, need a
//! namespace that exists and is not terminating. The system's own namespaces cannot be deleted.
//!
//! The plugin looks up the namespace at the newest revision, which is always available here, so it never has
//! to wait.
//!
//! The namespace may begin to terminate between that lookup and the commit. Therefore each creation is
//! counted from before the lookup until after the commit ([`Creations`]). The namespace controller first
//! waits for creations that may have seen the namespace active; all later ones see that it is terminating.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{AdmissionRecord, Lookup, Operation, Plugin, Review, Step, Target};
use objects::store::Stored;
use types::attributes::Attributes;
use types::schema::registry::Resource;
use values::json::Object;
use values::status::{Cause, Status, Subject};

/// The state of a namespace, as far as a write depends on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The namespace does not exist.
    Absent,
    /// The namespace exists and is not being deleted.
    Active,
    /// The namespace is being deleted.
    Terminating,
}

/// Creations between their lookup of the namespace and their commit.
#[derive(Default)]
pub struct Creations {
    tickets: Mutex<Tickets>,
    ended: Notify,
}

#[derive(Default)]
struct Tickets {
    next: u64,
    open: BTreeSet<u64>,
}

/// A creation under way; dropping it ends the creation.
pub struct Creation<'c> {
    creations: &'c Creations,
    ticket: u64,
}

impl Creations {
    /// Begins a creation. Call this before the lookup of the namespace.
    pub fn begin(&self) -> Creation<'_> {
        let mut tickets = self.tickets.lock();
        let ticket = tickets.next;
        tickets.next += 1;
        tickets.open.insert(ticket);
        Creation { creations: self, ticket }
    }

    /// Resolves when all creations that began before the call have ended. Later ones are not waited for.
    pub async fn settled(&self) {
        let before = self.tickets.lock().next;
        loop {
            let ended = self.ended.notified();
            if self.tickets.lock().open.first().is_none_or(|first| *first >= before) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Creation<'_> {
    fn drop(&mut self) {
        self.creations.tickets.lock().open.remove(&self.ticket);
        self.creations.ended.notify_waiters();
    }
}

/// The admission plugin NamespaceLifecycle.
pub struct NamespaceLifecycle {
    lookup: Lookup,
    namespaces: Arc<Resource>,
}

impl NamespaceLifecycle {
    /// Returns the plugin for this store.
    pub fn new(lookup: &Lookup) -> NamespaceLifecycle {
        NamespaceLifecycle { lookup: lookup.clone(), namespaces: lookup.resource("", "v1", "namespaces") }
    }

    fn state(&self, namespace: &str) -> Result<State, Status> {
        let stored = self.lookup.stored(&self.namespaces, "", namespace)?;
        Ok(State::of(stored.as_ref()))
    }

    fn create(&self, record: &AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let namespace = record.write.namespace;
        if !record.is_namespaced() || is_review(record.write.resource) {
            return Ok(());
        }
        match self.state(namespace)? {
            State::Active => Ok(()),
            State::Absent => Err(missing(namespace)),
            State::Terminating => {
                let why = format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                );
                let mut status = record.forbidden(&why);
                if let Some(details) = &mut status.details {
                    details.causes.push(Cause {
                        reason: "NamespaceTerminating".to_owned(),
                        message: format!("namespace {namespace} is being terminated"),
                        field: "metadata.namespace".to_owned(),
                    });
                }
                Err(status)
            }
        }
    }

    /// Checks an update. Updates are still allowed in a terminating namespace.
    fn update(&self, record: &AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let is_missing = record.is_namespaced() && self.state(record.write.namespace)? == State::Absent;
        if is_missing { Err(missing(record.write.namespace)) } else { Ok(()) }
    }
}

/// Refuses what the state of a namespace forbids: a creation in a missing (404) or terminating (403)
/// namespace, an update in a missing one (404), and the deletion of the system's namespaces (403).
impl Plugin for NamespaceLifecycle {
    fn handles(&self, target: &Target<'_>) -> bool {
        match target.operation {
            Operation::Create | Operation::Update => target.resource.namespaced(),
            Operation::Delete => refuses_deletions(target.resource),
            Operation::Connect => false,
        }
    }

    fn reads_objects(&self) -> bool {
        false
    }

    fn mutate<'p>(&'p self, record: &'p mut AdmissionRecord<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        match record.write.operation {
            Operation::Create => self.create(record),
            Operation::Update => self.update(record),
            Operation::Delete => delete(record),
            Operation::Connect => Ok(()),
        }
        .into()
    }
}

/// Returns whether this plugin forbids the deletion of some objects of a kind.
fn refuses_deletions(resource: &Resource) -> bool {
    let behavior = &resource.table.behavior;
    !behavior.undeletable.is_empty() && behavior.undeletable_detail.is_empty()
}

fn delete<N>(record: &AdmissionRecord<'_, N>) -> Result<(), Status> {
    let name = record.write.name;
    if refuses_deletions(record.write.resource)
        && record.write.resource.table.behavior.undeletable.contains(&name)
    {
        return Err(Status::forbidden(
            subject(record.write.resource, name),
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// Access reviews must be possible for a namespace that does not exist yet.
fn is_review(resource: &Resource) -> bool {
    resource.table.behavior.namespace_may_be_missing
}

fn subject<'s>(resource: &'s Resource, name: &'s str) -> Subject<'s> {
    Subject { group: &resource.group, kind: &resource.table.plural, name }
}

/// Returns a 404 for a namespace.
pub fn missing(namespace: &str) -> Status {
    Status::not_found(Subject { group: "", kind: "namespaces", name: namespace })
}

impl State {
    /// Returns the state of a namespace from its stored form.
    pub fn of(stored: Option<&Stored>) -> State {
        match stored {
            None => State::Absent,
            Some(stored) if Attributes::new(&stored.record.attributes).is_deleting() => State::Terminating,
            Some(_) => State::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn only_creations_begun_before_are_waited_for() {
        let creations = Creations::default();
        let earlier = [creations.begin(), creations.begin()];
        let mut settled = pin!(creations.settled());
        let mut poll = || settled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(poll(), Poll::Pending);
        let later = creations.begin();
        let [first, second] = earlier;
        drop(second);
        assert_eq!(poll(), Poll::Pending);
        drop(first);
        assert_eq!(poll(), Poll::Ready(()));
        drop(later);
        assert!(creations.tickets.lock().open.is_empty());
    }
}
