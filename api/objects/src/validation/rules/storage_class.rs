//! Rules for storage classes, CSI drivers and volume attachments.

use hashbrown::{HashMap, HashSet};

use super::super::path::FieldPath;
use super::super::{Validator, names, scalar_formats};
use super::StructView;
use super::common::SeenStrings;
use types::schema::table::ValueFormat;
use values::field::FieldError;
use values::json::{Object, Value};

const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;
/// Minimum period in seconds between updates of the maximum number of volumes of a node.
const PERIOD_MIN: i64 = 10;
const NODE_ID_MAX: usize = 192;
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;

fn provisioner(validator: &mut Validator, path: &FieldPath, name: &str) {
    // Names are compared and reported in lower case.
    let name = name.to_lowercase();
    if !name.is_empty() {
        validator.refuse(path, &name, names::qualified(&name));
    }
}

fn parameters(validator: &mut Validator, path: &FieldPath, class: StructView, needs_some: bool) {
    let (mut count, mut bytes) = (0, 0);
    if class.map("parameters").count() > PARAMETERS_MAX {
        validator.errors.push(FieldError::too_long(path, PARAMETERS_MAX));
        return;
    }
    for (key, value) in class.map("parameters") {
        if key.is_empty() {
            validator.invalid(path, key, "field can not be empty.");
        }
        count += 1;
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > PARAMETER_BYTES_MAX {
        validator.errors.push(FieldError::too_long(path, PARAMETER_BYTES_MAX));
    }
    if needs_some && count == 0 {
        validator.required(path, "must contain at least one key/value pair");
    }
}

pub(super) fn storage_class(validator: &mut Validator, path: &FieldPath, class: StructView) {
    provisioner(validator, &path.child("provisioner"), class.text("provisioner"));
    parameters(validator, &path.child("parameters"), class, false);
    let policy = class.text("reclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Retain") {
        validator.not_supported(path.child("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let list = path.child("allowedTopologies");
    let terms = class.structs("allowedTopologies");
    // The list of earlier terms in the reference server begins with one empty term for each term.
    let mut seen: Vec<Vec<(&str, Vec<&str>)>> = vec![Vec::new(); terms.len()];
    for (at, term) in terms.enumerate() {
        if validator.has_enough() {
            return;
        }
        let places = places(term);
        // A term that equals several earlier terms is reported once for each equal term.
        for _ in seen.iter().filter(|earlier| **earlier == places) {
            let element = list.index(at);
            validator.duplicate(element.child("matchLabelExpressions"), "");
        }
        seen.push(places);
    }
}

/// Returns the content of a term without its order: the labels with their unique values.
fn places(term: StructView<'_>) -> Vec<(&str, Vec<&str>)> {
    let mut places: Vec<(&str, Vec<&str>)> = Vec::new();
    for expression in term.structs("matchLabelExpressions") {
        let mut values: Vec<&str> = expression.texts("values").collect();
        values.sort_unstable();
        values.dedup();
        let key = expression.text("key");
        // If several expressions have the same label, the last expression is used.
        places.retain(|(other, _)| *other != key);
        places.push((key, values));
    }
    places.sort_unstable();
    places
}

pub(super) fn attributes_class(validator: &mut Validator, path: &FieldPath, class: StructView) {
    provisioner(validator, &path.child("driverName"), class.text("driverName"));
    parameters(validator, &path.child("parameters"), class, true);
}

/// Checks a topology term of a storage class. The labels must be unique, and so must the values of each
/// label.
pub(super) fn topology(validator: &mut Validator, path: &FieldPath, term: StructView) {
    let list = path.child("matchLabelExpressions");
    let mut keys = SeenStrings::new();
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

/// Checks the driver and the node of an attachment. The source of the attachment has its own rule.
pub(super) fn attachment(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let node = spec.text("nodeName");
    validator.refuse(&path.child("nodeName"), node, names::subdomain(node));
    if validator.old.is_some() {
        return;
    }
    let attacher = spec.text("attacher");
    if !attacher.is_empty() {
        scalar_formats::text(ValueFormat::Driver, &path.child("attacher"), attacher, &mut validator.errors);
    }
    let source = spec.child("source");
    if source.has("persistentVolumeName") {
        let (name, root) = (source.text("persistentVolumeName"), path.child("source"));
        validator.refuse(&root.child("persistentVolumeName"), name, names::subdomain(name));
    }
}

/// Checks the source of a volume attachment: either an inline volume or the name of a persistent volume.
pub(super) fn attachment_source(validator: &mut Validator, path: &FieldPath, source: StructView) {
    const DETAIL: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.has("inlineVolumeSpec"), source.has("persistentVolumeName")) {
        (false, false) => validator.required(path, DETAIL),
        (true, true) => {
            validator.forget(&path.child("inlineVolumeSpec"));
            validator.forbidden(path, DETAIL);
        }
        (false, true) if source.text("persistentVolumeName").is_empty() => {
            let detail = "must specify non empty persistentVolumeName";
            validator.required(path.child("persistentVolumeName"), detail);
        }
        _ => {}
    }
}

pub(super) fn driver(validator: &mut Validator, path: &FieldPath, driver: StructView) {
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
            validator.not_supported(modes, mode, &["Persistent", "Ephemeral"]);
        }
    }
    let tokens = root.child("tokenRequests");
    let mut audiences = SeenStrings::new();
    for (at, token) in spec.structs("tokenRequests").enumerate() {
        if validator.has_enough() {
            break;
        }
        let place = tokens.index(at);
        let audience = token.text("audience");
        if !audiences.insert(audience) {
            validator.duplicate(place.child("audience"), audience);
            continue;
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
    let period = spec.int("nodeAllocatableUpdatePeriodSeconds");
    if let Some(seconds) = period.filter(|seconds| *seconds < PERIOD_MIN) {
        let detail = format!("must be greater than or equal to {PERIOD_MIN} seconds");
        validator.invalid(root.child("nodeAllocatableUpdatePeriodSeconds"), seconds, detail);
    }
    if let Some(is_in_secrets) = spec.flag("serviceAccountTokenInSecrets")
        && spec.structs("tokenRequests").next().is_none()
    {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        validator.invalid(root.child("serviceAccountTokenInSecrets"), is_in_secrets, detail);
    }
}

/// Checks that `attachRequired` of a driver does not change. As in the reference server, the error contains
/// the name `attachedRequired`.
pub(super) fn driver_update(validator: &mut Validator, new: StructView, old: StructView) {
    let said = |driver: StructView| driver.child("spec").flag("attachRequired");
    if said(new) != said(old) {
        let value = said(new).map_or(Value::Null, Value::Bool);
        validator.invalid("spec.attachedRequired", value, "field is immutable");
    }
}

/// Checks that the drivers of a node are unique.
pub(super) fn node_drivers(validator: &mut Validator, path: &FieldPath, spec: StructView) {
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
        // As in the reference server, the error has the path of the driver.
        let mut seen_keys = SeenStrings::new();
        for key in driver.texts("topologyKeys") {
            if validator.has_enough() {
                break;
            }
            if key.is_empty() {
                validator.required(place, "");
            }
            if !seen_keys.insert(key) {
                validator.duplicate(place, key);
            }
            validator.refuse(&place, key, names::qualified(key));
        }
    }
}

/// Checks that the entries for the drivers of a node do not change. Only the maximum number of volumes of a
/// driver may change.
pub(super) fn node_drivers_update(validator: &mut Validator, new: StructView, old: StructView) {
    let entry = |driver: StructView| {
        let mut entry = driver.object().cloned().unwrap_or_default();
        entry.remove("allocatable");
        entry
    };
    let mut former: HashMap<&str, Vec<Object>> = HashMap::new();
    for driver in old.child("spec").structs("drivers") {
        former.entry(driver.text("name")).or_default().push(entry(driver));
    }
    for driver in new.child("spec").structs("drivers") {
        let now = entry(driver);
        for _ in former.get(driver.text("name")).into_iter().flatten().filter(|before| **before != now) {
            if validator.has_enough() {
                return;
            }
            let value = Value::Object(now.clone());
            validator.invalid_from("spec.drivers", "spec.drivers[0]", value, "field is immutable");
        }
    }
}
