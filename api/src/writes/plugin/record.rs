//! The input of an admission plugin, and its output in addition to the decision.

use std::any::Any;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use engine::Revision;

use super::attributes::WriteAttributes;
use super::kinds::is_whole;
use super::target::Target;
use objects::strategy::Endpoint;
use objects::validation;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::meta;
use values::status::{Status, StatusReason, Subject};

/// The writes that plugins make. These writes use an identity of the server.
pub trait Writer: Send + Sync {
    /// Returns the same writer for a task that outlives the request.
    fn shared(&self) -> Arc<dyn Writer>;

    /// Creates an object. Returns `false` if an object with that name already exists.
    fn create<'w>(&'w self, resource: &'w Resource, object: Object) -> Pending<'w, bool>;

    /// Replaces the fields of an object that `endpoint` writes. Returns `false` and does not write if the
    /// object is no longer at revision `seen`.
    fn replace<'w>(
        &'w self,
        resource: &'w Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Pending<'w, bool>;
}

/// The future result of a write.
pub type Pending<'w, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'w>>;

/// A write, as the input of a plugin. `New` is `&mut Object` at the mutating point and `&Object` at the
/// validating point.
pub struct AdmissionRecord<'r, New> {
    /// Makes writes on behalf of the server.
    pub writer: &'r dyn Writer,
    /// The object that is written, the user who writes it, and the options of the write.
    pub write: WriteAttributes<'r>,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// The stored object, in the version of the request. Present only if a plugin reads objects.
    pub old: Option<&'r Object>,
    /// The new object, in the version of the request; `None` for deletions and connects.
    pub new: Option<New>,
}

impl<New> AdmissionRecord<'_, New> {
    /// Returns the target of the write.
    pub fn target(&self) -> Target<'_> {
        Target {
            operation: self.write.operation,
            resource: self.write.resource,
            subresource: self.subresource,
        }
    }

    /// Returns whether the write concerns a namespaced object.
    pub fn is_namespaced(&self) -> bool {
        self.write.resource.namespaced() && !self.write.namespace.is_empty()
    }
}

impl AdmissionRecord<'_, &mut Object> {
    /// Replaces the new object with the result of a plugin, and prepares the result for validation like the
    /// object of a request.
    pub fn replace(&mut self, changed: Object) {
        let Some(new) = self.new.as_deref_mut() else { return };
        *new = changed;
        if is_whole(self.subresource) {
            validation::prepare(&self.write.resource.table, new);
        }
    }
}

impl<New: Deref<Target = Object>> AdmissionRecord<'_, New> {
    /// Returns the name of the object for refusals. If the name will be generated, the result is the prefix of the
    /// name.
    pub fn display_name(&self) -> &str {
        let of_object = self.new.as_deref().map_or("", |new| match meta(new, "name") {
            "" => meta(new, "generateName"),
            name => name,
        });
        [self.write.name, of_object].into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// Returns a 403 about the object of the write: `pods "p" is forbidden: <why>`.
    pub fn forbidden(&self, why: &str) -> Status {
        Status::forbidden(self.subject(), why)
    }

    /// Returns the 403 for a failure that prevented a decision. If `cause` is already a 403, this function
    /// returns `cause` without changes.
    pub fn forbidden_by(&self, cause: Status) -> Status {
        if cause.reason == StatusReason::Forbidden { cause } else { self.forbidden(&cause.message) }
    }

    /// Returns the object of the write as the subject of refusals.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            group: &self.write.resource.group,
            kind: &self.write.resource.table.plural,
            name: self.display_name(),
        }
    }
}

/// A resource that a plugin has taken for a write, such as a share of a quota. The write may still fail.
/// Dropping the charge gives the resource back.
pub trait Charge: Send {
    /// Makes the charge permanent, because the write succeeded. `stored` is the revision at which the object
    /// is stored; `None` if the request does not store an object.
    fn keep(self: Box<Self>, stored: Option<Revision>);
}

/// The output of the plugins in addition to their decisions.
#[derive(Default)]
pub struct Review {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit event: key and value.
    pub annotations: Vec<(String, String)>,
    /// Annotations only for audit events that also contain the object of the request.
    pub request_annotations: Vec<(String, String)>,
    /// The charges that plugins have taken for the write.
    pub charges: Vec<Box<dyn Charge>>,
    /// Whether at least one webhook was called. Webhooks expect one call per write.
    pub asked_webhooks: bool,
    /// Whether a webhook refused the write.
    pub webhook_refused: bool,
    round: Round,
    states: Vec<Box<dyn Any + Send>>,
}

/// The runs of the mutating point.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Round {
    #[default]
    First,
    /// The first run, after a plugin has requested a second run.
    FirstOfTwo,
    Second,
}

impl Review {
    /// Requests a second run of the mutating point, in which [`Review::is_reinvocation`] returns true. A
    /// plugin requests the second run if it changes the object, because earlier plugins may need the final
    /// object. There is no third run.
    pub fn reinvoke(&mut self) {
        if self.round == Round::First {
            self.round = Round::FirstOfTwo;
        }
    }

    /// Returns whether the current run is the second run of the mutating point.
    pub fn is_reinvocation(&self) -> bool {
        self.round == Round::Second
    }

    pub(super) fn begin_reinvocation(&mut self) -> bool {
        let is_first = self.round == Round::FirstOfTwo;
        if is_first {
            self.round = Round::Second;
        }
        is_first
    }

    /// Returns the data that a plugin keeps across the runs of one write. The type `T` identifies the data.
    pub fn state<T: Any + Default + Send>(&mut self) -> &mut T {
        let at = match self.states.iter().position(|state| state.is::<T>()) {
            Some(at) => at,
            None => {
                self.states.push(Box::<T>::default());
                self.states.len() - 1
            }
        };
        self.states[at].downcast_mut().expect("the position of a state of this type")
    }
}
