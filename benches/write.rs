//! Creates through the API: per second, per create in server CPU, and how long one takes, for small ConfigMaps and for pods
//! of 3.5 KiB, over 1 and 64 connections. Beside them stand the same bytes exchanged over bare TLS, and the same
//! bytes written and synced, one by one. The commits are durable, so one connection waits for a sync each time.

use benches::cluster::{config_map_creates, pod_creates};
use benches::load::{self, Outcome};
use benches::{Runtime, cluster, data, process, raw, scale};

/// Bytes of a small answer with its head, for the bare exchange.
const ANSWER_BYTES: u64 = 600;

fn main() {
    let runtime = Runtime::new();
    let server = cluster::start(&runtime);
    let loopback = raw::Loopback::start();
    let rounds: usize = scale(5, 1);
    // As criterion takes it: only what contains the word is measured.
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    line("create", "per second", "server CPU", "p50", "p99");
    for (kind, bytes) in [("configmaps", data::config_map("bench-000000").len()), ("pods", data::POD_BYTES)] {
        for connections in [1, 64] {
            let name = format!("{kind}, {connections} connections");
            if filter.as_ref().is_some_and(|filter| !name.contains(filter)) {
                continue;
            }
            let mut clients = runtime.run(load::connect(server.client(), connections));
            let count = scale(if connections == 1 { 3_000 } else { 30_000 }, 100);
            // The best of some rounds: whatever else the machine does only ever makes them slower.
            let mut best: Option<(Outcome, f64)> = None;
            for round in 0..rounds {
                let stem = format!("{kind}-{connections}-{round}");
                let requests = match kind {
                    "pods" => pod_creates(&stem, count),
                    _ => config_map_creates(&stem, count),
                };
                let before = process::cpu_time(server.pid());
                let outcome = runtime.run(load::run(&mut clients, &requests, 201));
                let spent = process::cpu_time(server.pid()) - before;
                let each_us = spent.as_secs_f64() * 1e6 / count as f64;
                if best.as_ref().is_none_or(|(known, _)| known.rate() < outcome.rate()) {
                    best = Some((outcome, each_us));
                }
            }
            let (outcome, each_us) = best.expect("there was a round");
            row(&name, &outcome, &format!("{each_us:.0} us"));
            let bare = runtime.run(exchange(&loopback, connections, count, bytes));
            row("  limit: bare TLS exchange", &bare, "");
        }
        let syncs = scale(3_000, 20);
        let took =
            raw::RawLog::create(server.data_dir(), 64 << 20).and_then(|mut log| log.time(syncs, bytes));
        let each = took.expect("the disk takes writes") / u32::try_from(syncs).expect("a small number");
        line(
            "  limit: write and sync, one by one",
            &format!("{:.0}", 1.0 / each.as_secs_f64()),
            "",
            &format!("{each:.0?}"),
            "",
        );
    }
}

/// As many bare exchanges over as many connections.
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
