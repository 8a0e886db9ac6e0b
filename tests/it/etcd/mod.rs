//! Several servers on one etcd (docs/api/etcd.md): real members on loopback, which are killed, stopped,
//! compacted and replaced. Without an etcd binary each test prints that it is skipped.

pub mod cluster;
mod compacted;
mod elected;
mod failures;
mod filling;
mod history;
mod moving;
mod own_service;
mod peers;
mod recorded;
mod register;
mod rounds;
mod separate;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::cluster::Etcd;
use tests::{Client, Options, PATIENCE, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"v": value}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

async fn value(client: &Client, name: &str) -> String {
    let reply = client.get(&format!("{MAPS}/{name}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["data"]["v"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn servers_with_one_etcd_share_objects_versions_watches_and_conflicts() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (one, two) = (etcd.server(&[]).await, etcd.server(&[]).await);
    let (a, b) = (one.client(), two.client());
    // A controller creates this object, which the watch below would report.
    a.until(&format!("{MAPS}/kube-root-ca.crt"), |found| found.is_some()).await;
    let list = b.get(MAPS).await.json();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = b.watch(&format!("{MAPS}?watch=true&resourceVersion={from}")).await;

    // A write that one server acknowledged is visible on the other server at once.
    let made = a.post(MAPS, &map("shared", "0")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(b.get(&format!("{MAPS}/shared")).await.json(), made.json());
    for round in 1..=20 {
        let (writer, reader) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let mut object = writer.get(&format!("{MAPS}/shared")).await.json();
        object["data"]["v"] = round.to_string().into();
        let written = writer.put(&format!("{MAPS}/shared"), &object).await;
        assert_eq!(written.status, 200, "{}", written.text());
        assert_eq!(value(reader, "shared").await, round.to_string());
        let names = reader.get(&format!("{MAPS}?fieldSelector=metadata.name=shared")).await.json();
        assert_eq!(names["items"][0]["data"]["v"], round.to_string());
        // The version that was read is no longer the newest, on either server.
        let stale = reader.put(&format!("{MAPS}/shared"), &object).await;
        assert_eq!(stale.status, 409, "{}", stale.text());
    }
    assert_eq!(b.post(MAPS, &map("shared", "x")).await.status, 409);
    let gone = b.delete(&format!("{MAPS}/shared")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(a.get(&format!("{MAPS}/shared")).await.status, 404);
    assert_eq!(a.delete(&format!("{MAPS}/shared")).await.status, 404);

    let mut last = version(&made.json()) - 1;
    for want in ["ADDED"].into_iter().chain(["MODIFIED"; 20]).chain(["DELETED"]) {
        let (kind, name, at) = watch.expect().await;
        let at: u64 = at.parse().unwrap();
        assert_eq!((kind.as_str(), name.as_str()), (want, "shared"));
        assert!(at > last, "version {at} came after {last}");
        last = at;
    }
    // The key in etcd is the key that the reference server uses.
    a.post(MAPS, &map("kept", "1")).await;
    let kept = etcd.get("/registry/configmaps/default/kept").await.expect("etcd has the key");
    assert!(kept.value.starts_with(b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap"), "{:?}", kept.value);
    let shown = b.get(&format!("{MAPS}/kept")).await.json();
    assert_eq!(version(&shown), kept.mod_revision.unsigned_abs());
    for check in ["/readyz/etcd", "/livez/etcd", "/healthz/etcd", "/readyz/etcd-readiness"] {
        let reply = a.get(check).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, "ok"), "{check}");
    }
}

#[tokio::test]
async fn each_server_counts_the_changes_of_all_servers_once() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (one, two) = (etcd.server(&[]).await, etcd.server(&[]).await);
    let path = "/api/v1/namespaces/default/podtemplates";
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let object = json!({"metadata": {"name": "a"}, "template": {"spec": spec}});
    assert_eq!(one.client().post(path, &object).await.status, 201);
    assert_eq!(two.client().post(path, &object).await.status, 409);
    assert_eq!(two.client().delete(&format!("{path}/a")).await.status, 200);
    for server in [&one, &two] {
        // This read makes the server follow up to the newest revision.
        assert_eq!(server.client().get(&format!("{path}/a")).await.status, 404);
        let series = "apiserver_storage_events_received_total{group=\"\",resource=\"podtemplates\"} ";
        let until = Instant::now() + PATIENCE;
        loop {
            let page = server.client().get("/metrics").await.text();
            let count = page.lines().find_map(|line| line.strip_prefix(series));
            if count == Some("2") {
                break;
            }
            // The counter follows the change.
            assert!(matches!(count, None | Some("0" | "1")) && Instant::now() < until, "{count:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn custom_types_made_on_one_server_are_served_by_the_other() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (one, two) = (etcd.server(&[]).await, etcd.server(&[]).await);
    let definition = json!({
        "metadata": {"name": "things.etcd.example.com"},
        "spec": {
            "group": "etcd.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "size": {"type": "integer", "default": 3}}}}}}}]
        }
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = one.client().post(path, &definition).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let things = "/apis/etcd.example.com/v1/namespaces/default/things";
    for server in [&one, &two] {
        server.client().until(things, |list| list.is_some()).await;
    }
    let thing =
        json!({"apiVersion": "etcd.example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {}});
    let made = two.client().post(things, &thing).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let shown = one.client().get(&format!("{things}/a")).await.json();
    assert_eq!(shown["spec"]["size"], 3);
    assert_eq!(shown, made.json());
    let kept = etcd.get("/registry/etcd.example.com/things/default/a").await.expect("etcd has the key");
    let kept: Value = serde_json::from_slice(&kept.value).expect("the value is JSON");
    assert_eq!(kept["metadata"].get("resourceVersion"), None);
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/things.etcd.example.com";
    let stored = etcd.get(key);
    let stored: Value =
        serde_json::from_slice(&stored.await.expect("etcd has the key").value).expect("the value is JSON");
    assert_eq!(stored["apiVersion"], "apiextensions.k8s.io/v1beta1");
    assert_eq!(stored["spec"]["version"], "v1");
}

#[tokio::test]
async fn a_killed_server_continues_from_its_copy() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (mut one, two) = (etcd.server(&[]).await, etcd.server(&[]).await);
    for at in 0..50 {
        assert_eq!(one.client().post(MAPS, &map(&format!("a{at}"), "1")).await.status, 201);
    }
    one.kill();
    for at in 0..50 {
        assert_eq!(two.client().post(MAPS, &map(&format!("b{at}"), "1")).await.status, 201);
        assert_eq!(two.client().delete(&format!("{MAPS}/a{at}")).await.status, 200);
    }
    one.restart().await;
    let log = one.until_logged("copy of etcd filled", 1).await;
    assert_eq!(log.matches("copy of etcd filled").count(), 1, "{log}");
    let names = |list: &Value| {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = (one.client().get(MAPS).await.json(), two.client().get(MAPS).await.json());
    assert_eq!(names(&ours), names(&theirs));
    assert_eq!(ours["items"], theirs["items"]);
    assert!(!one.log().contains("is rebuilt"), "the copy is not rebuilt");
}

#[tokio::test]
async fn a_watch_from_before_a_copy_was_made_must_start_again() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let one = etcd.server(&[]).await;
    let made = one.client().post(MAPS, &map("goes", "1")).await.json();
    assert_eq!(one.client().delete(&format!("{MAPS}/goes")).await.status, 200);
    let two = etcd.server(&[]).await;
    // The first server has the delete event; the second server never had the object, and must not omit the
    // event silently.
    let path =
        format!("{MAPS}?watch=true&fieldSelector=metadata.name=goes&resourceVersion={}", version(&made));
    let mut watch = one.client().another().watch(&path).await;
    assert_eq!(watch.expect().await.0, "DELETED");
    let refused = two.client().get(&path).await;
    assert!(refused.text().contains("\"code\":410"), "{}", refused.text());
}

#[tokio::test]
async fn changes_compacted_while_a_server_was_down_are_filled_in() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let (mut one, two) = (etcd.server(&[]).await, etcd.server(&[]).await);
    for name in ["stays", "goes", "again"] {
        assert_eq!(one.client().post(MAPS, &map(name, "1")).await.status, 201);
    }
    one.kill();
    let old = etcd.get("/registry/configmaps/default/again").await.unwrap();
    assert_eq!(two.client().delete(&format!("{MAPS}/goes")).await.status, 200);
    assert_eq!(two.client().delete(&format!("{MAPS}/again")).await.status, 200);
    assert_eq!(two.client().post(MAPS, &map("again", "2")).await.status, 201);
    let newest = etcd.put("elsewhere", b"x".to_vec()).await;
    etcd.client().compact(newest).await.expect("etcd compacts");
    one.restart().await;
    let again = one.client().get(&format!("{MAPS}/again")).await.json();
    assert_eq!(again["data"]["v"], "2");
    assert!(version(&again) > old.mod_revision.unsigned_abs());
    assert_eq!(one.client().get(&format!("{MAPS}/goes")).await.status, 404);
    assert_eq!(one.client().get(MAPS).await.json()["items"], two.client().get(MAPS).await.json()["items"]);
    // A watch from an earlier version gets 410, so its client must list again.
    let watch = one.client().get(&format!("{MAPS}?watch=true&resourceVersion={}", old.mod_revision)).await;
    assert!(watch.text().contains("\"code\":410"), "{}", watch.text());
}

#[tokio::test]
async fn another_etcd_at_the_same_address_is_detected() {
    let Some(mut etcd) = Etcd::start(1).await else { return };
    let mut server = etcd.server(&[]).await;
    assert_eq!(server.client().post(MAPS, &map("old", "1")).await.status, 201);
    etcd.wipe(0);
    etcd.answers().await;
    // The process ends by itself, because its copy belongs to a store that no longer exists.
    let until = Instant::now() + PATIENCE;
    while !server.log().contains("the local copy of etcd is broken") {
        assert!(Instant::now() < until, "{}", server.log());
        let _ = server.client().try_get(MAPS).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.kill();
    server.restart().await;
    server.until_logged("is rebuilt", 1).await;
    assert_eq!(server.client().get(&format!("{MAPS}/old")).await.status, 404);
    assert_eq!(server.client().post(MAPS, &map("new", "1")).await.status, 201);
}

#[tokio::test]
async fn writes_succeed_while_one_of_three_etcd_members_is_stopped() {
    let Some(mut etcd) = Etcd::start(3).await else { return };
    let server = etcd.server(&[]).await;
    assert_eq!(server.client().post(MAPS, &map("x", "0")).await.status, 201);
    for member in 0..3 {
        etcd.kill(member);
        let began = Instant::now();
        loop {
            let mut reply = server.client().get(&format!("{MAPS}/x")).await;
            if reply.status == 200 {
                let mut object = reply.json();
                object["data"]["v"] = member.to_string().into();
                reply = server.client().put(&format!("{MAPS}/x"), &object).await;
                if reply.status == 200 {
                    break;
                }
            }
            // The response leaves the outcome open, or reports that nothing happened, but is never wrong.
            assert!(matches!(reply.status, 409 | 500 | 503 | 504), "{} {}", reply.status, reply.text());
            assert!(began.elapsed() < PATIENCE, "{}", reply.text());
        }
        // On a slow machine the members may elect another leader, and a read may fail meanwhile. A read that succeeds
        // returns the written value.
        let read = server.client().until(&format!("{MAPS}/x"), |_| true).await.expect("the object exists");
        assert_eq!(read["data"]["v"], member.to_string());
        etcd.restart(member);
        etcd.answers().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn a_stopped_etcd_causes_timely_errors_and_no_stale_reads() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let server = etcd.server(&[]).await;
    let client = server.client();
    assert_eq!(client.post(MAPS, &map("x", "0")).await.status, 201);
    etcd.pause(true);
    for (what, request) in [("GET", ""), ("POST", "x")] {
        let began = Instant::now();
        let reply = match request {
            "" => client.another().get(&format!("{MAPS}/x")).await,
            _ => client.another().post(MAPS, &map("y", "0")).await,
        };
        assert!(matches!(reply.status, 503 | 504), "{what}: {} {}", reply.status, reply.text());
        assert!(began.elapsed() < Duration::from_secs(40), "{what} took {:?}", began.elapsed());
    }
    // A read at any version succeeds.
    let any = client.another().get(&format!("{MAPS}/x?resourceVersion=0")).await;
    assert_eq!(any.status, 200, "{}", any.text());
    let until = Instant::now() + PATIENCE;
    while client.another().get("/readyz").await.status == 200 {
        assert!(Instant::now() < until, "the server is still ready");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    etcd.pause(false);
    etcd.answers().await;
    let until = Instant::now() + PATIENCE;
    while client.another().get(&format!("{MAPS}/x")).await.status != 200 {
        assert!(Instant::now() < until, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The outcome of the earlier write is unknown, but the outcome of the next write is certain.
    let reply = client.post(MAPS, &map("y", "1")).await;
    assert!(matches!(reply.status, 201 | 409), "{}", reply.text());
}

#[tokio::test]
async fn events_expire_with_their_etcd_lease() {
    let Some(etcd) = Etcd::start(1).await else { return };
    // The event must not expire before the test has read its key on a slow machine.
    let server = etcd.server(&["--event-ttl=10s"]).await;
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "reason": "r"});
    let made = server.client().post(events, &event).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let kept = etcd.get("/registry/events/default/e").await.expect("etcd has the key");
    assert!(kept.lease != 0, "the event has a lease");
    server.client().until_gone(&format!("{events}/e")).await;
}

#[tokio::test]
async fn a_single_server_is_the_leader_and_another_takes_over() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let mut one = etcd.server(&[]).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-apiserver-controllers";
    one.client().until(lease, |lease| lease.is_some()).await;
    let two: Server = Server::start(Options { ..etcd.options(&[]) }).await;
    let holder = |lease: Option<&Value>| lease.map(|lease| lease["spec"]["holderIdentity"].clone());
    let first = holder(two.client().until(lease, |lease| lease.is_some()).await.as_ref());
    one.kill();
    let second = two.client().until(lease, |lease| holder(lease) != first).await;
    assert_ne!(holder(second.as_ref()), first);
    // The controllers run again: a namespace gets its default account.
    let made = two.client().post("/api/v1/namespaces", &json!({"metadata": {"name": "later"}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let account = "/api/v1/namespaces/later/serviceaccounts/default";
    two.client().until(account, |account| account.is_some()).await;
}

#[tokio::test]
async fn several_servers_allocate_each_address_and_port_only_once() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let flags = ["--service-cluster-ip-range=10.0.0.0/26", "--service-node-port-range=30000-30127"];
    let servers = [etcd.server(&flags).await, etcd.server(&flags).await];
    let services = "/api/v1/namespaces/default/services";
    let service = |name: String| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let mut making = Vec::new();
    for at in 0..40 {
        let client = servers[at % 2].client().another();
        let body = service(format!("s{at}"));
        making.push(tokio::spawn(async move { client.post(services, &body).await }));
    }
    for made in making {
        let made = made.await.unwrap();
        // If a server lost too many conflicts against the other server, it asks the client to retry.
        assert!(matches!(made.status, 201 | 409), "{}", made.text());
    }
    let list = servers[0].client().get("/api/v1/services").await.json();
    let all = list["items"].as_array().unwrap();
    let addresses: std::collections::BTreeSet<&str> =
        all.iter().filter_map(|service| service["spec"]["clusterIP"].as_str()).collect();
    let ports: std::collections::BTreeSet<u64> =
        all.iter().filter_map(|service| service["spec"]["ports"][0]["nodePort"].as_u64()).collect();
    assert_eq!((addresses.len(), ports.len()), (all.len(), all.len() - 1), "{list}");
    assert!(all.len() > 20, "{}", all.len());
    // Each service has an object for its address, which is deleted with it.
    let named = "/apis/networking.k8s.io/v1/ipaddresses";
    let count =
        async |server: &Server| server.client().get(named).await.json()["items"].as_array().map(Vec::len);
    assert_eq!(count(&servers[1]).await, Some(all.len()));
    let (name, address) =
        (all[1]["metadata"]["name"].as_str().unwrap(), all[1]["spec"]["clusterIP"].as_str().unwrap());
    let shown = servers[1].client().get(&format!("{named}/{address}")).await.json();
    assert_eq!(shown["spec"]["parentRef"]["name"], name);
    assert_eq!(servers[1].client().delete(&format!("{services}/{name}")).await.status, 200);
    assert_eq!(servers[0].client().get(&format!("{named}/{address}")).await.status, 404);
    // An address of another service is refused.
    let free = (2..62).map(|last| format!("10.0.0.{last}"));
    let free =
        free.into_iter().find(|address| !addresses.contains(address.as_str())).expect("an address is free");
    let wants = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": free, "ports": [{"port": 80}]}});
    let taken = servers[0].client().post(services, &wants("taken")).await;
    assert_eq!(taken.status, 201, "{}", taken.text());
    let refused = servers[1].client().post(services, &wants("other")).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
}

#[tokio::test]
async fn a_full_etcd_refuses_writes_and_serves_reads() {
    let Some(etcd) = Etcd::start_with(1, &["--quota-backend-bytes=16777216"]).await else { return };
    let server = etcd.server(&["--controllers="]).await;
    let client = server.client();
    assert_eq!(client.post(MAPS, &map("x", "0")).await.status, 201);
    let mut refused = None;
    for at in 0..64 {
        let reply = client.post(MAPS, &map(&format!("full{at}"), &"f".repeat(700_000))).await;
        if reply.status != 201 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("etcd becomes full");
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert!(refused.text().contains("database space exceeded"), "{}", refused.text());
    assert_eq!(value(client, "x").await, "0");
}
