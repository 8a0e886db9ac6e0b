//! Evaluation: from a checked expression to its value and cost.
//!
//! ```text
//! checked ast ─► planner ─► plan ─┐
//!                                 ├─► evaluator (fold: loops) ─► value or error, cost
//!                    activation ──┘       │
//!                                         └─► operators, conversion, standard; libraries by dispatch; equality of values
//! ```
//!
//! The actual cost counts the work of the evaluation: 1 for each variable read, path step and call, and more
//! for calls that read their whole arguments and for literals of lists, maps and objects. A call is not
//! computed if the cost of its arguments alone exceeds the remaining budget. Costs do not bound the time, so
//! a host also gives an evaluation a deadline ([`steps`]). Costs are part of the API of a host with budgets.
//! Therefore the rules in `plan::Charge` and in `evaluator` equal the rules of the reference, even if a cost
//! looks odd: a branch of `? :` that is a plain variable costs nothing, and loops continue after an error.

pub use self::activation::{Activation, Limits};
pub use self::program::{Evaluation, Program};
pub use self::steps::Steps;

mod activation;
pub(crate) mod conversion;
mod dispatch;
mod evaluator;
mod fold;
pub mod operators;
mod plan;
mod planner;
mod program;
mod standard;
pub mod steps;
mod wellknown;

#[cfg(test)]
#[path = "evaluation_test.rs"]
mod tests;
