//! Persistent volumes and claims on them.

use super::super::is_same;
use super::super::path::Path;
use super::{Check, given, items, members, no_negative_quantities, quantity, text, top};
use crate::field::FieldError;
use crate::json::{Object, Value};

/// Members of a volume's specification that are no source.
const NO_SOURCE: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

pub(super) fn volume(check: &mut Check) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let faults = &mut *check.errors;
    if items(spec, "accessModes").is_empty() {
        faults.push(FieldError::required(root.child("accessModes"), ""));
    }
    if members(given(spec, "capacity")).next().is_none() {
        faults.push(FieldError::required(root.child("capacity"), ""));
    }
    no_negative_quantities(&root.child("capacity"), given(spec, "capacity"), faults);
    let mut sources = members(spec)
        .filter(|(name, value)| !NO_SOURCE.contains(name) && !value.is_null())
        .map(|(name, _)| name);
    if sources.next().is_none() {
        faults.push(FieldError::required(root, "must specify a volume type"));
    }
    for source in sources {
        faults.push(FieldError::forbidden(root.child(source), "may not specify more than 1 volume type"));
    }
}

/// Where the data lies does not change.
pub(super) fn volume_update(check: &mut Check, old: &Object) {
    let (new, old) = (top(check.object, "spec"), old.get("spec"));
    let source = |spec: Option<&Value>| {
        let mut source: Object = members(spec)
            .filter(|(name, value)| !NO_SOURCE.contains(name) && !value.is_null())
            .map(|(name, value)| (name.to_owned().into(), value.clone()))
            .collect();
        // A secret for growing can be named later.
        if let Some(csi) = source.get_mut("csi").and_then(Value::as_object_mut) {
            csi.remove("controllerExpandSecretRef");
        }
        source
    };
    let expand = |spec: Option<&Value>| {
        spec.and_then(|spec| spec.at(&["csi", "controllerExpandSecretRef"]))
            .filter(|value| !value.is_null())
            .cloned()
    };
    let rewritten = expand(old).is_some() && expand(new) != expand(old);
    if source(new) != source(old) || rewritten {
        let detail = "spec.persistentvolumesource is immutable after creation";
        check.errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
}

pub(super) fn claim(check: &mut Check) {
    let spec = top(check.object, "spec");
    let root = Path::ROOT.child("spec");
    let faults = &mut *check.errors;
    if items(spec, "accessModes").is_empty() {
        faults.push(FieldError::required(root.child("accessModes"), "at least 1 access mode is required"));
    }
    let resources_path = root.child("resources");
    let requests = given(given(spec, "resources"), "requests");
    match requests.and_then(|requests| requests.get("storage")) {
        None => faults.push(FieldError::required(resources_path.key("storage"), "")),
        storage if quantity(storage).is_some_and(|quantity| quantity.is_negative() || quantity.is_zero()) => {
            let value = storage.unwrap_or(&Value::Null);
            let requests_path = resources_path.child("requests");
            faults.push(FieldError::invalid(
                requests_path.key("storage"),
                value,
                "must be greater than zero",
            ));
        }
        _ => {}
    }
}

/// A claim stays what it asked for; a bound one may ask for more of it.
pub(super) fn claim_update(check: &mut Check, old: &Object) {
    let status = old.get("status");
    let bound = text(status, "phase") == "Bound";
    let (Some(new), Some(old)) = (top(check.object, "spec"), old.get("spec")) else { return };
    let mut masked = new.clone();
    if let Some(spec) = masked.as_object_mut() {
        let mut free = Vec::new();
        if text(Some(old), "volumeName").is_empty() {
            free.push("volumeName");
        }
        if given(Some(old), "storageClassName").is_none() {
            free.push("storageClassName");
        }
        if bound {
            free.extend(["resources", "volumeAttributesClassName"]);
        }
        for name in free {
            match old.get(name) {
                Some(value) => spec.insert(name.to_owned(), value.clone()),
                None => spec.remove(name),
            };
        }
    }
    let same = |a: &Value, b: &Value| members(Some(a)).all(|(name, value)| is_same(Some(value), b.get(name)));
    if !(same(&masked, old) && same(old, &masked)) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        check.errors.push(FieldError::forbidden("spec", detail));
    }
    if !bound {
        return;
    }
    let storage = |spec: &Value| quantity(spec.at(&["resources", "requests", "storage"]));
    let granted = quantity(status.and_then(|status| status.at(&["capacity", "storage"])));
    if let (Some(now), Some(before)) = (storage(new), storage(old))
        && now.order(before).is_lt()
        && granted.is_none_or(|granted| now.order(granted).is_le())
    {
        let detail = "field can not be less than status.capacity";
        check.errors.push(FieldError::forbidden("spec.resources.requests.storage", detail));
    }
}
