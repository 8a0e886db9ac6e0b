//! Errors of JSON documents in the words of Go's decoder (`go::json`), for values of `serde_json`.

use go::json;
use serde_json::{Number, Value};

pub(crate) use go::json::undecided;

/// What a value is, in the words of Go's decoder.
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

/// The error of a value that is not of the type `wanted`.
pub(crate) fn unfit(value: &Value, wanted: &str) -> String {
    json::unfit(kind(value), wanted)
}

/// The error of a value of the member `place`, which is not of the type `wanted`.
pub(crate) fn unfit_member(value: &Value, place: &str, wanted: &str) -> String {
    json::unfit_member(kind(value), place, wanted)
}

/// The same of a number that a whole number of the type `wanted` cannot be.
pub(crate) fn unfit_number(number: &Number, place: &str, wanted: &str) -> String {
    json::unfit_member(&format!("number {number}"), place, wanted)
}

/// The error of looking for version and kind in a document that is no object.
pub(crate) fn no_version_kind(value: &Value) -> String {
    json::no_version_kind(kind(value))
}

/// The error where one of the two, `name`, is no text.
pub(crate) fn odd_version_kind(name: &str, value: &Value) -> String {
    json::odd_version_kind(kind(value), name)
}
