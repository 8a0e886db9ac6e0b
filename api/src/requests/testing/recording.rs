//! `/testing/requests`: the record of requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::FeatureCall;
use crate::state::testing::{RecordedRequest, RequestPattern, RequestSubject};
use values::status::Status;

/// Default and maximum number of requests in one answer.
const REQUESTS_MAX: usize = 1000;

/// Maximum bytes of requests in one answer.
const ANSWER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Returns or clears the record.
pub(super) fn respond(call: &FeatureCall<'_>) -> Result<Value, Status> {
    let recording = &call.features.recording;
    match *call.method() {
        Method::GET => read(call),
        Method::DELETE => {
            recording.clear();
            Ok(json!({ "mark": recording.mark() }))
        }
        _ => Err(Status::method_not_allowed()),
    }
}

/// Returns the recorded requests after the mark in the query. If the query has no mark, the response contains only the
/// current mark.
fn read(call: &FeatureCall<'_>) -> Result<Value, Status> {
    let recording = &call.features.recording;
    let number = |name: &str, default| match call.request.query.first(name) {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|_| {
            Status::bad_request(format!("invalid query parameter {name}={text:?}: expected a number"))
        }),
    };
    let bodies = match call.request.query.first("bodies") {
        None | Some("false") => false,
        Some("true") => true,
        Some(text) => {
            let message = format!("invalid query parameter bodies={text:?}: expected true or false");
            return Err(Status::bad_request(message));
        }
    };
    let pattern: RequestPattern = match call.request.query.first("match") {
        None => RequestPattern::default(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| Status::bad_request(format!("invalid query parameter match: {error}")))?,
    };
    let is_filtered = call.request.query.first("match").is_some();
    let since = number("since", recording.mark())?;
    let limit =
        usize::try_from(number("limit", REQUESTS_MAX as u64)?).unwrap_or(usize::MAX).clamp(1, REQUESTS_MAX);
    let part = recording.part(since, limit, ANSWER_BYTES_MAX);
    let matching = part.requests.iter().filter(|request| !is_filtered || pattern.matches(&subject(request)));
    let items: Vec<Value> = matching.map(|request| request_value(request, bodies)).collect();
    Ok(json!({ "items": items, "mark": part.next, "lost": part.lost }))
}

fn subject(request: &RecordedRequest) -> RequestSubject<'_> {
    RequestSubject {
        is_resource: !request.resource.is_empty(),
        verb: &request.verb,
        group: &request.group,
        resource: &request.resource,
        subresource: &request.subresource,
        namespace: &request.namespace,
        name: &request.name,
        path: request.uri.split('?').next().unwrap_or_default(),
        user: &request.user,
        user_agent: &request.user_agent,
    }
}

fn request_value(request: &RecordedRequest, bodies: bool) -> Value {
    let RecordedRequest { sequence, time, verb, group, version, resource, subresource, .. } = request;
    let mut shown = json!({
        "sequence": sequence,
        "time": time,
        "verb": verb,
        "group": group,
        "version": version,
        "resource": resource,
        "subresource": subresource,
        "namespace": request.namespace,
        "name": request.name,
        "uri": request.uri,
        "user": request.user,
        "userAgent": request.user_agent,
        "code": request.code,
        "microseconds": request.micros,
        "bodyBytes": request.body_bytes,
    });
    if let Some(rule) = request.rule {
        shown["fault"] = rule.into();
    }
    if bodies && let Some(body) = &request.body {
        // Bodies in other encodings, and JSON that is nested too deeply for a tree, are returned in
        // base64.
        match serde_json::from_slice::<Value>(body) {
            Ok(body) => shown["body"] = body,
            Err(_) => shown["bodyBase64"] = STANDARD.encode(body).into(),
        }
    }
    shown
}
