//! Rules for resource claims, device classes and resource slices.

use hashbrown::HashSet;

use super::super::path::Path;
use super::super::{Validator, is_same, names};
use super::View;
use super::common::Seen;
use super::resources::is_extended;
use super::status::conditions;
use crate::values::field::FieldError;
use crate::values::json::Value;

/// Most requests, constraints, configurations or selectors of one claim, and alternatives of one request.
const LIST_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const DEVICES_MAX: usize = 128;
const ATTRIBUTES_MAX: usize = 32;
/// Most bytes of the name of a pool, and of a text or version among the attributes.
const POOL_NAME_MAX: usize = 253;
const ATTRIBUTE_MAX: usize = 64;
/// Most users of one claim.
const USERS_MAX: usize = 256;

fn at_most(validator: &mut Validator, path: &Path, owner: View, list: &str, max: usize) {
    let count = owner.items(list).len();
    if count > max {
        validator.errors.push(FieldError::too_many(path.child(list), count, max));
    }
}

/// The requests of a claim; their names are unique.
pub(super) fn claim(validator: &mut Validator, path: &Path, claim: View) {
    for list in ["requests", "constraints", "config"] {
        at_most(validator, path, claim, list, LIST_MAX);
    }
    let list = path.child("requests");
    let mut names = Seen::new();
    for (at, request) in claim.structs("requests").enumerate() {
        let name = request.text("name");
        if !name.is_empty() && !names.insert(name) && !validator.has_enough() {
            let place = list.index(at);
            validator.duplicate(place.child("name"), name);
        }
    }
    for kind in ["constraints", "config"] {
        let list = path.child(kind);
        for (at, one) in claim.structs(kind).enumerate() {
            requests_named(validator, &list.index(at), one, &names);
        }
    }
}

/// References to requests name requests of the claim.
fn requests_named(validator: &mut Validator, path: &Path, one: View, names: &Seen) {
    let list = path.child("requests");
    for (at, request) in one.texts("requests").enumerate() {
        request_named(validator, &list.index(at), request, names);
    }
}

fn request_named(validator: &mut Validator, path: &Path, request: &str, names: &Seen) {
    let base = request.split('/').next().unwrap_or_default();
    if !names.contains(base) && !validator.has_enough() {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated \
                      by '/'";
        validator.invalid(path, request, detail);
    }
}

/// The allocation is set once; reservations and device statuses need an allocation that they refer to.
pub(super) fn claim_status(validator: &mut Validator, path: &Path, status: View) {
    let claim = validator.object;
    let before = validator.old.map_or(View::from(None), |old| old.child("status"));
    at_most(validator, path, status, "reservedFor", USERS_MAX);
    let list = path.child("reservedFor");
    let mut users = Seen::new();
    for (at, user) in status.structs("reservedFor").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        for name in ["resource", "name", "uid"] {
            if user.text(name).is_empty() {
                validator.required(place.child(name), "");
            }
        }
        if !users.insert(user.text("uid")) {
            validator.duplicate(place, user.text("uid"));
        }
    }
    let device = |one: View| [one.text("driver"), one.text("pool"), one.text("device")].join("/");
    let allocation = status.child("allocation");
    let given: HashSet<String> = allocation.child("devices").structs("results").map(device).collect();
    let devices = path.child("devices");
    for (at, one) in status.structs("devices").enumerate() {
        if validator.has_enough() {
            return;
        }
        if !given.contains(&device(one)) {
            validator.invalid(devices.index(at), device(one), "must be an allocated device in the claim");
        }
        conditions(validator, &devices.index(at).child("conditions"), one);
    }
    if !status.items("reservedFor").is_empty() {
        if !allocation.is_there() {
            validator.forbidden(list, "may not be specified when `allocated` is not set");
        } else if claim.child("metadata").has("deletionTimestamp") {
            let known: HashSet<&str> = before.structs("reservedFor").map(|user| user.text("uid")).collect();
            if status.structs("reservedFor").any(|user| !known.contains(user.text("uid"))) {
                let detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
                validator.forbidden(list, detail);
            }
        }
    }
    let place = path.child("allocation");
    if before.has("allocation") && allocation.is_there() {
        if !is_same(status.get("allocation"), before.get("allocation")) {
            validator.invalid(place, allocation.to_value(), "field is immutable");
        }
    } else {
        allocated(validator, &place.child("devices"), allocation.child("devices"), claim);
    }
}

/// Devices that a claim is given are for requests that it has.
fn allocated(validator: &mut Validator, path: &Path, devices: View, claim: View) {
    at_most(validator, path, devices, "results", LIST_MAX);
    at_most(validator, path, devices, "config", 2 * LIST_MAX);
    let mut names = Seen::new();
    for request in claim.child("spec").child("devices").structs("requests") {
        names.insert(request.text("name"));
    }
    let list = path.child("results");
    for (at, result) in devices.structs("results").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        request_named(validator, &place.child("request"), result.text("request"), &names);
        for name in ["driver", "pool", "device"] {
            if result.text(name).is_empty() {
                validator.required(place.child(name), "");
            }
        }
    }
    let list = path.child("config");
    for (at, one) in devices.structs("config").enumerate() {
        requests_named(validator, &list.index(at), one, &names);
    }
}

/// A name that is empty is no name.
fn named(validator: &mut Validator, path: &Path, one: View) {
    if one.text("name").is_empty() && !validator.has_enough() {
        validator.refuse(&path.child("name"), "", names::label(""));
    }
}

/// A request is for one thing exactly, or for the first of some.
pub(super) fn request(validator: &mut Validator, path: &Path, request: View) {
    match (request.has("exactly"), !request.items("firstAvailable").is_empty()) {
        (false, false) => {
            validator.required(path, "exactly one of `exactly` or `firstAvailable` is required")
        }
        (true, true) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            validator.forget(&path.child("exactly"));
            validator.forget(&path.child("firstAvailable"));
            validator.invalid(path, Value::Null, detail);
            return named(validator, path, request);
        }
        _ => {}
    }
    named(validator, path, request);
    at_most(validator, path, request, "firstAvailable", ALTERNATIVES_MAX);
    let list = path.child("firstAvailable");
    let mut names = Seen::new();
    for (at, one) in request.structs("firstAvailable").enumerate() {
        named(validator, &list.index(at), one);
        let name = one.text("name");
        if !name.is_empty() && !names.insert(name) && !validator.has_enough() {
            let place = list.index(at);
            validator.duplicate(place.child("name"), name);
        }
    }
}

/// How many devices of a class.
pub(super) fn amount(validator: &mut Validator, path: &Path, request: View) {
    at_most(validator, path, request, "selectors", LIST_MAX);
    let count = request.int("count").unwrap_or(0);
    let place = path.child("count");
    match request.text("allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            validator.invalid(place, count, detail);
        }
        "ExactCount" if count <= 0 => validator.invalid(place, count, "must be greater than zero"),
        _ => {}
    }
}

/// A constraint on the attributes of several devices.
pub(super) fn constraint(validator: &mut Validator, path: &Path, constraint: View) {
    let (common, distinct) = (constraint.has("matchAttribute"), constraint.has("distinctAttribute"));
    if !common && !distinct {
        validator.required(path, "exactly one of `matchAttribute` or `distinctAttribute` is required");
    } else if common && distinct {
        let detail =
            "exactly one of `matchAttribute` or `distinctAttribute` is required, but multiple fields are set";
        validator.invalid(path, constraint.to_value(), detail);
    }
    for name in ["matchAttribute", "distinctAttribute"] {
        let attribute = constraint.text(name);
        if constraint.has(name) && attribute.is_empty() {
            validator.required(path.child(name), "name required");
        } else if constraint.has(name) && !attribute.contains('/') {
            validator.invalid(path.child(name), attribute, "must include a domain");
        }
    }
}

/// The resource whose requests a class answers.
pub(super) fn class(validator: &mut Validator, path: &Path, spec: View) {
    if let Some(name) = spec.get("extendedResourceName").and_then(Value::as_str)
        && !is_extended(validator.naming, name)
    {
        let detail = "must be a valid extended resource name";
        validator.invalid(path.child("extendedResourceName"), name, detail);
    }
}

/// A device selector has an expression.
pub(super) fn selector(validator: &mut Validator, path: &Path, selector: View) {
    if !selector.has("cel") {
        validator.required(path.child("cel"), "");
    }
}

/// A device configuration names its driver.
pub(super) fn configuration(validator: &mut Validator, path: &Path, configuration: View) {
    if !configuration.has("opaque") {
        validator.required(path.child("opaque"), "");
    }
}

/// Devices of a node, or of some, or of all.
pub(super) fn slice(validator: &mut Validator, path: &Path, spec: View) {
    let mut places = Vec::new();
    if spec.has("nodeName") && spec.text("nodeName").is_empty() {
        let detail = "must be either unset or set to a non-empty string";
        validator.invalid(path.child("nodeName"), "", detail);
    }
    for name in ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"] {
        match spec.flag(name) {
            Some(false) => {
                validator.invalid(path.child(name), false, "must be either unset or set to true");
            }
            Some(true) => places.push(format!("`{name}`")),
            None if spec.child(name).is_there() || !spec.text(name).is_empty() => {
                places.push(format!("`{name}`"));
            }
            None => {}
        }
    }
    let selector = spec.child("nodeSelector");
    if selector.is_there() && selector.items("nodeSelectorTerms").len() != 1 {
        let place = path.child("nodeSelector");
        let terms = selector.get("nodeSelectorTerms").cloned().unwrap_or_default();
        let detail = "must have exactly one node selector term";
        validator.invalid(place.child("nodeSelectorTerms"), terms, detail);
    }
    const NAMES: &str = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`";
    match places.len() {
        0 => validator.required(path, &format!("exactly one of {NAMES} is required")),
        1 => {}
        _ => {
            let detail = format!("exactly one of {NAMES} is required, but multiple fields are set");
            validator.invalid(path, format!("{{{}}}", places.join(", ")), detail);
        }
    }
    at_most(validator, path, spec, "devices", DEVICES_MAX);
    let list = path.child("devices");
    let mut names = Seen::new();
    for (at, device) in spec.structs("devices").enumerate() {
        if validator.has_enough() {
            return;
        }
        let place = list.index(at);
        named(validator, &place, device);
        let name = device.text("name");
        if !name.is_empty() && !names.insert(name) {
            validator.duplicate(place.child("name"), name);
        }
        let count = device.child("attributes").members().count() + device.child("capacity").members().count();
        if count > ATTRIBUTES_MAX {
            let detail =
                format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}");
            validator.invalid(place, i64::try_from(count).unwrap_or(i64::MAX), detail);
        }
    }
    pool(validator, &path.child("pool"), spec.child("pool"));
}

/// The pool of devices that a slice is part of; the parts of its name are subdomains.
fn pool(validator: &mut Validator, path: &Path, pool: View) {
    let name = pool.text("name");
    if name.len() > POOL_NAME_MAX {
        validator.errors.push(FieldError::too_long(path.child("name"), POOL_NAME_MAX));
    }
    for part in name.split('/').filter(|_| !name.is_empty()) {
        if validator.has_enough() {
            return;
        }
        validator.refuse(&path.child("name"), part, names::subdomain(part));
    }
    if pool.int("resourceSliceCount").unwrap_or(0) <= 0 {
        let count = pool.int("resourceSliceCount").unwrap_or(0);
        validator.invalid(path.child("resourceSliceCount"), count, "must be greater than zero");
    }
    if let Some(generation) = pool.int("generation").filter(|generation| *generation < 0) {
        validator.invalid(path.child("generation"), generation, "must be greater than or equal to zero");
    }
}

/// An attribute has one value.
pub(super) fn attribute(validator: &mut Validator, path: &Path, attribute: View) {
    for name in ["string", "version"] {
        let text = attribute.text(name);
        if name == "version" && attribute.has(name) && !is_semantic_version(text) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            validator.invalid(path.child(name), text, detail);
        }
        if text.len() > ATTRIBUTE_MAX {
            validator.errors.push(FieldError::too_long(path.child(name), ATTRIBUTE_MAX));
        }
    }
    match attribute.members().count() {
        0 => validator.required(path, "exactly one value must be specified"),
        1 => {}
        _ => validator.invalid(path, attribute.to_value(), "exactly one value must be specified"),
    }
}

/// Whether a text is a version as semver.org 2.0.0 defines it.
fn is_semantic_version(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (numbers, stage) =
        rest.split_once('-').map_or((rest, None), |(numbers, stage)| (numbers, Some(stage)));
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |part: &str| is_digits(part) && (part == "0" || !part.starts_with('0'));
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && stage.is_none_or(|stage| {
            stage.split('.').all(|part| if is_digits(part) { is_number(part) } else { is_word(part) })
        })
        && build.is_none_or(|build| build.split('.').all(is_word))
}

#[cfg(test)]
mod tests {
    use super::is_semantic_version;

    #[test]
    fn versions_have_three_numbers_and_may_have_a_stage_and_a_build() {
        for text in ["1.2.3", "0.0.0", "1.2.3-alpha.1", "1.2.3--x.0a", "1.2.3+05.x-y", "1.2.3-rc.1+build"] {
            assert!(is_semantic_version(text), "{text}");
        }
        for text in
            ["", "x", "1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+", "1.2.3+a+b"]
        {
            assert!(!is_semantic_version(text), "{text}");
        }
    }
}
