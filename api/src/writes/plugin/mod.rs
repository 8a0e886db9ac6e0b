//! The interface of admission plugins, and the chain in which they run.
//!
//! ```text
//! write path ─► mutating point ─► … ─► validation ─► validating point ─► … ─► commit ─► charges are kept
//! connects, reviews, subresources that store nothing ─► both points, one after the other
//! ```
//!
//! A [`Chain`] has the plugins in their order, each with both points. A plugin gets the whole write as a
//! [`AdmissionRecord`], in the version of the request. The chain converts objects of the stored version and reads old
//! objects only if a plugin that handles the write reads objects. This module knows no plugin.

mod attributes;
mod chain;
pub mod kinds;
mod options;
mod record;
mod target;

pub use attributes::WriteAttributes;
pub use chain::{Asked, Chain};
pub use options::Options;
pub use record::{AdmissionRecord, Charge, Pending, Review, Writer};
pub use target::{Operation, Target};

use std::future::Future;
use std::pin::Pin;

use values::json::Object;
use values::status::Status;

/// The decision of a plugin, immediate or as a future. Plugins that decide from memory allocate nothing.
pub enum Step<'p> {
    /// The plugin does nothing at this point.
    Pass,
    /// The plugin has decided immediately.
    Done(Result<(), Status>),
    /// The plugin decides later, because it writes or asks another server.
    Wait(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'p>>),
}

impl<'p> Step<'p> {
    /// Returns a decision to wait for.
    pub fn wait(answer: impl Future<Output = Result<(), Status>> + Send + 'p) -> Step<'p> {
        Step::Wait(Box::pin(answer))
    }
}

impl From<Result<(), Status>> for Step<'_> {
    fn from(decision: Result<(), Status>) -> Self {
        Step::Done(decision)
    }
}

/// An admission plugin. It is created once, at the start of the server.
pub trait Plugin: Send + Sync {
    /// Returns whether the plugin handles such writes.
    fn handles(&self, target: &Target<'_>) -> bool;

    /// Returns whether the plugin reads objects. If not, none need be read for it.
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
