//! Space on the disk: what no reader can reach goes, and what is left takes at most twice what is live and retained,
//! plus a few segments, at every moment of an hour.
//!
//! The hour is a simulated one, at a scale of 1 : 512. A segment has 128 KiB instead of 64 MiB; 8 KiB are written in a
//! second instead of 4 MiB; a mebibyte is live and two and a half are retained instead of 500 and 1 300. Time is not
//! scaled: history is kept for 5 minutes of 60. Background maintenance takes eight turns in a second, with which it writes a
//! segment or two anew: 32 MiB in a second at full scale, twice, is what it allows itself.

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

/// What may be there beside twice the live and retained bytes, in segments: the one being written to and the one
/// prepared; one in the making, and those it is made of until a checkpoint does without them (as much as one, or a
/// tenth of what is live); the checkpoint and the one that takes its place.
const SPARE_SEGMENTS: u64 = 6;

/// Where records are smaller than this, the images of the index have to be counted beside them: a checkpoint has 32
/// bytes for each version and some more for each key, and for a while there are two.
const SMALL_RECORD_BYTES: u64 = 256;

/// A store on a simulated disk, and the time.
struct Simulated {
    disk: Disk,
    engine: Engine,
    stepper: Stepper,
    random: Random,
    /// Keys in the order in which they were made, for workloads that delete the oldest.
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

    /// A second passes, with everything that the store does meanwhile.
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

    /// What the disk holds is within the bound.
    fn check(&self, workload: &str) {
        let stats = self.engine.stats();
        let (used, needed) = (self.disk.used_bytes(), stats.live_bytes);
        let images = match needed / stats.versions.max(1) < SMALL_RECORD_BYTES {
            true => 2 * (32 * stats.versions + 64 * stats.keys),
            false => 0,
        };
        let allowed = 2 * needed + images + SPARE_SEGMENTS * SEGMENT_BYTES;
        assert!(used <= allowed, "{workload}, second {}: {used} of {allowed}: {stats:?}", self.second);
    }
}

/// What is written in one second.
type Workload = fn(&mut Simulated);

fn overwrites(store: &mut Simulated) {
    for _ in 0..4 {
        let key = format!("/{}", store.random.below(500));
        store.put(&key, 1_900);
    }
}

/// Most writes go to few keys, and the rest is hardly ever written.
fn hot_keys(store: &mut Simulated) {
    for _ in 0..4 {
        let key = match store.random.one_in(10) {
            true => format!("/cold/{}", store.random.below(500)),
            false => format!("/hot/{}", store.random.below(8)),
        };
        store.put(&key, 1_900);
    }
}

/// Keys come, and go after a while; some stay.
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

/// The same with values so small that a tombstone is as large as what it is about.
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

/// A minute of much, and three of nothing.
fn bursts(store: &mut Simulated) {
    if store.second % 240 < 60 {
        (0..4).for_each(|_| overwrites(store));
    }
}

/// Nothing is deleted by a client: it expires.
fn expiring(store: &mut Simulated) {
    for _ in 0..4 {
        let key = format!("/events/{}", store.random.next());
        let ttl = Duration::from_secs(60 + store.random.below(120));
        store.put_for(&key, 1_900, Some(ttl));
    }
}

#[test]
fn an_hour_of_churn_takes_at_most_twice_what_is_live_and_retained() {
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
        // Then nothing is written any more: history is forgotten, and what is left is what is live. (A delete would be
        // told of at its own revision, as long as it is the last of all.)
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
fn of_a_deleted_key_nothing_is_left_once_no_reader_can_ask_for_it() {
    let mut store = Simulated::new(2);
    // Its states stand among those of keys that stay: no segment is given back for their sake alone.
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
    // The keys that stay are written now and then, as everywhere.
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

/// Files of the store that are gone from the directory and mapped all the same.
fn held_files(temp: &TempDir) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let directory = temp.path().display().to_string();
    maps.lines().filter(|line| line.contains(&directory) && line.ends_with("(deleted)")).count()
}

#[tokio::test]
async fn segments_that_a_snapshot_needs_stay_until_it_goes() {
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
    // They are gone from the directory, and can be read.
    assert!(held_files(&temp) >= 3, "{:?}", engine.stats());
    assert_eq!(shown(), expected);
    assert_eq!(engine.snapshot().count(&KeyRange::all()), 1);
    drop(snapshot);
    assert_eq!(held_files(&temp), 0);
}
