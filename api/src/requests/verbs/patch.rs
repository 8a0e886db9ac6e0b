//! The verb patch: JSON Patch, merge patch and strategic merge patch on items and their subresources.
//!
//! The patch is applied to the requested version of the object as JSON. The result is then handled like the
//! body of an update, so that a patch cannot make a change that a PUT cannot make.

use std::sync::Arc;

use super::Call;
use super::apply::PatchBody;
use super::write::{check_identity, dedup_patched_owners, intent, respond_written, scope_to_request};
use crate::writes::plugin::Options;
use crate::writes::write::ownership::manager;
use crate::writes::write::{self, Current, FunctionSource, RequestedChange};
use objects::apply::{put_managed_fields, take_managed_fields};
use objects::known_types::{TypeName, is_known, not_registered, other_form, unconvertible, unreadable_as};
use objects::negotiate::{Formats, content_type};
use objects::patch::restore::restore;
use objects::patch::{Patch, PatchKind, Patched, undecodable};
use objects::representation::refuse_list_transform;
use objects::strategy::Endpoint;
use types::convert::{self, ingress};
use types::schema::conform::{conform, conform_changes, conforms_in_place};
use types::schema::decoded::Decoded;
use types::schema::registry::{Registry, Resource};
use types::schema::table::Message;
use types::schema::unreadable_annotation;
use values::field::FieldError;
use values::json::{Object, Value};
use values::object::{meta, set_meta};
use values::query::{FieldValidation, WriteOptions};
use values::status::{Status, StatusReason, Subject};
use values::type_meta::untyped;
use wire::response::Response;

/// Returns the kind of patch in the request, or 415.
pub fn kind_of(
    resource: &Resource,
    formats: Formats,
    headers: &http::HeaderMap,
) -> Result<PatchKind, Status> {
    let kind = PatchKind::of_request(content_type(headers).unwrap_or_default(), formats.cbor);
    match kind {
        // A custom type does not define how its lists are merged strategically.
        Err(_) | Ok(PatchKind::Strategic) if resource.table.message.custom => {
            Err(Status::unsupported_media_type(&PatchKind::CUSTOM))
        }
        kind => kind,
    }
}

/// Returns the options of a patch; `force` is only for apply patches.
pub fn options(call: &Call<'_>) -> Result<WriteOptions, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let given = call.request.query.optional_flag("force");
    let errors = given.map(|_| FieldError::forbidden("force", "may not be specified for non-apply patch"));
    WriteOptions::of_patch(&call.request.query, &meta_group, errors)
}

/// Patches an item, or a subresource that writes its parent.
pub async fn patch(call: &mut Call<'_>, body: &[u8], endpoint: Endpoint) -> Result<Response, Status> {
    let kind = kind_of(call.resource, call.server().types.formats, call.request.headers())?;
    if kind.is_apply() {
        return super::apply::apply(call, PatchBody { kind, bytes: body }, endpoint).await;
    }
    let options = options(call)?;
    call.record_patch(body);
    refuse_list_transform(&call.output, call.resource)?;
    let mut reading = Reading::new(kind, body, options.field_validation);
    let message = &call.resource.table.message;
    let manager = manager(&call.request.query, call.request.headers());
    let intent = intent(call, endpoint, Options::Patch(&options), &manager);
    let mut source = FunctionSource::for_served(|call: &mut Call<'_>, current: Option<&mut Current>| {
        let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
        let revision = current.revision().to_string();
        let live = current.live(call.server(), call.resource)?;
        let mut given = convert::to_served(call.resource, live.clone(), call.server().types.naming)?;
        set_meta(&mut given, "resourceVersion", Some(revision.as_str().into()));
        let mut object = patched(call, &mut reading, message, given)?;
        check_type_and_name(call, &object)?;
        // The patch makes the write conditional only if it sets a different resourceVersion.
        if meta(&object, "resourceVersion") == revision {
            set_meta(&mut object, "resourceVersion", None);
        }
        scope_to_request(call, &mut object)?;
        dedup_patched_owners(call, &mut object);
        Ok(RequestedChange::Object(object))
    });
    let outcome = write::write(call, &intent, &mut source).await?;
    respond_written(call, outcome).await
}

/// The body of a PATCH. The write path may apply the patch again if the stored object changes. The body is
/// parsed when the object has been read, because a missing object is reported before an invalid body.
pub struct Reading<'b> {
    kind: PatchKind,
    body: &'b [u8],
    validation: FieldValidation,
    patch: Option<Patch>,
}

impl<'b> Reading<'b> {
    /// Creates a body that is not parsed yet.
    pub fn new(kind: PatchKind, body: &'b [u8], validation: FieldValidation) -> Self {
        Reading { kind, body, validation, patch: None }
    }

    /// Returns the parsed patch.
    fn patch(&mut self) -> Result<&Patch, Status> {
        match self.patch {
            Some(ref patch) => Ok(patch),
            None => {
                let is_reported = self.validation != FieldValidation::Ignore;
                Ok(self.patch.insert(Patch::parse(self.kind, self.body, is_reported)?))
            }
        }
    }
}

/// Applies the patch to `current` and reads the result by its schema.
pub fn patched(
    call: &mut Call<'_>,
    reading: &mut Reading<'_>,
    message: &Message,
    mut current: Object,
) -> Result<Object, Status> {
    let (kind, validation) = (reading.kind, reading.validation);
    let patch = reading.patch()?;
    // The tree of an object contains its managed fields as text. A patch that does not concern the managed
    // fields is applied to the tree without these fields. For other patches, the text is expanded to JSON first.
    let managed = take_managed_fields(&mut current);
    let whole = || {
        let mut whole = current.clone();
        put_managed_fields(&mut whole, readable(managed.clone()));
        whole
    };
    let concerns_managed = patch.touches_managed_fields();
    let given = || Value::from(if concerns_managed { whole() } else { current.clone() });
    // Decoding consumes the result. In the rare case that the result does not conform to the schema, it is
    // computed again for the error message.
    let refused = |error: &str| match patch.error_document(message, whole().into()) {
        Ok(shown) => undecodable(shown, error),
        Err(status) => status,
    };
    let Patched { value, strict: mut found } = patch.clone().apply(Some(message), given())?;
    // The result of a strategic merge has the type of the endpoint, regardless of the type that the result states.
    if kind != PatchKind::Strategic
        && let Some(why) = untyped(&value)
    {
        return Err(refused(&why));
    }
    if message.custom && is_without_kind(&value) {
        return match patch.error_document(message, whole().into()) {
            Ok(shown) => Err(refused(&format!("Object 'Kind' is missing in '{shown}'"))),
            Err(status) => Err(status),
        };
    }
    let decoded = read_result(call.request.types().registry(), call.resource, kind, message, value, &current);
    let Decoded { mut object, strict } = decoded.map_err(|error| refused(&error))?;
    if let Some(why) = unreadable_annotation(message, &object) {
        // After a strategic merge, the reference server reports this error only when it converts the decoded result, so
        // the reason of the error differs.
        return Err(if kind == PatchKind::Strategic {
            Status::new(StatusReason::Unknown, why)
        } else {
            refused(&why)
        });
    }
    found.extend(strict);
    if !found.is_empty() && validation == FieldValidation::Strict {
        return Err(refused(&format!("strict decoding error: {}", found.join(", "))));
    }
    if !concerns_managed {
        put_managed_fields(&mut object, Some(managed).filter(|managed| !managed.is_null()));
    }
    call.handle_strict_findings(found, validation, Status::bad_request)?;
    Ok(object)
}

/// Reads the result of a patch by the schema of the object. The result of a strategic merge is copied field
/// by field, and its unknown fields are reported in alphabetical order.
fn read_result(
    registry: &Registry,
    resource: &Resource,
    kind: PatchKind,
    message: &Message,
    mut value: Value,
    current: &Object,
) -> Result<Decoded, String> {
    let named =
        if message.custom { NamedForm::Own } else { read_as_named(registry, kind, &mut value, current)? };
    match named {
        NamedForm::Version(other) if std::ptr::eq(message, &*resource.table.message) => {
            return read_version(registry, &other, resource, value);
        }
        NamedForm::OlderIngress => {
            let mut found = Vec::new();
            if let Value::Object(ingress) = &mut value {
                ingress::to_v1(ingress, &mut found);
            }
            let decoded = conform(message, value).map_err(|error| error.to_string())?;
            return Ok(ingress::with_findings(decoded, found));
        }
        NamedForm::Version(_) | NamedForm::Own => {}
    }
    if kind != PatchKind::Strategic {
        return conform_changes(message, value, current).map_err(|error| error.to_string());
    }
    if let Value::Object(object) = &mut value
        && conforms_in_place(message, object, current)
    {
        return Ok(Decoded { object: std::mem::take(object), strict: Vec::new() });
    }
    restore(message, &mut value)?;
    let mut decoded = conform(message, value).map_err(|error| error.to_string())?;
    decoded.strict.sort_unstable();
    Ok(decoded)
}

/// The schema for the kind and version that a patched object states.
enum NamedForm {
    /// The schema of the endpoint's version.
    Own,
    /// The schema of another served version.
    Version(Arc<Resource>),
    /// The schema of ingresses before `v1`.
    OlderIngress,
}

/// Reads an object in the version of `other` and converts it to the version of `own`.
fn read_version(
    registry: &Registry,
    other: &Resource,
    own: &Resource,
    value: Value,
) -> Result<Decoded, String> {
    let Decoded { object, strict } =
        conform(&other.table.message, value).map_err(|error| error.to_string())?;
    let naming = registry.naming();
    let stored = convert::to_stored(other, object, naming).map_err(Status::into_message)?;
    let object = convert::to_served(own, stored, naming).map_err(Status::into_message)?;
    Ok(Decoded { object, strict })
}

/// Returns whether the result of a patch of a custom object states no kind. Such a result cannot be read.
fn is_without_kind(value: &Value) -> bool {
    value.as_object().is_some_and(|object| {
        object.get("kind").is_none_or(|kind| kind.is_null() || kind.as_str() == Some(""))
    })
}

/// Returns the schema for the result of a patch. The result of a strategic merge is read as the type of the
/// endpoint; the result of another patch is read as the type that the result states.
fn read_as_named(
    registry: &Registry,
    kind: PatchKind,
    value: &mut Value,
    current: &Object,
) -> Result<NamedForm, String> {
    let own = |name: &str| current.get(name).and_then(Value::as_str).unwrap_or_default();
    let (own_kind, own_version) = (own("kind"), own("apiVersion"));
    let Some(object) = value.as_object_mut() else { return Ok(NamedForm::Own) };
    let named = |name: &str, own: &str| match object.get(name) {
        Some(Value::Null) | None => Some(own.to_owned()),
        Some(other) => other.as_str().map(|text| if text.is_empty() { own } else { text }.to_owned()),
    };
    // A value that is not a string does not conform to the schema.
    let (Some(kind_named), Some(version_named)) = (named("kind", own_kind), named("apiVersion", own_version))
    else {
        return Ok(NamedForm::Own);
    };
    if kind == PatchKind::Strategic {
        object.insert("apiVersion", own_version.into());
        object.insert("kind", own_kind.into());
        return Ok(NamedForm::Own);
    }
    if (&*kind_named, &*version_named) == (own_kind, own_version) {
        object.insert("kind", own_kind.into());
        return Ok(NamedForm::Own);
    }
    let given = TypeName::new(&kind_named, &version_named);
    let own = TypeName::new(own_kind, own_version);
    match is_known(registry, given, own_version) {
        true if kind_named == own_kind => {
            let form = form_of(registry, given, own)?;
            object.insert("kind", own_kind.into());
            if !matches!(form, NamedForm::Version(_)) {
                object.insert("apiVersion", own_version.into());
            }
            Ok(form)
        }
        true => Err(unreadable_as(registry, std::mem::take(value), given, own)),
        false => Err(not_registered(given, own_version)),
    }
}

/// Returns the schema of a kind, if this server has a schema for the stated version.
fn form_of(registry: &Registry, given: TypeName<'_>, own: TypeName<'_>) -> Result<NamedForm, String> {
    let (group, version) = given.api_version.split_once('/').unwrap_or(("", given.api_version));
    if ingress::is_older(given.kind, group, version) {
        return Ok(NamedForm::OlderIngress);
    }
    let Some((served, own_resource)) = other_form(registry, given, own.api_version) else {
        return Ok(NamedForm::Own);
    };
    let stored = |resource: &Resource| {
        resource.storage.as_ref().map_or(&*resource.api_version, |storage| &*storage.api_version).to_owned()
    };
    if stored(served) != stored(own_resource) {
        return Err(unconvertible(given, own));
    }
    Ok(NamedForm::Version(Arc::clone(served)))
}

/// Returns managed fields with their field sets as JSON; `None` if there are no managed fields.
fn readable(mut managed: Value) -> Option<Value> {
    for entry in managed.as_array_mut()? {
        let Some(fields) = entry.as_object_mut().and_then(|entry| entry.get_mut("fieldsV1")) else {
            continue;
        };
        if let Some(set) = fields.as_str().and_then(|text| values::json::parse(text.as_bytes()).ok()) {
            *fields = set;
        }
    }
    Some(managed)
}

/// Checks that a patch changes neither kind nor name nor namespace.
fn check_type_and_name(call: &Call<'_>, object: &Object) -> Result<(), Status> {
    let resource = call.resource;
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (kind, api_version) = (text("kind"), text("apiVersion"));
    let is_same = kind == resource.table.kind && api_version == resource.api_version;
    if !is_same && !resource.table.message.custom {
        return Err(Status::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({})",
            resource.api_version
        )));
    }
    check_identity(call, object)?;
    if is_same {
        return Ok(());
    }
    // The reference server accepts any type in a custom object until it validates the object, so this error is
    // a 422.
    let expected =
        [("kind", kind, &*resource.table.kind), ("apiVersion", api_version, &*resource.api_version)];
    let errors: Vec<FieldError> = expected
        .into_iter()
        .filter(|(_, given, expected)| given != expected)
        .map(|(path, given, expected)| {
            FieldError::invalid(path, &given.into(), format!("must be {expected}"))
        })
        .collect();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Err(Status::invalid(Subject { group, kind, name: meta(object, "name") }, &errors))
}
