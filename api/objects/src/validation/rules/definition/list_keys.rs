//! Checks of single nodes of a schema. The options of an update also depend on these checks.

use super::extension_names::ExtensionNames;
use super::structural::item;
use crate::custom::schema::Schema;
use crate::validation::path::FieldPath;
use hashbrown::HashSet;
use values::field::{FieldError, is_enough};
use values::json::Value;

pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Returns whether the node is a set whose elements are not atomic.
pub(super) fn has_open_sets(schema: &Schema, words: &ExtensionNames) -> bool {
    schema.list_type.as_deref() == Some("set") && set_error(schema, &FieldPath::ROOT, words).is_some()
}

/// Returns the errors for elements of sets and keys of keyed lists that may be `null` or absent, because such a value
/// cannot identify an element.
pub(super) fn key_errors(schema: &Schema, path: &FieldPath, words: &ExtensionNames) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (Some(item), Some(list_type @ ("set" | "map"))) = (item(schema), schema.list_type.as_deref()) else {
        return errors;
    };
    let items = path.child("items");
    if item.nullable {
        let detail = format!("cannot be nullable when {} is {list_type}", words.list_type);
        errors.push(FieldError::forbidden(items.child("nullable"), detail));
    }
    if list_type == "set" {
        return errors;
    }
    let properties = items.child("properties");
    let required: HashSet<&String> = item.required.iter().collect();
    for key in &schema.list_map_keys {
        if is_enough(&errors) {
            break;
        }
        let Some(property) = item.properties.get(key) else { continue };
        let place = properties.key(key);
        let why = format!("this property is in {}, so it", words.list_map_keys);
        if property.default.is_none() && !required.contains(key) {
            let detail = format!("{why} must have a default or be a required property");
            errors.push(FieldError::required(place.child("default"), detail));
        }
        if property.nullable {
            errors.push(FieldError::forbidden(place.child("nullable"), format!("{why} cannot be nullable")));
        }
    }
    errors
}

/// Returns the error for a set whose elements are not atomic.
pub(super) fn set_error(schema: &Schema, path: &FieldPath, words: &ExtensionNames) -> Option<FieldError> {
    let item = item(schema)?;
    let (name, own) = match item.kind.as_str() {
        "array" => {
            (&words.list_type, item.list_type.as_deref().is_none_or(|list_type| list_type == "atomic"))
        }
        "object" => (&words.map_type, item.map_type.as_deref() == Some("atomic")),
        _ => return None,
    };
    let items = path.child("items");
    let detail = format!("must be atomic as item of a list with {}=set", words.list_type);
    // As in the reference server, the error contains the list type of the element in both cases.
    let value = item.list_type.as_deref().map_or(Value::Null, Value::from);
    (!own).then(|| FieldError::invalid(items.child(name), &value, detail))
}
