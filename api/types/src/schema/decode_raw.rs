//! Values without a schema inside objects with a schema. Embedded objects and arbitrary JSON are kept
//! unchanged, and field sets are kept as text, because most code that handles an object never reads these parts.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer};
use serde_json::value::RawValue;

use super::decode_report::{At, Report};
use super::raw_tree::RAW;
use values::json::{self, ParseError, Value};

/// Reads a field set as its JSON text. In a tree the set may already be text, so a string that contains an
/// object counts as a field set everywhere. Any other value except `null` is kept, so that a later parser
/// reports a malformed set instead of an empty set.
pub(super) fn field_set_text<'de, D: Deserializer<'de>>(
    report: &Report,
    path: At<'_>,
    source: D,
) -> Result<Option<Value>, D::Error> {
    let given = if report.is_text() {
        match <Option<&RawValue>>::deserialize(source)?.map(RawValue::get) {
            Some(raw) if raw.starts_with('"') => match serde_json::from_str::<String>(raw) {
                Ok(text) if is_object(&text) => Some(compact(&text)),
                _ => Some(compact(raw)),
            },
            raw => raw.map(compact),
        }
    } else {
        match RAW.deserialize(source)? {
            Value::Null => None,
            Value::String(text) if is_object(&text) => Some(compact(&text)),
            other => Some(compact(&written(&other))),
        }
    };
    match given.transpose() {
        Ok(text) => Ok(text.map(Value::String)),
        Err(error) => Err(report.fail::<D::Error>(path, error.to_string())),
    }
}

/// Maximum nesting of a field set. The limit leaves room for the levels around the set.
const NESTING_MAX: usize = values::field::NESTING_MAX;

/// Returns a JSON text without white space and with the escapes of the reference server. A text that already
/// appears to be compact is not parsed. If the text may not be JSON, the caller must parse it first.
///
/// # Errors
/// The text is nested too deeply, or was parsed and is not JSON.
pub fn compact(text: &str) -> Result<String, CompactError> {
    if nesting(text.as_bytes()) > NESTING_MAX {
        return Err(CompactError::Depth);
    }
    if is_compact(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Ok(written(&json::parse(text.as_bytes())?))
}

/// Reason why a text is rejected.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The text is not JSON.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// The text is nested too deep.
    #[error("exceeded max depth")]
    Depth,
}

/// Returns whether a text is one JSON object.
fn is_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Returns an upper bound of the nesting of a JSON text: brackets inside strings count too.
pub(super) fn nesting(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut deepest = 0;
    for &byte in text {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn written(value: &Value) -> String {
    let mut out = Vec::new();
    json::write(value, &mut out);
    String::from_utf8(out).expect("JSON is text")
}

/// Returns whether a valid JSON text is certainly equal to the output of [`compact`]. Blanks inside strings
/// count like other blanks, so some compact texts are parsed unnecessarily.
fn is_compact(text: &[u8]) -> bool {
    !text.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'<' | b'>' | b'&' | 0x80..))
}
