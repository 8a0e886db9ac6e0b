//! Rules for API services (docs/api/validation.md#api-services).

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use values::base64_text;

const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

/// Checks the name, which must match the group and version, and the base of a generated name. The rules for
/// metadata refuse a name that is missing or is not a valid path segment.
fn named(validator: &mut Validator, path: &FieldPath, service: StructView) {
    let spec = service.child("spec");
    let expected = format!("{}.{}", spec.text("version"), spec.text("group"));
    for member in ["generateName", "name"] {
        let name = service.child("metadata").text(member);
        if !name.is_empty() && name != expected && names::path_segment(name).is_empty() {
            let quoted = values::field::go_quote(&expected);
            let detail = format!("must be `spec.version+\".\"+spec.group`: {quoted}");
            validator.invalid(path.child(member), name, detail);
        }
    }
}

/// Checks that each condition has a valid status.
pub(super) fn status(validator: &mut Validator, path: &FieldPath, status: StructView) {
    const STATES: [&str; 3] = ["True", "False", "Unknown"];
    let list = path.child("conditions");
    for (at, condition) in status.structs("conditions").enumerate() {
        if validator.has_enough() {
            return;
        }
        let state = condition.text("status");
        if !STATES.contains(&state) {
            let place = list.index(at);
            validator.not_supported(place.child("status"), state, &STATES);
        }
    }
}

/// Checks an API service, which is the registration of an extension server or of a group version of this
/// server.
pub(super) fn api_service(validator: &mut Validator, path: &FieldPath, service: StructView) {
    let spec = service.child("spec");
    let root = path.child("spec");
    named(validator, &path.child("metadata"), service);
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
            let shown = format!("{} bytes", base64_text::decoded_len(spec.text("caBundle")));
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
