//! What validation asks of a value of a type made at run time, beyond what its kind says.
//!
//! The constraints are those of JSON Schema as far as structural schemas have them. Rules are kept as they were written:
//! the type knows that they are there, the expression language is the business of those who evaluate them.

use super::handle::{Slice, Text};
use crate::json::Value;

/// Constraints of one value.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Smallest number, and whether it is itself excluded.
    pub min: Option<(f64, bool)>,
    /// Largest number, and whether it is itself excluded.
    pub max: Option<(f64, bool)>,
    /// The number is a multiple of this one.
    pub multiple_of: Option<f64>,
    /// Fewest and most characters of a text.
    pub length: (Option<u64>, Option<u64>),
    /// Regular expression that a text has a match of.
    pub pattern: Option<Text>,
    /// Fewest and most elements of a list.
    pub items: (Option<u64>, Option<u64>),
    /// Fewest and most members of a struct or map.
    pub members: (Option<u64>, Option<u64>),
    /// Elements of a list differ.
    pub unique: bool,
    /// The closed set of values; empty = any.
    pub enumeration: Vec<Value>,
    /// Rules in the expression language.
    pub rules: Slice<Rule>,
}

/// One rule (`x-kubernetes-validations`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rule {
    /// The expression.
    pub rule: Text,
    /// What is said of a value that breaks it; empty for a sentence made of the rule.
    pub message: Text,
    /// An expression that makes that sentence; empty without one.
    pub message_expression: Text,
    /// Reason of the error; empty = invalid.
    pub reason: Text,
    /// Path of the field that the error names; empty = that of the value.
    pub field_path: Text,
    /// The rule holds where there is no old value, too, although it speaks of one.
    pub optional_old_self: bool,
}
