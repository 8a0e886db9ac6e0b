//! Programs: planned expressions that can be evaluated any number of times, from any thread.

use std::time::{Duration, Instant};

use crate::ast::{CheckedAst, Name};
use crate::environment::Environment;
use crate::error::EvalError;
use crate::evaluation::evaluator::Evaluator;
use crate::evaluation::plan::Plan;
use crate::evaluation::planner;
use crate::value::Value;

/// A planned expression. Making one costs more than an evaluation: keep it.
#[derive(Debug)]
pub struct Program {
    plan: Plan,
}

/// The host's variables of one evaluation. Each variable is read at most once per evaluation, when it is needed.
pub trait Activation<'v> {
    /// The value of a variable by its full name; `None` when it has none, which is an error of the evaluation.
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

/// What ends an evaluation early.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    /// The evaluation ends as soon as it has cost more.
    pub cost: u64,
    /// Asked after some work each time ([`Steps`](super::Steps)): true ends the evaluation. Hosts look at a deadline.
    pub interrupted: &'l (dyn Fn() -> bool + Sync),
}

impl Limits<'_> {
    /// No limits, for expressions that are known to be small.
    pub const NONE: Limits<'static> = Limits { cost: u64::MAX, interrupted: &|| false };

    /// A limit of cost alone.
    pub const fn cost(cost: u64) -> Limits<'static> {
        Limits { cost, interrupted: &|| false }
    }
}

/// What an evaluation came to.
#[derive(Clone, Debug)]
pub struct Evaluation<'v> {
    /// The value of the expression.
    pub result: Result<Value<'v>, EvalError>,
    /// What was spent, also by a failed evaluation.
    pub cost: u64,
    /// The work that was done ([`Steps`](super::Steps)).
    pub steps: u64,
}

impl Program {
    /// Plans a checked expression.
    ///
    /// # Errors
    /// That of a constant part, which is computed here: `duration(dyn('x'))`, a malformed constant pattern, a constant
    /// map with bytes as a key.
    pub fn new(checked: &CheckedAst, environment: &Environment) -> Result<Self, EvalError> {
        Ok(Self { plan: planner::plan(checked, environment)? })
    }

    /// Names of the host's variables that the expression reads.
    pub fn variables(&self) -> &[Name] {
        &self.plan.variables
    }

    /// Evaluates the expression, which may cost `cost` and take `time`.
    pub fn evaluate_for<'v>(
        &self,
        activation: &dyn Activation<'v>,
        cost: u64,
        time: Duration,
    ) -> Evaluation<'v> {
        let began = Instant::now();
        self.evaluate(activation, &Limits { cost, interrupted: &|| began.elapsed() > time })
    }

    /// Evaluates the expression.
    pub fn evaluate<'v>(&self, activation: &dyn Activation<'v>, limits: &Limits<'_>) -> Evaluation<'v> {
        let mut evaluator = Evaluator::new(&self.plan, activation, limits);
        let result = evaluator.evaluate(self.plan.root);
        Evaluation { result, cost: evaluator.cost(), steps: evaluator.steps().taken() }
    }
}
