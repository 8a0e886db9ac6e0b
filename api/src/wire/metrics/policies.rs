//! What admission policies and match conditions count (docs/api/policies.md#metrics-of-policies).
//!
//! A policy counts a validation that it refuses, warns of or records, one that fails and is let through, and each
//! mutation. Conditions are counted where they are asked, be it of a policy or of a webhook.

use std::time::Duration;

use super::buckets::{CONDITIONS_US, POLICIES_US};
use super::family::{Counters, Definition, Histograms};
use super::page::Stability;

/// Checks of policies.
#[derive(Debug)]
pub struct Checks {
    counts: Counters,
    durations: Histograms,
}

/// Match conditions of policies and webhooks.
#[derive(Debug)]
pub struct Conditions {
    /// Expressions that failed.
    pub errors: Counters,
    /// Writes that a condition excluded.
    pub exclusions: Counters,
    /// How long all conditions of one policy or webhook took.
    pub durations: Histograms,
}

impl Checks {
    pub(super) fn of_validations() -> Checks {
        const LABELS: &[&str] = &["enforcement_action", "error_type", "policy", "policy_binding"];
        Checks {
            counts: Counters::new(Definition {
                name: "apiserver_validating_admission_policy_check_total",
                stability: Stability::Beta,
                help: "Validations of policies that were refused, warned of or recorded, or that failed.",
                labels: LABELS,
            }),
            durations: Histograms::of_durations(
                Definition {
                    name: "apiserver_validating_admission_policy_check_duration_seconds",
                    stability: Stability::Beta,
                    help: "Time that one validation of a policy takes.",
                    labels: LABELS,
                },
                POLICIES_US,
            ),
        }
    }

    pub(super) fn of_mutations() -> Checks {
        const LABELS: &[&str] = &["error_type", "policy", "policy_binding"];
        Checks {
            counts: Counters::new(Definition {
                name: "apiserver_mutating_admission_policy_check_total",
                stability: Stability::Alpha,
                help: "Mutations of policies.",
                labels: LABELS,
            }),
            durations: Histograms::of_durations(
                Definition {
                    name: "apiserver_mutating_admission_policy_check_duration_seconds",
                    stability: Stability::Alpha,
                    help: "Time that one mutation of a policy takes.",
                    labels: LABELS,
                },
                POLICIES_US,
            ),
        }
    }

    /// Counts a check with the values of its labels.
    pub fn record(&self, labels: &[&str], took: Duration) {
        self.counts.count(labels);
        self.durations.time(labels, took);
    }

    pub(super) fn families(&self) -> (&Counters, &Histograms) {
        (&self.counts, &self.durations)
    }
}

impl Conditions {
    pub(super) fn new() -> Conditions {
        let definition = |name, help| Definition {
            name,
            stability: Stability::Alpha,
            help,
            labels: &["kind", "name", "operation", "type"],
        };
        Conditions {
            errors: Counters::new(definition(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "Match conditions that failed.",
            )),
            exclusions: Counters::new(definition(
                "apiserver_admission_match_condition_exclusions_total",
                "Writes that a match condition excluded.",
            )),
            durations: Histograms::of_durations(
                definition(
                    "apiserver_admission_match_condition_evaluation_seconds",
                    "Time that the match conditions of one policy or webhook take.",
                ),
                CONDITIONS_US,
            ),
        }
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
