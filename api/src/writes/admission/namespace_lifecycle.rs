//! The plugin NamespaceLifecycle: namespaced objects, and commands on them such as an eviction, need a namespace that
//! exists and is not going away; the system's own namespaces cannot be deleted.
//!
//! The namespace is looked up in the newest state, which is always at hand here, so there is nothing to wait for.
//!
//! Between that look and the commit the namespace may begin to go away. So creations are counted from before the
//! look until after the commit ([`Creations`]). The namespace controller first lets those finish that may have seen
//! the namespace alive; all later ones see that it is not.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Lookup, Operation, Plugin, Record, Review, Step, Target};
use objects::store::Stored;
use types::attributes::Attributes;
use types::schema::registry::Resource;
use values::json::Object;
use values::status::{Cause, Status, Subject};

/// What a namespace can be to a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// There is none.
    Absent,
    /// It is there to stay.
    Active,
    /// It is being deleted.
    Terminating,
}

/// Creations between their look at the namespace and their commit.
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

/// One creation under way; it ends when this is dropped.
pub struct Creation<'c> {
    creations: &'c Creations,
    ticket: u64,
}

impl Creations {
    /// Begins a creation. Call it before the look at the namespace.
    pub fn begin(&self) -> Creation<'_> {
        let mut tickets = self.tickets.lock();
        let ticket = tickets.next;
        tickets.next += 1;
        tickets.open.insert(ticket);
        Creation { creations: self, ticket }
    }

    /// Resolves when all creations have ended that began before the call; later ones are not waited for.
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

/// The plugin.
pub struct NamespaceLifecycle {
    lookup: Lookup,
    namespaces: Arc<Resource>,
}

impl NamespaceLifecycle {
    /// The plugin over this store.
    pub fn new(lookup: &Lookup) -> NamespaceLifecycle {
        NamespaceLifecycle { lookup: lookup.clone(), namespaces: lookup.resource("", "v1", "namespaces") }
    }

    fn state(&self, namespace: &str) -> Result<State, Status> {
        let stored = self.lookup.stored(&self.namespaces, "", namespace)?;
        Ok(State::of(stored.as_ref()))
    }

    fn create(&self, record: &Record<'_, &mut Object>) -> Result<(), Status> {
        let namespace = record.namespace;
        if !record.is_namespaced() || is_review(record.resource) {
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

    /// In a terminating namespace updates go on.
    fn update(&self, record: &Record<'_, &mut Object>) -> Result<(), Status> {
        let is_missing = record.is_namespaced() && self.state(record.namespace)? == State::Absent;
        if is_missing { Err(missing(record.namespace)) } else { Ok(()) }
    }
}

/// Refuses what the state of a namespace forbids: a creation in one that is missing (404) or terminating (403), an
/// update in one that is missing (404), and the deletion of those in which the system lives (403).
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

    fn mutate<'p>(&'p self, record: &'p mut Record<'_, &mut Object>, _: &'p mut Review) -> Step<'p> {
        match record.operation {
            Operation::Create => self.create(record),
            Operation::Update => self.update(record),
            Operation::Delete => delete(record),
            Operation::Connect => Ok(()),
        }
        .into()
    }
}

/// Whether some objects of a kind cannot be deleted, and admission says so.
fn refuses_deletions(resource: &Resource) -> bool {
    let behavior = &resource.table.behavior;
    !behavior.undeletable.is_empty() && behavior.undeletable_detail.is_empty()
}

fn delete<N>(record: &Record<'_, N>) -> Result<(), Status> {
    let name = record.name;
    if refuses_deletions(record.resource) && record.resource.table.behavior.undeletable.contains(&name) {
        return Err(Status::forbidden(subject(record.resource, name), "this namespace may not be deleted"));
    }
    Ok(())
}

/// Asking whether one may act in a namespace must be possible before it exists.
fn is_review(resource: &Resource) -> bool {
    resource.table.behavior.namespace_may_be_missing
}

fn subject<'s>(resource: &'s Resource, name: &'s str) -> Subject<'s> {
    Subject { group: &resource.group, kind: &resource.table.plural, name }
}

/// 404 for a namespace.
pub fn missing(namespace: &str) -> Status {
    Status::not_found(Subject { group: "", kind: "namespaces", name: namespace })
}

impl State {
    /// What a namespace is that is stored so.
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
