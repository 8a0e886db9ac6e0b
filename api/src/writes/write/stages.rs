//! The stages of the write path. Each stage is a function of the intent of the write and of the object.
//!
//! The module `path` defines the order of the stages; no stage calls another stage. If the caller skips a
//! stage, the stage has no effect.

use std::time::Instant;

use auth::authz::Escalation;
use bytes::Bytes;
use engine::{Change, Expected, Payload, Revision};

use super::author::authored;
use super::commit::{Attempt, completes_deletion, fitting_payload, is_same, unversioned};
use super::intent::{
    Caller, Current, ObjectSource, Presence, RequestedChange, WriteIntent, WrittenObject, generate_name,
    seen_revision,
};
use super::ownership::{Tracking, keep_times_of_no_change};
use crate::state::allocation::Reservation;
use crate::state::policy;
use crate::writes::admission::policy::access::confirm_readable;
use crate::writes::admission::{device_access, device_status};
use crate::writes::plugin::{AdmissionRecord, Charge, Operation, Options, Review, Target};
use crate::writes::stage::{Stage, trace};
use objects::store::{self, Component};
use objects::strategy::owners::{AFTER_ADMISSION, without_repeated_owners};
use objects::strategy::{self, Endpoint};
use objects::validation;
use types::attributes::Attributes;
use types::options::decimal;
use types::schema::defaults;
use values::clock;
use values::field::FieldError;
use values::json::{Object, Value};
use values::names;
use values::object::{meta, metadata_mut, set_meta};
use values::status::{Status, StatusReason};

/// The effect of the write on the object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WriteEffect {
    /// The object is stored, or removed if the write removes the last reason to keep a deleted object.
    Derived,
    /// The object is stored.
    Stays,
    /// The object is removed, with this final state.
    Goes,
    /// The object is removed, and its final state is the stored state.
    GoesAsStored,
}

/// Returns the wanted object, and whether the write stores or removes it; `None` if the object stays
/// unchanged.
pub(super) async fn decode<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    source: &mut dyn ObjectSource<C>,
    mut current: Option<&mut Current>,
) -> Result<Option<(Object, WriteEffect)>, Status> {
    trace::note(Stage::Decode);
    let warned = caller.warnings().map_or(0, |warnings| warnings.len());
    let change = loop {
        let change = source.decode(caller, current.as_deref_mut());
        if !intent.origin.conversions.has_requests() {
            break change?;
        }
        // The result is invalid, because conversions were missing. Drop the warnings of this decoding, make the
        // conversions and decode again.
        if let Some(warnings) = caller.warnings() {
            warnings.truncate(warned);
        }
        intent.server().outgoing.converter.make(intent.write.resource, &intent.origin.conversions).await?;
    };
    Ok(match change {
        RequestedChange::AsItIs => None,
        RequestedChange::Object(object) => Some((object, WriteEffect::Derived)),
        RequestedChange::Marked(object) => Some((object, WriteEffect::Stays)),
        RequestedChange::Gone(object) => Some((object, WriteEffect::Goes)),
        RequestedChange::GoneAsStored(object) => Some((object, WriteEffect::GoesAsStored)),
    })
}

/// Returns whether the writer set labels on the object.
pub(super) fn is_labelled(object: &Object) -> bool {
    let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
    labels.and_then(Value::as_object).is_some_and(|labels| !labels.is_empty())
}

/// Sets the defaults of fields that the writer left out.
pub(super) fn default<C>(intent: &WriteIntent<'_>, source: &dyn ObjectSource<C>, object: &mut Object) {
    if let Some(message) = source.message(intent)
        && intent.passes(Stage::Default)
    {
        trace::note(Stage::Default);
        defaults::apply(message, object, intent.server().types.naming);
    }
}

/// Refuses the creation of a custom object if the definition of its type is being deleted (403) or has been
/// removed (404).
pub(super) fn defined(intent: &WriteIntent<'_>) -> Result<(), Status> {
    let (server, resource) = (intent.server(), intent.write.resource);
    if resource.is_builtin() {
        return Ok(());
    }
    let definition = store::key(&server.types.definitions, "", &resource.qualified());
    match server.store.open_for(Component::Definitions).get(&definition)? {
        Some(stored) if Attributes::new(&stored.record.attributes).is_deleting() => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Status::forbidden(intent.subject(intent.write.name), why))
        }
        Some(_) => Ok(()),
        None => {
            let types = server.types.now();
            let served =
                types.registry().resource(&resource.group, &resource.version, &resource.table.plural);
            served.map(drop).ok_or_else(Status::no_such_route)
        }
    }
}

/// The refusal of a write.
pub(super) struct WriteRefusal {
    /// The response to the client.
    pub status: Status,
    /// The stage or plugin that refused the write.
    pub by: Refuser,
}

/// The kind of stage or plugin that refused a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refuser {
    /// An admission plugin, which may have read other objects.
    Plugin,
    /// An admission webhook.
    Webhook,
    /// Any other stage.
    Stage,
}

impl Refuser {
    fn in_review(review: &Review) -> Refuser {
        if review.webhook_refused { Refuser::Webhook } else { Refuser::Plugin }
    }
}

impl From<Status> for WriteRefusal {
    fn from(status: Status) -> WriteRefusal {
        WriteRefusal { status, by: Refuser::Stage }
    }
}

/// Runs the mutating point of admission. The plugins get the object in the version of the request, and may
/// change the object. Returns whether a webhook was called.
pub(super) async fn mutate<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    source: &dyn ObjectSource<C>,
    current: Option<&mut Current>,
    object: &mut Object,
) -> Result<bool, WriteRefusal> {
    if !intent.passes(Stage::Mutate) {
        return Ok(false);
    }
    let operation = operation(intent, current.is_none());
    let plugins = intent.server().admission.about(&Target { operation, ..intent.target() });
    let old = match current {
        Some(current) if plugins.reads_objects() => {
            let revision = current.revision();
            let old = current.old(intent.write.resource)?;
            Some(source.object_for_admission(intent, old, revision)?)
        }
        _ => None,
    };
    let new = (operation != Operation::Delete).then_some(&mut *object);
    let record = record(intent, operation, old.as_deref(), new);
    let (review, outcome) = plugins.mutate(record).await;
    let (by, asked_webhooks) = (Refuser::in_review(&review), review.asked_webhooks);
    caller.take_review(review);
    outcome.map_err(|status| WriteRefusal { status, by })?;
    set_meta(object, "selfLink", None);
    let repeated = without_repeated_owners(object, AFTER_ADMISSION);
    if let (Some(warning), Some(warnings)) = (repeated, caller.warnings()) {
        warnings.push(warning);
    }
    Ok(asked_webhooks)
}

/// Returns the operation that admission gets. A PUT or an apply that creates an object is a creation.
fn operation(intent: &WriteIntent<'_>, is_new: bool) -> Operation {
    if is_new { Operation::Create } else { intent.write.operation }
}

/// Returns the write as the input of admission, with this operation.
fn record<'r, N>(
    intent: &'r WriteIntent<'_>,
    operation: Operation,
    old: Option<&'r Object>,
    new: Option<N>,
) -> AdmissionRecord<'r, N> {
    let mut record = intent.record(old, new);
    record.write.operation = operation;
    record
}

/// Makes the writer the owner of the fields that the client sent in a new object.
pub(super) async fn own_new(intent: &WriteIntent<'_>, object: &mut Object) -> Result<(), Status> {
    if intent.passes(Stage::Prepare) {
        trace::note(Stage::Prepare);
        validation::prepare(&intent.write.resource.table, object);
    }
    if intent.passes(Stage::Own) {
        trace::note(Stage::Own);
        let own = |object: &mut Object| {
            tracking(intent).create(object);
            Ok(())
        };
        with_conversions(intent, object, own).await?;
    }
    Ok(())
}

/// Returns the object in the stored version, with the namespace of the request even if a plugin has changed
/// it. Also returns the object that the write replaces, if a later stage reads the replaced object.
pub(super) fn convert<C>(
    intent: &WriteIntent<'_>,
    source: &mut dyn ObjectSource<C>,
    object: Object,
    mut current: Option<&mut Current>,
) -> Result<(Object, Option<Object>), Status> {
    let mut new = source.to_stored(intent, object, current.as_deref_mut())?;
    if !intent.passes(Stage::Prepare) {
        return Ok((new, None));
    }
    strategy::scope_to(intent.write.resource, intent.write.namespace, &mut new)?;
    let old = current.map(|current| current.sharing_old(intent.write.resource, &mut new)).transpose()?;
    Ok((new, old))
}

/// Sets the creation time and the uid of a new object, and generates the name if necessary. Returns the
/// prefix of a generated name.
pub(super) fn identify(object: &mut Object) -> Option<String> {
    set_meta(object, "creationTimestamp", Some(clock::now().into()));
    let base = generate_name(object).to_owned();
    let generated_from = (!base.is_empty()).then_some(base);
    if let Some(base) = &generated_from {
        metadata_mut(object).insert("name", names::generated(base).into());
    }
    metadata_mut(object).insert("uid", names::uid().into());
    generated_from
}

/// Refuses a new object with a resourceVersion, because only the store assigns versions. A text that is not a
/// version is ignored. A dry run does not reach the store, so its response has the version that the client
/// sent.
pub(super) fn check_unversioned(intent: &WriteIntent<'_>, object: &mut Object) -> Result<(), Status> {
    if intent.write.dry_run() {
        return Ok(());
    }
    if decimal(meta(object, "resourceVersion")).is_some_and(|version| version > 0) {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::new(StatusReason::Unknown, why));
    }
    set_meta(object, "resourceVersion", None);
    Ok(())
}

/// Compares the uid in the body of a PUT with the uid of the stored object. Validation refuses changes of the
/// uid by a patch or a plugin.
pub(super) fn same(
    intent: &WriteIntent<'_>,
    new: &Object,
    current: Option<&mut Current>,
) -> Result<(), Status> {
    let uid = meta(new, "uid");
    let is_patch = matches!(intent.write.options, Options::Patch(_));
    let is_compared = !uid.is_empty() && !is_patch && intent.passes(Stage::Compare);
    let Some(current) = current.filter(|_| is_compared) else {
        return Ok(());
    };
    let stored_uid = meta(current.old(intent.write.resource)?, "uid");
    if uid == stored_uid {
        return Ok(());
    }
    Err(intent.other_uid(uid, stored_uid))
}

/// Compares the resourceVersion that the writer sent with the version of the stored object.
pub(super) fn compare(
    intent: &WriteIntent<'_>,
    new: &mut Object,
    old: Option<&Object>,
    current: &Current,
) -> Result<(), Status> {
    if old.is_none() || !intent.passes(Stage::Compare) {
        return Ok(());
    }
    trace::note(Stage::Compare);
    let is_patch = matches!(intent.write.options, Options::Patch(_));
    match meta(new, "resourceVersion") {
        "" | "0" if intent.write.resource.table.unconditional_update || is_patch => {}
        "" | "0" => {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &Value::Int(0),
                "must be specified for an update",
            );
            return Err(Status::invalid(intent.subject(intent.write.name), &[error]));
        }
        text if seen_revision(text)? == current.revision() => {}
        _ => return Err(Status::stale(intent.subject(intent.write.name))),
    }
    set_meta(new, "resourceVersion", None);
    Ok(())
}

/// Makes the writer the owner of the fields that an update changes.
pub(super) async fn own_change(
    intent: &WriteIntent<'_>,
    new: &mut Object,
    old: &Object,
) -> Result<(), Status> {
    if intent.passes(Stage::Prepare) {
        trace::note(Stage::Prepare);
        validation::prepare_update(&intent.write.resource.stored().table, new, old);
    }
    if intent.passes(Stage::Own) {
        trace::note(Stage::Own);
        with_conversions(intent, new, |new| tracking(intent).update(old, new)).await?;
    }
    Ok(())
}

/// Runs `own`, which may need conversions by webhooks, and repeats the run until all conversions are
/// available.
async fn with_conversions(
    intent: &WriteIntent<'_>,
    object: &mut Object,
    own: impl Fn(&mut Object) -> Result<(), Status>,
) -> Result<(), Status> {
    if !intent.write.resource.versions.as_ref().is_some_and(|versions| versions.has_webhook()) {
        return own(object);
    }
    loop {
        let mut owned = object.clone();
        let outcome = own(&mut owned);
        if !intent.origin.conversions.has_requests() {
            *object = owned;
            return outcome;
        }
        intent.server().outgoing.converter.make(intent.write.resource, &intent.origin.conversions).await?;
    }
}

fn tracking<'i>(intent: &'i WriteIntent<'_>) -> Tracking<'i> {
    let (resource, endpoint, manager) = (intent.write.resource, intent.endpoint, intent.manager);
    let conversions = &intent.origin.conversions;
    Tracking { registry: intent.origin.types.registry(), resource, endpoint, manager, conversions }
}

/// Allocates addresses and ports. The caller keeps the returned value until the write has ended.
pub(super) fn allocate<'w>(
    intent: &WriteIntent<'w>,
    new: &mut Object,
    old: Option<&Object>,
) -> Result<Option<Reservation<'w>>, Status> {
    if intent.endpoint != Endpoint::Main || !intent.passes(Stage::Allocate) {
        return Ok(None);
    }
    trace::note(Stage::Allocate);
    let server = intent.server();
    server.store.allocations.begin(intent.write.resource, new, old)
}

/// Resets the fields that the endpoint may not write, and sets derived fields. `is_labelled` says whether the
/// writer set labels; otherwise the labels are defaults.
pub(super) fn prepare<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    new: &mut Object,
    old: Option<&Object>,
    is_labelled: bool,
) {
    if !intent.passes(Stage::Prepare) {
        return;
    }
    trace::note(Stage::Prepare);
    let naming = intent.server().types.naming;
    let Some(old) = old else {
        let new_warnings =
            strategy::prepare_create(intent.write.resource, new, intent.write.user, naming, is_labelled);
        if let Some(warnings) = caller.warnings() {
            warnings.extend(new_warnings);
        }
        return;
    };
    strategy::prepare_update(intent.write.resource, intent.endpoint, new, old);
    if intent.endpoint != Endpoint::Main {
        // The defaults of written fields may depend on the fields that the strategy has just restored.
        defaults::apply(&intent.write.resource.stored().message, new, naming);
    }
    let began = Instant::now();
    keep_times_of_no_change(old, new);
    intent.server().operations.metrics.comparisons.time(&["write"], began.elapsed());
}

/// Checks the rules of the kind. An object without a name is refused even if the caller skips this stage.
pub(super) async fn validate<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    new: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    if !intent.passes(Stage::Validate) {
        if old.is_none() && meta(new, "name").is_empty() {
            let error = FieldError::required("metadata.name", "name or generateName is required");
            return Err(Status::invalid(intent.subject_by_kind(""), &[error]));
        }
        return Ok(());
    }
    trace::note(Stage::Validate);
    let (resource, subresource) = (intent.write.resource, intent.endpoint.subresource());
    let namespace = intent.write.namespace;
    let refused = device_access::refused(intent.server(), resource, subresource, namespace, new, old)?;
    let mut errors: Vec<FieldError> = refused.into_iter().collect();
    let found = rules(caller, intent, new, old);
    // Each driver needs an authorization check, so make these checks only for valid objects, whose lists have a limited
    // length.
    if let (Some(permission), Some(old), true) = (intent.permission, old, found.is_empty()) {
        let authorizer = &intent.server().access.authorizer;
        errors
            .extend(device_status::refused(authorizer, permission, resource, subresource, [new, old]).await);
    }
    errors.extend(found);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(intent.subject_of_rules(meta(new, "name")), &errors))
}

/// Checks an object by the rules of its kind, and returns the errors.
fn rules<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    new: &Object,
    old: Option<&Object>,
) -> Vec<FieldError> {
    let (group, table, settings) = (
        &intent.write.resource.group,
        &intent.write.resource.stored().table,
        intent.server().types.validation,
    );
    let Some(old) = old else { return validation::create_in(group, table, settings, new) };
    let result = validation::update_in(group, intent.endpoint.subresource(), table, settings, [new, old]);
    if let Some(warnings) = caller.warnings() {
        warnings.extend(result.warnings);
    }
    result.errors
}

/// Adds warnings about a valid object to the list of the caller.
pub(super) fn warn<C: Caller>(caller: &mut C, intent: &WriteIntent<'_>, new: &Object, old: Option<&Object>) {
    if intent.passes(Stage::Validate)
        && let Some(warnings) = caller.warnings()
    {
        warnings.extend(strategy::warnings(
            intent.write.resource,
            intent.endpoint,
            intent.server().types.naming,
            new,
            old,
        ));
    }
}

/// Checks that a role or a binding grants only permissions that the writer has. The error is a 403, or a 404
/// if the role of a binding is missing. The object is not validated yet, and may have no name.
pub(super) async fn escalate(
    intent: &WriteIntent<'_>,
    new: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let authorizer = &intent.server().access.authorizer;
    let Some(permission) = intent.permission.filter(|_| intent.passes(Stage::Escalate)) else {
        return Ok(());
    };
    trace::note(Stage::Escalate);
    if permission.group != authorizer.rbac().group() {
        return Ok(());
    }
    let confirmed = policy::confirm_no_escalation(authorizer, permission, old, new).await;
    confirmed.map_err(|error| match error {
        // The error contains the resource of the request, and the name of the missing role.
        Escalation::RoleNotFound(name) => match store::check_key_name(&name) {
            Ok(()) => Status::not_found(intent.subject(&name)),
            Err(refused) => refused,
        },
        Escalation::UnknownKind(_) => Status::new(StatusReason::Unknown, error.to_string()),
        Escalation::Forbidden(why) => Status::forbidden(intent.subject(meta(new, "name")), &why),
    })
}

/// Checks that the writer of a policy or binding may read the objects that are used as parameters. The error
/// is a 422.
pub(super) async fn confirm_parameters(
    intent: &WriteIntent<'_>,
    new: &Object,
    old: Option<&Object>,
) -> Result<(), Status> {
    let is_of_client = intent.permission.is_some() && intent.endpoint == Endpoint::Main;
    if !is_of_client || !intent.passes(Stage::Confirm) {
        return Ok(());
    }
    trace::note(Stage::Confirm);
    let (server, write) = (intent.server(), &intent.write);
    let readable =
        confirm_readable(server, &server.access.authorizer, write.user, write.resource, new, old).await;
    readable.map_err(|error| Status::invalid(intent.subject_of_rules(meta(new, "name")), &[error]))
}

/// Runs the validating point of admission. The plugins get the object that will be stored, in the version of
/// the request. Returns the charges that the plugins took. A dropped charge is given back.
pub(super) async fn admit<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    source: &dyn ObjectSource<C>,
    new: &Object,
    fate: WriteEffect,
    old: Option<&Object>,
    current: Option<&mut Current>,
) -> Result<Vec<Box<dyn Charge>>, WriteRefusal> {
    if !intent.passes(Stage::Admit) {
        return Ok(Vec::new());
    }
    let operation = operation(intent, current.is_none());
    let plugins = intent.server().admission.about(&Target { operation, ..intent.target() });
    let (mut review, outcome) = match current {
        _ if !plugins.reads_objects() => plugins.validate(record(intent, operation, None, Some(new))).await,
        None => {
            let new = source.object_for_admission(intent, new, Revision::ZERO)?;
            plugins.validate(record(intent, operation, None, Some(&*new))).await
        }
        Some(current) => {
            let revision = current.revision();
            let old = match old {
                Some(old) => old,
                None => current.old(intent.write.resource)?,
            };
            let old = source.object_for_admission(intent, old, revision)?;
            let stays = !matches!(fate, WriteEffect::Goes | WriteEffect::GoesAsStored)
                && intent.write.operation != Operation::Delete;
            let new = if stays { Some(source.object_for_admission(intent, new, revision)?) } else { None };
            plugins.validate(intent.record(Some(&*old), new.as_deref())).await
        }
    };
    let by = Refuser::in_review(&review);
    let charges = std::mem::take(&mut review.charges);
    caller.take_review(review);
    outcome.map_err(|status| WriteRefusal { status, by })?;
    Ok(charges)
}

/// The encoded result of a write.
pub(super) enum Encoded {
    /// The result equals the stored object.
    Same,
    /// The result differs from the stored object.
    Change {
        /// The change for the store. Custom objects are in the stored version.
        change: Change,
        /// The new state of the object, in the version of the request. `None` if the object is removed
        /// without another change.
        requested: Option<Payload>,
    },
}

/// Sets the defaults of the status of a custom object without a status. The server drops the status that a client
/// sends with a new object. kube-apiserver sets these defaults when it reads the object from its store. Therefore this
/// function runs after admission and validation, which do not get these defaults.
fn default_status(intent: &WriteIntent<'_>, new: &mut Object) {
    let resource = intent.write.resource;
    if resource.table.message.custom && resource.table.status.is_some() && !new.contains("status") {
        defaults::apply(&resource.stored().message, new, intent.server().types.naming);
    }
}

/// Encodes the bytes to store. The result is [`Encoded::Same`] for a no-op write.
pub(super) async fn encode(
    intent: &WriteIntent<'_>,
    new: &mut Object,
    fate: WriteEffect,
    old: Option<&Object>,
    current: Option<&Current>,
) -> Result<Encoded, Status> {
    trace::note(Stage::Encode);
    let removed = current.map_or(&[][..], |current| &current.original().attributes);
    if fate == WriteEffect::GoesAsStored {
        let change = authored(intent, Change::Delete(None), removed);
        return Ok(Encoded::Change { change, requested: None });
    }
    default_status(intent, new);
    if intent.write.dry_run() {
        // The response of a dry run equals a read of the stored object, although nothing is stored.
        *new =
            intent.server().outgoing.converter.as_stored(intent.write.resource, std::mem::take(new)).await?;
    }
    let replaced = current.map_or(&[][..], |current| &current.stored.record.attributes);
    let requested = payload(intent, new, replaced);
    let resource = intent.write.resource;
    let is_as_requested =
        resource.versions.is_none() || resource.is_stored_version() || intent.write.dry_run();
    let payload = if is_as_requested {
        requested.clone()
    } else {
        intent.server().outgoing.converter.payload(resource, new).await?
    };
    let goes = match fate {
        WriteEffect::Derived => old.is_some_and(|old| completes_deletion(intent.write.resource, new, old)),
        WriteEffect::Stays | WriteEffect::GoesAsStored => false,
        WriteEffect::Goes => true,
    };
    if goes {
        // If an update ends a deletion, watchers get the object from before the update, with its finalizers.
        let last = (fate != WriteEffect::Derived).then_some(payload);
        let change = authored(intent, Change::Delete(last), removed);
        return Ok(Encoded::Change { change, requested: Some(requested) });
    }
    let known = current.map(
        |current| {
            if intent.write.dry_run() { &current.stored.record } else { current.original() }
        },
    );
    let is_settled = !current.is_some_and(Current::is_first) || !strategy::is_completed_by_reading(resource);
    if is_settled && known.is_some_and(|known| is_same(&payload, known)) {
        return Ok(Encoded::Same);
    }
    let change = authored(intent, Change::Put(payload), removed);
    Ok(Encoded::Change { change, requested: Some(requested) })
}

fn payload(intent: &WriteIntent<'_>, object: &mut Object, replaced: &[u8]) -> Payload {
    if !intent.passes(Stage::Own) {
        // The managed fields are part of the request, so they must not be dropped.
        return store::payload_of_change(intent.write.resource, object, replaced);
    }
    fitting_payload(intent.write.resource, object, replaced)
}

/// Commits the change if the stored object meets the condition `expected`.
pub(super) async fn commit(
    intent: &WriteIntent<'_>,
    key: Bytes,
    expected: Expected,
    change: Change,
) -> Result<Attempt, Status> {
    trace::note(Stage::Commit);
    let operation = match (&change, &expected) {
        (Change::Delete(_) | Change::DeleteStored(_), _) => "delete",
        (Change::Put(_), Expected::Absent) if intent.presence == Presence::New => "create",
        (Change::Put(_), _) => "update",
    };
    let began = Instant::now();
    let attempt = super::commit::commit(intent.store, key, expected, change).await;
    intent.server().accessed(intent.write.resource, operation, began);
    if matches!(attempt, Ok(Attempt::Committed(_))) {
        intent.server().changed(intent.write.resource);
    }
    if attempt.is_err() {
        let resource = intent.write.resource;
        intent.server().operations.metrics.access_failed(&resource.group, operation, &resource.table.plural);
    }
    attempt
}

/// Returns the new object as the result of a dry run of a creation.
pub(super) fn new_object_outcome(intent: &WriteIntent<'_>, object: &Object) -> WrittenObject {
    WrittenObject { value: unversioned(intent.write.resource, object), revision: Revision::ZERO }
}

/// Returns a 404 for the object. The error is the same whether the namespace exists or not.
pub(super) fn not_found(intent: &WriteIntent<'_>) -> Status {
    Status::not_found(intent.subject(intent.write.name))
}
