//! Text forms of the Go standard library that clients and operators see: quoted strings, durations, kinds of JSON values.

pub mod duration;
mod quote;
pub mod url;

pub(crate) use quote::QuotedList;
pub use quote::{Quoted, is_printable, quote};
use serde_json::Value;

/// What a value is, in the words of Go's decoder.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
