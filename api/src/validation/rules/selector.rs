//! Label selectors inside objects: their own checks, and whether they select given labels.

use hashbrown::HashMap;

use super::super::metadata::{is_enough, labels, refuse};
use super::super::names;
use super::super::path::Path;
use super::{items, members, text};
use crate::field::FieldError;
use crate::json::Value;

/// Checks a label selector.
pub(super) fn validate(path: &Path, selector: Option<&Value>, errors: &mut Vec<FieldError>) {
    let matches = selector.and_then(|selector| selector.get("matchLabels"));
    labels(&path.child("matchLabels"), matches, errors);
    let list = path.child("matchExpressions");
    for (at, expression) in items(selector, "matchExpressions").iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let place = list.index(at);
        let expression = Some(expression);
        let values = items(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(FieldError::required(place.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(FieldError::forbidden(place.child("values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(place.child("operator"), &other.into(), detail));
            }
        }
        let key = text(expression, "key");
        refuse(errors, &place.child("key"), key, names::qualified(key));
        let values_path = place.child("values");
        for (at, value) in values.iter().enumerate() {
            if is_enough(errors) {
                break;
            }
            let value = value.as_str().unwrap_or_default();
            refuse(errors, &values_path.index(at), value, names::label_value(value));
        }
    }
}

/// Whether a selector selects everything.
pub(super) fn is_empty(selector: &Value) -> bool {
    members(selector.get("matchLabels")).next().is_none()
        && items(Some(selector), "matchExpressions").is_empty()
}

/// Whether a selector selects an object with these labels.
pub(super) fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    // By hash, because both may be as large as a body can be.
    let found: HashMap<&str, &str> =
        members(labels).filter_map(|(key, value)| Some((key, value.as_str()?))).collect();
    let label = |key: &str| found.get(key).copied();
    let expressions = items(Some(selector), "matchExpressions");
    members(selector.get("matchLabels")).all(|(key, value)| label(key) == value.as_str())
        && expressions.iter().map(Some).all(|expression| {
            let found = label(text(expression, "key"));
            let among =
                items(expression, "values").iter().any(|value| found.is_some() && value.as_str() == found);
            match text(expression, "operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}
