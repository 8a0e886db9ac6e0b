//! Rules for requests for the state of device pools, and for the results in their status.

use super::super::super::path::FieldPath;
use super::super::super::{Validator, is_same_struct, names};
use super::super::StructView;
use super::super::status::conditions;
use super::names::{driver, pool};
use super::{each, fits};
use values::field::FieldError;
use values::json::Value;

/// Maximum number of pools in a request and in its status.
const POOLS_MAX: u16 = 1000;
/// Maximum number of conditions of a status.
const CONDITIONS_MAX: usize = 10;
/// Maximum length in bytes of the error of a pool.
const ERROR_MAX: usize = 256;

/// Checks the spec of a pool request. The spec is immutable, so an update does not check it.
pub(in super::super) fn pool_request(validator: &mut Validator, path: &FieldPath, request: StructView) {
    if !validator.is_create() {
        return;
    }
    let (spec, path) = (request.child("spec"), path.child("spec"));
    driver(validator, &path.child("driver"), spec.text("driver"));
    if let Some(name) = spec.get("poolName").and_then(Value::as_str) {
        pool(validator, &path.child("poolName"), name);
    }
    at_least(validator, &path, spec, "limit", 1);
    if let Some(limit) = spec.int("limit").filter(|limit| *limit > i64::from(POOLS_MAX)) {
        validator.invalid(path.child("limit"), limit, format!("must be less than or equal to {POOLS_MAX}"));
    }
}

/// Checks that an existing status is neither changed nor removed.
pub(in super::super) fn answer_update(validator: &mut Validator, new: StructView, old: StructView) {
    let (new, old) = (new.child("status"), old.child("status"));
    if old.is_there() && !(new.is_there() && is_same_struct(new, old)) {
        validator.invalid("status", new.to_value(), "field is immutable");
    }
}

/// Checks a status when it is set.
pub(in super::super) fn pool_status(validator: &mut Validator, path: &FieldPath, status: StructView) {
    if validator.old.is_some_and(|old| old.has("status")) {
        return;
    }
    if !status.has("poolCount") {
        validator.required(path.child("poolCount"), "");
    }
    at_least(validator, path, status, "poolCount", 0);
    let list = path.child("pools");
    if fits(validator, &list, status.items("pools").len(), usize::from(POOLS_MAX)) {
        each(validator, &list, status.structs("pools"), counted);
    }
    let list = path.child("conditions");
    if fits(validator, &list, status.items("conditions").len(), CONDITIONS_MAX) {
        conditions(validator, &list, status);
    }
}

/// Checks a pool in a status.
fn counted(validator: &mut Validator, path: &FieldPath, counted: StructView) {
    driver(validator, &path.child("driver"), counted.text("driver"));
    pool(validator, &path.child("poolName"), counted.text("poolName"));
    if counted.int("generation").unwrap_or(0) == 0 {
        validator.required(path.child("generation"), "");
    }
    for (name, least) in [
        ("generation", 0),
        ("resourceSliceCount", 1),
        ("totalDevices", 0),
        ("allocatedDevices", 0),
        ("availableDevices", 0),
        ("unavailableDevices", 0),
    ] {
        at_least(validator, path, counted, name, least);
    }
    if let Some(node) = counted.get("nodeName").and_then(Value::as_str) {
        validator.refuse(&path.child("nodeName"), node, names::subdomain(node));
    }
    if counted.text("validationError").len() > ERROR_MAX {
        validator.errors.push(FieldError::too_long(path.child("validationError"), ERROR_MAX));
    }
}

fn at_least(validator: &mut Validator, path: &FieldPath, owner: StructView, name: &str, least: i64) {
    if let Some(number) = owner.int(name).filter(|number| *number < least) {
        validator.invalid(path.child(name), number, format!("must be greater than or equal to {least}"));
    }
}
