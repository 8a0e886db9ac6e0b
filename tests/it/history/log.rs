//! The history of one object: its versions, their authors and changes, and the way back to one of them.

use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Starts a server with the users alice, who may do everything to ConfigMaps but read their history, and bob,
/// who may do everything.
async fn server(flags: &[&str]) -> Server {
    let flags = ["--token-auth-file=$dir/tokens.csv"].iter().chain(flags).map(|flag| (*flag).to_owned());
    let tokens = "alice-token,alice,alice\nbob-token,bob,bob,system:masters\n".to_owned();
    let options =
        Options { flags: flags.collect(), files: vec![("tokens.csv", tokens)], ..Options::default() };
    let server = Server::start(options).await;
    grant(server.client(), "maps", json!(["get", "create", "update", "patch", "delete"])).await;
    server
}

/// Gives alice verbs on ConfigMaps.
async fn grant(client: &Client, role: &str, verbs: Value) {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    let reply =
        client.post(&format!("{RBAC}/roles"), &json!({"metadata": {"name": role}, "rules": rules})).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let binding = json!({
        "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let reply = client.post(&format!("{RBAC}/rolebindings"), &binding).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
}

/// Sends a request until the permissions that were just granted or not are known.
async fn until_status(client: &Client, method: &str, path: &str, status: u16) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let reply = client.send(method, path, &[], b"").await;
        if reply.status == status {
            return reply.json();
        }
        assert!(begun.elapsed() < PATIENCE, "{method} {path}: {}", reply.text());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn log_of(client: &Client, path: &str) -> Vec<Value> {
    let reply = client.get(&format!("/history{path}")).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    let log = reply.json();
    assert_eq!(
        (&log["kind"], &log["apiVersion"]),
        (&json!("ObjectHistory"), &json!("history.k8s.io/v1alpha1"))
    );
    log["items"].as_array().unwrap().clone()
}

fn operations(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["operation"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_says_who_changed_what() {
    let server = server(&[]).await;
    let bob = server.client().with_token("bob-token");
    let alice = server.client().with_token("alice-token");
    let path = format!("{MAPS}/m");
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": "1"}});
    until_status(&alice, "GET", &path, 404).await;
    assert_eq!(alice.post(MAPS, &map).await.status, 201);
    let headers = [("content-type", "application/merge-patch+json"), ("user-agent", "tool/1.0 (test)")];
    let patch = json!({"data": {"a": "2", "b": null}, "metadata": {"annotations": {"x.y/z": "1"}}});
    let manager = format!("{path}?fieldManager=test-manager");
    let patched = bob.send("PATCH", &manager, &headers, patch.to_string().as_bytes()).await;
    assert_eq!(patched.status, 200);
    assert_eq!(alice.delete(&path).await.status, 200);
    assert_eq!(bob.post(MAPS, &map).await.status, 201);

    let items = log_of(&bob, &path).await;
    assert_eq!(operations(&items), ["Create", "Delete", "Update", "Create"]);
    let users: Vec<_> = items.iter().map(|item| item["author"]["user"].as_str().unwrap()).collect();
    assert_eq!(users, ["bob", "alice", "bob", "alice"]);
    let update = &items[2];
    let resource_version = patched.json()["metadata"]["resourceVersion"].clone();
    assert_eq!(update["revision"], resource_version);
    let author = json!({
        "user": "bob", "userAgent": "tool/1.0 (test)", "manager": "test-manager",
        "requestID": patched.header_all("audit-id")[0], "source": "127.0.0.1",
    });
    assert_eq!(update["author"], author);
    let fields = json!(["data.b", "data.a", "metadata.annotations"]);
    let sorted = |value: &Value| {
        let mut texts: Vec<_> = value.as_array().unwrap().iter().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    assert_eq!(sorted(&update["fields"]), sorted(&fields));
    assert!(update.get("object").is_none() && update.get("patch").is_none());
    assert!(update["time"].as_str().unwrap().ends_with('Z'));

    let included = bob.get(&format!("/history{path}?include=object,patch&limit=3")).await.json();
    let update = &included["items"][2];
    assert_eq!(update["object"]["metadata"]["resourceVersion"], resource_version);
    let patch = update["patch"].as_array().unwrap();
    assert!(patch.contains(&json!({"op": "replace", "path": "/data/a", "value": "2"})), "{patch:?}");
    assert!(patch.contains(&json!({"op": "remove", "path": "/data/b"})), "{patch:?}");

    let token = included["metadata"]["continue"].as_str().unwrap();
    let last = bob.get(&format!("/history{path}?limit=3&continue={token}")).await.json();
    assert_eq!(last["items"], json!([items[3]]));
    assert!(last["metadata"].get("continue").is_none());
    let yaml = bob.send("GET", &format!("/history{path}"), &[("accept", "application/yaml")], b"").await;
    assert!(yaml.text().contains("kind: ObjectHistory"), "{}", yaml.text());

    for (path, status) in [
        (format!("/history{path}?include=all"), 400),
        (format!("/history{path}?limit=x"), 400),
        (format!("/history{path}?continue=x"), 400),
        (format!("/history{MAPS}/other"), 404),
        (format!("/history{MAPS}"), 404),
        (format!("/history{DEPLOYMENTS}/d/status"), 404),
        ("/history/apis".to_owned(), 404),
    ] {
        assert_eq!(bob.get(&path).await.status, status, "{path}");
    }
    // The history needs a verb of its own.
    let refused = alice.get(&format!("/history{path}")).await;
    assert_eq!(refused.status, 403);
    grant(server.client(), "history", json!(["history"])).await;
    until_status(&alice, "GET", &format!("/history{path}"), 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_names_subresources_and_expiries_and_has_authors_only_if_they_are_recorded() {
    let mut server = server(&["--event-ttl=1s"]).await;
    let bob = server.client().with_token("bob-token");
    let template = json!({
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    assert_eq!(bob.post(DEPLOYMENTS, &json!({"metadata": {"name": "d"}, "spec": spec})).await.status, 201);
    let deployment = format!("{DEPLOYMENTS}/d");
    let status = json!({"status": {"replicas": 1}});
    assert_eq!(bob.patch(&format!("{deployment}/status"), "merge", &status).await.status, 200);
    let scale = json!({"spec": {"replicas": 3}});
    assert_eq!(bob.patch(&format!("{deployment}/scale"), "merge", &scale).await.status, 200);
    let items = log_of(&bob, &deployment).await;
    let subresources: Vec<_> = items.iter().map(|item| item["subresource"].as_str().unwrap_or("")).collect();
    assert_eq!(subresources, ["scale", "status", ""]);
    assert!(items[0]["fields"].as_array().unwrap().contains(&json!("spec.replicas")), "{}", items[0]);

    let event = json!({
        "metadata": {"name": "e"}, "reason": "Tested", "type": "Normal",
        "involvedObject": {"kind": "ConfigMap", "name": "m", "namespace": "default"},
    });
    assert_eq!(bob.post(EVENTS, &event).await.status, 201);
    bob.until_gone(&format!("{EVENTS}/e")).await;
    let items = log_of(&bob, &format!("{EVENTS}/e")).await;
    assert_eq!(operations(&items), ["Expire", "Create"]);
    assert!(items[0].get("author").is_none() && items[1]["author"]["user"] == "bob", "{items:?}");

    server.restart_with(&["--token-auth-file=$dir/tokens.csv", "--history-authors=false"]).await;
    let bob = server.client().with_token("bob-token");
    assert_eq!(bob.delete(&deployment).await.status, 200);
    let items = log_of(&bob, &deployment).await;
    assert_eq!(operations(&items)[0], "Delete");
    assert!(items[0].get("author").is_none() && items[1]["author"]["user"] == "bob", "{items:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_is_restored_as_an_update_or_as_a_create() {
    let server = server(&[]).await;
    let bob = server.client().with_token("bob-token");
    let path = format!("{MAPS}/m");
    let map = json!({"metadata": {"name": "m", "labels": {"l": "old"}}, "data": {"a": "old"}});
    let first = bob.post(MAPS, &map).await.json();
    let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let old = revision(&first);
    let patch = json!({"metadata": {"labels": {"l": "new", "m": "new"}}, "data": {"a": "new", "b": "new"}});
    let second = bob.patch(&path, "merge", &patch).await.json();
    let restore = |query: String| format!("/history{path}/restore?{query}");

    let dry = bob.send("POST", &restore(format!("revision={old}&dryRun=All")), &[], b"").await;
    assert_eq!((dry.status, &dry.json()["data"]), (200, &json!({"a": "old"})), "{}", dry.text());
    assert_eq!(bob.get(&path).await.json(), second);
    let stale = format!("revision={old}&resourceVersion={old}");
    assert_eq!(bob.send("POST", &restore(stale), &[], b"").await.status, 409);
    let exact = format!("revision={old}&resourceVersion={}&fieldManager=undo", revision(&second));
    let reply = bob.send("POST", &restore(exact), &[], b"").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let restored = reply.json();
    assert_eq!(
        (&restored["data"], &restored["metadata"]["labels"]),
        (&map["data"], &map["metadata"]["labels"])
    );
    assert_eq!(restored["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(log_of(&bob, &path).await[0]["author"]["manager"], "undo");

    assert_eq!(bob.delete(&path).await.status, 200);
    let reply = bob.send("POST", &restore(format!("revision={old}")), &[], b"").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(reply.json()["data"], map["data"]);
    assert_ne!(reply.json()["metadata"]["uid"], first["metadata"]["uid"]);

    for (query, status) in [
        ("revision=x".to_owned(), 400),
        (String::new(), 400),
        ("revision=99999999".to_owned(), 400),
        ("revision=1".to_owned(), 404),
    ] {
        let reply = bob.send("POST", &restore(query.clone()), &[], b"").await;
        assert_eq!(reply.status, status, "{query}: {}", reply.text());
    }
    // Restoring needs the permission to update, and the verb of the history.
    let alice = server.client().with_token("alice-token");
    until_status(&alice, "GET", &path, 200).await;
    let query = restore(format!("revision={old}"));
    assert_eq!(alice.send("POST", &query, &[], b"").await.status, 403);
    grant(server.client(), "history", json!(["history"])).await;
    until_status(&alice, "POST", &query, 200).await;
    assert_eq!(bob.send("PUT", &query, &[], b"").await.status, 404);
}
