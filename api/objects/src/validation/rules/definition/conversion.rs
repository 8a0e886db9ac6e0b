//! Rules for the conversion of objects between versions, with or without a webhook.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::custom::definition::{CustomConversion, Definition};
use crate::validation::path::FieldPath;
use crate::validation::rules::admission;
use crate::validation::rules::common::SeenStrings;
use crate::validation::rules::view::StructView;
use crate::validation::{Validator, names};
use values::base64_text;
use values::field::FieldError;
use values::json::Value;

/// Supported versions of the conversion review.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Checks that are skipped because the stored definition does not pass these checks.
#[derive(Clone, Copy)]
pub(super) struct Tolerated {
    /// Whether the stored definition lists only unsupported review versions.
    pub(super) unknown_reviews: bool,
    /// Whether the CA bundle of the stored definition is invalid.
    pub(super) bad_bundle: bool,
}

/// Checks `spec.conversion`. `client` is the member `clientConfig` of the webhook as the client sent it.
pub(super) fn conversion(
    validator: &mut Validator,
    path: &FieldPath,
    definition: &Definition,
    client: StructView,
    tolerated: Tolerated,
) {
    let Some(conversion) = &definition.conversion else { return };
    let strategy = path.child("strategy");
    if conversion.strategy != "None" && definition.preserve_unknown_fields {
        let detail = "must be None if spec.preserveUnknownFields is true";
        validator.invalid(strategy, conversion.strategy.as_str(), detail);
    }
    let strategies = ["None", "Webhook"];
    match conversion.strategy.as_str() {
        "" => validator.required(strategy, ""),
        name if !strategies.contains(&name) => validator.not_supported(strategy, name, &strategies),
        _ => {}
    }
    let place = path.child("webhookClientConfig");
    let reviews = path.child("conversionReviewVersions");
    if conversion.strategy == "Webhook" {
        webhook(validator, &place, conversion, client, tolerated);
        return review_versions(validator, &reviews, &conversion.review_versions, tolerated);
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if conversion.client.is_some() {
        validator.forbidden(place, detail);
    }
    if !conversion.review_versions.is_empty() {
        validator.forbidden(reviews, detail);
    }
}

fn webhook(
    validator: &mut Validator,
    path: &FieldPath,
    conversion: &CustomConversion,
    given: StructView,
    tolerated: Tolerated,
) {
    let Some(client) = &conversion.client else {
        return validator.required(path, "required when strategy is set to Webhook");
    };
    match (&client.url, &client.service) {
        (Some(url), None) => admission::url(validator, &path.child("url"), url),
        (None, Some(_)) => admission::service(validator, &path.child("service"), given.child("service")),
        _ => validator.required(path, "exactly one of url or service is required"),
    }
    if !tolerated.bad_bundle
        && let Err(error) = read_bundle(&client.ca_bundle)
    {
        validator.invalid(path.child("caBundle"), client.ca_bundle.as_str(), error);
    }
}

/// Checks that a bundle contains a certificate. An empty bundle means the certificate authorities of the
/// system.
pub(super) fn read_bundle(bundle: &str) -> Result<(), &'static str> {
    let is_there = |pem: &[u8]| matches!(CertificateDer::pem_slice_iter(pem).next(), Some(Ok(_)));
    if bundle.is_empty() || base64_text::decode(bundle).is_some_and(|pem| is_there(&pem)) {
        return Ok(());
    }
    Err("unable to load root certificates: unable to parse bytes as PEM block")
}

fn review_versions(validator: &mut Validator, path: &FieldPath, versions: &[String], tolerated: Tolerated) {
    if versions.is_empty() {
        return validator.required(path, "");
    }
    let mut seen = SeenStrings::new();
    for (at, version) in versions.iter().enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        if seen.insert(version) {
            validator.refuse(&place, version, names::label_1035(version));
        } else {
            validator.invalid(place, version.as_str(), "duplicate version");
        }
    }
    if !tolerated.unknown_reviews && !knows_reviews(versions) {
        let value = Value::from(versions);
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        validator.errors.push(FieldError::invalid(path, &value, detail));
    }
}

/// Returns whether this server supports one of the versions.
pub(super) fn knows_reviews(versions: &[String]) -> bool {
    versions.iter().any(|version| REVIEW_VERSIONS.contains(&version.as_str()))
}
