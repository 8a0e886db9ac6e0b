//! Tests of subresources. The table of each subresource shows which fields a write takes from the body, which fields
//! it keeps, and which bodies it refuses (docs/api/subresources.md, docs/api/delete.md#namespace-lifecycle,
//! docs/api/authentication.md#token-requests,
//! #certificate-signing-requests).

use serde_json::{Value, json};

use crate::fixture::{Fixture, outcome};
use crate::support::CERTIFICATE;

const STRATEGIC: &str = "Content-Type: application/strategic-merge-patch+json";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}}],
    "initContainers": [
        {"name": "i", "image": "i"},
        {"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    ]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ephemeral_containers_can_be_added_but_not_removed() {
    let fixture = Fixture::new("ephemeral").await;
    fixture.make("$core/pods", &[pod("p")]).await;
    let path = format!("PATCH $core/pods/p/ephemeralcontainers | {STRATEGIC}");
    fixture
        .check(&[
            ("subresources", "GET $core/pods/p/ephemeralcontainers", "", "200 Pod"),
            ("subresources", &path, r#"{"spec":{"ephemeralContainers":[{"name":"d","image":"e"}],"activeDeadlineSeconds":1},"metadata":{"labels":{"a":"b"}}}"#, "200 Pod"),
            ("subresources", &path, r#"{"spec":{"ephemeralContainers":[{"name":"d","image":"other"}]}}"#, "422 Invalid: Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be changed\n@@ -1,6 +1,6 @@\n {\n  \"Name\": \"d\",\n- \"Image\": \"e\",\n+ \"Image\": \"other\",\n…"),
            ("subresources", &path, r#"{"spec":{"ephemeralContainers":[{"name":"d","$patch":"delete"}]}}"#, "422 Invalid: Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n"),
            ("subresources", &path, r#"{"spec":{"ephemeralContainers":[{"name":"c","image":"e"}]}}"#, "422 Invalid: Pod \"p\" is invalid: spec.ephemeralContainers[0].name: Duplicate value: \"c\""),
            ("subresources", &path, r#"{"spec":{"ephemeralContainers":[{"name":"f","image":"e","ports":[{"containerPort":1}]}]}}"#, "422 Invalid: Pod \"p\" is invalid: spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"),
            ("dry-run", "PATCH $core/pods/p/ephemeralcontainers?dryRun=All", r#"{"spec":{"ephemeralContainers":[{"name":"d","image":"e"},{"name":"g","image":"e"}]}}"#, "200 Pod"),
            ("subresources", "PATCH $core/pods/p", r#"{"spec":{"ephemeralContainers":null}}"#, "422 Invalid: Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than…"),
            ("subresources", "POST $core/pods/p/ephemeralcontainers", "{}", "405 MethodNotAllowed: the server does not allow this method on the requested resource"),
            ("subresources", "PATCH $core/pods/none/ephemeralcontainers", "{}", "404 NotFound: pods \"none\" not found"),
        ])
        .await;
    let now = fixture.get("$core/pods/p").await;
    assert_eq!(now["spec"]["ephemeralContainers"][0]["image"], "e");
    assert_eq!(
        (&now["spec"]["activeDeadlineSeconds"], &now["metadata"]["labels"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resize_changes_only_resource_amounts() {
    let fixture = Fixture::new("resize").await;
    fixture.make("$core/pods", &[pod("p")]).await;
    let path = format!("PATCH $core/pods/p/resize | {STRATEGIC}");
    let invalid = |why: &str| format!("422 Invalid: Pod \"p\" is invalid: {why}");
    let removed =
        invalid("spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed");
    let limits = invalid("spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed");
    let only = invalid("spec: Forbidden: only cpu and memory resources are mutable");
    let order = invalid("spec.containers: Forbidden: containers may not be added or removed on resize");
    let class =
        invalid("spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing");
    fixture
        .check(&[
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":null}}}]}}"#, &removed),
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"c","image":"ignored","resources":{"requests":{"cpu":"1500m","memory":"2Gi"},"limits":{"cpu":"3","memory":"4Gi"}}}],"terminationGracePeriodSeconds":7}}"#, "200 Pod"),
            ("subresources", &path, r#"{"spec":{"initContainers":[{"name":"s","resources":{"requests":{"cpu":"2"}}}]}}"#, "200 Pod"),
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":null}}}]}}"#, &limits),
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"ephemeral-storage":"1Gi"}}}]}}"#, &only),
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"c","resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]}}"#, &only),
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"more","image":"i"}]}}"#, &order),
            ("subresources", &path, r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"9"}}}]}}"#, "422 Invalid: Pod \"p\" is invalid: spec.containers[0].resources.requests: Invalid value: \"9\": must be less than or equal to cpu limit of 3"),
            ("subresources", "PATCH $core/pods/p", r#"{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"5"}}}]}}"#, "422 Invalid: Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than…"),
        ])
        .await;
    let now = fixture.get("$core/pods/p").await;
    assert_eq!(now["spec"]["containers"][0]["image"], "i");
    assert_eq!(
        now["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "1500m", "memory": "2Gi"})
    );
    assert_eq!(now["spec"]["terminationGracePeriodSeconds"], 30);
    // With requests equal to all limits, the QoS class would change.
    let guaranteed = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"3","memory":"4Gi"}}}],"initContainers":[{"name":"i","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}},{"name":"s","resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}}]}}"#;
    fixture.check(&[("subresources", &path, guaranteed, &class)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_level_resources_can_be_resized() {
    let fixture = Fixture::new("whole").await;
    let spec = json!({"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, "containers": [{"name": "c", "image": "i"}]});
    fixture.make("$core/pods", &[json!({"metadata": {"name": "p"}, "spec": spec})]).await;
    assert_eq!(fixture.get("$core/pods/p").await["status"]["qosClass"], "Burstable");
    let path = format!("PATCH $core/pods/p/resize | {STRATEGIC}");
    let removed = "422 Invalid: Pod \"p\" is invalid: spec.resources.limits: Forbidden: pod-level resource limits cannot be removed";
    let less = "422 Invalid: Pod \"p\" is invalid: spec.resources.requests: Invalid value: \"3\": must be less than or equal to cpu limit of 2";
    fixture
        .check(&[
            (
                "subresources",
                &path,
                r#"{"spec":{"resources":{"requests":{"cpu":"1500m"}},"hostname":"ignored"}}"#,
                "200 Pod",
            ),
            ("subresources", &path, r#"{"spec":{"resources":{"limits":{"cpu":null}}}}"#, removed),
            ("subresources", &path, r#"{"spec":{"resources":{"requests":{"cpu":"3"}}}}"#, less),
        ])
        .await;
    let now = fixture.get("$core/pods/p").await;
    assert_eq!(now["spec"]["resources"], json!({"requests": {"cpu": "1500m"}, "limits": {"cpu": "2"}}));
    assert_eq!((&now["spec"]["hostname"], &now["metadata"]["generation"]), (&Value::Null, &json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_requests_are_approved_or_denied_once_and_issued_once() {
    let fixture = Fixture::new("csr").await;
    const PEM: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIRk1HNENBUUF3RERFS01BZ0dBMVVFQXd3QllUQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCRUw3UzQwRnlQT2pXYkREdldXNGRBbzVwVVdWZnN1Z2ZWb1FoZjZQbGZEWkQ2eWZHdndxZUxXa3A2TWlhOFl6Clh0YzdjVXQzS3pXZnVVWVRiWjFodnUrZ0FEQUtCZ2dxaGtqT1BRUURBZ05IQURCRUFpQXJDN29TQ0lCN2FtYkIKZzBDRTQzSTVOT09JaU5QYU1WOVIveWovZkZEOVVBSWdiNHNPTXU4QzllMlkyQ1FadWtjQk91ZjB2dHJTSlozcgpwck15T1JZSzV3ST0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
    let collection = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for name in ["a", "b"] {
        let request = json!({"metadata": {"name": format!("{}-{name}", fixture.ns)},
            "spec": {"request": PEM, "signerName": "example.com/signer", "usages": ["client auth"], "username": "mallory"}});
        let made = fixture.client.post(collection, &request).await;
        assert_eq!(made.status, 201, "{}", made.text());
        assert_ne!(
            made.json()["spec"]["username"],
            "mallory",
            "certificate-signing-requests: the server sets the user"
        );
    }
    let base = format!("{collection}/$ns-a");
    let approve = format!("PATCH {base}/approval");
    let answer = format!("PATCH {base}/status");
    let main = format!("PATCH {base}");
    let wrong = |why: &str| {
        fixture.full(&format!(
            "422 Invalid: CertificateSigningRequest.certificates.k8s.io \"$ns-a\" is invalid: {why}"
        ))
    };
    let false_ =
        wrong("status.conditions[0].status: Unsupported value: \"False\": supported values: \"True\"");
    let both = wrong(
        "status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
    );
    let gone = wrong("status.conditions: Forbidden: updates may not remove a condition of type \"Approved\"");
    let add = wrong("status.conditions: Forbidden: updates may not add a condition of type \"Denied\"");
    let again = wrong("status.certificate: Forbidden: updates may not modify existing certificate content");
    let no_pem = wrong(
        "status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block",
    );
    let certificate = format!(r#"{{"status":{{"certificate":"{CERTIFICATE}"}}}}"#);
    fixture
        .check(&[
            ("certificate-signing-requests", &approve, r#"{"status":{"conditions":[{"type":"Approved","status":"False"}]}}"#, &false_),
            ("certificate-signing-requests", &approve, r#"{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"Denied","status":"True"}]}}"#, &both),
            ("certificate-signing-requests", &answer, r#"{"status":{"conditions":[{"type":"Denied","status":"True","reason":"No"}]}}"#, &add),
            ("certificate-signing-requests", &approve, r#"{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Yes"}],"certificate":"eA=="},"spec":{"usages":[]}}"#, "200 CertificateSigningRequest"),
            ("certificate-signing-requests", &approve, r#"{"status":{"conditions":[]}}"#, &gone),
            ("certificate-signing-requests", &answer, r#"{"status":{"certificate":"eA=="}}"#, &no_pem),
            ("certificate-signing-requests", &answer, &certificate, "200 CertificateSigningRequest"),
            ("certificate-signing-requests", &answer, r#"{"status":{"certificate":null}}"#, &again),
            ("certificate-signing-requests", &main, r#"{"spec":{"usages":["server auth"]}}"#, "200 CertificateSigningRequest"),
            ("validation", &main, r#"{"status":{"conditions":[]},"metadata":{"labels":{"a":"b"}}}"#, "200 CertificateSigningRequest"),
        ])
        .await;
    let now = fixture.get(&base).await;
    assert_eq!(now["spec"]["usages"], json!(["client auth"]), "certificate-signing-requests");
    let condition = &now["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Approved"), &json!("Yes")));
    assert!(
        condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(),
        "{condition}"
    );
    assert_eq!(
        (&now["status"]["certificate"], &now["metadata"]["labels"]["a"]),
        (&json!(CERTIFICATE), &json!("b"))
    );
    let failed = format!("PATCH {collection}/$ns-b/status");
    let body = r#"{"status":{"conditions":[{"type":"Failed","status":"True","reason":"Broken"}]}}"#;
    assert_eq!(
        outcome(&fixture.send(&failed, body).await),
        "200 CertificateSigningRequest",
        "certificate-signing-requests"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_finalize_subresource_changes_the_finalizers_of_a_namespace() {
    let fixture = Fixture::new("finalize").await;
    let namespace = "/api/v1/namespaces/$ns";
    fixture
        .check(&[
            ("namespace-lifecycle", &format!("PUT {namespace}"), r#"{"metadata":{"name":"$ns","labels":{"a":"b"}},"spec":{"finalizers":[]}}"#, "200 Namespace"),
            ("namespace-lifecycle", &format!("PUT {namespace}/finalize"), r#"{"metadata":{"name":"$ns","labels":{"c":"d"}},"spec":{"finalizers":["kubernetes","example.com/mine"]}}"#, "200 Namespace"),
            ("namespace-lifecycle", &format!("PUT {namespace}/finalize"), r#"{"metadata":{"name":"other"}}"#, "400 BadRequest: the name of the object (other) does not match the name on the URL ($ns)"),
            ("namespace-lifecycle", &format!("PUT {namespace}/finalize?dryRun=All"), r#"{"metadata":{"name":"$ns"},"spec":{"finalizers":[]}}"#, "200 Namespace"),
            ("namespace-lifecycle", &format!("PATCH {namespace}/finalize"), "{}", "405 MethodNotAllowed: the server does not allow this method on the requested resource"),
            ("namespace-lifecycle", &format!("PUT {namespace}/status"), r#"{"metadata":{"name":"$ns"},"spec":{"finalizers":[]},"status":{"phase":"Terminating"}}"#, "422 Invalid: Namespace \"$ns\" is invalid: status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"),
            ("namespace-lifecycle", "PUT /api/v1/namespaces/none/finalize", r#"{"metadata":{"name":"none"}}"#, "404 NotFound: namespaces \"none\" not found"),
        ])
        .await;
    let now = fixture.get(namespace).await;
    assert_eq!(now["spec"]["finalizers"], json!(["kubernetes", "example.com/mine"]), "namespace-lifecycle");
    assert_eq!(
        (&now["metadata"]["labels"]["a"], &now["metadata"]["labels"]["c"]),
        (&Value::Null, &json!("d"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scalable_kind_has_a_scale() {
    let fixture = Fixture::new("scales").await;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let controller = json!({"replicas": 2, "selector": {"a": "b"}, "template": template});
    for (collection, spec) in [
        ("$apps/deployments", spec.clone()),
        ("$apps/replicasets", spec.clone()),
        ("$apps/statefulsets", spec),
        ("$core/replicationcontrollers", controller),
    ] {
        fixture.make(collection, &[json!({"metadata": {"name": "w"}, "spec": spec})]).await;
        let path = format!("{collection}/w/scale");
        let scale = fixture.get(&path).await;
        assert_eq!(
            (&scale["kind"], &scale["apiVersion"]),
            (&json!("Scale"), &json!("autoscaling/v1")),
            "subresources {path}"
        );
        assert_eq!(
            (&scale["spec"], &scale["status"]),
            (&json!({"replicas": 2}), &json!({"replicas": 0, "selector": "a=b"})),
            "subresources {path}"
        );
        let parent = fixture.get(&format!("{collection}/w")).await;
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            assert_eq!(scale["metadata"][name], parent["metadata"][name], "subresources {path} {name}");
        }
        let (put, patch) = (format!("PUT {path}"), format!("PATCH {path}"));
        fixture
            .check(&[
                ("subresources", &format!("{patch}?dryRun=All"), r#"{"spec":{"replicas":9}}"#, "200 Scale"),
                ("subresources", &put, r#"{"metadata":{"name":"w"},"spec":{"replicas":3}}"#, "200 Scale"),
                ("subresources", &put, r#"{"metadata":{"name":"w","resourceVersion":"1"},"spec":{"replicas":4}}"#, "409 Conflict: Operation cannot be fulfilled on …"),
                ("subresources", &put, r#"{"metadata":{"name":"w","uid":"other"},"spec":{"replicas":4}}"#, "409 Conflict: Operation cannot be fulfilled on …"),
                ("subresources", &put, r#"{"metadata":{"name":"x"},"spec":{"replicas":4}}"#, "400 BadRequest: the name of the object (x) does not match the name on the URL (w)"),
                ("subresources", &put, r#"{"metadata":{"name":"w","namespace":"zz"},"spec":{"replicas":4}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
                ("subresources", &put, r#"{"metadata":{"name":"w"},"spec":{"replicas":-1}}"#, "422 Invalid: Scale.autoscaling \"w\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
                ("subresources", &patch, r#"[{"op":"replace","path":"/spec/replicas","value":4}]"#, "400 BadRequest: …"),
                ("subresources", &format!("{patch} | Content-Type: application/json-patch+json"), r#"[{"op":"test","path":"/spec/replicas","value":3},{"op":"replace","path":"/spec/replicas","value":4}]"#, "200 Scale"),
                ("subresources", &format!("{patch} | {STRATEGIC}"), r#"{"spec":{"replicas":5}}"#, "200 Scale"),
                ("subresources", &format!("{patch}?fieldManager=m&force=true | Content-Type: application/apply-patch+yaml"), r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"w"},"spec":{"replicas":6}}"#, "200 Scale"),
                ("subresources", &format!("DELETE {path}"), "", "405 MethodNotAllowed: the server does not allow this method on the requested resource"),
            ])
            .await;
        let parent = fixture.get(&format!("{collection}/w")).await;
        assert_eq!(
            (&parent["spec"]["replicas"], &parent["metadata"]["generation"]),
            (&json!(6), &json!(5)),
            "{path}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autoscaler_versions_show_the_same_object() {
    let fixture = Fixture::new("scalers").await;
    let v1 = "/apis/autoscaling/v1/namespaces/$ns/horizontalpodautoscalers";
    let v2 = "$autoscaling/horizontalpodautoscalers";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"});
    let old = json!({"metadata": {"name": "one"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 60}});
    let new = json!({"metadata": {"name": "two"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}}}]}});
    fixture.make(v1, &[old]).await;
    fixture.make(v2, &[new]).await;
    let seen = fixture.get(&format!("{v2}/one")).await;
    assert_eq!(seen["apiVersion"], "autoscaling/v2");
    assert_eq!(
        seen["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}])
    );
    let seen = fixture.get(&format!("{v1}/two")).await;
    assert_eq!(
        (&seen["apiVersion"], &seen["spec"]["targetCPUUtilizationPercentage"]),
        (&json!("autoscaling/v1"), &Value::Null)
    );
    let kept = seen["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"].as_str();
    assert!(kept.is_some_and(|text| text.contains("memory")), "{seen}");

    // A write through one version keeps the fields that only the other version has.
    fixture
        .check(&[
            ("update", &format!("PATCH {v1}/two"), r#"{"spec":{"maxReplicas":9}}"#, "200 HorizontalPodAutoscaler"),
            ("update", &format!("PATCH {v2}/one"), r#"{"spec":{"minReplicas":2}}"#, "200 HorizontalPodAutoscaler"),
            ("subresources", &format!("PATCH {v1}/two/status"), r#"{"status":{"currentReplicas":1,"desiredReplicas":2}}"#, "200 HorizontalPodAutoscaler"),
            ("subresources", &format!("PATCH {v1}/two/status"), r#"{"status":{"currentReplicas":-1}}"#, "422 Invalid: HorizontalPodAutoscaler.autoscaling \"two\" is invalid: status.currentReplicas: Invalid value: -1: must be greater than or equal to 0"),
        ])
        .await;
    let two = fixture.get(&format!("{v2}/two")).await;
    assert_eq!(
        (&two["spec"]["maxReplicas"], &two["spec"]["metrics"][0]["resource"]["name"]),
        (&json!(9), &json!("memory"))
    );
    assert_eq!(two["status"]["desiredReplicas"], 2);
    assert!(two["metadata"].get("annotations").is_none(), "{two}");
    let one = fixture.get(&format!("{v1}/one")).await;
    assert_eq!(
        (&one["spec"]["minReplicas"], &one["spec"]["targetCPUUtilizationPercentage"]),
        (&json!(2), &json!(60))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_checks_preconditions_and_adds_metadata_to_the_pod() {
    let fixture = Fixture::new("binding").await;
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    fixture.make("$core/pods", &[pod("p"), gated]).await;
    let uid = fixture.get("$core/pods/p").await["metadata"]["uid"].as_str().unwrap().to_owned();
    let path = "POST $core/pods/p/binding";
    let right = format!(
        r#"{{"metadata":{{"name":"p","uid":"{uid}","labels":{{"zone":"a"}},"annotations":{{"x":"y"}}}},"target":{{"name":"n"}}}}"#
    );
    fixture
        .check(&[
            ("subresources", path, r#"{"metadata":{"name":"p","uid":"other"},"target":{"name":"n"}}"#, "409 Conflict: …"),
            ("subresources", path, r#"{"metadata":{"name":"p","resourceVersion":"1"},"target":{"name":"n"}}"#, "409 Conflict: Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, …"),
            ("subresources", "POST $core/pods/p/binding?dryRun=All", r#"{"metadata":{"name":"p","labels":{"a b":"c"}},"target":{"name":"A_"}}"#, "201 Success"),
            ("subresources", path, r#"{"metadata":{"name":"q"},"target":{"name":"n"}}"#, "400 BadRequest: name in URL does not match name in Binding object"),
            ("subresources", path, r#"{"target":{"name":"n"}}"#, "400 BadRequest: name in URL does not match name in Binding object"),
            ("subresources", path, r#"{"metadata":{"name":"p","namespace":"zz"},"target":{"name":"n"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("subresources", "POST $core/pods/p/eviction", r#"{"metadata":{"name":"p","namespace":"zz"}}"#, "400 BadRequest: the namespace of the provided object does not match the namespace sent on the request"),
            ("subresources", path, r#"{"metadata":{"name":"p"},"target":{"kind":"Node"}}"#, "500 -: target.name: Required value"),
            ("subresources", "POST $core/pods/gated/binding", r#"{"metadata":{"name":"gated"},"target":{"name":"n"}}"#, "409 Conflict: Operation cannot be fulfilled on pods/binding \"gated\": pod gated has non-empty .spec.schedulingGates"),
            ("dry-run", "POST $core/pods/p/binding?dryRun=All", &right, "201 Success"),
            ("subresources", "GET $core/pods/p/binding", "", "405 MethodNotAllowed: the server does not allow this method on the requested resource"),
        ])
        .await;
    assert_eq!(fixture.get("$core/pods/p").await["spec"]["nodeName"], Value::Null, "dry-run");
    let bound = fixture.send(path, &right).await;
    assert_eq!((bound.status, &bound.json()["code"]), (201, &json!(201)), "subresources");
    let now = fixture.get("$core/pods/p").await;
    assert_eq!(now["spec"]["nodeName"], "n");
    assert_eq!(
        (&now["metadata"]["labels"]["zone"], &now["metadata"]["annotations"]["x"]),
        (&json!("a"), &json!("y"))
    );
    fixture
        .check(&[("subresources", path, r#"{"metadata":{"name":"p"},"target":{"name":"m"}}"#, "409 Conflict: Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"")])
        .await;
}
