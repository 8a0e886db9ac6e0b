//! The usage of quotas, counted from what is stored (docs/api/admission.md#quotas).
//!
//! ```text
//! tail on everything ─ something goes, a pod ends, a quota changes ─► its namespace ─► count ─► status of its quotas
//! ```
//!
//! Admission counts what is added before it is stored. What goes is found here, and so is what a crash left counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{Event, EventKind};
use quantity::Quantity;

use super::{EVENTS_MAX, Ending, GATHERED};
use crate::objects::store;
use crate::types::schema::registry::Resource;
use crate::values::json::{Object, Value};
use crate::values::object::{at, same_at};
use crate::values::status::Status;
use crate::writes::admission::quota::{Quota, Quotas, Usage, counted_by, to_value};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// Time between two counts of everything: pods that should have ended by now make no event.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// Pause before a namespace is counted again that was too busy.
const AGAIN: Duration = Duration::from_secs(1);

/// Keeps the status of all quotas right.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let quotas = api.lookup().resource("", "v1", "resourcequotas");
    let pods = api.lookup().resource("", "v1", "pods");
    let mut events = api.backends().changes(&api.backends().snapshots(), GATHERED)?;
    let loopback = Loopback::controller(&api, "resourcequota-controller");
    let counting = Counting { loopback: &loopback, api: &api, quotas: &quotas, pods: &pods };
    let mut due = counting.all();
    let mut resync = tokio::time::interval(RESYNC);
    resync.reset();
    loop {
        let mut busy = BTreeSet::new();
        for namespace in std::mem::take(&mut due) {
            match counting.recount(&namespace).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => tracing::warn!(namespace, %error, "usage is counted again later"),
            }
            busy.insert(namespace);
        }
        let again = async {
            if busy.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(AGAIN).await;
        };
        tokio::select! {
            events = events.next(EVENTS_MAX) => {
                due.extend(events?.iter().filter_map(|event| counting.concerned(event)));
            }
            _ = resync.tick() => due = counting.all(),
            () = again => {}
        }
        due.append(&mut busy);
    }
}

struct Counting<'c> {
    loopback: &'c Loopback<'c>,
    api: &'c Context,
    quotas: &'c Resource,
    pods: &'c Resource,
}

impl Counting<'_> {
    /// The namespaces with quotas.
    fn all(&self) -> BTreeSet<String> {
        let entries = self.api.engine().snapshot().prefix(&store::collection(self.quotas, ""));
        entries.map(|entry| store::identity(self.quotas, entry.key()).0.to_owned()).collect()
    }

    fn of<'q>(&'q self, namespace: &'q str) -> Quotas<'q> {
        let lookup = self.api.lookup();
        Quotas { lookup, resource: self.quotas, writer: self.loopback, namespace }
    }

    /// The namespace whose usage an event may lower, or whose quotas it changes.
    fn concerned(&self, event: &Event) -> Option<String> {
        let key = std::str::from_utf8(&event.key).ok()?;
        // `/<group>/<resource>/<namespace>/<name>`
        let mut parts = key.split('/').skip(3);
        let (namespace, _name) = (parts.next()?, parts.next()?);
        let is_of = |resource: &Resource| key.starts_with(&resource.stored().key_prefix);
        let is_due = match event.kind {
            EventKind::Delete => true,
            EventKind::Put if is_of(self.quotas) => self.is_unknown(event),
            EventKind::Put => is_of(self.pods) && event.previous.is_some(),
        };
        // After the last quota of a namespace the recount forgets its account.
        let is_deleted_quota = event.kind == EventKind::Delete && is_of(self.quotas);
        (is_due && (is_deleted_quota || self.of(namespace).are_there()))
            .then(|| namespace.to_owned())
            .filter(|_| event.kind == EventKind::Delete || !is_of(self.pods) || self.has_ended(event))
    }

    /// Whether a quota counts other things than its status says.
    fn is_unknown(&self, event: &Event) -> bool {
        let object = store::read(event.entry.clone()).and_then(|stored| stored.object(self.quotas));
        object.is_ok_and(|object| {
            let hard = |part: &str| {
                Object::from_iter([("hard".into(), at(&object, part).cloned().unwrap_or_default())])
            };
            !same_at(&hard("spec.hard"), &hard("status.hard"), "hard")
        })
    }

    fn has_ended(&self, event: &Event) -> bool {
        let object = store::read(event.entry.clone()).and_then(|stored| stored.object(self.pods));
        object.is_ok_and(|pod| {
            let phase = at(&pod, "status.phase").and_then(Value::as_str).unwrap_or_default();
            matches!(phase, "Succeeded" | "Failed")
        })
    }

    /// Counts the usage of a namespace; says whether it was quiet enough.
    async fn recount(&self, namespace: &str) -> Result<bool, Status> {
        let ledger = &self.api.lookup().quotas;
        ledger.recount(self.of(namespace), |quota| self.counted(namespace, quota)).await
    }

    /// A quota with the totals of its specification and what is used of them.
    fn counted(&self, namespace: &str, quota: &Object) -> Result<Object, Status> {
        let mut counted = quota.clone();
        let hard = at(quota, "spec.hard").cloned().unwrap_or_default();
        counted.object_entry("status").insert("hard", hard);
        let totals = Quota::parse(&counted);
        let mut used: BTreeMap<String, Quantity> =
            totals.hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
        let naming = self.api.naming();
        let counted_resources: BTreeSet<_> =
            totals.hard.keys().map(|name| counted_by(naming, name)).collect();
        let served = self.api.types();
        for (group, plural) in counted_resources {
            let registry = served.registry();
            let versions = registry.group(group).into_iter().flat_map(|group| &group.versions);
            let Some(resource) = versions.filter_map(|version| version.resource(plural)).next() else {
                continue;
            };
            self.add(namespace, resource, &totals, &mut used)?;
        }
        counted.object_entry("status").insert("used", to_value(&used));
        Ok(counted)
    }

    /// Adds what the objects of one resource use.
    fn add(
        &self,
        namespace: &str,
        resource: &Resource,
        totals: &Quota,
        used: &mut BTreeMap<String, Quantity>,
    ) -> Result<(), Status> {
        if !resource.namespaced() || resource.storage.is_none() {
            return Ok(());
        }
        for entry in self.api.engine_of(resource).snapshot().prefix(&store::collection(resource, namespace)) {
            let object = store::read(entry)?.object(resource)?;
            let usage = Usage::of(self.api.naming(), resource, &object);
            if !totals.covers(&usage) {
                continue;
            }
            for (name, amount) in &usage.amounts {
                if let Some(sum) = used.get_mut(name) {
                    *sum = sum.plus(*amount);
                }
            }
        }
        Ok(())
    }
}
