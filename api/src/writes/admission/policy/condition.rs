//! Match conditions of policies and webhooks: whether they are asked about a write at all.
//!
//! All conditions are evaluated. One that is false decides, whatever else fails, as long as the budget lasts; errors
//! decide only when none is false.

use std::time::{Duration, Instant};

use cel::evaluation::Activation;
use cel::types::Type;
use cel::value::Value;

use crate::writes::admission::Operation;
use objects::expression::policy::environment::{Declarations, Extent};
use objects::expression::{Budget, Expression, Failure, evaluate};
use wire::metrics::Metrics;

/// Most that all match conditions of one webhook or policy may cost: a quarter of the budget of a policy.
pub const CONDITIONS_COST_MAX: u64 = 2_500_000;

/// The match conditions of one webhook or policy, compiled.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Condition>);

#[derive(Debug)]
struct Condition {
    name: String,
    expression: Expression,
}

/// What the conditions come to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Match {
    /// All hold.
    Yes,
    /// This one does not hold.
    No(String),
    /// None is false, and some failed: the failure policy decides.
    Failed(String),
}

/// What became of conditions, with what is counted of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Judged {
    /// Whether the write matches.
    pub outcome: Match,
    /// How many expressions failed.
    pub failures: usize,
    /// How long it took.
    pub took: Duration,
}

/// Whose conditions they are, as metrics name it.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o> {
    /// `policy` or `webhook`.
    pub kind: &'static str,
    /// Its name.
    pub name: &'o str,
    /// The point of admission.
    pub point: &'static str,
}

impl Judged {
    /// Counts it.
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
    /// Compiles conditions: name and expression of each.
    pub fn compile<'t>(
        conditions: impl IntoIterator<Item = (&'t str, &'t str)>,
        declarations: &Declarations,
        extent: Extent,
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

    /// Whether there is none: every write matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions. `shared` tells what the variables that they read cost meanwhile.
    pub fn judge<'v>(&self, activation: &dyn Activation<'v>, shared: impl Fn() -> u64) -> Judged {
        let began = Instant::now();
        let mut failed = 0;
        let outcome = self.outcome(activation, shared, &mut failed);
        Judged { outcome, failures: failed, took: began.elapsed() }
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
                Err(Failure::Evaluation(why)) => {
                    // Those behind a condition that is false are not looked at.
                    *failed += usize::from(unmet.is_none());
                    if !failures.contains(&why) {
                        failures.push(why);
                    }
                }
                Err(spent @ Failure::OutOfBudget) => return Match::Failed(spent.to_string()),
            }
        }
        if let Some(unmet) = unmet {
            return Match::No(unmet.clone());
        }
        go::join_errors(&failures).map_or(Match::Yes, Match::Failed)
    }
}
