//! Migrates the objects of a definition to its storage version, if `--controllers` enables this controller
//! (docs/api/controllers.md#storage-migration).
//!
//! ```text
//! status.storedVersions names another version ─► objects in another version, each rewritten ─► none left
//!                                                        ─► status.storedVersions is the storage version alone
//! ```
//!
//! The list of stored versions is the state of a migration: the list contains the other versions until the last
//! object is rewritten, so the migration continues with the remaining objects after a restart. A rewritten
//! object changes only its version; watchers receive the write as an event. An object that changes in the
//! meantime is already stored in the new version.

use std::collections::HashSet;
use std::sync::Arc;

use engine::TailError;
use futures_util::FutureExt;
use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;

use super::super::{Backoff, EVENTS_MAX, Ending, Trouble, WRITES_MAX};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::conversion::is_current;
use objects::custom::definition::Definition;
use objects::custom::stored_definition::{is_deleted, is_served};
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::cancellation::{Panicked, catching_panics};
use values::json::{Object, Value};
use values::status::Status;

/// Maximum number of passes over the objects in one attempt. A second pass is needed if a write that began
/// under the old version ends after the first pass.
const PASSES_MAX: usize = 10;

/// Runs the controller, which follows the definitions and migrates objects to their storage versions. If
/// several servers share a store, only one of the servers migrates objects.
pub(in super::super) async fn follow(server: Arc<Server>) -> Ending {
    let prefix = store::collection(&server.types.definitions, "");
    let name_of = |key: &[u8]| store::object_name(&server.types.definitions, key).name.to_owned();
    let snapshot = server.store.engine().snapshot();
    let mut tail = server.store.engine().tail(snapshot.revision(), prefix.clone())?;
    let mut names: Vec<String> = snapshot.prefix(&prefix).map(|entry| name_of(entry.key())).collect();
    drop(snapshot);
    // Definitions whose objects are being migrated, one task each.
    let (mut migrating, mut migrations) = (HashSet::new(), JoinSet::new());
    loop {
        for name in names {
            if !migrating.contains(&name) && due(&server, &name)?.is_some() {
                migrating.insert(name.clone());
                migrations.spawn(run(server.clone(), name).boxed());
            }
        }
        names = tokio::select! {
            events = tail.next(EVENTS_MAX) => events?.iter().map(|event| name_of(&event.key)).collect(),
            Some(ended) = migrations.join_next() => {
                // The storage version may have changed just before the task ended, so check the definition
                // again. Tasks catch their panics, so an error means that the task was aborted.
                if let Ok(name) = &ended {
                    migrating.remove(name);
                }
                ended.into_iter().collect()
            }
        };
    }
}

/// Returns the newest state of a definition, if the objects of the definition may be stored in another version than the
/// storage version.
fn due(server: &Server, name: &str) -> Result<Option<Definition>, Status> {
    let stored = Loopback::new(server).store().get(&store::key(&server.types.definitions, "", name))?;
    let Some(object) = stored.map(|stored| stored.object(&server.types.definitions)).transpose()? else {
        return Ok(None);
    };
    let definition = Definition::read(&object);
    Ok((is_served(server.types.naming, &object, &definition) && is_due(&object, &definition))
        .then_some(definition))
}

/// Returns whether objects may be stored in another version than the definition's storage version.
fn is_due(object: &Object, definition: &Definition) -> bool {
    let Some(storage) = definition.storage_version() else { return false };
    !is_deleted(object) && definition.stored_versions.iter().any(|name| *name != storage.name)
}

/// Migrates the objects of one definition, with as many retries as needed; returns the name of the
/// definition.
async fn run(server: Arc<Server>, name: String) -> String {
    let mut backoff = Backoff::default();
    loop {
        match catching_panics(migrate(&server, &name)).await {
            Ok(Ok(true) | Err(Trouble::Tail(TailError::Closed))) => return name,
            Ok(Ok(false)) => {}
            Ok(Err(trouble)) => tracing::warn!(definition = name, error = %trouble, "migration restarts"),
            Err(Panicked) => tracing::error!(definition = name, "migration failed, restarting"),
        }
        backoff.pause().await;
    }
}

/// Rewrites the objects that are in another version, and then updates the list of versions. Returns `false` if
/// such objects are left.
async fn migrate(server: &Server, name: &str) -> Result<bool, Trouble> {
    let loopback = Loopback::new(server).without_admission();
    let Some(definition) = due(server, name)? else { return Ok(true) };
    let Some(storage) = definition.storage_version() else { return Ok(true) };
    let served = server.establish(|established, _| {
        let mut resources = established.resources(name).iter();
        resources.find(|resource| resource.is_stored_version()).cloned()
    });
    // The definition will be served soon: another task follows the same events.
    let Some(resource) = served else { return Ok(false) };
    if *resource.version != storage.name {
        return Ok(false);
    }
    server.creations.settled().await;
    let mut written = 0;
    for _ in 0..PASSES_MAX {
        match pass(&loopback, &resource).await? {
            0 => {
                tracing::info!(
                    definition = name,
                    version = storage.name,
                    objects = written,
                    "objects migrated"
                );
                end(server, name, &storage.name).await?;
                return Ok(true);
            }
            count => written += count,
        }
    }
    Ok(false)
}

/// Rewrites the objects that are in another version now, and returns their number.
async fn pass(loopback: &Loopback<'_>, resource: &Resource) -> Result<usize, Status> {
    let snapshot = loopback.store().view();
    let stale = snapshot.prefix(&store::collection(resource, "")).filter_map(|entry| {
        let revision = entry.revision();
        let stored = store::read(entry).ok()?;
        (!is_current(resource, &stored.record.attributes)).then_some((revision, stored.record.key))
    });
    let writes = stream::iter(stale).map(|(revision, key)| async move {
        loopback.backfill(resource, store::object_name(resource, &key), revision).await
    });
    let mut writes = std::pin::pin!(writes.buffer_unordered(WRITES_MAX));
    let mut count = 0;
    while let Some(outcome) = writes.next().await {
        outcome?;
        count += 1;
    }
    Ok(count)
}

/// Sets the list of stored versions to only the storage version, if the storage version has not changed.
async fn end(server: &Server, name: &str, storage: &str) -> Result<(), Status> {
    let only = |object: &Object| {
        let definition = Definition::read(object);
        let is_still = definition.storage_version().is_some_and(|version| version.name == storage);
        if !is_still || !is_due(object, &definition) {
            return None;
        }
        let mut changed = object.clone();
        changed.object_entry("status").insert("storedVersions", Value::Array(vec![storage.into()]));
        Some(changed)
    };
    Loopback::new(server)
        .change(&server.types.definitions, ObjectName::cluster_scoped(name), Endpoint::Status, only)
        .await
}
