//! Settings that the log and the webhook have in common: the mode of writing, and the maximum sizes.

use crate::audit::batch::Batching;

/// When an event is written, and what happens if the event is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// The request waits for the write. A lost event is only logged and counted.
    Blocking,
    /// The request waits for the write. If the first event of a request is lost, the request is refused.
    BlockingStrict,
    /// A thread writes events later, in batches.
    Batch(Batching),
}

/// The sizes, in bytes, above which events are truncated and batches are divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truncation {
    /// Maximum size of an event.
    pub event_bytes_max: usize,
    /// Maximum size of a batch.
    pub batch_bytes_max: usize,
}
