//! Converts JSON text to trees and back, for the tests of this crate and of the crates that depend on it.

use crate::json::{Object, Value, parse, write};

/// Parses `text`, which must be a JSON object.
///
/// # Panics
/// Panics if `text` is not a JSON object.
pub fn object(text: &str) -> Object {
    parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
}

/// Returns the JSON text of an object.
pub fn object_text(object: &Object) -> String {
    text(&Value::Object(object.clone()))
}

/// Returns the JSON text of a value.
pub fn text(value: &Value) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}
