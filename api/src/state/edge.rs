//! Checks and headers that depend only on the head of a request: CORS, transport security, the refusal of new
//! requests while the server drains, and the end of connections (docs/api/operations.md#edge).
//!
//! The decisions depend on the operator's settings and the head of the request, not on permissions or
//! resources.

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ORIGIN, RETRY_AFTER,
    STRICT_TRANSPORT_SECURITY, USER_AGENT,
};
use http::request::Parts as Head;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};

use types::schema::pattern::Pattern;
use values::names;
use values::naming::Naming;
use wire::response::{Response, respond_text};
use wire::server::{Body, LifecycleStage, Retire};

/// Paths that a draining server still answers, because they report on its state.
const ANSWERED_TO_THE_END: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];

/// The response headers for scripts of an allowed origin. The headers are fixed, because the settings select
/// only the origins.
const CORS: [(HeaderName, &str); 4] = [
    (ACCESS_CONTROL_ALLOW_METHODS, "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
    ),
    (ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

/// The settings of the operator.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Value of the header that tells browsers to use only TLS.
    pub transport_security: Option<HeaderValue>,
    /// Origins whose scripts may use the API.
    pub origins: Vec<Pattern>,
    /// Whether a draining server refuses new requests while it waits for the requests in flight.
    pub refuses_when_leaving: bool,
    /// Probability that a request over HTTP/2 ends its connection, so that clients move to other servers.
    pub goaway_chance: f64,
    /// Whether debugging pages are served.
    pub is_debugged: bool,
}

impl Settings {
    /// Returns the response if the request ends at this step; `None` if the request continues.
    pub fn answer(&self, naming: &'static Naming, stage: LifecycleStage, head: &Head) -> Option<Response> {
        if stage == LifecycleStage::Refusing && !is_answered_to_the_end(naming, head) {
            return Some(refusal());
        }
        // A browser sends a preflight request, without credentials, before the actual request.
        let asks_first = head.method == Method::OPTIONS && self.is_allowed(head).is_some();
        asks_first.then(|| {
            let mut response = http::Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        })
    }

    /// Returns the origin of a request, if scripts of this origin may use the API.
    fn is_allowed<'h>(&self, head: &'h Head) -> Option<&'h HeaderValue> {
        let origin = head.headers.get(ORIGIN).filter(|origin| !origin.is_empty())?;
        let text = origin.to_str().ok()?;
        self.origins.iter().any(|allowed| allowed.is_in(text)).then_some(origin)
    }

    /// Adds headers to a response. `is_anonymous` means that the client sent no valid credentials;
    /// connections of such clients are not kept open.
    pub fn complete(&self, head: &Head, is_anonymous: bool, response: &mut Response) {
        let headers = response.headers_mut();
        if let Some(value) = &self.transport_security {
            headers.insert(STRICT_TRANSPORT_SECURITY, value.clone());
        }
        if let Some(origin) = self.is_allowed(head) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            for (name, value) in CORS {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        if head.version == Version::HTTP_2 && (is_anonymous || self.draws_the_end()) {
            response.extensions_mut().insert(Retire);
        }
    }

    fn draws_the_end(&self) -> bool {
        self.goaway_chance > 0.0
            && f64::from(u32::from_le_bytes(names::random())) / f64::from(u32::MAX) < self.goaway_chance
    }
}

/// Returns whether a draining server still serves a request: health and metrics paths, and requests of other
/// API servers.
fn is_answered_to_the_end(naming: &'static Naming, head: &Head) -> bool {
    let path = head.uri.path();
    let agent = head.headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    ANSWERED_TO_THE_END.iter().any(|prefix| path.starts_with(prefix))
        || agent.starts_with(naming.system("apiserver/").as_bytes())
}

fn refusal() -> Response {
    let text = "The apiserver is shutting down, please try again later.\n";
    let mut response = respond_text(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    response.extensions_mut().insert(Retire);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;

    fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> Head {
        let mut request = http::Request::builder().method(method).uri(path).version(Version::HTTP_2);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_draining_server_answers_only_requests_about_itself() {
        let settings = Settings::default();
        for (path, agent, code) in [
            ("/api/v1/pods", "kubectl/v1", Some(429)),
            ("/apis", "", Some(429)),
            ("/readyz?verbose", "", None),
            ("/livez/ping", "", None),
            ("/metrics", "", None),
            ("/api/v1/pods", "kube-apiserver/v1.36", None),
        ] {
            let head = head("GET", path, &[("user-agent", agent)]);
            let answer = settings.answer(&KUBERNETES, LifecycleStage::Refusing, &head);
            assert_eq!(answer.as_ref().map(|answer| answer.status().as_u16()), code, "{path} {agent}");
            assert!(answer.is_none_or(|answer| answer.headers()[RETRY_AFTER] == "5"
                && answer.extensions().get::<Retire>().is_some()));
            assert!(settings.answer(&KUBERNETES, LifecycleStage::Leaving, &head).is_none(), "{path}");
        }
    }

    #[test]
    fn cors_headers_are_sent_to_allowed_origins_only() {
        let settings =
            Settings { origins: vec![Pattern::new("//example\\.com(:|$)")], ..Settings::default() };
        for (method, origin, code, is_allowed) in [
            ("OPTIONS", "https://example.com", Some(204), true),
            ("GET", "https://example.com:8443", None, true),
            ("OPTIONS", "https://example.com.evil.org", None, false),
            ("GET", "https://other.org", None, false),
            ("OPTIONS", "", None, false),
        ] {
            let head = head(method, "/api", &[("origin", origin)]);
            let answer = settings.answer(&KUBERNETES, LifecycleStage::Serving, &head);
            assert_eq!(answer.map(|answer| answer.status().as_u16()), code, "{method} {origin}");
            let mut response = respond_text(StatusCode::OK, "");
            settings.complete(&head, false, &mut response);
            let allowed_origin = response.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(
                allowed_origin.map(HeaderValue::as_bytes),
                is_allowed.then_some(origin.as_bytes()),
                "{origin}"
            );
        }
    }

    #[test]
    fn a_connection_is_closed_by_chance_or_if_the_client_is_anonymous() {
        let head = head("GET", "/api", &[]);
        for (goaway_chance, is_anonymous, ends) in
            [(0.0, false, false), (1.1, false, true), (0.0, true, true)]
        {
            let settings = Settings { goaway_chance, ..Settings::default() };
            let mut response = respond_text(StatusCode::OK, "");
            settings.complete(&head, is_anonymous, &mut response);
            assert_eq!(
                response.extensions().get::<Retire>().is_some(),
                ends,
                "{goaway_chance} {is_anonymous}"
            );
        }
    }
}
