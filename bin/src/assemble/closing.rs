//! The last phases of a run: requests are drained, then the store, the audit log and the traces are closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::state::audit::Sink;
use engine::Engine;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::task::{JoinHandle, JoinSet};
use wire::server::{Drained as Connections, LifecycleStage};

use crate::assemble::opened::OpenStore;
use crate::assemble::prepared::OutputSinks;
use crate::assemble::relocating::{Migration, put_moved_log_aside};
use crate::assemble::serving::{Leaving, Reason, Serving};
use crate::assemble::{After, ListenerSlot, Run, until};
use crate::host::notify;
use crate::host::process_end::Phases;

/// Maximum time that the exit waits for a checkpoint. With a checkpoint, the next start is faster.
const CHECKPOINT_MAX: Duration = Duration::from_secs(3);

/// A run that has stopped serving requests, and whose controllers have stopped.
pub struct Drained<'p> {
    run: Run<'p>,
    store: OpenStore,
    outlets: OutputSinks,
    tending: JoinSet<()>,
    migration: Migration,
    reason: Reason,
    phases: Phases,
    connections: Connections,
    /// The task that writes a checkpoint before the store is closed.
    checkpointing: Option<JoinHandle<()>>,
}

impl<'p> Leaving<'p> {
    /// Stops accepting requests. Waits until the requests in flight and the controllers have finished, or until their
    /// deadlines. Closes the socket in `slot`, unless another run follows.
    ///
    /// # Errors
    /// The task that serves connections failed.
    pub async fn drain(self, slot: &mut ListenerSlot) -> anyhow::Result<Drained<'p>> {
        let Leaving { serving, reason } = self;
        let Serving { run, store, outlets, connections, rotation, controllers, tending, migration } = serving;
        if !matches!(reason, Reason::Moves) {
            notify::stopping();
            run.ending.begin();
        }
        let phases = run.ending.phases();
        if matches!(reason, Reason::Signal) {
            delay(&run, &phases).await;
        }
        // The checkpoint is written while the last requests finish.
        let checkpointing = matches!(reason, Reason::Signal).then(|| checkpoint(&store.engines));
        if !matches!(reason, Reason::Moves) {
            // Close the copy of the socket that was kept for another run. While the copy is open, the kernel
            // accepts new connections, which would be reset when the process ends.
            *slot = None;
        }
        run.lifecycle.limit_drain(phases.drain);
        run.lifecycle.advance(LifecycleStage::Draining);
        let connections = connections.await.context("the listener failed")?;
        rotation.abort();
        if until(phases.controllers, controllers.stop()).await.is_none() {
            tracing::warn!("controllers did not stop in time, the shutdown continues without them");
        }
        Ok(Drained { run, store, outlets, tending, migration, reason, phases, connections, checkpointing })
    }
}

/// Continues to serve for the shutdown delay, while the server reports that it is not ready. Then refuses new
/// requests until the requests in flight have finished, if the operator enabled this stage.
async fn delay(run: &Run<'_>, phases: &Phases) {
    let requests = &run.config.requests;
    let delay = requests.shutdown.delay;
    tracing::info!(delay_s = delay.as_secs_f32(), "shutdown begins, no longer ready");
    tokio::time::sleep(delay).await;
    if run.config.edge.edge.refuses_when_leaving {
        run.lifecycle.advance(LifecycleStage::Refusing);
        let longest = Instant::now() + requests.drain_timeout();
        if until(longest.min(phases.drain.cut_at), run.lifecycle.idle()).await.is_none() {
            tracing::warn!("requests still in flight, closing the port");
        }
    }
}

/// Starts a task that writes a checkpoint of each store.
fn checkpoint(engines: &[Engine]) -> JoinHandle<()> {
    let engines = engines.to_vec();
    let closing = async move {
        join_all(engines.iter().map(Engine::prepare_to_close)).await;
    };
    tokio::spawn(closing.boxed())
}

impl Drained<'_> {
    /// Finishes a migration, and closes the store, the audit log and the traces, until their deadline.
    ///
    /// # Errors
    /// The store failed while it was served, or the audit log cannot be closed.
    pub async fn close(self) -> anyhow::Result<After> {
        let Drained { mut run, mut store, outlets, mut tending, reason, phases, .. } = self;
        let moves = matches!(reason, Reason::Moves);
        if moves {
            self.migration.finish(&store).await;
        }
        store.reporting.abort_all();
        store.following.abort_all();
        tending.abort_all();
        // The steps run concurrently, so that a step that hangs does not delay the other steps.
        run.lifecycle.advance(LifecycleStage::Stopped);
        let (closed, audit_events_lost, spans_lost) = tokio::join!(
            until(phases.last, close_store(&store, self.checkpointing)),
            close_audit(outlets.sink, phases.last),
            async {
                match outlets.spans {
                    Some(spans) => spans.flush(phases.last).await,
                    None => 0,
                }
            },
        );
        let audit_events_lost = audit_events_lost?;
        if closed.is_none() {
            tracing::error!("the store did not close in time, the next start recovers it");
        } else if moves {
            put_moved_log_aside(&run.config.store.data_dir)?;
        }
        let Connections { connections_cut, requests_cut } = self.connections;
        if moves {
            tracing::info!(connections_cut, requests_cut, "serving the store again");
        } else {
            tracing::info!(connections_cut, requests_cut, audit_events_lost, spans_lost, "stopped");
        }
        // The socket file must be removed before the process ends.
        until(phases.last, run.debug_socket.shutdown()).await;
        match reason {
            Reason::Signal => Ok(After::End),
            Reason::Moves => Ok(After::Again),
            Reason::Failed(error) => Err(error),
        }
    }
}

/// Closes all stores of a run. First waits for the checkpoint, up to a time limit.
async fn close_store(store: &OpenStore, checkpointing: Option<JoinHandle<()>>) {
    if let Some(checkpointing) = checkpointing {
        let _ = tokio::time::timeout(CHECKPOINT_MAX, checkpointing).await;
    }
    store.engine.close().await;
    store.copies.close().await;
}

/// Closes the audit log. Waits until `limit` at most for queued events to be written, and returns the number
/// of lost events.
async fn close_audit(sink: Option<Arc<dyn Sink>>, limit: Instant) -> anyhow::Result<usize> {
    let Some(sink) = sink else { return Ok(0) };
    let closed = tokio::task::spawn_blocking(move || sink.close(limit)).await;
    closed.context("the audit log failed")
}
