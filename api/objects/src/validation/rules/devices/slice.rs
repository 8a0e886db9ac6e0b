//! Rules for resource slices: the location of their devices, and the devices.

use super::super::super::path::FieldPath;
use super::super::super::{Validator, is_same, names};
use super::super::StructView;
use super::capacity::LISTS;
use super::capacity::{attribute, shared, single};
use super::names::{driver, label, pool, qualified, shortened_key};
use super::request::EFFECTS;
use super::{fits, node_selector, repeated, set_of, slice_of};
use crate::device_limits::ATTRIBUTES_MAX;
use values::json::{Object, Value};

/// Maximum number of devices in a slice. The second limit applies to slices whose devices have taints,
/// consume counters or have list attributes.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;
/// Maximum number of counter sets in a slice, of counter sets that a device consumes, and of counters in a
/// set.
const COUNTER_SETS_MAX: usize = 8;
const TAKEN_SETS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
/// Maximum number of attribute values of a device.
const ATTRIBUTE_VALUES_MAX: usize = 48;
const TAINTS_MAX: usize = 16;
/// Maximum number of binding conditions and of binding failure conditions of a device.
const CONDITIONS_MAX: usize = 4;

/// Checks a slice, whose devices are available to one node, to some nodes or to all nodes. The schema
/// declares the immutable fields.
pub(in super::super) fn slice(validator: &mut Validator, path: &FieldPath, slice: StructView) {
    let (spec, path) = (slice.child("spec"), path.child("spec"));
    driver(validator, &path.child("driver"), spec.text("driver"));
    part_of(validator, &path.child("pool"), spec.child("pool"));
    place(validator, &path, spec);
    if spec.has("sharedCounters") && spec.has("devices") {
        validator.invalid(path, "", "only one of `sharedCounters` or `devices` is allowed");
    }
    let old = validator.old.map_or(StructView::from(None), |old| old.child("spec"));
    let max = if spec.structs("devices").any(is_advanced) { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
    let is_chosen_by_device = spec.is_true("perDeviceNodeSelection");
    set_of(validator, &path, spec, "devices", max, "name", |validator, path, one| {
        let before = old.structs("devices").find(|before| before.text("name") == one.text("name"));
        device(validator, path, one);
        if !before.is_some_and(|before| is_same(before.get("taints"), one.get("taints"))) {
            slice_of(validator, path, one, "taints", TAINTS_MAX, taint);
        }
        if is_chosen_by_device {
            own_place(validator, path, one);
        } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|name| one.has(name)) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set \
                          to true in the ResourceSlice spec";
            validator.invalid(path, Value::Null, detail);
        }
        binding_conditions(validator, path, one);
    });
    set_of(validator, &path, spec, "sharedCounters", COUNTER_SETS_MAX, "name", |validator, path, set| {
        counters(validator, path, set, "name");
    });
}

fn is_advanced(device: StructView) -> bool {
    let has_list = |attribute: &Value| {
        let attribute = StructView::from(Some(attribute));
        LISTS.iter().any(|list| attribute.has(list))
    };
    !device.items("taints").is_empty()
        || !device.items("consumesCounters").is_empty()
        || device.map("attributes").any(|(_, attribute)| has_list(attribute))
}

/// Checks the pool to which a slice belongs.
fn part_of(validator: &mut Validator, path: &FieldPath, part: StructView) {
    pool(validator, &path.child("name"), part.text("name"));
    let count = part.int("resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        validator.invalid(path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if let Some(generation) = part.int("generation").filter(|generation| *generation < 0) {
        validator.invalid(path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// Checks the location of the devices of a slice: a common location, or one location for each device.
fn place(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    const NAMES: &str = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`";
    let mut given = Vec::new();
    node_name(validator, path, spec, "must be either unset or set to a non-empty string", &mut given);
    if spec.has("nodeSelector") {
        given.push("`nodeSelector`");
        let (selector, path) = (spec.child("nodeSelector"), path.child("nodeSelector"));
        node_selector(validator, &path, selector);
        if selector.items("nodeSelectorTerms").len() != 1 {
            let terms = selector.get("nodeSelectorTerms").cloned().unwrap_or_default();
            validator.invalid(
                path.child("nodeSelectorTerms"),
                terms,
                "must have exactly one node selector term",
            );
        }
    }
    flag(validator, path, spec, "allNodes", "`allNodes`", &mut given);
    flag(validator, path, spec, "perDeviceNodeSelection", "`perDeviceNodeSelection`", &mut given);
    match given.len() {
        0 => validator.required(path, &format!("exactly one of {NAMES} is required")),
        1 => {}
        _ => {
            let detail = format!("exactly one of {NAMES} is required, but multiple fields are set");
            validator.invalid(path, format!("{{{}}}", given.join(", ")), detail);
        }
    }
}

/// Checks the location of a single device, for slices in which each device declares its own location.
fn own_place(validator: &mut Validator, path: &FieldPath, device: StructView) {
    let mut given = Vec::new();
    node_name(validator, path, device, "must not be empty", &mut given);
    if device.has("nodeSelector") {
        given.push("`nodeSelector`");
        node_selector(validator, &path.child("nodeSelector"), device.child("nodeSelector"));
    }
    flag(validator, path, device, "allNodes", "`allNodes`", &mut given);
    let detail = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` \
                  is set to true in the ResourceSlice spec";
    match given.len() {
        0 => validator.required(path, detail),
        1 => {}
        _ => validator.invalid(path, format!("{{{}}}", given.join(", ")), detail),
    }
}

fn node_name(
    validator: &mut Validator,
    path: &FieldPath,
    owner: StructView,
    empty: &str,
    given: &mut Vec<&'static str>,
) {
    let Some(name) = owner.get("nodeName").and_then(Value::as_str) else { return };
    let path = path.child("nodeName");
    if name.is_empty() {
        return validator.invalid(path, "", empty);
    }
    given.push("`nodeName`");
    validator.refuse(&path, name, names::subdomain(name));
}

/// Checks a flag that must be true if the flag is present.
fn flag(
    validator: &mut Validator,
    path: &FieldPath,
    owner: StructView,
    name: &str,
    error_name: &'static str,
    given: &mut Vec<&'static str>,
) {
    match owner.flag(name) {
        Some(true) => given.push(error_name),
        Some(false) => validator.invalid(path.child(name), false, "must be either unset or set to true"),
        None => {}
    }
}

/// Checks a device with its attributes, capacities and taints.
fn device(validator: &mut Validator, path: &FieldPath, device: StructView) {
    label(validator, &path.child("name"), device.text("name"));
    let attributes = device.map("attributes");
    let count = device.map("attributes").count() + device.map("capacity").count();
    let values: usize = device
        .map("attributes")
        .map(|(_, attribute)| {
            let attribute = StructView::from(Some(attribute));
            LISTS.iter().map(|list| attribute.items(list).len()).sum::<usize>().max(1)
        })
        .sum();
    for (count, max, what) in [
        (count, ATTRIBUTES_MAX, "attributes and capacities"),
        (values, ATTRIBUTE_VALUES_MAX, "attribute values"),
    ] {
        if count > max {
            let detail = format!("the total number of {what} must not exceed {max}");
            validator.invalid(path, i64::try_from(count).unwrap_or(i64::MAX), detail);
        }
    }
    let place = path.child("attributes");
    for (name, value) in attributes {
        if validator.has_enough() {
            return;
        }
        qualified(validator, &place, name);
        attribute(validator, &place.key(&shortened_key(name)), StructView::from(Some(value)));
    }
    let place = path.child("capacity");
    let check = if device.is_true("allowMultipleAllocations") { shared } else { single };
    for (name, value) in device.map("capacity") {
        if validator.has_enough() {
            return;
        }
        qualified(validator, &place, name);
        check(validator, &place.key(&shortened_key(name)), StructView::from(Some(value)));
    }
    let (list, key) = ("consumesCounters", "counterSet");
    set_of(validator, path, device, list, TAKEN_SETS_MAX, key, |validator, path, taken| {
        counters(validator, path, taken, "counterSet");
    });
}

/// Checks a counter set: counters that devices share, or counters that one device consumes.
fn counters(validator: &mut Validator, path: &FieldPath, set: StructView, name: &str) {
    let place = path.child(name);
    match set.text(name) {
        "" => validator.required(place, ""),
        text => label(validator, &place, text),
    }
    let place = path.child("counters");
    let counters = set.child("counters").object().map_or(0, Object::len);
    if counters == 0 {
        return validator.required(place, "");
    }
    if fits(validator, &place, counters, COUNTERS_MAX) {
        for (name, _) in set.map("counters") {
            label(validator, &place, name);
        }
    }
}

pub(super) fn taint(validator: &mut Validator, path: &FieldPath, taint: StructView) {
    let (key, value) = (taint.text("key"), taint.text("value"));
    validator.refuse(&path.child("key"), key, names::qualified(key));
    if !value.is_empty() {
        validator.refuse(&path.child("value"), value, names::label_value(value));
    }
    match taint.text("effect") {
        "" => validator.required(path.child("effect"), ""),
        effect if !EFFECTS.contains(&effect) => {
            validator.not_supported(path.child("effect"), effect, &EFFECTS);
        }
        _ => {}
    }
}

/// Checks the two lists of binding conditions. The first list contains the conditions that must be true
/// before a pod is bound to the node of a device; the second list contains the conditions that report a
/// failure. A list without the other list is invalid.
pub(super) fn binding_conditions(validator: &mut Validator, path: &FieldPath, owner: StructView) {
    const KINDS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    let mut all_fit = true;
    for kind in KINDS {
        let (list, texts) = (path.child(kind), owner.texts(kind));
        if !fits(validator, &list, texts.len(), CONDITIONS_MAX) {
            all_fit = false;
            continue;
        }
        for (at, text) in texts.enumerate() {
            validator.refuse(&list.index(at), text, names::qualified(text));
        }
    }
    if !all_fit {
        return;
    }
    let [conditions, failed] = KINDS.map(|kind| owner.texts(kind));
    for (kind, texts) in KINDS.into_iter().zip([conditions.clone(), failed.clone()]) {
        repeated(validator, &path.child(kind), texts);
    }
    let list = path.child(KINDS[1]);
    for (at, text) in failed.clone().enumerate() {
        if conditions.clone().any(|condition| condition == text) && !validator.has_enough() {
            let detail = "bindingFailureConditions must not overlap with bindingConditions";
            validator.invalid(list.index(at), text, detail);
        }
    }
    for (kind, other) in [(0, 1), (1, 0)] {
        let (kind, other) = (KINDS[kind], KINDS[other]);
        if owner.items(kind).is_empty() && !owner.items(other).is_empty() {
            let value = owner.get(kind).cloned().unwrap_or_default();
            validator.invalid(path.child(kind), value, format!("{kind} are required to use {other}"));
        }
    }
}
