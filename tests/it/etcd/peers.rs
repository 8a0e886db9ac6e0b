//! Servers on one etcd that serve different types (docs/api/peers.md). A server forwards requests for other
//! types to a peer that serves them, under the identity of the user, with streams and upgrades, and never in
//! a circle.

use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cluster::Etcd;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// An authority that signs the certificates of servers, and their client certificates for peers.
struct Authority(Issuer<'static, KeyPair>, String);

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "servers");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority(Issuer::new(params, key), pem)
    }

    fn signed(&self, names: &[&str], common: &str) -> (String, String) {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let params = params.as_mut().unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem() + &self.1, key.serialize_pem())
    }
}

/// Returns the options of a server that connects to its peers.
fn options(etcd: &Etcd, authority: &Authority, flags: &[&str]) -> Options {
    let (serving, serving_key) =
        authority.signed(&["127.0.0.1", "localhost", "kubernetes.default.svc"], "server");
    let (proxy, proxy_key) = authority.signed(&[], "peer");
    let known = [
        "--tls-cert-file=$dir/tls.pem",
        "--tls-private-key-file=$dir/tls.key",
        "--peer-ca-file=$dir/authority.pem",
        "--proxy-client-cert-file=$dir/proxy.pem",
        "--proxy-client-key-file=$dir/proxy.key",
        "--requestheader-client-ca-file=$dir/authority.pem",
        "--requestheader-allowed-names=peer",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ];
    let files = [
        ("tls.pem", serving),
        ("tls.key", serving_key),
        ("proxy.pem", proxy),
        ("proxy.key", proxy_key),
        ("authority.pem", authority.1.clone()),
    ];
    Options { files: files.into(), ..etcd.options(&[&known, flags].concat()) }
}

fn job(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

/// Returns how often requests for a resource were forwarded with this response code.
async fn passed_on(client: &Client, code: u16, resource: &str) -> u64 {
    let page = client.get("/metrics").await.text();
    let of = |line: &&str| {
        line.starts_with("apiserver_rerouted_request_total{")
            && line.contains(&format!("code=\"{code}\""))
            && line.contains(&format!("resource=\"{resource}\""))
    };
    let line = page.lines().find(of).and_then(|line| line.rsplit(' ').next());
    line.map_or(0, |number| number.parse().unwrap())
}

/// Returns the versions of a group in aggregated discovery.
async fn versions(client: &Client, accept: &str, group: &str) -> Vec<String> {
    let list = client.send("GET", "/apis", &[("accept", accept)], b"").await.json();
    assert_eq!(list["kind"], "APIGroupDiscoveryList", "{list}");
    let groups = list["items"].as_array().unwrap().iter().filter(|item| item["metadata"]["name"] == group);
    let versions = groups.flat_map(|group| group["versions"].as_array().unwrap());
    versions.map(|version| version["version"].as_str().unwrap().to_owned()).collect()
}

/// Waits until aggregated discovery, which follows the served types, has these versions of a group.
async fn until_versions(client: &Client, group: &str, expected: &[&str]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = versions(client, AGGREGATED, group).await;
        if found == expected {
            return;
        }
        assert!(Instant::now() < until, "{group} has {found:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Retries until the response has this code.
async fn answers(client: &Client, path: &str, code: u16) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = client.another().get(path).await;
        if reply.status == code {
            return reply.text();
        }
        assert!(Instant::now() < until, "{path}: {} {}", reply.status, reply.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_for_a_type_that_only_a_peer_serves_is_proxied_to_it() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let authority = Authority::new();
    let mut whole = Server::start(options(&etcd, &authority, &[])).await;
    let without = "--runtime-config=batch/v1=false,certificates.k8s.io/v1=false";
    let part = Server::start(options(&etcd, &authority, &[without])).await;
    let (a, b) = (part.client(), whole.client());
    a.until(JOBS, |list| list.is_some()).await;

    // The server that serves the type gives the response to writes, reads and watches.
    let mut watch = a.watch(&format!("{JOBS}?watch=true&resourceVersion=0")).await;
    let made = a.post(JOBS, &job("one")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(b.get(&format!("{JOBS}/one")).await.json(), made.json());
    assert_eq!(b.post(JOBS, &job("two")).await.status, 201);
    for name in ["one", "two"] {
        let (kind, got, _) = watch.expect().await;
        assert_eq!((kind.as_str(), got.as_str()), ("ADDED", name));
    }
    assert_eq!(a.get(JOBS).await.json(), b.get(JOBS).await.json());
    let label = json!({"metadata": {"labels": {"l": "x"}}});
    let patched = a.patch(&format!("{JOBS}/one"), "merge", &label).await;
    assert_eq!(patched.json()["metadata"]["labels"]["l"], "x", "{}", patched.text());
    let refused = a.post(JOBS, &job("one")).await;
    assert_eq!((refused.status, &*refused.json()["reason"].to_string()), (409, "\"AlreadyExists\""));
    let gone = a.delete(&format!("{JOBS}/two")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert!(passed_on(a, 200, "jobs").await >= 3 && passed_on(b, 200, "jobs").await == 0);

    // A watch over WebSocket is an upgrade.
    let mut stream = a.connect().await.unwrap();
    let request = format!(
        "GET {JOBS}?watch=true&resourceVersion=0 HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let until = Instant::now() + PATIENCE;
    while !String::from_utf8_lossy(&text).contains("\"name\":\"one\"") {
        assert!(Instant::now() < until, "{}", String::from_utf8_lossy(&text));
        let mut bytes = [0; 4096];
        let len = tokio::time::timeout(PATIENCE, stream.read(&mut bytes)).await.unwrap().unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..len]);
    }
    assert!(text.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&text));

    // The peer receives the user that this server authenticated, not a user that the client names.
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(Vec::new()).unwrap().serialize_request(&key).unwrap().pem().unwrap();
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, signed);
    let signing_request = json!({"metadata": {"name": "r"}, "spec": {
        "request": encoded, "signerName": "example.com/s", "usages": ["client auth"]}});
    let headers = [
        ("content-type", "application/json"),
        ("impersonate-user", "jane"),
        ("impersonate-group", "system:masters"),
        ("impersonate-extra-example.com%2fk", "v"),
        ("x-remote-user", "mallory"),
    ];
    let made = a.send("POST", REQUESTS, &headers, signing_request.to_string().as_bytes()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let spec = &made.json()["spec"];
    assert_eq!(spec["username"], "jane", "{spec}");
    assert!(spec["groups"].as_array().unwrap().contains(&json!("system:masters")), "{spec}");
    assert_eq!(spec["extra"], json!({"example.com/k": ["v"]}), "{spec}");
    // This server checks permissions first.
    let nobody = [("impersonate-user", "nobody")];
    assert_eq!(a.send("GET", JOBS, &nobody, b"").await.status, 403);
    assert_eq!(a.anonymous().get(JOBS).await.status, 403);

    // A forwarded request is not forwarded again. Requests for a type that no server has get 404.
    assert_eq!(a.send("GET", JOBS, &[("x-kubernetes-peer-proxied", "true")], b"").await.status, 404);
    for path in
        ["/apis/batch/v2/namespaces/default/jobs", "/apis/batch/v1/namespaces/default/tasks", "/apis/g/v1/x"]
    {
        assert_eq!(a.get(path).await.status, 404, "{path}");
        assert_eq!(b.get(path).await.status, 404, "{path}");
    }

    // Discovery lists the types of both servers, or of this server only with the profile `nopeer`.
    until_versions(a, "batch", &["v1"]).await;
    assert_eq!(versions(a, &format!("{AGGREGATED};profile=nopeer"), "batch").await, Vec::<String>::new());
    assert_eq!(versions(b, &format!("{AGGREGATED};profile=nopeer"), "batch").await, ["v1"]);
    let order = async |client: &Client| {
        let list = client.send("GET", "/apis", &[("accept", AGGREGATED)], b"").await.json();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order(a).await, order(b).await);

    // While the peer is gone, requests for its types get 503. A type that no server has gets 404.
    let key_of_whole = |keys: Vec<etcd::rpc::KeyValue>| keys.len();
    let keys = async || {
        let request = etcd::rpc::RangeRequest {
            key: "/registry/peerserverleases/".into(),
            range_end: "/registry/peerserverleases0".into(),
            ..etcd::rpc::RangeRequest::default()
        };
        key_of_whole(etcd.client().range(&request).await.unwrap().kvs)
    };
    assert_eq!(keys().await, 2);
    whole.kill();
    let unreached = answers(a, JOBS, 503).await;
    assert!(unreached.contains("error trying to reach service"), "{unreached}");
    let until = Instant::now() + 2 * PATIENCE;
    while keys().await > 1 {
        assert!(Instant::now() < until, "the key has a lease");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // The server notices a little later that the key is gone.
    let unknown = "Error getting ip and port info of the remote server while proxying";
    while !answers(a, JOBS, 503).await.contains(unknown) {
        assert!(Instant::now() < until, "the server still connects to the peer");
    }
    whole.restart().await;
    answers(a, JOBS, 200).await;
    // A server that stops removes its key.
    whole.terminate();
    assert_eq!(keys().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_custom_types_are_not_proxied_to_peers() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let authority = Authority::new();
    let one = Server::start(options(&etcd, &authority, &[])).await;
    let two = Server::start(options(&etcd, &authority, &["--runtime-config=batch/v1=false"])).await;
    two.client().until(JOBS, |list| list.is_some()).await;
    let definition = json!({
        "metadata": {"name": "things.peers.example.com"},
        "spec": {
            "group": "peers.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]
        }
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(one.client().post(path, &definition).await.status, 201);
    let things = "/apis/peers.example.com/v1/namespaces/default/things";
    two.client().until(things, |list| list.is_some()).await;
    // The server reads the types of its peers again, which now include the new type.
    let three = Server::start(options(&etcd, &authority, &[])).await;
    three.client().until(things, |list| list.is_some()).await;
    until_versions(three.client(), "peers.example.com", &["v1"]).await;
    assert_eq!(one.client().delete(&format!("{path}/things.peers.example.com")).await.status, 200);
    for server in [&one, &two, &three] {
        answers(server.client(), things, 404).await;
        until_versions(server.client(), "peers.example.com", &[]).await;
        for code in [200, 404, 503] {
            assert_eq!(passed_on(server.client(), code, "things").await, 0, "{code}");
        }
    }
}

#[tokio::test]
async fn without_the_gate_or_peer_authorities_no_request_is_proxied() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let authority = Authority::new();
    let _whole = Server::start(options(&etcd, &authority, &[])).await;
    let key = async || {
        let request = etcd::rpc::RangeRequest {
            key: "/registry/peerserverleases/".into(),
            range_end: "/registry/peerserverleases0".into(),
            ..etcd::rpc::RangeRequest::default()
        };
        etcd.client().range(&request).await.unwrap().kvs.len()
    };
    let batchless = "--runtime-config=batch/v1=false";
    let closed = etcd.server(&[batchless, "--feature-gates=UnknownVersionInteroperabilityProxy=false"]).await;
    assert_eq!(key().await, 1);
    let alone = etcd.server(&[batchless, "--peer-advertise-ip=192.0.2.7", "--peer-advertise-port=443"]).await;
    let until = Instant::now() + PATIENCE;
    while key().await < 2 {
        assert!(Instant::now() < until, "the server does not publish its address");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for server in [&closed, &alone] {
        assert_eq!(server.client().get(JOBS).await.status, 404);
        assert_eq!(versions(server.client(), AGGREGATED, "batch").await, Vec::<String>::new());
    }
}
