//! Type-checks validating policies and writes the findings to the status of each policy
//! (docs/api/controllers.md#types-in-policies). Each generation of a policy is checked once.

use std::sync::Arc;

use engine::EventKind;

use super::{EVENTS_MAX, Ending, Pass};
use crate::writes::admission::policy::typecheck;
use crate::writes::bootstrap::ObjectTarget;
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use values::json::{Object, Value};
use values::object::at;
use values::status::{Status, StatusReason};

/// Name of the controller for authorization.
const NAME: &str = "validatingadmissionpolicy-status-controller";

/// Runs the controller, which follows the policies.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let resource = Loopback::new(&server).resource(&target())?;
    let prefix = store::collection(resource, "");
    let snapshot = server.store.engine().snapshot();
    let mut tail = server.store.engine().tail(snapshot.revision(), prefix.clone())?;
    let name_of = |key: &[u8]| store::object_name(resource, key).name.to_owned();
    let mut names: Vec<String> = snapshot.prefix(&prefix).map(|entry| name_of(entry.key())).collect();
    drop(snapshot);
    loop {
        let mut pass = Pass::default();
        for name in &names {
            pass.note(name, check(&server, name).await);
        }
        pass.end()?;
        let events = tail.next(EVENTS_MAX).await?;
        let is_there = |event: &&Arc<engine::Event>| event.kind == EventKind::Put;
        names = events.iter().filter(is_there).map(|event| name_of(&event.key)).collect();
        names.dedup();
    }
}

fn target() -> ObjectTarget {
    ObjectTarget {
        group: "admissionregistration",
        version: "v1",
        resource: "validatingadmissionpolicies",
        namespace: String::new(),
        name: String::new(),
    }
}

/// Checks one policy, if the current generation of the policy has not been checked.
async fn check(server: &Server, name: &str) -> Result<(), Status> {
    let loopback = Loopback::controller(server, NAME);
    let resource = loopback.resource(&target())?;
    let types = server.types.now();
    let changed = loopback
        .change(resource, ObjectName::cluster_scoped(name), Endpoint::Status, |policy| {
            let generation = at(policy, "metadata.generation").and_then(Value::as_i64).unwrap_or(0);
            let seen = at(policy, "status.observedGeneration").and_then(Value::as_i64).unwrap_or(0);
            if seen >= generation {
                return None;
            }
            let warnings = typecheck::check(policy.get("spec").unwrap_or(&Value::Null), types.registry());
            let warnings: Vec<Value> = warnings.into_iter().map(warning_value).collect();
            let mut checking = Object::new();
            if !warnings.is_empty() {
                checking.insert("expressionWarnings", Value::Array(warnings));
            }
            let mut checked = policy.clone();
            let status = checked.object_entry("status");
            status.insert("observedGeneration", generation.into());
            status.insert("typeChecking", checking.into());
            Some(checked)
        })
        .await;
    match changed {
        Err(error) if error.reason == StatusReason::Invalid => {
            tracing::warn!(policy = name, %error, "status of a policy cannot be written");
            Ok(())
        }
        changed => changed,
    }
}

fn warning_value(warning: typecheck::TypeWarning) -> Value {
    let mut members = Object::with_capacity(2);
    members.insert("fieldRef", warning.field.into());
    members.insert("warning", warning.text.into());
    members.into()
}
