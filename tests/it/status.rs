//! Codes, reasons, messages and details of every verb (semantics §1, §4.2, §5, §19).

use serde_json::{Value, json};

use crate::place::{Place, names, outcome, version};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creation_is_refused_for_one_reason_at_a_time() {
    let place = Place::new("create").await;
    place.make("$core/configmaps", &[map("taken")]).await;
    let long = "x".repeat(254);
    let manager = "m".repeat(129);
    place
        .check(&[
            ("19.1", "POST $core/configmaps", r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#, "201 ConfigMap"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":"b"}}"#, "201 ConfigMap"),
            // The body is the object of this endpoint.
            ("5.1", "POST $core/configmaps", "", "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): …"),
            ("5.1", "POST $core/configmaps", "[]", "400 BadRequest: …"),
            ("5.1", "POST $core/configmaps", "null", "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            ("5.1", "POST $core/configmaps", "{\"metadata\":", "400 BadRequest: the object provided is unrecognized (must be of type ConfigMap): …"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":"x"}} {}"#, "400 BadRequest: …"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":5}}"#, "400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: …"),
            ("5.1", "POST $core/configmaps", r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}"#, "400 BadRequest: Secret in version \"v1\" cannot be handled as a ConfigMap: …"),
            ("5.1", "POST $core/configmaps", r#"{"kind":"Nonsense","apiVersion":"v1","metadata":{"name":"x"}}"#, "400 BadRequest: Nonsense in version \"v1\" cannot be handled as a ConfigMap: no kind \"Nonsense\" is registered for version \"v1\"…"),
            ("5.1", "POST $autoscaling/horizontalpodautoscalers", r#"{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"x"}}"#, "400 BadRequest: the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":"x","namespace":"other"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("5.1", "POST /api/v1/nodes?dryRun=All", r#"{"metadata":{"name":"x","namespace":"other"}}"#, "201 Node"),
            // Names.
            ("5.1", "POST $core/configmaps", r#"{"metadata":{}}"#, "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            ("5.1", "POST $core/configmaps", "{}", "422 Invalid: ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":"Big"}}"#, "422 Invalid: ConfigMap \"Big\" is invalid: metadata.name: Invalid value: \"Big\": a lowercase RFC 1123 subdomain must consist of…"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":"a/b"}}"#, "422 Invalid: ConfigMap \"a/b\" is invalid: …"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":".."}}"#, "422 Invalid: ConfigMap \"..\" is invalid: …"),
            ("5.1", "POST $core/configmaps", &format!(r#"{{"metadata":{{"name":"{long}"}}}}"#), &format!("422 Invalid: ConfigMap \"{long}\" is invalid: …")),
            ("5.1", "POST /api/v1/namespaces", r#"{"metadata":{"name":"a.b"}}"#, "422 Invalid: Namespace \"a.b\" is invalid: …"),
            ("5.1", "POST $rbac/roles", r#"{"metadata":{"name":"Any:Name"},"rules":[]}"#, "201 Role"),
            ("5.1", "POST $rbac/roles", r#"{"metadata":{"name":"a%b"},"rules":[]}"#, "422 Invalid: Role.rbac.authorization.k8s.io \"a%b\" is invalid: metadata.name: Invalid value: \"a%b\": may not contain '%'"),
            // What exists, what is missing, what only the system may set.
            ("1.3", "POST $core/configmaps", r#"{"metadata":{"name":"taken"}}"#, "409 AlreadyExists: configmaps \"taken\" already exists"),
            ("5.1", "POST $core/configmaps", r#"{"metadata":{"name":"c","resourceVersion":"1"}}"#, "500 -: resourceVersion should not be set on objects to be created"),
            ("5.4", "POST /api/v1/namespaces/missing/configmaps", r#"{"metadata":{"name":"a"}}"#, "404 NotFound: namespaces \"missing\" not found"),
            ("5.4", "GET /api/v1/namespaces/missing/configmaps", "", "200 ConfigMapList"),
            // Options.
            ("4.2", "POST $core/configmaps?dryRun=Some", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""),
            ("4.2", "POST $core/configmaps?dryRun=", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\""),
            ("4.2", "POST $core/configmaps?fieldValidation=strict", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""),
            ("4.2", &format!("POST $core/configmaps?fieldManager={manager}"), r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes"),
            ("4.2", "POST $core/configmaps?fieldManager=a%09b", r#"{"metadata":{"name":"d"}}"#, "422 Invalid: CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Invalid value: \"a\\tb\": invalid character U+0009 (at position 1)"),
            ("3.3", "POST $core/configmaps?timeout=soon", r#"{"metadata":{"name":"d"}}"#, "400 BadRequest: invalid timeout specified in the request URL - time: invalid duration \"soon\""),
            ("3.3", "POST $core/configmaps?timeout=-1s", r#"{"metadata":{"name":"timely"}}"#, "201 ConfigMap"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn details_name_what_the_error_is_about() {
    let place = Place::new("details").await;
    place.make("$core/configmaps", &[map("a")]).await;
    for (section, request, body, want) in [
        ("19.10", "GET $core/configmaps/x", "", json!({"name": "x", "kind": "configmaps"})),
        (
            "19.10",
            "GET $apps/deployments/x",
            "",
            json!({"name": "x", "group": "apps", "kind": "deployments"}),
        ),
        (
            "1.3",
            "POST $core/configmaps",
            r#"{"metadata":{"name":"a"}}"#,
            json!({"name": "a", "kind": "configmaps"}),
        ),
        (
            "1.3",
            "PUT $core/configmaps/a",
            r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
            json!({"name": "a", "kind": "configmaps"}),
        ),
        (
            "1.3",
            "POST $core/configmaps",
            r#"{"metadata":{}}"#,
            json!({"kind": "ConfigMap", "causes": [{"reason": "FieldValueRequired", "message": "Required value: name or generateName is required", "field": "metadata.name"}]}),
        ),
        (
            "4.2",
            "POST $core/configmaps?dryRun=x",
            r#"{"metadata":{"name":"q"}}"#,
            json!({"group": "meta.k8s.io", "kind": "CreateOptions", "causes": [{"reason": "FieldValueNotSupported", "message": "Unsupported value: [\"x\"]: supported values: \"All\"", "field": "dryRun"}]}),
        ),
        // A delete's precondition is about the Kind.
        ("19.10", "DELETE $core/configmaps/a?uid=x", "", json!({"name": "a", "kind": "ConfigMap"})),
        ("1.3", "POST $core/configmaps", "{", Value::Null),
    ] {
        let reply = place.ask(request, body).await;
        assert_eq!(reply.json()["details"], want, "§{section} {request}: {}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_over_three_mebibytes_are_too_large() {
    let place = Place::new("size").await;
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
        // At the limit the body is read, and then judged for what it says.
        ("POST $core/configmaps?dryRun=All", limit, None),
    ] {
        let reply = place.ask(request, &body(bytes)).await;
        match want {
            Some(want) => assert_eq!(outcome(&reply), want, "§3.3 {request}"),
            None => assert_ne!(reply.status, 413, "§3.3 {request}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_system_fills_in_what_belongs_to_it() {
    let place = Place::new("system").await;
    let given = json!({"metadata": {
        "name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "generation": 7,
    }});
    let made = place.ask("POST $core/configmaps", &given.to_string()).await.json();
    let metadata = &made["metadata"];
    assert_ne!(metadata["uid"], "mine", "§5.1 step 5");
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36), "§5.1 step 9");
    assert!(
        metadata["creationTimestamp"].as_str().is_some_and(|time| !time.starts_with("2001")),
        "§5.1 step 5"
    );
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(metadata[name], Value::Null, "§5.1 step 5 {name}");
    }
    assert_eq!(metadata["generation"], 7, "§20.1: kinds that count no generation keep a given one");
    assert_eq!(metadata["namespace"], place.ns, "§5.1 step 5");

    // Names are generated from a base of at most 58 bytes.
    for (base, kept) in [("web-".to_owned(), 4), ("x".repeat(100), 58)] {
        let body = json!({"metadata": {"generateName": base}}).to_string();
        let made = place.ask("POST $core/configmaps", &body).await.json();
        let name = made["metadata"]["name"].as_str().unwrap();
        let (head, suffix) = name.split_at(kept);
        assert_eq!((head, suffix.len()), (&base[..kept], 5), "§19.9 {name}");
        assert!(suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "§5.1 {name}");
        assert_eq!(made["metadata"]["generateName"], base);
    }
    // A given name wins over a base.
    let body = json!({"metadata": {"name": "given", "generateName": "web-"}}).to_string();
    assert_eq!(place.ask("POST $core/configmaps", &body).await.json()["metadata"]["name"], "given");

    // A namespace is labelled with its name, and waits for its content when it goes.
    let namespace = place.get("/api/v1/namespaces/$ns").await;
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], place.ns, "§5.4");
    assert_eq!(
        (&namespace["spec"]["finalizers"], &namespace["status"]["phase"]),
        (&json!(["kubernetes"]), &json!("Active"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_checked_against_what_is_stored() {
    let place = Place::new("update").await;
    place.make("$core/configmaps", &[map("a")]).await;
    place.make("$lease/leases", &[json!({"metadata": {"name": "l"}})]).await;
    let object = place.get("$core/configmaps/a").await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    place
        .check(&[
            // Identity.
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"b"}}"#, "400 BadRequest: the name of the object (b) does not match the name on the URL (a)"),
            ("5.2", "PUT $core/configmaps/a", "{}", "400 BadRequest: the name of the object (a based on URL) was undeterminable: name must be provided"),
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","namespace":"other"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("5.2", "PUT $core/configmaps/a", r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"}}"#, "400 BadRequest: Secret in version \"v1\" cannot be handled as a ConfigMap: …"),
            ("5.2", "PUT $core/configmaps/a?dryRun=x", r#"{"metadata":{"name":"a"}}"#, "422 Invalid: UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: …"),
            // Existence: most kinds are not created by PUT.
            ("5.2", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("5.2", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none","resourceVersion":"5"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("5.2", "PUT $core/configmaps/none", r#"{"metadata":{"name":"none","uid":"x"}}"#, "404 NotFound: configmaps \"none\" not found"),
            ("19.1", "PUT $lease/leases/m", r#"{"metadata":{"name":"m"}}"#, "201 Lease"),
            ("5.2", "PUT $rbac/roles/r", r#"{"metadata":{"name":"r"},"rules":[]}"#, "201 Role"),
            ("5.2", "PUT $core/limitranges/r", r#"{"metadata":{"name":"r"},"spec":{"limits":[]}}"#, "201 LimitRange"),
            ("5.4", "PUT /api/v1/namespaces/missing/configmaps/a", r#"{"metadata":{"name":"a"}}"#, "404 NotFound: namespaces \"missing\" not found"),
            // Versions.
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a"},"data":{"k":"1"}}"#, "200 ConfigMap"),
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"0"},"data":{"k":"2"}}"#, "200 ConfigMap"),
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"1"},"data":{"k":"3"}}"#, "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"),
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"99999999"}}"#, "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; …"),
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","resourceVersion":"abc"}}"#, "500 -: strconv.ParseUint: parsing \"abc\": invalid syntax"),
            ("5.2", "PUT $lease/leases/l", r#"{"metadata":{"name":"l"}}"#, "422 Invalid: Lease.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
            ("5.2", "PUT $lease/leases/l", r#"{"metadata":{"name":"l","resourceVersion":"0"}}"#, "422 Invalid: Lease.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
            ("5.2", "PATCH $lease/leases/l", r#"{"spec":{"holderIdentity":"me"}}"#, "200 Lease"),
            ("6.1", "PATCH $core/configmaps/a", r#"{"metadata":{"resourceVersion":"1"}}"#, "409 Conflict: Operation cannot be fulfilled on configmaps \"a\": the object has been modified; …"),
            ("6.1", "PATCH $core/configmaps/none", "{}", "404 NotFound: configmaps \"none\" not found"),
            ("6.1", "PATCH $core/configmaps/a", r#"{"metadata":{"name":"b"}}"#, "400 BadRequest: the name of the object (b) does not match the name on the URL (a)"),
            ("6.1", "PATCH $core/configmaps/a", r#"{"metadata":{"namespace":"other"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("4.2", "PATCH $core/configmaps/a?force=true", "{}", "422 Invalid: PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"),
            // What cannot be changed.
            ("5.2", "PUT $core/configmaps/a", r#"{"metadata":{"name":"a","deletionTimestamp":"2030-01-01T00:00:00Z"}}"#, "422 Invalid: ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: …"),
            ("5.2", "PATCH $core/configmaps/a", r#"{"metadata":{"creationTimestamp":"2030-01-01T00:00:00Z"}}"#, "200 ConfigMap"),
        ])
        .await;
    let wrong = r#"{"metadata":{"name":"a","uid":"other"}}"#;
    let refused = outcome(&place.ask("PUT $core/configmaps/a", wrong).await);
    let end = format!("Precondition failed: UID in precondition: other, UID in object meta: {uid}");
    assert!(refused.starts_with("409 Conflict: Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: "), "§1.3 {refused}");
    assert!(refused.ends_with(&end), "§1.3 {refused}");
    let now = place.get("$core/configmaps/a").await;
    for name in ["creationTimestamp", "uid"] {
        assert_eq!(now["metadata"][name], object["metadata"][name], "§5.2 step 7 {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_changes_nothing_is_not_written() {
    let place = Place::new("noop").await;
    place
        .make(
            "$core/configmaps",
            &[json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}})],
        )
        .await;
    place.make("$core/secrets", &[json!({"metadata": {"name": "s"}, "data": {"k": "dg=="}})]).await;
    let before = place.get("$core/configmaps/a").await;
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
        let reply = place.ask(request, &body).await;
        assert_eq!((reply.status, version(&reply.json())), (200, version(&before)), "§19.8 {request}");
        assert_eq!(place.get("$core/configmaps/a").await, before, "§19.8 {request}");
    }
    let secret = place.version("$core/secrets/s").await;
    place.ask("PATCH $core/secrets/s", r#"{"stringData":{"k":"v"}}"#).await;
    assert_eq!(place.version("$core/secrets/s").await, secret, "§5.7: the same value, written as text");
    place.ask("PATCH $core/configmaps/a", r#"{"data":{"k":"w"}}"#).await;
    assert!(place.version("$core/configmaps/a").await > version(&before));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generation_counts_changes_of_what_is_wanted() {
    let place = Place::new("generation").await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d", "generation": 9}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    place.make("$apps/deployments", &[deployment]).await;
    for (request, body, generation) in [
        ("GET $apps/deployments/d", "", 1),
        ("PATCH $apps/deployments/d", r#"{"metadata":{"labels":{"x":"y"}}}"#, 1),
        ("PATCH $apps/deployments/d", r#"{"spec":{"replicas":2}}"#, 2),
        ("PATCH $apps/deployments/d", r#"{"spec":{"replicas":2}}"#, 2),
        ("PATCH $apps/deployments/d", r#"{"metadata":{"generation":40}}"#, 2),
        ("PATCH $apps/deployments/d/status", r#"{"status":{"replicas":1},"spec":{"replicas":7}}"#, 2),
        ("PATCH $apps/deployments/d/scale", r#"{"spec":{"replicas":5}}"#, 3),
    ] {
        let reply = place.ask(request, body).await;
        assert_eq!(reply.status, 200, "{request}: {}", reply.text());
        assert_eq!(
            place.get("$apps/deployments/d").await["metadata"]["generation"],
            generation,
            "§5.2 step 7 {request} {body}"
        );
    }
    let now = place.get("$apps/deployments/d").await;
    assert_eq!((&now["spec"]["replicas"], &now["status"]["replicas"]), (&json!(5), &json!(1)), "§5.7");
    // The main endpoint leaves the status alone.
    place.ask("PATCH $apps/deployments/d", r#"{"status":{"replicas":9}}"#).await;
    assert_eq!(place.get("$apps/deployments/d").await["status"]["replicas"], 1, "§5.7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_answers_by_kind_and_by_what_is_left() {
    let place = Place::new("delete").await;
    let held = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/hold"]}});
    place.make("$core/configmaps", &[map("a"), map("b"), map("c"), held("h"), held("i"), held("j")]).await;
    place.make("$core/serviceaccounts", &[json!({"metadata": {"name": "s"}})]).await;
    place
        .make("$core/services", &[json!({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}})])
        .await;
    place.make("$batch/jobs", &[]).await;
    let uid = place.get("$core/configmaps/a").await["metadata"]["uid"].clone();
    let revision = place.version("$core/configmaps/b").await;

    let removed = place.ask("DELETE $core/configmaps/a", "").await.json();
    let want = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "kind": "configmaps", "uid": uid},
    });
    assert_eq!(removed, want, "§5.3 step 6");
    let account = place.version("$core/serviceaccounts/s").await;
    let removed = place.ask("DELETE $core/serviceaccounts/s", "").await.json();
    assert_eq!(removed["kind"], "ServiceAccount", "§5.3 step 6");
    assert!(version(&removed) > account, "§5.3 step 6: the deletion's own revision");

    place
        .check(&[
            ("5.3", "DELETE $core/configmaps/a", "", "404 NotFound: configmaps \"a\" not found"),
            ("5.3", "DELETE $core/services/svc", "", "200 Service"),
            // Preconditions.
            ("1.3", "DELETE $core/configmaps/b?resourceVersion=1", "", &format!("409 Conflict: Operation cannot be fulfilled on ConfigMap \"b\": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({revision}). The object might have been modified")),
            ("1.3", "DELETE $core/configmaps/b?uid=x", "", "409 Conflict: Operation cannot be fulfilled on ConfigMap \"b\": the UID in the precondition (x) does not match the UID in record (…"),
            ("5.3", "DELETE $core/configmaps/b", r#"{"preconditions":{"resourceVersion":"1"}}"#, "409 Conflict: …"),
            ("5.3", "DELETE $core/configmaps/b", r#"{"preconditions":{"uid":"x"}}"#, "409 Conflict: …"),
            ("5.3", "DELETE $core/configmaps/b?uid=x&dryRun=nonsense&gracePeriodSeconds=x", "{}", "200 Success"),
            // Options.
            ("4.2", "DELETE $core/configmaps/c?propagationPolicy=Maybe", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Maybe\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""),
            ("4.2", "DELETE $core/configmaps/c?propagationPolicy=Orphan&orphanDependents=true", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set"),
            ("4.1", "DELETE $core/configmaps/c?gracePeriodSeconds=x", "", "400 BadRequest: strconv.ParseInt: parsing \"x\": invalid syntax"),
            ("4.2", "DELETE $core/configmaps/c?dryRun=x", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""),
            ("4.2", "DELETE $core/configmaps/c", r#"{"kind":"ConfigMap","apiVersion":"v1"}"#, "400 BadRequest: …"),
            ("4.2", "DELETE $core/configmaps/c", r#"{"gracePeriodSeconds":"x"}"#, "400 BadRequest: …"),
            ("4.2", "DELETE $core/configmaps/c", "{", "400 BadRequest: …"),
            ("4.2", "DELETE $core/configmaps/c", r#"{"kind":"DeleteOptions","apiVersion":"v1","color":"blue","dryRun":["All"]}"#, "200 Success"),
            ("5.3", "DELETE $core/configmaps/c?dryRun=All", "", "200 Success"),
            ("5.3", "DELETE $core/configmaps/c?gracePeriodSeconds=-5", "", "200 Success"),
            ("5.3", "GET $core/configmaps/c", "", "404 NotFound: configmaps \"c\" not found"),
            // Held objects: 202 only when told `orphanDependents=false`.
            ("19.1", "DELETE $core/configmaps/h", "", "200 ConfigMap"),
            ("5.3", "DELETE $core/configmaps/h", "", "200 ConfigMap"),
            ("19.1", "DELETE $core/configmaps/i?orphanDependents=false", "", "202 ConfigMap"),
            ("19.1", "DELETE $core/configmaps/j", r#"{"orphanDependents":false}"#, "202 ConfigMap"),
            ("1.3", "POST $core/configmaps", r#"{"metadata":{"name":"h"}}"#, "409 AlreadyExists: object is being deleted: configmaps \"h\" already exists"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizers_make_a_delete_two_phased() {
    let place = Place::new("finalizers").await;
    place
        .make(
            "$core/configmaps",
            &[json!({"metadata": {"name": "a", "finalizers": ["example.com/one", "example.com/two"]}})],
        )
        .await;
    let mut watch = place
        .client
        .watch(
            &place.full("$core/configmaps?watch=1&fieldSelector=metadata.name%3Da&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"),
        )
        .await;
    let marked = place.ask("DELETE $core/configmaps/a", "").await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "§5.3 step 4");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0, "§5.3 step 4");
    let again = place.ask("DELETE $core/configmaps/a", "").await.json();
    assert_eq!(again, marked, "§5.3 step 7: nothing changes");
    place
        .check(&[
            ("5.2", "PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":["example.com/one","example.com/two","example.com/new"]}}"#, "422 Invalid: ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"example.com/new\"}"),
            ("5.2", "PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":["example.com/two"],"deletionTimestamp":null}}"#, "200 ConfigMap"),
            ("5.2", "PATCH $core/configmaps/a", r#"{"data":{"still":"here"}}"#, "200 ConfigMap"),
        ])
        .await;
    assert!(
        place.get("$core/configmaps/a").await["metadata"]["deletionTimestamp"].is_string(),
        "§5.2 step 7"
    );
    let last = place.ask("PATCH $core/configmaps/a", r#"{"metadata":{"finalizers":null}}"#).await;
    assert_eq!(outcome(&last), "200 ConfigMap", "§5.2 step 10");
    assert_eq!(place.ask("GET $core/configmaps/a", "").await.status, 404, "§5.2 step 10");
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(watch.expect().await.0);
    }
    assert_eq!(events, ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"], "§5.3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collection_is_deleted_as_it_was_selected() {
    let place = Place::new("collection").await;
    let labelled = |name: &str, color: &str| json!({"metadata": {"name": name, "labels": {"color": color}}});
    let maps: Vec<Value> = ["a", "b", "c", "d", "e"]
        .iter()
        .map(|name| labelled(name, "red"))
        .chain([labelled("x", "blue")])
        .collect();
    place.make("$core/secrets", &maps).await;
    for (section, request, body, deleted, left) in [
        ("5.3", "DELETE $core/secrets?labelSelector=color%3Dred&dryRun=All", "", "a b c d e", "a b c d e x"),
        ("5.3", "DELETE $core/secrets?labelSelector=color%3Dred&limit=2", "", "a b", "c d e x"),
        ("5.3", "DELETE $core/secrets?fieldSelector=metadata.name%3Dd", "", "d", "c e x"),
        ("5.3", "DELETE $core/secrets?labelSelector=color%3Dgreen", "", "", "c e x"),
        ("4.2", "DELETE $core/secrets?labelSelector=color%3Dred", r#"{"dryRun":["All"]}"#, "c e", "c e x"),
        ("5.3", "DELETE $core/secrets", "", "c e x", ""),
    ] {
        let list = place.ask(request, body).await;
        assert_eq!(outcome(&list), "200 SecretList", "§{section} {request}");
        assert_eq!(names(&list.json()).join(" "), deleted, "§{section} {request}");
        assert_eq!(names(&place.get("$core/secrets").await).join(" "), left, "§{section} {request}");
    }
    place
        .check(&[
            ("5.3", "DELETE $core/secrets?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", "422 Invalid: DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: …"),
            ("8.1", "DELETE $core/secrets?resourceVersionMatch=Exact", "", "422 Invalid: ListOptions.meta.k8s.io \"\" is invalid: …"),
            ("4.3", "DELETE $core/secrets?labelSelector=%21%21", "", "400 BadRequest: …"),
            ("4.3", "DELETE $core/secrets?fieldSelector=data.k%3Dv", "", "400 BadRequest: …"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_does_everything_but_write() {
    let place = Place::new("dry").await;
    place
        .make(
            "$core/configmaps",
            &[map("a"), json!({"metadata": {"name": "h", "finalizers": ["example.com/hold"]}})],
        )
        .await;
    let before = (place.get("$core/configmaps/a").await, place.get("$core/configmaps/h").await);
    let made = place.ask("POST $core/configmaps?dryRun=All", r#"{"metadata":{"generateName":"n-"}}"#).await;
    assert_eq!(made.status, 201);
    let metadata = made.json()["metadata"].clone();
    assert!(
        metadata["uid"].is_string()
            && metadata["creationTimestamp"].is_string()
            && metadata["name"].is_string(),
        "§5.3"
    );
    assert_eq!(metadata["resourceVersion"], Value::Null, "§5.3: nothing has a version that was not stored");
    let changed = place.ask("PATCH $core/configmaps/a?dryRun=All", r#"{"data":{"k":"new"}}"#).await.json();
    assert_eq!((&changed["data"]["k"], version(&changed)), (&json!("new"), version(&before.0)), "§5.3");
    let marked = place.ask("DELETE $core/configmaps/h?dryRun=All", "").await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "§5.3");
    place
        .check(&[
            (
                "5.3",
                "POST $core/configmaps?dryRun=All",
                r#"{"metadata":{"name":"a"}}"#,
                "409 AlreadyExists: configmaps \"a\" already exists",
            ),
            (
                "5.3",
                "POST $core/configmaps?dryRun=All&dryRun=All",
                r#"{"metadata":{"name":"n"}}"#,
                "201 ConfigMap",
            ),
            (
                "5.3",
                "PUT $core/configmaps/a?dryRun=All",
                r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#,
                "409 Conflict: …",
            ),
            ("5.3", "PUT $lease/leases/l?dryRun=All", r#"{"metadata":{"name":"l"}}"#, "201 Lease"),
            ("5.3", "GET $lease/leases/l", "", "404 NotFound: leases.coordination.k8s.io \"l\" not found"),
            ("5.3", "DELETE $core/configmaps/a?dryRun=All", "", "200 Success"),
            ("5.3", "DELETE $core/configmaps?dryRun=All", "", "200 ConfigMapList"),
            (
                "5.3",
                "POST /api/v1/namespaces?dryRun=All",
                r#"{"metadata":{"name":"dry-never"}}"#,
                "201 Namespace",
            ),
            (
                "5.3",
                "GET /api/v1/namespaces/dry-never",
                "",
                "404 NotFound: namespaces \"dry-never\" not found",
            ),
            ("5.3", "DELETE /api/v1/namespaces/$ns?dryRun=All", "", "200 Namespace"),
        ])
        .await;
    let after = (place.get("$core/configmaps/a").await, place.get("$core/configmaps/h").await);
    assert_eq!(after, before, "§5.3");
    assert_eq!(place.get("/api/v1/namespaces/$ns").await["status"]["phase"], "Active", "§5.3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_and_repeated_fields_are_ignored_warned_of_or_refused() {
    let place = Place::new("fields").await;
    let body = r#"{"metadata":{"name":"a","colour":"red"},"data":{"k":"v"},"data":{"k":"w"},"extra":1}"#;
    let found = ["unknown field \"metadata.colour\"", "duplicate field \"data\"", "unknown field \"extra\""];
    let warnings: Vec<String> =
        found.iter().map(|text| format!("299 - \"{}\"", text.replace('"', "\\\""))).collect();
    for (section, request, body, warned) in [
        ("4.2", "POST $core/configmaps?fieldValidation=Ignore&dryRun=All", body, false),
        ("4.2", "POST $core/configmaps?fieldValidation=Warn&dryRun=All", body, true),
        ("4.2", "POST $core/configmaps", body, true),
        ("4.2", "PUT $core/configmaps/a", body, true),
        ("4.2", "PUT $core/configmaps/a?fieldValidation=Ignore", body, false),
    ] {
        let reply = place.ask(request, body).await;
        assert!(reply.status == 201 || reply.status == 200, "§{section} {request}: {}", reply.text());
        let want = if warned { warnings.clone() } else { Vec::new() };
        let mut got = reply.header_all("warning");
        let mut want = want;
        got.sort();
        want.sort();
        assert_eq!(got, want, "§9.5 {request}");
        assert_eq!(
            (&reply.json()["extra"], &reply.json()["data"]["k"]),
            (&Value::Null, &json!("w")),
            "§9.5 {request}"
        );
    }
    let strict = place.ask("POST $core/configmaps?fieldValidation=Strict", body).await;
    let message = outcome(&strict);
    assert!(message.starts_with("400 BadRequest: ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: "), "§9.5 {message}");
    for text in found {
        assert!(message.contains(text), "§9.5 {message}");
    }
    assert!(strict.header_all("warning").is_empty(), "§9.5");
    // In a patch it is the result that is judged, and then the code is 422.
    let patch = place.ask("PATCH $core/configmaps/a?fieldValidation=Strict", r#"{"colour":"red"}"#).await;
    let message = outcome(&patch);
    assert!(message.starts_with("422 Invalid:  \"\" is invalid: patch: Invalid value: "), "§19.14 {message}");
    assert!(message.ends_with("strict decoding error: unknown field \"colour\""), "§6.1 {message}");
    let patch = place.ask("PATCH $core/configmaps/a", r#"{"colour":"red"}"#).await;
    assert_eq!(patch.header_all("warning"), ["299 - \"unknown field \\\"colour\\\"\""], "§6.1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_fail_as_their_form_prescribes() {
    let place = Place::new("patch").await;
    place.make("$core/configmaps", &[map("a")]).await;
    let json_patch = "PATCH $core/configmaps/a | Content-Type: application/json-patch+json";
    let strategic = "PATCH $core/configmaps/a | Content-Type: application/strategic-merge-patch+json";
    let generic = "422 Invalid: the server rejected our request due to an error in our request";
    let many = format!("[{}]", vec![r#"{"op":"test","path":"/data/k","value":"v"}"#; 10001].join(","));
    place
        .check(&[
            ("6.2", json_patch, r#"[{"op":"add","path":"/data/n","value":"1"}]"#, "200 ConfigMap"),
            ("6.2", json_patch, r#"[{"op":"remove","path":"/data/none"}]"#, generic),
            ("6.2", json_patch, r#"[{"op":"test","path":"/data/k","value":"other"}]"#, generic),
            ("6.2", json_patch, r#"[{"op":"test","path":"/data/none","value":null}]"#, "200 ConfigMap"),
            ("20.1", json_patch, r#"[{"op":"replace","path":"/data/other","value":"1"}]"#, "200 ConfigMap"),
            ("6.2", json_patch, r#"{"op":"add"}"#, "400 BadRequest: …"),
            ("6.2", json_patch, "", "400 BadRequest: …"),
            ("19.14", json_patch, &many, "413 RequestEntityTooLarge: Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"),
            ("6.3", "PATCH $core/configmaps/a", "{", "400 BadRequest: …"),
            ("6.1", "PATCH $core/configmaps/a", r#"{"data":"text"}"#, "422 Invalid:  \"\" is invalid: patch: Invalid value: …"),
            ("6.4", strategic, r#"{"data":{"$patch":"replace","z":"1"}}"#, "200 ConfigMap"),
            ("6.4", strategic, r#"{"data":{"$patch":"explode"}}"#, "500 -: …"),
            ("6.1", "PATCH $core/configmaps/a | Content-Type: application/merge-patch+json; charset=utf-8", "{}", "200 ConfigMap"),
        ])
        .await;
    assert_eq!(place.get("$core/configmaps/a").await["data"], json!({"z": "1"}), "§6.4");
    place.ask("PATCH $core/configmaps/a", r#"{"data":null}"#).await;
    assert_eq!(place.get("$core/configmaps/a").await["data"], Value::Null, "§6.3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_end_slowly_and_take_nothing_in_meanwhile() {
    let place = Place::new("ending").await;
    // What holds its content holds the namespace.
    place
        .make("$core/configmaps", &[json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}})])
        .await;
    place
        .check(&[
            (
                "5.4",
                "DELETE /api/v1/namespaces/default",
                "",
                "403 Forbidden: namespaces \"default\" is forbidden: this namespace may not be deleted",
            ),
            (
                "5.4",
                "DELETE /api/v1/namespaces/kube-system",
                "",
                "403 Forbidden: namespaces \"kube-system\" is forbidden: this namespace may not be deleted",
            ),
            (
                "5.4",
                "DELETE /api/v1/namespaces/kube-public",
                "",
                "403 Forbidden: namespaces \"kube-public\" is forbidden: this namespace may not be deleted",
            ),
            (
                "5.4",
                "DELETE /api/v1/namespaces/missing",
                "",
                "404 NotFound: namespaces \"missing\" not found",
            ),
            // Held, so that it cannot end while the rows below look at it.
            (
                "5.4",
                "PATCH /api/v1/namespaces/$ns",
                r#"{"metadata":{"finalizers":["example.com/hold"]}}"#,
                "200 Namespace",
            ),
            (
                "5.4",
                "PATCH /api/v1/namespaces/$ns",
                r#"{"spec":{"finalizers":["example.com/mine"]}}"#,
                "200 Namespace",
            ),
            ("5.4", "DELETE /api/v1/namespaces/$ns", "", "200 Namespace"),
        ])
        .await;
    let ending = place.get("/api/v1/namespaces/$ns").await;
    assert_eq!(ending["status"]["phase"], "Terminating", "§5.4");
    assert!(ending["metadata"]["deletionTimestamp"].is_string(), "§5.4");
    assert_eq!(ending["spec"]["finalizers"], json!(["kubernetes"]), "§5.4: only finalize changes them");
    let refused = place.ask("POST $core/configmaps", r#"{"metadata":{"name":"b"}}"#).await;
    let ns = &place.ns;
    assert_eq!(
        outcome(&refused),
        format!(
            "403 Forbidden: configmaps \"b\" is forbidden: unable to create new content in namespace {ns} because it is being terminated"
        )
    );
    assert_eq!(
        refused.json()["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "message": format!("namespace {ns} is being terminated"), "field": "metadata.namespace"}]),
        "§5.4"
    );
    place
        .check(&[
            ("5.4", "DELETE /api/v1/namespaces/$ns", "", "200 Namespace"),
            ("5.4", "POST /apis/authorization.k8s.io/v1/namespaces/$ns/localsubjectaccessreviews", r#"{"metadata":{"namespace":"$ns"},"spec":{"user":"x","resourceAttributes":{"namespace":"$ns","verb":"get","resource":"pods"}}}"#, "201 LocalSubjectAccessReview"),
            ("5.4", "PUT /api/v1/namespaces/$ns/finalize", r#"{"metadata":{"name":"$ns"},"spec":{"finalizers":[]}}"#, "200 Namespace"),
            ("5.4", "GET /api/v1/namespaces/$ns", "", "200 Namespace"),
            ("5.2", "PATCH /api/v1/namespaces/$ns", r#"{"metadata":{"finalizers":null}}"#, "200 Namespace"),
            ("5.4", "GET /api/v1/namespaces/$ns", "", "404 NotFound: namespaces \"$ns\" not found"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_bound_once_and_end_gracefully() {
    let place = Place::new("pods").await;
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 30}});
    place.make("$core/pods", &[pod("a"), pod("b"), pod("c")]).await;
    let binding = r#"{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n1"}}"#;
    place
        .check(&[
            ("5.6", "POST $core/pods/a/binding", r#"{"metadata":{"name":"a"},"target":{"kind":"Pod","name":"n1"}}"#, "422 Invalid: …"),
            ("5.6", "POST $core/pods/a/binding", r#"{"metadata":{"name":"a"},"target":{}}"#, "422 Invalid: …"),
            ("5.6", "POST $core/pods/a/binding", binding, "201 Success"),
            ("5.6", "POST $core/pods/a/binding", binding, "409 Conflict: Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\""),
            ("5.6", "POST $core/bindings", r#"{"metadata":{"name":"b"},"target":{"kind":"Node","name":"n2"}}"#, "201 Success"),
            ("5.6", "POST $core/pods/none/binding", r#"{"metadata":{"name":"none"},"target":{"name":"n1"}}"#, "404 NotFound: pods \"none\" not found"),
        ])
        .await;
    let bound = place.get("$core/pods/a").await;
    assert_eq!(bound["spec"]["nodeName"], "n1", "§5.6");
    let scheduled = bound["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap()
        .clone();
    assert_eq!(scheduled["status"], "True", "§5.6");
    assert_eq!(bound["status"]["phase"], "Pending");

    // A pod that some node runs is given its time; one that nobody runs goes at once.
    let ending = place.ask("DELETE $core/pods/a", "").await;
    assert_eq!(outcome(&ending), "200 Pod");
    assert_eq!(ending.json()["metadata"]["deletionGracePeriodSeconds"], 30, "§5.3 step 2");
    let longer = place.ask("DELETE $core/pods/a?gracePeriodSeconds=60", "").await.json();
    assert_eq!(version(&longer), version(&ending.json()), "§5.3 step 2: pending");
    let shorter = place.ask("DELETE $core/pods/a?gracePeriodSeconds=5", "").await.json();
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5, "§5.3 step 2");
    place
        .check(&[
            ("5.3", "DELETE $core/pods/a?gracePeriodSeconds=0", "", "200 Pod"),
            ("5.3", "GET $core/pods/a", "", "404 NotFound: pods \"a\" not found"),
            ("5.3", "DELETE $core/pods/c", "", "200 Pod"),
            ("5.3", "GET $core/pods/c", "", "404 NotFound: pods \"c\" not found"),
            ("5.8", "GET $core/pods/none/log", "", "404 NotFound: pods \"none\" not found"),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_writers_learns_that_it_lost() {
    let place = Place::new("race").await;
    place.make("$core/configmaps", &[json!({"metadata": {"name": "a"}, "data": {}})]).await;
    // Unconditional patches are all applied, whatever their order.
    let patches = (0..20).map(|n| {
        let client = place.client.another();
        let path = place.full("$core/configmaps/a");
        async move { client.patch(&path, "merge", &json!({"data": {format!("k{n}"): "v"}})).await.status }
    });
    let codes = futures_util::future::join_all(patches).await;
    assert!(codes.iter().all(|code| *code == 200), "§5.5 {codes:?}");
    assert_eq!(place.get("$core/configmaps/a").await["data"].as_object().unwrap().len(), 20, "§5.5");
    // Of conditional updates of one version, one is.
    let object = place.get("$core/configmaps/a").await;
    let puts = (0..10).map(|n| {
        let client = place.client.another();
        let path = place.full("$core/configmaps/a");
        let mut object = object.clone();
        object["data"] = json!({"winner": n.to_string()});
        async move { client.put(&path, &object).await.status }
    });
    let mut codes = futures_util::future::join_all(puts).await;
    codes.sort_unstable();
    assert_eq!(codes, [200, 409, 409, 409, 409, 409, 409, 409, 409, 409], "§5.5");
    // Of creations of one name, one is.
    let posts = (0..10).map(|_| {
        let client = place.client.another();
        let path = place.full("$core/configmaps");
        async move { client.post(&path, &json!({"metadata": {"name": "b"}})).await.status }
    });
    let mut codes = futures_util::future::join_all(posts).await;
    codes.sort_unstable();
    assert_eq!(codes[..2], [201, 409], "§5.1 step 10 {codes:?}");
}
