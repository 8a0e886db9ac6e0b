//! Rules for environment variables, `envFrom` sources and downward API files.

use super::super::path::FieldPath;
use super::super::{Validator, names, scalar_formats};
use super::StructView;
use types::schema::table::{NameRule, ValueFormat};

const FIELDS_OF_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const FIELDS_OF_FILES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const BYTES: [&str; 13] = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Checks an environment variable. The variable has a value or a single source.
pub(super) fn variable(validator: &mut Validator, path: &FieldPath, variable: StructView) {
    let source = variable.child("valueFrom");
    if !source.is_there() {
        return;
    }
    let place = path.child("valueFrom");
    field(validator, &place.child("fieldRef"), source.child("fieldRef"), &FIELDS_OF_VARIABLES);
    resource(validator, &place.child("resourceFieldRef"), source.child("resourceFieldRef"), false);
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(name) {
            let reference = source.child(name).text("name");
            let reference_path = place.child(name);
            validator.refuse(&reference_path.child("name"), reference, names::subdomain(reference));
        }
    }
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let count = sources.into_iter().filter(|name| source.has(name)).count();
    let detail = if count == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !variable.text("value").is_empty() {
        "may not be specified when `value` is not empty"
    } else if count > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    validator.invalid(place, "", detail);
}

/// Checks a source whose entries all become environment variables. Errors have the path of the list.
pub(super) fn source(validator: &mut Validator, path: &FieldPath, source: StructView) {
    for kind in ["configMapRef", "secretRef"] {
        let name = source.child(kind).text("name");
        if !name.is_empty() {
            let place = path.child(kind);
            validator.refuse(&place.child("name"), name, names::generate_base(NameRule::Subdomain, name));
        }
    }
    let detail = match (source.has("configMapRef"), source.has("secretRef")) {
        (false, false) => "must specify one of: `configMapRef` or `secretRef`",
        (true, true) => "may not have more than one field specified at a time",
        _ => return,
    };
    validator.invalid(path.parent(), "", detail);
}

/// Checks a downward API file. Errors about the source of the file have the path of the volume.
pub(super) fn file(validator: &mut Validator, path: &FieldPath, file: StructView) {
    let volume = path.parent().parent();
    let target = file.text("path");
    if target.is_empty() {
        validator.required(volume.child("path"), "");
    }
    scalar_formats::text(ValueFormat::Local, &volume.child("path"), target, &mut validator.errors);
    if let Some(mode) = file.get("mode") {
        scalar_formats::value(ValueFormat::FileMode, &volume.child("mode"), mode, &mut validator.errors);
    }
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, both) => {
            field(validator, &volume.child("fieldRef"), file.child("fieldRef"), &FIELDS_OF_FILES);
            if both {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                validator.invalid(volume, "resource", detail);
            }
        }
        (false, true) => {
            resource(validator, &volume.child("resourceFieldRef"), file.child("resourceFieldRef"), true);
        }
        (false, false) => validator.required(volume, "one of fieldRef and resourceFieldRef is required"),
    }
}

/// Checks a reference to a field of the pod.
fn field(validator: &mut Validator, path: &FieldPath, reference: StructView, known: &[&str]) {
    if !reference.is_there() {
        return;
    }
    if reference.text("apiVersion").is_empty() {
        return validator.required(path.child("apiVersion"), "");
    }
    let field = reference.text("fieldPath");
    let place = path.child("fieldPath");
    if field.is_empty() {
        return; // the schema refuses it
    }
    if reference.text("apiVersion") != "v1" {
        let detail =
            format!("error converting fieldPath: unsupported pod version: {}", reference.text("apiVersion"));
        return validator.invalid(place, field, detail);
    }
    let field = match field {
        "spec.host" => "spec.nodeName", // the name that old clients use
        field => field,
    };
    if let Some((map, key)) =
        field.split_once('[').and_then(|(map, rest)| Some((map, rest.strip_suffix("']")?)))
        && let Some(key) = key.strip_prefix('\'')
    {
        match map {
            "metadata.annotations" => validator.refuse(path, key, names::qualified(&key.to_lowercase())),
            "metadata.labels" => validator.refuse(path, key, names::qualified(key)),
            _ => {
                let detail =
                    format!("error converting fieldPath: field label does not support subscript: {field}");
                validator.invalid(place, field, detail);
            }
        }
        return;
    }
    let convertible = FIELDS_OF_VARIABLES.contains(&field)
        || FIELDS_OF_FILES.contains(&field)
        || matches!(field, "spec.restartPolicy" | "spec.schedulerName" | "status.phase");
    if !convertible {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        validator.invalid(place, field, detail);
    } else if !known.contains(&field) {
        validator.not_supported(place, field, known);
    }
}

/// Checks a reference to a resource of a container. A reference in a file must contain the name of the
/// container.
fn resource(validator: &mut Validator, path: &FieldPath, reference: StructView, names_container: bool) {
    if !reference.is_there() {
        return;
    }
    let resource = reference.text("resource");
    let is_huge_page =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if names_container && reference.text("containerName").is_empty() {
        validator.required(path.child("containerName"), "");
    } else if resource.is_empty() {
        validator.required(path.child("resource"), "");
    } else if !RESOURCES.contains(&resource) && !is_huge_page {
        validator.not_supported(path.child("resource"), resource, &RESOURCES);
    }
    let Some(divisor) = reference.quantity("divisor").filter(|divisor| !divisor.is_zero()) else { return };
    // The reference server compares the text, so "1024" differs from "1Ki".
    let written = divisor.to_text();
    let is_one_of = |texts: &[&str]| texts.contains(&written.as_str());
    let (fits, what) = match resource {
        "limits.cpu" | "requests.cpu" => {
            if !is_one_of(&["1m", "1"]) {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                validator.invalid(path.child("divisor"), resource, detail);
            }
            return;
        }
        "limits.memory" | "requests.memory" => (is_one_of(&BYTES), "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (is_one_of(&BYTES), "local ephemeral storage")
        }
        _ if is_huge_page => (is_one_of(&BYTES), "hugepages"),
        _ => return,
    };
    if !fits {
        let detail =
            format!("only divisor's values {} are supported with the {what} resource", BYTES.join(", "));
        validator.invalid(path.child("divisor"), resource, detail);
    }
}
