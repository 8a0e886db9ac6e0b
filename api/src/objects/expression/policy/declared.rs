//! Checks of the expressions in a policy that is about to be stored: each with its path and what is wrong with it.

use cel::environment::{Environment, Origin};
use cel::types::Type;

use super::environment::{Declarations, Extent, Known};
use super::form::{self, Form};
use crate::objects::expression::Expression;

/// The expressions of one policy or webhook, checked one after the other.
pub struct Expressions {
    declarations: Declarations,
    extent: Extent,
}

impl Expressions {
    /// Those of a policy, with or without parameters.
    pub fn new(params: bool) -> Expressions {
        let declarations = Declarations::new(Origin::New, Known::default());
        Expressions { declarations, extent: Extent { params, authorizer: true } }
    }

    /// Declares the variables; what is wrong with each. Call it once, if there are any: after the checks of conditions, which
    /// see none, and before all others.
    pub fn variables<'t>(
        &mut self,
        variables: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Vec<Option<String>> {
        self.declarations = self.declarations.clone().with_variables();
        let compiled = self.declarations.compile_variables(variables, self.extent);
        compiled.iter().map(|variable| fault(&variable.expression)).collect()
    }

    /// Returns a condition: `true` or `false`.
    pub fn condition(&self, text: &str) -> Option<String> {
        self.check(text, self.extent, &[Type::Bool])
    }

    /// Returns a message.
    pub fn message(&self, text: &str) -> Option<String> {
        self.check(text, Extent { authorizer: false, ..self.extent }, &[Type::String])
    }

    /// Returns a value of an audit annotation.
    pub fn annotation(&self, text: &str) -> Option<String> {
        self.check(text, self.extent, &[Type::String, Type::Null])
    }

    /// Returns a mutation.
    pub fn mutation(&self, form: Form, text: &str) -> Option<String> {
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
