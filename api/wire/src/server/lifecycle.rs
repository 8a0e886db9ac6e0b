//! The lifecycle stage of the process, shared by all modules that act on it
//! (docs/api/operations.md#shutdown).
//!
//! The stage moves only forwards: `Starting → TypesServed → Bootstrapped → Serving → Leaving → Refusing →
//! Draining → Stopped`. Readiness follows from the stage. Accept loops and long requests wait for
//! [`Shutdown::wait_for_drain`]; watches wait for `Refusing`. This module counts the requests in flight; the
//! refusing stage ends when the last request in flight has finished. This module also counts all requests in
//! progress, so that the log can report how many requests were cut.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::watch;

use values::cancellation::CancellationToken;

/// Stages of the process, in order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LifecycleStage {
    /// The store is open; stored custom types are not served yet.
    Starting,
    /// The stored types are served; initial objects of a new cluster may be missing. The server is not ready.
    TypesServed,
    /// The bootstrap objects exist; controllers do not run yet. The server is not ready.
    Bootstrapped,
    /// The server is ready and serves everything.
    Serving,
    /// The server was asked to stop and is no longer ready, so that load balancers use other servers. All
    /// requests are still served.
    Leaving,
    /// New requests get a 429 while the requests in flight finish. The server enters this stage only if the
    /// operator has enabled it.
    Refusing,
    /// The server accepts no new connections; watches end, requests in flight finish.
    Draining,
    /// The server has stopped serving requests.
    Stopped,
}

/// The stage of the process and its requests in flight; clones share both.
#[derive(Clone, Debug)]
pub struct Lifecycle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stage: watch::Sender<LifecycleStage>,
    in_flight: watch::Sender<u64>,
    /// Token that cancels the computations of all requests.
    computations: CancellationToken,
    under_way: Arc<AtomicU64>,
    drain_limit: OnceLock<DrainLimit>,
}

/// Time limits of the drain.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimit {
    /// Time at which connections that are still busy are cut.
    pub cut_at: Instant,
    /// Time after which the server no longer waits for connections that were cut.
    pub ended_at: Instant,
}

/// A request in flight, until this value is dropped.
#[derive(Debug)]
pub struct InFlight(Lifecycle);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.send_modify(|count| *count -= 1);
    }
}

impl Lifecycle {
    /// Returns a lifecycle at its first stage.
    #[expect(clippy::new_without_default, reason = "a default life would be shared by no other part")]
    pub fn new() -> Self {
        let shared = Shared {
            stage: watch::Sender::new(LifecycleStage::Starting),
            in_flight: watch::Sender::new(0),
            computations: CancellationToken::default(),
            under_way: Arc::default(),
            drain_limit: OnceLock::new(),
        };
        Lifecycle(Arc::new(shared))
    }

    /// Returns the current lifecycle stage.
    pub fn stage(&self) -> LifecycleStage {
        *self.0.stage.borrow()
    }

    /// Moves to `stage`; does nothing if the lifecycle has already passed it.
    pub fn advance(&self, stage: LifecycleStage) {
        self.0.stage.send_if_modified(|now| {
            let forward = *now < stage;
            if forward {
                *now = stage;
            }
            forward
        });
    }

    /// Resolves once `stage` is reached or passed.
    pub async fn reached(&self, stage: LifecycleStage) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.stage.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Counts a request as in flight until the result is dropped.
    pub fn enter(&self) -> InFlight {
        self.0.in_flight.send_modify(|count| *count += 1);
        InFlight(self.clone())
    }

    /// Resolves once no counted request is in flight.
    pub async fn idle(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.in_flight.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Returns the parent token of the computations of all requests and controllers. Cancelling the token
    /// ends computations that would last longer than the shutdown.
    pub fn computations(&self) -> &CancellationToken {
        &self.0.computations
    }

    /// Returns the number of requests on all connections, streams included, from their heads to the last
    /// bytes of their responses.
    pub fn requests_under_way(&self) -> u64 {
        self.0.under_way.load(Ordering::Relaxed)
    }

    /// Sets the time limits of the drain. Only the first call has an effect; it must come before the drain
    /// begins.
    pub fn limit_drain(&self, limit: DrainLimit) {
        let _ = self.0.drain_limit.set(limit);
    }

    /// Returns a handle for tasks that only need to know whether shutdown has begun.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown(self.clone())
    }
}

/// The part of a [`Lifecycle`] that connections and watches need: whether the shutdown has begun.
#[derive(Clone, Debug)]
pub struct Shutdown(Lifecycle);

impl Shutdown {
    /// Returns a handle of a new lifecycle, for servers in tests.
    pub fn standalone() -> Self {
        Lifecycle::new().shutdown()
    }

    /// Starts the drain: no new connections are accepted, and watches end.
    pub fn begin(&self) {
        self.0.advance(LifecycleStage::Draining);
    }

    /// Returns whether the drain has begun.
    pub fn is_begun(&self) -> bool {
        self.0.stage() >= LifecycleStage::Draining
    }

    /// Returns a token for the computations of one request.
    pub(super) fn request_token(&self) -> CancellationToken {
        self.0.computations().child()
    }

    /// Returns the time limits of the drain, if they were set.
    pub(super) fn drain_limit(&self) -> Option<DrainLimit> {
        self.0.0.drain_limit.get().copied()
    }

    /// Returns the counter of the requests in progress.
    pub(super) fn under_way(&self) -> Arc<AtomicU64> {
        self.0.0.under_way.clone()
    }

    /// Resolves when the drain begins; immediately if it has begun.
    pub async fn wait_for_drain(&self) {
        self.0.reached(LifecycleStage::Draining).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lifecycle_stages_only_advance_and_waiters_wake_at_their_stage() {
        let life = Lifecycle::new();
        let shutdown = life.shutdown();
        life.advance(LifecycleStage::Leaving);
        life.advance(LifecycleStage::Serving);
        assert_eq!((life.stage(), shutdown.is_begun()), (LifecycleStage::Leaving, false));
        let waiter = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.wait_for_drain().await }
        });
        life.reached(LifecycleStage::Serving).await; // already passed
        shutdown.begin();
        waiter.await.unwrap();
        assert!(shutdown.is_begun());
        shutdown.wait_for_drain().await;
    }

    #[tokio::test]
    async fn idle_returns_after_the_last_request_has_ended() {
        let life = Lifecycle::new();
        life.idle().await;
        let requests = [life.enter(), life.enter()];
        let waiter = tokio::spawn({
            let life = life.clone();
            async move { life.idle().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(requests);
        waiter.await.unwrap();
    }
}
