//! What a caller of the write path says: which object it writes, what it expects of the store, and which stages it
//! leaves out.
//!
//! ```text
//! Caller   who is told warnings, and may have to show a permission to create
//! Intent   which object, by whom, through which endpoint, what is left out
//! Source   makes the wanted object from the newest state, in every round of the loop
//! Outcome  what came of it
//! ```

use engine::{Record, Revision};
use std::borrow::Cow;
use std::future::Future;

use auth::{Attributes, User};
use bytes::Bytes;

use crate::writes::admission::{self, Operation, Review};
use crate::writes::context::Context;
use crate::writes::stage::Stage;
use objects::conversion::{Conversions, is_current};
use objects::store::{self, Store, Stored};
use objects::strategy::Endpoint;
use types::convert;
use types::options::decimal;
use types::schema::decode::share;
use types::schema::registry::Resource;
use types::schema::table::Message;
use types::served::Served;
use values::field::go_quote;
use values::json::Object;
use values::object::meta;
use values::status::{Reason, Status, Subject};
use wire::server;

/// What the server's own writes leave out that clients of upstream's make: the comparison (they say what they saw in
/// [`Intent::seen`]), and the questions what they may grant and which parameters they may read.
pub const BY_SERVER: &[Stage] = &[Stage::Compare, Stage::Escalate, Stage::Confirm];

/// [`BY_SERVER`], and admission: for what comes before the first request, and what no client of upstream's writes.
pub const BY_SERVER_UNASKED: &[Stage] =
    &[Stage::Mutate, Stage::Compare, Stage::Escalate, Stage::Confirm, Stage::Admit];

/// [`BY_SERVER`] for an object whose managed fields were computed before.
pub const BY_SERVER_APPLIED: &[Stage] = &[Stage::Compare, Stage::Own, Stage::Escalate, Stage::Confirm];

/// [`BY_SERVER_UNASKED`] for an object whose managed fields were computed before.
pub const BY_SERVER_APPLIED_UNASKED: &[Stage] =
    &[Stage::Mutate, Stage::Compare, Stage::Own, Stage::Escalate, Stage::Confirm, Stage::Admit];

/// What the backfill of defaults leaves out: everything but the defaults, as it repairs what was valid when it was
/// stored.
pub const BACKFILL: &[Stage] = &[
    Stage::Mutate,
    Stage::Compare,
    Stage::Own,
    Stage::Allocate,
    Stage::Prepare,
    Stage::Validate,
    Stage::Escalate,
    Stage::Confirm,
    Stage::Admit,
];

/// What a deletion leaves out: it writes nothing but its marks.
pub const DELETION: &[Stage] = &[
    Stage::Default,
    Stage::Compare,
    Stage::Own,
    Stage::Allocate,
    Stage::Prepare,
    Stage::Validate,
    Stage::Escalate,
    Stage::Confirm,
];

/// [`DELETION`] that admission is not asked about: the end of an eviction that was admitted, and of what a definition
/// leaves behind.
pub const DELETION_UNASKED: &[Stage] = &[
    Stage::Default,
    Stage::Mutate,
    Stage::Compare,
    Stage::Own,
    Stage::Allocate,
    Stage::Prepare,
    Stage::Validate,
    Stage::Escalate,
    Stage::Confirm,
    Stage::Admit,
];

/// What a request leaves out whose source computes the managed fields itself: an apply, or a scale.
pub const OWNED_BY_SOURCE: &[Stage] = &[Stage::Own];

/// What a binding leaves out: the Binding was admitted before, the change that it makes of the pod has no owner, and the labels
/// and annotations that it brings are stored as given, without validation.
pub const BINDING: &[Stage] = &[Stage::Default, Stage::Mutate, Stage::Own, Stage::Validate, Stage::Admit];

/// Why an object does not meet a precondition on its `what` (`UID`, `ResourceVersion`).
pub fn precondition_failed(what: &str, wanted: &str, found: &str) -> String {
    format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}")
}

/// Reads the revision that the writer of an object has seen.
///
/// # Errors
/// 500: the text is not a number.
pub fn seen_revision(text: &str) -> Result<Revision, Status> {
    decimal(text).map(Revision::new).ok_or_else(|| {
        let quoted = go_quote(text);
        Status::new(Reason::Unknown, format!("strconv.ParseUint: parsing {quoted}: invalid syntax"))
    })
}

/// What must be in the store for a write to go on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// No object of the name; one is 409.
    New,
    /// The object; none is 404.
    Existing,
    /// The object or none; a caller that creates it needs the permission to create.
    Either,
    /// The object; none is [`Outcome::Missing`].
    IfThere,
}

/// What one write is about.
#[derive(Clone, Copy)]
pub struct Intent<'w> {
    /// The server.
    pub api: &'w Context,
    /// The types that are served, for all of the write.
    pub types: &'w Served,
    /// The store, opened by a permission.
    pub store: Store<'w>,
    /// The writer.
    pub user: &'w User,
    /// The permission of the request; none for the server's own writes.
    pub permission: Option<&'w Attributes<'w>>,
    /// The operation that admission is asked about.
    pub operation: Operation,
    /// The options of the request.
    pub options: admission::Options<'w>,
    /// The resource, in the version of the request.
    pub resource: &'w Resource,
    /// The way it is written.
    pub endpoint: Endpoint,
    /// Namespace; empty for cluster-scoped resources.
    pub namespace: &'w str,
    /// Name; empty where the object of a creation says it or asks for a generated one.
    pub name: &'w str,
    /// Whether the object is deleted as one of a collection, which admission is told no name of.
    pub is_of_collection: bool,
    /// What must be in the store.
    pub presence: Presence,
    /// The only revision that may be replaced: another is [`Outcome::Changed`], and not tried again.
    pub seen: Option<Revision>,
    /// The name under which the writer owns fields.
    pub manager: &'w str,
    /// Conversions by webhooks that the managers of fields need.
    pub conversions: &'w Conversions,
    /// Whether everything but the commit happens.
    pub dry_run: bool,
    /// Whether the store may lack what other servers have acknowledged. The commit is decided elsewhere then; what else is
    /// told of the state, a refusal above all, is told of one that lacks nothing.
    pub may_be_behind: bool,
    /// The stages that this write leaves out.
    pub leaves_out: &'static [Stage],
}

impl<'w> Intent<'w> {
    /// Whether this write passes `stage`.
    pub fn passes(&self, stage: Stage) -> bool {
        let passes = !self.leaves_out.contains(&stage);
        #[cfg(test)]
        if passes {
            crate::writes::stage::trace::note(stage);
        }
        passes
    }

    /// The object as errors name it: by plural resource.
    pub fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.resource.group, kind: &self.resource.table.plural, name }
    }

    /// The same by kind, as 422 errors name it.
    pub fn subject_by_kind<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.resource.group, kind: &self.resource.table.kind, name }
    }

    /// The same in the group of the stored form, as the rules of the kind name it.
    pub fn subject_of_rules<'s>(&'s self, name: &'s str) -> Subject<'s> {
        let stored = self.resource.storage.as_ref();
        let group = stored.map_or(&self.resource.group, |storage| &storage.group);
        Subject { group, ..self.subject_by_kind(name) }
    }

    /// The refusal of a write whose body names another uid than the stored object has, empty if there is none.
    pub fn other_uid(&self, wanted: &str, found: &str) -> Status {
        self.unmet("UID", wanted, found)
    }

    /// The refusal of a write with a precondition on `what` (`UID`, `ResourceVersion`) that the stored object does not
    /// meet.
    pub fn unmet(&self, what: &str, wanted: &str, found: &str) -> Status {
        let key = store::shown_key(self.resource, self.namespace, self.name);
        let why = precondition_failed(what, wanted, found);
        let cause = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        );
        Status::conflict(self.subject(self.name), &cause)
    }

    /// What this write is about, as admission chooses its plugins by it.
    pub fn target(&self) -> admission::Target<'_> {
        let (operation, resource) = (self.operation, self.resource);
        admission::Target { operation, resource, subresource: self.endpoint.subresource() }
    }

    /// What admission is told of this write.
    pub fn record<'r, N>(&'r self, old: Option<&'r Object>, new: Option<N>) -> admission::Record<'r, N> {
        admission::Record {
            writer: self.api,
            user: self.user,
            operation: self.operation,
            dry_run: self.dry_run,
            options: self.options,
            resource: self.resource,
            subresource: self.endpoint.subresource(),
            namespace: self.namespace,
            name: if self.is_of_collection { "" } else { self.name },
            old,
            new,
        }
    }
}

/// Who calls the write path: a request, or the server itself.
pub trait Caller: Send {
    /// Texts for the client, in order; a round of the loop that is not the last takes its own back. `None`: there is
    /// no client.
    fn warnings(&mut self) -> Option<&mut Vec<String>>;

    /// Whether an object may be created where the request was allowed to write an existing one.
    ///
    /// # Errors
    /// 403.
    fn confirm_create(&self) -> impl Future<Output = Result<(), Status>> + Send;

    /// Takes what the plugins of admission had to say beyond their decision.
    fn take_review(&mut self, review: Review) {
        for (key, value) in review.annotations {
            tracing::debug!(key, value, "audit annotation");
        }
        if let Some(warnings) = self.warnings() {
            warnings.extend(review.warnings);
        }
    }
}

/// The newest state of the object that is written.
pub struct Current {
    /// As it is stored, but in the form of the resource.
    pub stored: Stored,
    /// What the store has, where that has another form.
    original: Option<Box<Record>>,
    object: Option<Object>,
}

impl Current {
    /// The state that was found in the store, brought into the form of the resource.
    ///
    /// # Errors
    /// 500 for one that cannot be converted.
    pub(super) async fn found(intent: &Intent<'_>, stored: Stored) -> Result<Current, Status> {
        if is_current(intent.resource, &stored.record.attributes) {
            return Ok(Current { stored, original: None, object: None });
        }
        let Stored { entry, record: original } = stored;
        let record = intent.api.converter().brought(intent.resource, original.clone()).await?;
        Ok(Current { stored: Stored { entry, record }, original: Some(Box::new(original)), object: None })
    }

    /// The bytes that the store has.
    pub(super) fn original(&self) -> &Record {
        self.original.as_deref().unwrap_or(&self.stored.record)
    }

    /// The revision.
    pub fn revision(&self) -> Revision {
        self.stored.entry.revision()
    }

    /// Whether nothing was written since the object was created.
    pub(super) fn is_first(&self) -> bool {
        self.stored.entry.created() == self.revision()
    }

    /// The object in the stored version.
    ///
    /// # Errors
    /// 500 for an object that cannot be read.
    pub fn object(&mut self, resource: &Resource) -> Result<&Object, Status> {
        self.read(|stored| stored.object(resource))
    }

    /// [`Current::object`] for a source whose object is mostly the same: parts that both share are read once.
    ///
    /// # Errors
    /// As there.
    pub fn live(&mut self, api: &Context, resource: &Resource) -> Result<&Object, Status> {
        if has_parts_to_share(api, resource) {
            return self.read(|stored| stored.settled(resource));
        }
        self.object(resource)
    }

    /// [`Current::live`] where the source's object can share parts with it.
    ///
    /// # Errors
    /// As there.
    pub fn known(&mut self, api: &Context, resource: &Resource) -> Result<Option<&Object>, Status> {
        if !has_parts_to_share(api, resource) {
            return Ok(None);
        }
        self.live(api, resource).map(Some)
    }

    /// [`Current::object`], given away.
    ///
    /// # Errors
    /// As there.
    pub fn take(&mut self, resource: &Resource) -> Result<Object, Status> {
        self.object.take().map_or_else(|| self.stored.object(resource), Ok)
    }

    /// Gives back what was taken, so that it is not read again.
    pub fn put_back(&mut self, object: Object) {
        self.object = Some(object);
    }

    fn read(&mut self, read: impl FnOnce(&Stored) -> Result<Object, Status>) -> Result<&Object, Status> {
        match &mut self.object {
            Some(object) => Ok(object),
            none => Ok(none.insert(read(&self.stored)?)),
        }
    }

    /// [`Current::object`] for a look at what is to be replaced: its parts can become parts of what replaces it.
    ///
    /// # Errors
    /// As there.
    pub(super) fn old(&mut self, resource: &Resource) -> Result<&Object, Status> {
        self.read(|stored| stored.settled(resource))
    }

    /// The object for `new`, which is to take its place, both in the stored version. Equal parts become one in both, so that
    /// no stage compares or writes them anew.
    pub(super) fn beside(&mut self, resource: &Resource, new: &mut Object) -> Result<Object, Status> {
        match self.object.take() {
            Some(old) => {
                share(&resource.stored().message, new, &old);
                Ok(old)
            }
            None => self.stored.beside(resource, new),
        }
    }
}

/// Whether parts of what is stored can be parts of what a request makes of it. While the server comes up, what is stored may
/// still lack defaults of this release, and parts of another version are not parts of the one that is written.
fn has_parts_to_share(api: &Context, resource: &Resource) -> bool {
    api.lifecycle().stage() == server::Stage::Serving && resource.is_stored_form()
}

/// What a source wants of the newest state.
pub enum Wanted {
    /// It stays as it is.
    AsItIs,
    /// This object. It goes if that takes away the last thing that kept a deleted object.
    Object(Object),
    /// This object, which stays.
    Marked(Object),
    /// It goes, in this final state.
    Gone(Object),
    /// It goes as it is stored; this is what is stored.
    GoneAsStored(Object),
}

/// In which form a source gives its object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// In the version of the request.
    Served,
    /// In the stored version.
    Stored,
    /// As an object of another kind, which stands for a part of it; defaults are not for it.
    Foreign,
}

/// Makes the wanted object. A source is asked anew in every round, because the newest state is another one.
pub trait Source<C>: Send + Sync {
    /// The form of what [`Source::decode`] gives.
    fn form(&self) -> Form;

    /// The wanted object; `current` is the newest state, `None` where there is none.
    ///
    /// # Errors
    /// What to answer.
    fn decode(&mut self, caller: &mut C, current: Option<&mut Current>) -> Result<Wanted, Status>;

    /// The object in the stored version, after defaults and plugins.
    ///
    /// # Errors
    /// It cannot be converted.
    fn to_stored(
        &mut self,
        intent: &Intent<'_>,
        object: Object,
        _current: Option<&mut Current>,
    ) -> Result<Object, Status> {
        match self.form() {
            Form::Served => convert::to_stored(intent.resource, object, intent.api.naming()),
            Form::Stored | Form::Foreign => Ok(object),
        }
    }

    /// A stored object in the form in which plugins are shown it: the version of the request.
    ///
    /// # Errors
    /// It cannot be converted.
    fn shown<'o>(
        &self,
        intent: &Intent<'_>,
        object: &'o Object,
        _revision: Revision,
    ) -> Result<Cow<'o, Object>, Status> {
        if intent.resource.is_stored_form() {
            return Ok(Cow::Borrowed(object));
        }
        convert::to_served(intent.resource, object.clone(), intent.api.naming()).map(Cow::Owned)
    }

    /// The type by which defaults are filled in; `None` for none.
    fn message<'i>(&self, intent: &'i Intent<'_>) -> Option<&'i Message> {
        match self.form() {
            Form::Served => Some(&intent.resource.table.message),
            Form::Stored => Some(&intent.resource.stored().message),
            Form::Foreign => None,
        }
    }
}

/// A source that is a function.
pub struct Made<F> {
    form: Form,
    make: F,
}

impl<F> Made<F> {
    /// It gives the object in the version of the request.
    pub fn served(make: F) -> Made<F> {
        Made { form: Form::Served, make }
    }

    /// It gives the object in the stored version.
    pub fn stored(make: F) -> Made<F> {
        Made { form: Form::Stored, make }
    }
}

impl<C, F> Source<C> for Made<F>
where
    F: FnMut(&mut C, Option<&mut Current>) -> Result<Wanted, Status> + Send + Sync,
{
    fn form(&self) -> Form {
        self.form
    }

    fn decode(&mut self, caller: &mut C, current: Option<&mut Current>) -> Result<Wanted, Status> {
        (self.make)(caller, current)
    }
}

/// What the store has after a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// The bytes; of a dry run those that would be stored.
    pub value: Bytes,
    /// The revision; of a dry run the one that it would replace, zero for a new object.
    pub revision: Revision,
}

/// What came of a write.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The object is new.
    Created(Written),
    /// The object changed.
    Updated(Written),
    /// The object is as it was, because the source or the comparison of bytes said so.
    Unchanged(Written),
    /// The object is gone; its final state.
    Removed(Written),
    /// There was none, and [`Presence::IfThere`] asked for one.
    Missing,
    /// It is not at the revision in [`Intent::seen`].
    Changed,
}

impl Outcome {
    /// The revision at which the object is stored; `None` when nothing is stored.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Outcome::Created(written) | Outcome::Updated(written) | Outcome::Unchanged(written) => {
                Some(written.revision)
            }
            Outcome::Removed(_) | Outcome::Missing | Outcome::Changed => None,
        }
    }

    /// What is stored, for callers that need no difference; `None` when nothing is.
    pub fn written(self) -> Option<Written> {
        match self {
            Outcome::Created(written)
            | Outcome::Updated(written)
            | Outcome::Unchanged(written)
            | Outcome::Removed(written) => Some(written),
            Outcome::Missing | Outcome::Changed => None,
        }
    }
}

/// The name that an object asks for, as long as it has none.
pub(super) fn generate_name(object: &Object) -> &str {
    if meta(object, "name").is_empty() { meta(object, "generateName") } else { "" }
}
