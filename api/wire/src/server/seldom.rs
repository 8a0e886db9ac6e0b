//! Futures that seldom have something to say, in a task that is woken often for other reasons.
//!
//! A task that is woken polls all that it waits for, whatever it was woken by. The shutdown of the server, timers and the like
//! are behind locks, some of which all connections share, and a watch would ask each of them with every event. [`Seldom`]
//! gives them a waker of their own and polls them after it was used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Whether it is time to poll what seldom is ready, for one task.
pub struct Seldom(Arc<Shared>);

struct Shared {
    is_due: AtomicBool,
    task: AtomicWaker,
}

impl Seldom {
    /// It is time.
    pub fn new() -> Seldom {
        Seldom(Arc::new(Shared { is_due: AtomicBool::new(true), task: AtomicWaker::new() }))
    }

    /// Polls if it is time: at first, after a wake-up, and as long as something is ready.
    pub fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.0.task.register(cx.waker());
        if !self.0.is_due.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before the poll: a wake-up during it counts.
        self.0.is_due.store(false, Ordering::Release);
        let polled = poll(&mut Context::from_waker(&Waker::from(self.0.clone())));
        if polled.is_ready() {
            self.ask_again();
        }
        polled
    }

    /// It is time at the next poll: what is waited for has changed.
    pub fn ask_again(&self) {
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

    /// Counts its wake-ups.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_future_is_polled_at_first_and_after_it_was_woken() {
        let (first, second) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let (mut seldom, notify, mut polls) = (Seldom::new(), Notify::new(), 0);
        let mut notified = pin!(notify.notified());
        let mut poll = |task: &Arc<Task>| {
            let waker = Waker::from(task.clone());
            let polled = seldom.poll(&mut Context::from_waker(&waker), |cx| {
                polls += 1;
                notified.as_mut().poll(cx)
            });
            (polled.is_ready(), polls)
        };
        assert_eq!([poll(&first), poll(&first), poll(&first)], [(false, 1); 3]);
        // The task is another one now, and the future need not know.
        assert_eq!(poll(&second), (false, 1));
        notify.notify_one();
        assert_eq!([&first, &second].map(|task| task.0.load(Ordering::Relaxed)), [0, 1]);
        assert_eq!(poll(&second), (true, 2));
    }

    #[test]
    fn what_is_ready_or_changes_or_is_woken_while_it_is_polled_is_polled_again() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(task.clone());
        let cx = &mut Context::from_waker(&waker);
        let mut seldom = Seldom::new();
        assert!(seldom.poll(cx, |_| Poll::Ready(())).is_ready());
        let woken = seldom.poll(cx, |cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(woken.is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(seldom.poll(cx, |_| Poll::Ready(())).is_ready());
        assert!(seldom.poll(cx, |_| Poll::<()>::Pending).is_pending());
        assert!(seldom.poll(cx, |_| Poll::Ready(())).is_pending());
        seldom.ask_again();
        assert!(seldom.poll(cx, |_| Poll::Ready(())).is_ready());
    }
}
