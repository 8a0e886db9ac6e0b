//! Counting of admission policy checks (docs/api/policies.md#metrics-of-policies).
//!
//! For a validating policy, a check is counted if it denies, warns or audits, or if it fails and is ignored.
//! For a mutating policy, each mutation is counted.

use std::time::Duration;

use super::families::{Mutations, Validations};

impl Validations {
    /// Counts a check with these label values.
    pub fn record(&self, labels: &[&str], took: Duration) {
        self.counts.count(labels);
        self.durations.time(labels, took);
    }
}

impl Mutations {
    /// Counts a check with these label values.
    pub fn record(&self, labels: &[&str], took: Duration) {
        self.counts.count(labels);
        self.durations.time(labels, took);
    }
}

/// Returns the value of the error type label; `None` means no error. Like kube-apiserver, this function
/// derives the error type from the start of the message that the client gets, even if the message is a
/// denial.
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
    fn the_error_type_of_a_policy_is_derived_from_the_beginning_of_the_message() {
        let spent =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        for (text, expected) in [
            (None, "no_error"),
            (
                Some("compilation error: compilation failed: ERROR: <input>:1:1: Syntax error"),
                "compile_error",
            ),
            (Some(spent), "out_of_budget"),
            (Some("failed expression: object.x != 'compilation failed'"), "invalid_error"),
            (Some("expression 'object.x' resulted in error: no such key: x"), "invalid_error"),
        ] {
            assert_eq!(error_type(text), expected, "{text:?}");
        }
    }
}
