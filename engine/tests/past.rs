//! Simulated runs of a store, each determined by a seed, compared with a model of the history: every readable point is
//! exact, and every other point is refused. The runs include compaction by age and by size, expiry, kills, power
//! losses, proper closes, backups and restores.
//!
//! `HISTORY_STEPS=1000000 cargo test -p engine --test past` runs more steps; `HISTORY_SEED=7` repeats one run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use engine::fault::{self, Disk, Random, Stepper};
use engine::offline::{Receiver, RestorePoint, restore};
use engine::{
    Change, CommitError, Engine, Entry, Event, EventKind, Expected, KeyRange, Options, Payload, Revision,
    Snapshot, SnapshotError, Tail, Write,
};

mod support;
use support::TempDir;

/// Number of steps in each run, unless `HISTORY_STEPS` has another number.
const STEPS: u64 = 12_000;
const SEEDS: u64 = 6;
const KEYS: u64 = 40;
/// Maximum number of snapshots that are kept and read again later.
const KEPT_MAX: usize = 6;

/// A state that a key had, or a delete.
#[derive(Clone, Debug, Eq, PartialEq)]
struct State {
    revision: u64,
    created: u64,
    is_delete: bool,
    attributes: Bytes,
    value: Bytes,
    /// Whether the revision is inserted at the start of the value.
    stamped: bool,
    /// Second at which the store deletes the key; 0 means never.
    expires_s: u32,
}

impl State {
    fn stored(&self) -> Vec<u8> {
        let stamp = if self.stamped { self.revision.to_string() } else { String::new() };
        [stamp.as_bytes(), &self.value].concat()
    }
}

/// All writes that ever happened, by key and by revision.
#[derive(Default)]
struct Model {
    states: BTreeMap<Bytes, Vec<State>>,
    /// Revision, commit time in milliseconds and key of each write.
    writes: Vec<(u64, u64, Bytes)>,
    /// The revision of an empty or restored store.
    base: u64,
}

impl Model {
    fn newest(&self) -> u64 {
        self.writes.last().map_or(self.base, |(revision, ..)| *revision)
    }

    fn current(&self, key: &[u8]) -> Option<&State> {
        self.states.get(key)?.last().filter(|state| !state.is_delete)
    }

    /// Returns the state of a key at a revision.
    fn at(states: &[State], revision: u64) -> Option<&State> {
        let before = states.partition_point(|state| state.revision <= revision);
        before.checked_sub(1).map(|at| &states[at]).filter(|state| !state.is_delete)
    }

    fn all_at(&self, revision: u64) -> impl Iterator<Item = (&Bytes, &State)> {
        self.states.iter().filter_map(move |(key, states)| Some((key, Model::at(states, revision)?)))
    }

    /// Returns the newest revision committed at or before `time_ms`; `None` if all known writes are later.
    fn revision_at(&self, time_ms: u64) -> Option<u64> {
        let before = self.writes.partition_point(|(_, time, _)| *time <= time_ms);
        before.checked_sub(1).map(|at| self.writes[at].0)
    }

    fn add(&mut self, key: &Bytes, state: State, time_ms: u64) {
        self.writes.push((state.revision, time_ms, key.clone()));
        self.states.entry(key.clone()).or_default().push(state);
    }

    /// Returns the model of a restored store, which has the states of revision `from` and continues after
    /// `base`.
    fn restored(&self, from: u64, base: u64) -> Model {
        let states = self.all_at(from).map(|(key, state)| (key.clone(), vec![state.clone()])).collect();
        Model { states, writes: Vec::new(), base }
    }
}

/// A store on a simulated disk, with its model and its readers.
struct Life {
    disk: Disk,
    options: Options,
    store: Option<(Engine, Stepper)>,
    model: Model,
    random: Random,
    /// Follows all writes, including the writes of the store itself.
    tail: Tail,
    kept: Vec<Snapshot>,
    oldest: u64,
    /// The highest revision up to which the test has compacted or restored the store.
    requested: u64,
    /// Number of events of each kind, so that the test can check that every kind took place.
    seen: BTreeMap<&'static str, u64>,
}

fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn some_bytes(random: &mut Random) -> Bytes {
    let len = if random.one_in(30) { random.below(6_000) } else { random.below(200) };
    vec![b'a' + random.below(26) as u8; len as usize].into()
}

fn same(entry: &Entry, key: &[u8], state: &State, when: &str) {
    let (revision, created) = (Revision::new(state.revision), Revision::new(state.created));
    assert_eq!((&entry.key()[..], entry.revision(), entry.created()), (key, revision, created), "{when}");
    assert_eq!(entry.is_delete(), state.is_delete, "{when}");
    assert_eq!(entry.expires_s().unwrap_or(0), state.expires_s, "{when}");
    let record = entry.read().unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(record.attributes, state.attributes, "{when}");
    assert!(record.value == state.stored(), "{when}: {:?} at {revision}", key.escape_ascii().to_string());
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut random = Random::new(seed);
        let (retention_s, bytes_max) =
            [(60, u64::MAX), (600, 64 * 1024), (1 << 30, 200 * 1024), (0, u64::MAX)]
                [random.below(4) as usize];
        let options = Options {
            segment_bytes: 32 * 1024,
            history_retention: Duration::from_secs(retention_s),
            history_bytes_max: bytes_max,
            ..Options::new("/simulated")
        };
        let disk = Disk::new(seed);
        let (engine, stepper) = fault::open(&disk, &options).unwrap();
        let tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
        let store = Some((engine, stepper));
        let (model, kept, seen) = (Model::default(), Vec::new(), BTreeMap::new());
        Life { disk, options, store, model, random, tail, kept, oldest: 0, requested: 0, seen }
    }

    fn parts(&mut self) -> (&Engine, &mut Stepper, &mut Random) {
        let (engine, stepper) = self.store.as_mut().expect("the store is open");
        (engine, stepper, &mut self.random)
    }

    fn engine(&self) -> &Engine {
        &self.store.as_ref().expect("the store is open").0
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn key(&mut self) -> Bytes {
        format!("/{}/{}", self.random.below(3), self.random.below(KEYS)).into()
    }

    /// Writes or deletes a key. The event that follows is compared with the write.
    fn write(&mut self) {
        let key = self.key();
        let current = self.model.current(&key).cloned();
        let (engine, stepper, random) =
            (&self.store.as_ref().unwrap().0.clone(), &mut self.store.as_mut().unwrap().1, &mut self.random);
        let expected = match (random.below(3), &current) {
            (0, Some(state)) => Expected::Revision(Revision::new(state.revision)),
            (0, None) => Expected::Absent,
            _ => Expected::Any,
        };
        let ttl = random.one_in(6).then(|| Duration::from_secs(1 + random.below(90)));
        let stamped = random.one_in(2);
        let (attributes, value) = (some_bytes(random), some_bytes(random));
        let payload = Payload {
            attributes: attributes.clone(),
            value: value.clone(),
            stamp_at: stamped.then_some(0),
            ttl,
            essential: false,
        };
        let deletes = current.is_some() && random.one_in(5);
        let (change, state) = match (deletes.then(|| random.below(3)), &current) {
            (Some(0), Some(state)) => (Change::Delete(None), State { is_delete: true, ..state.clone() }),
            (Some(1), Some(state)) => {
                let state = State { is_delete: true, attributes: attributes.clone(), ..state.clone() };
                (Change::DeleteStored(attributes), state)
            }
            (Some(_), Some(state)) => {
                let state = State { is_delete: true, attributes, value, stamped, ..state.clone() };
                (Change::Delete(Some(payload)), state)
            }
            _ => {
                let created = current.as_ref().map_or(0, |state| state.created);
                let state = State {
                    revision: 0,
                    created,
                    is_delete: false,
                    attributes,
                    value,
                    stamped,
                    expires_s: 0,
                };
                (Change::Put(payload), state)
            }
        };
        let done = match stepper.write(engine, Write { key: key.clone(), expected, change }) {
            Ok(done) => done,
            // The store may have deleted an expired key that the model still has.
            Err(CommitError::Conflict { .. }) if current.is_some() => {
                self.follow(None);
                assert!(self.model.current(&key).is_none(), "{key:?} is refused: {expected:?}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let revision = done.revision.get();
        let created = if state.created == 0 { revision } else { state.created };
        let time_ms = millis(done.entry.committed_at().unwrap());
        let lives_ms = ttl.filter(|_| !state.is_delete).map(|ttl| ttl.as_millis() as u64);
        let expires_s = lives_ms.map_or(0, |lives_ms| (time_ms + lives_ms).div_ceil(1_000) as u32);
        self.follow(Some((key, State { revision, created, expires_s, ..state })));
    }

    /// Reads the events so far, and checks that they are `expected` and deletes of expired keys.
    fn follow(&mut self, mut expected: Option<(Bytes, State)>) {
        let mut events: Vec<std::sync::Arc<Event>> = Vec::new();
        while let Some(more) = fault::now(self.tail.next(64)) {
            events.extend(more.expect("nothing is compacted that the tail has not returned"));
        }
        for event in events {
            let time_ms = millis(event.entry.committed_at().unwrap());
            let at = format!("event {} of {:?}", event.revision, event.key);
            let state = match expected.take_if(|(_, state)| state.revision == event.revision.get()) {
                Some((key, mut state)) => {
                    assert_eq!(event.key, key, "{at}");
                    // The key may have expired between the choice of the write and its commit.
                    if !state.is_delete && self.model.current(&key).is_none() {
                        state.created = state.revision;
                    }
                    state
                }
                None => {
                    let state =
                        self.model.current(&event.key).unwrap_or_else(|| panic!("{at}: no such key")).clone();
                    assert_eq!(event.kind, EventKind::Delete, "{at}");
                    assert!(
                        (1..=time_ms / 1_000).contains(&u64::from(state.expires_s)),
                        "{at}: {state:?} at {time_ms}"
                    );
                    self.note("expiry");
                    State { revision: event.revision.get(), is_delete: true, expires_s: 0, ..state }
                }
            };
            same(&event.entry, &event.key, &state, &at);
            self.model.add(&event.key, state, time_ms);
        }
        assert!(expected.is_none(), "a committed write has an event: {expected:?}");
        assert_eq!(self.engine().revision().get(), self.model.newest());
    }

    /// Reads a random point by revision or by time.
    fn read(&mut self) {
        let newest = self.model.newest();
        let oldest = self.engine().stats().oldest.get();
        assert!(oldest >= self.oldest, "history that was compacted comes back only after a crash");
        self.oldest = oldest;
        if self.options.history_bytes_max == u64::MAX {
            let since_ms = self.disk.time_ms() - self.options.history_retention.as_millis() as u64;
            let too_old = self.model.revision_at(since_ms).unwrap_or(0);
            assert!(oldest <= too_old.max(self.requested), "{oldest} is not too old yet: {too_old}");
        }
        if self.random.one_in(4) {
            return self.read_time();
        }
        let revision = match self.random.below(3) {
            0 => self.random.below(newest + 2),
            _ => oldest + self.random.below(newest + 2 - oldest),
        };
        let when = format!("at {revision} of {oldest}..{newest}");
        match self.engine().snapshot_at(Revision::new(revision)) {
            Ok(snapshot) => {
                assert!((oldest..=newest).contains(&revision), "{when}");
                self.check(&snapshot, &when);
                if self.random.one_in(10) && self.kept.len() < KEPT_MAX {
                    self.kept.push(snapshot);
                }
            }
            Err(SnapshotError::Compacted { oldest: error_oldest }) => {
                assert_eq!(error_oldest.get(), oldest, "{when}");
                assert!(revision < oldest, "{when}");
                self.note("compacted point");
            }
            Err(SnapshotError::Future { current }) => {
                assert_eq!((revision, current.get()), (newest + 1, newest), "{when}");
            }
        }
    }

    fn read_time(&mut self) {
        let Some((_, first_ms, _)) = self.model.writes.first() else { return };
        let (first_ms, now_ms) = (*first_ms, self.disk.time_ms());
        let time_ms = first_ms + self.random.below(now_ms.saturating_sub(first_ms) + 2);
        let point = self.engine().oldest();
        let oldest_ms = point.time.map(millis);
        let found = self.engine().readable_revision_at(UNIX_EPOCH + Duration::from_millis(time_ms));
        if oldest_ms.is_none_or(|oldest_ms| time_ms < oldest_ms) {
            assert!(
                matches!(found, Err(SnapshotError::Compacted { .. })),
                "{found:?} at {time_ms} of {oldest_ms:?}"
            );
            return self.note("compacted time");
        }
        let expected = self.model.revision_at(time_ms).unwrap_or(self.model.base).max(point.revision.get());
        assert_eq!(found, Ok(Revision::new(expected)), "at {time_ms} of {point:?}");
        self.note("time");
    }

    /// Compares a snapshot with the model: one key, its versions, and a range, in chunks.
    fn check(&mut self, snapshot: &Snapshot, when: &str) {
        let key = self.key();
        let revision = snapshot.revision().get();
        let states = self.model.states.get(&key).map_or(&[][..], Vec::as_slice);
        match (snapshot.get(&key), Model::at(states, revision)) {
            (Some(entry), Some(state)) => same(&entry, &key, state, when),
            (None, None) => {}
            (found, expected) => panic!("{when}: {found:?} instead of {expected:?}"),
        }
        let range = match self.random.below(4) {
            0 => KeyRange::all(),
            1 => KeyRange::prefix(format!("/{}/", self.random.below(3)).as_bytes()),
            _ => {
                let end = self.key();
                KeyRange { start: key.clone(), end: Some(end) }
            }
        };
        let expected: Vec<_> = self.model.all_at(revision).filter(|(key, _)| range.contains(key)).collect();
        assert_eq!(snapshot.count(&range), expected.len() as u64, "{when}");
        let mut rest = range;
        let mut found: Vec<Entry> = Vec::new();
        loop {
            let chunk: Vec<Entry> = snapshot.range(rest.clone()).take(7).collect();
            let Some(last) = chunk.last() else { break };
            rest = rest.after(last.key());
            found.extend(chunk);
        }
        assert_eq!(found.len(), expected.len(), "{when}");
        for (entry, (key, state)) in found.iter().zip(expected) {
            same(entry, key, state, when);
        }
    }

    /// Compares the retained versions of a key with the model.
    fn read_versions(&mut self) {
        let key = self.key();
        let oldest = self.engine().stats().oldest.get();
        let until = oldest + self.random.below(self.model.newest() + 2 - oldest);
        let most = 1 + self.random.below(12) as usize;
        let found = self.engine().snapshot().versions(&key, Revision::new(until), most);
        let states = self.model.states.get(&key).map_or(&[][..], Vec::as_slice);
        let known = states[..states.partition_point(|state| state.revision <= until)].iter().rev();
        // The state at the oldest revision is retained with all versions after it. Versions before that state may still
        // be there until the index is pruned.
        let first = states.partition_point(|state| state.revision <= oldest);
        let is_retained = |state: &&State| !state.is_delete || state.revision == oldest;
        let at_oldest = first.checked_sub(1).map(|at| &states[at]).filter(is_retained);
        let after = states[first..].iter().filter(|state| state.revision <= until).count();
        let needed = (after + usize::from(at_oldest.is_some())).min(most);
        assert!((needed..=most).contains(&found.len()), "{} of {needed} versions of {key:?}", found.len());
        for (entry, state) in found.iter().zip(known) {
            same(entry, &key, state, "in the versions of a key");
        }
        self.note("versions");
    }

    fn reread_snapshot(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let at = self.random.below(self.kept.len() as u64) as usize;
        let snapshot = self.kept[at].clone();
        let was_compacted = snapshot.revision().get() < self.engine().stats().oldest.get();
        self.check(&snapshot, "in a snapshot that was kept");
        if was_compacted {
            self.note("kept snapshot of a compacted point");
        }
        if self.random.one_in(3) {
            self.kept.swap_remove(at);
        }
    }

    /// Ends the store in one of three ways and opens it again.
    fn reopen(&mut self) {
        let (engine, stepper) = self.store.take().unwrap();
        match self.random.below(3) {
            0 => {
                drop((engine, stepper));
                self.disk.restart();
                // The note of the last compaction may be missing.
                self.oldest = 0;
                self.note("kill");
            }
            1 => {
                self.disk.lose_power();
                drop((engine, stepper));
                self.kept.clear();
                let seed = self.random.next();
                self.disk.restore_power(seed);
                self.oldest = 0;
                self.note("power loss");
            }
            _ => {
                stepper.close();
                drop(engine);
                self.disk.restart();
                self.note("clean end");
            }
        }
        if self.random.one_in(3) {
            for name in self.disk.files().into_keys().filter(|name| name.ends_with(".checkpoint")) {
                self.disk.take(&name);
            }
        }
        self.open();
    }

    fn open(&mut self) {
        let (engine, stepper) = fault::open(&self.disk, &self.options).unwrap();
        // Deletes of expired keys may have been in progress.
        self.tail = engine.tail(Revision::new(self.model.newest()), Bytes::new()).unwrap();
        self.store = Some((engine, stepper));
        self.follow(None);
    }

    /// Takes a backup. The run continues with the backup, which has the history, or with a restore, which has
    /// no history.
    fn back_up(&mut self) {
        let temp = TempDir::new();
        let target = temp.path().join("backup");
        let mut receiver = Receiver::begin(&target).unwrap();
        let mut outgoing = self.engine().backup(b"").unwrap();
        while let Some(frame) = outgoing.next_frame() {
            receiver.take(&frame, |damage| panic!("{damage}")).unwrap();
        }
        let summary = receiver.ready().unwrap().place().unwrap();
        let newest = self.model.newest();
        assert_eq!((summary.revision.get(), summary.oldest), (newest, self.engine().stats().oldest));
        let mut from = target.clone();
        if self.random.one_in(2) {
            let oldest = summary.oldest.get();
            let (point, revision) = match self.random.below(2) {
                0 => (RestorePoint::Newest, newest),
                _ => {
                    let revision = oldest + self.random.below(newest + 1 - oldest);
                    (RestorePoint::Revision(Revision::new(revision)), revision)
                }
            };
            from = temp.path().join("restored");
            let summary =
                restore(&target, &from, point, false, |damage| panic!("{damage}"), |_, _| ()).unwrap();
            self.model = self.model.restored(revision, summary.revision.get());
            self.oldest = summary.revision.get();
            self.requested = self.oldest;
            self.note("restore");
        } else {
            self.note("backup");
        }
        let mut files = BTreeMap::new();
        for file in std::fs::read_dir(&from).unwrap().map(Result::unwrap) {
            let name = file.file_name().into_string().unwrap();
            if name != "lock" {
                files.insert(name, std::fs::read(file.path()).unwrap());
            }
        }
        self.store = None;
        self.kept.clear();
        let passed = self.disk.time_ms();
        self.disk = Disk::with_files(self.random.next(), &files);
        self.disk.pass(Duration::from_millis(passed - self.disk.time_ms()));
        self.open();
    }

    /// Requests a compaction up to a readable revision.
    fn compact(&mut self) {
        let oldest = self.engine().stats().oldest.get();
        let to = oldest + self.random.below(1 + (self.model.newest() - oldest) / 2);
        let _ = fault::now(self.engine().compact(Revision::new(to)));
        self.requested = self.requested.max(to);
        self.note("compaction");
    }

    fn step(&mut self) {
        match self.random.below(1_000) {
            0..500 => self.write(),
            500..640 => self.read(),
            640..680 => self.read_versions(),
            680..700 => self.reread_snapshot(),
            700..740 => self.disk.pass(Duration::from_millis(self.random.below(4_000))),
            740..990 => {
                let (_, stepper, random) = self.parts();
                match random.below(4) {
                    0 => drop(stepper.commit()),
                    1 => drop(stepper.keep()),
                    _ => drop(stepper.maintain()),
                }
                self.follow(None);
            }
            990..994 => self.compact(),
            994..998 => self.reopen(),
            _ if self.random.one_in(20) => self.back_up(),
            _ => {}
        }
    }
}

#[test]
fn every_readable_point_in_history_is_exact_and_all_others_are_refused() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let steps = number("HISTORY_STEPS").unwrap_or(STEPS);
    let seeds = number("HISTORY_SEED").map_or(0..SEEDS, |seed| seed..seed + 1);
    let each = steps / (seeds.end - seeds.start);
    let mut seen = BTreeSet::new();
    for seed in seeds {
        let mut life = Life::new(seed);
        for _ in 0..each.max(STEPS) {
            life.step();
        }
        let newest = life.model.newest();
        let oldest = life.engine().stats().oldest.get();
        for revision in (oldest..=newest).rev().take(200) {
            let snapshot = life.engine().snapshot_at(Revision::new(revision)).unwrap();
            life.check(&snapshot, "at the end");
        }
        eprintln!("seed {seed}: revisions {oldest} to {newest}, {:?}", life.seen);
        seen.extend(life.seen.into_keys());
    }
    if number("HISTORY_SEED").is_none() {
        let all = [
            "backup",
            "clean end",
            "compacted point",
            "compacted time",
            "compaction",
            "expiry",
            "kept snapshot of a compacted point",
            "kill",
            "power loss",
            "restore",
            "time",
            "versions",
        ];
        assert_eq!(seen, BTreeSet::from(all));
    }
}

/// Number of keys of the store that readers and writers share. The write of revision `r` is to key `r % SHARED_KEYS`.
const SHARED_KEYS: u64 = 50;

/// Returns the revision of key `key` at `revision`; `None` if no write of the key has this revision or a lower one.
fn shared_at(key: u64, revision: u64) -> Option<u64> {
    let back = (revision + SHARED_KEYS - key) % SHARED_KEYS;
    revision.checked_sub(back).filter(|&at| at > 0)
}

/// Reads a point in chunks, each from a new snapshot, as lists over HTTP do. Returns false if the point was compacted.
fn read_in_chunks(engine: &Engine, revision: u64) -> bool {
    let mut rest = KeyRange::all();
    let mut found = Vec::new();
    loop {
        let snapshot = match engine.snapshot_at(Revision::new(revision)) {
            Ok(snapshot) => snapshot,
            Err(SnapshotError::Compacted { oldest }) => {
                assert!(oldest.get() > revision);
                return false;
            }
            Err(error) => panic!("{error}"),
        };
        let chunk: Vec<Entry> = snapshot.range(rest.clone()).take(11).collect();
        let Some(last) = chunk.last() else { break };
        rest = rest.after(last.key());
        for entry in chunk {
            let record = entry.read().unwrap();
            assert_eq!(record.value, format!("{};", entry.revision()).into_bytes());
            found.push(entry.revision().get());
        }
    }
    let expected: Vec<u64> = (0..SHARED_KEYS).filter_map(|key| shared_at(key, revision)).collect();
    assert_eq!(found, expected, "at {revision}");
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_point_that_is_compacted_during_a_read_is_refused() {
    let temp = TempDir::new();
    let options = Options {
        segment_bytes: engine::SEGMENT_BYTES_MIN,
        durability: engine::Durability::Relaxed,
        history_bytes_max: 40 * 1024,
        ..Options::new(temp.path())
    };
    let engine = Engine::open(options).unwrap();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|seed| {
            let (engine, done) = (engine.clone(), done.clone());
            tokio::task::spawn_blocking(move || {
                let mut random = Random::new(seed);
                let (mut whole, mut refused) = (0, 0);
                let mut kept: Option<Snapshot> = None;
                while !done.load(std::sync::atomic::Ordering::Relaxed) || whole == 0 {
                    let (oldest, newest) = (engine.stats().oldest.get(), engine.revision().get());
                    // Most reads are of a point close to the oldest one, which the next compaction removes.
                    let span = if random.one_in(4) { newest - oldest } else { (newest - oldest).min(20) };
                    if read_in_chunks(&engine, oldest + random.below(span + 1)) {
                        whole += 1
                    } else {
                        refused += 1
                    }
                    if let Some(snapshot) = kept.take_if(|_| random.one_in(5)) {
                        let revision = snapshot.revision().get();
                        let found: Vec<u64> =
                            snapshot.range(KeyRange::all()).map(|entry| entry.revision().get()).collect();
                        let expected: Vec<u64> =
                            (0..SHARED_KEYS).filter_map(|key| shared_at(key, revision)).collect();
                        assert_eq!(found, expected);
                    }
                    kept.get_or_insert_with(|| engine.snapshot());
                }
                (whole, refused)
            })
        })
        .collect();
    for revision in 1..=40_000 {
        let key = format!("/{:02}", revision % SHARED_KEYS).into();
        let payload = Payload { value: Bytes::from_static(b";"), stamp_at: Some(0), ..Payload::default() };
        let write = Write { key, expected: Expected::Any, change: Change::Put(payload) };
        assert_eq!(engine.commit(write).await.unwrap().revision.get(), revision);
    }
    let limit = Duration::from_secs(60);
    let compacted = async {
        while engine.stats().retained_bytes > 40 * 1024 + 128 * 1024 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, compacted).await.expect("readers do not hold up compaction");
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    for reader in readers {
        let (whole, refused) = reader.await.unwrap();
        eprintln!("{whole} points were read, {refused} refused");
    }
}
