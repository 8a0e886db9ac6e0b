//! Rules for the names of a custom type.

use crate::custom::definition::Names;
use crate::validation::path::FieldPath;
use crate::validation::{Validator, names};

/// Checks the requested or granted names of a definition.
pub(super) fn check(validator: &mut Validator, path: &FieldPath, definition_names: &Names) {
    for (name, text) in [("plural", &definition_names.plural), ("singular", &definition_names.singular)] {
        label(validator, &path.child(name), text);
    }
    for (name, text) in [("kind", &definition_names.kind), ("listKind", &definition_names.list_kind)] {
        let faults = names::label_1035(&text.to_lowercase());
        if !text.is_empty() && !faults.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            validator.invalid(path.child(name), text.as_str(), detail);
        }
    }
    labels(validator, &path.child("shortNames"), &definition_names.short_names);
    if !definition_names.kind.is_empty() && definition_names.kind == definition_names.list_kind {
        let detail = "kind and listKind may not be the same";
        validator.invalid(path.child("listKind"), definition_names.list_kind.as_str(), detail);
    }
    labels(validator, &path.child("categories"), &definition_names.categories);
}

/// Checks the names that are required for serving a type.
pub(super) fn required(validator: &mut Validator, path: &FieldPath, definition_names: &Names) {
    for (name, text) in [
        ("plural", &definition_names.plural),
        ("singular", &definition_names.singular),
        ("kind", &definition_names.kind),
        ("listKind", &definition_names.list_kind),
    ] {
        if text.is_empty() {
            validator.required(path.child(name), "");
        }
    }
}

/// Checks an RFC 1035 label, which may be empty.
fn label(validator: &mut Validator, path: &FieldPath, name: &str) {
    if !name.is_empty() {
        full_label(validator, path, name);
    }
}

/// Checks an RFC 1035 label. Reports all faults in one error.
pub(super) fn full_label(validator: &mut Validator, path: &FieldPath, name: &str) {
    let faults = names::label_1035(name);
    if !faults.is_empty() {
        validator.invalid(path, name, faults.join(","));
    }
}

fn labels(validator: &mut Validator, path: &FieldPath, list: &[String]) {
    for (at, name) in list.iter().enumerate() {
        if validator.has_enough() {
            return;
        }
        full_label(validator, &path.index(at), name);
    }
}
