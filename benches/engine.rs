//! The engine alone: commits of 1 KiB by 1, 64 and 1024 writers; point reads, scans and snapshots of records of 3.5 KiB;
//! opening stores of 10 000 and 1 000 000 keys from a checkpoint, and their memory; tails by the thousand. Beside the
//! commits stands a plain write and sync of the same bytes, and what they take of the CPU; beside the scan a copy of the
//! bytes and a walk over as many keys in a `BTreeMap`, beside the opening a read of the checkpoint's bytes. Commits are
//! durable where their time is taken. What upkeep costs is in `upkeep.rs`.

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

/// Every one of some writers commits again and again, as many times as asked. The time of all of it.
fn commit_times(
    runtime: &tokio::runtime::Runtime,
    engine: &Engine,
    writes: &[Write],
    times: u64,
) -> Duration {
    let writers = writes.iter().map(async |write| {
        for _ in 0..times {
            engine.commit(write.clone()).await.expect("the disk takes writes");
        }
    });
    let start = Instant::now();
    runtime.block_on(join_all(writers));
    start.elapsed()
}

fn commit(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let mut group = c.benchmark_group("commit");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    let scratch = TempDir::new();
    let value = Bytes::from(vec![b'x'; COMMIT_BYTES]);
    let engine = open(&scratch.path().join("log"));
    for writers in [1usize, 64, 1024] {
        let writes: Vec<_> = (0..writers).map(|at| put(at, &value)).collect();
        group.throughput(Throughput::Elements(writers as u64));
        // One iteration: every writer commits once, and does not wait for the others.
        group.bench_function(BenchmarkId::new("writers", writers), |b| {
            b.iter_custom(|times| commit_times(&runtime, &engine, &writes, times));
        });
        let each = scale(300_000_u64, 64).div_ceil(writers as u64);
        let before = (process::cpu_time(std::process::id()), engine.stats());
        let elapsed = commit_times(&runtime, &engine, &writes, each);
        let spent = process::cpu_time(std::process::id()) - before.0;
        let stats = engine.stats();
        let (commits, batches) = (stats.commits - before.1.commits, stats.batches - before.1.batches);
        // What a batch of this size costs without a server, in a file that grows and in one with its blocks.
        let record_bytes = engine.snapshot().get(&key(0)).expect("it was written").stored_len();
        let batch_bytes = record_bytes * commits.div_ceil(batches) as usize;
        let mut limits = Vec::new();
        for filled in [0, 64 << 20] {
            let mut raw = raw::RawLog::create(scratch.path(), filled).expect("the disk takes writes");
            let rounds = batches.min((2 << 30) / batch_bytes as u64);
            let before = process::cpu_time(std::process::id());
            let took = raw.time(rounds, batch_bytes).expect("the disk takes writes");
            let cpu = process::cpu_time(std::process::id()) - before;
            let per_commit =
                |time: Duration| time.as_secs_f64() * 1e6 * batches as f64 / rounds as f64 / commits as f64;
            limits.push(format!("{:.2} us ({:.2} us of CPU)", per_commit(took), per_commit(cpu)));
        }
        eprintln!(
            "{writers} writers: {:.2} us per commit ({:.2} us of CPU), {:.0}/s, {:.1} in a batch; limits: {batch_bytes} \
             bytes appended to a file and synced, {}, and written over others, {}",
            elapsed.as_secs_f64() * 1e6 / commits as f64,
            spent.as_secs_f64() * 1e6 / commits as f64,
            commits as f64 / elapsed.as_secs_f64(),
            commits as f64 / batches as f64,
            limits[0],
            limits[1],
        );
    }
    group.finish();
}

fn engine(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    let directory = TempDir::new();
    let store = directory.path().join("log");
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let records = scale(10_000, 300);

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
    group.throughput(Throughput::Elements(records as u64));
    group.bench_function(BenchmarkId::new("scan of keys and revisions", records), |b| {
        b.iter(|| snapshot.prefix(PREFIX.as_bytes()).map(|entry| entry.revision()).max());
    });
    let map: std::collections::BTreeMap<Bytes, u64> = (0..records).map(|at| (key(at), at as u64)).collect();
    group.bench_function(BenchmarkId::new("limit: BTreeMap", records), |b| {
        b.iter(|| map.range(Bytes::from_static(PREFIX.as_bytes())..).map(|(_, revision)| *revision).max());
    });
    group.throughput(Throughput::Bytes((records * VALUE_BYTES) as u64));
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

criterion_group!(benches, commit, engine, open_from_checkpoint, tails);
criterion_main!(benches);
