//! Tests of refusals: their codes, reasons, messages and details for every verb (docs/api/errors.md,
//! docs/api/paths-and-verbs.md#options, docs/api/writes.md, docs/api/patches.md).

use serde_json::{Value, json};

use crate::fixture::{Fixture, outcome};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creation_is_refused_with_one_reason_at_a_time() {
    let fixture = Fixture::new("create").await;
    fixture.make("$core/configmaps", &[map("taken")]).await;
    let long = "x".repeat(254);
    let manager = "m".repeat(129);
    fixture
        .check(&[
            ("deletion-answers", "POST $core/configmaps", r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#, "201 ConfigMap"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"b"}}"#, "201 ConfigMap"),
            // The body is an object of the endpoint's kind.
            ("create", "POST $core/configmaps", "", "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): …"),
            ("create", "POST $core/configmaps", "[]", "400 BadRequest: …"),
            ("create", "POST $core/configmaps", "null", "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            ("create", "POST $core/configmaps", "{\"metadata\":", "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): …"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"x"}} {}"#, "400 BadRequest: …"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":5}}"#, "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: …"),
            ("create", "POST $core/configmaps", r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}"#, "400 BadRequest: Secret in version \"v1\" cannot be handled as a ConfigMap: …"),
            ("create", "POST $core/configmaps", r#"{"apiVersion":"v1","kind":"ConfigMapList","items":[]}"#, "400 BadRequest: ConfigMapList in version \"v1\" cannot be handled as a ConfigMap: converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion"),
            ("create", "POST $core/configmaps", r#"{"apiVersion":"v1","kind":"List","items":[]}"#, "400 BadRequest: List in version \"v1\" cannot be handled as a ConfigMap: converting (v1.List) to (core.ConfigMap): unknown conversion"),
            ("create", "POST $core/configmaps", r#"{"kind":"Nonsense","apiVersion":"v1","metadata":{"name":"x"}}"#, "400 BadRequest: Nonsense in version \"v1\" cannot be handled as a ConfigMap: no kind \"Nonsense\" is registered for version \"v1\"…"),
            ("create", "POST $autoscaling/horizontalpodautoscalers", r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"x"}}"#, "400 BadRequest: the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"x","namespace":"other"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("create", "POST /api/v1/nodes?dryRun=All", r#"{"metadata":{"name":"x","namespace":"other"}}"#, "201 Node"),
            // The next rows have invalid names.
            ("create", "POST $core/configmaps", r#"{"metadata":{}}"#, "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            ("create", "POST $core/configmaps", "{}", "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"Big"}}"#, "422 Invalid: ConfigMap \"Big\" is invalid: metadata.name: Invalid value: \"Big\": a lowercase RFC 1123 subdomain must consist of…"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"a/b"}}"#, "422 Invalid: ConfigMap \"a/b\" is invalid: …"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":".."}}"#, "422 Invalid: ConfigMap \"..\" is invalid: …"),
            ("create", "POST $core/configmaps", &format!(r#"{{"metadata":{{"name":"{long}"}}}}"#), &format!("422 Invalid: ConfigMap \"{long}\" is invalid: …")),
            ("create", "POST /api/v1/namespaces", r#"{"metadata":{"name":"a.b"}}"#, "422 Invalid: Namespace \"a.b\" is invalid: …"),
            ("create", "POST $rbac/roles", r#"{"metadata":{"name":"Any:Name"},"rules":[]}"#, "201 Role"),
            ("create", "POST $rbac/roles", r#"{"metadata":{"name":"a%b"},"rules":[]}"#, "422 Invalid: Role.rbac.authorization.k8s.io \"a%b\" is invalid: metadata.name: Invalid value: \"a%b\": may not contain '%'"),
            // The next rows have existing objects, absent objects, and fields that only the system sets.
            ("messages", "POST $core/configmaps", r#"{"metadata":{"name":"taken"}}"#, "409 AlreadyExists: configmaps \"taken\" already exists"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"c","resourceVersion":"1"}}"#, "500 -: resourceVersion should not be set on objects to be created"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"taken","resourceVersion":"1"}}"#, "500 -: resourceVersion should not be set on objects to be created"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"Big","resourceVersion":"1"}}"#, "422 Invalid: ConfigMap \"Big\" is invalid: metadata.name: Invalid value: …"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"zero","resourceVersion":"0"}}"#, "201 ConfigMap"),
            ("create", "POST $core/configmaps", r#"{"metadata":{"name":"text","resourceVersion":"x"}}"#, "201 ConfigMap"),
            ("create", "POST $core/configmaps?dryRun=All", r#"{"metadata":{"name":"c","resourceVersion":"1"}}"#, "201 ConfigMap"),
            ("create", "POST $core/configmaps?dryRun=All", r#"{"metadata":{"name":"taken","resourceVersion":"1"}}"#, "409 AlreadyExists: configmaps \"taken\" already exists"),
            ("namespace-lifecycle", "POST /api/v1/namespaces/missing/configmaps", r#"{"metadata":{"name":"a"}}"#, "404 NotFound: namespaces \"missing\" not found"),
            ("namespace-lifecycle", "GET /api/v1/namespaces/missing/configmaps", "", "200 ConfigMapList"),
            // The next rows have invalid options.
            ("options", "POST $core/configmaps?dryRun=Some", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
            ("options", "POST $core/configmaps?dryRun=", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\""),
            ("options", "POST $core/configmaps?fieldValidation=strict", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
            ("options", &format!("POST $core/configmaps?fieldManager={manager}"), r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes"),
            ("options", "POST $core/configmaps?fieldManager=a%09b", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)"),
            ("timeouts-and-limits", "POST $core/configmaps?timeout=soon", r#"{"metadata":{"name":"d"}}"#, "400 BadRequest: invalid timeout specified in the request URL - time: invalid duration \"soon\""),
            ("timeouts-and-limits", "GET $core/configmaps?timeout=", "", "200 ConfigMapList"),
            ("timeouts-and-limits", "POST $core/configmaps?timeout=-1s", r#"{"metadata":{"name":"timely"}}"#, "201 ConfigMap"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_details_name_the_object_of_the_error() {
    let fixture = Fixture::new("details").await;
    fixture.make("$core/configmaps", &[map("a")]).await;
    for (section, request, body, want) in [
        ("status-object", "GET $core/configmaps/x", "", json!({"name": "x", "kind": "configmaps"})),
        (
            "status-object",
            "GET $apps/deployments/x",
            "",
            json!({"name": "x", "group": "apps", "kind": "deployments"}),
        ),
        (
            "messages",
            "POST $core/configmaps",
            r#"{"metadata":{"name":"a"}}"#,
            json!({"name": "a", "kind": "configmaps"}),
        ),
        (
            "messages",
            "PUT $core/configmaps/a",
            r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
            json!({"name": "a", "kind": "configmaps"}),
        ),
        (
            "messages",
            "POST $core/configmaps",
            r#"{"metadata":{}}"#,
            json!({"kind": "ConfigMap", "causes": [{"reason": "FieldValueRequired", "message": "Required value: name or generateName is required", "field": "metadata.name"}]}),
        ),
        (
            "options",
            "POST $core/configmaps?dryRun=x",
            r#"{"metadata":{"name":"q"}}"#,
            json!({"group": "meta.k8s.io", "kind": "CreateOptions", "causes": [{"reason": "FieldValueNotSupported", "message": "Unsupported value: [\"x\"]: supported values: \"All\"", "field": "dryRun"}]}),
        ),
        // The details of a failed precondition of a delete have the kind.
        ("status-object", "DELETE $core/configmaps/a?uid=x", "", json!({"name": "a", "kind": "ConfigMap"})),
        ("messages", "POST $core/configmaps", "{", Value::Null),
    ] {
        let reply = fixture.send(request, body).await;
        assert_eq!(reply.json()["details"], want, "{section} {request}: {}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_three_mebibytes_are_too_large() {
    let fixture = Fixture::new("size").await;
    let body = |bytes: usize| {
        let head = r#"{"metadata":{"name":"big"},"data":{"k":""#;
        format!("{head}{}\"}}}}", "x".repeat(bytes - head.len() - 3))
    };
    let limit = 3 * 1024 * 1024;
    let refused = "413 RequestEntityTooLarge: Request entity too large: limit is 3145728";
    for (request, bytes, want) in [
        ("POST $core/configmaps", limit + 1, Some(refused)),
        ("PUT $core/configmaps/big", limit + 1, Some(refused)),
        ("PATCH $core/configmaps/big", limit + 1, Some(refused)),
        ("DELETE $core/configmaps/big", limit + 1, Some(refused)),
        // The server reads a body at the limit completely, and then validates it.
        ("POST $core/configmaps?dryRun=All", limit, None),
    ] {
        let reply = fixture.send(request, &body(bytes)).await;
        match want {
            Some(want) => assert_eq!(outcome(&reply), want, "timeouts-and-limits {request}"),
            None => assert_ne!(reply.status, 413, "timeouts-and-limits {request}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_and_repeated_fields_are_ignored_warned_about_or_refused() {
    let fixture = Fixture::new("fields").await;
    let body = r#"{"metadata":{"name":"a","colour":"red"},"data":{"k":"v"},"data":{"k":"w"},"extra":1}"#;
    let found = ["unknown field \"metadata.colour\"", "duplicate field \"data\"", "unknown field \"extra\""];
    let warnings: Vec<String> =
        found.iter().map(|text| format!("299 - \"{}\"", text.replace('"', "\\\""))).collect();
    for (section, request, body, warned) in [
        ("options", "POST $core/configmaps?fieldValidation=Ignore&dryRun=All", body, false),
        ("options", "POST $core/configmaps?fieldValidation=Warn&dryRun=All", body, true),
        ("options", "POST $core/configmaps", body, true),
        ("options", "PUT $core/configmaps/a", body, true),
        ("options", "PUT $core/configmaps/a?fieldValidation=Ignore", body, false),
    ] {
        let reply = fixture.send(request, body).await;
        assert!(reply.status == 201 || reply.status == 200, "{section} {request}: {}", reply.text());
        let want = if warned { warnings.clone() } else { Vec::new() };
        let mut got = reply.header_all("warning");
        let mut want = want;
        got.sort();
        want.sort();
        assert_eq!(got, want, "strict-decoding {request}");
        assert_eq!(
            (&reply.json()["extra"], &reply.json()["data"]["k"]),
            (&Value::Null, &json!("w")),
            "strict-decoding {request}"
        );
    }
    let strict = fixture.send("POST $core/configmaps?fieldValidation=Strict", body).await;
    let message = outcome(&strict);
    assert!(message.starts_with("400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: "), "strict-decoding {message}");
    for text in found {
        assert!(message.contains(text), "strict-decoding {message}");
    }
    assert!(strict.header_all("warning").is_empty(), "strict-decoding");
    // The server validates the result of a patch, so the status code is 422.
    let patch = fixture.send("PATCH $core/configmaps/a?fieldValidation=Strict", r#"{"colour":"red"}"#).await;
    let message = outcome(&patch);
    assert!(
        message.starts_with("422 Invalid:  \"\" is invalid: patch: Invalid value: "),
        "patch-requests {message}"
    );
    assert!(message.ends_with("strict decoding error: unknown field \"colour\""), "patch-requests {message}");
    let patch = fixture.send("PATCH $core/configmaps/a", r#"{"colour":"red"}"#).await;
    assert_eq!(patch.header_all("warning"), ["299 - \"unknown field \\\"colour\\\"\""], "patch-requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_patches_fail_as_their_type_prescribes() {
    let fixture = Fixture::new("patch").await;
    fixture.make("$core/configmaps", &[map("a")]).await;
    let json_patch = "PATCH $core/configmaps/a | Content-Type: application/json-patch+json";
    let strategic = "PATCH $core/configmaps/a | Content-Type: application/strategic-merge-patch+json";
    let generic = "422 Invalid: the server rejected our request due to an error in our request";
    let many = format!("[{}]", vec![r#"{"op":"test","path":"/data/k","value":"v"}"#; 10001].join(","));
    fixture
        .check(&[
            ("json-patch", json_patch, r#"[{"op":"add","path":"/data/n","value":"1"}]"#, "200 ConfigMap"),
            ("json-patch", json_patch, r#"[{"op":"remove","path":"/data/none"}]"#, generic),
            ("json-patch", json_patch, r#"[{"op":"test","path":"/data/k","value":"other"}]"#, generic),
            ("json-patch", json_patch, r#"[{"op":"test","path":"/data/none","value":null}]"#, "200 ConfigMap"),
            ("json-patch", json_patch, r#"[{"op":"replace","path":"/data/other","value":"1"}]"#, "200 ConfigMap"),
            ("json-patch", json_patch, r#"{"op":"add"}"#, "400 BadRequest: …"),
            ("json-patch", json_patch, "", "400 BadRequest: …"),
            ("patch-requests", json_patch, &many, "413 RequestEntityTooLarge: Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"),
            ("merge-patch", "PATCH $core/configmaps/a", "{", "400 BadRequest: …"),
            ("patch-requests", "PATCH $core/configmaps/a", r#"{"data":"text"}"#, "422 Invalid:  \"\" is invalid: patch: Invalid value: …"),
            ("strategic-merge-patch", strategic, r#"{"data":{"$patch":"replace","z":"1"}}"#, "200 ConfigMap"),
            ("strategic-merge-patch", strategic, r#"{"data":{"$patch":"explode"}}"#, "500 -: …"),
            ("patch-requests", "PATCH $core/configmaps/a | Content-Type: application/merge-patch+json; charset=utf-8", "{}", "200 ConfigMap"),
        ])
        .await;
    assert_eq!(fixture.get("$core/configmaps/a").await["data"], json!({"z": "1"}), "strategic-merge-patch");
    fixture.send("PATCH $core/configmaps/a", r#"{"data":null}"#).await;
    assert_eq!(fixture.get("$core/configmaps/a").await["data"], Value::Null, "merge-patch");
}
