//! Tests of tails and of waits for a revision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::hub::Hub;
use super::tail::{Tail, next_multiple};
use crate::error::TailError;
use crate::segments::Segments;
use crate::snapshot::Root;
use crate::types::Revision;

/// Returns the root of a store at `revision` without any key, readable from `oldest` on.
fn empty(revision: u64, oldest: u64) -> Root {
    Root {
        revision: Revision::new(revision),
        oldest: Revision::new(oldest),
        tree: Default::default(),
        segments: Segments::new(vec![]),
        end: 0,
    }
}

#[test]
fn tails_with_the_same_gathering_period_are_due_together() {
    let (since, period) = (Instant::now(), Duration::from_millis(10));
    for (elapsed_us, due_ms) in [(0, 10), (1, 10), (9_999, 10), (10_000, 20), (10_001, 20), (123_456, 130)] {
        let due = next_multiple(since, since + Duration::from_micros(elapsed_us), period);
        assert_eq!(due - since, Duration::from_millis(due_ms), "{elapsed_us}");
    }
}

#[tokio::test]
async fn dropping_a_wait_for_a_revision_removes_its_waiter() {
    let hub = Hub::new(empty(0, 0), 4);
    for revision in 1..100 {
        let wait = hub.reached(Revision::new(revision * 1_000));
        assert!(tokio::time::timeout(std::time::Duration::ZERO, wait).await.is_err());
    }
    assert!(hub.registry.lock().waiters.is_empty());
}

#[tokio::test]
async fn a_tail_that_must_be_complete_ends_at_a_gap() {
    let hub = Arc::new(Hub::new(empty(9, 5), 4));
    let tail = |after| Tail::begin(&hub, Revision::new(after), Bytes::new());
    let (mut follower, mut witness) = (tail(9).unwrap(), tail(9).unwrap().complete().unwrap());
    let mut later = tail(30).unwrap().complete().unwrap();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move { (witness.next(1).await.map(|events| events.len()), witness) });
    tokio::task::yield_now().await;
    hub.pass_over(Revision::new(20));
    // Only the gap could end this wait.
    let (ended, witness) = waiting.join_next().await.unwrap().unwrap();
    let missed = TailError::Compacted { oldest: Revision::new(20) };
    assert_eq!(ended.unwrap_err(), missed);
    for revision in [12, 20] {
        hub.publish(empty(revision, 5), &[]);
    }
    assert_eq!(witness.progress(), Revision::new(9));
    assert_eq!((follower.progress(), later.progress()), (Revision::new(20), Revision::new(30)));
    for tail in [&mut follower, &mut later] {
        assert!(tokio::time::timeout(std::time::Duration::from_millis(1), tail.next(1)).await.is_err());
    }
    assert_eq!(tail(19).unwrap().complete().map(drop).unwrap_err(), missed);
    assert!(tail(19).is_ok() && tail(20).unwrap().complete().is_ok());
}

#[tokio::test]
async fn a_tail_cannot_begin_at_a_compacted_revision() {
    let hub = Arc::new(Hub::new(empty(9, 5), 4));
    assert_eq!(
        Tail::begin(&hub, Revision::new(4), Bytes::new()).unwrap_err(),
        TailError::Compacted { oldest: Revision::new(5) }
    );
    assert!(Tail::begin(&hub, Revision::new(5), Bytes::new()).is_ok());
    assert_eq!(hub.tails(), 0);
}
