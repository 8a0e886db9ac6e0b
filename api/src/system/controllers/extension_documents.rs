//! Queries the discovery and OpenAPI documents of extension servers when the servers become available
//! (docs/api/extension-servers.md#groups-of-extension-servers).

use std::sync::Arc;
use std::time::Duration;

use auth::User;
use futures_util::future::join;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::state::extension::proxy::forwarded_to;
use crate::state::extension::{Extension, identify};
use crate::writes::server::Server;
use types::discovery::{Swagger, resource_lists};
use values::json::{self, Value};
use values::naming::Naming;
use wire::outgoing::{self, ANSWER_BYTES_MAX, Endpoint};

/// Time limit of one query.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// User of queries for OpenAPI documents.
const READER: &str = "system:aggregator";

/// Returns the user of availability checks and of queries for resources.
pub(super) fn asker() -> User {
    User::new("system:kube-aggregator", [auth::identity::MASTERS])
}

/// Queries the documents of a server's version, and adds each document to this server's documents when it
/// arrives. Extension servers do not have to support these documents.
pub(super) async fn learn(server: &Server, extension: &Extension) {
    let Ok(endpoint) = extension.endpoint(&server.outgoing.services) else { return };
    join(learn_resources(server, extension, &endpoint), learn_openapi(server, extension, &endpoint)).await;
}

async fn learn_resources(server: &Server, extension: &Extension, endpoint: &Endpoint) {
    let resources = resources(server.types.naming, endpoint).await.map(Arc::from);
    if extension.learn(|report| report.resources = resources) {
        server.show_foreign();
    }
}

async fn learn_openapi(server: &Server, extension: &Extension, endpoint: &Endpoint) {
    let openapi = openapi(endpoint).await;
    // If the hash of the v3 document is unchanged, the known v2 document is still valid.
    let known = openapi.as_deref().and_then(|openapi| extension.swagger_of(openapi));
    let swagger = match known {
        Some(known) => Some(known),
        None => swagger(endpoint).await.map(Arc::new),
    };
    if extension.learn(|report| (report.openapi, report.swagger) = (openapi, swagger)) {
        server.show_foreign();
    }
}

/// Returns the resources of the version. The source is the aggregated discovery document, or the plain resource
/// list if the server has no such document.
async fn resources(naming: &Naming, endpoint: &Endpoint) -> Option<Vec<Value>> {
    let path = endpoint.url().path().to_owned();
    let (group, version) = path.strip_prefix("/apis/")?.split_once('/')?;
    let media_type = resource_lists::aggregated_media_types(naming);
    let answer = get(endpoint, "/apis", &asker(), &media_type).await?;
    if answer.code == StatusCode::OK && resource_lists::is_aggregated(&answer.headers, naming) {
        return resource_lists::of_version(naming, &answer.body, group, version);
    }
    if answer.code == StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let answer = get(endpoint, &path, &asker(), "application/json").await?;
    if answer.code == StatusCode::OK { resource_lists::of_list(naming, &answer.body) } else { None }
}

/// Returns the path of the OpenAPI document of a version at an extension server. The path must be below this
/// server's own path for the version.
async fn openapi(endpoint: &Endpoint) -> Option<String> {
    let version = endpoint.url().path().trim_matches('/').to_owned();
    let answer = document(endpoint, "/openapi/v3").await?;
    let index = json::parse(&answer.body).ok()?;
    let url = index.at(&["paths", &version])?.str_at(&["serverRelativeURL"]).to_owned();
    let is_its = url.split('?').next() == Some(&*format!("/openapi/v3/{version}"));
    (is_its && url.is_ascii()).then_some(url)
}

/// Returns the part of an extension server's OpenAPI v2 document that concerns the version, if the server has
/// such a document.
async fn swagger(endpoint: &Endpoint) -> Option<Swagger> {
    let prefix = endpoint.url().path().trim_end_matches('/').to_owned();
    let answer = document(endpoint, "/openapi/v2").await?;
    let read = move || Swagger::read(&json::parse(&answer.body).ok()?, &prefix);
    // The document has some megabytes of text, so it is read on a blocking thread while other tasks continue.
    tokio::task::spawn_blocking(read).await.ok()?
}

/// Returns an OpenAPI document, if the extension server has this document.
async fn document(endpoint: &Endpoint, path: &str) -> Option<Answer> {
    let answer = get(endpoint, path, &User::new(READER, [""; 0]), "application/json").await?;
    answer.code.is_success().then_some(answer)
}

struct Answer {
    code: StatusCode,
    headers: HeaderMap,
    body: outgoing::Reply,
}

/// Sends a query in the name of the user. Returns `None` if the response is not a success.
async fn get(endpoint: &Endpoint, path: &str, user: &User, accept: &str) -> Option<Answer> {
    let endpoint = endpoint.to(path).ok()?;
    let headers = headers(&endpoint, path, user, accept).ok()?;
    let got = outgoing::get_at_most(&endpoint, headers, ANSWERED_WITHIN, ANSWER_BYTES_MAX).await;
    let (head, body) = got.ok()?;
    Some(Answer { code: head.status, headers: head.headers, body })
}

fn headers(endpoint: &Endpoint, path: &str, user: &User, accept: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    identify(&mut headers, user)?;
    forwarded_to(&mut headers, endpoint, path);
    headers.insert(ACCEPT, HeaderValue::from_str(accept).map_err(|error| error.to_string())?);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::outgoing::Credentials;

    #[test]
    fn openapi_documents_are_requested_as_the_aggregator_user() {
        let url = "https://small.default.svc:8443/openapi/v2".parse().unwrap();
        let endpoint = Endpoint::with(url, &Credentials::default()).unwrap();
        let reader = User::new(READER, [""; 0]);
        let headers = headers(&endpoint, "/openapi/v2", &reader, "application/json").unwrap();
        let mut shown: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or_default()))
            .collect();
        shown.sort();
        let want = [
            "accept-encoding: gzip",
            "accept: application/json",
            "x-forwarded-host: small.default.svc:8443",
            "x-forwarded-proto: https",
            "x-forwarded-uri: /openapi/v2",
            "x-remote-user: system:aggregator",
        ];
        assert_eq!(shown, want);
    }
}
