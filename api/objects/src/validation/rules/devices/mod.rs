//! Rules for device claims, device classes and resource slices (docs/api/validation.md#devices).
//!
//! ```text
//! class    ─► selectors, configuration
//! claim    ─► requests ─► selectors, amounts, tolerations       the spec of a claim is immutable
//!             constraints, configuration ─► the requests named
//! status   ─► allocation, users, devices in use
//! slice    ─► pool, location, devices ─► attributes, capacities, taints, counters
//! taint rule ─► devices, taint                                  pool request ─► driver, pool, limit; status set once
//! ```
//!
//! The schema walk skips these kinds. The content of most lists is checked only if the list is not too long.
//! Most members are checked only if other members are valid. In a set, errors of elements precede errors of
//! repetitions.

mod capacity;
mod names;
mod pool_request;
mod request;
mod slice;
mod status;
mod taint_rule;

use hashbrown::HashSet;

pub(super) use pool_request::{answer_update, pool_request, pool_status};
pub(super) use slice::slice;
pub(super) use status::claim_status;
pub(super) use taint_rule::{taint_rule, taint_status};

use super::super::path::FieldPath;
use super::super::{Validator, is_same};
use super::StructView;
use super::resources::is_extended;
use super::{placement, volume};
use values::field::FieldError;
use values::json::Value;

/// Maximum length of most lists: requests, constraints, configurations, selectors.
const LIST_MAX: usize = 32;

/// Checks a device class. Selectors and configurations that an update does not change are checked by the rules for
/// stored values.
pub(super) fn class(validator: &mut Validator, path: &FieldPath, class: StructView) {
    let (spec, place) = (class.child("spec"), path.child("spec"));
    let old = validator.old.map(|old| old.child("spec"));
    let is_kept = |list: &str| old.is_some_and(|old| is_same(spec.get(list), old.get(list)));
    request::selectors(validator, &place, spec, is_kept("selectors"));
    let is_stored = is_kept("config");
    slice_of(validator, &place, spec, "config", LIST_MAX, |validator, path, one| {
        request::configuration(validator, path, one, is_stored);
    });
    if let Some(name) = spec.get("extendedResourceName").and_then(Value::as_str)
        && !is_extended(validator.naming, name)
    {
        let detail = "must be a valid extended resource name";
        validator.invalid(place.child("extendedResourceName"), name, detail);
    }
}

/// Checks a claim. The spec of a claim is immutable, so an update does not check it.
pub(super) fn claim(validator: &mut Validator, path: &FieldPath, claim: StructView) {
    if validator.is_create() {
        request::claim(validator, &path.child("spec"), claim.child("spec"));
    }
}

/// Checks a template for claims. The template is immutable as well.
pub(super) fn claim_template(validator: &mut Validator, path: &FieldPath, template: StructView) {
    if validator.is_create() {
        let (spec, place) = (template.child("spec"), path.child("spec"));
        volume::claim_template(validator, &place, spec);
        request::claim(validator, &place.child("spec"), spec.child("spec"));
    }
}

/// Checks a node selector, which selects a node if one of its terms matches the node.
fn node_selector(validator: &mut Validator, path: &FieldPath, selector: StructView) {
    if selector.items("nodeSelectorTerms").is_empty() {
        let detail = "must have at least one node selector term";
        return validator.required(path.child("nodeSelectorTerms"), detail);
    }
    placement::node_selector(validator, path, selector);
}

/// Checks each struct of a list until enough failures are collected.
fn each<'v>(
    validator: &mut Validator,
    list: &FieldPath,
    structs: impl Iterator<Item = StructView<'v>>,
    mut check: impl FnMut(&mut Validator, &FieldPath, StructView<'v>),
) {
    for (at, one) in structs.enumerate() {
        if validator.has_enough() {
            return;
        }
        check(validator, &list.index(at), one);
    }
}

/// Returns whether a list has at most `max` elements. Reports an error if the list has more elements.
fn fits(validator: &mut Validator, list: &FieldPath, count: usize, max: usize) -> bool {
    if count > max {
        validator.errors.push(FieldError::too_many(list, count, max));
    }
    count <= max
}

/// Checks a list of structs that may contain repetitions.
fn slice_of<'v>(
    validator: &mut Validator,
    path: &FieldPath,
    owner: StructView<'v>,
    name: &str,
    max: usize,
    check: impl FnMut(&mut Validator, &FieldPath, StructView<'v>),
) {
    let list = path.child(name);
    if fits(validator, &list, owner.items(name).len(), max) {
        each(validator, &list, owner.structs(name), check);
    }
}

/// Checks a list of structs whose strings at `key` must differ.
fn set_of<'v>(
    validator: &mut Validator,
    path: &FieldPath,
    owner: StructView<'v>,
    name: &str,
    max: usize,
    key: &str,
    check: impl FnMut(&mut Validator, &FieldPath, StructView<'v>),
) {
    let list = path.child(name);
    if fits(validator, &list, owner.items(name).len(), max) {
        each(validator, &list, owner.structs(name), check);
        repeated(validator, &list, owner.structs(name).map(|one| one.text(key)));
    }
}

/// Refuses each string that repeats a previous string.
fn repeated<'v>(validator: &mut Validator, list: &FieldPath, texts: impl Iterator<Item = &'v str>) {
    let mut seen = HashSet::new();
    for (at, text) in texts.enumerate() {
        if !seen.insert(text) && !validator.has_enough() {
            validator.duplicate(list.index(at), text);
        }
    }
}
