//! Content negotiation: every header gets a response.

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use objects::negotiate::{Encoding, Formats, Objects, Offer, Transform, content_type};
use objects::patch::PatchKind;
use values::naming::{CLUSTER, KUBERNETES};
use values::query::Query;

use super::check_refusal;

/// Uses the bytes as `Accept`, `Content-Type` and `User-Agent`; a line end separates several `Accept`
/// headers.
pub fn accept(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|&byte| byte == b'\n') {
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        headers.append(ACCEPT, value.clone());
        headers.insert(CONTENT_TYPE, value.clone());
        headers.insert(USER_AGENT, value);
    }
    for naming in [&CLUSTER, &KUBERNETES] {
        for cbor in [false, true] {
            let formats = Formats { naming, cbor, objects: Objects::Typed };
            for offer in [Offer::Object, Offer::List, Offer::Watch, Offer::Plain] {
                check(formats, &mut headers, offer);
            }
            if let Err(status) = formats.input(&headers) {
                check_refusal(&status, &[415]);
            }
        }
    }
    if let Some(kind) = content_type(&headers).and_then(PatchKind::from_media_type) {
        assert_eq!(PatchKind::from_media_type(kind.media_type()), Some(kind));
    }
}

fn check(formats: Formats, headers: &mut HeaderMap, offer: Offer) {
    let nothing = Query::parse("");
    match formats.output(headers, &nothing, offer) {
        Ok(output) => {
            assert!(matches!(output.meta_version.as_str(), "v1" | "v1beta1"));
            assert!(offer != Offer::Plain || output.transform == Transform::None);
            assert!(offer != Offer::Watch || output.encoding != Encoding::Yaml);
            assert!(formats.cbor || output.encoding != Encoding::Cbor);
            // Only the first `Accept` header counts, so another header after it changes nothing.
            headers.append(ACCEPT, HeaderValue::from_static("application/yaml"));
            let again = formats.output(headers, &nothing, offer).ok();
            let first_was_there = headers.get_all(ACCEPT).iter().count() > 1;
            assert!(!first_was_there || again == Some(output));
        }
        Err(status) => check_refusal(&status, &[406]),
    }
}
