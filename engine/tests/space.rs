//! Disk space: records that no reader can reach are removed, and at every moment of an hour the files take at
//! most twice the live and retained bytes, plus a few segments.
//!
//! The hour is simulated at a scale of 1 : 512. A segment has 128 KiB instead of 64 MiB; 8 KiB are written
//! per second instead of 4 MiB; 1 MiB is live and 2.5 MiB are retained instead of 500 and 1 300 MiB. Time is
//! not scaled: history is kept for 5 of the 60 minutes. Background maintenance takes eight turns per second,
//! and each turn rewrites one or two segments. At full scale, `rate.rs` limits the rewrites to 32 MiB per
//! second plus once or twice the committed bytes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Random, Stepper};
use engine::{
    Change, CommitError, Durability, Engine, Expected, KeyRange, Options, Payload, Revision, Write,
};

mod support;
use support::{TempDir, delete, options as real_options, put, value};

const SEGMENT_BYTES: u64 = 128 * 1024;
const RETENTION: Duration = Duration::from_secs(300);
const HOUR_S: u64 = 3_600;
const TURNS_PER_SECOND: u32 = 8;

/// Allowed disk space in addition to twice the live and retained bytes, in segments. This space consists of
/// the active and the prepared segment; a rewritten segment, and its sources until a checkpoint does not need
/// them (as much as one segment, or a tenth of the live bytes); and the checkpoint and its successor.
const SPARE_SEGMENTS: u64 = 6;

/// Average record size below which the images of the index must be counted as well: a checkpoint has 32 bytes
/// for each version and some more for each key, and for some time there are two checkpoints.
const SMALL_RECORD_BYTES: u64 = 256;

/// A store on a simulated disk, and the time.
struct Simulated {
    disk: Disk,
    engine: Engine,
    stepper: Stepper,
    random: Random,
    /// Keys in the order of their creation, for workloads that delete the oldest key.
    made: VecDeque<String>,
    second: u64,
}

impl Simulated {
    fn new(seed: u64) -> Simulated {
        let disk = Disk::new(seed);
        let options = Options {
            segment_bytes: SEGMENT_BYTES,
            history_retention: RETENTION,
            durability: Durability::Sync,
            ..Options::new("/simulated")
        };
        let (engine, stepper) = fault::open(&disk, &options).unwrap();
        Simulated { disk, engine, stepper, random: Random::new(seed), made: VecDeque::new(), second: 0 }
    }

    fn put_for(&mut self, key: &str, len: usize, ttl: Option<Duration>) {
        let value = Bytes::from(vec![b'a' + self.random.below(26) as u8; len]);
        self.write(key, Change::Put(Payload { value, ttl, ..Payload::default() }));
    }

    fn put(&mut self, key: &str, len: usize) {
        self.put_for(key, len, None);
    }

    fn delete(&mut self, key: &str) {
        self.write(key, Change::Delete(None));
    }

    fn write(&mut self, key: &str, change: Change) {
        let write = Write { key: Bytes::copy_from_slice(key.as_bytes()), expected: Expected::Any, change };
        match self.stepper.write(&self.engine, write) {
            Ok(_) | Err(CommitError::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Lets one second pass, with all work that the store does in that second.
    fn pass(&mut self) {
        while self.stepper.keep() {}
        for _ in 0..TURNS_PER_SECOND {
            if !self.stepper.maintain() {
                self.stepper.commit();
            }
        }
        self.disk.pass(Duration::from_secs(1));
        self.second += 1;
    }

    /// Checks that the used disk space is within the bound.
    fn check(&self, workload: &str) {
        let stats = self.engine.stats();
        let (used, needed) = (self.disk.used_bytes(), stats.live_bytes);
        let images = if needed / stats.versions.max(1) < SMALL_RECORD_BYTES {
            2 * (32 * stats.versions + 64 * stats.keys)
        } else {
            0
        };
        let allowed = 2 * needed + images + SPARE_SEGMENTS * SEGMENT_BYTES;
        assert!(used <= allowed, "{workload}, second {}: {used} of {allowed}: {stats:?}", self.second);
    }
}

/// The writes of one second.
type Workload = fn(&mut Simulated);

fn overwrites(store: &mut Simulated) {
    for _ in 0..4 {
        let key = format!("/{}", store.random.below(500));
        store.put(&key, 1_900);
    }
}

/// Most writes go to few keys; the other keys are rarely written.
fn hot_keys(store: &mut Simulated) {
    for _ in 0..4 {
        let key = if store.random.one_in(10) {
            format!("/cold/{}", store.random.below(500))
        } else {
            format!("/hot/{}", store.random.below(8))
        };
        store.put(&key, 1_900);
    }
}

/// Keys are created and deleted after some time; some keys stay.
fn comings_and_goings(store: &mut Simulated) {
    for _ in 0..3 {
        let key = format!("/{}/{}", store.second % 7, store.random.next());
        store.put(&key, 2_000);
        if !store.random.one_in(40) {
            store.made.push_back(key);
        }
    }
    while store.made.len() > 400 {
        let at = store.random.below(store.made.len() as u64) as usize;
        if let Some(key) = store.made.swap_remove_back(at) {
            store.delete(&key);
        }
    }
}

/// Like [`comings_and_goings`], with values so small that a tombstone is as large as the record that
/// it replaces.
fn small_comings_and_goings(store: &mut Simulated) {
    for _ in 0..20 {
        let key = format!("/{}/{}", store.second % 7, store.random.next());
        store.put(&key, 10);
        store.made.push_back(key);
    }
    while store.made.len() > 3_000 {
        let at = store.random.below(store.made.len() as u64) as usize;
        if let Some(key) = store.made.swap_remove_back(at) {
            store.delete(&key);
        }
    }
}

/// A minute of many writes alternates with three minutes without writes.
fn bursts(store: &mut Simulated) {
    if store.second % 240 < 60 {
        (0..4).for_each(|_| overwrites(store));
    }
}

/// No client deletes anything: all keys expire.
fn expiring(store: &mut Simulated) {
    for _ in 0..4 {
        let key = format!("/events/{}", store.random.next());
        let ttl = Duration::from_secs(60 + store.random.below(120));
        store.put_for(&key, 1_900, Some(ttl));
    }
}

#[test]
fn an_hour_of_churn_uses_at_most_twice_the_live_and_retained_bytes() {
    let workloads: [(&str, Workload); 6] = [
        ("overwrites", overwrites),
        ("hot keys", hot_keys),
        ("comings and goings", comings_and_goings),
        ("small comings and goings", small_comings_and_goings),
        ("bursts", bursts),
        ("expiring", expiring),
    ];
    for (name, workload) in workloads {
        let mut store = Simulated::new(1);
        let mut largest = 0.0f64;
        while store.second < HOUR_S {
            workload(&mut store);
            store.pass();
            store.check(name);
            if store.second > 600 {
                let needed = store.engine.stats().live_bytes.max(1);
                largest = largest.max(store.disk.used_bytes() as f64 / needed as f64);
            }
        }
        let stats = store.engine.stats();
        assert!(stats.rewritten_bytes > 0 && stats.checkpoint > Revision::ZERO, "{name}: {stats:?}");
        eprintln!(
            "{name}: {} commits, {} KiB live and retained, {} KiB on disk, at most {largest:.2} times as much",
            stats.commits,
            stats.live_bytes / 1024,
            store.disk.used_bytes() / 1024
        );
        // From here on nothing is written except one last key: history is compacted, and only live records
        // remain. (The store would keep a delete that is the newest record, because tails report it at its
        // own revision.)
        for second in 0..3 * RETENTION.as_secs() {
            if second == RETENTION.as_secs() {
                store.put("/last", 10);
            }
            store.pass();
            store.check(name);
        }
        let snapshot = store.engine.snapshot();
        let live: u64 = snapshot.range(KeyRange::all()).map(|entry| entry.stored_len() as u64).sum();
        assert_eq!(store.engine.stats().live_bytes, live, "{name}");
    }
}

#[test]
fn a_deleted_key_leaves_no_record_once_its_history_is_unreadable() {
    let mut store = Simulated::new(2);
    // The states of the deleted keys are stored between states of keys that stay, so no segment is reclaimed
    // only because of the deleted keys.
    for n in 0..400 {
        store.put(&format!("/stay/{n}"), 700);
        store.put(&format!("/gone/{n}"), 300);
    }
    let speaks_of_it = |store: &Simulated| {
        let files = store.disk.files();
        files.values().filter(|bytes| bytes.windows(6).any(|found| found == b"/gone/")).count()
    };
    for n in 0..400 {
        store.delete(&format!("/gone/{n}"));
    }
    assert!(speaks_of_it(&store) > 3);
    assert_eq!(store.engine.stats().versions, 1_200);
    // The keys that stay are written now and then, as in any store.
    for n in 0..2_000u64 {
        let key = format!("/stay/{}", store.random.below(400));
        store.put(&key, 700);
        if n % 2 == 0 {
            store.pass();
        }
    }
    for _ in 0..2 * RETENTION.as_secs() {
        store.pass();
    }
    let stats = store.engine.stats();
    assert_eq!((stats.keys, stats.versions), (400, 400));
    assert_eq!(speaks_of_it(&store), 0, "{stats:?}");
}

/// Returns the number of the store's files that are gone from the directory but still mapped.
fn held_files(temp: &TempDir) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let directory = temp.path().display().to_string();
    maps.lines().filter(|line| line.contains(&directory) && line.ends_with("(deleted)")).count()
}

#[tokio::test]
async fn segments_needed_by_a_snapshot_are_kept_until_it_is_dropped() {
    let temp = TempDir::new();
    let engine = Engine::open(real_options(&temp, 64 * 1024, Durability::Relaxed)).unwrap();
    for n in 0..200 {
        put(&engine, &format!("/{}", n % 50), &format!("{n} {}", "x".repeat(1_000))).await.unwrap();
    }
    let snapshot = engine.snapshot();
    let shown = || -> BTreeMap<Bytes, String> {
        snapshot.range(KeyRange::all()).map(|entry| (entry.key().clone(), value(&entry))).collect()
    };
    let expected = shown();
    assert_eq!((expected.len(), held_files(&temp)), (50, 0));
    for n in 0..50 {
        delete(&engine, &format!("/{n}")).await.unwrap();
    }
    for n in 0..200 {
        put(&engine, "/churn", &format!("{n} {}", "x".repeat(1_000))).await.unwrap();
    }
    engine.compact(engine.revision()).await.unwrap();
    engine.settled().await;
    // The segments are gone from the directory but can still be read.
    assert!(held_files(&temp) >= 3, "{:?}", engine.stats());
    assert_eq!(shown(), expected);
    assert_eq!(engine.snapshot().count(&KeyRange::all()), 1);
    drop(snapshot);
    assert_eq!(held_files(&temp), 0);
}
