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

/// What failed, as labels name it, by the text of the failure; no text is no failure.
pub fn error_type(failure: Option<&str>) -> &'static str {
    match failure {
        None => "no_error",
        Some(why) if why.contains("compilation failed") || why.contains("instantiation failed") => {
            "compile_error"
        }
        Some(why) if why.contains("running out of cost budget") => "out_of_budget",
        Some(_) => "invalid_error",
    }
}
