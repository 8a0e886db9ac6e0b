//! The history of one object: its versions, their authors and changes, and the restore of an earlier version.

use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Starts a server with two users: alice has all permissions on ConfigMaps except the permission for their history,
/// and bob has all permissions.
pub(super) async fn server(flags: &[&str]) -> Server {
    let flags = ["--token-auth-file=$dir/tokens.csv"].iter().chain(flags).map(|flag| (*flag).to_owned());
    let tokens = "alice-token,alice,alice\nbob-token,bob,bob,system:masters\n".to_owned();
    let options =
        Options { flags: flags.collect(), files: vec![("tokens.csv", tokens)], ..Options::default() };
    let server = Server::start(options).await;
    grant(server.client(), "maps", json!(["get", "create", "update", "patch", "delete"])).await;
    server
}

/// Gives alice verbs on ConfigMaps.
pub(super) async fn grant(client: &Client, role: &str, verbs: Value) {
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

/// Repeats a request until the response has this status, because a change of permissions takes effect a little later.
pub(super) async fn until_status(client: &Client, method: &str, path: &str, status: u16) -> Value {
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

pub(super) async fn log_of(client: &Client, path: &str) -> Vec<Value> {
    let reply = client.get(&format!("/history{path}")).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    let log = reply.json();
    assert_eq!(
        (&log["kind"], &log["apiVersion"]),
        (&json!("ObjectHistory"), &json!("history.k8s.io/v1alpha1"))
    );
    log["items"].as_array().unwrap().clone()
}

/// Checks that the schema has each member of the value, and that the value has each required member.
fn assert_described(schemas: &Value, schema: &Value, value: &Value, path: &str) {
    let reference = schema["$ref"].as_str();
    let schema = reference.map_or(schema, |target| &schemas[target.rsplit('/').next().unwrap()]);
    assert!(schema.is_object(), "{path} has no schema");
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{path} has no {name}");
    }
    match value {
        Value::Array(items) => {
            items.iter().for_each(|item| assert_described(schemas, &schema["items"], item, path));
        }
        // An object of the API has its own schema.
        Value::Object(members) if schema.get("properties").is_some() => {
            for (name, member) in members {
                assert_described(schemas, &schema["properties"][name], member, &format!("{path}.{name}"));
            }
        }
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openapi_document_describes_the_answers() {
    for naming in ["kubernetes", "cluster"] {
        let options = Options { flags: vec![format!("--naming={naming}")], ..Options::default() };
        let server = Server::start(options).await;
        let client = server.client();
        let path = format!("{MAPS}/described");
        assert_eq!(client.post(MAPS, &json!({"metadata": {"name": "described"}})).await.status, 201);
        assert_eq!(
            client.put(&path, &json!({"metadata": {"name": "described"}, "data": {"a": "1"}})).await.status,
            200
        );
        let log = client.get(&format!("/history{path}?include=object,patch&limit=1")).await.json();
        let index = client.get("/openapi/v3").await.json();
        let url =
            index["paths"]["history"]["serverRelativeURL"].as_str().expect("the index has the document");
        let document = client.get(url).await.json();
        let read = &document["paths"]["/history/{path}"]["get"];
        let schema = &read["responses"]["200"]["content"]["application/json"]["schema"];
        assert_described(&document["components"]["schemas"], schema, &log, "history");
        assert!(log["items"][0]["patch"].is_array() && log["metadata"]["continue"].is_string(), "{log}");
        let restore = &document["paths"]["/history/{path}/restore"]["post"];
        assert_eq!(restore["operationId"], "restoreObjectState");
    }
}

fn operations(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["operation"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_log_lists_the_authors_of_changes() {
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
    // Reading the history needs the verb `history`.
    let refused = alice.get(&format!("/history{path}")).await;
    assert_eq!(refused.status, 403);
    grant(server.client(), "history", json!(["history"])).await;
    until_status(&alice, "GET", &format!("/history{path}"), 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_log_names_subresources_expiries_and_recorded_authors() {
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
async fn an_earlier_state_is_restored_as_an_update_or_a_create() {
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
    // Restoring needs the permission to update and the verb `history`.
    let alice = server.client().with_token("alice-token");
    until_status(&alice, "GET", &path, 200).await;
    let query = restore(format!("revision={old}"));
    assert_eq!(alice.send("POST", &query, &[], b"").await.status, 403);
    grant(server.client(), "history", json!(["history"])).await;
    until_status(&alice, "POST", &query, 200).await;
    assert_eq!(bob.send("PUT", &query, &[], b"").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_log_with_many_changes_is_paged() {
    let server = server(&[]).await;
    let bob = server.client().with_token("bob-token");
    let path = format!("{MAPS}/m");
    let map = |value: &str, count: usize| {
        let data: serde_json::Map<String, Value> =
            (0..count).map(|n| (format!("key-{n:05}"), json!(value))).collect();
        json!({"metadata": {"name": "m"}, "data": data})
    };
    assert_eq!(bob.post(MAPS, &map("1", 5_000)).await.status, 201);
    assert_eq!(bob.put(&path, &map("2", 5_000)).await.status, 200);
    let log = bob.get(&format!("/history{path}?include=patch&limit=1")).await;
    let item = &log.json()["items"][0];
    let lens = ["fields", "patch"].map(|name| item[name].as_array().unwrap().len());
    assert_eq!((lens, &item["cut"]), ([100, 1_000], &json!(["fields", "patch"])));
    assert!(log.body.len() < 200_000, "{} bytes", log.body.len());
    // Without the patch, only the list of fields is truncated. A short list is not truncated.
    let items = log_of(&bob, &path).await;
    assert_eq!(items[0]["cut"], json!(["fields"]));
    assert_eq!(bob.put(&path, &map("2", 4_999)).await.status, 200);
    assert!(log_of(&bob, &path).await[0].get("cut").is_none());

    // Pages with large objects end early, and the next pages have the rest.
    for n in 0..30 {
        let large = json!({"metadata": {"name": "m"}, "data": {"a": format!("{n}{}", "x".repeat(400_000))}});
        assert_eq!(bob.put(&path, &large).await.status, 200);
    }
    let (mut revisions, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let query = format!("include=object,patch&limit=500&continue={token}");
        let page = bob.get(&format!("/history{path}?{query}")).await;
        assert!(page.status == 200 && page.body.len() < 16 << 20, "{} {}", page.status, page.body.len());
        let page = page.json();
        let items = page["items"].as_array().unwrap().iter();
        revisions.extend(items.map(|item| item["revision"].as_str().unwrap().parse::<u64>().unwrap()));
        pages += 1;
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert!(pages > 2, "{pages} pages");
    assert!(revisions.len() == 33 && revisions.is_sorted_by(|one, two| one > two), "{revisions:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_get_permission_gives_access_to_earlier_states_of_a_secret() {
    let server = server(&[]).await;
    let client = server.client();
    let secrets = "/api/v1/namespaces/default/secrets";
    let path = format!("{secrets}/s");
    let secret = |value: &str| json!({"metadata": {"name": "s"}, "stringData": {"password": value}});
    let first = client.post(secrets, &secret("old-value")).await.json();
    assert_eq!(client.put(&path, &secret("new-value")).await.status, 200);
    let old = first["metadata"]["resourceVersion"].as_str().unwrap();
    // The listed fields contain keys, but no values.
    let log = client.get(&format!("/history{path}")).await;
    assert_eq!(log.json()["items"][0]["fields"], json!(["data.password"]));
    for value in ["old-value", "new-value", "b2xkLXZhbHVl", "bmV3LXZhbHVl"] {
        assert!(!log.text().contains(value), "{}", log.text());
    }
    // A restore returns the restored state, so it needs the permission to read that state.
    let alice = client.with_token("alice-token");
    let rules =
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["update", "create", "history"]}]);
    let role = json!({"metadata": {"name": "writer"}, "rules": rules});
    assert_eq!(client.post(&format!("{RBAC}/roles"), &role).await.status, 201);
    let binding = json!({
        "metadata": {"name": "writer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    assert_eq!(client.post(&format!("{RBAC}/rolebindings"), &binding).await.status, 201);
    let begun = std::time::Instant::now();
    while alice.put(&format!("{path}?dryRun=All"), &secret("x")).await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "the permission to update is not in effect");
    }
    for (method, request) in [
        ("GET", format!("/history{path}")),
        ("GET", format!("/history{path}?include=object,patch")),
        ("POST", format!("/history{path}/restore?revision={old}")),
        ("POST", format!("/history{path}/restore?revision={old}&dryRun=All")),
        ("GET", format!("/as-of/{old}{path}")),
    ] {
        let reply = alice.send(method, &request, &[], b"").await;
        assert_eq!(reply.status, 403, "{method} {request}: {}", reply.text());
        assert!(!reply.text().contains("b2xk"), "{}", reply.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_object_refers_to_the_current_owners() {
    let server = server(&[]).await;
    let client = server.client();
    let owner = async |name: &str| {
        let map = client.post(MAPS, &json!({"metadata": {"name": name}})).await.json();
        map["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let reference =
        |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid});
    let (stays, again, gone) = (owner("stays").await, owner("again").await, owner("gone").await);
    let stranger = json!({"apiVersion": "x.example.com/v1", "kind": "X", "name": "x", "uid": "1"});
    let references =
        json!([reference("stays", &stays), reference("again", &again), reference("gone", &gone), stranger]);
    let map = json!({"metadata": {"name": "m", "ownerReferences": references}});
    let first = client.post(MAPS, &map).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let old = first.json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for name in ["m", "again", "gone"] {
        assert_eq!(client.delete(&format!("{MAPS}/{name}")).await.status, 200);
    }
    let again = owner("again").await;
    let restore = format!("/history{MAPS}/m/restore?revision={old}");
    let reply = client.send("POST", &restore, &[], b"").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let restored = reply.json()["metadata"]["ownerReferences"].clone();
    assert_eq!(restored, json!([reference("stays", &stays), reference("again", &again), stranger]));
    let warnings = reply.header_all("warning").join("\n");
    for part in [
        "ConfigMap \\\"again\\\" was created again",
        "ConfigMap \\\"gone\\\" does not exist",
        "X \\\"x\\\" was not looked for",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }

    // If another service has meanwhile taken an address, the restore assigns a new address.
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, address: &Value| json!({"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}});
    let first = client.post(services, &service("a", &json!(null))).await.json();
    let (old, address) =
        (first["metadata"]["resourceVersion"].as_str().unwrap(), &first["spec"]["clusterIP"]);
    assert_eq!(client.delete(&format!("{services}/a")).await.status, 200);
    assert_eq!(client.post(services, &service("b", address)).await.status, 201);
    let restore = format!("/history{services}/a/restore?revision={old}");
    let reply = client.send("POST", &restore, &[], b"").await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_ne!(reply.json()["spec"]["clusterIP"], *address);
    assert!(reply.header_all("warning").join("").contains("provided IP is already allocated"));
}
