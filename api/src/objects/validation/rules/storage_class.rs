//! Rules for storage classes, CSI drivers and volume attachments.

use hashbrown::HashSet;

use super::super::path::Path;
use super::super::{Validator, names};
use super::View;
use super::common::Seen;
use crate::values::field::FieldError;

const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;
const NODE_ID_MAX: usize = 192;
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;

fn provisioner(validator: &mut Validator, path: &Path, name: &str) {
    if !name.is_empty() {
        validator.refuse(path, name, names::qualified(&name.to_lowercase()));
    }
}

fn parameters(validator: &mut Validator, path: &Path, class: View, needs_some: bool) {
    let (mut count, mut bytes) = (0, 0);
    for (key, value) in class.map("parameters") {
        if key.is_empty() {
            validator.invalid(path, key, "field can not be empty.");
        }
        count += 1;
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if count > PARAMETERS_MAX {
        validator.errors.push(FieldError::too_long(path, PARAMETERS_MAX));
    } else if bytes > PARAMETER_BYTES_MAX {
        validator.errors.push(FieldError::too_long(path, PARAMETER_BYTES_MAX));
    }
    if needs_some && count == 0 {
        validator.required(path, "must contain at least one key/value pair");
    }
}

pub(super) fn storage_class(validator: &mut Validator, path: &Path, class: View) {
    provisioner(validator, &path.child("provisioner"), class.text("provisioner"));
    parameters(validator, &path.child("parameters"), class, false);
    let policy = class.text("reclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Retain") {
        validator.not_supported(path.child("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
}

pub(super) fn attributes_class(validator: &mut Validator, path: &Path, class: View) {
    provisioner(validator, &path.child("driverName"), class.text("driverName"));
    parameters(validator, &path.child("parameters"), class, true);
}

/// Places that a class is confined to: each label once, each of its values once.
pub(super) fn topology(validator: &mut Validator, path: &Path, term: View) {
    let list = path.child("matchLabelExpressions");
    let mut keys = Seen::new();
    for (at, expression) in term.structs("matchLabelExpressions").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = list.index(at);
        let key = expression.text("key");
        validator.refuse(&place.child("key"), key, names::qualified(key));
        if !keys.insert(key) {
            validator.duplicate(place.child("key"), key);
        }
    }
}

/// The source of a volume attachment: an inline volume or the name of a persistent volume, not both.
pub(super) fn attachment_source(validator: &mut Validator, path: &Path, source: View) {
    const DETAIL: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.has("persistentVolumeName")) {
        (false, false) => validator.required(path, DETAIL),
        (true, true) => validator.forbidden(path, DETAIL),
        (false, true) if source.text("persistentVolumeName").is_empty() => {
            let detail = "must specify non empty persistentVolumeName";
            validator.required(path.child("persistentVolumeName"), detail);
        }
        _ => {}
    }
}

pub(super) fn driver(validator: &mut Validator, path: &Path, driver: View) {
    let spec = driver.child("spec");
    let root = path.child("spec");
    let policy = spec.text("fsGroupPolicy");
    const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
    if !POLICIES.contains(&policy) {
        validator.not_supported(root.child("fsGroupPolicy"), policy, &POLICIES);
    }
    let modes = root.child("volumeLifecycleModes");
    for mode in spec.texts("volumeLifecycleModes") {
        if !matches!(mode, "Persistent" | "Ephemeral") && !validator.has_enough() {
            validator.not_supported(modes, mode, &["Ephemeral", "Persistent"]);
        }
    }
    let tokens = root.child("tokenRequests");
    let mut audiences = Seen::new();
    for (at, token) in spec.structs("tokenRequests").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = tokens.index(at);
        let audience = token.text("audience");
        if !audiences.insert(audience) {
            validator.duplicate(place.child("audience"), audience);
        }
        if let Some(seconds) =
            token.int("expirationSeconds").filter(|seconds| !TOKEN_SECONDS.contains(seconds))
        {
            let detail = if seconds < *TOKEN_SECONDS.start() {
                "may not specify a duration less than 10 minutes"
            } else {
                "may not specify a duration larger than 2^32 seconds"
            };
            validator.invalid(place.child("expirationSeconds"), seconds, detail);
        }
    }
}

/// The drivers of a node, each once.
pub(super) fn node_drivers(validator: &mut Validator, path: &Path, spec: View) {
    let list = path.child("drivers");
    let mut seen = HashSet::new();
    for (at, driver) in spec.structs("drivers").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = list.index(at);
        let name = driver.text("name");
        if !seen.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
        let id = driver.text("nodeID");
        if id.len() > NODE_ID_MAX {
            let detail = format!("must be {NODE_ID_MAX} characters or less");
            validator.invalid(place.child("nodeID"), id, detail);
        }
        let keys = place.child("topologyKeys");
        let mut seen_keys = Seen::new();
        for key in driver.texts("topologyKeys") {
            if !seen_keys.insert(key) && !validator.has_enough() {
                validator.duplicate(keys, key);
            }
            validator.refuse(&keys, key, names::qualified(key));
        }
    }
}

/// An entry of a node's driver is immutable once it is reported.
pub(super) fn node_drivers_update(validator: &mut Validator, new: View, old: View) {
    let now: hashbrown::HashMap<&str, View> =
        new.child("spec").structs("drivers").map(|driver| (driver.text("name"), driver)).collect();
    for former in old.child("spec").structs("drivers") {
        let name = former.text("name");
        if let Some(driver) = now.get(name)
            && driver.object() != former.object()
            && !validator.has_enough()
        {
            validator.invalid(format!("spec.drivers[{name}]"), driver.to_value(), "field is immutable");
        }
    }
}
