//! The life of a serving process: from a checked configuration to a ready server, and from a signal to the
//! exit.
//!
//! ```text
//! Listening ─► Opened ─► Prepared ─► Serving ─► Leaving ─► Drained ─► After
//!    │           │          │           │          │          └ controllers end ─► the rest is moved ─► close the store, audit log and traces
//!    │           │          │           │          └ not ready ─► shutdown delay ─► refuse (if configured) ─► stop accepting ─► drain
//!    │           │          │           └ serve ─► upgrade ─► bootstrap ─► controllers ─► ready ─► signal, failure or move
//!    │           │          └ credentials ─► handler ─► custom types
//!    │           └ data directory ─► store
//!    └ the port
//! ```
//!
//! Each phase is a type that only a method of the phase before it can create, so no phase is skipped. A run that moved
//! its store ends with [`After::Again`], and the process starts another run from the new location.
//!
//! Every step of a shutdown has a deadline, so that a step that hangs does not prevent the exit
//! (process_end.rs).
//!
//! The first phase binds the port. So if the port is in use, the start fails before it changes the data
//! directory. New connections wait in the backlog of the socket until serving begins.
//! docs/api/operations.md#shutdown has the order of the shutdown.

mod authenticators;
mod closing;
pub mod credentials;
mod handler;
mod listening;
mod opened;
mod prepared;
mod relocating;
mod rotation;
mod serving;
mod spans;
mod tokens;

use std::sync::Arc;
use std::time::Instant;

use anyhow::anyhow;
use api::state::debug::Debugging;
use tokio::task::JoinSet;
use wire::metrics::Metrics;
use wire::server::{Lifecycle, LifecycleStage};

use crate::assemble::listening::Listening;
use crate::config::Config;
use crate::host::process_end::ProcessEnd;

/// The action that follows the end of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// The process ends with its exit code.
    End,
    /// The server starts another run in the same process, because the store has moved.
    Again,
}

/// The listening socket, which stays open between two runs so that new connections wait instead of failing.
pub type ListenerSlot = Option<std::net::TcpListener>;

/// The parts of the process that outlive a run.
#[derive(Clone)]
pub struct Process {
    /// The counters of `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Log level and profiles.
    pub debugging: Debugging,
    /// Start time of the process, for the log.
    pub started: Instant,
}

/// Values that all phases of a run share.
pub struct Run<'p> {
    config: Config,
    process: Process,
    /// The supervisor of the shutdown, which ends the process if the run does not end in time.
    ending: &'p ProcessEnd,
    lifecycle: Lifecycle,
    /// The server of the debug socket, if one is configured.
    debug_socket: JoinSet<()>,
}

impl<'p> Run<'p> {
    /// Creates a run, and registers it with the supervisor of the shutdown.
    pub fn new(config: Config, process: Process, ending: &'p ProcessEnd) -> Run<'p> {
        let lifecycle = Lifecycle::new();
        ending.attach(&lifecycle);
        Run { config, process, ending, lifecycle, debug_socket: JoinSet::new() }
    }

    /// Serves until a signal ends the process, or the store has moved.
    ///
    /// # Errors
    /// The start fails, or the store fails while it is served. The message has one line.
    pub async fn finish(self, slot: &mut ListenerSlot) -> anyhow::Result<After> {
        let listening = Listening::bind(self, slot)?;
        let opened = listening.open().await?;
        let prepared = opened.prepare().await?;
        let serving = prepared.serve().await?;
        let leaving = serving.until_end().await;
        let drained = leaving.drain(slot).await?;
        drained.close().await
    }

    /// Runs a step of the start that may take long, and fails if a signal arrives first.
    async fn unless_stopped<T>(&self, step: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            outcome = step => outcome,
            () = self.lifecycle.reached(LifecycleStage::Leaving) => {
                Err(anyhow!("stopped while waiting for another server"))
            }
        }
    }
}

/// Returns the outcome of `work`, or `None` if `work` has not finished at `limit`.
async fn until<T>(limit: Instant, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(limit.into(), work).await.ok()
}
