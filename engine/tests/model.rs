//! Seeded random operations, compared with an in-memory history: after every step the engine agrees with a
//! list of maps, one for each revision.

use std::collections::BTreeMap;

use bytes::Bytes;
use engine::{
    Change, CommitError, Durability, Engine, EventKind, Expected, KeyRange, Payload, Revision, SnapshotError,
    Tail, Write,
};

mod support;
use support::{Random, TempDir, options};

#[derive(Clone, Debug, PartialEq)]
struct State {
    revision: u64,
    created: u64,
    attributes: Vec<u8>,
    /// The parts of the value before and after its stamp; the second part is `None` if the value is not
    /// stamped.
    value: (Vec<u8>, Option<Vec<u8>>),
}

impl State {
    fn stored(&self) -> Vec<u8> {
        let mut stored = self.value.0.clone();
        if let Some(rest) = &self.value.1 {
            stored.extend_from_slice(self.revision.to_string().as_bytes());
            stored.extend_from_slice(rest);
        }
        stored
    }
}

/// The write of a revision: the key, the kind, the state after the write and the state before it.
struct Happened {
    key: Vec<u8>,
    kind: EventKind,
    state: State,
    previous: Option<State>,
}

#[derive(Default)]
struct Model {
    /// All states of the store at each revision, from 0.
    states: Vec<BTreeMap<Vec<u8>, State>>,
    /// The write of each revision, from 1.
    happened: Vec<Happened>,
}

impl Model {
    fn now(&self) -> &BTreeMap<Vec<u8>, State> {
        self.states.last().unwrap()
    }

    fn revision(&self) -> u64 {
        self.happened.len() as u64
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    let mut key = format!("/{}/{}", random.below(3), random.below(25)).into_bytes();
    key.truncate(key.len() - random.below(2) as usize);
    if random.below(40) == 0 {
        key.resize(1 + random.below(1024) as usize, b'z');
    }
    key
}

fn some_bytes(random: &mut Random) -> Vec<u8> {
    let len = match random.below(20) {
        0 => 0,
        1 => random.below(70_000),
        _ => random.below(300),
    };
    let byte = b'a' + random.below(26) as u8;
    vec![byte; len as usize]
}

fn same(entry: &engine::Entry, key: &[u8], state: &State) {
    assert_eq!(
        (&entry.key()[..], entry.revision(), entry.created()),
        (key, Revision::new(state.revision), Revision::new(state.created))
    );
    let record = entry.read().unwrap();
    assert_eq!(record.key, key);
    assert_eq!(record.attributes, state.attributes);
    assert_eq!(record.value, state.stored());
}

async fn write(engine: &Engine, model: &mut Model, random: &mut Random) {
    let key = key(random);
    let current = model.now().get(&key).cloned();
    let expected = match random.below(6) {
        0 => Expected::Absent,
        1 => Expected::Revision(Revision::new(random.below(model.revision() + 2))),
        2 => current
            .as_ref()
            .map_or(Expected::Absent, |state| Expected::Revision(Revision::new(state.revision))),
        _ => Expected::Any,
    };
    let own = (random.below(4) > 0).then(|| {
        let rest = (random.below(2) == 0).then(|| some_bytes(random));
        (some_bytes(random), (some_bytes(random), rest))
    });
    let deleting = own.is_none() || random.below(5) == 0;
    let payload = own.clone().map(|(attributes, (value, rest))| Payload {
        attributes: attributes.into(),
        stamp_at: rest.as_ref().map(|_| value.len() as u32),
        value: [value, rest.unwrap_or_default()].concat().into(),
        ttl: None,
        essential: false,
    });
    let change = match (deleting, payload) {
        (false, Some(payload)) => Change::Put(payload),
        (_, payload) => Change::Delete(payload),
    };
    let result = engine.commit(Write { key: key.clone().into(), expected, change }).await;

    let holds = match expected {
        Expected::Any => true,
        Expected::Absent => current.is_none(),
        Expected::Revision(revision) => {
            current.as_ref().is_some_and(|state| state.revision == revision.get())
        }
    };
    if !holds || (deleting && current.is_none()) {
        let Err(CommitError::Conflict { current: reported }) = result else { panic!("{result:?}") };
        assert_eq!(reported.is_some(), current.is_some());
        if let (Some(reported), Some(current)) = (reported, current) {
            same(&reported, &key, &current);
        }
        return;
    }
    let revision = model.revision() + 1;
    let (attributes, value) = match (&own, &current) {
        (Some(own), _) => own.clone(),
        (None, Some(current)) => (current.attributes.clone(), current.value.clone()),
        (None, None) => unreachable!(),
    };
    let created = current.as_ref().map_or(revision, |state| state.created);
    let state = State { revision, created, attributes, value };
    let done = result.unwrap();
    assert_eq!(done.revision, Revision::new(revision));
    same(&done.entry, &key, &state);
    let mut now = model.now().clone();
    if deleting {
        now.remove(&key)
    } else {
        now.insert(key.clone(), state.clone())
    };
    model.states.push(now);
    let kind = if deleting { EventKind::Delete } else { EventKind::Put };
    model.happened.push(Happened { key, kind, state, previous: current });
}

fn read(engine: &Engine, model: &Model, random: &mut Random) {
    let revision = random.below(model.revision() + 2);
    let snapshot = match engine.snapshot_at(Revision::new(revision)) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            assert_eq!(error, SnapshotError::Future { current: Revision::new(model.revision()) });
            assert_eq!(revision, model.revision() + 1);
            engine.snapshot()
        }
    };
    let state = &model.states[snapshot.revision().get() as usize];
    let key_to_find = key(random);
    match (snapshot.get(&key_to_find), state.get(&key_to_find)) {
        (Some(entry), Some(state)) => same(&entry, &key_to_find, state),
        (None, None) => {}
        (got, expected) => panic!("{got:?} instead of {expected:?}"),
    }
    let (from, to) = (key(random), key(random));
    let ranges = [
        KeyRange::all(),
        KeyRange::prefix(&from[..from.len().min(3)]),
        KeyRange::all().after(&from),
        KeyRange { start: from.into(), end: Some(to.into()) },
    ];
    for range in ranges {
        let expected: Vec<_> = state.iter().filter(|(key, _)| range.contains(key)).collect();
        assert_eq!(snapshot.count(&range), expected.len() as u64, "{range:?} at {revision}");
        let got: Vec<_> = snapshot.range(range).collect();
        assert_eq!(got.len(), expected.len());
        for (entry, (key, state)) in got.iter().zip(expected) {
            same(entry, key, state);
        }
    }
}

/// A tail, its prefix, and the newest revision that it has returned.
struct Follower {
    tail: Tail,
    prefix: Bytes,
    seen: u64,
}

async fn follow(model: &Model, follower: &mut Follower, random: &mut Random) {
    let matching = |happened: &&Happened| happened.key.starts_with(&follower.prefix);
    let seen = follower.seen as usize;
    let next = model.happened.get(seen..).unwrap_or_default().iter().find(matching);
    let progress = follower.tail.progress();
    assert!(progress >= Revision::new(follower.seen));
    let Some(next) = next else {
        // All events were returned, and the tail has examined the rest of the log.
        let quiet = tokio::time::timeout(std::time::Duration::ZERO, follower.tail.next(5)).await;
        assert!(quiet.is_err());
        assert_eq!(follower.tail.progress(), Revision::new(model.revision().max(follower.seen)));
        return;
    };
    assert!(progress < Revision::new(next.state.revision));
    let max = 1 + random.below(8) as usize;
    let events = follower.tail.next(max).await.unwrap();
    assert!((1..=max).contains(&events.len()));
    let expected: Vec<_> = model.happened[seen..].iter().filter(matching).take(events.len()).collect();
    for (event, expected) in events.iter().zip(expected) {
        assert_eq!((&event.key[..], event.kind), (&expected.key[..], expected.kind));
        assert_eq!(event.revision, Revision::new(expected.state.revision));
        same(&event.entry, &expected.key, &expected.state);
        assert_eq!(event.previous.is_some(), expected.previous.is_some());
        if let (Some(previous), Some(expected_previous)) = (&event.previous, &expected.previous) {
            same(previous, &expected.key, expected_previous);
        }
        follower.seen = event.revision.get();
    }
}

#[tokio::test]
async fn the_engine_agrees_with_the_model_in_random_runs() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let durability = if seed % 2 == 0 { Durability::Sync } else { Durability::Relaxed };
        let temp = TempDir::new();
        let reopen = || Engine::open(options(&temp, 128 * 1024, durability)).unwrap();
        let mut engine = reopen();
        let mut model = Model { states: vec![BTreeMap::new()], ..Model::default() };
        let mut followers: Vec<Follower> = Vec::new();
        for _ in 0..1_500 {
            match random.below(100) {
                0 => {
                    // Tails end with their engine; their followers continue with new tails at the same
                    // revision.
                    if random.below(2) == 0 {
                        engine.close().await;
                    }
                    drop(engine);
                    engine = reopen();
                    assert_eq!(engine.revision(), Revision::new(model.revision()));
                    for follower in &mut followers {
                        follower.tail =
                            engine.tail(Revision::new(follower.seen), follower.prefix.clone()).unwrap();
                    }
                }
                1..=2 => {
                    let after = random.below(model.revision() + 3);
                    let prefix = key(&mut random);
                    let prefix = Bytes::from(prefix[..prefix.len().min(random.below(5) as usize)].to_vec());
                    let tail = engine.tail(Revision::new(after), prefix.clone()).unwrap();
                    followers.push(Follower { tail, prefix, seen: after });
                    if followers.len() > 12 {
                        followers.swap_remove(random.below(12) as usize);
                    }
                }
                3..=14 => read(&engine, &model, &mut random),
                15..=35 if !followers.is_empty() => {
                    let at = random.below(followers.len() as u64) as usize;
                    follow(&model, &mut followers[at], &mut random).await;
                }
                _ => write(&engine, &mut model, &mut random).await,
            }
        }
        let stats = engine.stats();
        assert_eq!((stats.revision, stats.keys), (Revision::new(model.revision()), model.now().len() as u64));
        assert!(stats.segments > 4, "{stats:?}");
    }
}
