//! create and update: bytes → decode → default → prepare → validate → one commit.
//!
//! Updates of every kind (PUT, the patches, subresources) share one loop, [`update_object`]: read the newest
//! state, let the verb make the new object from it, commit on condition that nothing changed in between, and
//! begin again if something did. A write that changes nothing is not written (semantics §5.2, §5.5).

use auth::authz::Escalation;
use bytes::Bytes;
use engine::{Change, CommitError, Expected};
use http::StatusCode;

use super::Call;
use crate::admission;
use crate::apply::take_managed_fields;
use crate::clock;
use crate::convert;
use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::names;
use crate::object::{finalizers, meta, metadata_mut, set_meta};
use crate::policy;
use crate::query::WriteOptions;
use crate::rendition::{Renderer, refuse_list_transform};
use crate::request::Verb;
use crate::response::{Response, respond_object};
use crate::retry::{Attempts, Exhausted};
use crate::schema::defaults;
use crate::schema::registry::Resource;
use crate::server::Stage;
use crate::status::{Reason, Status, Subject};
use crate::store::{self, Stored};
use crate::strategy::{self, Endpoint};
use crate::validation;
use crate::verbs::options::decimal;
use crate::verbs::ownership::{Owners, Tracking, keep_times_of_no_change, manager};

/// How often a taken generated name is tried anew (semantics §5.1).
const GENERATE_ATTEMPTS: u32 = 8;

/// POST on a collection (semantics §5.1).
pub async fn create(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let meta_group = call.api.naming.meta_group();
    let options = WriteOptions::from_query(call.query, "CreateOptions", &meta_group)?;
    refuse_list_transform(&call.output, call.resource)?;
    let object = decode_body(call, body, &options)?;
    let stored = create_object(call, object, &options, Owners::Writer).await?;
    respond_object(Renderer::for_call(call)?, StatusCode::CREATED, &stored)
}

/// Creates `object`, given in the served version and not yet defaulted; returns the stored bytes.
pub async fn create_object(
    call: &mut Call<'_>,
    mut object: Object,
    options: &WriteOptions,
    owners: Owners,
) -> Result<Bytes, Status> {
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(Status::new(
            Reason::Unknown,
            "resourceVersion should not be set on objects to be created",
        ));
    }
    strategy::wipe_system_metadata(&mut object);
    scope_to_request(call, &mut object)?;
    dedup_owners(call, &mut object);
    defaults::apply(&call.resource.table.message, &mut object, call.api.naming);
    validation::prepare(&call.resource.table, &mut object, None);
    if owners == Owners::Writer {
        tracking(call, Endpoint::Main, &manager(call)).create(&mut object);
    }
    let mut object = convert::to_stored(call.resource, object, call.api.naming)?;
    let _creation = call.api.creations.begin();
    admission::create(call, &object)?;
    set_meta(&mut object, "creationTimestamp", Some(clock::now().into()));

    let generated_from = match meta(&object, "name") {
        "" => Some(meta(&object, "generateName").to_owned()),
        _ => None,
    };
    if generated_from.as_deref() == Some("") {
        let error = FieldError::required("metadata.name", "name or generateName is required");
        return Err(Status::invalid(call.subject_by_kind(""), &[error]));
    }
    for _ in 0..GENERATE_ATTEMPTS {
        // Only a generated name is ever tried again.
        let mut candidate =
            if generated_from.is_some() { object.clone() } else { std::mem::take(&mut object) };
        if let Some(base) = &generated_from {
            metadata_mut(&mut candidate).insert("name", names::generated(base).into());
        }
        metadata_mut(&mut candidate).insert("uid", names::uid().into());
        // Kept until the write is over, whatever becomes of it.
        let _allocated = call.api.allocations.begin(call.resource, &mut candidate, None)?;
        strategy::prepare_create(call.resource, &mut candidate, call.user, call.api.naming);
        let errors = validation::create(&call.resource.stored().table, call.api.naming, &candidate);
        let name = meta(&candidate, "name").to_owned();
        if !errors.is_empty() {
            return Err(Status::invalid(call.subject_by_kind(&name), &errors));
        }
        confirm_no_escalation(call, None, &candidate).await?;
        let namespace = meta(&candidate, "namespace");
        let key = store::key(call.resource, namespace, &name);
        let payload = fitting_payload(call.resource, &mut candidate, owners);
        let taken = if options.dry_run {
            match call.store().get(&key)? {
                None => return Ok(unversioned(call, &candidate)),
                Some(stored) => Some(stored),
            }
        } else {
            match call.store().commit(key, Expected::Absent, Change::Put(payload)).await {
                Ok(committed) => return Ok(store::read(committed.entry)?.record.value),
                Err(CommitError::Conflict { current }) => current.map(store::read).transpose()?,
                Err(error) => return Err(call.api.commit_failed(&error)),
            }
        };
        if generated_from.is_none() {
            let deleting = taken.is_some_and(|stored| {
                crate::attributes::Attributes::new(&stored.record.attributes).is_deleting()
            });
            return Err(Status::already_exists(call.subject(&name), deleting));
        }
    }
    Err(Status::generated_name_taken(call.subject(generated_from.as_deref().unwrap_or_default())))
}

/// Encodes an object for storage. One that would be too large is stored without its managed fields, which nobody asked
/// for; an apply has asked for them (semantics §7.2).
fn fitting_payload(resource: &Resource, object: &mut Object, owners: Owners) -> engine::Payload {
    let payload = store::payload(resource, object);
    if payload.value.len() <= engine::VALUE_BYTES_MAX || owners == Owners::AsGiven {
        return payload;
    }
    take_managed_fields(object);
    store::payload(resource, object)
}

/// What a dry run of a create answers with: the object, which has no version.
fn unversioned(call: &Call<'_>, object: &Object) -> Bytes {
    let mut out = Vec::new();
    crate::schema::encode::encode(&call.resource.stored().message, object, &mut out);
    out.into()
}

/// PUT on an item or on a subresource that writes its parent (semantics §5.2).
pub async fn update(call: &mut Call<'_>, body: &[u8], endpoint: Endpoint) -> Result<Response, Status> {
    let meta_group = call.api.naming.meta_group();
    let options = WriteOptions::from_query(call.query, "UpdateOptions", &meta_group)?;
    refuse_list_transform(&call.output, call.resource)?;
    let object = read_update(call, body, &options)?;
    let key = store::key(call.resource, call.info.namespace_of(call.resource), &call.info.name);
    if call.resource.table.put_creates && endpoint == Endpoint::Main && call.store().get(&key)?.is_none() {
        call.api.authorize_create(call.proof).await?;
        let mut object = object;
        set_meta(&mut object, "resourceVersion", None);
        let stored = create_object(call, object, &options, Owners::Writer).await?;
        return respond_object(Renderer::for_call(call)?, StatusCode::CREATED, &stored);
    }
    let mut first = Some(object);
    let stored = update_loop(call, endpoint, options.dry_run, Owners::Writer, |call, stored| {
        let object = match first.take() {
            Some(object) => object,
            // Somebody wrote in between, which is rare: reading again costs less than a copy for every update.
            None => {
                let warned = call.warnings.len();
                let object = read_update(call, body, &options)?;
                call.warnings.truncate(warned);
                object
            }
        };
        let mut new = convert::to_stored(call.resource, object, call.api.naming)?;
        let old = stored.beside(call.resource, &mut new)?;
        Ok((old, new))
    })
    .await?;
    respond_object(Renderer::for_call(call)?, StatusCode::OK, &stored)
}

/// The object that the body of a PUT means, in the served version and defaulted.
fn read_update(call: &mut Call<'_>, body: &[u8], options: &WriteOptions) -> Result<Object, Status> {
    let mut object = decode_body(call, body, options)?;
    check_identity(call, &object)?;
    scope_to_request(call, &mut object)?;
    dedup_owners(call, &mut object);
    defaults::apply(&call.resource.table.message, &mut object, call.api.naming);
    Ok(object)
}

/// Runs the update loop: `make` turns the newest state into the wanted object, both in the stored version.
/// Returns the bytes that are stored afterwards (or would be, in a dry run).
pub async fn update_object<F>(
    call: &mut Call<'_>,
    endpoint: Endpoint,
    dry_run: bool,
    make: F,
) -> Result<Bytes, Status>
where
    F: FnMut(&mut Call<'_>, &Stored, &Object) -> Result<Object, Status>,
{
    // What the server does with a binding is nobody's; a scale speaks of its own managed fields.
    let owners = match endpoint {
        Endpoint::Binding | Endpoint::Scale => Owners::AsGiven,
        _ => Owners::Writer,
    };
    update_owned(call, endpoint, dry_run, owners, make).await
}

/// As [`update_object`], with a word on whose the changed fields become.
pub async fn update_owned<F>(
    call: &mut Call<'_>,
    endpoint: Endpoint,
    dry_run: bool,
    owners: Owners,
    mut make: F,
) -> Result<Bytes, Status>
where
    F: FnMut(&mut Call<'_>, &Stored, &Object) -> Result<Object, Status>,
{
    update_loop(call, endpoint, dry_run, owners, |call, stored| {
        // While the server comes up, what is stored may still lack defaults of this release, and parts of another
        // version are not parts of the one that is patched.
        let is_complete = call.api.lifecycle.stage() == Stage::Serving;
        let old = if is_complete && call.resource.is_stored_form() {
            stored.settled(call.resource)?
        } else {
            stored.object(call.resource)?
        };
        let new = make(call, stored, &old)?;
        Ok((old, new))
    })
    .await
}

/// The loop of all updates: `make` reads the newest state and makes the wanted object, both in the stored version.
async fn update_loop<F>(
    call: &mut Call<'_>,
    endpoint: Endpoint,
    dry_run: bool,
    owners: Owners,
    mut make: F,
) -> Result<Bytes, Status>
where
    F: FnMut(&mut Call<'_>, &Stored) -> Result<(Object, Object), Status>,
{
    let namespace = call.info.namespace_of(call.resource).to_owned();
    let key = store::key(call.resource, &namespace, &call.info.name);
    let warnings = call.warnings.len();
    admission::update(call)?;
    let mut attempts = Attempts::new();
    loop {
        let Some(stored) = call.store().get(&key)? else {
            return Err(Status::not_found(call.subject(&call.info.name)));
        };
        call.warnings.truncate(warnings);
        let (old, mut new) = make(call, &stored)?;
        check_version(call, &mut new, &old, &stored)?;
        validation::prepare(&call.resource.stored().table, &mut new, Some(&old));
        if owners == Owners::Writer {
            tracking(call, endpoint, &manager(call)).update(&old, &mut new)?;
        }
        // Kept until the write is over; what is handed out belongs to nobody, as at upstream.
        let _allocated = match endpoint {
            Endpoint::Main => call.api.allocations.begin(call.resource, &mut new, Some(&old))?,
            _ => None,
        };
        strategy::prepare_update(call.resource, endpoint, &mut new, &old);
        if endpoint != Endpoint::Main {
            // Defaults of what was written may follow from what is only now beside it again.
            defaults::apply(&call.resource.stored().message, &mut new, call.api.naming);
        }
        keep_times_of_no_change(&old, &mut new);
        let table = &call.resource.stored().table;
        let errors = validation::update_through(endpoint.subresource(), table, call.api.naming, &new, &old);
        if !errors.is_empty() {
            return Err(Status::invalid(call.subject_by_kind(&call.info.name), &errors));
        }
        confirm_no_escalation(call, Some(&old), &new).await?;
        let expected = Expected::Revision(stored.entry.revision());
        let payload = fitting_payload(call.resource, &mut new, owners);
        let deletes = completes_deletion(call.resource, &new, &old);
        if !deletes && is_same(&payload, &stored) {
            return Ok(stored.record.value);
        }
        if dry_run {
            return Ok(crate::rendition::stamped(&payload, stored.entry.revision()));
        }
        let change = if deletes { Change::Delete(Some(payload)) } else { Change::Put(payload) };
        match call.store().commit(key.clone(), expected, change).await {
            Ok(committed) => return Ok(store::read(committed.entry)?.record.value),
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(call.api.commit_failed(&error)),
        }
        attempts.again().await.map_err(|Exhausted| Status::stale(call.subject(&call.info.name)))?;
    }
}

fn tracking<'c>(call: &'c Call<'_>, endpoint: Endpoint, manager: &'c str) -> Tracking<'c> {
    Tracking { registry: &call.api.registry, resource: call.resource, endpoint, manager }
}

/// Compares the version and identity the writer saw with the stored ones (semantics §5.2 steps 3, 5, 6).
fn check_version(call: &Call<'_>, new: &mut Object, old: &Object, stored: &Stored) -> Result<(), Status> {
    let (uid, stored_uid) = (meta(new, "uid"), meta(old, "uid"));
    // Only the body of a PUT says which object it means; a patch that changes it is refused by validation (§20.1).
    if !uid.is_empty() && uid != stored_uid && call.info.verb != Verb::Patch {
        let key = String::from_utf8_lossy(&stored.record.key).into_owned();
        let cause = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {uid}, UID in object meta: {stored_uid}"
        );
        return Err(Status::conflict(call.subject(&call.info.name), &cause));
    }
    let current = stored.entry.revision();
    match meta(new, "resourceVersion") {
        "" | "0" if call.resource.table.unconditional_update || call.info.verb == Verb::Patch => {}
        "" | "0" => {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &Value::Int(0),
                "must be specified for an update",
            );
            return Err(Status::invalid(call.subject_by_kind(&call.info.name), &[error]));
        }
        text => match decimal(text) {
            Some(seen) if seen == current => {}
            Some(_) => return Err(Status::stale(call.subject(&call.info.name))),
            None => {
                let quoted = crate::field::go_quote(text);
                let message = format!("strconv.ParseUint: parsing {quoted}: invalid syntax");
                return Err(Status::new(Reason::Unknown, message));
            }
        },
    }
    set_meta(new, "resourceVersion", None);
    Ok(())
}

/// Whether this update takes away the last thing that kept a deleted object (semantics §5.2 step 10).
pub fn completes_deletion(resource: &Resource, new: &Object, old: &Object) -> bool {
    let grace = old.get("metadata").and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    let namespace_content = resource.table.behavior.spec_finalizers
        && crate::object::at(new, "spec.finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty());
    !meta(old, "deletionTimestamp").is_empty()
        && finalizers(new).is_empty()
        && grace.and_then(Value::as_i64).unwrap_or(0) == 0
        && !namespace_content
}

/// Whether the payload, stamped with the stored revision, is what is stored.
pub fn is_same(payload: &engine::Payload, stored: &Stored) -> bool {
    let value = &stored.record.value;
    let at = payload.stamp_at.unwrap_or(0) as usize;
    let digits = value.len().checked_sub(payload.value.len());
    let (Some(digits), Some(head)) = (digits, value.get(..at)) else { return false };
    digits > 0 && head == &payload.value[..at] && value.get(at + digits..) == payload.value.get(at..)
}

/// Decodes a body into the served version, checking that it is what the endpoint takes (semantics §5.1 steps 3, 4).
pub fn decode_body(call: &mut Call<'_>, body: &[u8], options: &WriteOptions) -> Result<Object, Status> {
    let table = &call.resource.table;
    let expected = crate::body::Expected {
        kind: &table.kind,
        api_version: &call.resource.api_version,
        message: &table.message,
    };
    let decoded = expected.decode(call, body)?;
    let version = &call.resource.version;
    call.judge_strict(decoded.strict, options.field_validation, |errors| {
        let kind = &table.kind;
        Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {errors}"
        ))
    })?;
    Ok(decoded.object)
}

/// Nobody grants what they do not hold: 403, or 404 when a binding's role is missing (semantics §14.2).
async fn confirm_no_escalation(call: &Call<'_>, old: Option<&Object>, new: &Object) -> Result<(), Status> {
    let asked = call.proof.attributes();
    if asked.group != call.api.authorizer.rbac().group() {
        return Ok(());
    }
    let old = old.cloned().map(Value::Object);
    let new = Value::Object(new.clone());
    let confirmed = policy::confirm_no_escalation(&call.api.authorizer, asked, old.as_ref(), &new).await;
    confirmed.map_err(|error| match error {
        Escalation::RoleNotFound { resource, group, name } => {
            // Authorization knows roles by their singular names; errors name the plural resource.
            let plural = format!("{resource}s");
            Status::not_found(Subject { group: &group, kind: &plural, name: &name })
        }
        Escalation::Forbidden(why) => {
            Status::forbidden(call.subject(new.str_at(&["metadata", "name"])), &why)
        }
    })
}

/// The body's name and namespace against the URL's (semantics §5.2 step 1).
pub fn check_identity(call: &Call<'_>, object: &Object) -> Result<(), Status> {
    let (name, wanted) = (meta(object, "name"), call.info.name.as_str());
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != wanted {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

/// Gives the object the request's namespace, or none (semantics §5.1 step 5).
pub fn scope_to_request(call: &Call<'_>, object: &mut Object) -> Result<(), Status> {
    if !call.resource.namespaced() {
        set_meta(object, "namespace", None);
        return Ok(());
    }
    let namespace = meta(object, "namespace");
    if namespace.is_empty() {
        set_meta(object, "namespace", Some(call.info.namespace.as_str().into()));
    } else if namespace != call.info.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Drops repeated owners, with a warning that names them (semantics §5.1 step 6).
pub fn dedup_owners(call: &mut Call<'_>, object: &mut Object) {
    let Some(owners) = metadata_mut(object).get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    let mut seen = hashbrown::HashSet::with_capacity(owners.len());
    let mut repeated: Vec<String> = Vec::new();
    owners.retain(|owner| {
        // Whole entries are compared, as upstream does; their text stands for them.
        let mut text = Vec::new();
        crate::json::write(owner, &mut text);
        let is_new = seen.insert(text);
        if !is_new {
            repeated.push(owner.str_at(&["uid"]).to_owned());
        }
        is_new
    });
    if !repeated.is_empty() {
        call.warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        ));
    }
}
