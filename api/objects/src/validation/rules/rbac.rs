//! Rules for roles and bindings (docs/api/authorization.md#rbac).

use super::super::is_same;
use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use values::json::{Object, Value};

/// Checks a rule of a role. Only cluster roles may have non-resource URLs.
pub(super) fn policy_rule(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    let is_empty = |name: &str| rule.items(name).is_empty();
    let require = |validator: &mut Validator, name: &str, detail: &str| {
        if is_empty(name) {
            validator.required(path.child(name), detail);
        }
    };
    require(validator, "verbs", "verbs must contain at least one value");
    if is_empty("nonResourceURLs") {
        require(validator, "apiGroups", "resource rules must supply at least one api group");
        require(validator, "resources", "resource rules must supply at least one resource");
        return;
    }
    let urls = || rule.get("nonResourceURLs").cloned().unwrap_or_default();
    let place = path.child("nonResourceURLs");
    if validator.kind == "Role" {
        validator.invalid(place, urls(), "namespaced rules cannot apply to non-resource URLs");
    }
    if !(is_empty("apiGroups") && is_empty("resources") && is_empty("resourceNames")) {
        validator.invalid(
            place,
            urls(),
            "rules cannot apply to both regular resources and non-resource URLs",
        );
    }
}

pub(super) fn aggregation(validator: &mut Validator, path: &FieldPath, aggregation: StructView) {
    if aggregation.items("clusterRoleSelectors").is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        validator.required(path.child("clusterRoleSelectors"), detail);
    }
    let list = path.child("clusterRoleSelectors");
    for at in 0..aggregation.items("clusterRoleSelectors").len() {
        if validator.has_enough() {
            return;
        }
        // Report this error in addition to the errors inside the selector, because an invalid selector selects nothing.
        if !validator.errors.is_empty() && validator.has_errors_in(&list.index(at)) {
            validator.invalid(list.index(at), Value::Null, "invalid label selector.");
        }
    }
}

/// Checks the reference to a role in a binding.
pub(super) fn reference(validator: &mut Validator, path: &FieldPath, reference: StructView) {
    let group = validator.naming.group("rbac.authorization", true);
    if reference.text("apiGroup") != group {
        validator.not_supported(path.child("apiGroup"), reference.text("apiGroup"), &[&group]);
    }
    let kinds: &[&str] =
        if validator.kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let kind = reference.text("kind");
    if !kinds.contains(&kind) {
        validator.not_supported(path.child("kind"), kind, kinds);
    }
}

/// Checks a subject of a binding.
pub(super) fn subject(validator: &mut Validator, path: &FieldPath, subject: StructView) {
    let group = validator.naming.group("rbac.authorization", true);
    let (kind, name, own_group) = (subject.text("kind"), subject.text("name"), subject.text("apiGroup"));
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                validator.refuse(&path.child("name"), name, names::subdomain(name));
            }
            if !own_group.is_empty() {
                validator.not_supported(path.child("apiGroup"), own_group, &[""]);
            }
            if validator.kind == "ClusterRoleBinding" && subject.text("namespace").is_empty() {
                validator.required(path.child("namespace"), "");
            }
        }
        "User" | "Group" if own_group != group => {
            validator.not_supported(path.child("apiGroup"), own_group, &[&group]);
        }
        "User" | "Group" => {}
        other => {
            let supported = ["ServiceAccount", "User", "Group"];
            validator.not_supported(path.child("kind"), other, &supported);
        }
    }
}

/// Checks that an update does not change the role reference of a binding.
pub(super) fn binding_update(validator: &mut Validator, new: StructView, old: StructView) {
    let (new, old) = (new.get("roleRef"), old.get("roleRef"));
    if is_same(new, old) {
        return;
    }
    let names = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
    let new = StructView::from(new);
    let printed: Object =
        names.iter().map(|(shown, name)| ((*shown).into(), Value::from(new.text(name)))).collect();
    validator.invalid("roleRef", printed, "cannot change roleRef");
}
