//! End-to-end tests of controllers (docs/api/controllers.md).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::server::Options;
use tests::{Client, PATIENCE, Server};

/// Waits until an object satisfies `condition`.
async fn until(client: &Client, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
    client.until(path, |object| object.is_some_and(&condition)).await.expect("the object exists")
}

fn is_there(object: &Value) -> bool {
    object["metadata"]["uid"].is_string()
}

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn covers(role: &Value, resource: &str) -> bool {
    let rules = role["rules"].as_array().into_iter().flatten();
    let mut resources = rules.flat_map(|rule| rule["resources"].as_array().into_iter().flatten());
    resources.any(|covered| covered == resource)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aggregated_roles_are_complete_at_readiness_and_follow_changes_of_their_selectors() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let mut before = Vec::new();
    for (role, has, lacks) in
        [("view", "pods", "secrets"), ("edit", "secrets", "rolebindings"), ("admin", "rolebindings", "nodes")]
    {
        let object = client.get(&format!("{ROLES}/{role}")).await.json();
        assert!(covers(&object, has) && !covers(&object, lacks) && covers(&object, "pods"), "{role}");
        before.push((role, object));
    }
    let part = json!({
        "metadata": {"name": "part", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}],
    });
    assert_eq!(client.post(ROLES, &part).await.status, 201);
    for (role, _) in &before {
        until(client, &format!("{ROLES}/{role}"), |role| covers(role, "widgets")).await;
    }
    // Rules written into an aggregated role by hand are replaced, and the writer loses their ownership.
    let patch = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    let view = format!("{ROLES}/view");
    assert_eq!(client.patch(&format!("{view}?fieldManager=hand"), "merge", &patch).await.status, 200);
    let role = until(client, &view, |role| covers(role, "widgets")).await;
    assert!(!covers(&role, "secrets"));
    let entries = role["metadata"]["managedFields"].as_array().unwrap();
    let owns_rules: Vec<&Value> =
        entries.iter().filter(|entry| !entry["fieldsV1"]["f:rules"].is_null()).collect();
    assert_eq!(owns_rules.len(), 1, "{entries:?}");
    let (manager, operation) = (&owns_rules[0]["manager"], &owns_rules[0]["operation"]);
    assert_eq!((manager, operation), (&json!("clusterrole-aggregation-controller"), &json!("Apply")));
    // A role that is no longer selected contributes no rules any more.
    let unlabelled = json!({"metadata": {"labels": null}});
    assert_eq!(client.patch(&format!("{ROLES}/part"), "merge", &unlabelled).await.status, 200);
    until(client, &view, |role| role["rules"] == before[0].1["rules"]).await;
    let labels = json!({"metadata": {"labels": part["metadata"]["labels"]}});
    assert_eq!(client.patch(&format!("{ROLES}/part"), "merge", &labels).await.status, 200);
    until(client, &view, |role| covers(role, "widgets")).await;
    client.delete(&format!("{ROLES}/part")).await;
    for (name, before) in &before {
        until(client, &format!("{ROLES}/{name}"), |role| role["rules"] == before["rules"]).await;
    }
    // An aggregated role without selected roles has no rules.
    let empty = json!({
        "metadata": {"name": "empty"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"no-role": "has-this"}}]},
        "rules": part["rules"],
    });
    assert_eq!(client.post(ROLES, &empty).await.status, 201);
    until(client, &format!("{ROLES}/empty"), |role| !covers(role, "widgets")).await;
    // Afterwards the controller writes nothing more.
    let settled = versions(client).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(versions(client).await, settled);
}

/// Returns the versions of all cluster roles.
async fn versions(client: &Client) -> Vec<Value> {
    let list = client.get(ROLES).await.json();
    list["items"].as_array().unwrap().iter().map(|role| role["metadata"]["resourceVersion"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_that_select_each_other_stop_changing() {
    let server = Server::start_upstream().await;
    let client = server.client();
    // Three roles that select each other in a cycle must not cause endless writes.
    for (name, selects) in [("a", "b"), ("b", "c"), ("c", "a")] {
        let role = json!({
            "metadata": {"name": format!("circle-{name}"), "labels": {"circle": name}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"circle": selects}}]},
            "rules": [{"apiGroups": [""], "resources": [name], "verbs": ["get"]}],
        });
        assert_eq!(client.post(ROLES, &role).await.status, 201);
    }
    let begun = Instant::now();
    loop {
        let before = versions(client).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if versions(client).await == before {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the controllers do not stop writing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_namespace_has_its_service_account_and_the_root_certificates() {
    for naming in ["kubernetes", "cluster"] {
        let server = Server::start(Options { naming, ..Options::default() }).await;
        let client = server.client();
        let domain = if naming == "kubernetes" { "kubernetes.io" } else { "cluster.io" };
        let map = if naming == "kubernetes" { "kube-root-ca.crt" } else { "cluster-root-ca.crt" };
        let created = client.post("/api/v1/namespaces", &json!({"metadata": {"name": "fresh"}})).await;
        assert_eq!(created.status, 201);
        let authority = String::from_utf8(client.identity().authority.clone()).unwrap();
        for namespace in ["default", "fresh"] {
            let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            let first = until(client, &account, is_there).await;
            client.delete(&account).await;
            until(client, &account, |second| second["metadata"]["uid"] != first["metadata"]["uid"]).await;

            let map = format!("/api/v1/namespaces/{namespace}/configmaps/{map}");
            let is_right = |object: &Value| object["data"] == json!({"ca.crt": authority});
            let first = until(client, &map, is_right).await;
            let annotation = &first["metadata"]["annotations"][format!("{domain}/description")];
            assert!(annotation.as_str().unwrap().starts_with("Contains a CA bundle"), "{annotation}");
            client.patch(&map, "merge", &json!({"data": {"ca.crt": "other", "more": "x"}})).await;
            until(client, &map, is_right).await;
            client.delete(&map).await;
            until(client, &map, is_right).await;
        }
        // The objects are not created again in a terminating namespace, and do not delay its deletion.
        client.delete("/api/v1/namespaces/fresh").await;
        client.until_gone("/api/v1/namespaces/fresh").await;
        for resource in ["namespaces/fresh/serviceaccounts", "namespaces/fresh/configmaps"] {
            assert_eq!(
                client.get(&format!("/api/v1/{resource}")).await.json()["items"],
                json!([]),
                "{resource}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_jobs_are_deleted_with_their_pods_after_their_ttl() {
    // See docs/api/controllers.md#finished-jobs.
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let make = async |name: &str, ttl: Value| {
        let mut spec = json!({"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
        spec["ttlSecondsAfterFinished"] = ttl;
        let job = client.post(jobs, &json!({"metadata": {"name": name}, "spec": spec})).await;
        assert_eq!(job.status, 201, "{}", job.text());
        let pod = json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job",
            "name": name, "uid": job.json()["metadata"]["uid"], "blockOwnerDeletion": true}]},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(client.post("/api/v1/namespaces/default/pods", &pod).await.status, 201);
        let at = "2024-01-01T00:00:00Z";
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let status = json!({"status": {"startTime": at, "completionTime": at, "succeeded": 1,
            "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
        let written = client.patch(&format!("{jobs}/{name}/status"), "merge", &status).await;
        assert_eq!(written.status, 200, "{}", written.text());
    };
    make("kept", Value::Null).await;
    make("long", json!(2_000_000_000)).await;
    make("short", json!(1)).await;
    client.until_gone(&format!("{jobs}/short")).await;
    client.until_gone("/api/v1/namespaces/default/pods/short").await;
    for name in ["kept", "long"] {
        assert_eq!(client.get(&format!("{jobs}/{name}")).await.status, 200, "{name}");
    }
    // After the start the server deletes a job that expired while the server was down. The server also
    // deletes a job whose lifetime is shortened.
    server.kill();
    server.restart().await;
    let client = server.client();
    let short = json!({"spec": {"ttlSecondsAfterFinished": 0}});
    assert_eq!(client.patch(&format!("{jobs}/long"), "merge", &short).await.status, 200);
    client.until_gone(&format!("{jobs}/long")).await;
    assert_eq!(client.get(&format!("{jobs}/kept")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_selected_controllers_run() {
    let flags = vec!["--controllers=*,-serviceaccount-controller,-garbagecollector".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    until(client, &format!("{maps}/kube-root-ca.crt"), is_there).await;
    let accounts = client.get("/api/v1/namespaces/default/serviceaccounts").await.json();
    assert_eq!(accounts["items"], json!([]));
    // Finalizers are still set, because external collectors rely on them.
    client.post(maps, &json!({"metadata": {"name": "a"}})).await;
    let deleted = client.delete(&format!("{maps}/a?propagationPolicy=Foreground")).await.json();
    assert_eq!(deleted["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let off = vec!["--enable-garbage-collector=false".to_owned()];
    let server = Server::start(Options { flags: off, ..Options::default() }).await;
    let client = server.client();
    client.post(maps, &json!({"metadata": {"name": "a"}})).await;
    let deleted = client.delete(&format!("{maps}/a?propagationPolicy=Foreground")).await.json();
    assert_eq!(deleted["status"], "Success");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_system_namespace_is_recreated() {
    let server = Server::start_upstream().await;
    let client = server.client();
    let path = "/api/v1/namespaces/kube-node-lease";
    let before = until(client, path, is_there).await;
    assert_eq!(client.delete(path).await.status, 200);
    let after = until(client, path, |object| {
        is_there(object) && object["metadata"]["uid"] != before["metadata"]["uid"]
    });
    assert_eq!(after.await["status"]["phase"], "Active");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bootstrap_tokens_sign_cluster_info_and_expired_ones_are_deleted() {
    let server = Server::start(Options {
        flags: vec![
            "--controllers=*,tokencleaner,bootstrapsigner".to_owned(),
            // The cluster information contains the server's address, which a machine without a network does
            // not have.
            "--advertise-address=192.0.2.9".to_owned(),
        ],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let made = client.until(info, |map| map.is_some()).await.expect("the config map is created");
    let config = made["data"]["kubeconfig"].as_str().unwrap();
    assert!(config.contains("certificate-authority-data: "), "{made}");
    assert!(config.contains("server: https://192.0.2.9:"), "{made}");
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let token = |id: &str, expiration: &str| {
        json!({
            "metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
                "expiration": expiration,
            },
        })
    };
    let made = client.post(secrets, &token("abcdef", "2999-01-01T00:00:00Z")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let is_signed = |map: Option<&Value>| {
        map.is_some_and(|map| {
            map["data"]["jws-kubeconfig-abcdef"].as_str().is_some_and(|jws| jws.contains(".."))
        })
    };
    client.until(info, is_signed).await.expect("the config map is signed");
    assert_eq!(client.post(secrets, &token("fedcba", "2001-01-01T00:00:00Z")).await.status, 201);
    client.until_gone(&format!("{secrets}/bootstrap-token-fedcba")).await;
    client.delete(&format!("{secrets}/bootstrap-token-abcdef")).await;
    let is_unsigned =
        |map: Option<&Value>| map.is_some_and(|map| map["data"].as_object().unwrap().len() == 1);
    client.until(info, is_unsigned).await.expect("the signature is removed with its token");
}
