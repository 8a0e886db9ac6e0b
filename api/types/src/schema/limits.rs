//! What validation asks of a value of a type made at run time, beyond what its kind says.
//!
//! ```text
//! Limits ─┬─ bounds, pattern, format, closed set, required members    of the value itself
//!         ├─ Schemas ─► Limits      other schemas that it satisfies too, and what they say of its parts
//!         └─ rules                  kept as they were written
//! ```
//!
//! The constraints are those of JSON Schema as far as structural schemas have them. The type knows that rules are there;
//! the expression language is the business of those who evaluate them.

use super::handle::{Slice, Text};
use super::pattern::Pattern;
use values::json::Value;

/// Constraints of one value.
#[derive(Clone, Debug, Default, PartialEq)]
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
    pub pattern: Option<Pattern>,
    /// Format of a text that is enforced, as the schema names it; empty for none.
    pub format: Text,
    /// Fewest and most elements of a list.
    pub items: (Option<u64>, Option<u64>),
    /// Fewest and most members of a struct or map.
    pub members: (Option<u64>, Option<u64>),
    /// Elements of a list differ.
    pub unique: bool,
    /// The schema names no type: values that are no struct are allowed where the kind is one.
    pub any_type: bool,
    /// Members that must be given, in the order in which their absence is reported.
    pub required: Vec<Text>,
    /// What `null` becomes as an element of a list or a value of a map, and what a part of metadata is where nothing was
    /// given; as JSON text. Fields have their defaults themselves.
    pub default: Option<Text>,
    /// The closed set of values; empty = any.
    pub enumeration: Vec<Value>,
    /// Rules in the expression language.
    pub rules: Slice<Rule>,
    /// Other schemas.
    pub schemas: Option<Box<Schemas>>,
}

/// Schemas beside the one that gives a value its type. They restrict values and never describe them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schemas {
    /// All of these hold.
    pub all_of: Vec<Limits>,
    /// At least one of these holds.
    pub any_of: Vec<Limits>,
    /// Exactly one of these holds.
    pub one_of: Vec<Limits>,
    /// This does not hold.
    pub not: Option<Limits>,
    /// The JSON type that is asked for; empty for any. Only alternatives of a value of two types ask for one.
    pub kind: Text,
    /// What is said of members that the type describes elsewhere.
    pub properties: Vec<(Text, Limits)>,
    /// What is said of elements that the type describes elsewhere.
    pub items: Option<Limits>,
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
