//! Evictions and the disruption budgets that refuse them (docs/api/subresources.md#eviction).

use serde_json::{Value, json};
use tests::client::Reply;
use tests::{Client, Server};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// Creates a pod with a label, in a phase, ready or not.
async fn pod(client: &Client, name: &str, phase: &str, ready: bool) {
    let object = json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": {
        "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(client.post(PODS, &object).await.status, 201);
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    let reply = client.patch(&format!("{PODS}/{name}/status"), "merge", &status).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Creates a budget for all pods with the label, with the status that a controller would write.
async fn budget(client: &Client, name: &str, spec: Value, status: Value) {
    let mut object = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "a"}}}});
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    assert_eq!(client.post(BUDGETS, &object).await.status, 201);
    let reply = client.patch(&format!("{BUDGETS}/{name}/status"), "merge", &json!({"status": status})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

async fn evict(client: &Client, name: &str, options: &str) -> Reply {
    let object = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    client.post(&format!("{PODS}/{name}/eviction{options}"), &object).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_spend_a_disruption_budget_and_are_refused_afterwards() {
    let server = Server::start_upstream().await;
    let client = server.client();
    for name in ["one", "two"] {
        pod(client, name, "Running", true).await;
    }
    budget(
        client,
        "b",
        json!({"minAvailable": 1}),
        json!({"observedGeneration": 1, "disruptionsAllowed": 1,
        "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}),
    )
    .await;
    // A dry run does not use the budget.
    assert_eq!(evict(client, "one", "?dryRun=All").await.status, 201);
    assert_eq!(client.get(&format!("{PODS}/one")).await.status, 200);
    let gone = evict(client, "one", "").await;
    assert_eq!(gone.status, 201, "{}", gone.text());
    assert_eq!(
        gone.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
    );
    assert_eq!(client.get(&format!("{PODS}/one")).await.status, 404);
    let status = client.get(&format!("{BUDGETS}/b")).await.json()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["one"].is_string(), "{status}");
    assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
    let refused = evict(client, "two", "").await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.header_all("retry-after"), [""; 0]);
    assert_eq!(
        refused.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.", "reason": "TooManyRequests",
            "details": {"causes": [{"reason": "DisruptionBudget",
                "message": "The disruption budget b needs 1 healthy pods and has 2 currently"}]}, "code": 429})
    );
    assert_eq!(client.get(&format!("{PODS}/two")).await.status, 200);
    // The name in the body must equal the name in the path, and delete options apply.
    let wrong = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "x"}});
    let reply = client.post(&format!("{PODS}/two/eviction"), &wrong).await;
    assert_eq!(
        (reply.status, reply.json()["message"].as_str()),
        (400, Some("name in URL does not match name in Eviction object"))
    );
    assert_eq!(evict(client, "absent", "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_and_pending_pods_are_evicted_regardless_of_the_budget() {
    let server = Server::start_upstream().await;
    let client = server.client();
    budget(
        client,
        "b",
        json!({"minAvailable": 1}),
        json!({"observedGeneration": 1, "disruptionsAllowed": 0,
        "currentHealthy": 1, "desiredHealthy": 1}),
    )
    .await;
    for (name, phase, ready, want) in [
        ("pending", "Pending", false, 201),
        ("done", "Succeeded", false, 201),
        ("failed", "Failed", true, 201),
        // The budget is satisfied, so a pod that is not ready may be evicted.
        ("sick", "Running", false, 201),
        ("well", "Running", true, 429),
    ] {
        pod(client, name, phase, ready).await;
        let reply = evict(client, name, "").await;
        assert_eq!(reply.status, want, "{name}: {}", reply.text());
    }
    // If the budget is not satisfied, only the policy allows evicting unhealthy pods.
    let short = json!({"status": {"currentHealthy": 0}});
    client.patch(&format!("{BUDGETS}/b/status"), "merge", &short).await;
    pod(client, "sick", "Running", false).await;
    assert_eq!(evict(client, "sick", "").await.status, 429);
    let policy = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    assert_eq!(client.patch(&format!("{BUDGETS}/b"), "merge", &policy).await.status, 200);
    assert_eq!(evict(client, "sick", "").await.status, 201);
    // A budget whose status was not observed yet allows no eviction for a while.
    let busy = evict(client, "well", "").await;
    assert_eq!((busy.status, busy.header_all("retry-after")), (429, vec!["10".to_owned()]));
    assert_eq!(
        busy.json()["details"]["causes"][0]["message"],
        "The disruption budget b is still being processed by the server."
    );
    // Two budgets for one pod are an error.
    budget(client, "b2", json!({"minAvailable": 1}), json!({"disruptionsAllowed": 9})).await;
    let both = evict(client, "well", "").await;
    assert_eq!(both.status, 500, "{}", both.text());
    assert_eq!(
        both.json()["message"],
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conditional_write_whose_condition_never_holds_is_a_conflict() {
    let server = Server::start_upstream().await;
    let client = server.client();
    for phase in ["Pending", "Running", "Succeeded"] {
        pod(client, phase.to_lowercase().as_str(), phase, true).await;
    }
    let by_uid = json!({"preconditions": {"uid": "x"}});
    let by_version = json!({"preconditions": {"resourceVersion": "1"}});
    let metadata = json!({"name": "pending", "uid": "x"});
    let mut whole = client.get(&format!("{PODS}/pending")).await.json();
    whole["metadata"]["uid"] = json!("x");
    let conditional = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
    let claim = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "1"}});
    for pod in ["pending", "running", "succeeded"] {
        for (verb, path, content, body) in [
            ("POST", "/eviction", "json", json!({"metadata": {"name": pod}, "deleteOptions": by_uid})),
            (
                "POST",
                "/eviction?dryRun=All",
                "json",
                json!({"metadata": {"name": pod}, "deleteOptions": by_uid}),
            ),
            ("POST", "/eviction", "json", json!({"metadata": {"name": pod}, "deleteOptions": by_version})),
            ("DELETE", "", "json", by_uid.clone()),
            ("DELETE", "?dryRun=All", "json", by_version.clone()),
            ("PATCH", "", "merge-patch+json", conditional.clone()),
            ("PATCH", "/status", "strategic-merge-patch+json", conditional.clone()),
            ("PATCH", "?fieldManager=m", "apply-patch+yaml", claim.clone()),
        ] {
            let headers = [("content-type", format!("application/{content}"))];
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            let body = body.to_string();
            let path = format!("{PODS}/{pod}{path}");
            let answer = client.send(verb, &path, &headers, body.as_bytes());
            let reply = tokio::time::timeout(tests::PATIENCE, answer).await.expect(&path);
            assert_eq!(reply.status, 409, "{verb} {path} {body}: {}", reply.text());
        }
    }
    let binding = json!({"metadata": metadata, "target": {"kind": "Node", "name": "n"}});
    assert_eq!(client.post(&format!("{PODS}/pending/binding"), &binding).await.status, 409);
    assert_eq!(client.put(&format!("{PODS}/pending"), &whole).await.status, 409);
    whole["metadata"]["uid"] = json!("");
    whole["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(client.put(&format!("{PODS}/pending"), &whole).await.status, 409);
    // The server has served other requests meanwhile, and nothing was deleted.
    assert_eq!(client.get("/healthz").await.status, 200);
    assert_eq!(client.get(PODS).await.json()["items"].as_array().map(Vec::len), Some(3));
}
