//! Compares the engine's index with a map: the bytes select writes, deletes and reads.

use std::collections::BTreeMap;

use engine::fault::{self, Disk, Stepper};
use engine::{
    Change, CommitError, Engine, Entry, Expected, KeyRange, Payload, Revision, Snapshot, SnapshotError, Write,
};

use super::engine_recovery::open;
use crate::input::Input;

/// Maximum number of steps for one input. A step is a commit or a complete read.
const STEPS_MAX: usize = 400;

/// A version of a key: revision, revision of the creation, value around the stamp.
#[derive(Clone, Debug, PartialEq)]
struct State {
    revision: Revision,
    created: Revision,
    value: Vec<u8>,
}

type States = BTreeMap<Vec<u8>, State>;

/// Runs commits, snapshots, ranges, counts, compactions and reopening, and compares every result with the
/// model, which has a map of states for every revision.
pub fn engine_model(data: &[u8]) {
    let mut input = Input::new(data);
    // Other tests cover tails, syncs and crashes; this test covers the order of operations.
    let disk = Disk::new(1);
    let opened = || open(&disk).expect("a store of our own opens");
    let (mut engine, mut stepper) = opened();
    let mut history: Vec<States> = vec![States::new()];
    let mut held: Vec<Snapshot> = vec![engine.snapshot()];
    let mut oldest_allowed = Revision::ZERO;
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.below(16) {
            0 => {
                stepper.close();
                disk.restart();
                (engine, stepper) = opened();
                assert_eq!(engine.revision().next(), number(history.len()));
            }
            1 => held.push(engine.snapshot()),
            2..=4 => {
                let revision = input.below(history.len() + 1);
                match engine.snapshot_at(number(revision)) {
                    Ok(snapshot) => look(&snapshot, &history[revision], &mut input),
                    Err(SnapshotError::Future { .. }) => assert_eq!(revision, history.len()),
                    Err(SnapshotError::Compacted { oldest }) => {
                        assert!(number(revision) < oldest && oldest <= oldest_allowed, "{revision} {oldest}");
                    }
                }
            }
            15 => {
                let revision = number(input.below(history.len()));
                if fault::now(engine.compact(revision)).is_none() {
                    oldest_allowed = oldest_allowed.max(revision);
                }
                for _ in 0..4 * input.below(16) {
                    if !stepper.maintain() {
                        stepper.commit();
                    }
                }
            }
            _ => commit(&engine, &mut stepper, &mut history, &mut input),
        }
    }
    for snapshot in held {
        look(&snapshot, &history[snapshot.revision().get() as usize], &mut input);
    }
    let keys = history[history.len() - 1].len() as u64;
    assert_eq!((engine.stats().keys, engine.health()), (keys, Ok(())));
}

/// Returns the revision whose states are at this index of the history.
fn number(at: usize) -> Revision {
    Revision::new(at as u64)
}

/// Returns one of a limited number of keys, so that keys repeat. There are enough keys for a tree of several
/// levels.
fn key(input: &mut Input) -> Vec<u8> {
    let number = input.byte();
    match number {
        0..=199 => format!("/{}/{number:03}", number % 3).into_bytes(),
        200..=229 => input.take(usize::from(number - 199)).iter().copied().chain([number]).collect(),
        _ => vec![b'z'; usize::from(number)],
    }
}

fn commit(engine: &Engine, stepper: &mut Stepper, history: &mut Vec<States>, input: &mut Input) {
    let now = &history[history.len() - 1];
    let key = key(input);
    let current = now.get(&key);
    let expected = match input.below(5) {
        0 => Expected::Absent,
        1 => Expected::Revision(number(input.below(history.len() + 1))),
        2 => current.map_or(Expected::Absent, |state| Expected::Revision(state.revision)),
        _ => Expected::Any,
    };
    let holds = match expected {
        Expected::Any => true,
        Expected::Absent => current.is_none(),
        Expected::Revision(revision) => current.is_some_and(|state| state.revision == revision),
    };
    let deleting = input.below(3) == 0;
    let len = input.below(6) * input.below(400);
    let value = vec![b'a' + input.byte() % 26; len];
    let change = match (deleting, input.byte() & 1) {
        (true, 0) => Change::Delete(None),
        (deleting, _) => {
            let payload = Payload {
                attributes: key.clone().into(),
                value: value.clone().into(),
                stamp_at: Some(len as u32 / 2),
                ttl: None,
                essential: false,
            };
            if deleting { Change::Delete(Some(payload)) } else { Change::Put(payload) }
        }
    };
    let kept = matches!(change, Change::Delete(None));
    match stepper.write(engine, Write { key: key.clone().into(), expected, change }) {
        Ok(done) => {
            assert!(holds && (!deleting || current.is_some()), "{expected:?} does not hold for {current:?}");
            let revision = number(history.len());
            assert_eq!(done.revision, revision);
            let created = current.map_or(revision, |state| state.created);
            let value = if kept { current.map_or(Vec::new(), |state| state.value.clone()) } else { value };
            let state = State { revision, created, value };
            same(&done.entry, &key, &state);
            let mut next = now.clone();
            if deleting {
                next.remove(&key);
            } else {
                next.insert(key, state);
            }
            history.push(next);
        }
        Err(CommitError::Conflict { current: reported }) => {
            assert!(!holds || deleting && current.is_none(), "{expected:?} holds for {current:?}");
            assert_eq!(reported.map(|entry| entry.revision()), current.map(|state| state.revision));
        }
        Err(error) => panic!("{error}"),
    }
}

/// Compares a snapshot with the model: the state of one key, and the states and counts of a few
/// ranges.
fn look(snapshot: &Snapshot, states: &States, input: &mut Input) {
    let (from, to) = (key(input), key(input));
    match (snapshot.get(&from), states.get(&from)) {
        (Some(entry), Some(state)) => same(&entry, &from, state),
        (entry, state) => assert_eq!(entry.map(|entry| entry.revision()), state.map(|state| state.revision)),
    }
    let prefix = from[..from.len().min(input.below(4))].to_vec();
    let between = KeyRange { start: from.clone().into(), end: Some(to.into()) };
    for range in [KeyRange::all(), KeyRange::prefix(&prefix), KeyRange::all().after(&from), between] {
        let expected: Vec<_> = states.iter().filter(|(key, _)| range.contains(key)).collect();
        assert_eq!(snapshot.count(&range), expected.len() as u64, "{range:?}");
        let entries: Vec<Entry> = snapshot.range(range).collect();
        assert_eq!(entries.len(), expected.len());
        for (entry, (key, state)) in entries.iter().zip(expected) {
            same(entry, key, state);
        }
    }
}

fn same(entry: &Entry, key: &[u8], state: &State) {
    assert_eq!((&entry.key()[..], entry.revision(), entry.created()), (key, state.revision, state.created));
    let record = entry.read().expect("nothing is damaged");
    let (before, after) = state.value.split_at(state.value.len() / 2);
    assert_eq!((&record.key[..], &record.attributes[..]), (key, key));
    assert_eq!(record.value, [before, state.revision.to_string().as_bytes(), after].concat());
}
