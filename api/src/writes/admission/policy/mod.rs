//! Admission policies: expressions that refuse, annotate or change what is written.
//!
//! ```text
//! policy object ─► environment: types of the variables ─► compiled expressions
//!                                                              │
//! write ─► inputs: object, oldObject, request, params, … ─► scope ─► decisions · annotations · changes
//!                                                            └─► `variables`, each evaluated on first read
//! ```
//!
//! The parts are functions from values to values, and know neither the chain nor the store. Behaviour:
//! docs/api/policies.md.

pub mod access;
pub mod condition;
pub mod matching;
pub mod mutating;
pub mod mutation;
pub mod params;
pub mod permission;
pub mod request;
pub mod scope;
pub mod source;
pub mod typecheck;
pub mod validating;
pub mod validation;

#[cfg(test)]
mod server_test;
#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
