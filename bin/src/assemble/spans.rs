//! The export of trace spans to the configured collector.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use wire::server::{Lifecycle, LifecycleStage};
use wire::traces::export::{Collector, Connecting, Waiting};
use wire::traces::{Tracer, export};

use crate::assemble::until;
use crate::config::traces::TracingSettings;

/// Maximum time that the exit waits until the last spans are sent.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The task that sends spans until the server has stopped.
pub struct Exporting {
    exporter: JoinHandle<()>,
    waiting: Waiting,
}

impl Exporting {
    /// Starts the task. Returns the task, and the tracer whose spans the task sends.
    pub fn start(settings: &TracingSettings, lifecycle: &Lifecycle) -> (Tracer, Exporting) {
        let (queue, spans) = tokio::sync::mpsc::channel(export::QUEUED_MAX);
        let waiting = Waiting::new(&queue);
        let lifecycle = lifecycle.clone();
        let stopped = async move { lifecycle.reached(LifecycleStage::Stopped).await };
        let (endpoint, egress) = (settings.file.endpoint.clone(), settings.egress.clone());
        let target = endpoint.clone();
        let connect = move || -> Connecting {
            let (target, egress) = (target.clone(), egress.clone());
            Box::pin(async move {
                let (host, port) = target.rsplit_once(':').unwrap_or((&target, ""));
                let port = port.parse().map_err(|_| format!("{target} has no port"))?;
                let stream = egress.connect(host.trim_matches(['[', ']']), port).await;
                stream.map_err(|failure| failure.to_string())
            })
        };
        let collector = Collector { endpoint, connect: Arc::new(connect) };
        let exporter = export::run(collector, "apiserver".to_owned(), spans, waiting.clone(), stopped);
        let exporter = tokio::spawn(exporter.boxed());
        (Tracer::new(settings.file.per_million, queue), Exporting { exporter, waiting })
    }

    /// Returns the counter of unsent spans.
    pub fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }

    /// Waits until all spans are sent, for two seconds at most and not beyond `limit`. Returns the number of lost
    /// spans.
    pub async fn flush(self, limit: Instant) -> usize {
        let longest = Instant::now() + FLUSH_MAX;
        match until(longest.min(limit), self.exporter).await {
            Some(_) => 0,
            None => self.waiting.count(),
        }
    }
}
