//! What a plugin of admission is told, and what it may say beside its decision.

use std::any::Any;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use auth::User;
use engine::Revision;

use super::kinds::is_whole;
use super::options::Options;
use super::plugin::Target;
use objects::strategy::Endpoint;
use objects::validation;
use types::schema::registry::Resource;
use values::json::Object;
use values::object::meta;
use values::status::{Reason, Status, Subject};

/// What is done with an object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Operation {
    /// A new object, or a question or command that is an object of its own (a review, a binding, an eviction).
    Create,
    /// Another state of an object.
    Update,
    /// The end of an object, or of those of a collection.
    Delete,
    /// A connection to what an object stands for.
    Connect,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// As webhooks and metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// The few writes that plugins make themselves, under the server's own identity.
pub trait Writer: Send + Sync {
    /// Returns the same writer for a task that outlives the request.
    fn shared(&self) -> Arc<dyn Writer>;

    /// Creates an object. Whether it is new: `false` when there is one of its name.
    fn create<'w>(&'w self, resource: &'w Resource, object: Object) -> Pending<'w, bool>;

    /// Replaces what `endpoint` writes of an object that was seen at `seen`. `false` when it is not at that revision any
    /// more, and nothing was written.
    fn replace<'w>(
        &'w self,
        resource: &'w Resource,
        endpoint: Endpoint,
        seen: Revision,
        object: Object,
    ) -> Pending<'w, bool>;
}

/// A result to wait for.
pub type Pending<'w, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'w>>;

/// One write as a plugin sees it. `New` is `&mut Object` at the mutating point and `&Object` at the validating one.
pub struct Record<'r, New> {
    /// Writes on behalf of the server.
    pub writer: &'r dyn Writer,
    /// The writer.
    pub user: &'r User,
    /// What is done.
    pub operation: Operation,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// The options of the request.
    pub options: Options<'r>,
    /// The resource, in the version of the request.
    pub resource: &'r Resource,
    /// Subresource; empty for the resource itself.
    pub subresource: &'r str,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: &'r str,
    /// Name; empty for a collection, and for a new object whose name is to be generated.
    pub name: &'r str,
    /// The object as it is stored, in the version of the request. Given where a plugin reads objects.
    pub old: Option<&'r Object>,
    /// The object as it is to be, in the version of the request; none for deletions and connects.
    pub new: Option<New>,
}

impl<New> Record<'_, New> {
    /// What the write is about.
    pub fn target(&self) -> Target<'_> {
        Target { operation: self.operation, resource: self.resource, subresource: self.subresource }
    }

    /// Whether it is about an object of a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.resource.namespaced() && !self.namespace.is_empty()
    }
}

impl Record<'_, &mut Object> {
    /// Puts what a plugin made of the object in its place, prepared for validation as the object of a request is.
    pub fn replace(&mut self, changed: Object) {
        let Some(new) = self.new.as_deref_mut() else { return };
        *new = changed;
        if is_whole(self.subresource) {
            validation::prepare(&self.resource.table, new);
        }
    }
}

impl<New: Deref<Target = Object>> Record<'_, New> {
    /// The object's name, or what it will be generated from, as refusals show it.
    pub fn shown_name(&self) -> &str {
        let of_object = self.new.as_deref().map_or("", |new| match meta(new, "name") {
            "" => meta(new, "generateName"),
            name => name,
        });
        [self.name, of_object].into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }

    /// 403 about the object of the write: `pods "p" is forbidden: <why>`.
    pub fn forbidden(&self, why: &str) -> Status {
        Status::forbidden(self.subject(), why)
    }

    /// The same for a failure on the way to a decision; what is 403 already stays as it is.
    pub fn forbidden_by(&self, cause: Status) -> Status {
        if cause.reason == Reason::Forbidden { cause } else { self.forbidden(&cause.message) }
    }

    /// The object of the write, as refusals name it.
    pub fn subject(&self) -> Subject<'_> {
        Subject { group: &self.resource.group, kind: &self.resource.table.plural, name: self.shown_name() }
    }
}

/// Something that a plugin took for a write that may still fail, such as a share of a quota. Dropped, it is given back.
pub trait Charge: Send {
    /// The write succeeded, so the share stays taken. `stored` is the revision at which the object is stored; `None` if
    /// nothing was to be stored.
    fn keep(self: Box<Self>, stored: Option<Revision>);
}

/// What the plugins have to say beside their decision.
#[derive(Default)]
pub struct Review {
    /// Warnings for the client.
    pub warnings: Vec<String>,
    /// Annotations for the audit event: key and value.
    pub annotations: Vec<(String, String)>,
    /// Annotations for audit events that have the object of the request, too.
    pub request_annotations: Vec<(String, String)>,
    /// What was taken for the write.
    pub charges: Vec<Box<dyn Charge>>,
    /// Whether a webhook of a configuration was asked, which counts on being told of a write once.
    pub asked_webhooks: bool,
    /// Whether one of those refused the write.
    pub webhook_refused: bool,
    round: Round,
    states: Vec<Box<dyn Any + Send>>,
}

/// Rounds of the mutating point.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Round {
    #[default]
    First,
    /// Still the first, and a second one is asked for.
    FirstOfTwo,
    Second,
}

impl Review {
    /// Asks for the second round, in which [`Review::is_reinvocation`] holds: the object changed after plugins had seen
    /// it that want to see its final form. There is no third.
    pub fn reinvoke(&mut self) {
        if self.round == Round::First {
            self.round = Round::FirstOfTwo;
        }
    }

    /// Whether this is the second round of the mutating point.
    pub fn is_reinvocation(&self) -> bool {
        self.round == Round::Second
    }

    pub(super) fn begin_reinvocation(&mut self) -> bool {
        let wanted = self.round == Round::FirstOfTwo;
        if wanted {
            self.round = Round::Second;
        }
        wanted
    }

    /// What a plugin keeps from round to round of one write, found by its type.
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
