//! Benchmark of writes through the API. The benchmark measures the rate, the server's CPU time per write, and
//! the latency, over 1 and 64 connections. The requests are:
//!
//! - creates of small ConfigMaps and of pods of 3.5 KiB;
//! - updates, merge patches and server-side applies that change such pods;
//! - updates that send a pod back after a read and a change, as controllers do (read-modify-write).
//!
//! The first baseline sends the same bytes over bare TLS. The second baseline writes the same bytes to a file
//! and syncs each write. Commits are durable, so a single connection waits for a sync each time.

use benches::cluster::{PODS, config_map_creates, pod_creates};
use benches::load::{self, Outcome};
use benches::{Runtime, cluster, data, process, raw, scale};
use tests::Server;

/// Size of a small response with its head. The bare exchange uses this size.
const ANSWER_BYTES: u64 = 600;

/// The measured requests. The number is the approximate size of a request in bytes.
const WRITES: [(&str, usize); 6] = [
    ("create configmaps", 120),
    ("create pods", data::POD_BYTES),
    ("update pods", data::POD_BYTES),
    (READ_MODIFY_WRITE, data::POD_BYTES),
    ("merge-patch pods", 60),
    ("apply pods", data::POD_BYTES),
];

const READ_MODIFY_WRITE: &str = "read-modify-write pods";

/// Value of the label `slot` of unchanged pods. Later values have the same number of digits, so that the rest
/// of a pod, including its padding, stays unchanged.
const SLOT_OF_NONE: usize = 999;

fn pod_name(stem: &str, at: usize) -> String {
    format!("{stem}-{at:06}")
}

fn main() {
    let runtime = Runtime::new();
    let server = cluster::start(&runtime);
    let loopback = raw::Loopback::start();
    let rounds: usize = scale(5, 1);
    // As in criterion, an argument selects the measurements whose names contain the argument.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    line("write", "per second", "server CPU", "p50", "p99");
    for (what, bytes) in WRITES {
        for connections in [1, 64] {
            let name = format!("{what}, {connections} connections");
            if filter.as_ref().is_some_and(|filter| !name.contains(filter)) {
                continue;
            }
            let count = scale(if connections == 1 { 3_000 } else { 20_000 }, 100);
            let stem = format!("{}-{connections}", what.replace(' ', "-"));
            if !what.starts_with("create") {
                let names = (0..count).map(|at| pod_name(&stem, at));
                let creates = names.map(|name| load::request("POST", PODS, &data::pod(&name, SLOT_OF_NONE)));
                runtime.run(cluster::create(&server, &creates.collect::<Vec<_>>()));
            }
            // The best of several rounds counts, because other load on the machine only makes rounds slower.
            let mut best: Option<(Outcome, f64)> = None;
            for round in 0..rounds {
                let (requests, status) = match what {
                    READ_MODIFY_WRITE => (runtime.run(read_and_modified(&server, &stem, round, count)), 200),
                    _ => requests(what, &stem, round, count),
                };
                let (outcome, each_us) = measure(&runtime, &server, connections, &requests, status);
                if best.as_ref().is_none_or(|(known, _)| known.rate() < outcome.rate()) {
                    best = Some((outcome, each_us));
                }
            }
            let (outcome, each_us) = best.expect("there was a round");
            row(&name, &outcome, &format!("{each_us:.0} us"));
            let bare = runtime.run(exchange(&loopback, connections, count, bytes));
            row("  limit: bare TLS exchange", &bare, "");
        }
    }
    for bytes in [data::config_map("bench-000000").len(), data::POD_BYTES] {
        let syncs = scale(3_000, 20);
        let took =
            raw::RawLog::create(server.data_dir(), 64 << 20).and_then(|mut log| log.time(syncs, bytes));
        let each = took.expect("the disk takes writes") / u32::try_from(syncs).expect("a small number");
        line(
            &format!("limit: write and sync {bytes} bytes, one by one"),
            &format!("{:.0}", 1.0 / each.as_secs_f64()),
            "",
            &format!("{each:.0?}"),
            "",
        );
    }
}

/// Returns the value of the label `slot` in a round.
fn slot_of(round: usize) -> usize {
    SLOT_OF_NONE - 1 - round
}

/// Reads all pods of a round from the server. Returns updates that change only the label `slot`.
async fn read_and_modified(server: &Server, stem: &str, round: usize, count: usize) -> Vec<Vec<u8>> {
    let slot = |slot: usize| format!("\"slot\":\"{slot}\"");
    let (before, after) = (slot(slot_of(round) + 1), slot(slot_of(round)));
    let client = server.client();
    let mut requests = Vec::with_capacity(count);
    for at in 0..count {
        let path = format!("{PODS}/{}", pod_name(stem, at));
        let read = client.get(&path).await.text();
        assert!(read.contains(&before), "{read}");
        requests.push(load::request("PUT", &path, &read.replacen(&before, &after, 1)));
    }
    requests
}

/// Returns the requests of a round and the expected status code. Every round changes every object.
fn requests(what: &str, stem: &str, round: usize, count: usize) -> (Vec<Vec<u8>>, u16) {
    let slot = slot_of(round);
    let each = |request: &dyn Fn(&str, &str) -> Vec<u8>| {
        let names = (0..count).map(|at| pod_name(stem, at));
        names.map(|name| request(&name, &format!("{PODS}/{name}"))).collect()
    };
    match what {
        "create configmaps" => (config_map_creates(&format!("{stem}-{round}"), count), 201),
        "create pods" => (pod_creates(&format!("{stem}-{round}"), count), 201),
        "update pods" => (each(&|name, path| load::request("PUT", path, &data::pod(name, slot))), 200),
        "merge-patch pods" => {
            let patch = format!(r#"{{"metadata":{{"labels":{{"slot":"{slot}"}}}}}}"#);
            (each(&|_, path| load::request_of("application/merge-patch+json", "PATCH", path, &patch)), 200)
        }
        "apply pods" => {
            let apply = |name: &str, path: &str| {
                let path = format!("{path}?fieldManager=bench&force=true");
                // The body can be JSON, because every JSON document is also YAML.
                load::request_of("application/apply-patch+yaml", "PATCH", &path, &data::pod(name, slot))
            };
            (each(&apply), 200)
        }
        other => unreachable!("{other}"),
    }
}

/// Returns the times of the requests of a round, and the server's CPU time per request in microseconds.
fn measure(
    runtime: &Runtime,
    server: &Server,
    connections: usize,
    requests: &[Vec<u8>],
    status: u16,
) -> (Outcome, f64) {
    let mut clients = runtime.run(load::connect(server.client(), connections));
    let before = process::cpu_time(server.pid());
    let outcome = runtime.run(load::run(&mut clients, requests, status));
    let spent = process::cpu_time(server.pid()) - before;
    (outcome, spent.as_secs_f64() * 1e6 / requests.len() as f64)
}

/// Measures `count` bare exchanges over `connections` connections.
async fn exchange(loopback: &raw::Loopback, connections: usize, count: usize, bytes: usize) -> Outcome {
    let mut peers = Vec::new();
    for _ in 0..connections {
        peers.push(loopback.connect().await);
    }
    let start = std::time::Instant::now();
    let latencies = futures_util::future::join_all(peers.iter_mut().map(async |peer| {
        let mut latencies = Vec::new();
        for _ in 0..count / connections {
            let sent = std::time::Instant::now();
            peer.exchange(bytes, ANSWER_BYTES + bytes as u64).await.expect("the loopback answers");
            latencies.push(sent.elapsed());
        }
        latencies
    }))
    .await;
    let elapsed = start.elapsed();
    let mut latencies = latencies.concat();
    latencies.sort_unstable();
    Outcome { elapsed, latencies }
}

fn row(what: &str, outcome: &Outcome, cpu: &str) {
    let [p50, p99] = [0.5, 0.99].map(|share| format!("{:.0?}", outcome.quantile(share)));
    line(what, &format!("{:.0}", outcome.rate()), cpu, &p50, &p99);
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn line(what: &str, rate: &str, cpu: &str, p50: &str, p99: &str) {
    println!("{what:38} {rate:>10} {cpu:>10} {p50:>8} {p99:>8}");
}
