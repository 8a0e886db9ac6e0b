//! The owners of a state that is restored. An owner that was deleted and created again has another uid. The
//! garbage collector deletes an object if all its owners are absent, so a restore updates the owner references:
//!
//! | owner of the same kind and name | reference |
//! |---|---|
//! | exists with the uid of the reference | stays |
//! | exists with another uid | gets that uid, with a warning |
//! | does not exist | is removed, with a warning |
//! | is unknown: its kind is not served, or the user has no permission to get the owner | stays, with a warning |

use std::sync::Arc;

use auth::Attributes;

use super::parsed;
use crate::requests::verbs::Call;
use objects::store::{self, Component};
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::metadata_mut;
use values::status::Status;

/// The current state of an owner.
enum CurrentOwner {
    /// The owner exists and has this uid.
    Present(String),
    Absent,
    /// The server did not read the owner. The text is the reason.
    Unknown(&'static str),
}

/// Updates the owner references of a restored state.
///
/// # Errors
/// The store cannot read an owner.
pub(super) async fn update_owners(call: &mut Call<'_>, object: &mut Object) -> Result<(), Status> {
    let references = object.get("metadata").and_then(|metadata| metadata.get("ownerReferences"));
    let Some(references) = references.and_then(Value::as_array) else { return Ok(()) };
    let mut updated = Vec::with_capacity(references.len());
    for reference in references {
        updated.extend(current_reference(call, reference).await?);
    }
    let metadata = metadata_mut(object);
    if updated.is_empty() {
        metadata.remove("ownerReferences");
    } else {
        metadata.insert("ownerReferences", Value::Array(updated));
    }
    Ok(())
}

/// Returns the reference for the restored object; `None` if the reference must be removed.
async fn current_reference(call: &mut Call<'_>, reference: &Value) -> Result<Option<Value>, Status> {
    let text = |name: &str| reference.str_at(&[name]);
    let owner = format!("owner {} {:?}", text("kind"), text("name"));
    match current(call, reference).await? {
        CurrentOwner::Present(uid) if uid == text("uid") => Ok(Some(reference.clone())),
        CurrentOwner::Present(uid) => {
            call.warnings.push(format!("{owner} was created again: the reference has its new uid {uid}"));
            let mut reference = reference.clone();
            if let Value::Object(members) = &mut reference {
                members.insert("uid", uid.as_str().into());
            }
            Ok(Some(reference))
        }
        CurrentOwner::Absent => {
            call.warnings.push(format!("{owner} does not exist: the reference was not restored"));
            Ok(None)
        }
        CurrentOwner::Unknown(why) => {
            call.warnings.push(format!("{owner} was not looked for ({why}): the reference is unchanged"));
            Ok(Some(reference.clone()))
        }
    }
}

/// Reads the owner that a reference names.
async fn current(call: &Call<'_>, reference: &Value) -> Result<CurrentOwner, Status> {
    let Some(resource) = resource_of(call, reference) else {
        return Ok(CurrentOwner::Unknown("its kind is not served"));
    };
    let namespace = if resource.namespaced() { call.info.namespace_of(call.resource) } else { "" };
    let name = reference.str_at(&["name"]);
    let attributes = Attributes {
        verb: "get",
        resource_request: true,
        group: &resource.group,
        version: &resource.version,
        resource: &resource.table.plural,
        namespace,
        name,
        ..Attributes::path(call.proof.user(), "", "")
    };
    if call.server().access.authorizer.authorize(&attributes).await.is_err() {
        return Ok(CurrentOwner::Unknown("the user may not get it"));
    }
    let key = store::key(&resource, namespace, name);
    let Some(entry) = call.server().store.open_for(Component::Owners).entry(&key) else {
        return Ok(CurrentOwner::Absent);
    };
    let charge = call.server().operations.memory.work(0, entry.stored_len()).await;
    let charge = charge.map_err(Status::no_memory)?;
    let owner = parsed(&store::read(entry)?.record.value)?;
    let uid = owner.str_at(&["metadata", "uid"]).to_owned();
    drop(charge);
    Ok(CurrentOwner::Present(uid))
}

/// Returns the stored resource of the kind in a reference, in any of its versions.
fn resource_of(call: &Call<'_>, reference: &Value) -> Option<Arc<Resource>> {
    let api_version = reference.str_at(&["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let types = call.server().types.now();
    let resource = types.registry().by_kind(group, version, reference.str_at(&["kind"]));
    resource.filter(|resource| resource.storage.is_some()).cloned()
}
