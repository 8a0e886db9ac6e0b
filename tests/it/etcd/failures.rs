//! Failures of etcd: the rows of docs/api/etcd.md#failures-of-etcd that `mod.rs` does not test.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::SmallDisk;
use tests::{PATIENCE, Server, TempDir};

use super::cluster::Etcd;
use super::{MAPS, map, value, version};
use crate::full_disk::DISK_BYTES;

#[tokio::test]
async fn a_server_without_an_etcd_quorum_reports_it_and_serves_its_copy() {
    let Some(mut etcd) = Etcd::start(3).await else { return };
    let server = etcd.server(&["--controllers="]).await;
    let client = server.client();
    assert_eq!(client.post(MAPS, &map("x", "0")).await.status, 201);
    let mut watch = client.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name=x")).await;
    assert_eq!(watch.expect().await.1, "x");
    for member in [1, 2] {
        etcd.kill(member);
    }
    for method in ["GET", "PUT"] {
        let began = Instant::now();
        let reply = match method {
            "GET" => client.another().get(&format!("{MAPS}/x")).await,
            _ => client.another().put(&format!("{MAPS}/x"), &map("x", "1")).await,
        };
        assert!(matches!(reply.status, 500 | 503 | 504), "{method}: {} {}", reply.status, reply.text());
        assert!(began.elapsed() < Duration::from_secs(40), "{method} took {:?}", began.elapsed());
    }
    let any = client.another().get(&format!("{MAPS}/x?resourceVersion=0")).await;
    assert_eq!((any.status, any.json()["data"]["v"].as_str()), (200, Some("0")), "{}", any.text());
    for member in [1, 2] {
        etcd.restart(member);
    }
    etcd.answers().await;
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = client.another().put(&format!("{MAPS}/x"), &map("x", "2")).await;
        if reply.status == 200 {
            break;
        }
        assert!(Instant::now() < until, "{} {}", reply.status, reply.text());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The watch that has been open all the time continues.
    while watch.next().await.expect("the watch continues")["object"]["data"]["v"] != "2" {}
}

#[tokio::test]
async fn a_value_larger_than_the_limit_of_etcd_is_refused_with_the_error_of_etcd() {
    let Some(etcd) = Etcd::start_with(1, &["--max-request-bytes=65536"]).await else { return };
    let server = etcd.server(&["--controllers="]).await;
    let client = server.client();
    let refused = client.post(MAPS, &map("large", &"l".repeat(100_000))).await;
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert!(refused.text().contains("request is too large"), "{}", refused.text());
    assert_eq!(client.get(&format!("{MAPS}/large")).await.status, 404);
    assert_eq!(client.post(MAPS, &map("large", "small")).await.status, 201);
    assert_eq!(value(client, "large").await, "small");
}

#[tokio::test]
async fn an_etcd_lease_that_expired_early_is_recreated() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let server = etcd.server(&["--controllers=", "--event-ttl=1h"]).await;
    let events = "/api/v1/namespaces/default/events";
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "reason": "r"});
    let made = server.client().post(events, &event("one")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let first = etcd.get("/registry/events/default/one").await.expect("the event is stored").lease;
    etcd.revoke(first).await;
    server.client().until_gone(&format!("{events}/one")).await;
    // Events within a minute share a lease. The test has revoked the lease of the first event.
    let made = server.client().post(events, &event("two")).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let second = etcd.get("/registry/events/default/two").await.expect("the event is stored").lease;
    assert!(second != 0 && second != first, "{second}");
}

#[tokio::test]
async fn a_restored_etcd_is_detected_and_its_state_is_served() {
    let Some(mut etcd) = Etcd::start(1).await else { return };
    let mut server = etcd.server(&["--controllers="]).await;
    assert_eq!(server.client().post(MAPS, &map("old", "1")).await.status, 201);
    let scratch = TempDir::new();
    let file = scratch.path().join("snapshot.db");
    if !etcd.save(&file) {
        return testkit::skip("etcdctl not found");
    }
    let newer = server.client().post(MAPS, &map("newer", "1")).await.json();
    etcd.restore(0, &file);
    etcd.answers().await;
    let until = Instant::now() + PATIENCE;
    while !server.log().contains("the local copy of etcd is broken") {
        assert!(Instant::now() < until, "{}", server.log());
        let _ = server.client().try_get(MAPS).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.kill();
    server.restart().await;
    assert_eq!(value(server.client(), "old").await, "1");
    assert_eq!(server.client().get(&format!("{MAPS}/newer")).await.status, 404);
    // A version from before the restore is a future version now.
    let from = format!("{MAPS}?resourceVersion={}", version(&newer) + 1_000_000);
    let unknown = server.client().get(&from).await;
    assert_eq!(unknown.status, 504, "{}", unknown.text());
    assert_eq!(server.client().post(MAPS, &map("again", "1")).await.status, 201);
}

#[tokio::test]
async fn a_copy_with_a_full_disk_reports_that_writes_are_stored_and_catches_up_later() {
    let Some(etcd) = Etcd::start(1).await else { return };
    let directory = TempDir::new();
    let path = directory.path().to_owned();
    let Some(disk) = SmallDisk::mount(&path, DISK_BYTES) else { return };
    let server = Server::start_in(directory, etcd.options(&["--controllers="])).await;
    let (other, client) = (etcd.server(&["--controllers="]).await, server.client());
    assert_eq!(client.post(MAPS, &map("x", "0")).await.status, 201);
    // Fill the remaining space of the disk.
    let ballast = path.join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    while file.write_all(&[b'b'; 4096]).is_ok() {}
    let text = "f".repeat(500_000);
    let mut failed = None;
    for at in 0..64 {
        let reply = client.another().post(MAPS, &map(&format!("full{at}"), &text)).await;
        if reply.status != 201 {
            failed = Some((at, reply));
            break;
        }
    }
    let (at, failed) = failed.expect("the copy reaches its limit");
    assert_eq!(failed.status, 504, "{}", failed.text());
    assert!(failed.text().contains("the write is stored at revision"), "{}", failed.text());
    assert_eq!(value(other.client(), &format!("full{at}")).await, text);
    // The server still serves the contents of its copy, but no reads that require the newest state.
    let any = client.another().get(&format!("{MAPS}/x?resourceVersion=0")).await;
    assert_eq!(any.status, 200, "{}", any.text());
    assert_eq!(client.another().get(&format!("{MAPS}/x")).await.status, 504);
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let until = Instant::now() + PATIENCE;
    while client.another().get(&format!("{MAPS}/full{at}")).await.status != 200 {
        assert!(Instant::now() < until, "{}", server.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(server);
    drop(disk);
}
