//! Content negotiation: any header has an answer.

use api::naming::{CLUSTER, KUBERNETES};
use api::negotiate::{Offer, Transform, content_type, input, output};
use api::patch::PatchKind;
use api::query::Query;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue};

use super::check_refusal;

/// The bytes as `Accept`, `Content-Type` and `User-Agent`; a line end parts several `Accept` headers.
pub fn accept(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n') {
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        headers.append(ACCEPT, value.clone());
        headers.insert(CONTENT_TYPE, value.clone());
        headers.insert(USER_AGENT, value);
    }
    for naming in [&CLUSTER, &KUBERNETES] {
        for offer in [Offer::Resource, Offer::Plain] {
            match output(&headers, &Query::parse(""), naming, offer) {
                Ok(output) => {
                    assert!(matches!(output.meta_version.as_str(), "v1" | "v1beta1"));
                    assert!(offer == Offer::Resource || output.transform == Transform::None);
                    // Who asks for more than was asked for gets the same: a wildcard as the last resort.
                    headers.append(ACCEPT, HeaderValue::from_static("*/*;q=0"));
                    assert_eq!(
                        api::negotiate::output(&headers, &Query::parse(""), naming, offer).ok(),
                        Some(output)
                    );
                }
                Err(status) => check_refusal(&status, &[406]),
            }
        }
    }
    if let Err(status) = input(&headers, &KUBERNETES) {
        check_refusal(&status, &[415]);
    }
    if let Some(kind) = content_type(&headers).and_then(PatchKind::from_media_type) {
        assert_eq!(PatchKind::from_media_type(kind.media_type()), Some(kind));
    }
}
