//! Benchmark of a server that stores its objects in one etcd, compared with a server that has its own store.
//! The measurements of the two servers alternate. The benchmark measures:
//!
//! - creates and updates of small objects and of pods over 1, 16 and 64 connections;
//! - lists, and a list of one item compared with a round trip to etcd;
//! - the latency of watches;
//! - memory with many pods, and the time to start with these pods. The server on etcd starts with its local
//!   copy (warm) and without the copy (cold).
//!
//! The servers have half of the cores, and etcd and the clients have the other half. The benchmark is skipped
//! if no etcd binary is found. `BENCH_PODS` sets the number of pods for the measurements of memory and of
//! start time.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use benches::cluster::{self, CONFIG_MAPS, PODS, create, fill_config_maps, fill_pods};
use benches::load::{self, Connection, Outcome};
use benches::process::Halves;
use benches::report::median;
use benches::{Runtime, data, process, report, scale};
use etcd::rpc::RangeRequest;
use etcd::{Client, Config, Endpoint};
use tests::{Options, Server, TempDir};

/// Number of measurements of each kind; the median is reported.
const ROUNDS: usize = 5;

/// A process of etcd with a single member. Dropping this value ends the process.
struct Etcd {
    child: Child,
    url: String,
    _directory: TempDir,
}

impl Etcd {
    fn start() -> Option<Etcd> {
        let port = || {
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map(|at| at.port())
        };
        let (client, peer) = (port().ok()?, port().ok()?);
        let (url, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let directory = TempDir::new();
        let child = Command::new("etcd")
            .arg(format!("--data-dir={}", directory.path().join("data").display()))
            .args(["--name=m", "--quota-backend-bytes=8589934592"])
            .args([format!("--listen-client-urls={url}"), format!("--advertise-client-urls={url}")])
            .args([format!("--listen-peer-urls={peer}"), format!("--initial-advertise-peer-urls={peer}")])
            .arg(format!("--initial-cluster=m={peer}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(Etcd { child: child.ok()?, url, _directory: directory })
    }

    fn client(&self) -> Client {
        let endpoint = Endpoint::parse(&self.url).expect("it is a URL");
        Client::new(Config { endpoints: vec![endpoint], tls: None, deadline: Duration::from_secs(60) })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The two servers, by name.
struct Pair([(&'static str, Server); 2]);

fn main() {
    let halves = Halves::divide();
    let runtime = Runtime::new();
    let Some(etcd) = Etcd::start() else { return eprintln!("skipped: etcd not found") };
    let flags = vec![format!("--etcd-servers={}", etcd.url)];
    let start = |options| halves.on_servers(|| runtime.run(Server::start(options)));
    let own = start(Options::default());
    let on_etcd = start(Options { flags, ..Options::default() });
    let mut pair = Pair([("own store", own), ("etcd", on_etcd)]);
    for of in [&SMALL, &POD] {
        writes(&runtime, &pair, of);
    }
    lists(&runtime, &pair, &etcd, &halves);
    watches(&runtime, &pair);
    starts(&runtime, &mut pair, &halves);
}

fn seconds(time: f64) -> String {
    report::time(Duration::from_secs_f64(time))
}

/// A kind of object that the benchmark writes.
struct Written {
    name: &'static str,
    path: &'static str,
    /// Returns the body of a create, given the name of the object.
    created: fn(&str) -> String,
    /// Returns the body of an update, given the name of the object.
    updated: fn(&str) -> String,
}

impl Written {
    /// Returns creates or updates of `count` objects whose names begin with `stem`.
    fn requests(&self, what: &str, stem: &str, count: usize) -> Vec<Vec<u8>> {
        let request = |name: String| match what {
            "create" => load::request("POST", self.path, &(self.created)(&name)),
            _ => load::request("PUT", &format!("{}/{name}", self.path), &(self.updated)(&name)),
        };
        (0..count).map(|at| request(format!("{stem}-{at:06}"))).collect()
    }
}

const SMALL: Written = Written {
    name: "config map",
    path: CONFIG_MAPS,
    created: data::config_map,
    updated: |name| data::config_map(name).replace("\"data\":{", "\"data\":{\"more\":\"1\","),
};

const POD: Written = Written {
    name: "pod",
    path: PODS,
    created: |name| data::pod(name, cluster::SLOTS),
    updated: |name| data::pod(name, cluster::SLOTS + 1),
};

/// The results of a round of writes.
struct Round {
    outcome: Outcome,
    /// Microseconds of the server's processor time for each write.
    cpu: f64,
}

/// Names of the rows of the comparison. A server under less load wakes up more often for each write. The last
/// measurement therefore limits the server with its own store to the rate that the server on etcd has
/// reached.
const COMPARED: [&str; 3] = ["own store", "etcd", "own store, at etcd's rate"];

/// Measures the rate, the latency and the server's processor time of each write.
fn writes(runtime: &Runtime, pair: &Pair, of: &Written) {
    report::row(
        &format!("{}s", of.name),
        &["per second", "p50", "p99", "server CPU", "of own", "of own at its rate"],
    );
    for connections in [1, 16, 64] {
        let count = scale(if connections == 1 { 500 } else { 3000 }, 20);
        for (what, status) in [("create", 201), ("update", 200)] {
            let mut rounds: [Vec<Round>; 3] = Default::default();
            for round in 0..scale(ROUNDS, 1) {
                let mut rate = f64::INFINITY;
                for (at, rounds) in rounds.iter_mut().enumerate() {
                    let server = &pair.0[at % 2].1;
                    let requests = of.requests(what, &format!("c{connections}-{at}-{round}"), count);
                    let mut clients = runtime.run(load::connect(server.client(), connections));
                    let before = process::cpu_time(server.pid());
                    let limit = if at == 2 { rate } else { f64::INFINITY };
                    let outcome = runtime.run(load::run_at(limit, &mut clients, &requests, status));
                    let spent = process::cpu_time(server.pid()) - before;
                    rate = outcome.rate();
                    rounds.push(Round { outcome, cpu: spent.as_secs_f64() * 1e6 / count as f64 });
                }
            }
            let cpu = rounds.each_ref().map(|all| median(all.iter().map(|one| one.cpu).collect()));
            for (at, all) in rounds.iter().enumerate() {
                let pick =
                    |part: fn(&Outcome) -> f64| median(all.iter().map(|one| part(&one.outcome)).collect());
                // The rate limit starts requests late, so the latency of such a request has no meaning.
                let latency = |share| match at {
                    2 => String::new(),
                    _ => seconds(median(
                        all.iter().map(|one| one.outcome.quantile(share).as_secs_f64()).collect(),
                    )),
                };
                let of = |own: f64| if at == 1 { format!("{:.2}", cpu[1] / own) } else { String::new() };
                report::row(
                    &format!("{what}, {connections} connections, {}", COMPARED[at]),
                    &[
                        &format!("{:.0}", pick(Outcome::rate)),
                        &latency(0.5),
                        &latency(0.99),
                        &format!("{:.0} µs", cpu[at]),
                        &of(cpu[0]),
                        &of(cpu[2]),
                    ],
                );
            }
        }
    }
}

/// Measures lists of many pods, and lists of one pod.
fn lists(runtime: &Runtime, pair: &Pair, etcd: &Etcd, halves: &Halves) {
    let pods = scale(5000, 50);
    for (_, server) in &pair.0 {
        let requests = benches::cluster::pod_creates("listed", pods);
        runtime.run(create(server, &requests));
    }
    report::row("list", &["time", "server CPU", "of own"]);
    let one_item = format!("{PODS}?fieldSelector=metadata.name=listed-000007");
    for (what, path, count) in [("all", PODS, scale(20, 2)), ("one item", &one_item, scale(500, 10))] {
        let mut found: [Vec<(f64, f64)>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..scale(ROUNDS, 1) {
            for ((_, server), found) in pair.0.iter().zip(&mut found) {
                let requests = vec![load::get(path, &[]); count];
                let mut clients = runtime.run(load::connect(server.client(), 1));
                let before = process::cpu_time(server.pid());
                let outcome = runtime.run(load::run(&mut clients, &requests, 200));
                let spent = (process::cpu_time(server.pid()) - before).as_secs_f64() / count as f64;
                found.push((outcome.quantile(0.5).as_secs_f64(), spent));
            }
        }
        let own = median(found[0].iter().map(|one| one.1).collect::<Vec<_>>());
        for ((name, _), all) in pair.0.iter().zip(&found) {
            let time: f64 = median(all.iter().map(|one| one.0).collect());
            let cpu = median(all.iter().map(|one| one.1).collect());
            report::row(
                &format!("{what}, {name}"),
                &[&seconds(time), &seconds(cpu), &report::percent(cpu, own)],
            );
        }
    }
    quorum_read(runtime, pair, etcd, halves, &one_item);
}

/// Measures the cost of the quorum read in a list of one item. For comparison, a client of etcd on the cores
/// of the servers sends the same read. The requests to the two servers and to etcd alternate, so that all of
/// them run under the same load.
fn quorum_read(runtime: &Runtime, pair: &Pair, etcd: &Etcd, halves: &Halves, one_item: &str) {
    let client = etcd.client();
    let mut connections = pair.0.each_ref().map(|(_, server)| runtime.run(Connection::open(server.client())));
    let list = load::get(one_item, &[]);
    let request = RangeRequest { key: "\0".into(), limit: 1, ..RangeRequest::default() };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..scale(1000, 10) {
        for (connection, times) in connections.iter_mut().zip(&mut times) {
            let sent = Instant::now();
            runtime.run(connection.expect(200, &list));
            times.push(sent.elapsed());
        }
        times[2].push(halves.on_servers(|| {
            let sent = Instant::now();
            runtime.run(client.range(&request)).expect("etcd answers");
            sent.elapsed()
        }));
    }
    let [own, on_etcd, trip] = times.map(median);
    let more = on_etcd.saturating_sub(own);
    let of_trip = format!("{:.2} of a trip", more.as_secs_f64() / trip.as_secs_f64());
    let [own, on_etcd, trip, more] = [own, on_etcd, trip, more].map(report::time);
    report::row("in turns", &["own store", "etcd", "more", "trip to etcd", ""]);
    report::row("one item", &[&own, &on_etcd, &more, &trip, &of_trip]);
}

/// Measures the time from the start of a write until its event arrives on another connection.
fn watches(runtime: &Runtime, pair: &Pair) {
    report::row("watch", &["p50", "p99"]);
    for (name, server) in &pair.0 {
        let mut times = runtime.run(async {
            let watch = Connection::open(server.client()).await;
            let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector=none=such");
            // The selector matches no object at first, so the stream begins empty.
            let mut stream = watch.follow(&load::get(&path, &[])).await;
            let mut writer = Connection::open(server.client()).await;
            let mut times = Vec::new();
            for at in 0..scale(300, 5) {
                let body = data::config_map(&format!("seen-{at}"));
                let body = body.replace(r#""app":"bench""#, r#""app":"bench","none":"such""#);
                let request = load::request("POST", CONFIG_MAPS, &body);
                let sent = Instant::now();
                let (_, ()) = tokio::join!(
                    async {
                        stream.lines(1).await;
                        times.push(sent.elapsed());
                    },
                    async {
                        writer.expect(201, &request).await;
                    }
                );
            }
            times
        });
        times.sort_unstable();
        let of = |share| report::time(report::quantile(&times, share));
        report::row(name, &[&of(0.5), &of(0.99)]);
    }
}

/// Measures the memory of the servers with many pods, and the start time with these pods.
fn starts(runtime: &Runtime, pair: &mut Pair, halves: &Halves) {
    let configured = std::env::var("BENCH_PODS").ok().and_then(|text| text.parse().ok());
    let pods = configured.unwrap_or(scale(50_000, 100));
    report::row(&format!("start, {pods} pods"), &["ready after", "VmRSS", "RssAnon"]);
    for (name, server) in &mut pair.0 {
        fill_pods(runtime, server, pods);
        fill_config_maps(runtime, server, 1);
        let show = |what: &str, server: &Server, took: Option<Duration>| {
            let memory = process::memory(server.pid());
            let took = took.map(report::time).unwrap_or_default();
            report::row(
                &format!("{what}, {name}"),
                &[&took, &report::mib(memory.resident), &report::mib(memory.anonymous)],
            );
        };
        show("after making them", server, None);
        server.terminate();
        let began = Instant::now();
        halves.on_servers(|| runtime.run(server.restart()));
        show("warm", server, Some(began.elapsed()));
        if *name == "etcd" {
            server.terminate();
            std::fs::remove_dir_all(server.data_dir().join("etcd-copy")).expect("the copy is there");
            let began = Instant::now();
            halves.on_servers(|| runtime.run(server.restart()));
            show("cold", server, Some(began.elapsed()));
        }
    }
}
