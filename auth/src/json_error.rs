//! Errors of JSON documents in the words of Go's decoder.

use serde_json::Value;

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
    format!("json: cannot unmarshal {} into Go value of type {wanted}", kind(value))
}

/// The error of a value of the member `place`, which is not of the type `wanted`.
pub(crate) fn unfit_member(value: &Value, place: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go struct field {place} of type {wanted}", kind(value))
}

/// The error of looking for version and kind in a document that is no object.
pub(crate) fn no_version_kind(value: &Value) -> String {
    const WANTED: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                          \"json:\\\"kind,omitempty\\\"\" }";
    undecided(&unfit(value, WANTED))
}

/// The error where one of the two, `name`, is no text.
pub(crate) fn odd_version_kind(name: &str, value: &Value) -> String {
    undecided(&unfit_member(value, &format!(".{name}"), "string"))
}

/// The error of looking for version and kind.
pub(crate) fn undecided(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}
