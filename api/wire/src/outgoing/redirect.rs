//! Redirects: the request that follows a response. As in HTTP clients (RFC 9110, 15.4), a POST becomes a GET,
//! unless the status code says that the method stays the same.

use http::header::LOCATION;
use http::response::Parts;
use http::{Method, StatusCode, Uri};

use super::{Endpoint, Failure};

/// Maximum number of requests in one call.
pub(super) const REQUESTS_MAX: usize = 10;

/// Returns the method and the endpoint of the next request; `None` if the response is not a redirect.
pub(super) fn next(
    head: &Parts,
    method: &Method,
    endpoint: &Endpoint,
) -> Result<Option<(Method, Endpoint)>, Failure> {
    let method = match head.status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => Method::GET,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => method.clone(),
        _ => return Ok(None),
    };
    let Some(location) = head.headers.get(LOCATION) else { return Ok(None) };
    let location = location.to_str().unwrap_or_default();
    let url = resolve(endpoint.url(), location)
        .ok_or_else(|| Failure::Other(format!("failed to parse Location header {location:?}")))?;
    if url.scheme_str() != Some("https") {
        return Err(Failure::Other(format!("redirected to {url}, which is not an https URL")));
    }
    endpoint.redirected(url).map(|endpoint| Some((method, endpoint))).map_err(Failure::Other)
}

/// Resolves a URL reference against a base URL (RFC 3986, 5.2). Segments such as `..` are left to the server.
fn resolve(base: &Uri, reference: &str) -> Option<Uri> {
    let reference = reference.split('#').next().unwrap_or_default();
    if reference.split_once("://").is_some_and(|(scheme, _)| !scheme.contains(['/', '?'])) {
        return reference.parse().ok();
    }
    if let Some(rest) = reference.strip_prefix("//") {
        return format!("{}://{rest}", base.scheme_str()?).parse().ok();
    }
    let path = match reference {
        _ if reference.starts_with('/') => reference.to_owned(),
        "" => base.path_and_query()?.to_string(),
        _ if reference.starts_with('?') => format!("{}{reference}", base.path()),
        _ => format!("{}/{reference}", base.path().rsplit_once('/').map_or("", |(folder, _)| folder)),
    };
    format!("{}://{}{path}", base.scheme_str()?, base.authority()?).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_references_are_resolved_against_the_called_url() {
        let base: Uri = "https://a.example:8443/x/y?timeout=1s".parse().unwrap();
        for (reference, want) in [
            ("https://b.example/z", "https://b.example/z"),
            ("http://b.example", "http://b.example/"),
            ("//b.example/z", "https://b.example/z"),
            ("/z?q=1", "https://a.example:8443/z?q=1"),
            ("z", "https://a.example:8443/x/z"),
            ("z/#part", "https://a.example:8443/x/z/"),
            ("?q=2", "https://a.example:8443/x/y?q=2"),
            ("", "https://a.example:8443/x/y?timeout=1s"),
            ("/with?url=https://b", "https://a.example:8443/with?url=https://b"),
        ] {
            assert_eq!(resolve(&base, reference).unwrap().to_string(), want, "{reference}");
        }
        assert_eq!(resolve(&base, "https://[x"), None);
    }
}
