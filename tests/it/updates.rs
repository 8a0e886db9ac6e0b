//! Updates: fields that the system sets, no-op writes, dry runs and concurrent writers
//! (docs/api/writes.md#create, #update).

use serde_json::{Value, json};

use crate::fixture::{Fixture, outcome, version};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_sets_system_fields() {
    let fixture = Fixture::new("system").await;
    let given = json!({"metadata": {
        "name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "generation": 7,
    }});
    let made = fixture.send("POST $core/configmaps", &given.to_string()).await.json();
    let metadata = &made["metadata"];
    assert_ne!(metadata["uid"], "mine", "system-metadata");
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36), "preparation-and-validation");
    assert!(
        metadata["creationTimestamp"].as_str().is_some_and(|time| !time.starts_with("2001")),
        "system-metadata"
    );
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(metadata[name], Value::Null, "system-metadata {name}");
    }
    assert_eq!(
        metadata["generation"], 7,
        "system-metadata: kinds without generations keep the generation of the request"
    );
    assert_eq!(metadata["namespace"], fixture.ns, "system-metadata");

    // Names are generated from a base of at most 58 bytes.
    for (base, kept) in [("web-".to_owned(), 4), ("x".repeat(100), 58)] {
        let body = json!({"metadata": {"generateName": base}}).to_string();
        let made = fixture.send("POST $core/configmaps", &body).await.json();
        let name = made["metadata"]["name"].as_str().unwrap();
        let (head, suffix) = name.split_at(kept);
        assert_eq!((head, suffix.len()), (&base[..kept], 5), "generated-names {name}");
        assert!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "create {name}");
        assert_eq!(made["metadata"]["generateName"], base);
    }
    // A given name takes precedence over `generateName`.
    let body = json!({"metadata": {"name": "given", "generateName": "web-"}}).to_string();
    assert_eq!(fixture.send("POST $core/configmaps", &body).await.json()["metadata"]["name"], "given");

    // A namespace is labelled with its name, and has a finalizer for its content.
    let namespace = fixture.get("/api/v1/namespaces/$ns").await;
    assert_eq!(
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], fixture.ns,
        "namespace-lifecycle"
    );
    assert_eq!(
        (&namespace["spec"]["finalizers"], &namespace["status"]["phase"]),
        (&json!(["kubernetes"]), &json!("Active"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_validated_against_the_stored_object() {
    let fixture = Fixture::new("update").await;
    fixture.make("$core/configmaps", &[map("a")]).await;
    fixture.make("$lease/leases", &[json!({"metadata": {"name": "l"}})]).await;
    let object = fixture.get("$core/configmaps/a").await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    fixture
        .check(&[
            // The next rows have another name, namespace or kind in the body.
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"b"}}"#, "400 BadRequest: the name of the object (b) does not match the name on the URL (a)"),
            ("update", "PUT $core/configmaps/a", "{}", "400 BadRequest: the name of the object (a based on URL) was undeterminable: name must be provided"),
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","namespace":"other"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("update", "PUT $core/configmaps/a", r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}"#, "400 BadRequest: Secret in version \"v1\" cannot be handled as a ConfigMap: …"),
            ("update", "PUT $core/configmaps/a?dryRun=x", r#"{"metadata":{"name":"a"}}"#, "422 Invalid: UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: …"),
            // Most kinds cannot be created by PUT.
            ("update", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("update", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none","resourceVersion":"5"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("update", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none","uid":"x"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("update", "PUT $core/configmaps/none?dryRun=All", r#"{"metadata":{"name":"none","uid":"x"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("update", "PUT $apps/deployments/none/status", r#"{"metadata":{"name":"none","uid":"x"}}"#, "404 NotFound: deployments.apps \"none\" not found"),
            ("update", "PUT $apps/deployments/none/scale", r#"{"metadata":{"name":"none","uid":"x"}}"#, "404 NotFound: deployments.apps \"none\" not found"),
            ("update", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none","uid":"x","resourceVersion":"5"}}"#, "404 NotFound: configmaps \"none\" not found"),
            // A uid is a precondition if the PUT may create the object.
            ("update", "PUT $lease/leases/none", r#"{"metadata":{"name":"none","uid":"x"}}"#, "409 Conflict: Operation cannot be fulfilled on leases.coordination.k8s.io \"none\": StorageError: invalid object, Code: 4, Key: …"),
            ("deletion-answers", "PUT $lease/leases/m", r#"{"metadata":{"name":"m"}}"#, "201 Lease"),
            ("update", "PUT $rbac/roles/r", r#"{"metadata":{"name":"r"},"rules":[]}"#, "201 Role"),
            ("update", "PUT $core/limitranges/r", r#"{"metadata":{"name":"r"},"spec":{"limits":[]}}"#, "201 LimitRange"),
            ("namespace-lifecycle", "PUT /api/v1/namespaces/missing/configmaps/a", r#"{"metadata":{"name":"a"}}"#, "404 NotFound: configmaps \"a\" not found"),
            // The next rows have a resource version in the body.
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#, "200 ConfigMap"),
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"0"},"data":{"k":"2"}}"#, "200 ConfigMap"),
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"1"},"data":{"k":"3"}}"#, "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"),
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"99999999"}}"#, "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; …"),
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"abc"}}"#, "500 -: strconv.ParseUint: parsing \"abc\": invalid syntax"),
            ("update", "PUT $lease/leases/l", r#"{"metadata":{"name":"l"}}"#, "422 Invalid: leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
            ("update", "PUT $lease/leases/l", r#"{"metadata":{"name":"l","resourceVersion":"0"}}"#, "422 Invalid: leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
            ("update", "PATCH $lease/leases/l", r#"{"spec":{"holderIdentity":"me"}}"#, "200 Lease"),
            ("patch-requests", "PATCH $core/configmaps/a", r#"{"metadata":{"resourceVersion":"1"}}"#, "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; …"),
            ("patch-requests", "PATCH $core/configmaps/none", "{}", "404 NotFound: configmaps \"none\" not found"),
            ("patch-requests", "PATCH $core/configmaps/none", "{", "404 NotFound: configmaps \"none\" not found"),
            ("patch-requests", "PATCH $core/configmaps/none | Content-Type: application/json-patch+json", "{", "404 NotFound: configmaps \"none\" not found"),
            ("patch-requests", "PATCH $apps/deployments/none/scale", "[]", "404 NotFound: deployments.apps \"none\" not found"),
            ("patch-requests", "PATCH $core/configmaps/a", r#"{"metadata":{"name":"b"}}"#, "400 BadRequest: the name of the object (b) does not match the name on the URL (a)"),
            ("patch-requests", "PATCH $core/configmaps/a", r#"{"metadata":{"namespace":"other"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("options", "PATCH $core/configmaps/a?force=true", "{}", "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"),
            ("options", "PATCH $core/configmaps/a?force=true&dryRun=Foo", "{}", "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: [force: Forbidden: may not be specified for non-apply patch, dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"]"),
            ("options", "PATCH $core/configmaps/a?dryRun=Foo | Content-Type: application/apply-patch+yaml", "{}", "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: [fieldManager: Required value: is required for apply patch, dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"]"),
            // The next rows change immutable fields.
            ("update", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","deletionTimestamp":"2030-01-01T00:00:00Z"}}"#, "422 Invalid: ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: …"),
            ("update", "PATCH $core/configmaps/a", r#"{"metadata":{"creationTimestamp":"2030-01-01T00:00:00Z"}}"#, "200 ConfigMap"),
        ])
        .await;
    let wrong = r#"{"metadata":{"name":"a","uid":"other"}}"#;
    let refused = outcome(&fixture.send("PUT $core/configmaps/a", wrong).await);
    let end = format!("Precondition failed: UID in precondition: other, UID in object meta: {uid}");
    assert!(refused.starts_with("409 Conflict: Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: "), "messages {refused}");
    assert!(refused.ends_with(&end), "messages {refused}");
    let now = fixture.get("$core/configmaps/a").await;
    for name in ["creationTimestamp", "uid"] {
        assert_eq!(now["metadata"][name], object["metadata"][name], "what-an-update-keeps {name}");
    }
}

/// For a patch, kube-apiserver looks for duplicates in the result of the patch, after admission.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_owner_references_are_dropped_with_a_warning() {
    let fixture = Fixture::new("owners").await;
    fixture.make("$core/configmaps", &[map("a"), map("p")]).await;
    let uid = fixture.get("$core/configmaps/p").await["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": uid});
    let body = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner, owner]}})
            .to_string()
    };
    let after = " after mutating admission happens";
    for (request, name, when) in [
        ("POST $core/configmaps", "b", ""),
        ("PUT $core/configmaps/a", "a", ""),
        ("PATCH $core/configmaps/a", "a", after),
    ] {
        let reply = fixture.send(request, &body(name)).await;
        assert!(matches!(reply.status, 200 | 201), "{request}: {}", reply.text());
        assert_eq!(reply.json()["metadata"]["ownerReferences"].as_array().unwrap().len(), 1, "{request}");
        let warnings = reply.header_all("warning");
        let begin = format!("299 - \".metadata.ownerReferences contains duplicate entries{when}; ");
        assert!(warnings.len() == 1 && warnings[0].starts_with(&begin), "{request}: {warnings:?}");
    }
}

/// Members that a JSON patch or merge patch adds are decoded in the order of their names. The result of a
/// strategic merge patch is decoded in the order of the fields of the type, and unknown fields are reported
/// in the order of their names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_result_of_a_patch_is_refused_for_its_first_fault() {
    const JSON_PATCH: &str = " | Content-Type: application/json-patch+json";
    const STRATEGIC: &str = " | Content-Type: application/strategic-merge-patch+json";
    let fixture = Fixture::new("faults").await;
    fixture.make("$core/configmaps", &[map("a")]).await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    fixture.make("$apps/deployments", &[deployment]).await;
    let (maps, deployments) = ("PATCH $core/configmaps/a", "PATCH $apps/deployments/d");
    let type_meta = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let no_type = format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {type_meta}"
    );
    let sorted =
        r#"strict decoding error: unknown field "aaa", unknown field "metadata.foo", unknown field "zzz""#;
    let unknown = r#"{"zzz":1,"metadata":{"foo":1},"aaa":2}"#;
    let added = r#"[{"op":"add","path":"/zzz","value":1},{"op":"add","path":"/metadata/foo","value":1},{"op":"add","path":"/aaa","value":2}]"#;
    let mut wrong = Vec::new();
    for (path, media_type, body, end) in [
        (format!("{maps}?fieldValidation=Strict"), "", unknown, sorted),
        (format!("{maps}?fieldValidation=Strict"), JSON_PATCH, added, sorted),
        (format!("{maps}?fieldValidation=Strict"), STRATEGIC, unknown, sorted),
        (
            deployments.to_owned(),
            "",
            r#"{"spec":{"replicas":"x","paused":"y"}}"#,
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.paused of type bool",
        ),
        (
            maps.to_owned(),
            "",
            r#"{"metadata":{"labels":5},"data":{"a":2}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (maps.to_owned(), "", r#"{"apiVersion":"a/b/c"}"#, ": unexpected GroupVersion string: a/b/c"),
        (
            maps.to_owned(),
            "",
            r#"{"kind":2}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (maps.to_owned(), JSON_PATCH, r#"[{"op":"replace","path":"","value":[]}]"#, no_type.as_str()),
        (
            format!("{deployments}?fieldValidation=Strict"),
            STRATEGIC,
            r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","bogus":1}]}}}}"#,
            r#""map[spec:map[template:map[spec:map[]]]]": strict decoding error: unknown field "spec.template.spec.containers[0].bogus""#,
        ),
        (
            deployments.to_owned(),
            STRATEGIC,
            r#"{"spec":{"replicas":1.5}}"#,
            "cannot convert float64 to int32",
        ),
    ] {
        let got = outcome(&fixture.send(&format!("{path}{media_type}"), body).await);
        if !got.starts_with("422 Invalid:  \"\" is invalid: patch: Invalid value: ") || !got.ends_with(end) {
            wrong.push(format!("{path}{media_type} {body}: {got}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let whole = fixture.send(&format!("{deployments}{STRATEGIC}"), r#"{"spec":{"replicas":2.0}}"#).await;
    assert_eq!((whole.status, &whole.json()["spec"]["replicas"]), (200, &json!(2)));
    // A null in an object of a list is dropped.
    let containers =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"k","bogus":null}]}}}}"#;
    let pruned = fixture.send(&format!("{deployments}?fieldValidation=Strict"), containers).await;
    assert_eq!(outcome(&pruned), "200 Deployment");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_no_op_write_is_not_stored() {
    let fixture = Fixture::new("noop").await;
    fixture
        .make(
            "$core/configmaps",
            &[json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}})],
        )
        .await;
    fixture.make("$core/secrets", &[json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}})]).await;
    let before = fixture.get("$core/configmaps/a").await;
    for (request, body) in [
        ("PUT $core/configmaps/a", before.to_string()),
        (
            "PUT $core/configmaps/a",
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}).to_string(),
        ),
        ("PATCH $core/configmaps/a", "{}".to_owned()),
        ("PATCH $core/configmaps/a", json!({"data": {"k": "v", "gone": null}}).to_string()),
        (
            "PATCH $core/configmaps/a | Content-Type: application/json-patch+json",
            r#"[{"op":"test","path":"/data/k","value":"v"}]"#.to_owned(),
        ),
        ("PATCH $core/configmaps/a | Content-Type: application/strategic-merge-patch+json", "{}".to_owned()),
        ("PATCH $core/configmaps/a?dryRun=All", json!({"data": {"k": "other"}}).to_string()),
        ("PUT $core/configmaps/a?dryRun=All", json!({"metadata": {"name": "a"}}).to_string()),
    ] {
        let reply = fixture.send(request, &body).await;
        assert_eq!(
            (reply.status, version(&reply.json())),
            (200, version(&before)),
            "writes-without-effect {request}"
        );
        assert_eq!(fixture.get("$core/configmaps/a").await, before, "writes-without-effect {request}");
    }
    let secret = fixture.version("$core/secrets/s").await;
    fixture.send("PATCH $core/secrets/s", r#"{"stringData":{"k":"v"}}"#).await;
    assert_eq!(
        fixture.version("$core/secrets/s").await,
        secret,
        "validation: an unchanged value in stringData writes nothing"
    );
    fixture.send("PATCH $core/configmaps/a", r#"{"data":{"k":"w"}}"#).await;
    assert!(fixture.version("$core/configmaps/a").await > version(&before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generation_counts_changes_of_the_spec() {
    let fixture = Fixture::new("generation").await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d", "generation": 9}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    fixture.make("$apps/deployments", &[deployment]).await;
    for (request, body, generation) in [
        ("GET $apps/deployments/d", "", 1),
        ("PATCH $apps/deployments/d", r#"{"metadata":{"labels":{"x":"y"}}}"#, 1),
        ("PATCH $apps/deployments/d", r#"{"spec":{"replicas":2}}"#, 2),
        ("PATCH $apps/deployments/d", r#"{"spec":{"replicas":2}}"#, 2),
        ("PATCH $apps/deployments/d", r#"{"metadata":{"generation":40}}"#, 2),
        ("PATCH $apps/deployments/d/status", r#"{"status":{"replicas":1},"spec":{"replicas":7}}"#, 2),
        ("PATCH $apps/deployments/d/status", r#"{"metadata":{"annotations":{"x":"y"}}}"#, 2),
        ("PATCH $apps/deployments/d/scale", r#"{"spec":{"replicas":5}}"#, 3),
        ("PATCH $apps/deployments/d", r#"{"metadata":{"annotations":{"x":"z"}}}"#, 4),
    ] {
        let reply = fixture.send(request, body).await;
        assert_eq!(reply.status, 200, "{request}: {}", reply.text());
        assert_eq!(
            fixture.get("$apps/deployments/d").await["metadata"]["generation"],
            generation,
            "what-an-update-keeps {request} {body}"
        );
    }
    let now = fixture.get("$apps/deployments/d").await;
    assert_eq!((&now["spec"]["replicas"], &now["status"]["replicas"]), (&json!(5), &json!(1)), "validation");
    // A write to the main endpoint keeps the status.
    fixture.send("PATCH $apps/deployments/d", r#"{"status":{"replicas":9}}"#).await;
    assert_eq!(fixture.get("$apps/deployments/d").await["status"]["replicas"], 1, "validation");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_with_the_same_meaning_are_kept_equal() {
    let fixture = Fixture::new("twice").await;
    let pod = json!({"serviceAccount": "builder", "containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let once = json!({"spec": {"restartPolicy": "Never", "containers": pod["containers"]}});
    fixture.make("$core/pods", &[json!({"metadata": {"name": "p"}, "spec": pod})]).await;
    let set = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    fixture.make("$apps/daemonsets", &[json!({"metadata": {"name": "s"}, "spec": set})]).await;
    fixture.make("$batch/jobs", &[json!({"metadata": {"name": "j"}, "spec": {"template": once}})]).await;
    const COUNT: &str = "/metadata/annotations/deprecated.daemonset.template.generation";
    for (request, body, member, expected) in [
        ("GET $core/pods/p", "", "/spec/serviceAccountName", json!("builder")),
        (
            "PATCH $core/pods/p/status",
            r#"{"status":{"podIP":"10.0.0.1"}}"#,
            "/status/podIPs",
            json!([{"ip": "10.0.0.1"}]),
        ),
        (
            "PATCH $core/pods/p/status",
            r#"{"status":{"podIP":null,"podIPs":[{"ip":"10.0.0.2"},{"ip":"fd00::1"}]}}"#,
            "/status/podIP",
            json!("10.0.0.2"),
        ),
        // If a writer sends only the field of the single address, the server changes the list of
        // addresses accordingly.
        (
            "PATCH $core/pods/p/status",
            r#"{"status":{"podIP":"10.0.0.3"}}"#,
            "/status/podIPs",
            json!([{"ip": "10.0.0.3"}]),
        ),
        ("GET $apps/daemonsets/s", "", COUNT, json!("1")),
        ("GET $apps/daemonsets/s", "", "/spec/template/spec/serviceAccountName", json!("builder")),
        ("PATCH $apps/daemonsets/s", r#"{"spec":{"minReadySeconds":5}}"#, COUNT, json!("1")),
        ("PATCH $apps/daemonsets/s", r#"{"metadata":{"annotations":null}}"#, COUNT, json!("1")),
        ("PATCH $apps/daemonsets/s/status", r#"{"metadata":{"annotations":null}}"#, COUNT, json!("1")),
        (
            "PATCH $apps/daemonsets/s",
            r#"{"spec":{"template":{"metadata":{"labels":{"x":"y"}}}}}"#,
            COUNT,
            json!("2"),
        ),
        // The status is sent without the template, from which a job without labels takes its labels.
        (
            "PUT $batch/jobs/j/status",
            r#"{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"j"}}"#,
            "/metadata/labels/job-name",
            json!("j"),
        ),
    ] {
        let reply = fixture.send(request, body).await;
        assert_eq!(reply.status, 200, "{request}: {}", reply.text());
        assert_eq!(reply.json().pointer(member), Some(&expected), "{request} {body}: {}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_does_everything_except_storing() {
    let fixture = Fixture::new("dry").await;
    fixture
        .make(
            "$core/configmaps",
            &[map("a"), json!({"metadata": {"name": "h", "finalizers": ["example.com/hold"]}})],
        )
        .await;
    let before = (fixture.get("$core/configmaps/a").await, fixture.get("$core/configmaps/h").await);
    let made =
        fixture.send("POST $core/configmaps?dryRun=All", r#"{"metadata":{"generateName":"n-"}}"#).await;
    assert_eq!(made.status, 201);
    let metadata = made.json()["metadata"].clone();
    assert!(
        metadata["uid"].is_string()
            && metadata["creationTimestamp"].is_string()
            && metadata["name"].is_string(),
        "dry-run"
    );
    assert_eq!(
        metadata["resourceVersion"],
        Value::Null,
        "dry-run: an object that is not stored has no version"
    );
    let changed = fixture.send("PATCH $core/configmaps/a?dryRun=All", r#"{"data":{"k":"new"}}"#).await.json();
    assert_eq!((&changed["data"]["k"], version(&changed)), (&json!("new"), version(&before.0)), "dry-run");
    let marked = fixture.send("DELETE $core/configmaps/h?dryRun=All", "").await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "dry-run");
    fixture
        .check(&[
            (
                "dry-run",
                "POST $core/configmaps?dryRun=All",
                r#"{"metadata":{"name":"a"}}"#,
                "409 AlreadyExists: configmaps \"a\" already exists",
            ),
            (
                "dry-run",
                "POST $core/configmaps?dryRun=All&dryRun=All",
                r#"{"metadata":{"name":"n"}}"#,
                "201 ConfigMap",
            ),
            (
                "dry-run",
                "PUT $core/configmaps/a?dryRun=All",
                r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
                "409 Conflict: …",
            ),
            ("dry-run", "PUT $lease/leases/l?dryRun=All", r#"{"metadata":{"name":"l"}}"#, "201 Lease"),
            (
                "dry-run",
                "GET $lease/leases/l",
                "",
                "404 NotFound: leases.coordination.k8s.io \"l\" not found",
            ),
            ("dry-run", "DELETE $core/configmaps/a?dryRun=All", "", "200 Success"),
            ("dry-run", "DELETE $core/configmaps?dryRun=All", "", "200 ConfigMapList"),
            (
                "dry-run",
                "POST /api/v1/namespaces?dryRun=All",
                r#"{"metadata":{"name":"dry-never"}}"#,
                "201 Namespace",
            ),
            (
                "dry-run",
                "GET /api/v1/namespaces/dry-never",
                "",
                "404 NotFound: namespaces \"dry-never\" not found",
            ),
            ("dry-run", "DELETE /api/v1/namespaces/$ns?dryRun=All", "", "200 Namespace"),
        ])
        .await;
    let after = (fixture.get("$core/configmaps/a").await, fixture.get("$core/configmaps/h").await);
    assert_eq!(after, before, "dry-run");
    assert_eq!(fixture.get("/api/v1/namespaces/$ns").await["status"]["phase"], "Active", "dry-run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_update_is_a_conflict() {
    let fixture = Fixture::new("race").await;
    fixture.make("$core/configmaps", &[json!({"metadata": {"name": "a"}, "data": {}})]).await;
    // Unconditional patches all succeed, in any order.
    let patches = (0..20).map(|n| {
        let client = fixture.client.another();
        let path = fixture.full("$core/configmaps/a");
        async move { client.patch(&path, "merge", &json!({"data": {format!("k{n}"): "v"}})).await.status }
    });
    let codes = futures_util::future::join_all(patches).await;
    assert!(codes.iter().all(|code| *code == 200), "conditional-commits {codes:?}");
    assert_eq!(
        fixture.get("$core/configmaps/a").await["data"].as_object().unwrap().len(),
        20,
        "conditional-commits"
    );
    // Exactly one of several conditional updates of the same version succeeds.
    let object = fixture.get("$core/configmaps/a").await;
    let puts = (0..10).map(|n| {
        let client = fixture.client.another();
        let path = fixture.full("$core/configmaps/a");
        let mut object = object.clone();
        object["data"] = json!({"winner": n.to_string()});
        async move { client.put(&path, &object).await.status }
    });
    let mut codes = futures_util::future::join_all(puts).await;
    codes.sort_unstable();
    assert_eq!(codes, [200, 409, 409, 409, 409, 409, 409, 409, 409, 409], "conditional-commits");
    // Exactly one of several creations of the same name succeeds.
    let posts = (0..10).map(|_| {
        let client = fixture.client.another();
        let path = fixture.full("$core/configmaps");
        async move { client.post(&path, &json!({"metadata": {"name": "b"}})).await.status }
    });
    let mut codes = futures_util::future::join_all(posts).await;
    codes.sort_unstable();
    assert_eq!(codes[..2], [201, 409], "existing-objects {codes:?}");
}
