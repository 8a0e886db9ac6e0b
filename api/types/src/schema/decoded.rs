//! The result of decoding an object, and its errors.

use values::json::Object;

/// The result of decoding an object by schema.
#[derive(Debug, Default, PartialEq)]
pub struct Decoded {
    /// The object in canonical form.
    pub object: Object,
    /// Findings of strict decoding (docs/api/encodings.md#strict-decoding): `unknown field "spec.foo"`,
    /// `duplicate field "a.b[0].c"`. Each finding occurs at most once; the findings are in document order, at
    /// most 100.
    pub strict: Vec<String>,
}

/// Reason why a text or tree is not an object of the wanted type.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The message in the wording of the reference server. The caller wraps the message as
    /// docs/api/writes.md#request-body describes.
    pub message: String,
    /// Path of the value with indices: `spec.containers[0].ports`; empty for syntax errors and the top level.
    pub path: String,
}
