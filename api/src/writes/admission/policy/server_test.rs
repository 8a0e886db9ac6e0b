//! Tests policies with requests to a server: the values that expressions read, and the effects of faulty
//! policies and bindings.

use std::sync::Arc;
use std::time::Duration;

use crate::system::controllers;
use crate::writes::admission::Settings;
use crate::writes::write::server_fixture::TestServer;
use values::json::Value;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// Returns a rule for all operations on these resources.
fn rule(group: &str, version: &str, resources: &str) -> String {
    format!(
        r#""matchConstraints":{{"resourceRules":[{{"operations":["*"],"apiGroups":["{group}"],"apiVersions":["{version}"],"resources":[{resources}]}}]}}"#
    )
}

async fn server() -> TestServer {
    let server = TestServer::admitting(Settings::default().without("ServiceAccount"));
    create(&server, "/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#).await;
    server
}

async fn create(server: &TestServer, path: &str, body: &str) {
    let (code, _, answer) = server.send(&format!("POST {path}"), body).await;
    assert_eq!(code, 201, "{path}: {}", answer.str_at(&["message"]));
}

/// Creates a policy `p` with a binding `b`.
async fn bound(server: &TestServer, kind: &str, spec: &str, binding: &str) {
    let policy = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{{spec}}}}}"#);
    create(server, &format!("{GROUP}/{kind}admissionpolicies"), &policy).await;
    let binding = format!(r#"{{"metadata":{{"name":"b"}},"spec":{{"policyName":"p"{binding}}}}}"#);
    create(server, &format!("{GROUP}/{kind}admissionpolicybindings"), &binding).await;
}

/// Creates a validating policy that refuses everything with this message.
async fn refusing(server: &TestServer, rule: &str, conditions: &str, message: &str) {
    let spec = format!(
        r#"{rule}{conditions},"validations":[{{"expression":"false","messageExpression":"{message}"}}]"#
    );
    bound(server, "validating", &spec, r#","validationActions":["Deny"]"#).await;
}

/// Returns the message of a refusal, without its prefix.
async fn refused(server: &TestServer, request: &str, body: &str) -> String {
    let (_, _, answer) = server.send(request, body).await;
    let message = answer.str_at(&["message"]);
    message.rsplit("denied request: ").next().unwrap_or_default().to_owned()
}

const DEPLOYMENT: &str = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

const SCALER: &str = r#"{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"ReplicationController","name":"x"}}}"#;

#[tokio::test]
async fn policy_expressions_can_use_the_kind_and_namespace_of_the_request() {
    let server = server().await;
    let namespace = "/api/v1/namespaces/n";
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    create(&server, &format!("{namespace}/pods"), pod).await;
    create(&server, &format!("{namespace}/serviceaccounts"), r#"{"metadata":{"name":"s"}}"#).await;
    create(&server, deployments, DEPLOYMENT).await;
    let message = "request.operation + ' ' + request.kind.group + '/' + request.kind.version + '/' + request.kind.kind + \
                   ' in ' + (has(request.namespace) ? request.namespace : '-')";
    let kinds = r#","matchConditions":[{"name":"same","expression":"request.kind == request.requestKind"}]"#;
    refusing(&server, &rule("*", "*", r#""*/*""#), kinds, message).await;
    for (request, body, want) in [
        (format!("POST {namespace}/configmaps"), r#"{"metadata":{"name":"m"}}"#, "CREATE /v1/ConfigMap in n"),
        (
            format!("MERGE {deployments}/d/scale"),
            r#"{"spec":{"replicas":2}}"#,
            "UPDATE autoscaling/v1/Scale in n",
        ),
        (
            format!("MERGE {deployments}/d/status"),
            r#"{"status":{"replicas":2}}"#,
            "UPDATE apps/v1/Deployment in n",
        ),
        (
            format!("POST {namespace}/pods/p/eviction"),
            r#"{"metadata":{"name":"p"}}"#,
            "CREATE policy/v1/Eviction in n",
        ),
        (
            format!("POST {namespace}/pods/p/binding"),
            r#"{"metadata":{"name":"p"},"target":{"name":"x"}}"#,
            "CREATE /v1/Binding in n",
        ),
        (format!("POST {namespace}/pods/p/exec?command=ls"), "", "CONNECT /v1/PodExecOptions in n"),
        (
            format!("POST {namespace}/serviceaccounts/s/token"),
            "{}",
            "CREATE authentication.k8s.io/v1/TokenRequest in n",
        ),
        ("POST /api/v1/nodes".to_owned(), r#"{"metadata":{"name":"x"}}"#, "CREATE /v1/Node in -"),
        ("POST /api/v1/namespaces".to_owned(), r#"{"metadata":{"name":"o"}}"#, "CREATE /v1/Namespace in o"),
        (format!("MERGE {namespace}"), r#"{"metadata":{"labels":{"a":"b"}}}"#, "UPDATE /v1/Namespace in n"),
        (format!("DELETE {namespace}"), "", "DELETE /v1/Namespace in n"),
    ] {
        assert_eq!(refused(&server, &request, body).await, want, "{request}");
    }
}

#[tokio::test]
async fn parameters_of_a_namespace_request_are_looked_up_in_that_namespace() {
    let server = server().await;
    let spec = format!(
        r#"{},"paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},"validations":[{{"expression":"true"}}]"#,
        rule("", "v1", r#""namespaces""#)
    );
    let binding = r#","validationActions":["Deny"],"paramRef":{"name":"c","parameterNotFoundAction":"Deny"}"#;
    bound(&server, "validating", &spec, binding).await;
    let missing =
        "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
    let got = refused(&server, "POST /api/v1/namespaces", r#"{"metadata":{"name":"o"}}"#).await;
    assert_eq!(got, missing);
}

#[tokio::test]
async fn a_policy_receives_the_object_in_the_version_that_it_matched() {
    let scalers = "/apis/autoscaling/v2/namespaces/n/horizontalpodautoscalers";
    let rule = rule("autoscaling", "v1", r#""horizontalpodautoscalers""#);
    let validating = server().await;
    let conditions = r#","matchConditions":[{"name":"c","expression":"request.kind.version == 'v1' && request.resource.version == 'v2' && object.apiVersion == 'autoscaling/v1'"}]"#;
    let message = "object.apiVersion + ' ' + request.kind.version + ' ' + request.resource.version + ' ' + \
                   request.requestResource.version";
    refusing(&validating, &rule, conditions, message).await;
    let got = refused(&validating, &format!("POST {scalers}"), SCALER).await;
    assert_eq!(got, "autoscaling/v1 v1 v1 v2");

    let mutating = server().await;
    let expression = "Object{spec: Object.spec{targetCPUUtilizationPercentage: 42}}";
    let spec = format!(
        r#"{rule},"reinvocationPolicy":"Never","mutations":[{{"patchType":"ApplyConfiguration","applyConfiguration":{{"expression":"{expression}"}}}}]"#
    );
    bound(&mutating, "mutating", &spec, "").await;
    let (code, _, made) = mutating.send(&format!("POST {scalers}"), SCALER).await;
    assert_eq!((code, made.str_at(&["apiVersion"])), (201, "autoscaling/v2"), "{made:?}");
    let metrics = made.at(&["spec", "metrics"]).and_then(Value::as_array).unwrap();
    let target = metrics[0].at(&["resource", "target", "averageUtilization"]).and_then(Value::as_i64);
    assert_eq!(target, Some(42), "{made:?}");
}

#[tokio::test]
async fn policies_see_the_empty_status_that_a_kind_always_has() {
    let server = server().await;
    let message = "!has(object.status) ? 'none' : has(object.status.replicas) ? 'some' : 'empty'";
    refusing(&server, &rule("apps", "v1", r#""deployments""#), "", message).await;
    let given = DEPLOYMENT.replacen("}}}}", r#"}}},"status":{"replicas":1}}"#, 1);
    for body in [DEPLOYMENT, &given] {
        let got = refused(&server, "POST /apis/apps/v1/namespaces/n/deployments", body).await;
        assert_eq!(got, "empty", "{body}");
    }
}

#[tokio::test]
async fn the_result_of_a_mutating_policy_is_normalized_for_its_kind() {
    let config = |text: &str| {
        format!(r#""patchType":"ApplyConfiguration","applyConfiguration":{{"expression":"{text}"}}"#)
    };
    let operation = "[JSONPatch{op: 'add', path: '/stringData', value: {'a': 'b'}}]";
    let patch = format!(r#""patchType":"JSONPatch","jsonPatch":{{"expression":"{operation}"}}"#);
    for ((group, plural, path), body, mutation, at, want) in [
        (
            ("apps", "deployments", "/apis/apps/v1"),
            DEPLOYMENT,
            config("Object{spec: Object.spec{replicas: 3.0}}"),
            ["spec", "replicas"],
            Value::Int(3),
        ),
        (
            ("", "secrets", "/api/v1"),
            r#"{"metadata":{"name":"s"}}"#,
            config("Object{stringData: {'a': 'b'}}"),
            ["data", "a"],
            "Yg==".into(),
        ),
        (("", "secrets", "/api/v1"), r#"{"metadata":{"name":"s"}}"#, patch, ["data", "a"], "Yg==".into()),
    ] {
        let server = server().await;
        let rule = rule(group, "v1", &format!("\"{plural}\""));
        let spec = format!(r#"{rule},"reinvocationPolicy":"Never","mutations":[{{{mutation}}}]"#);
        bound(&server, "mutating", &spec, "").await;
        let (code, _, made) = server.send(&format!("POST {path}/namespaces/n/{plural}"), body).await;
        assert_eq!((code, made.at(&at)), (201, Some(&want)), "{mutation}: {made:?}");
        assert!(made.get("stringData").is_none(), "{mutation}: {made:?}");
    }
}

#[tokio::test]
async fn mutating_policies_are_matched_against_the_object_before_all_mutations() {
    let server = server().await;
    let rule = rule("", "v1", r#""configmaps""#);
    let labelled = rule.replace(
        r#""matchConstraints":{"#,
        r#""matchConstraints":{"objectSelector":{"matchLabels":{"a":"1"}},"#,
    );
    let seen = format!(
        r#"{rule},"matchConditions":[{{"name":"c","expression":"has(object.metadata.labels) && object.metadata.labels.a == '1'"}}]"#
    );
    for (name, matching, label) in [("p1", &rule, "a"), ("p2", &labelled, "b"), ("p3", &seen, "c")] {
        let expression = format!("Object{{metadata: Object.metadata{{labels: {{'{label}': '1'}}}}}}");
        let policy = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{{matching},"reinvocationPolicy":"IfNeeded","mutations":[{{"patchType":"ApplyConfiguration","applyConfiguration":{{"expression":"{expression}"}}}}]}}}}"#
        );
        create(&server, &format!("{GROUP}/mutatingadmissionpolicies"), &policy).await;
        let binding = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"policyName":"{name}"}}}}"#);
        create(&server, &format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await;
    }
    for (labels, want) in [("{}", "a c"), (r#"{"a":"0"}"#, "a c"), (r#"{"a":"1"}"#, "a b c")] {
        let body = format!(r#"{{"metadata":{{"name":"m","labels":{labels}}}}}"#);
        let (_, _, made) = server.send("POST /api/v1/namespaces/n/configmaps?dryRun=All", &body).await;
        let made = made.at(&["metadata", "labels"]).and_then(Value::as_object).unwrap();
        let mut names: Vec<&str> = made.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), want, "{labels}");
    }
}

#[tokio::test]
async fn mutating_policies_can_change_connect_options() {
    let server = server().await;
    let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    create(&server, "/api/v1/namespaces/n/pods", pod).await;
    let spec = format!(
        r#"{},"reinvocationPolicy":"Never","mutations":[{{"patchType":"JSONPatch","jsonPatch":{{"expression":"[JSONPatch{{op: 'add', path: '/container', value: 'other'}}]"}}}}]"#,
        rule("", "v1", r#""pods/exec""#)
    );
    bound(&server, "mutating", &spec, "").await;
    let (code, _, answer) = server.send("POST /api/v1/namespaces/n/pods/p/exec?command=ls", "").await;
    let want = (400, "container other is not valid for pod p");
    assert_eq!((code, answer.str_at(&["message"])), want);
}

#[tokio::test]
async fn errors_of_mutating_policies_are_reported_with_their_causes() {
    let patch = |operation: &str| {
        format!(r#"{{"patchType":"JSONPatch","jsonPatch":{{"expression":"[JSONPatch{{{operation}}}]"}}}}"#)
    };
    let config = |text: &str| {
        format!(r#"{{"patchType":"ApplyConfiguration","applyConfiguration":{{"expression":"{text}"}}}}"#)
    };
    let params = |api_version: &str, kind: &str| {
        format!(r#","paramKind":{{"apiVersion":"{api_version}","kind":"{kind}"}}"#)
    };
    let named = r#","paramRef":{"name":"none","parameterNotFoundAction":"Deny"}"#;
    let nothing = patch("op: 'test', path: '/kind', value: 'X'");
    for (more, binding, mutation, want) in [
        (
            params("v1", "ConfigMap"),
            named,
            nothing.clone(),
            "403 Forbidden policy 'p' with binding 'b' denied request: failed to configure binding: no params found for \
             policy binding with `Deny` parameterNotFoundAction",
        ),
        (
            params("foo.example.com/v1", "Foo"),
            named,
            nothing,
            "403 Forbidden policy \"p\" denied request: failed to configure policy: failed to find resource referenced by \
             paramKind: 'foo.example.com/v1, Kind=Foo'",
        ),
        (
            r#","failurePolicy":"Ignore""#.to_owned(),
            "",
            patch("op: 'add', path: '/spec', value: 'x'"),
            "500 InternalError Internal error occurred: json: cannot unmarshal string",
        ),
        (
            String::new(),
            "",
            patch("op: 'add', path: '/foo', value: 'x'"),
            "500 InternalError Internal error occurred: strict decoding error: unknown field \"foo\"",
        ),
        (
            String::new(),
            "",
            patch("op: 'replace', path: '/kind', value: 'Nope'"),
            "500 InternalError Internal error occurred: no kind \"Nope\" is registered for version \"apps/v1\" in scheme ",
        ),
        (
            String::new(),
            "",
            patch("op: 'replace', path: '/kind', value: 'ReplicaSet'"),
            "500 InternalError Internal error occurred: strict decoding error: unknown field \"spec.",
        ),
        (
            String::new(),
            "",
            patch("op: 'remove', path: '/foo'"),
            "403 Invalid policy 'p' with binding 'b' denied request: JSON Patch: ",
        ),
        (
            String::new(),
            "",
            config("Object{spec: Object.spec{replicas: 3.5}}"),
            "403 Invalid policy 'p' with binding 'b' denied request: unable to convert unstructured object to apps/v1, \
             Kind=Deployment: cannot convert float64 to int32",
        ),
    ] {
        let server = server().await;
        let rule = rule("apps", "v1", r#""deployments""#);
        let spec = format!(r#"{rule},"reinvocationPolicy":"Never"{more},"mutations":[{mutation}]"#);
        bound(&server, "mutating", &spec, binding).await;
        let (code, _, answer) = server.send("POST /apis/apps/v1/namespaces/n/deployments", DEPLOYMENT).await;
        let (reason, message) = (answer.str_at(&["reason"]), answer.str_at(&["message"]));
        let got = format!("{code} {reason} {message}");
        assert!(got.starts_with(want), "{mutation}: {got}");
        let causes = answer.at(&["details", "causes"]).and_then(Value::as_array).unwrap();
        let cause = message.strip_prefix("Internal error occurred: ").unwrap_or(message);
        assert_eq!((causes.len(), causes[0].str_at(&["message"])), (1, cause), "{mutation}");
    }
}

#[tokio::test]
async fn a_mutating_policy_cannot_change_the_type_of_a_custom_object() {
    let server = Arc::new(server().await);
    let _controllers = controllers::start(server.itself(), &controllers::Selection::default());
    let definition = r#"{"metadata":{"name":"things.g.example"},"spec":{"group":"g.example","scope":"Namespaced",
        "names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let things = "/apis/g.example/v1/namespaces/n/things";
    while server.send(&format!("GET {things}"), "").await.0 != 200 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let internal = "500 InternalError Internal error occurred: ";
    for (operation, want) in [
        (
            "op: 'replace', path: '/kind', value: 'Other'",
            "422 Invalid Other.g.example \"t\" is invalid: kind: Invalid value: \"Other\": must be Thing"
                .to_owned(),
        ),
        (
            "op: 'remove', path: '/kind'",
            format!(r#"{internal}Object 'Kind' is missing in '{{"apiVersion":"g.example/v1","metadata":{{"#),
        ),
        (
            "op: 'replace', path: '/apiVersion', value: 'x/v2'",
            format!(
                "{internal}failed to convert object: x/v2, Kind=Thing is unsuitable for converting to \"g.example/v1\""
            ),
        ),
        (
            "op: 'replace', path: '/apiVersion', value: 'g.example/v9'",
            format!(
                "{internal}failed to convert object: request to convert CR from an invalid group/version: g.example/v9"
            ),
        ),
        ("op: 'add', path: '/metadata/labels', value: {'a': 5}", "201".to_owned()),
    ] {
        let rule = rule("g.example", "v1", r#""things""#);
        let spec = format!(
            r#"{rule},"reinvocationPolicy":"Never","mutations":[{{"patchType":"JSONPatch","jsonPatch":{{"expression":"[JSONPatch{{{operation}}}]"}}}}]"#
        );
        bound(&server, "mutating", &spec, "").await;
        let thing = r#"{"apiVersion":"g.example/v1","kind":"Thing","metadata":{"name":"t"}}"#;
        let (code, _, answer) = server.send(&format!("POST {things}"), thing).await;
        let got = format!("{code} {} {}", answer.str_at(&["reason"]), answer.str_at(&["message"]));
        assert!(got.starts_with(&want), "{operation}: {got}");
        for plural in ["mutatingadmissionpolicybindings/b", "mutatingadmissionpolicies/p"] {
            server.send(&format!("DELETE {GROUP}/{plural}"), "").await;
        }
    }
}
