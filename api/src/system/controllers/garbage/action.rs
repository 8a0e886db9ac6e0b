//! What the collector does about an object, once it is decided. Everything written holds only for the life of the
//! object that was looked at, and can be done twice.

use std::sync::Arc;

use engine::Revision;
use futures_util::future::try_join_all;
use http::StatusCode;
use tokio::sync::Semaphore;

use super::head::Owner;
use crate::system::controllers::WRITES_MAX;
use crate::writes::loopback::{Loopback, Warning};
use crate::writes::write::deletion::{FOREGROUND, ORPHAN};
use objects::store;
use objects::strategy::Endpoint;
use types::options::{DeleteOptions, Propagation};
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::{finalizers, meta, metadata_mut, set_finalizers};
use values::status::Status;

/// Where an object is.
pub struct Place {
    /// Its resource, in the stored form.
    pub resource: Arc<Resource>,
    /// Its namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Place {
    /// The place a key of `resource` stands for.
    pub fn of(resource: &Arc<Resource>, key: &[u8]) -> Self {
        let (namespace, name) = store::identity(resource, key);
        Place { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What is to be done about one object.
pub struct Action {
    /// Where it is.
    pub place: Place,
    /// Which life of it is meant.
    pub uid: String,
    /// The write.
    pub write: Option<Write>,
    /// Its owners that are in another namespace, which the user should know about.
    pub strays: Vec<Owner>,
}

/// What becomes of the object.
pub enum Write {
    /// It goes, if it still is as it was looked at.
    Delete {
        /// Where it was looked at.
        revision: Revision,
        /// What becomes of its own dependents.
        propagation: Propagation,
        /// Whether it must stop blocking its owners first.
        unblocks: bool,
    },
    /// It loses the owners with these uids, because another one holds it.
    Disown {
        /// The uids.
        owners: Vec<String>,
    },
    /// Its dependents lose it as an owner; then nothing keeps it on their account.
    Orphan {
        /// Where they are.
        dependents: Vec<Place>,
    },
    /// Its blocking dependents are gone; nothing keeps it on their account.
    Release,
    /// Nothing, before the owners are looked for in the newest state of these resources, which are kept apart from its own.
    LookAgain {
        /// The resources of the owners.
        owners: Vec<Arc<Resource>>,
    },
}

/// How an action ended.
pub enum Outcome {
    /// Done, or nothing to do any more.
    Done,
    /// The object is not as it was looked at.
    Changed,
    /// What is known of its owners is the newest state.
    Newest,
}

impl Action {
    /// Does it; each write takes one of `writes`.
    pub async fn carry_out(self, loopback: &Loopback<'_>, writes: &Semaphore) -> Result<Outcome, Status> {
        for owner in &self.strays {
            let _turn = writes.acquire().await;
            if let Err(error) = report_stray(loopback, &self.place, &self.uid, owner).await {
                tracing::warn!(%error, "no event tells of an owner in another namespace");
            }
        }
        let (place, uid) = (&self.place, self.uid.as_str());
        match self.write {
            None => Ok(Outcome::Done),
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
                Ok(Outcome::Done)
            }
            Some(Write::Orphan { dependents }) => {
                for some in dependents.chunks(WRITES_MAX) {
                    try_join_all(some.iter().map(|dependent| orphan(loopback, dependent, uid, writes)))
                        .await?;
                }
                let _turn = writes.acquire().await;
                change(loopback, place, uid, |object| let_go(object, ORPHAN)).await?;
                Ok(Outcome::Done)
            }
            Some(Write::LookAgain { owners }) => {
                try_join_all(owners.iter().map(|owner| loopback.api().current(owner))).await?;
                Ok(Outcome::Newest)
            }
            Some(Write::Release) => {
                let _turn = writes.acquire().await;
                change(loopback, place, uid, |object| let_go(object, FOREGROUND)).await?;
                Ok(Outcome::Done)
            }
        }
    }
}

async fn orphan(
    loopback: &Loopback<'_>,
    dependent: &Place,
    owner: &str,
    writes: &Semaphore,
) -> Result<(), Status> {
    let _turn = writes.acquire().await;
    change_any(loopback, dependent, |object| disown(object, &[owner.to_owned()])).await
}

async fn delete(
    loopback: &Loopback<'_>,
    place: &Place,
    uid: &str,
    revision: Revision,
    propagation: Propagation,
) -> Result<Outcome, Status> {
    let options = DeleteOptions {
        propagation: Some(propagation),
        uid: Some(uid.to_owned()),
        resource_version: Some(revision.to_string()),
        ..DeleteOptions::default()
    };
    match loopback.delete_object(&place.resource, (&place.namespace, &place.name), &options).await {
        Ok(_) => Ok(Outcome::Done),
        Err(error) if error.code == StatusCode::NOT_FOUND => Ok(Outcome::Done),
        Err(error) if error.code == StatusCode::CONFLICT => Ok(Outcome::Changed),
        Err(error) => Err(error),
    }
}

/// Changes the object if it still is in the life that is meant.
async fn change(
    loopback: &Loopback<'_>,
    place: &Place,
    uid: &str,
    make: impl Fn(&mut Object) -> bool + Sync,
) -> Result<(), Status> {
    change_any(loopback, place, |object| meta(object, "uid") == uid && make(object)).await
}

/// Changes the object, whichever life it is in; `make` says whether it did.
async fn change_any(
    loopback: &Loopback<'_>,
    place: &Place,
    make: impl Fn(&mut Object) -> bool + Sync,
) -> Result<(), Status> {
    let make = |old: &Object| {
        let mut new = old.clone();
        make(&mut new).then_some(new)
    };
    loopback.change(&place.resource, (&place.namespace, &place.name), Endpoint::Main, make).await
}

/// Takes owners away by their uids; says whether there was one.
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

/// Makes the object block none of its owners; says whether it blocked one.
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

/// Takes one of our finalizers away; says whether it was there.
fn let_go(object: &mut Object, finalizer: &str) -> bool {
    let kept: Vec<&str> = finalizers(object).into_iter().filter(|name| *name != finalizer).collect();
    if kept.len() == finalizers(object).len() {
        return false;
    }
    let kept = kept.into_iter().map(Value::from).collect();
    set_finalizers(object, kept);
    true
}

/// Tells with an event that an owner is not in the namespace of its dependent
/// (docs/api/controllers.md#garbage-collector).
async fn report_stray(
    loopback: &Loopback<'_>,
    place: &Place,
    uid: &str,
    owner: &Owner,
) -> Result<(), Status> {
    let namespace = if place.namespace.is_empty() { "default" } else { place.namespace.as_str() };
    let message = format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
        owner.api_version, owner.kind, place.namespace, owner.name, owner.uid, place.namespace
    );
    let event =
        Warning { reason: "OwnerRefInvalidNamespace", message, component: "garbage-collector-controller" };
    loopback.warn(&place.resource, (namespace, &place.name), uid, event).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::json::parse;

    #[test]
    fn each_change_says_whether_it_changed_anything() {
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
            (&|object| let_go(object, ORPHAN), r#"{"finalizers":["x","orphan"]}"#, r#"{"finalizers":["x"]}"#),
            (&|object| let_go(object, ORPHAN), r#"{"finalizers":["x"]}"#, ""),
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
