//! The verbs create and update, and the common code of the verbs that write: the intent of a request, and the
//! checks of the request body before the write path.

use http::StatusCode;

use super::Call;
use crate::writes::plugin::{Operation, Options, WriteAttributes};
use crate::writes::write::intent::seen_revision;
use crate::writes::write::ownership::manager;
use crate::writes::write::{
    self, Current, FunctionSource, Presence, RequestedChange, WriteIntent, WriteOutcome,
};
use objects::representation::answer::respond_object;
use objects::representation::refuse_list_transform;
use objects::strategy::owners::{AFTER_ADMISSION, without_repeated_owners};
use objects::strategy::{self, Endpoint};
use values::json::Object;
use values::object::{meta, set_meta};
use values::query::{FieldValidation, WriteOptions};
use values::status::Status;
use wire::response::Response;

/// Creates an object in a collection.
pub async fn create(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let options = WriteOptions::from_query(&call.request.query, "CreateOptions", &meta_group)?;
    refuse_list_transform(&call.output, call.resource)?;
    let first = read_new(call, body, &options)?;
    let manager = manager(&call.request.query, call.request.headers());
    let mut intent = intent(call, Endpoint::Main, Options::Create(&options), &manager);
    let name = meta(&first, "name").to_owned();
    (intent.presence, intent.write.name) = (Presence::New, &name);
    let mut first = Some(first);
    let mut source = FunctionSource::for_served(|call: &mut Call<'_>, _: Option<&mut Current>| {
        read_again(call, first.take(), |call| read_new(call, body, &options)).map(RequestedChange::Object)
    });
    let outcome = write::write(call, &intent, &mut source).await?;
    respond_written(call, outcome).await
}

/// Replaces an item, or updates a subresource that writes its parent.
pub async fn update(call: &mut Call<'_>, body: &[u8], endpoint: Endpoint) -> Result<Response, Status> {
    let may_create = call.resource.table.put_creates && endpoint == Endpoint::Main;
    replace(call, body, endpoint, may_create).await
}

/// Replaces an item with its earlier state, or creates the item again.
pub async fn restore(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    replace(call, body, Endpoint::Main, true).await
}

/// Replaces an item. If the item does not exist and `may_create` is set, creates it.
async fn replace(
    call: &mut Call<'_>,
    body: &[u8],
    endpoint: Endpoint,
    may_create: bool,
) -> Result<Response, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let options = WriteOptions::from_query(&call.request.query, "UpdateOptions", &meta_group)?;
    refuse_list_transform(&call.output, call.resource)?;
    let manager = manager(&call.request.query, call.request.headers());
    let mut intent = intent(call, endpoint, Options::Update(&options), &manager);
    if may_create {
        intent.presence = Presence::Either;
    }
    let (server, resource) = (call.server(), call.resource);
    let mut is_read = false;
    let mut source = FunctionSource::for_served(|call: &mut Call<'_>, current: Option<&mut Current>| {
        is_read = true;
        let is_new = current.is_none();
        let known = match current {
            Some(current) => current.live_for_sharing(server, resource)?,
            None => None,
        };
        let mut object = read_update(call, body, &options, known)?;
        if is_new {
            without_uid(&intent, &object)?;
            forget_revision(&mut object)?;
            as_new(call, &mut object)?;
        }
        Ok(RequestedChange::Object(object))
    });
    let outcome = write::write(call, &intent, &mut source).await;
    if outcome.is_err() && !is_read {
        // The body was not read yet. The error of an unreadable body takes precedence over the other error.
        let object = read_update(call, body, &options, None)?;
        let is_missing = outcome.as_ref().is_err_and(|refused| refused.code == StatusCode::NOT_FOUND);
        // Kubernetes looks for the object before it compares the uid, unless a PUT may create objects of this type. The
        // same order applies to the subresources of the type.
        if is_missing && call.resource.table.put_creates {
            without_uid(&intent, &object)?;
        }
    }
    respond_written(call, outcome?).await
}

/// Removes the resourceVersion from an object that a PUT or an apply creates. The resourceVersion is not a
/// precondition, but must be a number.
///
/// # Errors
/// 500 if the resourceVersion is not a number.
pub fn forget_revision(object: &mut Object) -> Result<(), Status> {
    if !meta(object, "resourceVersion").is_empty() {
        seen_revision(meta(object, "resourceVersion"))?;
    }
    set_meta(object, "resourceVersion", None);
    Ok(())
}

/// Refuses a body with a uid if no object is stored: a uid is a precondition of a PUT that may create.
///
/// # Errors
/// 409 if the body has a uid.
fn without_uid(intent: &WriteIntent<'_>, object: &Object) -> Result<(), Status> {
    match meta(object, "uid") {
        "" => Ok(()),
        uid => Err(intent.other_uid(uid, "")),
    }
}

/// Returns the intent of a request that updates the object in its path.
pub fn intent<'w>(
    call: &Call<'w>,
    endpoint: Endpoint,
    options: Options<'w>,
    manager: &'w str,
) -> WriteIntent<'w> {
    let operation = match options {
        Options::None => Operation::Connect,
        Options::Create(_) => Operation::Create,
        Options::Update(_) | Options::Patch(_) => Operation::Update,
        Options::Delete(_) => Operation::Delete,
    };
    WriteIntent {
        origin: &call.request.origin,
        store: call.store(),
        permission: Some(call.proof.attributes()),
        write: WriteAttributes {
            user: call.proof.user(),
            operation,
            options,
            resource: call.resource,
            namespace: call.info.namespace_of(call.resource),
            name: &call.info.name,
        },
        endpoint,
        is_of_collection: false,
        presence: Presence::Existing,
        seen: None,
        manager,
        may_be_behind: call.writes_from_copy(),
        leaves_out: &[],
    }
}

/// Returns the response with the object that was written. The code is 201 for a new object.
pub async fn respond_written(call: &Call<'_>, outcome: WriteOutcome) -> Result<Response, Status> {
    let code = if matches!(outcome, WriteOutcome::Created(_)) { StatusCode::CREATED } else { StatusCode::OK };
    let written = outcome.written().ok_or_else(|| Status::not_found(call.subject(&call.info.name)))?;
    respond_object(call.renderer()?, code, &written.value).await
}

/// Removes system metadata from a new object, and sets the namespace of the object.
///
/// # Errors
/// The object has another namespace than the request.
pub fn as_new(call: &mut Call<'_>, object: &mut Object) -> Result<(), Status> {
    strategy::wipe_system_metadata(object);
    scope_to_request(call, object)?;
    dedup_owners(call, object);
    Ok(())
}

/// Returns the decoded object in the first round of a write. A later round decodes the body again: later rounds
/// are rare, and a copy of the object for every write would cost more. The warnings were already given in the
/// first round.
fn read_again(
    call: &mut Call<'_>,
    first: Option<Object>,
    read: impl FnOnce(&mut Call<'_>) -> Result<Object, Status>,
) -> Result<Object, Status> {
    if let Some(object) = first {
        return Ok(object);
    }
    let warned = call.warnings.len();
    let object = read(call)?;
    call.warnings.truncate(warned);
    Ok(object)
}

/// Decodes the body of a POST in the served version.
fn read_new(call: &mut Call<'_>, body: &[u8], options: &WriteOptions) -> Result<Object, Status> {
    let mut object = decode_body(call, body, options)?;
    as_new(call, &mut object)?;
    Ok(object)
}

/// Decodes the body of a PUT in the served version; the object is probably a changed copy of `known`.
fn read_update(
    call: &mut Call<'_>,
    body: &[u8],
    options: &WriteOptions,
    known: Option<&Object>,
) -> Result<Object, Status> {
    let mut object = decode_copy(call, body, options, known)?;
    check_identity(call, &object)?;
    scope_to_request(call, &mut object)?;
    dedup_owners(call, &mut object);
    Ok(object)
}

/// Decodes a body in the served version, and checks that it has the kind of the endpoint.
pub fn decode_body(call: &mut Call<'_>, body: &[u8], options: &WriteOptions) -> Result<Object, Status> {
    decode_copy(call, body, options, None)
}

/// Decodes a body that is probably a changed copy of `known`, the stored object.
fn decode_copy(
    call: &mut Call<'_>,
    body: &[u8],
    options: &WriteOptions,
    known: Option<&Object>,
) -> Result<Object, Status> {
    let table = &call.resource.table;
    let expected = objects::body::Expected {
        kind: &table.kind,
        api_version: &call.resource.api_version,
        message: &table.message,
        older: &[],
        known,
        is_strict: options.field_validation != FieldValidation::Ignore,
    };
    let input = call.server().types.formats.input(call.request.headers())?;
    let mut decoded = expected.decode(input, call.request.types().registry(), body);
    let strict = match &mut decoded {
        Ok(decoded) => std::mem::take(&mut decoded.strict),
        Err(_) => expected.strict_as_named(input, call.request.types().registry(), body),
    };
    let version = &call.resource.version;
    call.handle_strict_findings(strict, options.field_validation, |errors| {
        let kind = &table.kind;
        Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {errors}"
        ))
    })?;
    let decoded = decoded?;
    call.record_request(&decoded.object, body);
    Ok(decoded.object)
}

/// Checks the body's name and namespace against the URL.
pub fn check_identity(call: &Call<'_>, object: &Object) -> Result<(), Status> {
    let (name, expected) = (meta(object, "name"), call.info.name.as_str());
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({expected} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != expected {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({expected})"
        )));
    }
    Ok(())
}

/// Sets the namespace of the object to the namespace of the request. Removes the namespace from a
/// cluster-scoped object.
pub fn scope_to_request(call: &Call<'_>, object: &mut Object) -> Result<(), Status> {
    strategy::scope_to(call.resource, &call.info.namespace, object)
}

/// Removes repeated owner references from a body, and adds a warning that names the repeated references.
pub fn dedup_owners(call: &mut Call<'_>, object: &mut Object) {
    call.warnings.extend(without_repeated_owners(object, ""));
}

/// Removes repeated owner references from a patched object. Kubernetes removes these references after the admission
/// plugins.
pub fn dedup_patched_owners(call: &mut Call<'_>, object: &mut Object) {
    call.warnings.extend(without_repeated_owners(object, AFTER_ADMISSION));
}
