//! The interface of admission plugins, and the chain in which they run.
//!
//! ```text
//! write path ─► mutating point ─► … ─► validation ─► validating point ─► … ─► commit ─► charges are kept
//! connects, reviews, subresources that store nothing ─► both points, one after the other
//! ```
//!
//! A [`Chain`] contains the plugins in order. Each plugin can act at the mutating point and at the validating point. A
//! plugin gets the write as an [`AdmissionRecord`], with objects in the version of the request. The write path converts
//! stored objects and reads old objects only if a plugin that handles the write reads objects. This module does not
//! depend on any plugin.

mod attributes;
mod chain;
pub mod kinds;
mod options;
mod record;
mod target;

pub use attributes::WriteAttributes;
pub use chain::{Chain, HandlingPlugins};
pub use options::Options;
pub use record::{AdmissionRecord, Charge, Pending, Review, Writer};
pub use target::{Operation, Target};

use std::future::Future;
use std::pin::Pin;

use values::json::Object;
use values::status::Status;

/// The decision of a plugin, as a value or as a future. A plugin that decides immediately allocates no
/// future.
pub enum Step<'p> {
    /// The plugin does nothing at this point.
    Pass,
    /// The plugin has decided immediately.
    Done(Result<(), Status>),
    /// The plugin decides asynchronously, because it writes or calls another server.
    Wait(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'p>>),
}

impl<'p> Step<'p> {
    /// Returns a step that waits for the decision of a future.
    pub fn wait(answer: impl Future<Output = Result<(), Status>> + Send + 'p) -> Step<'p> {
        Step::Wait(Box::pin(answer))
    }
}

impl From<Result<(), Status>> for Step<'_> {
    fn from(decision: Result<(), Status>) -> Self {
        Step::Done(decision)
    }
}

/// An admission plugin. A plugin is created once, at the start of the server.
pub trait Plugin: Send + Sync {
    /// Returns whether the plugin handles writes of this target.
    fn handles(&self, target: &Target<'_>) -> bool;

    /// Returns whether the plugin reads objects. If no plugin reads objects, the write path need not read
    /// them.
    fn reads_objects(&self) -> bool {
        true
    }

    /// Runs the plugin at the mutating point, where it may change the new object or refuse the write.
    fn mutate<'p>(
        &'p self,
        _record: &'p mut AdmissionRecord<'_, &mut Object>,
        _review: &'p mut Review,
    ) -> Step<'p> {
        Step::Pass
    }

    /// Runs the plugin at the validating point, where the new object is in its final state.
    fn validate<'p>(
        &'p self,
        _record: &'p AdmissionRecord<'_, &Object>,
        _review: &'p mut Review,
    ) -> Step<'p> {
        Step::Pass
    }
}
