//! Expressions that objects and configuration files state: compiled for a wanted type, with the errors that the API
//! tells, and evaluated within limits.
//!
//! ```text
//! text ─► Environment (base + variables of the host) ─► Expression: a program, or why it is none
//!                                                            └─► evaluate(activation, budget) ─► value, cost
//! ```
//!
//! [`device`] checks selectors of devices. [`json`] reads JSON of no known type as values, and makes JSON of values.

mod compile;
pub mod device;
mod evaluate;
pub mod json;
pub mod node;
pub mod policy;
pub mod types;

pub use compile::{Expression, Refusal, base};
pub use evaluate::{Budget, Failure, evaluate, run};
