//! How checks of admission policies are counted (docs/api/policies.md#metrics-of-policies).
//!
//! A policy counts a validation that it refuses, warns of or records, one that fails and is let through, and each
//! mutation.

use std::time::Duration;

use super::families::{Mutations, Validations};

impl Validations {
    /// Counts a check with the values of its labels.
    pub fn record(&self, labels: &[&str], took: Duration) {
        self.counts.count(labels);
        self.durations.time(labels, took);
    }
}

impl Mutations {
    /// Counts a check with the values of its labels.
    pub fn record(&self, labels: &[&str], took: Duration) {
        self.counts.count(labels);
        self.durations.time(labels, took);
    }
}

/// What failed, as labels name it. As kube-apiserver tells it: by how the text begins that the caller is told, also that of
/// a refusal; no text is no failure.
pub fn error_type(failure: Option<&str>) -> &'static str {
    match failure {
        None => "no_error",
        Some(why) if why.starts_with("compilation") => "compile_error",
        Some(why) if why.starts_with("validation failed due to running out of cost budget") => {
            "out_of_budget"
        }
        Some(_) => "invalid_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_text_tells_what_failed() {
        let spent =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        for (text, wanted) in [
            (None, "no_error"),
            (
                Some("compilation error: compilation failed: ERROR: <input>:1:1: Syntax error"),
                "compile_error",
            ),
            (Some(spent), "out_of_budget"),
            (Some("failed expression: object.x != 'compilation failed'"), "invalid_error"),
            (Some("expression 'object.x' resulted in error: no such key: x"), "invalid_error"),
        ] {
            assert_eq!(error_type(text), wanted, "{text:?}");
        }
    }
}
