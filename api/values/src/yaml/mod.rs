//! Converts YAML text to a JSON tree, and a tree to YAML text (docs/api/encodings.md#content-type,
//! #json-and-yaml-output, #strict-decoding).
//!
//! ```text
//! bytes ──reader──► text ──scan──► tokens ──grammar──► events ──decode, build──► Document { value, duplicates }
//!                            │                                      │
//!                            └─ cursor, scan_scalar, scan_tag       └─ scalar: the value of an unquoted word
//!                                                                      (YAML 1.1: yes, 0644, 1_000)
//! tree ──encode──► text, sorted, quoted where `scalar` says so
//! ```
//!
//! As in the reference server, the tree is then handled like a tree from JSON: by `schema::conform`, or by
//! the apply verb for configurations. This module does not depend on schemas or kinds.
//!
//! The scanner and the grammar are our own because no maintained crate accepts the same language: the
//! reference server uses goyaml v2, a port of an old libyaml that reads YAML 1.1 with its own rules for tabs,
//! indentation and block scalars. Every step takes time proportional to the length of the text and keeps open
//! constructs on the heap.

mod build;
mod cursor;
mod decode;
mod document;
mod encode;
mod grammar;
mod reader;
mod scalar;
mod scan;
mod scan_scalar;
mod scan_tag;
mod token;

#[cfg(test)]
mod decode_test;

pub use decode::{parse, warnings};
pub use document::{YamlDocument, YamlError};
pub use encode::{compare_names, write, write_item, write_member};
