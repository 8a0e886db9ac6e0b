//! Processor turns for connections whose flows have many requests in progress
//! (docs/api/fairness.md#turns-of-connections).
//!
//! ```text
//! woken ─ crowded? ─ no ────────────────────────────────────────────► runs
//!              └ yes ─ a turn is free, or waited for ─► all others ─► runs once ─► the turn goes to the next one
//! ```
//!
//! The runtime runs ready tasks in first-in, first-out order. Without turns, hundreds of connections of a
//! flood that are ready at the same time would all run before a short request. Therefore they wait here, and
//! only as many of them as there are turns are queued in the runtime, each to run after the other ready tasks
//! and after the sockets were polled. The thread then yields its core to other threads before it continues.
//! The threads that commit writes, and the kernel threads that sync them, need a core for some microseconds.
//! If the thread did not yield, they would wait for the end of its time slice.
//!
//! A turn lasts from when the task is queued in the runtime until the task pauses, whatever it then waits
//! for; so connections do not wait for the peers of other connections. A task that blocks its thread longer
//! (on a file or on a peer) delays the others by at most [`WAIT_MAX`].
//!
//! This module does not interpret requests. Flow control decides which connections are crowded.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of turns for each core. The next turn is queued as soon as one ends, and a second one would only
/// delay other tasks.
const TURNS_PER_CORE: usize = 1;

/// Maximum wait for a turn; after that, a task runs without a turn.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The turns of a server.
#[derive(Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    /// Creates as many turns as the machine can use.
    pub(super) fn of_machine() -> Turns {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::new(cores * TURNS_PER_CORE)
    }

    fn new(count: usize) -> Turns {
        Turns(Arc::new(Semaphore::new(count)))
    }

    /// Returns the place of a task that will need turns.
    pub(super) fn place(&self) -> TurnPlace {
        TurnPlace { turns: self.clone(), granted: None, waiting: None }
    }
}

/// A wait for a turn; resolves to `None` if the wait took too long.
type Wait = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// The place of one task among those that take turns. Dropping it ends its wait or its turn.
pub(super) struct TurnPlace {
    turns: Turns,
    /// Turn for which the task is queued in the runtime.
    granted: Option<OwnedSemaphorePermit>,
    waiting: Option<Wait>,
}

impl TurnPlace {
    /// Polls once; if the task is crowded, only in a turn.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        is_crowded: bool,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if !is_crowded {
            (self.granted, self.waiting) = (None, None);
            return poll(cx);
        }
        let _turn = ready!(self.poll_turn(cx));
        poll(cx)
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        if let Some(turn) = self.granted.take() {
            std::thread::yield_now();
            return Poll::Ready(Some(turn));
        }
        let free = match self.waiting {
            Some(_) => None,
            None => self.turns.0.clone().try_acquire_owned().ok(),
        };
        let turn = if let Some(turn) = free {
            turn
        } else {
            let waiting = self.waiting.get_or_insert_with(|| {
                let turn = self.turns.0.clone().acquire_owned();
                // The semaphore is never closed.
                Box::pin(async { tokio::time::timeout(WAIT_MAX, turn).await.ok()?.ok() })
            });
            let turn = ready!(waiting.as_mut().poll(cx));
            self.waiting = None;
            let Some(turn) = turn else { return Poll::Ready(None) };
            turn
        };
        // The task does not run at once: it keeps the turn until the runtime runs it again, after all other
        // tasks.
        self.granted = Some(turn);
        wake_last(cx);
        Poll::Pending
    }
}

/// Wakes the task after its thread has run all ready tasks and has polled its sockets, or after the number of
/// task polls that the runtime does between two polls of its sockets.
fn wake_last(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Returns a task that needs a turn for each of its steps, and counts them.
    fn steps(
        turns: &Turns,
        is_crowded: bool,
        count: usize,
        done: &Arc<AtomicUsize>,
    ) -> impl Future<Output = ()> + use<> {
        let (mut place, mut left, done) = (turns.place(), count, done.clone());
        std::future::poll_fn(move |cx| {
            place.poll(cx, is_crowded, |cx| {
                done.fetch_add(1, Relaxed);
                left -= 1;
                if left == 0 {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
        })
    }

    #[tokio::test]
    async fn the_crowded_take_turns_and_others_do_not_wait_for_them() {
        let turns = Turns::new(1);
        let (crowd, alone) = (Arc::default(), Arc::default());
        let flood: Vec<_> = (0..50).map(|_| tokio::spawn(steps(&turns, true, 10, &crowd))).collect();
        tokio::task::yield_now().await;
        let before = crowd.load(Relaxed);
        tokio::spawn(steps(&turns, false, 5, &alone)).await.unwrap();
        let meanwhile = crowd.load(Relaxed) - before;
        // Without turns there would be 50 steps of the crowd for each of these steps, and similarly with
        // turns that do not run last.
        assert!(alone.load(Relaxed) == 5 && meanwhile <= 2, "{meanwhile} steps of the crowd meanwhile");
        for task in flood {
            task.await.unwrap();
        }
        assert_eq!(crowd.load(Relaxed), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_not_waited_for() {
        let turns = Turns::new(1);
        let held = turns.0.clone().try_acquire_owned().unwrap();
        let done = Arc::default();
        let began = tokio::time::Instant::now();
        steps(&turns, true, 1, &done).await;
        assert!(began.elapsed() >= WAIT_MAX && done.load(Relaxed) == 1);
        // A cancelled wait leaves no trace.
        let mut given_up = turns.place();
        let polled = std::future::poll_fn(|cx| Poll::Ready(given_up.poll(cx, true, |_| Poll::Ready(()))));
        assert!(polled.await.is_pending());
        drop(given_up);
        drop(held);
        assert_eq!(turns.0.available_permits(), 1);
    }
}
