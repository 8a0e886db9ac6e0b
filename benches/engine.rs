//! The engine alone, on records of 3.5 KiB: commits by 1 and 64 writers, point reads, scans, snapshots and opening a
//! store of 10 000 records. Beside the commits stands a plain write and sync of the same bytes, beside the scan a
//! copy of them. Commits are durable.

use std::path::Path;
use std::time::{Duration, Instant};

use benches::{raw, scale};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::{Change, Engine, Expected, KeyRange, Options, Payload, Write};
use futures_util::future::join_all;
use tests::server::TempDir;

const VALUE_BYTES: usize = 3584;
const PREFIX: &str = "/core/pods/default/";

fn key(at: usize) -> Bytes {
    format!("{PREFIX}pod-{at:08}").into()
}

fn put(at: usize, value: &Bytes) -> Write {
    let payload = Payload {
        attributes: Bytes::from_static(b"app=web"),
        value: value.clone(),
        stamp_at: Some(80),
        ttl: None,
    };
    Write { key: key(at), expected: Expected::Any, change: Change::Put(payload) }
}

fn open(directory: &Path) -> Engine {
    Engine::open(Options::new(directory)).expect("the store opens")
}

fn engine(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let directory = TempDir::new();
    let store = directory.path().join("log");
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let records = scale(10_000, 300);

    let mut group = c.benchmark_group("commit");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    let scratch = TempDir::new();
    let engine = open(&scratch.path().join("log"));
    let mut raw = raw::RawLog::create(scratch.path(), 64 << 20).expect("the disk takes writes");
    for writers in [1usize, 64] {
        group.throughput(Throughput::Elements(writers as u64));
        // One iteration: every writer commits once.
        group.bench_function(BenchmarkId::new("writers", writers), |b| {
            b.iter(|| {
                let commits = (0..writers).map(|at| engine.commit(put(at, &value)));
                let outcomes = runtime.block_on(join_all(commits));
                assert!(outcomes.iter().all(Result::is_ok));
            });
        });
        group.bench_function(BenchmarkId::new("limit: one write, one sync", writers), |b| {
            b.iter_custom(|times| {
                raw.time(times, writers * (VALUE_BYTES + 128)).expect("the disk takes writes")
            });
        });
    }
    group.finish();
    drop(engine);

    let engine = open(&store);
    for start in (0..records).step_by(100) {
        let commits = (start..(start + 100).min(records)).map(|at| engine.commit(put(at, &value)));
        assert!(runtime.block_on(join_all(commits)).iter().all(Result::is_ok));
    }
    let mut group = c.benchmark_group("read");
    group.bench_function("snapshot", |b| b.iter(|| engine.snapshot()));
    let snapshot = engine.snapshot();
    let mut at = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function("point", |b| {
        b.iter(|| {
            at = (at + 7919) % records;
            let entry = snapshot.get(&key(at)).expect("it was written");
            entry.read().expect("it is sound").value.len()
        });
    });
    group.bench_function("count", |b| b.iter(|| snapshot.count(&KeyRange::prefix(PREFIX.as_bytes()))));
    group.throughput(Throughput::Bytes((records * VALUE_BYTES) as u64));
    group.bench_function(BenchmarkId::new("scan", records), |b| {
        b.iter(|| {
            let entries = snapshot.prefix(PREFIX.as_bytes());
            let bytes: usize = entries.map(|entry| entry.read().expect("it is sound").value.len()).sum();
            assert!(bytes > records * VALUE_BYTES);
        });
    });
    let source = vec![1u8; records * VALUE_BYTES];
    let mut target = vec![0u8; source.len()];
    group.bench_function("limit: copy", |b| {
        b.iter(|| std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source)));
    });
    group.finish();
    drop(snapshot);
    drop(engine);

    let mut group = c.benchmark_group("open");
    group.sample_size(20);
    group.throughput(Throughput::Elements(records as u64));
    group.bench_function(BenchmarkId::new("records", records), |b| {
        b.iter_custom(|times| {
            let mut total = Duration::ZERO;
            for _ in 0..times {
                let start = Instant::now();
                let engine = open(&store);
                total += start.elapsed();
                assert_eq!(engine.stats().keys, records as u64);
            }
            total
        });
    });
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
