//! The values that expressions read: the values of the write, and `variables`. A variable is evaluated when an
//! expression reads it for the first time.
//!
//! The expression of a variable can use only earlier variables. The cost of evaluating a variable is
//! charged to the first expression that reads the variable.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cel::error::EvalError;
use cel::evaluation::{Activation, Evaluation};
use cel::library::authorizer::{self, Authorizer, Resource};
use cel::value::{HostObject, HostRef, Object as ObjectValue, Value, View};

use super::request::PolicyRequest;
use objects::expression::policy::environment::Variable;
use objects::expression::{self, json};
use values::json::Object;

/// Maximum depth of nested evaluations of variables: the sum of the depths of all expressions that are being
/// evaluated. This limit bounds the stack.
const NESTING_MAX: usize = 1000;

/// The properties of a write that expressions can read.
#[derive(Clone)]
pub struct Inputs<'a> {
    /// The object as it will be stored; `None` for deletions.
    pub object: Option<&'a Object>,
    /// The object as stored before the write; `None` for creations.
    pub old: Option<&'a Object>,
    /// The namespace of the object; `None` for cluster-scoped objects, and for match conditions of webhooks.
    pub namespace: Option<&'a Object>,
    /// The value of the variable `request`.
    pub request: &'a PolicyRequest<'a>,
    /// The authorizer for permission checks of the writer.
    pub authorizer: Option<&'a Arc<dyn Authorizer>>,
}

/// The variables of the expressions of one policy, for one write and one set of parameters.
pub struct ExpressionScope<'a> {
    inputs: &'a Inputs<'a>,
    params: Option<&'a Object>,
    variables: &'a [Variable],
    values: Vec<OnceLock<Result<Value<'a>, EvalError>>>,
    /// Cost of variables that has not been charged to an expression yet.
    unpaid: AtomicU64,
    nesting: AtomicUsize,
    /// A reference to the scope itself, with which the evaluation of a variable reads other variables.
    this: OnceLock<&'a ExpressionScope<'a>>,
}

impl<'a> ExpressionScope<'a> {
    /// Returns a scope without evaluated variables. Call [`ExpressionScope::open`] before you use the scope.
    pub fn new(
        inputs: &'a Inputs<'a>,
        params: Option<&'a Object>,
        variables: &'a [Variable],
    ) -> ExpressionScope<'a> {
        ExpressionScope {
            inputs,
            params,
            variables,
            values: variables.iter().map(|_| OnceLock::new()).collect(),
            unpaid: AtomicU64::new(0),
            nesting: AtomicUsize::new(0),
            this: OnceLock::new(),
        }
    }

    /// Returns the values for an expression that may use all variables of the policy.
    pub fn open(&'a self) -> Open<'a> {
        self.this.get_or_init(|| self);
        Open { scope: self, end: None }
    }

    /// Returns the cost of the variables that were evaluated since the previous call.
    pub fn take_cost(&self) -> u64 {
        self.unpaid.swap(0, Ordering::Relaxed)
    }

    /// Evaluates a variable.
    fn evaluate(
        &self,
        this: &'a ExpressionScope<'a>,
        variable: &'a Variable,
    ) -> Result<Value<'a>, EvalError> {
        let name = values::field::go_quote(&variable.name);
        let program = variable.expression.program();
        let program = program
            .map_err(|why| EvalError::new(format!("composited variable {name} fails to compile: {why}")))?;
        let depth = variable.expression.depth();
        let entered = self.nesting.fetch_add(depth, Ordering::Relaxed);
        let evaluation = if entered + depth > NESTING_MAX {
            let error = EvalError::new("variables that read each other are nested too deeply");
            Evaluation { result: Err(error), cost: 0, steps: 0 }
        } else {
            let open = Open { scope: this, end: Some(variable) };
            expression::run(program, &open)
        };
        self.nesting.fetch_sub(depth, Ordering::Relaxed);
        self.unpaid.fetch_add(evaluation.cost, Ordering::Relaxed);
        evaluation
            .result
            .map_err(|error| EvalError::new(format!("composited variable {name} fails to evaluate: {error}")))
    }
}

/// The values that one expression can use.
pub struct Open<'a> {
    scope: &'a ExpressionScope<'a>,
    /// The variable whose expression is evaluated; the expression can use only the variables before this
    /// variable. `None` means that the expression can use all variables.
    end: Option<&'a Variable>,
}

impl<'a> Activation<'a> for Open<'a> {
    fn variable(&self, name: &str) -> Option<Value<'a>> {
        let Inputs { object, old, namespace, request, authorizer } = self.scope.inputs;
        Some(match name {
            "object" => json::optional(*object),
            "oldObject" => json::optional(*old),
            "request" => json::object(request.value()),
            "namespaceObject" => json::optional(*namespace),
            "params" => json::optional(self.scope.params),
            "variables" => {
                let view: View<'a> = self.end.map(|variable| &variable.place as _);
                Value::Object(ObjectValue::Host(HostRef { node: self.scope, view }))
            }
            "authorizer" => authorizer::authorizer((*authorizer)?.clone()),
            "authorizer.requestResource" => {
                authorizer::resource_authorizer((*authorizer)?.clone(), resource_of(request))
            }
            _ => return None,
        })
    }
}

/// Returns the resource of the request, for permission checks.
fn resource_of(request: &PolicyRequest<'_>) -> Resource {
    let resource = request.request_resource;
    Resource {
        group: resource.0.into(),
        resource: resource.2.into(),
        subresource: request.subresource.into(),
        namespace: request.namespace.into(),
        name: request.name.into(),
        ..Resource::default()
    }
}

impl HostObject for ExpressionScope<'_> {
    fn type_name<'v>(&'v self, _: View<'v>) -> &'v str {
        "kubernetes.variables"
    }

    fn get<'v>(&'v self, view: View<'v>, field: &str) -> Option<Value<'v>> {
        self.try_get(view, field).ok().flatten()
    }

    fn try_get<'v>(&'v self, view: View<'v>, field: &str) -> Result<Option<Value<'v>>, EvalError> {
        let end = view.and_then(|end| end.downcast_ref()).copied().unwrap_or(self.variables.len());
        let Some(variable) = self.variables[..end].iter().rfind(|variable| variable.name == field) else {
            return Ok(None);
        };
        let Some(this) = self.this.get() else { return Ok(None) };
        let cell = &self.values[variable.place];
        // The expression of a variable can use only earlier variables, so no evaluation depends on itself.
        cell.get_or_init(|| self.evaluate(this, &self.variables[variable.place])).clone().map(Some)
    }

    fn is_lazy(&self) -> bool {
        true
    }

    fn fields<'v>(&'v self, view: View<'v>) -> Vec<Cow<'v, str>> {
        let end = view.and_then(|end| end.downcast_ref()).copied().unwrap_or(self.variables.len());
        self.variables[..end].iter().map(|variable| Cow::Borrowed(&*variable.name)).collect()
    }
}
