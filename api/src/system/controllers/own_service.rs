//! The service by which pods reach this server, and its endpoints: made when they are missing, put right when they
//! are changed (docs/api/operations.md#service-of-the-server).
//!
//! ```text
//! tails on the three objects ─ any change ─► newest state of each → as it should be? ─ no ─► store
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::{EVENTS_MAX, Ending};
use crate::objects::store;
use crate::state::allocation::Family;
use crate::values::json::{Object, Value};
use crate::values::naming::Naming;
use crate::values::object::{copy_path, same_at};
use crate::values::status::{Reason, Status};
use crate::writes::bootstrap::{ObjectStore, Target, Written};
use crate::writes::context::{Context, OwnService};
use crate::writes::loopback::Loopback;

/// Port of the service.
const PORT: i64 = 443;

/// How often an object is tried again after another writer was faster; its next change brings it up again.
const ATTEMPTS_MAX: usize = 5;

/// Follows the three objects.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let revision = api.engine().revision();
    let tail = |wanted: &Wanted| {
        let resource = Loopback::new(&api).resource(&wanted.target)?;
        let key = store::key(resource, &wanted.target.namespace, &wanted.target.name);
        Ok::<_, super::Trouble>(api.engine().tail(revision, key)?)
    };
    let mut tails = wanted(&api).iter().map(tail).collect::<Result<Vec<_>, _>>()?;
    loop {
        ensure(&Loopback::new(&api)).await?;
        let changes = tails.iter_mut().map(|tail| Box::pin(tail.next(EVENTS_MAX)));
        futures_util::future::select_all(changes).await.0?;
    }
}

/// Makes the objects what they should be before the first request.
///
/// # Errors
/// The store failed.
pub async fn prepare(api: &Context) -> Result<(), Status> {
    ensure(&Loopback::new(api).unasked()).await
}

/// Makes the objects what they should be.
///
/// # Errors
/// The store failed. An object that cannot be made (another service has its address) is reported in the log.
async fn ensure(loopback: &Loopback<'_>) -> Result<(), Status> {
    for Wanted { target, object, decides } in wanted(loopback.api()) {
        for _ in 0..ATTEMPTS_MAX {
            let written = match loopback.get(&target)? {
                None => loopback.create(&target, object.clone()).await,
                // The family of a slice cannot change.
                Some(existing) if !same(&existing, &object, "addressType") => {
                    match loopback.delete(&target, &existing).await {
                        Ok(Written::Done) => continue,
                        other => other,
                    }
                }
                Some(existing) => match put_right(existing, &object, decides) {
                    None => break,
                    Some(right) => loopback.update(&target, right).await,
                },
            };
            match written {
                Ok(Written::Done) => break,
                Ok(Written::Conflict) => {}
                Err(error) if error.reason == Reason::Invalid => {
                    tracing::error!(?target, %error, "the server's own service cannot be kept in order");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// One object as it should be.
struct Wanted {
    target: Target,
    object: Value,
    /// What must agree, as paths; the rest is left to clients.
    decides: &'static [&'static str],
}

/// The objects of the server's own service.
pub fn own(api: &Context) -> Vec<Target> {
    wanted(api).into_iter().map(|wanted| wanted.target).collect()
}

fn wanted(api: &Context) -> Vec<Wanted> {
    let Some(address) = api.allocations().own_address() else { return Vec::new() };
    let naming = api.naming();
    let target = |group, resource| Target {
        group,
        version: "v1",
        resource,
        namespace: "default".to_owned(),
        name: naming.word.to_owned(),
    };
    let settings = api.own_service();
    let mut all = vec![Wanted {
        target: target("", "services"),
        object: service(naming, address, settings),
        decides: &["spec.ports", "spec.type"],
    }];
    // At a loopback address others do not reach the server, and endpoints may not have one.
    let is_published = |advertised: &SocketAddr| settings.has_endpoints && !advertised.ip().is_loopback();
    if let Some(advertised) = settings.advertised.filter(is_published) {
        all.push(Wanted {
            target: target("", "endpoints"),
            object: endpoints(naming, advertised),
            decides: &["subsets", "metadata.labels"],
        });
        all.push(Wanted {
            target: target("discovery", "endpointslices"),
            object: endpoint_slice(naming, advertised),
            decides: &["endpoints", "ports", "metadata.labels"],
        });
    }
    all
}

fn same(existing: &Value, wanted: &Value, path: &str) -> bool {
    existing.as_object().zip(wanted.as_object()).is_some_and(|(a, b)| same_at(a, b, path))
}

/// `existing` with what decides as it is wanted; `None` if it is so.
fn put_right(existing: Value, wanted: &Value, decides: &[&'static str]) -> Option<Value> {
    let (Value::Object(mut object), Some(wanted)) = (existing, wanted.as_object()) else { return None };
    if decides.iter().all(|path| same_at(&object, wanted, path)) {
        return None;
    }
    decides.iter().for_each(|path| copy_path(&mut object, wanted, path));
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

fn endpoints(naming: &Naming, advertised: SocketAddr) -> Value {
    let labels = vec![(format!("endpointslice.{}", naming.label("skip-mirror")), "true")];
    let mut endpoints = object(naming, "Endpoints", "v1".to_owned(), labels);
    let address = members([("ip", advertised.ip().to_string().into())]);
    let port = members([
        ("name", "https".into()),
        ("port", Value::Int(advertised.port().into())),
        ("protocol", "TCP".into()),
    ]);
    let subset = members([("addresses", Value::Array(vec![address])), ("ports", Value::Array(vec![port]))]);
    endpoints.insert("subsets", Value::Array(vec![subset]));
    endpoints.into()
}

fn endpoint_slice(naming: &Naming, advertised: SocketAddr) -> Value {
    let labels = vec![(naming.label("service-name"), naming.word)];
    let version = naming.api_version("discovery", true, "v1");
    let mut slice = object(naming, "EndpointSlice", version, labels);
    slice.insert("addressType", Family::of(advertised.ip()).name().into());
    let address = Value::Array(vec![advertised.ip().to_string().into()]);
    let endpoint = members([("addresses", address), ("conditions", members([("ready", true.into())]))]);
    slice.insert("endpoints", Value::Array(vec![endpoint]));
    let port = members([
        ("name", "https".into()),
        ("protocol", "TCP".into()),
        ("port", Value::Int(advertised.port().into())),
    ]);
    slice.insert("ports", Value::Array(vec![port]));
    slice.into()
}
