//! Field errors of validation. Each error has a kind and a field path, and is formatted as clients expect
//! (docs/api/errors.md#invalid-objects).

use std::fmt;

use go::quote as go_quote;

use crate::json::{self, Value};

/// Kind of a field error. The kind determines the `reason` of the cause and the first words of the message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FieldErrorKind {
    /// A required value is absent.
    Required,
    /// The value is malformed.
    Invalid,
    /// The value has the wrong JSON type.
    TypeInvalid,
    /// The value is not in the closed set of supported values.
    NotSupported,
    /// The referenced object or element does not exist.
    NotFound,
    /// The value must be unique but occurs again.
    Duplicate,
    /// The value must not be set or changed.
    Forbidden,
    /// The value has too many bytes or characters.
    TooLong,
    /// The list has too many elements.
    TooMany,
    /// The server failed while it checked the value.
    Internal,
}

impl FieldErrorKind {
    /// Returns the `reason` of the cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::NotFound => "FieldValueNotFound",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::NotFound => "Not found",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// Maximum number of errors that are collected for one object.
pub const ERRORS_MAX: usize = 1000;

/// Maximum number of bytes of errors that are collected for one object, without the last error: the size of
/// the largest request. An error message contains the value and the list of supported values, so a thousand
/// errors could be far larger than the object.
pub const ERROR_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Number of newest errors among which [`is_enough`] searches for long errors. An element of a list can have
/// several errors.
const RECENT: usize = 16;

/// Returns whether enough errors are collected to stop. Loops over client input call this function before
/// each iteration.
pub fn is_enough(errors: &[FieldError]) -> bool {
    // Each error about an element of a long list may print the whole list. The sizes of all errors are added
    // up only if one of the newest errors is long.
    let longest = errors.iter().rev().take(RECENT).map(FieldError::bytes).max().unwrap_or_default();
    errors.len() >= ERRORS_MAX
        || errors.len().saturating_mul(longest) >= ERROR_BYTES_MAX
            && errors.iter().map(FieldError::bytes).sum::<usize>() >= ERROR_BYTES_MAX
}

/// An error about one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Kind of the error.
    pub kind: FieldErrorKind,
    /// Path of the field: `spec.containers[0].name`, `metadata.labels[app]`. An empty path prints as `<nil>`.
    pub path: String,
    /// The value as printed in the message; `None` for kinds of errors that print no value.
    pub value: Option<String>,
    /// An explanation; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(
        kind: FieldErrorKind,
        path: impl Into<String>,
        value: Option<String>,
        detail: impl Into<String>,
    ) -> Self {
        FieldError { kind, path: path.into(), value, detail: detail.into() }
    }

    /// Returns the length of all texts of the error, in bytes.
    pub fn bytes(&self) -> usize {
        self.path.len() + self.value.as_ref().map_or(0, String::len) + self.detail.len()
    }

    /// Creates `path: Required value[: detail]`.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, None, detail)
    }

    /// Creates `path: Invalid value: <value>: detail`.
    pub fn invalid(path: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, Some(print(value)), detail)
    }

    /// Creates `path: Invalid value: <value>: detail` for a value of the wrong JSON type.
    pub fn type_invalid(path: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, path, Some(print(value)), detail)
    }

    /// Creates `path: Unsupported value: <value>: supported values: "A", "B"`, in the given order.
    pub fn not_supported<S: AsRef<str>>(path: impl Into<String>, value: &Value, supported: &[S]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| go_quote(value.as_ref())).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, path, Some(print(value)), detail)
    }

    /// Creates `path: Not found: <value>`.
    pub fn not_found(path: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::NotFound, path, Some(print(value)), "")
    }

    /// Creates `path: Duplicate value: <value>`.
    pub fn duplicate(path: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, Some(print(value)), "")
    }

    /// Creates `path: Forbidden: detail`.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    /// Creates `path: Too long: may not be more than <max> bytes`.
    pub fn too_long(path: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, path, None, format!("may not be more than {max} {unit}"))
    }

    /// Creates `path: Too many: <count>: must have at most <max> items`.
    pub fn too_many(path: impl Into<String>, count: usize, max: usize) -> Self {
        let detail = format!("must have at most {max} {}", if max == 1 { "item" } else { "items" });
        Self::new(FieldErrorKind::TooMany, path, Some(count.to_string()), detail)
    }

    /// Creates `path: Internal error: detail`.
    pub fn internal(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Internal, path, None, detail)
    }

    /// Returns the message of the cause: the error without the path.
    pub fn body(&self) -> String {
        let mut text = self.kind.text().to_owned();
        for part in self.value.iter().chain((!self.detail.is_empty()).then_some(&self.detail)) {
            text.push_str(": ");
            text.push_str(part);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        // An empty path means the whole object. The empty path is printed as `<nil>`, except in "too long"
        // errors.
        let no_path = self.path.is_empty() && self.kind != FieldErrorKind::TooLong;
        let path = if no_path { "<nil>" } else { &self.path };
        write!(f, "{path}: {}", self.body())
    }
}

/// Formats a value for an error message: strings are quoted as in Go, all other values are JSON.
fn print(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Float(number) => go_float(*number),
        other => {
            let mut out = Vec::new();
            json::write(other, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}

/// Formats a double like Go's `%v`: with the fewest digits, and with an exponent if the exponent is below -4
/// or above 5.
pub use cel::number::format_double as go_float;

/// Returns the path of a member: `spec` + `containers` → `spec.containers`.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the path of a list element or map member: `spec.containers[0]`, `metadata.labels[app]`.
pub fn index(path: &str, key: impl fmt::Display) -> String {
    format!("{path}[{key}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_with_the_fewest_digits() {
        for (number, want) in [
            (0.5, "0.5"),
            (1e21, "1e+21"),
            (1e6, "1e+06"),
            (1e-7, "1e-07"),
            (-1.5e300, "-1.5e+300"),
            (123_456.0, "123456"),
        ] {
            assert_eq!(go_float(number), want);
        }
    }

    #[test]
    fn field_errors_have_the_documented_texts() {
        for (error, text) in [
            (FieldError::required("spec.a", ""), "spec.a: Required value"),
            (FieldError::invalid("spec.b", &"q\"".into(), "bad"), r#"spec.b: Invalid value: "q\"": bad"#),
            (FieldError::invalid("a", &Value::Int(0), "must be set"), "a: Invalid value: 0: must be set"),
            (
                FieldError::not_supported("dryRun", &Value::Array(vec!["x".into()]), &["All"]),
                r#"dryRun: Unsupported value: ["x"]: supported values: "All""#,
            ),
            (FieldError::too_long("", 1048576), ": Too long: may not be more than 1048576 bytes"),
            (FieldError::invalid("", &"q".into(), "bad"), r#"<nil>: Invalid value: "q": bad"#),
            (FieldError::forbidden("x[0]", "no"), "x[0]: Forbidden: no"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
