//! Tails return every matching event once and in order, whether the events are read from the ring
//! or from the log, and even if they are read late.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Change, Durability, Engine, Event, EventKind, Expected, Revision, Tail};

mod support;
use support::{TempDir, commit, delete, open, options, payload, put, value};

/// Returns the next `count` events.
async fn take(tail: &mut Tail, count: usize) -> Vec<Arc<Event>> {
    let mut events = Vec::new();
    while events.len() < count {
        let more = tail.next((count - events.len()).min(700)).await.unwrap();
        assert!(!more.is_empty());
        events.extend(more);
    }
    events
}

/// Returns whether no event arrives within a short time.
async fn is_quiet(tail: &mut Tail) -> bool {
    tokio::time::timeout(Duration::from_millis(20), tail.next(1)).await.is_err()
}

#[tokio::test]
async fn an_event_contains_the_previous_and_the_new_state() {
    let temp = TempDir::new();
    for round in 0..2 {
        let engine = open(&temp);
        if round == 0 {
            put(&engine, "/a", "one").await.unwrap();
            put(&engine, "/b", "other").await.unwrap();
            put(&engine, "/a", "two").await.unwrap();
            delete(&engine, "/a").await.unwrap();
            put(&engine, "/a", "three").await.unwrap();
        }
        // In the second round the events are read from the log.
        let mut tail = engine.tail(Revision::ZERO, "/a".into()).unwrap();
        let seen: Vec<_> = take(&mut tail, 4)
            .await
            .iter()
            .map(|e| {
                let previous = e.previous.as_ref().map(|p| (p.revision().get(), value(p)));
                (e.revision.get(), e.kind, value(&e.entry), e.entry.created().get(), previous)
            })
            .collect();
        let (p, d) = (EventKind::Put, EventKind::Delete);
        assert_eq!(
            seen,
            [
                (1, p, "one".into(), 1, None),
                (3, p, "two".into(), 1, Some((1, "one".into()))),
                (4, d, "two".into(), 1, Some((3, "two".into()))),
                (5, p, "three".into(), 5, None),
            ]
        );
        assert!(is_quiet(&mut tail).await);
    }
}

#[tokio::test]
async fn a_tail_follows_only_its_prefix_and_its_progress_includes_other_keys() {
    let temp = TempDir::new();
    let engine = open(&temp);
    put(&engine, "/pods/a", "1").await.unwrap();
    let mut pods = engine.tail(Revision::ZERO, "/pods/".into()).unwrap();
    let mut one = engine.tail(Revision::new(1), "/pods/a".into()).unwrap();
    let mut all = engine.tail(Revision::new(1), Bytes::new()).unwrap();
    let future = engine.tail(Revision::new(100), "/pods/".into()).unwrap();
    // The tails have not examined any revision yet, so they report no progress.
    assert_eq!(
        (pods.progress(), one.progress(), future.progress()),
        (Revision::ZERO, Revision::new(1), Revision::new(100))
    );
    assert_eq!(take(&mut pods, 1).await[0].revision, Revision::new(1));
    for key in ["/nodes/a", "/podsx", "/pod", "/p", "/"] {
        put(&engine, key, "x").await.unwrap();
    }
    assert_eq!(
        (pods.progress(), one.progress(), all.progress()),
        (Revision::new(6), Revision::new(6), Revision::new(1))
    );
    assert!(is_quiet(&mut pods).await);
    put(&engine, "/pods/b", "2").await.unwrap();
    put(&engine, "/pods/a", "3").await.unwrap();
    assert_eq!(
        (pods.progress(), one.progress(), all.progress()),
        (Revision::new(6), Revision::new(7), Revision::new(1))
    );
    assert_eq!(take(&mut pods, 1).await[0].revision, Revision::new(7));
    assert_eq!(pods.progress(), Revision::new(7));
    assert_eq!(take(&mut pods, 1).await[0].revision, Revision::new(8));
    assert_eq!(take(&mut one, 1).await[0].revision, Revision::new(8));
    assert_eq!(pods.progress(), Revision::new(8));
    let revisions: Vec<_> = take(&mut all, 7).await.iter().map(|e| e.revision.get()).collect();
    assert_eq!(revisions, [2, 3, 4, 5, 6, 7, 8]);
    drop((pods, one, all));
    assert_eq!(engine.stats().tails, 1);
}

#[tokio::test]
async fn a_tail_may_begin_at_a_future_revision() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let mut tail = engine.tail(Revision::new(3), Bytes::new()).unwrap();
    for n in 1..=3 {
        put(&engine, "/k", &n.to_string()).await.unwrap();
        assert!(is_quiet(&mut tail).await);
        assert_eq!(tail.progress(), Revision::new(3));
    }
    put(&engine, "/k", "4").await.unwrap();
    assert_eq!(take(&mut tail, 1).await[0].revision, Revision::new(4));
}

#[tokio::test]
async fn dropping_a_wait_for_events_loses_none() {
    let temp = TempDir::new();
    let engine = open(&temp);
    let mut tail = engine.tail(Revision::ZERO, Bytes::new()).unwrap();
    let writer = {
        let engine = engine.clone();
        tokio::spawn(async move {
            for n in 0..300 {
                put(&engine, &format!("/{n}"), "x").await.unwrap();
            }
        })
    };
    let mut next = 1;
    while next <= 300 {
        if let Ok(events) = tokio::time::timeout(Duration::from_micros(50), tail.next(2)).await {
            for event in events.unwrap() {
                assert_eq!(event.revision, Revision::new(next));
                next += 1;
            }
        }
    }
    writer.await.unwrap();
}

/// Commits many writes concurrently.
async fn write_many(engine: &Engine, from: u64, count: u64) {
    let mut writes = Vec::new();
    for n in from..from + count {
        let engine = engine.clone();
        writes.push(tokio::spawn(async move {
            let key = format!("/{}/{}", ["even", "odd"][n as usize % 2], n % 500);
            commit(&engine, &key, Expected::Any, Change::Put(payload(&n.to_string()))).await.unwrap();
        }));
    }
    for write in writes {
        write.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_tail_moves_from_the_log_to_the_ring_without_gap_or_repetition() {
    let temp = TempDir::new();
    let engine = Engine::open(options(&temp, 512 * 1024, Durability::Relaxed)).unwrap();
    // Write twice as many events as the ring holds, then continue while the tails catch up.
    write_many(&engine, 0, 33_000).await;
    let writer = {
        let engine = engine.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                write_many(&engine, 33_000 + round * 200, 200).await;
            }
        })
    };
    let readers = [("/", 37_000), ("/even/", 18_500), ("/odd/7", 0), ("/none", 0)].map(|(prefix, count)| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut tail = engine.tail(Revision::ZERO, prefix.into()).unwrap();
            let mut events = take(&mut tail, count).await;
            // Tails with an unknown number of events stop when no more events can follow.
            while tail.progress() < Revision::new(37_000) {
                match tokio::time::timeout(Duration::from_millis(50), tail.next(64)).await {
                    Ok(more) => events.extend(more.unwrap()),
                    Err(_) => continue,
                }
            }
            (prefix, events)
        })
    });
    let mut all = std::collections::BTreeMap::new();
    for reader in readers {
        let (prefix, events) = reader.await.unwrap();
        assert!(events.is_sorted_by(|a, b| a.revision < b.revision), "{prefix}");
        if prefix == "/" {
            assert!(events.iter().map(|e| e.revision.get()).eq(1..=37_000));
            let mut newest = std::collections::HashMap::new();
            for event in &events {
                let previous = newest.insert(event.key.clone(), event.revision);
                assert_eq!(event.previous.as_ref().map(|p| p.revision()), previous);
            }
            all = events.iter().map(|e| (e.revision, e.key.clone())).collect();
            continue;
        }
        let expected = all.iter().filter(|(_, key)| key.starts_with(prefix.as_bytes())).map(|(r, _)| *r);
        assert!(events.iter().map(|e| e.revision).eq(expected), "{prefix}");
    }
    writer.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tails_receive_only_their_own_events() {
    let temp = TempDir::new();
    let engine = Engine::open(options(&temp, 1 << 20, Durability::Relaxed)).unwrap();
    let readers: Vec<_> = (0..1_000)
        .map(|n| {
            let mut tail = engine.tail(Revision::ZERO, format!("/{n}/").into()).unwrap();
            tokio::spawn(async move {
                let events = take(&mut tail, 3).await;
                assert!(events.iter().all(|e| e.key.starts_with(format!("/{n}/").as_bytes())));
            })
        })
        .collect();
    for round in 0..3 {
        for n in 0..1_000 {
            put(&engine, &format!("/{n}/x"), &round.to_string()).await.unwrap();
        }
    }
    for reader in readers {
        reader.await.unwrap();
    }
    assert_eq!(engine.stats().tails, 0);
}
