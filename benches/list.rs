//! Lists of 10 000 pods of 3.5 KiB over one HTTP/1.1 connection: the whole of it, its first byte, a selector of a
//! hundredth, and pages of 500. Beside it stand the same bytes over bare TLS and through memory. Not measured: HTTP/2, gzip,
//! tables.

use std::time::{Duration, Instant};

use benches::cluster::{PODS, SLOTS, fill_pods};
use benches::load::{self, Answer, Connection};
use benches::{Runtime, cluster, process, raw, scale};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Objects per page, as clients ask for by default.
const PAGE: usize = 500;

fn list(c: &mut Criterion) {
    let runtime = Runtime::new();
    let server = cluster::start(&runtime);
    let pods = scale(10_000, 600);
    fill_pods(&runtime, &server, pods);
    let mut connection = runtime.run(Connection::open(server.client()));
    let mut group = c.benchmark_group("list");
    group.sample_size(10).measurement_time(Duration::from_secs(5));

    let full = load::request("GET", PODS, "");
    let whole = runtime.run(connection.expect(200, &full)).body_bytes;
    assert!(whole > (pods * benches::data::POD_BYTES) as u64);
    group.throughput(Throughput::Bytes(whole));
    let before = process::cpu_time(server.pid());
    let mut lists = 0;
    group.bench_function(BenchmarkId::new("full", pods), |b| {
        b.iter_custom(|times| {
            lists += times;
            time(&runtime, times, &mut connection, &full, |sent, _| sent.elapsed())
        });
    });
    let spent = process::cpu_time(server.pid()) - before;
    report("server CPU per full list", spent / u32::try_from(lists).unwrap_or(1).max(1));

    let peer = raw::Loopback::start();
    let mut peer = runtime.run(peer.connect());
    group.bench_function("limit: bare TLS", |b| {
        b.iter_custom(|times| {
            let start = Instant::now();
            for _ in 0..times {
                runtime.run(peer.exchange(100, whole)).expect("the loopback answers");
            }
            start.elapsed()
        });
    });
    let source = vec![1u8; usize::try_from(whole).expect("a list fits the memory")];
    let mut target = vec![0u8; source.len()];
    group.bench_function("limit: memory", |b| {
        b.iter(|| std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source)));
    });

    let selected = load::request("GET", &format!("{PODS}?labelSelector=slot%3D7"), "");
    let bytes = runtime.run(connection.expect(200, &selected)).body_bytes;
    assert!(bytes < whole / (SLOTS as u64 / 2));
    group.throughput(Throughput::Elements(pods as u64));
    group.bench_function("one percent selected", |b| {
        b.iter_custom(|times| time(&runtime, times, &mut connection, &selected, |sent, _| sent.elapsed()));
    });

    group.throughput(Throughput::Bytes(whole));
    group.bench_function(format!("pages of {PAGE}"), |b| {
        b.iter_custom(|times| {
            let start = Instant::now();
            for _ in 0..times {
                let pages = runtime.run(all_pages(&mut connection));
                assert_eq!(pages, pods.div_ceil(PAGE));
            }
            start.elapsed()
        });
    });
    group.finish();

    let mut group = c.benchmark_group("list first byte");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("full", pods), |b| {
        b.iter_custom(|times| {
            time(&runtime, times, &mut connection, &full, |sent, answer| answer.first_byte - sent)
        });
    });
    group.bench_function("limit: bare TLS exchange", |b| {
        b.iter_custom(|times| {
            let start = Instant::now();
            for _ in 0..times {
                runtime.run(peer.exchange(100, 16 * 1024)).expect("the loopback answers");
            }
            start.elapsed()
        });
    });
    group.finish();
}

/// Sum of what `measure` makes of `times` exchanges.
fn time(
    runtime: &Runtime,
    times: u64,
    connection: &mut Connection,
    request: &[u8],
    measure: impl Fn(Instant, Answer) -> Duration,
) -> Duration {
    runtime.run(async {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            let sent = Instant::now();
            let answer = connection.expect(200, request).await;
            total += measure(sent, answer);
        }
        total
    })
}

/// Reads the list page by page; returns how many there were.
async fn all_pages(connection: &mut Connection) -> usize {
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let request = load::request("GET", &format!("{PODS}?limit={PAGE}{token}"), "");
        let mut head = Vec::new();
        let look = |piece: &[u8]| {
            if head.len() < 1024 {
                head.extend_from_slice(&piece[..piece.len().min(1024)]);
            }
        };
        let answer = connection.exchange(&request, look).await.expect("the server answers");
        assert_eq!(answer.status, 200);
        pages += 1;
        let head = String::from_utf8_lossy(&head);
        let metadata = head.split("\"items\"").next().unwrap_or_default();
        let Some((_, rest)) = metadata.split_once("\"continue\":\"") else { return pages };
        token = format!("&continue={}", rest.split('"').next().unwrap_or_default());
    }
}

#[expect(clippy::print_stdout, reason = "a bench reports on stdout")]
fn report(what: &str, time: Duration) {
    println!("{what}: {time:.2?}");
}

criterion_group!(benches, list);
criterion_main!(benches);
