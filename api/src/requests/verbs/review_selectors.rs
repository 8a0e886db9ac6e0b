//! The selectors of an access review: their validation, and the error messages in the response for
//! requirements that cannot be used (docs/api/authorization.md#access-reviews).
//!
//! Unknown operators are not errors, because newer clients may send them.

use objects::validation::names;
use types::selector::requirements::{Readable, Requirements};
use values::field::FieldError;
use values::json::Value;

/// The two selectors, and whether their keys and values are checked as labels.
const SELECTORS: [(&str, bool); 2] = [("fieldSelector", false), ("labelSelector", true)];

/// Adds the errors in the selectors of a review's attributes.
pub(super) fn check(attributes: &Value, errors: &mut Vec<FieldError>) {
    for (name, is_label) in SELECTORS {
        let Some(selector) = attributes.get(name).filter(|selector| !selector.is_null()) else { continue };
        let path = format!("spec.resourceAttributes.{name}");
        let raw = selector.str_at(&["rawSelector"]);
        let requirements = selector.get("requirements").and_then(Value::as_array).unwrap_or_default();
        match (raw, requirements) {
            ("", []) => errors.push(FieldError::required(
                format!("{path}.requirements"),
                format!("when {path} is specified, requirements or rawSelector is required"),
            )),
            ("", _) | (_, []) => {}
            (raw, _) => errors.push(FieldError::invalid(
                format!("{path}.rawSelector"),
                &raw.into(),
                "may not specified at the same time as requirements",
            )),
        }
        for (at, requirement) in requirements.iter().enumerate() {
            self::requirement(requirement, &format!("{path}.requirements[{at}]"), is_label, errors);
        }
    }
}

fn requirement(requirement: &Value, path: &str, is_label: bool, errors: &mut Vec<FieldError>) {
    let key = requirement.str_at(&["key"]);
    let values = requirement.get("values").and_then(Value::as_array).unwrap_or_default();
    if !is_label && key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), "must be specified"));
    }
    match requirement.str_at(&["operator"]) {
        "In" | "NotIn" if values.is_empty() => errors.push(FieldError::required(
            format!("{path}.values"),
            "must be specified when `operator` is 'In' or 'NotIn'",
        )),
        "Exists" | "DoesNotExist" if !values.is_empty() => errors.push(FieldError::forbidden(
            format!("{path}.values"),
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        )),
        _ => {}
    }
    if !is_label {
        return;
    }
    for why in names::qualified(key) {
        errors.push(FieldError::invalid(format!("{path}.key"), &key.into(), why));
    }
    for (at, value) in values.iter().enumerate() {
        for why in names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(format!("{path}.values[{at}]"), value, why));
        }
    }
}

/// Returns the requirements in the attributes of a review, and the messages about the requirements that were
/// left out.
pub(super) fn read(attributes: Option<&Value>) -> (Requirements, Vec<String>) {
    let Some(attributes) = attributes else { return Default::default() };
    let (requirements, fields, labels) = Requirements::of_review(attributes);
    let mut ignored = Vec::new();
    for ((name, _), readable) in SELECTORS.into_iter().zip([fields, labels]) {
        let how = match readable {
            Readable::Whole => continue,
            Readable::Partly => "partially ignored",
            Readable::Not => "ignored",
        };
        ignored.push(format!("spec.resourceAttributes.{name} {how} due to parse error"));
    }
    (requirements, ignored)
}
