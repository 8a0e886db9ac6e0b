//! Audit: decides which requests are recorded, and which data of each request (docs/api/audit.md).
//!
//! ```text
//! authenticated ─► Policy::decide ─► Trail ─► RequestReceived · ResponseStarted · ResponseComplete · Panic ─► Sink
//!                       │ level None: no trail
//! ```
//!
//! An [`AuditPolicy`] is a function from a request to a level. A [`Trail`] collects data from the stages of
//! one request, and produces an event for each audit stage that the policy does not omit. A [`Sink`] receives
//! events and writes them with an [`Encoder`]; files and their rotation are internal to the sink.

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
pub use policy::{AuditLevel, AuditPolicy, AuditStage};
pub use trail::{Arrival, Trail};

/// An audit event that a sink receives.
#[derive(Clone, Debug, Default)]
pub struct Event {
    /// The members of the event.
    pub members: Object,
    /// Whether the patch of the request is missing because it is not JSON. Such an event cannot be written as
    /// JSON.
    pub lacks_patch: bool,
}

/// A receiver of the events of all requests.
pub trait Sink: Send + Sync {
    /// Accepts one event.
    ///
    /// # Errors
    /// The event is lost.
    fn record(&self, event: &Event) -> std::io::Result<()>;

    /// Returns the number of events that were accepted but not written yet.
    fn waiting(&self) -> usize {
        0
    }

    /// Stops accepting events, and blocks until all accepted events are written or dropped, at most until the time
    /// `until`. Returns the number of events that were dropped because of this deadline.
    fn close(&self, _until: Instant) -> usize {
        0
    }
}

/// The audit policy, and the receiver of the events.
#[derive(Clone)]
pub struct Auditor {
    /// Determines the data that is recorded about a request.
    pub policy: Arc<AuditPolicy>,
    /// Receives the events of all requests.
    pub sink: Arc<dyn Sink>,
    /// Whether a request is refused if its first event is lost.
    pub strict: bool,
}
