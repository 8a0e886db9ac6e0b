//! The endpoints of the servers' own service: all live servers, including kube-apiservers.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{Client, PATIENCE, Server};

use super::cluster::Etcd;

const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints/kubernetes";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// Maximum time until a failure is noticed: the key of a killed server expires after fifteen seconds, and the
/// other servers check every ten seconds.
const NOTICED: Duration = PATIENCE;

fn texts<'v>(all: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    all.into_iter().map(|value| value.as_str().unwrap_or_default().to_owned()).collect()
}

/// Returns the addresses in the Endpoints and in the EndpointSlice, once both objects exist and agree.
async fn addresses(client: &Client) -> Option<Vec<String>> {
    let (endpoints, slice) = (client.get(ENDPOINTS).await.json(), client.get(SLICE).await.json());
    let subset = &endpoints["subsets"][0];
    let of_endpoints = texts(subset["addresses"].as_array()?.iter().map(|address| &address["ip"]));
    let of_slice = texts(slice["endpoints"].as_array()?.iter().map(|endpoint| &endpoint["addresses"][0]));
    assert_eq!(endpoints["subsets"].as_array().map(Vec::len), Some(1), "{endpoints}");
    let is_same = of_endpoints == of_slice && subset["ports"][0]["port"] == slice["ports"][0]["port"];
    is_same.then_some(of_endpoints)
}

async fn until(client: &Client, expected: &[&str]) {
    let until = Instant::now() + NOTICED;
    loop {
        let found = addresses(client).await;
        if found.as_ref().is_some_and(|found| found == expected) {
            return;
        }
        assert!(Instant::now() < until, "the addresses are {found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn start(etcd: &Etcd, address: &str) -> Server {
    etcd.server(&[&format!("--advertise-address={address}")]).await
}

#[tokio::test]
async fn every_live_server_is_an_endpoint_of_the_kubernetes_service() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let one = start(&etcd, "10.1.1.1").await;
    until(one.client(), &["10.1.1.1"]).await;
    let (mut two, mut three) = (start(&etcd, "10.1.1.2").await, start(&etcd, "10.1.1.3").await);
    for server in [&one, &two, &three] {
        until(server.client(), &["10.1.1.1", "10.1.1.2", "10.1.1.3"]).await;
    }
    let kept = etcd.get("/registry/masterleases/10.1.1.1").await.expect("etcd has a key of the server");
    assert!(kept.lease != 0 && kept.value.starts_with(b"k8s\0"), "{kept:?}");

    // Write a key of another server, in the format of kube-apiserver, and an unreadable key.
    let theirs = [&kept.value[..]].concat();
    let theirs = String::from_utf8_lossy(&theirs).replace("10.1.1.1", "10.1.1.9").into_bytes();
    etcd.put("/registry/masterleases/10.1.1.9", theirs).await;
    etcd.put("/registry/masterleases/unreadable", b"x".to_vec()).await;
    until(one.client(), &["10.1.1.1", "10.1.1.2", "10.1.1.3", "10.1.1.9"]).await;

    // The other servers remove a killed server; a server that stops removes itself at once.
    two.kill();
    until(one.client(), &["10.1.1.1", "10.1.1.3", "10.1.1.9"]).await;
    three.terminate();
    assert!(etcd.get("/registry/masterleases/10.1.1.3").await.is_none());
    // Both objects agree, unless another server is changing them.
    let begun = Instant::now();
    let found = loop {
        if let Some(found) = addresses(one.client()).await {
            break found;
        }
        assert!(begun.elapsed() < NOTICED, "the two objects differ");
    };
    assert_eq!(found, ["10.1.1.1", "10.1.1.9"]);

    // Changes of the endpoints by clients are reverted; deleted endpoints are created again.
    let mut changed = one.client().get(ENDPOINTS).await.json();
    changed["subsets"][0]["addresses"] = serde_json::json!([{"ip": "10.2.2.2"}]);
    assert_eq!(one.client().put(ENDPOINTS, &changed).await.status, 200);
    until(one.client(), &["10.1.1.1", "10.1.1.9"]).await;
    assert_eq!(one.client().delete(SLICE).await.status, 200);
    until(one.client(), &["10.1.1.1", "10.1.1.9"]).await;
}
