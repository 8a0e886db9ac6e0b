//! The default ServiceCIDR: the object from which clients read the networks of service addresses
//! (docs/api/operations.md#service-of-the-server).
//!
//! ```text
//! tail on the object ─ any change ─► does it exist? ┬─ no ──► create
//!                                                   └─ yes ─► set the condition Ready, unless it exists or the networks differ
//! ```
//!
//! The server creates the object with its own networks and marks it ready, as kube-apiserver does. The server
//! never changes an object that names other networks, because an operator may have begun to migrate services to
//! these networks. The object has no effect on this server; the addresses come from the flag
//! `--service-cluster-ip-range`.

use std::sync::Arc;

use super::condition::Condition;
use super::{EVENTS_MAX, Ending};
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use values::json::{Object, Value};
use values::naming::Naming;
use values::object::{at, meta};
use values::status::{Status, StatusReason};

/// Runs the controller, which follows the object.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let target = target(server.types.naming);
    let key = store::key(Loopback::new(&server).resource(&target)?, "", &target.name);
    let mut tail = server.store.engine().tail(server.store.engine().revision(), key)?;
    loop {
        ensure(&Loopback::new(&server), &server).await?;
        tail.next(EVENTS_MAX).await?;
    }
}

/// Creates the object before the first request.
///
/// # Errors
/// The store failed.
pub async fn prepare(server: &Server) -> Result<(), Status> {
    ensure(&Loopback::new(server).without_admission(), server).await
}

/// Returns the name and the type of the object with the server's own networks.
pub fn target(naming: &Naming) -> ObjectTarget {
    ObjectTarget {
        group: "networking",
        version: "v1",
        resource: "servicecidrs",
        namespace: String::new(),
        name: naming.word.to_owned(),
    }
}

/// Creates the object if the object is missing, and marks it ready. A conflict needs no retry, because the
/// other writer's change triggers the caller again.
async fn ensure(loopback: &Loopback<'_>, server: &Server) -> Result<(), Status> {
    let target = target(server.types.naming);
    let networks: Vec<Value> = server.store.allocations.networks().map(Value::from).collect();
    if networks.is_empty() {
        return Ok(());
    }
    let ensured = async {
        if loopback.get(&target)?.is_none() {
            let _: WriteResult = loopback.create(&target, object(server.types.naming, &networks)).await?;
        }
        let resource = loopback.resource(&target)?;
        loopback
            .change(resource, ObjectName::cluster_scoped(&target.name), Endpoint::Status, |old| {
                marked(old, &networks)
            })
            .await
    };
    match ensured.await {
        // A retry would fail as well, and the server works without the object.
        Err(error) if matches!(error.reason, StatusReason::Invalid | StatusReason::StorageReadError) => {
            tracing::error!(?target, %error, "the default ServiceCIDR cannot be updated");
            Ok(())
        }
        ensured => ensured,
    }
}

/// Returns the object with the condition; `None` if the object already has the condition, is being deleted, or
/// has other networks.
fn marked(old: &Object, networks: &[Value]) -> Option<Object> {
    let conditions = at(old, "status.conditions").and_then(Value::as_array).unwrap_or_default();
    let is_marked = conditions.iter().any(|condition| condition.str_at(&["type"]) == READY.kind);
    let own = at(old, "spec.cidrs").and_then(Value::as_array).unwrap_or_default() == networks;
    if is_marked || !own || !meta(old, "deletionTimestamp").is_empty() {
        return None;
    }
    let mut conditions = conditions.to_vec();
    READY.put(&mut conditions);
    let mut new = old.clone();
    new.object_entry("status").insert("conditions", Value::Array(conditions));
    Some(new)
}

const READY: Condition<'static> = Condition {
    kind: "Ready",
    status: "True",
    reason: "",
    message: "Kubernetes default Service CIDR is ready",
};

fn object(naming: &Naming, networks: &[Value]) -> Value {
    let metadata = Object::from_iter([("name".into(), naming.word.into())]);
    let spec = Object::from_iter([("cidrs".into(), Value::Array(networks.to_vec()))]);
    Object::from_iter([
        ("kind".into(), "ServiceCIDR".into()),
        ("apiVersion".into(), naming.api_version("networking", true, "v1").into()),
        ("metadata".into(), metadata.into()),
        ("spec".into(), spec.into()),
    ])
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing;

    #[test]
    fn only_a_service_cidr_of_the_own_networks_without_a_ready_condition_is_marked_ready() {
        let networks = [Value::from("10.0.0.0/24"), Value::from("fd00::/112")];
        for (old, is_marked) in [
            (r#"{"spec":{"cidrs":["10.0.0.0/24","fd00::/112"]}}"#, true),
            (
                r#"{"spec":{"cidrs":["10.0.0.0/24","fd00::/112"]},"status":{"conditions":[{"type":"Other"}]}}"#,
                true,
            ),
            (
                r#"{"spec":{"cidrs":["10.0.0.0/24","fd00::/112"]},"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#,
                false,
            ),
            (
                r#"{"metadata":{"deletionTimestamp":"2024-01-01T00:00:00Z"},"spec":{"cidrs":["10.0.0.0/24","fd00::/112"]}}"#,
                false,
            ),
            (r#"{"spec":{"cidrs":["10.0.0.0/24"]}}"#, false),
            (r#"{"spec":{"cidrs":["fd00::/112","10.0.0.0/24"]}}"#, false),
        ] {
            let new = marked(&testing::object(old), &networks);
            assert_eq!(new.is_some(), is_marked, "{old}");
            let Some(new) = new else { continue };
            let conditions = at(&new, "status.conditions").and_then(Value::as_array).unwrap();
            let last = conditions.last().unwrap();
            assert_eq!((last.str_at(&["type"]), last.str_at(&["status"])), ("Ready", "True"), "{old}");
            assert!(marked(&new, &networks).is_none(), "{old}: twice");
        }
    }
}
