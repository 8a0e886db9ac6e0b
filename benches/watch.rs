//! Watches of ConfigMaps over HTTP/1.1: events per second as written and delivered to 1 and 100 watchers, and as read
//! back from history. An event counts when the watcher has its bytes. Beside it stand the same bytes over as many bare TLS connections. The
//! writing is part of the live numbers and not of the replay. Not measured: HTTP/2, selectors, other encodings.

use std::time::{Duration, Instant};

use benches::cluster::{CONFIG_MAPS, config_map_creates};
use benches::load::{self, Connection, Stream};
use benches::{Runtime, cluster, process, raw, scale};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures_util::future::join_all;
use tests::Server;

/// Connections that write.
const WRITERS: usize = 16;

fn watch(c: &mut Criterion) {
    let runtime = Runtime::new();
    let server = cluster::start(&runtime);
    let loopback = raw::Loopback::start();
    let events: u64 = scale(2_000, 50);
    let mut group = c.benchmark_group("watch");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let mut event_bytes = 0;
    let mut round = 0;

    for watchers in [1, scale(100, 4)] {
        let mut streams = runtime.run(open(&server, watchers));
        let mut writers = runtime.run(load::connect(server.client(), WRITERS));
        group.throughput(Throughput::Elements(events * watchers as u64));
        let before = process::cpu_time(server.pid());
        let mut delivered = 0;
        group.bench_function(BenchmarkId::new("live", watchers), |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    round += 1;
                    let requests = config_map_creates(&format!("live-{round}"), events as usize);
                    let start = Instant::now();
                    let (_, bytes) = runtime.run(futures_util::future::join(
                        load::run(&mut writers, &requests, 201),
                        join_all(streams.iter_mut().map(|stream| stream.lines(events))),
                    ));
                    total += start.elapsed();
                    delivered += events * watchers as u64;
                    event_bytes = bytes[0] / events;
                }
                total
            });
        });
        let spent = process::cpu_time(server.pid()) - before;
        report("server CPU per event delivered, writing included", spent, delivered);
        let mut peers = runtime.run(join_all((0..watchers).map(|_| loopback.connect())));
        group.bench_function(BenchmarkId::new("limit: bare TLS", watchers), |b| {
            b.iter_custom(|times| {
                let start = Instant::now();
                for _ in 0..times {
                    let bytes = event_bytes * events;
                    runtime.run(join_all(peers.iter_mut().map(|peer| peer.exchange(100, bytes))));
                }
                start.elapsed()
            });
        });
    }

    round += 1;
    let from = runtime.run(revision(&server));
    runtime.run(cluster::create(&server, &config_map_creates(&format!("replay-{round}"), events as usize)));
    group.throughput(Throughput::Elements(events));
    group.bench_function("replay", |b| {
        b.iter_custom(|times| {
            runtime.run(async {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    let connection = Connection::open(server.client()).await;
                    let start = Instant::now();
                    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}");
                    let mut stream = connection.follow(&load::request("GET", &path, "")).await;
                    stream.lines(events).await;
                    total += start.elapsed();
                }
                total
            })
        });
    });
    group.finish();
}

/// Opens watches from now on. One without a version would begin with everything there is.
async fn open(server: &Server, count: usize) -> Vec<Stream> {
    let from = revision(server).await;
    let request = load::request("GET", &format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}"), "");
    let mut streams = Vec::with_capacity(count);
    for connection in load::connect(server.client(), count).await {
        streams.push(connection.follow(&request).await);
    }
    streams
}

/// The store's present revision.
async fn revision(server: &Server) -> String {
    let mut connection = Connection::open(server.client()).await;
    let list = load::request("GET", &format!("{CONFIG_MAPS}?limit=1"), "");
    let mut head = String::new();
    connection
        .exchange(&list, |piece| head.push_str(&String::from_utf8_lossy(piece)))
        .await
        .expect("an answer");
    let (_, rest) = head.split_once("\"resourceVersion\":\"").expect("lists have a version");
    rest.split('"').next().expect("there is always a first").to_owned()
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn report(what: &str, time: Duration, count: u64) {
    println!("{what}: {:.2?}", time / u32::try_from(count).unwrap_or(u32::MAX).max(1));
}

criterion_group!(benches, watch);
criterion_main!(benches);
