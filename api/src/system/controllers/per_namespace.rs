//! Maintains one object of a kind in every active namespace: creates the object if it is missing, and repairs
//! it if it was changed.
//!
//! ```text
//! tail on namespaces ── new one ────────────────┐
//!                                               ├─► newest state of the object → wanted state → store
//! tail on the kind ── change to one of the name ┘                              │
//!                                               ▲                              │ refused (a quota)
//!                                               └────────── a while later ◄────┘
//! ```
//!
//! A namespace that refuses the object does not delay other namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::EventKind;
use futures_util::{StreamExt, stream};

use super::{EVENTS_MAX, Ending, WRITES_MAX};
use crate::writes::admission::namespace_lifecycle::State;
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store;
use values::json::Value;
use values::retry::Attempts;
use values::status::{Status, StatusReason};

/// Pause before a retry in namespaces that refused the object.
const AGAIN: Duration = Duration::from_secs(10);

/// The object that every namespace should have.
pub struct NamespaceObject<F> {
    /// Plural resource name in the core group.
    pub resource: &'static str,
    /// Name of the object.
    pub name: &'static str,
    /// The controller that writes the object.
    pub controller: &'static str,
    /// Returns the desired object for the existing object; `None` leaves the existing object unchanged. The
    /// caller sets name and namespace.
    pub make: F,
}

/// Runs the controller, which follows namespaces and objects.
pub async fn follow<F>(server: Arc<Server>, desired: NamespaceObject<F>) -> Ending
where
    F: Fn(Option<Value>) -> Option<Value> + Sync,
{
    let resource = Loopback::new(&server).resource(&desired.target(""))?;
    let own = store::collection(&server.types.namespaces, "");
    let snapshot = server.store.engine().snapshot();
    let mut namespaces = server.store.engine().tail(snapshot.revision(), own.clone())?;
    let mut objects = server.store.engine().tail(snapshot.revision(), store::collection(resource, ""))?;
    let name_of = |key: &[u8]| store::object_name(&server.types.namespaces, key).name.to_owned();
    let all = snapshot.prefix(&own).map(|entry| name_of(entry.key()));
    let mut refused = ensure_all(&server, &desired, all).await;
    drop(snapshot);
    loop {
        let again = async {
            if refused.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        let concerned: BTreeSet<String> = tokio::select! {
            () = again => std::mem::take(&mut refused),
            events = namespaces.next(EVENTS_MAX) => {
                let events = events?;
                let is_new = |event: &&Arc<engine::Event>| event.kind == EventKind::Put && event.previous.is_none();
                events.iter().filter(is_new).map(|event| name_of(&event.key)).collect()
            }
            events = objects.next(EVENTS_MAX) => {
                let events = events?;
                let concerned = events.iter().map(|event| store::object_name(resource, &event.key));
                concerned
                    .filter(|object| object.name == desired.name)
                    .map(|object| object.namespace.to_owned())
                    .collect()
            }
        };
        refused.append(&mut ensure_all(&server, &desired, concerned.into_iter()).await);
    }
}

/// Creates or repairs the object in each namespace. Returns the namespaces that refused the object.
async fn ensure_all<F>(
    server: &Server,
    desired: &NamespaceObject<F>,
    namespaces: impl Iterator<Item = String>,
) -> BTreeSet<String>
where
    F: Fn(Option<Value>) -> Option<Value> + Sync,
{
    let writes = namespaces.map(|namespace| async move {
        match desired.ensure(server, &namespace).await {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%namespace, name = desired.name, %error, "object refused");
                Some(namespace)
            }
        }
    });
    let mut outcomes = stream::iter(writes).buffer_unordered(WRITES_MAX);
    let mut refused = BTreeSet::new();
    while let Some(outcome) = outcomes.next().await {
        refused.extend(outcome);
    }
    refused
}

impl<F> NamespaceObject<F>
where
    F: Fn(Option<Value>) -> Option<Value> + Sync,
{
    fn target(&self, namespace: &str) -> ObjectTarget {
        let (namespace, name) = (namespace.to_owned(), self.name.to_owned());
        ObjectTarget { group: "", version: "v1", resource: self.resource, namespace, name }
    }

    /// Creates or repairs the object in one namespace, if the namespace is active.
    async fn ensure(&self, server: &Server, namespace: &str) -> Result<(), Status> {
        let loopback = Loopback::controller(server, self.controller);
        let target = self.target(namespace);
        let mut attempts = Attempts::new();
        loop {
            let _creation = server.creations.begin();
            if loopback.namespace_state(namespace)? != State::Active {
                return Ok(());
            }
            let existing = loopback.get(&target)?;
            let is_there = existing.is_some();
            let Some(mut object) = (self.make)(existing) else { return Ok(()) };
            if let Some(members) = object.as_object_mut() {
                let metadata = members.object_entry("metadata");
                metadata.insert("name", self.name.into());
                metadata.insert("namespace", namespace.into());
            }
            let written = if is_there {
                loopback.update(&target, object).await
            } else {
                loopback.create(&target, object).await
            };
            match written {
                Ok(WriteResult::Done) => return Ok(()),
                Ok(WriteResult::Conflict) => {}
                // The existing object may be immutable, for example an immutable config map. Such an object
                // cannot be repaired.
                Err(error) if error.reason == StatusReason::Invalid => {
                    tracing::warn!(?target, %error, "object cannot be restored");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            attempts.again().await.map_err(Status::internal)?;
        }
    }
}
