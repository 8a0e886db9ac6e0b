//! Expressions in objects and configuration files. An expression is compiled for an expected type, with the
//! error messages of the API, and is evaluated within limits.
//!
//! ```text
//! text ─► Environment (base + variables of the host) ─► Expression: a program, or why it is refused
//!                                                            └─► evaluate(activation, budget) ─► value, cost
//! ```
//!
//! [`device`] checks device selectors. [`json`] reads JSON without a schema as values, and converts values to
//! JSON.

mod compile;
pub mod device;
mod evaluate;
pub mod json;
pub mod node;
pub mod policy;
pub mod types;

pub use compile::{Expression, Refusal, base};
pub use evaluate::{Budget, EvaluationFailure, evaluate, run};
