//! The writes of the collector. Each write is conditional on the uid of the object that was checked, and can
//! be repeated.

use std::sync::Arc;

use engine::Revision;
use futures_util::future::try_join_all;
use http::StatusCode;
use tokio::sync::Semaphore;

use super::head::OwnerReference;
use crate::system::controllers::WRITES_MAX;
use crate::writes::loopback::{Loopback, WarningEvent};
use crate::writes::write::deletion::{FOREGROUND, ORPHAN};
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::options::{DeleteOptions, Propagation};
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::{finalizers, meta, metadata_mut, set_finalizers};
use values::status::Status;

/// Location of an object in the store.
pub struct ObjectLocation {
    /// Resource type in its stored version.
    pub resource: Arc<Resource>,
    /// Namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectLocation {
    /// Returns the location of the object at a key of `resource`.
    pub fn from_key(resource: &Arc<Resource>, key: &[u8]) -> Self {
        let ObjectName { namespace, name } = store::object_name(resource, key);
        ObjectLocation { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Returns the namespace and name.
    pub fn object_name(&self) -> ObjectName<'_> {
        ObjectName { namespace: &self.namespace, name: &self.name }
    }
}

/// The action for one object.
pub struct Action {
    /// Location of the object.
    pub place: ObjectLocation,
    /// Uid of the object that was checked.
    pub uid: String,
    /// The write to make, if any.
    pub write: Option<Write>,
    /// Owners in another namespace, which are reported to the user in events.
    pub strays: Vec<OwnerReference>,
}

/// A change of an object by the collector.
pub enum Write {
    /// Delete the object, if the object is unchanged.
    Delete {
        /// Revision at which the object was checked.
        revision: Revision,
        /// Propagation policy for the object's own dependents.
        propagation: Propagation,
        /// Whether the object must stop blocking its owners first.
        unblocks: bool,
    },
    /// Remove the owner references with these uids, because another owner keeps the object.
    Disown {
        /// Uids of the owners to remove.
        owners: Vec<String>,
    },
    /// Remove the object from the owner references of its dependents, and then remove the orphan finalizer of
    /// the object.
    Orphan {
        /// Locations of the dependents.
        dependents: Vec<ObjectLocation>,
    },
    /// Remove the foreground finalizer, because the blocking dependents are gone.
    Release,
    /// Do not write yet. The owners belong to resources in other stores, so they must first be looked up in
    /// the newest state of those stores.
    LookAgain {
        /// Resource types of the owners.
        owners: Vec<Arc<Resource>>,
    },
}

/// The outcome of an action.
pub enum ActionOutcome {
    /// The action is done, or no longer needed.
    Done,
    /// The object has changed since it was checked.
    Changed,
    /// The resources of the owners are now in their newest state.
    Newest,
}

impl Action {
    /// Carries out the action; each write takes a permit of `writes`.
    pub async fn carry_out(
        self,
        loopback: &Loopback<'_>,
        writes: &Semaphore,
    ) -> Result<ActionOutcome, Status> {
        for owner in &self.strays {
            let _turn = writes.acquire().await;
            if let Err(error) = report_stray(loopback, &self.place, &self.uid, owner).await {
                tracing::warn!(%error, "event about an owner in another namespace not written");
            }
        }
        let (place, uid) = (&self.place, self.uid.as_str());
        match self.write {
            None => Ok(ActionOutcome::Done),
            Some(Write::Delete { revision, propagation, unblocks }) => {
                let _turn = writes.acquire().await;
                if unblocks {
                    change(loopback, place, uid, unblock).await?;
                }
                delete(loopback, place, uid, revision, propagation).await
            }
            Some(Write::Disown { owners }) => {
                let _turn = writes.acquire().await;
                change(loopback, place, uid, |object| disown(object, &owners)).await?;
                Ok(ActionOutcome::Done)
            }
            Some(Write::Orphan { dependents }) => {
                for some in dependents.chunks(WRITES_MAX) {
                    try_join_all(some.iter().map(|dependent| orphan(loopback, dependent, uid, writes)))
                        .await?;
                }
                let _turn = writes.acquire().await;
                change(loopback, place, uid, |object| remove_finalizer(object, ORPHAN)).await?;
                Ok(ActionOutcome::Done)
            }
            Some(Write::LookAgain { owners }) => {
                try_join_all(owners.iter().map(|owner| loopback.server().store.current(owner))).await?;
                Ok(ActionOutcome::Newest)
            }
            Some(Write::Release) => {
                let _turn = writes.acquire().await;
                change(loopback, place, uid, |object| remove_finalizer(object, FOREGROUND)).await?;
                Ok(ActionOutcome::Done)
            }
        }
    }
}

async fn orphan(
    loopback: &Loopback<'_>,
    dependent: &ObjectLocation,
    owner: &str,
    writes: &Semaphore,
) -> Result<(), Status> {
    let _turn = writes.acquire().await;
    change_any(loopback, dependent, |object| disown(object, &[owner.to_owned()])).await
}

async fn delete(
    loopback: &Loopback<'_>,
    place: &ObjectLocation,
    uid: &str,
    revision: Revision,
    propagation: Propagation,
) -> Result<ActionOutcome, Status> {
    let options = DeleteOptions {
        propagation: Some(propagation),
        uid: Some(uid.to_owned()),
        resource_version: Some(revision.to_string()),
        ..DeleteOptions::default()
    };
    match loopback.delete_object(&place.resource, place.object_name(), &options).await {
        Ok(_) => Ok(ActionOutcome::Done),
        Err(error) if error.code == StatusCode::NOT_FOUND => Ok(ActionOutcome::Done),
        Err(error) if error.code == StatusCode::CONFLICT => Ok(ActionOutcome::Changed),
        Err(error) => Err(error),
    }
}

/// Changes the object if it still has the same uid.
async fn change(
    loopback: &Loopback<'_>,
    place: &ObjectLocation,
    uid: &str,
    make: impl Fn(&mut Object) -> bool + Sync,
) -> Result<(), Status> {
    change_any(loopback, place, |object| meta(object, "uid") == uid && make(object)).await
}

/// Changes the object without a check of its uid; `make` changes the object, and returns whether the object is
/// different now.
async fn change_any(
    loopback: &Loopback<'_>,
    place: &ObjectLocation,
    make: impl Fn(&mut Object) -> bool + Sync,
) -> Result<(), Status> {
    let make = |old: &Object| {
        let mut new = old.clone();
        make(&mut new).then_some(new)
    };
    loopback.change(&place.resource, place.object_name(), Endpoint::Main, make).await
}

/// Removes owner references by uid. Returns whether the object had such a reference.
fn disown(object: &mut Object, uids: &[String]) -> bool {
    let metadata = metadata_mut(object);
    let Some(owners) = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return false;
    };
    let before = owners.len();
    owners.retain(|owner| !uids.iter().any(|uid| owner.str_at(&["uid"]) == uid));
    let (changed, is_empty) = (owners.len() != before, owners.is_empty());
    if is_empty {
        metadata.remove("ownerReferences");
    }
    changed
}

/// Clears the flag that blocks owners in all owner references. Returns whether a flag was set.
fn unblock(object: &mut Object) -> bool {
    let owners = metadata_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut);
    let mut changed = false;
    for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
        if owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true) {
            owner.insert("blockOwnerDeletion", false.into());
            changed = true;
        }
    }
    changed
}

/// Removes one of our finalizers. Returns whether the object had the finalizer.
fn remove_finalizer(object: &mut Object, finalizer: &str) -> bool {
    let kept: Vec<&str> = finalizers(object).into_iter().filter(|name| *name != finalizer).collect();
    if kept.len() == finalizers(object).len() {
        return false;
    }
    let kept = kept.into_iter().map(Value::from).collect();
    set_finalizers(object, kept);
    true
}

/// Records an event that an owner is not in the namespace of its dependent
/// (docs/api/controllers.md#garbage-collector).
async fn report_stray(
    loopback: &Loopback<'_>,
    place: &ObjectLocation,
    uid: &str,
    owner: &OwnerReference,
) -> Result<(), Status> {
    let namespace = if place.namespace.is_empty() { "default" } else { place.namespace.as_str() };
    let message = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
        owner.api_version, owner.kind, place.namespace, owner.name, owner.uid, place.namespace
    );
    let event = WarningEvent {
        reason: "OwnerRefInvalidNamespace",
        message,
        component: "garbage-collector-controller",
    };
    loopback.warn(&place.resource, ObjectName { namespace, name: &place.name }, uid, event).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    #[test]
    fn each_garbage_collector_edit_reports_whether_it_changed_the_object() {
        let gone = ["a".to_owned(), "c".to_owned()];
        type Edit<'e> = &'e dyn Fn(&mut Object) -> bool;
        let table: [(Edit<'_>, &str, &str); 7] = [
            (
                &|object| disown(object, &gone),
                r#"{"ownerReferences":[{"uid":"a"},{"uid":"b"},{"uid":"c"}]}"#,
                r#"{"ownerReferences":[{"uid":"b"}]}"#,
            ),
            (
                &|object| disown(object, &gone),
                r#"{"name":"n","ownerReferences":[{"uid":"a"}]}"#,
                r#"{"name":"n"}"#,
            ),
            (&|object| disown(object, &gone), r#"{"ownerReferences":[{"uid":"b"}]}"#, ""),
            (
                &unblock,
                r#"{"ownerReferences":[{"blockOwnerDeletion":true},{"uid":"b"}]}"#,
                r#"{"ownerReferences":[{"blockOwnerDeletion":false},{"uid":"b"}]}"#,
            ),
            (&unblock, r#"{"ownerReferences":[{"uid":"b"}]}"#, ""),
            (
                &|object| remove_finalizer(object, ORPHAN),
                r#"{"finalizers":["x","orphan"]}"#,
                r#"{"finalizers":["x"]}"#,
            ),
            (&|object| remove_finalizer(object, ORPHAN), r#"{"finalizers":["x"]}"#, ""),
        ];
        for (edit, before, after) in table {
            let of = |metadata: &str| {
                let text = format!(r#"{{"metadata":{metadata}}}"#);
                parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
            };
            let mut object = of(before);
            let changed = edit(&mut object);
            assert_eq!(changed, !after.is_empty(), "{before}");
            assert_eq!(object, of(if changed { after } else { before }));
        }
    }
}
