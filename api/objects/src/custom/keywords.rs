//! Checks of single schema keywords (type, length, pattern and `enum`), and the error texts of all keywords.
//! Formats and bounds of numbers are in other modules.

use std::borrow::Cow;

use super::number::is_whole;
use super::path::ValuePath;
use types::schema::limits::Limits;
use values::field::{FieldError, go_quote};
use values::json::{self, Value};

/// Returns the JSON type of a value and the format of that type.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Int(_) => ("integer", "int64"),
        Value::Float(_) | Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// Returns the error for a value whose type is not in `types`, a list separated by commas.
pub(super) fn type_error(types: &str, format: &str, value: &Value, path: &ValuePath) -> Option<FieldError> {
    let allows = |name: &str| types.split(',').any(|other| other == name);
    let (found, found_format) = type_of(value);
    let is_number_after_all = match value {
        Value::Float(number) => allows("integer") && is_whole(*number),
        Value::Int(_) => allows("number"),
        _ => false,
    };
    let fits = allows(found) || is_number_after_all;
    // If a string format is declared, the check of the format reports strings and lists.
    let is_formed = !format.is_empty() && matches!(value, Value::String(_) | Value::Array(_));
    match (format, fits) {
        (_, true) => None,
        _ if is_formed && !allows("number") && !allows("integer") => None,
        ("", false) => Some(wrong_type(path, types, found)),
        (_, false) if is_formed => Some(wrong_type(path, types, found)),
        (format, false) => Some(wrong_type(path, format, found_format)),
    }
}

/// Returns the error for a value with another type or format than `expected`.
pub(super) fn wrong_type(path: &ValuePath, expected: &str, found: &str) -> FieldError {
    let detail = format!("{path} in body must be of type {expected}: {}", go_quote(found));
    FieldError::type_invalid(path.to_string(), &found.into(), detail)
}

/// Returns the error for a value that breaks a constraint. The text consists of the path and `sentence`.
pub(super) fn invalid(path: &ValuePath, value: &Value, sentence: &str) -> FieldError {
    FieldError::invalid(path.to_string(), value, format!("{path} in body {sentence}"))
}

/// Returns an error without a path, whose detail contains the path.
pub(super) fn unplaced(detail: String) -> FieldError {
    FieldError::invalid("", &Value::String(String::new()), detail)
}

/// Returns the error for a list or map with too many elements.
pub(super) fn too_many(path: &ValuePath, count: usize, max: u64) -> FieldError {
    FieldError::too_many(path.to_string(), count, usize::try_from(max).unwrap_or(usize::MAX))
}

/// Returns the first error of a string.
pub(super) fn text_error(limits: &Limits, text: &str, path: &ValuePath) -> Option<FieldError> {
    let value = || Value::String(text.to_owned());
    if let (min, max) = limits.length
        && (min.is_some() || max.is_some())
    {
        let length = text.chars().count() as u64;
        if let Some(max) = max.filter(|max| length > *max) {
            return Some(FieldError::too_long(path.to_string(), usize::try_from(max).unwrap_or(usize::MAX)));
        }
        if let Some(min) = min.filter(|min| length < *min) {
            return Some(invalid(path, &value(), &format!("should be at least {min} chars long")));
        }
    }
    let pattern = limits.pattern.as_ref().filter(|pattern| !pattern.is_in(text))?;
    Some(invalid(path, &value(), &format!("should match '{}'", pattern.as_str())))
}

/// Returns the error for a value that is not in `enum`.
pub(super) fn outside_of_set(limits: &Limits, value: &Value, path: &ValuePath) -> Option<FieldError> {
    let set = &limits.enumeration;
    if set.is_empty() || set.iter().any(|member| !value.is_null() && is_equal(member, value)) {
        return None;
    }
    let shown: Vec<Cow<'_, str>> = set.iter().map(format_value).collect();
    Some(FieldError::not_supported(path.to_string(), value, &shown))
}

/// Returns whether JSON values are equal. Numbers are compared by value, and the order of members is ignored.
fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Formats a value of `enum` for errors: strings without quotes, all other values as JSON.
fn format_value(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.as_str().into(),
        other => {
            let mut out = Vec::new();
            json::write(other, &mut out);
            String::from_utf8(out).unwrap_or_default().into()
        }
    }
}
