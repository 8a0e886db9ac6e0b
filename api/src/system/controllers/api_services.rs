//! APIServices: those of this server's own versions, and the extension servers behind the others
//! (docs/api/extension-servers.md).
//!
//! ```text
//! served types ─► an APIService each ─────────────────────────────────────────────► store
//! tails on APIServices, services, slices ─► Extensions ─► check each ─┬─► condition Available ─► store
//! every 30 s ────────────────────────────────────────────────────────┴─► discovery documents
//! ```
//!
//! Checks of different servers run at once, each with its own bound, so a slow server delays its own condition only.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Snapshot;
use futures_util::future::join_all;
use hashbrown::HashSet;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use auth::User;

use super::condition::Condition;
use super::objects::objects;
use super::{EVENTS_MAX, Ending, Pass, Trouble};
use crate::objects::store;
use crate::objects::strategy::Endpoint;
use crate::state::extension::{Extension, Told, identify};
use crate::types::discovery::Swagger;
use crate::types::schema::registry::{Registry, Resource};
use crate::values::json::{self, Object, Value};
use crate::values::status::Status;
use crate::wire::outgoing::{self, Endpoint as Remote, Service};
use crate::writes::bootstrap::{ObjectStore, Target};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// How often servers are asked whether nothing changed.
const CHECKED_EVERY: Duration = Duration::from_secs(30);

/// How long one question may take, and how often it is put before a server counts as not available.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 5;

/// What is said of a server that takes longer.
const TIMED_OUT: &str = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";

/// Priorities of the groups and versions of custom types.
const CUSTOM: (u32, u32) = (1_000, 100);

/// Registers the versions that this server has itself, and takes over the extension servers. Call it once at start.
///
/// # Errors
/// The store failed.
pub async fn prepare(api: &Context) -> Result<(), Status> {
    register(&Loopback::new(api).unasked(), false).await?;
    load(api)?;
    Ok(())
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
    let all = || api.extensions().all().into_iter().map(|extension| extension.service.clone());
    let mut types = api.type_changes();
    let mut due = interval_at(Instant::now(), CHECKED_EVERY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    register(&loopback, true).await?;
    loop {
        let (service, backend, slice) =
            (pin!(services.next(EVENTS_MAX)), pin!(backends.next(EVENTS_MAX)), pin!(slices.next(EVENTS_MAX)));
        let is_new = tokio::select! {
            events = service => { events?; load(&api)? }
            events = backend => {
                let changed = events?;
                let mut changed = changed.iter().map(|event| store::identity(of_backends, &event.key));
                changed.any(|service| all().any(|its| (&*its.namespace, &*its.name) == service))
            }
            events = slice => {
                // Which service a slice is of is in its labels, which its namespace bounds well enough.
                let changed = events?;
                let mut changed = changed.iter().map(|event| store::identity(of_slices, &event.key).0);
                changed.any(|namespace| all().any(|its| its.namespace == namespace))
            }
            changed = types.changed() => {
                if changed.is_ok() {
                    register(&loopback, true).await?;
                }
                false
            }
            _ = due.tick() => true,
        };
        if is_new {
            check_all(&api).await?;
        }
    }
}

const GROUP: &str = "apiregistration";

fn target(group: &'static str, resource: &'static str, name: &str) -> Target {
    Target { group, version: "v1", resource, namespace: String::new(), name: name.to_owned() }
}

/// Takes over the APIServices as they are now. Says whether a server has to be asked.
fn load(api: &Context) -> Result<bool, Status> {
    let resource = Loopback::new(api).resource(&target(GROUP, "apiservices", ""))?;
    let snapshot = api.engine().snapshot();
    let is_changed = api.extensions().configure(&all(&snapshot, resource, ""));
    if is_changed {
        api.show_foreign();
    }
    Ok(is_changed)
}

/// The objects of a collection, or of one namespace.
fn all(snapshot: &Snapshot, resource: &Resource, namespace: &str) -> Vec<Value> {
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
    if !custom {
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

/// Asks all extension servers, and tells what they say.
async fn check_all(api: &Context) -> Result<(), Status> {
    let all = api.extensions().all();
    let checks = all.iter().map(|extension| async move {
        let verdict = check(api, extension).await;
        let is_changed = match &verdict {
            Ok(told) => extension.found(true, told.clone()),
            Err(_) => extension.found(false, Told::default()),
        };
        (extension, verdict, is_changed)
    });
    let checked = join_all(checks).await;
    // Before the conditions: who waits for one finds the documents as it says.
    if checked.iter().any(|(.., is_changed)| *is_changed) {
        api.show_foreign();
    }
    for (extension, verdict, _) in checked {
        let (status, reason, message) = match verdict {
            Ok(_) => ("True", "Passed", "all checks passed".to_owned()),
            Err((reason, message)) => ("False", reason, message),
        };
        report(api, &extension.name, (status, reason, &message)).await?;
    }
    Ok(())
}

/// Why a server is not available: a word, and a sentence.
type Unavailable = (&'static str, String);

/// Looks at the service of an extension server and asks it for its resources.
async fn check(api: &Context, extension: &Extension) -> Result<Told, Unavailable> {
    let Service { namespace, name, port } = &extension.service;
    let snapshot = api.engine().snapshot();
    let failed = |status: Status| {
        (
            "ServiceAccessError",
            format!("service/{name} in \"{namespace}\" cannot be checked due to: {status}"),
        )
    };
    let loopback = Loopback::new(api);
    let resource = loopback.resource(&target("", "services", "")).map_err(failed)?;
    let stored = snapshot.get(&store::key(resource, namespace, name));
    let stored = stored.map(|entry| store::read(entry).and_then(|stored| stored.object(resource)));
    let Some(service) = stored.transpose().map_err(failed)? else {
        return Err(("ServiceNotFound", format!("service/{name} in \"{namespace}\" is not present")));
    };
    let spec = service.get("spec").unwrap_or(&Value::Null);
    if spec.str_at(&["type"]) == "ClusterIP" {
        let ports = spec.get("ports").and_then(Value::as_array).unwrap_or_default();
        let found = ports.iter().find(|one| one.get("port").and_then(Value::as_i64) == Some((*port).into()));
        let Some(found) = found else {
            let message = format!("service/{name} in \"{namespace}\" is not listening on port {port}");
            return Err(("ServicePortError", message));
        };
        let slices = loopback.resource(&target("discovery", "endpointslices", "")).map_err(failed)?;
        let label = format!("{}/service-name", api.naming().domain);
        let of_service = |slice: &Value| slice.str_at(&["metadata", "labels", &label]) == name;
        let slices: Vec<Value> = all(&snapshot, slices, namespace).into_iter().filter(of_service).collect();
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in \"{namespace}\"");
            return Err(("EndpointsNotFound", message));
        }
        let port_name = found.str_at(&["name"]);
        if !slices.iter().any(|slice| has_endpoints(slice, port_name)) {
            let message = format!(
                "endpointslices for service/{name} in \"{namespace}\" have no addresses with port name \"{port_name}\""
            );
            return Err(("MissingEndpoints", message));
        }
    }
    ask(api, extension).await.map_err(|why| ("FailedDiscoveryCheck", why))
}

/// Whether a slice has an endpoint that listens on a port.
fn has_endpoints(slice: &Value, port_name: &str) -> bool {
    let list = |name: &str| slice.get(name).and_then(Value::as_array).unwrap_or_default();
    let is_ready = |endpoint: &Value| {
        endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool).unwrap_or(true)
            && endpoint.get("addresses").and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    };
    list("ports").iter().any(|port| port.str_at(&["name"]) == port_name)
        && list("endpoints").iter().any(is_ready)
}

/// Asks a server for the resources of its version. Any answer that says success will do. One that does is asked where its
/// OpenAPI document is; it need not have one.
async fn ask(api: &Context, extension: &Extension) -> Result<Told, String> {
    let endpoint = extension.endpoint(api.services())?;
    let url = endpoint.url().clone();
    let mut headers = HeaderMap::new();
    let asker = User::new("system:kube-aggregator", [auth::identity::MASTERS]);
    identify(&mut headers, &asker);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Ok(agent) = HeaderValue::from_str(&api.naming().system("apiserver")) {
        headers.insert(USER_AGENT, agent);
    }
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match outgoing::get(&endpoint, headers.clone(), ANSWERED_WITHIN).await {
            Ok((code, body)) if code.is_success() => {
                let list = json::parse(&body).ok();
                let resources = list.filter(|list| list.str_at(&["kind"]) == "APIResourceList");
                let openapi = openapi(&endpoint, headers.clone()).await;
                // The hash of the one says whether the other may have changed.
                let known = openapi.as_deref().and_then(|openapi| extension.swagger_of(openapi));
                let swagger = match known {
                    Some(known) => Some(known),
                    None => swagger(&endpoint, headers).await.map(Arc::new),
                };
                return Ok(Told { resources, openapi, swagger });
            }
            Ok((code, _)) => why = format!("bad status from {url}: {}", code.as_u16()),
            Err(outgoing::Failure::Timeout) => {
                why = format!("Get \"{url}\": {TIMED_OUT}");
                break;
            }
            Err(failure) => {
                why = failure.to_string();
                if let Some(call) = why.strip_suffix(": context deadline exceeded") {
                    why = format!("{call}: {TIMED_OUT}");
                    break;
                }
            }
        }
    }
    Err(format!("failing or missing response from {url}: {why}"))
}

/// Where a server says that the OpenAPI document of its version is: below this server's own path for it.
async fn openapi(endpoint: &Remote, headers: HeaderMap) -> Option<String> {
    let version = endpoint.url().path().trim_matches('/').to_owned();
    let index = endpoint.to("/openapi/v3").ok()?;
    let (code, body) = outgoing::get(&index, headers, ANSWERED_WITHIN).await.ok()?;
    let index = json::parse(&body).ok().filter(|_| code.is_success())?;
    let url = index.at(&["paths", &version])?.str_at(&["serverRelativeURL"]).to_owned();
    let is_its = url.split('?').next() == Some(&*format!("/openapi/v3/{version}"));
    (is_its && url.is_ascii()).then_some(url)
}

/// What a server's OpenAPI document of v2 says of its version, if it has one.
async fn swagger(endpoint: &Remote, headers: HeaderMap) -> Option<Swagger> {
    let prefix = endpoint.url().path().trim_end_matches('/').to_owned();
    let document = endpoint.to("/openapi/v2").ok()?;
    let (code, body) = outgoing::get(&document, headers, ANSWERED_WITHIN).await.ok()?;
    let read = move || Swagger::read(&json::parse(&body).ok()?, &prefix);
    // Some megabytes of text: other tasks go on meanwhile.
    if code.is_success() { tokio::task::spawn_blocking(read).await.ok()? } else { None }
}

/// Writes the condition Available, where it says something else than before.
async fn report(
    api: &Context,
    name: &str,
    (status, reason, message): (&str, &str, &str),
) -> Result<(), Status> {
    let metrics = api.metrics();
    let is_unavailable = status == "False";
    if metrics
        .unavailable
        .of(&[name])
        .is_some_and(|before| before.swap(is_unavailable.into(), Ordering::Relaxed) == 0 && is_unavailable)
    {
        metrics.became_unavailable.count(&[name, reason]);
    }
    let loopback = Loopback::new(api);
    let resource = loopback.resource(&target(GROUP, "apiservices", ""))?;
    let condition = Condition { kind: "Available", status, reason, message };
    let make = |old: &Object| {
        let told = old.get("status").and_then(|status| status.get("conditions"));
        let mut told = told.and_then(Value::as_array).unwrap_or_default().to_vec();
        if condition.is_in(&told) {
            return None;
        }
        condition.put(&mut told);
        let mut new = old.clone();
        new.object_entry("status").insert("conditions", Value::Array(told));
        Some(new)
    };
    loopback.change(resource, ("", name), Endpoint::Status, make).await
}
