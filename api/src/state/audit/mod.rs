//! Audit: which requests leave a trace, and what the trace says (docs/api/audit.md).
//!
//! ```text
//! authenticated ─► Policy::decide ─► Trail ─► RequestReceived · ResponseStarted · ResponseComplete · Panic ─► Sink
//!                       │ level None: no trail
//! ```
//!
//! The [`Policy`] is a function from a request to a level. A [`Trail`] gathers what the stages of one request find out
//! and makes one event for each stage that the policy does not leave out. A [`Sink`] takes events and writes them with an
//! [`Encoder`]; files and their rotation are its own affair.

pub mod answer;
pub mod format;
pub mod latency;
pub mod policy;
pub mod trail;

use std::sync::Arc;
use std::time::Instant;

use values::json::Object;

pub use format::{EncodeError, Encoder, Format};
pub use latency::Latency;
pub use policy::{Level, Policy, Stage};
pub use trail::{Arrival, Trail};

/// One event, as sinks take it.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// Its members.
    pub members: Object,
    /// Whether it lacks the patch of the request, which is no JSON: such an event cannot be written as JSON.
    pub lacks_patch: bool,
}

/// Takes the events of all requests.
pub trait Sink: Send + Sync {
    /// Takes one event.
    ///
    /// # Errors
    /// The event is lost.
    fn record(&self, event: &Event) -> std::io::Result<()>;

    /// Events that it took and that are not written yet.
    fn waiting(&self) -> usize {
        0
    }

    /// Takes no more events, and returns once those it took are written or given up, at `until` at the latest. Returns how
    /// many are given up because of that. Blocks.
    fn close(&self, _until: Instant) -> usize {
        0
    }
}

/// What is recorded, and where.
#[derive(Clone)]
pub struct Auditor {
    /// Decides what is recorded of a request.
    pub policy: Arc<Policy>,
    /// Takes the events.
    pub sink: Arc<dyn Sink>,
    /// Whether a request is refused whose first event is lost.
    pub strict: bool,
}
