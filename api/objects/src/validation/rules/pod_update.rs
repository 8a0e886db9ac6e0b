//! Rules for updates of a pod. Most fields of a pod are immutable (docs/api/validation.md#pods).
//!
//! Each permitted change is checked and then reverted in a copy. Any remaining difference is refused.

use hashbrown::{HashMap, HashSet};

use super::super::path::FieldPath;
use super::super::{Validator, is_same_struct};
use super::{StructView, pod};
use values::field::FieldError;
use values::json::{Object, Value};

const DETAIL: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn pod(validator: &mut Validator, new_pod: StructView, old_pod: StructView) {
    annotations(validator, new_pod.child("metadata"), old_pod.child("metadata"));
    let (new, old) = (new_pod.child("spec"), old_pod.child("spec"));
    let (Some(new_spec), Some(old_spec)) = (new.object(), old.object()) else { return };
    if new_spec == old_spec {
        return;
    }
    for list in ["containers", "initContainers"] {
        if new.items(list).len() != old.items(list).len() {
            let detail = "pod updates may not add or remove containers";
            return validator.forbidden(format!("spec.{list}"), detail);
        }
        let spec = FieldPath::ROOT.child("spec");
        let path = spec.child(list);
        for at in 0..new.items(list).len() {
            if validator.errors.is_empty() || validator.has_enough() {
                break;
            }
            validator.repeat(&path.index(at).child("image"));
        }
    }
    if !deadline(validator, new, old) {
        return;
    }
    tolerations(validator, new, old);
    let was_gated = !old.items("schedulingGates").is_empty();
    gates(validator, new, old);
    if was_gated {
        node_selector(validator, new, old);
        node_affinity(validator, new, old);
    }
    let mut masked = new_spec.clone();
    take_back(&mut masked, old, was_gated);
    let masked = StructView::from_object(&masked);
    if !is_same_struct(masked, old) {
        validator.forbidden_change("spec", DETAIL, "spec", [old, masked]);
    }
}

/// Checks that the annotation of mirror pods and the AppArmor annotations do not change.
fn annotations(validator: &mut Validator, new: StructView, old: StructView) {
    let metadata = FieldPath::ROOT.child("metadata");
    let path = metadata.child("annotations");
    let tolerated = pod::tolerations_key(validator.naming);
    let is_of_pods = |error: &&FieldError| match error.path.strip_prefix("metadata.annotations") {
        Some("") => error.value.as_deref().is_some_and(|value| value.contains(&tolerated)),
        Some(rest) => rest.starts_with(['[', '.']),
        None => false,
    };
    let found: Vec<_> = validator.errors.iter().filter(is_of_pods).cloned().collect();
    validator.errors.extend(found); // the reference server checks these annotations twice
    let mirror = validator.naming.label("config.mirror");
    let profiles = format!("container.apparmor.security.beta.{}/", validator.naming.domain);
    let (new, old) = (new.child("annotations"), old.child("annotations"));
    let is_watched = |key: &str| key == mirror || key.starts_with(&profiles);
    let what = |key: &str| if key == mirror { "mirror pod annotation" } else { "AppArmor annotations" };
    for (key, value) in old.members().filter(|(key, _)| is_watched(key)) {
        if new.get(key) != Some(value) && !validator.has_enough() {
            validator.forbidden(path.key(key), format!("may not remove or update {}", what(key)));
        }
    }
    for (key, _) in new.members().filter(|(key, _)| is_watched(key)) {
        if !old.has(key) && !validator.has_enough() {
            validator.forbidden(path.key(key), format!("may not add {}", what(key)));
        }
    }
}

/// Checks the active deadline, which can be set and lowered. Returns whether further checks should follow.
fn deadline(validator: &mut Validator, new: StructView, old: StructView) -> bool {
    const PATH: &str = "spec.activeDeadlineSeconds";
    match (new.int("activeDeadlineSeconds"), old.int("activeDeadlineSeconds")) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            validator.invalid(PATH, now, "must be between 0 and 2147483647, inclusive");
            return false;
        }
        (Some(now), Some(before)) if now > before => {
            validator.invalid(PATH, now, "must be less than or equal to previous value");
            return false;
        }
        (None, Some(_)) => {
            validator.invalid(PATH, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    true
}

/// Checks that an update only adds tolerations. The seconds of existing tolerations may change.
fn tolerations(validator: &mut Validator, new: StructView, old: StructView) {
    let but_duration = |toleration: StructView<'_>| {
        ["key", "operator", "value", "effect"].map(|name| toleration.text(name).to_owned())
    };
    let kept: HashSet<_> = new.structs("tolerations").map(but_duration).collect();
    if !old.structs("tolerations").all(|one| kept.contains(&but_duration(one))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        return validator.forbidden("spec.tolerations", detail);
    }
    if !validator.errors.is_empty() {
        validator.repeat(&FieldPath::ROOT.child("spec").child("tolerations"));
    }
}

/// Checks that an update only removes scheduling gates. A new gate is reported at its last occurrence.
fn gates(validator: &mut Validator, new: StructView, old: StructView) {
    let former: HashSet<&str> = old.structs("schedulingGates").map(|gate| gate.text("name")).collect();
    let last: HashMap<&str, usize> =
        new.structs("schedulingGates").enumerate().map(|(at, gate)| (gate.text("name"), at)).collect();
    for (at, gate) in new.structs("schedulingGates").enumerate() {
        let name = gate.text("name");
        if !former.contains(name) && last.get(name) == Some(&at) && !validator.has_enough() {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            validator.forbidden(format!("spec.schedulingGates[{at}].name"), detail);
        }
    }
}

/// Checks that an update only extends the node selector of a gated pod.
fn node_selector(validator: &mut Validator, new: StructView, old: StructView) {
    let now: HashMap<&str, &Value> = new.map("nodeSelector").collect();
    if !old.map("nodeSelector").all(|(name, value)| now.get(name) == Some(&value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        validator.invalid("spec.nodeSelector", new.child("nodeSelector").to_value(), detail);
    }
}

/// Checks that an update only adds requirements to the terms of the required node affinity of a gated pod.
fn node_affinity(validator: &mut Validator, new: StructView, old: StructView) {
    const PATH: &str =
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (required_nodes(new), required_nodes(old));
    let (terms, former) = (now.items("nodeSelectorTerms"), before.items("nodeSelectorTerms"));
    if former.is_empty() {
        return;
    }
    if terms.len() != former.len() {
        let value = now.get("nodeSelectorTerms").cloned().unwrap_or_default();
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return validator.invalid(PATH, value, detail);
    }
    for (at, (now, before)) in terms.iter().zip(former).enumerate() {
        let (term, former) = (StructView::from(Some(now)), StructView::from(Some(before)));
        let starts_with = |list: &str| term.items(list).starts_with(former.items(list));
        let was_empty = former.members().next().is_none() && term.members().next().is_some();
        if was_empty || !starts_with("matchExpressions") || !starts_with("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            validator.invalid(format!("{PATH}[{at}]"), now.clone(), detail);
        }
    }
}

fn required_nodes(spec: StructView) -> StructView {
    let affinity = spec.child("affinity").child("nodeAffinity");
    affinity.child("requiredDuringSchedulingIgnoredDuringExecution")
}

/// Reverts every change in `spec` that is permitted or was already checked.
fn take_back(spec: &mut Object, old: StructView, was_gated: bool) {
    for list in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for (container, former) in containers.iter_mut().zip(old.structs(list)) {
            if let Some(container) = container.as_object_mut() {
                restore(container, former, "image");
            }
        }
    }
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let was_negative = old.int("terminationGracePeriodSeconds").is_some_and(|before| before < 0);
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(spec, old, name);
    }
    if was_negative && grace == Some(1) {
        restore(spec, old, "terminationGracePeriodSeconds");
    }
    if was_gated {
        restore(spec, old, "nodeSelector");
        let mut affinity = spec.get("affinity").cloned().filter(|affinity| !affinity.is_null());
        let former = old.child("affinity");
        if let Some(Value::Object(affinity)) = &mut affinity {
            restore(affinity, former, "nodeAffinity");
        }
        match affinity {
            Some(Value::Object(affinity)) if affinity.is_empty() && !former.is_there() => {
                spec.remove("affinity");
            }
            Some(affinity) => {
                spec.insert("affinity", affinity);
            }
            None => {
                let only_nodes = former.members().all(|(name, _)| name == "nodeAffinity");
                if only_nodes {
                    restore(spec, old, "affinity");
                }
            }
        }
    }
}

fn restore(object: &mut Object, old: StructView, name: &str) {
    match old.get(name) {
        Some(value) => {
            object.insert(name.to_owned(), value.clone());
        }
        None => {
            object.remove(name);
        }
    }
}
