//! Selectors: conditions that restrict a list, a watch or a deletecollection to some objects.
//!
//! `label` parses and matches label selectors, `field` parses and matches field selectors, and `requirements`
//! converts both kinds of selectors to the form that authorization uses. These modules do not access objects.
//! The modules get values from closures, which usually read `attributes`.

pub mod field;
pub mod label;
pub mod requirements;

pub use field::{FieldSelector, FieldTerms};
pub use label::LabelSelector;
