//! The use of deprecated versions: the metric, and the warnings in responses.

use std::fmt::Write;

use http::header::WARNING;

use crate::requests::request::Request;
use types::schema::registry::Resource;
use values::warning;
use wire::response::Response;

/// Records the use of a deprecated version in the metrics and in the audit event.
pub(super) fn note_deprecated(request: &Request<'_>, resource: &Resource) {
    if resource.table.deprecated.is_empty() {
        return;
    }
    let info = &request.info;
    // Definitions of custom types do not contain a release in which the version will be removed.
    let removed = resource.table.behavior.removed;
    let labels = [&*resource.group, removed, &resource.table.plural, &info.subresource, &info.version];
    request.server().operations.metrics.deprecated.set(&labels, 1);
    if let Some(trail) = request.trail() {
        let naming = request.server().types.naming;
        trail.annotate(naming.own("deprecated"), true.to_string());
        if !removed.is_empty() {
            trail.annotate(naming.own("removed-release"), removed.to_owned());
        }
    }
}

/// Returns the warning that a version is deprecated.
pub(super) fn deprecation(resource: &Resource) -> String {
    let table = &resource.table;
    if table.message.custom {
        return table.deprecated.clone().into_owned();
    }
    let mut text = format!("{} {} is deprecated in v{}+", resource.api_version, table.kind, table.deprecated);
    if !table.behavior.removed.is_empty() {
        let _ = write!(text, ", unavailable in v{}+", table.behavior.removed);
    }
    if !table.behavior.replacement.is_empty() {
        text.push_str("; use ");
        text.push_str(table.behavior.replacement);
    }
    text
}

/// Adds the warnings to the response headers.
pub(super) fn warn(response: &mut Response, warnings: &[String]) {
    for header in warning::headers(warnings) {
        response.headers_mut().append(WARNING, header);
    }
}
