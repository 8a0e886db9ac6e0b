//! Memory of slow readers: it does not grow with the size of their responses, in any encoding (ARCHITECTURE.md).

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use serde_json::json;
use tests::{Options, PATIENCE, Server};

use crate::support::{anonymous_bytes, pod_of_many_containers};

/// Clients that read a little and then stop.
const CLIENTS: usize = 200;

/// Objects, and bytes of each: 20 MiB, which every client is sent.
const OBJECTS: usize = 200;
const OBJECT_BYTES: usize = 100 * 1024;

/// Most anonymous memory that all of them together may add to the server.
const ADDED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Requests for a large object on each of a few connections, whose answers the client does not read.
const UNREAD: (usize, usize) = (3, 200);

/// Most anonymous memory that requests of one kind may add beside what their account allows for answers.
const SLACK_BYTES: u64 = 48 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_costs_one_chunk_in_every_encoding() {
    let flags = vec!["--feature-gates=CBORServingAndStorage=true".to_owned()];
    let server = Server::start(Options { flags, ..Options::default() }).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let filler: String = "0123456789abcdef".repeat(OBJECT_BYTES / 16);
    for n in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("m{n:03}")}, "data": {"k": filler}});
        assert_eq!(server.client().post(path, &map).await.status, 201);
    }
    let meta = "v=v1;g=meta.k8s.io";
    let table = format!("application/json;as=Table;{meta}");
    let metadata = format!("application/json;as=PartialObjectMetadataList;{meta}");
    let yaml_table = format!("application/yaml;as=Table;{meta}");
    let protobuf = "application/vnd.kubernetes.protobuf";
    let forms = [
        ("", "application/json", ""),
        ("", "application/json", "gzip"),
        ("?pretty=1", "application/json", ""),
        ("", "application/yaml", ""),
        ("", "application/yaml", "gzip"),
        ("", protobuf, ""),
        ("", protobuf, "gzip"),
        ("", "application/cbor", ""),
        ("", "application/cbor", "gzip"),
        ("?includeObject=Object", table.as_str(), ""),
        ("?includeObject=Object", yaml_table.as_str(), ""),
        ("", metadata.as_str(), ""),
        ("?watch=1", "application/json", ""),
        ("?watch=1", protobuf, ""),
        ("?watch=1", "application/cbor", ""),
        ("?watch=1&includeObject=Object", table.as_str(), ""),
    ];
    let before = anonymous_bytes(server.pid());
    let mut readers = Vec::new();
    for (query, accept, encoding) in forms.iter().cycle().take(CLIENTS) {
        let headers = [("accept", *accept), ("accept-encoding", *encoding)];
        let client = server.client().another();
        let path = format!("{path}{query}");
        let answer = client.open("GET", &path, &headers, b"");
        let response = tokio::time::timeout(PATIENCE, answer).await.expect("an answer begins");
        assert_eq!(response.status(), 200, "{query} {accept}");
        let mut body = response.into_body();
        let piece = tokio::time::timeout(PATIENCE, body.frame()).await;
        assert!(piece.expect("a body begins").expect("it has bytes").is_ok());
        readers.push((client, body));
    }
    // Writers are not slowed down.
    let written = server.client().post(path, &json!({"metadata": {"name": "meanwhile"}})).await;
    assert_eq!(written.status, 201);
    // What was needed to make the pieces goes back to the system a little later.
    let begun = Instant::now();
    loop {
        let added = anonymous_bytes(server.pid()).saturating_sub(before);
        if added < ADDED_BYTES_MAX {
            eprintln!("{CLIENTS} slow readers added {} KiB after {:?}", added / 1024, begun.elapsed());
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{CLIENTS} slow readers added {} KiB", added / 1024);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // They miss nothing: one of each form continues to its end, or to an object written meanwhile.
    for ((_, mut body), (query, accept, encoding)) in readers.into_iter().zip(forms) {
        let is_watch = query.contains("watch");
        let mut all = 0;
        let mut tail = Vec::new();
        while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await.expect("it goes on") {
            let data = frame.expect("it does not break off").into_data().unwrap_or_default();
            all += data.len();
            tail.extend_from_slice(&data);
            if is_watch && tail.windows(9).any(|window| window == b"meanwhile") {
                break;
            }
            tail.drain(..tail.len().saturating_sub(512));
        }
        if encoding.is_empty() && !accept.contains("PartialObject") {
            assert!(all > OBJECTS * OBJECT_BYTES * 9 / 10, "{query} {accept}: {all} bytes");
        }
    }
}

/// Each row would make the server hold a gigabyte if what it holds were not charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_no_client_reads_are_bounded_together_and_others_are_served() {
    let server = Server::start(Options::default()).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let big = json!({"metadata": {"name": "big"}, "data": {"k": "x".repeat(1_000_000)}});
    assert_eq!(server.client().post(path, &big).await.status, 201);
    for (query, accept) in [
        ("/big", "application/json"),
        ("/big", "application/vnd.kubernetes.protobuf"),
        ("/big?pretty=1", "application/json"),
        ("", "application/json"),
        ("", "application/yaml"),
    ] {
        let before = anonymous_bytes(server.pid());
        let mut unread = tokio::task::JoinSet::new();
        for _ in 0..UNREAD.0 {
            let client = server.client().another();
            for _ in 0..UNREAD.1 {
                let (client, path) = (client.clone(), format!("{path}{query}"));
                unread.spawn(async move {
                    let answer = client.open("GET", &path, &[("accept", accept)], b"").await;
                    std::future::pending::<()>().await;
                    drop(answer);
                });
            }
        }
        // Served beside them, again and again while they arrive.
        let other = server.client().another();
        let mut most = 0;
        for n in 0..20 {
            let listed = tokio::time::timeout(PATIENCE, other.get(&format!("{path}?limit=1"))).await;
            assert_eq!(listed.expect("it is answered").status, 200, "{query} {accept} {n}");
            most = most.max(anonymous_bytes(server.pid()).saturating_sub(before));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let allowed = api::values::memory::ANSWERS_BYTES as u64 + SLACK_BYTES;
        assert!(most < allowed, "{query} {accept}: {} KiB for answers that are not read", most / 1024);
        unread.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_that_becomes_much_of_little_is_refused() {
    let server = Server::start(Options::default()).await;
    let before = anonymous_bytes(server.pid());
    let pod = pod_of_many_containers();
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let headers = [("content-type", "application/json")];
    let answer = server.client().open("POST", path, &headers, pod.as_bytes()).await;
    assert_eq!(answer.status(), 413);
    let added = anonymous_bytes(server.pid()).saturating_sub(before);
    assert!(added < api::values::memory::WORK_BYTES as u64, "{} KiB", added / 1024);
}
