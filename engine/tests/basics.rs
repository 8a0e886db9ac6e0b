//! The engine through its public interface: the behaviour that callers rely on, in small scenarios.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{
    Change, CommitError, Committed, Durability, Engine, Expected, KeyRange, OpenError, Options, Payload,
    Revision, SnapshotError, TailError, Write,
};

mod support;
use support::{TempDir, commit, delete, open, options, payload, put, put_if, value};

#[tokio::test]
async fn committed_writes_are_read_back_before_and_after_reopening() {
    let temp = TempDir::new();
    for round in 0..2 {
        let engine = open(&temp);
        if round == 0 {
            assert_eq!(engine.revision(), Revision::ZERO);
            let Committed { revision, entry } = put(&engine, "/a/1", "one").await.unwrap();
            assert_eq!(
                (revision, entry.revision(), entry.created()),
                (Revision::new(1), Revision::new(1), Revision::new(1))
            );
            assert_eq!(value(&entry), "one");
            put(&engine, "/a/2", "two").await.unwrap();
            let again = put(&engine, "/a/1", "uno").await.unwrap();
            assert_eq!((again.revision, again.entry.created()), (Revision::new(3), Revision::new(1)));
            let gone = delete(&engine, "/a/2").await.unwrap();
            assert_eq!(
                (gone.revision, value(&gone.entry).as_str(), gone.entry.created()),
                (Revision::new(4), "two", Revision::new(2))
            );
        }
        let now = engine.snapshot();
        assert_eq!(now.revision(), Revision::new(4));
        assert_eq!(value(&now.get(b"/a/1").unwrap()), "uno");
        assert!(now.get(b"/a/2").is_none());
        let then = engine.snapshot_at(Revision::new(2)).unwrap();
        let seen: Vec<_> = then.prefix(b"/a/").map(|e| (e.key().clone(), value(&e))).collect();
        assert_eq!(seen, [("/a/1".into(), "one".to_string()), ("/a/2".into(), "two".to_string())]);
        assert_eq!((now.count_prefix(b"/a/"), then.count_prefix(b"/a/")), (1, 2));
        assert_eq!(
            engine.snapshot_at(Revision::new(5)).unwrap_err(),
            SnapshotError::Future { current: Revision::new(4) }
        );
        engine.close().await;
    }
}

#[tokio::test]
async fn a_result_cached_from_a_snapshot_is_valid_until_a_key_changes() {
    let temp = TempDir::new();
    let engine = open(&temp);
    put(&engine, "/a/1", "one").await.unwrap();
    let last = engine.last_change("/a/".into());
    let holds = |snapshot: &engine::Snapshot| last.revision() <= snapshot.revision();
    let made = engine.snapshot();
    put(&engine, "/b/1", "one").await.unwrap();
    assert!(holds(&made), "nothing changed under the prefix");
    for step in 0..4 {
        let made = engine.snapshot();
        let done = match step {
            3 => delete(&engine, "/a/1").await.unwrap(),
            _ => put(&engine, "/a/1", "again").await.unwrap(),
        };
        assert!(!holds(&made), "step {step}");
        assert_eq!(last.revision(), done.revision);
        assert!(holds(&engine.snapshot()), "step {step}");
    }
    engine.close().await;
}

/// Returns the current revision that a conflict reports, or 0 if the key does not exist.
fn conflict<T: std::fmt::Debug>(result: Result<T, CommitError>) -> u64 {
    match result {
        Err(CommitError::Conflict { current }) => current.map_or(0, |entry| entry.revision().get()),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

#[tokio::test]
async fn a_write_is_committed_exactly_if_its_condition_holds() {
    // The state of the key before (absent, deleted, or at a revision), the expectation, and whether put and
    // delete succeed.
    #[derive(Clone, Copy, Debug)]
    enum State {
        Absent,
        Deleted,
        Present,
    }
    use State::{Absent, Deleted, Present};
    for (state, expected, put_ok, delete_ok) in [
        (Absent, Expected::Any, true, false),
        (Absent, Expected::Absent, true, false),
        (Absent, Expected::Revision(Revision::new(1)), false, false),
        (Deleted, Expected::Any, true, false),
        (Deleted, Expected::Absent, true, false),
        (Deleted, Expected::Revision(Revision::new(2)), false, false),
        (Deleted, Expected::Revision(Revision::new(3)), false, false),
        (Present, Expected::Any, true, true),
        (Present, Expected::Absent, false, false),
        (Present, Expected::Revision(Revision::new(2)), true, true),
        (Present, Expected::Revision(Revision::new(1)), false, false),
        (Present, Expected::Revision(Revision::new(9)), false, false),
    ] {
        for deleting in [false, true] {
            let temp = TempDir::new();
            let engine = open(&temp);
            put(&engine, "/other", "x").await.unwrap();
            let mut current = 0;
            if !matches!(state, Absent) {
                current = put(&engine, "/k", "old").await.unwrap().revision.get();
            }
            if matches!(state, Deleted) {
                delete(&engine, "/k").await.unwrap();
                current = 0;
            }
            let before = engine.revision();
            let change = if deleting { Change::Delete(None) } else { Change::Put(payload("new")) };
            let result = commit(&engine, "/k", expected, change).await;
            let case = format!("{state:?} {expected:?} deleting {deleting}: {result:?}");
            if if deleting { delete_ok } else { put_ok } {
                assert_eq!(result.expect(&case).revision, before.next(), "{case}");
            } else {
                assert_eq!(conflict(result), current, "{case}");
                assert_eq!(engine.revision(), before, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn writes_queued_together_see_each_other() {
    let temp = TempDir::new();
    let engine = open(&temp);
    // All these writes are in the queue before the first one is answered.
    let (a, b, c, d, e) = tokio::join!(
        put_if(&engine, "/k", Expected::Absent, "first"),
        put_if(&engine, "/k", Expected::Absent, "second"),
        delete(&engine, "/k"),
        put_if(&engine, "/k", Expected::Absent, "third"),
        delete(&engine, "/k"),
    );
    let a = a.unwrap();
    assert_eq!((a.revision, value(&a.entry).as_str()), (Revision::new(1), "first"));
    let Err(CommitError::Conflict { current: Some(current) }) = b else { panic!("{b:?}") };
    // The conflicting state is readable, wherever it is stored.
    assert_eq!((current.revision(), value(&current).as_str()), (Revision::new(1), "first"));
    let c = c.unwrap();
    assert_eq!(
        (c.revision, value(&c.entry).as_str(), c.entry.created()),
        (Revision::new(2), "first", Revision::new(1))
    );
    let d = d.unwrap();
    assert_eq!((d.revision, d.entry.created()), (Revision::new(3), Revision::new(3)));
    assert_eq!(value(&e.unwrap().entry), "third");
    assert_eq!(engine.snapshot().count_prefix(b""), 0);
}

#[tokio::test]
async fn exactly_one_of_many_writers_with_the_same_condition_succeeds() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let first = put(&engine, "/k", "0").await.unwrap().revision;
    let tries = (0..20).map(|n| {
        let engine = engine.clone();
        tokio::spawn(
            async move { put_if(&engine, "/k", Expected::Revision(first), &n.to_string()).await.is_ok() },
        )
    });
    let mut won = 0;
    for result in tries.collect::<Vec<_>>() {
        won += u32::from(result.await.unwrap());
    }
    assert_eq!(won, 1);
}

fn stamped(value: &'static str, at: u32) -> Payload {
    Payload { stamp_at: Some(at), value: Bytes::from_static(value.as_bytes()), ..Payload::default() }
}

#[tokio::test]
async fn the_revision_is_stamped_at_the_requested_offset() {
    let temp = TempDir::new();
    let engine = open(&temp);
    for (revision, (given, at, stored)) in
        (1..).zip([(r#"{"v":""}"#, 6, r#"{"v":"1"}"#), ("ab", 0, "2ab"), ("ab", 2, "ab3"), ("", 0, "4")])
    {
        let done = commit(&engine, "/k", Expected::Any, Change::Put(stamped(given, at))).await.unwrap();
        assert_eq!((done.revision, value(&done.entry).as_str()), (Revision::new(revision), stored));
    }
    // A delete stores the last state with its own revision in place of the old stamp, even if their lengths
    // differ.
    for n in 5..=99 {
        commit(&engine, "/k", Expected::Any, Change::Put(stamped("<>", 1))).await.unwrap();
        assert_eq!(engine.revision(), Revision::new(n));
    }
    let gone = delete(&engine, "/k").await.unwrap();
    assert_eq!((gone.revision, value(&gone.entry).as_str()), (Revision::new(100), "<100>"));
    // The delete gives a final state.
    put(&engine, "/k", "unstamped").await.unwrap();
    let own = commit(&engine, "/k", Expected::Any, Change::Delete(Some(stamped("[]", 1)))).await.unwrap();
    assert_eq!(value(&own.entry), "[102]");
    // Without a stamp the state stays unchanged.
    put(&engine, "/k", "unstamped").await.unwrap();
    assert_eq!(value(&delete(&engine, "/k").await.unwrap().entry), "unstamped");
    // The put and the delete are queued together, so the state that the delete copies with a new stamp is not
    // on disk yet.
    let (_, gone) = tokio::join!(
        commit(&engine, "/k", Expected::Any, Change::Put(stamped("<>", 1))),
        delete(&engine, "/k")
    );
    assert_eq!(value(&gone.unwrap().entry), "<106>");
    engine.close().await;
    assert_eq!(open(&temp).revision(), Revision::new(106));
}

#[tokio::test]
async fn writes_up_to_each_size_limit_are_accepted_and_larger_ones_refused() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let write = |key: usize, attributes: usize, value: usize, stamp_at| Write {
        key: vec![b'k'; key].into(),
        expected: Expected::Any,
        change: Change::Put(Payload {
            attributes: vec![b'a'; attributes].into(),
            value: vec![b'v'; value].into(),
            stamp_at,
            ttl: None,
            essential: false,
        }),
    };
    let error = async |write| engine.commit(write).await.unwrap_err().to_string();
    assert_eq!(error(write(0, 0, 0, None)).await, "key of 0 bytes, must have 1 to 1024");
    assert_eq!(error(write(1025, 0, 0, None)).await, "key of 1025 bytes, must have 1 to 1024");
    assert_eq!(error(write(1, 262_145, 0, None)).await, "attributes of 262145 bytes, more than 262144");
    assert_eq!(error(write(1, 0, 8_388_609, None)).await, "value of 8388609 bytes, more than 8388608");
    assert_eq!(error(write(1, 0, 5, Some(6))).await, "stamp at 6 in a value of 5 bytes");
    assert_eq!(engine.revision(), Revision::ZERO);
    // A record larger than a whole segment gets a segment of its own.
    let largest = engine.commit(write(1024, 262_144, 8_388_608, Some(8_388_608))).await.unwrap();
    let gone = engine
        .commit(Write { key: vec![b'k'; 1024].into(), expected: Expected::Any, change: Change::Delete(None) })
        .await
        .unwrap();
    for entry in [largest.entry, gone.entry] {
        let record = entry.read().unwrap();
        assert_eq!((record.attributes.len(), record.value.len()), (262_144, 8_388_609));
        assert_eq!(record.value.last(), Some(&(b'0' + entry.revision().get() as u8)));
    }
    engine.close().await;
    assert_eq!(open(&temp).stats().revision, Revision::new(2));
}

#[tokio::test]
async fn a_snapshot_never_changes() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let empty = engine.snapshot();
    for n in 0..100 {
        put(&engine, &format!("/k/{n:03}"), "old").await.unwrap();
    }
    let snapshot = engine.snapshot();
    let mut scan = snapshot.prefix(b"/k/");
    let first: Vec<_> = scan.by_ref().take(30).collect();
    for n in 0..100 {
        put(&engine, &format!("/k/{n:03}"), "new").await.unwrap();
        delete(&engine, &format!("/k/{:03}", n / 2)).await.ok();
        put(&engine, &format!("/k/{n:03}x"), "more").await.unwrap();
    }
    engine.close().await;
    drop(engine);
    let rest: Vec<_> = scan.collect();
    assert_eq!((first.len(), rest.len()), (30, 70));
    assert!(first.iter().chain(&rest).all(|entry| value(entry) == "old"));
    assert_eq!(snapshot.count_prefix(b"/k/"), 100);
    assert_eq!(empty.count_prefix(b""), 0);
    assert!(empty.get(b"/k/000").is_none());
    // A list in pages contains the same entries.
    let mut paged = Vec::new();
    let mut range = KeyRange::prefix(b"/k/");
    loop {
        let page: Vec<_> = snapshot.range(range.clone()).take(7).collect();
        let Some(last) = page.last() else { break };
        range = range.after(last.key());
        paged.extend(page.iter().map(|entry| entry.key().clone()));
        assert_eq!(snapshot.count(&range), 100 - paged.len() as u64);
    }
    assert_eq!(paged.len(), 100);
}

#[tokio::test]
async fn a_store_can_be_opened_only_once_at_a_time() {
    let temp = TempDir::new();
    let dir = temp.path().join("made/on/demand");
    let engine = Engine::open(Options::new(&dir)).unwrap();
    let error = Engine::open(Options::new(&dir)).unwrap_err();
    assert_eq!(error.to_string(), format!("store {} is in use by another process", dir.display()));
    assert!(matches!(error, OpenError::InUse { .. }));
    engine.close().await;
    // The store can be opened again after a close, even while a handle exists, and after a drop without a
    // close.
    let second = Engine::open(Options::new(&dir)).unwrap();
    drop(engine);
    drop(second);
    Engine::open(Options::new(&dir)).unwrap();
}

#[tokio::test]
async fn a_closed_store_refuses_writes_and_keeps_committed_ones() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let mut tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
    let writes: Vec<_> = (0..50)
        .map(|n| {
            let engine = engine.clone();
            tokio::spawn(async move { put(&engine, &format!("/{n}"), "x").await.is_ok() })
        })
        .collect();
    tokio::task::yield_now().await;
    engine.close().await;
    let mut kept = 0;
    for write in writes {
        kept += u64::from(write.await.unwrap());
    }
    assert_eq!(engine.revision(), Revision::new(kept));
    assert!(matches!(put(&engine, "/k", "x").await, Err(CommitError::Closed)));
    assert_eq!(engine.tail(Revision::ZERO, Bytes::new()).unwrap_err(), TailError::Closed);
    // The tail still returns what was committed before, and then ends.
    let mut seen = 0;
    let end = loop {
        match tail.next(10).await {
            Ok(events) => seen += events.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!((seen, end), (kept, TailError::Closed));
    engine.reached(Revision::MAX).await;
    assert_eq!(open(&temp).revision(), Revision::new(kept));
}

#[test]
fn refusals_to_open_are_one_line_with_the_path() {
    let patch = |path: &std::path::Path, version: u32| {
        let mut bytes = std::fs::read(path).unwrap();
        for at in [0, 2048] {
            bytes[at + 8..at + 12].copy_from_slice(&version.to_le_bytes());
            let crc = crc32fast::hash(&bytes[at..at + 124]);
            bytes[at + 124..at + 128].copy_from_slice(&crc.to_le_bytes());
        }
        std::fs::write(path, bytes).unwrap();
    };
    let refusal = |spoil: &dyn Fn(&std::path::Path)| {
        let temp = TempDir::new();
        drop(open(&temp));
        let path = temp.segments().remove(0);
        spoil(&path);
        let error = Engine::open(Options::new(temp.path())).unwrap_err();
        let text = error.to_string();
        assert!(!text.contains('\n') && text.contains(temp.path().to_str().unwrap()), "{text}");
        text.replace(temp.path().to_str().unwrap(), "")
    };
    assert_eq!(
        refusal(&|path| patch(path, 9)),
        "/0000000001.segment: store format 9 is newer than 2, the newest this release reads: \
         start the release that wrote it, or a later one"
    );
    assert_eq!(
        refusal(&|path| std::fs::write(path, "something else").unwrap()),
        "/0000000001.segment: both copies of its header are damaged, or it belongs to another \
         store: put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup"
    );
    assert_eq!(
        refusal(&|path| std::fs::rename(path, path.with_file_name("0000000002.segment")).unwrap()),
        "/0000000002.segment: both copies of its header are damaged, or it belongs to another \
         store: put the file back, make a store of the rest with restore --skip-damaged, or restore one from a backup"
    );
    let text = Engine::open(Options::new("/dev/null/store")).unwrap_err().to_string();
    assert!(text.starts_with("/dev/null/store: cannot create the store's directory: "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_share_syncs_and_all_acknowledged_writes_are_durable() {
    for durability in [Durability::Sync, Durability::Relaxed, Durability::Replicated] {
        let temp = TempDir::new();
        let engine = Engine::open(options(&temp, 256 * 1024, durability)).unwrap();
        let writers: Vec<_> = (0..64)
            .map(|writer| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut mine = Vec::new();
                    for n in 0..30 {
                        let key = format!("/w{writer}/{n}");
                        let done = put(&engine, &key, &"x".repeat(500 + n)).await.unwrap();
                        // A writer that got an answer can read its write.
                        assert!(engine.snapshot().get(key.as_bytes()).is_some());
                        mine.push((done.revision, key));
                    }
                    mine
                })
            })
            .collect();
        let mut all = Vec::new();
        for writer in writers {
            let mine = writer.await.unwrap();
            assert!(mine.is_sorted());
            all.extend(mine);
        }
        all.sort();
        assert!(all.iter().map(|(revision, _)| revision.get()).eq(1..=64 * 30));
        let stats = engine.stats();
        // Without a sync, a batch may be complete before the next write arrives.
        assert!(durability != Durability::Sync || stats.batches < stats.commits / 2, "{stats:?}");
        assert!(stats.segments > 3, "{stats:?}");
        engine.close().await;
        assert_eq!(engine.stats().synced, Revision::new(64 * 30));
        let engine = Engine::open(options(&temp, 256 * 1024, durability)).unwrap();
        let snapshot = engine.snapshot();
        for (revision, key) in all {
            let entry = snapshot.get(key.as_bytes()).unwrap();
            assert_eq!(entry.revision(), revision);
            entry.read().unwrap();
        }
        assert_eq!(snapshot.count_prefix(b"/w1/"), 30);
    }
}

#[tokio::test]
async fn waiting_for_a_revision_ends_when_it_is_committed() {
    let temp = TempDir::new();
    let engine = open(&temp);
    engine.reached(Revision::ZERO).await;
    let waiting = {
        let engine = engine.clone();
        tokio::spawn(async move {
            engine.reached(Revision::new(2)).await;
            engine.revision()
        })
    };
    let never = tokio::time::timeout(Duration::from_millis(20), engine.reached(Revision::MAX)).await;
    assert!(never.is_err());
    put(&engine, "/k", "1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    put(&engine, "/k", "2").await.unwrap();
    assert_eq!(waiting.await.unwrap(), Revision::new(2));
}

#[tokio::test]
async fn events_are_gathered_for_a_tail_with_a_gathering_period() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let tail = |gathers| engine.tail(Revision::ZERO, Bytes::new()).unwrap().gathering(gathers);
    let (mut soon, mut late) = (tail(Duration::from_millis(50)), tail(Duration::from_secs(3600)));
    let next_revisions = async |tail: &mut engine::Tail, max| {
        let events = tail.next(max).await.unwrap();
        events.iter().map(|event| event.revision.get()).collect::<Vec<_>>()
    };
    for at in 1..=3 {
        put(&engine, &format!("/{at}"), "x").await.unwrap();
    }
    // A tail that lags is not delayed.
    assert_eq!(
        (next_revisions(&mut late, 2).await, next_revisions(&mut late, 2).await),
        (vec![1, 2], vec![3])
    );
    assert_eq!(next_revisions(&mut soon, 10).await, [1, 2, 3]);
    put(&engine, "/4", "x").await.unwrap();
    put(&engine, "/5", "x").await.unwrap();
    assert_eq!(next_revisions(&mut soon, 10).await, [4, 5]);
    assert!(tokio::time::timeout(Duration::from_millis(100), late.next(10)).await.is_err());
    assert_eq!(late.progress(), Revision::new(3));
}

#[tokio::test]
async fn waiting_for_an_announcement_consumes_no_event() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let mut tail = engine.tail(Revision::ZERO, "/a".into()).unwrap();
    put(&engine, "/b", "x").await.unwrap();
    assert!(tokio::time::timeout(Duration::ZERO, tail.announced()).await.is_err());
    let announced = async {
        tail.announced().await;
        tail.announced().await;
    };
    let (put, ()) = tokio::join!(put(&engine, "/a", "x"), announced);
    put.unwrap();
    assert!(tail.has_news());
    let events = tail.next(10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.revision.get()).collect::<Vec<_>>(), [2]);
    assert!(!tail.has_news());
    // Closing also ends the wait for an announcement.
    tokio::join!(engine.close(), tail.announced());
    assert!(tail.next(10).await.is_err());
}

#[tokio::test]
async fn an_event_is_rendered_once_for_all_its_readers() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let mut tails: Vec<_> = (0..5).map(|_| engine.tail(Revision::ZERO, Bytes::new()).unwrap()).collect();
    put(&engine, "/k", "value").await.unwrap();
    let made = std::cell::Cell::new(0);
    let mut representations: Vec<Arc<String>> = Vec::new();
    for tail in &mut tails {
        let events = tail.next(10).await.unwrap();
        representations.push(events[0].memo.get_or_make(3, || {
            made.set(made.get() + 1);
            value(&events[0].entry)
        }));
        assert_eq!(events[0].memo.get::<String>(3).unwrap().as_str(), "value");
        assert!(events[0].memo.get::<String>(4).is_none());
        // A request for another type, or for a slot that does not exist, returns a value that is not cached.
        assert_eq!(*events[0].memo.get_or_make(3, || 7u32), 7);
        assert_eq!(*events[0].memo.get_or_make(200, || 8u32), 8);
    }
    assert_eq!(made.get(), 1);
    assert!(representations.iter().all(|r| Arc::ptr_eq(r, &representations[0])));
}
