//! Errors of JSON documents with the texts of Go's decoder (`go::json`), for values of `serde_json`.

use go::json;
use serde_json::{Number, Value};

pub(crate) use go::json::undecided;

/// Returns the name that Go's decoder uses for the type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats the error about a value that does not have the type `expected`.
pub(crate) fn unfit(value: &Value, expected: &str) -> String {
    json::unfit(kind(value), expected)
}

/// Formats the error about a value in the member `place` that does not have the type `expected`.
pub(crate) fn unfit_member(value: &Value, place: &str, expected: &str) -> String {
    json::unfit_member(kind(value), place, expected)
}

/// Formats the error about a number in the member `place` that is not a value of the integer type `expected`.
pub(crate) fn unfit_number(number: &Number, place: &str, expected: &str) -> String {
    json::unfit_member(&format!("number {number}"), place, expected)
}

/// Formats the error about a document that has no version and kind, because it is not an object.
pub(crate) fn no_version_kind(value: &Value) -> String {
    json::no_version_kind(kind(value))
}

/// Formats the error about the member `name` (`apiVersion` or `kind`) if its value is not a string.
pub(crate) fn odd_version_kind(name: &str, value: &Value) -> String {
    json::odd_version_kind(kind(value), name)
}
