//! Annotations of pods that contain seccomp and AppArmor profiles, and the fields that replaced these annotations. If a
//! pod has the annotation and the field, both must agree (docs/api/validation.md#pods).

use super::super::path::FieldPath;
use super::super::{Validator, scalar_formats};
use super::StructView;
use types::schema::table::ValueFormat;
use values::field::go_quote;
use values::json::Value;

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Keys of the annotations: the key for the whole pod, and the prefixes of the keys for single containers.
struct Keys {
    pod_seccomp: String,
    seccomp: String,
    app_armor: String,
}

impl Keys {
    fn new(validator: &Validator) -> Self {
        let domain = validator.naming.domain;
        Keys {
            pod_seccomp: format!("seccomp.security.alpha.{domain}/pod"),
            seccomp: format!("container.seccomp.security.alpha.{domain}/"),
            app_armor: format!("container.apparmor.security.beta.{domain}/"),
        }
    }
}

/// Returns whether a key may be the key of a profile annotation. This fast test excludes most other
/// annotations.
fn is_of_profile(key: &str) -> bool {
    let rest = key.strip_prefix("container.").unwrap_or(key);
    rest.starts_with("seccomp.") || rest.starts_with("apparmor.")
}

/// Checks the annotations without the fields.
pub(super) fn annotations(
    validator: &mut Validator,
    path: &FieldPath,
    annotations: StructView,
    spec: StructView,
) {
    if !annotations.members().any(|(key, _)| is_of_profile(key)) {
        return;
    }
    let keys = Keys::new(validator);
    for (key, value) in annotations.members() {
        if validator.has_enough() {
            return;
        }
        let value = value.as_str().unwrap_or_default();
        if key == keys.pod_seccomp || key.starts_with(&keys.seccomp) {
            seccomp(validator, &path.child(key), value);
        } else if let Some(name) = key.strip_prefix(&keys.app_armor) {
            let mut containers = LISTS.iter().flat_map(|list| spec.structs(list));
            if !containers.any(|container| container.text("name") == name) {
                validator.invalid(path.key(key), name, "container not found");
            }
            if !matches!(value, "" | "runtime/default" | "unconfined") && !value.starts_with("localhost/") {
                let detail = format!("invalid AppArmor profile name: {}", go_quote(value));
                validator.invalid(path.key(key), value, detail);
            }
        }
    }
}

fn seccomp(validator: &mut Validator, path: &FieldPath, profile: &str) {
    match profile.strip_prefix("localhost/") {
        Some(file) => scalar_formats::text(ValueFormat::Descending, path, file, &mut validator.errors),
        None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
        None => validator.invalid(path, profile, "must be a valid seccomp profile"),
    }
}

/// Checks the annotations against the fields.
pub(super) fn matching(
    validator: &mut Validator,
    path: &FieldPath,
    annotations: StructView,
    spec: StructView,
) {
    if !annotations.members().any(|(key, _)| is_of_profile(key)) {
        return;
    }
    let keys = Keys::new(validator);
    let context = spec.child("securityContext");
    let place = path.child("securityContext");
    let annotation = annotations.get(&keys.pod_seccomp);
    agree(validator, &place.child("seccompProfile"), context.child("seccompProfile"), annotation, "seccomp");
    let is_windows = spec.child("os").text("name") == "windows";
    for list in LISTS {
        let list_path = path.child(list);
        for (at, container) in spec.structs(list).enumerate() {
            if validator.has_enough() {
                return;
            }
            let element = list_path.index(at);
            let place = element.child("securityContext");
            let (name, own) = (container.text("name"), container.child("securityContext"));
            let annotation = annotations.get(&format!("{}{name}", keys.seccomp));
            agree(
                validator,
                &place.child("seccompProfile"),
                own.child("seccompProfile"),
                annotation,
                "seccomp",
            );
            let profile = if own.has("appArmorProfile") { own } else { context }.child("appArmorProfile");
            let annotation = annotations.get(&format!("{}{name}", keys.app_armor)).filter(|_| !is_windows);
            agree(validator, &place.child("appArmorProfile"), profile, annotation, "apparmor");
        }
    }
}

/// Checks that a field and an annotation specify the same profile.
fn agree(
    validator: &mut Validator,
    path: &FieldPath,
    field: StructView,
    annotation: Option<&Value>,
    what: &str,
) {
    let Some(annotation) = annotation.and_then(Value::as_str).filter(|_| field.is_there()) else { return };
    let is_type = match field.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => match annotation.strip_prefix("localhost/") {
            None => false,
            Some(file) => {
                if field.get("localhostProfile").and_then(Value::as_str) != Some(file) {
                    let detail = format!("{what} profile in annotation and field must match");
                    validator.forbidden(path.child("localhostProfile"), detail);
                }
                true
            }
        },
        _ => true,
    };
    if !is_type {
        validator.forbidden(path.child("type"), format!("{what} type in annotation and field must match"));
    }
}
