//! The engine alone: commits of 1 KiB by 1, 64 and 1024 writers; point reads, scans and snapshots of records of 3.5 KiB;
//! opening stores of 10 000 and 1 000 000 keys from a checkpoint, and their memory; tails by the thousand; and commits
//! while history is forgotten and space given back. Beside the commits stands a plain write and sync of the same bytes,
//! beside the scan a copy of them, beside the opening a read of the checkpoint's bytes. Commits are durable where
//! their time is taken.

use std::path::Path;
use std::time::{Duration, Instant};

use benches::{process, raw, scale};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::{Change, Durability, Engine, Expected, KeyRange, Options, Payload, Write};
use futures_util::future::join_all;
use tests::server::TempDir;

const VALUE_BYTES: usize = 3584;
const COMMIT_BYTES: usize = 1024;
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
    let small = Bytes::from(vec![b'x'; COMMIT_BYTES]);
    for writers in [1usize, 64, 1024] {
        group.throughput(Throughput::Elements(writers as u64));
        // One iteration: every writer commits once.
        group.bench_function(BenchmarkId::new("writers", writers), |b| {
            b.iter(|| {
                let commits = (0..writers).map(|at| engine.commit(put(at, &small)));
                let outcomes = runtime.block_on(join_all(commits));
                assert!(outcomes.iter().all(Result::is_ok));
            });
        });
        group.bench_function(BenchmarkId::new("limit: one write, one sync", writers), |b| {
            b.iter_custom(|times| {
                raw.time(times, writers * (COMMIT_BYTES + 128)).expect("the disk takes writes")
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
}

/// Opening from a checkpoint, and what the index takes of memory.
fn open_from_checkpoint(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let mut group = c.benchmark_group("open");
    group.sample_size(10);
    for keys in [scale(10_000, 300), scale(1_000_000, 1_000)] {
        let directory = TempDir::new();
        let store = directory.path().join("log");
        let value = Bytes::from(vec![b'x'; COMMIT_BYTES]);
        let relaxed = Options { durability: Durability::Relaxed, ..Options::new(&store) };
        let engine = Engine::open(relaxed).expect("the store opens");
        for start in (0..keys).step_by(1_000) {
            let commits = (start..(start + 1_000).min(keys)).map(|at| engine.commit(put(at, &value)));
            assert!(runtime.block_on(join_all(commits)).iter().all(Result::is_ok));
        }
        runtime.block_on(engine.checkpoint());
        runtime.block_on(engine.close());
        drop(engine);
        let before = process::memory(std::process::id()).anonymous;
        let engine = open(&store);
        let taken = (process::memory(std::process::id()).anonymous.saturating_sub(before)) * 1024;
        let per_key = taken / keys as u64;
        eprintln!("{keys} keys of {} bytes: {per_key} bytes of memory each, key included", key(0).len());
        drop(engine);
        group.throughput(Throughput::Elements(keys as u64));
        group.bench_function(BenchmarkId::new("checkpoint", keys), |b| {
            b.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    let start = Instant::now();
                    let engine = open(&store);
                    total += start.elapsed();
                    assert_eq!(engine.stats().keys, keys as u64);
                }
                total
            });
        });
        let image = std::fs::read_dir(&store).expect("the store is a directory").flatten();
        let image =
            image.map(|file| file.path()).find(|path| path.extension().is_some_and(|e| e == "checkpoint"));
        let image = image.expect("one was written");
        group.bench_function(BenchmarkId::new("limit: read the checkpoint", keys), |b| {
            b.iter(|| std::fs::read(&image).expect("it is there").len());
        });
    }
    group.finish();
}

/// The time until every one of many tails has a new event.
fn tails(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let mut group = c.benchmark_group("tails");
    group.sample_size(10);
    for count in [1, 100, scale(10_000, 200)] {
        let directory = TempDir::new();
        let relaxed =
            Options { durability: Durability::Relaxed, ..Options::new(directory.path().join("log")) };
        let engine = Engine::open(relaxed).expect("the store opens");
        let mut tails: Vec<_> = (0..count)
            .map(|_| engine.tail(0, Bytes::from_static(PREFIX.as_bytes())).expect("nothing is forgotten"))
            .collect();
        let value = Bytes::from(vec![b'x'; COMMIT_BYTES]);
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("one event to", count), |b| {
            b.iter(|| {
                runtime.block_on(async {
                    engine.commit(put(0, &value)).await.expect("the disk takes writes");
                    for tail in &mut tails {
                        assert_eq!(tail.next(16).await.expect("nothing is forgotten").len(), 1);
                    }
                });
            });
        });
        group.bench_function(BenchmarkId::new("limit: the commit alone, beside", count), |b| {
            let quiet = Bytes::from_static(b"/elsewhere");
            let write = || Write { key: quiet.clone(), ..put(0, &value) };
            b.iter(|| runtime.block_on(engine.commit(write())).expect("the disk takes writes").revision);
        });
    }
    group.finish();
}

/// The slowest hundredth of durable commits, with nothing to be done beside and with everything.
fn upkeep(_: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let keys = scale(100_000, 300);
    let directory = TempDir::new();
    let options =
        |history_retention| Options { history_retention, ..Options::new(directory.path().join("log")) };
    let engine = Engine::open(options(Duration::MAX)).expect("the store opens");
    let mut at = 0;
    let mut overwrite = |engine: &Engine, commits: usize| {
        let mut times: Vec<_> = (0..commits)
            .map(|_| {
                at += 7_919;
                let start = Instant::now();
                runtime.block_on(engine.commit(put(at % keys, &value))).expect("the disk takes writes");
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        (times[commits / 2], times[commits * 99 / 100])
    };
    // Three times over: two of three records are dead once history is forgotten.
    for start in (0..3 * keys).step_by(1_000) {
        let commits = (start..(start + 1_000).min(3 * keys)).map(|at| engine.commit(put(at % keys, &value)));
        assert!(runtime.block_on(join_all(commits)).iter().all(Result::is_ok));
    }
    let commits = scale(5_000, 50);
    let quiet = overwrite(&engine, commits);
    runtime.block_on(engine.close());
    drop(engine);
    let engine = Engine::open(options(Duration::ZERO)).expect("the store opens");
    let busy = overwrite(&engine, commits);
    let stats = engine.stats();
    eprintln!(
        "commit, median and 99th of 100: quiet {quiet:?}, while {} MiB were copied and history forgotten {busy:?}",
        stats.rewritten_bytes >> 20
    );
}

criterion_group!(benches, engine, open_from_checkpoint, tails, upkeep);
criterion_main!(benches);
