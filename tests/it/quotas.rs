//! Quotas of namespaces under many writers, deletes and crashes (docs/api/admission.md#quotas).

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::{Client, Server};

use crate::fixture::Fixture;
use crate::kubectl::Kubectl;

/// Writers at a time.
const WRITERS: usize = 64;

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Makes the quota of a namespace and waits until it is counted.
async fn quota(client: &Client, ns: &str, hard: Value) {
    let path = format!("/api/v1/namespaces/{ns}/resourcequotas");
    let made = client.post(&path, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let is_counted = |quota: Option<&Value>| quota.is_some_and(|quota| quota["status"]["used"].is_object());
    assert!(client.until(&format!("{path}/q"), is_counted).await.is_some(), "the quota is not counted");
}

async fn used(client: &Client, ns: &str, name: &str) -> String {
    let quota = client.get(&format!("/api/v1/namespaces/{ns}/resourcequotas/q")).await.json();
    quota["status"]["used"][name].as_str().unwrap_or_default().to_owned()
}

/// Waits until the quota says that so much is used.
async fn until_used(client: &Client, ns: &str, name: &str, wanted: &str) {
    let is_so = |quota: Option<&Value>| quota.is_some_and(|quota| quota["status"]["used"][name] == wanted);
    let found = client.until(&format!("/api/v1/namespaces/{ns}/resourcequotas/q"), is_so).await;
    assert!(found.is_some(), "not {wanted} but {} {name} are used", used(client, ns, name).await);
}

/// Creates maps from many connections at once; the codes of the answers.
async fn creates(client: &Client, ns: &str, stem: &str, each: usize) -> Vec<u16> {
    let path = format!("/api/v1/namespaces/{ns}/configmaps");
    let writers = (0..WRITERS).map(|writer| {
        let (client, path) = (client.another(), &path);
        async move {
            let mut codes = Vec::new();
            for at in 0..each {
                codes.push(client.post(path, &map(&format!("{stem}-{writer}-{at}"))).await.status);
            }
            codes
        }
    });
    join_all(writers).await.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_use_a_quota_up_and_no_more_and_deletes_give_back() {
    let fixture = Fixture::new("quota").await;
    let (client, ns) = (&fixture.client, fixture.ns.as_str());
    quota(client, ns, json!({"count/configmaps": "100"})).await;
    let count = |codes: &[u16], code: u16| codes.iter().filter(|found| **found == code).count();
    // The namespace has one map of its own, with the authorities of the cluster.
    let own = used(client, ns, "count/configmaps").await.parse::<usize>().unwrap();
    let codes = creates(client, ns, "a", 2).await;
    assert_eq!((count(&codes, 201), count(&codes, 403)), (100 - own, 28 + own));
    assert_eq!(used(client, ns, "count/configmaps").await, "100");
    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    let refused = client.post(&maps, &map("one-more")).await;
    let message = "configmaps \"one-more\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
                   count/configmaps=100, limited: count/configmaps=100";
    assert_eq!((refused.status, refused.json()["message"].as_str().unwrap()), (403, message));

    // Half of them go, and as many come again, from all writers at once: every place is taken, and none twice.
    let list = client.get(&maps).await.json();
    let names = list["items"].as_array().unwrap().iter().filter_map(|map| map["metadata"]["name"].as_str());
    let gone: Vec<&str> = names.filter(|name| name.starts_with("a-")).take(50).collect();
    let deletes = gone.iter().map(|name| {
        let (client, path) = (client.another(), format!("{maps}/{name}"));
        async move { client.delete(&path).await.status }
    });
    assert!(join_all(deletes).await.iter().all(|code| *code == 200));
    until_used(client, ns, "count/configmaps", "50").await;
    let codes = creates(client, ns, "b", 1).await;
    assert_eq!((count(&codes, 201), count(&codes, 403)), (50, WRITERS - 50));

    if let Some(kubectl) = Kubectl::find(fixture.server()).await {
        let described = kubectl.ok(&format!("describe quota q -n {ns}")).await;
        let lines: Vec<Vec<&str>> = described.lines().map(|line| line.split_whitespace().collect()).collect();
        for wanted in [
            vec!["Name:", "q"],
            vec!["Namespace:", ns],
            vec!["Resource", "Used", "Hard"],
            vec!["count/configmaps", "100", "100"],
        ] {
            assert!(lines.contains(&wanted), "{wanted:?}: {described}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_nothing_of_a_quota_and_leaks_nothing_beyond_a_recount() {
    let mut server = Server::start_upstream().await;
    let ns = "default";
    let is_there = |found: Option<&Value>| found.is_some();
    let root = format!("/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt");
    assert!(server.client().until(&root, is_there).await.is_some());
    quota(server.client(), ns, json!({"count/configmaps": "200"})).await;
    for round in 0..3 {
        // Writers that are cut off anywhere between their share of the quota and the answer.
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let client = server.client().another();
                tokio::spawn(async move {
                    let path = format!("/api/v1/namespaces/{ns}/configmaps");
                    for at in 0.. {
                        let body = map(&format!("r{round}-{writer}-{at}")).to_string();
                        let headers = [("content-type", "application/json")];
                        let sent = client.try_send("POST", &path, &headers, body.as_bytes()).await;
                        if sent.is_none_or(|reply| reply.status != 201) {
                            return;
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(40)).await;
        server.kill();
        for writer in writers {
            let _ = writer.await;
        }
        server.restart().await;
        let client = server.client();
        let list = client.get(&format!("/api/v1/namespaces/{ns}/configmaps")).await.json();
        let stored = list["items"].as_array().unwrap().len();
        assert!(stored <= 200, "{stored}");
        until_used(client, ns, "count/configmaps", &stored.to_string()).await;
    }
    // What is left can be used, and no more than that.
    let codes = creates(server.client(), ns, "last", 4).await;
    assert!(codes.iter().all(|code| matches!(code, 201 | 403)), "{codes:?}");
    let list = server.client().get(&format!("/api/v1/namespaces/{ns}/configmaps")).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 200);
}
