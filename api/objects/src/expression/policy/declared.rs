//! Checks of the expressions of a policy before it is stored. Each check returns the error of one expression.

use cel::environment::{Environment, Origin};
use cel::types::Type;

use super::environment::{Declarations, KnownTypes, OptionalVariables};
use super::mutation_values::{self, PatchType};
use crate::expression::Expression;

/// The expressions of one policy or webhook, which are checked in order.
pub struct Expressions {
    declarations: Declarations,
    extent: OptionalVariables,
}

impl Expressions {
    /// Creates the checks for a policy. `params` is true if the policy has parameters.
    pub fn new(params: bool) -> Expressions {
        let declarations = Declarations::new(Origin::New, KnownTypes::default());
        Expressions { declarations, extent: OptionalVariables { params, authorizer: true } }
    }

    /// Declares the variables and returns the error of each variable. The caller must call this function at
    /// most once. The call must come after the checks of match conditions, which cannot read variables, and
    /// before all other checks.
    pub fn variables<'t>(
        &mut self,
        variables: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Vec<Option<String>> {
        self.declarations = self.declarations.clone().with_variables();
        let compiled = self.declarations.compile_variables(variables, self.extent);
        compiled.iter().map(|variable| fault(&variable.expression)).collect()
    }

    /// Checks a condition, whose value must be a boolean, and returns the error.
    pub fn condition(&self, text: &str) -> Option<String> {
        self.check(text, self.extent, &[Type::Bool])
    }

    /// Checks an expression for a message and returns the error.
    pub fn message(&self, text: &str) -> Option<String> {
        self.check(text, OptionalVariables { authorizer: false, ..self.extent }, &[Type::String])
    }

    /// Checks the expression of an audit annotation and returns the error.
    pub fn annotation(&self, text: &str) -> Option<String> {
        self.check(text, self.extent, &[Type::String, Type::Null])
    }

    /// Checks the expression of a mutation and returns the error.
    pub fn mutation(&self, form: PatchType, text: &str) -> Option<String> {
        let environment = mutation_values::environment(&self.declarations, self.extent);
        fault(&Expression::new(text, &environment, &[form.result()]))
    }

    fn check(&self, text: &str, extent: OptionalVariables, result_types: &[Type]) -> Option<String> {
        let environment: Environment = self.declarations.environment(extent);
        fault(&Expression::new(text, &environment, result_types))
    }
}

fn fault(expression: &Expression) -> Option<String> {
    expression.refusal().map(ToString::to_string)
}
