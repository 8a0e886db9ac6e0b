//! Validation rules of custom schemas in the expression language (`x-kubernetes-validations`).
//!
//! ```text
//! Schema ─► declaration: types and sizes of `self` ─┬─► compile: is the rule valid, and its cost        (definitions)
//!                                                   └─► program ─ run: value of an object, costs, errors  (objects)
//! ```
//!
//! The crate `cel` implements the language. Expressions read objects without copying them.

mod compile;
mod declaration;
mod keyed;
mod run;
mod time;
pub mod value;

pub use compile::{Compiler, Scope};
pub use run::{OBJECT_COST_MAX, Rules, Terms, Verdict, evaluate_value};
