//! Turns on the processor, for connections of flows that have much under way (docs/api/fairness.md#turns-of-connections).
//!
//! ```text
//! woken ─ crowded? ─ no ────────────────────────────────────────────► runs
//!              └ yes ─ a turn is free, or waited for ─► all others ─► runs once ─► the turn is the next one's
//! ```
//!
//! The runtime runs what is ready first in, first out. Hundreds of connections of a flood that are ready at once would all
//! come before a short request. So they wait here instead, and only as many of them as there are turns are the runtime's, which
//! leaves these for when it has run all else and has looked at its sockets. The thread then offers its core to other threads
//! before it goes on: those that commit writes and the kernel's, which sync them, want a core for some microseconds, and beside a
//! thread that is always busy they would wait for the end of its time slice.
//!
//! A turn lasts from when the runtime is told of the task until the task pauses, whatever it waits for then; so connections do
//! not wait for each other's peers. A task that keeps its thread longer, which waits for a file or a peer in place, holds the
//! others up for [`WAIT_MAX`] at most.
//!
//! Knows no requests: what makes a connection crowded is decided by flow control.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns for each core: the next one is the runtime's as soon as one is over, and a second would only stand before the others.
const TURNS_PER_CORE: usize = 1;

/// Longest wait for a turn; without one after that, a task runs all the same.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The turns of a server.
#[derive(Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    /// As many as the machine has a use for.
    pub(super) fn of_machine() -> Turns {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::new(cores * TURNS_PER_CORE)
    }

    fn new(count: usize) -> Turns {
        Turns(Arc::new(Semaphore::new(count)))
    }

    /// The place of a task that is going to want turns.
    pub(super) fn place(&self) -> Place {
        Place { turns: self.clone(), granted: None, waiting: None }
    }
}

/// What a wait for a turn comes to; nothing, if it took too long.
type Wait = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>;

/// The place of one task. It gives up its wait, or its turn, when it is dropped.
pub(super) struct Place {
    turns: Turns,
    /// A turn that the task has been queued for by the runtime.
    granted: Option<OwnedSemaphorePermit>,
    waiting: Option<Wait>,
}

impl Place {
    /// Polls once, in a turn if the task is crowded.
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
        // Not at once: the turn is taken until the task comes up again, behind all others.
        self.granted = Some(turn);
        wake_last(cx);
        Poll::Pending
    }
}

/// Wakes the task when its thread has run all that is ready and has looked at its sockets, or after as many turns of others as the
/// runtime lets pass between two such looks.
fn wake_last(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// A task that wants a turn for each of its steps, and counts them.
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
        // Without turns it would be 50 for each of its steps, and with turns that do not come last one.
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
        // A wait that is given up leaves no trace.
        let mut given_up = turns.place();
        let polled = std::future::poll_fn(|cx| Poll::Ready(given_up.poll(cx, true, |_| Poll::Ready(()))));
        assert!(polled.await.is_pending());
        drop(given_up);
        drop(held);
        assert_eq!(turns.0.available_permits(), 1);
    }
}
