//! What validation of a definition asks of the expression language: each rule of a schema compiles, and what it would
//! cost.
//!
//! The compiler is handed in, so that definitions are validated without knowing the language. Paths, limits and
//! messages are the business of the validation.

use hashbrown::HashSet;

use super::{Definition, walk};
use crate::objects::custom::schema::{Rule, Schema};

/// Compiles the rules (`x-kubernetes-validations`) of single nodes.
pub trait RuleCompiler: Sync {
    /// Returns the outcome for each rule of a node, in their order. The node is `declared` by this schema,
    /// which is its own but for the kind, the version and the metadata of objects. `is_object` is set where
    /// it is an object with these: the root, or an embedded one. The schema is structural.
    ///
    /// # Errors
    /// Why the language has no type for the node.
    fn compile(
        &self,
        rules: &[Rule],
        declared: &Schema,
        is_object: bool,
        stored: &StoredExpressions,
    ) -> Result<Vec<CompiledRule>, String>;
}

/// What became of one rule.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CompiledRule {
    /// Most that one evaluation of the expression costs.
    pub cost: u64,
    /// How many values of the node one object can have at most, by the size of a request alone.
    pub cardinality: u64,
    /// Why the expression is refused.
    pub error: Option<RuleError>,
    /// The message expression, if the rule has one.
    pub message: Option<MessageExpression>,
    /// The expression speaks of the old value.
    pub uses_old_self: bool,
}

/// Why an expression is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RuleError {
    /// It is missing.
    Required(String),
    /// It does not compile, or has another type than it should.
    Invalid(String),
}

/// What became of a message expression.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MessageExpression {
    /// Most that it costs.
    Cost(u64),
    /// Why it is refused.
    Refused(String),
}

/// Expressions of the stored definition. They are compiled with everything that stored expressions may use, so that an
/// update keeps what an earlier release accepted.
#[derive(Clone, Debug, Default)]
pub struct StoredExpressions {
    /// Rules.
    pub rules: HashSet<String>,
    /// Message expressions.
    pub messages: HashSet<String>,
}

impl StoredExpressions {
    /// Those of a definition.
    pub fn of(definition: &Definition) -> StoredExpressions {
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
