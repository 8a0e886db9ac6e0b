//! The audit webhook: a server that receives lists of events.
//!
//! In the modes `blocking` and `blocking-strict`, a request blocks its thread until the webhook responds; the
//! runtime first moves other tasks to other threads. In the mode `batch`, a separate thread sends one batch
//! after the other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::state::audit::{Encoder, Event, Format, Sink};
use bytes::Bytes;
use tokio::runtime::Handle;
use wire::outgoing::Failure;

use super::Losses;
use super::batch::Queue;
use super::mode::{Mode, Truncation};
use crate::remote::webhooks::Remote;

/// Value of the label `plugin` in metrics.
pub const PLUGIN: &str = "webhook";

/// The text before and after the events of a request body.
const HEAD: &[u8] = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#;
const TAIL: &[u8] = b"]}\n";

/// Settings of the audit webhook.
#[derive(Clone)]
pub struct WebhookSettings {
    /// The server that receives the events.
    pub remote: Remote,
    /// The mode in which events are sent.
    pub mode: Mode,
    /// Pause before the first retry.
    pub backoff: Duration,
    /// Sizes above which events are truncated; `None` disables truncation.
    pub truncation: Option<Truncation>,
}

impl std::fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookSettings").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl WebhookSettings {
    /// Opens the sink. Must be called within the runtime that sends the events.
    ///
    /// # Errors
    /// The thread for batches cannot start.
    pub fn open(&self, losses: Losses) -> anyhow::Result<Webhook> {
        let truncation = self.truncation;
        let sender = Sender {
            remote: self.remote.clone(),
            backoff: self.backoff,
            bytes_max: truncation.map_or(usize::MAX, |truncation| truncation.batch_bytes_max),
            runtime: Handle::current(),
            is_closing: Arc::default(),
            // An unreachable server must not delay a waiting request for long, so only temporary failures are
            // retried. No request waits for a batch, so every failure of a batch is retried.
            retries: if matches!(self.mode, Mode::Batch(_)) { |_| true } else { Failure::is_passing },
        };
        let event_bytes_max = truncation.map(|truncation| truncation.event_bytes_max);
        let encoder = Encoder { format: Format::Item, event_bytes_max };
        let is_closing = sender.is_closing.clone();
        let out = match self.mode {
            Mode::Blocking | Mode::BlockingStrict => Out::Direct(Box::new(sender)),
            Mode::Batch(batching) => {
                let send = move |events: Vec<Vec<u8>>| {
                    sender.send(&events, |count, error| losses.note(PLUGIN, count, error));
                };
                Out::Queued(Queue::start(batching, send)?)
            }
        };
        Ok(Webhook { encoder, out, is_closing })
    }
}

/// The sink that sends events to the webhook.
pub struct Webhook {
    encoder: Encoder,
    out: Out,
    is_closing: Arc<AtomicBool>,
}

enum Out {
    Direct(Box<Sender>),
    Queued(Queue),
}

impl Sink for Webhook {
    #[expect(
        clippy::disallowed_methods,
        reason = "the request is to wait for its event, as the operator chose"
    )]
    fn record(&self, event: &Event) -> io::Result<()> {
        let event = self.encoder.encode(event).map_err(io::Error::other)?;
        match &self.out {
            Out::Direct(sender) => tokio::task::block_in_place(|| {
                let mut outcome = Ok(());
                sender.send(&[event], |_, error| outcome = Err(io::Error::other(error.to_string())));
                outcome
            }),
            Out::Queued(queue) => queue.push(event),
        }
    }

    fn waiting(&self) -> usize {
        match &self.out {
            Out::Direct(_) => 0,
            Out::Queued(queue) => queue.waiting(),
        }
    }

    fn close(&self, until: Instant) -> usize {
        // From now on the sink does not send an event again if the first attempt fails.
        self.is_closing.store(true, Ordering::Relaxed);
        match &self.out {
            Out::Direct(_) => 0,
            Out::Queued(queue) => queue.close(until),
        }
    }
}

/// A sender of event lists.
struct Sender {
    remote: Remote,
    backoff: Duration,
    /// Maximum size of the events in one request.
    bytes_max: usize,
    runtime: Handle,
    /// Whether the sink is closing. A closing sink does not retry.
    is_closing: Arc<AtomicBool>,
    /// Returns whether a list is sent again after a failure.
    retries: fn(&Failure) -> bool,
}

impl Sender {
    /// Sends events, in as many requests as their size requires, and waits for the responses. Calls `lost`
    /// with each number of lost events and the reason.
    fn send(&self, events: &[Vec<u8>], mut lost: impl FnMut(usize, &io::Error)) {
        let mut rest = events;
        while !rest.is_empty() {
            let (list, others) = rest.split_at(fitting(rest, self.bytes_max));
            let body = list_of(list);
            let is_given_up = || self.is_closing.load(Ordering::Relaxed);
            let sent = self.remote.send(body, self.backoff, self.retries, is_given_up);
            if let Err(failure) = self.runtime.block_on(sent) {
                lost(list.len(), &io::Error::other(failure.to_string()));
            }
            rest = others;
        }
    }
}

/// Returns how many of the first events fit into one request; at least one.
fn fitting(events: &[Vec<u8>], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let count = events.iter().take_while(|event| {
        bytes += event.len();
        bytes <= bytes_max
    });
    count.count().max(1)
}

fn list_of(events: &[Vec<u8>]) -> Bytes {
    let bytes: usize = events.iter().map(|event| event.len() + 1).sum();
    let mut body = Vec::with_capacity(HEAD.len() + bytes + TAIL.len());
    body.extend_from_slice(HEAD);
    body.extend_from_slice(&events.join(&b','));
    body.extend_from_slice(TAIL);
    body.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_events_are_sent_as_lists_within_a_size_limit() {
        let events = ["{}", "{\"a\":1}", "{}"].map(|event| event.as_bytes().to_vec());
        let want =
            r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[{},{"a":1},{}]}"#;
        assert_eq!(list_of(&events), format!("{want}\n").as_bytes());
        for (bytes_max, want) in [(1, 1), (2, 1), (8, 1), (9, 2), (11, 3), (usize::MAX, 3)] {
            assert_eq!(fitting(&events, bytes_max), want, "{bytes_max}");
        }
    }
}
