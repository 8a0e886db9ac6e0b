//! Tests of docs/api/fairness.md#levels.

use std::collections::BTreeSet;

use super::*;

const SHORT: Duration = Duration::from_millis(50);

fn queuing(queues: usize, hand: usize, length: usize) -> Manner {
    Manner::Queue(Queuing { queues, hand, length })
}

fn level(manner: Manner, limit: u32) -> Arc<PriorityLevel> {
    Arc::new(PriorityLevel::new("l", manner, limit))
}

fn entrant(flow: &'static str, seats: u32) -> Entrant<'static> {
    let hash = crate::state::fairness::matching::hash("s", flow);
    Entrant { hash, schema: "s", flow, attributes_text: "", seats, patience: Duration::from_secs(30) }
}

/// Starts a request that waits in its own task.
fn wait(
    level: &Arc<PriorityLevel>,
    entrant: Entrant<'static>,
) -> tokio::task::JoinHandle<Result<Seat, SeatRefusal>> {
    let level = level.clone();
    tokio::spawn(async move { level.enter(entrant, |_| ()).await })
}

/// Waits until `count` requests wait at the level.
async fn until_waiting(level: &PriorityLevel, count: usize) {
    while level.report().waiting != count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_level_without_queues_refuses_a_request_without_a_free_seat() {
    let level = level(Manner::Reject, 2);
    let held = [
        level.enter(entrant("a", 1), |_| ()).await.unwrap(),
        level.enter(entrant("a", 1), |_| ()).await.unwrap(),
    ];
    let refused = level.enter(entrant("a", 1), |_| ()).await.unwrap_err();
    assert_eq!((refused.why, refused.retry_after_s), (Why::NoSeat, 1));
    drop(held);
    level.enter(entrant("a", 1), |_| ()).await.unwrap();
}

#[tokio::test]
async fn an_idle_level_executes_one_request_even_without_enough_seats() {
    for seats in [1, 7] {
        let level = level(queuing(1, 1, 1), 0);
        let held = level.enter(entrant("a", seats), |_| ()).await.unwrap();
        assert!(level.enter(Entrant { patience: SHORT, ..entrant("a", 1) }, |_| ()).await.is_err());
        drop(held);
    }
}

#[tokio::test]
async fn an_exempt_level_serves_every_request() {
    let level = level(Manner::Exempt, 0);
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(level.enter(entrant("a", 1), |_| ()).await.unwrap());
    }
    assert_eq!(level.report().executing, 100);
}

#[tokio::test]
async fn a_full_queue_refuses_and_a_free_seat_goes_to_a_waiting_request() {
    let level = level(queuing(1, 1, 1), 1);
    let held = level.enter(entrant("a", 1), |_| ()).await.unwrap();
    let waiting = wait(&level, entrant("a", 1));
    until_waiting(&level, 1).await;
    assert_eq!(level.enter(entrant("a", 1), |_| ()).await.unwrap_err().why, Why::QueueFull);
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    let report = level.report();
    assert_eq!((report.executing, report.waiting), (0, 0));
    assert_eq!(report.counts, Counts { dispatched: 2, rejected: 1, ..Counts::default() });
}

#[tokio::test]
async fn a_request_waits_no_longer_than_its_patience() {
    let level = level(queuing(4, 2, 10), 1);
    let held = level.enter(entrant("a", 1), |_| ()).await.unwrap();
    let refused = level.enter(Entrant { patience: SHORT, ..entrant("b", 1) }, |_| ()).await.unwrap_err();
    assert_eq!(refused.why, Why::TimeOut);
    assert_eq!((level.report().waiting, level.report().counts.timed_out), (0, 1));
    drop(held);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_the_queue() {
    let level = level(queuing(1, 1, 10), 1);
    let held = level.enter(entrant("a", 1), |_| ()).await.unwrap();
    let gone = wait(&level, entrant("a", 1));
    until_waiting(&level, 1).await;
    let next = wait(&level, entrant("a", 1));
    until_waiting(&level, 2).await;
    gone.abort();
    until_waiting(&level, 1).await;
    drop(held);
    drop(next.await.unwrap().unwrap());
    assert_eq!(level.report().counts.cancelled, 1);
}

#[tokio::test]
async fn a_wide_request_that_is_dropped_no_longer_blocks_requests_behind_it() {
    let level = level(queuing(1, 1, 10), 3);
    let _held = level.enter(entrant("a", 1), |_| ()).await.unwrap();
    let wide = wait(&level, entrant("a", 3));
    until_waiting(&level, 1).await;
    let narrow = wait(&level, entrant("a", 1));
    until_waiting(&level, 2).await;
    wide.abort();
    narrow.await.unwrap().unwrap();
}

#[tokio::test]
async fn flows_take_turns_however_many_requests_one_of_them_has() {
    let level = level(queuing(64, 1, 100), 1);
    let held = level.enter(entrant("third", 1), |_| ()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (count, flow) in [(20, "greedy"), (1, "modest")] {
        for _ in 0..count {
            let order = order.clone();
            let before = level.report().waiting;
            tasks.push(tokio::spawn({
                let level = level.clone();
                async move {
                    let seat = level.enter(entrant(flow, 1), |_| ()).await.unwrap();
                    order.lock().push(flow);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    drop(seat);
                }
            }));
            until_waiting(&level, before + 1).await;
        }
    }
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let place = order.lock().iter().position(|flow| *flow == "modest").unwrap();
    assert!(place <= 2, "the modest flow was served as number {}", place + 1);
}

#[tokio::test]
async fn a_flood_leaves_the_reserved_seats_to_flows_with_few_requests() {
    let level = level(queuing(64, 6, 50), 16);
    let now = |flow, seats| level.enter(Entrant { patience: Duration::ZERO, ..entrant(flow, seats) }, |_| ());
    let mut flood = Vec::new();
    while let Ok(seat) = now("flood", 1).await {
        flood.push(seat);
    }
    assert_eq!(flood.len(), 14, "an eighth is kept");
    let waiting: Vec<_> = (0..10).map(|_| wait(&level, entrant("flood", 1))).collect();
    until_waiting(&level, 10).await;
    let modest = now("modest", 1).await.unwrap();
    assert!(now("modest", 1).await.is_err(), "a flow has half of the kept seats");
    assert!(now("flood", 2).await.is_err());
    let wide = now("wide", 9).await.unwrap();
    assert_eq!(wide.count(), 1, "the only request of a flow takes what there is for one");
    drop(wide);
    let other = now("other", 1).await.unwrap();
    // A waiting request gets a reserved seat as soon as a reserved seat is free, even if the flood has waited
    // longer.
    let third = wait(&level, entrant("third", 1));
    until_waiting(&level, 11).await;
    drop(other);
    let third = third.await.unwrap().unwrap();
    assert_eq!(level.report().waiting, 10);
    drop((modest, third, flood));
    for waiting in waiting {
        drop(waiting.await.unwrap().unwrap());
    }
    let report = level.report();
    assert_eq!((report.executing, report.waiting), (0, 0));
}

#[tokio::test]
async fn reducing_the_number_of_queues_loses_no_request() {
    let level = level(queuing(64, 1, 100), 1);
    let held = level.enter(entrant("a", 1), |_| ()).await.unwrap();
    let mut waiting = Vec::new();
    for (count, flow) in ["b", "c", "d", "e", "f", "g"].into_iter().enumerate() {
        waiting.push(tokio::spawn({
            let level = level.clone();
            async move { level.enter(entrant(flow, 1), |_| ()).await.map(drop) }
        }));
        until_waiting(&level, count + 1).await;
    }
    level.set_manner(queuing(1, 1, 100));
    level.set_limit(2);
    drop(held);
    for waiting in waiting {
        waiting.await.unwrap().unwrap();
    }
    level.set_manner(Manner::Reject);
    assert!(level.report().queues.is_empty());
}

#[test]
fn a_shuffle_shard_hand_has_distinct_queues() {
    for hash in (0..1_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
        for (queues, hand) in [(1, 1), (4, 4), (64, 6), (128, 8)] {
            let dealt = deal(hash, queues, hand);
            assert_eq!(
                dealt.iter().collect::<BTreeSet<_>>().len(),
                hand,
                "{hash} {queues} {hand}: {dealt:?}"
            );
            assert!(dealt.iter().all(|card| *card < queues), "{dealt:?}");
        }
    }
}
