//! Forwards a request to an extension server, and streams its response back
//! (docs/api/extension-servers.md#requests).

use std::net::IpAddr;
use std::time::Duration;

use auth::User;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, LOCATION, UPGRADE};
use http::request::Parts as Head;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{Either, Empty};
use hyper::body::Body;

use super::{IdentityClaims, identify};
use crate::state::connect::forward::{
    accepts, cleaned, forwarded_for, passed_on, target, without_connection, without_credentials,
};
use crate::state::connect::upgrade::{self, UpgradeRequest};
use values::status::Status;
use wire::outgoing::{self, Endpoint, Opened};
use wire::response::{Response, respond_text};
use wire::server::upgrade::Switch;
use wire::server::{Incoming, Shutdown};

/// Time limit for the response to an upgrade request.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to forward.
pub struct Forwarded<'f> {
    /// Method and headers as received.
    pub head: &'f Head,
    /// Decoded path of the request.
    pub path: &'f str,
    /// The user who makes the request.
    pub user: &'f User,
    /// The headers that may carry the identity of a user.
    pub claims: &'f IdentityClaims,
    /// Address of the client.
    pub peer: IpAddr,
    /// The body of the request.
    pub incoming: Incoming,
    /// Ends upgraded connections when the server drains.
    pub shutdown: Shutdown,
    /// An additional header for the other server.
    pub mark: Option<(HeaderName, HeaderValue)>,
}

/// Returns the response for a server that is known to be unavailable.
pub fn unavailable() -> Response {
    respond_text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n")
}

/// Forwards a request. The result is a 503 if there is no response, and a 502 for a redirect.
pub async fn forward(endpoint: &Endpoint, forwarded: Forwarded<'_>) -> Response {
    let unreachable = |why: String| {
        let text = format!("error trying to reach service: {why}\n");
        respond_text(StatusCode::SERVICE_UNAVAILABLE, text)
    };
    let target = target(forwarded.path, forwarded.head.uri.query());
    let endpoint = match endpoint.to(&target) {
        Ok(endpoint) => endpoint,
        Err(why) => return unreachable(why),
    };
    if let Some(switch) = forwarded.head.extensions.get::<Switch>() {
        return upgraded(&endpoint, &forwarded, switch.clone()).await.unwrap_or_else(unreachable);
    }
    let mut request = match request(&endpoint, forwarded) {
        Ok(request) => request,
        Err(why) => return unreachable(why),
    };
    let method = request.method().clone();
    let inflates = accepts(&method, request.headers_mut());
    match outgoing::open_pooled(&endpoint, request).await {
        Ok(opened) => answer(&endpoint, opened, inflates),
        Err(failure) => unreachable(failure.to_string()),
    }
}

/// Forwards an upgrade, with the headers that request it.
///
/// # Errors
/// The name, a group or an extra value of the user contains characters that a header cannot contain.
async fn upgraded(
    endpoint: &Endpoint,
    forwarded: &Forwarded<'_>,
    switch: Switch,
) -> Result<Response, String> {
    let mut headers = headers(endpoint, forwarded)?;
    for name in [CONNECTION, UPGRADE] {
        for value in forwarded.head.headers.get_all(&name) {
            headers.append(&name, value.clone());
        }
    }
    let (method, peer, shutdown) = (&forwarded.head.method, forwarded.peer, forwarded.shutdown.clone());
    let request = UpgradeRequest { switch, method, headers: &headers, peer, shutdown };
    let passed = upgrade::pass(endpoint, request, UPGRADE_TIMEOUT).await;
    let failed =
        |status: Status| respond_text(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", status.message));
    Ok(passed.unwrap_or_else(failed))
}

fn request(
    endpoint: &Endpoint,
    forwarded: Forwarded<'_>,
) -> Result<Request<Either<Incoming, Empty<Bytes>>>, String> {
    let mut headers = headers(endpoint, &forwarded)?;
    forwarded_for(&mut headers, forwarded.peer);
    let Forwarded { head, incoming, .. } = forwarded;
    let has_body = has_body(&head.method, &incoming);
    if !has_body {
        headers.remove(CONTENT_LENGTH);
    }
    let body = if has_body { Either::Left(incoming) } else { Either::Right(Empty::new()) };
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.headers_mut() = headers;
    Ok(request)
}

/// Returns whether a request is forwarded with a body, which may be empty. A read is forwarded with a body only
/// if the client sent a body.
fn has_body(method: &Method, incoming: &Incoming) -> bool {
    !matches!(*method, Method::GET | Method::HEAD) || !incoming.is_end_stream()
}

/// Returns the headers for the server, without the address of the client.
///
/// # Errors
/// A name of the user contains characters that a header cannot contain.
fn headers(endpoint: &Endpoint, forwarded: &Forwarded<'_>) -> Result<HeaderMap, String> {
    let mut headers = without_credentials(&without_connection(&forwarded.head.headers));
    let drop: Vec<HeaderName> =
        headers.keys().filter(|name| forwarded.claims.has(name.as_str())).cloned().collect();
    for name in drop {
        headers.remove(name);
    }
    identify(&mut headers, forwarded.user)?;
    forwarded_to(&mut headers, endpoint, forwarded.path);
    if let Some((name, value)) = &forwarded.mark {
        headers.insert(name, value.clone());
    }
    Ok(headers)
}

/// Sets the `X-Forwarded-*` headers of a request that is forwarded to `endpoint`.
pub fn forwarded_to(headers: &mut HeaderMap, endpoint: &Endpoint, path: &str) {
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set("x-forwarded-host", endpoint.url().authority().map_or("", |authority| authority.as_str()));
    set("x-forwarded-proto", "https");
    set("x-forwarded-uri", &cleaned(path));
}

fn answer(endpoint: &Endpoint, opened: Opened, inflates: bool) -> Response {
    let head = opened.response.headers();
    if opened.response.status().is_redirection()
        && opened.response.status() != StatusCode::NOT_MODIFIED
        && head.contains_key(LOCATION)
    {
        return respond_text(
            StatusCode::BAD_GATEWAY,
            "the backend attempted to redirect this request, which is not permitted\n",
        );
    }
    let mut response = passed_on(opened, inflates);
    let headers = response.headers_mut();
    if let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok())
        && location.starts_with('/')
        && let Some(authority) = endpoint.url().authority()
        && let Ok(location) = HeaderValue::from_str(&format!("https://{authority}{location}"))
    {
        headers.insert(LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_body_if_its_method_usually_has_one_or_bytes_arrived() {
        for (method, body, want) in [
            (Method::GET, "", false),
            (Method::HEAD, "", false),
            (Method::GET, "{}", true),
            (Method::POST, "", true),
            (Method::DELETE, "", true),
        ] {
            let incoming = Incoming::detached(Bytes::from_static(body.as_bytes()));
            assert_eq!(has_body(&method, &incoming), want, "{method} {body}");
        }
    }
}
