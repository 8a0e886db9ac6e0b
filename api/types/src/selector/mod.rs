//! Selectors: conditions that restrict a list, a watch or a collection delete to some objects.
//!
//! `label` parses and matches label selectors, `field` field selectors; `requirements` is what
//! authorization sees of both, `rules` validates label keys and values. None
//! of them accesses objects: values come from closures, in practice from `attributes`.

pub mod field;
pub mod label;
pub mod requirements;

pub use field::{FieldSelector, FieldTerms};
pub use label::LabelSelector;
