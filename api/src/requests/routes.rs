//! Routes: selects the resource, document or stream for a permitted request, and refuses requests with an
//! unknown path or method.
//!
//! ```text
//! Permitted ─┬─ version of an extension server: pass it on
//!            ├─ resource that only another server on the same store serves: pass it on
//!            ├─ earlier point, or history of an object: one of the two below
//!            ├─ resource: known? ─► scope ─► method ─► negotiate ─► read the body ─► verb ─► compress, warn
//!            └─ other path: backup · health · metrics · flow control · version · discovery · OpenAPI
//! ```
//!
//! This module decides which verbs a resource has; `verbs` implements them.

mod body;
mod charging;
mod checks;
mod deprecated;
#[cfg(test)]
mod deprecated_test;
mod document;
mod forwarding;
mod resource;

use go::duration;

use self::charging::Relay;
pub use self::charging::charged;
use self::checks::{check_method, check_scope, has_custom_path};
use self::deprecated::{deprecation, warn};
use self::document::not_found_page;
use self::forwarding::{forward, pass_on, servers_of_missing_resource};
pub use self::resource::reads_newest;
use crate::requests::past;
use crate::requests::request::{Permitted, Request};
use objects::representation::answer::respond_status;
use types::schema::registry::Resource;
use values::status::Status;
use wire::response::Response;

/// Serves a permitted request.
///
/// # Errors
/// Fails with the status to send if the request is refused or fails.
pub async fn serve(permitted: Permitted<'_>) -> Result<Response, Status> {
    let request = permitted.request;
    // Streams ignore `timeout`, because clients cannot set a deadline for streams.
    let timeout = request.query.first("timeout").filter(|text| !text.is_empty());
    if let Some(text) = timeout.filter(|_| !request.info.is_long_running())
        && let Err(error) = duration::parse(text)
    {
        let message = format!("invalid timeout specified in the request URL - {error}");
        return Err(Status::bad_request(message));
    }
    // The server authorizes a path with two leading slashes like the path with one slash, and then answers 404.
    if request.info.path.starts_with("//") {
        return Ok(not_found_page());
    }
    if request.past.is_some() || request.info.history.is_some() {
        return serve_stored(permitted).await;
    }
    if let Some(extension) = request.server().outgoing.extensions.of_path(&request.info.path) {
        let relay = Relay::begin(request)?;
        return Ok(relay.charge(Box::pin(forward(permitted, &extension)).await?));
    }
    // The extension server also serves the OpenAPI document of its version.
    if let Some(version) = request.info.path.strip_prefix("/openapi/v3")
        && let Some(extension) = request.server().outgoing.extensions.of_path(version.trim_end_matches('/'))
        && extension.has_openapi()
    {
        let relay = Relay::begin(request)?;
        return Ok(relay.charge(Box::pin(forward(permitted, &extension)).await?));
    }
    let servers = servers_of_missing_resource(request);
    if !servers.is_empty() {
        let relay = Relay::begin(request)?;
        return Ok(relay.charge(Box::pin(pass_on(permitted, servers)).await?));
    }
    if request.info.is_resource { serve_resource(permitted).await } else { document::serve(permitted).await }
}

/// Serves requests about the past from the store of this server. The server does not forward these requests to
/// extension servers or peers.
async fn serve_stored(permitted: Permitted<'_>) -> Result<Response, Status> {
    let Request { info, past, .. } = permitted.request;
    if info.is_resource {
        return serve_resource(permitted).await;
    }
    let is_document = past.is_some() && past::is_document(&info.path);
    if is_document { document::serve(permitted).await } else { Ok(not_found_page()) }
}

/// Serves requests for a resource or one of its subresources.
async fn serve_resource(permitted: Permitted<'_>) -> Result<Response, Status> {
    let Request { head, info, errors, .. } = permitted.request;
    let registry = permitted.request.types().registry();
    let Some(resource) = registry.resource(&info.group, &info.version, &info.resource) else {
        let mut resources = registry.resources();
        // All paths below a built-in group belong to the group, but a group of custom resources has only the paths of
        // its resources.
        let is_built_in =
            |resource: &Resource| resource.group == info.group && !resource.table.message.custom;
        if !resources.any(|resource| is_built_in(resource)) {
            return Ok(not_found_page());
        }
        return Err(Status::no_such_route());
    };
    if resource.table.message.custom {
        if !has_custom_path(resource, info) {
            return Ok(not_found_page());
        }
        if let Some(fault) = resource.fault() {
            let name = format!("{}.{}", info.resource, info.group);
            return Err(Status::internal(format!("type of definition {name} cannot be served: {fault}")));
        }
    } else {
        check_scope(resource, info)?;
        check_method(head, resource, info)?;
    }
    match resource::serve(permitted, resource).await {
        // Requests that are refused before the verb begins also get the warning.
        Err(status) if !resource.table.deprecated.is_empty() => {
            let mut response = respond_status(&status, errors);
            warn(&mut response, &[deprecation(resource)]);
            Ok(response)
        }
        result => result,
    }
}
