//! Retention: old revisions are compacted after `--history-retention` and above `--history-bytes-max`, continue tokens
//! expire after `--continue-ttl`, and events after `--event-ttl`.

use std::time::Duration;

use serde_json::{Value, json};
use tests::{Client, Options, PATIENCE, Server};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_expire_and_history_ends_at_its_retention() {
    let flags = vec!["--event-ttl=1s".to_owned(), "--history-retention=0".to_owned()];
    let mut server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client().clone();
    let map = json!({ "metadata": { "name": "stays" }, "data": { "n": "0" } });
    let made = client.post(MAPS, &map).await.json();
    let first = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();

    let event = |name: &str| {
        json!({
            "metadata": { "name": name, "namespace": "default" },
            "involvedObject": { "kind": "ConfigMap", "name": "stays", "namespace": "default" },
            "reason": "Tested", "message": "something happened", "type": "Normal",
        })
    };
    let mut watch = client.watch(&format!("{EVENTS}?watch=true")).await;
    let reply = client.post(EVENTS, &event("passing")).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    let (added, deleted) = (watch.next().await.unwrap(), watch.next().await.unwrap());
    assert_eq!((&added["type"], &deleted["type"]), (&json!("ADDED"), &json!("DELETED")));
    assert_eq!(deleted["object"]["metadata"]["name"], "passing");
    assert_ne!(
        added["object"]["metadata"]["resourceVersion"],
        deleted["object"]["metadata"]["resourceVersion"]
    );
    assert_eq!(client.get(&format!("{EVENTS}/passing")).await.status, 404);
    assert_eq!(client.get(&format!("{MAPS}/stays")).await.status, 200);

    // The server keeps only the newest state.
    let exact = format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    while client.get(&exact).await.status != 410 {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.get(&exact).await.json()["reason"], "Expired");
    server.kill();
    server.restart().await;
    assert_eq!(server.client().get(&exact).await.status, 410);
    assert_eq!(server.client().get(&format!("{MAPS}/stays")).await.status, 200);
}

/// Waits until a read of an exact version is answered with 410.
async fn until_gone(client: &Client, path: &str) {
    let gone = async {
        while client.get(path).await.status != 410 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the version is compacted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_history_is_dropped_when_history_exceeds_its_size_limit() {
    let flags = vec!["--history-bytes-max=1Mi".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client();
    let filler = "x".repeat(20_000);
    let map = json!({ "metadata": { "name": "grows" }, "data": { "filler": filler, "n": "0" } });
    let made = client.post(MAPS, &map).await.json();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let exact = |version: &str| format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let mut versions = vec![version(&made)];
    for n in 1..100 {
        let patched =
            client.patch(&format!("{MAPS}/grows"), "merge", &json!({ "data": { "n": n.to_string() } })).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        versions.push(version(&patched.json()));
    }
    // A hundred versions need 2 MB, and the limit is half of this size.
    until_gone(client, &exact(&versions[30])).await;
    for (at, n) in [(70, "70"), (99, "99")] {
        let list = client.get(&exact(&versions[at])).await.json();
        assert_eq!(list["items"][0]["data"]["n"], n, "the newest history remains");
        let past = client.get(&format!("/as-of/{}{MAPS}/grows", versions[at])).await;
        assert_eq!(past.json()["data"]["n"], n);
    }
    assert_eq!(client.get(&format!("/as-of/{}{MAPS}/grows", versions[30])).await.status, 410);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continue_tokens_expire_before_the_history() {
    let flags = vec!["--continue-ttl=1s".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let client = server.client();
    let made = |name: &'static str| async move {
        assert_eq!(client.post(MAPS, &json!({ "metadata": { "name": name } })).await.status, 201);
    };
    for name in ["a", "b", "c"] {
        made(name).await;
    }
    let first = client.get(&format!("{MAPS}?limit=1")).await.json();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let next = |token: &Value| format!("{MAPS}?limit=1&continue={}", token.as_str().unwrap());
    let page = next(&first["metadata"]["continue"]);
    let past = format!("/as-of/{version}{MAPS}?limit=1");
    let past_next =
        format!("/as-of/{version}{}", next(&client.get(&past).await.json()["metadata"]["continue"]));
    made("aa").await;
    until_gone(client, &page).await;
    let expired = client.get(&page).await.json();
    assert_eq!(expired["reason"], "Expired");
    // The continue token of the answer continues at the newest version.
    let names: Vec<Value> = async {
        let rest =
            client.get(&next(&expired["metadata"]["continue"]).replace("limit=1", "limit=9")).await.json();
        rest["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].clone()).collect()
    }
    .await;
    assert_eq!(names[..3], [json!("aa"), json!("b"), json!("c")]);
    // The version itself can still be read, and lists that began at an old version can be continued.
    let exact = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(client.get(&exact).await.status, 200);
    assert_eq!(client.get(&past_next).await.json()["items"][0]["metadata"]["name"], "b");
}
