//! Rules for writes of pods through `ephemeralcontainers` and `resize`
//! (docs/api/subresources.md#changes-of-running-pods).

use hashbrown::HashMap;

use super::super::path::FieldPath;
use super::super::{Validator, is_same, is_same_struct};
use super::StructView;
use values::qos::qos_class;

/// Resources that a resize can change.
const RESIZED: [&str; 2] = ["cpu", "memory"];
const ONLY: &str = "only cpu and memory resources are mutable";

/// Returns whether the pod is a static pod.
pub(super) fn is_static(validator: &Validator, pod: StructView) -> bool {
    let mirror = validator.naming.label("config.mirror");
    pod.child("metadata").child("annotations").has(&mirror)
}

/// Refuses the object as a whole, and removes all other errors.
fn only(validator: &mut Validator, detail: &str) {
    validator.errors.clear();
    validator.forbidden("[]", detail);
}

/// Checks that an update only adds ephemeral containers. Existing ephemeral containers must not change.
pub(super) fn ephemeral_containers(validator: &mut Validator, new: StructView, old: StructView) {
    if is_static(validator, old) {
        return only(validator, "static pods do not support ephemeral containers");
    }
    const LIST: &str = "ephemeralContainers";
    let containers = new.child("spec").structs(LIST);
    let containers: HashMap<&str, StructView> =
        containers.map(|container| (container.text("name"), container)).collect();
    let path = "spec.ephemeralContainers";
    for before in old.child("spec").structs(LIST) {
        if validator.has_enough() {
            return;
        }
        let name = before.text("name");
        let quoted = values::field::go_quote(name);
        match containers.get(name) {
            None => {
                let detail = format!("existing ephemeral containers {quoted} may not be removed\n");
                validator.forbidden(path, detail);
            }
            Some(now) if !is_same_struct(*now, before) => {
                let detail = format!("existing ephemeral containers {quoted} may not be changed");
                validator.forbidden_change(path, &detail, "spec.ephemeralContainers[0]", [before, *now]);
            }
            Some(_) => {}
        }
    }
}

/// Checks that a resize changes only amounts of resources.
pub(super) fn resize(validator: &mut Validator, new: StructView, old: StructView) {
    if is_static(validator, old) {
        return only(validator, "static pods cannot be resized");
    }
    if old.child("spec").child("os").text("name") == "windows" {
        return only(validator, "windows pods cannot be resized");
    }
    let status = old.child("status");
    let class = status.text("qosClass");
    let former = if class.is_empty() { old.object().map(qos_class) } else { Some(class) };
    if new.object().map(qos_class) != former {
        validator.invalid("spec", class, "Pod QOS Class may not change as a result of resizing");
    }
    let running =
        status.structs("containerStatuses").find(|container| container.child("state").has("running"));
    if running.is_some_and(|container| !container.has("resources")) {
        validator.forbidden("spec", "Pod running on node without support for resize");
    }
    let (new, old) = (new.child("spec"), old.child("spec"));
    let spec = FieldPath::ROOT.child("spec");
    let has_whole = [new, old].into_iter().any(has_amounts);
    if has_whole {
        resize_whole(validator, &spec, new, old);
    }
    if !status.items("nodeAllocatableResourceClaimStatuses").is_empty() {
        validator.forbidden("spec", "pods with node allocatable resource claims cannot be resized");
    }
    let found = validator.errors.len();
    for list in ["containers", "initContainers"] {
        same_containers(validator, list, new, old);
    }
    if validator.errors.len() > found {
        return;
    }
    for list in ["initContainers", "containers"] {
        let path = spec.child(list);
        for (at, (now, before)) in new.structs(list).zip(old.structs(list)).enumerate() {
            if validator.has_enough() {
                return;
            }
            nothing_removed(validator, &path.index(at), "resource", now, before);
        }
    }
    for (now, before) in new.structs("containers").zip(old.structs("containers")) {
        if !is_resize(now, before) {
            validator.forbidden("spec", ONLY);
        }
    }
    for (at, (now, before)) in new.structs("initContainers").zip(old.structs("initContainers")).enumerate() {
        let place = format!("spec.initContainers[{at}]");
        if !is_resize(now, before) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            validator.forbidden(place.clone(), detail);
        }
        let restarts =
            now.structs("resizePolicy").any(|policy| policy.text("restartPolicy") == "RestartContainer");
        if !is_same_struct(now, before) && now.text("restartPolicy") != "Always" && restarts {
            let detail =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            validator.forbidden(place, detail);
        }
    }
    if validator.errors.is_empty() && !has_whole && new.has("resources") != old.has("resources") {
        validator.forbidden("spec", ONLY);
    }
}

/// Returns whether a pod has pod-level resources.
fn has_amounts(spec: StructView) -> bool {
    let resources = spec.child("resources");
    ["requests", "limits"].iter().any(|list| resources.child(list).members().next().is_some())
}

/// Checks that pod-level resources are neither added nor removed, and that only resizable amounts change.
fn resize_whole(validator: &mut Validator, path: &FieldPath, new: StructView, old: StructView) {
    if old.has("resources") && !new.has("resources") {
        return validator.forbidden(path.child("resources"), "pod-level resources cannot be removed");
    }
    nothing_removed(validator, path, "pod-level resource", new, old);
    if !is_same_but_for_amounts(new, old) {
        validator.forbidden(path, format!("{ONLY} at pod-level"));
    }
}

/// Checks that the containers and their order are unchanged.
fn same_containers(validator: &mut Validator, list: &str, new: StructView, old: StructView) {
    let spec = FieldPath::ROOT.child("spec");
    let path = spec.child(list);
    if new.items(list).len() != old.items(list).len() {
        return validator.forbidden(path, format!("{list} may not be added or removed on resize"));
    }
    for (at, (now, before)) in new.structs(list).zip(old.structs(list)).enumerate() {
        if now.text("name") != before.text("name") && !validator.has_enough() {
            let detail = format!("{list} may not be renamed or reordered on resize");
            validator.forbidden(path.index(at).child("name"), detail);
        }
    }
}

/// Checks that no amount is removed. `what` tells whether the amounts belong to a container or to the pod.
fn nothing_removed(
    validator: &mut Validator,
    path: &FieldPath,
    what: &str,
    now: StructView,
    before: StructView,
) {
    let path = path.child("resources");
    for amounts in ["requests", "limits"] {
        let (now, before) = (now.child("resources").child(amounts), before.child("resources").child(amounts));
        if before.members().any(|(name, _)| !now.has(name)) {
            validator.forbidden(path.child(amounts), format!("{what} {amounts} cannot be removed"));
        }
    }
}

/// Returns whether two versions of a container differ only in resizable resources.
fn is_resize(now: StructView, before: StructView) -> bool {
    let but_resources = |container: StructView| {
        let mut container = container.object().cloned().unwrap_or_default();
        container.remove("resources");
        container
    };
    let (rest, former) = (but_resources(now), but_resources(before));
    is_same_struct(StructView::from_object(&rest), StructView::from_object(&former))
        && is_same_but_for_amounts(now, before)
}

/// Returns whether two resource requirements differ only in amounts of resizable resources.
fn is_same_but_for_amounts(now: StructView, before: StructView) -> bool {
    let (now, before) = (now.child("resources"), before.child("resources"));
    let rest = |resources: StructView, member: &str| {
        let mut amounts = resources.child(member).object().cloned().unwrap_or_default();
        amounts.retain(|name, _| !RESIZED.contains(&name));
        amounts
    };
    let is_kept = |member: &&str| {
        let (rest, former) = (rest(now, member), rest(before, member));
        is_same_struct(StructView::from_object(&rest), StructView::from_object(&former))
    };
    ["requests", "limits"].iter().all(is_kept) && is_same(now.get("claims"), before.get("claims"))
}
