//! The plugin NamespaceLifecycle: the creation of a namespaced object or of a command, such as an eviction,
//! needs a namespace that exists and is not terminating. The system namespaces cannot be deleted.
//!
//! The plugin looks up the namespace at the newest revision of the local store, so the plugin never waits.
//!
//! The namespace may begin to terminate between the lookup and the commit. Therefore each creation is counted
//! from before the lookup until after the commit (`writes/creations.rs`). Before the namespace controller
//! deletes objects, it waits for the creations that may have read the namespace as active. All later creations
//! find that the namespace is terminating.

use std::sync::Arc;

use crate::writes::plugin::{AdmissionRecord, Operation, Plugin, Review, Step, Target};
use crate::writes::server::Server;
use crate::writes::server::store::ObjectStorage;
use objects::store::Stored;
use types::attributes::Attributes;
use types::schema::registry::Resource;
use values::json::Object;
use values::status::{Cause, Status, Subject};

/// The state of a namespace that decides whether a write is allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The namespace does not exist.
    Absent,
    /// The namespace exists and is not being deleted.
    Active,
    /// The namespace is being deleted.
    Terminating,
}

/// The admission plugin NamespaceLifecycle.
pub struct NamespaceLifecycle {
    store: Arc<ObjectStorage>,
    namespaces: Arc<Resource>,
}

impl NamespaceLifecycle {
    /// Returns the plugin for this store.
    pub fn new(server: &Server) -> NamespaceLifecycle {
        NamespaceLifecycle {
            store: server.store.clone(),
            namespaces: server.types.resource("", "v1", "namespaces"),
        }
    }

    fn state(&self, namespace: &str) -> Result<State, Status> {
        let stored = self.store.stored(&self.namespaces, "", namespace)?;
        Ok(State::from_stored(stored.as_ref()))
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

    /// Checks an update. Updates are allowed in a terminating namespace.
    fn update(&self, record: &AdmissionRecord<'_, &mut Object>) -> Result<(), Status> {
        let is_missing = record.is_namespaced() && self.state(record.write.namespace)? == State::Absent;
        if is_missing { Err(missing(record.write.namespace)) } else { Ok(()) }
    }
}

/// Refuses writes that the state of a namespace does not permit: a creation in a missing (404) or terminating
/// (403) namespace, an update in a missing namespace (404), and the deletion of a system namespace (403).
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

/// Returns whether this plugin forbids the deletion of at least one object of this resource.
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

/// Returns whether objects of this resource are reviews. Access reviews must be possible for a namespace that
/// does not exist yet.
fn is_review(resource: &Resource) -> bool {
    resource.table.behavior.namespace_may_be_missing
}

fn subject<'s>(resource: &'s Resource, name: &'s str) -> Subject<'s> {
    Subject { group: &resource.group, kind: &resource.table.plural, name }
}

/// Returns the 404 for a missing namespace.
pub fn missing(namespace: &str) -> Status {
    Status::not_found(Subject { group: "", kind: "namespaces", name: namespace })
}

impl State {
    /// Returns the state of a namespace, given the stored object.
    pub fn from_stored(stored: Option<&Stored>) -> State {
        match stored {
            None => State::Absent,
            Some(stored) if Attributes::new(&stored.record.attributes).is_deleting() => State::Terminating,
            Some(_) => State::Active,
        }
    }
}
