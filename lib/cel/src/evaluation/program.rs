//! Programs: planned expressions that can be evaluated any number of times, from any thread.

use std::time::{Duration, Instant};

use crate::ast::{CheckedAst, Name};
use crate::environment::Environment;
use crate::error::EvalError;
use crate::evaluation::activation::{Activation, Limits};
use crate::evaluation::evaluator::Evaluator;
use crate::evaluation::plan::Plan;
use crate::evaluation::planner;
use crate::value::Value;

/// A planned expression. The creation of a program costs more than an evaluation, so keep the program.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
}

/// The result of an evaluation, with its cost.
#[derive(Clone, Debug)]
pub struct Evaluation<'v> {
    /// Value of the expression, or its error.
    pub result: Result<Value<'v>, EvalError>,
    /// Cost of the evaluation, even if it failed.
    pub cost: u64,
    /// Work of the evaluation, in [`Steps`](super::Steps).
    pub steps: u64,
}

impl Program {
    /// Plans a checked expression.
    ///
    /// # Errors
    /// The error of a constant subexpression. Planning computes such subexpressions, for example
    /// `duration(dyn('x'))`, a malformed constant pattern, or a constant map with bytes as a key.
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
