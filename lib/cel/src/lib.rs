//! The Common Expression Language as Kubernetes uses it.
//!
//! ```text
//! text ─► source ─► parser ─► ast ─► checker ─► checked ast ─► program ─► evaluation ─► value, cost
//!                      ▲                ▲            │             ▲
//!                   macros        environment        └─► cost      └── activation: the variables
//!                                  ▲      ▲          (estimate)
//!                              libraries  host: variables, object types
//! ```
//!
//! This crate does not depend on Kubernetes objects or HTTP. A host adds its variables and object types to an
//! [`Environment`](environment::Environment) and passes its data through the traits of [`value`], which read
//! it without copying. Language definition: <https://github.com/google/cel-spec>.

pub mod ast;
pub mod checker;
mod compile;
mod constant;
pub mod cost;
pub mod duration;
pub mod environment;
pub mod error;
pub mod evaluation;
pub mod identifier;
pub mod library;
mod name;
mod node_id;
pub mod number;
mod overload;
pub mod parser;
pub mod source;
pub mod timestamp;
pub mod types;
pub mod unparse;
pub mod value;

#[cfg(test)]
mod growth_test;
