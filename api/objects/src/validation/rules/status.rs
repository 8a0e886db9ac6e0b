//! Rules for statuses that are written through `/status`. Counters must be consistent, and some members must
//! not change back.
//!
//! The schema walk checks single numbers. All other members of a status are accepted unchanged.

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, is_same, names, scalar_formats};
use super::common::each_condition;
use super::{StructView, resources, storage};
use values::field::{FieldError, go_quote};
use values::json::Value;

const ABOVE_REPLICAS: &str = "cannot be greater than status.replicas";
const ABOVE_READY: &str = "cannot be greater than readyReplicas";

/// Checks that partial counts, such as `readyReplicas`, do not exceed the total.
fn at_most(
    validator: &mut Validator,
    path: &FieldPath,
    status: StructView,
    parts: &[&str],
    whole: &str,
    detail: &str,
) {
    let most = status.int(whole).unwrap_or(0);
    for part in parts {
        let count = status.int(part).unwrap_or(0);
        if count > most {
            validator.invalid(path.child(part), count, detail);
        }
    }
}

/// Checks that the collision count does not decrease.
fn collisions(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let before = validator.old.and_then(|old| old.child("status").int("collisionCount"));
    let now = status.int("collisionCount");
    if before.is_some_and(|before| now.is_none_or(|now| now < before)) {
        validator.invalid(path.child("collisionCount"), now.unwrap_or(0), "cannot be decremented");
    }
}

pub(super) fn deployment(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    at_most(validator, path, status, &parts, "replicas", ABOVE_REPLICAS);
    at_most(validator, path, status, &["availableReplicas"], "readyReplicas", ABOVE_READY);
    collisions(validator, path, status);
}

/// Checks the status of a replica set or a replication controller.
pub(super) fn replica_set(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    at_most(validator, path, status, &parts, "replicas", ABOVE_REPLICAS);
    at_most(validator, path, status, &["availableReplicas"], "readyReplicas", ABOVE_READY);
}

pub(super) fn stateful_set(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    at_most(validator, path, status, &parts, "replicas", ABOVE_REPLICAS);
    let detail = "cannot be greater than status.readyReplicas";
    at_most(validator, path, status, &["availableReplicas"], "readyReplicas", detail);
    collisions(validator, path, status);
}

pub(super) fn daemon_set(validator: &mut Validator, path: &FieldPath, status: StructView) {
    collisions(validator, path, status);
}

/// Checks that the phase of a namespace agrees with its deletion timestamp.
pub(super) fn namespace(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let phase = status.text("phase");
    let is_ending = validator.object.child("metadata").has("deletionTimestamp");
    if !is_ending && phase != "Active" {
        let detail = "may only be 'Active' if `deletionTimestamp` is empty";
        validator.invalid(path.child("Phase"), phase, detail); // the path of the reference server
    } else if is_ending && phase != "Terminating" {
        let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
        validator.invalid(path.child("Phase"), phase, detail);
    }
}

pub(super) fn node(validator: &mut Validator, path: &FieldPath, status: StructView) {
    node_amounts(validator, path, status);
    declared_features(validator, &path.child("declaredFeatures"), status);
    let list = path.child("addresses");
    let mut seen = HashSet::new();
    for (at, address) in status.structs("addresses").enumerate() {
        if validator.has_enough() {
            return;
        }
        if !seen.insert((address.text("type"), address.text("address"))) {
            validator.duplicate(list.index(at), address.to_value());
        }
    }
}

/// Checks the capacity of a node and its allocatable resources.
pub(super) fn node_amounts(validator: &mut Validator, path: &FieldPath, status: StructView) {
    for list in ["capacity", "allocatable"] {
        amounts(validator, &path.child(list), status, list);
    }
}

/// Checks that the declared features of a node are valid, sorted and unique.
pub(super) fn declared_features(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let mut features = status.texts("declaredFeatures").enumerate().peekable();
    while let Some((at, feature)) = features.next() {
        if validator.has_enough() {
            return;
        }
        if let Some(fault) = feature_fault(feature) {
            let detail = format!("invalid feature name {}: {fault}", go_quote(feature));
            validator.invalid(path.index(at), feature, detail);
        }
        match features.peek() {
            Some(&(at, next)) if next == feature => validator.duplicate(path.index(at), next),
            Some(&(at, next)) if next < feature => {
                validator.invalid(path.index(at), next, "list must be sorted alphabetically");
            }
            _ => {}
        }
    }
}

/// Returns the reason why a feature name is invalid. A feature name consists of segments of letters and
/// digits. Each segment begins with a letter, and the first segment begins with an upper-case letter.
fn feature_fault(name: &str) -> Option<&'static str> {
    const LENGTH_MAX: usize = 253;
    if name.len() > LENGTH_MAX {
        return Some("must be no more than 253 characters");
    }
    let is_segment = |segment: &str| {
        segment.starts_with(|first: char| first.is_ascii_alphabetic())
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let is_name =
        name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_segment);
    (!is_name).then_some(
        "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or \
         MyFeature/mySubFeature), and contain only alphanumeric characters and slashes",
    )
}

pub(super) fn amounts(validator: &mut Validator, path: &FieldPath, status: StructView, list: &str) {
    for (name, amount) in status.map(list) {
        if validator.has_enough() {
            return;
        }
        resources::amount(validator, &path.child(name), name, amount); // the path of the reference server
    }
}

pub(super) fn resource_quota(validator: &mut Validator, path: &FieldPath, status: StructView) {
    for list in ["hard", "used"] {
        let place = path.child(list);
        for (name, amount) in status.map(list) {
            if validator.has_enough() {
                return;
            }
            resources::quota_name(validator, &place.key(name), name);
            resources::amount(validator, &place.key(name), name, amount);
        }
    }
}

pub(super) fn claim(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let capacity = path.child("capacity");
    for (name, amount) in status.map("capacity") {
        if validator.has_enough() {
            return;
        }
        storage::not_below_zero(validator, &capacity.key(name), amount);
    }
    let (states, amounts) = (path.child("allocatedResourceStatuses"), path.child("allocatedResources"));
    for (name, state) in status.map("allocatedResourceStatuses") {
        if validator.has_enough() {
            return;
        }
        resized(validator, &states, name);
        if !state.as_str().is_some_and(|state| RESIZING.contains(&state)) {
            validator.not_supported(states, name, &RESIZING);
        }
    }
    for (name, amount) in status.map("allocatedResources") {
        if validator.has_enough() {
            return;
        }
        let found = validator.errors.len();
        resized(validator, &amounts, name);
        if validator.errors.len() == found {
            storage::not_below_zero(validator, &amounts.key(name), amount);
        }
    }
}

/// Possible states of a resize.
const RESIZING: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Checks the name of a resized resource. Storage is the only native resource that can be resized.
fn resized(validator: &mut Validator, path: &FieldPath, name: &str) {
    let faults = names::qualified(name);
    if !faults.is_empty() {
        validator.refuse(path, name, faults);
    } else if name != "storage" && resources::is_native(validator.naming, name) {
        validator.not_supported(path, name, &["storage"]);
    }
}

/// Maximum lengths in bytes of the error message of a volume, and of the metadata of an attachment.
const ERROR_MAX: usize = 1024;
const ATTACHMENT_MAX: usize = 256 * 1024;

pub(super) fn attachment(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let size: usize = status
        .map("attachmentMetadata")
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ATTACHMENT_MAX {
        validator.errors.push(FieldError::too_long(path.child("attachmentMetadata"), ATTACHMENT_MAX));
    }
    for name in ["attachError", "detachError"] {
        let (place, error) = (path.child(name), status.child(name));
        if error.text("message").len() > ERROR_MAX {
            // As in the reference server, the error contains the limit for attached volumes.
            validator.errors.push(FieldError::too_long(place.child("message"), ATTACHMENT_MAX));
        }
        if let Some(code) = error.int("errorCode").filter(|code| *code < 0) {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            validator.invalid(place.child("errorCode"), code, detail);
        }
    }
}

pub(super) fn disruption_budget(validator: &mut Validator, path: &FieldPath, status: StructView) {
    conditions(validator, &path.child("conditions"), status);
}

/// Maximum lengths of the reason and the message of a condition.
const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32768;

/// Checks a list of conditions of the common condition type.
pub(super) fn conditions(validator: &mut Validator, path: &FieldPath, status: StructView) {
    const STATES: [&str; 3] = ["False", "True", "Unknown"];
    each_condition(validator, path, status, |validator, place, condition, is_again| {
        let kind = condition.text("type");
        if is_again {
            validator.duplicate(place.child("type"), kind);
        }
        validator.refuse(&place.child("type"), kind, names::qualified(kind));
        let state = condition.text("status");
        if !STATES.contains(&state) {
            validator.not_supported(place.child("status"), state, &STATES);
        }
        if let Some(generation) = condition.int("observedGeneration").filter(|count| *count < 0) {
            let detail = "must be greater than or equal to zero";
            validator.invalid(place.child("observedGeneration"), generation, detail);
        }
        if !condition.has("lastTransitionTime") {
            validator.required(place.child("lastTransitionTime"), "must be set");
        }
        let reason = condition.text("reason");
        if reason.is_empty() {
            validator.required(place.child("reason"), "must be set");
        } else {
            validator.refuse(&place.child("reason"), reason, names::condition_reason(reason));
            if reason.len() > REASON_MAX {
                validator.errors.push(FieldError::too_long(place.child("reason"), REASON_MAX));
            }
        }
        if condition.text("message").len() > MESSAGE_MAX {
            validator.errors.push(FieldError::too_long(place.child("message"), MESSAGE_MAX));
        }
    });
}

/// Checks the conditions of flow schemas and priority levels, whose types must be unique.
pub(super) fn flow(validator: &mut Validator, path: &FieldPath, status: StructView) {
    each_condition(validator, &path.child("conditions"), status, |validator, place, condition, is_again| {
        let kind = condition.text("type");
        if is_again {
            validator.duplicate(place.child("type"), kind);
        }
        if kind.is_empty() {
            validator.required(place.child("type"), "must not be empty");
        }
    });
}

pub(super) fn service(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let balancer = path.child("loadBalancer");
    let place = balancer.child("ingress");
    let points = status.child("loadBalancer");
    if validator.object.child("spec").text("type") != "LoadBalancer" {
        if !points.items("ingress").is_empty() {
            validator.forbidden(place, "may only be used when `spec.type` is 'LoadBalancer'");
        }
        return;
    }
    for (at, point) in points.structs("ingress").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = place.index(at);
        address(validator, &place, point);
        let mode = place.child("ipMode");
        match (point.text("ip"), point.get("ipMode").and_then(Value::as_str)) {
            ("", None) => {}
            ("", Some(_)) => validator.forbidden(mode, "may not be specified when `ip` is not set"),
            (_, None) => validator.required(mode, "must be specified when `ip` is set"),
            (_, Some("Proxy" | "VIP")) => {}
            (_, Some(other)) => validator.not_supported(mode, other, &["Proxy", "VIP"]),
        }
        balancer_name(validator, &place, point);
    }
}

pub(super) fn ingress(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let balancer = path.child("loadBalancer");
    let list = balancer.child("ingress");
    for (at, point) in status.child("loadBalancer").structs("ingress").enumerate() {
        if validator.has_enough() {
            return;
        }
        address(validator, &list.index(at), point);
        balancer_name(validator, &list.index(at), point);
    }
}

fn address(validator: &mut Validator, path: &FieldPath, point: StructView) {
    let address = point.text("ip");
    if !address.is_empty()
        && let Some(fault) = scalar_formats::address_fault(address)
    {
        validator.invalid(path.child("ip"), address, fault);
    }
}

/// Checks the host name of a load balancer.
fn balancer_name(validator: &mut Validator, path: &FieldPath, point: StructView) {
    let name = point.text("hostname");
    if name.is_empty() {
        return;
    }
    validator.refuse(&path.child("hostname"), name, names::subdomain(name));
    if scalar_formats::address(name).is_some() {
        validator.invalid(path.child("hostname"), name, "must be a DNS name, not an IP address");
    }
}

pub(super) fn admission_policy(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let checking = path.child("typeChecking");
    let list = checking.child("expressionWarnings");
    for (at, warning) in status.child("typeChecking").structs("expressionWarnings").enumerate() {
        if validator.has_enough() {
            return;
        }
        for name in ["warning", "fieldRef"] {
            if warning.text(name).is_empty() {
                validator.required(list.index(at).child(name), "");
            }
        }
    }
    conditions(validator, &path.child("conditions"), status);
}

/// Returns whether a member has the same value in the new and in the stored status.
pub(super) fn is_unchanged(validator: &Validator, status: StructView, name: &str) -> bool {
    let before = validator.old.and_then(|old| old.child("status").get(name));
    is_same(status.get(name), before)
}
