//! Benchmark of a server on one etcd beside one with its own store, in alternation: creates and updates of small objects and of
//! pods over 1, 16 and 64 connections, lists, a list of one item beside a round trip of etcd, watch latency, memory, and starts
//! with many pods, where the copy is there (warm) and where it is made (cold). The servers have half of the cores, etcd and the
//! clients the others. Skipped without an etcd binary. `BENCH_PODS` says how many pods.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use benches::cluster::{self, CONFIG_MAPS, PODS, create, fill_config_maps, fill_pods};
use benches::load::{self, Connection, Outcome};
use benches::process::Halves;
use benches::{Runtime, data, process, report, scale};
use etcd::rpc::RangeRequest;
use etcd::{Client, Config, Endpoint};
use tests::{Options, Server, TempDir};

/// Measurements of each kind; the median of them is shown.
const ROUNDS: usize = 5;

/// An etcd of one member; it ends with this value.
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
    lists(&runtime, &pair, &etcd);
    watches(&runtime, &pair);
    starts(&runtime, &mut pair, &halves);
}

fn median<T: Copy + PartialOrd>(mut all: Vec<T>) -> T {
    all.sort_by(|a, b| a.partial_cmp(b).expect("numbers have an order"));
    all[all.len() / 2]
}

fn seconds(time: f64) -> String {
    report::time(Duration::from_secs_f64(time))
}

/// What is written.
struct Written {
    name: &'static str,
    path: &'static str,
    /// The object of this name, and what becomes of it.
    created: fn(&str) -> String,
    updated: fn(&str) -> String,
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

/// Rate, latency and the server's processor time of each write.
fn writes(runtime: &Runtime, pair: &Pair, of: &Written) {
    report::row(&format!("{}s", of.name), &["per second", "p50", "p99", "server CPU"]);
    for connections in [1, 16, 64] {
        let count = scale(if connections == 1 { 500 } else { 3000 }, 20);
        for (what, status) in [("create", 201), ("update", 200)] {
            let mut found: [Vec<(f64, f64, f64, f64)>; 2] = [Vec::new(), Vec::new()];
            for round in 0..scale(ROUNDS, 1) {
                for ((_, server), found) in pair.0.iter().zip(&mut found) {
                    let name = |at| format!("c{connections}-{round}-{at:06}");
                    let requests: Vec<Vec<u8>> = (0..count)
                        .map(|at| match what {
                            "create" => load::request("POST", of.path, &(of.created)(&name(at))),
                            _ => {
                                let path = format!("{}/{}", of.path, name(at));
                                load::request("PUT", &path, &(of.updated)(&name(at)))
                            }
                        })
                        .collect();
                    let mut clients = runtime.run(load::connect(server.client(), connections));
                    let before = process::cpu_time(server.pid());
                    let outcome: Outcome = runtime.run(load::run(&mut clients, &requests, status));
                    let spent = (process::cpu_time(server.pid()) - before).as_secs_f64() * 1e6 / count as f64;
                    let quantile = |share| outcome.quantile(share).as_secs_f64();
                    found.push((outcome.rate(), quantile(0.5), quantile(0.99), spent));
                }
            }
            let cpu = found.each_ref().map(|all| median(all.iter().map(|one| one.3).collect()));
            for ((name, _), all) in pair.0.iter().zip(&found) {
                let pick = |part: fn(&(f64, f64, f64, f64)) -> f64| median(all.iter().map(part).collect());
                let each = pick(|one| one.3);
                report::row(
                    &format!("{what}, {connections} connections, {name}"),
                    &[
                        &format!("{:.0}", pick(|one| one.0)),
                        &report::time(Duration::from_secs_f64(pick(|one| one.1))),
                        &report::time(Duration::from_secs_f64(pick(|one| one.2))),
                        &format!("{each:.0} µs, {:.2} of own", each / cpu[0]),
                    ],
                );
            }
        }
    }
}

/// Lists of many pods, and of one.
fn lists(runtime: &Runtime, pair: &Pair, etcd: &Etcd) {
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
    quorum_read(runtime, pair, etcd, &one_item);
}

/// What the quorum read of a list of one item costs, beside what a client of etcd waits for the same question. They take turns, so that each
/// finds etcd and its servers as much at rest as the others do.
fn quorum_read(runtime: &Runtime, pair: &Pair, etcd: &Etcd, one_item: &str) {
    let client = etcd.client();
    let [own, on_etcd, trip] = runtime.run(async {
        let [mut own, mut on_etcd] =
            [Connection::open(pair.0[0].1.client()).await, Connection::open(pair.0[1].1.client()).await];
        let list = load::get(one_item, &[]);
        let mut times = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..scale(1000, 10) {
            for (connection, times) in [&mut own, &mut on_etcd].into_iter().zip(&mut times) {
                let sent = Instant::now();
                connection.expect(200, &list).await;
                times.push(sent.elapsed());
            }
            let sent = Instant::now();
            let request = RangeRequest { key: "\0".into(), limit: 1, ..RangeRequest::default() };
            client.range(&request).await.expect("etcd answers");
            times[2].push(sent.elapsed());
        }
        times.map(median)
    });
    let more = on_etcd.saturating_sub(own);
    let of_trip = format!("{:.2} of a trip", more.as_secs_f64() / trip.as_secs_f64());
    let [own, on_etcd, trip, more] = [own, on_etcd, trip, more].map(report::time);
    report::row("in turns", &["own store", "etcd", "more", "trip to etcd", ""]);
    report::row("one item", &[&own, &on_etcd, &more, &trip, &of_trip]);
}

/// Time from the request of a write to its event at another connection.
fn watches(runtime: &Runtime, pair: &Pair) {
    report::row("watch", &["p50", "p99"]);
    for (name, server) in &pair.0 {
        let mut times = runtime.run(async {
            let watch = Connection::open(server.client()).await;
            let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion=0&labelSelector=none=such");
            // Nothing matches until labels do: the stream begins empty.
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

/// Memory with many pods, and starts on them.
fn starts(runtime: &Runtime, pair: &mut Pair, halves: &Halves) {
    let wanted = std::env::var("BENCH_PODS").ok().and_then(|text| text.parse().ok());
    let pods = wanted.unwrap_or(scale(50_000, 100));
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
