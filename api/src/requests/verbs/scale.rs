//! `/scale`: the replica count of a scalable object, in the schema that autoscalers use for all types.

use engine::Revision;
use std::borrow::Cow;

use http::StatusCode;

use super::Call;
use super::apply::{ApplyInput, PatchBody};
use super::patch::{Reading, kind_of, options as patch_options, patched};
use super::write::{check_identity, intent, scope_to_request};
use crate::writes::plugin::Options;
use crate::writes::write::intent::{OWNED_BY_SOURCE, precondition_failed};
use crate::writes::write::ownership::manager;
use crate::writes::write::{Current, ObjectForm, ObjectSource, RequestedChange, WriteIntent};
use objects::apply::scale::{Replicas, to_parent, to_scale};
use objects::apply::{Reset, Versions, Writer, put_managed_fields, take_managed_fields, updated};
use objects::body::Expected;
use objects::custom;
use objects::custom::scale::AccessError;
use objects::known_types::TypeName;
use objects::negotiate::Transform;
use objects::representation::{Renderer, refuse_list_transform};
use objects::store;
use objects::strategy::Endpoint;
use objects::validation;
use types::schema::table::{Message, ScalePaths, SubresourceTable};
use types::selector::label::LabelSelector;
use values::field::{FieldError, go_quote};
use values::json::{Object, Value};
use values::object::{at, meta, set_meta};
use values::query::WriteOptions;
use values::status::{Status, StatusReason, Subject};
use wire::response::Response;

/// Subresource under which managed fields of a scale are recorded.
const SUBRESOURCE: &str = "scale";

/// Value of `spec.replicas` in the scale of a custom object that does not set the replica count. A client
/// cannot set this value.
const NOT_SET: i64 = i32::MIN as i64;

/// Builds the Scale object that the subresource returns for an object.
struct View<'t> {
    message: &'t Message,
    api_version: String,
    kind: &'t str,
    /// Paths of the values in objects of a custom type.
    paths: Option<&'t ScalePaths>,
}

/// The values in a scale.
struct Parts {
    /// Desired replicas; `None` if a custom object does not set them.
    desired: Option<i64>,
    actual: i64,
    selector: Option<String>,
}

impl<'t> View<'t> {
    fn new(call: &Call<'_>, table: &'t SubresourceTable) -> Self {
        let api_version =
            call.server().types.naming.api_version(&table.group, table.group_suffixed, &table.version);
        View { message: &table.message, api_version, kind: &table.kind, paths: table.scale.as_ref() }
    }

    /// Returns the path of the replica count in the parent object, for the managed fields of the parent.
    fn replicas(&self) -> Replicas<'t> {
        self.paths.map_or_else(Replicas::builtin, |paths| Replicas::at(custom::scale::steps(&paths.spec)))
    }

    /// Reads the values from `parent`; fails with 500 if a value has the wrong type.
    fn parts(&self, parent: &Object) -> Result<Parts, Status> {
        let Some(paths) = self.paths else {
            let count = |path| at(parent, path).and_then(Value::as_i64).unwrap_or(0);
            return Ok(Parts {
                desired: Some(count("spec.replicas")),
                actual: count("status.replicas"),
                selector: selector_text(parent),
            });
        };
        let failed = |error: AccessError| Status::new(StatusReason::Unknown, error.to_string());
        let selector = match &paths.selector {
            Some(path) => custom::scale::text(parent, path).map_err(failed)?.filter(|text| !text.is_empty()),
            None => None,
        };
        Ok(Parts {
            desired: custom::scale::count(parent, &paths.spec).map_err(failed)?,
            actual: custom::scale::count(parent, &paths.status).map_err(failed)?.unwrap_or(0),
            selector: selector.map(str::to_owned),
        })
    }

    /// Builds the Scale of `parent` at `revision`. Fails if a custom object has no desired replicas.
    fn build_scale(&self, parent: &Object, revision: Revision) -> Result<Object, Status> {
        let parts = self.parts(parent)?;
        match (parts.desired, self.paths) {
            (None, Some(paths)) => {
                let path = go_quote(&paths.spec);
                Err(Status::internal(format!("the spec replicas field {path} does not exist")))
            }
            _ => Ok(self.scale_from_parts(parent, revision, parts)),
        }
    }

    /// Builds the Scale of `parent` from its values.
    fn scale_from_parts(&self, parent: &Object, revision: Revision, parts: Parts) -> Object {
        let mut scale = Object::new();
        scale.push("kind", self.kind.into());
        scale.push("apiVersion", self.api_version.as_str().into());
        let revision = revision.to_string();
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            let value = if name == "resourceVersion" { &revision } else { meta(parent, name) };
            if !value.is_empty() {
                set_meta(&mut scale, name, Some(value.into()));
            }
        }
        // Omit a zero, so that the object equals an object that was decoded from JSON, where zeros are
        // omitted.
        let spec = scale.object_entry("spec");
        let replicas = parts.desired.unwrap_or(NOT_SET);
        if replicas != 0 {
            spec.insert("replicas", Value::Int(replicas));
        }
        let status = scale.object_entry("status");
        status.insert("replicas", Value::Int(parts.actual));
        if let Some(selector) = parts.selector {
            status.insert("selector", selector.into());
        }
        scale
    }

    /// Assigns the fields that differ between `live` and `new` to the manager of the request.
    fn track(&self, call: &Call<'_>, live: &Object, new: &mut Object) {
        let versions = Versions::of_body(call.request.types().registry(), &self.api_version, self.message);
        let (manager, now) = (manager(&call.request.query, call.request.headers()), values::clock::now());
        let writer = Writer { manager: &manager, subresource: SUBRESOURCE, now: &now };
        updated(&versions, &writer, &Reset::none(), live, new);
    }

    fn respond(&self, call: &Call<'_>, scale: &Object) -> Result<Response, Status> {
        if call.output.transform == Transform::Table {
            let Call { resource, output, request, .. } = call;
            return Renderer::respond_foreign_table(resource, output, &request.query, self.message, scale);
        }
        Renderer::respond_foreign(&call.output, StatusCode::OK, self.message, scale)
    }
}

/// Returns the parent's selector as text. The selector is a label selector object, or the plain map of a
/// replication controller.
fn selector_text(parent: &Object) -> Option<String> {
    let selector = at(parent, "spec.selector")?.as_object()?;
    if selector.contains("matchLabels") || selector.contains("matchExpressions") {
        return LabelSelector::from_object(at(parent, "spec.selector"))
            .ok()
            .map(|selector| selector.to_string());
    }
    let mut pairs: Vec<String> = selector
        .iter()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.sort_unstable();
    Some(pairs.join(","))
}

/// Returns the scale of an object.
pub async fn get(call: &mut Call<'_>, table: &SubresourceTable) -> Result<Response, Status> {
    store::check_key_name(&call.info.name)?;
    let key = store::key(call.resource, call.info.namespace_of(call.resource), &call.info.name);
    let Some(stored) = call.stored(&key).await? else {
        return Err(Status::not_found(call.subject(&call.info.name)));
    };
    let view = View::new(call, table);
    let scale = view.build_scale(&stored.object(call.resource)?, stored.entry.revision())?;
    view.respond(call, &scale)
}

/// Updates an object through its scale. The resourceVersion and uid of the scale, if given, are preconditions
/// on the parent.
pub async fn update(call: &mut Call<'_>, table: &SubresourceTable, body: &[u8]) -> Result<Response, Status> {
    let options = WriteOptions::from_query(
        &call.request.query,
        "UpdateOptions",
        &call.server().types.naming.meta_group(),
    )?;
    refuse_list_transform(&call.output, call.resource)?;
    let view = View::new(call, table);
    let expected = Expected {
        kind: view.kind,
        api_version: &view.api_version,
        message: view.message,
        older: &[],
        known: None,
        is_strict: true,
    };
    let decoded = expected.decode(
        call.server().types.formats.input(call.request.headers())?,
        call.request.types().registry(),
        body,
    )?;
    let kind = view.kind;
    call.handle_strict_findings(decoded.strict, options.field_validation, |errors| {
        Status::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {kind}: {errors}",
            table.version
        ))
    })?;
    let mut scale = decoded.object;
    call.record_command(view.message, &scale);
    scope_to_request(call, &mut scale)?;
    check_identity(call, &scale)?;
    write(call, &view, Options::Update(&options), |call, live| {
        let mut new = scale.clone();
        view.track(call, &live, &mut new);
        Ok(new)
    })
    .await
}

/// Patches an object through its scale.
pub async fn patch(call: &mut Call<'_>, table: &SubresourceTable, body: &[u8]) -> Result<Response, Status> {
    let kind = kind_of(call.resource, call.server().types.formats, call.request.headers())?;
    let view = View::new(call, table);
    if kind.is_apply() {
        return apply(call, &view, PatchBody { kind, bytes: body }).await;
    }
    let options = patch_options(call)?;
    call.record_patch(body);
    refuse_list_transform(&call.output, call.resource)?;
    let mut reading = Reading::new(kind, body, options.field_validation);
    let message = view.message;
    write(call, &view, Options::Patch(&options), |call, current| {
        let revision = meta(&current, "resourceVersion").to_owned();
        let mut scale = patched(call, &mut reading, message, current.clone())?;
        scope_to_request(call, &mut scale)?;
        check_identity(call, &scale)?;
        if meta(&scale, "resourceVersion") == revision {
            set_meta(&mut scale, "resourceVersion", None);
        }
        view.track(call, &current, &mut scale);
        Ok(scale)
    })
    .await
}

/// Applies a configuration to a scale.
async fn apply(call: &mut Call<'_>, view: &View<'_>, body: PatchBody<'_>) -> Result<Response, Status> {
    let options = super::apply::options(call)?;
    call.record_patch(body.bytes);
    refuse_list_transform(&call.output, call.resource)?;
    let config =
        super::apply::configuration(body, TypeName::new(view.kind, &view.api_version), view.message)?;
    write(call, view, Options::Patch(&options), |call, live| {
        let revision = meta(&live, "resourceVersion").to_owned();
        let versions = Versions::of_body(call.request.types().registry(), &view.api_version, view.message);
        // This module built the view, so no part of the view is known to conform to the schema. Therefore
        // `known` is an empty object.
        let input = ApplyInput { live: &live, known: &Object::new(), config: &config };
        let mut scale =
            super::apply::apply_to(call, &versions, SUBRESOURCE, &Reset::none(), input, &options)?;
        scope_to_request(call, &mut scale)?;
        check_identity(call, &scale)?;
        if meta(&scale, "resourceVersion") == revision {
            set_meta(&mut scale, "resourceVersion", None);
        }
        Ok(scale)
    })
    .await
}

/// Writes the replica count that `make` returns into the parent.
async fn write<F>(
    call: &mut Call<'_>,
    view: &View<'_>,
    options: Options<'_>,
    make: F,
) -> Result<Response, Status>
where
    F: FnMut(&mut Call<'_>, Object) -> Result<Object, Status> + Send + Sync,
{
    let mut intent = intent(call, Endpoint::Scale, options, "");
    intent.leaves_out = OWNED_BY_SOURCE;
    let outcome = crate::writes::write::write(call, &intent, &mut Scaled { view, make }).await?;
    let written = outcome.written().ok_or_else(|| Status::not_found(call.subject(&call.info.name)))?;
    let object = store::decode_stored(call.resource, &written.value)?;
    let revision = meta(&object, "resourceVersion").parse().unwrap_or(Revision::ZERO);
    view.respond(call, &view.build_scale(&object, revision)?)
}

/// Refuses an invalid scale, and a scale whose uid differs from the uid of the stored object.
fn check_scale(intent: &WriteIntent<'_>, scale: &Object, replicas: i64, stored: &str) -> Result<(), Status> {
    let mut errors = validation::metadata_of_view(intent.server().types.naming, scale);
    if replicas < 0 {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &Value::Int(replicas), detail));
    }
    if !errors.is_empty() {
        let subject = Subject { group: "autoscaling", kind: "Scale", name: intent.write.name };
        return Err(Status::invalid(subject, &errors));
    }
    let expected = meta(scale, "uid");
    if expected.is_empty() || expected == stored {
        return Ok(());
    }
    let cause = precondition_failed("UID", expected, stored);
    let kind = format!("{}/{SUBRESOURCE}", intent.write.resource.table.plural);
    Err(Status::conflict(Subject { kind: &kind, ..intent.subject(intent.write.name) }, &cause))
}

/// Source of a write from a scale: admission plugins receive the scale, and the store receives the parent.
struct Scaled<'v, 't, F> {
    view: &'v View<'t>,
    make: F,
}

impl<F> ObjectSource<Call<'_>> for Scaled<'_, '_, F>
where
    F: FnMut(&mut Call<'_>, Object) -> Result<Object, Status> + Send + Sync,
{
    fn form(&self) -> ObjectForm {
        ObjectForm::Foreign
    }

    fn decode(
        &mut self,
        call: &mut Call<'_>,
        current: Option<&mut Current>,
    ) -> Result<RequestedChange, Status> {
        let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
        let revision = current.revision();
        let versions = Versions::for_resource(call.request.types().registry(), call.resource);
        let old = current.live(call.server(), call.resource)?;
        let mut live = self.view.scale_from_parts(old, revision, self.view.parts(old)?);
        let replicas = self.view.replicas();
        put_managed_fields(&mut live, to_scale(old, &versions, &self.view.api_version, &replicas));
        (self.make)(call, live).map(RequestedChange::Object)
    }

    /// Returns the parent with the resourceVersion and the replica count of the scale. Without a
    /// resourceVersion the write is unconditional.
    fn to_stored(
        &mut self,
        intent: &WriteIntent<'_>,
        scale: Object,
        current: Option<&mut Current>,
    ) -> Result<Object, Status> {
        let Some(current) = current else { return Ok(scale) };
        let replicas = at(&scale, "spec.replicas").and_then(Value::as_i64).unwrap_or(0);
        if let Some(paths) = self.view.paths
            && replicas == NOT_SET
        {
            let path = go_quote(&paths.spec);
            return Err(Status::bad_request(format!("the spec replicas field {path} cannot be empty")));
        }
        let versions = Versions::for_resource(intent.origin.types.registry(), intent.write.resource);
        let old = current.live(intent.server(), intent.write.resource)?;
        // The scale of a custom object is validated by the rules of its kind.
        if self.view.paths.is_none() {
            check_scale(intent, &scale, replicas, meta(old, "uid"))?;
        }
        let mut parent = old.clone();
        let version = meta(&scale, "resourceVersion");
        // A custom object cannot be written without a resourceVersion, so the object keeps the stored
        // resourceVersion.
        if !version.is_empty() || self.view.paths.is_none() {
            set_meta(&mut parent, "resourceVersion", (!version.is_empty()).then(|| version.into()));
        }
        take_managed_fields(&mut parent);
        put_managed_fields(&mut parent, to_parent(old, &versions, &scale, &self.view.replicas()));
        match self.view.paths {
            Some(paths) => custom::scale::set_count(&mut parent, &paths.spec, replicas)
                .map_err(|error| Status::new(StatusReason::Unknown, error.to_string()))?,
            None => {
                parent.object_entry("spec").insert("replicas", Value::Int(replicas));
            }
        }
        Ok(parent)
    }

    fn object_for_admission<'o>(
        &self,
        _intent: &WriteIntent<'_>,
        object: &'o Object,
        revision: Revision,
    ) -> Result<Cow<'o, Object>, Status> {
        let parts = self.view.parts(object)?;
        Ok(Cow::Owned(self.view.scale_from_parts(object, revision, parts)))
    }
}

#[cfg(test)]
#[path = "scale_test.rs"]
mod tests;
