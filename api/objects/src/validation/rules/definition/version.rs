//! Rules for the parts of a version except its schema: deprecation, subresources, columns and selectable
//! fields.

use hashbrown::HashSet;

use crate::custom::definition::{PrinterColumn, Subresources};
use crate::custom::field_path;
use crate::custom::schema::Schema;
use crate::validation::Validator;
use crate::validation::path::FieldPath;
use values::field::FieldError;
use values::field::is_enough;
use values::json::Value;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Maximum length of a deprecation warning in bytes.
const WARNING_MAX: usize = 256;

/// Maximum number of selectable fields.
pub(super) const SELECTABLE_MAX: usize = 8;

/// Checks the deprecation warning of a version.
pub(super) fn deprecation(
    validator: &mut Validator,
    path: &FieldPath,
    is_deprecated: bool,
    warning: Option<&str>,
) {
    let Some(warning) = warning else { return };
    let place = path.child("deprecationWarning");
    if !is_deprecated {
        return validator.invalid(place, warning, "can only be set for deprecated versions");
    }
    if warning.len() > WARNING_MAX {
        validator.invalid(place, warning, format!("must be <= {WARNING_MAX} characters long"));
    }
    if warning.is_empty() {
        validator.invalid(place, warning, "must not be an empty string");
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !go::is_printable(*c)) {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        validator.invalid(place, warning, detail);
    }
}

/// Checks the subresources of a version, including the paths of `/scale`.
pub(super) fn subresources(validator: &mut Validator, path: &FieldPath, subresources: Option<&Subresources>) {
    let Some(scale) = subresources.and_then(|subresources| subresources.scale.as_ref()) else { return };
    let spec = ("specReplicasPath", Some(scale.spec_replicas_path.as_str()), true);
    let status = ("statusReplicasPath", Some(scale.status_replicas_path.as_str()), true);
    let selector = ("labelSelectorPath", scale.label_selector_path.as_deref(), false);
    let place = path.child("scale");
    for ((name, target, is_required), roots, under) in [
        (spec, &[".spec."][..], ".spec"),
        (status, &[".status."], ".status"),
        (selector, &[".spec.", ".status."], "either .spec or .status"),
    ] {
        let place = place.child(name);
        match target.unwrap_or_default() {
            "" if is_required => validator.required(place, ""),
            "" => {}
            target if !target.starts_with('.') => not_simple(validator, &place, target),
            target if !roots.iter().any(|root| target.starts_with(root)) => {
                validator.invalid(place, target, format!("should be a json path under {under}"));
            }
            _ => {}
        }
    }
}

fn not_simple(validator: &mut Validator, path: &FieldPath, target: &str) {
    validator.invalid(path, target, "must be a simple json path starting with .");
}

/// Checks the columns of tables.
pub(super) fn columns(validator: &mut Validator, path: &FieldPath, columns: &[PrinterColumn]) {
    for (at, column) in columns.iter().enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        if column.name.is_empty() {
            validator.required(place.child("name"), "");
        }
        let types = || format!("must be one of {}", COLUMN_TYPES.join(","));
        match column.kind.as_str() {
            "" => validator.required(place.child("type"), &types()),
            kind if !COLUMN_TYPES.contains(&kind) => validator.invalid(place.child("type"), kind, types()),
            _ => {}
        }
        let format = column.format.as_str();
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            validator.invalid(place.child("format"), format, detail);
        }
        let target = place.child("JSONPath");
        match column.json_path.as_str() {
            "" => validator.required(target, ""),
            path if !path.starts_with('.') => not_simple(validator, &target, path),
            _ => {}
        }
    }
}

/// Checks the selectable fields. If `many_are_kept` is true, the number of fields may exceed the limit.
pub(super) fn selectable_fields(
    validator: &mut Validator,
    path: &FieldPath,
    fields: &[String],
    schema: &Schema,
    many_are_kept: bool,
) {
    let mut seen = HashSet::new();
    for (at, field) in fields.iter().enumerate() {
        if is_enough(&validator.errors) {
            return;
        }
        let element = path.index(at);
        let place = element.child("jsonPath");
        let field = field.as_str();
        if field.is_empty() {
            validator.required(place, "");
            continue;
        }
        let found = match field_path::resolve(field, schema, false) {
            Ok(found) => found,
            Err(error) => {
                validator.invalid(place, field, format!("is an invalid path: {error}"));
                continue;
            }
        };
        if found.first == "metadata" {
            validator.invalid(place, field, "must not point to fields in metadata");
        }
        let kind = found.schema.map_or("", |schema| schema.kind.as_str());
        if !matches!(kind, "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                          formats are allowed.";
            validator.invalid(place, field, detail);
        }
        if !seen.insert(found.text) {
            validator.duplicate(place, field);
        }
    }
    if seen.len() > SELECTABLE_MAX && !many_are_kept {
        validator.errors.push(FieldError::too_many(path, seen.len(), SELECTABLE_MAX));
    }
}

/// Refuses selectable fields of a version without a schema.
pub(super) fn no_schema(validator: &mut Validator, path: &FieldPath, detail: &str) {
    validator.invalid(path, Value::from(""), detail);
}
