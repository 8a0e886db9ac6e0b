//! Tests policies with a small object: decisions, messages, annotations, variables and match conditions.

use std::sync::OnceLock;

use auth::User;
use cel::environment::Origin;

use super::condition::{Conditions, Match};
use super::request::PolicyRequest;
use super::scope::{ExpressionScope, Inputs};
use super::validation::{Decision, Published, Validation};
use crate::writes::plugin::Operation;
use objects::expression::policy::environment::{Declarations, KnownTypes, OptionalVariables};
use values::json::{Object, Value};
use values::testing::object;

fn with_inputs<T>(run: impl FnOnce(&Inputs<'_>) -> T) -> T {
    let user = User::new("alice", ["dev"]);
    let kind = ("apps", "v1", "Deployment");
    let resource = ("apps", "v1", "deployments");
    let request = PolicyRequest {
        operation: Operation::Create,
        kind,
        resource,
        request_kind: kind,
        request_resource: resource,
        subresource: "",
        name: "web",
        namespace: "ns1",
        user: &user,
        dry_run: false,
        options: &Value::Null,
        value: OnceLock::new(),
    };
    let new = object(r#"{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":3}}"#);
    let namespace = object(r#"{"metadata":{"name":"ns1","labels":{"team":"a"}}}"#);
    let inputs = Inputs {
        object: Some(&new),
        old: None,
        namespace: Some(&namespace),
        request: &request,
        authorizer: None,
    };
    run(&inputs)
}

fn spec(text: &str) -> Value {
    Value::Object(object(text))
}

/// Returns the decisions of a policy as text. A decision is `ok`, or the message and the reason of a denial, or
/// `error: …`.
fn decided(policy: &str, params: Option<&Object>) -> String {
    let outcome = with_inputs(|inputs| Validation::compile(&spec(policy)).evaluate(inputs, params));
    let decisions = outcome.decisions.iter().map(|decision| match decision {
        Decision::Admit => "ok".to_owned(),
        Decision::Deny { message, reason } => format!("{message} ({reason})"),
        Decision::Error { message, is_denied } => {
            format!("error{}: {message}", if *is_denied { "" } else { ", ignored" })
        }
    });
    decisions.collect::<Vec<_>>().join("; ")
}

#[test]
fn validations_report_their_own_messages_and_reasons() {
    for (policy, want) in [
        (r#"{"validations":[{"expression":"object.spec.replicas > 1"}]}"#, "ok"),
        (
            r#"{"validations":[{"expression":" false "},{"expression":"false","message":"m","reason":"Forbidden"}]}"#,
            "failed expression: false (Invalid); m (Forbidden)",
        ),
        (
            r#"{"validations":[{"expression":"false","message":"m","messageExpression":"' by ' + object.metadata.name"}]}"#,
            "by web (Invalid)",
        ),
        // A message with more than one line is ignored.
        (
            r#"{"validations":[{"expression":"false","message":"m","messageExpression":"'a\\nb'"}]}"#,
            "m (Invalid)",
        ),
        (
            r#"{"validations":[{"expression":"object.zz == 1"}]}"#,
            "error: expression 'object.zz == 1' resulted in error: no such key: zz",
        ),
        (
            r#"{"failurePolicy":"Ignore","validations":[{"expression":"1"}]}"#,
            "error, ignored: compilation error: must evaluate to bool but got int",
        ),
        (
            r#"{"matchConditions":[{"name":"m","expression":"false"}],"validations":[{"expression":"false"}]}"#,
            "",
        ),
        (
            r#"{"matchConditions":[{"name":"m","expression":"object.zz"}],"validations":[{"expression":"true"}]}"#,
            "error: compilation error: must evaluate to bool but got dyn",
        ),
        (
            r#"{"validations":[{"expression":"oldObject == null && request.userInfo.username == 'alice'"}]}"#,
            "ok",
        ),
        (r#"{"validations":[{"expression":"namespaceObject.metadata.labels.team == 'a'"}]}"#, "ok"),
    ] {
        assert_eq!(decided(policy, None), want, "{policy}");
    }
}

#[test]
fn params_is_declared_only_if_the_policy_has_a_param_kind() {
    let params = object(r#"{"data":{"max":"2"}}"#);
    let rule = r#""validations":[{"expression":"object.spec.replicas <= int(params.data.max)"}]"#;
    let with = format!(r#"{{"paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},{rule}}}"#);
    assert_eq!(
        decided(&with, Some(&params)),
        "failed expression: object.spec.replicas <= int(params.data.max) (Invalid)"
    );
    assert!(decided(&format!("{{{rule}}}"), Some(&params)).contains("undeclared reference to 'params'"));
}

#[test]
fn a_variable_sees_only_earlier_variables_and_is_evaluated_when_read() {
    for (variables, expression, want) in [
        (
            r#"{"name":"a","expression":"2"},{"name":"b","expression":"variables.a + 1"}"#,
            "variables.b == 3",
            "ok",
        ),
        (r#"{"name":"bad","expression":"1 / 0"}"#, "true || variables.bad == 1", "ok"),
        (
            r#"{"name":"bad","expression":"1 / 0"}"#,
            "variables.bad == 1",
            "error: expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: \
             division by zero",
        ),
        // If two variables have the same name, expressions get the last variable. The expression of the last
        // variable can use the first variable.
        (
            r#"{"name":"a","expression":"1"},{"name":"a","expression":"variables.a + 1"}"#,
            "variables.a == 2",
            "ok",
        ),
    ] {
        let policy =
            format!(r#"{{"variables":[{variables}],"validations":[{{"expression":"{expression}"}}]}}"#);
        assert_eq!(decided(&policy, None), want, "{policy}");
    }
}

#[test]
fn a_long_chain_of_variables_is_refused_without_recursion() {
    let mut variables = vec![r#"{"name":"v0","expression":"1"}"#.to_owned()];
    for at in 1..3000 {
        variables.push(format!(r#"{{"name":"v{at}","expression":"variables.v{} + 1"}}"#, at - 1));
    }
    let policy = format!(
        r#"{{"variables":[{}],"validations":[{{"expression":"variables.v20 == 21"}},{{"expression":"variables.v2999 > 0"}}]}}"#,
        variables.join(",")
    );
    let decided = decided(&policy, None);
    assert!(decided.starts_with("ok; error: "), "{decided:.100}");
    assert!(decided.ends_with("nested too deeply"));
}

#[test]
fn audit_annotations_are_strings_or_omitted() {
    for (policy, value, want) in [
        ("Fail", "'v ' + object.metadata.name", Published::Value("v web".to_owned())),
        ("Fail", "null", Published::Nothing),
        ("Fail", "' '", Published::Nothing),
        (
            "Fail",
            "string(object.zz)",
            Published::Error("expression 'string(object.zz)' resulted in error: no such key: zz".to_owned()),
        ),
        (
            "Ignore",
            "string(object.zz)",
            Published::Excluded(
                "expression 'string(object.zz)' resulted in error: no such key: zz".to_owned(),
            ),
        ),
    ] {
        let policy = format!(
            r#"{{"failurePolicy":"{policy}","auditAnnotations":[{{"key":"k","valueExpression":"{value}"}}]}}"#
        );
        let outcome = with_inputs(|inputs| Validation::compile(&spec(&policy)).evaluate(inputs, None));
        assert_eq!(outcome.annotations[0].value, want, "{policy}");
    }
}

#[test]
fn a_false_match_condition_wins_over_a_failing_one() {
    for (conditions, want) in [
        (&["true"][..], Match::Yes),
        (&["1 / 0 > 0", "false"], Match::No("1".to_owned())),
        (&["false", "1 / 0 > 0"], Match::No("0".to_owned())),
        (
            &["1 / 0 > 0", "true"],
            Match::Failed("expression '1 / 0 > 0' resulted in error: division by zero".to_owned()),
        ),
        (
            &["1 / 0 > 0", "1 / 0 > 0", "object.zz == 1"],
            Match::Failed(
                "[expression '1 / 0 > 0' resulted in error: division by zero, expression 'object.zz == 1' resulted in \
                 error: no such key: zz]"
                    .to_owned(),
            ),
        ),
    ] {
        let names: Vec<String> = (0..conditions.len()).map(|at| at.to_string()).collect();
        let pairs = names.iter().map(String::as_str).zip(conditions.iter().copied());
        let declarations = Declarations::new(Origin::Stored, KnownTypes::default());
        let extent = OptionalVariables { params: false, authorizer: true };
        let compiled = Conditions::compile(pairs, &declarations, extent);
        let evaluation = with_inputs(|inputs| {
            let scope = ExpressionScope::new(inputs, None, &[]);
            compiled.evaluate(&scope.open(), || scope.take_cost())
        });
        assert_eq!(evaluation.outcome, want, "{conditions:?}");
    }
}
