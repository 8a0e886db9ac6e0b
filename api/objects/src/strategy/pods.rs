//! Changes to pods on create and update that tables cannot express.
//!
//! ```text
//! new pod ─► phase, quality of service, gates ─► selectors by label keys ─► profiles from annotations
//! status  ─► quality of service and observed generations that its writer left out
//! ```

use super::dropped::{self, Dropped};
use super::{Creation, Endpoint, NONE, Strategy, warnings};
use values::clock;
use values::json::{Object, Value};
use values::object;
use values::qos::qos_class;

pub(super) const POD: Strategy = Strategy {
    create: Some(create),
    update: Some(update),
    warnings: Some(warnings::pod),
    status_warnings: Some(warnings::pod_status),
    dropped: &[
        Dropped { below: "spec", sets: dropped::POD_SPEC },
        Dropped { below: "status", sets: dropped::POD_STATUS },
    ],
    ..NONE
};

/// Container lists of a pod, in the order in which they are visited.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Maximum length in bytes of the name of a localhost profile.
const PROFILE_MAX: usize = 4095;

fn create(pod: &mut Object, creation: &mut Creation) {
    raise_grace_period(pod);
    let qos = qos_class(pod);
    let gates = object::at(pod, "spec.schedulingGates").and_then(Value::as_array);
    let is_gated = gates.is_some_and(|gates| !gates.is_empty());
    let status = pod.object_entry("status");
    if is_gated {
        tell_of_gates(status);
    }
    status.insert("phase", "Pending".into());
    status.insert("qosClass", qos.into());
    select_by_label_keys(pod);
    take_armor(pod, creation);
}

fn update(endpoint: Endpoint, new: &mut Object, old: &Object) {
    if !new.shares("spec", old) {
        raise_grace_period(new);
    }
    if endpoint == Endpoint::Status {
        keep_what_is_left_out(new, old);
    }
}

/// Sets the condition that a pod with scheduling gates is not scheduled.
fn tell_of_gates(status: &mut Object) {
    let mut condition = Object::new();
    condition.push("type", "PodScheduled".into());
    condition.push("status", "False".into());
    condition.push("lastProbeTime", Value::Null);
    condition.push("lastTransitionTime", clock::now().into());
    condition.push("reason", "SchedulingGated".into());
    condition.push("message", "Scheduling is blocked due to non-empty scheduling gates".into());
    status.insert("conditions", Value::Array(vec![condition.into()]));
}

/// Replaces a negative termination grace period by 1 second.
fn raise_grace_period(pod: &mut Object) {
    // Checks the value without mutable access first. Mutable access would copy a specification that is shared
    // with the stored pod.
    const PATH: &str = "terminationGracePeriodSeconds";
    if let Some(Value::Int(..=-1)) = pod.get("spec").and_then(|spec| spec.get(PATH)) {
        pod.object_entry("spec").insert(PATH, Value::Int(1));
    }
}

/// Adds requirements to the selectors of spread constraints and affinity terms. Each key in a list of label
/// keys adds one requirement if the pod has a label with that key.
fn select_by_label_keys(pod: &mut Object) {
    let selects = |member: &&str| object::at(pod, member).is_some_and(|value| !value.is_null());
    if !["spec.topologySpreadConstraints", "spec.affinity"].iter().any(selects) {
        return;
    }
    let labels = object::at(pod, "metadata.labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let constraints = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in constraints.into_iter().flatten().filter_map(Value::as_object_mut) {
        require(constraint, &labels, &[("matchLabelKeys", "In")]);
    }
    let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = affinity.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        for (list, member) in [
            ("preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"),
            ("requiredDuringSchedulingIgnoredDuringExecution", ""),
        ] {
            let terms = terms.get_mut(list).and_then(Value::as_array_mut);
            for term in terms.into_iter().flatten().filter_map(Value::as_object_mut) {
                let term = match member {
                    "" => Some(term),
                    member => term.get_mut(member).and_then(Value::as_object_mut),
                };
                if let Some(term) = term {
                    require(term, &labels, &[("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")]);
                }
            }
        }
    }
}

/// Adds the requirements for the label keys in `lists` to the selector of `place`, if `place` has a selector.
fn require(place: &mut Object, labels: &Object, lists: &[(&str, &str)]) {
    let mut requirements = Vec::new();
    for (list, operator) in lists {
        for key in place.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            let Some(value) = labels.get(key) else { continue };
            let mut requirement = Object::new();
            requirement.push("key", key.into());
            requirement.push("operator", (*operator).into());
            requirement.push("values", Value::Array(vec![value.clone()]));
            requirements.push(Value::Object(requirement));
        }
    }
    if requirements.is_empty() {
        return;
    }
    let Some(selector) = place.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    match selector.entry("matchExpressions") {
        Value::Array(given) => given.append(&mut requirements),
        none => *none = Value::Array(requirements),
    }
}

/// Copies AppArmor profiles from annotations of the pod to containers without their own profile. Each
/// annotation that the fields do not already express adds a warning for the writer.
fn take_armor(pod: &mut Object, creation: &mut Creation) {
    let annotations = object::at(pod, "metadata.annotations").and_then(Value::as_object);
    let prefix = format!("container.apparmor.security.beta.{}/", creation.naming.domain);
    let annotations: Vec<(String, Option<Object>)> = annotations
        .into_iter()
        .flat_map(Object::iter)
        .filter_map(|(name, value)| Some((name.strip_prefix(&prefix)?.to_owned(), profile(value.as_str()?))))
        .collect();
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut).filter(|_| !annotations.is_empty())
    else {
        return;
    };
    if spec.get("os").is_some_and(|os| os.str_at(&["name"]) == "windows") {
        return;
    }
    let of_pod = object::at(spec, "securityContext.appArmorProfile").and_then(Value::as_object).cloned();
    for list in CONTAINERS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            let Some((name, profile)) = annotations.iter().find(|(annotated, _)| annotated == name) else {
                continue;
            };
            let own = object::at(container, "securityContext.appArmorProfile");
            if own.is_some_and(|profile| !profile.is_null()) || profile.is_some() && *profile == of_pod {
                continue;
            }
            if let Some(profile) = profile {
                container.object_entry("securityContext").insert("appArmorProfile", profile.clone().into());
            }
            creation.warnings.push(format!("metadata.annotations[{prefix}{name}]: {}", warnings::ARMOR));
        }
    }
}

/// Returns the profile for the value of an annotation; `None` if the value is invalid for a container.
fn profile(text: &str) -> Option<Object> {
    let mut profile = Object::new();
    match text {
        "unconfined" => profile.push("type", "Unconfined".into()),
        "runtime/default" => profile.push("type", "RuntimeDefault".into()),
        _ => {
            let is_fine = |name: &&str| !name.is_empty() && name.trim() == *name && name.len() <= PROFILE_MAX;
            let name = text.strip_prefix("localhost/").filter(is_fine)?;
            profile.push("type", "Localhost".into());
            profile.push("localhostProfile", name.into());
        }
    }
    Some(profile)
}

/// Copies status members from the stored pod that older nodes do not write.
fn keep_what_is_left_out(new: &mut Object, old: &Object) {
    let empty = Object::new();
    let before = old.get("status").and_then(Value::as_object).unwrap_or(&empty);
    let status = new.object_entry("status");
    if status.get("qosClass").and_then(Value::as_str).unwrap_or_default().is_empty()
        && let Some(class) = before.get("qosClass")
    {
        status.insert("qosClass", class.clone());
    }
    keep_generation(status, before.get("observedGeneration"));
    let mut earlier: Vec<&Value> =
        before.get("conditions").and_then(Value::as_array).unwrap_or_default().iter().collect();
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        let is_same = |other: &&Value| other.get("type") == condition.get("type");
        if let Some(at) = earlier.iter().position(is_same) {
            keep_generation(condition, earlier.remove(at).get("observedGeneration"));
        }
    }
}

/// Keeps the stored observed generation if the writer omitted it.
fn keep_generation(place: &mut Object, before: Option<&Value>) {
    let is_left_out = place.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0) == 0;
    if is_left_out && let Some(before) = before.filter(|before| before.as_i64().unwrap_or(0) != 0) {
        place.insert("observedGeneration", before.clone());
    }
}

#[cfg(test)]
#[path = "pods_test.rs"]
mod tests;
