//! Custom resources: types that clients define, and the objects of them.
//!
//! ```text
//! CustomResourceDefinition ─┬ schema (JSON) ─► Schema (tree)
//!                           └ everything else ─► definition
//! ```
//!
//! Nothing here reads or writes the store or knows HTTP: functions from values to values.

pub mod definition;
pub mod field_path;
pub mod schema;
