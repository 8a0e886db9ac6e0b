//! Evaluates expressions within the limit of one evaluation and the budget of all of them.

use std::fmt;

use cel::evaluation::{Activation, Evaluation, Limits};
use cel::value::Value;

use super::compile::Expression;

/// Most that one evaluation may cost.
pub const CALL_COST_MAX: u64 = 1_000_000;

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
    /// A budget of `cost`.
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
    let Evaluation { result, cost } = program.evaluate(activation, &Limits::cost(CALL_COST_MAX));
    budget.take(shared())?;
    budget.take(cost)?;
    result.map_err(|error| {
        Failure::Evaluation(format!("expression '{}' resulted in error: {error}", expression.text))
    })
}
