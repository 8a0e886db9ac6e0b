//! Audit: which requests leave a trace, and what the trace says (docs/api/audit.md).
//!
//! ```text
//! authenticated ─► Policy::decide ─► Trail ─► RequestReceived · ResponseStarted · ResponseComplete · Panic ─► Sink
//!                       │ level None: no trail
//! ```
//!
//! The [`Policy`] is a function from a request to a level. A [`Trail`] gathers what the stages of one request find out
//! and writes one event for each stage that the policy does not leave out. A [`Sink`] takes encoded events; files and
//! their rotation are its own affair.

pub mod answer;
pub mod policy;
pub mod trail;

use std::sync::Arc;

pub use policy::{Level, Policy, Stage};
pub use trail::{Arrival, Trail};

/// Takes the events of all requests.
pub trait Sink: Send + Sync {
    /// Takes one event: a JSON object without a line break.
    ///
    /// # Errors
    /// The event is lost.
    fn record(&self, event: &[u8]) -> std::io::Result<()>;
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
