//! Match conditions, which decide whether a policy or webhook applies to a write.
//!
//! All conditions are evaluated. If a condition is false, the policy or webhook does not apply, even if the
//! evaluation of another condition fails. The result is an error only if no condition is false, or if the
//! conditions exceed their cost budget.

use std::time::{Duration, Instant};

use cel::evaluation::Activation;
use cel::types::Type;
use cel::value::Value;

use crate::writes::plugin::Operation;
use objects::expression::policy::environment::{Declarations, OptionalVariables};
use objects::expression::{Budget, EvaluationFailure, Expression, evaluate};
use wire::metrics::Metrics;

/// Maximum cost of all match conditions of one webhook or policy: a quarter of the budget of a policy.
pub const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// The compiled match conditions of one webhook or policy.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Condition>);

#[derive(Debug)]
struct Condition {
    name: String,
    expression: Expression,
}

/// The combined result of the conditions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Match {
    /// All conditions are true.
    Yes,
    /// The named condition is false.
    No(String),
    /// No condition is false, but at least one evaluation failed. The failure policy decides.
    Failed(String),
}

/// The result of evaluating conditions, with the data for metrics.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ConditionEvaluation {
    /// Whether the write matches the conditions.
    pub outcome: Match,
    /// Number of expressions that failed before a false condition.
    pub failures: usize,
    /// Duration of the evaluation.
    pub took: Duration,
}

/// The owner of conditions, in the terms of metrics.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o> {
    /// Either `policy` or `webhook`.
    pub kind: &'static str,
    /// Name of the policy or webhook.
    pub name: &'o str,
    /// Name of the point of admission in metrics.
    pub point: &'static str,
}

impl ConditionEvaluation {
    /// Adds the result to the metrics.
    pub fn count(&self, metrics: &Metrics, owner: Owner<'_>, operation: Operation) {
        let labels = [owner.kind, owner.name, operation.as_str(), owner.point];
        let conditions = &metrics.conditions;
        conditions.durations.time(&labels, self.took);
        (0..self.failures).for_each(|_| conditions.errors.count(&labels));
        if matches!(self.outcome, Match::No(_)) {
            conditions.exclusions.count(&labels);
        }
    }
}

impl Conditions {
    /// Compiles conditions. Each condition is a pair of name and expression.
    pub fn compile<'t>(
        conditions: impl IntoIterator<Item = (&'t str, &'t str)>,
        declarations: &Declarations,
        extent: OptionalVariables,
    ) -> Conditions {
        let mut conditions = conditions.into_iter().peekable();
        if conditions.peek().is_none() {
            return Conditions::default();
        }
        let environment = declarations.environment(extent);
        let compiled = conditions.map(|(name, text)| Condition {
            name: name.to_owned(),
            expression: Expression::new(text, &environment, &[Type::Bool]),
        });
        Conditions(compiled.collect())
    }

    /// Returns whether there are no conditions, so that every write matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions. `shared` returns the cost of the variables that the conditions have read
    /// since the previous call.
    pub fn evaluate<'v>(
        &self,
        activation: &dyn Activation<'v>,
        shared: impl Fn() -> u64,
    ) -> ConditionEvaluation {
        let began = Instant::now();
        let mut failed = 0;
        let outcome = self.outcome(activation, shared, &mut failed);
        ConditionEvaluation { outcome, failures: failed, took: began.elapsed() }
    }

    fn outcome<'v>(
        &self,
        activation: &dyn Activation<'v>,
        shared: impl Fn() -> u64,
        failed: &mut usize,
    ) -> Match {
        let mut budget = Budget::new(CONDITIONS_COST_MAX);
        let mut unmet = None;
        let mut failures: Vec<String> = Vec::new();
        for condition in &self.0 {
            match evaluate(&condition.expression, activation, &shared, &mut budget) {
                Ok(Value::Bool(false)) => {
                    unmet.get_or_insert(&condition.name);
                }
                Ok(_) => {}
                Err(EvaluationFailure::Evaluation(why)) => {
                    // Failures after a false condition are not counted.
                    *failed += usize::from(unmet.is_none());
                    if !failures.contains(&why) {
                        failures.push(why);
                    }
                }
                Err(spent @ EvaluationFailure::OutOfBudget) => return Match::Failed(spent.to_string()),
            }
        }
        if let Some(unmet) = unmet {
            return Match::No(unmet.clone());
        }
        go::join_errors(&failures).map_or(Match::Yes, Match::Failed)
    }
}
