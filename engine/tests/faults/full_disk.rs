//! Recovery from a full disk: deletes succeed, their space is reclaimed, and writes resume, for states of any
//! size. A power loss at any operation in between loses no acknowledged write.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Random, Stepper, Verdict};
use engine::{
    Change, CommitError, Committed, Engine, EventKind, Expected, KeyRange, Options, Payload, Refusal,
    Revision, Write,
};

const SEGMENT_BYTES: u64 = 256 * 1024;
/// Number of pages of the simulated disk, 4096 bytes each.
const PAGES: u64 = 1536;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 256 * 1024,
        // The retention is far longer than the test, but history is compacted earlier because the disk is
        // full.
        history_retention: Duration::from_secs(3_600),
        ..Options::new("/simulated")
    }
}

/// Returns a value in two parts, with its stamp in between.
fn parts(key: &str, len: usize) -> (String, String) {
    (format!("{{\"of\":\"{key}\",\"v\":\""), format!("\",\"fill\":\"{}\"}}", "x".repeat(len)))
}

fn put(key: &str, len: usize, essential: bool) -> Write {
    let (start, end) = parts(key, len);
    let payload = Payload {
        attributes: Bytes::from(format!("name={key}")),
        stamp_at: Some(start.len() as u32),
        value: Bytes::from(start + &end),
        essential,
        ..Payload::default()
    };
    let key = Bytes::copy_from_slice(key.as_bytes());
    Write { key, expected: Expected::Any, change: Change::Put(payload) }
}

/// Returns a delete that keeps the stored state, or a delete with a final state of its own.
fn delete(key: &str, final_state: Option<usize>) -> Write {
    let payload = final_state.map(|len| match put(key, len, false).change {
        Change::Put(payload) => payload,
        Change::Delete(_) | Change::DeleteStored(_) => unreachable!("a put has a state"),
    });
    let key = Bytes::copy_from_slice(key.as_bytes());
    Write { key, expected: Expected::Any, change: Change::Delete(payload) }
}

fn is_refused(outcome: &Result<Committed, CommitError>) -> bool {
    matches!(outcome, Err(CommitError::Refused(Refusal::DiskFull)))
}

/// Runs maintenance, the sequencer and the keeper, but no caller, for `seconds` of simulated time.
fn pass(disk: &Disk, stepper: &mut Stepper, seconds: u64) {
    for _ in 0..seconds {
        disk.pass(Duration::from_secs(1));
        let mut idle = 0;
        // A maintenance step takes several turns of the sequencer.
        while idle < 400 && disk.has_power() {
            let worked = stepper.maintain();
            idle = if worked { 0 } else { idle + 1 };
            stepper.commit();
        }
        while stepper.keep() {}
    }
}

/// A store on a full disk, and its known contents: the number of filler bytes in the value of each key.
struct Full {
    disk: Disk,
    engine: Engine,
    stepper: Stepper,
    known: BTreeMap<String, usize>,
}

impl Full {
    /// Fills a disk with states of `len` bytes.
    fn new(seed: u64, len: usize) -> Full {
        let disk = Disk::new(seed);
        disk.limit_free_pages(Some(PAGES));
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        let mut known = BTreeMap::new();
        for n in 0.. {
            let key = format!("/objects/{n:06}");
            match stepper.write(&engine, put(&key, len, false)) {
                Ok(_) => drop(known.insert(key, len)),
                outcome => {
                    assert!(is_refused(&outcome), "{outcome:?}");
                    break;
                }
            }
            while stepper.keep() {}
            if n % 50 == 0 {
                pass(&disk, &mut stepper, 1);
            }
        }
        assert!(known.len() > 15, "{}", known.len());
        assert_eq!(engine.health(), Err(Refusal::DiskFull));
        Full { disk, engine, stepper, known }
    }

    fn is_full(&mut self) -> bool {
        let outcome = self.stepper.write(&self.engine, put("/probe", 100, false));
        assert!(outcome.is_ok() || is_refused(&outcome), "{outcome:?}");
        outcome.is_err()
    }

    /// Describes the disk, for messages of failed tests.
    fn state(&self) -> String {
        let files = self.disk.files();
        let count = |text: &str| files.keys().filter(|name| name.contains(text)).count();
        format!(
            "{} pieces, {} segments, {} checkpoints, {:?}",
            count("reserve-"),
            count(".segment"),
            count(".checkpoint"),
            self.engine.stats()
        )
    }

    fn check(&self, unknown: Option<&str>) {
        let snapshot = self.engine.snapshot();
        let found: BTreeMap<String, Bytes> = snapshot
            .range(KeyRange::prefix(b"/objects/"))
            .map(|entry| (String::from_utf8(entry.key().to_vec()).unwrap(), entry.read().unwrap().value))
            .filter(|(key, _)| Some(&key[..]) != unknown)
            .collect();
        let expected = self.known.keys().filter(|key| Some(&key[..]) != unknown);
        assert!(found.keys().eq(expected), "{} found, {} known", found.len(), self.known.len());
        for (key, value) in found {
            let (start, end) = parts(&key, self.known[&key]);
            assert!(value.starts_with(start.as_bytes()) && value.ends_with(end.as_bytes()), "{key}");
        }
    }
}

#[test]
fn deletes_succeed_on_a_full_disk_until_writes_resume() {
    for (seed, len) in [(1, 300), (2, 3_000), (3, 60_000), (4, 200_000)] {
        let mut full = Full::new(seed, len);
        let mut random = Random::new(seed);
        let all = full.known.len();
        let mut tail = full.engine.tail(full.engine.revision(), Bytes::from_static(b"/objects/")).unwrap();
        let mut deleted = 0;
        while full.is_full() {
            assert!(full.known.len() > all / 2, "{len}: {deleted} of {all} deleted, and the disk is full");
            for _ in 0..(all / 50).max(1) {
                let at = random.below(full.known.len() as u64) as usize;
                let key = full.known.keys().nth(at).unwrap().clone();
                // The delete also succeeds if the caller gives a larger final state.
                let final_state = (deleted % 3 == 0).then_some(len + 100);
                let outcome = full.stepper.write(&full.engine, delete(&key, final_state));
                let done = outcome.unwrap_or_else(|error| {
                    panic!("{len} bytes, {deleted} of {all} deleted: {error}; {}", full.state())
                });
                full.known.remove(&key);
                deleted += 1;
                // The caller and watchers get the whole object, stamped with the revision of the delete.
                let (start, end) = parts(&key, len);
                let carried =
                    [final_state, None].map(|state| state.map_or(end.clone(), |len| parts(&key, len).1));
                let event = fault::now(tail.next(1)).unwrap().unwrap().remove(0);
                assert_eq!(
                    (event.kind, event.revision, &event.key[..]),
                    (EventKind::Delete, done.revision, key.as_bytes())
                );
                for entry in [&event.entry, &done.entry] {
                    let value = entry.read().unwrap().value;
                    let expected = carried.clone().map(|end| format!("{start}{}{end}", done.revision));
                    assert!(expected.iter().any(|expected| expected.as_bytes() == &value[..]), "{key}");
                    assert_eq!(entry.with_value(<[u8]>::to_vec).unwrap(), value);
                    assert_eq!(entry.attributes().unwrap(), format!("name={key}"));
                }
            }
            pass(&full.disk, &mut full.stepper, 4);
        }
        eprintln!("{len} bytes: {deleted} of {all} deleted until writes resumed");
        full.check(None);
        // The store compacted history to make room for the writes.
        assert!(full.engine.stats().oldest > Revision::ZERO);
        for n in 0..3 {
            let key = format!("/objects/again-{n}");
            full.stepper.write(&full.engine, put(&key, 300, false)).unwrap();
            full.known.insert(key, 300);
        }
        full.check(None);
    }
}

#[test]
fn a_tail_that_replays_the_log_gets_the_last_state_of_keys_deleted_on_a_full_disk() {
    let mut full = Full::new(5, 3_000);
    let before = full.engine.revision();
    let keys: Vec<String> = full.known.keys().take(40).cloned().collect();
    for key in &keys {
        full.stepper.write(&full.engine, delete(key, None)).unwrap();
    }
    // There are more events than the ring holds, so some are read from the log. After the store is reopened,
    // all events are read from the log.
    for reopen in [false, true] {
        if reopen {
            full.disk.restart();
            (full.engine, full.stepper) = fault::open(&full.disk, &options()).unwrap();
        }
        let mut tail = full.engine.tail(before, Bytes::from_static(b"/objects/")).unwrap();
        let mut seen = 0;
        while seen < keys.len() {
            for event in fault::now(tail.next(7)).unwrap().unwrap() {
                let (start, end) = parts(&keys[seen], 3_000);
                assert_eq!((event.kind, &event.key[..]), (EventKind::Delete, keys[seen].as_bytes()));
                let record = event.entry.read().unwrap();
                assert_eq!(record.value, format!("{start}{}{end}", event.revision));
                assert_eq!(record.attributes, format!("name={}", keys[seen]));
                assert!(event.entry.stored_len() > 3_000);
                seen += 1;
            }
        }
    }
}

#[test]
fn essential_writes_do_not_use_the_space_that_reclamation_needs() {
    let mut full = Full::new(6, 3_000);
    // Each write replaces the previous state, and reclamation frees the space of that state. A refused write
    // succeeds after reclamation has run.
    let mut refused = 0;
    for round in 0..400 {
        let lease = || put("/lease", 20_000, true);
        if let Err(error) = full.stepper.write(&full.engine, lease()) {
            refused += 1;
            assert!(matches!(error, CommitError::Refused(Refusal::DiskFull)), "{round}: {error}");
            pass(&full.disk, &mut full.stepper, 3);
            let outcome = full.stepper.write(&full.engine, lease());
            outcome.unwrap_or_else(|error| panic!("{round}: {error}; {}", full.state()));
        }
    }
    assert!(refused > 0, "the writers' part lasts for a dozen");
    full.check(None);
}

#[test]
fn a_power_loss_on_a_full_disk_loses_no_acknowledged_write() {
    for (seed, len) in (0..24).flat_map(|seed| [(seed, 700), (seed, 60_000)]) {
        let mut full = Full::new(seed, len);
        let mut random = Random::new(seed);
        let mut losses = 0;
        let mut rounds = 0;
        while losses < 3 || full.is_full() {
            rounds += 1;
            assert!(rounds < 200 && full.known.len() > 5, "seed {seed}, {len}: the disk stays full");
            if losses < 3 {
                let cut = full.disk.operations() + random.below(120);
                let after = random.one_in(2);
                full.disk.follow(move |operation| match operation.number == cut {
                    true if after => Verdict::LosePowerAfter,
                    true => Verdict::LosePower,
                    false => Verdict::Proceed,
                });
            }
            let mut unknown = None;
            for _ in 0..(full.known.len() / 40).max(1) {
                let at = random.below(full.known.len() as u64) as usize;
                let key = full.known.keys().nth(at).unwrap().clone();
                match full.stepper.write(&full.engine, delete(&key, None)) {
                    Ok(_) => drop(full.known.remove(&key)),
                    Err(_) if !full.disk.has_power() => {
                        unknown = Some(key);
                        break;
                    }
                    outcome => panic!("seed {seed}, {len}: {outcome:?}"),
                }
            }
            pass(&full.disk, &mut full.stepper, 4);
            if full.disk.has_power() {
                full.disk.behave();
                full.check(None);
                continue;
            }
            losses += 1;
            full.disk.behave();
            full.disk.restore_power(random.next());
            (full.engine, full.stepper) = fault::open(&full.disk, &options()).unwrap();
            full.check(unknown.as_deref());
            if let Some(key) = unknown
                && full.engine.snapshot().get(key.as_bytes()).is_none()
            {
                full.known.remove(&key);
            }
        }
        full.check(None);
    }
}
