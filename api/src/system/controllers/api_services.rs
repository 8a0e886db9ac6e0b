//! The APIServices of this server's own versions, and the extension servers of other versions
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

use hashbrown::HashSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::api_service_objects::{GROUP, all, target};
use super::availability::{Checks, report_local};
use super::{EVENTS_MAX, Ending, Pass, Trouble};
use crate::writes::bootstrap::{ObjectStore, ObjectTarget};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use types::schema::registry::{Priorities, Registry};
use values::json::Value;
use values::status::Status;

/// Interval of availability checks if nothing changed.
const CHECKED_EVERY: Duration = Duration::from_secs(30);

/// Registers the versions that this server serves itself, and loads the extension servers. The server calls
/// this function once at start.
///
/// # Errors
/// The store failed.
pub async fn prepare(server: &Server) -> Result<(), Status> {
    register(&Loopback::new(server).without_admission(), false).await?;
    load(server).await
}

/// Returns the APIServices of the built-in versions.
pub fn own(server: &Server) -> Vec<ObjectTarget> {
    let versions = versions(server.types.now().registry(), false);
    versions.iter().map(|(group, version, _)| target(GROUP, "apiservices", &name(group, version))).collect()
}

/// Runs the controller, which follows APIServices and the services and slices that they refer to.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::new(&server);
    let revision = server.store.engine().revision();
    let resource = |group, plural| loopback.resource(&target(group, plural, ""));
    let tail = |resource| -> Result<_, Trouble> {
        Ok(server.store.engine().tail(revision, store::collection(resource, ""))?)
    };
    let (of_backends, of_slices) = (resource("", "services")?, resource("discovery", "endpointslices")?);
    let mut services = tail(resource(GROUP, "apiservices")?)?;
    let (mut backends, mut slices) = (tail(of_backends)?, tail(of_slices)?);
    let mut checks = Checks::new(&server);
    let mut types = server.types.changes();
    let mut due = interval_at(Instant::now(), CHECKED_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    register(&loopback, true).await?;
    load(&server).await?; // custom types are served at this point
    loop {
        let (service, backend, slice) =
            (pin!(services.next(EVENTS_MAX)), pin!(backends.next(EVENTS_MAX)), pin!(slices.next(EVENTS_MAX)));
        tokio::select! {
            events = service => {
                events?;
                load(&server).await?;
                checks.begin(|extension| !extension.was_checked());
            }
            events = backend => {
                let changed = events?;
                let changed: HashSet<ObjectName<'_>> =
                    changed.iter().map(|event| store::object_name(of_backends, &event.key)).collect();
                checks.begin(|extension| {
                    let (namespace, name) = (&*extension.service.namespace, &*extension.service.name);
                    changed.contains(&ObjectName { namespace, name })
                });
            }
            events = slice => {
                // Only the labels of a slice name the service of the slice. The controller does not read the
                // labels, but checks all extension servers in the namespace.
                let changed = events?;
                let changed: HashSet<&str> =
                    changed.iter().map(|event| store::object_name(of_slices, &event.key).namespace).collect();
                checks.begin(|extension| changed.contains(&*extension.service.namespace));
            }
            changed = types.changed() => {
                if changed.is_ok() {
                    register(&loopback, true).await?;
                }
            }
            _ = due.tick() => checks.begin(|_| true),
            ended = checks.ended() => checks.publish(ended).await?,
        }
    }
}

/// Loads the current APIServices. An APIService that no longer refers to a server becomes available.
async fn load(server: &Server) -> Result<(), Status> {
    let resource = Loopback::new(server).resource(&target(GROUP, "apiservices", ""))?;
    let services = all(&server.store.engine().snapshot(), resource, "");
    let types = server.types.now();
    let label = label(server);
    // APIServices that this server manages disappear together with their versions.
    let is_own = |service: &Value| {
        let spec = |name: &str| service.str_at(&["spec", name]);
        service.at(&["metadata", "labels", &label]).is_some()
            || types.registry().version(spec("group"), spec("version")).is_some()
    };
    if server.outgoing.extensions.configure(&services, is_own) {
        server.show_foreign();
    }
    count(server, &services);
    for service in services.iter().filter(|service| is_local(service) && !says_local(service)) {
        report_local(server, service.str_at(&["metadata", "name"])).await?;
    }
    Ok(())
}

/// Returns whether an APIService has no extension server.
fn is_local(service: &Value) -> bool {
    service.at(&["spec", "service"]).is_none()
}

/// Returns whether the condition of an APIService says that it has no extension server.
fn says_local(service: &Value) -> bool {
    let conditions = service.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
    let condition = conditions.iter().find(|one| one.str_at(&["type"]) == "Available");
    condition.is_some_and(|condition| {
        (condition.str_at(&["status"]), condition.str_at(&["reason"])) == ("True", "Local")
    })
}

/// Sets the metric of APIServices without an extension server to available, and removes the series of deleted
/// APIServices.
fn count(server: &Server, services: &[Value]) {
    let unavailable = &server.operations.metrics.unavailable;
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

/// Returns the APIService that this server registers for a version.
fn registered(server: &Server, group: &str, version: &str, priorities: Priorities, managed: &str) -> Value {
    let object = |members: &[(&str, Value)]| {
        Value::Object(
            members.iter().map(|(name, value)| ((*name).to_owned().into(), value.clone())).collect(),
        )
    };
    let labels = object(&[(&*label(server), managed.into())]);
    let mut spec = Vec::new();
    if !group.is_empty() {
        spec.push(("group", group.into()));
    }
    spec.push(("version", version.into()));
    spec.push(("groupPriorityMinimum", Value::Int(priorities.group.into())));
    spec.push(("versionPriority", Value::Int(priorities.version.into())));
    object(&[
        ("kind", "APIService".into()),
        ("apiVersion", server.types.naming.api_version(GROUP, true, "v1").into()),
        ("metadata", object(&[("name", name(group, version).into()), ("labels", labels)])),
        ("spec", object(&spec)),
    ])
}

fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// Returns the label of the APIServices that this server manages. The value of the label is `onstart`, or
/// `true` for APIServices of custom types.
fn label(server: &Server) -> String {
    let naming = server.types.naming;
    format!("{}.{}/automanaged", naming.system("aggregator"), naming.domain)
}

/// Registers the versions of this server that have no APIService: the versions of custom types if `custom` is
/// true, and the built-in versions otherwise. APIServices of removed custom types are deleted.
///
/// This function scans the keys of all APIServices, and reads only the APIServices that may have to be
/// deleted.
async fn register(loopback: &Loopback<'_>, custom: bool) -> Result<(), Status> {
    let server = loopback.server();
    let mut pass = Pass::default();
    let types = server.types.now();
    let resource = loopback.resource(&target(GROUP, "apiservices", ""))?;
    let snapshot = server.store.engine().snapshot();
    let mut there: HashSet<String> = snapshot
        .prefix(&store::collection(resource, ""))
        .map(|entry| store::object_name(resource, entry.key()).name.to_owned())
        .collect();
    for (group, version, priorities) in versions(types.registry(), custom) {
        let name = name(&group, &version);
        if !there.remove(&name) {
            let managed = if custom { "true" } else { "onstart" };
            let object = registered(server, &group, &version, priorities, managed);
            // A conflict means that the object exists by now.
            pass.note(&name, loopback.create(&target(GROUP, "apiservices", &name), object).await.map(drop));
        }
    }
    // If this server does not serve the version, the version may belong to a definition that cannot be read.
    if !custom || !server.store.backends.is_whole() {
        return pass.end();
    }
    for (group, version, _) in versions(types.registry(), false) {
        there.remove(&name(&group, &version));
    }
    let label = label(server);
    for name in there {
        let target = target(GROUP, "apiservices", &name);
        let Some(object) = loopback.get(&target)? else { continue };
        if object.str_at(&["metadata", "labels", &label]) == "true" {
            pass.note(&name, loopback.delete(&target, &object).await.map(drop));
        }
    }
    pass.end()
}

/// Returns the served versions with the priorities of group and version, except the version of APIServices
/// themselves.
fn versions(registry: &Registry, custom: bool) -> Vec<(String, String, Priorities)> {
    let groups = registry.groups().iter();
    groups
        .flat_map(|group| group.versions.iter().map(move |version| (group, version)))
        .filter(|(_, version)| {
            let mut resources = version.resources.iter();
            !resources.clone().any(|resource| resource.is_of(GROUP, "apiservices"))
                && resources.any(|resource| resource.is_builtin()) != custom
        })
        .map(|(group, version)| {
            let own = Priorities { group: group.priority, version: version.priority };
            let priorities = if custom { Priorities::CUSTOM } else { own };
            (group.name.clone(), version.version.to_string(), priorities)
        })
        .collect()
}
