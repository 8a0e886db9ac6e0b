//! Losses: if any bit of the log is damaged, the store and all its copies report the loss until the loss is
//! accepted.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use engine::offline::{self, LogItem, RestorePoint, Store};
use engine::{
    Change, Durability, Engine, Expected, LEDGER_KEY, LossCounts, Losses, Options, Payload, Revision,
};

mod support;
use support::{TempDir, commit, delete, open, put};

/// Offset of the first record in a segment; see docs/format.md.
const RECORDS_START: u64 = 4096;
/// Bytes of a record before its key.
const HEAD_BYTES: u64 = 72;

/// Location of a record.
#[derive(Clone, Debug)]
struct RecordLocation {
    file: String,
    offset: u64,
    len: u64,
    key: Vec<u8>,
    revision: Revision,
}

fn records(dir: &Path) -> Vec<RecordLocation> {
    let store = Store::open(dir).unwrap();
    let location = |found| match found {
        LogItem::Record(record) => Some(RecordLocation {
            file: record.file(),
            offset: record.offset(),
            len: record.stored_len() as u64,
            key: record.key().to_vec(),
            revision: record.revision(),
        }),
        _ => None,
    };
    store.records().filter_map(location).collect()
}

fn flip(dir: &Path, location: &RecordLocation, byte: u64, bit: u32) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(dir.join(&location.file)).unwrap();
    let mut old = [0];
    file.read_exact_at(&mut old, location.offset + byte).unwrap();
    file.write_all_at(&[old[0] ^ 1 << bit], location.offset + byte).unwrap();
}

fn unaccepted(engine: &Engine) -> LossCounts {
    *engine.watch_losses().borrow()
}

/// Creates a closed store with some history.
async fn store(temp: &TempDir) {
    let engine = open(temp);
    for n in 0..6 {
        put(&engine, &format!("/{n}"), &format!("value {n}")).await.unwrap();
    }
    put(&engine, "/2", "another").await.unwrap();
    delete(&engine, "/3").await.unwrap();
    engine.close().await;
}

#[tokio::test]
async fn a_flipped_bit_in_any_record_is_an_unaccepted_loss() {
    let temp = TempDir::new();
    store(&temp).await;
    let all = records(temp.path());
    let (path, sound) = (temp.segments().remove(0), std::fs::read(&temp.segments()[0]).unwrap());
    for location in &all {
        let body = HEAD_BYTES + location.key.len() as u64;
        for byte in 0..location.len {
            let bit = (byte % 8) as u32;
            flip(temp.path(), location, byte, bit);
            let engine = open(&temp);
            let (counts, report) = (unaccepted(&engine), engine.losses());
            let is_there =
                engine.snapshot().range(engine::KeyRange::all()).any(|it| it.key() == &location.key[..]);
            assert_eq!(engine.revision(), Revision::new(8), "{location:?}, byte {byte}");
            engine.close().await;
            drop(engine);
            let padding = byte >= body && counts.is_empty();
            if !padding {
                let kind = if byte < body { &report.known.lost } else { &report.known.damaged };
                assert!(kind.contains(location.revision), "{location:?}, byte {byte}: {report:?}");
                assert_eq!(counts.lost + counts.damaged, 1, "{location:?}, byte {byte}");
            } else {
                // The padding is not part of a record: at most seven bytes, which are never read.
                assert!(
                    location.len - byte <= 7 && (is_there || location.key == b"/3"),
                    "{location:?}, byte {byte}"
                );
            }
            // If the last record was damaged, opening has cleared the bytes at the end of the log, so
            // restore the file.
            std::fs::write(&path, &sound).unwrap();
        }
    }
    assert!(unaccepted(&open(&temp)).is_empty());
}

#[tokio::test]
async fn accepted_losses_stay_accepted_and_further_damage_is_not() {
    let temp = TempDir::new();
    store(&temp).await;
    let all = records(temp.path());
    flip(temp.path(), &all[0], 9, 0);
    flip(temp.path(), &all[1], all[1].len - 8, 0);
    let engine = open(&temp);
    assert_eq!(unaccepted(&engine), LossCounts { lost: 1, damaged: 1 });
    assert!(engine.note_losses().await.unwrap(), "they are noted");
    assert_eq!(unaccepted(&engine), LossCounts { lost: 1, damaged: 1 }, "which accepts nothing");
    assert!(!engine.note_losses().await.unwrap(), "once is enough");
    assert!(engine.accept_losses(&Losses::default()).await.unwrap());
    assert!(unaccepted(&engine).is_empty());
    assert!(!engine.accept_losses(&Losses::default()).await.unwrap(), "once is enough");
    // The acceptance stays known after the store is opened with a checkpoint and without one.
    for _ in 0..2 {
        engine.checkpoint().await;
        engine.close().await;
        let again = open(&temp);
        assert!(unaccepted(&again).is_empty());
        again.close().await;
        temp.remove_checkpoints();
    }
    drop(engine);
    let again = open(&temp);
    again.close().await;
    drop(again);
    // The accepted loss is that the value of the second record cannot be read. If the head of that record is
    // damaged as well, its key is unknown, which is a new loss.
    for (location, byte, want) in [
        (&all[1], 9, LossCounts { lost: 1, damaged: 0 }),
        (&all[4], 9, LossCounts { lost: 1, damaged: 0 }),
        (&all[5], all[5].len - 8, LossCounts { lost: 0, damaged: 1 }),
    ] {
        flip(temp.path(), location, byte, 3);
        let engine = open(&temp);
        assert_eq!(unaccepted(&engine), want, "{location:?}");
        engine.close().await;
        drop(engine);
        flip(temp.path(), location, byte, 3);
    }
    // The ledger itself is damaged.
    let ledger = records(temp.path()).into_iter().rfind(|location| location.key == LEDGER_KEY).unwrap();
    flip(temp.path(), &ledger, HEAD_BYTES + LEDGER_KEY.len() as u64 + 2, 0);
    assert_eq!(unaccepted(&open(&temp)), LossCounts { lost: 1, damaged: 2 });
}

#[tokio::test]
async fn a_store_opened_from_a_checkpoint_remembers_earlier_losses() {
    let temp = TempDir::new();
    store(&temp).await;
    let all = records(temp.path());
    flip(temp.path(), &all[0], 9, 0);
    for is_noted in [false, true] {
        let engine = open(&temp);
        assert_eq!(unaccepted(&engine).lost, 1);
        if is_noted {
            engine.note_losses().await.unwrap();
        }
        put(&engine, "/more", "more").await.unwrap();
        engine.checkpoint().await;
        engine.close().await;
        drop(engine);
        let again = open(&temp);
        assert_eq!(unaccepted(&again).lost, 1, "noted: {is_noted}");
        again.close().await;
    }
}

#[tokio::test]
async fn damage_found_by_a_reader_is_recorded_as_a_loss() {
    let temp = TempDir::new();
    let engine = open(&temp);
    put(&engine, "/a", "value of a").await.unwrap();
    let mut losses = engine.watch_losses();
    let offset = RECORDS_START + HEAD_BYTES + 2;
    let file = std::fs::OpenOptions::new().write(true).open(&temp.segments()[0]).unwrap();
    file.write_all_at(b"V", offset).unwrap();
    assert!(engine.snapshot().get(b"/a").unwrap().read().is_err());
    assert!(losses.has_changed().unwrap());
    assert_eq!(*losses.borrow_and_update(), LossCounts { lost: 0, damaged: 1 });
    assert!(engine.snapshot().get(b"/a").unwrap().read().is_err());
    assert!(!losses.has_changed().unwrap(), "it is told once");
    // After the loss is noted, the next opening reports the loss even if no reader finds it.
    engine.note_losses().await.unwrap();
    engine.checkpoint().await;
    engine.close().await;
    drop(engine);
    assert_eq!(unaccepted(&open(&temp)), LossCounts { lost: 0, damaged: 1 });
}

#[tokio::test]
async fn a_log_truncated_anywhere_lacks_every_revision_noted_as_durable() {
    const RECORDS: u64 = 6;
    for is_closed in [true, false] {
        let temp = TempDir::new();
        let engine = open(&temp);
        for n in 0..RECORDS {
            put(&engine, &format!("/{n}"), &format!("value {n}")).await.unwrap();
        }
        engine.note_durable().unwrap();
        if is_closed {
            engine.close().await;
        }
        // A killed process leaves the files unchanged.
        let files: Vec<_> =
            std::fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let end = records(temp.path()).last().map(|last| last.offset + last.len).unwrap();
        for cut in (RECORDS_START..end).step_by(40) {
            let copy = TempDir::new();
            for path in &files {
                std::fs::copy(path, copy.path().join(path.file_name().unwrap())).unwrap();
            }
            std::fs::OpenOptions::new().write(true).open(&copy.segments()[0]).unwrap().set_len(cut).unwrap();
            let survey = Store::open(copy.path()).unwrap().losses(|_| (), |_| ()).unwrap();
            let engine = open(&copy);
            let there = engine.snapshot().range(engine::KeyRange::all()).count() as u64;
            assert!(there < RECORDS, "closed: {is_closed}, cut at {cut}");
            assert_eq!(engine.revision(), Revision::new(RECORDS), "closed: {is_closed}, cut at {cut}");
            assert_eq!(unaccepted(&engine), LossCounts { lost: RECORDS - there, damaged: 0 }, "cut at {cut}");
            assert_eq!(survey, engine.losses().known, "tools say the same, cut at {cut}");
            let next = put(&engine, "/new", "new").await.unwrap().revision;
            assert_eq!(next, Revision::new(RECORDS + 1), "cut at {cut}");
            engine.close().await;
        }
    }
}

fn restored(
    from: &Path,
    to: &Path,
    point: RestorePoint,
    skip: bool,
) -> Result<offline::RestoreSummary, offline::OfflineError> {
    offline::restore(from, to, point, skip, |_| (), |_, _| ())
}

#[tokio::test]
async fn restores_and_backups_preserve_recorded_losses() {
    let temp = TempDir::new();
    store(&temp).await;
    let all = records(temp.path());
    flip(temp.path(), &all[0], 9, 0);
    flip(temp.path(), &all[4], all[4].len - 8, 0);
    let want = LossCounts { lost: 1, damaged: 1 };
    let copies = TempDir::new();
    let at = |name: &str| copies.path().join(name);
    let count_at = async |dir: &Path| {
        let engine = Engine::open(Options::new(dir)).unwrap();
        let counts = unaccepted(&engine);
        engine.close().await;
        counts
    };

    offline::backup(temp.path(), &at("backup"), |_| (), |_, _| ()).unwrap().place().unwrap();
    assert_eq!(count_at(&at("backup")).await, want);
    assert!(restored(&at("backup"), &at("refused"), RestorePoint::Newest, false).is_err());

    let done = restored(&at("backup"), &at("restored"), RestorePoint::Newest, true).unwrap();
    assert_eq!((done.unaccepted.counts(), done.keys), (want, 3));
    for name in ["restored", "once-more"] {
        assert_eq!(count_at(&at(name)).await, want, "{name}");
        let survey = offline::survey(&Store::open(&at(name)).unwrap(), |damage| panic!("{damage}"), |_| ());
        assert_eq!(survey.live_keys(), 4, "its own damage is gone");
        // The second restore finds no damage, but reports the losses that the first one found.
        if name == "restored" {
            let again = restored(&at(name), &at("once-more"), RestorePoint::Newest, false).unwrap();
            assert_eq!((again.unaccepted.counts(), again.damages), (want, 0));
        }
    }

    // After the losses are accepted in a copy, further copies do not report these losses and need no flag.
    let engine = Engine::open(Options::new(at("backup"))).unwrap();
    let survey = Store::open(&at("backup")).unwrap().losses(|_| (), |_| ()).unwrap();
    engine.accept_losses(&survey).await.unwrap();
    engine.close().await;
    drop(engine);
    let newest = restored(&at("backup"), &at("accepted"), RestorePoint::Newest, false).unwrap();
    let older =
        restored(&at("backup"), &at("older"), RestorePoint::Revision(Revision::new(6)), false).unwrap();
    assert!(newest.unaccepted.is_empty() && older.unaccepted.is_empty());
    assert!(count_at(&at("accepted")).await.is_empty() && count_at(&at("older")).await.is_empty());
}

#[tokio::test]
async fn a_rewritten_log_reports_the_revision_range_of_a_lost_record() {
    let temp = TempDir::new();
    store(&temp).await;
    let target = TempDir::new();
    let dir = target.path().join("log");
    restored(temp.path(), &dir, RestorePoint::Newest, false).unwrap();
    let all = records(&dir);
    let revisions: Vec<u64> = all.iter().map(|location| location.revision.get()).collect();
    assert_eq!(revisions, [1, 2, 5, 6, 7]);
    let last = Store::open(&dir).unwrap().records().count() as u64;
    assert_eq!(last, 5);
    for (at, want) in [(0, 1..=1), (1, 2..=4), (2, 3..=5), (3, 6..=6)] {
        flip(&dir, &all[at], 9, 0);
        let engine = Engine::open(Options::new(&dir)).unwrap();
        let lost: BTreeSet<u64> =
            (1..20).filter(|&n| engine.losses().known.lost.contains(Revision::new(n))).collect();
        assert_eq!(lost, want.collect(), "record {at}");
        let survey = Store::open(&dir).unwrap().losses(|_| (), |_| ()).unwrap();
        assert_eq!(survey, engine.losses().known, "tools say the same");
        engine.close().await;
        drop(engine);
        flip(&dir, &all[at], 9, 0);
    }
    // If the last record is lost, the loss covers all revisions up to the one at which the store continues.
    flip(&dir, &all[4], 9, 0);
    let engine = Engine::open(Options::new(&dir)).unwrap();
    let ranges = engine.losses().known.lost.ranges().to_vec();
    assert_eq!(ranges, [(Revision::new(7), engine.revision())]);
}

#[tokio::test]
async fn a_key_expires_only_if_no_lost_record_can_have_extended_its_lifetime() {
    let expiring = || Payload { ttl: Some(Duration::from_secs(1)), ..support::payload("v") };
    let options = |temp: &TempDir| support::options(temp, 256 * 1024, Durability::Sync);
    let temp = loop {
        let temp = TempDir::new();
        let engine = Engine::open(options(&temp)).unwrap();
        commit(&engine, "/older", Expected::Any, Change::Put(expiring())).await.unwrap();
        put(&engine, "/lost", "v").await.unwrap();
        commit(&engine, "/newer", Expected::Any, Change::Put(expiring())).await.unwrap();
        engine.close().await;
        drop(engine);
        // On a slow machine a key may expire before the store is closed. Then the log also has its delete.
        if records(temp.path()).len() == 3 {
            break temp;
        }
    };
    let options = || options(&temp);
    let lost = records(temp.path()).remove(1);
    flip(temp.path(), &lost, 9, 0);
    let engine = Engine::open(options()).unwrap();
    while engine.snapshot().get(b"/newer").is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    engine.settled().await;
    assert!(engine.snapshot().get(b"/older").is_some(), "the lost record may have been its renewal");
    engine.accept_losses(&Losses::default()).await.unwrap();
    engine.close().await;
    drop(engine);
    let engine = Engine::open(options()).unwrap();
    while engine.snapshot().get(b"/older").is_some() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
