//! A store of each format version: every later release must open it and read every value.
//!
//! `tests/fixtures/store_v1/` and `store_v2/` contain the files of a store, without the zeros at their ends, and
//! `contents.txt`, which lists their lengths and the contents of the store. `REWRITE_FIXTURES=store_v2 cargo test
//! --package engine --test fixture the_engine_writes` creates a fixture again. The command may only be used before a
//! release: afterwards the fixture stays unchanged, and a new format gets a fixture of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Stepper};
use engine::offline::{Store, survey};
use engine::{
    Applied, BloomFilter, BloomQuery, BloomScheme, Change, Engine, Expected, KeyRange, Options, Payload,
    Revision, Role, Write,
};

mod support;
use support::TempDir;

/// Maximum size of the fixture, in bytes.
const FIXTURE_BYTES_MAX: usize = 100_000;

type Files = BTreeMap<String, Vec<u8>>;

/// A store of one format version.
struct Fixture {
    name: &'static str,
    /// The format version in the headers of its segments.
    version: u8,
    role: Role,
    make: fn() -> Files,
}

const FIXTURES: [Fixture; 2] = [
    Fixture { name: "store_v1", version: 1, role: Role::Leader, make },
    Fixture { name: "store_v2", version: 2, role: Role::Follower, make: make_sparse },
];

impl Fixture {
    fn dir(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures")).join(self.name)
    }

    fn options(&self, temp: &TempDir) -> Options {
        Options { role: self.role, ..Options::new(temp.path()) }
    }
}

/// Returns the files of a store that uses every feature of the format, the same on every run. The store has states
/// with and without stamps, attributes and times to live; deletes; several segments, one of them rewritten;
/// compacted history; and a checkpoint with a log behind it.
fn make() -> Files {
    let disk = Disk::new(1);
    let options = Options { segment_bytes: 8 * 1024, ..Options::new("/simulated") };
    let (engine, mut stepper) = fault::open(&disk, &options).unwrap();
    for n in 0..140u64 {
        let key = Bytes::from(format!("/{}/{:02}", n % 3, n * 7 % 23));
        let value = format!(
            "{{\"revision\":\"\",\"number\":{n},\"fill\":\"{}\"}}",
            "x".repeat(n as usize * 13 % 190)
        );
        let payload = Payload {
            attributes: Bytes::from(if n % 4 == 0 { String::new() } else { format!("n={n}") }),
            value: value.into(),
            stamp_at: (n % 5 != 0).then_some(13),
            ttl: (n % 11 == 0).then_some(Duration::from_secs(100_000)),
            ..Payload::default()
        };
        let change = match n % 9 {
            7 => Change::Delete(None),
            8 => Change::Delete(Some(payload)),
            _ => Change::Put(payload),
        };
        // The delete of an absent key is refused, which does not matter.
        let _ = stepper.write(&engine, Write { key, expected: Expected::Any, change });
        disk.pass(Duration::from_millis(700));
        match n {
            100 => work(&engine, &mut stepper, Some((Revision::new(engine.revision().get() - 20)).get())),
            110 => work(&engine, &mut stepper, None),
            _ => {}
        }
    }
    stepper.close();
    disk.files()
}

/// Returns the files of a follower's store, the same on every run: gaps between revisions, several records of one
/// revision, deletes, several segments, one of them rewritten, and a checkpoint with a log behind it.
fn make_sparse() -> Files {
    let disk = Disk::new(2);
    let options = Options { segment_bytes: 8 * 1024, role: Role::Follower, ..Options::new("/simulated") };
    let (engine, mut stepper) = fault::open(&disk, &options).unwrap();
    let mut created: BTreeMap<String, u64> = BTreeMap::new();
    for n in 0..120u64 {
        let revision = 1_000 + n * n;
        let batch = (0..=n % 3).map(|part| {
            let key = format!("/{part}/{:02}", n * 7 % 23);
            let value = format!("{{\"number\":{n},\"fill\":\"{}\"}}", "y".repeat(n as usize * 17 % 210));
            let payload = Payload {
                attributes: Bytes::from(if n % 4 == 0 { String::new() } else { format!("n={n}") }),
                value: value.into(),
                ..Payload::default()
            };
            let exists = created.contains_key(&key);
            let born = *created.entry(key.clone()).or_insert(revision);
            let change = match n % 9 {
                7 if exists => Change::Delete(None),
                8 if exists => Change::Delete(Some(payload)),
                _ => Change::Put(payload),
            };
            if matches!(change, Change::Delete(_)) {
                created.remove(&key);
            }
            let (revision, born) = (Revision::new(revision), Revision::new(born));
            Applied { revision, created: born, key: key.into(), change }
        });
        let batch: Vec<Applied> = batch.collect();
        stepper.apply(&engine, batch).unwrap();
        disk.pass(Duration::from_millis(700));
        match n {
            80 => work(&engine, &mut stepper, Some(engine.revision().get() - 2_000)),
            95 => work(&engine, &mut stepper, None),
            _ => {}
        }
    }
    stepper.close();
    disk.files()
}

/// Compacts history before `revision`, if given, lets the store reclaim space, and writes a checkpoint.
fn work(engine: &Engine, stepper: &mut Stepper, revision: Option<u64>) {
    if let Some(revision) = revision {
        assert!(fault::now(engine.compact(Revision::new(revision))).is_none());
    }
    assert!(fault::now(engine.checkpoint()).is_none());
    for _ in 0..200 {
        while stepper.maintain() {}
        stepper.commit();
    }
}

/// Returns the contents of a store at the oldest readable revision, at a revision in the middle, and at
/// `newest`.
fn contents(engine: &Engine, newest: Revision) -> String {
    let mut text = String::new();
    let oldest = engine.stats().oldest;
    for revision in [oldest, Revision::new((oldest.get() + newest.get()) / 2), newest] {
        let snapshot = engine.snapshot_at(revision).unwrap();
        for entry in snapshot.range(KeyRange::all()) {
            let record = entry.read().unwrap();
            let (key, attributes) = (record.key.escape_ascii(), record.attributes.escape_ascii());
            let (created, value) = (entry.created(), record.value.escape_ascii());
            let at = entry.revision();
            writeln!(
                text,
                "at {revision}: {key} created {created} revision {at} attributes [{attributes}] {value}"
            )
            .unwrap();
        }
    }
    text
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

fn rewrite(fixture: &Fixture) {
    let files = (fixture.make)();
    let disk = Disk::with_files(1, &files);
    let options = Options { role: fixture.role, ..Options::new("/simulated") };
    let (engine, _stepper) = fault::open(&disk, &options).unwrap();
    let mut text = String::new();
    for (name, bytes) in &files {
        writeln!(text, "file {name} {} bytes", bytes.len()).unwrap();
    }
    writeln!(text, "newest {}", engine.revision()).unwrap();
    text.push_str(&contents(&engine, Revision::new(engine.revision().get())));
    let dir = fixture.dir();
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    for (name, bytes) in &files {
        std::fs::write(dir.join(name), trimmed(bytes)).unwrap();
    }
    std::fs::write(dir.join("contents.txt"), text).unwrap();
}

/// Reads `contents.txt`: the lengths of the files, the newest revision, and the contents of the store.
fn read(fixture: &Fixture) -> (BTreeMap<String, u64>, u64, String) {
    let text = std::fs::read_to_string(fixture.dir().join("contents.txt")).unwrap();
    let (mut files, mut newest, mut rest) = (BTreeMap::new(), 0, String::new());
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["file", name, len, "bytes"] => drop(files.insert(name.to_owned(), len.parse().unwrap())),
            ["newest", revision] => newest = revision.parse().unwrap(),
            _ => {
                rest.push_str(line);
                rest.push('\n');
            }
        }
    }
    (files, newest, rest)
}

/// Unpacks the fixture's files, so that a store can be opened from them.
fn unpack(fixture: &Fixture, temp: &TempDir, files: &BTreeMap<String, u64>) -> usize {
    let mut total = 0;
    for (name, &len) in files {
        let bytes = std::fs::read(fixture.dir().join(name)).unwrap();
        total += bytes.len();
        std::fs::write(temp.path().join(name), bytes).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(temp.path().join(name)).unwrap();
        file.set_len(len).unwrap();
    }
    total
}

fn remove_checkpoints(temp: &TempDir) {
    for file in std::fs::read_dir(temp.path()).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "checkpoint") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_of_every_format_version_opens_and_every_value_is_readable() {
    for fixture in &FIXTURES {
        let (files, newest, expected) = read(fixture);
        let temp = TempDir::new();
        let total = unpack(fixture, &temp, &files);
        assert!(total <= FIXTURE_BYTES_MAX && files.len() > 4, "{total} bytes in {files:?}");
        // Open the store with its checkpoint, then without.
        for round in 0..2 {
            let engine = Engine::open(fixture.options(&temp)).unwrap();
            assert_eq!(engine.stats().lost_revisions, 0);
            assert!(engine.revision() >= Revision::new(newest));
            assert_eq!(contents(&engine, Revision::new(newest)), expected, "{} {round}", fixture.name);
            engine.close().await;
            drop(engine);
            remove_checkpoints(&temp);
        }
        let store = Store::open(temp.path()).unwrap();
        assert_eq!(survey(&store, |damage| panic!("{damage}"), |_| ()).damages, 0, "{}", fixture.name);
    }
}

/// The store of a follower is opened as a leader, and accepts writes.
#[tokio::test]
async fn a_sparse_store_continues_as_a_dense_store() {
    let fixture = &FIXTURES[1];
    let (files, newest, expected) = read(fixture);
    let temp = TempDir::new();
    unpack(fixture, &temp, &files);
    let write =
        Write { key: "/new".into(), expected: Expected::Any, change: Change::Put(Payload::default()) };
    for round in 1..=2 {
        let engine = Engine::open(Options::new(temp.path())).unwrap();
        assert_eq!(contents(&engine, Revision::new(newest)), expected);
        engine.commit(write.clone()).await.unwrap();
        assert_eq!(engine.revision(), Revision::new(newest + round));
        engine.close().await;
        drop(engine);
        remove_checkpoints(&temp);
    }
}

/// Bloom filters by the length of the attributes, which is 0, 3, 4 or 5 in the fixture.
const SIGNING: BloomScheme =
    BloomScheme { kind: 7, filter: |attributes| BloomFilter::from_bits(1 << attributes.len()) };

#[tokio::test]
async fn a_checkpoint_without_bloom_filters_opens_and_the_next_one_contains_them() {
    let temp = TempDir::new();
    unpack(&FIXTURES[0], &temp, &read(&FIXTURES[0]).0);
    let open = |bloom_scheme| Engine::open(Options { bloom_scheme, ..Options::new(temp.path()) }).unwrap();
    let with_four = |engine: &Engine| {
        let mut query = BloomQuery::default();
        query.require(vec![BloomFilter::from_bits(1 << 4)]);
        let found = engine.snapshot().range(KeyRange::all()).filtered(query);
        found.flatten().map(|entry| entry.attributes().unwrap().len()).collect::<Vec<_>>()
    };
    let engine = open(SIGNING);
    // This write gives the checkpoint something new to store.
    let payload = Payload { attributes: "n=23".into(), ..Payload::default() };
    let write = Write { key: "/z".into(), expected: Expected::Any, change: Change::Put(payload) };
    engine.commit(write).await.unwrap();
    // Expired keys must be deleted before the test compares.
    engine.settled().await;
    engine.checkpoint().await;
    let found = with_four(&engine);
    assert!(!found.is_empty() && found.iter().all(|&len| len == 4), "{found:?}");
    let keys: Vec<_> =
        engine.snapshot().range(KeyRange::all()).map(|e| e.attributes().unwrap().len()).collect();
    engine.close().await;
    drop(engine);

    let bytes = std::fs::read(&temp.checkpoints()[0]).unwrap();
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (kind, keys_end, end) = (u32_at(92), u64_at(80), u64_at(96));
    assert_eq!((kind, u32_at(keys_end + 4) as usize), (7, end - keys_end - 8), "one block");
    let blooms = bytes[keys_end + 8..end].chunks_exact(16);
    let lens = blooms.map(|bytes| u128::from_le_bytes(bytes.try_into().unwrap()).checked_ilog2());
    let lens: Vec<_> = lens.flatten().map(|len| len as usize).collect();
    assert_eq!(lens, keys, "of those that are not deleted, in their order");

    // A store opened without Bloom filters writes a checkpoint without them; a store opened with them
    // computes them again.
    open(BloomScheme::default()).close().await;
    let engine = open(SIGNING);
    assert_eq!(with_four(&engine), found);
    engine.close().await;
}

#[test]
fn the_engine_writes_the_format_versions_of_the_fixtures() {
    for fixture in &FIXTURES {
        if std::env::var("REWRITE_FIXTURES").is_ok_and(|name| name == fixture.name) {
            rewrite(fixture);
        }
        // Compare magic and format version only: the other bytes also depend on when maintenance runs.
        let kind = |bytes: &[u8]| bytes[..12].to_vec();
        // A store can be read without the high-water mark; opening creates it.
        let made = (fixture.make)();
        let kept = made.iter().filter(|(name, _)| *name != "high-water");
        let today: BTreeSet<Vec<u8>> = kept.map(|(_, bytes)| kind(bytes)).collect();
        let files = read(fixture).0;
        let bytes = |name: &String| kind(&std::fs::read(fixture.dir().join(name)).unwrap());
        let then = files.keys().filter(|name| *name != "high-water").map(bytes);
        assert_eq!(
            today,
            then.collect(),
            "{}: a new format has a version and a fixture of its own",
            fixture.name
        );
        assert_eq!(today.len(), 2, "segments and checkpoints");
        let segment = files.keys().find(|name| name.ends_with(".segment")).unwrap();
        assert_eq!(bytes(segment)[8], fixture.version, "{}", fixture.name);
    }
}
