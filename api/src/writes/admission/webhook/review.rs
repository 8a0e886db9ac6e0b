//! The AdmissionReview: makes the request to a webhook, and interprets the response.

use ::bytes::Bytes;
use http::StatusCode;

use super::Write;
use crate::writes::plugin::kinds::{is_whole, kind_of, matched_kind};
use crate::writes::plugin::{Operation, Options};
use objects::conversion::Converter;
use objects::user_info;
use types::schema::registry::Resource;
use values::base64_text;
use values::json::{self, Object, Value};
use values::naming::Naming;
use values::object::{meta, set_meta};
use values::status::{Details, RemoteStatus, Status, StatusReason};
use wire::outgoing;

/// A review to send.
pub(super) struct ReviewRequest {
    pub(super) uid: String,
    pub(super) body: Bytes,
}

/// The decision of a webhook.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The denial; `None` if the webhook allows the write.
    pub(super) denial: Option<Denial>,
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
    /// The text of a JSON patch; empty if the response has no patch.
    pub(super) patch: Vec<u8>,
    /// The type of the patch in the response, if the server does not support that type.
    pub(super) unknown_form: Option<String>,
}

/// The member `status` of a response that denies the write.
#[derive(Debug, Default)]
pub(super) struct Denial(Object);

impl Denial {
    /// Returns the status that the client receives.
    pub(super) fn status(&self, webhook: &str) -> Status {
        let text = |name: &str| self.0.get(name).and_then(Value::as_str).unwrap_or_default();
        let said = [text("message"), text("reason")].into_iter().find(|text| !text.is_empty());
        let why = said.map_or_else(|| " without explanation".to_owned(), |said| format!(": {said}"));
        let mut status = Status::new(
            reason(text("reason")),
            format!("admission webhook \"{webhook}\" denied the request{why}"),
        );
        let code = self.0.get("code").and_then(Value::as_i64).filter(|code| *code >= 400);
        let code = code.and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        status.code = code.unwrap_or(StatusCode::BAD_REQUEST);
        let details = self.0.get("details").filter(|details| !details.is_null());
        status.details = details.map(|details| Box::new(Details::read(details)));
        let given = self.0.get("metadata").and_then(Value::as_object);
        let metadata = ["selfLink", "resourceVersion", "continue", "remainingItemCount"];
        let metadata =
            metadata.iter().filter_map(|name| Some(((*name).into(), given?.get(name)?.clone()))).collect();
        // The status of a denial is never `Success`, even if the webhook sends `Success`.
        let outcome = Some(text("status")).filter(|outcome| *outcome != "Success").unwrap_or_default();
        let (outcome, reason) = (outcome.to_owned(), text("reason").to_owned());
        status.remote = Some(Box::new(RemoteStatus { status: outcome, reason, metadata }));
        status
    }
}

/// Returns the reason with this name; `Unknown` if the name is not a known reason.
fn reason(name: &str) -> StatusReason {
    use StatusReason::{
        AlreadyExists, BadRequest, Conflict, Expired, Forbidden, InternalError, Invalid, MethodNotAllowed,
        NotAcceptable, NotFound, RequestEntityTooLarge, ServiceUnavailable, Timeout, TooManyRequests,
        Unauthorized, UnsupportedMediaType,
    };
    let known = [
        AlreadyExists,
        BadRequest,
        Conflict,
        Expired,
        Forbidden,
        InternalError,
        Invalid,
        MethodNotAllowed,
        NotAcceptable,
        NotFound,
        RequestEntityTooLarge,
        ServiceUnavailable,
        Timeout,
        TooManyRequests,
        Unauthorized,
        UnsupportedMediaType,
    ];
    known.into_iter().find(|reason| reason.as_str() == name).unwrap_or(StatusReason::Unknown)
}

/// Returns the review of a write for a webhook that receives the write in the version of `seen`.
///
/// # Errors
/// Fails if an object cannot be converted.
pub(super) async fn request(
    write: &Write<'_>,
    seen: &Resource,
    version: &str,
    is_mutating: bool,
    naming: &Naming,
    converter: &Converter,
) -> Result<ReviewRequest, String> {
    let mut new = in_version(write, seen, write.new, converter).await?;
    let mut old = in_version(write, seen, write.old, converter).await?;
    // A mutating webhook receives the object of a PUT as the client sent it.
    let is_as_sent = is_mutating && matches!(write.options, Options::Update(_));
    if write.operation == Operation::Update
        && !is_as_sent
        && let (Some(new), Some(old)) = (&mut new, &old)
        && meta(new, "resourceVersion").is_empty()
    {
        // Without a resourceVersion, the update applies to the version of the object that is newest at commit
        // time.
        set_meta(new, "resourceVersion", Some(meta(old, "resourceVersion").into()));
    }
    new.iter_mut().chain(&mut old).for_each(open_managed_fields);
    let uid = values::names::uid();
    let mut request = Object::with_capacity(16);
    request.push("uid", uid.as_str().into());
    let requested = kind_of(write.new.or(write.old), write.resource);
    let (group, version_of_kind, kind) = matched_kind(requested, seen, write.subresource);
    request.push("kind", named(group, version_of_kind, "kind", kind));
    let plural =
        |resource: &Resource| named(&resource.group, &resource.version, "resource", &resource.table.plural);
    request.push("resource", plural(seen));
    push_text(&mut request, "subResource", write.subresource);
    let (group, version_of_kind, kind) = requested;
    request.push("requestKind", named(group, version_of_kind, "kind", kind));
    request.push("requestResource", plural(write.resource));
    push_text(&mut request, "requestSubResource", write.subresource);
    push_text(&mut request, "name", request_name(write));
    push_text(&mut request, "namespace", request_namespace(write));
    request.push("operation", write.operation.as_str().into());
    request.push("userInfo", user_info::info(write.user).into());
    request.push("object", new.map_or(Value::Null, Value::Object));
    request.push("oldObject", old.map_or(Value::Null, Value::Object));
    request.push("dryRun", write.dry_run.into());
    request.push("options", write.options.to_value(write.operation, naming));

    let mut review = Object::with_capacity(3);
    review.push("kind", "AdmissionReview".into());
    review.push("apiVersion", format!("{}/{version}", naming.group("admission", true)).into());
    review.push("request", request.into());
    let mut body = Vec::new();
    json::write(&review.into(), &mut body);
    Ok(ReviewRequest { uid, body: body.into() })
}

/// Parses the field sets in managed fields. The tree of an object contains each set as text, but webhooks
/// expect a JSON object.
fn open_managed_fields(object: &mut Object) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let entries = metadata.and_then(|metadata| metadata.get_mut("managedFields"));
    for entry in entries.and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(set) = entry.as_object_mut().and_then(|entry| entry.get_mut("fieldsV1")) else { continue };
        if let Some(parsed) = set.as_str().and_then(|text| json::parse(text.as_bytes()).ok()) {
            *set = parsed;
        }
    }
}

/// Returns the name in the request or, if it is empty, the name of the new object.
pub(super) fn request_name<'r>(write: &Write<'r>) -> &'r str {
    match (write.name, write.new, write.operation) {
        ("", Some(new), Operation::Create) => values::object::meta(new, "name"),
        (name, ..) => name,
    }
}

/// Returns the namespace of the request. A write of a namespace counts as a write in that namespace.
pub(super) fn request_namespace<'r>(write: &Write<'r>) -> &'r str {
    if write.resource.is_of("", "namespaces") { request_name(write) } else { write.namespace }
}

/// Returns an object of a write. If the object is an instance of the resource, it is converted to the version
/// of `seen`.
///
/// # Errors
/// Fails if the object cannot be converted.
pub(super) async fn in_version(
    write: &Write<'_>,
    seen: &Resource,
    object: Option<&Object>,
    converter: &Converter,
) -> Result<Option<Object>, String> {
    let Some(object) = object.cloned() else { return Ok(None) };
    if !is_whole(write.subresource) || std::ptr::eq(seen, write.resource) {
        return Ok(Some(object));
    }
    let converted = converter.converted(object, write.resource, seen).await;
    converted.map(Some).map_err(Status::into_message)
}

fn named(group: &str, version: &str, what: &'static str, name: &str) -> Value {
    let mut members = Object::with_capacity(3);
    members.push("group", group.into());
    members.push("version", version.into());
    members.push(what, name.into());
    members.into()
}

fn push_text(object: &mut Object, name: &'static str, text: &str) {
    if !text.is_empty() {
        object.push(name, text.into());
    }
}

/// Reads the response to a review of `version` with `uid`.
///
/// # Errors
/// Fails if the response is invalid; the text describes why.
pub(super) fn verdict(
    text: &[u8],
    version: &str,
    uid: &str,
    mutating: bool,
    naming: &Naming,
) -> Result<Verdict, String> {
    let group = naming.group("admission", true);
    let review = outgoing::Review { group: &group, version, kind: "AdmissionReview" };
    let answer = review.read(text).map_err(|why| format!("failed to call webhook: {why}"))?;
    let invalid = |why: String| format!("received invalid webhook response: {why}");
    outgoing::ReviewResponse::Admission
        .check(answer.get("response"), version)
        .map_err(|why| format!("failed to call webhook: {why}"))?;
    let Some(response) = answer.get("response").and_then(Value::as_object) else {
        return Err(invalid("webhook response was absent".to_owned()));
    };
    let member = |name: &str| response.get(name).filter(|value| !value.is_null());
    let text_of = |name: &str| member(name).and_then(Value::as_str);
    let allowed = member("allowed").and_then(Value::as_bool).unwrap_or_default();
    let warnings = member("warnings").and_then(Value::as_array).unwrap_or_default();
    let patch = member("patch").map(patch).unwrap_or_default();
    let patch_type = text_of("patchType");
    if version == "v1" {
        let given = text_of("uid").unwrap_or_default();
        if given != uid {
            return Err(invalid(format!("expected response.uid=\"{uid}\", got \"{given}\"")));
        }
        review.verify(&answer).and_then(|()| check(&patch, patch_type, mutating)).map_err(invalid)?;
    }
    let unknown_form = patch_type.filter(|form| version == "v1" && *form != "JSONPatch").map(str::to_owned);
    let status = member("status").and_then(Value::as_object);
    let annotations = member("auditAnnotations").and_then(Value::as_object);
    Ok(Verdict {
        denial: (!allowed).then(|| Denial(status.cloned().unwrap_or_default())),
        warnings: warnings.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect(),
        annotations: annotations
            .into_iter()
            .flat_map(Object::iter)
            .map(|(key, value)| (key.to_owned(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        patch,
        unknown_form,
    })
}

/// Returns the bytes of a patch. `value` is a base64 text or a list of numbers.
fn patch(value: &Value) -> Vec<u8> {
    match value {
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_i64().and_then(|byte| u8::try_from(byte).ok()).unwrap_or(0))
            .collect(),
        value => {
            let text = base64_text::canonical(value.as_str().unwrap_or_default()).unwrap_or_default();
            base64_text::decode(&text).unwrap_or_default()
        }
    }
}

/// Checks the patch of a response of version v1.
fn check(patch: &[u8], patch_type: Option<&str>, mutating: bool) -> Result<(), String> {
    let wrong = match (mutating, patch.is_empty(), patch_type) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, _, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(wrong.to_owned())
}
