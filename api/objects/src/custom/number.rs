//! Checks numbers of custom objects against their bounds and formats.
//!
//! Bounds are doubles. An integer is compared with the integral part of the bound, so that integers above
//! 2^53 do not lose precision. All other numbers are compared as doubles. If a bound is outside of the format
//! of an integer, the integer is compared as a double, and the bound is reported as an additional error.

use types::schema::limits::Limits;
use values::field::go_float;
use values::json::Value;

/// Fault of a number.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum NumberFault {
    /// The number or one of its bounds is outside of the format. Contains a description of the number or
    /// bound, and the format.
    Format(String),
    /// The number breaks a constraint. Contains a sentence about the number.
    Value(String),
}

/// Returns the faults of a number in this order: outside of its format, not a multiple, too small, too large.
/// A value of type `integer` without a format has the range of `int64`.
pub(super) fn faults(limits: &Limits, is_integer: bool, value: &Value) -> impl Iterator<Item = NumberFault> {
    let format = match &*limits.format {
        "" if is_integer => DEFAULT,
        format => format,
    };
    let own = fault_of_format(format, value);
    let multiple = limits.multiple_of.map(|step| {
        let fault = number(format, step, value).not_multiple(step);
        (("MultipleOf", step), fault.map(|step| format!("should be a multiple of {step}")))
    });
    let bound =
        |bound: Option<(f64, bool)>, name, word, is_broken: fn(Compared, f64, bool) -> Option<String>| {
            bound.map(|(bound, is_excluded)| {
                let or_equal = if is_excluded { "" } else { "or equal to " };
                let fault = is_broken(number(format, bound, value), bound, is_excluded);
                ((name, bound), fault.map(|bound| format!("should be {word} than {or_equal}{bound}")))
            })
        };
    let min = bound(limits.min, "Minimum boundary", "greater", Compared::below);
    let max = bound(limits.max, "Maximum boundary", "less", Compared::above);
    let parts = [multiple, min, max].into_iter().flatten().flat_map(move |((name, bound), fault)| {
        let outside = (!has_format(format, &Value::Float(bound))).then(|| outside(name, format));
        [outside, fault.map(NumberFault::Value)]
    });
    own.into_iter().chain(parts.flatten())
}

/// Format of integers whose schema declares no format.
pub(super) const DEFAULT: &str = "integer";

/// Returns the fault of a number that does not fit its format; `None` if the number fits.
pub(super) fn fault_of_format(format: &str, value: &Value) -> Option<NumberFault> {
    (!has_format(format, value)).then(|| outside("Checked", format))
}

fn outside(what: &str, format: &str) -> NumberFault {
    NumberFault::Format(match format {
        DEFAULT => format!("{what} value must be of type integer (default format)"),
        "int32" | "int64" => format!("{what} value must be of type integer with format {format}"),
        _ => format!("{what} value must be of type number with format {format}"),
    })
}

/// Returns whether a number is in the range of the format; true for formats without a range.
fn has_format(format: &str, value: &Value) -> bool {
    match (format, value) {
        ("int32", Value::Int(number)) => i32::try_from(*number).is_ok(),
        // As in the reference server, the decimal text of the number must be in range: 2^63 is not in range.
        ("int32", Value::Float(number)) => number.to_string().parse::<i32>().is_ok(),
        ("int64" | DEFAULT, Value::Float(number)) => number.to_string().parse::<i64>().is_ok(),
        ("float", Value::Float(number)) => (*number as f32).is_finite(),
        _ => true,
    }
}

/// A number as an integer or as a double, depending on the comparison with the bound.
#[derive(Clone, Copy)]
enum Compared {
    Int(i64),
    Float(f64),
    /// The value is not a number.
    Nothing,
}

fn number(format: &str, bound: f64, value: &Value) -> Compared {
    match *value {
        Value::Int(number) if has_format(format, &Value::Float(bound)) => Compared::Int(number),
        Value::Int(number) => Compared::Float(number as f64),
        Value::Float(number) => Compared::Float(number),
        _ => Compared::Nothing,
    }
}

/// Each check returns the bound as the error message shows it.
impl Compared {
    fn not_multiple(self, step: f64) -> Option<String> {
        match self {
            Compared::Int(number) => (!is_multiple_of(number, step)).then(|| match whole(step) {
                0 => go_float(step),
                step => step.to_string(),
            }),
            Compared::Float(number) => (!is_float_multiple_of(number, step)).then(|| go_float(step)),
            Compared::Nothing => None,
        }
    }

    fn below(self, bound: f64, is_excluded: bool) -> Option<String> {
        self.beyond(bound, is_excluded, std::cmp::Ordering::Less)
    }

    fn above(self, bound: f64, is_excluded: bool) -> Option<String> {
        self.beyond(bound, is_excluded, std::cmp::Ordering::Greater)
    }

    fn beyond(self, bound: f64, is_excluded: bool, side: std::cmp::Ordering) -> Option<String> {
        let (order, shown) = match self {
            Compared::Int(number) => (Some(number.cmp(&whole(bound))), whole(bound).to_string()),
            Compared::Float(number) => (number.partial_cmp(&bound), go_float(bound)),
            Compared::Nothing => return None,
        };
        let is_beyond = order.is_some_and(|order| order == side || (is_excluded && order.is_eq()));
        is_beyond.then_some(shown)
    }
}

/// Returns the integral part of a bound, limited to the range of 64-bit integers.
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

/// Returns whether a double is an integer except for rounding errors. The result is false for numbers whose
/// neighboring integers a double cannot represent.
///
/// The nearest integer may be above the number: `100 * 0.29` is slightly less than 29. Source:
/// go-openapi/swag, `IsFloat64AJSONInteger`.
pub(super) fn is_whole(number: f64) -> bool {
    const EXACT: f64 = 9_007_199_254_740_991.0; // 2^53 - 1
    const EPSILON: f64 = 1e-9;
    if !number.is_finite() || number.abs() > EXACT {
        return false;
    }
    let nearest = number.round();
    let difference = (number - nearest).abs();
    difference == 0.0 || difference < EPSILON * nearest.abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_number_out_of_bounds_names_the_bound() {
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
            (bounds(None, None, Some(0.01)), Value::Float(0.29), ""),
            (bounds(None, None, Some(0.01)), Value::Float(-0.29), ""),
            (bounds(None, None, Some(0.01)), Value::Float(1.15), ""),
            (bounds(None, None, Some(0.01)), Value::Float(0.295), "should be a multiple of 0.01"),
            (bounds(None, None, Some(0.1)), Value::Float(1e-9), "should be a multiple of 0.1"),
            (bounds(None, None, Some(3.0)), Value::Float(2.999_999_999_9), ""),
            (
                bounds(None, Some((2.5, true)), Some(2.0)),
                Value::Float(2.5),
                "should be a multiple of 2|should be less than 2.5",
            ),
            (bounds(None, None, Some(0.5)), Value::Int(2), ""),
            (bounds(None, None, Some(3.0)), Value::Int(4), "should be a multiple of 3"),
            (bounds(Some((0.0, true)), Some((9.0, false)), Some(2.0)), Value::Int(4), ""),
            (
                bounds(None, Some((1e6, false)), None),
                Value::Float(1e6 + 0.5),
                "should be less than or equal to 1e+06",
            ),
        ] {
            assert_eq!(error_texts(&limits, &value), want, "{value:?}");
        }
    }

    #[test]
    fn an_integer_without_a_format_has_the_range_of_64_bits() {
        for (max, value, want) in [
            (None, Value::Int(i64::MAX), ""),
            (None, Value::Float(5.0), ""),
            (None, Value::Float(5.5), "Checked value must be of type integer (default format)"),
            (None, Value::Float(1e19), "Checked value must be of type integer (default format)"),
            (
                Some((2.5, false)),
                Value::Int(3),
                "Maximum boundary value must be of type integer (default format)|should be less than or equal to 2.5",
            ),
        ] {
            let limits = Limits { max, ..Limits::default() };
            let said = faults(&limits, true, &value).map(|fault| match fault {
                NumberFault::Format(said) | NumberFault::Value(said) => said,
            });
            assert_eq!(said.collect::<Vec<_>>().join("|"), want, "{value:?}");
        }
    }

    fn error_texts(limits: &Limits, value: &Value) -> String {
        let said = faults(limits, false, value).map(|fault| match fault {
            NumberFault::Format(said) | NumberFault::Value(said) => said,
        });
        said.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn numbers_and_their_bounds_must_be_in_the_range_of_the_format() {
        let most = |max: f64| Some((max, false));
        for (format, max, value, want) in [
            ("int32", None, Value::Int(2_147_483_647), ""),
            (
                "int32",
                None,
                Value::Int(3_000_000_000),
                "Checked value must be of type integer with format int32",
            ),
            (
                "int32",
                None,
                Value::Int(-2_147_483_649),
                "Checked value must be of type integer with format int32",
            ),
            ("int32", None, Value::Float(2.0), ""),
            ("int32", None, Value::Float(1.5), "Checked value must be of type integer with format int32"),
            ("int64", None, Value::Int(i64::MAX), ""),
            (
                "int64",
                most(1e19),
                Value::Int(1),
                "Maximum boundary value must be of type integer with format int64",
            ),
            (
                "int32",
                most(4_294_967_295.0),
                Value::Int(1),
                "Maximum boundary value must be of type integer with format int32",
            ),
            (
                "int32",
                most(-4_294_967_295.0),
                Value::Int(1),
                "Maximum boundary value must be of type integer with format int32|should be less than or equal to \
                 -4.294967295e+09",
            ),
            ("float", None, Value::Float(3.5e38), "Checked value must be of type number with format float"),
            ("float", None, Value::Float(3.4e38), ""),
            ("float", None, Value::Int(i64::MAX), ""),
            ("double", most(1e300), Value::Float(1e299), ""),
            ("", most(1e300), Value::Int(i64::MAX), ""),
        ] {
            let limits = Limits { format: format.into(), max, ..Limits::default() };
            assert_eq!(error_texts(&limits, &value), want, "{format} {value:?}");
        }
    }
}
