//! The claims of a verified token, and their texts in Go's words for what does not fit.

use serde_json::{Map, Value};

use crate::go;

/// The claims of a token.
pub type Claims = Map<String, Value>;

fn mismatch(value: &Value, wanted: &str) -> String {
    format!("json: cannot unmarshal {} into Go value of type {wanted}", go::kind(value))
}

/// A claim as text; null is empty.
pub(super) fn text(claims: &Claims, name: &str) -> Result<String, String> {
    match claims.get(name) {
        None => Err("claim not present".to_owned()),
        Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(mismatch(other, "string")),
    }
}

/// A claim as a flag; null is false.
pub(super) fn flag(value: &Value) -> Result<bool, String> {
    match value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        other => Err(mismatch(other, "bool")),
    }
}

/// A claim as texts: one, or a list; null is none.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(items) => {
            let all = items.iter().map(|item| match item {
                Value::String(text) => Some(text.clone()),
                Value::Null => Some(String::new()),
                _ => None,
            });
            all.collect::<Option<_>>().ok_or_else(|| mismatch(value, "string"))
        }
        other => Err(mismatch(other, "string")),
    }
}

/// A claim as a date, in seconds since 1970; absent or null is zero.
pub(super) fn date(claims: &Claims, name: &str) -> Result<f64, String> {
    let number = match claims.get(name) {
        None | Some(Value::Null) => return Ok(0.0),
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.parse().ok().filter(|_| !text.is_empty()),
        Some(other) => return Err(mismatch(other, "json.Number")),
    };
    number.filter(|number| number.is_finite()).ok_or_else(|| {
        let text = claims.get(name).map_or_else(String::new, Value::to_string);
        format!("json: invalid number literal, trying to unmarshal {} into Number", crate::go::quote(&text))
    })
}
