//! Rules for custom resource definitions and API services (docs/api/validation.md#custom-resource-definitions,
//! #api-services).

use hashbrown::HashSet;

use super::super::path::Path;
use super::super::{Validator, names};
use super::{View, admission};

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;
const WARNING_MAX: usize = 256;
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// A custom type: its name is made of its plural and its group.
pub(super) fn definition(validator: &mut Validator, path: &Path, definition: View) {
    let spec = definition.child("spec");
    let root = path.child("spec");
    let (group, plural) = (spec.text("group"), spec.child("names").text("plural"));
    let name = definition.child("metadata").text("name");
    let wanted = format!("{plural}.{group}");
    if name != wanted {
        let metadata = path.child("metadata");
        let detail = "must be spec.names.plural+\".\"+spec.group";
        validator.invalid(metadata.child("name"), name, detail);
    }
    if !group.is_empty() {
        let place = root.child("group");
        let faults = names::subdomain(group);
        if !faults.is_empty() {
            validator.invalid(place, group, faults.join(","));
        } else if !group.contains('.') {
            validator.invalid(place, group, "should be a domain with at least one dot");
        }
    }
    let scope = spec.text("scope");
    if !matches!(scope, "" | "Cluster" | "Namespaced") {
        validator.not_supported(root.child("scope"), scope, &["Cluster", "Namespaced"]);
    }
    if spec.is_true("preserveUnknownFields") && validator.is_create() {
        let marker = validator.naming.extension("preserve-unknown-fields");
        let detail = format!("cannot set to true, set {marker} to true in spec.versions[*].schema instead");
        validator.invalid(root.child("preserveUnknownFields"), true, detail);
    }
    versions(validator, &root, spec);
    type_names(validator, &root.child("names"), spec.child("names"));
    conversion(validator, &root.child("conversion"), spec.child("conversion"));
}

fn versions(validator: &mut Validator, path: &Path, spec: View) {
    let list = path.child("versions");
    let mut seen = HashSet::new();
    let mut is_unique = true;
    let mut stored = 0;
    for (at, version) in spec.structs("versions").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        let name = version.text("name");
        if !name.is_empty() {
            let faults = names::label_1035(name);
            if !faults.is_empty() {
                validator.invalid(place.child("name"), name, faults.join(","));
            }
        }
        is_unique &= seen.insert(name);
        stored += usize::from(version.is_true("storage"));
        if version.is_true("served") && !version.child("schema").has("openAPIV3Schema") {
            let schema = place.child("schema");
            validator.required(schema.child("openAPIV3Schema"), "schemas are required");
        }
        let warning = version.text("deprecationWarning");
        if version.has("deprecationWarning") {
            let place = place.child("deprecationWarning");
            if !version.is_true("deprecated") {
                validator.invalid(place, warning, "can only be set for deprecated versions");
            }
            if warning.is_empty() {
                validator.invalid(place, warning, "must not be an empty string");
            } else if warning.len() > WARNING_MAX {
                let detail = format!("must be <= {WARNING_MAX} characters long");
                validator.invalid(place, warning, detail);
            }
        }
        columns(validator, &place.child("additionalPrinterColumns"), version);
        scale(validator, &place.child("subresources"), version.child("subresources"));
    }
    let all = || spec.get("versions").cloned().unwrap_or_default();
    if !is_unique {
        validator.invalid(list, all(), "must contain unique version names");
    }
    if stored != 1 && !seen.is_empty() {
        validator.invalid(list, all(), "must have exactly one version marked as storage version");
    }
}

fn columns(validator: &mut Validator, path: &Path, version: View) {
    for (at, column) in version.structs("additionalPrinterColumns").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = path.index(at);
        let (kind, format, target) = (column.text("type"), column.text("format"), column.text("jsonPath"));
        if !kind.is_empty() && !COLUMN_TYPES.contains(&kind) {
            validator.invalid(
                place.child("type"),
                kind,
                format!("must be one of {}", COLUMN_TYPES.join(",")),
            );
        }
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            validator.invalid(place.child("format"), format, detail);
        }
        if !target.is_empty() && !target.starts_with('.') && !target.starts_with('[') {
            let detail = "must be a simple json path starting with .";
            validator.invalid(place.child("jsonPath"), target, detail);
        }
    }
}

fn scale(validator: &mut Validator, path: &Path, subresources: View) {
    let scale = subresources.child("scale");
    let place = path.child("scale");
    for (name, roots) in [
        ("specReplicasPath", &[".spec."][..]),
        ("statusReplicasPath", &[".status."]),
        ("labelSelectorPath", &[".spec.", ".status."]),
    ] {
        let target = scale.text(name);
        if target.is_empty() {
            continue;
        }
        if target.contains('[') || !target.starts_with('.') {
            validator.invalid(place.child(name), target, "must be a simple json path with dot notation");
        } else if !roots.iter().any(|root| target.starts_with(root)) {
            let detail = format!(
                "should be a json path under {}",
                roots.join(" or ").replace(". ", " ").trim_end_matches('.')
            );
            validator.invalid(place.child(name), target, detail);
        }
    }
}

fn type_names(validator: &mut Validator, path: &Path, names_of: View) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let text = names_of.text(name);
        if text.is_empty() {
            if matches!(name, "singular" | "listKind") {
                validator.required(path.child(name), "");
            }
            continue;
        }
        let faults = if matches!(name, "kind" | "listKind") {
            names::label_1035(&text.to_lowercase())
        } else {
            names::label_1035(text)
        };
        if !faults.is_empty() {
            let detail = match name {
                "kind" | "listKind" => {
                    format!("may have mixed case, but should otherwise match: {}", faults.join(","))
                }
                _ => faults.join(","),
            };
            validator.invalid(path.child(name), text, detail);
        }
    }
    let (kind, list) = (names_of.text("kind"), names_of.text("listKind"));
    if !kind.is_empty() && kind == list {
        validator.invalid(path.child("listKind"), list, "kind and listKind may not be the same");
    }
    for list in ["shortNames", "categories"] {
        let place = path.child(list);
        for (at, name) in names_of.texts(list).enumerate() {
            let faults = names::label_1035(name);
            if !faults.is_empty() && !validator.has_enough() {
                validator.invalid(place.index(at), name, faults.join(","));
            }
        }
    }
}

fn conversion(validator: &mut Validator, path: &Path, conversion: View) {
    let webhook = conversion.child("webhook");
    let place = path.child("webhook");
    match conversion.text("strategy") {
        "Webhook" => {
            if !webhook.has("clientConfig") {
                let detail = "required when strategy is set to Webhook";
                validator.required(place.child("clientConfig"), detail);
            }
            let versions = place.child("conversionReviewVersions");
            admission::review_versions(validator, &versions, webhook, "conversionReviewVersions");
        }
        "None" if webhook.is_there() => {
            validator.forbidden(place, "should not be set when strategy is not set to Webhook");
        }
        "None" | "" => {}
        other => validator.not_supported(path.child("strategy"), other, &["None", "Webhook"]),
    }
}

/// Fields that are immutable once a type is established.
pub(super) fn definition_update(validator: &mut Validator, new: View, old: View) {
    let is_established = old
        .child("status")
        .structs("conditions")
        .any(|condition| condition.text("type") == "Established" && condition.text("status") == "True");
    if !is_established {
        return;
    }
    let (new, old) = (new.child("spec"), old.child("spec"));
    for (path, now, before) in [
        ("spec.scope", new.text("scope"), old.text("scope")),
        ("spec.names.kind", new.child("names").text("kind"), old.child("names").text("kind")),
    ] {
        if now != before {
            validator.invalid(path, now, "field is immutable");
        }
    }
}

/// Another server behind this one, or a group version of this one.
pub(super) fn api_service(validator: &mut Validator, path: &Path, service: View) {
    let spec = service.child("spec");
    let root = path.child("spec");
    let name = service.child("metadata").text("name");
    let wanted = format!("{}.{}", spec.text("version"), spec.text("group"));
    if name != wanted {
        let metadata = path.child("metadata");
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", crate::field::go_quote(&wanted));
        validator.invalid(metadata.child("name"), name, detail);
    }
    let (group, version) = (spec.text("group"), spec.text("version"));
    if group.is_empty() && version != "v1" {
        let detail = "only v1 may have an empty group and it better be legacy kube";
        validator.required(root.child("group"), detail);
    }
    if !group.is_empty() {
        validator.refuse(&root.child("group"), group, names::subdomain(group));
    }
    validator.refuse(&root.child("version"), version, names::label_1035(version));
    for (name, max) in
        [("groupPriorityMinimum", GROUP_PRIORITY_MAX), ("versionPriority", VERSION_PRIORITY_MAX)]
    {
        let number = spec.int(name).unwrap_or(0);
        if !(1..=max).contains(&number) {
            let detail = format!("must be positive and less than {max}");
            validator.invalid(root.child(name), number, detail);
        }
    }
    let has_bundle = !spec.text("caBundle").is_empty();
    let insecure = spec.is_true("insecureSkipTLSVerify");
    let target = spec.child("service");
    let place = root.child("service");
    if !target.is_there() {
        if has_bundle {
            let shown = format!("{} bytes", spec.text("caBundle").len());
            validator.invalid(root.child("caBundle"), shown, "local APIServices may not have a caBundle");
        }
        if insecure {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            validator.invalid(root.child("insecureSkipTLSVerify"), true, detail);
        }
        return;
    }
    for name in ["namespace", "name"] {
        if target.text(name).is_empty() {
            validator.required(place.child(name), "");
        }
    }
    if let Some(port) = target.int("port").filter(|port| !(1..=65535).contains(port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        validator.invalid(place.child("port"), port, detail);
    }
    if insecure && has_bundle {
        let detail = "may not be true if caBundle is present";
        validator.invalid(root.child("insecureSkipTLSVerify"), true, detail);
    }
}
