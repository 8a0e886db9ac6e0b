//! The stage of the process's life, shared by all parts that act on it (docs/api/operations.md#shutdown).
//!
//! `Starting → TypesServed → Bootstrapped → Serving → Leaving → Draining → Stopped`, forwards only. Readiness follows from the stage; accept
//! loops, watches and long requests wait for [`Shutdown::begun`].

use std::sync::Arc;

use tokio::sync::watch;

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
    /// No new connections; watches end, requests in flight finish.
    Draining,
    /// Nothing is served.
    Stopped,
}

/// The stage of the process; clones share it.
#[derive(Clone, Debug)]
pub struct Lifecycle(Arc<watch::Sender<Stage>>);

impl Lifecycle {
    /// A life that starts.
    #[expect(clippy::new_without_default, reason = "a default life would be one nobody else shares")]
    pub fn new() -> Self {
        Lifecycle(Arc::new(watch::Sender::new(Stage::Starting)))
    }

    /// The present stage.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Moves to `stage`; does nothing when life is already past it.
    pub fn advance(&self, stage: Stage) {
        self.0.send_if_modified(|now| {
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
        let _ = self.0.subscribe().wait_for(|now| *now >= stage).await;
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
}
