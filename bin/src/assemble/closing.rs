//! The last phases of a run: requests are drained, then the store, the audit log and the traces are closed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::state::audit::Sink;
use engine::Engine;
use futures_util::future::join_all;
use tokio::task::{JoinHandle, JoinSet};
use wire::server::{Drained as Connections, LifecycleStage};

use crate::assemble::opened::OpenStore;
use crate::assemble::prepared::Outlets;
use crate::assemble::relocating::{Migration, put_moved_log_aside};
use crate::assemble::serving::{Leaving, Reason, Serving};
use crate::assemble::{After, Kept, Run, until};
use crate::host::ending::Phases;
use crate::host::notify;

/// Maximum time that the exit waits for a checkpoint, which makes the next start faster.
const CHECKPOINT_MAX: Duration = Duration::from_secs(3);

/// A run that has stopped serving requests, and whose controllers have stopped.
pub struct Drained<'p> {
    run: Run<'p>,
    store: OpenStore,
    outlets: Outlets,
    tending: JoinSet<()>,
    migration: Migration,
    reason: Reason,
    phases: Phases,
    connections: Connections,
    /// The task that writes a checkpoint before the store is closed.
    checkpointing: Option<JoinHandle<()>>,
}

impl<'p> Leaving<'p> {
    /// Stops accepting requests, and waits for those in flight and for the controllers, until their deadlines. Closes
    /// the socket in `kept`, unless another run follows.
    ///
    /// # Errors
    /// The task that serves connections failed.
    pub async fn drain(self, kept: &mut Kept) -> anyhow::Result<Drained<'p>> {
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
            // Close the copy of the socket that was kept for another run: while it is open, new connections wait
            // at it and are reset at the end.
            *kept = None;
        }
        run.lifecycle.limit_drain(phases.drain);
        run.lifecycle.advance(LifecycleStage::Draining);
        let connections = connections.await.context("the listener failed")?;
        rotation.abort();
        if until(phases.controllers, controllers.stop()).await.is_none() {
            tracing::warn!("controllers did not stop in time, the shutdown goes on without them");
        }
        Ok(Drained { run, store, outlets, tending, migration, reason, phases, connections, checkpointing })
    }
}

/// Serves for the shutdown delay while the server is not ready. Then refuses new requests until those in flight have
/// finished, if the operator chose that.
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

/// Starts to write the checkpoints of stores.
fn checkpoint(engines: &[Engine]) -> JoinHandle<()> {
    let engines = engines.to_vec();
    tokio::spawn(async move {
        join_all(engines.iter().map(Engine::prepare_to_close)).await;
    })
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
        // The steps run concurrently, so that one that hangs takes no time from the others.
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

/// Closes all stores of a run, after the checkpoint or its time limit.
async fn close_store(store: &OpenStore, checkpointing: Option<JoinHandle<()>>) {
    if let Some(checkpointing) = checkpointing {
        let _ = tokio::time::timeout(CHECKPOINT_MAX, checkpointing).await;
    }
    store.engine.close().await;
    store.copies.close().await;
}

/// Closes the audit log until `limit`. Returns the number of lost events.
async fn close_audit(sink: Option<Arc<dyn Sink>>, limit: Instant) -> anyhow::Result<usize> {
    let Some(sink) = sink else { return Ok(0) };
    let closed = tokio::task::spawn_blocking(move || sink.close(limit)).await;
    closed.context("the audit log failed")
}
