//! Evaluates `policy` lines: expressions of admission policies and match conditions. The inputs are in a file next to
//! the table.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use api::writes::admission::policy::condition::{Conditions, Match};
use api::writes::admission::policy::mutation::{Mutation, ObjectType};
use api::writes::admission::policy::request::PolicyRequest;
use api::writes::admission::policy::scope::{ExpressionScope, Inputs};
use api::writes::admission::policy::typecheck;
use api::writes::admission::policy::validation::{Decision, Published, Validation};
use api::writes::plugin::Operation;
use auth::User;
use cel::environment::Origin;
use cel::library::authorizer::{self, Authorizer};
use cel::types::Type;
use objects::expression::policy::environment::{
    Declarations, KnownTypes, OptionalVariables, POLICY_COST_MAX,
};
use objects::expression::policy::mutation_values::{self, PatchType};
use objects::expression::{Budget, EvaluationFailure, Expression, evaluate};
use serde_json::{Value as Json, json};
use types::schema::conform::conform;
use types::schema::decode::decode;
use types::schema::registry::Registry;
use values::json::{Object, Value as Tree, parse};
use values::naming::KUBERNETES;

use crate::json::{from_value, to_type};

/// The inputs that all lines share.
pub struct Fixture {
    object: Object,
    old: Object,
    namespace: Object,
    params: Object,
    options: Tree,
    user: User,
    authorizer: Arc<dyn Authorizer>,
    registry: Registry,
}

/// Converts a JSON value of a line to a value of the API.
pub fn tree(json: &Json) -> Tree {
    parse(json.to_string().as_bytes()).unwrap_or_default()
}

pub fn object(json: &Json) -> Object {
    tree(json).as_object().cloned().unwrap_or_default()
}

fn texts(json: &Json) -> Vec<String> {
    json.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
}

/// Returns the user that the inputs describe.
pub fn user(json: &Json) -> User {
    let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
    let extra = json["extra"].as_object().into_iter().flatten();
    User {
        name: text("username"),
        uid: text("uid"),
        groups: texts(&json["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

impl Fixture {
    /// Reads the inputs next to a table.
    pub fn next_to(table: &Path) -> std::io::Result<Fixture> {
        let text = std::fs::read_to_string(table.with_file_name("policy-inputs.json"))?;
        let json: Json = serde_json::from_str(&text)?;
        Ok(Fixture {
            object: object(&json["object"]),
            old: object(&json["oldObject"]),
            namespace: object(&json["namespaceObject"]),
            params: object(&json["params"]),
            options: tree(&json["request"]["options"]),
            user: user(&json["user"]),
            authorizer: Arc::new(Rules { is_account: false }),
            registry: Registry::new(&KUBERNETES),
        })
    }

    fn request<'f>(&'f self, operation: &str) -> PolicyRequest<'f> {
        let kind = ("apps", "v1", "Deployment");
        let resource = ("apps", "v1", "deployments");
        PolicyRequest {
            operation: if operation == "UPDATE" { Operation::Update } else { Operation::Create },
            kind,
            resource,
            request_kind: kind,
            request_resource: resource,
            subresource: "",
            name: "web",
            namespace: "ns1",
            user: &self.user,
            dry_run: false,
            options: &self.options,
            value: OnceLock::new(),
        }
    }

    fn inputs<'f>(&'f self, request: &'f PolicyRequest<'f>) -> Inputs<'f> {
        Inputs {
            object: Some(&self.object),
            old: (request.operation == Operation::Update).then_some(&self.old),
            namespace: Some(&self.namespace),
            request,
            authorizer: Some(&self.authorizer),
        }
    }

    /// Returns the output fields of a line; `None` for unknown operations.
    pub fn answer(&self, row: &Json) -> Option<Json> {
        Some(match row["op"].as_str()? {
            "expr" => self.expression(row),
            "validate" => self.validate(row),
            "match" => self.conditions(row),
            "mutate" => self.mutate(row),
            "apiValidate" => self.created(row, "validatingadmissionpolicies"),
            "apiMutate" => self.created(row, "mutatingadmissionpolicies"),
            "typeCheck" => self.type_check(row),
            _ => return None,
        })
    }

    fn expression(&self, row: &Json) -> Json {
        let policy = &row["policy"];
        let extent =
            OptionalVariables { params: policy["params"] == true, authorizer: policy["authorizer"] == true };
        let variables = pairs(&policy["variables"], "name", "expression");
        let mut declarations = Declarations::new(Origin::New, KnownTypes::default());
        if !variables.is_empty() {
            declarations = declarations.with_variables();
        }
        let variables = declarations.compile_variables(variables, extent);
        let returns: Vec<Type> = texts(&row["returns"]).iter().filter_map(|name| to_type(name)).collect();
        let text = row["expr"].as_str().unwrap_or_default();
        let expression = Expression::new(text, &declarations.environment(extent), &returns);
        if let Some(refusal) = expression.refusal() {
            return json!({ "error": refusal.to_string() });
        }
        let of = expression.result_type().map(|of| of.declared().to_string());
        let request = self.request(policy["operation"].as_str().unwrap_or_default());
        let inputs = self.inputs(&request);
        let params = extent.params.then_some(&self.params);
        let scope = ExpressionScope::new(&inputs, params, &variables);
        let open = scope.open();
        let limit = row["budget"].as_u64().unwrap_or(POLICY_COST_MAX);
        let mut budget = Budget::new(limit);
        let result = evaluate(&expression, &open, || scope.take_cost(), &mut budget);
        let mut out = json!({ "type": of });
        if !matches!(result, Err(EvaluationFailure::OutOfBudget)) {
            out["cost"] = (limit - budget.remaining()).into();
        }
        match result {
            Ok(value) => out["result"] = from_value(&value),
            Err(failure) => out["runtimeError"] = failure.to_string().into(),
        }
        out
    }

    fn validate(&self, row: &Json) -> Json {
        let policy = &row["policy"];
        let validation = Validation::compile(&tree(&spec(policy)));
        let request = self.request(policy["operation"].as_str().unwrap_or_default());
        let inputs = self.inputs(&request);
        let params = (policy["params"] == true).then_some(&self.params);
        let outcome = validation.evaluate(&inputs, params);
        let decisions: Vec<Json> = outcome
            .decisions
            .iter()
            .map(|decision| match decision {
                Decision::Admit => json!({"action": "admit", "evaluation": "admit"}),
                Decision::Deny { message, reason } => {
                    json!({"action": "deny", "evaluation": "deny", "message": message, "reason": reason})
                }
                Decision::Error { message, is_denied } => {
                    let action = if *is_denied { "deny" } else { "admit" };
                    json!({"action": action, "evaluation": "error", "message": message})
                }
            })
            .collect();
        let annotations: Vec<Json> = outcome
            .annotations
            .iter()
            .map(|annotation| match &annotation.value {
                Published::Value(value) => {
                    json!({"key": annotation.key, "value": value, "action": "publish"})
                }
                Published::Nothing => json!({"key": annotation.key, "action": "exclude"}),
                Published::Excluded(why) => {
                    json!({"key": annotation.key, "action": "exclude", "error": why})
                }
                Published::Error(why) => json!({"key": annotation.key, "action": "error", "error": why}),
            })
            .collect();
        let mut out = json!({ "decisions": decisions });
        if !annotations.is_empty() {
            out["auditAnnotations"] = annotations.into();
        }
        out
    }

    fn mutate(&self, row: &Json) -> Json {
        let policy = &row["policy"];
        let extent = OptionalVariables { params: true, authorizer: true };
        let mut declarations = Declarations::new(Origin::New, KnownTypes::default()).with_variables();
        let variables = pairs(&policy["variables"], "name", "expression");
        let variables = declarations.compile_variables(variables, extent);
        let form = PatchType::named(policy["patchType"].as_str().unwrap_or_default());
        let environment = mutation_values::environment(&declarations, extent);
        let mutation = Mutation::compile(form, row["expr"].as_str().unwrap_or_default(), &environment);
        let expression = mutation.expression();
        if let Some(refusal) = expression.refusal() {
            return json!({ "error": refusal.to_string() });
        }
        let of = expression.result_type().map(|of| of.declared().to_string());
        let mut out = json!({ "type": of });
        let request = self.request(policy["operation"].as_str().unwrap_or_default());
        let inputs = self.inputs(&request);
        let scope = ExpressionScope::new(&inputs, Some(&self.params), &variables);
        let open = scope.open();
        let mut budget = Budget::new(POLICY_COST_MAX);
        let Some(resource) = self.registry.resource("apps", "v1", "deployments") else { return out };
        let of = ObjectType { message: &resource.table.message, registry: &self.registry };
        let Ok(object) = conform(of.message, self.object.clone().into()) else { return out };
        match mutation.apply(&scope, &open, of, &object.object, &mut budget) {
            Ok(object) => {
                let mut text = Vec::new();
                values::json::write(&object.into(), &mut text);
                out["patched"] = serde_json::from_slice(&text).unwrap_or_default();
            }
            Err(why) => out["runtimeError"] = why.to_string().into(),
        }
        // An expression that failed before its evaluation has no cost.
        let is_evaluated = !out["runtimeError"].as_str().unwrap_or_default().starts_with("expression '");
        if is_evaluated {
            out["cost"] = (POLICY_COST_MAX - budget.remaining()).into();
        }
        out
    }

    /// Returns the field errors of creating a policy with the expressions of the line.
    fn created(&self, row: &Json, plural: &str) -> Json {
        let Some(resource) = self.registry.resource("admissionregistration.k8s.io", "v1", plural) else {
            return Json::Null;
        };
        let object = json!({ "metadata": { "name": "p.example.com" }, "spec": spec(&row["policy"]) });
        let mut object = match decode(&resource.table.message, object.to_string().as_bytes()) {
            Ok(decoded) => decoded.object,
            Err(error) => return json!({ "valid": false, "apiErrors": [error.to_string()] }),
        };
        if let Some(spec) = object.get_mut("spec").and_then(Tree::as_object_mut)
            && plural.starts_with("mutating")
        {
            spec.insert("reinvocationPolicy", "Never".into());
        }
        let errors = objects::validation::create(
            &resource.table,
            objects::validation::Settings::new(&KUBERNETES),
            &object,
        );
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut out = json!({ "valid": errors.is_empty() });
        if !errors.is_empty() {
            out["apiErrors"] = errors.into();
        }
        out
    }

    fn type_check(&self, row: &Json) -> Json {
        let mut spec = spec(&row["policy"]);
        spec["validations"] = json!([{ "expression": row["expr"] }]);
        let warnings = typecheck::check(&tree(&spec), &self.registry);
        let warnings: Vec<String> =
            warnings.iter().map(|warning| format!("{}: {}", warning.field, warning.text)).collect();
        let mut out = json!({ "valid": warnings.is_empty() });
        if !warnings.is_empty() {
            out["warnings"] = warnings.into();
        }
        out
    }

    fn conditions(&self, row: &Json) -> Json {
        let policy = &row["policy"];
        let extent = OptionalVariables { params: false, authorizer: true };
        let declarations = Declarations::new(Origin::Stored, KnownTypes::default());
        let conditions = pairs(&policy["matchConditions"], "name", "expression");
        let conditions = Conditions::compile(conditions, &declarations, extent);
        let request = self.request(policy["operation"].as_str().unwrap_or_default());
        let inputs = Inputs { namespace: None, ..self.inputs(&request) };
        let scope = ExpressionScope::new(&inputs, None, &[]);
        match conditions.evaluate(&scope.open(), || 0).outcome {
            Match::Yes => json!({ "valid": true }),
            Match::No(name) => json!({ "valid": false, "result": name }),
            Match::Failed(_) if policy["failurePolicy"] == "Ignore" => json!({ "valid": false }),
            Match::Failed(why) => json!({ "valid": false, "runtimeError": why }),
        }
    }
}

/// Returns the spec of a policy for deployments, with these expressions.
fn spec(policy: &Json) -> Json {
    let mut spec = policy.clone();
    if policy["params"] == true {
        spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("params");
        spec.remove("operation");
    }
    spec["matchConstraints"] = json!({ "resourceRules": [{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"],
    }]});
    spec
}

fn pairs<'r>(list: &'r Json, first: &str, second: &str) -> Vec<(&'r str, &'r str)> {
    let items = list.as_array().into_iter().flatten();
    items
        .map(|item| (item[first].as_str().unwrap_or_default(), item[second].as_str().unwrap_or_default()))
        .collect()
}

/// The authorizer that the inputs describe.
#[derive(Debug)]
struct Rules {
    is_account: bool,
}

impl Authorizer for Rules {
    fn check(&self, request: &authorizer::Request) -> authorizer::Decision {
        let answer = |allowed, reason: String| authorizer::Decision { allowed, reason, error: None };
        if self.is_account {
            return answer(true, "service account allowed".to_owned());
        }
        match request {
            authorizer::Request::Path { path, .. } if &**path == "/healthz" => {
                answer(true, "path allowed".to_owned())
            }
            authorizer::Request::Path { .. } => answer(false, String::new()),
            authorizer::Request::Resource { resource, .. } if &*resource.resource == "errors" => {
                authorizer::Decision {
                    error: Some("authorizer failed".to_owned()),
                    ..authorizer::Decision::default()
                }
            }
            authorizer::Request::Resource { resource: attributes, verb } => match &**verb {
                "get" if &*attributes.resource == "pods" => {
                    let authorizer::Resource { group, subresource, namespace, name, .. } = attributes;
                    answer(true, format!("ns={namespace} name={name} sub={subresource} group={group}"))
                }
                "list" => answer(true, selectors(attributes)),
                "custom" => answer(
                    true,
                    format!(
                        "{} {} {} {}",
                        attributes.resource, attributes.namespace, attributes.name, attributes.group
                    ),
                ),
                _ => answer(false, "denied by rule".to_owned()),
            },
        }
    }

    fn for_service_account(&self, namespace: &str, name: &str) -> Result<Arc<dyn Authorizer>, String> {
        if name.contains(['_', 'B']) {
            return Err("Invalid service account name".to_owned());
        }
        Ok(Arc::new(Rules { is_account: (namespace, name) == ("ns1", "sa1") }))
    }
}

/// Formats the selectors of a request in the notation of the inputs.
fn selectors(attributes: &authorizer::Resource) -> String {
    let none = || "<nil>".to_owned();
    let (fields, fields_error) =
        match attributes.field_selector.as_deref().map(types::selector::FieldTerms::parse) {
            None => ("[]".to_owned(), none()),
            Some(Ok(terms)) => {
                let terms: Vec<String> =
                    terms.terms().iter().map(|term| format!("{{= {} {}}}", term.label, term.value)).collect();
                (format!("[{}]", terms.join(" ")), none())
            }
            Some(Err(error)) => ("[]".to_owned(), error.into_message()),
        };
    let (labels, labels_error) =
        match attributes.label_selector.as_deref().map(types::selector::LabelSelector::parse) {
            None => (String::new(), none()),
            Some(Ok(selector)) => (selector.to_string(), none()),
            Some(Err(error)) => (String::new(), error.into_message()),
        };
    format!("fields={fields} {fields_error} labels={labels} {labels_error}")
}
