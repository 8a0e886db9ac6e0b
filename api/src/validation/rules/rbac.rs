//! Roles and bindings (semantics §5.7, §14.2).

use super::super::is_same;
use super::super::metadata::{is_enough, refuse};
use super::super::names;
use super::super::path::Path;
use super::{Check, given, items, not_supported, selector, text, top};
use crate::field::FieldError;
use crate::json::{Object, Value};

pub(super) fn role(check: &mut Check) {
    policy_rules(check, true);
}

pub(super) fn cluster_role(check: &mut Check) {
    policy_rules(check, false);
    let Some(aggregation) = top(check.object, "aggregationRule") else { return };
    let root = Path::ROOT.child("aggregationRule");
    let list = root.child("clusterRoleSelectors");
    let selectors = items(Some(aggregation), "clusterRoleSelectors");
    let faults = &mut *check.errors;
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        faults.push(FieldError::required(list, detail));
    }
    for (at, one) in selectors.iter().enumerate() {
        if is_enough(faults) {
            break;
        }
        selector::validate(&list.index(at), Some(one), faults);
    }
}

fn policy_rules(check: &mut Check, namespaced: bool) {
    let path = Path::ROOT.child("rules");
    let rules = top(check.object, "rules").and_then(Value::as_array).unwrap_or_default();
    let faults = &mut *check.errors;
    for (at, rule) in rules.iter().enumerate() {
        if is_enough(faults) {
            break;
        }
        policy_rule(&path.index(at), rule, namespaced, faults);
    }
}

fn policy_rule(path: &Path, rule: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let is_empty = |name: &str| items(Some(rule), name).is_empty();
    let mut require = |name: &str, detail: &str| {
        if is_empty(name) {
            errors.push(FieldError::required(path.child(name), detail));
        }
    };
    require("verbs", "verbs must contain at least one value");
    if is_empty("nonResourceURLs") {
        require("apiGroups", "resource rules must supply at least one api group");
        require("resources", "resource rules must supply at least one resource");
        return;
    }
    let urls = rule.get("nonResourceURLs").unwrap_or(&Value::Null);
    let place = path.child("nonResourceURLs");
    if namespaced {
        let detail = "namespaced rules cannot apply to non-resource URLs";
        errors.push(FieldError::invalid(place, urls, detail));
    }
    if !(is_empty("apiGroups") && is_empty("resources") && is_empty("resourceNames")) {
        let detail = "rules cannot apply to both regular resources and non-resource URLs";
        errors.push(FieldError::invalid(place, urls, detail));
    }
}

pub(super) fn role_binding(check: &mut Check) {
    binding(check, &["Role", "ClusterRole"], true);
}

pub(super) fn cluster_role_binding(check: &mut Check) {
    binding(check, &["ClusterRole"], false);
}

fn binding(check: &mut Check, kinds: &[&str], namespaced: bool) {
    let group = check.naming.group("rbac.authorization", true);
    let faults = &mut *check.errors;
    let root = Path::ROOT.child("roleRef");
    let reference = top(check.object, "roleRef");
    if text(reference, "apiGroup") != group {
        let value = text(reference, "apiGroup").into();
        faults.push(not_supported(&root.child("apiGroup"), &value, &[&group]));
    }
    let kind = text(reference, "kind");
    if !kinds.contains(&kind) {
        faults.push(not_supported(&root.child("kind"), &kind.into(), kinds));
    }
    let name = text(reference, "name");
    refuse(faults, &root.child("name"), name, names::path_segment(name));
    let path = Path::ROOT.child("subjects");
    let subjects = top(check.object, "subjects").and_then(Value::as_array).unwrap_or_default();
    for (at, one) in subjects.iter().enumerate() {
        if is_enough(faults) {
            break;
        }
        subject(&path.index(at), one, &group, namespaced, faults);
    }
}

fn subject(path: &Path, subject: &Value, group: &str, namespaced: bool, errors: &mut Vec<FieldError>) {
    let subject = Some(subject);
    let (kind, name, own_group) = (text(subject, "kind"), text(subject, "name"), text(subject, "apiGroup"));
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                refuse(errors, &path.child("name"), name, names::subdomain(name));
            }
            if !own_group.is_empty() {
                errors.push(not_supported(&path.child("apiGroup"), &own_group.into(), &[""]));
            }
            if !namespaced && text(subject, "namespace").is_empty() {
                errors.push(FieldError::required(path.child("namespace"), ""));
            }
        }
        "User" | "Group" if own_group != group => {
            errors.push(not_supported(&path.child("apiGroup"), &own_group.into(), &[group]));
        }
        "User" | "Group" => {}
        other => {
            let supported = ["Group", "ServiceAccount", "User"];
            errors.push(not_supported(&path.child("kind"), &other.into(), &supported));
        }
    }
}

/// A binding gives what it gave, or is another binding.
pub(super) fn binding_update(check: &mut Check, old: &Object) {
    let (new, old) = (top(check.object, "roleRef"), old.get("roleRef"));
    if is_same(new, old) {
        return;
    }
    // The general rule has said so in its own words already; the reference server has these.
    check.errors.retain(|error| error.path != "roleRef");
    let names = [("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
    let printed: Object = names
        .iter()
        .map(|(shown, name)| ((*shown).into(), given(new, name).cloned().unwrap_or_default()))
        .collect();
    check.errors.push(FieldError::invalid("roleRef", &printed.into(), "cannot change roleRef"));
}
