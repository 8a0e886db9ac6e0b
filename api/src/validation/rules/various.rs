//! Kinds with a rule or two each.

use hashbrown::HashSet;

use super::super::is_same;
use super::super::metadata::{is_enough, refuse};
use super::super::names;
use super::super::path::Path;
use super::{Check, given, items, members, no_negative_quantities, selector, text, top};
use crate::field::FieldError;
use crate::json::{Object, Value};

/// Highest priority that users may define.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

/// An event lies in the namespace of what it is about; what has none has its events in `default`.
pub(super) fn event(check: &mut Check) {
    let about = top(check.object, "involvedObject");
    let namespace = text(about, "namespace");
    let own = top(check.object, "metadata").map_or("", |metadata| metadata.str_at(&["namespace"]));
    let fits = if namespace.is_empty() { matches!(own, "" | "default") } else { own == namespace };
    // A newer event about a cluster object may also lie in the system's namespace.
    let system = namespace.is_empty() && own == check.naming.system("system");
    if !fits && !system {
        let error = FieldError::invalid(
            "involvedObject.namespace",
            &namespace.into(),
            "does not match event.namespace",
        );
        check.errors.push(error);
    }
}

pub(super) fn limit_range(check: &mut Check) {
    let root = Path::ROOT.child("spec");
    let limits = root.child("limits");
    let faults = &mut *check.errors;
    let mut seen = HashSet::new();
    for (at, limit) in items(top(check.object, "spec"), "limits").iter().enumerate() {
        if is_enough(faults) {
            break;
        }
        let place = limits.index(at);
        let kind = text(Some(limit), "type");
        if !seen.insert(kind) {
            faults.push(FieldError::duplicate(place.child("type"), &kind.into()));
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            no_negative_quantities(&place.child(list), given(Some(limit), list), faults);
        }
    }
}

pub(super) fn resource_quota(check: &mut Check) {
    let root = Path::ROOT.child("spec");
    let hard = given(top(check.object, "spec"), "hard");
    let place = root.child("hard");
    let faults = &mut *check.errors;
    for (name, _) in members(hard) {
        if is_enough(faults) {
            break;
        }
        refuse(faults, &place.key(name), name, names::qualified(name));
    }
    no_negative_quantities(&place, hard, faults);
}

pub(super) fn node(check: &mut Check) {
    let root = Path::ROOT.child("spec");
    let path = root.child("taints");
    let faults = &mut *check.errors;
    let mut seen = HashSet::new();
    for (at, entry) in items(top(check.object, "spec"), "taints").iter().enumerate() {
        if is_enough(faults) {
            break;
        }
        let place = path.index(at);
        let taint = Some(entry);
        let (key, value) = (text(taint, "key"), text(taint, "value"));
        refuse(faults, &place.child("key"), key, names::qualified(key));
        refuse(faults, &place.child("value"), value, names::label_value(value));
        if !seen.insert((key, text(taint, "effect"))) {
            let detail = "taints must be unique by key and effect pair";
            let mut error = FieldError::duplicate(place, entry);
            detail.clone_into(&mut error.detail);
            faults.push(error);
        }
    }
}

/// Where a node's pods get addresses, and which machine it is, is said once.
pub(super) fn node_update(check: &mut Check, old: &Object) {
    let (new, old) = (top(check.object, "spec"), old.get("spec"));
    for (name, detail) in [
        ("podCIDRs", "node updates may not change podCIDR except from \"\" to valid"),
        ("providerID", "node updates may not change providerID except from \"\" to valid"),
    ] {
        let former = given(old, name);
        if former.is_some() && !is_same(given(new, name), former) {
            check.errors.push(FieldError::forbidden(format!("spec.{name}"), detail));
        }
    }
}

pub(super) fn autoscaler(check: &mut Check) {
    let spec = top(check.object, "spec");
    let number = |name: &str| given(spec, name).and_then(Value::as_i64);
    let (min, max) = (number("minReplicas"), number("maxReplicas").unwrap_or(0));
    let mut refuse = |name: &str, value: i64, detail: &str| {
        check.errors.push(FieldError::invalid(format!("spec.{name}"), &Value::Int(value), detail));
    };
    if let Some(min @ ..1) = min {
        refuse("minReplicas", min, "must be greater than or equal to 1");
    }
    if max < 1 {
        refuse("maxReplicas", max, "must be greater than 0");
    }
    if min.is_some_and(|min| max < min) {
        refuse("maxReplicas", max, "must be greater than or equal to `minReplicas`");
    }
}

pub(super) fn lease(check: &mut Check) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    if let Some(value @ Value::Int(..1)) = given(spec, "leaseDurationSeconds") {
        let error = FieldError::invalid(root.child("leaseDurationSeconds"), value, "must be greater than 0");
        check.errors.push(error);
    }
    super::not_negative(&root.child("leaseTransitions"), given(spec, "leaseTransitions"), check.errors);
}

pub(super) fn ingress(check: &mut Check) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let rules = items(spec, "rules");
    let faults = &mut *check.errors;
    if rules.is_empty() && given(spec, "defaultBackend").is_none() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        faults.push(FieldError::invalid(root, &Value::Array(Vec::new()), detail));
    }
    let list = root.child("rules");
    for (at, rule) in rules.iter().enumerate() {
        if is_enough(faults) {
            break;
        }
        let place = list.index(at);
        let rule = Some(rule);
        let host = text(rule, "host");
        if !host.is_empty() {
            let bare = host.strip_prefix("*.").unwrap_or(host);
            refuse(faults, &place.child("host"), host, names::subdomain(bare));
        }
        let http = place.child("http");
        let paths = http.child("paths");
        for (at, path) in items(given(rule, "http"), "paths").iter().enumerate() {
            if is_enough(faults) {
                break;
            }
            let place = paths.index(at);
            let (target, kind) = (text(Some(path), "path"), text(Some(path), "pathType"));
            if matches!(kind, "Exact" | "Prefix") && !target.starts_with('/') {
                faults.push(FieldError::invalid(
                    place.child("path"),
                    &target.into(),
                    "must be an absolute path",
                ));
            }
        }
    }
}

pub(super) fn network_policy(check: &mut Check) {
    let faults = &mut *check.errors;
    let root = Path::ROOT.child("spec");
    selector::validate(&root.child("podSelector"), given(top(check.object, "spec"), "podSelector"), faults);
}

pub(super) fn disruption_budget(check: &mut Check) {
    let spec = top(check.object, "spec");
    let faults = &mut *check.errors;
    if let (Some(spec), Some(_), Some(_)) = (spec, given(spec, "minAvailable"), given(spec, "maxUnavailable"))
    {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        faults.push(FieldError::invalid("spec", spec, detail));
    }
    let root = Path::ROOT.child("spec");
    for name in ["minAvailable", "maxUnavailable"] {
        super::not_negative(&root.child(name), given(spec, name), faults);
    }
    selector::validate(&root.child("selector"), given(spec, "selector"), faults);
}

pub(super) fn priority_class(check: &mut Check) {
    let name = top(check.object, "metadata").map_or("", |metadata| metadata.str_at(&["name"]));
    let value = top(check.object, "value").and_then(Value::as_i64).unwrap_or(0);
    let system = [("cluster-critical", 2_000_000_000), ("node-critical", 2_000_001_000)];
    if let Some(rest) = name.strip_prefix("system-") {
        if !system.contains(&(rest, value)) {
            let detail = "priority class names with 'system-' prefix are reserved for system use only";
            check.errors.push(FieldError::forbidden("metadata.name", detail));
        }
    } else if value > USER_PRIORITY_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        check.errors.push(FieldError::forbidden("value", detail));
    }
}

pub(super) fn api_service(check: &mut Check) {
    let spec = top(check.object, "spec");
    let name = top(check.object, "metadata").map_or("", |metadata| metadata.str_at(&["name"]));
    let wanted = format!("{}.{}", text(spec, "version"), text(spec, "group"));
    if name != wanted {
        let detail = format!("must be `spec.version+\".\"+spec.group`: {}", crate::field::go_quote(&wanted));
        check.errors.push(FieldError::invalid("metadata.name", &name.into(), detail));
    }
}
