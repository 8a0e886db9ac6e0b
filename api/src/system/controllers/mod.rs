//! Controllers: tasks that maintain a state of the store that requests alone do not establish.
//!
//! ```text
//! engine ─ tail ─► controller ─ newest snapshot → missing objects ─► Loopback ─► engine
//! ```
//!
//! Each controller follows tails and does not poll. An event only triggers a check: the controller decides from
//! the newest state. Therefore repeated, late or missed events do no harm, and after a restart a controller
//! checks all objects. Controllers write with the identity of the server, on condition that the object is
//! unchanged. A controller that fails starts again after a pause, so the actions of a controller must be
//! idempotent.
//!
//! Most controllers delete objects, or parts of objects, because other objects are absent. Such controllers are
//! off while the store has losses that no operator has accepted ([`Backends::is_whole`]): an object that is not
//! found may exist in a record that cannot be read.
//!
//! If several servers share a store, one server is elected to run the controllers that act for all servers
//! (`election`).

pub mod aggregation;
mod allocations;
mod api_service_objects;
pub mod api_services;
mod authentication_info;
mod availability;
mod bootstrap_tokens;
mod certificates;
mod collections;
mod condition;
mod contents;
pub mod definitions;
mod election;
mod extension_documents;
pub mod flow_control;
mod garbage;
pub mod identity;
pub mod namespaces;
pub mod own_service;
mod peers;
mod per_namespace;
mod policy_types;
mod resource_quota;
mod root_ca;
mod selection;
mod service_accounts;
pub mod service_cidr;
mod storage_protection;
mod system_namespaces;
mod token_uses;
mod ttl_after_finished;

pub use self::selection::{KNOWN, Selection};

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::TailError;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use crate::writes::server::Server;
#[cfg(doc)]
use objects::store::backends::Backends;
use values::cancellation::{Cancelled, within};
use values::status::Status;

/// Maximum number of events taken from a tail at once.
const EVENTS_MAX: usize = 1024;

/// Time for which changes are gathered by controllers that follow frequently written objects.
const GATHERED: Duration = Duration::from_millis(10);

/// Maximum number of concurrent writes of one controller: enough to share syncs, and few enough to leave room
/// for clients.
const WRITES_MAX: usize = 64;

/// Initial and maximum pause after a failure (docs/api/controllers.md).
const BACKOFF: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// Maximum time for which a server that stops tries to release its lease.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// The running controllers. The controllers end when this value is dropped.
pub struct Controllers {
    tasks: JoinSet<()>,
    /// The server, and its name in elections; `None` if no other server shares the store.
    elected: Option<(Arc<Server>, String)>,
}

/// Starts the selected controllers, and the controllers that are always part of the server: custom types, API
/// services, flow control, the system namespaces, the server's own service, and the default ServiceCIDR. This
/// function must be called after the start-up.
///
/// If several servers share a store, the controllers that change the store on behalf of all servers run only on
/// the elected server.
pub fn start(server: Arc<Server>, selection: &Selection) -> Controllers {
    let mut tasks = JoinSet::new();
    if server.access.fairness.is_shared() {
        tasks.spawn(supervise("flow control", server.clone(), boxed(flow_control::follow)).boxed());
    }
    tasks.spawn(supervise("api services", server.clone(), boxed(api_services::follow)).boxed());
    if !server.outgoing.extensions.settings().authentication.is_empty() {
        tasks.spawn(
            supervise("authentication info", server.clone(), boxed(authentication_info::follow)).boxed(),
        );
    }
    tasks.spawn(supervise("definitions", server.clone(), boxed(definitions::follow)).boxed());
    tasks.spawn(supervise("token uses", server.clone(), boxed(token_uses::follow)).boxed());
    if server.store.ledger().is_none() {
        start_shared(&mut tasks, &server, selection);
        return Controllers { tasks, elected: None };
    }
    tasks.spawn(supervise("identity", server.clone(), boxed(identity::renew)).boxed());
    if server.outgoing.peers.address().is_some() {
        tasks.spawn(supervise("own address", server.clone(), boxed(peers::announce)).boxed());
    }
    tasks.spawn(supervise("own endpoints", server.clone(), boxed(own_service::follow_endpoints)).boxed());
    if server.outgoing.peers.passes_on() {
        tasks.spawn(supervise("peers", server.clone(), boxed(peers::follow)).boxed());
    }
    let id = election::candidate(&server);
    tasks.spawn(election::lead(server.clone(), selection.clone(), id.clone()).boxed());
    Controllers { tasks, elected: Some((server, id)) }
}

/// Starts the controllers that must run only once per store.
fn start_shared(tasks: &mut JoinSet<()>, server: &Arc<Server>, selection: &Selection) {
    macro_rules! run {
        ($name:literal, $follow:path) => {
            if selection.has($name) {
                tasks.spawn(supervise($name, server.clone(), boxed($follow)).boxed());
            }
        };
    }
    // These controllers delete or remove something if an object is absent or has a certain state. In a
    // damaged store, objects may be missing or stale, so these controllers run only while the store is whole.
    macro_rules! run_while_whole {
        ($name:literal, $follow:path) => {
            if selection.has($name) {
                tasks.spawn(supervise_while_whole($name, server.clone(), boxed($follow)).boxed());
            }
        };
    }
    run_while_whole!("clusterrole-aggregation-controller", aggregation::follow);
    run_while_whole!("namespace-controller", namespaces::follow);
    run!("serviceaccount-controller", service_accounts::follow);
    run!("root-ca-certificate-publisher-controller", root_ca::follow);
    run_while_whole!("ttl-after-finished-controller", ttl_after_finished::follow);
    run!("validatingadmissionpolicy-status-controller", policy_types::follow);
    run!("resourcequota-controller", resource_quota::follow);
    run_while_whole!("persistentvolumeclaim-protection-controller", storage_protection::follow);
    run_while_whole!("token-cleaner-controller", bootstrap_tokens::clean);
    run_while_whole!("bootstrap-signer-controller", bootstrap_tokens::sign);
    run!("certificatesigningrequest-approving-controller", certificates::approve);
    run!("certificatesigningrequest-signing-controller", certificates::sign);
    run_while_whole!("certificatesigningrequest-cleaner-controller", certificates::clean);
    run_while_whole!("storage-version-migrator-controller", definitions::follow_migrating);
    if server.operations.collects_garbage {
        run_while_whole!("garbage-collector-controller", garbage::follow);
    }
    if server.store.ledger().is_some() {
        tasks.spawn(supervise_while_whole("identities", server.clone(), boxed(identity::collect)).boxed());
        tasks.spawn(supervise_while_whole("allocations", server.clone(), boxed(allocations::follow)).boxed());
    }
    tasks.spawn(supervise("system namespaces", server.clone(), boxed(system_namespaces::follow)).boxed());
    tasks.spawn(supervise("own service", server.clone(), boxed(own_service::follow)).boxed());
    tasks.spawn(supervise("default ServiceCIDR", server.clone(), boxed(service_cidr::follow)).boxed());
}

impl Controllers {
    /// Stops the controllers between two steps. The store completes a write that was already passed to it. The
    /// controllers do the remaining work after the next start.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        // With the release, another server does not have to wait until the lease expires. If etcd does not
        // respond, the lease is not released, and another server must wait until the lease expires.
        if let Some((server, id)) = self.elected {
            let given_up = async {
                tokio::join!(
                    election::release(&server, &id),
                    peers::withdraw(&server),
                    own_service::withdraw(&server)
                )
            };
            if tokio::time::timeout(RELEASE_WAIT, given_up).await.is_err() {
                tracing::warn!(id, "leadership not released in time");
            }
        }
    }
}

/// Reason why a controller cannot continue.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Tail(#[from] TailError),
    #[error(transparent)]
    Store(#[from] Status),
}

/// Result of a controller, which ends only with an error.
type Ending = Result<Infallible, Trouble>;

/// A function that runs a controller. The future is boxed, so that the code of [`supervise`] and of its task
/// is not compiled again for each controller.
type Follow = Arc<dyn Fn(Arc<Server>) -> BoxFuture<'static, Ending> + Send + Sync>;

fn boxed<R>(follow: fn(Arc<Server>) -> R) -> Follow
where
    R: Future<Output = Ending> + Send + 'static,
{
    Arc::new(move |server| follow(server).boxed())
}

/// Restarts a controller whenever it ends, until the store is closed.
async fn supervise(name: &'static str, server: Arc<Server>, run: Follow) {
    let mut backoff = Backoff::default();
    loop {
        let began = Instant::now();
        // The token makes the shutdown cancel the computations of the controller, and lets the controller
        // yield its thread to other tasks.
        let run = within(server.operations.lifecycle.computations().child(), run(server.clone()));
        match AssertUnwindSafe(run).catch_unwind().await {
            Ok(Err(Cancelled(_)) | Ok(Err(Trouble::Tail(TailError::Closed)))) => return,
            Ok(Ok(Err(trouble))) => {
                tracing::warn!(controller = name, error = %trouble, "controller restarts");
            }
            Ok(Ok(Ok(never))) => match never {},
            Err(_) => tracing::error!(controller = name, "controller failed, restarting"),
        }
        if began.elapsed() > BACKOFF.1 {
            backoff = Backoff::default();
        }
        backoff.pause().await;
    }
}

/// Does the same as [`supervise`], but only while the store is whole. If damage is found, a running
/// controller ends between two steps. When the store is whole again, the controller starts again and checks
/// all objects.
async fn supervise_while_whole(name: &'static str, server: Arc<Server>, run: Follow) {
    loop {
        if !server.store.backends.is_whole() {
            tracing::warn!(
                controller = name,
                "controller is off: the store has unreadable records, and an object that is not found may be one of them. \
                 Restore a backup, or run accept-loss to turn the controller on"
            );
        }
        server.store.backends.until_whole(true).await;
        tokio::select! {
            biased;
            () = server.store.backends.until_whole(false) => {}
            () = supervise(name, server.clone(), run.clone()) => return,
        }
    }
}

/// A pass of a controller over several objects. A write that fails, for example because admission refuses it,
/// does not prevent the writes of the other objects.
#[derive(Default)]
struct Pass {
    failed: Option<Status>,
}

impl Pass {
    /// Records the outcome for one object.
    fn note(&mut self, object: &str, outcome: Result<(), Status>) {
        if let Err(error) = outcome {
            tracing::warn!(object, %error, "object left unchanged for now");
            self.failed.get_or_insert(error);
        }
    }

    /// Ends the pass.
    ///
    /// # Errors
    /// The first failure; the controller starts again after a pause.
    fn end(self) -> Result<(), Status> {
        self.failed.map_or(Ok(()), Err)
    }
}

/// Pauses that double with each failure.
#[derive(Default)]
struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the length of the next pause.
    fn next(&mut self) -> Duration {
        let (first, longest) = BACKOFF;
        let pause = first.saturating_mul(1 << self.failures.min(20)).min(longest);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    async fn pause(&mut self) {
        tokio::time::sleep(self.next()).await;
    }
}

#[cfg(test)]
mod losses_test;
#[cfg(test)]
mod two_servers_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_pauses_double_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..100).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(pauses[..4], [5, 10, 20, 40]);
        assert_eq!(pauses[13..15], [40_960, 60_000]);
        assert_eq!(pauses[99], 60_000);
    }
}
