//! Cluster role aggregation: the rules of roles that combine other roles
//! (docs/api/controllers.md#role-aggregation).
//!
//! ```text
//! tail on cluster roles ─ does it concern an aggregated role? ─► all roles → settle → changed rules → store
//! ```
//!
//! The decision covers chains of aggregated roles in one step and is idempotent. Therefore the events of the
//! controller's own writes cause one more check and no further writes.

use std::sync::Arc;

use auth::authz::aggregation::LabelSelector;
use engine::{Entry, Event, EventKind, Revision};
use futures_util::future::join_all;

use super::{EVENTS_MAX, Ending, Pass};
use crate::state::policy::{aggregated, labels_of, selectors_of};
use crate::writes::bootstrap::{ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::json::{self, Object, Value};
use values::retry::Attempts;
use values::status::{Status, StatusReason};

/// Name of the controller: the field manager of the rules that the controller applies, and the name for authorization.
const NAME: &str = "clusterrole-aggregation-controller";

/// Runs the controller, which follows the cluster roles.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let prefix = store::collection(cluster_roles(&Loopback::new(&server))?, "");
    // The tail begins before the first check, so that no change between the two is missed.
    let mut tail = server.store.engine().tail(server.store.engine().revision(), prefix)?;
    let loopback = Loopback::controller(&server, NAME);
    let mut selectors = reconcile(&loopback).await?;
    loop {
        let events = tail.next(EVENTS_MAX).await?;
        if events.iter().any(|event| concerns(event, &selectors)) {
            selectors = reconcile(&loopback).await?;
        }
    }
}

/// Sets the rules of all aggregated roles at the start, before the first request. While the store may contain
/// roles that cannot be read, the aggregated roles keep their rules.
///
/// # Errors
/// The store failed.
pub async fn prepare(server: &Server) -> Result<(), Status> {
    if !server.store.backends.is_whole() {
        return Ok(());
    }
    reconcile(&Loopback::controller(server, NAME).without_admission()).await.map(drop)
}

/// Sets the rules of all aggregated roles, and returns their selectors. The cost is one pass over the cluster
/// roles, and a write for each role with wrong rules.
///
/// # Errors
/// The store failed. A role that validation refuses is reported in the log and left unchanged.
async fn reconcile(loopback: &Loopback<'_>) -> Result<Vec<LabelSelector>, Status> {
    let server = loopback.server();
    let resource = cluster_roles(loopback)?;
    let mut attempts = Attempts::new();
    loop {
        let snapshot = server.store.engine().snapshot();
        let entries = snapshot.prefix(&store::collection(resource, ""));
        let (revisions, roles): (Vec<Revision>, Vec<Value>) =
            entries.filter_map(|entry| Some((entry.revision(), read(&entry)?))).unzip();
        let writes = aggregated(&roles).into_iter().map(|(at, rules)| {
            let name = roles[at].str_at(&["metadata", "name"]);
            let config = configuration(resource, name, rules);
            let seen = revisions[at];
            async move {
                match loopback
                    .apply(resource, ObjectName::cluster_scoped(name), seen, Endpoint::Main, NAME, &config)
                    .await
                {
                    Err(error) if error.reason == StatusReason::Invalid => {
                        tracing::error!(role = name, %error, "aggregated role cannot be written");
                        (name, Ok(WriteResult::Done))
                    }
                    outcome => (name, outcome),
                }
            }
        });
        let (mut pass, mut is_done) = (Pass::default(), true);
        for (name, written) in join_all(writes).await {
            pass.note(name, written.map(|written| is_done &= written == WriteResult::Done));
        }
        pass.end()?;
        if is_done {
            return Ok(roles.iter().filter_map(selectors_of).flatten().collect());
        }
        attempts.again().await.map_err(Status::internal)?;
    }
}

/// Returns the configuration to apply, with these rules. An empty list is applied too, so that rules that a
/// user has written are removed.
fn configuration(resource: &Resource, name: &str, rules: Value) -> Object {
    let mut config = Object::new();
    config.push("kind", resource.table.kind.clone().into());
    config.push("apiVersion", resource.api_version.as_str().into());
    config.push("metadata", Object::from_iter([("name".into(), name.into())]).into());
    config.push("rules", rules);
    config
}

/// Returns whether a change may affect an aggregated role: the changed role is an aggregated role, or an
/// aggregated role selects the changed role before or after the change.
fn concerns(event: &Event, selectors: &[LabelSelector]) -> bool {
    let states = [Some(&event.entry).filter(|_| event.kind == EventKind::Put), event.previous.as_ref()];
    states.into_iter().flatten().any(|entry| match read(entry) {
        Some(role) => {
            let labels = labels_of(&role);
            selectors_of(&role).is_some() || selectors.iter().any(|selector| selector.matches(&labels))
        }
        None => true,
    })
}

/// Returns a stored role. A role that cannot be read selects nothing and contributes no rules.
fn read(entry: &Entry) -> Option<Value> {
    let role = entry
        .read()
        .map_err(|error| error.to_string())
        .and_then(|record| json::parse(&record.value).map_err(|error| error.to_string()));
    role.inspect_err(|error| tracing::error!(%error, "cluster role cannot be read")).ok()
}

/// Returns the resource type of cluster roles.
fn cluster_roles<'a>(loopback: &Loopback<'a>) -> Result<&'a Resource, Status> {
    loopback.resource(&ObjectTarget {
        group: "rbac.authorization",
        version: "v1",
        resource: "clusterroles",
        namespace: String::new(),
        name: String::new(),
    })
}
