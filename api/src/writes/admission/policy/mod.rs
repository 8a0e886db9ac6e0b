//! Admission policies: expressions that can refuse, annotate or change the objects of writes.
//!
//! ```text
//! policy object ─► environment: types of the variables ─► compiled expressions
//!                                                              │
//! write ─► inputs: object, oldObject, request, params, … ─► scope ─► decisions · annotations · changes
//!                                                            └─► `variables`, each evaluated on first read
//! ```
//!
//! docs/api/policies.md describes the behaviour of policies.

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
