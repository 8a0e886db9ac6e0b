//! Values without a schema inside objects that have one: embedded objects and any JSON are kept as they are, field
//! sets as their text, because most who handle an object never look into them.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer};
use serde_json::value::RawValue;

use super::decode_report::{At, Report};
use values::json::plain_number;
use values::json::{self, ParseError, Tree, Value};

/// Reads a field set as its JSON text. In a tree it may be text already, so a string that holds an object counts as one
/// everywhere. Any other value but `null` is kept, so that a reader of the set finds it malformed and not empty.
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

/// Deepest nesting of a field set that is kept, which leaves room for what it is nested in.
const NESTING_MAX: usize = values::field::NESTING_MAX;

/// JSON text without white space and with the reference server's escapes. Text that seems to be so already is not
/// read: a caller that does not know that it is JSON reads it first.
///
/// # Errors
/// Text nested too deep, or that is read and turns out to be no JSON.
pub fn compact(text: &str) -> Result<String, CompactError> {
    if nesting(text.as_bytes()) > NESTING_MAX {
        return Err(CompactError::Depth);
    }
    if is_compact(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    Ok(written(&json::parse(text.as_bytes())?))
}

/// Why a text is not kept.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// The text is not JSON.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// The text is nested too deep.
    #[error("exceeded max depth")]
    Depth,
}

/// Whether a text is one JSON object.
fn is_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// How deep a JSON text is nested at most: brackets inside strings count as if they were outside.
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

/// Whether a valid JSON text surely is as [`compact`] would write it. Blanks inside strings are taken for others, which
/// only means that some texts are read for nothing.
fn is_compact(text: &[u8]) -> bool {
    !text.iter().any(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'<' | b'>' | b'&' | 0x80..))
}

/// The reader of values without a schema.
pub(super) const RAW: Tree<'static> = Tree::with_floats(plain_number);
