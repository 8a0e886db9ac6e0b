//! The interface of the write path for callers: the object of a write, the conditions on the stored object,
//! and the stages that are skipped.
//!
//! ```text
//! Caller        gets warnings, and may have to prove a permission to create
//! WriteIntent   which object, by whom, through which endpoint, which stages are skipped
//! ObjectSource  makes the wanted object from the newest state, in every round of the loop
//! WriteOutcome  the result of the write
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

/// Stages that the server's own writes skip: the comparison, because the server sets the revision in
/// [`WriteIntent::seen`]; the privilege escalation check; and the check of the permission to read parameters.
pub const BY_SERVER: &[Stage] = &[Stage::Compare, Stage::Escalate, Stage::Confirm];

/// [`BY_SERVER`] plus admission: for writes before the first request, and for objects that clients of
/// kube-apiserver do not write.
pub const BY_SERVER_WITHOUT_ADMISSION: &[Stage] =
    &[Stage::Mutate, Stage::Compare, Stage::Escalate, Stage::Confirm, Stage::Admit];

/// [`BY_SERVER`] plus ownership: for an object whose managed fields are already computed.
pub const BY_SERVER_APPLIED: &[Stage] = &[Stage::Compare, Stage::Own, Stage::Escalate, Stage::Confirm];

/// [`BY_SERVER_WITHOUT_ADMISSION`] plus ownership: for an object whose managed fields are already computed.
pub const BY_SERVER_APPLIED_WITHOUT_ADMISSION: &[Stage] =
    &[Stage::Mutate, Stage::Compare, Stage::Own, Stage::Escalate, Stage::Confirm, Stage::Admit];

/// Stages that the backfill of defaults skips. The backfill only sets defaults; the objects were valid when
/// they were stored.
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

/// Stages that a deletion skips. A deletion changes only the deletion marks.
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

/// [`DELETION`] plus admission: for deletions that admission has already allowed, such as the end of an
/// eviction, and for custom objects whose definition is deleted.
pub const DELETION_WITHOUT_ADMISSION: &[Stage] = &[
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

/// Stages that writes of an apply and of a scale skip, because the sources of these writes compute the managed fields.
pub const OWNED_BY_SOURCE: &[Stage] = &[Stage::Own];

/// Stages that a binding of a pod skips. Admission has already allowed the Binding, no field manager owns the
/// change of the pod, and the labels and annotations of the Binding are stored without validation.
pub const BINDING: &[Stage] = &[Stage::Default, Stage::Mutate, Stage::Own, Stage::Validate, Stage::Admit];

/// Returns the message for an object that does not meet a precondition on the field `what` (`UID`,
/// `ResourceVersion`).
pub fn precondition_failed(what: &str, expected: &str, found: &str) -> String {
    format!("Precondition failed: {what} in precondition: {expected}, {what} in object meta: {found}")
}

/// Parses the resourceVersion in an object that a writer sent.
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
    /// The object may exist. If the object does not exist, the caller needs the permission to create.
    Either,
    /// If the object does not exist, the result is [`WriteOutcome::Missing`].
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
    /// Whether the object is deleted as part of a collection. Admission then receives an empty name.
    pub is_of_collection: bool,
    /// The state of the store that the write requires.
    pub presence: Presence,
    /// The only revision that may be replaced. If the object is at another revision, the result is
    /// [`WriteOutcome::Changed`], without a retry.
    pub seen: Option<Revision>,
    /// The field manager of the writer.
    pub manager: &'w str,
    /// Whether the local store may lag writes that other servers have acknowledged. If so, the shared store decides the
    /// commit. Other results that depend on the state, for example a refusal, are returned only for a state that does
    /// not lag.
    pub may_be_behind: bool,
    /// The stages that this write skips.
    pub leaves_out: &'static [Stage],
}

impl<'w> WriteIntent<'w> {
    /// Returns the context of the server.
    pub fn server(&self) -> &'w Server {
        self.origin.server
    }

    /// Returns whether this write passes `stage`. The result is false if the caller skips the stage.
    pub fn passes(&self, stage: Stage) -> bool {
        !self.leaves_out.contains(&stage)
    }

    /// Returns the object as the subject of errors that contain the plural resource, like most errors.
    pub fn subject<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.write.resource.group, kind: &self.write.resource.table.plural, name }
    }

    /// Returns the object as the subject of errors that contain the kind, like 422 errors.
    pub fn subject_by_kind<'s>(&'s self, name: &'s str) -> Subject<'s> {
        Subject { group: &self.write.resource.group, kind: &self.write.resource.table.kind, name }
    }

    /// Returns the object as the subject of validation errors, which contain the kind, and the group of the
    /// stored form.
    pub fn subject_of_rules<'s>(&'s self, name: &'s str) -> Subject<'s> {
        let stored = self.write.resource.storage.as_ref();
        let group = stored.map_or(&self.write.resource.group, |storage| &storage.group);
        Subject { group, ..self.subject_by_kind(name) }
    }

    /// Returns the refusal of a write whose request body has another uid than the stored object. `found` is
    /// the uid of the stored object; empty if the object does not exist.
    pub fn other_uid(&self, expected: &str, found: &str) -> Status {
        self.unmet("UID", expected, found)
    }

    /// Returns the refusal of a write because the stored object does not meet a precondition on the field
    /// `what` (`UID`, `ResourceVersion`).
    pub fn unmet(&self, what: &str, expected: &str, found: &str) -> Status {
        let key = store::etcd_key(self.write.resource, self.write.namespace, self.write.name);
        let why = precondition_failed(what, expected, found);
        let cause = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        );
        Status::conflict(self.subject(self.write.name), &cause)
    }

    /// Returns the target of the write, by which admission selects plugins.
    pub fn target(&self) -> Target<'_> {
        let WriteAttributes { operation, resource, .. } = self.write;
        Target { operation, resource, subresource: self.endpoint.subresource() }
    }

    /// Returns this write as the input of admission.
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
    /// Returns the list of warnings for the client, in order; `None` if there is no client. Before a round is
    /// repeated, its warnings are removed.
    fn warnings(&mut self) -> Option<&mut Vec<String>>;

    /// Checks that the user may create the object. The request is already allowed to write an existing
    /// object.
    ///
    /// # Errors
    /// 403 if the user may not create the object.
    fn confirm_create(&self) -> impl Future<Output = Result<(), Status>> + Send;

    /// Receives the output of the admission plugins in addition to their decisions.
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
    /// The record before the conversion; `None` if no conversion was needed.
    original: Option<Box<Record>>,
    object: Option<Object>,
}

impl Current {
    /// Makes the value from a record in the store, and converts the record to the form of the resource.
    ///
    /// # Errors
    /// 500 if the record cannot be converted.
    pub(super) async fn from_stored(intent: &WriteIntent<'_>, stored: Stored) -> Result<Current, Status> {
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

    /// Returns the record before the conversion.
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

    /// Returns the object like [`Current::object`], for a source that makes a similar object. If possible,
    /// parts that both objects share are decoded only once.
    ///
    /// # Errors
    /// Fails in the same cases as [`Current::object`].
    pub fn live(&mut self, server: &Server, resource: &Resource) -> Result<&Object, Status> {
        if has_parts_to_share(server, resource) {
            return self.read(|stored| stored.settled(resource));
        }
        self.object(resource)
    }

    /// Returns the object like [`Current::live`] if the new object can share parts with the stored object,
    /// and `None` otherwise.
    ///
    /// # Errors
    /// Fails in the same cases as [`Current::object`].
    pub fn live_for_sharing(
        &mut self,
        server: &Server,
        resource: &Resource,
    ) -> Result<Option<&Object>, Status> {
        if !has_parts_to_share(server, resource) {
            return Ok(None);
        }
        self.live(server, resource).map(Some)
    }

    /// Returns the object like [`Current::object`], but passes the ownership to the caller.
    ///
    /// # Errors
    /// Fails in the same cases as [`Current::object`].
    pub fn take(&mut self, resource: &Resource) -> Result<Object, Status> {
        self.object.take().map_or_else(|| self.stored.object(resource), Ok)
    }

    /// Keeps an object that [`Current::take`] returned, so that the object is not decoded again.
    pub fn put_back(&mut self, object: Object) {
        self.object = Some(object);
    }

    fn read(&mut self, read: impl FnOnce(&Stored) -> Result<Object, Status>) -> Result<&Object, Status> {
        match &mut self.object {
            Some(object) => Ok(object),
            none => Ok(none.insert(read(&self.stored)?)),
        }
    }

    /// Returns the object like [`Current::object`], for a write that replaces the object. The new object can
    /// share parts of the old object.
    ///
    /// # Errors
    /// Fails in the same cases as [`Current::object`].
    pub(super) fn old(&mut self, resource: &Resource) -> Result<&Object, Status> {
        self.read(|stored| stored.settled(resource))
    }

    /// Returns the stored object that `new` replaces. Both objects are in the stored version. Their equal
    /// parts become shared, so that no stage compares or encodes these parts again.
    pub(super) fn sharing_old(&mut self, resource: &Resource, new: &mut Object) -> Result<Object, Status> {
        match self.object.take() {
            Some(old) => {
                share(&resource.stored().message, new, &old);
                Ok(old)
            }
            None => self.stored.object_sharing(resource, new),
        }
    }
}

/// Returns whether an object of a request can share parts with the stored object. Sharing is not possible
/// while the server starts, because defaults of this release may be missing in stored objects, and not
/// possible if the request has another version than the stored object.
fn has_parts_to_share(server: &Server, resource: &Resource) -> bool {
    server.operations.lifecycle.stage() == server::LifecycleStage::Serving && resource.is_stored_form()
}

/// The change that a source requests.
pub enum RequestedChange {
    /// The object stays unchanged.
    AsItIs,
    /// This object is stored. If the change removes the last reason to keep a deleted object, the object is
    /// removed instead.
    Object(Object),
    /// This object is stored, even if it is deleted and nothing keeps it.
    Marked(Object),
    /// The object is removed, with this final state.
    Gone(Object),
    /// The object is removed, and its final state is the stored state. The value is the stored object.
    GoneAsStored(Object),
}

/// The version and type of the object that a source returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ObjectForm {
    /// The object is in the version of the request.
    Served,
    /// The object is in the stored version.
    Stored,
    /// The object has another kind and represents some fields of the stored object. The write path sets no defaults in
    /// such an object.
    Foreign,
}

/// A source of the wanted object. Every round calls the source again, because the newest state has changed.
pub trait ObjectSource<C>: Send + Sync {
    /// Returns the form of the objects that [`ObjectSource::decode`] returns.
    fn form(&self) -> ObjectForm;

    /// Returns the wanted object. `current` is the newest state; `None` if the object does not exist.
    ///
    /// # Errors
    /// Returns the response for the client.
    fn decode(&mut self, caller: &mut C, current: Option<&mut Current>) -> Result<RequestedChange, Status>;

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
            ObjectForm::Served => {
                convert::to_stored(intent.write.resource, object, intent.server().types.naming)
            }
            ObjectForm::Stored | ObjectForm::Foreign => Ok(object),
        }
    }

    /// Converts a stored object to the version of the request, for admission plugins.
    ///
    /// # Errors
    /// Fails if the object cannot be converted.
    fn object_for_admission<'o>(
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

    /// Returns the type whose defaults the write path sets; `None` if no defaults are set.
    fn message<'i>(&self, intent: &'i WriteIntent<'_>) -> Option<&'i Message> {
        match self.form() {
            ObjectForm::Served => Some(&intent.write.resource.table.message),
            ObjectForm::Stored => Some(&intent.write.resource.stored().message),
            ObjectForm::Foreign => None,
        }
    }
}

/// A source made from a function.
pub struct FunctionSource<F> {
    form: ObjectForm,
    make: F,
}

impl<F> FunctionSource<F> {
    /// Returns a source whose function returns the object in the version of the request.
    pub fn for_served(make: F) -> FunctionSource<F> {
        FunctionSource { form: ObjectForm::Served, make }
    }

    /// Returns a source whose function returns the object in the stored version.
    pub fn for_stored(make: F) -> FunctionSource<F> {
        FunctionSource { form: ObjectForm::Stored, make }
    }
}

impl<C, F> ObjectSource<C> for FunctionSource<F>
where
    F: FnMut(&mut C, Option<&mut Current>) -> Result<RequestedChange, Status> + Send + Sync,
{
    fn form(&self) -> ObjectForm {
        self.form
    }

    fn decode(&mut self, caller: &mut C, current: Option<&mut Current>) -> Result<RequestedChange, Status> {
        (self.make)(caller, current)
    }
}

/// The stored version after a write.
#[derive(Clone, Debug)]
pub struct WrittenObject {
    /// The stored bytes; for a dry run, the bytes that would be stored.
    pub value: Bytes,
    /// The revision of the write. For a dry run, the value is the revision that would be replaced, or 0 for a new
    /// object.
    pub revision: Revision,
}

/// The outcome of a write.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// The object was created.
    Created(WrittenObject),
    /// The object was changed.
    Updated(WrittenObject),
    /// The object is unchanged, because the source requested no change, or because the new bytes equal the
    /// stored bytes.
    Unchanged(WrittenObject),
    /// The object was removed. The value is the final state of the object.
    Removed(WrittenObject),
    /// The object did not exist, and [`Presence::IfThere`] was set.
    Missing,
    /// The object is not at the revision in [`WriteIntent::seen`].
    Changed,
}

impl WriteOutcome {
    /// Returns the outcome of a write that does not change the object.
    pub(super) fn unchanged(current: Option<&Current>) -> WriteOutcome {
        current.map_or(WriteOutcome::Missing, |current| {
            let revision = current.revision();
            WriteOutcome::Unchanged(WrittenObject { value: current.stored.record.value.clone(), revision })
        })
    }

    /// Returns the revision at which the object is stored; `None` if nothing is stored.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            WriteOutcome::Created(written)
            | WriteOutcome::Updated(written)
            | WriteOutcome::Unchanged(written) => Some(written.revision),
            WriteOutcome::Removed(_) | WriteOutcome::Missing | WriteOutcome::Changed => None,
        }
    }

    /// Returns the written, unchanged or removed version, for callers that do not distinguish these outcomes.
    /// Returns `None` if there is no object.
    pub fn written(self) -> Option<WrittenObject> {
        match self {
            WriteOutcome::Created(written)
            | WriteOutcome::Updated(written)
            | WriteOutcome::Unchanged(written)
            | WriteOutcome::Removed(written) => Some(written),
            WriteOutcome::Missing | WriteOutcome::Changed => None,
        }
    }
}

/// Returns the prefix for the generated name of an object; empty if the object has a name.
pub(super) fn generate_name(object: &Object) -> &str {
    if meta(object, "name").is_empty() { meta(object, "generateName") } else { "" }
}
