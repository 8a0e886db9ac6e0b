//! Custom resources: types that clients define, and their objects.
//!
//! ```text
//! CustomResourceDefinition ─┬ schema (JSON) ─► schema: the tree ─► resource: the type of the objects ─┐
//!                           └ everything else ─► definition ──────────────────────────────────────────┴► serving
//!
//! object ─ decode, prune, default (by the type) ─► validate ─► field errors
//! ```
//!
//! All functions are pure and do not depend on the store or on HTTP.

pub mod definition;
pub mod details;
pub mod established;
pub mod field_path;
pub mod format;
pub mod inner_check;
mod keywords;
mod lists;
pub mod lookup;
mod number;
pub mod outline;
mod path;
pub mod resource;
pub mod rules;
pub mod scale;
pub mod schema;
pub mod serving;
pub mod stored_definition;
mod unchanged;
pub mod validate;

pub use unchanged::limits_of;

#[cfg(test)]
mod growth_test;
#[cfg(test)]
mod made_types_test;
