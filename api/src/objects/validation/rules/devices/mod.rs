//! Rules for claims of devices, classes of devices and slices of pools (docs/api/validation.md#devices).
//!
//! ```text
//! class    ─► selectors, configuration
//! claim    ─► requests ─► selectors, amounts, tolerations       what a claim asks for never changes
//!             constraints, configuration ─► the requests named
//! status   ─► allocation, users, devices in use
//! slice    ─► pool, place, devices ─► attributes, capacities, taints, counters
//! taint rule ─► devices, taint                                  pool request ─► driver, pool, limit; its answer is given once
//! ```
//!
//! The walk along the schema stays outside of these kinds, since most lists are judged only if they are short enough,
//! and most members only if others are as they should be. A list that is too long is refused without a look at what is in
//! it. Of a set, the failures of the members come first, then the repetitions.

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

use super::super::path::Path;
use super::super::{Validator, is_same};
use super::View;
use super::resources::is_extended;
use super::{placement, volume};
use crate::values::field::FieldError;
use crate::values::json::Value;

/// Most elements of most lists: requests, constraints, configurations, selectors.
const LIST_MAX: usize = 32;

/// A class of devices. Selectors and configurations that an update leaves alone are those of a stored class.
pub(super) fn class(validator: &mut Validator, path: &Path, class: View) {
    let (spec, place) = (class.child("spec"), path.child("spec"));
    let old = validator.old.map(|old| old.child("spec"));
    let is_kept = |list: &str| old.is_some_and(|old| is_same(spec.get(list), old.get(list)));
    request::selectors(validator, &place, spec, is_kept("selectors"));
    let is_stored = is_kept("config");
    slice_of(validator, &place, spec, ("config", LIST_MAX), |validator, path, one| {
        request::configuration(validator, path, one, is_stored);
    });
    if let Some(name) = spec.get("extendedResourceName").and_then(Value::as_str)
        && !is_extended(validator.naming, name)
    {
        let detail = "must be a valid extended resource name";
        validator.invalid(place.child("extendedResourceName"), name, detail);
    }
}

/// A claim. An update cannot change what is asked for, so nothing is said about it.
pub(super) fn claim(validator: &mut Validator, path: &Path, claim: View) {
    if validator.is_create() {
        request::claim(validator, &path.child("spec"), claim.child("spec"));
    }
}

/// A template for claims, which never changes either.
pub(super) fn claim_template(validator: &mut Validator, path: &Path, template: View) {
    if validator.is_create() {
        let (spec, place) = (template.child("spec"), path.child("spec"));
        volume::claim_template(validator, &place, spec);
        request::claim(validator, &place.child("spec"), spec.child("spec"));
    }
}

/// Nodes of which one must fit.
fn node_selector(validator: &mut Validator, path: &Path, selector: View) {
    if selector.items("nodeSelectorTerms").is_empty() {
        let detail = "must have at least one node selector term";
        return validator.required(path.child("nodeSelectorTerms"), detail);
    }
    placement::node_selector(validator, path, selector);
}

/// Checks each struct of a list, until enough failures are collected.
fn each<'v>(
    validator: &mut Validator,
    list: &Path,
    structs: impl Iterator<Item = View<'v>>,
    mut check: impl FnMut(&mut Validator, &Path, View<'v>),
) {
    for (at, one) in structs.enumerate() {
        if validator.has_enough() {
            return;
        }
        check(validator, &list.index(at), one);
    }
}

/// Returns whether a list has at most so many elements; says so if it has more.
fn fits(validator: &mut Validator, list: &Path, count: usize, max: usize) -> bool {
    if count > max {
        validator.errors.push(FieldError::too_many(list, count, max));
    }
    count <= max
}

/// A list of structs that may repeat each other.
fn slice_of<'v>(
    validator: &mut Validator,
    path: &Path,
    owner: View<'v>,
    (name, max): (&str, usize),
    check: impl FnMut(&mut Validator, &Path, View<'v>),
) {
    let list = path.child(name);
    if fits(validator, &list, owner.items(name).len(), max) {
        each(validator, &list, owner.structs(name), check);
    }
}

/// A list of structs that differ in the text at `key`.
fn set_of<'v>(
    validator: &mut Validator,
    path: &Path,
    owner: View<'v>,
    (name, max, key): (&str, usize, &str),
    check: impl FnMut(&mut Validator, &Path, View<'v>),
) {
    let list = path.child(name);
    if fits(validator, &list, owner.items(name).len(), max) {
        each(validator, &list, owner.structs(name), check);
        repeated(validator, &list, owner.structs(name).map(|one| one.text(key)));
    }
}

/// Refuses each text that occurred before.
fn repeated<'v>(validator: &mut Validator, list: &Path, texts: impl Iterator<Item = &'v str>) {
    let mut seen = HashSet::new();
    for (at, text) in texts.enumerate() {
        if !seen.insert(text) && !validator.has_enough() {
            validator.duplicate(list.index(at), text);
        }
    }
}
