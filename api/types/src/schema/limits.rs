//! Constraints of a value of a type made at run time, in addition to its kind.
//!
//! ```text
//! Limits ─┬─ bounds, pattern, format, closed set, required members    of the value itself
//!         ├─ Schemas ─► Limits      other schemas that the value must satisfy, and constraints of its parts
//!         └─ rules                  stored as they were written
//! ```
//!
//! The constraints are the part of JSON Schema that structural schemas support. The type only stores the
//! rules; only the code that evaluates them depends on the expression language.

use super::handle::{Slice, Text};
use super::pattern::Pattern;
use values::json::Value;

/// The constraints of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Smallest number, and whether the bound itself is excluded.
    pub min: Option<(f64, bool)>,
    /// Largest number, and whether the bound itself is excluded.
    pub max: Option<(f64, bool)>,
    /// Number of which the value must be a multiple.
    pub multiple_of: Option<f64>,
    /// Minimum and maximum number of characters of a text.
    pub length: (Option<u64>, Option<u64>),
    /// Regular expression that must match somewhere in a text.
    pub pattern: Option<Pattern>,
    /// Name of the enforced format of a text, as in the schema; empty for any format.
    pub format: Text,
    /// Minimum and maximum number of elements of a list.
    pub items: (Option<u64>, Option<u64>),
    /// Minimum and maximum number of members of a struct or map.
    pub members: (Option<u64>, Option<u64>),
    /// Whether the elements of a list must differ.
    pub unique: bool,
    /// Whether the schema names no type. A schema without a type accepts a value that is not a struct even
    /// if the kind is a struct.
    pub any_type: bool,
    /// Members that must be present, in the order in which their absence is reported.
    pub required: Vec<Text>,
    /// Default as JSON text. The default replaces `null` in a list or map, and an absent part of metadata.
    /// The default of a field is stored in the field.
    pub default: Option<Text>,
    /// Closed set of values; empty for any value.
    pub enumeration: Vec<Value>,
    /// Validation rules in the expression language.
    pub rules: Slice<ValidationRule>,
    /// Further schemas that the value must satisfy.
    pub schemas: Option<Box<Schemas>>,
}

/// Schemas in addition to the schema that determines the type of a value. Such schemas restrict values and do
/// not define types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schemas {
    /// Constraints that must all hold.
    pub all_of: Vec<Limits>,
    /// Constraints of which at least one must hold.
    pub any_of: Vec<Limits>,
    /// Constraints of which exactly one must hold.
    pub one_of: Vec<Limits>,
    /// Constraints that must not hold.
    pub not: Option<Limits>,
    /// Required JSON type; empty for any type. A required type is set only for the alternatives of a value
    /// that may have two types.
    pub kind: Text,
    /// Constraints of members; the type itself declares the kinds of the members.
    pub properties: Vec<(Text, Limits)>,
    /// Constraints of elements; the type itself declares the kind of the elements.
    pub items: Option<Limits>,
}

/// A validation rule (`x-kubernetes-validations`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ValidationRule {
    /// Expression that must be true for a valid value.
    pub rule: Text,
    /// Message for a value that breaks the rule; empty for a message derived from the rule.
    pub message: Text,
    /// Expression that computes the message; may be empty.
    pub message_expression: Text,
    /// Reason of the error; empty means invalid.
    pub reason: Text,
    /// Path of the field that the error names; empty means the path of the value.
    pub field_path: Text,
    /// Whether the rule is also evaluated if there is no old value, although the rule refers to the old
    /// value.
    pub optional_old_self: bool,
}
