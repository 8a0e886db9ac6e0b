//! YAML: text to tree, as the reference server reads it before it treats it like JSON (semantics §9.2, §9.5).
//!
//! ```text
//! text ──saphyr-parser──► events ──decode──► Document { value, duplicates }
//!                                    │
//!                                    └─ scalar: what an unquoted word means (YAML 1.1: yes, 0644, 1_000)
//! ```
//!
//! The tree then takes the path of a JSON tree: `schema::conform` for bodies, the apply verb for apply bodies. Knows
//! no schemas and no kinds.

mod decode;
mod scalar;

#[cfg(test)]
mod decode_test;

pub use decode::{Document, YamlError, parse, warnings};
