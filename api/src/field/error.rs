//! What validation finds: a kind of error at a path, formatted exactly as clients expect (semantics §1.4).

use std::fmt;

use auth::go::quote as go_quote;

use crate::json::{self, Value};

/// The kinds of field errors; each has a type for causes and a leading text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FieldErrorKind {
    /// Nothing there, something needed.
    Required,
    /// Not of the right form.
    Invalid,
    /// Not of the right JSON type.
    TypeInvalid,
    /// Not one of a closed set.
    NotSupported,
    /// A reference to something that is not there.
    NotFound,
    /// The same twice where each may come once.
    Duplicate,
    /// May not be set or changed.
    Forbidden,
    /// Too many bytes or characters.
    TooLong,
    /// Too many elements.
    TooMany,
    /// Our own failure.
    Internal,
}

impl FieldErrorKind {
    /// The `reason` of the cause.
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

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// `spec.containers[0].name`, `metadata.labels[app]`; empty prints `<nil>`.
    pub path: String,
    /// The value as it is printed; `None` for kinds that print none.
    pub value: Option<String>,
    /// What would be right; may be empty.
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

    /// `path: Required value[: detail]`.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, None, detail)
    }

    /// `path: Invalid value: <value>: detail`.
    pub fn invalid(path: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, path, Some(print(value)), detail)
    }

    /// `path: Unsupported value: <value>: supported values: "A", "B"`, in the order given.
    pub fn not_supported(path: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| go_quote(value)).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new(FieldErrorKind::NotSupported, path, Some(print(value)), detail)
    }

    /// `path: Not found: <value>`.
    pub fn not_found(path: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::NotFound, path, Some(print(value)), "")
    }

    /// `path: Duplicate value: <value>`.
    pub fn duplicate(path: impl Into<String>, value: &Value) -> Self {
        Self::new(FieldErrorKind::Duplicate, path, Some(print(value)), "")
    }

    /// `path: Forbidden: detail`.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    /// `path: Too long: may not be more than <max> bytes`.
    pub fn too_long(path: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        Self::new(FieldErrorKind::TooLong, path, None, format!("may not be more than {max} {unit}"))
    }

    /// `path: Too many: <count>: must have at most <max> items`.
    pub fn too_many(path: impl Into<String>, count: usize, max: usize) -> Self {
        let detail = format!("must have at most {max} items");
        Self::new(FieldErrorKind::TooMany, path, Some(count.to_string()), detail)
    }

    /// The message of the cause: everything but the path.
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
        // Only an object as a whole is too long without being some field; its path is empty, but it has one.
        let no_path = self.path.is_empty() && self.kind != FieldErrorKind::TooLong;
        let path = if no_path { "<nil>" } else { &self.path };
        write!(f, "{path}: {}", self.body())
    }
}

/// A value as error messages print it: strings quoted as Go does, everything else as JSON.
fn print(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        other => {
            let mut out = Vec::new();
            json::write(other, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        }
    }
}

/// Steps from a path to one of its members: `spec` + `containers` → `spec.containers`.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Steps from a path to an element or a map member: `spec.containers[0]`, `metadata.labels[app]`.
pub fn index(path: &str, key: impl fmt::Display) -> String {
    format!("{path}[{key}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_semantics_1_4_says() {
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
