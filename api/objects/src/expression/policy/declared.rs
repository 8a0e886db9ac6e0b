//! Checks of the expressions in a policy that is about to be stored. Each check returns the fault of one
//! expression.

use cel::environment::{Environment, Origin};
use cel::types::Type;

use super::environment::{Declarations, Extent, KnownTypes};
use super::form::{self, PatchType};
use crate::expression::Expression;

/// The expressions of one policy or webhook, which are checked in order.
pub struct Expressions {
    declarations: Declarations,
    extent: Extent,
}

impl Expressions {
    /// Creates the checks for a policy with or without parameters.
    pub fn new(params: bool) -> Expressions {
        let declarations = Declarations::new(Origin::New, KnownTypes::default());
        Expressions { declarations, extent: Extent { params, authorizer: true } }
    }

    /// Declares the variables and returns the fault of each. The caller must call this at most once, after
    /// the checks of match conditions, which cannot read variables, and before all other checks.
    pub fn variables<'t>(
        &mut self,
        variables: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Vec<Option<String>> {
        self.declarations = self.declarations.clone().with_variables();
        let compiled = self.declarations.compile_variables(variables, self.extent);
        compiled.iter().map(|variable| fault(&variable.expression)).collect()
    }

    /// Checks a condition, whose value is a boolean, and returns its fault.
    pub fn condition(&self, text: &str) -> Option<String> {
        self.check(text, self.extent, &[Type::Bool])
    }

    /// Checks an expression for a message and returns its fault.
    pub fn message(&self, text: &str) -> Option<String> {
        self.check(text, Extent { authorizer: false, ..self.extent }, &[Type::String])
    }

    /// Checks the value of an audit annotation and returns its fault.
    pub fn annotation(&self, text: &str) -> Option<String> {
        self.check(text, self.extent, &[Type::String, Type::Null])
    }

    /// Checks the expression of a mutation and returns its fault.
    pub fn mutation(&self, form: PatchType, text: &str) -> Option<String> {
        let environment = form::environment(&self.declarations, self.extent);
        fault(&Expression::new(text, &environment, &[form.result()]))
    }

    fn check(&self, text: &str, extent: Extent, wanted: &[Type]) -> Option<String> {
        let environment: Environment = self.declarations.environment(extent);
        fault(&Expression::new(text, &environment, wanted))
    }
}

fn fault(expression: &Expression) -> Option<String> {
    expression.refusal().map(ToString::to_string)
}
