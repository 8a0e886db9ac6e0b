//! Recovery from a full disk, on small file systems that the test mounts: deletes succeed until there is
//! space, and then other writes resume. Without the permission to mount, the tests report the missing
//! permission and end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::{
    Change, CommitError, Committed, Engine, Expected, KeyRange, Options, Payload, Refusal, Revision, Write,
};

use testkit::SmallDisk;

mod support;
use support::{Random, TempDir};

/// Maximum wait for something that takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of concurrent writers.
const WRITERS: usize = 64;

/// Returns the number of files of each kind, and the bytes of their blocks.
fn files(path: &Path) -> BTreeMap<String, (usize, u64)> {
    use std::os::unix::fs::MetadataExt;
    let mut kinds = BTreeMap::<String, (usize, u64)>::new();
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = name.trim_matches(|c: char| c.is_ascii_digit()).to_owned();
        let kind = kinds.entry(kind).or_default();
        kind.0 += 1;
        kind.1 += entry.metadata().map_or(0, |metadata| metadata.blocks() * 512);
    }
    kinds
}

/// Returns the options with which a server opens its store.
fn options(path: &Path) -> Options {
    Options {
        history_retention: Duration::from_secs(300),
        reserve_bytes: 16 << 20,
        durability: engine::Durability::Relaxed,
        ..Options::new(path)
    }
}

fn put(n: usize, len: usize) -> Write {
    let value = format!("{{\"n\":{n},\"fill\":\"{}\"}}", "x".repeat(len));
    let payload = Payload { value: value.into(), ..Payload::default() };
    Write { key: key(n), expected: Expected::Any, change: Change::Put(payload) }
}

fn key(n: usize) -> Bytes {
    format!("/registry/configmaps/default/object-{n:020}").into()
}

fn is_refused(outcome: &Result<Committed, CommitError>) -> bool {
    matches!(outcome, Err(CommitError::Refused(Refusal::DiskFull)))
}

fn delete(n: usize) -> Write {
    Write { key: key(n), expected: Expected::Any, change: Change::Delete(None) }
}

/// Commits `writes` concurrently and returns their outcomes.
async fn commit_all(
    engine: &Engine,
    writes: impl Iterator<Item = Write>,
) -> Vec<Result<Committed, CommitError>> {
    let commit = |write| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.commit(write).await })
    };
    let tasks: Vec<_> = writes.map(commit).collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

/// Fills the store with states of `len` bytes and returns their numbers.
async fn fill(engine: &Engine, len: usize) -> Vec<usize> {
    let mut taken = Vec::new();
    let mut next = 0;
    let writers = if len > 100_000 { 1 } else { WRITERS };
    loop {
        let outcomes = commit_all(engine, (next..next + writers).map(|n| put(n, len))).await;
        let before = taken.len();
        for (n, outcome) in (next..).zip(&outcomes) {
            assert!(outcome.is_ok() || is_refused(outcome), "{outcome:?}");
            taken.extend(outcome.is_ok().then_some(n));
        }
        next += writers;
        if taken.len() < before + writers {
            return taken;
        }
    }
}

async fn case(megabytes: usize, len: usize) {
    let temp = TempDir::new();
    let Some(disk) = SmallDisk::mount(temp.path(), megabytes << 20) else { return };
    let began = Instant::now();
    let engine = Engine::open(options(temp.path())).unwrap();
    let mut left = fill(&engine, len).await;
    let (all, other) = (left.len(), usize::MAX);
    let filled = began.elapsed();
    assert!(all * (len + 200) > (megabytes << 20) / 2, "{all} states");
    assert!(is_refused(&engine.commit(put(other, len)).await));

    // Every delete succeeds, and after some deletes every write succeeds as well.
    let mut random = Random(len as u64);
    while is_refused(&engine.commit(put(other, len)).await) {
        let state =
            |left: usize| format!("{left} of {all} are left; {:?}; {:?}", engine.stats(), files(temp.path()));
        let goes_on = left.len() > all / 3 && began.elapsed() < PATIENCE;
        assert!(goes_on, "the disk is full: {}", state(left.len()));
        for _ in 0..(all / 100).max(1) {
            let at = random.below(left.len() as u64) as usize;
            let outcome = engine.commit(delete(left[at])).await;
            assert!(outcome.is_ok(), "{:?}: {}", outcome.err(), state(left.len()));
            left.swap_remove(at);
        }
        // Delete slowly: history is kept for two seconds, and space becomes free only after that.
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    eprintln!(
        "{megabytes} MB, {len} bytes: filled with {all} states in {filled:?}, {} deleted until writes resumed after {:?}",
        all - left.len(),
        began.elapsed() - filled
    );
    left.push(other);
    left.sort_unstable();
    let found = |engine: &Engine| -> Vec<Bytes> {
        engine.snapshot().range(KeyRange::all()).map(|entry| entry.read().unwrap().key).collect()
    };
    let expected: Vec<Bytes> = left.iter().map(|&n| key(n)).collect();
    assert!(found(&engine) == expected);
    // The other keys can be deleted as well, by many writers at once, and all of the space becomes free.
    for chunk in left.chunks(WRITERS) {
        // Writers that are faster than reclamation may be refused after some time.
        let mut keys = chunk.to_vec();
        while !keys.is_empty() {
            assert!(began.elapsed() < 2 * PATIENCE, "deletes are refused");
            let outcomes = commit_all(&engine, keys.iter().map(|&n| delete(n))).await;
            let mut refused = outcomes.iter().map(is_refused);
            assert!(outcomes.iter().all(|outcome| outcome.is_ok() || is_refused(outcome)));
            keys.retain(|_| refused.next().unwrap_or_default());
        }
    }
    let refilled = async {
        while engine.commit(put(0, len)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refilled).await.expect("writes resume");
    engine.close().await;
    drop(engine);
    let engine = Engine::open(options(temp.path())).unwrap();
    assert_eq!(found(&engine), [key(0)]);
    assert!(engine.stats().oldest > Revision::ZERO);
    engine.close().await;
    drop((engine, disk));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_resume_writes_on_a_full_disk_of_40_megabytes_with_small_states() {
    case(40, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_resume_writes_on_a_full_disk_of_40_megabytes_with_large_states() {
    case(40, 900_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_resume_writes_on_a_full_disk_of_80_megabytes_with_small_states() {
    case(80, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_resume_writes_on_a_full_disk_of_80_megabytes_with_large_states() {
    case(80, 900_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_resume_writes_on_a_full_disk_of_200_megabytes_with_small_states() {
    case(200, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_resume_writes_on_a_full_disk_of_200_megabytes_with_large_states() {
    case(200, 900_000).await;
}
