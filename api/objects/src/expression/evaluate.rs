//! Evaluates expressions. The cost of one evaluation, the cost of all evaluations, and the time are limited.

use std::fmt;
use std::time::{Duration, Instant};

use cel::error::EvalError;
use cel::evaluation::{Activation, Evaluation, Limits, Program};
use cel::value::Value;

use super::compile::Expression;
use values::cancellation;

/// Maximum cost of one evaluation.
const CALL_COST_MAX: u64 = 1_000_000;

/// Maximum duration of an evaluation outside of requests. Inside a request, the deadline of the request
/// applies. An ordinary expression reaches the maximum cost in a few seconds.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Evaluates a program within `CALL_COST_MAX`, `TIME_MAX` and the deadline of the request. If the end of the
/// request interrupts the evaluation, this function does not return, so a policy cannot ignore the
/// interruption.
pub fn run<'v>(program: &Program, activation: &dyn Activation<'v>) -> Evaluation<'v> {
    let began = Instant::now();
    let interrupted = || cancellation::is_over() || began.elapsed() > TIME_MAX;
    let evaluation = program.evaluate(activation, &Limits { cost: CALL_COST_MAX, interrupted: &interrupted });
    if evaluation.result.as_ref().is_err_and(EvalError::is_interruption) {
        cancellation::check();
    }
    evaluation
}

/// The remaining cost of all expressions for one object.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    left: u64,
}

/// Reason why an expression has no value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EvaluationFailure {
    /// The expression is refused or its evaluation failed. Other expressions may still be evaluated.
    Evaluation(String),
    /// The budget is used up, so no further expressions are evaluated.
    OutOfBudget,
}

impl fmt::Display for EvaluationFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvaluationFailure::Evaluation(why) => f.write_str(why),
            EvaluationFailure::OutOfBudget => f.write_str(
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ),
        }
    }
}

impl Budget {
    /// Creates a budget of `cost`.
    pub fn new(cost: u64) -> Budget {
        Budget { left: cost }
    }

    /// Returns the remaining cost.
    pub fn remaining(self) -> u64 {
        self.left
    }

    /// Subtracts the cost of an evaluation.
    ///
    /// # Errors
    /// Fails if the remaining cost is less than `cost`.
    pub fn take(&mut self, cost: u64) -> Result<(), EvaluationFailure> {
        self.left = self.left.checked_sub(cost).ok_or(EvaluationFailure::OutOfBudget)?;
        Ok(())
    }
}

/// Evaluates an expression. `shared` returns the cost of the variables that the expression evaluated.
///
/// # Errors
/// Fails if the expression is refused, if its evaluation fails, or if the budget is used up.
pub fn evaluate<'v>(
    expression: &Expression,
    activation: &dyn Activation<'v>,
    shared: impl FnOnce() -> u64,
    budget: &mut Budget,
) -> Result<Value<'v>, EvaluationFailure> {
    let program = expression.program();
    let program =
        program.map_err(|why| EvaluationFailure::Evaluation(format!("compilation error: {why}")))?;
    let Evaluation { result, cost, .. } = run(program, activation);
    budget.take(shared())?;
    budget.take(cost)?;
    result.map_err(|error| {
        EvaluationFailure::Evaluation(format!("expression '{}' resulted in error: {error}", expression.text))
    })
}
