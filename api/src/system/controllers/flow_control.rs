//! Applies the flow control objects in the store to the server (docs/api/fairness.md#objects).
//!
//! ```text
//! tails on flow schemas and priority levels ─ newest snapshot ─┬─► Fairness::configure
//!                                                             └─► status of each schema: does its level exist?
//! every 10 s: seats are divided again ─ every minute: bundled objects are restored
//! ```

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use engine::{Revision, Snapshot};
use tokio::time::{Instant, interval_at};

use super::collections::objects;
use super::condition::Condition;
use super::{EVENTS_MAX, Ending};
use crate::state::fairness::PERIOD;
use crate::writes::bootstrap::{self, Kind, ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::features::boolean;
use types::schema::registry::Resource;
use values::json::{Object, Value};
use values::status::Status;

/// Field managers of the bundled objects and of the conditions of flow schemas.
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

/// Interval at which the bundled objects are compared with the stored objects.
const RESTORED_EVERY: Duration = Duration::from_secs(60);

/// Creates and restores the bundled objects, and configures flow control with all stored objects.
///
/// # Errors
/// The store failed.
pub async fn prepare(server: &Server) -> Result<bootstrap::ReconcileCounts, Status> {
    let outcome = restore(&Loopback::named(server, PRODUCER).without_admission()).await?;
    load(server)?;
    Ok(outcome)
}

/// Runs the controller, which follows flow schemas and priority levels.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let loopback = Loopback::new(&server);
    let revision = server.store.engine().revision();
    let tail = |plural| -> Result<_, super::Trouble> {
        Ok(server.store.engine().tail(revision, store::collection(resource(&loopback, plural)?, ""))?)
    };
    let (mut schemas, mut levels) = (tail(SCHEMAS)?, tail(LEVELS)?);
    let ticks = |period| interval_at(Instant::now() + period, period);
    let (mut divide, mut restored) = (ticks(PERIOD), ticks(RESTORED_EVERY));
    let mut is_changed = true;
    loop {
        if std::mem::take(&mut is_changed) {
            let objects = load(&server)?;
            report(&server, &objects).await?;
        }
        let (schema, level) = (pin!(schemas.next(EVENTS_MAX)), pin!(levels.next(EVENTS_MAX)));
        tokio::select! {
            events = schema => is_changed = !events?.is_empty(),
            events = level => is_changed = !events?.is_empty(),
            _ = divide.tick() => server.access.fairness.divide_again(),
            _ = restored.tick() => drop(restore(&Loopback::named(&server, PRODUCER)).await?),
        }
    }
}

/// Restores bundled objects that are missing or have forbidden changes, and removes bundled objects of earlier
/// releases.
async fn restore(loopback: &Loopback<'_>) -> Result<bootstrap::ReconcileCounts, Status> {
    let server = loopback.server();
    let outcome = bootstrap::reconcile_flow_control(loopback, server.types.naming).await?;
    let bundled = bootstrap::flow_control(server.types.naming);
    let annotation = bootstrap::autoupdate_spec_annotation(server.types.naming);
    if !server.store.backends.is_whole() {
        return Ok(outcome);
    }
    let objects = Objects::read(&server.store.engine().snapshot(), loopback)?;
    for (plural, objects) in [(SCHEMAS, &objects.schemas), (LEVELS, &objects.levels)] {
        let names: BTreeSet<&str> = bundled
            .iter()
            .filter(|desired| desired.target.resource == plural)
            .map(|desired| &*desired.target.name)
            .collect();
        for (_, object) in objects {
            let name = object.str_at(&["metadata", "name"]);
            let is_ours = boolean(object.str_at(&["metadata", "annotations", &annotation])) == Some(true);
            if is_ours && !names.contains(name) {
                tracing::info!(
                    resource = plural,
                    name,
                    "deleting a flow control object that is no longer bundled"
                );
                // After a conflict, another writer has just changed the object, so leave the decision to the
                // next check.
                let _: WriteResult = loopback.delete(&target(plural, name), object).await?;
            }
        }
    }
    Ok(outcome)
}

/// The stored objects, each with its revision.
struct Objects {
    schemas: Vec<(Revision, Value)>,
    levels: Vec<(Revision, Value)>,
}

impl Objects {
    fn read(snapshot: &Snapshot, loopback: &Loopback<'_>) -> Result<Objects, Status> {
        let all = |plural| -> Result<Vec<(Revision, Value)>, Status> {
            Ok(objects(snapshot, &store::collection(resource(loopback, plural)?, "")))
        };
        Ok(Objects { schemas: all(SCHEMAS)?, levels: all(LEVELS)? })
    }
}

/// Configures flow control with the current objects. The mandatory objects apply even while they are missing.
fn load(server: &Server) -> Result<Objects, Status> {
    let objects = Objects::read(&server.store.engine().snapshot(), &Loopback::new(server))?;
    let mut schemas: Vec<Value> = objects.schemas.iter().map(|(_, object)| object.clone()).collect();
    let mut levels: Vec<Value> = objects.levels.iter().map(|(_, object)| object.clone()).collect();
    for desired in bootstrap::flow_control(server.types.naming) {
        let there = if desired.target.resource == SCHEMAS { &mut schemas } else { &mut levels };
        let is_it = |object: &Value| object.str_at(&["metadata", "name"]) == desired.target.name;
        if desired.kind == Kind::MandatoryFlowControl && !there.iter().any(is_it) {
            there.push(desired.object);
        }
    }
    server.access.fairness.configure(&schemas, &levels);
    Ok(objects)
}

/// Sets the condition of each flow schema that says whether its priority level exists.
async fn report(server: &Server, objects: &Objects) -> Result<(), Status> {
    let loopback = Loopback::named(server, CONSUMER);
    let resource = resource(&loopback, SCHEMAS)?;
    let levels: BTreeSet<&str> =
        objects.levels.iter().map(|(_, object)| object.str_at(&["metadata", "name"])).collect();
    for (seen, schema) in &objects.schemas {
        let level = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]);
        let (status, reason, verb) = if levels.contains(level) {
            ("False", "Found", "it exists")
        } else {
            ("True", "NotFound", "there is no such object")
        };
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {} {verb}",
            if status == "False" { "and" } else { "but" }
        );
        let held = schema.at(&["status", "conditions"]).and_then(Value::as_array).unwrap_or_default();
        let condition = Condition { kind: "Dangling", status, reason, message: &message };
        if condition.is_in(held) {
            continue;
        }
        let name = schema.str_at(&["metadata", "name"]);
        let config = configuration(resource, name, condition.object(held));
        // A schema that changed in the meantime is checked again, because the change causes another event.
        let applied = loopback
            .apply(resource, ObjectName::cluster_scoped(name), *seen, Endpoint::Status, CONSUMER, &config)
            .await;
        if let Err(error) = applied {
            tracing::error!(flow_schema = name, %error, "condition of a flow schema cannot be written");
        }
    }
    Ok(())
}

/// Returns the configuration to apply to the status of a flow schema.
fn configuration(resource: &Resource, name: &str, condition: Object) -> Object {
    let mut config = Object::new();
    config.push("kind", resource.table.kind.clone().into());
    config.push("apiVersion", resource.api_version.as_str().into());
    config.push("metadata", Object::from_iter([("name".into(), name.into())]).into());
    let conditions = Value::Array(vec![condition.into()]);
    config.push("status", Object::from_iter([("conditions".into(), conditions)]).into());
    config
}

fn target(plural: &'static str, name: &str) -> ObjectTarget {
    ObjectTarget {
        group: "flowcontrol.apiserver",
        version: "v1",
        resource: plural,
        namespace: String::new(),
        name: name.to_owned(),
    }
}

fn resource<'a>(loopback: &Loopback<'a>, plural: &'static str) -> Result<&'a Resource, Status> {
    loopback.resource(&target(plural, ""))
}
