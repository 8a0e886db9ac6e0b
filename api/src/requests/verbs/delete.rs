//! The verbs delete and deletecollection. A deletion has two phases if finalizers or a grace period delay the
//! removal of the object, and one phase otherwise.

use http::StatusCode;

use super::command::success;
use super::list::{ListStream, Page};
use super::selected::{Need, SelectedItem};
use super::write::intent;
use super::{Call, force_delete};
use crate::writes::plugin::Options;
use crate::writes::write::WriteOutcome;
use crate::writes::write::deletion::delete_object;
use crate::writes::write::intent::DELETION;
use objects::body::untyped_text;
use objects::codec::cbor;
use objects::codec::protobuf::{self, envelope::Unknown};
use objects::negotiate::Input;
use objects::representation::answer::{respond_object, respond_success};
use objects::representation::refuse_list_transform;
use objects::store::{self, ObjectName};
use objects::strategy::Endpoint;
use types::features::Feature;
use types::options::{DeleteOptions, ListOptions, VersionMatch};
use types::schema::builtin;
use types::schema::conform::conform;
use types::schema::decode::decode;
use values::field::FieldError;
use values::json::{Object, Value};
use values::object::meta;
use values::query::invalid_options;
use values::status::{Details, Status};
use values::type_meta::untyped;
use values::yaml;
use wire::response::Response;

/// Source location that the reference server writes in its error messages about options.
const SCHEME: &str = "in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\"";

/// Deletes the object in the path.
pub async fn delete(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let mut options = read_options(call, body)?;
    refuse_list_transform(&call.output, call.resource)?;
    if options.ignore_store_read_error
        && call.server().types.features.has(Feature::AllowUnsafeMalformedObjectDeletion)
    {
        force_delete::check_options(&options, &call.server().types.naming.meta_group())?;
        call.server().store.current(call.resource).await?;
        return force_delete::delete(call, &options).await;
    }
    let name = call.info.name.clone();
    let behavior = &call.resource.table.behavior;
    if !behavior.undeletable_detail.is_empty() && behavior.undeletable.contains(&name.as_str()) {
        return Err(Status::forbidden(call.subject(&name), behavior.undeletable_detail));
    }
    warn(call, &options);
    if call.resource.table.behavior.spec_finalizers && options.uid.is_none() {
        // The admission decision is for this namespace object, and must not be applied to another namespace
        // object with the same name.
        let stored = call.store().get(&store::key(call.resource, "", &name))?;
        let object = stored.map(|stored| stored.object(call.resource)).transpose()?;
        options.uid = object.map(|object| meta(&object, "uid").to_owned());
    }
    let mut intent = intent(call, Endpoint::Main, Options::Delete(&options), "");
    intent.leaves_out = DELETION;
    match delete_object(call, &intent, &options).await? {
        WriteOutcome::Removed(written) if call.resource.table.delete_returns_object => {
            respond_object(call.renderer()?, StatusCode::OK, &written.value).await
        }
        WriteOutcome::Removed(written) => {
            let object = store::decode_stored(call.resource, &written.value)?;
            let details = Details {
                name,
                group: call.resource.group.clone(),
                kind: call.resource.table.plural.clone().into_owned(),
                uid: meta(&object, "uid").to_owned(),
                ..Details::default()
            };
            Ok(respond_success(StatusCode::OK, &success(&details, None), &call.output))
        }
        // The object still exists and waits for finalizers or its grace period.
        waiting => {
            let code =
                if options.orphan_dependents == Some(false) { StatusCode::ACCEPTED } else { StatusCode::OK };
            let written = waiting.written().ok_or_else(|| Status::not_found(call.subject(&name)))?;
            respond_object(call.renderer()?, code, &written.value).await
        }
    }
}

/// Adds the warning of the kind if the options do not state a propagation policy for dependents.
fn warn(call: &mut Call<'_>, options: &DeleteOptions) {
    let warning = call.resource.table.behavior.delete_warning;
    if !warning.is_empty() && options.choose_no_propagation() {
        call.warnings.push(warning.to_owned());
    }
}

/// Deletes the objects of a collection that the selectors match, one after the other, and returns a list of the
/// deleted objects.
pub async fn delete_collection(call: &mut Call<'_>, body: &[u8]) -> Result<Response, Status> {
    let meta_group = call.server().types.naming.meta_group();
    let options = read_options(call, body)?;
    // If the feature gate is off, the option does not exist.
    if options.ignore_store_read_error
        && call.server().types.features.has(Feature::AllowUnsafeMalformedObjectDeletion)
    {
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let error = FieldError::invalid(force_delete::OPTION, &true.into(), why);
        return Err(invalid_options("DeleteOptions", &meta_group, &[error]));
    }
    let mut list_options =
        ListOptions::from_query(&call.request.query, call.selection()?, false, &meta_group)?;
    if list_options.version_match.is_none() && !matches!(&*list_options.resource_version, "" | "0") {
        // The reference server lists in pages, and a page at a given resourceVersion contains exactly the state
        // at this version.
        list_options.version_match = Some(VersionMatch::Exact);
    }
    warn(call, &options);
    let page = Page::find(call, list_options).await?;
    let renderer = call.renderer()?;
    objects::representation::refuse_object_transform(&call.output, call.resource)?;
    let mut left = page.items;
    let mut objects = page.objects();
    while left > 0
        && let Some(found) = objects.next(Need::Places).await?
    {
        let entry = match found {
            SelectedItem::Pause => {
                tokio::task::yield_now().await;
                continue;
            }
            SelectedItem::Entry(entry) => entry,
            SelectedItem::Record(stored) => stored.entry,
        };
        left -= 1;
        let ObjectName { namespace, name } = store::object_name(call.resource, entry.key());
        let mut intent = intent(call, Endpoint::Main, Options::Delete(&options), "");
        (intent.leaves_out, intent.is_of_collection) = (DELETION, true);
        (intent.write.namespace, intent.write.name) = (namespace, name);
        match delete_object(call, &intent, &options).await {
            Ok(_) => {}
            Err(status) if status.code == StatusCode::NOT_FOUND => {}
            Err(status) => return Err(status),
        }
    }
    // The response lists the items in their state before the deletion. The objects are read from the snapshot
    // of the page, so no copies are needed.
    ListStream::respond(renderer, page).await
}

/// Reads the options from the body, or from the query if the body is empty.
pub fn read_options(call: &Call<'_>, body: &[u8]) -> Result<DeleteOptions, Status> {
    let meta_group = call.server().types.naming.meta_group();
    if body.is_empty() {
        return DeleteOptions::from_query(&call.request.query, &meta_group);
    }
    let value = Value::Object(decode_options(call, body)?);
    if let Some(why) = untyped(&value) {
        return Err(Status::bad_request(why));
    }
    let kind = value.str_at(&["kind"]);
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Status::bad_request(unknown_kind(kind, value.str_at(&["apiVersion"]), &meta_group)));
    }
    let options = DeleteOptions::from_value(&value, &meta_group)?;
    call.record_options("DeleteOptions", value);
    Ok(options)
}

/// Returns the error message for a body that is not DeleteOptions. The message contains the version that the
/// body states, or the version of DeleteOptions if the body states no version.
fn unknown_kind(kind: &str, api_version: &str, meta_group: &str) -> String {
    let own = format!("{meta_group}/v1");
    let version = if api_version.is_empty() { &own } else { api_version };
    format!("no kind \"{kind}\" is registered for version \"{version}\" {SCHEME}")
}

/// Decodes the options in a body as an object of their type.
fn decode_options(call: &Call<'_>, body: &[u8]) -> Result<Object, Status> {
    let bad = |error: &dyn std::fmt::Display| Status::bad_request(error.to_string());
    let tree = |value: Value| match untyped(&value) {
        Some(why) => Err(Status::bad_request(why)),
        None => conform(builtin::DELETE_OPTIONS, value).map_err(|error| bad(&error)),
    };
    let text = |body: &[u8]| {
        let decoded = decode(builtin::DELETE_OPTIONS, body);
        decoded.map_err(|error| Status::bad_request(untyped_text(body).unwrap_or(error.message)))
    };
    let decoded = match call.server().types.formats.input(call.request.headers())? {
        Input::Json => text(body)?,
        Input::Yaml => tree(yaml::parse(body).map_err(|error| bad(&error))?.value)?,
        Input::Cbor => tree(cbor::parse(body).map_err(|error| bad(&error))?)?,
        Input::Protobuf => {
            let unknown = Unknown::read(body).map_err(|error| bad(&error))?;
            if unknown.holds_json() {
                text(unknown.raw)?
            } else {
                let registry = call.request.types().registry();
                let mut object = protobuf::decode(registry, builtin::DELETE_OPTIONS, unknown.raw)
                    .map_err(|error| bad(&error))?;
                unknown.name(&mut object);
                return Ok(object);
            }
        }
    };
    Ok(decoded.object)
}
