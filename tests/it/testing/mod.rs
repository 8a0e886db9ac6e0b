//! The test features (`docs/api/testing.md`): clock, faults, recording, quiescence, watches and snapshots. Without
//! `--testing` the features are absent. Hostile requests for the features are refused.

mod clock;
mod controllers;
mod faults;
mod hostile;
mod recording;
mod snapshots;

use serde_json::{Value, json};
use tests::{Client, Options, Reply, Server};

/// Starts a server with test features and further flags.
async fn server(flags: &[&str]) -> Server {
    let flags = ["--testing", "--durability=relaxed"].iter().chain(flags);
    let flags = flags.map(|flag| (*flag).to_owned()).collect();
    Server::start(Options { flags, ..Options::default() }).await
}

/// Sends a request to a test feature. The request must succeed. Returns the body of the response.
async fn control(client: &Client, method: &str, path: &str, body: Value) -> Value {
    let reply = send(client, method, path, &body).await;
    assert_eq!(reply.status, 200, "{method} {path} {body}: {}", reply.text());
    reply.json()
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.send(method, &format!("/testing{path}"), &[], body.as_bytes()).await
}

/// Returns a config map with one value.
fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Every path of the test features, with a method that the path supports.
const PATHS: [(&str, &str); 17] = [
    ("GET", ""),
    ("GET", "/"),
    ("GET", "/clock"),
    ("PUT", "/clock"),
    ("DELETE", "/clock"),
    ("GET", "/faults"),
    ("POST", "/faults"),
    ("DELETE", "/faults"),
    ("GET", "/faults/1"),
    ("POST", "/quiescence"),
    ("GET", "/requests"),
    ("DELETE", "/requests"),
    ("GET", "/snapshots"),
    ("PUT", "/snapshots/a"),
    ("POST", "/snapshots/a/restore"),
    ("GET", "/watches"),
    ("POST", "/watches"),
];

#[tokio::test]
async fn test_paths_do_not_exist_without_the_flag() {
    let server = Server::start_upstream().await;
    for (method, path) in PATHS {
        let reply = send(server.client(), method, path, &Value::Null).await;
        assert_eq!((reply.status, &*reply.text()), (404, "404 page not found\n"), "{method} {path}");
    }
    assert!(!server.client().get("/").await.text().contains("/testing"));
}

#[tokio::test]
async fn test_paths_have_their_own_permission() {
    for naming in ["kubernetes", "cluster"] {
        let flags = vec!["--testing".to_owned()];
        let server = Server::start(Options { naming, flags, ..Options::default() }).await;
        let client = server.client();
        let index = client.get("/").await.json();
        assert!(index["paths"].as_array().unwrap().contains(&json!("/testing/clock")), "{index}");
        client
            .post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "tester"}}))
            .await;
        let token = client
            .post("/api/v1/namespaces/default/serviceaccounts/tester/token", &json!({"spec": {}}))
            .await;
        let tester = client.with_token(token.json()["status"]["token"].as_str().unwrap());
        for (method, path) in PATHS {
            assert_eq!(
                send(&tester, method, path, &Value::Null).await.status,
                403,
                "{naming} {method} {path}"
            );
            let anonymous = send(&client.anonymous(), method, path, &Value::Null).await.status;
            assert!(matches!(anonymous, 401 | 403), "{naming} {method} {path}: {anonymous}");
        }
        let group = if naming == "kubernetes" {
            "rbac.authorization.k8s.io"
        } else {
            "rbac.authorization.cluster.io"
        };
        let rules = json!([{"nonResourceURLs": ["/testing/*"], "verbs": ["get"]}]);
        let role = json!({"metadata": {"name": "tester"}, "rules": rules});
        let made = client.post(&format!("/apis/{group}/v1/clusterroles"), &role).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let binding = json!({
            "metadata": {"name": "tester"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "tester"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "tester"}],
        });
        let made = client.post(&format!("/apis/{group}/v1/clusterrolebindings"), &binding).await;
        assert_eq!(made.status, 201, "{}", made.text());
        assert_eq!(send(&tester, "GET", "/clock", &Value::Null).await.status, 200);
        assert_eq!(send(&tester, "DELETE", "/clock", &Value::Null).await.status, 403);
    }
}
