//! The server with the `cluster` naming profile, in which only names differ.

use std::sync::Weak;

use serde_json::{Value, json};
use tests::{Options, Server};
use tokio::sync::Mutex;

use crate::fixture::{Fixture, names, outcome, shared, version};

async fn fixture(topic: &str) -> Fixture {
    static SLOT: Mutex<Weak<Server>> = Mutex::const_new(Weak::new());
    Fixture::on(shared(&SLOT, Options { naming: "cluster", ..Options::default() }).await, topic).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_contain_no_name_of_the_other_naming_profile() {
    let fixture = fixture("documents").await;
    let mut paths: Vec<String> = ["/", "/api", "/apis", "/api/v1", "/version", "/openapi/v2", "/openapi/v3"]
        .map(str::to_owned)
        .to_vec();
    let groups = fixture.get("/apis").await;
    let groups = groups["groups"].as_array().unwrap();
    for group in groups {
        let name = group["name"].as_str().unwrap();
        paths.push(format!("/apis/{name}"));
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            paths.push(format!("/apis/{version}"));
            paths.push(format!("/openapi/v3/apis/{version}"));
        }
    }
    let all: Vec<&str> = groups.iter().map(|group| group["name"].as_str().unwrap()).collect();
    for group in
        ["apps", "batch", "rbac.authorization.cluster.io", "coordination.cluster.io", "events.cluster.io"]
    {
        assert!(all.contains(&group), "{group} in {all:?}");
    }
    for path in &paths {
        let reply = fixture.client.get(path).await;
        assert_eq!(reply.status, 200, "{path}");
        // Clients read schema extensions, whose names are the same in both profiles.
        let text = reply.text().to_lowercase().replace("x-kubernetes-", "");
        for word in ["kubernetes", "k8s"] {
            if let Some(at) = text.find(word) {
                panic!("{path}: {}", &text[at.saturating_sub(60)..(at + 60).min(text.len())]);
            }
        }
    }
    // The bootstrap objects have the names of the profile.
    for path in [
        "/api/v1/namespaces",
        "/apis/rbac.authorization.cluster.io/v1/clusterroles",
        "/apis/rbac.authorization.cluster.io/v1/clusterrolebindings",
        "/apis/rbac.authorization.cluster.io/v1/roles",
    ] {
        let text = fixture.client.get(path).await.text();
        assert!(
            !text.contains("k8s") && !text.contains("kubernetes") && !text.contains("kube-"),
            "{path}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_can_be_created_and_deleted_in_either_naming_profile() {
    let fixture = fixture("objects").await;
    let ns = &fixture.ns;
    let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"}});
    let mut job = pod.clone();
    job["spec"]["restartPolicy"] = json!("Never");
    for (collection, kind, api_version, spec) in [
        ("$core/secrets", "Secret", "v1", Value::Null),
        ("$core/pods", "Pod", "v1", pod["spec"].clone()),
        (
            "$apps/deployments",
            "Deployment",
            "apps/v1",
            json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod}),
        ),
        ("$batch/jobs", "Job", "batch/v1", json!({"template": job})),
        (
            "/apis/coordination.cluster.io/v1/namespaces/$ns/leases",
            "Lease",
            "coordination.cluster.io/v1",
            json!({"holderIdentity": "me"}),
        ),
        (
            "/apis/rbac.authorization.cluster.io/v1/namespaces/$ns/roles",
            "Role",
            "rbac.authorization.cluster.io/v1",
            Value::Null,
        ),
    ] {
        let mut object = json!({"kind": kind, "apiVersion": api_version, "metadata": {"name": "x"}});
        if !spec.is_null() {
            object["spec"] = spec;
        }
        if kind == "Role" {
            object["rules"] = json!([]);
        }
        let list = version(&fixture.get(collection).await);
        let mut watch = fixture
            .client
            .watch(&fixture.full(&format!("{collection}?watch=1&resourceVersion={list}")))
            .await;
        assert_eq!(
            outcome(&fixture.send(&format!("POST {collection}"), &object.to_string()).await),
            format!("201 {kind}")
        );
        let item = format!("{collection}/x");
        let made = fixture.get(&item).await;
        assert_eq!((&made["kind"], &made["apiVersion"]), (&json!(kind), &json!(api_version)));
        assert_eq!(
            outcome(&fixture.send(&format!("PATCH {item}"), r#"{"metadata":{"labels":{"l":"v"}}}"#).await),
            format!("200 {kind}")
        );
        let found = fixture.get(&format!("{collection}?labelSelector=l%3Dv")).await;
        assert_eq!((names(&found), &found["kind"]), (vec!["x".to_owned()], &json!(format!("{kind}List"))));
        let mut changed = fixture.get(&item).await;
        changed["metadata"]["labels"] = json!({});
        assert_eq!(
            outcome(&fixture.send(&format!("PUT {item}"), &changed.to_string()).await),
            format!("200 {kind}"),
            "{ns}"
        );
        assert_eq!(
            fixture.send(&format!("DELETE {item}?propagationPolicy=Background"), "").await.status,
            200
        );
        assert_eq!(fixture.send(&format!("GET {item}"), "").await.status, 404, "{kind}");
        for want in ["ADDED", "MODIFIED", "MODIFIED", "DELETED"] {
            assert_eq!(watch.expect().await.0, want, "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_inside_objects_and_errors_follow_the_naming_profile() {
    let fixture = fixture("inside").await;
    let namespace = fixture.get("/api/v1/namespaces/$ns").await;
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"cluster.io/metadata.name": fixture.ns}),
        "namespace-lifecycle"
    );
    assert_eq!(namespace["spec"]["finalizers"], json!(["cluster"]), "namespace-lifecycle");
    fixture
        .check(&[
            ("namespace-lifecycle", "DELETE /api/v1/namespaces/cluster-system", "", "403 Forbidden: namespaces \"cluster-system\" is forbidden: this namespace may not be deleted"),
            ("namespace-lifecycle", "GET /api/v1/namespaces/cluster-node-lease", "", "200 Namespace"),
            ("namespace-lifecycle", "GET /api/v1/namespaces/kube-system", "", "404 NotFound: namespaces \"kube-system\" not found"),
            ("messages", "GET /apis/coordination.k8s.io/v1/leases", "", "404 text: 404 page not found\n"),
            ("options", "POST $core/configmaps?dryRun=x", r#"{"metadata":{"name":"x"}}"#, "422 Invalid: CreateOptions.meta.cluster.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""),
            ("list-options", "GET $core/configmaps?sendInitialEvents=1", "", "422 Invalid: ListOptions.meta.cluster.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
            ("tables", "GET $core/configmaps | Accept: application/json;as=Table;g=meta.cluster.io;v=v1", "", "200 Table"),
            ("accept", "GET $core/configmaps | Accept: application/json;as=Table;g=meta.other.io;v=v1", "", "406 NotAcceptable: …"),
            ("accept", "GET $core/configmaps | Accept: application/vnd.other.protobuf", "", "406 NotAcceptable: …"),
            ("accept", "GET $core/configmaps | Accept: application/vnd.other.protobuf, application/json", "", "200 ConfigMapList"),
            ("authorizers", "GET $core/nothing/x", "", "404 NotFound: the server could not find the requested resource"),
        ])
        .await;
    let table = fixture
        .send("GET $core/configmaps | Accept: application/json;as=Table;g=meta.cluster.io;v=v1", "")
        .await
        .json();
    assert_eq!(table["apiVersion"], "meta.cluster.io/v1", "tables");
    // Requests with kube-apiserver's names are accepted, and the responses use those names.
    for accept in [
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    ] {
        let reply = fixture.send(&format!("GET $core/configmaps | Accept: {accept}"), "").await;
        assert_eq!((reply.status, &reply.json()["apiVersion"]), (200, &json!("meta.k8s.io/v1")), "{accept}");
    }
    let protobuf = "application/vnd.kubernetes.protobuf";
    let reply = fixture.send(&format!("GET $core/configmaps | Accept: {protobuf}"), "").await;
    assert_eq!((reply.status, reply.header_all("content-type")), (200, vec![protobuf.to_owned()]));
    let token = {
        fixture
            .make("$core/secrets", &[json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}})])
            .await;
        fixture.get("$core/secrets?limit=1").await["metadata"]["continue"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        names(&fixture.get(&format!("$core/secrets?continue={token}")).await),
        ["b"],
        "continue-tokens"
    );
    let path = fixture.full(
        "$core/secrets?watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
    );
    let mut watch = fixture.client.watch(&path).await;
    assert_eq!((watch.expect().await.0, watch.expect().await.0), ("ADDED".to_owned(), "ADDED".to_owned()));
    assert_eq!(
        watch.next().await.unwrap()["object"]["metadata"]["annotations"],
        json!({"cluster.io/initial-events-end": "true", "k8s.io/initial-events-end": "true"}),
        "watch-start"
    );
}
