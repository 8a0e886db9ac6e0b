//! The interface of the write path to its callers: which object a write concerns, what must be in the store,
//! and which stages are skipped.
//!
//! ```text
//! Caller   gets warnings, and may have to prove a permission to create
//! WriteIntent  which object, by whom, through which endpoint, which stages are skipped
//! Source   makes the wanted object from the newest state, in every round of the loop
//! Outcome  the result of the write
//! ```

use engine::{Record, Revision};
use std::borrow::Cow;
use std::future::Future;

use auth::Attributes;
use bytes::Bytes;

use crate::writes::origin::Origin;
use crate::writes::plugin::{AdmissionRecord, Review, Target, WriteAttributes};
use crate::writes::server::Server;
use crate::writes::stage::Stage;
use objects::conversion::is_current;
use objects::store::{self, Store, Stored};
use objects::strategy::Endpoint;
use types::convert;
use types::options::decimal;
use types::schema::decode::share;
use types::schema::registry::Resource;
use types::schema::table::Message;
use values::field::go_quote;
use values::json::Object;
use values::object::meta;
use values::status::{Status, StatusReason, Subject};
use wire::server;

/// Stages that the server's own writes skip, in contrast to those of clients: the comparison (the server sets
/// the revision in [`WriteIntent::seen`]), the privilege escalation check, and the check which parameters the
/// writer may read.
pub const BY_SERVER: &[Stage] = &[Stage::Compare, Stage::Escalate, Stage::Confirm];

/// [`BY_SERVER`] without admission: for writes before the first request, and for objects that clients of
/// kube-apiserver do not write.
pub const BY_SERVER_UNASKED: &[Stage] =
    &[Stage::Mutate, Stage::Compare, Stage::Escalate, Stage::Confirm, Stage::Admit];

/// [`BY_SERVER`] for an object whose managed fields are already computed.
pub const BY_SERVER_APPLIED: &[Stage] = &[Stage::Compare, Stage::Own, Stage::Escalate, Stage::Confirm];

/// [`BY_SERVER_UNASKED`] for an object whose managed fields are already computed.
pub const BY_SERVER_APPLIED_UNASKED: &[Stage] =
    &[Stage::Mutate, Stage::Compare, Stage::Own, Stage::Escalate, Stage::Confirm, Stage::Admit];

/// Stages that the backfill of defaults skips: everything except the defaults, since the objects were valid
/// when they were stored.
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

/// Stages that a deletion skips: it writes only its marks.
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

/// [`DELETION`] without admission: for the end of an eviction that was admitted, and for the objects that
/// remain after their definition is deleted.
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

/// Stages that a request skips whose source computes the managed fields itself: an apply, or a scale.
pub const OWNED_BY_SOURCE: &[Stage] = &[Stage::Own];

/// Stages that a binding skips: the Binding was admitted before, its change of the pod has no field owner,
/// and its labels and annotations are stored as given, without validation.
pub const BINDING: &[Stage] = &[Stage::Default, Stage::Mutate, Stage::Own, Stage::Validate, Stage::Admit];

/// Returns the message for an object that does not meet a precondition on its `what` (`UID`,
/// `ResourceVersion`).
pub fn precondition_failed(what: &str, wanted: &str, found: &str) -> String {
    format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}")
}

/// Parses the revision that the writer of an object has seen.
///
/// # Errors
/// 500 if the text is not a number.
pub fn seen_revision(text: &str) -> Result<Revision, Status> {
    decimal(text).map(Revision::new).ok_or_else(|| {
        let quoted = go_quote(text);
        Status::new(StatusReason::Unknown, format!("strconv.ParseUint: parsing {quoted}: invalid syntax"))
    })
}

/// The state of the store that a write requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Presence {
    /// The object must not exist; otherwise 409.
    New,
    /// The object must exist; otherwise 404.
    Existing,
    /// The object may exist; a caller that creates it needs the permission to create.
    Either,
    /// If the object does not exist, the result is [`Outcome::Missing`].
    IfThere,
}

/// The description of one write.
#[derive(Clone, Copy)]
pub struct WriteIntent<'w> {
    /// The request or the client of the server that makes the write.
    pub origin: &'w Origin<'w>,
    /// The store, opened with a permission.
    pub store: Store<'w>,
    /// The permission of the request; `None` for the server's own writes.
    pub permission: Option<&'w Attributes<'w>>,
    /// The object that is written, the user who writes it, and the options of the write.
    pub write: WriteAttributes<'w>,
    /// The endpoint: the resource itself or one of its subresources.
    pub endpoint: Endpoint,
    /// Whether the object is deleted as part of a collection. Admission then gets no name.
    pub is_of_collection: bool,
    /// The state of the store that the write requires.
    pub presence: Presence,
    /// The only revision that may be replaced. If the object is at another one, the result is
    /// [`Outcome::Changed`], without a retry.
    pub seen: Option<Revision>,
    /// The field manager of the writer.
    pub manager: &'w str,
    /// Whether the store may lag writes that other servers have acknowledged. In this case the commit is
    /// decided by the shared store. Other results that depend on the state, above all a refusal, are returned
    /// only for a state that does not lag.
    pub may_be_behind: bool,
    /// The stages that this write skips.
    pub leaves_out: &'static [Stage],
}

impl<'w> WriteIntent<'w> {
    /// Returns the context of the server.
    pub fn server(&self) -> &'w Server {
        self.origin.server
    }

    /// Returns whether the caller lets this write pass `stage`.
    pub fn passes(&self, stage: Stage) -> bool {
        !self.leaves_out.contains(&stage)
    }

    /// Returns the object as named in most errors: by plural resource.
    pub fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.write.resource.group, kind: &self.write.resource.table.plural, name }
    }

    /// Returns the object as named in 422 errors: by kind.
    pub fn subject_by_kind<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.write.resource.group, kind: &self.write.resource.table.kind, name }
    }

    /// Returns the object as named in validation errors: by kind, with the group of the stored form.
    pub fn subject_of_rules<'s>(&'s self, name: &'s str) -> Subject<'s> {
        let stored = self.write.resource.storage.as_ref();
        let group = stored.map_or(&self.write.resource.group, |storage| &storage.group);
        Subject { group, ..self.subject_by_kind(name) }
    }

    /// Returns the refusal of a write whose body names a uid other than that of the stored object. `found` is
    /// empty if there is no object.
    pub fn other_uid(&self, wanted: &str, found: &str) -> Status {
        self.unmet("UID", wanted, found)
    }

    /// Returns the refusal of a write with a precondition on `what` (`UID`, `ResourceVersion`) that the
    /// stored object does not meet.
    pub fn unmet(&self, what: &str, wanted: &str, found: &str) -> Status {
        let key = store::shown_key(self.write.resource, self.write.namespace, self.write.name);
        let why = precondition_failed(what, wanted, found);
        let cause = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        );
        Status::conflict(self.subject(self.write.name), &cause)
    }

    /// Returns the target by which admission selects its plugins.
    pub fn target(&self) -> Target<'_> {
        let WriteAttributes { operation, resource, .. } = self.write;
        Target { operation, resource, subresource: self.endpoint.subresource() }
    }

    /// Returns this write as passed to admission.
    pub fn record<'r, N>(&'r self, old: Option<&'r Object>, new: Option<N>) -> AdmissionRecord<'r, N> {
        let name = if self.is_of_collection { "" } else { self.write.name };
        AdmissionRecord {
            writer: self.server(),
            write: WriteAttributes { name, ..self.write },
            subresource: self.endpoint.subresource(),
            old,
            new,
        }
    }
}

/// The caller of the write path: a request, or the server itself.
pub trait Caller: Send {
    /// Returns the list of warnings for the client, in order; `None` if there is no client. Warnings of a
    /// round that is repeated are removed.
    fn warnings(&mut self) -> Option<&mut Vec<String>>;

    /// Checks that an object may be created if the request was allowed to write an existing one.
    ///
    /// # Errors
    /// 403 if the user may not create the object.
    fn confirm_create(&self) -> impl Future<Output = Result<(), Status>> + Send;

    /// Takes the output of the admission plugins besides their decision.
    fn take_review(&mut self, review: Review) {
        for (key, value) in review.annotations {
            tracing::debug!(key, value, "audit annotation");
        }
        if let Some(warnings) = self.warnings() {
            warnings.extend(review.warnings);
        }
    }
}

/// The newest stored version of the object that is written.
pub struct Current {
    /// The stored record, converted to the form of the resource.
    pub stored: Stored,
    /// The record as it is in the store, if that has another form.
    original: Option<Box<Record>>,
    object: Option<Object>,
}

impl Current {
    /// Takes a record found in the store and converts it to the form of the resource.
    ///
    /// # Errors
    /// 500 if the record cannot be converted.
    pub(super) async fn found(intent: &WriteIntent<'_>, stored: Stored) -> Result<Current, Status> {
        if is_current(intent.write.resource, &stored.record.attributes) {
            return Ok(Current { stored, original: None, object: None });
        }
        let Stored { entry, record: original } = stored;
        let record = intent
            .server()
            .outgoing
            .converter
            .convert_record(intent.write.resource, original.clone())
            .await?;
        Ok(Current { stored: Stored { entry, record }, original: Some(Box::new(original)), object: None })
    }

    /// Returns the record as it is in the store.
    pub(super) fn original(&self) -> &Record {
        self.original.as_deref().unwrap_or(&self.stored.record)
    }

    /// Returns the revision of the stored version.
    pub fn revision(&self) -> Revision {
        self.stored.entry.revision()
    }

    /// Returns whether the object has not been written since its creation.
    pub(super) fn is_first(&self) -> bool {
        self.stored.entry.created() == self.revision()
    }

    /// Returns the object in the stored version.
    ///
    /// # Errors
    /// 500 if the object cannot be read.
    pub fn object(&mut self, resource: &Resource) -> Result<&Object, Status> {
        self.read(|stored| stored.object(resource))
    }

    /// Like [`Current::object`], for a source that produces a similar object. Parts that both share are
    /// decoded once.
    ///
    /// # Errors
    /// As [`Current::object`].
    pub fn live(&mut self, server: &Server, resource: &Resource) -> Result<&Object, Status> {
        if has_parts_to_share(server, resource) {
            return self.read(|stored| stored.settled(resource));
        }
        self.object(resource)
    }

    /// Like [`Current::live`], if the object of the source can share parts with the stored one; otherwise
    /// `None`.
    ///
    /// # Errors
    /// As [`Current::object`].
    pub fn known(&mut self, server: &Server, resource: &Resource) -> Result<Option<&Object>, Status> {
        if !has_parts_to_share(server, resource) {
            return Ok(None);
        }
        self.live(server, resource).map(Some)
    }

    /// Like [`Current::object`], but passes ownership of the object to the caller.
    ///
    /// # Errors
    /// As [`Current::object`].
    pub fn take(&mut self, resource: &Resource) -> Result<Object, Status> {
        self.object.take().map_or_else(|| self.stored.object(resource), Ok)
    }

    /// Takes back an object that [`Current::take`] returned, so that it is not decoded again.
    pub fn put_back(&mut self, object: Object) {
        self.object = Some(object);
    }

    fn read(&mut self, read: impl FnOnce(&Stored) -> Result<Object, Status>) -> Result<&Object, Status> {
        match &mut self.object {
            Some(object) => Ok(object),
            none => Ok(none.insert(read(&self.stored)?)),
        }
    }

    /// Like [`Current::object`], for the object that is to be replaced. Its parts can become parts of the
    /// replacement.
    ///
    /// # Errors
    /// As [`Current::object`].
    pub(super) fn old(&mut self, resource: &Resource) -> Result<&Object, Status> {
        self.read(|stored| stored.settled(resource))
    }

    /// Returns the stored object that `new` is to replace; both are in the stored version. Equal parts are
    /// shared between the two, so that no stage compares or encodes them again.
    pub(super) fn beside(&mut self, resource: &Resource, new: &mut Object) -> Result<Object, Status> {
        match self.object.take() {
            Some(old) => {
                share(&resource.stored().message, new, &old);
                Ok(old)
            }
            None => self.stored.object_sharing(resource, new),
        }
    }
}

/// Returns whether an object of a request can share parts with the stored object. While the server starts,
/// stored objects may still lack defaults of this release, and parts of another version cannot be part of the
/// version that is written.
fn has_parts_to_share(server: &Server, resource: &Resource) -> bool {
    server.operations.lifecycle.stage() == server::LifecycleStage::Serving && resource.is_stored_form()
}

/// The result that a source wants.
pub enum Wanted {
    /// The object stays as it is.
    AsItIs,
    /// This object is stored, or removed if the write removes the last reason to keep a deleted object.
    Object(Object),
    /// This object is stored in any case.
    Marked(Object),
    /// The object is removed, with this final state.
    Gone(Object),
    /// The object is removed as it is stored; this is the stored object.
    GoneAsStored(Object),
}

/// The version and type of the object that a source returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// The object is in the version of the request.
    Served,
    /// The object is in the stored version.
    Stored,
    /// The object is of another kind and stands for a part of the stored object; it gets no defaults.
    Foreign,
}

/// A source of the wanted object. It is called again in every round, because the newest state differs.
pub trait Source<C>: Send + Sync {
    /// Returns the form of the objects that [`Source::decode`] returns.
    fn form(&self) -> Form;

    /// Returns the wanted object. `current` is the newest state; `None` if the object does not exist.
    ///
    /// # Errors
    /// Returns the response for the client.
    fn decode(&mut self, caller: &mut C, current: Option<&mut Current>) -> Result<Wanted, Status>;

    /// Converts the object to the stored version, after defaults and plugins.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    fn to_stored(
        &mut self,
        intent: &WriteIntent<'_>,
        object: Object,
        _current: Option<&mut Current>,
    ) -> Result<Object, Status> {
        match self.form() {
            Form::Served => convert::to_stored(intent.write.resource, object, intent.server().types.naming),
            Form::Stored | Form::Foreign => Ok(object),
        }
    }

    /// Converts a stored object to the form that plugins see: the version of the request.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    fn shown<'o>(
        &self,
        intent: &WriteIntent<'_>,
        object: &'o Object,
        _revision: Revision,
    ) -> Result<Cow<'o, Object>, Status> {
        if intent.write.resource.is_stored_form() {
            return Ok(Cow::Borrowed(object));
        }
        convert::to_served(intent.write.resource, object.clone(), intent.server().types.naming)
            .map(Cow::Owned)
    }

    /// Returns the type whose defaults are filled in; `None` if there are no defaults.
    fn message<'i>(&self, intent: &'i WriteIntent<'_>) -> Option<&'i Message> {
        match self.form() {
            Form::Served => Some(&intent.write.resource.table.message),
            Form::Stored => Some(&intent.write.resource.stored().message),
            Form::Foreign => None,
        }
    }
}

/// A source made from a function.
pub struct Made<F> {
    form: Form,
    make: F,
}

impl<F> Made<F> {
    /// Returns a source whose function returns the object in the version of the request.
    pub fn served(make: F) -> Made<F> {
        Made { form: Form::Served, make }
    }

    /// Returns a source whose function returns the object in the stored version.
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

/// The stored version after a write.
#[derive(Clone, Debug)]
pub struct Written {
    /// The stored bytes; for a dry run, the bytes that would be stored.
    pub value: Bytes,
    /// The revision. For a dry run, the revision that would be replaced; 0 for a new object.
    pub revision: Revision,
}

/// The outcome of a write.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The object was created.
    Created(Written),
    /// The object was changed.
    Updated(Written),
    /// The object is unchanged, because the source or the comparison of bytes said so.
    Unchanged(Written),
    /// The object was removed; contains its final state.
    Removed(Written),
    /// The object did not exist, and [`Presence::IfThere`] was set.
    Missing,
    /// The object is not at the revision in [`WriteIntent::seen`].
    Changed,
}

impl Outcome {
    /// Returns the outcome of a write that leaves the object as it is.
    pub(super) fn unchanged(current: Option<&Current>) -> Outcome {
        current.map_or(Outcome::Missing, |current| {
            let revision = current.revision();
            Outcome::Unchanged(Written { value: current.stored.record.value.clone(), revision })
        })
    }

    /// Returns the revision at which the object is stored; `None` if nothing is stored.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Outcome::Created(written) | Outcome::Updated(written) | Outcome::Unchanged(written) => {
                Some(written.revision)
            }
            Outcome::Removed(_) | Outcome::Missing | Outcome::Changed => None,
        }
    }

    /// Returns the stored version for callers that do not distinguish the outcomes; `None` if nothing is
    /// stored.
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

/// Returns the prefix from which the name of an object is to be generated; empty if the object has a name.
pub(super) fn generate_name(object: &Object) -> &str {
    if meta(object, "name").is_empty() { meta(object, "generateName") } else { "" }
}
