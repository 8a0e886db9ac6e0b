//! Checks of the head of an HTTP/1.1 request, before the request is processed. There must be exactly one
//! well-formed `Host` (RFC 9112, section 3.2), and an `Expect` header must contain `100-continue` (RFC 9110,
//! section 10.1.1).

use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::{Body, Response};

/// Returns the response to a head that is refused. The connection ends with this response.
pub(super) fn refusal(version: Version, headers: &HeaderMap) -> Option<Response> {
    if version != Version::HTTP_11 {
        return None;
    }
    let (code, text) = fault(headers)?;
    let mut response = http::Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Some(response)
}

fn fault(headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let bad = |text| Some((StatusCode::BAD_REQUEST, text));
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => return bad("400 Bad Request: missing required Host header"),
        (_, Some(_)) => return bad("400 Bad Request: too many Host headers"),
        (Some(host), None) if !host.as_bytes().iter().copied().all(is_of_host) => {
            return bad("400 Bad Request: malformed Host header");
        }
        _ => {}
    }
    let expected = headers.get(EXPECT).map(HeaderValue::as_bytes).filter(|value| !value.is_empty())?;
    let is_known = |token: &[u8]| token.trim_ascii().eq_ignore_ascii_case(b"100-continue");
    if expected.split(|byte| *byte == b',').any(is_known) {
        return None;
    }
    Some((StatusCode::EXPECTATION_FAILED, ""))
}

/// Returns whether a byte may occur in a host and port, including bytes that resolvers accept beyond the
/// standard.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_head_must_have_one_host_and_known_expectations() {
        for (lines, want) in [
            (&["host: a"][..], None),
            (&["host: [::1]:6443"], None),
            (&["host: "], None),
            (&[], Some(400)),
            (&["host: a", "host: b"], Some(400)),
            (&["host: a b"], Some(400)),
            (&["host: a/b"], Some(400)),
            (&["host: a", "expect: 100-Continue"], None),
            (&["host: a", "expect: 200-foo"], Some(417)),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                let (name, value) = line.split_once(": ").unwrap();
                headers.append(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
            }
            let code = |version| refusal(version, &headers).map(|response| response.status().as_u16());
            assert_eq!(code(Version::HTTP_11), want, "{lines:?}");
            assert_eq!(code(Version::HTTP_2), None, "{lines:?}");
            assert_eq!(code(Version::HTTP_10), None, "{lines:?}");
        }
    }
}
