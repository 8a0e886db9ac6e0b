//! Checks label selectors inside objects, and matches them against labels.

use hashbrown::HashMap;

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;

/// Checks a label selector. The schema checks the `matchLabels` of the selector.
pub(super) fn selector(validator: &mut Validator, path: &FieldPath, selector: StructView) {
    let list = path.child("matchExpressions");
    for (at, expression) in selector.structs("matchExpressions").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = list.index(at);
        let values = expression.texts("values");
        let values_path = place.child("values");
        match expression.text("operator") {
            "In" | "NotIn" if values.len() == 0 => {
                validator.required(values_path, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if values.len() > 0 => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                validator.forbidden(values_path, detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => validator.invalid(place.child("operator"), other, "not a valid selector operator"),
        }
        let key = expression.text("key");
        validator.refuse(&place.child("key"), key, names::qualified(key));
        for (at, value) in values.enumerate() {
            if validator.has_enough() {
                break;
            }
            validator.refuse(&values_path.index(at), value, names::label_value(value));
        }
    }
}

/// Returns whether a selector is valid: keys and values have the syntax of labels, and operators have the
/// values that they need.
pub(super) fn is_readable(selector: StructView) -> bool {
    let is_key = |key: &str| names::qualified(key).is_empty();
    let is_value = |value: &str| names::label_value(value).is_empty();
    selector
        .map("matchLabels")
        .all(|(key, value)| is_key(key) && is_value(value.as_str().unwrap_or_default()))
        && selector.structs("matchExpressions").all(|expression| {
            let mut values = expression.texts("values");
            let has_enough = match expression.text("operator") {
                "In" | "NotIn" => values.len() > 0,
                "Exists" | "DoesNotExist" => values.len() == 0,
                _ => false,
            };
            has_enough && is_key(expression.text("key")) && values.all(is_value)
        })
}

/// Returns whether a selector has no requirements and therefore selects everything.
pub(super) fn is_empty(selector: StructView) -> bool {
    selector.map("matchLabels").next().is_none() && selector.items("matchExpressions").is_empty()
}

/// Returns whether a selector matches an object with these labels.
pub(super) fn selects(selector: StructView, labels: StructView) -> bool {
    // The labels are in a hash map, because the selector and the labels may both be as large as a request.
    let found: HashMap<&str, &str> =
        labels.members().filter_map(|(key, value)| Some((key, value.as_str()?))).collect();
    let label = |key: &str| found.get(key).copied();
    selector.map("matchLabels").all(|(key, value)| label(key) == value.as_str())
        && selector.structs("matchExpressions").all(|expression| {
            let found = label(expression.text("key"));
            let among = expression.texts("values").any(|value| found == Some(value));
            match expression.text("operator") {
                "In" => among,
                "NotIn" => !among,
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}
