//! Rules for horizontal pod autoscalers: bounds, metrics, targets and scaling behavior.

use super::super::path::FieldPath;
use super::super::{Validator, names};
use super::StructView;
use super::resources;
use super::scalar_formats::POSITIVE;
use types::convert::autoscaling::drop_annotations;
use values::json::{Object, Value};
use values::naming;

const STABILIZATION_SECONDS_MAX: i64 = 3600;
const PERIOD_SECONDS_MAX: i64 = 1800;
/// The types of metric sources, each with its member and name.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Removes the annotations, in every naming profile, in which another version stores members.
pub(super) fn drop_version_annotations(autoscaler: &mut Object, _: Option<&Object>) {
    for naming in naming::ALL {
        drop_annotations(autoscaler, naming);
    }
}

pub(super) fn autoscaler(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let (min, max) = (spec.int("minReplicas"), spec.int("maxReplicas").unwrap_or(0));
    // If the stored minimum is 0, a minimum of 0 remains valid.
    let old_min = validator.old.and_then(|old| old.child("spec").int("minReplicas"));
    let least = i64::from(old_min != Some(0));
    if let Some(min) = min.filter(|min| *min < least) {
        let detail = format!("must be greater than or equal to {least}");
        validator.invalid(path.child("minReplicas"), min, detail);
    }
    match max {
        0 => validator.required(path.child("maxReplicas"), "must be set and greater than 0"),
        ..0 => validator.invalid(path.child("maxReplicas"), max, "must be greater than or equal to 1"),
        _ => {}
    }
    if min.is_some_and(|min| max < min) {
        let detail = "must be greater than or equal to `minReplicas`";
        validator.invalid(path.child("maxReplicas"), max, detail);
    }
    let scales_by_demand =
        spec.structs("metrics").any(|metric| matches!(metric.text("type"), "Object" | "External"));
    if min == Some(0) && !scales_by_demand {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        validator.forbidden(path.child("metrics"), detail);
    }
    workload(validator, &path.child("scaleTargetRef"), spec.child("scaleTargetRef"));
}

/// Checks the reference to the scaled workload. The API version of the target must have a group, except for
/// the only scalable kind of the core group. An update checks the reference only if the kind or the version changes.
fn workload(validator: &mut Validator, path: &FieldPath, target: StructView) {
    let (version, kind) = (target.text("apiVersion"), target.text("kind"));
    let old = validator.old.map(|old| old.child("spec").child("scaleTargetRef"));
    if old.is_some_and(|old| (old.text("apiVersion"), old.text("kind")) == (version, kind)) {
        return;
    }
    let place = path.child("apiVersion");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if let Some(fault) = names::group_version_fault(version) {
        validator.invalid(place, version, fault);
    } else if group.is_empty() && kind != "ReplicationController" {
        validator.invalid(place, version, "apiVersion must specify API group");
    }
}

/// Checks a metric. The metric must have the source of its type and no other source.
pub(super) fn metric(validator: &mut Validator, path: &FieldPath, metric: StructView) {
    let types = SOURCES.map(|(kind, _)| kind);
    let kind = metric.text("type");
    let expected = SOURCES.into_iter().find(|(name, _)| *name == kind).map(|(_, source)| source);
    match expected {
        None => {
            // The reference server reports the type twice: as an unknown type, and as a missing source.
            for _ in 0..2 {
                validator.not_supported(path.child("type"), kind, &types);
            }
        }
        Some(source) if !metric.has(source) => {
            validator.required(path.child(source), "must populate information for the given metric source");
        }
        Some(_) => {}
    }
    if SOURCES.iter().filter(|(_, source)| metric.has(source)).count() == 1 {
        return;
    }
    for (_, other) in SOURCES.into_iter().filter(|(_, name)| Some(*name) != expected && metric.has(name)) {
        validator.forbidden(path.child(other), "must populate the given metric source only");
    }
}

pub(super) fn object_metric(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let target = source.child("target");
    if !target.has("value") && !target.has("averageValue") {
        let place = path.child("target");
        let detail = "must set either a target value or averageValue";
        validator.required(place.child("averageValue"), detail);
    }
    if let Some(fault) = version_fault(source)
        && !validator.old.is_some_and(has_unreadable_version)
    {
        let described = path.child("describedObject");
        let version = source.child("describedObject").text("apiVersion");
        validator.invalid(described.child("apiVersion"), version, fault);
    }
}

/// Returns the reason why the API version in the `describedObject` of a metric is invalid. The version may
/// have no group.
fn version_fault(source: StructView) -> Option<String> {
    names::group_version_fault(source.child("describedObject").text("apiVersion"))
}

/// Returns whether a stored autoscaler has a metric with an invalid API version. An update of such an object
/// accepts invalid API versions in all metrics.
fn has_unreadable_version(stored: StructView) -> bool {
    let mut metrics =
        stored.child("spec").structs("metrics").filter(|metric| metric.text("type") == "Object");
    metrics.any(|metric| version_fault(metric.child("object")).is_some())
}

pub(super) fn external_metric(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let target = source.child("target");
    let place = path.child("target");
    match (target.has("value"), target.has("averageValue")) {
        (false, false) => {
            let detail = "must set either a target value for metric or a per-pod target";
            validator.required(place.child("averageValue"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target value for metric and a per-pod target";
            validator.forbidden(place.child("value"), detail);
        }
        _ => {}
    }
}

pub(super) fn pods_metric(validator: &mut Validator, path: &FieldPath, source: StructView) {
    if !source.child("target").has("averageValue") {
        let place = path.child("target");
        validator.required(place.child("averageValue"), "must specify a positive target averageValue");
    }
}

pub(super) fn resource_metric(validator: &mut Validator, path: &FieldPath, source: StructView) {
    utilization(validator, &path.child("target"), source.child("target"));
}

pub(super) fn container_metric(validator: &mut Validator, path: &FieldPath, source: StructView) {
    let name = source.text("name");
    if !name.is_empty() {
        resources::container_name(validator, &path.child("name"), name);
    }
    utilization(validator, &path.child("target"), source.child("target"));
}

fn utilization(validator: &mut Validator, path: &FieldPath, target: StructView) {
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            validator.required(path.child("averageUtilization"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target raw value and a target utilization";
            validator.forbidden(path.child("averageValue"), detail);
        }
        _ => {}
    }
}

/// Checks the target of a metric.
pub(super) fn target(validator: &mut Validator, path: &FieldPath, target: StructView) {
    const TYPES: [&str; 3] = ["AverageValue", "Utilization", "Value"];
    let kind = target.text("type");
    if !TYPES.contains(&kind) {
        // The message of the reference server lists the types in a sentence.
        validator.invalid(path.child("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for name in ["value", "averageValue"] {
        if target.quantity(name).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
            let value = target.get(name).cloned().unwrap_or_default();
            validator.invalid(path.child(name), value, "must be positive");
        }
    }
    if let Some(share) = target.int("averageUtilization").filter(|share| *share < 1) {
        validator.invalid(path.child("averageUtilization"), share, "must be greater than 0");
    }
}

/// Checks the name of a metric, which must be a valid path segment of a URL.
pub(super) fn identifier(validator: &mut Validator, path: &FieldPath, metric: StructView) {
    let name = metric.text("name");
    if !name.is_empty() {
        validator.refuse(&path.child("name"), name, names::path_segment(name));
    }
}

/// Checks the scaling rules for one direction.
pub(super) fn rules(validator: &mut Validator, path: &FieldPath, rules: StructView) {
    if let Some(seconds) = rules.int("stabilizationWindowSeconds") {
        let place = path.child("stabilizationWindowSeconds");
        if seconds < 0 {
            validator.invalid(place, seconds, "must be greater than or equal to zero");
        } else if seconds > STABILIZATION_SECONDS_MAX {
            let detail = format!("must be less than or equal to {STABILIZATION_SECONDS_MAX}");
            validator.invalid(place, seconds, detail);
        }
    }
    if let Some(policy) = rules.get("selectPolicy").and_then(Value::as_str)
        && !matches!(policy, "Max" | "Min" | "Disabled")
    {
        validator.not_supported(path.child("selectPolicy"), policy, &["Disabled", "Max", "Min"]);
    }
    if rules.items("policies").is_empty() {
        validator.required(path.child("policies"), "must specify at least one Policy");
    }
    if rules.quantity("tolerance").is_some_and(|tolerance| tolerance.is_negative()) {
        let value = rules.get("tolerance").cloned().unwrap_or_default();
        validator.invalid(path.child("tolerance"), value, super::scalar_formats::NOT_NEGATIVE);
    }
}

/// Checks a scaling policy, which limits the change in a period to a number or percentage of pods.
pub(super) fn policy(validator: &mut Validator, path: &FieldPath, policy: StructView) {
    let kind = policy.text("type");
    if !matches!(kind, "Pods" | "Percent") {
        validator.not_supported(path.child("type"), kind, &["Percent", "Pods"]);
    }
    for name in ["value", "periodSeconds"] {
        let number = policy.int(name).unwrap_or(0);
        if number <= 0 {
            validator.invalid(path.child(name), number, POSITIVE);
        }
    }
    let period = policy.int("periodSeconds").unwrap_or(0);
    if period > PERIOD_SECONDS_MAX {
        let detail = format!("must be less than or equal to {PERIOD_SECONDS_MAX}");
        validator.invalid(path.child("periodSeconds"), period, detail);
    }
}

/// Checks a disruption budget, which limits either the available or the unavailable pods.
pub(super) fn disruption_budget(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        validator.invalid(path, spec.to_value(), detail);
    }
    for name in ["minAvailable", "maxUnavailable"] {
        super::workload::not_over_all(validator, &path.child(name), spec.get(name));
    }
}
