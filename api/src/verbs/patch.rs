//! patch: JSON Patch, merge patch and strategic merge patch on items and their subresources (semantics §6).
//!
//! The patch is applied to the requested version of the object as JSON; the result is then treated like the body
//! of an update, so that a patch can do nothing that a PUT could not.

use http::StatusCode;

use super::Call;
use super::write::{dedup_owners, scope_to_request, update_object};
use crate::convert;
use crate::field::FieldError;
use crate::json::{Object, Value};
use crate::negotiate::content_type;
use crate::object::meta;
use crate::patch::{Patch, PatchKind, Patched, undecodable};
use crate::query::{FieldValidation, WriteOptions, invalid_options};
use crate::rendition::{Renderer, refuse_list_transform};
use crate::response::{Response, respond_object};
use crate::schema::conform::conform;
use crate::schema::defaults;
use crate::schema::table::Message;
use crate::status::Status;
use crate::strategy::Endpoint;

/// The media types a PATCH may have, in the order in which a 415 lists them.
pub const MEDIA_TYPES: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json"];

/// The kind of patch the request carries, or 415.
pub fn kind_of(headers: &http::HeaderMap) -> Result<PatchKind, Status> {
    let given = content_type(headers).unwrap_or_default();
    match PatchKind::from_media_type(given) {
        Some(kind) if MEDIA_TYPES.contains(&given) => Ok(kind),
        _ => Err(Status::unsupported_media_type(&MEDIA_TYPES)),
    }
}

/// The options of a patch; `force` belongs to apply patches alone.
pub fn options(call: &Call<'_>) -> Result<WriteOptions, Status> {
    let meta_group = call.api.naming.meta_group();
    let options = WriteOptions::from_query(call.query, "PatchOptions", &meta_group)?;
    if options.force.is_some() {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(invalid_options("PatchOptions", &meta_group, &[error]));
    }
    Ok(options)
}

/// PATCH on an item or on a subresource that writes its parent.
pub async fn patch(call: &mut Call<'_>, body: &[u8], endpoint: Endpoint) -> Result<Response, Status> {
    let kind = kind_of(call.headers)?;
    let options = options(call)?;
    refuse_list_transform(&call.output, call.resource)?;
    let reading = Reading::new(kind, body, options.field_validation)?;
    let message = call.resource.table.message;
    let stored = update_object(call, endpoint, options.dry_run, |call, stored, old| {
        let mut current = convert::to_served(call.resource, old.clone(), call.api.naming)?;
        let revision = stored.entry.revision().to_string();
        crate::object::set_meta(&mut current, "resourceVersion", Some(revision.as_str().into()));
        let mut object = patched(call, &reading, message, current)?;
        check_identity(call, &object)?;
        // The patch did not make the write conditional unless it set another version than it was given.
        if meta(&object, "resourceVersion") == revision {
            crate::object::set_meta(&mut object, "resourceVersion", None);
        }
        scope_to_request(call, &mut object)?;
        dedup_owners(call, &mut object);
        defaults::apply(message, &mut object, call.api.naming);
        convert::to_stored(call.resource, object, call.api.naming)
    })
    .await?;
    respond_object(Renderer::for_call(call)?, StatusCode::OK, &stored)
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
    message: &'static Message,
    current: Object,
) -> Result<Object, Status> {
    let Patched { value, strict: mut found } = patch.clone().apply(Some(message), current.clone().into())?;
    // The result is moved into its schema; in the rare case that it does not fit, it is made again to be shown.
    let refused = |error: &str| {
        let again = patch.clone().apply(Some(message), current.clone().into());
        again.map_or_else(|status| status, |again| undecodable(*kind, body, &again.value, error))
    };
    let conformed = conform(message, value).map_err(|error| refused(&error.to_string()))?;
    found.extend(conformed.strict);
    let object = conformed.object;
    if !found.is_empty() && *validation == FieldValidation::Strict {
        return Err(refused(&format!("strict decoding error: {}", found.join(", "))));
    }
    call.judge_strict(found, *validation, Status::bad_request)?;
    Ok(object)
}

/// A patch changes neither kind nor name nor namespace (semantics §6.1 step 3).
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
    if name != call.info.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.info.name
        )));
    }
    Ok(())
}
