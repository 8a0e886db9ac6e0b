//! Numbers of custom objects: how bounds are compared, and how errors write them.
//!
//! Bounds are doubles. Integers are compared as integers, with the whole part of the bound, so that nothing is lost
//! above 2^53; all other numbers are compared as doubles.

use crate::types::schema::limits::Limits;
use crate::values::field::go_float;
use crate::values::json::Value;

/// Sentences on what is wrong with a number, in order: not a multiple, too small, too large.
pub(super) fn faults(limits: &Limits, value: &Value) -> impl Iterator<Item = String> {
    let (multiple, min, max) = match *value {
        Value::Int(number) => (
            limits.multiple_of.filter(|&step| !is_multiple_of(number, step)).map(|step| match whole(step) {
                0 => go_float(step),
                step => step.to_string(),
            }),
            limits
                .min
                .filter(|&(bound, excluded)| number < whole(bound) || (excluded && number == whole(bound)))
                .map(|(bound, excluded)| (whole(bound).to_string(), excluded)),
            limits
                .max
                .filter(|&(bound, excluded)| number > whole(bound) || (excluded && number == whole(bound)))
                .map(|(bound, excluded)| (whole(bound).to_string(), excluded)),
        ),
        Value::Float(number) => (
            limits.multiple_of.filter(|&step| !is_float_multiple_of(number, step)).map(go_float),
            limits
                .min
                .filter(|&(bound, excluded)| number < bound || (excluded && number <= bound))
                .map(|(bound, excluded)| (go_float(bound), excluded)),
            limits
                .max
                .filter(|&(bound, excluded)| number > bound || (excluded && number >= bound))
                .map(|(bound, excluded)| (go_float(bound), excluded)),
        ),
        _ => (None, None, None),
    };
    let multiple = multiple.map(|step| format!("should be a multiple of {step}"));
    let bound = |word: &str, (bound, is_excluded): (String, bool)| {
        format!("should be {word} than {}{bound}", if is_excluded { "" } else { "or equal to " })
    };
    let min = min.map(|min| bound("greater", min));
    let max = max.map(|max| bound("less", max));
    [multiple, min, max].into_iter().flatten()
}

/// The whole part of a bound; the nearest integer there is for bounds outside of 64 bits.
fn whole(bound: f64) -> i64 {
    bound as i64
}

fn is_multiple_of(number: i64, step: f64) -> bool {
    match whole(step) {
        0 => is_float_multiple_of(number as f64, step),
        step => number.wrapping_rem(step) == 0,
    }
}

fn is_float_multiple_of(number: f64, step: f64) -> bool {
    is_whole(if step < 1.0 { 1.0 / step * number } else { number / step })
}

/// Whether a double is an integer, up to errors of rounding, and one that doubles tell from its neighbours.
pub(super) fn is_whole(number: f64) -> bool {
    const EXACT: f64 = 9_007_199_254_740_991.0; // 2^53 - 1
    const EPSILON: f64 = 1e-9;
    if !number.is_finite() || number.abs() > EXACT {
        return false;
    }
    let nearest = number.trunc();
    let difference = (number - nearest).abs();
    difference == 0.0 || difference / (number.abs() + nearest.abs()) < EPSILON
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_bounds_are_told_with_the_bound_that_they_were_compared_with() {
        let bounds = |min: Option<(f64, bool)>, max: Option<(f64, bool)>, multiple_of: Option<f64>| Limits {
            min,
            max,
            multiple_of,
            ..Limits::default()
        };
        for (limits, value, want) in [
            (bounds(Some((1.0, false)), None, None), Value::Int(0), "should be greater than or equal to 1"),
            (bounds(Some((1.0, true)), None, None), Value::Int(1), "should be greater than 1"),
            (bounds(None, Some((2.5, false)), None), Value::Int(3), "should be less than or equal to 2"),
            (
                bounds(None, Some((2.5, false)), None),
                Value::Float(2.75),
                "should be less than or equal to 2.5",
            ),
            (bounds(None, Some((3.0, true)), None), Value::Int(3), "should be less than 3"),
            (bounds(None, None, Some(0.5)), Value::Float(0.3), "should be a multiple of 0.5"),
            (bounds(None, None, Some(0.1)), Value::Float(0.3), ""),
            (bounds(None, None, Some(0.5)), Value::Int(2), ""),
            (bounds(None, None, Some(3.0)), Value::Int(4), "should be a multiple of 3"),
            (bounds(Some((0.0, true)), Some((9.0, false)), Some(2.0)), Value::Int(4), ""),
            (
                bounds(None, Some((1e6, false)), None),
                Value::Float(1e6 + 0.5),
                "should be less than or equal to 1e+06",
            ),
        ] {
            assert_eq!(faults(&limits, &value).collect::<Vec<_>>().join("|"), want, "{value:?}");
        }
    }
}
