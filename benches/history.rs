//! Benchmark of history: the cost of retained versions for requests that do not read these versions.
//!
//! - `scan` measures a scan of 50 000 records of 3.5 KiB after 300 000 updates of random keys whose history
//!   is retained. The baseline is the same scan of a store that was compacted and rewritten. The benchmark
//!   measures the first scan, repeated scans, and scans after all pages were unmapped.
//! - `start` measures the time to open a store with ten million retained versions.
//! - `memory` measures memory and disk space for each retained version. The number of versions of a key
//!   varies.
//!
//! An argument selects one of these measurements.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use benches::records::{PREFIX, put};
use benches::report::{mib, row, time};
use benches::{process, scale};
use bytes::Bytes;
use engine::{Durability, Engine, Options, Revision};
use futures_util::future::join_all;
use tests::server::TempDir;
use tokio::runtime::Runtime;

/// The server uses the same allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Size of a value in `scan`.
const VALUE_BYTES: usize = 3584;
/// Size of a value in the other measurements.
const SMALL_BYTES: usize = 200;
/// Number of concurrent writes while a store is filled.
const AT_A_TIME: usize = 1_000;
/// Environment variable that passes the path of the store to the child process of [`opened`].
const STORE_TO_OPEN: &str = "BENCH_STORE_TO_OPEN";

fn main() {
    if let Some(store) = std::env::var_os(STORE_TO_OPEN) {
        return print_opened(Path::new(&store));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let is_wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    if is_wanted("scan") {
        scan(&runtime);
    }
    if is_wanted("start") {
        let versions = scale(10_000_000, 10_000);
        row("start", &["versions", "segments", "checkpoint", "open", "memory", "memory"]);
        start(&runtime, versions / 100, 100);
    }
    if is_wanted("memory") {
        let versions = scale(1_000_000, 10_000);
        row("memory", &["versions", "segments", "checkpoint", "open", "memory", "memory"]);
        for each in [1, 2, 10, 100, 1_000] {
            start(&runtime, (versions / each).max(1), each);
        }
    }
}

fn relaxed(store: &Path) -> Engine {
    let options = Options { durability: Durability::Relaxed, ..Options::new(store) };
    Engine::open(options).expect("the store opens")
}

/// Writes the keys with these numbers. At most [`AT_A_TIME`] writes are concurrent.
fn write(runtime: &Runtime, engine: &Engine, keys: impl Iterator<Item = usize>, value: &Bytes) {
    let keys: Vec<usize> = keys.collect();
    for some in keys.chunks(AT_A_TIME) {
        let commits = some.iter().map(|key| engine.commit(put(*key, value)));
        assert!(runtime.block_on(join_all(commits)).iter().all(Result::is_ok));
    }
}

/// Returns `count` pseudo-random numbers below `end`.
fn random(count: usize, end: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % end as u64) as usize
    })
    .take(count)
}

/// Reads and copies all records, as a list does, in `times` scans. Returns the time of the fastest scan.
fn scans(engine: &Engine, times: usize) -> Duration {
    let mut out = Vec::with_capacity(1 << 20);
    let scan = |_| {
        let began = Instant::now();
        for entry in engine.snapshot().prefix(PREFIX.as_bytes()).reading_values() {
            if out.len() > 64 * 1024 {
                out.clear();
            }
            entry.with_value(|value| out.extend_from_slice(value)).expect("the record is sound");
        }
        began.elapsed()
    };
    (0..times).map(scan).min().unwrap_or_default()
}

/// Unmaps all pages, to restore the state after a start, and then measures one scan. Returns the shortest
/// time of several such scans.
fn unmapped_scan(engine: &Engine) -> Duration {
    let first = || {
        engine.release_pages();
        scans(engine, 1)
    };
    (0..scale(7, 1)).map(|_| first()).min().unwrap_or_default()
}

fn scan(runtime: &Runtime) {
    let directory = TempDir::new();
    let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
    let (keys, updates) = (scale(50_000, 500), scale(300_000, 3_000));
    let engine = relaxed(&directory.path().join("log"));
    row(&format!("scan of {keys} records"), &["first", "repeated", "unmapped", "versions", "segments"]);
    let report = |what: &str| {
        // The store maps complete segments in the background, so wait until this work has ended.
        runtime.block_on(engine.settled());
        let times = [scans(&engine, 1), scans(&engine, scale(7, 1)), unmapped_scan(&engine)];
        let [first, repeated, unmapped] = times.map(time);
        let stats = engine.stats();
        row(
            what,
            &[&first, &repeated, &unmapped, &stats.versions.to_string(), &mib(stats.segment_bytes / 1024)],
        );
        times.map(|time| time.as_secs_f64())
    };
    write(runtime, &engine, 0..keys, &value);
    report("before the updates");
    write(runtime, &engine, random(updates, keys), &value);
    let retained = report("after the updates");
    let revision = engine.revision();
    runtime.block_on(engine.compact(revision)).expect("the revision can be compacted");
    let compacted = report("compacted");
    let ratios: Vec<String> =
        retained.iter().zip(compacted).map(|(with, without)| format!("{:.2}", with / without)).collect();
    row("ratio", &ratios.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Fills a store with `each` versions of each of `keys` keys, and measures the time and the memory of opening
/// the store.
fn start(runtime: &Runtime, keys: usize, each: usize) {
    let directory = TempDir::new();
    let store = directory.path().join("log");
    let value = Bytes::from(vec![b'x'; SMALL_BYTES]);
    let engine = relaxed(&store);
    for _ in 0..each {
        write(runtime, &engine, 0..keys, &value);
    }
    runtime.block_on(engine.checkpoint());
    let stats = engine.stats();
    runtime.block_on(engine.close());
    drop(engine);
    let files = std::fs::read_dir(&store).expect("the store is a directory").flatten();
    let image = files.filter(|file| file.path().extension().is_some_and(|end| end == "checkpoint"));
    let image: u64 = image.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    let opened = (0..scale(5, 1)).map(|_| opened(&store));
    let (open_us, kib) = opened.min().expect("the store was opened");
    let per = |bytes: u64| format!("{:.0} B each", bytes as f64 / stats.versions as f64);
    row(
        &format!("{keys} keys, {each} versions of each"),
        &[
            &stats.versions.to_string(),
            &per(stats.record_bytes),
            &per(image),
            &time(Duration::from_micros(open_us)),
            &mib(kib),
            &per(kib * 1024),
        ],
    );
}

/// Returns the time that opening `store` takes, in microseconds, and the memory that the open store needs, in KiB. A
/// new process measures both, because the allocator of this process keeps freed memory.
fn opened(store: &Path) -> (u64, u64) {
    let program = std::env::current_exe().expect("a process knows its program");
    let output = Command::new(program).env(STORE_TO_OPEN, store).output().expect("it starts once more");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    (numbers.next().expect("a time"), numbers.next().expect("a size"))
}

/// Opens the store and prints the time and the memory for [`opened`].
#[expect(clippy::print_stdout, reason = "the process that asks reads it there")]
fn print_opened(store: &Path) {
    let anonymous = || process::memory(std::process::id()).anonymous;
    let before = anonymous();
    let began = Instant::now();
    let engine = Engine::open(Options::new(store)).expect("the store opens");
    let took = began.elapsed();
    assert!(engine.revision() > Revision::ZERO);
    println!("{} {}", took.as_micros(), anonymous().saturating_sub(before));
}
