//! Checks of embedded objects in custom objects: kind, version and metadata
//! (docs/api/custom-resources.md#from-request-to-store).
//!
//! In decoded objects these members have the right types; in defaults, they may have other types. The caller
//! checks that the value is an object.

use super::metadata::{refuse, validate_new};
use super::names;
use super::path::FieldPath;
use types::schema::table::NameRule;
use values::field::FieldError;
use values::json::{Object, Value};

/// Appends the errors of the embedded object at `place`.
pub fn check(place: &str, object: &Object, errors: &mut Vec<FieldError>) {
    let path = if place.is_empty() { FieldPath::ROOT } else { FieldPath::ROOT.child(place) };
    for name in ["apiVersion", "kind"] {
        let path = path.child(name);
        let Some(value) = object.get(name) else {
            errors.push(FieldError::required(path, ""));
            continue;
        };
        let fault = match value.as_str() {
            None => Some("must be a string".to_owned()),
            Some("") => {
                errors.push(FieldError::required(path, ""));
                continue;
            }
            Some(text) => fault(name, text),
        };
        errors.extend(fault.map(|why| FieldError::invalid(path, value, why)));
    }
    if let Some(Value::Object(metadata)) = object.get("metadata") {
        self::metadata(&path.child("metadata"), metadata, errors);
    }
}

fn fault(name: &str, text: &str) -> Option<String> {
    if name == "apiVersion" {
        return names::group_version_fault(text);
    }
    let faults = names::label_1035(&text.to_lowercase());
    let why = || format!("may have mixed case, but should otherwise match: {}", faults.join(","));
    (!faults.is_empty()).then(why)
}

/// Checks the metadata, whose members are all optional. The name must be a valid path segment.
fn metadata(path: &FieldPath, metadata: &Object, errors: &mut Vec<FieldError>) {
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    let (base, name, namespace) = (text("generateName"), text("name"), text("namespace"));
    refuse(errors, &path.child("generateName"), base, names::generate_base(NameRule::PathSegment, base));
    refuse(errors, &path.child("name"), name, names::path_segment(name));
    if !namespace.is_empty() {
        refuse(errors, &path.child("namespace"), namespace, names::label(namespace));
    }
    validate_new(path, metadata, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::testing::object;

    #[test]
    fn embedded_objects_need_kind_version_and_valid_metadata() {
        for (text, want) in [
            (r#"{"apiVersion":"v1","kind":"Pod"}"#, ""),
            (r#"{"apiVersion":"a.b/v1","kind":"PodList","metadata":{"name":"A B","labels":{"a":"b"}}}"#, ""),
            (r#"{}"#, "a.b[c].apiVersion: Required value; a.b[c].kind: Required value"),
            (r#"{"apiVersion":1,"kind":"Pod"}"#, "a.b[c].apiVersion: Invalid value: 1: must be a string"),
            (r#"{"apiVersion":"","kind":"Pod"}"#, "a.b[c].apiVersion: Required value"),
            (
                r#"{"apiVersion":"a/b/c","kind":"Pod"}"#,
                "a.b[c].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            ),
            (
                r#"{"apiVersion":"v1","kind":"P_"}"#,
                "a.b[c].kind: Invalid value: \"P_\": may have mixed case, but should otherwise match: a DNS-1035 label",
            ),
            (
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a/b","namespace":"A"}}"#,
                "a.b[c].metadata.name: Invalid value: \"a/b\": may not contain '/'; a.b[c].metadata.namespace: Invalid value",
            ),
            (
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a b":"c"}}}"#,
                "a.b[c].metadata.labels: Invalid value: \"a b\": name part must consist of",
            ),
        ] {
            let mut errors = Vec::new();
            check("a.b[c]", &object(text), &mut errors);
            let got = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            assert!(got.starts_with(want) && got.is_empty() == want.is_empty(), "{text}: {got}");
        }
    }
}
