//! The Python client used like an informer (list, watch from the version of the list, resume, and decode objects), and
//! an operator written with the framework kopf, which has its own client.

use std::process::Stdio;

use serde_json::json;
use tests::server::TempDir;
use tests::{Options, PATIENCE, Server};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// The loop of an informer. The loop lists, watches from the version of the list, and after each end of a watch watches
/// again from the last version. For each event, the loop prints one line.
const INFORMER: &str = "\
import sys
from kubernetes import client, config, watch
config.load_kube_config(config_file=sys.argv[1])
api = client.CoreV1Api()
listed = api.list_namespaced_secret('default', limit=500)
version = listed.metadata.resource_version
print('LISTED', *sorted(item.metadata.name for item in listed.items), flush=True)
seen = 0
while seen < int(sys.argv[2]):
    stream = watch.Watch()
    for event in stream.stream(api.list_namespaced_secret, 'default', resource_version=version,
                               timeout_seconds=1, allow_watch_bookmarks=True):
        version = stream.resource_version or version
        if event['type'] == 'BOOKMARK':
            continue
        print(event['type'], event['object'].metadata.name, flush=True)
        seen += 1
        if seen == int(sys.argv[2]):
            break
";

/// An operator that creates one config map for each object, creates it again when the spec changes, and sets a status.
const OPERATOR: &str = "\
import kopf
from kubernetes import client, config
config.load_kube_config()
core = client.CoreV1Api()

def child(name, namespace, spec):
    body = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name},
            'data': {'size': str(spec['size'])}}
    kopf.adopt(body)
    return body

@kopf.on.create('e2e.example.com', 'v1', 'baskets')
def made(name, namespace, spec, patch, **_):
    core.create_namespaced_config_map(namespace, child(name, namespace, spec))
    patch.status['size'] = spec['size']
    return {'by': 'made'}

@kopf.on.update('e2e.example.com', 'v1', 'baskets', field='spec.size')
def changed(name, namespace, spec, patch, **_):
    core.patch_namespaced_config_map(name, namespace, {'data': {'size': str(spec['size'])}})
    patch.status['size'] = spec['size']

@kopf.on.delete('e2e.example.com', 'v1', 'baskets')
def gone(name, namespace, **_):
    core.create_namespaced_config_map(namespace, {'metadata': {'name': 'gone-' + name}})
";

/// Returns whether Python with a module is installed; prints a line if not.
pub async fn has(module: &str) -> bool {
    let import = format!("import {module}");
    let found = Command::new("python3").args(["-c", &import]).stderr(Stdio::null()).status().await;
    let found = found.is_ok_and(|status| status.success());
    if !found {
        testkit::skip(&format!("python3 has no module {module}"));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_in_python_reconciles_custom_objects() {
    if !has("kubernetes").await || !has("kopf").await {
        return;
    }
    let server = Server::start_upstream().await;
    let client = server.client();
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
        // The framework and its handlers write reports into this field.
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let definition = json!({"metadata": {"name": "baskets.e2e.example.com"}, "spec": {
        "group": "e2e.example.com", "scope": "Namespaced", "names": {"plural": "baskets", "kind": "Basket"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}}],
    }});
    let reply = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let baskets = "/apis/e2e.example.com/v1/namespaces/default/baskets";
    client.until(baskets, |list| list.is_some_and(|list| list["kind"] == "BasketList")).await;

    let directory = TempDir::new();
    let script = directory.path().join("operator.py");
    std::fs::write(&script, OPERATOR).expect("the directory is writable");
    let _operator = Command::new("python3")
        .args(["-m", "kopf", "run", "--standalone", "--namespace=default"])
        .arg(&script)
        .env("KUBECONFIG", server.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 runs");

    let basket = json!({
        "apiVersion": "e2e.example.com/v1", "kind": "Basket", "metadata": {"name": "b"}, "spec": {"size": 3},
    });
    assert_eq!(client.post(baskets, &basket).await.status, 201);
    let (path, child) = (format!("{baskets}/b"), "/api/v1/namespaces/default/configmaps/b");
    let size = |size: u64| {
        move |basket: Option<&serde_json::Value>| {
            basket.is_some_and(|basket| basket["status"]["size"] == size)
        }
    };
    client.until(&path, size(3)).await;
    let made = client.get(&path).await.json();
    assert_eq!(made["metadata"]["finalizers"].as_array().map(Vec::len), Some(1), "{made}");
    let owned = client.get(child).await.json();
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"], "{owned}");
    let reply = client.patch(&path, "merge", &json!({"spec": {"size": 5}})).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    client.until(&path, size(5)).await;
    assert_eq!(client.get(child).await.json()["data"]["size"], "5");
    assert_eq!(client.delete(&path).await.status, 200);
    client.until_gone(&path).await;
    assert_eq!(client.get("/api/v1/namespaces/default/configmaps/gone-b").await.status, 200);
    client.until_gone(child).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_in_python_receives_every_event_once() {
    if !has("kubernetes").await {
        return;
    }
    let server = Server::start(Options::default()).await;
    let client = server.client();
    let path = "/api/v1/namespaces/default/secrets";
    for name in ["a", "b"] {
        assert_eq!(client.post(path, &json!({"metadata": {"name": name}})).await.status, 201);
    }
    let mut informer = Command::new("python3")
        .args(["-c", INFORMER])
        .arg(server.kubeconfig())
        .arg("6")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3 runs");
    let mut lines = BufReader::new(informer.stdout.take().expect("the output is a pipe")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("the informer prints");
        line.expect("the output is text").expect("the informer has not ended")
    };
    assert_eq!(next().await, "LISTED a b");
    client.post(path, &json!({"metadata": {"name": "c"}})).await;
    client.patch(&format!("{path}/a"), "merge", &json!({"data": {"k": "dg=="}})).await;
    for want in ["ADDED c", "MODIFIED a"] {
        assert_eq!(next().await, want);
    }
    // Each watch lasts a second, so some changes happen between two watches.
    for n in 0..2 {
        let name = format!("late-{n}");
        client.post(path, &json!({"metadata": {"name": name}})).await;
        client.delete(&format!("{path}/{name}")).await;
        for want in ["ADDED", "DELETED"] {
            assert_eq!(next().await, format!("{want} {name}"));
        }
    }
    let ended = tokio::time::timeout(PATIENCE, informer.wait()).await.expect("the informer ends");
    assert!(ended.expect("the informer can be waited for").success());
}
