//! Rules for the spec of a claim: requests, constraints, and configuration for drivers.

use cel::environment::Origin;
use hashbrown::{HashMap, HashSet};

use super::super::super::path::FieldPath;
use super::super::super::{Validator, names};
use super::super::StructView;
use super::names::{driver, fully_qualified, label};
use super::{LIST_MAX, each, fits, repeated, set_of, slice_of};
use crate::expression::device::{self, DeviceSelectorFault};
use values::field::FieldError;
use values::json::{self, Value};

/// Maximum number of alternatives of one request.
const ALTERNATIVES_MAX: usize = 8;
/// Maximum length of an expression in bytes.
const EXPRESSION_MAX: usize = 10 * 1024;
/// Maximum size in bytes of the parameters for a driver.
const PARAMETERS_MAX: usize = 10 * 1024;
/// Effects of a taint on pods that do not tolerate the taint.
pub(super) const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const OPERATORS: [&str; 2] = ["Equal", "Exists"];

/// Names of the requests of a claim, each with the names of its alternatives.
pub(super) struct Requests<'v>(HashMap<&'v str, HashSet<&'v str>>);

impl<'v> Requests<'v> {
    /// Returns the requests in the spec of a claim.
    pub(super) fn from_spec(spec: StructView<'v>) -> Self {
        let requests = spec.child("devices").structs("requests");
        Requests(
            requests
                .map(|request| {
                    let alternatives = request.structs("firstAvailable").map(|one| one.text("name"));
                    (request.text("name"), alternatives.collect())
                })
                .collect(),
        )
    }

    fn has(&self, name: &str, alternative: Option<&str>) -> bool {
        let alternatives = self.0.get(name);
        alternatives.is_some_and(|known| alternative.is_none_or(|alternative| known.contains(alternative)))
    }

    /// Checks a reference to a request: `name` or `name/alternative`.
    pub(super) fn check(&self, validator: &mut Validator, path: &FieldPath, reference: &str) {
        let detail = "must be the name of a request in the claim or the name of a request and a subrequest separated \
                      by '/'";
        let (name, alternative) = match reference.split_once('/') {
            Some((_, rest)) if rest.contains('/') => return validator.invalid(path, reference, detail),
            Some((name, alternative)) => (name, Some(alternative)),
            None => (reference, None),
        };
        for part in std::iter::once(name).chain(alternative) {
            label(validator, path, part);
        }
        if !self.has(name, alternative) {
            validator.invalid(path, reference, detail);
        }
    }

    /// Checks the references of a constraint or a configuration to requests.
    pub(super) fn check_all(&self, validator: &mut Validator, path: &FieldPath, owner: StructView) {
        let list = path.child("requests");
        let references = owner.texts("requests");
        if !fits(validator, &list, references.len(), LIST_MAX) {
            return;
        }
        for (at, reference) in references.clone().enumerate() {
            if validator.has_enough() {
                return;
            }
            self.check(validator, &list.index(at), reference);
        }
        repeated(validator, &list, references);
    }
}

/// Checks the spec of a new claim.
pub(super) fn claim(validator: &mut Validator, path: &FieldPath, spec: StructView) {
    let (devices, path) = (spec.child("devices"), path.child("devices"));
    let requests = Requests::from_spec(spec);
    set_of(validator, &path, devices, "requests", LIST_MAX, "name", request);
    slice_of(validator, &path, devices, "constraints", LIST_MAX, |validator, path, one| {
        requests.check_all(validator, path, one);
        constraint(validator, path, one);
    });
    slice_of(validator, &path, devices, "config", LIST_MAX, |validator, path, one| {
        requests.check_all(validator, path, one);
        configuration(validator, path, one, false);
    });
}

/// Checks a request, which has either exact requirements or a list of alternatives.
fn request(validator: &mut Validator, path: &FieldPath, request: StructView) {
    label(validator, &path.child("name"), request.text("name"));
    match (request.has("exactly"), !request.items("firstAvailable").is_empty()) {
        (false, false) => {
            validator.required(path, "exactly one of `exactly` or `firstAvailable` is required")
        }
        (true, true) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            validator.invalid(path, Value::Null, detail);
        }
        (true, false) => amount(validator, &path.child("exactly"), request.child("exactly")),
        (false, true) => {
            let list = "firstAvailable";
            set_of(
                validator,
                path,
                request,
                list,
                ALTERNATIVES_MAX,
                "name",
                |validator, path, alternative| {
                    label(validator, &path.child("name"), alternative.text("name"));
                    amount(validator, path, alternative);
                },
            );
        }
    }
}

/// Checks the device class, the selectors and the number of devices of a request.
fn amount(validator: &mut Validator, path: &FieldPath, request: StructView) {
    let (class, place) = (request.text("deviceClassName"), path.child("deviceClassName"));
    if class.is_empty() {
        validator.required(place, "");
    } else {
        validator.refuse(&place, class, names::subdomain(class));
    }
    selectors(validator, path, request, false);
    let (count, place) = (request.int("count").unwrap_or(0), path.child("count"));
    match request.text("allocationMode") {
        "All" if count != 0 => {
            validator.invalid(place, count, "must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => validator.invalid(place, count, "must be greater than zero"),
        "All" | "ExactCount" => {}
        other => validator.not_supported(path.child("allocationMode"), other, &["All", "ExactCount"]),
    }
    tolerations(validator, path, request);
}

/// Checks selectors of devices. `is_stored` is true if the stored object contains the selectors.
pub(super) fn selectors(validator: &mut Validator, path: &FieldPath, owner: StructView, is_stored: bool) {
    slice_of(validator, path, owner, "selectors", LIST_MAX, |validator, path, selector| {
        let place = path.child("cel");
        if !selector.has("cel") {
            return validator.required(place, "");
        }
        let text = selector.child("cel").text("expression");
        expression(validator, &place.child("expression"), text, is_stored);
    });
}

fn expression(validator: &mut Validator, path: &FieldPath, text: &str, is_stored: bool) {
    if text.len() > EXPRESSION_MAX {
        return validator.errors.push(FieldError::too_long(path, EXPRESSION_MAX));
    }
    match device::check(text, if is_stored { Origin::Stored } else { Origin::New }) {
        Ok(()) => {}
        Err(DeviceSelectorFault::Invalid(why)) => validator.invalid(path, text, why),
        Err(DeviceSelectorFault::Internal(why)) => validator.errors.push(FieldError::internal(path, why)),
        Err(DeviceSelectorFault::Complex) => validator.forbidden(path, "too complex, exceeds cost limit"),
    }
}

/// Checks the tolerations of device taints in a request or a result.
pub(super) fn tolerations(validator: &mut Validator, path: &FieldPath, owner: StructView) {
    each(validator, &path.child("tolerations"), owner.structs("tolerations"), toleration);
}

fn toleration(validator: &mut Validator, path: &FieldPath, toleration: StructView) {
    let key = toleration.text("key");
    if !key.is_empty() {
        validator.refuse(&path.child("key"), key, names::qualified(key));
    }
    let (value, place) = (toleration.text("value"), path.child("value"));
    match toleration.text("operator") {
        "Exists" if !value.is_empty() => {
            validator.invalid(place, value, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => validator.refuse(&place, value, names::label_value(value)),
        "" => validator.required(path.child("operator"), ""),
        other => validator.not_supported(path.child("operator"), other, &OPERATORS),
    }
    let effect = toleration.text("effect");
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        validator.not_supported(path.child("effect"), effect, &EFFECTS);
    }
}

/// Checks a constraint: an attribute that must be equal, or must differ, in all devices. If both attributes
/// are given, only the first is checked.
fn constraint(validator: &mut Validator, path: &FieldPath, constraint: StructView) {
    let given = ["matchAttribute", "distinctAttribute"].into_iter().find(|name| constraint.has(name));
    match given {
        Some(name) => fully_qualified(validator, &path.child(name), constraint.text(name)),
        None => {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields \
                          are set";
            validator.required(path, detail);
        }
    }
}

/// Checks the configuration for a driver. Stored parameters may be longer than new parameters.
pub(super) fn configuration(
    validator: &mut Validator,
    path: &FieldPath,
    configuration: StructView,
    is_stored: bool,
) {
    let (opaque, place) = (configuration.child("opaque"), path.child("opaque"));
    if !opaque.is_there() {
        return validator.required(place, "");
    }
    driver(validator, &place.child("driver"), opaque.text("driver"));
    let max = if is_stored { usize::MAX } else { PARAMETERS_MAX };
    raw(validator, &place.child("parameters"), opaque.get("parameters"), max);
}

/// Checks an object without a schema, whose size must be at most `max` bytes.
pub(super) fn raw(validator: &mut Validator, path: &FieldPath, value: Option<&Value>, max: usize) {
    let Some(value) = value else { return validator.required(path, "") };
    let mut text = Vec::new();
    json::write(value, &mut text);
    if text.len() > max {
        validator.errors.push(FieldError::too_long(path, max));
    } else if value.as_object().is_none() {
        validator.invalid(path, "<value omitted>", "must be a valid JSON object");
    }
}
