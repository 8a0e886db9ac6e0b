//! Requests for certificates (semantics §13.8).

use super::super::Validator;
use super::super::path::Path;
use super::View;
use super::common::{Seen, signer};
use crate::schema::scalars::bytes;

const SECONDS_MIN: i64 = 600;
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";

pub(super) fn request(validator: &mut Validator, path: &Path, spec: View) {
    let text = spec.text("request");
    let content = bytes::decode(text).unwrap_or_default();
    let start = content.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(content.len());
    if !text.is_empty() && !content[start..].starts_with(BEGIN) {
        let detail = "PEM block type must be CERTIFICATE REQUEST";
        validator.invalid(path.child("request"), text, detail);
    }
    let name = spec.text("signerName");
    if !name.is_empty() {
        signer(validator, &path.child("signerName"), name);
    }
    if name == format!("{}/legacy-unknown", validator.naming.domain) {
        let detail = format!("'{name}' is not allowed to be set as a signerName");
        validator.invalid(path.child("signerName"), name, detail);
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < SECONDS_MIN) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        validator.invalid(path.child("expirationSeconds"), seconds, detail);
    }
    let place = path.child("usages");
    let mut seen = Seen::new();
    for (at, usage) in spec.texts("usages").enumerate() {
        if !seen.insert(usage) && !validator.has_enough() {
            validator.duplicate(place.index(at), usage);
        }
    }
}
