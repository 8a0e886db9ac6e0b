//! Opening after crashes and damage: acknowledged writes are present, other writes may be gone, and bytes
//! that fail their checksum are never returned.

use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use engine::offline::{self, Problem};
use engine::{
    Change, CommitError, Engine, Expected, OpenError, Options, Payload, ReadError, Revision,
    SEGMENT_BYTES_MIN, TailError,
};

mod support;
use support::{Random, TempDir, commit, delete, open, payload, put, value};

/// Offset of the first record in a segment; see docs/format.md.
const RECORDS_START: u64 = 4096;
/// Bytes of a record before its key.
const HEAD_BYTES: usize = 72;

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn bytes_at(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Removes the notes that closing wrote, so that the store looks as after a crash right after its last batch.
fn forget_notes(path: &Path) {
    std::fs::remove_file(path.with_file_name("high-water")).unwrap();
    overwrite(path, 1024, &[0; 32]);
    overwrite(path, 3072, &[0; 32]);
}

/// Creates a store with these values under `/0`, `/1`, …, one batch each. Returns the offset of each record,
/// and the end of the last one.
async fn store(temp: &TempDir, values: &[&str]) -> Vec<u64> {
    let engine = open(temp);
    let mut offsets = vec![RECORDS_START];
    for (n, value) in values.iter().enumerate() {
        put(&engine, &format!("/{n}"), value).await.unwrap();
        offsets.push(RECORDS_START + engine.stats().record_bytes);
    }
    engine.close().await;
    offsets
}

#[tokio::test]
async fn a_last_record_torn_at_any_byte_is_cut_and_writes_continue() {
    let temp = TempDir::new();
    let offsets = store(&temp, &["first", "second", "the one that is torn"]).await;
    let path = temp.segments().remove(0);
    let (start, end) = (offsets[2], offsets[3]);
    let record = bytes_at(&path, start, (end - start) as usize);
    // The padding is not part of the record.
    let body_end = HEAD_BYTES + "/2".len() + "the one that is torn".len();
    for written in 0..record.len() {
        for rest in [0u8, 0xff] {
            let mut torn = record.clone();
            torn[written..].fill(rest);
            overwrite(&path, start, &torn);
            forget_notes(&path);
            let engine = open(&temp);
            let whole = written >= body_end;
            assert_eq!(
                engine.revision(),
                Revision::new(if whole { 3 } else { 2 }),
                "{written} bytes, then {rest}"
            );
            let snapshot = engine.snapshot();
            assert_eq!(value(&snapshot.get(b"/0").unwrap()), "first");
            assert_eq!(value(&snapshot.get(b"/1").unwrap()), "second");
            assert_eq!(snapshot.get(b"/2").is_some(), whole);
            if !whole {
                // No bytes remain that could be read as a record later.
                assert!(bytes_at(&path, start, record.len()).iter().all(|&b| b == 0));
                // The revision was never acknowledged, so the next write gets it.
                assert_eq!(put(&engine, "/new", "new").await.unwrap().revision, Revision::new(3));
            }
            engine.close().await;
            drop(engine);
            assert_eq!(open(&temp).revision(), Revision::new(3));
            overwrite(&path, start, &vec![0; record.len() + 200]);
        }
    }
}

#[tokio::test]
async fn damage_in_the_last_batch_of_a_closed_store_is_not_a_torn_tail() {
    let temp = TempDir::new();
    let offsets = store(&temp, &["first", "last"]).await;
    let path = temp.segments().remove(0);
    for (at, lost) in [(offsets[1] + (HEAD_BYTES + "/1".len()) as u64, 0), (offsets[1] + 8, 1)] {
        let good = bytes_at(&path, at, 1);
        overwrite(&path, at, &[good[0] ^ 1]);
        let engine = open(&temp);
        assert_eq!((engine.revision(), engine.stats().lost_revisions), (Revision::new(2), lost));
        let read = engine.snapshot().get(b"/1").map(|entry| entry.read());
        assert!(read.is_none_or(
            |read| read == Err(ReadError::Damaged { key: "/1".into(), revision: Revision::new(2) })
        ));
        engine.close().await;
        drop(engine);
        overwrite(&path, at, &good);
    }
    // The revision is not reused.
    assert_eq!(put(&open(&temp), "/1", "again").await.unwrap().revision, Revision::new(3));
    assert_eq!(value(&open(&temp).snapshot().get(b"/1").unwrap()), "again");
}

#[tokio::test]
async fn a_filter_reads_attributes_without_the_value() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let payload = Payload { attributes: "app=web".into(), value: "body".into(), ..Payload::default() };
    let entry = commit(&engine, "/k", Expected::Any, Change::Put(payload)).await.unwrap().entry;
    assert_eq!(entry.attributes().unwrap(), "app=web");
    let attributes = RECORDS_START + (HEAD_BYTES + "/k".len()) as u64;
    overwrite(&temp.segments()[0], attributes + "app=web".len() as u64, b"B");
    assert!(entry.read().is_err());
    assert_eq!(entry.attributes().unwrap(), "app=web");
    overwrite(&temp.segments()[0], attributes, b"A");
    assert_eq!(entry.attributes(), Err(ReadError::Damaged { key: "/k".into(), revision: Revision::new(1) }));
}

#[tokio::test]
async fn a_flipped_bit_in_the_acknowledged_log_costs_that_record_only() {
    let temp = TempDir::new();
    let offsets = store(&temp, &["zero", "one", "two", "three"]).await;
    let path = temp.segments().remove(0);
    let start = offsets[1];
    let good = bytes_at(&path, start, (offsets[2] - start) as usize);
    let body = HEAD_BYTES + "/1".len();
    for bit in 0..(body + "one".len()) * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        overwrite(&path, start, &bad);
        let engine = open(&temp);
        assert_eq!(engine.revision(), Revision::new(4), "bit {bit}");
        let snapshot = engine.snapshot();
        for (key, text) in [(b"/0", "zero"), (b"/2", "two"), (b"/3", "three")] {
            assert_eq!(value(&snapshot.get(key).unwrap()), text, "bit {bit}");
        }
        if bit / 8 >= body {
            // The head of the record is intact, so the key is known, and the error contains the key.
            let error = snapshot.get(b"/1").unwrap().read().unwrap_err();
            assert_eq!(error, ReadError::Damaged { key: "/1".into(), revision: Revision::new(2) });
            assert_eq!(error.to_string(), "stored state of \"/1\" at revision 2 is damaged");
            assert_eq!(snapshot.count_prefix(b""), 4);
        } else {
            assert!(snapshot.get(b"/1").is_none(), "bit {bit}");
            assert_eq!(engine.stats().lost_revisions, 1);
            // A tail that would have to skip the record returns an error instead of hiding an event.
            let mut tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
            assert_eq!(tail.next(10).await.unwrap().len(), 1);
            assert_eq!(tail.next(10).await.unwrap_err(), TailError::Damaged { revision: Revision::new(2) });
            assert_eq!(engine.tail(Revision::new(2), Bytes::new()).unwrap().next(10).await.unwrap().len(), 2);
        }
    }
    // In the last round the key's own bytes are intact, so the damaged state can be deleted and replaced.
    let engine = open(&temp);
    let error = delete(&engine, "/1").await.unwrap_err();
    assert!(
        matches!(error, CommitError::Damaged(ReadError::Damaged { revision, .. }) if revision == Revision::new(2)),
        "{error}"
    );
    let gone =
        commit(&engine, "/1", Expected::Revision(Revision::new(2)), Change::Delete(Some(payload("final"))))
            .await;
    assert_eq!(value(&gone.unwrap().entry), "final");
    assert_eq!(value(&put(&engine, "/1", "again").await.unwrap().entry), "again");
}

#[tokio::test]
async fn damage_that_occurs_while_the_engine_runs_is_detected_by_the_read() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let entry = put(&engine, "/k", "value").await.unwrap().entry;
    overwrite(&temp.segments()[0], RECORDS_START + HEAD_BYTES as u64 + 3, b"X");
    assert!(entry.read().is_err());
    overwrite(&temp.segments()[0], RECORDS_START + HEAD_BYTES as u64 + 3, b"a");
    assert_eq!(value(&entry), "value");
    // Damage in the head is noticed as well.
    overwrite(&temp.segments()[0], RECORDS_START + 8, b"X");
    assert_eq!(entry.read(), Err(ReadError::Damaged { key: "/k".into(), revision: Revision::new(1) }));
}

#[tokio::test]
async fn unreadable_records_are_reported_as_damaged_and_the_engine_continues() {
    let temp = TempDir::new();
    let engine = open(&temp);
    for n in 0..200 {
        put(&engine, &format!("/{n:03}"), &"x".repeat(5_000)).await.unwrap();
    }
    let segments = temp.segments();
    assert!(segments.len() > 3);
    // Reading behind the end of a file fails like reading a bad sector: through a mapping, the process gets
    // a signal.
    let whole = std::fs::OpenOptions::new().write(true).open(&segments[1]).unwrap();
    whole.set_len(100_000).unwrap();
    let snapshot = engine.snapshot();
    let mut damaged = Vec::new();
    for entry in snapshot.prefix(b"/") {
        match entry.read() {
            Ok(record) => assert_eq!(record.value.len(), 5_000),
            Err(error) => {
                assert_eq!(
                    error,
                    ReadError::Damaged { key: entry.key().clone(), revision: entry.revision() }
                );
                damaged.push(entry.revision());
            }
        }
    }
    // Only the records in the cut part of the second segment are damaged. The whole segment has about fifty
    // records.
    assert!((25..60).contains(&damaged.len()), "{damaged:?}");
    assert!(damaged.windows(2).all(|pair| (pair[0]).next() == pair[1]), "{damaged:?}");
    assert!(engine.stats().unreadable_pages > 0);
    // Reads of other records are not affected.
    let (mut tail, mut seen) = (engine.tail(Revision::ZERO, Bytes::new()).unwrap(), 0);
    while seen < 200 {
        for event in tail.next(10).await.unwrap() {
            seen += 1;
            assert_eq!(
                (event.revision, event.entry.read().is_err()),
                (Revision::new(seen), damaged.contains(&Revision::new(seen)))
            );
        }
    }
    assert_eq!(put(&engine, "/new", "x").await.unwrap().revision, Revision::new(201));
    let again = format!("/{:03}", (damaged[0]).before());
    assert_eq!(value(&put(&engine, &again, "again").await.unwrap().entry), "again");
    engine.close().await;
}

#[tokio::test]
async fn damage_in_older_segments_does_not_affect_other_records() {
    let temp = TempDir::new();
    let engine = open(&temp);
    for n in 0..200 {
        put(&engine, &format!("/{n:03}"), &"x".repeat(5_000)).await.unwrap();
    }
    engine.checkpoint().await;
    engine.close().await;
    drop(engine);
    let segments = temp.segments();
    assert!(segments.len() > 3);
    // The first segment loses its last records (a block of zeros), and the second segment loses records in
    // its middle.
    let size = std::fs::metadata(&segments[0]).unwrap().len();
    overwrite(&segments[0], size - 12_000, &[0; 12_000]);
    overwrite(&segments[1], 100_000, &[0xee; 100]);
    // The checkpoint shows which records existed.
    assert!(!temp.checkpoints().is_empty());
    let engine = open(&temp);
    assert_eq!(
        (engine.revision(), engine.stats().keys, engine.stats().lost_revisions),
        (Revision::new(200), 200, 0)
    );
    let known = engine.snapshot().prefix(b"/").filter(|entry| entry.read().is_err()).count() as u64;
    assert!((3..=6).contains(&known), "{known}");
    engine.close().await;
    drop(engine);
    temp.remove_checkpoints();
    let engine = open(&temp);
    assert_eq!(engine.revision(), Revision::new(200));
    let stats = engine.stats();
    let snapshot = engine.snapshot();
    let damaged = snapshot.prefix(b"/").filter(|entry| entry.read().is_err()).count() as u64;
    // Two damaged keys are known: one in the second segment, and the key of the record in whose middle the
    // zeros begin.
    assert_eq!((damaged, damaged + stats.lost_revisions), (2, known));
    assert_eq!(snapshot.count_prefix(b"/"), 200 - stats.lost_revisions);
    assert_eq!(put(&engine, "/new", "x").await.unwrap().revision, Revision::new(201));
}

/// Restores the readable part of a store that cannot be opened. The new store continues above `newest`, the
/// newest revision of the old store, and reports the loss.
async fn restores_the_rest(temp: &TempDir, newest: u64) {
    let (copies, mut damages) = (TempDir::new(), 0);
    let dir = copies.path().join("rest");
    let count = |_: &offline::Damage| damages += 1;
    let done =
        offline::restore(temp.path(), &dir, offline::RestorePoint::Newest, true, count, |_, _| ()).unwrap();
    assert!(damages > 0 && !done.unaccepted.lost.is_empty(), "{done:?}");
    let engine = Engine::open(Options::new(&dir)).unwrap();
    assert!(engine.revision().get() > newest, "{newest}: {done:?}");
    assert_eq!(engine.losses().unaccepted(), done.unaccepted);
    engine.close().await;
}

#[tokio::test]
async fn a_missing_or_foreign_segment_is_named_in_the_error() {
    let build = async |temp: &TempDir| {
        let engine = open(temp);
        for n in 0..200 {
            put(&engine, &format!("/{n:03}"), &"x".repeat(5_000)).await.unwrap();
        }
        engine.close().await;
    };
    let refusal = |temp: &TempDir| {
        let text = Engine::open(engine::Options::new(temp.path())).unwrap_err().to_string();
        text.replace(temp.path().to_str().unwrap(), "")
    };
    let (temp, other) = (TempDir::new(), TempDir::new());
    build(&temp).await;
    build(&other).await;
    let missing = "segment is missing: put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup";
    let foreign =
        "segment belongs to another store: put the right file back, or restore the store from a backup";
    for at in 0..temp.segments().len() - 1 {
        let path = temp.segments().remove(at);
        let aside = temp.path().join("aside");
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(refusal(&temp), format!("/{:010}.segment: {missing}", at + 1));
        restores_the_rest(&temp, 200).await;
        std::fs::copy(other.segments().remove(at), &path).unwrap();
        let named = if at == 0 { 2 } else { at + 1 };
        assert_eq!(refusal(&temp), format!("/{named:010}.segment: {foreign}"));
        std::fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(open(&temp).revision(), Revision::new(200));
}

#[tokio::test]
async fn an_unfinished_next_segment_does_not_prevent_opening() {
    let temp = TempDir::new();
    store(&temp, &["zero"]).await;
    std::fs::write(temp.path().join("next.segment"), "half a header").unwrap();
    let engine = open(&temp);
    assert_eq!(engine.revision(), Revision::new(1));
    engine.close().await;
    assert_eq!(temp.segments().len(), 1);
}

#[tokio::test]
async fn arbitrary_file_contents_cause_neither_a_panic_nor_unwritten_values() {
    let temp = TempDir::new();
    let engine = open(&temp);
    for n in 0..60 {
        put(&engine, &format!("/{}", n % 20), &format!("value {n} {}", "x".repeat(n * 9))).await.unwrap();
    }
    engine.close().await;
    drop(engine);
    let path = temp.segments().remove(0);
    let good = std::fs::read(&path).unwrap();
    let used = 4096 + 60 * 350;
    let mut random = Random(11);
    for round in 0..250 {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(6) {
            let at = (if random.below(8) == 0 { random.below(4096) } else { random.below(used) }) as usize;
            match random.below(5) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at..at + 64].fill(0),
                2 => bytes[at..at + 512].iter_mut().for_each(|b| *b = random.next() as u8),
                3 => bytes.copy_within(at..at + 700, random.below(used) as usize / 8 * 8),
                _ => bytes.truncate(bytes.len().min(at + 4096 * random.below(3) as usize)),
            }
            let padded = bytes.len().max(used as usize + 5_000);
            bytes.resize(padded, 0);
        }
        if round % 10 == 0 {
            bytes.truncate(random.below(used) as usize);
        }
        // In an earlier round, a shortened segment may have made the store continue in another segment.
        temp.segments().iter().for_each(|path| std::fs::remove_file(path).unwrap());
        std::fs::write(&path, &bytes).unwrap();
        let Ok(engine) = Engine::open(engine::Options::new(temp.path())) else { continue };
        let newest = engine.revision();
        for revision in [Revision::new(newest.get() / 2), newest] {
            for entry in engine.snapshot_at(revision).unwrap().prefix(b"") {
                if let Ok(record) = entry.read() {
                    let expected = format!("value {} ", entry.revision().before());
                    assert!(record.value.starts_with(expected.as_bytes()), "round {round}");
                }
            }
        }
        let mut tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
        while tail.progress() < newest {
            match tail.next(100).await {
                Ok(events) => assert!(events.iter().all(|e| e.revision <= newest)),
                Err(_) => break,
            }
        }
        assert_eq!(put(&engine, "/new", "x").await.unwrap().revision, newest.next());
    }
}

#[tokio::test]
async fn a_directory_in_place_of_a_file_is_refused_with_its_name() {
    for name in ["0000000001.segment", "next.segment"] {
        let temp = TempDir::new();
        std::fs::create_dir(temp.path().join(name)).unwrap();
        let error = Engine::open(engine::Options::new(temp.path())).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn an_interrupted_replacement_is_named_and_no_empty_store_is_created_in_its_place() {
    let temp = TempDir::new();
    store(&temp, &["zero"]).await;
    let replaced = temp.path().with_extension("replaced");
    std::fs::rename(temp.path(), &replaced).unwrap();
    let error = Engine::open(engine::Options::new(temp.path())).unwrap_err().to_string();
    let (dir, name) = (temp.path().display(), replaced.display());
    assert_eq!(
        error,
        format!(
            "{dir}: there is no store at this path, because the replacement of the store was interrupted: rename {name} to this path"
        )
    );
    assert!(!temp.path().exists());
    std::fs::rename(&replaced, temp.path()).unwrap();
    assert_eq!(open(&temp).revision(), Revision::new(1));
}

#[tokio::test]
async fn a_store_whose_last_segment_is_missing_is_refused_until_the_loss_is_accepted() {
    let temp = TempDir::new();
    let options = Options { segment_bytes: SEGMENT_BYTES_MIN, ..Options::new(temp.path()) };
    for rolls in [1, 3] {
        let engine = Engine::open(options.clone()).unwrap();
        while temp.segments().len() < rolls {
            put(&engine, "/key", &"x".repeat(10_000)).await.unwrap();
        }
        let newest = engine.revision();
        engine.close().await;
        let last = temp.segments().pop().unwrap();
        let aside = temp.path().join("aside");
        std::fs::rename(&last, &aside).unwrap();

        let error = Engine::open(options.clone()).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::MissingEnd { .. }), "{error}");
        let advice = "make a store of the rest with restore --skip-damaged";
        assert!(error.to_string().contains(advice), "{error}");
        restores_the_rest(&temp, newest.get()).await;
        let store = offline::Store::open(temp.path()).unwrap();
        assert!(
            store.damage().iter().any(|damage| damage.problem == Problem::MissingEnd),
            "{:?}",
            store.damage()
        );

        // With the file back in place, nothing is lost.
        std::fs::rename(&aside, &last).unwrap();
        let engine = Engine::open(options.clone()).unwrap();
        assert_eq!(engine.revision(), newest);
        engine.close().await;
    }
    std::fs::remove_file(temp.segments().pop().unwrap()).unwrap();
    std::fs::remove_file(temp.path().join("high-water")).unwrap();
    temp.checkpoints().iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let engine = Engine::open(options.clone()).unwrap();
    engine.close().await;
    assert_eq!(offline::Store::open(temp.path()).unwrap().damage(), []);
}
