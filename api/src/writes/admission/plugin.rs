//! The interface of admission plugins: a name, the writes that a plugin handles, and its decision at each
//! point.

use std::future::Future;
use std::pin::Pin;

use super::record::{Operation, Record, Review};
use types::schema::registry::Resource;
use values::json::Object;
use values::status::Status;

/// The target of a write, before any object is available.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// The operation on the resource.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'t Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'t str,
}

impl Target<'_> {
    /// Returns whether the target is this built-in resource itself, not one of its subresources. `group` is
    /// the stem of the group name, without the suffix of the naming profile.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource.is_of(group, plural)
    }

    /// Returns whether the operation creates this built-in resource; `group` as in [`Target::is`].
    pub fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.is(group, plural)
    }
}

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
    fn mutate<'p>(&'p self, _record: &'p mut Record<'_, &mut Object>, _review: &'p mut Review) -> Step<'p> {
        Step::Pass
    }

    /// Runs the plugin at the validating point, where the new object is in its final state.
    fn validate<'p>(&'p self, _record: &'p Record<'_, &Object>, _review: &'p mut Review) -> Step<'p> {
        Step::Pass
    }
}
