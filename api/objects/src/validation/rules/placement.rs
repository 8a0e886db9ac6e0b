//! Rules for pod scheduling: node selectors, affinity, tolerations and topology spread constraints.

use hashbrown::{HashMap, HashSet};

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;

const OPERATOR: &str = "not a valid selector operator";

/// Checks a node selector, which selects a node if one of its terms matches the node.
pub(super) fn node_selector(validator: &mut Validator, path: &FieldPath, selector: StructView) {
    let terms = path.child("nodeSelectorTerms");
    for (at, one) in selector.structs("nodeSelectorTerms").enumerate() {
        term(validator, &terms.index(at), one, true);
    }
}

/// Checks a preferred node selector term, which may contain invalid label values.
pub(super) fn preferred_term(validator: &mut Validator, path: &FieldPath, preferred: StructView) {
    term(validator, &path.child("preference"), preferred.child("preference"), false);
}

fn term(validator: &mut Validator, path: &FieldPath, term: StructView, judges_values: bool) {
    let expressions = path.child("matchExpressions");
    for (at, requirement) in term.structs("matchExpressions").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = expressions.index(at);
        let values = requirement.texts("values");
        let values_path = place.child("values");
        match requirement.text("operator") {
            "In" | "NotIn" => {
                if values.len() == 0 {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    validator.required(values_path, detail);
                }
            }
            "Exists" | "DoesNotExist" => {
                if values.len() > 0 {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    validator.forbidden(values_path, detail);
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                    validator.required(values_path, detail);
                }
            }
            other => validator.invalid(place.child("operator"), other, OPERATOR),
        }
        let key = requirement.text("key");
        validator.refuse(&place.child("key"), key, names::qualified(key));
        for (at, value) in values.enumerate().filter(|_| judges_values) {
            if validator.has_enough() {
                return;
            }
            validator.refuse(&values_path.index(at), value, names::label_value(value));
        }
    }
    let fields = path.child("matchFields");
    for (at, requirement) in term.structs("matchFields").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = fields.index(at);
        let values = requirement.texts("values");
        let values_path = place.child("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.len() != 1 => {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                validator.required(values_path, detail);
            }
            "In" | "NotIn" => {}
            other => validator.invalid(place.child("operator"), other, OPERATOR),
        }
        match requirement.text("key") {
            "metadata.name" => {
                for (at, value) in values.enumerate() {
                    if validator.has_enough() {
                        return;
                    }
                    validator.refuse(&values_path.index(at), value, names::subdomain(value));
                }
            }
            other => validator.invalid(place.child("key"), other, "not a valid field selector key"),
        }
    }
}

/// Checks an affinity term, which selects pods.
pub(super) fn affinity_term(validator: &mut Validator, path: &FieldPath, term: StructView) {
    if term.text("topologyKey").is_empty() {
        // An empty key is reported twice: as missing, and as an invalid name.
        validator.refuse(&path.child("topologyKey"), "", names::qualified(""));
    }
    for name in term.texts("namespaces") {
        if validator.has_enough() {
            return;
        }
        validator.refuse(&path.child("namespace"), name, names::label(name));
    }
    keys_of_labels(validator, path, term);
}

/// Checks the keys that refer to labels of the pod itself. Each key has become a requirement of the selector.
/// The selector must have no other requirement for that key.
fn keys_of_labels(validator: &mut Validator, path: &FieldPath, term: StructView) {
    let selector = term.child("labelSelector");
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        if term.items(list).is_empty() {
            continue;
        }
        let place = path.child(list);
        if !selector.is_there() {
            validator.forbidden(place, "must not be specified when labelSelector is not set");
            continue;
        }
        label_keys(validator, &place, term.texts(list));
    }
    let match_keys: HashMap<&str, usize> =
        term.texts("matchLabelKeys").enumerate().map(|(at, key)| (key, at)).collect();
    if match_keys.is_empty() {
        return;
    }
    let mut selected: HashSet<&str> = selector.map("matchLabels").map(|(key, _)| key).collect();
    for expression in selector.structs("matchExpressions") {
        let key = expression.text("key");
        if let Some(at) = match_keys.get(key)
            && selected.contains(key)
            && !validator.has_enough()
        {
            validator.invalid(path.index(*at), key, "exists in both matchLabelKeys and labelSelector");
        }
        selected.insert(key);
    }
    let mismatch_keys: HashSet<&str> = term.texts("mismatchLabelKeys").collect();
    let place = path.child("matchLabelKeys");
    for (at, key) in term.texts("matchLabelKeys").enumerate() {
        if mismatch_keys.contains(key) && !validator.has_enough() {
            validator.invalid(place.index(at), key, "exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
}

fn label_keys<'v>(validator: &mut Validator, path: &FieldPath, keys: impl Iterator<Item = &'v str>) {
    for (at, key) in keys.enumerate() {
        if validator.has_enough() {
            return;
        }
        validator.refuse(&path.index(at), key, names::qualified(key));
    }
}

/// Checks a toleration of a taint.
pub(super) fn toleration(validator: &mut Validator, path: &FieldPath, toleration: StructView) {
    let (key, operator) = (toleration.text("key"), toleration.text("operator"));
    let value = toleration.text("value");
    let place = path.child("operator");
    if key.is_empty() && operator != "Exists" {
        let detail =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        validator.invalid(place, operator, detail);
    }
    if toleration.has("tolerationSeconds") && toleration.text("effect") != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        validator.invalid(path.child("effect"), toleration.text("effect"), detail);
    }
    match operator {
        "" | "Equal" => {
            let faults = names::label_value(value);
            if !faults.is_empty() {
                validator.invalid(place, value, faults.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                validator.invalid(place, value, "value must be empty when `operator` is 'Exists'");
            }
        }
        // Numeric comparison is not supported, but the error of the reference server lists the numeric
        // operators.
        "Lt" | "Gt" => validator.not_supported(place, operator, &["Equal", "Exists", "Lt", "Gt"]),
        other => validator.not_supported(place, other, &["Equal", "Exists"]),
    }
}

/// Checks a topology spread constraint.
pub(super) fn spread(validator: &mut Validator, path: &FieldPath, constraint: StructView) {
    let action = constraint.text("whenUnsatisfiable");
    if let Some(least) = constraint.int("minDomains")
        && action != "DoNotSchedule"
    {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        validator.invalid(path.child("minDomains"), least, detail);
    }
    keys_of_labels(validator, path, constraint);
}

/// Checks that constraints are unique. The first of two equal constraints is refused.
pub(super) fn not_repeated(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let pair = |constraint: StructView<'_>| -> (String, String) {
        (constraint.text("topologyKey").to_owned(), constraint.text("whenUnsatisfiable").to_owned())
    };
    let constraints = spec.structs("topologySpreadConstraints");
    if constraints.len() < 2 {
        return;
    }
    let mut counts: HashMap<(String, String), usize> = HashMap::new();
    for constraint in constraints.clone() {
        *counts.entry(pair(constraint)).or_default() += 1;
    }
    for (at, constraint) in constraints.enumerate() {
        if validator.has_enough() {
            return;
        }
        let pair = pair(constraint);
        let Some(count) = counts.get_mut(&pair) else { continue };
        *count -= 1;
        if *count > 0 {
            let place = path.index(at);
            let (key, action) = pair;
            validator
                .duplicate(place.child("{topologyKey, whenUnsatisfiable}"), format!("{{{key}, {action}}}"));
        }
    }
}
