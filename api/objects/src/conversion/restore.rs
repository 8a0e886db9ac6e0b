//! The members of an object that a conversion must not change: its identity and its metadata, except for
//! labels and annotations.

use crate::validation::metadata::validate_converted;
use values::json::{Object, Value};
use values::object::meta;

/// Checks that the converted object has the requested version and the original kind.
pub(super) fn check_type(converted: &Object, to: &str, kind: Option<&Value>) -> Result<(), String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (given, given_kind) = (text(converted.get("apiVersion")), text(converted.get("kind")));
    if given != to {
        return Err(format!("invalid groupVersion (expected {to}, received {given})"));
    }
    let kind = text(kind);
    if given_kind != kind {
        return Err(format!("invalid kind (expected {kind}, received {given_kind})"));
    }
    Ok(())
}

/// Checks that the converted object has the identity of the object that was sent.
pub(super) fn check_identity(converted: &Object, original: &Object) -> Result<(), String> {
    for (member, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (sent, given) = (meta(original, member), meta(converted, member));
        if sent != given {
            return Err(format!("must have the same {shown}: {sent} != {given}"));
        }
    }
    Ok(())
}

/// Returns the converted object with the metadata of the original, except for labels and annotations.
///
/// # Errors
/// Fails if labels or annotations are not maps of strings, or were changed to invalid values.
pub(super) fn metadata(mut converted: Object, mut original: Object) -> Result<Object, String> {
    let given = match converted.remove("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(given)) => given,
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", other.go_type()));
        }
    };
    let mut metadata = match original.remove("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => Object::new(),
    };
    for (at, name) in ["labels", "annotations"].into_iter().enumerate() {
        let value = match given.get(name) {
            None | Some(Value::Null) => {
                metadata.remove(name);
                continue;
            }
            Some(Value::Object(value)) => value,
            Some(other) => {
                let found = other.go_type();
                return Err(format!("invalid metadata.{name} of type {found} in converted object"));
            }
        };
        if let Some((key, other)) = value.iter().find(|(_, value)| value.as_str().is_none()) {
            let found = other.go_type();
            return Err(format!(
                "metadata.{name}[{key}] must be a string, but is {found} in converted object"
            ));
        }
        let value = Value::Object(value.clone());
        if metadata.get(name) != Some(&value) {
            let checked = if at == 0 { (Some(&value), None) } else { (None, Some(&value)) };
            if let Some(errors) = go::join_errors(validate_converted(checked.0, checked.1)) {
                return Err(errors);
            }
        }
        metadata.insert(name, value);
    }
    converted.insert("metadata", metadata.into());
    Ok(converted)
}
