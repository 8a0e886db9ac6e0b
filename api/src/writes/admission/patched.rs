//! Reads the result of a JSON patch by an admission plugin: decodes the result as the type that the result
//! names, and converts the object back to the type of the request (docs/api/webhooks.md#answers).
//!
//! `patched tree ─► its kind and version ─► decoded by the schema of that type ─► as the type of the request`
//!
//! If the patch removes the kind or version of a built-in object, the object keeps its previous kind or
//! version. A custom object without a kind or version is invalid.

use objects::known_types::{TypeName, is_known, not_registered, unconvertible};
use types::schema::conform::conform;
use types::schema::decoded::Decoded;
use types::schema::registry::Registry;
use types::schema::table::Message;
use values::field::{FieldError, go_quote};
use values::json::{self, Object, Value};
use values::object::meta;
use values::status::{Status, Subject};
use values::type_meta::untyped;

/// The reason why a patched object is not accepted.
#[derive(Clone, Debug)]
pub enum PatchedObjectError {
    /// The object cannot be decoded as the type that the object names.
    Undecodable(String),
    /// The object has another type and cannot be converted.
    Unconvertible {
        /// The reason why the object cannot be converted.
        why: String,
        /// Errors from the strict decoding of the object as the other type.
        strict: Vec<String>,
    },
    /// The kind of the object is not the kind of the resource.
    Invalid(Box<Status>),
}

/// Reads a patched object. `before` is the object before the patch, of type `message`.
///
/// # Errors
/// Fails if the object names no type, or if it names another type.
pub fn read(
    mut patched: Value,
    message: &Message,
    before: &Object,
    registry: &Registry,
) -> Result<Decoded, PatchedObjectError> {
    if let Some(why) = untyped(&patched) {
        return Err(PatchedObjectError::Undecodable(why));
    }
    let Some(members) = patched.as_object_mut() else {
        return Err(PatchedObjectError::Undecodable("not an object".to_owned()));
    };
    if message.custom {
        own_custom(&mut patched, before, registry)?;
        if let Ok(read) = conform(message, patched.clone()) {
            return Ok(read);
        }
        drop_malformed_metadata(message, &mut patched);
    } else {
        for name in ["kind", "apiVersion"] {
            if members.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                members.insert(name, before.get(name).cloned().unwrap_or_default());
            }
        }
        if type_of_value(&patched) != type_of_object(before) {
            return Err(other_type(patched, before, registry));
        }
    }
    conform(message, patched).map_err(|why| PatchedObjectError::Undecodable(why.to_string()))
}

/// Returns the API version and kind of an object.
fn type_of_value(value: &Value) -> (&str, &str) {
    (value.str_at(&["apiVersion"]), value.str_at(&["kind"]))
}

fn type_of_object(object: &Object) -> (&str, &str) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Splits an API version into group and version.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Converts a custom object to the version of its request, by setting `apiVersion`. The other members stay the
/// same.
fn own_custom(patched: &mut Value, before: &Object, registry: &Registry) -> Result<(), PatchedObjectError> {
    let (own_version, own_kind) = type_of_object(before);
    let (api_version, kind) = type_of_value(patched);
    if kind.is_empty() {
        let mut text = Vec::new();
        json::write_sorted(patched, &mut text);
        let text = String::from_utf8_lossy(&text);
        return Err(PatchedObjectError::Undecodable(format!("Object 'Kind' is missing in '{text}'")));
    }
    let ((group, version), (own_group, _)) = (split(api_version), split(own_version));
    let unconvertible = |why: String| Err(PatchedObjectError::Unconvertible { why, strict: Vec::new() });
    if group != own_group {
        let own = go_quote(own_version);
        return unconvertible(format!(
            "{group}/{version}, Kind={kind} is unsuitable for converting to {own}"
        ));
    }
    if registry.by_kind(group, version, own_kind).is_none() {
        return unconvertible(format!("request to convert CR from an invalid group/version: {api_version}"));
    }
    if kind != own_kind {
        let subject = Subject { group, kind, name: meta_name(patched) };
        let error = FieldError::invalid("kind", &kind.into(), format!("must be {own_kind}"));
        return Err(PatchedObjectError::Invalid(Box::new(Status::invalid(subject, &[error]))));
    }
    let own_version = Value::from(own_version);
    if let Some(members) = patched.as_object_mut() {
        members.insert("apiVersion", own_version);
    }
    Ok(())
}

fn meta_name(value: &Value) -> &str {
    value.as_object().map_or("", |object| meta(object, "name"))
}

/// Drops the members of a custom object's metadata whose values do not have the type that object metadata
/// requires.
fn drop_malformed_metadata(message: &Message, object: &mut Value) {
    let metadata = object.as_object_mut().and_then(|object| object.get_mut("metadata"));
    let Some(metadata) = metadata.and_then(Value::as_object_mut) else { return };
    metadata.retain(|name, value| {
        let only = |name: &str, value: Value| Object::from_iter([(name.to_owned().into(), value)]);
        conform(message, only("metadata", only(name, value.clone()).into()).into()).is_ok()
    });
}

/// Returns the error for a built-in object that a patch turned into another type.
fn other_type(patched: Value, before: &Object, registry: &Registry) -> PatchedObjectError {
    let (api_version, kind) = type_of_value(&patched);
    let (own_version, own_kind) = type_of_object(before);
    let (given, own) = (TypeName::new(kind, api_version), TypeName::new(own_kind, own_version));
    if !is_known(registry, given, own_version) {
        return PatchedObjectError::Undecodable(not_registered(given, own_version));
    }
    let why = unconvertible(given, own);
    let (group, version) = split(api_version);
    let Some(known) = registry.by_kind(group, version, kind) else {
        return PatchedObjectError::Unconvertible { why, strict: Vec::new() };
    };
    match conform(&known.table.message, patched) {
        Ok(read) => PatchedObjectError::Unconvertible { why, strict: read.strict },
        Err(why) => PatchedObjectError::Undecodable(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn a_patched_object_is_decoded_as_the_type_that_it_names() {
        let registry = Registry::new(&values::naming::KUBERNETES);
        let own = object(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}"#);
        let message = &registry.by_kind("", "v1", "ConfigMap").unwrap().table.message;
        let no_kind = |kind: &str, version: &str| {
            format!(
                "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
            )
        };
        let not_text = |name: &str| {
            format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .{name} of \
                 type string"
            )
        };
        let converting = |from: &str| format!("converting ({from}) to (core.ConfigMap): unknown conversion");
        for (patched, want) in [
            (r#"{"kind":"ConfigMap","apiVersion":"v1"}"#, String::new()),
            (r"{}", String::new()),
            (r#"{"kind":5,"apiVersion":"v1"}"#, not_text("kind")),
            (r#"{"kind":"ConfigMap","apiVersion":5}"#, not_text("apiVersion")),
            (r#"{"kind":"ConfigMap","apiVersion":"v2"}"#, no_kind("ConfigMap", "v2")),
            (r#"{"kind":"ConfigMap","apiVersion":"apps/v1"}"#, no_kind("ConfigMap", "apps/v1")),
            (r#"{"kind":"Nope"}"#, no_kind("Nope", "v1")),
            (r#"{"kind":"Pod","data":{"k":"v"}}"#, converting("v1.Pod") + " unknown field \"data\""),
            (r#"{"kind":"Deployment","apiVersion":"apps/v1"}"#, converting("v1.Deployment")),
        ] {
            let got = match read(object(patched).into(), message, &own, &registry) {
                Ok(read) => {
                    assert_eq!(type_of_object(&read.object), ("v1", "ConfigMap"), "{patched}");
                    String::new()
                }
                Err(PatchedObjectError::Undecodable(why)) => why,
                Err(PatchedObjectError::Unconvertible { why, strict }) => {
                    format!("{why} {}", strict.join(", ")).trim_end().to_owned()
                }
                Err(PatchedObjectError::Invalid(status)) => status.into_message(),
            };
            assert_eq!(got, want, "{patched}");
        }
    }
}
