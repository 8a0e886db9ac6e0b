//! Programs: planned expressions that can be evaluated any number of times, from any thread.

use std::time::{Duration, Instant};

use crate::ast::{CheckedAst, Name};
use crate::environment::Environment;
use crate::error::EvalError;
use crate::evaluation::evaluator::Evaluator;
use crate::evaluation::plan::Plan;
use crate::evaluation::planner;
use crate::value::Value;

/// A planned expression. Creating it costs more than an evaluation, so keep it.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
}

/// The host's variables of one evaluation. Each variable is read at most once per evaluation, when it is
/// needed.
pub trait Activation<'v> {
    /// Returns the value of a variable by its full name; `None` if it has no value, which is an error of the
    /// evaluation.
    fn variable(&self, name: &str) -> Option<Value<'v>>;
}

impl<'v> Activation<'v> for [(&str, Value<'v>)] {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

impl<'v, const N: usize> Activation<'v> for [(&str, Value<'v>); N] {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        self.as_slice().variable(name)
    }
}

impl<'v> Activation<'v> for Vec<(String, Value<'v>)> {
    fn variable(&self, name: &str) -> Option<Value<'v>> {
        self.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }
}

/// The limits that end an evaluation early.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    /// Cost limit; the evaluation ends as soon as it exceeds this.
    pub cost: u64,
    /// Callback that is called regularly ([`Steps`](super::Steps)); if it returns true, the evaluation ends.
    /// Hosts check a deadline here.
    pub interrupted: &'l (dyn Fn() -> bool + Sync),
}

impl Limits<'_> {
    /// No limits, for expressions that are known to be small.
    pub const NONE: Limits<'static> = Limits { cost: u64::MAX, interrupted: &|| false };

    /// Creates limits with only a cost limit.
    pub const fn cost(cost: u64) -> Limits<'static> {
        Limits { cost, interrupted: &|| false }
    }
}

/// The result of an evaluation, with its cost.
#[derive(Clone, Debug)]
pub struct Evaluation<'v> {
    /// Value of the expression, or its error.
    pub result: Result<Value<'v>, EvalError>,
    /// Cost of the evaluation, also if it failed.
    pub cost: u64,
    /// Work of the evaluation, in [`Steps`](super::Steps).
    pub steps: u64,
}

impl Program {
    /// Plans a checked expression.
    ///
    /// # Errors
    /// The error of a constant subexpression, which is computed here: `duration(dyn('x'))`, a malformed
    /// constant pattern, a constant map with bytes as a key.
    pub fn new(checked: &CheckedAst, environment: &Environment) -> Result<Self, EvalError> {
        Ok(Self { plan: planner::plan(checked, environment)? })
    }

    /// Returns the names of the host's variables that the expression reads.
    pub fn variables(&self) -> &[Name] {
        &self.plan.variables
    }

    /// Evaluates the expression with the cost limit `cost` and the time limit `time`.
    pub fn evaluate_for<'v>(
        &self,
        activation: &dyn Activation<'v>,
        cost: u64,
        time: Duration,
    ) -> Evaluation<'v> {
        let began = Instant::now();
        self.evaluate(activation, &Limits { cost, interrupted: &|| began.elapsed() > time })
    }

    /// Evaluates the expression within `limits`.
    pub fn evaluate<'v>(&self, activation: &dyn Activation<'v>, limits: &Limits<'_>) -> Evaluation<'v> {
        let mut evaluator = Evaluator::new(&self.plan, activation, limits);
        let result = evaluator.evaluate(self.plan.root);
        Evaluation { result, cost: evaluator.cost(), steps: evaluator.steps().taken() }
    }
}
