//! The result of reading a YAML document, and its errors.

use crate::json::Value;

pub(super) const SEPARATOR: &str = "\n  ";

pub(super) const STRICT_PREFIX: &str = "yaml: unmarshal errors:\n  ";

/// A YAML document as a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct YamlDocument {
    /// The tree. If a key was set twice, it has the last value. An empty text is `null`.
    pub value: Value,
    /// Messages such as `line 4: key "a" already set in map`, in document order, at most 100.
    pub duplicates: Vec<String>,
}

impl YamlDocument {
    /// Returns the error of strict decoding for the duplicates, in one text; `None` if there are no
    /// duplicates.
    pub fn strict_error(&self) -> Option<String> {
        (!self.duplicates.is_empty()).then(|| format!("{STRICT_PREFIX}{}", self.duplicates.join(SEPARATOR)))
    }
}

/// Reason why a text is not a YAML document that JSON can represent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum YamlError {
    /// The bytes are not text that YAML allows.
    #[error("yaml: {0}")]
    Reader(String),
    /// The text is not YAML, or a tag, anchor or merge in it cannot be resolved.
    #[error("yaml: {}{what}", if *.line == 0 { String::new() } else { format!("line {line}: ") })]
    Syntax {
        /// Line of the text, as the reference server counts lines; 0 if the line is unknown.
        line: usize,
        /// Description of the error.
        what: String,
    },
    /// Anchors and aliases expand beyond the size of a request body.
    #[error("yaml: document contains excessive aliasing")]
    Aliasing,
    /// The document is nested deeper than [`DEPTH_MAX`](crate::json::DEPTH_MAX).
    #[error("yaml: exceeded max depth")]
    Depth,
    /// A key has no JSON form; the message includes the value of the key.
    #[error("unsupported map key of type: {0}")]
    UnsupportedKey(String),
    /// A number has no JSON form.
    #[error("json: unsupported value: {0}")]
    Unsupported(&'static str),
}

impl YamlError {
    /// Returns an error about the meaning of a node. The error is reported without a line.
    pub(super) fn without_line(what: impl Into<String>) -> Self {
        YamlError::Syntax { line: 0, what: what.into() }
    }
}
