//! Deletion of a definition: its objects are deleted, its types are no longer served, and then the definition
//! is removed.
//!
//! ```text
//! in progress ─► creations settled ─► objects deleted ─► none left ─► types gone ─► finalizer gone
//! ```
//!
//! The deletion of objects works as in a request: finalizers are respected, and the types are served until all
//! objects are gone. The state of the deletion is only in the store, so the controller continues the deletion
//! after a restart.

use std::sync::Arc;

use engine::TailError;

use super::super::contents::{Failures, delete_all};
use super::super::{Backoff, EVENTS_MAX, Trouble};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::custom::definition::Definition;
use objects::custom::definition::conditions::{Deletion, State, finalizer};
use objects::custom::definition::naming::ESTABLISHED;
use objects::custom::serving::Makers;
use objects::custom::stored_definition::{holds, is_deleted};
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::cancellation::{Panicked, catching_panics};
use values::clock;
use values::json::{Object, Value};
use values::object::{finalizers, set_finalizers};
use values::status::Status;

/// Deletes the contents of a definition, with as many retries as needed; returns the name of the definition.
pub(super) async fn end(server: Arc<Server>, name: String) -> String {
    let mut backoff = Backoff::default();
    loop {
        // Wait until the store is whole. Otherwise objects that cannot be read would count as deleted.
        server.store.backends.until_whole(true).await;
        let cleared = tokio::select! {
            biased;
            () = server.store.backends.until_whole(false) => continue,
            cleared = catching_panics(clear(&server, &name)) => cleared,
        };
        match cleared {
            Ok(Ok(true) | Err(Trouble::Tail(TailError::Closed))) => return name,
            Ok(Ok(false)) => {}
            Ok(Err(trouble)) => tracing::warn!(definition = name, error = %trouble, "deletion restarts"),
            Err(Panicked) => tracing::error!(definition = name, "deletion failed, restarting"),
        }
        backoff.pause().await;
    }
}

/// Deletes the objects of a definition and removes its finalizer. Returns `false` if some objects cannot be
/// deleted.
async fn clear(server: &Server, name: &str) -> Result<bool, Trouble> {
    let stored = Loopback::new(server).store().get(&store::key(&server.types.definitions, "", name))?;
    let Some(object) = stored.map(|stored| stored.object(&server.types.definitions)).transpose()? else {
        return Ok(true);
    };
    if !is_deleted(&object) || !holds(server.types.naming, &object) {
        return Ok(true);
    }
    let definition = Definition::read(&object);
    let outcome = if definition.is(ESTABLISHED) {
        if let Some(failures) = delete_objects(server, name, &object, &definition).await? {
            write_condition(server, name, &Deletion::Failed(failures)).await?;
            return Ok(false);
        }
        Deletion::Completed
    } else {
        Deletion::NeverEstablished
    };
    // Remove the types before the finalizer, so that a create finds either a deleted definition or no type.
    server.establish(|established, changes| established.remove(name, changes));
    let last = |object: &Object| {
        let mut changed = with_condition(object, &outcome)?;
        let ours = finalizer(server.types.naming);
        let others = finalizers(object).into_iter().filter(|name| *name != ours).map(Value::from).collect();
        set_finalizers(&mut changed, others);
        Some(changed)
    };
    Loopback::new(server)
        .change(&server.types.definitions, ObjectName::cluster_scoped(name), Endpoint::Status, last)
        .await?;
    Ok(true)
}

/// Deletes the objects and waits until no object is left. Returns the reason if some objects cannot be deleted.
async fn delete_objects(
    server: &Server,
    name: &str,
    object: &Object,
    definition: &Definition,
) -> Result<Option<String>, Trouble> {
    let served = server.establish(|established, _| {
        let mut resources = established.resources(name).iter();
        // Deletion needs no conversion.
        resources.find(|resource| resource.is_stored_version()).cloned()
    });
    let resource = match served {
        Some(resource) => Some(resource),
        None => Makers::new(definition, object).map_err(Status::internal)?.stored(server.types.naming),
    };
    let Some(resource) = resource else { return Ok(None) };
    write_condition(server, name, &Deletion::InProgress).await?;
    // After this step no objects are added: a create that begins now finds that the definition is being
    // deleted.
    server.creations.settled().await;
    let mut failures = Failures::default();
    delete_all(&Loopback::new(server).without_admission(), &resource, "", false, &mut failures).await;
    if let Some(text) = failures.text() {
        return Ok(Some(text));
    }
    wait_until_empty(server, &resource).await?;
    Ok(None)
}

/// Waits until a resource has no objects.
async fn wait_until_empty(server: &Server, resource: &Resource) -> Result<(), TailError> {
    let prefix = store::collection(resource, "");
    let snapshot = server.store.engine().snapshot();
    let mut tail = server.store.engine().tail(snapshot.revision(), prefix.clone())?;
    let mut left = snapshot.count_prefix(&prefix);
    drop(snapshot);
    while left > 0 {
        tail.next(EVENTS_MAX).await?;
        left = server.store.engine().snapshot().count_prefix(&prefix);
    }
    Ok(())
}

/// Reports the progress of the deletion in the definition's conditions.
async fn write_condition(server: &Server, name: &str, deletion: &Deletion) -> Result<(), Status> {
    let tell = |object: &Object| with_condition(object, deletion);
    Loopback::new(server)
        .change(&server.types.definitions, ObjectName::cluster_scoped(name), Endpoint::Status, tell)
        .await
}

/// Returns the definition with the condition; `None` if the definition is not being deleted.
fn with_condition(object: &Object, deletion: &Deletion) -> Option<Object> {
    let mut changed = is_deleted(object).then(|| object.clone())?;
    let mut state = State::from_definition(&Definition::read(object));
    state.set(deletion.condition(), &clock::now());
    state.write(&mut changed);
    Some(changed)
}
