//! Server-side apply: PATCH with a configuration, on items and on subresources that write their parent.
//!
//! ```text
//! body ─► configuration ─┬─ object exists: live in the request's version ─► apply::apply ─┬─► the write path
//!                        └─ no object:     nothing                       ─► apply::apply ─┘
//! ```
//!
//! The semantics of apply are in [`objects::apply`]; this module provides the body and the live
//! objects.

use std::borrow::Cow;

use super::Call;
use super::write::{
    as_new, check_identity, dedup_patched_owners, forget_revision, intent, respond_written, scope_to_request,
};
use crate::writes::plugin::Options;
use crate::writes::write::intent::OWNED_BY_SOURCE;
use crate::writes::write::{self, Current, FunctionSource, Presence, RequestedChange};
use objects::apply::{ApplyError, ConvertError, Reset, Versions, Writer, last_applied, parser};
use objects::codec::cbor;
use objects::known_types::TypeName;
use objects::patch::PatchKind;
use objects::representation::refuse_list_transform;
use objects::strategy::Endpoint;
use types::convert;
use types::options::decimal;
use types::schema::decode_form::zero_object;
use types::schema::table::Message;
use values::clock;
use values::field::FieldError;
use values::json::{self, Object, Value};
use values::object::{meta, set_meta};
use values::query::{FieldValidation, WriteOptions};
use values::status::{Status, StatusReason};
use values::yaml;
use wire::response::Response;

/// The undecoded body of a patch request.
#[derive(Clone, Copy)]
pub struct PatchBody<'b> {
    /// Kind of the patch, from the content type.
    pub kind: PatchKind,
    /// The bytes of the body.
    pub bytes: &'b [u8],
}

/// Applies the configuration in a body.
pub async fn apply(call: &mut Call<'_>, body: PatchBody<'_>, endpoint: Endpoint) -> Result<Response, Status> {
    let options = options(call)?;
    call.record_patch(body.bytes);
    refuse_list_transform(&call.output, call.resource)?;
    let api_version = call.resource.api_version.clone();
    let table = &call.resource.table;
    let config = configuration(body, TypeName::new(&table.kind, &api_version), &table.message)?;
    let mut intent = intent(call, endpoint, Options::Patch(&options), "");
    intent.leaves_out = OWNED_BY_SOURCE;
    if endpoint == Endpoint::Main {
        intent.presence = Presence::Either;
    }
    let mut source = FunctionSource::for_served(|call: &mut Call<'_>, current: Option<&mut Current>| {
        let Some(current) = current else {
            return create(call, &config, &options).map(RequestedChange::Object);
        };
        let revision = current.revision();
        let old = current.live(call.server(), call.resource)?;
        let live = if call.resource.is_stored_form() {
            Cow::Borrowed(old)
        } else {
            Cow::Owned(convert::to_served(call.resource, old.clone(), call.server().types.naming)?)
        };
        let mut object = merged(call, endpoint, &live, &config, &options)?;
        // The write has a precondition only if the resourceVersion in the configuration differs from the stored
        // resourceVersion.
        if decimal(meta(&object, "resourceVersion")) == Some(revision.get()) {
            set_meta(&mut object, "resourceVersion", None);
        }
        dedup_patched_owners(call, &mut object);
        Ok(RequestedChange::Object(object))
    });
    let outcome = write::write(call, &intent, &mut source).await?;
    respond_written(call, outcome).await
}

/// Returns the object that an apply creates.
fn create(
    call: &mut Call<'_>,
    config: &ApplyConfiguration,
    options: &WriteOptions,
) -> Result<Object, Status> {
    let nothing = zero_object(&call.resource.table.message);
    let mut object = merged(call, Endpoint::Main, &nothing, config, options)?;
    let uid = meta(&object, "uid");
    if !uid.is_empty() {
        let cause = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(call.subject(&call.info.name), &cause));
    }
    forget_revision(&mut object)?;
    as_new(call, &mut object)?;
    Ok(object)
}

/// Returns the options of an apply.
pub fn options(call: &Call<'_>) -> Result<WriteOptions, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let given = call.request.query.first("fieldManager").filter(|manager| !manager.is_empty());
    let errors = match given {
        Some(_) => None,
        None => Some(FieldError::required("fieldManager", "is required for apply patch")),
    };
    WriteOptions::of_patch(&call.request.query, &meta_group, errors)
}

/// The body of an apply request.
pub struct ApplyConfiguration {
    object: Object,
    /// Strict decoding error about duplicate keys.
    duplicates: Option<String>,
}

impl ApplyConfiguration {
    /// Returns the configuration as a tree, without managed fields.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Adds a warning about duplicate keys, or refuses them. The caller calls this function before it applies
    /// the configuration.
    fn check_duplicates(&self, call: &mut Call<'_>, options: &WriteOptions) -> Result<(), Status> {
        let Some(error) = &self.duplicates else { return Ok(()) };
        match options.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => call.warnings.extend(yaml::warnings(error).map(str::to_owned)),
            FieldValidation::Strict => {
                return Err(Status::bad_request(format!(
                    "error strict decoding YAML: {CONVERTING}: {error}"
                )));
            }
        }
        Ok(())
    }
}

/// Prefix of the reference server's error for a text that is not YAML.
const CONVERTING: &str = "error converting YAML to JSON";

/// Reads the body of an apply as an object of type `message`: YAML, which includes JSON, or CBOR.
pub fn configuration(
    body: PatchBody<'_>,
    expected: TypeName<'_>,
    message: &Message,
) -> Result<ApplyConfiguration, Status> {
    let (value, duplicates) = read(body, message)?;
    let not_a_map = |what: &str| {
        Err(Status::bad_request(match body.kind {
            PatchKind::ApplyCbor => format!(
                "error decoding patch: cbor: cannot unmarshal {what} into Go value of type {}",
                go::json::MAP
            ),
            _ => format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: {}",
                go::json::unfit(what, go::json::MAP)
            ),
        }))
    };
    let mut config = match value {
        Value::Object(config) => config,
        Value::Null => Object::new(),
        Value::Array(_) => return not_a_map("array"),
        Value::String(_) => return not_a_map("string"),
        Value::Bool(_) => return not_a_map("bool"),
        _ => return not_a_map("number"),
    };
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    if TypeName::new(text("kind"), text("apiVersion")) != expected {
        let given = text("apiVersion");
        // A malformed apiVersion matches no type.
        let (group, version, kind) = match given.split_once('/') {
            Some((_, rest)) if rest.contains('/') => ("", "", ""),
            Some((group, version)) => (group, version, text("kind")),
            None => ("", given, text("kind")),
        };
        return Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")));
    }
    if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
        match metadata.remove("managedFields") {
            None | Some(Value::Null) => {}
            Some(_) => return Err(Status::bad_request("metadata.managedFields must be nil")),
        }
    }
    Ok(ApplyConfiguration { object: config, duplicates })
}

/// Returns the tree of a body, and the strict decoding error about duplicate keys.
fn read(body: PatchBody<'_>, message: &Message) -> Result<(Value, Option<String>), Status> {
    let PatchBody { kind, bytes } = body;
    if kind == PatchKind::ApplyCbor {
        // In CBOR, a duplicate key is a decoding error.
        let value = cbor::parse(bytes)
            .map_err(|error| Status::bad_request(format!("error decoding patch: {error}")))?;
        return Ok((value, None));
    }
    // Most clients send JSON. The JSON parser is faster than the YAML parser. If the text is not valid JSON,
    // the YAML parser reads the text and reports the errors.
    if let Some(object) = parser::read(message, bytes) {
        return Ok((Value::Object(object), None));
    }
    if bytes.first() == Some(&b'{')
        && let Ok((value, duplicates)) = json::parse_reporting_duplicates(bytes)
        && duplicates.is_empty()
    {
        return Ok((value, None));
    }
    let mut document = yaml::parse(bytes)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {CONVERTING}: {error}")))?;
    let duplicates = document.strict_error();
    // Convert long numbers to doubles, because the reference server parses a configuration without a schema and does
    // the same.
    document.value.round_numbers();
    Ok((document.value, duplicates))
}

/// Applies the configuration to `live` and reads the result by its schema.
fn merged(
    call: &mut Call<'_>,
    endpoint: Endpoint,
    live: &Object,
    config: &ApplyConfiguration,
    options: &WriteOptions,
) -> Result<Object, Status> {
    let versions = Versions::for_resource(call.request.types().registry(), call.resource)
        .with(&call.request.origin.conversions);
    let reset = Reset::for_endpoint(call.resource, endpoint);
    let subresource = endpoint.subresource();
    let mut object =
        apply_to(call, &versions, subresource, &reset, ApplyInput { live, known: live, config }, options)?;
    check_identity(call, &object)?;
    scope_to_request(call, &mut object)?;
    Ok(object)
}

/// The objects that an apply reads.
#[derive(Clone, Copy)]
pub struct ApplyInput<'i> {
    /// The object as stored, in the version of the request.
    pub live: &'i Object,
    /// The part of `live` that is known to conform to its type.
    pub known: &'i Object,
    /// The configuration to apply.
    pub config: &'i ApplyConfiguration,
}

/// Applies a configuration to a live object of the given versions, for the manager of the request.
pub fn apply_to(
    call: &mut Call<'_>,
    versions: &Versions<'_>,
    subresource: &str,
    reset: &Reset,
    ApplyInput { live, known, config: configuration }: ApplyInput<'_>,
    options: &WriteOptions,
) -> Result<Object, Status> {
    let config = &configuration.object;
    let now = clock::now();
    let writer = Writer { manager: &options.field_manager, subresource, now: &now };
    let force = options.force.unwrap_or(false);
    let naming = call.server().types.naming;
    let is_migrating = options.field_manager == last_applied::MANAGER;
    let mut applied = objects::apply::apply(versions, &writer, reset, live, config, force);
    if let Err(ApplyError::Conflicts(conflicts)) = &applied
        && is_migrating
        && let Some(allowed) = last_applied::allowed(versions, naming, live)
    {
        applied = match conflicts.clone().without(&allowed) {
            Some(left) => Err(ApplyError::Conflicts(left)),
            None => objects::apply::apply(versions, &writer, reset, live, config, true),
        };
    }
    let own = || {
        let api_version = versions.own.api_version;
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let kind = config.get("kind").and_then(Value::as_str).unwrap_or_default();
        format!("{group}/{version}, Kind={kind}")
    };
    let place_of =
        |object: &Object| format!("({}/{}; {})", meta(object, "namespace"), meta(object, "name"), own());
    let place = || place_of(config);
    let failed = |what: &str| Status::new(StatusReason::Unknown, what);
    let mut applied = applied.map_err(|error| match error {
        ApplyError::Conflicts(conflicts) => conflicts.to_status(),
        ApplyError::Configuration(errors) => {
            failed(&format!("failed to create typed patch object {}: {errors}", place()))
        }
        ApplyError::Mistyped(errors) => {
            failed(&format!("failed to create typed live object {}: {errors}", place_of(live)))
        }
        ApplyError::Live(errors) => failed(&format!("failed to merge config: {errors}")),
    })?;
    configuration.check_duplicates(call, options)?;
    if is_migrating {
        last_applied::refresh(naming, &mut applied.object, config);
    }
    applied.conformed(versions.message(), known).map_err(|error| {
        failed(&match error {
            ConvertError::Object(error) => {
                format!("failed to convert new typed object {} to object: {error}", place())
            }
            ConvertError::Version(error) => format!(
                "failed to convert new object {} to proper version: unable to convert unstructured object to {}: {error}",
                place(),
                own()
            ),
        })
    })
}
