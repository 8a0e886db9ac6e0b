//! Quotas of namespaces under many writers, deletes and crashes (docs/api/admission.md#quotas).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::{Client, Server};

use crate::fixture::Fixture;
use crate::kubectl::Kubectl;

/// Number of concurrent writers.
const WRITERS: usize = 64;

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// Creates the quota of a namespace and waits until usage is counted.
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

/// Waits until the quota reports this usage.
async fn until_used(client: &Client, ns: &str, name: &str, expected: &str) {
    let is_so = |quota: Option<&Value>| quota.is_some_and(|quota| quota["status"]["used"][name] == expected);
    let found = client.until(&format!("/api/v1/namespaces/{ns}/resourcequotas/q"), is_so).await;
    assert!(found.is_some(), "not {expected} but {} {name} are used", used(client, ns, name).await);
}

/// Creates maps from many connections at once, and returns the codes of the responses.
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
async fn writers_use_a_quota_exactly_and_deletes_release_it() {
    let fixture = Fixture::new("quota").await;
    let (client, ns) = (&fixture.client, fixture.ns.as_str());
    quota(client, ns, json!({"count/configmaps": "100"})).await;
    let count = |codes: &[u16], code: u16| codes.iter().filter(|found| **found == code).count();
    // The namespace already contains the config map `kube-root-ca.crt` with the CA certificates of the
    // cluster.
    let own = used(client, ns, "count/configmaps").await.parse::<usize>().unwrap();
    let codes = creates(client, ns, "a", 2).await;
    assert_eq!((count(&codes, 201), count(&codes, 403)), (100 - own, 28 + own));
    assert_eq!(used(client, ns, "count/configmaps").await, "100");
    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    let refused = client.post(&maps, &map("one-more")).await;
    let message = "configmaps \"one-more\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: \
                   count/configmaps=100, limited: count/configmaps=100";
    assert_eq!((refused.status, refused.json()["message"].as_str().unwrap()), (403, message));

    // The test deletes half of the maps while all writers create the same number: the quota is used up exactly, and is
    // never exceeded.
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
        for expected in [
            vec!["Name:", "q"],
            vec!["Namespace:", ns],
            vec!["Resource", "Used", "Hard"],
            vec!["count/configmaps", "100", "100"],
        ] {
            assert!(lines.contains(&expected), "{expected:?}: {described}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_no_quota_usage_and_a_recount_removes_leaks() {
    let mut server = Server::start_upstream().await;
    let ns = "default";
    let is_there = |found: Option<&Value>| found.is_some();
    let root = format!("/api/v1/namespaces/{ns}/configmaps/kube-root-ca.crt");
    assert!(server.client().until(&root, is_there).await.is_some());
    quota(server.client(), ns, json!({"count/configmaps": "200"})).await;
    for round in 0..3 {
        // The connections of the writers break at random moments between the charge to the quota and the response.
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
    // Exactly the remaining quota can be used.
    let codes = creates(server.client(), ns, "last", 4).await;
    assert!(codes.iter().all(|code| matches!(code, 201 | 403)), "{codes:?}");
    let list = server.client().get(&format!("/api/v1/namespaces/{ns}/configmaps")).await.json();
    assert_eq!(list["items"].as_array().unwrap().len(), 200);
}

/// Environment variable with the duration of the test below in seconds. Manual runs use ten minutes:
/// `QUOTA_WRITERS_SECONDS=600`.
const SECONDS: &str = "QUOTA_WRITERS_SECONDS";

/// Maximum time of one write on a slow machine. In a deadlock, the writes of a namespace wait for ten seconds, and then
/// get a 500 response, which fails the test.
const WRITE_MAX: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_quota_changes_and_recounts_never_block_each_other() {
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let server = Server::start_upstream().await;
    let (client, ns) = (server.client(), "default");
    quota(client, ns, json!({"count/configmaps": "1000000", "configmaps": "1000000"})).await;
    let until = Instant::now() + Duration::from_secs(seconds);
    let is_over = AtomicBool::new(false);
    let maps = format!("/api/v1/namespaces/{ns}/configmaps");
    let writers = (0..WRITERS).map(|writer| {
        let (client, maps) = (client.another(), &maps);
        async move {
            let (mut took, mut others) = (Vec::new(), Vec::new());
            for at in 0.. {
                if Instant::now() >= until {
                    break;
                }
                let name = format!("w-{writer}-{at}");
                let began = Instant::now();
                let made = client.post(maps, &map(&name)).await;
                took.push(began.elapsed());
                if made.status != 201 {
                    others.push((made.status, made.text()));
                }
                if at % 2 == 0 {
                    let began = Instant::now();
                    let gone = client.delete(&format!("{maps}/{name}")).await;
                    took.push(began.elapsed());
                    if gone.status != 200 {
                        others.push((gone.status, gone.text()));
                    }
                }
            }
            (took, others)
        }
    });
    let writing = async {
        let written = join_all(writers).await;
        is_over.store(true, Ordering::Relaxed);
        written
    };
    // Each edit and each delete requires a recount.
    let editing = async {
        let client = client.another();
        let path = format!("/api/v1/namespaces/{ns}/resourcequotas/q");
        for at in 0_u32.. {
            if is_over.load(Ordering::Relaxed) {
                return at;
            }
            let hard =
                json!({"spec": {"hard": {"configmaps": (1_000_000 + at % 7).to_string()}}}).to_string();
            let headers = [("content-type", "application/merge-patch+json")];
            let edited = client.send("PATCH", &path, &headers, hard.as_bytes()).await;
            assert_eq!(edited.status, 200, "{}", edited.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        0
    };
    let (written, edits) = tokio::join!(writing, editing);
    let others: Vec<_> = written.iter().flat_map(|(_, others)| others).take(5).collect();
    let mut took: Vec<Duration> = written.iter().flat_map(|(took, _)| took.iter().copied()).collect();
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 1000];
    eprintln!(
        "{} writes, {edits} edits in {seconds} s: half within {:?}, 99 % within {:?}, 99.9 % within {:?}, all within {:?}",
        took.len(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
    assert!(others.is_empty(), "{others:?}");
    assert!(at(1000) < WRITE_MAX, "a write took {:?}", at(1000));
    assert!(edits > 1, "{edits}");
    let list = client.get(&format!("{maps}?limit=1")).await.json();
    let stored = 1 + list["metadata"]["remainingItemCount"].as_u64().unwrap();
    until_used(client, ns, "count/configmaps", &stored.to_string()).await;
}
