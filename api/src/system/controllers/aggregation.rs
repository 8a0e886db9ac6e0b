//! Cluster role aggregation: the rules of roles that are made of other roles
//! (docs/api/controllers.md#role-aggregation).
//!
//! ```text
//! tail on cluster roles ─ does it concern an aggregated role? ─► all roles → settle → changed rules → store
//! ```
//!
//! The function that decides settles whole chains in one go and is the same for its own results, so the events of
//! what is written here lead to one more look and to no more writes.

use std::sync::Arc;

use auth::authz::aggregation::LabelSelector;
use engine::{Entry, Event, EventKind, Revision};
use futures_util::future::join_all;

use super::{EVENTS_MAX, Ending, Pass};
use crate::state::policy::{aggregated, labels_of, selectors_of};
use crate::writes::bootstrap::{Target, Written};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;
use objects::store;
use objects::strategy::Endpoint;
use types::schema::registry::Resource;
use values::json::{self, Object, Value};
use values::retry::Attempts;
use values::status::{Reason, Status};

/// By this name it owns the rules that it applies, and is known to authorization.
const NAME: &str = "clusterrole-aggregation-controller";

/// Follows the cluster roles.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let prefix = store::collection(cluster_roles(&Loopback::new(&api))?, "");
    // The tail begins before the first look, so nothing falls in between.
    let mut tail = api.engine().tail(api.engine().revision(), prefix)?;
    let loopback = Loopback::controller(&api, NAME);
    let mut selectors = reconcile(&loopback).await?;
    loop {
        let events = tail.next(EVENTS_MAX).await?;
        if events.iter().any(|event| concerns(event, &selectors)) {
            selectors = reconcile(&loopback).await?;
        }
    }
}

/// Gives all aggregated roles their rules at the start, before the first request. They keep the rules that they have while
/// roles may be missing that cannot be read.
///
/// # Errors
/// The store failed.
pub async fn prepare(api: &Context) -> Result<(), Status> {
    if !api.backends().is_whole() {
        return Ok(());
    }
    reconcile(&Loopback::controller(api, NAME).unasked()).await.map(drop)
}

/// Gives all aggregated roles their rules; returns what they select. Costs one pass over the cluster roles, and a
/// write for each role that is not as it should be.
///
/// # Errors
/// The store failed. A role that validation refuses is reported in the log and left as it is.
async fn reconcile(loopback: &Loopback<'_>) -> Result<Vec<LabelSelector>, Status> {
    let api = loopback.api();
    let resource = cluster_roles(loopback)?;
    let mut attempts = Attempts::new();
    loop {
        let snapshot = api.engine().snapshot();
        let entries = snapshot.prefix(&store::collection(resource, ""));
        let (revisions, roles): (Vec<Revision>, Vec<Value>) =
            entries.filter_map(|entry| Some((entry.revision(), read(&entry)?))).unzip();
        let writes = aggregated(&roles).into_iter().map(|(at, rules)| {
            let name = roles[at].str_at(&["metadata", "name"]);
            let config = configuration(resource, name, rules);
            let seen = revisions[at];
            async move {
                match loopback.apply(resource, ("", name), (seen, Endpoint::Main), NAME, &config).await {
                    Err(error) if error.reason == Reason::Invalid => {
                        tracing::error!(role = name, %error, "aggregated role cannot be written");
                        (name, Ok(Written::Done))
                    }
                    outcome => (name, outcome),
                }
            }
        });
        let (mut pass, mut is_done) = (Pass::default(), true);
        for (name, written) in join_all(writes).await {
            pass.note(name, written.map(|written| is_done &= written == Written::Done));
        }
        pass.end()?;
        if is_done {
            return Ok(roles.iter().filter_map(selectors_of).flatten().collect());
        }
        attempts.again().await.map_err(Status::internal)?;
    }
}

/// What is applied: these rules. None are said as well, so that those written by hand go.
fn configuration(resource: &Resource, name: &str, rules: Value) -> Object {
    let mut config = Object::new();
    config.push("kind", resource.table.kind.clone().into());
    config.push("apiVersion", resource.api_version.as_str().into());
    config.push("metadata", Object::from_iter([("name".into(), name.into())]).into());
    config.push("rules", rules);
    config
}

/// Whether a change can make a difference to an aggregated role: it is one, or was or is selected by one.
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

/// A role as it is stored. One that cannot be read selects and gives nothing, as it grants nothing.
fn read(entry: &Entry) -> Option<Value> {
    let role = entry
        .read()
        .map_err(|error| error.to_string())
        .and_then(|record| json::parse(&record.value).map_err(|error| error.to_string()));
    role.inspect_err(|error| tracing::error!(%error, "cluster role cannot be read")).ok()
}

/// The resource that all of this is about.
fn cluster_roles<'a>(loopback: &Loopback<'a>) -> Result<&'a Resource, Status> {
    loopback.resource(&Target {
        group: "rbac.authorization",
        version: "v1",
        resource: "clusterroles",
        namespace: String::new(),
        name: String::new(),
    })
}
