//! patch: JSON Patch, merge patch and strategic merge patch on items and their subresources.
//!
//! The patch is applied to the requested version of the object as JSON; the result is then treated like the body
//! of an update, so that a patch can do nothing that a PUT could not.

use super::Call;
use super::write::{dedup_owners, intent, respond_written, scope_to_request};
use crate::objects::apply::{put_managed_fields, take_managed_fields};
use crate::objects::patch::{Patch, PatchKind, Patched, restore, undecodable};
use crate::objects::representation::refuse_list_transform;
use crate::objects::strategy::Endpoint;
use crate::types::convert;
use crate::types::schema::conform::conform_changes;
use crate::types::schema::registry::{Registry, Resource};
use crate::types::schema::table::Message;
use crate::values::field::FieldError;
use crate::values::json::{Object, Value};
use crate::values::object::{meta, set_meta};
use crate::values::query::{FieldValidation, WriteOptions};
use crate::values::status::Status;
use crate::wire::body::{not_registered, package};
use crate::wire::negotiate::{Formats, content_type};
use crate::wire::response::Response;
use crate::writes::admission::Options;
use crate::writes::write::ownership::manager;
use crate::writes::write::{self, Current, Made, Wanted};

/// The kind of patch the request carries, or 415.
pub fn kind_of(
    resource: &Resource,
    formats: Formats,
    headers: &http::HeaderMap,
) -> Result<PatchKind, Status> {
    let kind = PatchKind::of_request(content_type(headers).unwrap_or_default(), formats.cbor);
    match kind {
        // A custom type does not say how its lists are merged strategically.
        Err(_) | Ok(PatchKind::Strategic) if resource.table.message.custom => {
            Err(Status::unsupported_media_type(&PatchKind::CUSTOM))
        }
        kind => kind,
    }
}

/// The options of a patch; `force` belongs to apply patches alone.
pub fn options(call: &Call<'_>) -> Result<WriteOptions, Status> {
    let meta_group = call.api.naming().meta_group();
    let given = call.query.optional_flag("force");
    let errors = given.map(|_| FieldError::forbidden("force", "may not be specified for non-apply patch"));
    WriteOptions::of_patch(call.query, &meta_group, errors)
}

/// PATCH on an item or on a subresource that writes its parent.
pub async fn patch(call: &mut Call<'_>, body: &[u8], endpoint: Endpoint) -> Result<Response, Status> {
    let kind = kind_of(call.resource, call.api.formats(), call.headers)?;
    if kind.is_apply() {
        return super::apply::apply(call, (kind, body), endpoint).await;
    }
    let options = options(call)?;
    call.record_patch(body);
    refuse_list_transform(&call.output, call.resource)?;
    let reading = Reading::new(kind, body, options.field_validation)?;
    let message = &call.resource.table.message;
    let manager = manager(call.query, call.headers);
    let intent = intent(call, endpoint, Options::Patch(&options), &manager);
    let mut source = Made::served(|call: &mut Call<'_>, current: Option<&mut Current>| {
        let Some(current) = current else { return Ok(Wanted::AsItIs) };
        let revision = current.revision().to_string();
        let live = current.live(call.api, call.resource)?;
        let mut given = convert::to_served(call.resource, live.clone(), call.api.naming())?;
        set_meta(&mut given, "resourceVersion", Some(revision.as_str().into()));
        let mut object = patched(call, &reading, message, given)?;
        check_identity(call, &object)?;
        // The patch did not make the write conditional unless it set another version than it was given.
        if meta(&object, "resourceVersion") == revision {
            set_meta(&mut object, "resourceVersion", None);
        }
        scope_to_request(call, &mut object)?;
        dedup_owners(call, &mut object);
        Ok(Wanted::Object(object))
    });
    let outcome = write::write(call, &intent, &mut source).await?;
    respond_written(call, outcome).await
}

/// A patch that was read once and may be applied to several states in turn.
pub struct Reading<'b> {
    kind: PatchKind,
    patch: Patch,
    body: &'b [u8],
    validation: FieldValidation,
}

impl<'b> Reading<'b> {
    /// Reads the body of a PATCH.
    pub fn new(kind: PatchKind, body: &'b [u8], validation: FieldValidation) -> Result<Self, Status> {
        let patch = Patch::parse(kind, body, validation != FieldValidation::Ignore)?;
        Ok(Reading { kind, patch, body, validation })
    }
}

/// Applies the patch to `current` and reads the result by its schema.
pub fn patched(
    call: &mut Call<'_>,
    Reading { kind, patch, body, validation }: &Reading<'_>,
    message: &Message,
    mut current: Object,
) -> Result<Object, Status> {
    // Managed fields are text in a tree. They are kept out of the patch's way, or taken apart if it wants them.
    let managed = take_managed_fields(&mut current);
    let whole = || {
        let mut whole = current.clone();
        put_managed_fields(&mut whole, readable(managed.clone()));
        whole
    };
    let concerns_managed = patch.touches_managed_fields();
    let given = if concerns_managed { whole() } else { current.clone() };
    let Patched { mut value, strict: mut found } = patch.clone().apply(Some(message), given.into())?;
    // The result is moved into its schema; in the rare case that it does not fit, it is made again to be shown.
    let refused = |error: &str| {
        let again = patch.clone().apply(Some(message), whole().into());
        again.map_or_else(
            |status| status,
            |mut again| {
                patch.sort_entered(&mut again.value);
                let restoring = restore::mismatch(message, &again.value);
                let error = restoring.as_deref().filter(|_| *kind == PatchKind::Strategic).unwrap_or(error);
                undecodable(*kind, body, &again.value, error)
            },
        )
    };
    if !message.custom {
        read_as_named(call.types.registry(), *kind, &mut value, &current).map_err(|error| refused(&error))?;
    }
    let conformed = conform_changes(message, value, &current).map_err(|error| refused(&error.to_string()))?;
    found.extend(conformed.strict);
    let mut object = conformed.object;
    if !found.is_empty() && *validation == FieldValidation::Strict {
        return Err(refused(&format!("strict decoding error: {}", found.join(", "))));
    }
    if !concerns_managed {
        put_managed_fields(&mut object, Some(managed).filter(|managed| !managed.is_null()));
    }
    call.judge_strict(found, *validation, Status::bad_request)?;
    Ok(object)
}

/// What a strategic merge makes is of the type that it was made for, whatever it names; what another patch makes is read as
/// what it names.
fn read_as_named(
    registry: &Registry,
    kind: PatchKind,
    value: &mut Value,
    current: &Object,
) -> Result<(), String> {
    let own = |name: &str| current.get(name).and_then(Value::as_str).unwrap_or_default();
    let (own_kind, own_version) = (own("kind"), own("apiVersion"));
    let Some(object) = value.as_object_mut() else { return Ok(()) };
    let named = |name: &str, own: &str| match object.get(name) {
        Some(Value::Null) | None => Some(own.to_owned()),
        Some(other) => other.as_str().map(|text| if text.is_empty() { own } else { text }.to_owned()),
    };
    // What is no text does not fit the schema.
    let (Some(kind_named), Some(version_named)) = (named("kind", own_kind), named("apiVersion", own_version))
    else {
        return Ok(());
    };
    if kind == PatchKind::Strategic {
        object.insert("apiVersion", own_version.into());
        object.insert("kind", own_kind.into());
        return Ok(());
    }
    if (&*kind_named, &*version_named) == (own_kind, own_version) {
        object.insert("kind", own_kind.into());
        return Ok(());
    }
    let (group, version) = version_named.split_once('/').unwrap_or(("", &version_named));
    match registry.by_kind(group, version, &kind_named) {
        Some(_) if kind_named == own_kind => Ok(()),
        Some(_) => Err(format!(
            "converting ({version}.{kind_named}) to ({}.{own_kind}): unknown conversion",
            package(own_version)
        )),
        None => Err(not_registered(&kind_named, &version_named)),
    }
}

/// Managed fields with their field sets as JSON; `None` for none.
fn readable(mut managed: Value) -> Option<Value> {
    for entry in managed.as_array_mut()? {
        let Some(fields) = entry.as_object_mut().and_then(|entry| entry.get_mut("fieldsV1")) else {
            continue;
        };
        if let Some(set) = fields.as_str().and_then(|text| crate::values::json::parse(text.as_bytes()).ok()) {
            *fields = set;
        }
    }
    Some(managed)
}

/// A patch changes neither kind nor name nor namespace.
fn check_identity(call: &Call<'_>, object: &Object) -> Result<(), Status> {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    if kind != call.resource.table.kind || api_version != call.resource.api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            call.resource.api_version
        )));
    }
    let name = meta(object, "name");
    if name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.info.name
        )));
    }
    if name != call.info.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.info.name
        )));
    }
    Ok(())
}
