//! Rules for persistent volumes and persistent volume claims.

use super::super::path::FieldPath;
use super::super::{Validator, is_same, is_same_struct, names};
use super::StructView;
use super::scalar_formats::POSITIVE;
use super::view::quantity;
use values::field::FieldError;
use values::json::{Object, Value};

/// Members of a volume's specification that are not volume sources.
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

/// Access modes of volumes. The mode for a single pod excludes all other modes.
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let is_single = |mode: &str| mode == "ReadWriteOncePod";
    let modes = spec.texts("accessModes");
    for mode in modes.clone().filter(|mode| !ACCESS_MODES.contains(mode)) {
        if validator.has_enough() {
            return;
        }
        // As in the reference server, the error has the path of the list.
        validator.not_supported(path.child("accessModes"), mode, &ACCESS_MODES);
    }
    let others = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce"];
    if modes.clone().any(is_single) && modes.clone().any(|mode| others.contains(&mode)) {
        let detail = "may not use ReadWriteOncePod with other access modes";
        validator.forbidden(path.child("accessModes"), detail);
    }
}

/// Volume sources that permit mount options in an annotation.
const MOUNTED_WITH_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];

/// Checks mount options in an annotation, which was used before the field existed.
pub(super) fn mounting(validator: &mut Validator, path: &FieldPath, volume: StructView) {
    let key = format!("volume.beta.{}/mount-options", validator.naming.domain);
    let (metadata, spec) = (volume.child("metadata"), volume.child("spec"));
    if metadata.child("annotations").has(&key) && !MOUNTED_WITH_OPTIONS.iter().any(|name| spec.has(name)) {
        let place = path.child("metadata");
        let annotations = place.child("annotations");
        validator.forbidden(annotations.child(&key), "may not specify mount options for this volume type");
    }
}

pub(super) fn volume(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    access_modes(validator, path, spec);
    if validator.kind == "VolumeAttachment" {
        return inline_volume(validator, path, spec);
    }
    let capacity = path.child("capacity");
    let list = spec.child("capacity");
    let count = list.members().count();
    if count == 0 {
        validator.required(capacity, "");
    }
    if count != 1 || !list.has("storage") {
        let shown = if list.is_there() { list.to_value() } else { Value::Object(Object::new()) };
        validator.not_supported(capacity, shown, &["storage"]);
    }
    for (name, amount) in list.members() {
        if validator.has_enough() {
            return;
        }
        not_below_zero(validator, &capacity.key(name), amount);
        if quantity(amount).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
            validator.invalid(capacity.key(name), amount.clone(), POSITIVE);
        }
    }
    let local = String::from(path.child("local"));
    let is_local = spec.has("local") && validator.errors.iter().all(|error| error.path != local);
    if is_local && !spec.has("nodeAffinity") {
        validator.required(path.child("nodeAffinity"), "Local volume requires node affinity");
    }
    let is_recycled = spec.text("persistentVolumeReclaimPolicy") == "Recycle";
    if is_recycled && is_root(spec.child("hostPath").text("path")) {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        validator.forbidden(path.child("persistentVolumeReclaimPolicy"), detail);
    }
    if let Some(class) = spec.get("volumeAttributesClassName").and_then(Value::as_str) {
        let place = path.child("volumeAttributesClassName");
        if class.is_empty() {
            validator.required(place, "an empty string is disallowed");
        } else {
            validator.refuse(&place, class, names::subdomain(class));
        }
        if !spec.has("csi") {
            let detail = "has to be specified when using volumeAttributesClassName";
            validator.required(path.child("csi"), detail);
        }
    }
}

/// Returns whether a path is the root directory. Resolves `..` in the path.
fn is_root(path: &str) -> bool {
    let depth = path.split('/').fold(0_usize, |depth, step| match step {
        "" | "." => depth,
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    path.starts_with('/') && depth == 0
}

/// Refuses a negative amount. The error contains the amount as an integer.
pub(super) fn not_below_zero(validator: &mut Validator, path: &FieldPath, amount: &Value) {
    let Some(number) = quantity(amount).filter(|amount| amount.is_negative()) else { return };
    let whole = number.to_f64().floor() as i64;
    validator.invalid(path, Value::Int(whole), "must be a valid resource quantity");
}

/// Checks the inline volume of an attachment. The volume must have a CSI source, and must not have fields
/// that depend on a claim.
fn inline_volume(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    const DETAIL: &str = "may not be specified in the context of inline volumes";
    for name in ["claimRef", "capacity", "nodeAffinity"] {
        if spec.has(name) {
            validator.forbidden(path.child(name), DETAIL);
        }
    }
    if !spec.text("storageClassName").is_empty() {
        validator.forbidden(path.child("storageClassName"), DETAIL);
    }
    if !spec.has("csi") {
        validator.required(path.child("csi"), "has to be specified in the context of inline volumes");
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !matches!(policy, "" | "Retain") {
        let detail = "may only be Retain in the context of inline volumes";
        validator.forbidden(path.child("persistentVolumeReclaimPolicy"), detail);
    }
    if spec.has("volumeMode") && spec.text("volumeMode") != "Filesystem" {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        validator.forbidden(path.child("volumeMode"), detail);
    }
}

/// Checks the secret references of a CSI driver. Each reference needs a name and a namespace.
pub(super) fn driver(validator: &mut Validator, path: &FieldPath, source: StructView) {
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let reference = source.child(name);
        if !reference.is_there() {
            continue;
        }
        let place = path.child(name);
        match reference.text("name") {
            "" => validator.required(place.child("name"), ""),
            text => validator.refuse(&place.child("name"), text, names::subdomain(text)),
        }
        match reference.text("namespace") {
            "" => validator.required(place.child("namespace"), ""),
            text => validator.refuse(&place.child("namespace"), text, names::label(text)),
        }
    }
}

/// Checks that the source of a volume does not change.
pub(super) fn volume_update(validator: &mut Validator, new: StructView, old: StructView) {
    const EXPAND: &str = "controllerExpandSecretRef";
    validator.repeat(&FieldPath::ROOT.child("spec")); // checked as new and as changed
    let (new, old) = (new.child("spec"), old.child("spec"));
    let source = |spec: StructView| -> Object {
        let members = spec.members().filter(|(name, _)| !NO_SOURCE.contains(name));
        members.map(|(name, value)| (name.to_owned().into(), value.clone())).collect()
    };
    let (mut now, before) = (source(new), source(old));
    // The secret for the expansion of the volume may be added later.
    if old.has("csi")
        && !old.child("csi").has(EXPAND)
        && let Some(csi) = now.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(EXPAND);
    }
    if !is_same_struct(StructView::from_object(&now), StructView::from_object(&before)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        validator.forbidden_source_change("spec.persistentvolumesource", detail, &before, &now);
    }
    check_mode_unchanged(validator, new, old);
    if old.has("nodeAffinity") && !is_same_place(validator, new, old) {
        let value = new.get("nodeAffinity").cloned().unwrap_or_default();
        let detail = "field is immutable, except for updating from beta label to GA";
        validator.invalid("nodeAffinity", value, detail);
    }
    if old.has("volumeAttributesClassName") && !new.has("volumeAttributesClassName") {
        let detail = "update from non-nil value to nil is forbidden";
        validator.forbidden("spec.volumeAttributesClassName", detail);
    }
}

/// Returns whether the node affinity is unchanged. A beta label may change to the stable name of the label.
fn is_same_place(validator: &Validator, new: StructView, old: StructView) -> bool {
    let naming = validator.naming;
    let is_renamed =
        |before: &str, now: &str| naming.stable_node_label(before).is_some_and(|(_, stable)| stable == now);
    let mut now = new.child("nodeAffinity").to_value();
    let former = old.child("nodeAffinity").child("required");
    let terms = elements(at_mut(&mut now, "required"), "nodeSelectorTerms");
    for (term, former) in terms.iter_mut().zip(former.structs("nodeSelectorTerms")) {
        for list in ["matchExpressions", "matchFields"] {
            for (requirement, former) in elements(Some(&mut *term), list).iter_mut().zip(former.structs(list))
            {
                let before = former.text("key");
                if let Some(key) = at_mut(requirement, "key")
                    && key.as_str().is_some_and(|key| is_renamed(before, key))
                {
                    *key = before.into();
                }
            }
        }
    }
    is_same(Some(&now), old.get("nodeAffinity"))
}

/// Returns a mutable reference to a member of a struct.
fn at_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    value.as_object_mut()?.get_mut(name)
}

/// Returns the elements of a list in a struct as a mutable slice.
fn elements<'v>(owner: Option<&'v mut Value>, list: &str) -> &'v mut [Value] {
    let items = owner.and_then(|owner| at_mut(owner, list)).and_then(Value::as_array_mut);
    items.map_or(&mut [], Vec::as_mut_slice)
}

/// Checks that the volume mode does not change. As in the reference server, the path of the error has no
/// parent.
fn check_mode_unchanged(validator: &mut Validator, new: StructView, old: StructView) {
    if !is_same(new.get("volumeMode"), old.get("volumeMode")) {
        let value = new.get("volumeMode").cloned().unwrap_or_default();
        validator.invalid("volumeMode", value, "field is immutable");
    }
}

pub(super) fn claim(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    access_modes(validator, path, spec);
    let resources_path = path.child("resources");
    let place = resources_path.key("storage");
    match spec.child("resources").child("requests").get("storage") {
        None => validator.required(place, ""),
        Some(storage) => {
            if quantity(storage).is_some_and(|storage| storage.is_negative() || storage.is_zero()) {
                validator.invalid(place, storage.clone(), POSITIVE);
            }
        }
    }
    let (source, reference) = (spec.child("dataSource"), spec.child("dataSourceRef"));
    data_source(validator, &path.child("dataSource"), source);
    data_source(validator, &path.child("dataSourceRef"), reference);
    if !source.is_there() || !reference.is_there() {
        return;
    }
    let names_namespace = !reference.text("namespace").is_empty();
    let differs =
        ["apiGroup", "kind", "name"].iter().any(|name| !is_same(source.get(name), reference.get(name)));
    let detail = match (names_namespace, differs) {
        (true, _) => "may not be specified when dataSourceRef.namespace is specified",
        (false, true) => "must match dataSourceRef",
        (false, false) => return,
    };
    // The error contains an empty struct, because the reference server prints a field path as the value.
    validator.errors.push(FieldError::invalid(path, &Object::new().into(), detail));
}

fn data_source(validator: &mut Validator, path: &FieldPath, source: StructView) {
    if !source.is_there() {
        return;
    }
    let group = source.text("apiGroup");
    if group.is_empty() && source.text("kind") != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        validator.invalid(path, source.text("kind"), detail);
    }
    if !group.is_empty() {
        validator.refuse(&path.child("apiGroup"), group, names::subdomain(group));
    }
}

/// Checks an update of a claim. A claim is immutable, but a bound claim may request more storage.
pub(super) fn claim_update(validator: &mut Validator, new_claim: StructView, old_claim: StructView) {
    let status = old_claim.child("status");
    let bound = status.text("phase") == "Bound";
    let (new, old) = (new_claim.child("spec"), old_claim.child("spec"));
    let class = format!("volume.beta.{}/storage-class", validator.naming.domain);
    let annotations = old_claim.child("metadata").child("annotations");
    let is_named = !annotations.has(&class) || annotations.text(&class) == new.text("storageClassName");
    let [mut now, before] = compared(new, old, bound);
    if is_named && !old.has("storageClassName") {
        now.remove("storageClassName");
    }
    if !is_same_struct(StructView::from_object(&now), StructView::from_object(&before)) {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                      bound claims";
        validator.forbidden_change(
            "spec",
            detail,
            "spec",
            [StructView::from_object(&before), StructView::from_object(&now)],
        );
    }
    let annotation = |claim: StructView<'_>| -> String {
        claim.child("metadata").child("annotations").text(&class).to_owned()
    };
    let (named, before) = (annotation(new_claim), annotation(old_claim));
    let is_moved = !before.is_empty()
        && !old.has("storageClassName")
        && new.text("storageClassName") == before
        && (named.is_empty() || named == before);
    if named != before && !is_moved {
        validator.invalid(format!("metadata.annotations.{class}"), named, "field is immutable");
    }
    let storage = |spec: StructView| spec.child("resources").child("requests").quantity("storage");
    if let (Some(now), Some(before)) = (storage(new), storage(old))
        && now < before
        && match status.child("capacity").quantity("storage") {
            Some(granted) => now <= granted,
            None => now.is_negative() || now.is_zero(),
        }
    {
        let detail = "field can not be less than status.capacity";
        validator.forbidden("spec.resources.requests.storage", detail);
    }
    check_mode_unchanged(validator, new, old);
    if old.has("volumeAttributesClassName")
        && !is_same(new.get("volumeAttributesClassName"), old.get("volumeAttributesClassName"))
    {
        let path = "spec.volumeAttributesClassName";
        if !new.has("volumeAttributesClassName") {
            validator.forbidden(path, "update from non-nil value to nil is forbidden");
        } else if new.text("volumeAttributesClassName").is_empty() {
            validator.forbidden(path, "update from non-nil value to an empty string is forbidden");
        }
    }
}

/// Returns the old and the new specification of a claim after making the mutable parts equal.
fn compared(new: StructView, old: StructView, bound: bool) -> [Object; 2] {
    let spec = |spec: StructView| -> Object {
        spec.members().map(|(name, value)| (name.to_owned().into(), value.clone())).collect()
    };
    let (mut now, mut before) = (spec(new), spec(old));
    if old.text("volumeName").is_empty()
        && let Some(name) = new.get("volumeName")
    {
        before.insert("volumeName", name.clone());
    }
    if bound {
        if now.get("volumeAttributesClassName").is_some() {
            keep(&mut now, old, "volumeAttributesClassName");
        }
        let granted = old.child("resources").child("requests").get("storage");
        let resources = now.get_mut("resources").and_then(Value::as_object_mut);
        let requests = resources.and_then(|resources| resources.get_mut("requests"));
        if let (Some(Value::Object(requests)), Some(granted)) = (requests, granted) {
            requests.insert("storage", granted.clone());
        }
    }
    [now, before]
}

fn keep(spec: &mut Object, old: StructView, name: &str) {
    match old.get(name) {
        Some(value) => spec.insert(name.to_owned(), value.clone()),
        None => spec.remove(name),
    };
}
