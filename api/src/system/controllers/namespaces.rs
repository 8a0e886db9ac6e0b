//! Deletion of namespaces: a deleted namespace is emptied, and then removed
//! (docs/api/controllers.md#namespace-controller).
//!
//! ```text
//! tail on namespaces ─ terminating ─► one task each:
//!
//!   creations settled ─► sweep: pods, then the rest ──┬─ nothing left ─► remove our finalizer ─► gone
//!                          ▲                          └─ conditions ─► tails on the remaining objects
//!                          └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The deletion of objects works as in a request: finalizers and the grace period of pods are respected, so a
//! terminating namespace may exist for a long time. A waiting task needs only tails of the resources that still
//! have objects. The state of the deletion is only in the store, so the controller continues the deletion after
//! a restart.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Entry, EventKind, Revision, TailError};
use futures_util::FutureExt;
use futures_util::future::select_all;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::condition::Condition;
use super::contents::{Failures, delete_all};
use super::{Backoff, EVENTS_MAX, Ending, Trouble};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::backends::Backend;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::attributes::Attributes;
use types::schema::registry::Resource;
use types::served::Served;
use values::cancellation::{Panicked, catching_panics};
use values::json::{Object, Value};
use values::object::{at, meta};
use values::status::Status;

/// User under which namespaces are emptied.
const NAME: &str = "namespace-controller";

/// Maximum number of namespaces that are swept at the same time, as in Kubernetes. Other namespaces wait.
const SWEEPS_MAX: usize = 10;

/// Minimum time between two counts of the remaining objects, so that thousands of single deletions do not cause
/// thousands of counts. The deletion of the last object is still noticed at once.
const COUNT_PACE: Duration = Duration::from_secs(1);

/// Number of objects whose finalizers are counted before the task yields.
const COUNTS_IN_A_ROW: usize = 256;

/// Runs the controller, which follows the namespaces and empties the terminating namespaces.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let prefix = store::collection(&server.types.namespaces, "");
    let snapshot = server.store.engine().snapshot();
    let mut tail = server.store.engine().tail(snapshot.revision(), prefix.clone())?;
    let sweeps = Arc::new(Semaphore::new(SWEEPS_MAX));
    let mut tasks = JoinSet::new();
    let mut running = HashSet::new();
    let begin = |tasks: &mut JoinSet<String>, running: &mut HashSet<String>, name: &str| {
        // A running task checks the newest state itself.
        if running.insert(name.to_owned()) {
            tasks.spawn(end(server.clone(), sweeps.clone(), name.to_owned()).boxed());
        }
    };
    for entry in snapshot.prefix(&prefix).filter(is_terminating) {
        begin(&mut tasks, &mut running, store::object_name(&server.types.namespaces, entry.key()).name);
    }
    drop(snapshot);
    loop {
        tokio::select! {
            events = tail.next(EVENTS_MAX) => for event in events? {
                if event.kind == EventKind::Put && is_terminating(&event.entry) {
                    begin(&mut tasks, &mut running, store::object_name(&server.types.namespaces, &event.key).name);
                }
            },
            Some(ended) = tasks.join_next() => {
                // Tasks catch their panics, so this task was aborted together with the set, and the loop need not
                // react.
                let Ok(name) = ended else { continue };
                running.remove(&name);
                // Another namespace with this name may have begun to terminate just before the task ended.
                if is_ours(&server, &name)? {
                    begin(&mut tasks, &mut running, &name);
                }
            }
        }
    }
}

/// Returns whether a namespace waits for its contents to be deleted. A namespace that cannot be read counts as
/// not terminating, because its finalizer could not be removed.
fn is_terminating(entry: &Entry) -> bool {
    match entry.read() {
        Ok(record) => Attributes::new(&record.attributes).is_deleting(),
        Err(error) => {
            tracing::error!(%error, "namespace cannot be read");
            false
        }
    }
}

/// Returns whether the namespace is terminating and still has our finalizer.
fn is_ours(server: &Server, name: &str) -> Result<bool, Status> {
    let stored = Loopback::new(server).store().get(&store::key(&server.types.namespaces, "", name))?;
    let namespace = stored.map(|stored| stored.object(&server.types.namespaces)).transpose()?;
    Ok(namespace.is_some_and(|namespace| holds(server, &namespace)))
}

fn holds(server: &Server, namespace: &Object) -> bool {
    let finalizers = at(namespace, "spec.finalizers").and_then(Value::as_array).unwrap_or_default();
    !meta(namespace, "deletionTimestamp").is_empty()
        && finalizers.iter().any(|finalizer| finalizer.as_str() == Some(server.types.naming.word))
}

/// Empties a namespace and removes our finalizer, with as many retries as needed; returns the name of the
/// namespace.
async fn end(server: Arc<Server>, sweeps: Arc<Semaphore>, name: String) -> String {
    let mut backoff = Backoff::default();
    loop {
        match catching_panics(empty(&server, &sweeps, &name, &mut backoff)).await {
            Ok(Ok(()) | Err(Trouble::Tail(TailError::Closed))) => return name,
            Ok(Err(trouble)) => {
                tracing::warn!(namespace = name, error = %trouble, "namespace deletion restarts")
            }
            Err(Panicked) => tracing::error!(namespace = name, "namespace deletion failed, restarting"),
        }
        backoff.pause().await;
    }
}

/// Empties a namespace and removes our finalizer. Returns when the finalizer is removed, or when the
/// namespace no longer exists in its terminating state.
async fn empty(
    server: &Server,
    sweeps: &Semaphore,
    name: &str,
    backoff: &mut Backoff,
) -> Result<(), Trouble> {
    // Every create that starts after this point finds that the namespace is terminating.
    server.creations.settled().await;
    let mut again = false;
    while is_ours(server, name)? {
        let left = {
            let _turn = sweeps.acquire().await;
            sweep(server, name, again).await?
        };
        again = true;
        report(server, name, &left).await?;
        if left.is_nothing() {
            return Ok(finalize(server, name).await?);
        }
        if left.failures.count == 0 {
            *backoff = Backoff::default();
            wait(server, name, &left).await?;
        } else {
            backoff.pause().await;
        }
    }
    Ok(())
}

/// The objects that a sweep could not delete.
#[derive(Default)]
struct Left {
    /// Revision of the namespaces at the time of the count.
    revision: Revision,
    /// Resources with remaining objects, each with the number of these objects and the revision of the count.
    resources: Vec<(Arc<Resource>, u64, Revision)>,
    /// Finalizers on the remaining objects, each with the number of objects.
    finalizers: BTreeMap<String, u64>,
    /// Objects that could not be deleted.
    failures: Failures,
}

impl Left {
    fn is_nothing(&self) -> bool {
        self.resources.is_empty() && self.failures.count == 0
    }
}

/// Deletes all objects in the namespace, pods first. While a pod is left, other objects are not deleted, because these
/// objects may protect or serve a running pod. With `again`, objects that are already being deleted are skipped.
async fn sweep(server: &Server, namespace: &str, again: bool) -> Result<Left, Status> {
    let mut left = Left::default();
    // The local copy of a separate store may be older than the termination of the namespace.
    for ledger in server.store.backends.separate().filter_map(Backend::ledger) {
        if let Err(error) = ledger.current().await {
            left.failures.note(error.into_message());
        }
    }
    let loopback = Loopback::controller(server, NAME);
    let (pods, rest): (Vec<_>, Vec<_>) =
        content(&server.types.now()).into_iter().partition(|resource| resource.table.behavior.deleted_first);
    for stage in [pods, rest] {
        for resource in &stage {
            delete_all(&loopback, resource, namespace, again, &mut left.failures).await;
        }
        let snapshots = server.store.backends.snapshots();
        left.revision = snapshots.holding(&store::collection(&server.types.namespaces, "")).revision();
        for resource in stage {
            let prefix = store::collection(&resource, namespace);
            let snapshot = snapshots.holding(&prefix);
            let count = snapshot.count_prefix(&prefix);
            if count > 0 {
                left.resources.push((resource, count, snapshot.revision()));
                for (at, entry) in snapshot.prefix(&prefix).enumerate() {
                    count_finalizers(&entry, &mut left.finalizers);
                    if at % COUNTS_IN_A_ROW == COUNTS_IN_A_ROW - 1 {
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
        if !left.is_nothing() {
            break;
        }
    }
    Ok(left)
}

/// Returns the resources whose objects are in namespaces, each stored type once.
fn content(types: &Served) -> Vec<Arc<Resource>> {
    let stored = types.registry().stored().into_iter();
    stored.filter(|resource| resource.namespaced() && resource.can("delete")).cloned().collect()
}

fn count_finalizers(entry: &Entry, counts: &mut BTreeMap<String, u64>) {
    #[derive(Deserialize)]
    struct Head {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        finalizers: Vec<String>,
    }
    let Ok(record) = entry.read() else { return };
    if !Attributes::new(&record.attributes).has_finalizers() {
        return;
    }
    let Ok(Head { metadata }) = serde_json::from_slice(&record.value) else { return };
    for finalizer in metadata.finalizers {
        *counts.entry(finalizer).or_default() += 1;
    }
}

/// Waits until a remaining object, or the namespace itself, changes.
async fn wait(server: &Server, name: &str, left: &Left) -> Result<(), TailError> {
    let left_prefixes: Vec<Bytes> =
        left.resources.iter().map(|(resource, ..)| store::collection(resource, name)).collect();
    let own = (store::key(&server.types.namespaces, "", name), left.revision);
    let revisions = left.resources.iter().map(|(.., revision)| *revision);
    let mut tails = Vec::with_capacity(left_prefixes.len() + 1);
    for (prefix, revision) in left_prefixes.iter().cloned().zip(revisions).chain([own]) {
        tails.push(server.store.backends.holding(&prefix).engine().tail(revision, prefix)?);
    }
    let count_at = Instant::now() + COUNT_PACE;
    let mut changed = false;
    loop {
        let next = select_all(tails.iter_mut().map(|tail| Box::pin(tail.next(EVENTS_MAX))));
        let (events, ..) = if changed {
            match timeout_at(count_at, next).await {
                Ok(next) => next,
                Err(_) => return Ok(()),
            }
        } else {
            next.await
        };
        events?;
        let snapshots = server.store.backends.snapshots();
        if left_prefixes.iter().all(|prefix| snapshots.holding(prefix).count_prefix(prefix) == 0) {
            return Ok(());
        }
        changed = true;
    }
}

/// Removes our finalizer. The namespace is then removed unless it has another finalizer.
async fn finalize(server: &Server, name: &str) -> Result<(), Status> {
    let word = server.types.naming.word;
    let without = |namespace: &Object| {
        let mut changed = holds(server, namespace).then(|| namespace.clone())?;
        let finalizers = changed.object_entry("spec").entry("finalizers").as_array_mut()?;
        finalizers.retain(|finalizer| finalizer.as_str() != Some(word));
        Some(changed)
    };
    Loopback::controller(server, NAME)
        .change(&server.types.namespaces, ObjectName::cluster_scoped(name), Endpoint::Finalize, without)
        .await
}

/// A condition of a terminating namespace. The fields are the type of the condition, the reason and the message
/// if there is a problem, and the reason and the message if there is no problem.
struct Deletion {
    kind: &'static str,
    trouble: Option<(&'static str, String)>,
    well: (&'static str, &'static str),
}

/// Reports the remaining objects in the namespace's conditions. A namespace that is removed at once gets no
/// conditions.
async fn report(server: &Server, name: &str, left: &Left) -> Result<(), Status> {
    let conditions = conditions(left);
    let tell = |namespace: &Object| {
        let has_conditions = at(namespace, "status.conditions").is_some();
        if !holds(server, namespace) || left.is_nothing() && !has_conditions {
            return None;
        }
        let mut changed = namespace.clone();
        let list = changed.object_entry("status").entry("conditions");
        if !matches!(list, Value::Array(_)) {
            *list = Value::Array(Vec::new());
        }
        let list = list.as_array_mut()?;
        conditions.iter().for_each(|condition| condition.set_condition(list));
        Some(changed)
    };
    Loopback::controller(server, NAME)
        .change(&server.types.namespaces, ObjectName::cluster_scoped(name), Endpoint::Status, tell)
        .await
}

/// Returns the five conditions, with the order and the texts of Kubernetes
/// (docs/api/controllers.md#namespace-controller).
fn conditions(left: &Left) -> [Deletion; 5] {
    let failures = left.failures.text().map(|list| {
        format!("Failed to delete all resource types, {} remaining: {list}", left.failures.count)
    });
    let remaining = (!left.resources.is_empty()).then(|| {
        let mut each: Vec<String> = left
            .resources
            .iter()
            .map(|(resource, count, _)| {
                format!("{}.{} has {count} resource instances", resource.table.plural, resource.group)
            })
            .collect();
        each.sort_unstable();
        format!("Some resources are remaining: {}", each.join(", "))
    });
    let finalizers = (!left.finalizers.is_empty()).then(|| {
        let each =
            left.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
        let each: Vec<String> = each.collect();
        format!("Some content in the namespace has finalizers remaining: {}", each.join(", "))
    });
    [
        Deletion {
            kind: "NamespaceDeletionDiscoveryFailure",
            trouble: None,
            well: ("ResourcesDiscovered", "All resources successfully discovered"),
        },
        Deletion {
            kind: "NamespaceDeletionGroupVersionParsingFailure",
            trouble: None,
            well: ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        },
        Deletion {
            kind: "NamespaceDeletionContentFailure",
            trouble: failures.map(|message| ("ContentDeletionFailed", message)),
            well: ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        },
        Deletion {
            kind: "NamespaceContentRemaining",
            trouble: remaining.map(|message| ("SomeResourcesRemain", message)),
            well: ("ContentRemoved", "All content successfully removed"),
        },
        Deletion {
            kind: "NamespaceFinalizersRemaining",
            trouble: finalizers.map(|message| ("SomeFinalizersRemain", message)),
            well: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        },
    ]
}

impl Deletion {
    /// Sets the condition in a list of conditions.
    fn set_condition(&self, list: &mut Vec<Value>) {
        let (status, (reason, message)) = match &self.trouble {
            Some((reason, message)) => ("True", (*reason, message.as_str())),
            None => ("False", self.well),
        };
        Condition { kind: self.kind, status, reason, message }.put(list);
    }
}
