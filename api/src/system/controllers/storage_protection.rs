//! Protects claims, volumes and volume attribute classes from deletion while they are in use. Admission sets
//! finalizers on these objects, and this controller removes the finalizer of a deleted object when the object
//! is unused (docs/api/admission.md#storage-protection).
//!
//! ```text
//! tails on claims, volumes, classes ─► objects being deleted ─┐
//! tail on pods ───────────────────────────────────────────────┴─► still used? ─ no ─► finalizer removed
//! ```
//!
//! For each object that is being deleted, the controller remembers one user: another object that uses the object.
//! The controller searches for another user only when the remembered user no longer uses the object.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Entry, Event, EventKind, Snapshot};
use futures_util::{StreamExt, stream};

use super::{EVENTS_MAX, Ending, GATHERED, Pass, WRITES_MAX};
use crate::writes::admission::storage_protection::PROTECTED;
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::attributes::Attributes;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::object::{at, finalizers, meta, set_finalizers};
use values::status::Status;

/// Runs the controller, which follows the protected objects and the pods that use them.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let pods = server.types.resource("", "v1", "pods");
    let protected = PROTECTED.map(|(group, plural, _)| server.types.resource(group, "v1", plural));
    let protection = Protection { server: &server, pods: &pods, protected: &protected };
    let snapshot = server.store.engine().snapshot();
    let tail = |resource: &Resource| {
        server.store.engine().tail(snapshot.revision(), store::collection(resource, ""))
    };
    let (mut of_pods, [claims, volumes, classes]) =
        (tail(&pods)?.gathering(GATHERED), protected.each_ref().map(|resource| tail(resource)));
    let (mut claims, mut volumes, mut classes) = (claims?, volumes?, classes?);
    let mut waiting = protection.waiting(&snapshot);
    drop(snapshot);
    let mut is_due = true;
    loop {
        if is_due {
            protection.release(&mut waiting).await?;
        }
        // While a class waits, each change of a claim or a volume triggers a check.
        is_due = tokio::select! {
            events = of_pods.next(EVENTS_MAX) => {
                drop(events?);
                !waiting[CLAIMS].is_empty()
            }
            events = claims.next(EVENTS_MAX) => note(&mut waiting[CLAIMS], &events?) || !waiting[CLASSES].is_empty(),
            events = volumes.next(EVENTS_MAX) => note(&mut waiting[VOLUMES], &events?) || !waiting[CLASSES].is_empty(),
            events = classes.next(EVENTS_MAX) => note(&mut waiting[CLASSES], &events?),
        };
    }
}

/// Keys of objects that are being deleted, each with the key of an object that uses it.
type Waiting = BTreeMap<Bytes, Option<Bytes>>;

/// Records changes of protected objects. Returns whether one of these objects is being deleted.
fn note(waiting: &mut Waiting, events: &[Arc<Event>]) -> bool {
    let mut is_due = false;
    for event in events {
        if event.kind == EventKind::Put && is_deleting(&event.entry) {
            waiting.entry(event.key.clone()).or_default();
            is_due = true;
        } else {
            waiting.remove(&event.key);
        }
    }
    is_due
}

fn is_deleting(entry: &Entry) -> bool {
    entry.attributes().is_ok_and(|bytes| Attributes::new(&bytes).is_deleting())
}

struct Protection<'p> {
    server: &'p Server,
    pods: &'p Resource,
    /// Claims, volumes, and classes, in this order.
    protected: &'p [Arc<Resource>; 3],
}

impl Protection<'_> {
    /// Returns the objects of each resource that are being deleted.
    fn waiting(&self, snapshot: &Snapshot) -> [Waiting; 3] {
        self.protected.each_ref().map(|resource| {
            let entries = snapshot.prefix(&store::collection(resource, ""));
            entries.filter(is_deleting).map(|entry| (entry.key().clone(), None)).collect()
        })
    }

    /// Removes the finalizers of waiting objects that are no longer used.
    async fn release(&self, waiting: &mut [Waiting; 3]) -> Result<(), Status> {
        let mut unused = Vec::new();
        let snapshot = self.server.store.engine().snapshot();
        for (at, waiting) in waiting.iter_mut().enumerate() {
            let finalizer = self.server.types.naming.label(PROTECTED[at].2);
            for (key, user) in waiting {
                let Some(entry) = snapshot.get(key) else { continue };
                let object = store::read(entry)?.object(&self.protected[at])?;
                if finalizers(&object).contains(&&*finalizer) {
                    *user = self.user(&snapshot, at, &object, user.take())?;
                    if user.is_none() {
                        unused.push((at, object));
                    }
                }
            }
        }
        drop(snapshot);
        let releases = unused.into_iter().map(|(at, object)| async move {
            let outcome = self.release_one(at, &object).await;
            (meta(&object, "name").to_owned(), outcome)
        });
        let mut outcomes = stream::iter(releases).buffer_unordered(WRITES_MAX);
        let mut pass = Pass::default();
        while let Some((name, outcome)) = outcomes.next().await {
            pass.note(&name, outcome);
        }
        pass.end()
    }

    async fn release_one(&self, at: usize, object: &Object) -> Result<(), Status> {
        let finalizer = self.server.types.naming.label(PROTECTED[at].2);
        let uid = meta(object, "uid");
        let without = |old: &Object| {
            let left = finalizers(old).into_iter().filter(|other| *other != finalizer);
            let left: Vec<Value> = left.map(Value::from).collect();
            let mut new = old.clone();
            set_finalizers(&mut new, left);
            (meta(old, "uid") == uid && !meta(old, "deletionTimestamp").is_empty()).then_some(new)
        };
        let place = ObjectName { namespace: meta(object, "namespace"), name: meta(object, "name") };
        let loopback = Loopback::controller(self.server, CONTROLLERS[at]);
        loopback.change(&self.protected[at], place, Endpoint::Main, without).await
    }

    /// Returns the key of a user of this object: `last` if the object at the key `last` is still a user, and otherwise
    /// the key of any user. The user of a bound volume is the claim that the volume names.
    fn user(
        &self,
        snapshot: &Snapshot,
        at: usize,
        object: &Object,
        last: Option<Bytes>,
    ) -> Result<Option<Bytes>, Status> {
        let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
        match at {
            CLAIMS => find(snapshot, self.pods, namespace, last, |pod| is_claim_used(pod, name)),
            VOLUMES => Ok((text(object, "status.phase") == "Bound").then(|| {
                store::key(
                    &self.protected[CLAIMS],
                    text(object, "spec.claimRef.namespace"),
                    text(object, "spec.claimRef.name"),
                )
            })),
            _ => {
                let mut found = None;
                for users in [CLAIMS, VOLUMES] {
                    let last = last.clone();
                    found =
                        find(snapshot, &self.protected[users], "", last, |user| is_class_used(user, name))?;
                    if found.is_some() {
                        break;
                    }
                }
                Ok(found)
            }
        }
    }
}

/// Returns the key of an object for which `uses` is true. The object at the key `last` is checked first.
fn find(
    snapshot: &Snapshot,
    resource: &Resource,
    namespace: &str,
    last: Option<Bytes>,
    uses: impl Fn(&Object) -> bool,
) -> Result<Option<Bytes>, Status> {
    let prefix = store::collection(resource, namespace);
    let last = last.filter(|key| key.starts_with(&prefix)).and_then(|key| snapshot.get(&key));
    for entry in last.into_iter().chain(snapshot.prefix(&prefix)) {
        let key = entry.key().clone();
        if uses(&store::read(entry)?.object(resource)?) {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

/// Returns whether a pod uses a claim: the pod refers to the claim and runs on a node.
fn is_claim_used(pod: &Object, claim: &str) -> bool {
    let volumes = at(pod, "spec.volumes").and_then(Value::as_array).unwrap_or_default();
    let is_over = matches!(text(pod, "status.phase"), "Succeeded" | "Failed");
    let uses = |volume: &Value| {
        let own = format!("{}-{}", meta(pod, "name"), volume.str_at(&["name"]));
        volume.str_at(&["persistentVolumeClaim", "claimName"]) == claim
            || !is_over && volume.get("ephemeral").is_some() && own == claim
    };
    !text(pod, "spec.nodeName").is_empty() && volumes.iter().any(uses)
}

/// Returns whether a claim or a volume uses a class: the object has the class, or is changing to the class.
fn is_class_used(object: &Object, class: &str) -> bool {
    const FIELDS: [&str; 3] = [
        "spec.volumeAttributesClassName",
        "status.currentVolumeAttributesClassName",
        "status.modifyVolumeStatus.targetVolumeAttributesClassName",
    ];
    FIELDS.iter().any(|field| text(object, field) == class)
}

/// Indexes into [`PROTECTED`].
const CLAIMS: usize = 0;
const VOLUMES: usize = 1;
const CLASSES: usize = 2;

/// Users under which finalizers are removed.
const CONTROLLERS: [&str; 3] =
    ["pvc-protection-controller", "pv-protection-controller", "volumeattributesclass-protection-controller"];

fn text<'o>(object: &'o Object, path: &str) -> &'o str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}
