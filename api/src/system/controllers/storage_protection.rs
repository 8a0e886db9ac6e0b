//! Claims, volumes and volume attribute classes that are deleted go once nothing uses them: their finalizers, which
//! admission sets, are taken away here (docs/api/admission.md#storage-protection).
//!
//! ```text
//! tails on pods, claims, volumes, classes ─► what is being deleted ─► still used? ─ no ─► finalizer away
//! ```

use std::sync::Arc;

use engine::Entry;

use super::{EVENTS_MAX, Ending, GATHERED, Pass};
use crate::objects::store;
use crate::objects::strategy::Endpoint;
use crate::types::attributes::Attributes;
use crate::types::schema::registry::Resource;
use crate::values::json::{Object, Value};
use crate::values::object::{at, finalizers, meta, set_finalizers};
use crate::values::status::Status;
use crate::writes::admission::storage_protection::PROTECTED;
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// Follows what is protected, and the pods that use it.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let lookup = api.lookup();
    let pods = lookup.resource("", "v1", "pods");
    let protected = PROTECTED.map(|(group, plural, _)| lookup.resource(group, "v1", plural));
    let protection = Protection { api: &api, pods: &pods, protected: &protected };
    let revision = api.engine().snapshot().revision();
    let tail = |resource: &Resource| api.engine().tail(revision, store::collection(resource, ""));
    let (mut of_pods, [claims, volumes, classes]) =
        (tail(&pods)?.gathering(GATHERED), protected.each_ref().map(|r| tail(r)));
    let (mut claims, mut volumes, mut classes) = (claims?, volumes?, classes?);
    loop {
        protection.release().await?;
        // Any number of events is one reason to look.
        tokio::select! {
            events = of_pods.next(EVENTS_MAX) => drop(events?),
            events = claims.next(EVENTS_MAX) => drop(events?),
            events = volumes.next(EVENTS_MAX) => drop(events?),
            events = classes.next(EVENTS_MAX) => drop(events?),
        }
    }
}

struct Protection<'p> {
    api: &'p Context,
    pods: &'p Resource,
    /// Claims, volumes, classes.
    protected: &'p [Arc<Resource>; 3],
}

impl Protection<'_> {
    /// Releases what is being deleted and not used. Reads attributes of what is protected, and pods of the namespaces in
    /// which a claim waits.
    async fn release(&self) -> Result<(), Status> {
        let mut pass = Pass::default();
        for (at, (resource, (_, _, name))) in self.protected.iter().zip(PROTECTED).enumerate() {
            let finalizer = self.api.naming().label(name);
            let waiting: Vec<Entry> = self
                .api
                .engine()
                .snapshot()
                .prefix(&store::collection(resource, ""))
                .filter(|entry| entry.attributes().is_ok_and(|bytes| Attributes::new(&bytes).is_deleting()))
                .collect();
            for entry in waiting {
                let object = store::read(entry)?.object(resource)?;
                if !finalizers(&object).contains(&&*finalizer) || self.is_used(at, &object)? {
                    continue;
                }
                let place = (meta(&object, "namespace"), meta(&object, "name"));
                let loopback = Loopback::controller(self.api, CONTROLLERS[at]);
                let uid = meta(&object, "uid");
                let without = |old: &Object| {
                    let left = finalizers(old).into_iter().filter(|other| *other != finalizer);
                    let left: Vec<Value> = left.map(Value::from).collect();
                    let mut new = old.clone();
                    set_finalizers(&mut new, left);
                    (meta(old, "uid") == uid && !meta(old, "deletionTimestamp").is_empty()).then_some(new)
                };
                pass.note(place.1, loopback.change(resource, place, Endpoint::Main, without).await);
            }
        }
        pass.end()
    }

    fn is_used(&self, at: usize, object: &Object) -> Result<bool, Status> {
        match at {
            CLAIMS => self.is_claim_used(object),
            VOLUMES => Ok(text(object, "status.phase") == "Bound"),
            _ => self.is_class_used(meta(object, "name")),
        }
    }

    /// A claim is used by the pods that a node runs with it.
    fn is_claim_used(&self, claim: &Object) -> Result<bool, Status> {
        let (namespace, name) = (meta(claim, "namespace"), meta(claim, "name"));
        self.any(self.pods, namespace, |pod| {
            let volumes = at(pod, "spec.volumes").and_then(Value::as_array).unwrap_or_default();
            let is_over = matches!(text(pod, "status.phase"), "Succeeded" | "Failed");
            let uses = |volume: &Value| {
                let own = format!("{}-{}", meta(pod, "name"), volume.str_at(&["name"]));
                volume.str_at(&["persistentVolumeClaim", "claimName"]) == name
                    || !is_over && volume.get("ephemeral").is_some() && own == name
            };
            !text(pod, "spec.nodeName").is_empty() && volumes.iter().any(uses)
        })
    }

    /// A class is used by claims and volumes that have it, or are on the way to it.
    fn is_class_used(&self, class: &str) -> Result<bool, Status> {
        const FIELDS: [&str; 3] = [
            "spec.volumeAttributesClassName",
            "status.currentVolumeAttributesClassName",
            "status.modifyVolumeStatus.targetVolumeAttributesClassName",
        ];
        let uses = |object: &Object| FIELDS.iter().any(|field| text(object, field) == class);
        Ok(self.any(&self.protected[CLAIMS], "", uses)? || self.any(&self.protected[VOLUMES], "", uses)?)
    }

    fn any(
        &self,
        resource: &Resource,
        namespace: &str,
        is_it: impl Fn(&Object) -> bool,
    ) -> Result<bool, Status> {
        for entry in self.api.engine().snapshot().prefix(&store::collection(resource, namespace)) {
            if is_it(&store::read(entry)?.object(resource)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Places in [`PROTECTED`].
const CLAIMS: usize = 0;
const VOLUMES: usize = 1;

/// The identities under which finalizers are taken away.
const CONTROLLERS: [&str; 3] =
    ["pvc-protection-controller", "pv-protection-controller", "volumeattributesclass-protection-controller"];

fn text<'o>(object: &'o Object, path: &str) -> &'o str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}
