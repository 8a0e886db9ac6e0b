//! APIServices: those of this server's own versions, and the extension servers behind the others
//! (docs/api/extension-servers.md).
//!
//! ```text
//! served types ─► an APIService each ──────────────────────────► store
//! tails on APIServices, services, slices ─► Extensions ─┬─► checks (availability.rs)
//! every 30 s ───────────────────────────────────────────┘
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::Snapshot;
use hashbrown::HashSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::availability::{Checks, report_local};
use super::objects::objects;
use super::{EVENTS_MAX, Ending, Pass, Trouble};
use crate::writes::bootstrap::{ObjectStore, Target};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;
use objects::store;
use types::schema::registry::{Registry, Resource};
use values::json::Value;
use values::status::Status;

/// How often servers are asked whether nothing changed.
const CHECKED_EVERY: Duration = Duration::from_secs(30);

/// Priorities of the groups and versions of custom types.
const CUSTOM: (u32, u32) = (1_000, 100);

/// Registers the versions that this server has itself, and takes over the extension servers. Call it once at start.
///
/// # Errors
/// The store failed.
pub async fn prepare(api: &Context) -> Result<(), Status> {
    register(&Loopback::new(api).unasked(), false).await?;
    load(api).await
}

/// The APIServices of the built-in versions.
pub fn own(api: &Context) -> Vec<Target> {
    let versions = versions(api.types().registry(), false);
    versions.iter().map(|(group, version, _)| target(GROUP, "apiservices", &name(group, version))).collect()
}

/// Follows APIServices and what they depend on.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let loopback = Loopback::new(&api);
    let revision = api.engine().revision();
    let resource = |group, plural| loopback.resource(&target(group, plural, ""));
    let tail = |resource| -> Result<_, Trouble> {
        Ok(api.engine().tail(revision, store::collection(resource, ""))?)
    };
    let (of_backends, of_slices) = (resource("", "services")?, resource("discovery", "endpointslices")?);
    let mut services = tail(resource(GROUP, "apiservices")?)?;
    let (mut backends, mut slices) = (tail(of_backends)?, tail(of_slices)?);
    let mut checks = Checks::new(&api);
    let mut types = api.type_changes();
    let mut due = interval_at(Instant::now(), CHECKED_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    register(&loopback, true).await?;
    load(&api).await?; // custom types are served by now
    loop {
        let (service, backend, slice) =
            (pin!(services.next(EVENTS_MAX)), pin!(backends.next(EVENTS_MAX)), pin!(slices.next(EVENTS_MAX)));
        tokio::select! {
            events = service => {
                events?;
                load(&api).await?;
                checks.begin(|extension| !extension.was_checked());
            }
            events = backend => {
                let changed = events?;
                let changed: HashSet<(&str, &str)> =
                    changed.iter().map(|event| store::identity(of_backends, &event.key)).collect();
                checks.begin(|extension| changed.contains(&(&*extension.service.namespace, &*extension.service.name)));
            }
            events = slice => {
                // Which service a slice is of is in its labels, which its namespace bounds well enough.
                let changed = events?;
                let changed: HashSet<&str> =
                    changed.iter().map(|event| store::identity(of_slices, &event.key).0).collect();
                checks.begin(|extension| changed.contains(&*extension.service.namespace));
            }
            changed = types.changed() => {
                if changed.is_ok() {
                    register(&loopback, true).await?;
                }
            }
            _ = due.tick() => checks.begin(|_| true),
            ended = checks.ended() => checks.tell(ended).await?,
        }
    }
}

pub(super) const GROUP: &str = "apiregistration";

pub(super) fn target(group: &'static str, resource: &'static str, name: &str) -> Target {
    Target { group, version: "v1", resource, namespace: String::new(), name: name.to_owned() }
}

/// Takes over the APIServices as they are now. One that lost its server is available from then on.
async fn load(api: &Context) -> Result<(), Status> {
    let resource = Loopback::new(api).resource(&target(GROUP, "apiservices", ""))?;
    let services = all(&api.engine().snapshot(), resource, "");
    let types = api.types();
    let label = label(api);
    // Those that this server keeps go with the versions that they are for.
    let is_own = |service: &Value| {
        let spec = |name: &str| service.str_at(&["spec", name]);
        service.at(&["metadata", "labels", &label]).is_some()
            || types.registry().version(spec("group"), spec("version")).is_some()
    };
    if api.extensions().configure(&services, is_own) {
        api.show_foreign();
    }
    count(api, &services);
    for service in services.iter().filter(|service| is_local(service) && !says_local(service)) {
        report_local(api, service.str_at(&["metadata", "name"])).await?;
    }
    Ok(())
}

/// Whether there is no server behind an APIService.
fn is_local(service: &Value) -> bool {
    service.at(&["spec", "service"]).is_none()
}

/// Whether the condition of an APIService says that there is no server behind it.
fn says_local(service: &Value) -> bool {
    let conditions = service.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let told = conditions.iter().find(|one| one.str_at(&["type"]) == "Available");
    told.is_some_and(|told| (told.str_at(&["status"]), told.str_at(&["reason"])) == ("True", "Local"))
}

/// Counts APIServices without a server behind them as available, and no more what is gone.
fn count(api: &Context, services: &[Value]) {
    let unavailable = &api.metrics().unavailable;
    let mut there = HashSet::new();
    for service in services {
        let name = service.str_at(&["metadata", "name"]);
        if is_local(service) {
            unavailable.set(&[name], 0);
        }
        there.insert(name);
    }
    unavailable.retain(|values| values.iter().all(|name| there.contains(&**name)));
}

/// The objects of a collection, or of one namespace.
pub(super) fn all(snapshot: &Snapshot, resource: &Resource, namespace: &str) -> Vec<Value> {
    let objects = objects(snapshot, &store::collection(resource, namespace));
    objects.into_iter().map(|(_, object)| object).collect()
}

/// An APIService as this server registers it.
fn registered(api: &Context, (group, version): (&str, &str), priorities: (u32, u32), managed: &str) -> Value {
    let object = |members: &[(&str, Value)]| {
        Value::Object(
            members.iter().map(|(name, value)| ((*name).to_owned().into(), value.clone())).collect(),
        )
    };
    let labels = object(&[(&*label(api), managed.into())]);
    let mut spec = Vec::new();
    if !group.is_empty() {
        spec.push(("group", group.into()));
    }
    spec.push(("version", version.into()));
    spec.push(("groupPriorityMinimum", Value::Int(priorities.0.into())));
    spec.push(("versionPriority", Value::Int(priorities.1.into())));
    object(&[
        ("kind", "APIService".into()),
        ("apiVersion", api.naming().api_version(GROUP, true, "v1").into()),
        ("metadata", object(&[("name", name(group, version).into()), ("labels", labels)])),
        ("spec", object(&spec)),
    ])
}

fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// Label of the APIServices that this server keeps: `onstart`, or `true` for those that follow custom types.
fn label(api: &Context) -> String {
    let naming = api.naming();
    format!("{}.{}/automanaged", naming.system("aggregator"), naming.domain)
}

/// Registers the versions of this server that have no APIService: those of custom types, or the built-in ones. Those of
/// custom types that went are removed.
///
/// Looks at the keys of all of them, and reads those alone that may have to go.
async fn register(loopback: &Loopback<'_>, custom: bool) -> Result<(), Status> {
    let api = loopback.api();
    let mut pass = Pass::default();
    let types = api.types();
    let resource = loopback.resource(&target(GROUP, "apiservices", ""))?;
    let snapshot = api.engine().snapshot();
    let mut there: HashSet<String> = snapshot
        .prefix(&store::collection(resource, ""))
        .map(|entry| store::identity(resource, entry.key()).1.to_owned())
        .collect();
    for (group, version, priorities) in versions(types.registry(), custom) {
        let name = name(&group, &version);
        if !there.remove(&name) {
            let managed = if custom { "true" } else { "onstart" };
            let object = registered(api, (&group, &version), priorities, managed);
            // A conflict says that it is there by now.
            pass.note(&name, loopback.create(&target(GROUP, "apiservices", &name), object).await.map(drop));
        }
    }
    // A version that is not served may be one whose definition cannot be read.
    if !custom || !api.backends().is_whole() {
        return pass.end();
    }
    for (group, version, _) in versions(types.registry(), false) {
        there.remove(&name(&group, &version));
    }
    let label = label(api);
    for name in there {
        let target = target(GROUP, "apiservices", &name);
        let Some(object) = loopback.get(&target)? else { continue };
        if object.str_at(&["metadata", "labels", &label]) == "true" {
            pass.note(&name, loopback.delete(&target, &object).await.map(drop));
        }
    }
    pass.end()
}

/// The versions that are served, with the priorities of group and version; not that of APIServices themselves.
fn versions(registry: &Registry, custom: bool) -> Vec<(String, String, (u32, u32))> {
    let groups = registry.groups().iter();
    groups
        .flat_map(|group| group.versions.iter().map(move |version| (group, version)))
        .filter(|(_, version)| {
            let mut resources = version.resources.iter();
            !resources.clone().any(|resource| resource.is_of(GROUP, "apiservices"))
                && resources.any(|resource| resource.is_builtin()) != custom
        })
        .map(|(group, version)| {
            let priorities = if custom { CUSTOM } else { (group.priority, version.priority) };
            (group.name.clone(), version.version.to_string(), priorities)
        })
        .collect()
}
