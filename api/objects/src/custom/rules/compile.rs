//! Compiles the rules of one node of a schema and estimates their cost.

use std::fmt;

use cel::ast::{CheckedAst, Reference};
use cel::cost::{SizeHints, estimate};
use cel::environment::{Environment, Origin};
use cel::evaluation::Program;
use cel::types::Type;

use super::declaration::Declaration;
use crate::custom::definition::rules::{
    CompiledRule, MessageExpression, RuleCompiler, RuleError, StoredExpressions,
};
use crate::custom::schema::{Schema, SchemaRule};
use crate::expression::base;

/// Rule compiler for the validation of definitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compiler;

impl RuleCompiler for Compiler {
    fn compile(
        &self,
        rules: &[SchemaRule],
        declared: &Schema,
        is_object: bool,
        stored: &StoredExpressions,
    ) -> Result<Vec<CompiledRule>, String> {
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        let Some(declaration) = Declaration::from_schema(declared, is_object) else {
            return Err("unable to convert structural schema to CEL declarations".to_owned());
        };
        let scope = Scope::new(declaration);
        Ok(rules.iter().map(|rule| scope.compile(rule, stored)).collect())
    }
}

/// Compiled programs of a rule.
#[derive(Debug)]
pub(super) struct RulePrograms {
    pub(super) rule: Program,
    pub(super) message: Option<Program>,
    pub(super) uses_old_self: bool,
}

/// Environments of the expressions of one node.
pub struct Scope {
    declaration: Declaration,
    /// Environments by whether the expression is stored (first index), and by whether the old value is
    /// optional (second index).
    environments: [[Environment; 2]; 2],
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("declaration", &self.declaration).finish_non_exhaustive()
    }
}

impl Scope {
    /// Returns the scope for the values of a schema; `None` if expressions cannot access the values.
    /// `is_object` is true for objects with a kind and metadata.
    pub fn from_schema(schema: &Schema, is_object: bool) -> Option<Scope> {
        Declaration::from_schema(schema, is_object).map(Scope::new)
    }

    /// Returns the maximum sizes of the values.
    pub fn sizes(&self) -> &(dyn SizeHints + 'static) {
        &self.declaration
    }

    pub(super) fn new(declaration: Declaration) -> Scope {
        let (of, types) = declaration.types();
        let types = types.shared();
        let environment = |base: &Environment, is_optional: bool| {
            let old = if is_optional { Type::optional(of.clone()) } else { of.clone() };
            let base = base.clone().with_types(types.clone());
            base.with_variable("self", of.clone()).with_variable("oldSelf", old)
        };
        let environments = [base(Origin::New), base(Origin::Stored)]
            .map(|base| [environment(base, false), environment(base, true)]);
        Scope { declaration, environments }
    }

    /// Returns the environment of a rule. `is_stored` is true if the rule is part of a stored definition.
    pub fn environment(&self, is_stored: bool, rule: &SchemaRule) -> &Environment {
        &self.environments[usize::from(is_stored)][usize::from(rule.optional_old_self == Some(true))]
    }

    fn compile(&self, rule: &SchemaRule, stored: &StoredExpressions) -> CompiledRule {
        let mut compiled = CompiledRule::default();
        if rule.rule.trim().is_empty() {
            return compiled;
        }
        let environment = self.environment(stored.rules.contains(&rule.rule), rule);
        match self.expression(environment, &rule.rule, &Type::Bool) {
            Ok((cost, uses_old_self)) => {
                compiled.cost = cost;
                compiled.uses_old_self = uses_old_self;
                compiled.cardinality = self.declaration.cardinality();
            }
            Err(fault) => {
                compiled.error = Some(RuleError::Invalid(match fault {
                    Fault::Compile(issues) => format!("compilation failed: {issues}"),
                    Fault::Type => NO_BOOL.to_owned(),
                    Fault::Program(error) => format!("program instantiation failed: {error}"),
                }));
                return compiled;
            }
        }
        if !rule.message_expression.is_empty() {
            let environment = self.environment(stored.messages.contains(&rule.message_expression), rule);
            compiled.message =
                Some(match self.expression(environment, &rule.message_expression, &Type::String) {
                    Ok((cost, _)) => MessageExpression::Cost(cost),
                    Err(fault) => MessageExpression::Refused(match fault {
                        Fault::Compile(issues) => format!("messageExpression compilation failed: {issues}"),
                        Fault::Type => "messageExpression must evaluate to a string".to_owned(),
                        Fault::Program(error) => format!("messageExpression instantiation failed: {error}"),
                    }),
                });
        }
        compiled
    }

    /// Returns the programs of a rule of a stored definition.
    ///
    /// # Errors
    /// Returns the reason if the rule is refused.
    pub(super) fn programs(&self, rule: &SchemaRule) -> Result<RulePrograms, String> {
        let environment = self.environment(true, rule);
        let program = |text: &str, expected: &Type| {
            let failed = |error: &dyn std::fmt::Display| format!("compilation failed: {error}");
            let checked = environment.compile(text).map_err(|error| failed(&error))?;
            if checked.result_type() != expected {
                return Err(NO_BOOL.to_owned());
            }
            let made = Program::new(&checked, environment);
            let made = made.map_err(|error| format!("program instantiation failed: {error}"))?;
            Ok::<_, String>((made, speaks_of_old_self(&checked)))
        };
        let (made, uses_old_self) = program(&rule.rule, &Type::Bool)?;
        // A message expression that is refused has no effect.
        let message = Some(&rule.message_expression).filter(|text| !text.is_empty());
        let message = message.and_then(|text| program(text, &Type::String).ok()).map(|(program, _)| program);
        Ok(RulePrograms { rule: made, message, uses_old_self })
    }

    /// Returns the maximum cost of an expression, and whether it reads the old value.
    fn expression(
        &self,
        environment: &Environment,
        text: &str,
        expected: &Type,
    ) -> Result<(u64, bool), Fault> {
        let checked = environment.compile(text).map_err(|error| Fault::Compile(error.to_string()))?;
        if checked.result_type() != expected {
            return Err(Fault::Type);
        }
        Program::new(&checked, environment).map_err(|error| Fault::Program(error.to_string()))?;
        let cost = estimate(&checked, &self.declaration);
        Ok((cost.max, speaks_of_old_self(&checked)))
    }
}

const NO_BOOL: &str = "cel expression must evaluate to a bool";

/// Reason why an expression is refused.
enum Fault {
    Compile(String),
    Type,
    Program(String),
}

fn speaks_of_old_self(checked: &CheckedAst) -> bool {
    checked
        .references
        .iter()
        .any(|reference| matches!(reference, Some(Reference::Variable(name)) if &**name == "oldSelf"))
}

#[cfg(test)]
#[path = "compile_test.rs"]
mod tests;
