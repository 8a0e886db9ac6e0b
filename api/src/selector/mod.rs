//! Selectors: which objects of a collection a list, a watch or a collection delete is about.
//!
//! `label` parses and matches label selectors, `field` field selectors, `rules` says what label keys and values
//! look like. Neither looks at objects: values come from closures, in practice from `attributes`.

pub mod field;
pub mod label;
pub mod rules;

pub use field::{FieldSelector, FieldTerms};
pub use label::LabelSelector;
