//! Work that only one of several servers does (docs/api/etcd.md#election): one server does the work
//! once, and another server takes over after the first one was killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use etcd::rpc::{DeleteRangeRequest, Request, TxnRequest};
use serde_json::{Value, json};
use tests::{Client, PATIENCE, Server};

use super::cluster::Etcd;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-apiserver-controllers";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const MOVERS: usize = 20;

fn definition(stored: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == stored, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({
        "metadata": {"name": "movers.elected.example.com"},
        "spec": {
            "group": "elected.example.com", "scope": "Namespaced",
            "names": {"plural": "movers", "singular": "mover", "kind": "Mover", "listKind": "MoverList"},
            "versions": [version("v1"), version("v2")]
        }
    })
}

fn movers(version: &str) -> String {
    format!("/apis/elected.example.com/{version}/namespaces/default/movers")
}

fn secret(name: &str) -> Value {
    json!({
        "metadata": {"name": format!("bootstrap-token-{name}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": name, "token-secret": "0123456789abcdef", "expiration": "2020-01-01T00:00:00Z"}
    })
}

/// Makes `stored` the storage version through `client`. Checks that the migration wrote each object once, and that
/// only the server `by` migrated objects.
async fn migrates_once(client: &Client, stored: &str, by: &Server, other: &Server) {
    const LOGGED: &str = "objects migrated";
    let logged = |server: &Server| server.log().matches(LOGGED).count();
    let before = (logged(by), logged(other));
    let list = client.get(&movers("v1")).await.json();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{DEFINITIONS}/movers.elected.example.com");
    let mut changed = client.get(&path).await.json();
    changed["spec"]["versions"] = definition(stored)["spec"]["versions"].clone();
    let reply = client.put(&path, &changed).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let is_over = |object: Option<&Value>| {
        object.is_some_and(|object| object["status"]["storedVersions"] == json!([stored]))
    };
    client.until(&path, is_over).await;
    // The creation of this object marks the end of the events to check.
    let last = json!({"apiVersion": "elected.example.com/v1", "kind": "Mover", "metadata": {"name": format!("last-{stored}")}});
    assert_eq!(client.post(&movers("v1"), &last).await.status, 201);
    let mut watch = client.watch(&format!("{}?watch=true&resourceVersion={from}", movers("v1"))).await;
    let mut written: BTreeMap<String, usize> = BTreeMap::new();
    loop {
        let (kind, name, _) = watch.expect().await;
        if kind == "ADDED" {
            assert_eq!(name, format!("last-{stored}"));
            break;
        }
        *written.entry(name).or_default() += 1;
    }
    let count = list["items"].as_array().unwrap().len();
    assert!(written.len() == count && written.values().all(|times| *times == 1), "{count}: {written:?}");
    by.until_logged(LOGGED, before.0 + 1).await;
    assert_eq!((logged(by), logged(other)), (before.0 + 1, before.1));
}

/// Creates the damage that a server causes if it stops between the two writes of an allocation. Returns the address of
/// the service.
async fn damage(etcd: &Etcd, client: &Client, name: &str, orphan: &str) -> String {
    let service = json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let made = client.post(SERVICES, &service).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let address = made.json()["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let orphaned = json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": orphan, "uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z", "labels": {
            "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "gone"}}
    });
    etcd.put(&format!("/registry/ipaddresses/{orphan}"), orphaned.to_string().into_bytes()).await;
    let keys = [format!("/registry/ipaddresses/{address}"), "/registry/ranges/servicenodeports".to_owned()];
    let deletes =
        keys.map(|key| Request::Delete(DeleteRangeRequest { key: key.into(), range_end: "".into() }).into());
    let request = TxnRequest { success: deletes.into(), ..TxnRequest::default() };
    etcd.client().txn(&request).await.expect("etcd accepts the transaction");
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn singleton_controllers_run_on_one_server_and_another_takes_over_when_it_is_killed() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let flags =
        ["--controllers=*,storage-version-migrator,tokencleaner", "--service-cluster-ip-range=10.0.0.0/24"];
    let mut one = etcd.server(&flags).await;
    one.client().until(LEASE, |lease| lease.is_some()).await;
    let two = etcd.server(&flags).await;
    let client = two.client();
    assert_eq!(client.post(DEFINITIONS, &definition("v1")).await.status, 201);
    for server in [&one, &two] {
        server.client().until(&movers("v2"), |list| list.is_some()).await;
    }
    for at in 0..MOVERS {
        let object = json!({"apiVersion": "elected.example.com/v1", "kind": "Mover", "metadata": {"name": format!("m{at}")}});
        assert_eq!(client.post(&movers("v1"), &object).await.status, 201);
    }
    migrates_once(client, "v2", &one, &two).await;
    assert_eq!(client.post(SECRETS, &secret("abcdef")).await.status, 201);
    client.until_gone(&format!("{SECRETS}/bootstrap-token-abcdef")).await;
    const LEADS: &str = "this server runs the controllers";
    let leads = |server: &Server| server.log().matches(LEADS).count();
    one.until_logged(LEADS, 1).await;
    assert_eq!((leads(&one), leads(&two)), (1, 0));

    // The other server completes the work of the first server, and does later work.
    one.kill();
    let address = damage(&etcd, client, "s", "10.0.0.201").await;
    assert_eq!(client.post(SECRETS, &secret("fedcba")).await.status, 201);
    client.until_gone(&format!("{SECRETS}/bootstrap-token-fedcba")).await;
    two.until_logged(LEADS, 1).await;
    assert_eq!(leads(&two), 1);
    client.until_gone("/apis/networking.k8s.io/v1/ipaddresses/10.0.0.201").await;
    let named = format!("/apis/networking.k8s.io/v1/ipaddresses/{address}");
    let named = client.until(&named, |object| object.is_some()).await.unwrap();
    assert_eq!(named["spec"]["parentRef"]["name"], "s", "{named}");
    let until = Instant::now() + PATIENCE;
    while etcd.get("/registry/ranges/servicenodeports").await.is_none() {
        assert!(Instant::now() < until, "the node ports are not repaired");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    migrates_once(client, "v1", &two, &one).await;
    // The address of the server's own service has always existed.
    let own = client.get("/api/v1/namespaces/default/services/kubernetes").await.json();
    let own =
        format!("/apis/networking.k8s.io/v1/ipaddresses/{}", own["spec"]["clusterIP"].as_str().unwrap());
    assert_eq!(client.get(&own).await.status, 200);
}
