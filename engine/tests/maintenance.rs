//! Background maintenance of the store: history is compacted, space is reclaimed, keys expire, and opening is
//! fast. Readers and tails do not notice maintenance.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use engine::fault::{self, Disk};
use engine::{
    Change, CompactError, Durability, Engine, EventKind, Expected, KeyRange, Options, Payload, Revision,
    SnapshotError, TailError, Write,
};

mod support;
use support::{Random, TempDir, commit, delete, open, options, payload, put, value};

type State = BTreeMap<String, (Revision, Revision, String)>;

/// Returns every key with its revision, its created revision, and its value.
fn state_at(engine: &Engine, revision: u64) -> State {
    let snapshot = engine.snapshot_at(Revision::new(revision)).unwrap();
    let entries = snapshot.range(KeyRange::all()).map(|entry| {
        let key = String::from_utf8(entry.key().to_vec()).unwrap();
        (key, (entry.revision(), entry.created(), value(&entry)))
    });
    entries.collect()
}

fn state(engine: &Engine) -> State {
    state_at(engine, engine.revision().get())
}

fn small(temp: &TempDir) -> Options {
    options(temp, 64 * 1024, Durability::Relaxed)
}

/// Returns the size of the blocks that the store's files take on disk, in bytes.
fn disk_bytes(temp: &TempDir) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(temp.path()).unwrap();
    files.map(|file| file.unwrap().metadata().map_or(0, |metadata| metadata.blocks() * 512)).sum()
}

#[test]
fn a_requested_compaction_does_not_wait_for_the_next_interval() {
    let disk = Disk::new(1);
    let options = Options { history_retention: Duration::from_secs(300), ..Options::new("/simulated") };
    let (engine, mut stepper) = fault::open(&disk, &options).unwrap();
    for n in 0..3 {
        let change = Change::Put(payload(&n.to_string()));
        let write = Write { key: Bytes::from_static(b"/a"), expected: Expected::Any, change };
        stepper.write(&engine, write).unwrap();
    }
    // Maintenance has just looked for history to compact. The next search begins only after some seconds.
    while stepper.maintain() {}
    let mut compacted = pin!(engine.compact(Revision::new(3)));
    assert!(fault::now(compacted.as_mut()).is_none());
    for _ in 0..10 {
        while stepper.maintain() {}
        stepper.commit();
    }
    // The clock has not advanced since.
    assert_eq!(fault::now(compacted.as_mut()), Some(Ok(())));
}

#[tokio::test]
async fn compacted_revisions_cannot_be_read_and_later_ones_can() {
    let temp = TempDir::new();
    let engine = open(&temp);
    for n in 1..=20 {
        put(&engine, &format!("/{}", n % 4), &n.to_string()).await.unwrap();
    }
    delete(&engine, "/0").await.unwrap();
    let before: Vec<_> = (0..=21).map(|revision| state_at(&engine, revision)).collect();
    let old = engine.snapshot_at(Revision::new(3)).unwrap();
    let mut behind = engine.tail(Revision::new(2), Bytes::new()).unwrap();
    assert_eq!(
        engine.compact(Revision::new(22)).await,
        Err(CompactError::Future { current: Revision::new(21) })
    );
    engine.compact(Revision::new(15)).await.unwrap();
    assert_eq!(
        engine.compact(Revision::new(14)).await,
        Err(CompactError::Compacted { oldest: Revision::new(15) })
    );
    engine.compact(Revision::new(15)).await.unwrap();
    for round in 0..2 {
        let engine = if round == 0 {
            engine.clone()
        } else {
            engine.close().await;
            open(&temp)
        };
        assert_eq!(engine.stats().oldest, Revision::new(15));
        assert_eq!(
            engine.snapshot_at(Revision::new(14)).unwrap_err(),
            SnapshotError::Compacted { oldest: Revision::new(15) }
        );
        assert_eq!(
            engine.tail(Revision::new(14), Bytes::new()).unwrap_err(),
            TailError::Compacted { oldest: Revision::new(15) }
        );
        for revision in 15..=21 {
            assert_eq!(state_at(&engine, revision), before[revision as usize], "at {revision}");
        }
        let events = engine.tail(Revision::new(15), Bytes::new()).unwrap().next(100).await.unwrap();
        assert!(events.iter().map(|event| event.revision.get()).eq(16..=21));
        assert_eq!(events[0].previous.as_ref().map(value), Some("12".into()));
        assert_eq!(engine.stats().versions, 4 + 6);
    }
    // A snapshot stays readable; a tail that lags gets an error.
    assert_eq!(old.prefix(b"/").map(|entry| value(&entry)).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert_eq!(behind.next(1).await.unwrap_err(), TailError::Compacted { oldest: Revision::new(15) });
}

#[tokio::test]
async fn without_retention_only_the_newest_state_is_kept() {
    let temp = TempDir::new();
    let engine = Engine::open(Options { history_retention: Duration::ZERO, ..small(&temp) }).unwrap();
    for n in 0..50 {
        put(&engine, &format!("/{}", n % 5), "x").await.unwrap();
    }
    delete(&engine, "/0").await.unwrap();
    while engine.stats().versions > 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.settled().await;
    let stats = engine.stats();
    assert_eq!((stats.oldest, stats.keys), (Revision::new(51), 4));
    assert_eq!(
        engine.snapshot_at(Revision::new(50)).unwrap_err(),
        SnapshotError::Compacted { oldest: Revision::new(51) }
    );
}

#[tokio::test]
async fn maintenance_frees_space_and_changes_nothing_else() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let temp = TempDir::new();
        let mut engine = Engine::open(small(&temp)).unwrap();
        let mut held = Vec::new();
        for round in 0..8 {
            for n in 0..500 {
                let key = format!("/{}/{}", random.below(2), random.below(60));
                if random.below(4) == 0 {
                    let _ = delete(&engine, &key).await;
                } else {
                    let text = format!("{round}.{n} {}", "x".repeat(random.below(2_000) as usize));
                    put(&engine, &key, &text).await.unwrap();
                }
            }
            let expected = state(&engine);
            held.push((engine.snapshot(), expected.clone()));
            engine.compact(Revision::new(engine.revision().get() - random.below(100))).await.unwrap();
            engine.settled().await;
            assert_eq!(state(&engine), expected, "seed {seed}");
            let stats = engine.stats();
            // Dead records are only in segments that are mostly live, in the active segment, or in the
            // retained part.
            assert!(stats.record_bytes <= 2 * stats.live_bytes + 3 * 64 * 1024, "seed {seed}: {stats:?}");
            assert!(round < 2 || stats.rewritten_bytes > 0, "{stats:?}");
            match random.below(3) {
                0 => continue,
                1 => engine.close().await,
                _ => {}
            }
            if random.below(2) == 0 {
                temp.remove_checkpoints();
            }
            let oldest = stats.oldest;
            drop(engine);
            engine = Engine::open(small(&temp)).unwrap();
            assert_eq!((engine.stats().oldest, engine.stats().lost_revisions), (oldest, 0), "seed {seed}");
            assert_eq!(state(&engine), expected, "seed {seed}, opened again");
            let again = engine.stats();
            assert_eq!((again.live_bytes, again.versions), (stats.live_bytes, stats.versions), "seed {seed}");
        }
        // Old snapshots contain the same states as before, although their segments are gone from the
        // directory.
        for (snapshot, expected) in held {
            let shown: State = snapshot
                .range(KeyRange::all())
                .map(|e| {
                    (String::from_utf8(e.key().to_vec()).unwrap(), (e.revision(), e.created(), value(&e)))
                })
                .collect();
            assert_eq!(shown, expected);
        }
    }
}

#[tokio::test]
async fn a_deleted_key_does_not_come_back_while_its_put_is_still_on_disk() {
    let temp = TempDir::new();
    let engine = Engine::open(small(&temp)).unwrap();
    // The put is in a segment that stays mostly live; the delete is in a segment that is mostly dead.
    put(&engine, "/gone", "x").await.unwrap();
    for n in 0..60 {
        put(&engine, &format!("/live/{n}"), &"x".repeat(1_000)).await.unwrap();
    }
    delete(&engine, "/gone").await.unwrap();
    for n in 0..200 {
        put(&engine, "/churn", &format!("{n} {}", "x".repeat(1_000))).await.unwrap();
    }
    let expected = state(&engine);
    engine.compact(engine.revision()).await.unwrap();
    engine.settled().await;
    assert!(engine.stats().rewritten_bytes > 0);
    engine.close().await;
    drop(engine);
    temp.remove_checkpoints();
    let engine = Engine::open(small(&temp)).unwrap();
    assert_eq!(state(&engine), expected);
    assert!(engine.snapshot().get(b"/gone").is_none());
    assert_eq!(put(&engine, "/gone", "new").await.unwrap().entry.created(), engine.revision());
}

#[tokio::test]
async fn a_tail_receives_each_event_once_while_older_history_is_compacted() {
    let temp = TempDir::new();
    let engine = Engine::open(small(&temp)).unwrap();
    let mut tail = engine.tail(Revision::ZERO, "/t/".into()).unwrap();
    let mut expected = Vec::new();
    let mut seen = Vec::new();
    for n in 0..3_000u64 {
        let key = format!("/{}/{}", if n % 3 == 0 { "t" } else { "u" }, n % 7);
        let revision = put(&engine, &key, &"x".repeat(300)).await.unwrap().revision;
        if n % 3 == 0 {
            expected.push(revision);
        }
        if n % 500 == 499 {
            // Read the log, then let the store compact the revisions that were read.
            while tail.progress() < engine.revision() {
                seen.extend(tail.next(100).await.unwrap().iter().map(|event| event.revision));
            }
            engine.compact(Revision::new(engine.revision().get() - 100)).await.unwrap();
            engine.settled().await;
        }
    }
    // Three thousand records were written, but only the last ones are still on disk.
    assert!(engine.stats().record_bytes < 1_000 * 400, "{:?}", engine.stats());
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_store_opened_with_or_without_its_checkpoint_has_the_same_state() {
    let temp = TempDir::new();
    // The segments are so large that no checkpoint is written without a request.
    let large = || Engine::open(Options::new(temp.path())).unwrap();
    let engine = large();
    for n in 0..3_000 {
        put(&engine, &format!("/{:04}", n % 1_000), &n.to_string()).await.unwrap();
        if n % 7 == 0 {
            delete(&engine, &format!("/{:04}", n % 1_000)).await.unwrap();
        }
    }
    engine.compact(Revision::new(1_000)).await.unwrap();
    engine.checkpoint().await;
    let covered = engine.revision();
    assert_eq!(engine.stats().checkpoint, covered);
    put(&engine, "/after", "1").await.unwrap();
    delete(&engine, "/0001").await.unwrap();
    let now = state(&engine);
    let then = state_at(&engine, 2_000);
    let stats = engine.stats();
    engine.close().await;
    drop(engine);
    let path = temp.checkpoints().pop().unwrap();
    let image = std::fs::read(&path).unwrap();
    let check = |checkpoint: u64| {
        let engine = large();
        assert_eq!(engine.stats().checkpoint, Revision::new(checkpoint));
        assert_eq!((state(&engine), state_at(&engine, 2_000)), (now.clone(), then.clone()));
        let again = engine.stats();
        assert_eq!(
            (again.oldest, again.keys, again.versions, again.live_bytes, again.record_bytes),
            (stats.oldest, stats.keys, stats.versions, stats.live_bytes, stats.record_bytes)
        );
    };
    check(covered.get());
    let mut random = Random(5);
    for _ in 0..40 {
        // Whatever is wrong with a checkpoint, the log is read instead, and the file is removed.
        let mut bad = image.clone();
        match random.below(3) {
            0 => bad.truncate(random.below(image.len() as u64) as usize),
            1 => bad[random.below(120) as usize] ^= 1 << random.below(8),
            _ => {
                let at = 4_096 + random.below(20_000) as usize;
                bad[at] ^= 1 << random.below(8);
            }
        }
        std::fs::write(&path, &bad).unwrap();
        check(0);
        assert_eq!(temp.checkpoints().len(), 0);
    }
    std::fs::write(&path, &image).unwrap();
    check(covered.get());
}

#[tokio::test]
async fn preparing_to_close_leaves_little_log_after_the_checkpoint() {
    let temp = TempDir::new();
    let engine = Engine::open(Options::new(temp.path())).unwrap();
    for n in 0..100 {
        put(&engine, &format!("/{n}"), &"x".repeat(100_000)).await.unwrap();
    }
    let covered = engine.revision();
    engine.prepare_to_close().await;
    assert_eq!(engine.stats().checkpoint, covered);
    // The log after the checkpoint is short, so the next opening reads it fast, and another
    // checkpoint is not worth its cost.
    put(&engine, "/more", "x").await.unwrap();
    engine.prepare_to_close().await;
    assert_eq!(engine.stats().checkpoint, covered);
}

#[tokio::test]
async fn a_key_expires_and_a_watch_sees_it_deleted() {
    let temp = TempDir::new();
    let short = |text: &str, ttl| Payload { ttl: Some(ttl), ..payload(text) };
    let engine = open(&temp);
    let put_for = async |key: &str, ttl| {
        commit(&engine, key, Expected::Any, Change::Put(short("x", ttl))).await.unwrap()
    };
    put_for("/short", Duration::from_millis(10)).await;
    put_for("/long", Duration::from_secs(3_600)).await;
    put_for("/renewed", Duration::from_millis(10)).await;
    put(&engine, "/renewed", "for good").await.unwrap();
    put_for("/again", Duration::from_millis(10)).await;
    put_for("/again", Duration::from_secs(3_600)).await;
    let mut tail = engine.tail(Revision::new(1), Bytes::from("/short")).unwrap();
    let event = tail.next(10).await.unwrap().remove(0);
    assert_eq!((&event.key[..], event.kind), (&b"/short"[..], EventKind::Delete));
    assert_eq!(event.previous.as_ref().map(|previous| previous.revision()), Some(Revision::new(1)));
    assert_eq!(value(&event.entry), "x");
    // A key that expires while the store is closed is deleted after it is opened, with or without a
    // checkpoint.
    put_for("/down/1", Duration::from_millis(10)).await;
    engine.checkpoint().await;
    put_for("/down/2", Duration::from_millis(10)).await;
    engine.close().await;
    let early = engine.stats().expired;
    drop(engine);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let engine = open(&temp);
    while engine.snapshot().count_prefix(b"/down/") > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    engine.settled().await;
    let keys: Vec<_> = engine.snapshot().prefix(b"/").map(|entry| entry.key().clone()).collect();
    assert_eq!(keys, ["/again", "/long", "/renewed"]);
    assert_eq!(engine.stats().expiring, 2);
    // On a slow machine two more keys may have expired before they were written again.
    let expired = early + engine.stats().expired;
    assert!((3..=5).contains(&expired), "{expired}");
}

#[tokio::test]
async fn disk_use_stays_bounded_under_churn() {
    let temp = TempDir::new();
    let options = Options {
        segment_bytes: 1024 * 1024,
        durability: Durability::Relaxed,
        history_retention: Duration::ZERO,
        ..Options::new(temp.path())
    };
    let engine = Engine::open(options).unwrap();
    let mut random = Random(7);
    let mut largest = 0.0f64;
    for n in 0..40_000u64 {
        let key = format!("/{}", random.below(2_000));
        put(&engine, &key, &"x".repeat(2_000)).await.unwrap();
        if n % 4_000 == 3_999 {
            engine.settled().await;
            let stats = engine.stats();
            let allowed = 2 * stats.live_bytes + 6 * 1024 * 1024;
            assert!(disk_bytes(&temp) <= allowed, "{} of {allowed}: {stats:?}", disk_bytes(&temp));
            largest = largest.max(disk_bytes(&temp) as f64 / stats.live_bytes as f64);
        }
    }
    assert!(largest > 1.0);
}

#[tokio::test]
async fn history_beyond_its_size_limit_is_compacted_and_counters_survive_a_reopening() {
    const LIMIT: u64 = 512 * 1024;
    let temp = TempDir::new();
    let options = Options { history_bytes_max: LIMIT, ..small(&temp) };
    let mut engine = Engine::open(options.clone()).unwrap();
    let text = "x".repeat(1_000);
    for n in 0..4_000 {
        put(&engine, &format!("/{}", n * 7 % 100), &format!("{n} {text}")).await.unwrap();
        if n % 10 == 9 {
            delete(&engine, &format!("/{}", n * 7 % 100)).await.unwrap();
        }
    }
    // Compaction decides again after each step, so it is done when the counters no longer change.
    let mut stats = engine.stats();
    loop {
        let _ = engine.compact(stats.oldest).await;
        engine.settled().await;
        let before = std::mem::replace(&mut stats, engine.stats());
        if (before.oldest, before.live_bytes) == (stats.oldest, stats.live_bytes) {
            break;
        }
    }
    assert!(stats.oldest > Revision::ZERO && stats.oldest < stats.revision, "{stats:?}");
    // History ends at positions that are 64 KiB apart, so the chosen revision may be up to two of these
    // positions too early.
    let spare = 3 * 64 * 1024;
    assert!(stats.retained_bytes <= LIMIT + spare && stats.retained_bytes >= LIMIT / 2, "{stats:?}");
    assert_eq!(stats.live_bytes + stats.dead_bytes, stats.record_bytes);
    let before = (state_at(&engine, stats.oldest.get()), state(&engine));
    for with_checkpoint in [true, false] {
        engine.close().await;
        if !with_checkpoint {
            temp.remove_checkpoints();
        }
        // History has no limit here: a store checks the limit as soon as it is opened, and may compact more.
        engine = Engine::open(Options { history_bytes_max: u64::MAX, ..options.clone() }).unwrap();
        let again = engine.stats();
        assert_eq!((again.live_bytes, again.retained_bytes), (stats.live_bytes, stats.retained_bytes));
        assert_eq!((state_at(&engine, stats.oldest.get()), state(&engine)), before);
    }
    let newest: u64 = engine.snapshot().range(KeyRange::all()).map(|entry| entry.stored_len() as u64).sum();
    assert_eq!(engine.stats().live_bytes - engine.stats().retained_bytes, newest);
}
