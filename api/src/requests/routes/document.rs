//! Paths outside the resource API: backups, the state of the server, and documents about its types.

use bytes::Bytes;
use engine::Engine;
use http::request::Parts as Head;
use http::{Method, StatusCode};

use super::body::read;
use super::charging::{charged, document_at};
use crate::requests::request::{Permitted, Request};
use crate::requests::scrape;
use crate::requests::testing;
use crate::state;
use crate::state::backup;
use crate::state::debug;
use crate::state::fairness;
use crate::state::health;
use crate::state::log_files;
use crate::state::zpages;
use objects::representation;
use types::schema::registry::Registry;
use values::status::Status;
use wire::compress;
use wire::response::{Response, respond_text};
use wire::server::Body;

/// Serves a path outside the resource API. The memory for the response is charged before the response is
/// produced.
pub(super) async fn serve(permitted: Permitted<'_>) -> Result<Response, Status> {
    let request = permitted.request;
    let account = &request.account;
    let Some(document) = document_at(&request.info.path) else {
        return Ok(charged(serve_document(permitted).await?, account, &request.errors));
    };
    let (charge, _) = account.document(document).await.map_err(Status::no_memory)?;
    let response = serve_document(permitted).await?;
    let bytes = response.body().uncharged_bytes();
    if bytes == 0 {
        return Ok(response);
    }
    let charge = account.adjust(document, bytes, charge).map_err(Status::no_memory)?;
    Ok(response.map(|body| body.charged(charge)))
}

/// Serves a path outside the resource API: the state of the server, or a document about its types.
async fn serve_document(permitted: Permitted<'_>) -> Result<Response, Status> {
    let Permitted { request, proof, incoming, .. } = permitted;
    let (server, path) = (request.server(), request.info.path.as_str());
    let engine = server.store.engine_for_path(proof, path);
    if path == backup::PATH {
        let source = backup::BackupSource {
            engine,
            backups: &server.store.backups,
            shutdown: server.operations.lifecycle.shutdown(),
            naming: server.types.naming,
        };
        return backup::respond(source, &request.head.method, &read(request, incoming).await?.0).await;
    }
    if let Some(features) = &server.operations.testing
        && state::testing::is_own_path(path)
    {
        let body = read(request, incoming).await?.0;
        return testing::respond_to(testing::FeatureCall { features, request, engine, body: &body }).await;
    }
    if server.access.edge.is_debugged {
        let debug_request = debug::DebugRequest {
            method: &request.head.method,
            path,
            query: request.head.uri.query().unwrap_or_default(),
        };
        let body = if debug_request.has_body() { read(request, incoming).await?.0 } else { Bytes::new() };
        if let Some(response) = server.operations.debugging.respond_to(debug_request, &body).await {
            return Ok(response);
        }
    }
    if let Some(answer) = state_of_server(request, engine) {
        return answer;
    }
    if let Some(files) = server.operations.log_files.as_ref()
        && let Some(answer) =
            log_files::respond_to(files, &request.account, &request.head.method, path, request.headers())
                .await
    {
        return answer;
    }
    if let Some(answer) = page(request) {
        return answer;
    }
    about_types(request).await
}

/// Answers the paths for the state of the server: health, metrics and flow control.
fn state_of_server(request: &Request<'_>, engine: &Engine) -> Option<Result<Response, Status>> {
    let (server, path) = (request.server(), request.info.path.as_str());
    let checked = health::HealthInputs {
        backends: &server.store.backends,
        stage: server.operations.lifecycle.stage(),
        naming: server.types.naming,
        within_grace: server.operations.is_within_livez_grace(),
        secrecy: server.store.secrecy.as_deref(),
        is_shared: server.access.fairness.is_shared(),
        has_certificate: server.outgoing.extensions.settings().certificate.is_some(),
        metrics: &server.operations.metrics,
    };
    if let Some(response) = health::respond(&checked, path, &request.query) {
        return Some(Ok(response));
    }
    let sources = scrape::Sources {
        last_backup_s: server.store.backups.last_s(),
        metrics: &server.operations.metrics,
        engine,
        backends: &server.store.backends,
        registry: request.types().registry(),
        fairness: &server.access.fairness,
        features: &server.types.features,
        memory: &server.operations.memory,
        version: &server.operations.version,
    };
    let response = scrape::respond_to(&sources, &request.head.method, path);
    response.or_else(|| fairness::respond(&server.access.fairness, path, &request.query)).map(Ok)
}

/// Answers the paths for pages about the configuration of the server, and for the documents about its tokens.
fn page(request: &Request<'_>) -> Option<Result<Response, Status>> {
    let (server, path) = (request.server(), request.info.path.as_str());
    let pages = zpages::ZpagesSources {
        naming: server.types.naming,
        features: &server.types.features,
        flags: &server.operations.flags,
        age: server.operations.age(),
        version: &server.operations.version,
    };
    if let Some(answer) = zpages::respond_to(&pages, path, request.headers()) {
        return Some(answer);
    }
    server.access.tokens.documents()?.respond(&request.head.method, path, request.headers())
}

/// Answers the paths for the version of the server, discovery and OpenAPI.
async fn about_types(request: &Request<'_>) -> Result<Response, Status> {
    let Request { head, info, account, .. } = request;
    let (server, types, path) = (request.server(), request.types(), info.path.as_str());
    let response = if path.strip_suffix('/').unwrap_or(path) == "/version" {
        Some(server.operations.version.respond(&head.headers)?.map(Into::into))
    } else if let Some(answer) = types.discovery().respond(path, &head.headers, request.pretty) {
        let body: fn(Bytes) -> Body = if answer.is_shared { Body::shared } else { Body::from };
        Some(representation::discovery(server.types.naming, answer)?.map(body))
    } else {
        types.openapi().respond(path, head.uri.query(), &head.headers).map(|r| r.map(Body::shared))
    };
    match response {
        Some(response) if is_sent_compressed(path, head, &response) => {
            Ok(compress::gzip(response, account).await)
        }
        Some(_) if !has_method(&server.types.builtin, path, &head.method) => {
            Err(Status::method_not_allowed())
        }
        Some(response) => Ok(response),
        None if is_below_own_prefix(&server.types.builtin, types.registry(), path) => {
            Err(Status::no_such_route())
        }
        None => Ok(not_found_page()),
    }
}

/// Returns whether the response is `/openapi/v2`, the only document that is compressed, and the client
/// accepts gzip.
fn is_sent_compressed(path: &str, head: &Head, response: &Response) -> bool {
    path == "/openapi/v2" && response.status() == StatusCode::OK && compress::is_accepted(&head.headers)
}

/// Returns whether `method` may be used for a document. The index, the list of groups, each group, versions
/// of custom types and the OpenAPI documents accept any method. The resources of a built-in version, the
/// versions of the core group and the server's version are routes for GET only.
fn has_method(builtin: &Registry, path: &str, method: &Method) -> bool {
    let is_below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if path == "/" || is_below("/openapi") {
        return true;
    }
    if is_below("/apis") {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty()).skip(1);
        let is_built_in = segments.next().is_some_and(|group| builtin.group(group).is_some());
        return !is_built_in || segments.next().is_none() || *method == Method::GET;
    }
    *method == Method::GET
}

/// Returns whether a path is below `/version`, the core group or a group of built-in types. All paths below
/// these prefixes belong to the server. A group does not count if the operator has disabled all its versions.
fn is_below_own_prefix(builtin: &Registry, served: &Registry, path: &str) -> bool {
    if path.starts_with("/api/") || path.starts_with("/version/") {
        return true;
    }
    let below = path.strip_prefix("/apis/").and_then(|rest| rest.split_once('/'));
    let is_own = |group: &str| builtin.group(group).is_some() && served.group(group).is_some();
    below.is_some_and(|(group, rest)| !rest.is_empty() && is_own(group))
}

/// Returns the response for paths without a known prefix.
pub(super) fn not_found_page() -> Response {
    respond_text(StatusCode::NOT_FOUND, "404 page not found\n")
}
