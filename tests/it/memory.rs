//! The memory for slow readers does not grow with the size of their responses, in any encoding (ARCHITECTURE.md).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tests::{Client, Options, PATIENCE, Server};
use tokio::task::JoinSet;
use values::memory;

use crate::support::{anonymous_bytes, metric, pod_of_many_containers};

/// Number of clients that read a little and then stop.
const CLIENTS: usize = 200;

/// Number of objects, and size of each object. The response to every client has 20 MiB.
const OBJECTS: usize = 200;
const OBJECT_BYTES: usize = 100 * 1024;

/// Maximum anonymous memory that all these clients together may add to the server.
const ADDED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Number of connections, and of requests for a large object on each, whose responses the client does not
/// read.
const UNREAD: (usize, usize) = (3, 200);

/// Maximum anonymous memory that the responses of one test may use in addition to the limit for responses.
const SLACK_BYTES: u64 = 48 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_costs_one_chunk_of_memory_in_every_encoding() {
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
        let response = tokio::time::timeout(PATIENCE, answer).await.expect("the response begins");
        assert_eq!(response.status(), 200, "{query} {accept}");
        let mut body = response.into_body();
        let piece = tokio::time::timeout(PATIENCE, body.frame()).await;
        assert!(piece.expect("the body begins").expect("the body has a frame").is_ok());
        readers.push((client, body));
    }
    // Writers are not slowed down.
    let written = server.client().post(path, &json!({"metadata": {"name": "meanwhile"}})).await;
    assert_eq!(written.status, 201);
    // The memory for rendering chunks returns to the system a little later.
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

    // The readers miss no data. For each encoding, one reader reads its list to the end, or its watch up to an
    // object that was written meanwhile.
    for ((_, mut body), (query, accept, encoding)) in readers.into_iter().zip(forms) {
        let is_watch = query.contains("watch");
        let mut all = 0;
        let mut tail = Vec::new();
        while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await.expect("data arrives") {
            let data = frame.expect("the response is not aborted").into_data().unwrap_or_default();
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

/// Without the memory limits, each row would make the server use a gigabyte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_are_bounded_in_total_and_other_clients_are_served() {
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
        // The server serves other requests repeatedly while the large requests arrive.
        let other = server.client().another();
        let mut most = 0;
        for n in 0..20 {
            let listed = tokio::time::timeout(PATIENCE, other.get(&format!("{path}?limit=1"))).await;
            assert_eq!(listed.expect("a response").status, 200, "{query} {accept} {n}");
            most = most.max(anonymous_bytes(server.pid()).saturating_sub(before));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let allowed = values::memory::ANSWERS_BYTES as u64 + SLACK_BYTES;
        assert!(most < allowed, "{query} {accept}: {} KiB for answers that are not read", most / 1024);
        unread.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_bodies_that_expand_to_large_objects_are_refused() {
    let server = Server::start(Options::default()).await;
    let before = anonymous_bytes(server.pid());
    let pod = pod_of_many_containers();
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    let headers = [("content-type", "application/json")];
    let answer = server.client().open("POST", path, &headers, pod.as_bytes()).await;
    assert_eq!(answer.status(), 413);
    let added = anonymous_bytes(server.pid()).saturating_sub(before);
    assert!(added < values::memory::WORK_BYTES as u64, "{} KiB", added / 1024);
}

/// Total size of the unread responses of one route. The size is less than the limit for all large responses, so that
/// the test can still read the metrics. The number of requests follows from this size, within [`UNREAD_REQUESTS`].
const UNREAD_BYTES: usize = 28 << 20;
const UNREAD_REQUESTS: std::ops::RangeInclusive<usize> = 20..=1000;

/// Number of requests on a connection whose flow control window has no room for responses.
const PER_CONNECTION: usize = 100;

/// Bytes of a connection that are not charged: TLS, HTTP/2, and fixed buffers.
const CONNECTION_BYTES: u64 =
    (memory::CONNECTION_BYTES + memory::CONNECTION_REQUESTS * memory::REQUEST_BYTES + 128 * 1024) as u64;

/// Bytes of the process that are not charged: threads, free lists of the allocator, and documents that are built once.
const PROCESS_SLACK_BYTES: u64 = 16 << 20;

/// Returns every path of the server: the paths of its index, and the collections of all resources.
async fn routes(client: &Client) -> BTreeSet<String> {
    let index = client.get("/").await.json();
    let index = index["paths"].as_array().expect("the index lists paths").iter();
    let mut routes: BTreeSet<String> = index.map(|path| path.as_str().unwrap().to_owned()).collect();
    let versions: Vec<String> =
        routes.iter().filter(|path| path.matches('/').count() == 3).cloned().collect();
    for version in versions.iter().map(String::as_str).chain(["/api/v1"]) {
        let known = client.get(version).await;
        if known.status != 200 || !version.starts_with("/api") {
            continue;
        }
        let known = known.json();
        for resource in known["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap();
            let is_listed = resource["verbs"].as_array().unwrap().contains(&json!("list"));
            if is_listed {
                routes.insert(format!("{version}/{name}"));
            }
        }
    }
    // These paths are not in the index.
    let others = [
        "/debug/pprof/",
        "/debug/pprof/heap",
        "/debug/pprof/allocs",
        "/debug/pprof/symbol?0x1",
        "/debug/api_priority_and_fairness/dump_requests",
        "/debug/api_priority_and_fairness/dump_queues",
        "/debug/flags",
        "/logs/",
        "/openapi/v3/api/v1",
        "/readyz?verbose",
        "/apis?pretty=1",
        "/api/v1?pretty=1",
        "/nothing",
    ];
    routes.extend(others.map(str::to_owned));
    // This request would take half a minute.
    routes.retain(|route| route != "/debug/pprof/profile");
    routes
}

/// Sends `count` requests for a path on connections without room for responses, and waits for the heads of
/// all responses.
async fn unread(client: &Client, path: &str, accept: &str, count: usize) -> (JoinSet<()>, usize) {
    let (done, mut heads) = tokio::sync::mpsc::channel(count);
    let mut kept = JoinSet::new();
    let mut refused = 0;
    for first in (0..count).step_by(PER_CONNECTION) {
        let io = TokioIo::new(client.connect_http2().await.expect("the server accepts connections"));
        let mut http = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = http.initial_stream_window_size(0).handshake(io).await.unwrap();
        kept.spawn(async move { drop(connection.await) });
        for _ in first..count.min(first + PER_CONNECTION) {
            let request = hyper::Request::get(format!("https://x{path}"))
                .header("accept", accept)
                .body(Full::new(Bytes::new()))
                .unwrap();
            let (mut sender, done) = (sender.clone(), done.clone());
            kept.spawn(async move {
                let answer = sender.send_request(request).await;
                let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                let _ = done.send(status).await;
                std::future::pending::<()>().await;
                drop(answer);
            });
        }
    }
    for _ in 0..count {
        let status = tokio::time::timeout(PATIENCE, heads.recv()).await.expect("a response").unwrap();
        refused += usize::from(status == 429);
        assert!(status != 0 && status != 500, "{path}: {status}");
    }
    (kept, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_of_every_route_are_charged() {
    let server = Server::start(Options {
        flags: ["--enable-logs-handler", "--request-timeout=10m"].map(str::to_owned).to_vec(),
        ..Options::default()
    })
    .await;
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b", "c"] {
        let map = json!({"metadata": {"name": name}, "data": {"k": "x".repeat(100_000)}});
        assert_eq!(client.post(maps, &map).await.status, 201);
    }
    let routes = routes(client).await;
    assert!(routes.len() > 150 && routes.contains("/metrics"), "{routes:?}");
    // Request each document once before the measurement, so that memory that all responses share is already in use.
    for route in &routes {
        client.get(route).await;
    }
    let before = anonymous_bytes(server.pid());
    let mut wrong = Vec::new();
    let forms = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
    for (at, route) in routes.iter().enumerate() {
        let accept = if route.starts_with("/api") { forms[at % forms.len()] } else { "*/*" };
        let answer = client.send("GET", route, &[("accept", accept)], b"").await;
        let count = UNREAD_BYTES / answer.body.len().max(1);
        // Only long documents are visible in the memory of a process.
        let count = if answer.body.len() < 16 * 1024 { 0 } else { count };
        // Each profile takes some time, especially in an unoptimised build.
        let most = if route.starts_with("/debug/pprof/") { 40 } else { *UNREAD_REQUESTS.end() };
        let count = count.clamp(*UNREAD_REQUESTS.start(), most);
        let (kept, refused) = unread(client, route, accept, count).await;
        let connections = count.div_ceil(PER_CONNECTION) as u64;
        // Memory of the last route returns to the system a little later.
        let begun = Instant::now();
        loop {
            let charged = metric(&server, "apiserver_request_memory_bytes").await;
            let added = anonymous_bytes(server.pid()).saturating_sub(before);
            let allowed = charged + connections * CONNECTION_BYTES + PROCESS_SLACK_BYTES;
            if added <= allowed {
                break;
            }
            if begun.elapsed() > Duration::from_secs(60) {
                wrong.push(format!(
                    "{route} ({} bytes, {count} times, {refused} refused): {} KiB added, {} KiB charged",
                    answer.body.len(),
                    added / 1024,
                    charged / 1024,
                ));
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        drop(kept);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Maximum anonymous memory that stays after a burst.
const LEFT_BYTES_MAX: u64 = 24 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_a_burst_is_returned_without_another_request() {
    let server = Server::start(Options::default()).await;
    let path = "/api/v1/namespaces/default/pods?dryRun=All";
    // Each request needs some hundred bytes for each container. The server refuses the request after it has decoded the
    // whole body.
    let containers = vec!["{}"; 60_000].join(",");
    let pod: Bytes =
        format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"containers":[{containers}]}}}}"#).into();
    let before = anonymous_bytes(server.pid());
    let mut most = 0;
    let mut burst = JoinSet::new();
    for _ in 0..8 {
        let (client, pod) = (server.client().another(), pod.clone());
        burst.spawn(async move {
            let answer = client.open("POST", path, &[("content-type", "application/json")], &pod).await;
            answer.into_body().collect().await.map(drop)
        });
    }
    while !burst.is_empty() {
        most = most.max(anonymous_bytes(server.pid()));
        let _ = tokio::time::timeout(Duration::from_millis(20), burst.join_next()).await;
    }
    assert!(most - before > 2 * LEFT_BYTES_MAX, "the burst used only {} KiB", (most - before) / 1024);
    let begun = Instant::now();
    loop {
        let left = anonymous_bytes(server.pid()).saturating_sub(before);
        if left < LEFT_BYTES_MAX {
            eprintln!(
                "{} KiB of {} KiB left after {:?}",
                left / 1024,
                (most - before) / 1024,
                begun.elapsed()
            );
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{} KiB of {} KiB remain", left / 1024, (most - before) / 1024);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
