//! Rules for the attributes and capacities of a device.

use quantity::Quantity;

use super::super::super::Validator;
use super::super::super::path::FieldPath;
use super::super::StructView;
use super::super::view::quantity;
use super::fits;
use crate::device_limits::TEXT_MAX;
use values::field::FieldError;
use values::json::Value;

/// Names of attribute types with several values.
pub(super) const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// Maximum number of amounts in a policy.
const AMOUNTS_MAX: usize = 10;

/// Checks an attribute, which has a single value or a list of values.
pub(super) fn attribute(validator: &mut Validator, path: &FieldPath, attribute: StructView) {
    if let Some(value) = attribute.get("string").and_then(Value::as_str) {
        text(validator, &path.child("string"), value);
    }
    if let Some(value) = attribute.get("version").and_then(Value::as_str) {
        version(validator, &path.child("version"), value);
    }
    for list in LISTS {
        let place = path.child(list);
        if attribute.has(list) && attribute.items(list).is_empty() {
            validator.invalid(place, Value::Array(Vec::new()), "must not be empty if specified");
        }
    }
    let (texts, versions) = (path.child("strings"), path.child("versions"));
    for (at, value) in attribute.texts("strings").enumerate() {
        if validator.has_enough() {
            return;
        }
        text(validator, &texts.index(at), value);
    }
    for (at, value) in attribute.texts("versions").enumerate() {
        if validator.has_enough() {
            return;
        }
        version(validator, &versions.index(at), value);
    }
    let detail = "exactly one value must be specified";
    match attribute.members().count() {
        0 => validator.invalid(path, "", detail),
        1 => {}
        // Attribute names contain dots, so paths through them cannot be resolved to a type. Use a path with a
        // fixed name.
        _ => validator.invalid_from(path, "spec.devices[0].attributes[name]", attribute.to_value(), detail),
    }
}

fn text(validator: &mut Validator, path: &FieldPath, text: &str) {
    if text.len() > TEXT_MAX {
        validator.errors.push(FieldError::too_long(path, TEXT_MAX));
    }
}

fn version(validator: &mut Validator, path: &FieldPath, version: &str) {
    if !is_semantic_version(version) {
        validator.invalid(path, version, "must be a string compatible with semver.org spec 2.0.0");
    }
    text(validator, path, version);
}

/// Checks a capacity of a device that can be allocated only to a single claim. The capacity must not have a
/// request policy.
pub(super) fn single(validator: &mut Validator, path: &FieldPath, capacity: StructView) {
    if capacity.has("requestPolicy") {
        validator.forbidden(path.child("requestPolicy"), "allowMultipleAllocations must be true");
    }
}

/// Checks a capacity that several claims can share. The policy of the capacity declares the amounts that a
/// claim may request, as a list or as a range, and the default amount.
pub(super) fn shared(validator: &mut Validator, path: &FieldPath, capacity: StructView) {
    let (policy, path) = (capacity.child("requestPolicy"), path.child("requestPolicy"));
    let has_amounts = !policy.items("validValues").is_empty();
    if has_amounts && policy.has("validRange") {
        let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                      same time";
        return validator.forbidden(path, detail);
    }
    let kind = match (has_amounts, policy.has("validRange")) {
        (true, _) => "validValues",
        (_, true) => "validRange",
        _ => return,
    };
    let Some(default) = policy.quantity("default") else {
        return validator.required(path.child("default"), &format!("required when {kind} is defined"));
    };
    let whole = capacity.quantity("value").unwrap_or(Quantity::ZERO);
    let place = path.child(kind);
    if has_amounts {
        amounts(validator, &place, policy.items(kind), [whole, default]);
    } else {
        range(validator, &place, policy.child(kind), [whole, default]);
    }
}

/// Checks that the amounts are in ascending order and contain the default amount.
fn amounts(validator: &mut Validator, path: &FieldPath, amounts: &[Value], [whole, default]: [Quantity; 2]) {
    let amounts: Vec<Quantity> =
        amounts.iter().map(|amount| quantity(amount).unwrap_or(Quantity::ZERO)).collect();
    for (at, pair) in amounts.windows(2).enumerate() {
        if pair[0] > pair[1] && !validator.has_enough() {
            let detail = "values must be sorted in ascending order";
            validator.invalid(path.index(at + 1), pair[1].to_text(), detail);
        }
    }
    let mut has_default = false;
    if fits(validator, path, amounts.len(), AMOUNTS_MAX) {
        for (at, amount) in amounts.iter().copied().enumerate() {
            if amount > whole {
                let detail = format!("option is larger than capacity value: {}", whole.to_text());
                validator.invalid(path.index(at), amount.to_text(), detail);
            }
            has_default |= amount == default;
        }
        // Amounts are equal if their values, rounded up to integers, are equal.
        let keys: Vec<String> = amounts.iter().map(|amount| amount.rounded_up().to_string()).collect();
        super::repeated(validator, path, keys.iter().map(String::as_str));
    }
    if !has_default {
        let detail = "default value is not valid according to the requestPolicy";
        validator.invalid(path, default.to_text(), detail);
    }
}

/// Checks a range with steps. The range must be within the capacity, and the default amount within the range.
fn range(validator: &mut Validator, path: &FieldPath, range: StructView, [whole, default]: [Quantity; 2]) {
    let Some(min) = range.quantity("min") else {
        return validator.required(path.child("min"), "required when validRange is defined");
    };
    let max = range.quantity("max");
    let larger = |what: &str| format!("{what} is larger than capacity value: {}", whole.to_text());
    let place = path.child("min");
    ordered(validator, &place, [min, whole], min, || larger("min"));
    ordered(validator, &place, [min, default], default, || {
        format!("default is less than min: {}", min.to_text())
    });
    if let Some(max) = max {
        let place = path.child("max");
        ordered(validator, &place, [min, max], min, || format!("min is larger than max: {}", max.to_text()));
        ordered(validator, &place, [max, whole], max, || larger("max"));
        ordered(validator, &place, [default, max], default, || {
            format!("default is more than max: {}", max.to_text())
        });
    }
    let Some(step) = range.quantity("step") else { return };
    let place = path.child("step");
    if step.is_negative() || step.is_zero() {
        return validator.invalid(place, step.to_text(), "must be greater than zero");
    }
    let first = min.plus(step);
    ordered(validator, &place, [first, whole], step, || larger(&format!("one step {}", first.to_text())));
    for value in std::iter::once(default).chain(max) {
        let distance = value.rounded_up().wrapping_sub(min.rounded_up());
        if distance.wrapping_rem(step.rounded_up()) != 0 {
            let (step, min) = (step.to_text(), min.to_text());
            let detail = format!("value is not a multiple of a given step ({step}) from ({min})");
            validator.invalid(place, value.to_text(), detail);
        }
    }
}

/// Reports an error with `detail` if the first quantity is greater than the second quantity.
fn ordered(
    validator: &mut Validator,
    path: &FieldPath,
    [small, large]: [Quantity; 2],
    reported: Quantity,
    why: impl FnOnce() -> String,
) {
    if small > large {
        validator.invalid(path, reported.to_text(), why());
    }
}

/// Returns whether a text is a version according to semver.org 2.0.0. In contrast to versions in expressions,
/// the numbers of the version have no limit.
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
    fn semantic_versions_have_three_numbers_and_optional_prerelease_and_build() {
        for text in [
            "1.2.3",
            "0.0.0",
            "1.2.3-alpha.1",
            "1.2.3--x.0a",
            "1.2.3+05.x-y",
            "1.2.3-rc.1+build",
            "99999999999999999999.0.0-99999999999999999999",
        ] {
            assert!(is_semantic_version(text), "{text}");
        }
        for text in
            ["", "x", "1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+", "1.2.3+a+b"]
        {
            assert!(!is_semantic_version(text), "{text}");
        }
    }
}
