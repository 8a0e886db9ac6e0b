//! Rules of custom schemas in the expression language (`x-kubernetes-validations`).
//!
//! ```text
//! Schema ─► declaration: types and sizes of `self` ─┬─► compile: is the rule one, and what may it cost  (definitions)
//!                                                   └─► program ─ run: value of an object, costs, errors  (objects)
//! ```
//!
//! The language is that of the `cel` crate; objects are read in place.

mod compile;
mod declaration;
mod keyed;
mod run;
mod time;
pub mod value;

pub use compile::{Compiler, Scope};
pub use run::{OBJECT_COST_MAX, Rules, Terms, Verdict, judge_value};
