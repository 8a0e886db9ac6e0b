//! Power losses at every operation of a store that compacts history, rewrites segments and writes
//! checkpoints. The remaining files can always be opened, with or without a checkpoint, and have every state
//! from the oldest readable revision on.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Operation, Random, Stepper, Verdict};
use engine::{Change, Durability, Engine, Expected, KeyRange, Options, Payload, Revision, Write};

type State = BTreeMap<Bytes, (Revision, Bytes)>;

/// The acknowledged writes, and the write that may have happened in addition.
struct Model {
    /// The states of the store at each revision, from 0.
    states: Vec<State>,
    /// The state that results if the write in progress at the power loss took place.
    perhaps: Option<State>,
}

fn options() -> Options {
    Options {
        segment_bytes: 16 * 1024,
        durability: Durability::Sync,
        history_retention: Duration::from_secs(20),
        ..Options::new("/simulated")
    }
}

/// Returns options with which compaction depends on the size of history and not on its age.
fn limited() -> Options {
    Options { history_retention: Duration::MAX, history_bytes_max: 20 * 1024, ..options() }
}

impl Model {
    fn write(&mut self, engine: &Engine, stepper: &mut Stepper, random: &mut Random) {
        let key = Bytes::from(format!("/{}", random.below(12)));
        let mut next = self.states[self.states.len() - 1].clone();
        let revision = self.states.len() as u64;
        let change = if random.below(3) == 0 && next.remove(&key).is_some() {
            Change::Delete(None)
        } else {
            let value = Bytes::from(vec![b'a' + random.below(26) as u8; 20 + random.below(1_500) as usize]);
            next.insert(key.clone(), (Revision::new(revision), value.clone()));
            // Some keys have an expiry, but so late that they never expire in this test.
            let ttl = (random.below(4) == 0).then_some(Duration::from_secs(1 << 30));
            Change::Put(Payload { value, ttl, ..Payload::default() })
        };
        match stepper.write(engine, Write { key, expected: Expected::Any, change }) {
            Ok(done) => {
                assert_eq!(done.revision, Revision::new(revision));
                self.states.push(next);
            }
            Err(_) => self.perhaps = Some(next),
        }
    }

    /// Compares every readable state, and adds the unacknowledged write if the store has it.
    fn check(&mut self, engine: &Engine, when: &str) {
        if engine.revision() == Revision::new(self.states.len() as u64) {
            self.states.extend(self.perhaps.take());
        }
        self.perhaps = None;
        assert_eq!(engine.revision(), Revision::new(self.states.len() as u64 - 1), "{when}");
        let stats = engine.stats();
        assert_eq!(stats.lost_revisions, 0, "{when}");
        for revision in (stats.oldest.get()..=engine.revision().get()).map(Revision::new) {
            let snapshot = engine.snapshot_at(revision).unwrap();
            let shown: State = snapshot
                .range(KeyRange::all())
                .map(|entry| (entry.key().clone(), (entry.revision(), entry.read().unwrap().value)))
                .collect();
            assert_eq!(shown, self.states[revision.get() as usize], "{when}, at {revision} of {stats:?}");
        }
        if stats.oldest < engine.revision() {
            let mut tail = engine.tail(stats.oldest, Bytes::new()).unwrap();
            let mut seen = Vec::new();
            while let Some(Ok(events)) = fault::now(tail.next(50)) {
                seen.extend(events.iter().map(|event| event.revision));
            }
            assert!(
                seen.iter()
                    .map(|revision| revision.get())
                    .eq(stats.oldest.get() + 1..=engine.revision().get()),
                "{when}"
            );
        }
    }

    /// Runs the store for some time; ends early when the power is lost.
    fn live(&mut self, disk: &Disk, engine: &Engine, stepper: &mut Stepper, random: &mut Random, acts: u32) {
        for _ in 0..acts {
            match random.below(10) {
                0..3 => self.write(engine, stepper, random),
                3 => disk.pass(Duration::from_secs(random.below(8))),
                4 => {
                    stepper.keep();
                }
                5 => drop(stepper.commit()),
                _ => drop(stepper.maintain()),
            }
            if !disk.has_power() {
                return;
            }
        }
    }
}

/// Runs a store with a crash at operation `cut`. Returns the number of operations and the statistics reached.
fn run(seed: u64, options: &Options, cut: u64, verdict: Verdict) -> (u64, engine::Stats) {
    let disk = Disk::new(seed);
    disk.follow(
        move |operation: &Operation<'_>| {
            if operation.number == cut { verdict } else { Verdict::Proceed }
        },
    );
    let mut random = Random::new(seed);
    let mut model = Model { states: vec![State::new()], perhaps: None };
    let mut reached = engine::Stats::default();
    if let Ok((engine, mut stepper)) = fault::open(&disk, options) {
        model.live(&disk, &engine, &mut stepper, &mut random, 700);
        reached = engine.stats();
    }
    let operations = disk.operations();
    let when = format!("seed {seed}, {verdict:?} at {cut}");
    if disk.has_power() {
        disk.restart();
    } else {
        disk.restore_power(seed ^ cut);
    }
    disk.behave();
    let (engine, mut stepper) = fault::open(&disk, options).unwrap_or_else(|e| panic!("{when}: {e}"));
    model.check(&engine, &format!("{when}, opened"));
    // The store continues, the process is killed, and the store is opened with or without a checkpoint.
    model.live(&disk, &engine, &mut stepper, &mut random, 60);
    model.check(&engine, &format!("{when}, went on"));
    let oldest = engine.stats().oldest;
    drop((engine, stepper));
    disk.restart();
    for name in disk.files().keys().filter(|name| name.ends_with(".checkpoint") && cut.is_multiple_of(2)) {
        disk.take(name);
    }
    let (engine, _stepper) = fault::open(&disk, options).unwrap_or_else(|e| panic!("{when}: {e}"));
    model.check(&engine, &format!("{when}, opened again"));
    // History that was just compacted may be readable again, but never anything that reclamation has dropped.
    assert!(engine.stats().oldest <= oldest);
    (operations, reached)
}

/// A store may be closed at any point of its maintenance, for example after a maintenance step was requested
/// that is then not carried out.
#[test]
fn a_store_can_be_closed_in_the_middle_of_maintenance() {
    for turns in (0..400).step_by(3) {
        let disk = Disk::new(1);
        let mut random = Random::new(1);
        let mut model = Model { states: vec![State::new()], perhaps: None };
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        for _ in 0..150 {
            model.write(&engine, &mut stepper, &mut random);
        }
        disk.pass(Duration::from_secs(60));
        for turn in 0..turns {
            if !stepper.maintain() && turn + 1 < turns {
                stepper.commit();
            }
        }
        assert!(fault::now(engine.close()).is_none(), "no thread works");
        for _ in 0..5 {
            assert!(!stepper.maintain(), "{turns}");
        }
        stepper.close();
        drop(engine);
        disk.restart();
        let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
        model.check(&engine, &format!("closed after {turns} turns"));
    }
}

#[test]
fn a_crash_at_any_operation_of_maintenance_neither_loses_nor_revives_a_key() {
    let mut rewritten = 0;
    for (seed, options) in [(0, options()), (1, options()), (2, options()), (3, limited())] {
        let (operations, reached) = run(seed, &options, u64::MAX, Verdict::Proceed);
        assert!(reached.checkpoint > Revision::ZERO && reached.oldest > Revision::ZERO, "{reached:?}");
        rewritten += reached.rewritten_bytes;
        for cut in 0..operations {
            run(seed, &options, cut, Verdict::LosePower);
            run(seed, &options, cut, Verdict::LosePowerAfter);
        }
    }
    assert!(rewritten > 0, "reclaim had something to do");
}

/// A segment stays without records if the first record does not fit into it. The empty segment has the same
/// first revision as the next segment, and is superseded together with it.
#[test]
fn a_segment_without_records_is_superseded_together_with_the_next_one() {
    let disk = Disk::new(7);
    let options = Options { history_retention: Duration::ZERO, ..options() };
    let (engine, mut stepper) = fault::open(&disk, &options).unwrap();
    let put = |key: &'static str, len: usize| {
        let payload = Payload { value: vec![b'x'; len].into(), ..Payload::default() };
        Write { key: key.into(), expected: Expected::Any, change: Change::Put(payload) }
    };
    stepper.write(&engine, put("/a", 9_000)).unwrap();
    // The disk is full and then has room again; the store begins a segment to detect the room.
    disk.follow(|operation: &Operation<'_>| match operation.kind {
        fault::Kind::Write => Verdict::Full,
        _ => Verdict::Proceed,
    });
    stepper.write(&engine, put("/b", 9_000)).unwrap_err();
    disk.behave();
    stepper.commit();
    // Without a checkpoint, only the segments themselves show which segments are superseded.
    disk.follow(
        |operation: &Operation<'_>| {
            if operation.name.ends_with("checkpoint") { Verdict::Fail } else { Verdict::Proceed }
        },
    );
    stepper.write(&engine, put("/b", 100_000)).unwrap();
    stepper.write(&engine, put("/b", 10)).unwrap();
    for _ in 0..100 {
        stepper.maintain();
        stepper.commit();
    }
    let stats = engine.stats();
    assert!(stats.record_bytes < 20_000 && stats.checkpoint == Revision::ZERO, "{stats:?}");
    drop((engine, stepper));
    disk.restart();
    disk.behave();
    let (engine, _stepper) = fault::open(&disk, &options).unwrap();
    assert_eq!(engine.revision(), Revision::new(3));
    let lens =
        |key: &str| engine.snapshot().get(key.as_bytes()).map(|entry| entry.read().unwrap().value.len());
    assert_eq!((lens("/a"), lens("/b")), (Some(9_000), Some(10)));
}
