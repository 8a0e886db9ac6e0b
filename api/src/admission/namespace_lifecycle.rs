//! The plugin NamespaceLifecycle: namespaced objects need a namespace that exists and is not going away; the system's
//! own namespaces cannot be deleted.
//!
//! The namespace is looked up in the newest state, which is always at hand here, so there is nothing to wait for.
//!
//! Between that look and the commit the namespace may begin to go away. So creations are counted from before the
//! look until after the commit ([`Creations`]). The namespace controller first lets those finish that may have seen
//! the namespace alive; all later ones see that it is not.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Operation, Record};
use crate::context::Context;
use crate::json::Object;
use crate::object::meta;
use crate::schema::registry::Resource;
use crate::status::{Cause, Status, Subject};
use crate::store::{self, Store};

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

/// Refuses what the state of a namespace forbids: a creation in one that is missing (404) or terminating (403), an
/// update in one that is missing (404), and the deletion of those in which the system lives (403).
pub fn admit(record: &Record<'_, &mut Object>) -> Result<(), Status> {
    match record.operation {
        Operation::Create => create(record),
        Operation::Update => missing_namespace(record)?.map_or(Ok(()), Err),
        Operation::Delete => delete(record),
        Operation::Connect => Ok(()),
    }
}

fn create(record: &Record<'_, &mut Object>) -> Result<(), Status> {
    let namespace = record.namespace;
    // A subresource belongs to an object that is there, or is missing itself.
    if !is_namespaced(record) || is_review(record.resource) || !record.subresource.is_empty() {
        return Ok(());
    }
    match state(record.api, &record.store, namespace)? {
        State::Active => Ok(()),
        State::Absent => Err(missing(namespace)),
        State::Terminating => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let name = record.new.as_ref().map_or("", |new| meta(new, "name"));
            let mut status = Status::forbidden(subject(record.resource, name), &why);
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

/// The 404 for the namespace of a write, if there is none. In a terminating one updates go on.
///
/// # Errors
/// The namespace cannot be read.
pub fn missing_namespace<N>(record: &Record<'_, N>) -> Result<Option<Status>, Status> {
    if !is_namespaced(record) {
        return Ok(None);
    }
    let is_absent = state(record.api, &record.store, record.namespace)? == State::Absent;
    Ok(is_absent.then(|| missing(record.namespace)))
}

fn delete<N>(record: &Record<'_, N>) -> Result<(), Status> {
    let name = record.name;
    if record.resource.table.behavior.undeletable.contains(&name) {
        return Err(Status::forbidden(subject(record.resource, name), "this namespace may not be deleted"));
    }
    Ok(())
}

fn is_namespaced<N>(record: &Record<'_, N>) -> bool {
    record.resource.namespaced() && !record.namespace.is_empty()
}

/// Asking whether one may act in a namespace must be possible before it exists.
fn is_review(resource: &Resource) -> bool {
    resource.table.behavior.namespace_may_be_missing
}

fn subject<'s>(resource: &'s Resource, name: &'s str) -> Subject<'s> {
    Subject { group: &resource.group, kind: &resource.table.plural, name }
}

fn missing(namespace: &str) -> Status {
    Status::not_found(Subject { group: "", kind: "namespaces", name: namespace })
}

/// What the namespace is in the newest state.
pub fn state(api: &Context, store: &Store<'_>, namespace: &str) -> Result<State, Status> {
    let Some(stored) = store.get(&store::key(api.namespaces(), "", namespace))? else {
        return Ok(State::Absent);
    };
    let attributes = crate::attributes::Attributes::new(&stored.record.attributes);
    Ok(if attributes.is_deleting() { State::Terminating } else { State::Active })
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
