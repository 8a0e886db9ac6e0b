//! Damage inside the acknowledged log: damaged records are reported and never served, and everything else is
//! served.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk, Kind, Random, Stepper, Verdict};
use engine::{
    Change, Engine, Entry, Expected, KeyRange, OpenError, Options, Payload, ReadError, Revision, TailError,
    Write,
};

use crate::fixture::{Fixture, NEVER, Setup};
use crate::history::{Checked, Content, Guarantee, History, Proposal, Violation, check, check_entry};

/// The first segment of a store, and the offset of its first record (docs/format.md).
const FIRST: &str = "0000000001.segment";
const RECORDS_START: usize = 4096;

type Files = BTreeMap<String, Vec<u8>>;

/// Returns a store of several segments that was closed properly, and its history.
fn store(seed: u64) -> (History, Files) {
    let mut fixture = Fixture::new(Setup { cut: NEVER, ..Setup::new(seed) }).unwrap();
    (0..150).try_for_each(|_| fixture.act()).unwrap();
    fixture.finish().unwrap();
    fixture.end().unwrap()
}

fn options() -> Options {
    Options { segment_bytes: 16 * 1024, ..Options::new("/simulated") }
}

/// Returns whether the file with this name is a segment of the log.
pub fn is_segment(name: &str) -> bool {
    name.ends_with(".segment") && name.starts_with(|c: char| c.is_ascii_digit())
}

/// Flips one bit of a file that is not empty, but not in the zeros at its end.
pub fn flip_bit(bytes: &mut [u8], random: &mut Random) {
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(bytes.len(), |last| last + 1);
    if end > 0 {
        bytes[random.below(end as u64) as usize] ^= 1 << random.below(8);
    }
}

fn pick<'n>(names: impl Iterator<Item = &'n String>, random: &mut Random) -> &'n str {
    let names: Vec<_> = names.collect();
    names[random.below(names.len() as u64) as usize]
}

/// Fills one sector with zeros or with noise.
fn spoil_sector(bytes: &mut [u8], random: &mut Random) {
    let sector = random.below(bytes.len() as u64 / 512) as usize * 512;
    let zeros = random.one_in(2);
    let noise = bytes[sector..sector + 512].iter_mut();
    noise.for_each(|byte| *byte = if zeros { 0 } else { random.next() as u8 });
}

/// Maximum number of records that a damaged sector affects: each record has at least 80 bytes.
const SECTOR_RECORDS: usize = 512 / 80 + 2;

/// Name of the file of the high-water mark.
const HIGH_WATER: &str = "high-water";

/// Size of a page, which becomes unreadable as a whole, and the maximum number of records in it.
const PAGE_BYTES: u64 = 4096;
const PAGE_RECORDS: usize = PAGE_BYTES as usize / 80 + 2;

/// Returns the copies of a segment's header that are undamaged.
fn sound_headers(segment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let copies = [&segment[..128], &segment[2048..2176]];
    copies.into_iter().filter(|copy| crc32fast::hash(&copy[..124]).to_le_bytes() == copy[124..])
}

/// Opens the store on `disk`, which must succeed.
fn opened(disk: &Disk) -> Checked<(Engine, Stepper)> {
    fault::open(disk, &options()).map_err(|error| {
        let what = format!("the store does not open: {error}");
        Violation { guarantee: Guarantee::Durable, what }
    })
}

/// Damages a copy of a store whose `history` is known, and checks that the damage affects only the records
/// in the damaged bytes, even after maintenance of the store.
pub fn check_copy(files: &Files, history: &History, random: &mut Random) -> Checked {
    let disk = Disk::with_files(random.next(), files);
    // The copy is closed properly first, so that no damage is mistaken for a torn tail.
    opened(&disk)?.1.close();
    let files = disk.files();
    if random.one_in(3) {
        return check_refusal(&files, history, random);
    }
    let disk = Disk::with_files(random.next(), &files);
    let name = pick(files.keys(), random);
    let at_most = [1, SECTOR_RECORDS, PAGE_RECORDS][random.below(3) as usize];
    let hit = random.below(files[name].len().max(1) as u64);
    match at_most {
        1 => disk.damage(name, |bytes| flip_bit(bytes, random)),
        SECTOR_RECORDS => disk.damage(name, |bytes| spoil_sector(bytes, random)),
        _ => disk.spoil(name, hit),
    }
    if is_segment(name) && sound_headers(&disk.files()[name]).next().is_none() {
        // The segment had only one sound copy of its header left.
        return Ok(());
    }
    let (engine, stepper) = match fault::open(&disk, &options()) {
        Err(OpenError::UnreadableEnd { path, offset, .. }) => {
            // It is unknown what was at the unreadable position. The error must not name any other position.
            let is_meant = at_most == PAGE_RECORDS && path.ends_with(name);
            let is_hit = (offset / PAGE_BYTES..=offset / PAGE_BYTES + 2).contains(&(hit / PAGE_BYTES));
            return check(Guarantee::Durable, is_meant && is_hit, || {
                format!("{name} was hit at {hit}, and {} is unreadable at {offset}", path.display())
            });
        }
        _ => opened(&disk)?,
    };
    let checked = check_served(&engine, history, at_most, random);
    checked.and_then(|()| check_maintenance(&disk, engine, stepper)).map_err(|violation| {
        let what = format!("{}; at most {at_most} were hit in {name}", violation.what);
        Violation { what, ..violation }
    })
}

/// Checks that a segment without a header or without a file is reported as missing, with advice to the
/// operator, and that the refusal changes nothing.
fn check_refusal(files: &Files, history: &History, random: &mut Random) -> Checked {
    let first_revision = |name: &str| {
        let header = sound_headers(&files[name]).next().expect("one of them is sound");
        u64::from_le_bytes(header[24..32].try_into().expect("eight bytes"))
    };
    let names = || files.keys().filter(|name| is_segment(name));
    let name = pick(names(), random);
    let disk = Disk::with_files(random.next(), files);
    if random.one_in(2) {
        disk.damage(name, |bytes| {
            bytes[random.below(128) as usize] ^= 1;
            bytes[2048 + random.below(128) as usize] ^= 1;
        });
    } else {
        if random.one_in(2) {
            // A store of an earlier release has no such file.
            disk.take(HIGH_WATER);
            let last = names().map(|name| first_revision(name)).max();
            let told_of = files.keys().any(|other| {
                let revision =
                    other.strip_suffix(".checkpoint").and_then(|digits| digits.parse::<u64>().ok());
                revision.is_some_and(|revision| revision >= first_revision(name))
            });
            if Some(first_revision(name)) == last && !told_of {
                // Without the mark, opening cannot notice that the log continued.
                return Ok(());
            }
        }
        disk.take(name);
    }
    match fault::open(&disk, &options()) {
        // The segment was not needed, because other segments supersede it.
        Ok((engine, _stepper)) => check_served(&engine, history, 0, random),
        Err(error) => {
            let meant = matches!(
                error,
                OpenError::BadHeader { .. } | OpenError::MissingSegment { .. } | OpenError::MissingEnd { .. }
            );
            let has_advice = error.to_string().ends_with("put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup");
            check(Guarantee::Durable, meant && has_advice, || format!("{name} is damaged or gone: {error}"))?;
            disk.put(name, &files[name]);
            check_served(&opened(&disk)?.0, history, 0, random)
        }
    }
}

/// Returns each key's newest state: its revision, and the value if it can be read.
fn states(engine: &Engine) -> BTreeMap<Bytes, (Revision, Option<Bytes>)> {
    let entries = engine.snapshot().range(KeyRange::all());
    entries
        .map(|entry| (entry.key().clone(), (entry.revision(), entry.read().ok().map(|record| record.value))))
        .collect()
}

/// Checks that every state that was readable stays readable after background maintenance, even after the
/// store is opened again.
fn check_maintenance(disk: &Disk, engine: Engine, mut stepper: Stepper) -> Checked {
    let before = states(&engine);
    let unchanged = |engine: &Engine, when: &str| {
        let after = states(engine);
        let lost = before.iter().find(|(key, state)| state.1.is_some() && after.get(*key) != Some(*state));
        check(Guarantee::Durable, lost.is_none(), || format!("{lost:?} is not there {when}"))?;
        let ghost = after.iter().find(|(key, state)| state.1.is_some() && !before.contains_key(*key));
        check(Guarantee::NoGhost, ghost.is_none(), || format!("{ghost:?} came {when}"))
    };
    let _ = fault::now(engine.compact(engine.revision()));
    // No time passes, so no key expires.
    let mut idle = 0;
    while idle < 10 {
        if !stepper.maintain() {
            stepper.commit();
            idle += 1;
        }
    }
    unchanged(&engine, "after maintenance")?;
    drop((engine, stepper));
    disk.restart();
    let (engine, _stepper) = opened(disk)?;
    unchanged(&engine, "after maintenance and opening")
}

/// Checks that the store serves everything that was written, except for at most `at_most` damaged revisions.
/// A read of a damaged revision returns an error, or it returns the previous state of the key and the store
/// reports the revision as lost.
fn check_served(engine: &Engine, history: &History, at_most: usize, random: &mut Random) -> Checked {
    let (mut damaged, mut unnamed) = (BTreeSet::new(), BTreeSet::new());
    let (newest, oldest) = (engine.revision(), engine.stats().oldest);
    check(Guarantee::Durable, newest == history.revision(), || {
        format!("the store ends at {newest}, not at {}", history.revision())
    })?;
    let mut past = || Revision::new(oldest.get() + random.below(newest.since(oldest) + 1));
    for revision in [newest, past(), past()] {
        let snapshot = engine.snapshot_at(revision).expect("everything is retained");
        let mut found: BTreeMap<Bytes, Entry> =
            snapshot.range(KeyRange::all()).map(|entry| (entry.key().clone(), entry)).collect();
        for expected in history.newest_states(revision) {
            let entry = found.remove(&expected.key);
            match entry {
                Some(entry) if entry.revision() == expected.revision => match entry.read() {
                    Err(ReadError::Damaged { key, revision }) => {
                        let named = (key, revision) == (expected.key.clone(), expected.revision);
                        check(Guarantee::ExactVersion, named, || format!("{entry:?} blames another"))?;
                        damaged.insert(revision);
                    }
                    Ok(_) => check_entry(&entry, expected)?,
                    Err(ReadError::Sealed { .. }) => unreachable!("this store seals nothing"),
                },
                None if expected.deleted => {}
                // The record of this state is lost, so the key has its previous state.
                entry => {
                    unnamed.insert(expected.revision);
                    if let Some(entry) = entry {
                        check_genuine(&entry, history, expected.revision)?;
                    }
                }
            }
        }
        check(Guarantee::NoGhost, found.is_empty(), || format!("{found:?} at {revision}"))?;
    }
    follow(engine, history, &mut damaged)?;
    let reported = engine.stats().lost_revisions as usize;
    check(Guarantee::Durable, (unnamed.len()..=at_most).contains(&reported), || {
        format!("{reported} reported as lost, and {unnamed:?} are")
    })?;
    damaged.extend(unnamed);
    check(Guarantee::Durable, damaged.len() <= at_most, || {
        format!("damaged beyond what was hit: {damaged:?}")
    })
}

/// Checks that an entry is a state that its key had before `revision`.
fn check_genuine(entry: &Entry, history: &History, revision: Revision) -> Checked {
    let was = history.get(entry.revision()).filter(|was| was.revision < revision && was.key == entry.key());
    let Some(was) = was else {
        return Err(Violation {
            guarantee: Guarantee::NoGhost,
            what: format!("{entry:?} before {revision}"),
        });
    };
    if entry.read().is_ok() { check_entry(entry, was) } else { Ok(()) }
}

/// Checks that a tail returns every event that is not damaged, and returns an error if it cannot continue.
fn follow(engine: &Engine, history: &History, damaged: &mut BTreeSet<Revision>) -> Checked {
    let mut seen = engine.stats().oldest;
    while seen < history.revision() {
        let mut tail = engine.tail(seen, Bytes::new()).expect("everything is retained");
        loop {
            match fault::now(tail.next(64)) {
                Some(Ok(events)) => {
                    for event in events {
                        let next = event.revision == seen.next();
                        check(Guarantee::Resumable, next, || format!("{event:?} after {seen}"))?;
                        seen = seen.next();
                        match event.entry.read() {
                            Ok(_) => {
                                let expected = history.get(seen).expect("revisions are without gaps");
                                check_entry(&event.entry, expected)?;
                            }
                            Err(ReadError::Damaged { revision, .. }) => {
                                damaged.insert(revision);
                            }
                            Err(ReadError::Sealed { .. }) => unreachable!("this store seals nothing"),
                        }
                    }
                }
                Some(Err(TailError::Damaged { revision })) => {
                    let next = revision == seen.next();
                    check(Guarantee::Resumable, next, || format!("stopped at {revision} after {seen}"))?;
                    damaged.insert(revision);
                    seen = revision;
                    break;
                }
                Some(Err(error)) => {
                    let what = format!("the tail ended: {error}");
                    return Err(Violation { guarantee: Guarantee::Resumable, what });
                }
                None => {
                    let all = seen == history.revision();
                    return check(Guarantee::Resumable, all, || format!("the tail stopped at {seen}"));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_flipped_bit_costs_at_most_one_record() {
    let (history, files) = store(1);
    assert!(files.len() > 3, "{:?}", files.keys());
    let mut random = Random::new(2);
    for round in 0..1_500 {
        let disk = Disk::with_files(round, &files);
        let name = pick(files.keys(), &mut random);
        let bit = random.below(files[name].len() as u64 * 8);
        disk.damage(name, |bytes| bytes[bit as usize / 8] ^= 1 << (bit % 8));
        let what = format!("round {round}, bit {bit} of {name}");
        let (engine, _stepper) =
            fault::open(&disk, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
        check_served(&engine, &history, 1, &mut random)
            .unwrap_or_else(|violation| panic!("{what}: {violation}"));
    }
}

#[test]
fn a_corrupted_sector_costs_only_the_records_in_it() {
    let (history, files) = store(3);
    let mut random = Random::new(4);
    for round in 0..500 {
        let disk = Disk::with_files(round, &files);
        let name = pick(files.keys(), &mut random);
        disk.damage(name, |bytes| spoil_sector(bytes, &mut random));
        let what = format!("round {round}, in {name}");
        let (engine, _stepper) =
            fault::open(&disk, &options()).unwrap_or_else(|error| panic!("{what}: {error}"));
        check_served(&engine, &history, SECTOR_RECORDS, &mut random)
            .unwrap_or_else(|violation| panic!("{what}: {violation}"));
    }
}

#[test]
fn an_unreadable_disk_is_reported_and_nothing_is_lost() {
    let (history, files) = store(5);
    for name in files.keys().filter(|name| name.ends_with(".segment")) {
        let disk = Disk::with_files(1, &files);
        let (engine, stepper) = fault::open(&disk, &options()).unwrap();
        let bad = name.clone();
        disk.follow(move |operation| match operation.kind {
            Kind::Read if operation.name == bad => Verdict::Fail,
            _ => Verdict::Proceed,
        });
        // Only the records in the unreadable file read as damaged.
        let snapshot = engine.snapshot();
        let unreadable = snapshot.range(KeyRange::all()).filter(|entry| entry.read().is_err()).count();
        assert!(unreadable < snapshot.count(&KeyRange::all()) as usize || files.len() < 3, "{name}");
        drop((engine, stepper));
        disk.restart();
        let error = fault::open(&disk, &options()).map(drop);
        if let Err(error) = error {
            let text = error.to_string();
            assert!(text.contains(name.as_str()) && text.ends_with("input/output error"), "{text}");
        }
        disk.behave();
        let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
        check_served(&engine, &history, 0, &mut Random::new(1)).unwrap();
    }
}

/// A sync reports success without writing, and the power is lost later: much may be gone, but everything
/// that remains is genuine.
#[test]
fn after_a_sync_that_falsely_succeeded_only_written_values_are_served() {
    let (mut opened, mut complete) = (0, 0);
    for seed in 0..600 {
        let mut fixture = Fixture::new(Setup { cut: NEVER, ..Setup::new(seed) }).unwrap();
        let lie = fixture.disk.operations() + seed % 60;
        fixture.disk.follow(
            move |operation| {
                if operation.number == lie { Verdict::Lie } else { Verdict::Proceed }
            },
        );
        (0..25).try_for_each(|_| fixture.act()).unwrap();
        let (history, disk) = fixture.cut_off(seed).unwrap();
        let Ok((engine, _stepper)) = fault::open(&disk, &options()) else { continue };
        opened += 1;
        let newest = engine.revision();
        complete += u64::from(newest >= history.revision());
        for entry in engine.snapshot().range(KeyRange::all()) {
            let known = history.get(entry.revision()).filter(|known| known.key == entry.key());
            if let (Some(known), Ok(_)) = (known, entry.read()) {
                check_entry(&entry, known).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
            }
            // A write without an answer may nevertheless be in the log.
            assert!(known.is_some() || entry.revision() > history.revision(), "seed {seed}: {entry:?}");
        }
    }
    // Most of these false reports do no harm, because the next sync makes the same bytes durable.
    assert!(opened > 500 && complete > 300, "{opened} opened, {complete} complete");
}

fn write(engine: &Engine, stepper: &mut Stepper, key: &str, value: Vec<u8>) -> Proposal {
    let content = Content { attributes: Bytes::new(), value: value.into(), rest: None, ttl: None };
    let key = Bytes::copy_from_slice(key.as_bytes());
    let proposal =
        Proposal { key, expected: Expected::Any, content: Some(content), deleting: false, time_ms: 0 };
    stepper.write(engine, proposal.write()).unwrap();
    proposal
}

/// A value contains a copy of a record at the original offset of that record, and the record around the value
/// is damaged. The search for the next record must not recognize these bytes of a client as a record of the
/// engine.
pub fn record_in_a_value(_seed: u64) -> Checked {
    // The client copies the record from another store, because it cannot read the records of this one.
    let own = Disk::new(1);
    let (engine, mut stepper) = fault::open(&own, &options()).unwrap();
    write(&engine, &mut stepper, "/first", vec![b'x'; 1_000]);
    write(&engine, &mut stepper, "/ghost", b"forged".to_vec());
    let bytes = own.files().remove(FIRST).expect("the first segment");
    let place =
        |key: &[u8]| bytes.windows(key.len()).position(|found| found == key).expect("the record has its key");
    let head = place(b"/first") - RECORDS_START;
    let at = place(b"/ghost") - head;
    let end = place(b"forged") + b"forged".len();
    let forged = &bytes[at..end];

    let disk = Disk::new(2);
    let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
    let mut history = History::default();
    let mut value = vec![b'x'; at - RECORDS_START - head - "/first".len()];
    value.extend_from_slice(forged);
    value.resize(1_500, b'x');
    for (key, value) in [("/first", value), ("/second", b"two".to_vec()), ("/third", b"three".to_vec())] {
        let proposal = write(&engine, &mut stepper, key, value);
        history.apply(&proposal);
    }
    stepper.close();
    drop(engine);
    disk.damage(FIRST, |bytes| bytes[RECORDS_START] ^= 1);
    disk.restart();
    let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
    check_served(&engine, &history, 1, &mut Random::new(1))
}

/// The head of the first record is damaged, and a tail follows the log from the beginning.
pub fn hole_in_the_log(seed: u64) -> Checked {
    let (history, files) = store(seed);
    let disk = Disk::with_files(seed, &files);
    disk.damage(FIRST, |bytes| bytes[RECORDS_START] ^= 1);
    let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
    check_served(&engine, &history, 1, &mut Random::new(seed))
}

/// A process is killed while it writes, and the file of its log is cut to its header afterwards: all writes
/// except those of the last second are known to be lost, and their revisions are not assigned again.
pub fn cut_after_a_kill(seed: u64) -> Checked {
    let disk = Disk::new(seed);
    let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
    for n in 0..8 {
        write(&engine, &mut stepper, &format!("/{n}"), b"value".to_vec());
        disk.pass(Duration::from_millis(400));
        while stepper.maintain() {}
    }
    let newest = engine.revision().get();
    drop((engine, stepper));
    disk.restart();
    disk.damage(FIRST, |bytes| bytes.truncate(RECORDS_START));
    let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
    let (revision, lost) = (engine.revision().get(), engine.losses().unaccepted().lost.count());
    check(Guarantee::Durable, revision + 3 >= newest && lost == revision, || {
        format!("{newest} revisions were written, and {revision} are known, {lost} of them as lost")
    })?;
    write(&engine, &mut stepper, "/new", b"value".to_vec());
    check(Guarantee::Durable, engine.revision().get() == revision + 1, || "a revision is given twice".into())
}

#[test]
fn a_log_truncated_after_a_kill_is_detected() {
    cut_after_a_kill(0).unwrap();
}

#[test]
fn a_record_inside_a_value_is_ignored_and_a_hole_in_the_log_is_reported() {
    record_in_a_value(0).unwrap();
    hole_in_the_log(0).unwrap();
}

/// Returns a store of two writes whose machine stopped after the second. Both writes are on disk, but opening
/// cannot determine that the second one is durable. The first record fills a page.
fn stopped_behind_its_last_write() -> (Disk, u64) {
    let disk = Disk::new(21);
    let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
    write(&engine, &mut stepper, "/one", vec![b'x'; PAGE_BYTES as usize - 72 - "/one".len()]);
    let last = RECORDS_START as u64 + engine.stats().record_bytes;
    assert_eq!(last % PAGE_BYTES, 0);
    write(&engine, &mut stepper, "/two", b"two".to_vec());
    drop((engine, stepper));
    disk.restart();
    (disk, last)
}

/// The disk cannot read the last acknowledged write, and the store must not treat it as a write that was
/// never acknowledged.
pub fn unreadable_end(_seed: u64) -> Checked {
    let (disk, last) = stopped_behind_its_last_write();
    let before = disk.files();
    disk.spoil(FIRST, last);
    let opened = fault::open(&disk, &options());
    let refused = opened.as_ref().err().map(OpenError::to_string);
    check(Guarantee::Durable, refused.is_some(), || "a write is gone, and no error says so".into())?;
    let path = format!("/simulated/{FIRST}");
    let want = format!(
        "{path}: the end of the log, at byte {last}, cannot be read: input/output error: on a sound disk, create a \
         store of the readable records with restore --skip-damaged, or restore a backup"
    );
    assert_eq!(refused.as_deref(), Some(want.as_str()));
    // The refusal changed nothing: once the disk can read again, everything is there.
    let disk = Disk::with_files(1, &before);
    let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
    check(Guarantee::Durable, engine.revision() == Revision::new(2), || {
        "opening has changed something".into()
    })
}

#[test]
fn a_log_whose_end_cannot_be_read_is_refused() {
    unreadable_end(0).unwrap();
    // An unreadable page before the end of the log, or far behind it, does not prevent opening.
    for (offset, revisions) in [(RECORDS_START as u64, 1), (RECORDS_START as u64 + 3 * PAGE_BYTES, 0)] {
        let (disk, last) = stopped_behind_its_last_write();
        assert_ne!(offset, last);
        disk.spoil(FIRST, offset);
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        assert_eq!(
            (engine.revision(), engine.stats().lost_revisions),
            (Revision::new(2), revisions),
            "{offset}"
        );
        write(&engine, &mut stepper, "/three", b"three".to_vec());
        assert_eq!(engine.revision(), Revision::new(3));
    }
}

#[test]
fn an_unreadable_page_costs_only_the_records_in_it() {
    let (history, files) = store(23);
    let mut random = Random::new(24);
    let (mut served, mut refused) = (0, 0);
    for round in 0..500 {
        let disk = Disk::with_files(round, &files);
        let name = pick(files.keys().filter(|name| !name.ends_with("lock")), &mut random);
        // The first page of a segment is not chosen, because it contains both copies of the header.
        let pages = files[name].len() as u64 / PAGE_BYTES;
        let page = if name == HIGH_WATER { 0 } else { 1 + random.below(pages - 1) };
        disk.spoil(name, page * PAGE_BYTES);
        match fault::open(&disk, &options()) {
            Ok((engine, _stepper)) => {
                check_served(&engine, &history, PAGE_RECORDS, &mut random)
                    .unwrap_or_else(|violation| panic!("round {round}, in {name}: {violation}"));
                served += 1;
            }
            Err(OpenError::UnreadableEnd { .. }) => refused += 1,
            Err(error) => panic!("round {round}, in {name}: {error}"),
        }
    }
    assert!(served > 300 && refused > 0 && refused < served / 4, "{served} served, {refused} refused");
}

#[test]
fn a_store_that_cannot_be_opened_is_refused_with_a_remedy() {
    let (history, files) = store(7);
    let segments: Vec<&String> = files.keys().filter(|name| name.ends_with(".segment")).collect();
    let middle = segments[1].as_str();
    let disk = Disk::with_files(1, &files);
    disk.damage(middle, |bytes| {
        bytes[9] ^= 1;
        bytes[2048 + 9] ^= 1;
    });
    let error = fault::open(&disk, &options()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::BadHeader { .. }), "{error}");
    assert!(error.to_string().ends_with("put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup"), "{error}");
    let disk = Disk::with_files(1, &files);
    disk.take(middle);
    let error = fault::open(&disk, &options()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::MissingSegment { .. }), "{error}");
    assert!(error.to_string().ends_with("put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup"), "{error}");
    // The refusals changed nothing: with the file back in place, everything is there.
    disk.put(middle, &files[middle]);
    let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
    check_served(&engine, &history, 0, &mut Random::new(1)).unwrap();
}

#[test]
fn a_batch_torn_in_its_middle_is_cut_from_the_torn_record_on() {
    let disk = Disk::new(3);
    let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
    write(&engine, &mut stepper, "/0", b"alone in its batch".to_vec());
    let start = RECORDS_START + engine.stats().record_bytes as usize;
    let mut batch = [("/1", 23), ("/2", 2), ("/3", 1)].map(|(key, len)| {
        let payload = Payload { value: vec![b'x'; len].into(), ..Payload::default() };
        Box::pin(engine.commit(Write {
            key: Bytes::from_static(key.as_bytes()),
            expected: Expected::Any,
            change: Change::Put(payload),
        }))
    });
    assert!(batch.iter_mut().all(|write| fault::now(write).is_none()));
    stepper.commit();
    assert!(batch.iter_mut().all(|write| matches!(fault::now(write), Some(Ok(_)))));
    assert_eq!(engine.stats().batches, 2);
    drop(batch);
    drop((engine, stepper));
    // The disk wrote the later sectors of the batch but not the first, and then the power was lost.
    disk.damage(FIRST, |bytes| bytes[start..start + 16].fill(0));
    disk.restart();
    let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
    assert_eq!(
        (engine.revision(), engine.stats().keys, engine.stats().lost_revisions),
        (Revision::new(1), 1, 0)
    );
    write(&engine, &mut stepper, "/9", Vec::new());
    assert_eq!(engine.revision(), Revision::new(2));
    stepper.close();
    drop(engine);
    // No stale bytes of the batch reappear behind the new, shorter record.
    disk.restart();
    let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
    assert_eq!((engine.revision(), engine.stats().keys), (Revision::new(2), 2));
}

#[test]
fn damage_to_the_last_write_of_an_idle_store_is_not_a_torn_tail() {
    for idle in [false, true] {
        let disk = Disk::new(11);
        let (engine, mut stepper) = fault::open(&disk, &options()).unwrap();
        write(&engine, &mut stepper, "/one", b"one".to_vec());
        // The mark covers the writes that are on disk, and is not raised again for a second.
        while stepper.maintain() {}
        write(&engine, &mut stepper, "/two", b"two".to_vec());
        while stepper.maintain() {}
        if idle {
            disk.pass(Duration::from_secs(2));
            while stepper.maintain() {}
        }
        drop((engine, stepper));
        disk.lose_power();
        disk.restore_power(12);
        disk.damage(FIRST, |bytes| {
            let last = bytes.iter().rposition(|byte| *byte != 0).expect("there are records");
            bytes[last] ^= 1;
        });
        let (engine, _stepper) = fault::open(&disk, &options()).unwrap();
        let found = engine.snapshot().get(b"/two").map(|entry| entry.read());
        if idle {
            let is_damaged =
                matches!(found, Some(Err(ReadError::Damaged { revision, .. })) if revision.get() == 2);
            assert!(is_damaged, "{found:?}");
        } else {
            // Opening cannot determine that the write was ever on disk.
            assert!(found.is_none() && engine.revision() == Revision::new(1), "{found:?}");
        }
    }
}
