//! Benchmark of the engine. The benchmark measures point reads, scans and snapshots of records of 3.5 KiB;
//! the time to open stores of 10 000 and 1 000 000 keys from a checkpoint, and the memory of these stores;
//! and the time until each of thousands of tails has a new event.
//!
//! The baselines of a scan are a copy of the bytes, and a walk over the same number of keys in a `BTreeMap`.
//! The baseline of opening a store is a read of the checkpoint. `commit.rs` measures commits, and
//! `maintenance.rs` measures maintenance.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use benches::records::{PREFIX, key, put};
use benches::{process, scale};
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use engine::{Durability, Engine, KeyRange, Options, Revision, Write};
use futures_util::future::join_all;
use tests::server::TempDir;

/// The server uses the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE_BYTES: usize = 3584;
const COMMIT_BYTES: usize = 1024;
/// Environment variable that passes the path of the store to the child process of [`memory_of`].
const STORE_TO_OPEN: &str = "BENCH_STORE_TO_OPEN";

fn open(directory: &Path) -> Engine {
    Engine::open(Options::new(directory)).expect("the store opens")
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

/// Measures the time to open a store from a checkpoint, and the memory of the index.
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
        let per_key = memory_of(&store) / keys as u64;
        eprintln!("{keys} keys of {} bytes: {per_key} bytes of memory each, key included", key(0).len());
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

/// Returns the memory in bytes that the opened `store` needs. A new process measures the memory, because the
/// allocator of this process keeps freed memory.
fn memory_of(store: &Path) -> u64 {
    let program = std::env::current_exe().expect("a process knows its program");
    let output = Command::new(program).env(STORE_TO_OPEN, store).output().expect("it starts once more");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("it prints a number")
}

/// Opens the store and prints the memory that the open store needs, for [`memory_of`].
#[expect(clippy::print_stdout, reason = "the process that asks reads it there")]
fn print_memory(store: &Path) {
    let anonymous = || process::memory(std::process::id()).anonymous;
    let before = anonymous();
    let _engine = open(store);
    println!("{}", (anonymous() - before) * 1024);
}

/// Measures the time until each of many tails has a new event.
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
            .map(|_| {
                engine
                    .tail(Revision::new(0), Bytes::from_static(PREFIX.as_bytes()))
                    .expect("nothing is forgotten")
            })
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

criterion_group!(benches, engine, open_from_checkpoint, tails);

fn main() {
    match std::env::var_os(STORE_TO_OPEN) {
        Some(store) => print_memory(Path::new(&store)),
        None => {
            benches();
            Criterion::default().configure_from_args().final_summary();
        }
    }
}
