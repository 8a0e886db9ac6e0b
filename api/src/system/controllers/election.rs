//! Leader election: one server runs the controllers of a shared store, and holds a Lease that it renews
//! (docs/api/etcd.md#election).
//!
//! ```text
//! look ─► free, expired, or own? ─ yes ─► write own name, conditionally ─► lead: controllers run, renewed periodically
//!   ▲          └ no: wait                                                  │ not renewed in time, or taken
//!   └──────────────────────────────────────────────────────────────────────┘ controllers end
//! ```
//!
//! A lease has expired if this server has noticed no change of the lease for the duration of the lease. The times in
//! the lease are not used, because the clocks of servers differ. A leader that cannot renew its lease stops well before
//! another server may take over.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Selection, start_shared};
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use values::clock;
use values::json::{Object, Value};
use values::names;
use values::status::Status;

/// Duration of a lease after its last renewal.
const DURATION: Duration = Duration::from_secs(15);

/// Maximum time for which a leader continues without a renewal.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// Interval of attempts to become leader, and of renewals.
const RETRY: Duration = Duration::from_secs(2);

/// The last state of the lease that the server has read, and the time at which it first read this state.
#[derive(Default)]
struct Observed {
    seen: Option<(String, Instant)>,
}

impl Observed {
    /// Returns whether a lease with contents `text` has not changed for its duration.
    fn is_over(&mut self, text: &str, now: Instant) -> bool {
        match &self.seen {
            Some((seen, since)) if seen == text => now.duration_since(*since) > DURATION,
            _ => {
                self.seen = Some((text.to_owned(), now));
                false
            }
        }
    }
}

/// Returns a name for this server in elections.
pub(super) fn candidate(server: &Server) -> String {
    format!("{}_{}", server.types.naming.system("apiserver"), names::uid())
}

/// Releases the lease of a server that stops, if the server is the leader. The controllers of this server must
/// have ended.
pub(super) async fn release(server: &Server, id: &str) {
    let loopback = Loopback::new(server).without_admission();
    let target = target(server);
    let Ok(Some(mut lease)) = loopback.get(&target) else { return };
    if lease.str_at(&["spec", "holderIdentity"]) != id {
        return;
    }
    let Value::Object(object) = &mut lease else { return };
    let spec = object.object_entry("spec");
    spec.insert("holderIdentity", "".into());
    spec.insert("leaseDurationSeconds", Value::Int(1));
    spec.insert("renewTime", Value::from(clock::now_micros()));
    match loopback.update(&target, lease).await {
        Ok(_) => tracing::info!(id, "leadership released"),
        Err(error) => tracing::warn!(%error, "leadership not released"),
    }
}

fn target(server: &Server) -> ObjectTarget {
    ObjectTarget {
        group: "coordination",
        version: "v1",
        resource: "leases",
        namespace: server.types.naming.system("system"),
        name: server.types.naming.system("apiserver-controllers"),
    }
}

/// Takes part in the election as long as the server runs, and runs the controllers while this server is the
/// leader.
pub(super) async fn lead(server: Arc<Server>, selection: Selection, id: String) {
    let mut observed = Observed::default();
    loop {
        match elected(&server, &id, &mut observed).await {
            Ok(true) => {}
            Ok(false) => {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "leader election failed");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        }
        tracing::info!(id, "this server runs the controllers");
        let mut tasks = JoinSet::new();
        start_shared(&mut tasks, &server, &selection);
        let mut renewed = Instant::now();
        while renewed.elapsed() < RENEW_DEADLINE {
            tokio::time::sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(renewed.elapsed());
            let began = Instant::now();
            match tokio::time::timeout(left, elected(&server, &id, &mut observed)).await {
                Ok(Ok(true)) => renewed = began,
                Ok(Ok(false)) => break,
                Ok(Err(error)) => tracing::warn!(%error, "leadership not renewed"),
                Err(_) => break,
            }
        }
        tracing::warn!(id, "this server no longer runs the controllers");
        tasks.shutdown().await;
    }
}

/// Takes or renews the lease. Returns whether this server holds the lease now.
async fn elected(server: &Server, id: &str, observed: &mut Observed) -> Result<bool, Status> {
    let loopback = Loopback::new(server).without_admission();
    let target = target(server);
    server.store.current(loopback.resource(&target)?).await?;
    let now = Value::from(clock::now_micros());
    let written = match loopback.get(&target)? {
        None => {
            let mut metadata = Object::new();
            metadata.push("name", target.name.as_str().into());
            metadata.push("namespace", target.namespace.as_str().into());
            let mut spec = Object::new();
            spec.push("holderIdentity", id.into());
            spec.push("leaseDurationSeconds", Value::Int(DURATION.as_secs() as i64));
            spec.push("acquireTime", now.clone());
            spec.push("renewTime", now);
            spec.push("leaseTransitions", Value::Int(0));
            let mut lease = Object::new();
            lease.push("metadata", Value::Object(metadata));
            lease.push("spec", Value::Object(spec));
            loopback.create(&target, Value::Object(lease)).await?
        }
        Some(mut lease) => {
            let holder = lease.str_at(&["spec", "holderIdentity"]).to_owned();
            let is_own = holder == id;
            let text = format!("{holder} {}", lease.str_at(&["spec", "renewTime"]));
            if !is_own && !holder.is_empty() && !observed.is_over(&text, Instant::now()) {
                return Ok(false);
            }
            let transitions =
                lease.at(&["spec", "leaseTransitions"]).and_then(Value::as_i64).unwrap_or_default();
            let Value::Object(object) = &mut lease else { return Ok(false) };
            let spec = object.object_entry("spec");
            spec.insert("holderIdentity", id.into());
            spec.insert("leaseDurationSeconds", Value::Int(DURATION.as_secs() as i64));
            spec.insert("renewTime", now.clone());
            if !is_own {
                spec.insert("acquireTime", now);
                spec.insert("leaseTransitions", Value::Int(transitions + 1));
            }
            loopback.update(&target, lease).await?
        }
    };
    Ok(written == WriteResult::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_over_when_it_was_observed_unchanged_for_its_duration() {
        let start = Instant::now();
        let mut observed = Observed::default();
        for (text, seconds, is_over) in [
            ("a 1", 0, false),
            ("a 1", 15, false),
            ("a 2", 16, false),
            ("a 2", 31, false),
            ("a 2", 32, true),
            ("b 1", 33, false),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(observed.is_over(text, now), is_over, "{text} after {seconds} s");
        }
    }
}
