//! Counts the usage of quotas from the stored objects (docs/api/admission.md#quotas).
//!
//! ```text
//! tail of everything ─ delete, end of a pod, change of a quota ─► namespace is due ─► count a snapshot ─► ledger
//! ```
//!
//! Admission adds the usage of a write before the write is stored. This controller subtracts deleted objects, and
//! corrects wrong counts after a crash. The controller counts concurrently with writes and holds no lock that writes
//! need (`writes/quotas/ledger.rs`). After each count of a namespace the controller pauses for this namespace, so that
//! counting takes a bounded share of the processor, independent of the number of objects in a namespace and the
//! frequency of changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use engine::{Event, EventKind};
use futures_util::StreamExt;
use futures_util::stream;
use quantity::Quantity;
use tokio::time::Instant;

use super::{EVENTS_MAX, Ending, GATHERED};
use crate::writes::admission::quota::StoredQuotas;
use crate::writes::loopback::ControllerWriter;
use crate::writes::quotas::{Quota, QuotaStore, Total, Usage, counted_by, counts_objects};
use crate::writes::server::Server;
use objects::store;
use objects::store::backends::Snapshots;
use types::schema::registry::{Registry, Resource};
use values::json::{Object, Value};
use values::object::{at, meta, same_at};
use values::status::Status;

/// Interval of counts of all namespaces. A pod is no longer counted when its grace period has expired, and no event
/// reports the expiry.
const RESYNC: Duration = Duration::from_secs(5 * 60);

/// Pause before a namespace is counted again because its quotas changed during the count.
const AGAIN: Duration = Duration::from_secs(1);

/// Pause after a failed count.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Ratio of the pause after a count to the duration of the count: counting takes at most a fifth of a core.
const REST_FACTOR: u32 = 4;

/// Maximum number of namespaces that are counted at the same time, so that a namespace with a slow webhook does
/// not delay other namespaces.
const NAMESPACES_MAX: usize = 8;

/// Number of objects that are counted before the task yields; about a millisecond of work for pods.
const OBJECTS_AT_ONCE: usize = 64;

/// Runs the controller, which keeps the status of all quotas correct.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let mut events = server.store.backends.changes(&server.store.backends.snapshots(), GATHERED)?;
    let counting = Counting::new(&server);
    let mut due = counting.all();
    let mut resting: HashMap<String, Instant> = HashMap::new();
    let mut resync = tokio::time::interval(RESYNC);
    resync.reset();
    loop {
        let now = Instant::now();
        resting.retain(|_, until| *until > now);
        let (rested, mut later): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut due).into_iter().partition(|namespace| !resting.contains_key(namespace));
        let mut counts = stream::iter(rested)
            .map(|namespace| {
                let counting = &counting;
                async move {
                    let rest = counting.recount_and_rest(&namespace).await;
                    (namespace, rest)
                }
            })
            .buffer_unordered(NAMESPACES_MAX);
        while let Some((namespace, (rest, is_done))) = counts.next().await {
            if !is_done {
                later.insert(namespace.clone());
            }
            resting.insert(namespace, Instant::now() + rest);
        }
        drop(counts);
        due.append(&mut later);
        let wakes = due.iter().filter_map(|namespace| resting.get(namespace)).min().copied();
        let rested = async {
            match wakes {
                Some(wakes) => tokio::time::sleep_until(wakes).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            events = events.next(EVENTS_MAX) => {
                let mut prefixes = HashMap::new();
                for event in events?.iter() {
                    due.extend(counting.concerned(event, &mut prefixes));
                }
            }
            _ = resync.tick() => due = counting.all(),
            () = rested => {}
        }
    }
}

struct Counting {
    server: Arc<Server>,
    store: Arc<StoredQuotas>,
    quotas: Arc<Resource>,
    /// Resources whose objects may need less quota after an update, although admission does not count the
    /// update.
    changing: [Arc<Resource>; 2],
}

impl Counting {
    fn new(server: &Arc<Server>) -> Counting {
        let resource = |plural: &str| server.types.resource("", "v1", plural);
        let quotas = resource("resourcequotas");
        let writer = Arc::new(ControllerWriter { server: server.clone(), name: "resourcequota-controller" });
        let store = StoredQuotas { store: server.store.clone(), resource: quotas.clone(), writer };
        Counting {
            server: server.clone(),
            store: Arc::new(store),
            quotas,
            changing: [resource("pods"), resource("persistentvolumeclaims")],
        }
    }

    /// Returns the namespaces with quotas.
    fn all(&self) -> BTreeSet<String> {
        let entries = self.server.store.engine().snapshot().prefix(&store::collection(&self.quotas, ""));
        entries.map(|entry| store::object_name(&self.quotas, entry.key()).namespace.to_owned()).collect()
    }

    /// Returns the namespace whose usage an event may lower, or whose quotas the event changes. `prefixes`
    /// caches, for each namespace, the key prefixes of the resources that its quotas count.
    fn concerned(&self, event: &Event, prefixes: &mut HashMap<String, Vec<String>>) -> Option<String> {
        let key = std::str::from_utf8(&event.key).ok()?;
        // The key is `/<group>/<resource>/<namespace>/<name>`.
        let mut parts = key.split('/').skip(3);
        let (namespace, _name) = (parts.next()?, parts.next()?);
        let is_of = |resource: &Resource| key.starts_with(&resource.stored().key_prefix);
        if is_of(&self.quotas) {
            // When the last quota of a namespace has been deleted, the next count removes the account of the
            // namespace.
            let is_due = event.kind == EventKind::Delete || self.is_unknown(event);
            if is_due {
                return Some(namespace.to_owned());
            }
        }
        let changing = self.changing.iter().find(|resource| is_of(resource));
        if event.kind != EventKind::Delete && (changing.is_none() || event.previous.is_none()) {
            return None;
        }
        let counted = prefixes.entry(namespace.to_owned()).or_insert_with(|| self.prefixes(namespace));
        if !counted.iter().any(|prefix| key.starts_with(prefix)) {
            return None;
        }
        let is_due = event.kind == EventKind::Delete
            || changing.is_some_and(|resource| self.is_lower(resource, event).unwrap_or(true));
        is_due.then(|| namespace.to_owned())
    }

    /// Returns the key prefixes of the resources that the quotas of a namespace count.
    fn prefixes(&self, namespace: &str) -> Vec<String> {
        let types = self.server.types.now();
        let mut prefixes: Vec<String> = Vec::new();
        // The count reports a quota that cannot be read.
        for (_, quota) in self.store.read(namespace).unwrap_or_default() {
            let hard = at(&quota, "spec.hard").and_then(Value::as_object).into_iter().flat_map(Object::iter);
            for (name, _) in hard {
                let (group, plural) = counted_by(self.server.types.naming, name);
                let counted = resource_of(types.registry(), group, plural);
                if let Some(storage) = counted.and_then(|resource| resource.storage.as_ref())
                    && !prefixes.contains(&storage.key_prefix)
                {
                    prefixes.push(storage.key_prefix.clone());
                }
            }
        }
        prefixes
    }

    /// Returns whether the resources of a quota differ from the resources in its status.
    fn is_unknown(&self, event: &Event) -> bool {
        let object = store::read(event.entry.clone()).and_then(|stored| stored.object(&self.quotas));
        object.is_ok_and(|object| {
            let hard = |part: &str| {
                Object::from_iter([("hard".into(), at(&object, part).cloned().unwrap_or_default())])
            };
            !same_at(&hard("spec.hard"), &hard("status.hard"), "hard")
        })
    }

    /// Returns whether the update of a pod or a claim may lower the usage of the object: the pod has ended or
    /// should have ended by now, or the object has left a scope.
    fn is_lower(&self, resource: &Resource, event: &Event) -> Result<bool, Status> {
        let Some(previous) = &event.previous else { return Ok(false) };
        let usage = |entry: &engine::Entry| {
            let object = store::read(entry.clone())?.object(resource)?;
            Ok::<_, Status>(Usage::from_object(self.server.types.naming, resource, &object))
        };
        Ok(usage(&event.entry)?.is_below(&usage(previous)?))
    }

    /// Counts a namespace again. Returns the pause after the count, and whether the count is complete.
    async fn recount_and_rest(&self, namespace: &str) -> (Duration, bool) {
        let began = Instant::now();
        match self.recount(namespace).await {
            Ok(true) => (began.elapsed().saturating_mul(REST_FACTOR).min(RESYNC), true),
            Ok(false) => (AGAIN, false),
            Err(error) => {
                tracing::warn!(namespace, %error, "cannot count the usage of quotas, trying again");
                (AFTER_FAILURE, false)
            }
        }
    }

    /// Counts the usage of a namespace. Returns `false` if the quotas of the namespace changed in the meantime.
    async fn recount(&self, namespace: &str) -> Result<bool, Status> {
        let ledger = &self.server.quotas;
        if !self.store.has_any(namespace) {
            return Ok(ledger.forget(namespace));
        }
        let recount = ledger.recount(self.store.clone(), namespace);
        let snapshots = Arc::new(self.server.store.backends.snapshots());
        let mut totals = Vec::new();
        for (_, quota) in self.store.read(namespace)? {
            totals.push(self.total(namespace, &quota, &snapshots).await?);
        }
        let at = move |prefix: &str| snapshots.holding(prefix.as_bytes()).revision();
        recount.finish(totals, Box::new(at)).await
    }

    /// Counts the usage of the resources in the specification of a quota.
    async fn total(&self, namespace: &str, quota: &Object, snapshots: &Snapshots) -> Result<Total, Status> {
        let mut counted = quota.clone();
        let hard = at(quota, "spec.hard").cloned().unwrap_or_default();
        counted.object_entry("status").insert("hard", hard.clone());
        let totals = Quota::parse(&counted);
        let mut used: BTreeMap<String, Quantity> =
            totals.hard.keys().map(|name| (name.clone(), Quantity::ZERO)).collect();
        let mut names: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for name in totals.hard.keys() {
            names.entry(counted_by(self.server.types.naming, name)).or_default().push(name);
        }
        let types = self.server.types.now();
        for ((group, plural), names) in names {
            let Some(resource) = resource_of(types.registry(), group, plural) else { continue };
            if !resource.namespaced() || resource.storage.is_none() {
                continue;
            }
            if totals.has_no_scopes() && names.iter().all(|name| counts_objects(name)) {
                let collection = store::collection(resource, namespace);
                let count = snapshots.holding(&collection).count_prefix(&collection);
                let count = Quantity::whole(i64::try_from(count).unwrap_or(i64::MAX));
                used.extend(names.iter().map(|name| ((*name).to_owned(), count)));
            } else {
                self.add(namespace, resource, &totals, &mut used, snapshots).await?;
            }
        }
        Ok(Total { uid: meta(quota, "uid").to_owned(), hard, used })
    }

    /// Adds the usage of the objects of one resource.
    async fn add(
        &self,
        namespace: &str,
        resource: &Resource,
        totals: &Quota,
        used: &mut BTreeMap<String, Quantity>,
        snapshots: &Snapshots,
    ) -> Result<(), Status> {
        for (at, entry) in snapshots.prefix(&store::collection(resource, namespace)).enumerate() {
            if at % OBJECTS_AT_ONCE == OBJECTS_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let object = store::read(entry)?.object(resource)?;
            let usage = Usage::from_object(self.server.types.naming, resource, &object);
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

/// Returns a resource by group and plural name, in one of its versions.
fn resource_of<'r>(registry: &'r Registry, group: &str, plural: &str) -> Option<&'r Resource> {
    let versions = registry.group(group).into_iter().flat_map(|group| &group.versions);
    versions.filter_map(|version| version.resource(plural)).next().map(|resource| &**resource)
}
