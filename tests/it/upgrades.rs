//! Versions that are added and removed (docs/api/operations.md#runtime-config): objects are preserved while no version
//! serves them, and operators can see the use of a deprecated version.
//!
//! The tests also cover the data directories of released servers, `tests/fixtures/served_*`: this server serves every
//! object as its release did. `CLUSTER_APISERVER=OLD cargo test --package tests --test it earlier_release` makes an
//! older binary serve the directories of newer binaries, which is a downgrade.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::{Client, Options, Server, TempDir};

const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const BETA: &str = "/apis/networking.k8s.io/v1beta1/ipaddresses";

/// Returns whether a group is in each of the documents that list the served types.
async fn documents(client: &Client, group: &str) -> Vec<bool> {
    let groups = client.get("/apis").await.json();
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let discovery = client.send("GET", "/apis", &[("accept", aggregated)], b"").await.json();
    let is_named = |list: &Value, name: fn(&Value) -> &Value| {
        list.as_array().unwrap().iter().any(|one| name(one).as_str() == Some(group))
    };
    let index = client.get("/openapi/v3").await.json();
    let swagger = client.get("/openapi/v2").await.json();
    vec![
        is_named(&groups["groups"], |one| &one["name"]),
        is_named(&discovery["items"], |one| &one["metadata"]["name"]),
        index["paths"].get(format!("apis/{group}/v1")).is_some(),
        swagger["paths"].get(format!("/apis/{group}/v1/")).is_some(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_survive_disabling_and_enabling_their_version() {
    let mut server = Server::start_upstream().await;
    let client = server.client().clone();
    let class = client.post(CLASSES, &json!({"metadata": {"name": "c"}, "handler": "h"})).await.json();
    let address = json!({"metadata": {"name": "10.1.2.3"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}});
    let address = client.post(ADDRESSES, &address).await.json();
    assert!(
        class["metadata"]["uid"].is_string() && address["metadata"]["uid"].is_string(),
        "{class} {address}"
    );
    assert_eq!(documents(&client, "node.k8s.io").await, [true; 4]);

    server.restart_with(&["--runtime-config=node.k8s.io/v1=false,networking.k8s.io/v1beta1=true"]).await;
    let client = server.client().clone();
    for path in [CLASSES, "/apis/node.k8s.io/v1", "/apis/node.k8s.io", &format!("{CLASSES}/c")] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
    assert_eq!(documents(&client, "node.k8s.io").await, [false; 4]);
    // The other type now has a second version. Requests for this version read and change the same object.
    let mut beta = client.get(&format!("{BETA}/10.1.2.3")).await.json();
    assert_eq!((&beta["apiVersion"], &beta["spec"]), (&json!("networking.k8s.io/v1beta1"), &address["spec"]));
    beta["metadata"]["labels"] = json!({"changed": "by-beta"});
    let put = client.put(&format!("{BETA}/10.1.2.3"), &beta).await;
    assert_eq!(put.status, 200, "{}", put.text());
    assert!(put.header_all("warning").join("").contains("networking.k8s.io/v1beta1"), "{:?}", put.headers);
    // The garbage collector does not delete dependents of objects that are not served.
    let owned = json!({"metadata": {"name": "owned", "ownerReferences": [{"apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass", "name": "c", "uid": class["metadata"]["uid"]}]}});
    let leases = "/api/v1/namespaces/default/configmaps";
    assert_eq!(client.post(leases, &owned).await.status, 201);

    server.restart_with(&[]).await;
    let client = server.client().clone();
    assert_eq!(client.get(&format!("{CLASSES}/c")).await.json(), class, "the object is unchanged");
    assert_eq!(documents(&client, "node.k8s.io").await, [true; 4]);
    assert_eq!(client.get(BETA).await.status, 404);
    let stable = client.get(&format!("{ADDRESSES}/10.1.2.3")).await.json();
    assert_eq!(stable["apiVersion"], "networking.k8s.io/v1");
    assert_eq!(stable["metadata"]["labels"], json!({"changed": "by-beta"}));
    assert_eq!(stable["metadata"]["uid"], address["metadata"]["uid"]);
    assert_eq!(client.get(&format!("{leases}/owned")).await.status, 200);
}

/// Returns a definition with a deprecated version, served or not.
fn definition(is_served: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
    "group": "example.com", "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [
        {"name": "v1", "served": true, "storage": true, "schema": schema},
        {"name": "v1beta1", "served": is_served, "storage": false, "deprecated": true,
         "deprecationWarning": "example.com/v1beta1 Widget ends in May", "schema": schema},
    ]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_use_of_a_deprecated_version_causes_a_warning_a_metric_and_an_audit_annotation() {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\n\
                  rules: [{level: Metadata, resources: [{group: example.com}]}]\n";
    let flags = ["--audit-policy-file=$dir/policy", "--audit-log-path=$dir/audit.log"];
    let server = Server::start(Options {
        flags: flags.map(str::to_owned).to_vec(),
        files: vec![("policy", policy.to_owned())],
        ..Options::default()
    })
    .await;
    let client = server.client();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(client.post(definitions, &definition(true)).await.status, 201);
    let path = |version: &str| format!("/apis/example.com/{version}/namespaces/default/widgets");
    client.until(&path("v1beta1"), |list| list.is_some()).await;
    let made = client
        .post(
            &path("v1beta1"),
            &json!({"apiVersion": "example.com/v1beta1", "kind": "Widget",
        "metadata": {"name": "w"}}),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.header_all("warning"), ["299 - \"example.com/v1beta1 Widget ends in May\""]);
    let stable = client.get(&format!("{}/w", path("v1"))).await;
    assert_eq!((stable.status, stable.header_all("warning")), (200, Vec::new()));
    let page = client.get("/metrics").await.text();
    let series = "apiserver_requested_deprecated_apis{group=\"example.com\",removed_release=\"\",\
                  resource=\"widgets\",subresource=\"\",version=\"v1beta1\"} 1";
    assert!(page.lines().any(|line| line == series), "{series}");
    let log = std::fs::read_to_string(server.data_dir().join("audit.log")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (verb, version, deprecated) in [("create", "v1beta1", json!("true")), ("get", "v1", Value::Null)] {
        let mut found = events
            .iter()
            .filter(|event| event["verb"] == verb && event["objectRef"]["apiVersion"] == version);
        let event = found.next().unwrap_or_else(|| panic!("no {verb} in {log}"));
        assert_eq!(event["annotations"]["k8s.io/deprecated"], deprecated, "{event}");
    }
    // The object is found only under the version that is still served.
    let versions = json!({"spec": {"versions": definition(false)["spec"]["versions"]}});
    let changed = client.patch(&format!("{definitions}/widgets.example.com"), "merge", &versions).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    client.until_gone(&path("v1beta1")).await;
    assert_eq!(client.get(&format!("{}/w", path("v1"))).await.json()["apiVersion"], "example.com/v1");
}

/// The data directories, each with whether its release recorded the authors of writes (docs/format.md#authors).
const SERVED: [(&str, bool); 2] = [("served_1", false), ("served_2", true)];

/// The collections whose objects a fixture lists, with the names of their files.
const COLLECTIONS: [(&str, &str); 4] = [
    ("configmaps.json", "/api/v1/namespaces/shop/configmaps"),
    ("secrets.json", "/api/v1/namespaces/shop/secrets"),
    ("roles.json", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/roles"),
    ("orders.json", "/apis/shop.example.com/v1/namespaces/shop/orders"),
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// Returns a new data directory with the files of a fixture. Each compressed file begins with its length, because it is
/// stored without the zeros at its end.
fn unpack(name: &str) -> TempDir {
    let directory = TempDir::new();
    std::fs::create_dir(directory.path().join("log")).unwrap();
    std::fs::copy(fixture(name).join("profile"), directory.path().join("profile")).unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gz") {
            continue;
        }
        let mut bytes = Vec::new();
        let packed = std::fs::File::open(&path).unwrap();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        let len = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let target = directory.path().join("log").join(path.file_stem().unwrap());
        std::fs::write(&target, &bytes[8..]).unwrap();
        std::fs::OpenOptions::new().write(true).open(&target).unwrap().set_len(len).unwrap();
    }
    directory
}

async fn serve(name: &str) -> Server {
    // The history of a fixture is older than any usual retention.
    let flags = vec!["--history-retention=876000h".to_owned()];
    Server::start_in(unpack(name), Options { flags, ..Options::default() }).await
}

/// Checks that the server answers with the objects of the fixture, except those that `is_changed` selects.
async fn check_objects(client: &Client, name: &str, is_changed: impl Fn(&Value) -> bool) {
    for (file, path) in COLLECTIONS {
        let text = std::fs::read_to_string(fixture(name).join(file)).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        // A custom type is served once its definition was read.
        client.until(path, |list| list.is_some()).await;
        let found = client.get(path).await.json();
        let items = |list: &Value| {
            let mut items = list["items"].as_array().unwrap().clone();
            // Certificates are not part of a fixture, so the server publishes a new CA.
            items.retain(|item| item["metadata"]["name"] != "kube-root-ca.crt" && !is_changed(item));
            items
        };
        assert_eq!(items(&found), items(&expected), "{name}: {path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_an_earlier_release_is_served_unchanged_and_can_be_modified() {
    for (name, _) in SERVED {
        let mut server = serve(name).await;
        let client = server.client().clone();
        check_objects(&client, name, |_| false).await;
        let path = "/api/v1/namespaces/shop/configmaps/prices";
        let before = client.get(path).await.json();
        let change = json!({"data": {"plum": "5"}});
        let after = client.patch(path, "merge", &change).await.json();
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{name}");
        assert_eq!(after["data"], json!({"apple": "3", "pear": "4", "plum": "5"}), "{name}");
        assert_eq!(server.terminate(), Some(0), "{name}");
        server.restart().await;
        let client = server.client().clone();
        check_objects(&client, name, |object| object["metadata"]["name"] == "prices").await;
        assert_eq!(client.get(path).await.json(), after, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_in_data_of_an_earlier_release_has_the_recorded_authors() {
    for (name, has_authors) in SERVED {
        let server = serve(name).await;
        let log = server.client().get("/history/api/v1/namespaces/shop/configmaps/prices").await;
        assert_eq!(log.status, 200, "{name}: {}", log.text());
        let log = log.json();
        let items = log["items"].as_array().unwrap();
        let operations: Vec<_> = items.iter().map(|item| item["operation"].as_str().unwrap()).collect();
        assert_eq!(operations, ["Update", "Update", "Create"], "{name}");
        for item in items {
            let user = item["author"]["user"].as_str();
            assert_eq!(user, has_authors.then_some("cluster-admin"), "{name}: {item}");
        }
        let gone = server.client().get("/history/api/v1/namespaces/shop/configmaps/gone").await.json();
        assert_eq!(gone["items"][0]["operation"], "Delete", "{name}: {gone}");
    }
}
