//! Rules for certificate signing requests, their approval and their status
//! (docs/api/authentication.md#certificate-signing-requests).

use auth::authn::certificate_request::Request;
use auth::authn::trust_anchors;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use super::common::{SeenStrings, each_condition, signer};
use values::base64_text;
use values::field::FieldError;
use values::json::Value;

const SECONDS_MIN: i64 = 600;
/// Maximum size of a trust bundle in bytes.
const TRUST_BUNDLE_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn request(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let text = spec.text("request");
    let content = base64_text::decode(text).unwrap_or_default();
    // The spec is immutable, so stored requests of older releases must remain valid.
    if validator.old.is_none()
        && let Err(why) = Request::from_pem(&content)
    {
        let value = spec.get("request").cloned().unwrap_or_default();
        validator.invalid(path.child("request"), value, why.to_string());
    }
    let name = spec.text("signerName");
    if name == format!("{}/legacy-unknown", validator.naming.domain) {
        let detail = "the legacy signerName is not allowed via this API version";
        validator.invalid(path.child("signerName"), name, detail);
    } else if !name.is_empty() {
        signer(validator, &path.child("signerName"), name);
    }
    if let Some(seconds) = spec.int("expirationSeconds").filter(|seconds| *seconds < SECONDS_MIN) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        validator.invalid(path.child("expirationSeconds"), seconds, detail);
    }
    let place = path.child("usages");
    let mut seen = SeenStrings::new();
    for (at, usage) in spec.texts("usages").enumerate() {
        if !seen.insert(usage) && !validator.has_enough() {
            validator.duplicate(place.index(at), usage);
        }
    }
}

/// Checks a trust bundle. If the bundle has a signer, the name of the bundle must begin with the name of the
/// signer.
pub(super) fn trust_bundle(validator: &mut Validator, path: &FieldPath, bundle: StructView) {
    let name = bundle.child("metadata").text("name");
    let metadata = path.child("metadata");
    let place = metadata.child("name");
    let (spec, root) = (bundle.child("spec"), path.child("spec"));
    let signer_name = spec.text("signerName");
    let prefix = format!("{}:", signer_name.replace('/', ":"));
    // The checks of the metadata refuse a missing name.
    match name.strip_prefix(&prefix) {
        _ if name.is_empty() => {}
        _ if signer_name.is_empty() && name.contains(':') => {
            let detail = "ClusterTrustBundle without signer name must not have \":\" in its name";
            validator.invalid(place, name, detail);
        }
        _ if signer_name.is_empty() => validator.refuse(&place, name, names::subdomain(name)),
        Some(rest) => validator.refuse(&place, name, names::subdomain(rest)),
        None => {
            let detail =
                format!("ClusterTrustBundle for signerName {signer_name} must be named with prefix {prefix}");
            validator.invalid(place, name, detail);
        }
    }
    if !signer_name.is_empty() {
        signer(validator, &root.child("signerName"), signer_name);
    }
    let text = spec.text("trustBundle");
    // A stored bundle of an older release must remain valid.
    if validator.old.is_some_and(|old| old.child("spec").text("trustBundle") == text) {
        return;
    }
    if text.len() > TRUST_BUNDLE_BYTES_MAX {
        return validator
            .errors
            .push(FieldError::too_long(root.child("trustBundle"), TRUST_BUNDLE_BYTES_MAX));
    }
    for problem in trust_anchors::problems(text) {
        validator.invalid(root.child("trustBundle"), "<value omitted>", problem);
    }
}

/// Conditions whose status must be true.
const VERDICTS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Checks an update through `/approval`, which approves or denies the request once.
pub(super) fn approval(validator: &mut Validator, new: StructView, _old: StructView) {
    conditions(validator, new.child("status"), true);
}

/// Checks an update through `/status`, which sets the certificate, or the reason why no certificate was
/// issued, once.
pub(super) fn status(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let before = validator.old.map_or(StructView::from(None), |old| old.child("status"));
    let certificate = status.text("certificate");
    let content = base64_text::decode(certificate).unwrap_or_default();
    // A stored certificate of an older release must remain valid.
    if !content.is_empty()
        && certificate != before.text("certificate")
        && let Some(problem) = trust_anchors::chain_problem(&String::from_utf8_lossy(&content))
    {
        validator.invalid(path.child("certificate"), "<certificate data>", problem);
    }
    conditions(validator, status, false);
    if !before.text("certificate").is_empty() && certificate != before.text("certificate") {
        let detail = "updates may not modify existing certificate content";
        validator.forbidden(path.child("certificate"), detail);
    }
}

fn conditions(validator: &mut Validator, status: StructView, is_approval: bool) {
    let before = validator.old.map_or(StructView::from(None), |old| old.child("status"));
    let root = FieldPath::ROOT.child("status");
    let list = root.child("conditions");
    let mut seen = SeenStrings::new();
    each_condition(validator, &list, status, |validator, place, condition, is_again| {
        let kind = condition.text("type");
        if kind.is_empty() {
            validator.required(place.child("type"), "");
        }
        match condition.text("status") {
            "" => validator.required(place.child("status"), ""),
            "True" => {}
            state if VERDICTS.contains(&kind) => {
                validator.not_supported(place.child("status"), state, &["True"]);
            }
            "False" | "Unknown" => {}
            state => validator.not_supported(place.child("status"), state, &["False", "True", "Unknown"]),
        }
        let other = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !other.is_empty() && seen.contains(other) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            validator.invalid(root.child("conditions"), kind, detail);
        }
        seen.insert(kind);
        if is_again {
            validator.duplicate(place.child("type"), kind);
        }
    });
    for kind in VERDICTS {
        let of = |status: StructView| -> Vec<_> {
            let conditions = status.structs("conditions").filter(|condition| condition.text("type") == kind);
            conditions.map(|condition| condition.to_value()).collect()
        };
        let (now, before) = (of(status), of(before));
        let refused = if now.len() < before.len() {
            "remove"
        } else if is_approval || kind == "Failed" || now == before {
            continue;
        } else if now.len() > before.len() {
            "add"
        } else {
            "modify"
        };
        let detail = format!("updates may not {refused} a condition of type \"{kind}\"");
        if refused == "modify" {
            let [before, now] = [before, now].map(Value::Array);
            validator.forbidden_list_change(&list, &detail, "status.conditions", [before, now]);
        } else {
            validator.forbidden(list, detail);
        }
    }
}
