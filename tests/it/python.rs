//! The Python client as an informer uses it: list, watch from there, resume, and decode objects.

use std::process::Stdio;

use serde_json::json;
use tests::{Options, PATIENCE, Server};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// An informer's loop: list, then watch from the list's version, and again from the last version seen when the watch
/// ends. Prints one line for each event.
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

/// Whether Python with the client is installed; prints a line if not.
async fn is_there() -> bool {
    let found =
        Command::new("python3").args(["-c", "import kubernetes"]).stderr(Stdio::null()).status().await;
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: python3 has no module kubernetes");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_in_python_hears_everything_once() {
    if !is_there().await {
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
    let mut lines = BufReader::new(informer.stdout.take().expect("it is piped")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("the informer goes on");
        line.expect("it is text").expect("it has not ended")
    };
    assert_eq!(next().await, "LISTED a b");
    client.post(path, &json!({"metadata": {"name": "c"}})).await;
    client.patch(&format!("{path}/a"), "merge", &json!({"data": {"k": "dg=="}})).await;
    for want in ["ADDED c", "MODIFIED a"] {
        assert_eq!(next().await, want);
    }
    // Its watches last a second, so some changes fall between two of them.
    for n in 0..2 {
        let name = format!("late-{n}");
        client.post(path, &json!({"metadata": {"name": name}})).await;
        client.delete(&format!("{path}/{name}")).await;
        for want in ["ADDED", "DELETED"] {
            assert_eq!(next().await, format!("{want} {name}"));
        }
    }
    let ended = tokio::time::timeout(PATIENCE, informer.wait()).await.expect("the informer ends");
    assert!(ended.expect("it can be waited for").success());
}
