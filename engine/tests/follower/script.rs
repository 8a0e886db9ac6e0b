//! Records for a follower, generated from a seed, and the states of a store that has applied them.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::fault::{Random, now};
use engine::{Applied, Change, Engine, EventKind, KeyRange, Payload, Revision};

#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub revision: Revision,
    pub created: Revision,
    value: Vec<u8>,
}

/// All records of a run, in order, each with the resulting state; for a delete, the final state.
pub struct Script {
    records: Vec<(Applied, State)>,
}

impl Script {
    /// Generates about `count` records, with gaps of up to a thousand revisions and transactions of up to
    /// twelve records.
    pub fn new(seed: u64, count: usize) -> Script {
        let mut random = Random::new(seed);
        let mut live: BTreeMap<Bytes, State> = BTreeMap::new();
        let mut records = Vec::new();
        let mut number = random.below(3) * 1_000;
        while records.len() < count {
            number += 1 + if random.one_in(3) { random.below(1_000) } else { 0 };
            let revision = Revision::new(number);
            let size = if random.one_in(3) { 1 + random.below(12) } else { 1 };
            let first = records.len();
            for _ in 0..size {
                let key = Bytes::from(format!("/{}/{}", random.below(3), random.below(12)));
                if records[first..].iter().any(|(applied, _): &(Applied, State)| applied.key == key) {
                    continue;
                }
                let current = live.get(&key).cloned();
                let created = current.as_ref().map_or(revision, |state| state.created);
                let len = if random.one_in(60) { 9_000 } else { random.below(400) };
                let mut value = vec![b'a' + random.below(26) as u8; len as usize];
                let (change, exists) = match (current, random.below(4)) {
                    (Some(current), 0) => {
                        value = current.value;
                        (Change::Delete(None), false)
                    }
                    (Some(_), 1) => (Change::Delete(Some(payload(&value))), false),
                    _ => (Change::Put(payload(&value)), true),
                };
                let state = State { revision, created, value };
                if exists {
                    live.insert(key.clone(), state.clone())
                } else {
                    live.remove(&key)
                };
                records.push((Applied { revision, created, key, change }, state));
            }
        }
        Script { records }
    }

    /// Returns the newest revision of the script.
    pub fn newest(&self) -> Revision {
        self.records.last().map_or(Revision::ZERO, |(applied, _)| applied.revision)
    }

    /// Returns whether `revision` can be the newest revision of a store.
    pub fn has(&self, revision: Revision) -> bool {
        revision == Revision::ZERO || self.records.iter().any(|(applied, _)| applied.revision == revision)
    }

    /// Returns the next batch after `revision`: a few complete revisions.
    pub fn batch(&self, revision: Revision, random: &mut Random) -> Vec<Applied> {
        let after = self.records.partition_point(|(applied, _)| applied.revision <= revision);
        let mut batch: Vec<Applied> = Vec::new();
        for transaction in self.records[after..].chunk_by(|a, b| a.0.revision == b.0.revision) {
            batch.extend(transaction.iter().map(|(applied, _)| applied.clone()));
            if random.one_in(3) {
                break;
            }
        }
        batch
    }

    fn state(&self, revision: Revision) -> BTreeMap<Bytes, State> {
        let mut live = BTreeMap::new();
        for (applied, state) in self.records.iter().take_while(|(it, _)| it.revision <= revision) {
            match applied.change {
                Change::Put(_) => live.insert(applied.key.clone(), state.clone()),
                Change::Delete(_) | Change::DeleteStored(_) => live.remove(&applied.key),
            };
        }
        live
    }

    /// Checks the states of the store at `revision`, which may lie in a gap.
    pub fn check_at(&self, engine: &Engine, revision: Revision) {
        self.check_at_as(engine, revision, revision);
    }

    /// Checks that the store has at `revision` the states of the script at `as_of`.
    pub fn check_at_as(&self, engine: &Engine, revision: Revision, as_of: Revision) {
        let snapshot = engine.snapshot_at(revision).unwrap();
        let found = snapshot.range(KeyRange::all()).map(|entry| {
            let record = entry.read().unwrap();
            let value = unstamped(&record.value, entry.revision());
            let state = State { revision: entry.revision(), created: entry.created(), value };
            assert_eq!(snapshot.get(entry.key()).map(|it| it.revision()), Some(entry.revision()));
            (entry.key().clone(), state)
        });
        let found: BTreeMap<Bytes, State> = found.collect();
        assert_eq!(found, self.state(as_of), "at {revision}");
        assert_eq!(snapshot.count(&KeyRange::all()), found.len() as u64);
    }

    /// Checks that a tail after `revision` returns every later event once, in order and by complete
    /// revisions, with the previous states.
    pub fn check_tail(&self, engine: &Engine, revision: Revision, prefix: &str, max: usize) {
        let mut tail = engine.tail(revision, Bytes::copy_from_slice(prefix.as_bytes())).unwrap();
        let newest = engine.revision();
        let is_new = |at: &Revision| (revision.next()..=newest).contains(at);
        let expected: Vec<_> = (self.records.iter())
            .filter(|(it, _)| is_new(&it.revision) && it.key.starts_with(prefix.as_bytes()))
            .collect();
        let mut at = 0;
        while at < expected.len() {
            let events = now(tail.next(max)).expect("events are there").unwrap();
            for event in &events {
                let (applied, state) = expected[at];
                assert_eq!((event.revision, &event.key), (applied.revision, &applied.key));
                assert_eq!(event.kind == EventKind::Delete, matches!(applied.change, Change::Delete(_)));
                assert_eq!(event.entry.created(), state.created);
                let record = event.entry.read().unwrap();
                assert_eq!(unstamped(&record.value, event.revision), state.value);
                let before = self.state(event.revision.before()).remove(&event.key);
                // When the log is read after a compaction, the previous state may be gone.
                let previous = event.previous.as_ref().map(|entry| entry.revision());
                assert_eq!(previous, before.map(|state| state.revision), "before {event:?}");
                at += 1;
            }
            let last = events.last().unwrap().revision;
            assert!(expected.get(at).is_none_or(|(next, _)| next.revision > last), "a part of {last}");
        }
        assert!(now(tail.next(max)).is_none(), "nothing more happened");
        assert_eq!(tail.progress(), newest.max(revision));
    }

    /// Checks all kinds of reads of the store from its oldest readable revision on, some of them chosen by
    /// `random`.
    pub fn check(&self, engine: &Engine, random: &mut Random) {
        let (oldest, newest) = (engine.stats().oldest, engine.revision());
        self.check_at(engine, newest);
        for _ in 0..4 {
            let revision = Revision::new(oldest.get() + random.below(newest.since(oldest) + 1));
            self.check_at(engine, revision);
            let prefix = ["", "/1/", "/2/7"][random.below(3) as usize];
            self.check_tail(engine, revision, prefix, 1 + random.below(20) as usize);
        }
    }
}

/// Returns a payload; half of the values are stamped in their middle.
fn payload(value: &[u8]) -> Payload {
    let stamp_at = value.len().is_multiple_of(2).then_some(value.len() as u32 / 2);
    Payload { value: Bytes::copy_from_slice(value), stamp_at, ..Payload::default() }
}

fn unstamped(stored: &[u8], revision: Revision) -> Vec<u8> {
    let stamp = revision.to_string();
    let text = String::from_utf8(stored.to_vec()).unwrap();
    text.replacen(&stamp, "", 1).into_bytes()
}
