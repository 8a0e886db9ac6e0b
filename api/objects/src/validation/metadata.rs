//! Checks of `metadata` for every kind (docs/api/writes.md#preparation-and-validation,
//! docs/api/writes.md#what-an-update-keeps).

use std::collections::BTreeSet;

use hashbrown::HashSet;

use super::names;
use super::path::FieldPath;
use crate::custom::definition::conditions;
use types::schema::table::{NameRule, Scope};
use values::field::{FieldError, go_quote, is_enough};
use values::json::{Object, Value};
use values::naming::Naming;
use values::object;
use values::query::check_field_manager;

/// Maximum total size in bytes of the keys and values of all annotations of an object.
const ANNOTATION_BYTES_MAX: usize = 256 * 1024;
const SUBRESOURCE_MAX: usize = 256;
/// Maximum number of additional controllers that are reported. Each error prints all references.
const CONTROLLERS_REPORTED_MAX: usize = 4;

/// Appends an `Invalid value` error for each fault.
pub(super) fn refuse(errors: &mut Vec<FieldError>, path: &FieldPath, value: &str, faults: names::Faults) {
    errors.extend(faults.into_iter().map(|fault| FieldError::invalid(path, &value.into(), fault)));
}

/// Checks the metadata of a new object. A generated name must already be set.
pub fn validate_metadata_create(
    name_rule: NameRule,
    scope: Scope,
    metadata: &Object,
    errors: &mut Vec<FieldError>,
) {
    let root = FieldPath::ROOT.child("metadata");
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).unwrap_or_default();
    let base = text("generateName");
    if !base.is_empty() {
        refuse(errors, &root.child("generateName"), base, names::generate_base(name_rule, base));
    }
    require_name(&root, metadata, errors);
    if !text("name").is_empty() {
        refuse(errors, &root.child("name"), text("name"), names::by_rule(name_rule, text("name")));
    }
    match (scope, text("namespace")) {
        (Scope::Namespaced, "") => errors.push(FieldError::required(root.child("namespace"), "")),
        (Scope::Namespaced, name) => refuse(errors, &root.child("namespace"), name, names::label(name)),
        (Scope::Cluster, "") => {}
        (Scope::Cluster, _) => {
            errors.push(FieldError::forbidden(root.child("namespace"), "not allowed on this type"));
        }
    }
    validate_new(&root, metadata, errors);
}

/// Checks the changes that an update makes to metadata.
pub fn validate_metadata_update(new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let root = FieldPath::ROOT.child("metadata");
    refuse_new_finalizers(&root, new, old, errors);
    let generation = |metadata: &Object| metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
    if generation(new) < generation(old) {
        let value = Value::Int(generation(new));
        errors.push(FieldError::invalid(root.child("generation"), &value, "must not be decremented"));
    }
    let mut keep = |name: &'static str, absent: &Value| {
        let (new, old) = (new.get(name).unwrap_or(absent), old.get(name).unwrap_or(absent));
        if new != old {
            errors.push(FieldError::invalid(root.child(name), new, "field is immutable"));
        }
    };
    for name in ["name", "namespace", "uid"] {
        keep(name, &"".into());
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        keep(name, &Value::Null);
    }
    validate_common(&root, new, errors);
}

/// Checks that a name is set.
pub(super) fn require_name(root: &FieldPath, metadata: &Object, errors: &mut Vec<FieldError>) {
    if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
        errors.push(FieldError::required(root.child("name"), "name or generateName is required"));
    }
}

fn refuse_new_finalizers(root: &FieldPath, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if old.get("deletionTimestamp").is_none_or(Value::is_null) {
        return;
    }
    let finalizers = |metadata: &'_ Object| {
        let list = metadata.get("finalizers").and_then(Value::as_array).unwrap_or_default();
        list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let old: HashSet<String> = finalizers(old).into_iter().collect();
    let mut added: Vec<String> = finalizers(new).into_iter().filter(|name| !old.contains(name)).collect();
    added.sort_unstable();
    added.dedup();
    if !added.is_empty() {
        let quoted: Vec<String> = added.iter().map(|name| go_quote(name)).collect();
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            quoted.join(", ")
        );
        errors.push(FieldError::forbidden(root.child("finalizers"), detail));
    }
}

/// Checks the metadata of a new object except for its name and namespace.
pub(super) fn validate_new(root: &FieldPath, metadata: &Object, errors: &mut Vec<FieldError>) {
    validate_common(root, metadata, errors);
    validate_finalizers(root, metadata, errors);
}

/// Checks that finalizers are qualified names and do not exclude each other.
pub(super) fn validate_finalizers(root: &FieldPath, metadata: &Object, errors: &mut Vec<FieldError>) {
    finalizers(&root.child("finalizers"), metadata.get("finalizers"), errors);
}

/// Runs the checks that are common to new objects and updates.
fn validate_common(root: &FieldPath, metadata: &Object, errors: &mut Vec<FieldError>) {
    if let Some(Value::Int(n @ ..=-1)) = metadata.get("generation") {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(root.child("generation"), &Value::Int(*n), detail));
    }
    labels(&root.child("labels"), metadata.get("labels"), errors);
    annotations(&root.child("annotations"), metadata.get("annotations"), errors);
    owner_references(&root.child("ownerReferences"), metadata.get("ownerReferences"), errors);
    managed_fields(&root.child("managedFields"), metadata.get("managedFields"), errors);
}

/// Checks the labels and annotations that a conversion of an object changed. The path of annotations is that
/// of the reference server's errors.
pub fn validate_converted(labels: Option<&Value>, annotations: Option<&Value>) -> Vec<FieldError> {
    let root = FieldPath::ROOT.child("metadata");
    let mut errors = Vec::new();
    self::labels(&root.child("labels"), labels, &mut errors);
    if errors.is_empty() {
        self::annotations(&root.child("annotation"), annotations, &mut errors);
    }
    errors
}

/// Checks the keys and values of a map of labels. Selectors and node selectors use this function as well.
pub(super) fn labels(path: &FieldPath, labels: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        if is_enough(errors) {
            break;
        }
        refuse(errors, path, key, names::qualified(key));
        let value = value.as_str().unwrap_or_default();
        refuse(errors, path, value, names::label_value(value));
    }
}

/// Checks the keys and the total size of annotations. Keys are converted to lower case before the check.
pub(super) fn annotations(path: &FieldPath, annotations: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (key, value) in annotations.and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        if is_enough(errors) {
            break;
        }
        refuse(errors, path, key, names::qualified(&key.to_ascii_lowercase()));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATION_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATION_BYTES_MAX));
    }
}

/// Returns the version in an `apiVersion`; empty if the text has more than one slash.
fn version_of(api_version: &str) -> &str {
    match api_version.split_once('/') {
        None => api_version,
        Some((_, version)) if version.contains('/') => "",
        Some((_, version)) => version,
    }
}

fn owner_references(path: &FieldPath, references: Option<&Value>, errors: &mut Vec<FieldError>) {
    let references_list = references.and_then(Value::as_array).unwrap_or_default();
    let mut controller: Option<[&str; 2]> = None;
    let mut controller_count = 0;
    for reference in references_list {
        if is_enough(errors) {
            break;
        }
        let text = |name: &str| reference.str_at(&[name]);
        if version_of(text("apiVersion")).is_empty() {
            let value = text("apiVersion").into();
            errors.push(FieldError::invalid(path.child("apiVersion"), &value, "version must not be empty"));
        }
        for name in ["kind", "name", "uid"] {
            if text(name).is_empty() {
                errors.push(FieldError::invalid(path.child(name), &"".into(), "must not be empty"));
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(path, reference, detail));
        }
        if reference.get("controller").and_then(Value::as_bool) == Some(true) {
            let [kind, name] = [text("kind"), text("name")];
            let [first_kind, first_name] = *controller.get_or_insert([kind, name]);
            if let (Some(all), 1..=CONTROLLERS_REPORTED_MAX) = (references, controller_count) {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for \
                     {first_kind}/{first_name} and {kind}/{name}"
                );
                errors.push(FieldError::invalid(path, all, detail));
            }
            controller_count += 1;
        }
    }
}

/// Checks that each finalizer is a standard finalizer or has a domain. This check does not apply to custom
/// objects and some kinds.
pub fn validate_finalizer_names(naming: &Naming, metadata: &Object, errors: &mut Vec<FieldError>) {
    let root = FieldPath::ROOT.child("metadata");
    let path = root.child("finalizers");
    let list = metadata.get("finalizers").and_then(Value::as_array).unwrap_or_default();
    for (at, finalizer) in list.iter().enumerate() {
        if is_enough(errors) {
            return;
        }
        finalizer_name(naming, &path.index(at), finalizer.as_str().unwrap_or_default(), errors);
    }
}

/// Checks that a finalizer is a standard finalizer or has a domain.
pub(super) fn finalizer_name(naming: &Naming, path: &FieldPath, name: &str, errors: &mut Vec<FieldError>) {
    let is_standard = ["orphan", "foregroundDeletion", naming.word].contains(&name)
        || (!name.contains('/') && name == conditions::finalizer(naming));
    if !name.contains('/') && !is_standard {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.push(FieldError::invalid(path, &name.into(), detail));
    }
}

/// Returns the warnings about finalizers of a custom object that `old` does not have. The warnings are about
/// names that are not qualified, and about names without a path, which may conflict with other writers.
pub fn finalizer_warnings(naming: &Naming, new: &Object, old: Option<&Object>) -> Vec<String> {
    let before = old.map(object::finalizers).unwrap_or_default();
    let added: BTreeSet<&str> =
        object::finalizers(new).into_iter().filter(|name| !before.contains(name)).collect();
    let standard = ["orphan", "foregroundDeletion", naming.word];
    let mut warnings = Vec::new();
    for name in added {
        let mut warn = |text: &str| warnings.push(format!("metadata.finalizers: {}: {text}", go_quote(name)));
        names::qualified(name).iter().for_each(|fault| warn(fault));
        if !name.contains('/') && !standard.contains(&name) {
            warn(
                "prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other \
                 finalizer writers",
            );
        }
    }
    warnings
}

fn finalizers(path: &FieldPath, finalizers: Option<&Value>, errors: &mut Vec<FieldError>) {
    let list = finalizers.and_then(Value::as_array).unwrap_or_default();
    let named = |name: &str| list.iter().any(|item| item.as_str() == Some(name));
    for finalizer in list {
        if is_enough(errors) {
            break;
        }
        let name = finalizer.as_str().unwrap_or_default();
        refuse(errors, path, name, names::qualified(name));
    }
    if named("orphan")
        && named("foregroundDeletion")
        && let Some(all) = finalizers
    {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, all, detail));
    }
}

fn managed_fields(path: &FieldPath, entries: Option<&Value>, errors: &mut Vec<FieldError>) {
    for (at, entry) in entries.and_then(Value::as_array).unwrap_or_default().iter().enumerate() {
        if is_enough(errors) {
            break;
        }
        let entry_path = path.index(at);
        let operation = entry.str_at(&["operation"]);
        if !matches!(operation, "Apply" | "Update") {
            let place = entry_path.child("operation");
            errors.push(FieldError::invalid(place, &operation.into(), "must be `Apply` or `Update`"));
        }
        let fields_type = entry.str_at(&["fieldsType"]);
        if !matches!(fields_type, "" | "FieldsV1") {
            let place = entry_path.child("fieldsType");
            errors.push(FieldError::invalid(place, &fields_type.into(), "must be `FieldsV1`"));
        }
        let place = entry_path.child("manager").to_string();
        check_field_manager(&place, entry.str_at(&["manager"]), errors);
        if entry.str_at(&["subresource"]).len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(entry_path.child("subresource"), SUBRESOURCE_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;
    use values::testing::object;

    fn texts(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn metadata_of_a_new_object_is_validated() {
        for (scope, metadata, want) in [
            (Scope::Namespaced, r#"{"name":"a","namespace":"b","finalizers":["orphan","a/b"]}"#, vec![]),
            (
                Scope::Namespaced,
                "{}",
                vec![
                    "metadata.name: Required value: name or generateName is required",
                    "metadata.namespace: Required value",
                ],
            ),
            (
                Scope::Cluster,
                r#"{"name":"a","namespace":"b"}"#,
                vec!["metadata.namespace: Forbidden: not allowed on this type"],
            ),
            (
                Scope::Cluster,
                r#"{"name":"a","finalizers":["x"]}"#,
                vec![
                    r#"metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified"#,
                ],
            ),
            (
                Scope::Cluster,
                r#"{"name":"a","ownerReferences":[{"apiVersion":"apps/","kind":"","name":"n","uid":"u"}]}"#,
                vec![
                    r#"metadata.ownerReferences.apiVersion: Invalid value: "apps/": version must not be empty"#,
                    r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
                ],
            ),
            (
                Scope::Cluster,
                r#"{"name":"a","ownerReferences":[{"apiVersion":"a/b/c","kind":"P","name":"n","uid":"u"}]}"#,
                vec![
                    r#"metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#,
                ],
            ),
            (
                Scope::Cluster,
                r#"{"name":"a","managedFields":[{"operation":"X","fieldsType":"Y"}]}"#,
                vec![
                    r#"metadata.managedFields[0].operation: Invalid value: "X": must be `Apply` or `Update`"#,
                    r#"metadata.managedFields[0].fieldsType: Invalid value: "Y": must be `FieldsV1`"#,
                ],
            ),
        ] {
            let mut errors = Vec::new();
            let metadata = object(metadata);
            validate_metadata_create(NameRule::Subdomain, scope, &metadata, &mut errors);
            validate_finalizer_names(&KUBERNETES, &metadata, &mut errors);
            assert_eq!(texts(errors), want, "{metadata:?}");
        }
        let mut errors = Vec::new();
        let big = format!(r#"{{"name":"a","annotations":{{"a":"{}"}}}}"#, "x".repeat(ANNOTATION_BYTES_MAX));
        validate_metadata_create(NameRule::Label, Scope::Cluster, &object(&big), &mut errors);
        assert_eq!(texts(errors), ["metadata.annotations: Too long: may not be more than 262144 bytes"]);
    }

    #[test]
    fn each_controller_reference_after_the_first_is_an_error() {
        let owners = object(
            r#"{"ownerReferences":[
                {"apiVersion":"v1","kind":"Pod","name":"p","uid":"1","controller":true},
                {"apiVersion":"v1","kind":"Pod","name":"q","uid":"2","controller":true},
                {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"3","controller":true}]}"#,
        );
        let mut errors = Vec::new();
        validate_new(&FieldPath::ROOT.child("metadata"), &owners, &mut errors);
        let said: Vec<_> = errors.iter().map(|error| (&*error.path, &*error.detail)).collect();
        let detail = |other: &str| {
            format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for Pod/p and {other}"
            )
        };
        let [second, third] = [detail("Pod/q"), detail("ReplicaSet/r")];
        assert_eq!(said, [("metadata.ownerReferences", &*second), ("metadata.ownerReferences", &*third)]);
    }

    #[test]
    fn an_update_cannot_change_identity_or_add_finalizers_during_deletion() {
        // Source: docs/api/writes.md#what-an-update-keeps.
        for (old, new, want) in [
            (r#"{"name":"a","uid":"u"}"#, r#"{"name":"a","uid":"u","labels":{"a":"b"}}"#, vec![]),
            (
                r#"{"name":"a","uid":"u","generation":2}"#,
                r#"{"name":"b","uid":"v","generation":1}"#,
                vec![
                    "metadata.generation: Invalid value: 1: must not be decremented",
                    r#"metadata.name: Invalid value: "b": field is immutable"#,
                    r#"metadata.uid: Invalid value: "v": field is immutable"#,
                ],
            ),
            (
                r#"{"name":"a","uid":"u"}"#,
                r#"{"uid":"u"}"#,
                vec![r#"metadata.name: Invalid value: "": field is immutable"#],
            ),
            (
                r#"{"deletionTimestamp":"2024-01-01T00:00:00Z","finalizers":["x/y"]}"#,
                r#"{"deletionTimestamp":"2024-01-01T00:00:00Z","finalizers":["x/y","x/b","x/a"]}"#,
                vec![
                    r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/a", "x/b"}"#,
                ],
            ),
            (
                r#"{"name":"a"}"#,
                r#"{"name":"a","labels":{"a b":"-"}}"#,
                vec![
                    "metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                    "metadata.labels: Invalid value: \"-\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                ],
            ),
        ] {
            let mut errors = Vec::new();
            let (new, old) = (object(new), object(old));
            validate_metadata_update(&new, &old, &mut errors);
            validate_finalizer_names(&KUBERNETES, &new, &mut errors);
            assert_eq!(texts(errors), want, "{new:?}");
        }
    }
}
