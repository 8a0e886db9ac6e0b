//! Rules for device taint rules: the selected devices, the taint, and the status.

use super::super::super::Validator;
use super::super::super::path::FieldPath;
use super::super::StructView;
use super::super::status::conditions;
use super::fits;
use super::names::{driver, label, pool};
use super::slice::taint;
use values::json::Value;

/// Maximum number of conditions of a rule.
const CONDITIONS_MAX: usize = 8;

/// Checks the device selector and the taint of a rule.
pub(in super::super) fn taint_rule(validator: &mut Validator, path: &FieldPath, rule: StructView) {
    let (spec, path) = (rule.child("spec"), path.child("spec"));
    let (selector, place) = (spec.child("deviceSelector"), path.child("deviceSelector"));
    for (name, check) in
        [("driver", driver as fn(&mut Validator, &FieldPath, &str)), ("pool", pool), ("device", label)]
    {
        if let Some(text) = selector.get(name).and_then(Value::as_str) {
            check(validator, &place.child(name), text);
        }
    }
    taint(validator, &path.child("taint"), spec.child("taint"));
}

/// Checks the status of a rule.
pub(in super::super) fn taint_status(validator: &mut Validator, path: &FieldPath, status: StructView) {
    let list = path.child("conditions");
    if fits(validator, &list, status.items("conditions").len(), CONDITIONS_MAX) {
        conditions(validator, &list, status);
    }
}
