//! Processor turns for connections whose flows have many requests in progress
//! (docs/api/fairness.md#turns-of-connections).
//!
//! ```text
//! woken ─ crowded? ─ no ────────────────────────────────────────────► runs
//!              └ yes ─ a turn is free, or waited for ─► all others ─► runs once ─► the turn goes to the next one
//! ```
//!
//! The runtime runs ready tasks in first-in, first-out order. Without turns, hundreds of connections of a
//! flood that are ready at the same time would all run before a short request. Therefore such connections
//! wait here. The runtime queues only as many of these connections as there are turns. Each connection runs
//! after the other ready tasks, and after the sockets were polled. The thread then yields its core to other
//! threads before it continues. The threads that commit writes, and the kernel threads that sync them, need a
//! core for some microseconds. Without this yield, such threads would wait until the time slice of the
//! current thread ends.
//!
//! A turn begins when the task is queued in the runtime, and ends when the task pauses for any reason.
//! Therefore connections do not wait for the peers of other connections. A task that blocks its thread longer
//! (on a file or on a peer) delays the other tasks by at most [`WAIT_MAX`].
//!
//! This module does not interpret requests. Flow control decides which connections have so many requests in
//! progress that they must wait for a turn.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of turns for each core. When a turn ends, the next turn of the core is queued at once, so a second turn
/// per core would only delay other tasks.
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

/// The place of a task among the tasks that take turns. Dropping the place ends the wait or the turn of the
/// task.
pub(super) struct TurnPlace {
    turns: Turns,
    /// Turn for which the task is queued in the runtime.
    granted: Option<OwnedSemaphorePermit>,
    waiting: Option<Wait>,
}

impl TurnPlace {
    /// Calls `poll`. If `is_crowded` is true, this function first waits for a turn.
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

/// Wakes the task after its thread has polled its sockets. The thread does so after all ready tasks have run,
/// or after a fixed number of task polls (the event interval of the runtime).
fn wake_last(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Returns a task that needs a turn for each of its steps. The task counts its finished steps in `done`.
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

    /// The clock is paused, so no task stops waiting for its turn because the machine is slow.
    #[tokio::test(start_paused = true)]
    async fn tasks_of_crowded_connections_take_turns_and_others_do_not_wait_for_them() {
        let turns = Turns::new(1);
        let (crowd, alone) = (Arc::default(), Arc::default());
        let flood: Vec<_> = (0..50).map(|_| tokio::spawn(steps(&turns, true, 10, &crowd))).collect();
        tokio::task::yield_now().await;
        let before = crowd.load(Relaxed);
        tokio::spawn(steps(&turns, false, 5, &alone)).await.unwrap();
        let meanwhile = crowd.load(Relaxed) - before;
        // Without turns, each of these steps would wait for 50 steps of the crowd. If the turns did not run
        // last, the number would be about the same.
        assert!(alone.load(Relaxed) == 5 && meanwhile <= 2, "{meanwhile} steps of the crowd meanwhile");
        for task in flood {
            task.await.unwrap();
        }
        assert_eq!(crowd.load(Relaxed), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_turn_is_limited_in_time() {
        let turns = Turns::new(1);
        let held = turns.0.clone().try_acquire_owned().unwrap();
        let done = Arc::default();
        let began = tokio::time::Instant::now();
        steps(&turns, true, 1, &done).await;
        assert!(began.elapsed() >= WAIT_MAX && done.load(Relaxed) == 1);
        // A cancelled wait takes no turn.
        let mut given_up = turns.place();
        let polled = std::future::poll_fn(|cx| Poll::Ready(given_up.poll(cx, true, |_| Poll::Ready(()))));
        assert!(polled.await.is_pending());
        drop(given_up);
        drop(held);
        assert_eq!(turns.0.available_permits(), 1);
    }
}
