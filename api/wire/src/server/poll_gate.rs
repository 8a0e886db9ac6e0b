//! Futures that are rarely ready, in a task that is often woken for other reasons.
//!
//! A task that is woken polls all its futures, even if only one future caused the wake-up. Polling the
//! shutdown of the server, a timer and similar futures takes locks, and all connections share some of these
//! locks. Without a gate, a watch would take these locks for every event. [`PollGate`] gives such futures
//! their own waker, and polls them only after that waker was used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A flag of one task, which is set when one of its rarely ready futures must be polled.
pub struct PollGate(Arc<Shared>);

struct Shared {
    is_due: AtomicBool,
    task: AtomicWaker,
}

impl Default for PollGate {
    fn default() -> PollGate {
        PollGate::new()
    }
}

impl PollGate {
    /// Returns a gate that is due, so that the first call polls.
    pub fn new() -> PollGate {
        PollGate(Arc::new(Shared { is_due: AtomicBool::new(true), task: AtomicWaker::new() }))
    }

    /// Calls `poll` if a poll is due: in the first call, after a wake-up, and as long as `poll` returns
    /// ready.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.0.task.register(cx.waker());
        if !self.0.is_due.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // The flag is cleared before the poll, so that a wake-up during the poll is not lost.
        self.0.is_due.store(false, Ordering::Release);
        let polled = poll(&mut Context::from_waker(&Waker::from(self.0.clone())));
        if polled.is_ready() {
            self.make_due();
        }
        polled
    }

    /// Makes the next poll due, because the futures have changed.
    pub fn make_due(&self) {
        self.0.is_due.store(true, Ordering::Release);
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::Notify;

    /// A waker that counts how often it is used.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_gated_future_is_polled_first_and_then_only_after_a_wake() {
        let (first, second) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let (mut gate, notify, mut polls) = (PollGate::new(), Notify::new(), 0);
        let mut notified = pin!(notify.notified());
        let mut poll = |task: &Arc<Task>| {
            let waker = Waker::from(task.clone());
            let polled = gate.poll(&mut Context::from_waker(&waker), |cx| {
                polls += 1;
                notified.as_mut().poll(cx)
            });
            (polled.is_ready(), polls)
        };
        assert_eq!([poll(&first), poll(&first), poll(&first)], [(false, 1); 3]);
        // The task has changed; the future need not be polled for this reason.
        assert_eq!(poll(&second), (false, 1));
        notify.notify_one();
        assert_eq!([&first, &second].map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
        assert_eq!(poll(&second), (true, 2));
    }

    #[test]
    fn a_gated_future_is_polled_again_if_it_is_woken_or_completes_during_a_poll() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(task.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut gate = PollGate::new();
        assert!(gate.poll(cx, |_| Poll::Ready(())).is_ready());
        let woken = gate.poll(cx, |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(woken.is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(gate.poll(cx, |_| Poll::Ready(())).is_ready());
        assert!(gate.poll(cx, |_| Poll::<()>::Pending).is_pending());
        assert!(gate.poll(cx, |_| Poll::Ready(())).is_pending());
        gate.make_due();
        assert!(gate.poll(cx, |_| Poll::Ready(())).is_ready());
    }
}
