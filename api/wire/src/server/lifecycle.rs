//! The stage of the process's life, shared by all parts that act on it (docs/api/operations.md#shutdown).
//!
//! `Starting → TypesServed → Bootstrapped → Serving → Leaving → Refusing → Draining → Stopped`, forwards only. Readiness follows
//! from the stage; accept loops and long requests wait for [`Shutdown::begun`], watches for `Refusing`. Requests in flight
//! are counted here, so that the refusing stage can end with the last of them, and so are all requests under way, so that
//! the log can say how many were cut.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::watch;

use values::cancellation::Token;

/// Stages of the process, in order.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Stage {
    /// The store is open, and the custom types in it are not served yet.
    Starting,
    /// The types that were stored are served; objects of a new cluster may be missing: not ready.
    TypesServed,
    /// The objects that every cluster starts with exist; controllers do not run yet: not ready.
    Bootstrapped,
    /// Ready.
    Serving,
    /// Asked to stop: not ready any more, so that load balancers look elsewhere, but everything is still served.
    Leaving,
    /// New requests are answered with 429 while those in flight finish. Passed over where the operator did not ask for it.
    Refusing,
    /// No new connections; watches end, requests in flight finish.
    Draining,
    /// Nothing is served.
    Stopped,
}

/// The stage of the process and its requests in flight; clones share both.
#[derive(Clone, Debug)]
pub struct Lifecycle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stage: watch::Sender<Stage>,
    in_flight: watch::Sender<u64>,
    /// Ends the computations of all requests.
    computations: Token,
    under_way: Arc<AtomicU64>,
    drain_limit: OnceLock<DrainLimit>,
}

/// When the drain ends whatever hangs.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimit {
    /// When connections that are still busy are cut, if not before.
    pub cut_at: Instant,
    /// When nobody waits any longer for connections that were cut.
    pub ended_at: Instant,
}

/// A request in flight, until this is dropped.
#[derive(Debug)]
pub struct InFlight(Lifecycle);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.0.in_flight.send_modify(|count| *count -= 1);
    }
}

impl Lifecycle {
    /// A life that starts.
    #[expect(clippy::new_without_default, reason = "a default life would be shared by no other part")]
    pub fn new() -> Self {
        let shared = Shared {
            stage: watch::Sender::new(Stage::Starting),
            in_flight: watch::Sender::new(0),
            computations: Token::default(),
            under_way: Arc::default(),
            drain_limit: OnceLock::new(),
        };
        Lifecycle(Arc::new(shared))
    }

    /// The present stage.
    pub fn stage(&self) -> Stage {
        *self.0.stage.borrow()
    }

    /// Moves to `stage`; does nothing when life is already past it.
    pub fn advance(&self, stage: Stage) {
        self.0.stage.send_if_modified(|now| {
            let forward = *now < stage;
            if forward {
                *now = stage;
            }
            forward
        });
    }

    /// Resolves once `stage` is reached or passed.
    pub async fn reached(&self, stage: Stage) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.stage.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Counts a request as in flight for as long as the result lives.
    pub fn enter(&self) -> InFlight {
        self.0.in_flight.send_modify(|count| *count += 1);
        InFlight(self.clone())
    }

    /// Resolves once no counted request is in flight.
    pub async fn idle(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        let _ = self.0.in_flight.subscribe().wait_for(|count| *count == 0).await;
    }

    /// The token that the computations of all requests and controllers descend from. Cancelling it ends those that would outlast the
    /// shutdown.
    pub fn computations(&self) -> &Token {
        &self.0.computations
    }

    /// Requests of all connections, streams included, from their heads to the last bytes of their answers.
    pub fn requests_under_way(&self) -> u64 {
        self.0.under_way.load(Ordering::Relaxed)
    }

    /// Ends the drain at these times at the latest. The first call counts; call it before the drain begins.
    pub fn limit_drain(&self, limit: DrainLimit) {
        let _ = self.0.drain_limit.set(limit);
    }

    /// A handle for tasks that only need to know whether shutdown has begun.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown(self.clone())
    }
}

/// The one bit of a [`Lifecycle`] that connections and watches need.
#[derive(Clone, Debug)]
pub struct Shutdown(Lifecycle);

impl Shutdown {
    /// One that belongs to no process, for servers in tests.
    pub fn standalone() -> Self {
        Lifecycle::new().shutdown()
    }

    /// Starts the drain: no new connections, watches end.
    pub fn begin(&self) {
        self.0.advance(Stage::Draining);
    }

    /// Whether the drain has begun.
    pub fn is_begun(&self) -> bool {
        self.0.stage() >= Stage::Draining
    }

    /// A token for the computations of one request.
    pub(super) fn request_token(&self) -> Token {
        self.0.computations().child()
    }

    /// When the drain ends whatever hangs, if that was said.
    pub(super) fn drain_limit(&self) -> Option<DrainLimit> {
        self.0.0.drain_limit.get().copied()
    }

    /// Returns the counter of the requests in progress.
    pub(super) fn under_way(&self) -> Arc<AtomicU64> {
        self.0.0.under_way.clone()
    }

    /// Resolves when the drain begins, at once if it has.
    pub async fn begun(&self) {
        self.0.reached(Stage::Draining).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn life_goes_forward_only_and_waiters_see_every_stage_they_wait_for() {
        let life = Lifecycle::new();
        let shutdown = life.shutdown();
        life.advance(Stage::Leaving);
        life.advance(Stage::Serving);
        assert_eq!((life.stage(), shutdown.is_begun()), (Stage::Leaving, false));
        let waiter = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.begun().await }
        });
        life.reached(Stage::Serving).await; // passed already
        shutdown.begin();
        waiter.await.unwrap();
        assert!(shutdown.is_begun());
        shutdown.begun().await;
    }

    #[tokio::test]
    async fn life_is_idle_once_the_last_request_has_ended() {
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
