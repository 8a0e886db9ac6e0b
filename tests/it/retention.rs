//! Retention: compaction of old revisions after `--history-retention`, deletion of events after `--event-ttl`.

use serde_json::json;
use tests::{Options, Server};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_expire_and_history_ends_at_the_retention() {
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
