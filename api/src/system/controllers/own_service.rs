//! The service by which pods reach this server, and the endpoints of the service. The controller creates missing
//! objects, and repairs changed objects (docs/api/operations.md#service-of-the-server).
//!
//! ```text
//! tails on the three objects ─ any change ─► newest state of each → correct? ─ no ─► store
//! several servers, each: every 10 s ─► own address, for 15 s; addresses of all ─► the endpoints, in the same way
//! ```

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::{Tail, TailError};

use super::{EVENTS_MAX, Ending, Trouble};
use crate::state::allocation::Family;
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use crate::writes::server::operations::OwnService;
use objects::store;
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::{copy_path, same_at};
use values::status::{Status, StatusReason};

/// Port of the service.
const PORT: i64 = 443;

/// Interval at which a server announces that it is alive.
const TELL: Duration = Duration::from_secs(10);

/// Maximum number of attempts to write an object after conflicts with other writers; the next change of the
/// object leads to further attempts.
const ATTEMPTS_MAX: usize = 5;

/// Runs the controller, which follows the service and its endpoints.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let mut tails = tails(&server, desired_objects(&server).into_iter().map(|desired| desired.target))?;
    loop {
        ensure(&Loopback::new(&server), desired_objects(&server)).await?;
        changed(&mut tails).await?;
    }
}

/// Runs the controller of the endpoints, on each of several servers. The endpoints are all servers that have
/// recently announced themselves; a server that is about to stop removes itself ([`withdraw`]).
pub(super) async fn follow_endpoints(server: Arc<Server>) -> Ending {
    let (Some(ledger), Some(own)) = (server.store.ledger(), published(&server)) else {
        return std::future::pending().await;
    };
    let mut tails = tails(&server, endpoint_targets(server.types.naming))?;
    let mut keeps_ports = false;
    for round in 1.. {
        ledger.enter_service(own.ip(), round).await?;
        let mut due = pin!(tokio::time::sleep(TELL));
        loop {
            ensure_endpoints(&server, own, keeps_ports).await?;
            keeps_ports = true;
            tokio::select! {
                outcome = changed(&mut tails) => outcome?,
                () = &mut due => break,
            }
        }
    }
    std::future::pending().await
}

/// Removes this server from the endpoints because it stops.
pub(super) async fn withdraw(server: &Server) {
    let (Some(ledger), Some(own)) = (server.store.ledger(), published(server)) else { return };
    let withdrawn = async {
        ledger.leave_service(own.ip()).await?;
        ensure_endpoints(server, own, true).await
    };
    if let Err(error) = withdrawn.await {
        tracing::warn!(%error, "this server not removed from the endpoints of the server's own service");
    }
}

/// Sets the endpoints to all servers that are alive. The ports of the endpoints are the ports of the server
/// that started last, because the other servers do not change the stored ports.
async fn ensure_endpoints(server: &Server, own: SocketAddr, keeps_ports: bool) -> Result<(), Status> {
    let Some(ledger) = server.store.ledger() else { return Ok(()) };
    let addresses = ledger.in_service().await?;
    if addresses.is_empty() {
        // This server has just announced itself, so the list must contain at least this server.
        return Err(Status::internal("no server says that it is alive: the endpoints stay as they are"));
    }
    let loopback = Loopback::new(server);
    let [target, _] = endpoint_targets(server.types.naming);
    let existing = loopback.get(&target)?.filter(|_| keeps_ports);
    let ports = existing.as_ref().and_then(ports_of).unwrap_or_else(|| vec![port_of(own)]);
    ensure(&loopback, endpoint_objects(server.types.naming, &addresses, &ports)).await
}

/// Returns the ports of endpoints, if the endpoints have exactly one subset with ports.
fn ports_of(endpoints: &Value) -> Option<Vec<Value>> {
    let [subset] = endpoints.get("subsets")?.as_array()? else { return None };
    subset.get("ports")?.as_array().map(<[_]>::to_vec).filter(|ports| !ports.is_empty())
}

/// Returns tails on these objects that begin at the newest revision.
fn tails(server: &Server, targets: impl IntoIterator<Item = ObjectTarget>) -> Result<Vec<Tail>, Trouble> {
    let revision = server.store.engine().revision();
    let tail = |target: ObjectTarget| {
        let key = store::key(Loopback::new(server).resource(&target)?, &target.namespace, &target.name);
        Ok(server.store.engine().tail(revision, key)?)
    };
    targets.into_iter().map(tail).collect()
}

async fn changed(tails: &mut [Tail]) -> Result<(), TailError> {
    if tails.is_empty() {
        return std::future::pending().await;
    }
    let changes = tails.iter_mut().map(|tail| Box::pin(tail.next(EVENTS_MAX)));
    futures_util::future::select_all(changes).await.0.map(drop)
}

/// Creates or repairs the objects before the first request.
///
/// # Errors
/// The store failed.
pub async fn prepare(server: &Server) -> Result<(), Status> {
    ensure(&Loopback::new(server).without_admission(), desired_objects(server)).await
}

/// Creates or repairs the objects.
///
/// # Errors
/// The store failed. An object that cannot be created (for example because another service has its address) is
/// reported in the log.
async fn ensure(loopback: &Loopback<'_>, desired: Vec<DesiredObject>) -> Result<(), Status> {
    for DesiredObject { target, object, decides } in desired {
        for _ in 0..ATTEMPTS_MAX {
            let existing = match loopback.get(&target) {
                Err(error) if error.reason == StatusReason::StorageReadError => {
                    tracing::error!(?target, %error, "the server's own service cannot be updated");
                    break;
                }
                existing => existing?,
            };
            let written = match existing {
                None => loopback.create(&target, object.clone()).await,
                // The address family of a slice cannot change.
                Some(existing) if !same(&existing, &object, "addressType") => {
                    match loopback.delete(&target, &existing).await {
                        Ok(WriteResult::Done) => continue,
                        other => other,
                    }
                }
                Some(existing) => match corrected(existing, &object, decides) {
                    None => break,
                    Some(right) => loopback.update(&target, right).await,
                },
            };
            match written {
                Ok(WriteResult::Done) => break,
                Ok(WriteResult::Conflict) => {}
                Err(error) if error.reason == StatusReason::Invalid => {
                    tracing::error!(?target, %error, "the server's own service cannot be updated");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The desired state of one object.
struct DesiredObject {
    target: ObjectTarget,
    object: Value,
    /// Paths of the fields that must equal the fields of `object`. Clients may change the other fields.
    decides: &'static [&'static str],
}

/// Returns the objects of the server's own service.
pub fn own(server: &Server) -> Vec<ObjectTarget> {
    desired_objects(server).into_iter().map(|desired| desired.target).collect()
}

fn desired_objects(server: &Server) -> Vec<DesiredObject> {
    let Some(address) = server.store.allocations.own_address() else { return Vec::new() };
    let naming = server.types.naming;
    let mut all = vec![DesiredObject {
        target: target(naming, "", "services"),
        object: service(naming, address, &server.operations.own_service),
        decides: &["spec.ports", "spec.type"],
    }];
    // If there are several servers, every server maintains the endpoints.
    if let Some(advertised) = published(server).filter(|_| server.store.ledger().is_none()) {
        all.extend(endpoint_objects(naming, &[advertised.ip()], &[port_of(advertised)]));
    }
    all
}

/// Returns the address for endpoints, if the settings enable endpoints. A loopback address is excluded, because
/// other hosts cannot reach a loopback address, and endpoints must not contain one.
fn published(server: &Server) -> Option<SocketAddr> {
    let settings = &server.operations.own_service;
    settings.advertised.filter(|advertised| settings.has_endpoints && !advertised.ip().is_loopback())
}

fn target(naming: &Naming, group: &'static str, resource: &'static str) -> ObjectTarget {
    let (namespace, name) = ("default".to_owned(), naming.word.to_owned());
    ObjectTarget { group, version: "v1", resource, namespace, name }
}

fn endpoint_targets(naming: &Naming) -> [ObjectTarget; 2] {
    [target(naming, "", "endpoints"), target(naming, "discovery", "endpointslices")]
}

fn endpoint_objects(naming: &Naming, addresses: &[IpAddr], ports: &[Value]) -> Vec<DesiredObject> {
    let [of_endpoints, of_slice] = endpoint_targets(naming);
    let slice = endpoint_slice(naming, addresses, ports);
    vec![
        DesiredObject {
            target: of_endpoints,
            object: endpoints(naming, addresses, ports),
            decides: &["subsets", "metadata.labels"],
        },
        DesiredObject {
            target: of_slice,
            object: slice,
            decides: &["endpoints", "ports", "metadata.labels"],
        },
    ]
}

fn port_of(advertised: SocketAddr) -> Value {
    members([
        ("name", "https".into()),
        ("port", Value::Int(advertised.port().into())),
        ("protocol", "TCP".into()),
    ])
}

fn same(existing: &Value, desired: &Value, path: &str) -> bool {
    existing.as_object().zip(desired.as_object()).is_some_and(|(a, b)| same_at(a, b, path))
}

/// Returns `existing` with the fields in `decides` copied from `desired`; `None` if these fields are equal
/// already.
fn corrected(existing: Value, desired: &Value, decides: &[&'static str]) -> Option<Value> {
    let (Value::Object(mut object), Some(desired)) = (existing, desired.as_object()) else { return None };
    if decides.iter().all(|path| same_at(&object, desired, path)) {
        return None;
    }
    decides.iter().for_each(|path| copy_path(&mut object, desired, path));
    Some(object.into())
}

fn members<const N: usize>(members: [(&'static str, Value); N]) -> Value {
    Object::from_iter(members.map(|(name, value)| (name.into(), value))).into()
}

fn object(naming: &Naming, kind: &'static str, api_version: String, labels: Vec<(String, &str)>) -> Object {
    let labels = Object::from_iter(labels.into_iter().map(|(name, value)| (name.into(), value.into())));
    let metadata =
        members([("name", naming.word.into()), ("namespace", "default".into()), ("labels", labels.into())]);
    let kind = members([("kind", kind.into()), ("apiVersion", api_version.into()), ("metadata", metadata)]);
    kind.as_object().cloned().unwrap_or_default()
}

fn service(naming: &Naming, address: IpAddr, settings: &OwnService) -> Value {
    let labels = vec![("component".to_owned(), "apiserver"), ("provider".to_owned(), naming.word)];
    let mut service = object(naming, "Service", "v1".to_owned(), labels);
    let mut port = Object::from_iter([
        ("name".into(), "https".into()),
        ("protocol".into(), "TCP".into()),
        ("port".into(), Value::Int(PORT)),
        ("targetPort".into(), Value::Int(settings.port.into())),
    ]);
    if let Some(node_port) = settings.node_port {
        port.push("nodePort", Value::Int(node_port.into()));
    }
    let address = Value::from(address.to_string());
    let spec = members([
        ("type", if settings.node_port.is_some() { "NodePort" } else { "ClusterIP" }.into()),
        ("clusterIP", address.clone()),
        ("clusterIPs", Value::Array(vec![address])),
        ("ports", Value::Array(vec![port.into()])),
        ("sessionAffinity", "None".into()),
    ]);
    service.insert("spec", spec);
    service.into()
}

fn endpoints(naming: &Naming, addresses: &[IpAddr], ports: &[Value]) -> Value {
    let labels = vec![(format!("endpointslice.{}", naming.label("skip-mirror")), "true")];
    let mut endpoints = object(naming, "Endpoints", "v1".to_owned(), labels);
    let addresses = addresses.iter().map(|address| members([("ip", address.to_string().into())])).collect();
    let subset = members([("addresses", Value::Array(addresses)), ("ports", Value::Array(ports.to_vec()))]);
    endpoints.insert("subsets", Value::Array(vec![subset]));
    endpoints.into()
}

fn endpoint_slice(naming: &Naming, addresses: &[IpAddr], ports: &[Value]) -> Value {
    let labels = vec![(naming.label("service-name"), naming.word)];
    let version = naming.api_version("discovery", true, "v1");
    let mut slice = object(naming, "EndpointSlice", version, labels);
    let family = addresses.first().map_or(Family::V4, |address| Family::from_address(*address));
    slice.insert("addressType", family.name().into());
    let endpoint = |address: &IpAddr| {
        let addresses = Value::Array(vec![address.to_string().into()]);
        members([("addresses", addresses), ("conditions", members([("ready", true.into())]))])
    };
    // A slice has addresses of one family.
    let endpoints =
        addresses.iter().filter(|address| Family::from_address(**address) == family).map(endpoint);
    slice.insert("endpoints", Value::Array(endpoints.collect()));
    slice.insert("ports", Value::Array(ports.to_vec()));
    slice.into()
}
