//! Reads the result of a JSON patch by an admission plugin: decodes it as the type that it then names, and
//! converts it back to the type of the request (docs/api/webhooks.md#answers).
//!
//! `patched tree ─► its kind and version ─► decoded by the schema of that type ─► as the type of the request`
//!
//! If the patch removes the kind or version of a built-in object, the object keeps its own. A custom object
//! must name them.

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
pub enum Misread {
    /// The object does not decode as the type that it names.
    Undecodable(String),
    /// The object is of another type and is not converted.
    Unconvertible {
        /// Why the object is not converted.
        why: String,
        /// Errors of strict decoding as the other type.
        strict: Vec<String>,
    },
    /// The object is of a kind other than that of its resource.
    Invalid(Box<Status>),
}

/// Reads a patched object. `before` is the object before the patch, of type `message`.
///
/// # Errors
/// Fails if the object names no type, or another type.
pub fn read(
    mut patched: Value,
    message: &Message,
    before: &Object,
    registry: &Registry,
) -> Result<Decoded, Misread> {
    if let Some(why) = untyped(&patched) {
        return Err(Misread::Undecodable(why));
    }
    let Some(members) = patched.as_object_mut() else {
        return Err(Misread::Undecodable("not an object".to_owned()));
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
        if of(&patched) != of_object(before) {
            return Err(other_type(patched, before, registry));
        }
    }
    conform(message, patched).map_err(|why| Misread::Undecodable(why.to_string()))
}

/// Returns version and kind of an object.
fn of(value: &Value) -> (&str, &str) {
    (value.str_at(&["apiVersion"]), value.str_at(&["kind"]))
}

fn of_object(object: &Object) -> (&str, &str) {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// Splits an API version into group and version.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Converts a custom object to the version of its request. The versions of one group differ in name only.
fn own_custom(patched: &mut Value, before: &Object, registry: &Registry) -> Result<(), Misread> {
    let (own_version, own_kind) = of_object(before);
    let (api_version, kind) = of(patched);
    if kind.is_empty() {
        let mut text = Vec::new();
        json::write_sorted(patched, &mut text);
        let text = String::from_utf8_lossy(&text);
        return Err(Misread::Undecodable(format!("Object 'Kind' is missing in '{text}'")));
    }
    let ((group, version), (own_group, _)) = (split(api_version), split(own_version));
    let unconvertible = |why: String| Err(Misread::Unconvertible { why, strict: Vec::new() });
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
        return Err(Misread::Invalid(Box::new(Status::invalid(subject, &[error]))));
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

/// Drops metadata of a custom object that is not a metadata object.
fn drop_malformed_metadata(message: &Message, object: &mut Value) {
    let metadata = object.as_object_mut().and_then(|object| object.get_mut("metadata"));
    let Some(metadata) = metadata.and_then(Value::as_object_mut) else { return };
    metadata.retain(|name, value| {
        let only = |name: &str, value: Value| Object::from_iter([(name.to_owned().into(), value)]);
        conform(message, only("metadata", only(name, value.clone()).into()).into()).is_ok()
    });
}

/// Returns why a built-in object that a patch turned into another type is not accepted.
fn other_type(patched: Value, before: &Object, registry: &Registry) -> Misread {
    let (api_version, kind) = of(&patched);
    let (own_version, own_kind) = of_object(before);
    let (given, own) = (TypeName::new(kind, api_version), TypeName::new(own_kind, own_version));
    if !is_known(registry, given, own_version) {
        return Misread::Undecodable(not_registered(given, own_version));
    }
    let why = unconvertible(given, own);
    let (group, version) = split(api_version);
    let Some(known) = registry.by_kind(group, version, kind) else {
        return Misread::Unconvertible { why, strict: Vec::new() };
    };
    match conform(&known.table.message, patched) {
        Ok(read) => Misread::Unconvertible { why, strict: read.strict },
        Err(why) => Misread::Undecodable(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn a_patched_object_is_of_the_type_that_it_says_it_is() {
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
                    assert_eq!(of_object(&read.object), ("v1", "ConfigMap"), "{patched}");
                    String::new()
                }
                Err(Misread::Undecodable(why)) => why,
                Err(Misread::Unconvertible { why, strict }) => {
                    format!("{why} {}", strict.join(", ")).trim_end().to_owned()
                }
                Err(Misread::Invalid(status)) => status.message,
            };
            assert_eq!(got, want, "{patched}");
        }
    }
}
