//! Evaluation: from a checked expression to its value and cost.
//!
//! ```text
//! checked ast ─► planner ─► plan ─┐
//!                                 ├─► evaluator (fold: loops) ─► value or error, cost
//!                    activation ──┘       │
//!                                         └─► operators, equality, conversion, standard; libraries by dispatch
//! ```
//!
//! Actual costs count what the evaluation did: 1 for each variable read, step of a path and call, more for calls that
//! read their arguments through and for literals of lists, maps and objects. A call whose arguments alone cost more than is
//! left is not computed. Costs do not bound the time, so that a host gives an evaluation a deadline as well ([`steps`]). They are part
//! of the API of a host with budgets, so that the rules in `plan::Charge` and in `evaluator` are those of the reference, also where a cost
//! looks odd: a branch of `? :` that is a plain variable costs nothing, and loops go on after an error.

pub use self::program::{Activation, Evaluation, Limits, Program};
pub use self::steps::Steps;

pub(crate) mod conversion;
mod dispatch;
pub mod equality;
pub(crate) mod evaluator;
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
