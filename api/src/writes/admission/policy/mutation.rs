//! Mutating policies: expressions that produce an apply configuration or a JSON patch.
//!
//! ```text
//! Object{…} ─► type names follow the fields ─► tree ─► known fields, nothing atomic ─► merged into the object
//! [JSONPatch{…}] ─► operations ─► applied to the object's tree ─► decoded by its schema, strictly
//! ```
//!
//! If the result of a patch does not have the type of the object, the client gets an internal error,
//! regardless of the failure policy.

use cel::environment::{Environment, Origin};
use cel::value::{Object as ObjectValue, Value};

use super::condition::{ConditionEvaluation, Conditions};
use super::scope::{ExpressionScope, Inputs};
use super::validation::{FailurePolicy, declared, matches, pairs};
use crate::writes::admission::patched::{self, PatchedObjectError};
use objects::apply;
use objects::expression::policy::environment::{KnownTypes, OptionalVariables, POLICY_COST_MAX, Variable};
use objects::expression::policy::mutation_values::{OBJECT, PatchType, environment};
use objects::expression::{Budget, Expression, evaluate, json};
use objects::patch::{self, restore::restore};
use types::schema::conform::conform;
use types::schema::decoded::Decoded;
use types::schema::registry::Registry;
use types::schema::table::Message;
use values::field::go_quote;
use values::json as trees;
use values::json::Object;
use values::status::Status;

/// A compiled mutating policy.
#[derive(Debug)]
pub struct Mutating {
    /// The action if the evaluation of the policy fails.
    pub failure_policy: FailurePolicy,
    /// Whether the policy runs again after later plugins or policies changed the object.
    pub is_reinvoked: bool,
    /// The mutations, in their order.
    pub mutations: Vec<Mutation>,
    conditions: Conditions,
    variables: Vec<Variable>,
}

/// The reason why a mutation was not applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refused {
    /// The mutation cannot be evaluated or applied. The failure policy decides.
    #[error("{0}")]
    Failed(String),
    /// The result does not have the type of the object. The client gets an internal error, regardless of the failure
    /// policy.
    #[error("Internal error occurred: {0}")]
    Broken(String),
    /// The kind of the result is not the kind of the resource.
    #[error("{}", .0.message)]
    Invalid(Box<Status>),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Failed(why)
    }
}

/// The type of the object that a mutation changes.
#[derive(Clone, Copy, Debug)]
pub struct ObjectType<'t> {
    /// The schema of the type.
    pub message: &'t Message,
    /// The served types, which are needed because a patch may turn the object into another type.
    pub registry: &'t Registry,
}

/// A mutation of a policy.
#[derive(Debug)]
pub struct Mutation {
    form: PatchType,
    expression: Expression,
}

impl Mutation {
    /// Compiles a mutation. [`environment`] returns the environment.
    pub fn compile(form: PatchType, text: &str, environment: &Environment) -> Mutation {
        Mutation { form, expression: Expression::new(text, environment, &[form.result()]) }
    }

    /// Returns the expression of the mutation.
    pub fn expression(&self) -> &Expression {
        &self.expression
    }

    /// Applies the mutation and returns the changed object, in the canonical form of its type `of`. This
    /// function subtracts the cost from `budget`.
    ///
    /// # Errors
    /// Fails if the expression fails, or if its result is refused.
    pub fn apply(
        &self,
        scope: &ExpressionScope<'_>,
        open: &super::scope::Open<'_>,
        of: ObjectType<'_>,
        object: &Object,
        budget: &mut Budget,
    ) -> Result<Object, Refused> {
        let value = evaluate(&self.expression, open, || scope.take_cost(), budget);
        let value = value.map_err(|failure| failure.to_string())?;
        match self.form {
            PatchType::ApplyConfiguration => Ok(merged(&value, of.message, object)?),
            PatchType::JsonPatch => patched(&value, of, object),
        }
    }
}

impl Mutating {
    /// Compiles the spec of a stored policy. Invalid expressions fail when they are evaluated.
    pub fn compile(spec: &trees::Value) -> Mutating {
        let params = spec.get("paramKind").is_some_and(|kind| !kind.is_null());
        let extent = OptionalVariables { params, authorizer: true };
        let (declarations, variables) = declared(spec, Origin::Stored, KnownTypes::default(), extent);
        let environment = environment(&declarations, extent);
        let mutations = spec.get("mutations").and_then(trees::Value::as_array).unwrap_or_default();
        let mutation = |mutation: &trees::Value| {
            let form = PatchType::named(mutation.str_at(&["patchType"]));
            Mutation::compile(form, mutation.str_at(&[form.member(), "expression"]), &environment)
        };
        Mutating {
            failure_policy: FailurePolicy::from_spec(spec),
            is_reinvoked: spec.str_at(&["reinvocationPolicy"]) == "IfNeeded",
            mutations: mutations.iter().map(mutation).collect(),
            conditions: Conditions::compile(
                pairs(spec, "matchConditions", "name", "expression"),
                &declarations,
                extent,
            ),
            variables,
        }
    }

    /// Evaluates the match conditions, if there are any.
    pub fn matches(&self, inputs: &Inputs<'_>, params: Option<&Object>) -> Option<ConditionEvaluation> {
        (!self.conditions.is_empty()).then(|| matches(&self.conditions, &self.variables, inputs, params))
    }

    /// Applies one of the mutations and returns the changed object.
    ///
    /// # Errors
    /// Fails in the same cases as [`Mutation::apply`].
    pub fn apply(
        &self,
        mutation: &Mutation,
        inputs: &Inputs<'_>,
        params: Option<&Object>,
        of: ObjectType<'_>,
        object: &Object,
    ) -> Result<Object, Refused> {
        let scope = ExpressionScope::new(inputs, params, &self.variables);
        let open = scope.open();
        mutation.apply(&scope, &open, of, object, &mut Budget::new(POLICY_COST_MAX))
    }
}

/// Merges an apply configuration into an object.
fn merged(value: &Value<'_>, message: &Message, object: &Object) -> Result<Object, String> {
    let mut config = match json::from(value)? {
        trees::Value::Object(config) => config,
        other => return Err(format!("expected an object, got {}", trees::go_print(&other))),
    };
    named_after_fields(value, &mut vec![OBJECT.to_owned()])
        .map_err(|mismatch| format!("type mismatch: {mismatch}"))?;
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name) {
            config.insert(name, value.clone());
        }
    }
    let merged = apply::merge_configuration(message, object, &config);
    let mut merged = trees::Value::from(merged.map_err(|error| format!("error applying patch: {error}"))?);
    if !message.custom {
        restore(message, &mut merged).map_err(|why| unconvertible(&why, object))?;
    }
    Ok(conform(message, merged).map_err(|error| unconvertible(&error.message, object))?.object)
}

/// Returns the error for a merged object that does not match the type of `object`. Such an object exists because the
/// merge accepts numbers with a fraction in integer fields.
fn unconvertible(why: &str, object: &Object) -> String {
    let text = |name: &str| object.get(name).and_then(trees::Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("unable to convert unstructured object to {group}/{version}, Kind={}: {why}", text("kind"))
}

/// Checks that the type name of each nested value matches the path of its field. `names` is the path to
/// `value`. The depth of the recursion is bounded, because the value was converted to a tree before.
fn named_after_fields(value: &Value<'_>, names: &mut Vec<String>) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            let expected = names.join(".");
            if object.type_name() != expected {
                let (found, expected) = (go_quote(object.type_name()), go_quote(&expected));
                return Err(format!(
                    "unexpected type name {found}, expected {expected}, which matches field name path from root Object \
                     type"
                ));
            }
            for field in object.fields() {
                if let Ok(Some(part)) = object.get(&field) {
                    below(&part, &field, names)?;
                }
            }
        }
        Value::Map(map) => {
            for (key, part) in map.iter() {
                if let Value::String(key) = &key {
                    below(&part, key, names)?;
                }
            }
        }
        Value::List(list) => {
            for part in list.iter() {
                named_after_fields(&part, names)?;
            }
        }
        Value::Optional(Some(part)) => named_after_fields(part, names)?,
        _ => {}
    }
    Ok(())
}

fn below(part: &Value<'_>, field: &str, names: &mut Vec<String>) -> Result<(), String> {
    names.push(field.to_owned());
    named_after_fields(part, names)?;
    names.pop();
    Ok(())
}

/// Applies the operations of a JSON patch to an object. Fields that the type of a custom object does not have
/// are dropped.
fn patched(value: &Value<'_>, of: ObjectType<'_>, object: &Object) -> Result<Object, Refused> {
    let Value::List(list) = value else { return Err("type conversion error".to_owned().into()) };
    let operations = list.iter().map(|operation| operation_of(&operation)).collect::<Result<Vec<_>, _>>()?;
    let patched = match patch::apply_operations(trees::Value::Array(operations), object.clone().into()) {
        Ok(patched) => patched,
        Err(patch::Refused::Test(_)) => return Ok(object.clone()),
        Err(refused) => return Err(format!("JSON Patch: {refused}").into()),
    };
    let ObjectType { message, registry } = of;
    let unknown = |strict: &[String]| format!("strict decoding error: {}", strict.join(", "));
    match patched::read(patched, message, object, registry) {
        Ok(read) if read.strict.is_empty() || message.custom => Ok(read.object),
        Ok(Decoded { strict, .. }) => Err(Refused::Broken(unknown(&strict))),
        Err(PatchedObjectError::Undecodable(why)) => Err(Refused::Broken(why)),
        Err(PatchedObjectError::Unconvertible { why, strict }) if strict.is_empty() => {
            Err(Refused::Broken(format!("failed to convert object: {why}")))
        }
        Err(PatchedObjectError::Unconvertible { strict, .. }) => Err(Refused::Broken(unknown(&strict))),
        Err(PatchedObjectError::Invalid(status)) => Err(Refused::Invalid(status)),
    }
}

/// Returns one operation as JSON. If the Go-quoted form of a text is not valid JSON, the text is left out, so
/// that the operation fails later.
fn operation_of(value: &Value<'_>) -> Result<trees::Value, String> {
    let Value::Object(operation) = value else { return Err("type conversion error".to_owned()) };
    let mut members = Object::with_capacity(4);
    for name in ["op", "path", "from"] {
        let text = text_of(operation, name);
        if name == "from" && text.is_empty() {
            continue;
        }
        if let Ok(text) = trees::parse(go_quote(&text).as_bytes()) {
            members.insert(name, text);
        }
    }
    if let Some(value) = operation.get("value").map_err(|error| error.to_string())? {
        let value = json::from(&value).map_err(|why| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
        })?;
        members.insert("value", value);
    }
    Ok(members.into())
}

fn text_of(operation: &ObjectValue<'_>, field: &str) -> String {
    match operation.get(field) {
        Ok(Some(Value::String(text))) => text.to_string(),
        _ => String::new(),
    }
}
