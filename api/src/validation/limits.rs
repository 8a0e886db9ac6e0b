//! Constraints of types made at run time: what JSON Schema says of one value beyond its kind.
//!
//! Sentences are those of the reference server's custom resources. Patterns and rules are part of a type's description
//! and are not evaluated here.

use hashbrown::HashSet;

use super::path::Path;
use crate::field::FieldError;
use crate::json::Value;
use crate::schema::limits::Limits;
use crate::schema::table::Kind;

/// Checks a value that is not `null`.
pub(super) fn check(limits: &Limits, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    if !limits.enumeration.is_empty() && !limits.enumeration.contains(value) {
        let supported: Vec<String> = limits
            .enumeration
            .iter()
            .map(|value| value.as_str().map_or_else(|| text(value), str::to_owned))
            .collect();
        errors.push(FieldError::not_supported(path, value, &supported));
    }
    let mut invalid = |sentence: String| {
        let path = path.to_string();
        let detail = format!("{path} in body {sentence}");
        errors.push(FieldError::invalid(path, value, detail));
    };
    match value {
        Value::Int(number) => in_range(limits, *number as f64, &mut invalid),
        Value::Float(number) => in_range(limits, *number, &mut invalid),
        Value::String(text) => {
            let (min, max) = limits.length;
            let length = text.chars().count() as u64;
            if let Some(min) = min.filter(|min| length < *min) {
                invalid(format!("should be at least {min} chars long"));
            }
            if let Some(max) = max.filter(|max| length > *max) {
                errors.push(FieldError::too_long(path, usize::try_from(max).unwrap_or(usize::MAX)));
            }
        }
        Value::Array(items) => {
            let (min, max) = limits.items;
            if let Some(min) = min.filter(|min| (items.len() as u64) < *min) {
                invalid(format!("should have at least {min} items"));
            }
            let mut seen = HashSet::with_capacity(if limits.unique { items.len() } else { 0 });
            if limits.unique && !items.iter().all(|item| seen.insert(text(item))) {
                invalid("shouldn't contain duplicates".to_owned());
            }
            too_many(items.len(), max, path, errors);
        }
        Value::Object(members) => {
            let (min, max) = limits.members;
            if let Some(min) = min.filter(|min| (members.len() as u64) < *min) {
                invalid(format!("should have at least {min} properties"));
            }
            too_many(members.len(), max, path, errors);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// What is said of a `null` where only a value of `kind` may be.
pub(super) fn null(kind: &Kind, path: &Path) -> FieldError {
    let name = match kind {
        Kind::Bool => "boolean",
        Kind::Int32 | Kind::Int64 => "integer",
        Kind::Double => "number",
        Kind::List(_) => "array",
        Kind::Map(_) | Kind::Message(_) => "object",
        _ => "string",
    };
    let path = path.to_string();
    let detail = format!("{path} in body must be of type {name}: \"null\"");
    FieldError::invalid(path, &Value::Null, detail)
}

fn in_range(limits: &Limits, number: f64, invalid: &mut impl FnMut(String)) {
    match limits.min {
        Some((min, true)) if number <= min => invalid(format!("should be greater than {min}")),
        Some((min, false)) if number < min => invalid(format!("should be greater than or equal to {min}")),
        _ => {}
    }
    match limits.max {
        Some((max, true)) if number >= max => invalid(format!("should be less than {max}")),
        Some((max, false)) if number > max => invalid(format!("should be less than or equal to {max}")),
        _ => {}
    }
    if let Some(step) = limits.multiple_of
        && (number / step).fract() != 0.0
    {
        invalid(format!("should be a multiple of {step}"));
    }
}

fn too_many(count: usize, max: Option<u64>, path: &Path, errors: &mut Vec<FieldError>) {
    if let Some(max) = max.and_then(|max| usize::try_from(max).ok()).filter(|max| count > *max) {
        errors.push(FieldError::too_many(path, count, max));
    }
}

/// A value as JSON text.
fn text(value: &Value) -> String {
    let mut out = Vec::new();
    crate::json::write(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}
