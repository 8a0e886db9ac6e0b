//! What a plugin of admission is: a name, the writes it wants to be asked about, and its answer at each point.

use std::future::Future;
use std::pin::Pin;

use super::record::{Operation, Record, Review};
use types::schema::registry::Resource;
use values::json::Object;
use values::status::Status;

/// What a write is about, before any object is at hand.
#[derive(Clone, Copy, Debug)]
pub struct Target<'t> {
    /// What is done.
    pub operation: Operation,
    /// The resource, in the version of the request.
    pub resource: &'t Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'t str,
}

impl Target<'_> {
    /// Whether it is this built-in resource itself, and not one of its subresources. `group` is the stem of the group's
    /// name, without the suffix of the naming profile.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.resource.is_of(group, plural)
    }

    /// The same for a creation.
    pub fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.is(group, plural)
    }
}

/// The answer of a plugin: at hand, or to wait for. Plugins that decide from memory allocate nothing.
pub enum Step<'p> {
    /// The plugin has no part at this point.
    Pass,
    /// Decided.
    Done(Result<(), Status>),
    /// Decided later: the plugin writes, or asks another server.
    Wait(Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'p>>),
}

impl<'p> Step<'p> {
    /// An answer to wait for.
    pub fn wait(answer: impl Future<Output = Result<(), Status>> + Send + 'p) -> Step<'p> {
        Step::Wait(Box::pin(answer))
    }
}

impl From<Result<(), Status>> for Step<'_> {
    fn from(decision: Result<(), Status>) -> Self {
        Step::Done(decision)
    }
}

/// One admission plugin. It is made once, at the start of the server.
pub trait Plugin: Send + Sync {
    /// Whether it is asked about such writes.
    fn handles(&self, target: &Target<'_>) -> bool;

    /// Whether it looks at objects; otherwise none need be read for it.
    fn reads_objects(&self) -> bool {
        true
    }

    /// The mutating point: the new object may be changed, or the write refused.
    fn mutate<'p>(&'p self, _record: &'p mut Record<'_, &mut Object>, _review: &'p mut Review) -> Step<'p> {
        Step::Pass
    }

    /// The validating point: the new object is as it will be stored.
    fn validate<'p>(&'p self, _record: &'p Record<'_, &Object>, _review: &'p mut Review) -> Step<'p> {
        Step::Pass
    }
}
