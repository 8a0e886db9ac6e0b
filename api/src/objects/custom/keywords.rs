//! Checks of single keywords of a schema: type, length, pattern and closed set, and the errors of all keywords. Formats and
//! bounds of numbers are elsewhere.

use std::borrow::Cow;

use super::number::is_whole;
use super::path::Path;
use crate::types::schema::limits::Limits;
use crate::values::field::{FieldError, go_quote};
use crate::values::json::{self, Value};

/// Returns the JSON type of a value, and the format that goes with it.
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

/// What is wrong with the type of a value where one of `types` is allowed, which are separated by commas.
pub(super) fn type_error(types: &str, format: &str, value: &Value, path: &Path) -> Option<FieldError> {
    let allows = |name: &str| types.split(',').any(|other| other == name);
    let (found, found_format) = type_of(value);
    let is_number_after_all = match value {
        Value::Float(number) => allows("integer") && is_whole(*number),
        Value::Int(_) => allows("number"),
        _ => false,
    };
    let fits = allows(found) || is_number_after_all;
    // A text or list where a text of a format is expected is the business of that format.
    let is_formed = !format.is_empty() && matches!(value, Value::String(_) | Value::Array(_));
    match (format, fits) {
        (_, true) => None,
        _ if is_formed && !allows("number") && !allows("integer") => None,
        ("", false) => Some(wrong_type(path, types, found)),
        (_, false) if is_formed => Some(wrong_type(path, types, found)),
        (format, false) => Some(wrong_type(path, format, found_format)),
    }
}

/// A value of another type or format than the wanted one.
pub(super) fn wrong_type(path: &Path, wanted: &str, found: &str) -> FieldError {
    let detail = format!("{path} in body must be of type {wanted}: {}", go_quote(found));
    FieldError::type_invalid(path.to_string(), &found.into(), detail)
}

/// A value that breaks a rule; the sentence goes on after the path.
pub(super) fn invalid(path: &Path, value: &Value, sentence: &str) -> FieldError {
    FieldError::invalid(path.to_string(), value, format!("{path} in body {sentence}"))
}

/// An error that names its place in the detail alone.
pub(super) fn unplaced(detail: String) -> FieldError {
    FieldError::invalid("", &Value::String(String::new()), detail)
}

/// A list or map with too many elements.
pub(super) fn too_many(path: &Path, count: usize, max: u64) -> FieldError {
    FieldError::too_many(path.to_string(), count, usize::try_from(max).unwrap_or(usize::MAX))
}

/// Returns the first thing that is wrong with a text.
pub(super) fn text_error(limits: &Limits, text: &str, path: &Path) -> Option<FieldError> {
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

/// Returns a value that is not in the closed set.
pub(super) fn outside_of_set(limits: &Limits, value: &Value, path: &Path) -> Option<FieldError> {
    let set = &limits.enumeration;
    if set.is_empty() || set.iter().any(|member| !value.is_null() && is_equal(member, value)) {
        return None;
    }
    let shown: Vec<Cow<'_, str>> = set.iter().map(shown).collect();
    Some(FieldError::not_supported(path.to_string(), value, &shown))
}

/// Equality of JSON values: of numbers by value, of objects without regard to the order of members.
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

/// Returns a member of a closed set as errors list it: texts as they are, everything else as JSON.
fn shown(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => text.as_str().into(),
        other => {
            let mut out = Vec::new();
            json::write(other, &mut out);
            String::from_utf8(out).unwrap_or_default().into()
        }
    }
}
