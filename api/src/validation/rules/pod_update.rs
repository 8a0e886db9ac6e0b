//! What an update may change about a pod: nearly nothing (semantics §5.7).
//!
//! The allowed changes are checked one by one and then taken back; whatever still differs is refused.

use hashbrown::{HashMap, HashSet};

use super::super::is_same;
use super::{Check, given, items, text, top};
use crate::field::FieldError;
use crate::json::{Object, Value};

const DETAIL: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn pod(check: &mut Check, old: &Object) {
    let (Some(new), Some(old)) = (top(check.object, "spec"), old.get("spec")) else { return };
    if new == old {
        return;
    }
    for list in ["containers", "initContainers"] {
        if items(Some(new), list).len() != items(Some(old), list).len() {
            let detail = "pod updates may not add or remove containers";
            check.errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
            return;
        }
    }
    deadline(check, new, old);
    tolerations(check, new, old);
    let was_gated = !items(Some(old), "schedulingGates").is_empty();
    gates(check, new, old);
    if was_gated {
        node_selector(check, new, old);
    }
    let mut masked = new.clone();
    take_back(&mut masked, old, was_gated);
    if let Some((field, _)) = first_difference(&masked, old) {
        // The reference server follows this by a diff of the two; the field that differs says as much.
        check.errors.push(FieldError::forbidden("spec", format!("{DETAIL}\n  spec.{field} differs\n")));
    }
}

/// It can be set, and lowered.
fn deadline(check: &mut Check, new: &Value, old: &Value) {
    const PATH: &str = "spec.activeDeadlineSeconds";
    let seconds = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (seconds(new), seconds(old)) {
        (Some(now), Some(before)) if now > before => {
            let detail = "must be less than or equal to previous value";
            check.errors.push(FieldError::invalid(PATH, &Value::Int(now), detail));
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            check.errors.push(FieldError::invalid(PATH, &Value::Null, detail));
        }
        _ => {}
    }
}

/// They can be added to, and how long they hold can change.
fn tolerations(check: &mut Check, new: &Value, old: &Value) {
    let but_duration =
        |toleration| ["key", "operator", "value", "effect"].map(|name| text(Some(toleration), name));
    let kept: HashSet<_> = items(Some(new), "tolerations").iter().map(but_duration).collect();
    if !items(Some(old), "tolerations").iter().all(|one| kept.contains(&but_duration(one))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        check.errors.push(FieldError::forbidden("spec.tolerations", detail));
    }
}

/// Gates can only be opened.
fn gates(check: &mut Check, new: &Value, old: &Value) {
    let former: HashSet<&str> =
        items(Some(old), "schedulingGates").iter().map(|gate| text(Some(gate), "name")).collect();
    for gate in items(Some(new), "schedulingGates") {
        let name = text(Some(gate), "name");
        if !former.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            check.errors.push(FieldError::forbidden("spec.schedulingGates", detail));
        }
    }
}

/// While a gate is closed the choice of nodes can be narrowed.
fn node_selector(check: &mut Check, new: &Value, old: &Value) {
    let selector = given(Some(new), "nodeSelector");
    let now: HashMap<&str, &Value> = super::members(selector).collect();
    let kept = |(name, value): (&str, &Value)| now.get(name) == Some(&value);
    if !super::members(given(Some(old), "nodeSelector")).all(kept) {
        let detail = "only additions are allowed (no mutations or deletions)";
        let value = selector.unwrap_or(&Value::Null);
        check.errors.push(FieldError::invalid("spec.nodeSelector", value, detail));
    }
}

/// Undoes in `spec` every change that is allowed, or has been judged.
fn take_back(spec: &mut Value, old: &Value, was_gated: bool) {
    for list in ["containers", "initContainers"] {
        let former = items(Some(old), list).to_vec();
        let Some(containers) = spec.as_object_mut().and_then(|spec| spec.get_mut(list)?.as_array_mut())
        else {
            continue;
        };
        for (container, former) in containers.iter_mut().zip(&former) {
            if let Some(container) = container.as_object_mut() {
                restore(container, former, "image");
            }
        }
    }
    let shortest_grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let grace_fixed = shortest_grace(old).is_some_and(|before| before < 0) && shortest_grace(spec) == Some(1);
    let Some(spec) = spec.as_object_mut() else { return };
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(spec, old, name);
    }
    if grace_fixed {
        restore(spec, old, "terminationGracePeriodSeconds");
    }
    if was_gated {
        restore(spec, old, "nodeSelector");
        // Narrowing by node affinity is only seen as such where there was none before.
        if old.at(&["affinity", "nodeAffinity"]).is_none_or(Value::is_null) {
            restore(spec, old, "affinity");
        }
    }
}

fn restore(object: &mut Object, old: &Value, name: &str) {
    match old.get(name) {
        Some(value) => {
            object.insert(name.to_owned(), value.clone());
        }
        None => {
            object.remove(name);
        }
    }
}

/// The first member in which two specifications differ.
fn first_difference<'v>(new: &'v Value, old: &'v Value) -> Option<(&'v str, &'v Value)> {
    let differs = |a: &'v Value, b: &'v Value| {
        super::members(Some(a)).find(move |(name, value)| !is_same(Some(value), b.get(name)))
    };
    differs(new, old).or_else(|| differs(old, new))
}
