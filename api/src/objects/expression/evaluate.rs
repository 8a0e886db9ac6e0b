//! Evaluates expressions within the limit of one evaluation, the budget of all of them, and the time of the request.

use std::fmt;
use std::time::{Duration, Instant};

use cel::error::EvalError;
use cel::evaluation::{Activation, Evaluation, Limits, Program};
use cel::value::Value;

use super::compile::Expression;
use crate::values::cancellation;

/// Most that one evaluation may cost.
const CALL_COST_MAX: u64 = 1_000_000;

/// Longest evaluation outside of requests, whose time bounds theirs: the largest cost is spent in a few seconds by all but
/// expressions that are made to take long.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Evaluates a program within `CALL_COST_MAX` and within the time of the request, or `TIME_MAX`. An evaluation that the end of the
/// request interrupts ends the request: it has no result that a policy could ignore.
pub fn run<'v>(program: &Program, activation: &dyn Activation<'v>) -> Evaluation<'v> {
    let began = Instant::now();
    let interrupted = || cancellation::is_over() || began.elapsed() > TIME_MAX;
    let evaluation = program.evaluate(activation, &Limits { cost: CALL_COST_MAX, interrupted: &interrupted });
    if evaluation.result.as_ref().is_err_and(EvalError::is_interruption) {
        cancellation::check();
    }
    evaluation
}

/// What the expressions of one object may still cost together.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u64,
}

/// Why an expression has no value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// It failed, or is none; others may still be evaluated.
    Evaluation(String),
    /// The budget is spent: nothing more is evaluated.
    OutOfBudget,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Evaluation(why) => f.write_str(why),
            Failure::OutOfBudget => f.write_str(
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ),
        }
    }
}

impl Budget {
    /// Returns a budget of `cost`.
    pub fn new(cost: u64) -> Budget {
        Budget { left: cost }
    }

    /// What is left.
    pub fn left(self) -> u64 {
        self.left
    }

    /// Takes what was spent.
    ///
    /// # Errors
    /// That is more than there was.
    pub fn take(&mut self, cost: u64) -> Result<(), Failure> {
        self.left = self.left.checked_sub(cost).ok_or(Failure::OutOfBudget)?;
        Ok(())
    }
}

/// Evaluates an expression. `shared` tells what the variables it read cost meanwhile.
///
/// # Errors
/// The expression is none or fails, or the budget is spent.
pub fn evaluate<'v>(
    expression: &Expression,
    activation: &dyn Activation<'v>,
    shared: impl FnOnce() -> u64,
    budget: &mut Budget,
) -> Result<Value<'v>, Failure> {
    let program = expression.program();
    let program = program.map_err(|why| Failure::Evaluation(format!("compilation error: {why}")))?;
    let Evaluation { result, cost, .. } = run(program, activation);
    budget.take(shared())?;
    budget.take(cost)?;
    result.map_err(|error| {
        Failure::Evaluation(format!("expression '{}' resulted in error: {error}", expression.text))
    })
}
