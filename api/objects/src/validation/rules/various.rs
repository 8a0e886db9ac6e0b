//! Rules for kinds with only one or two rules.

use hashbrown::HashSet;

use super::super::path::FieldPath;
use super::super::{Validator, metadata, names, scalar_formats};
use super::common::annotated;
use super::{StructView, pod, status};
use values::field::FieldError;
use values::json::Value;

/// Maximum priority that users may define.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

/// Checks the finalizers of a namespace. As in the reference server, errors on create have the path of the
/// list instead of the element.
pub(super) fn namespace(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let list = path.child("finalizers");
    for (at, name) in spec.texts("finalizers").enumerate() {
        if validator.has_enough() {
            return;
        }
        let element = list.index(at);
        let place = if validator.old.is_none() { list } else { element };
        validator.refuse(&place, name, names::qualified(name));
        metadata::finalizer_name(validator.naming, &place, name, &mut validator.errors);
    }
}

pub(super) fn node(validator: &mut Validator, path: &FieldPath, node: StructView) {
    let metadata = path.child("metadata");
    node_annotations(validator, &metadata.child("annotations"), node);
    // As in the reference server, errors about taints have a path in the metadata instead of the spec.
    taints(validator, &metadata.child("taints"), node.child("spec").items("taints"));
    // A node may register with its capacity. Later writes of the status use the endpoint `/status`.
    let status = node.child("status");
    if validator.old.is_none() {
        status::node_amounts(validator, &path.child("status"), status);
    }
    swap(validator, &metadata.child("nodeSwapStatus"), status.child("nodeInfo").child("swap"));
    if validator.old.is_none() {
        status::declared_features(validator, &path.child("status").child("declaredFeatures"), status);
    }
    let (spec, root) = (node.child("spec"), path.child("spec"));
    pod_networks(validator, &root.child("podCIDRs"), spec);
}

/// Checks the swap space of a node. The reference server checks the swap space only in writes of the whole object.
fn swap(validator: &mut Validator, path: &FieldPath, swap: StructView) {
    if let Some(capacity) = swap.int("capacity").filter(|capacity| *capacity <= 0) {
        validator.invalid(path.child("capacity"), capacity, "must be greater than zero");
    }
}

/// Checks taints. Each taint must have a key and a valid effect, and each pair of key and effect must be
/// unique.
fn taints(validator: &mut Validator, path: &FieldPath, list: &[Value]) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut seen = HashSet::new();
    for (at, taint) in list.iter().enumerate() {
        if validator.has_enough() {
            break;
        }
        let (place, taint) = (path.index(at), StructView::from(Some(taint)));
        let (key, value) = (taint.text("key"), taint.text("value"));
        validator.refuse(&place.child("key"), key, names::qualified(key));
        let faults = names::label_value(value);
        if !faults.is_empty() {
            validator.invalid(place.child("value"), value, faults.join(";"));
        }
        match taint.text("effect") {
            "" => validator.required(place.child("effect"), ""),
            effect if !EFFECTS.contains(&effect) => {
                validator.not_supported(place.child("effect"), effect, &EFFECTS);
            }
            _ => {}
        }
        if !seen.insert((key, taint.text("effect"))) {
            validator.duplicate(place, taint.to_value());
            if let Some(error) = validator.errors.last_mut() {
                "taints must be unique by key and effect pair".clone_into(&mut error.detail);
            }
        }
    }
}

/// Checks the annotation in which a node declared its taints, and the annotation with the controllers whose
/// pods the node avoids.
fn node_annotations(validator: &mut Validator, path: &FieldPath, node: StructView) {
    let annotations = node.child("metadata").child("annotations");
    let key = |name: &str| format!("scheduler.alpha.{}/{name}", validator.naming.domain);
    let (tainted, avoided) = (key("taints"), key("preferAvoidPods"));
    if let Some(value) = annotated(validator, path, annotations, &tainted, "[]v1.Taint") {
        taints(validator, &path.child(&tainted), value.as_array().unwrap_or_default());
    }
    let place = path.child("AvoidPods");
    let Some(value) = annotated(validator, &place, annotations, &avoided, "v1.AvoidPods") else { return };
    let list = path.child(&avoided);
    for (at, entry) in StructView::from(Some(&value)).structs("preferAvoidPods").enumerate() {
        if validator.has_enough() {
            return;
        }
        let (element, signature) = (list.index(at), entry.child("podSignature"));
        let place = element.child("PodSignature");
        if !signature.has("podController") {
            validator.required(place, "");
        } else if signature.child("podController").flag("controller") == Some(false) {
            let controller = place.child("PodController");
            validator.invalid(controller.child("Controller"), false, "must point to a controller");
        }
    }
}

/// Checks that a node has at most one pod network of each IP family.
fn pod_networks(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let networks = spec.texts("podCIDRs");
    let count = networks.clone().count();
    if count < 2 {
        return;
    }
    let families: Vec<Option<bool>> = networks
        .clone()
        .map(|text| scalar_formats::network(text).map(|(address, _)| address.is_ipv6()))
        .collect();
    if let Some(at) = families.iter().position(Option::is_none) {
        let text = networks.clone().nth(at).unwrap_or_default();
        let why = format!("invalid CIDR[{at}]: <nil> (invalid CIDR address: {text})");
        let detail = format!("invalid PodCIDRs. failed to check with dual stack with error:{why}");
        validator.errors.push(FieldError::internal(path, detail));
    }
    let has = |is_v6: bool| families.contains(&Some(is_v6));
    let is_dual = has(false) && has(true) && !families.contains(&None);
    if !is_dual || count > 2 {
        let value = spec.get("podCIDRs").cloned().unwrap_or_default();
        validator.invalid(path, value, "may specify no more than one CIDR for each IP family");
    }
}

/// Checks that the pod networks and the provider ID of a node are set only once. The reference server checks
/// taints and annotations twice.
pub(super) fn node_update(validator: &mut Validator, new: StructView, old: StructView) {
    let metadata = FieldPath::ROOT.child("metadata");
    node_annotations(validator, &metadata.child("annotations"), new);
    validator.repeat(&metadata.child("taints"));
    let (new, old) = (new.child("spec"), old.child("spec"));
    let (now, before) = (new.texts("podCIDRs"), old.texts("podCIDRs"));
    let differing = match (now.clone().count(), before.clone().count()) {
        (_, 0) => 0,
        (now, before) if now != before => 1,
        _ => now.zip(before).filter(|(now, before)| now != before).count(),
    };
    for _ in 0..differing {
        if validator.has_enough() {
            return;
        }
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        validator.forbidden("spec.podCIDRs", detail);
    }
    if !old.text("providerID").is_empty() && new.text("providerID") != old.text("providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        validator.forbidden("spec.providerID", detail);
    }
}

pub(super) fn priority_class(validator: &mut Validator, path: &FieldPath, class: StructView) {
    // The name, the value and the preemption policy are immutable.
    if validator.old.is_some() {
        return;
    }
    let place = path.child("preemptionPolicy");
    match class.text("preemptionPolicy") {
        "PreemptLowerPriority" | "Never" => {}
        "" => validator.required(place, ""),
        other => validator.not_supported(place, other, &["PreemptLowerPriority", "Never"]),
    }
    let name = class.child("metadata").text("name");
    let value = class.int("value").unwrap_or(0);
    if let Some(rest) = name.strip_prefix("system-") {
        let system = [("cluster-critical", 2_000_000_000), ("node-critical", 2_000_001_000)];
        let why = match system.iter().find(|(known, _)| *known == rest) {
            None => format!("{name} is not a known system priority class"),
            Some((_, expected)) if *expected != value => {
                format!("value of {name} PriorityClass must be {expected}")
            }
            Some(_) if class.is_true("globalDefault") => {
                format!("globalDefault of {name} PriorityClass must be false")
            }
            Some(_) => return,
        };
        let metadata = path.child("metadata");
        let detail = "priority class names with 'system-' prefix are reserved for system use only.";
        validator.forbidden(metadata.child("name"), format!("{detail} error: {why}"));
    } else if value > USER_PRIORITY_MAX {
        let detail = format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}");
        validator.forbidden(path.child("value"), detail);
    }
}

/// Checks the overhead and the scheduling of a runtime class.
pub(super) fn runtime_class(validator: &mut Validator, path: &FieldPath, class: StructView) {
    pod::overhead(validator, &path.child("overhead"), class.child("overhead").map("podFixed"));
    let scheduling = path.child("scheduling");
    let list = scheduling.child("tolerations");
    let mut seen = HashSet::new();
    for (at, toleration) in class.child("scheduling").structs("tolerations").enumerate() {
        if validator.has_enough() {
            return;
        }
        let texts = ["key", "operator", "value", "effect"].map(|name| toleration.text(name));
        if !seen.insert((texts, toleration.int("tolerationSeconds"))) {
            validator.duplicate(list.index(at), toleration.to_value());
        }
    }
}
