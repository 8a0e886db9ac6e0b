//! Settings that the log and the webhook have in common: when events are written, and their size.

use crate::audit::batch::Batching;

/// When an event is written, and the effect of its loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The request waits for the write; a lost event is only logged.
    Blocking,
    /// The request waits for the write; a request whose first event is lost is refused.
    BlockingStrict,
    /// A thread writes events later, in batches.
    Batch(Batching),
}

/// Sizes in bytes above which events are truncated and batches divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// Maximum size of an event.
    pub event_bytes_max: usize,
    /// Maximum size of a batch.
    pub batch_bytes_max: usize,
}
