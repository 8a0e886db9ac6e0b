//! Interface between the validation of a definition and the expression language. Each rule of a schema must
//! compile, and the cost of the rule is estimated.
//!
//! The compiler is a parameter, so that the validation of definitions does not depend on the expression
//! language. The validation handles paths, limits and messages.

use hashbrown::HashSet;

use super::{Definition, walk};
use crate::custom::schema::{Schema, SchemaRule};

/// Compiler of the rules (`x-kubernetes-validations`) of single schema nodes.
pub trait RuleCompiler: Sync {
    /// Compiles the rules of a node and returns one result per rule, in order. `declared` is the schema by
    /// which rules access the node. `declared` is the schema of the node, but with fixed schemas for the kind, version
    /// and metadata of an object. `is_object` is true if the node is an object with these members: the root, or an
    /// embedded object. The schema must be structural.
    ///
    /// # Errors
    /// Returns the reason if the language has no type for the node.
    fn compile(
        &self,
        rules: &[SchemaRule],
        declared: &Schema,
        is_object: bool,
        stored: &StoredExpressions,
    ) -> Result<Vec<CompiledRule>, String>;
}

/// Result of compiling one rule.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CompiledRule {
    /// Maximum cost of one evaluation of the expression.
    pub cost: u64,
    /// Maximum number of values of the node in one object, limited only by the maximum size of a request.
    pub cardinality: u64,
    /// Reason why the expression is refused.
    pub error: Option<RuleError>,
    /// Result for the message expression, if the rule has one.
    pub message: Option<MessageExpression>,
    /// Whether the expression reads the old value.
    pub uses_old_self: bool,
}

/// Reason why an expression is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RuleError {
    /// The expression is missing.
    Required(String),
    /// The expression does not compile or has the wrong type.
    Invalid(String),
}

/// Result of compiling a message expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MessageExpression {
    /// Maximum cost of the expression.
    Cost(u64),
    /// Reason why the expression is refused.
    Refused(String),
}

/// Expressions of the stored definition. These expressions may use all features that are permitted in stored
/// expressions, so an update can keep expressions that an earlier release accepted.
#[derive(Clone, Debug, Default)]
pub struct StoredExpressions {
    /// Sources of the rules.
    pub rules: HashSet<String>,
    /// Sources of the message expressions.
    pub messages: HashSet<String>,
}

impl StoredExpressions {
    /// Collects the expressions of a stored definition.
    pub fn from_definition(definition: &Definition) -> StoredExpressions {
        let mut found = StoredExpressions::default();
        for schema in definition.schemas() {
            walk::each(schema, |node| {
                for rule in &node.validations {
                    found.rules.insert(rule.rule.clone());
                    if !rule.message_expression.is_empty() {
                        found.messages.insert(rule.message_expression.clone());
                    }
                }
            });
        }
        found
    }
}
