//! YAML: text to tree, as the reference server reads it before it continues as with JSON, and tree to text
//! (docs/api/encodings.md#content-type, #json-and-yaml-output, #strict-decoding).
//!
//! ```text
//! text ──saphyr-parser──► events ──decode──► Document { value, duplicates }
//!                                    │
//!                                    └─ scalar: the value of an unquoted word (YAML 1.1: yes, 0644, 1_000)
//! tree ──encode──► text, sorted, quoted where `scalar` says so
//! ```
//!
//! The tree is then handled like one from JSON: by `schema::conform`, or by the apply verb for configurations. Knows no
//! schemas and no kinds.

mod decode;
mod encode;
mod scalar;

#[cfg(test)]
mod decode_test;

pub use decode::{Document, YamlError, parse, warnings};
pub use encode::{compare_names, write, write_item, write_member};
