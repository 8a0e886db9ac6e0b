//! Validating policies: decisions on one write, and annotations for its audit event.
//!
//! ```text
//! match conditions ─► validations ─► messages of those that failed ─► decisions
//!                  └► audit annotations ─► annotations
//! ```
//!
//! Validations and their messages share one cost budget. Annotations have a second budget of the same size.
//! Variables are evaluated separately for match conditions, validations, messages and annotations.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use cel::environment::Origin;
use cel::types::Type;
use cel::value::Value;

use super::condition::{ConditionEvaluation, Conditions, Match};
use super::scope::{ExpressionScope, Inputs};
use objects::expression::policy::environment::Variable;
use objects::expression::policy::environment::{
    Declarations, KnownTypes, OptionalVariables, POLICY_COST_MAX,
};
use objects::expression::{Budget, EvaluationFailure, Expression, evaluate};
use values::json::{self, Object};

/// Maximum length of a message that an expression returns, in bytes.
const MESSAGE_BYTES_MAX: usize = 5120;

/// The action if the evaluation of a policy fails.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FailurePolicy {
    /// The write is refused.
    #[default]
    Fail,
    /// The write continues as if the policy allowed the write.
    Ignore,
}

impl FailurePolicy {
    /// Reads the member `failurePolicy` of an object.
    pub fn from_spec(spec: &json::Value) -> FailurePolicy {
        match spec.str_at(&["failurePolicy"]) {
            "Ignore" => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        }
    }
}

/// A compiled validating policy.
#[derive(Debug)]
pub struct Validation {
    failure_policy: FailurePolicy,
    conditions: Conditions,
    variables: Vec<Variable>,
    rules: Vec<Rule>,
    annotations: Vec<Annotation>,
}

#[derive(Debug)]
struct Rule {
    expression: Expression,
    message: Option<String>,
    message_expression: Option<Expression>,
    reason: Option<String>,
}

#[derive(Debug)]
struct Annotation {
    key: String,
    value: Expression,
}

/// The result of one validation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The validation succeeded.
    Admit,
    /// The validation failed.
    Deny {
        /// Message for the client.
        message: String,
        /// Reason of the status.
        reason: Cow<'static, str>,
    },
    /// The validation could not be evaluated.
    Error {
        /// The reason of the failure.
        message: String,
        /// Whether the failure policy turns the error into a refusal.
        is_denied: bool,
    },
}

/// An annotation for the audit event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Annotated {
    /// Key of the annotation, without the policy's name.
    pub key: String,
    /// Value of the annotation, if it has one.
    pub value: Published,
}

/// The outcome of an audit annotation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Published {
    /// The annotation has this value.
    Value(String),
    /// The annotation is left out, because its value is `null` or empty.
    Nothing,
    /// The annotation is left out, because its expression failed and the failure policy ignores failures.
    Excluded(String),
    /// The expression failed, and the failure policy requires an error.
    Error(String),
}

/// The result of a policy for one write.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PolicyResult {
    /// The decision for each validation, in order. If the match conditions fail, the list has a single
    /// decision. If the policy does not match, the list is empty.
    pub decisions: Vec<Decision>,
    /// Duration of each validation.
    pub took: Vec<Duration>,
    /// The outcome of each annotation.
    pub annotations: Vec<Annotated>,
    /// Result of the match conditions, if there are any.
    pub conditions: Option<ConditionEvaluation>,
}

/// Returns the texts of two members of each struct in the member `list` of `spec`.
pub(super) fn pairs<'s>(
    spec: &'s json::Value,
    list: &str,
    first: &'static str,
    second: &'static str,
) -> impl Iterator<Item = (&'s str, &'s str)> {
    let items = spec.get(list).and_then(json::Value::as_array).unwrap_or_default();
    items.iter().map(move |item| (item.str_at(&[first]), item.str_at(&[second])))
}

/// Returns the declarations and compiled variables of a policy.
pub(super) fn declared(
    spec: &json::Value,
    origin: Origin,
    known: KnownTypes,
    extent: OptionalVariables,
) -> (Declarations, Vec<Variable>) {
    let mut declarations = Declarations::new(origin, known).with_variables();
    let variables = declarations.compile_variables(pairs(spec, "variables", "name", "expression"), extent);
    (declarations, variables)
}

impl Validation {
    /// Compiles the spec of a stored policy. Invalid expressions fail when they are evaluated.
    pub fn compile(spec: &json::Value) -> Validation {
        let params = spec.get("paramKind").is_some_and(|kind| !kind.is_null());
        let extent = OptionalVariables { params, authorizer: true };
        let (declarations, variables) = declared(spec, Origin::Stored, KnownTypes::default(), extent);
        let environment = declarations.environment(extent);
        let messages = declarations.environment(OptionalVariables { params, authorizer: false });
        let text = |item: &json::Value, name: &str| {
            Some(item.str_at(&[name])).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let rule = |item: &json::Value| Rule {
            expression: Expression::new(item.str_at(&["expression"]), &environment, &[Type::Bool]),
            message: text(item, "message"),
            message_expression: text(item, "messageExpression")
                .map(|text| Expression::new(&text, &messages, &[Type::String])),
            reason: text(item, "reason"),
        };
        let rules = spec.get("validations").and_then(json::Value::as_array).unwrap_or_default();
        let annotations = pairs(spec, "auditAnnotations", "key", "valueExpression");
        let conditions = pairs(spec, "matchConditions", "name", "expression");
        Validation {
            failure_policy: FailurePolicy::from_spec(spec),
            conditions: Conditions::compile(conditions, &declarations, extent),
            rules: rules.iter().map(rule).collect(),
            annotations: annotations
                .map(|(key, text)| Annotation {
                    key: key.to_owned(),
                    value: Expression::new(text, &environment, &[Type::String, Type::Null]),
                })
                .collect(),
            variables,
        }
    }

    /// Evaluates the policy for a write with one set of parameters.
    pub fn evaluate(&self, inputs: &Inputs<'_>, params: Option<&Object>) -> PolicyResult {
        if self.conditions.is_empty() {
            return self.evaluate_matching(inputs, params);
        }
        let evaluation = matches(&self.conditions, &self.variables, inputs, params);
        let outcome = match &evaluation.outcome {
            Match::Yes => self.evaluate_matching(inputs, params),
            Match::No(_) => PolicyResult::default(),
            Match::Failed(_) if self.failure_policy == FailurePolicy::Ignore => PolicyResult::default(),
            Match::Failed(why) => self.failed(why.clone()),
        };
        PolicyResult { conditions: Some(evaluation), ..outcome }
    }

    fn evaluate_matching(&self, inputs: &Inputs<'_>, params: Option<&Object>) -> PolicyResult {
        let mut took = Vec::with_capacity(self.rules.len());
        let decisions = match self.decide(inputs, params, &mut took) {
            Ok(decisions) => decisions,
            Err(spent) => return self.failed(spent.to_string()),
        };
        match self.annotate(inputs, params) {
            Ok(annotations) => PolicyResult { decisions, took, annotations, conditions: None },
            Err(spent) => self.failed(spent.to_string()),
        }
    }

    fn error(&self, message: String) -> Decision {
        Decision::Error { message, is_denied: self.failure_policy == FailurePolicy::Fail }
    }

    fn failed(&self, message: String) -> PolicyResult {
        PolicyResult { decisions: vec![self.error(message)], ..PolicyResult::default() }
    }

    fn decide(
        &self,
        inputs: &Inputs<'_>,
        params: Option<&Object>,
        took: &mut Vec<Duration>,
    ) -> Result<Vec<Decision>, EvaluationFailure> {
        let mut budget = Budget::new(POLICY_COST_MAX);
        let scope = ExpressionScope::new(inputs, params, &self.variables);
        let open = scope.open();
        let mut decisions = Vec::with_capacity(self.rules.len());
        let mut is_denied = false;
        let mut began = Instant::now();
        for rule in &self.rules {
            let decision = match evaluate(&rule.expression, &open, || scope.take_cost(), &mut budget) {
                Ok(Value::Bool(true)) => Decision::Admit,
                Ok(_) => {
                    is_denied = true;
                    let reason = rule.reason.clone().map_or(Cow::Borrowed("Invalid"), Cow::Owned);
                    Decision::Deny { message: String::new(), reason }
                }
                Err(EvaluationFailure::Evaluation(why)) => self.error(why),
                Err(spent @ EvaluationFailure::OutOfBudget) => return Err(spent),
            };
            decisions.push(decision);
            let now = Instant::now();
            took.push(now - std::mem::replace(&mut began, now));
        }
        if is_denied {
            let messages = self.messages(inputs, params, budget);
            for (at, (decision, rule)) in decisions.iter_mut().zip(&self.rules).enumerate() {
                if let Decision::Deny { message, .. } = decision {
                    let message_of_rule = messages.get(at).cloned().flatten();
                    *message = message_of_rule
                        .or_else(|| rule.own_message())
                        .unwrap_or_else(|| rule.default_message());
                }
            }
        }
        Ok(decisions)
    }

    /// Evaluates the message expressions and returns the message of each rule. If the evaluation exceeds the
    /// remaining budget, no rule gets a message.
    fn messages(
        &self,
        inputs: &Inputs<'_>,
        params: Option<&Object>,
        mut budget: Budget,
    ) -> Vec<Option<String>> {
        let inputs = Inputs { authorizer: None, ..inputs.clone() };
        let scope = ExpressionScope::new(&inputs, params, &self.variables);
        let open = scope.open();
        let mut messages = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            let Some(expression) = &rule.message_expression else {
                messages.push(None);
                continue;
            };
            match evaluate(expression, &open, || scope.take_cost(), &mut budget) {
                Ok(Value::String(text)) => {
                    let text = text.trim();
                    let is_message =
                        !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                    messages.push(is_message.then(|| text.to_owned()));
                }
                Ok(_) | Err(EvaluationFailure::Evaluation(_)) => messages.push(None),
                Err(EvaluationFailure::OutOfBudget) => return Vec::new(),
            }
        }
        messages
    }

    fn annotate(
        &self,
        inputs: &Inputs<'_>,
        params: Option<&Object>,
    ) -> Result<Vec<Annotated>, EvaluationFailure> {
        if self.annotations.is_empty() {
            return Ok(Vec::new());
        }
        let mut budget = Budget::new(POLICY_COST_MAX);
        let inputs = Inputs { authorizer: None, ..inputs.clone() };
        let scope = ExpressionScope::new(&inputs, params, &self.variables);
        let open = scope.open();
        let mut annotations = Vec::with_capacity(self.annotations.len());
        for annotation in &self.annotations {
            let value = match evaluate(&annotation.value, &open, || scope.take_cost(), &mut budget) {
                Ok(Value::String(text)) if !text.trim().is_empty() => {
                    Published::Value(text.trim().to_owned())
                }
                Ok(_) => Published::Nothing,
                Err(EvaluationFailure::Evaluation(why)) if self.failure_policy == FailurePolicy::Fail => {
                    Published::Error(why)
                }
                Err(EvaluationFailure::Evaluation(why)) => Published::Excluded(why),
                Err(spent @ EvaluationFailure::OutOfBudget) => return Err(spent),
            };
            annotations.push(Annotated { key: annotation.key.clone(), value });
        }
        Ok(annotations)
    }
}

impl Rule {
    /// Returns the constant message of the rule, if the policy has one.
    fn own_message(&self) -> Option<String> {
        self.message.as_ref().map(|message| message.trim().to_owned()).filter(|message| !message.is_empty())
    }

    /// Returns the message that is used if the policy defines no message for the rule.
    fn default_message(&self) -> String {
        format!("failed expression: {}", self.expression.text.trim())
    }
}

/// Evaluates the match conditions of a policy. Match conditions cannot read the variable `namespaceObject`.
pub(super) fn matches(
    conditions: &Conditions,
    variables: &[Variable],
    inputs: &Inputs<'_>,
    params: Option<&Object>,
) -> ConditionEvaluation {
    let own = inputs.request.for_conditions();
    let request = own.as_ref().unwrap_or(inputs.request);
    let inputs = Inputs { namespace: None, request, ..inputs.clone() };
    let scope = ExpressionScope::new(&inputs, params, variables);
    conditions.evaluate(&scope.open(), || scope.take_cost())
}
