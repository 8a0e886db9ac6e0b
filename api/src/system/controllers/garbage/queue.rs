//! The pending tasks of the collector: each task once, failed tasks after a pause, and a cache of absent
//! owners.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use tokio::time::{Instant, sleep_until};

use super::graph::Task;
use crate::system::controllers::Backoff;
use values::status::Status;

/// Maximum number of absent owners that are remembered, so that each owner is searched for in other namespaces
/// only once (docs/api/controllers.md#garbage-collector).
const ABSENT_MAX: usize = 500;

/// The pending tasks. Each task has a `Stage`.
#[derive(Default)]
pub struct Queue {
    ready: VecDeque<Task>,
    stages: HashMap<Task, Stage>,
    /// Times of retries. An entry whose task is no longer in [`Stage::Later`] is skipped.
    later: BinaryHeap<Reverse<(Instant, Task)>>,
    failures: HashMap<Task, Backoff>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Ready,
    Running,
    /// Running, and must run again afterwards.
    Again,
    Later,
}

impl Queue {
    /// Adds a task. If the task is running, marks the task to run again.
    pub fn push(&mut self, task: Task) {
        match self.stages.entry(task) {
            Entry::Vacant(vacant) => {
                self.ready.push_back(vacant.key().clone());
                vacant.insert(Stage::Ready);
            }
            Entry::Occupied(mut occupied) => match occupied.get() {
                Stage::Ready | Stage::Again => {}
                Stage::Running => {
                    occupied.insert(Stage::Again);
                }
                Stage::Later => {
                    self.ready.push_back(occupied.key().clone());
                    occupied.insert(Stage::Ready);
                }
            },
        }
    }

    /// Takes the next task. The task counts as running until [`Queue::complete`], [`Queue::again`] or
    /// [`Queue::failed`].
    pub fn pop(&mut self) -> Option<Task> {
        let task = self.ready.pop_front()?;
        self.stages.insert(task.clone(), Stage::Running);
        Some(task)
    }

    /// Returns whether a task is ready to run.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Ends a task that succeeded.
    pub fn complete(&mut self, task: &Task) {
        self.failures.remove(task);
        if self.stages.remove(task) == Some(Stage::Again) {
            self.push(task.clone());
        }
    }

    /// Ends a task whose object changed while the task ran, and adds it again.
    pub fn again(&mut self, task: Task) {
        self.stages.remove(&task);
        self.push(task);
    }

    /// Ends a task that failed. The task is retried after a pause that grows with each failure.
    pub fn failed(&mut self, task: Task, error: &Status) {
        tracing::warn!(?task, %error, "garbage collection of an object postponed");
        let pause = self.failures.entry(task.clone()).or_default().next();
        self.stages.insert(task.clone(), Stage::Later);
        self.later.push(Reverse((Instant::now() + pause, task)));
    }

    /// Returns a future that resolves when a failed task is due for a retry. Without failed tasks, the future
    /// never resolves.
    pub fn due(&self) -> impl Future<Output = ()> + use<> {
        let at = self.later.peek().map(|Reverse((at, _))| *at);
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Makes failed tasks ready that are due.
    pub fn take_due(&mut self) {
        let now = Instant::now();
        while self.later.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, task))) = self.later.pop() else { break };
            if self.stages.get(&task) == Some(&Stage::Later) {
                self.push(task);
            }
        }
    }
}

/// Uids of owners that are absent at the location in the reference. The value is true if the owner exists in another
/// namespace. The oldest entries are dropped first.
#[derive(Default)]
pub struct AbsentOwners {
    order: VecDeque<Box<str>>,
    elsewhere: HashMap<Box<str>, bool>,
}

impl AbsentOwners {
    /// Returns whether an owner is in another namespace; `None` if the owner is not in the cache.
    pub fn get(&self, uid: &str) -> Option<bool> {
        self.elsewhere.get(uid).copied()
    }

    /// Adds an owner to the cache.
    pub fn insert(&mut self, uid: &str, elsewhere: bool) {
        if self.elsewhere.insert(uid.into(), elsewhere).is_none() {
            self.order.push_back(uid.into());
        }
        if self.order.len() > ABSENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.elsewhere.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn task(name: &'static str) -> Task {
        Task::Check(Bytes::from_static(name.as_bytes()))
    }

    #[test]
    fn a_queued_task_runs_once_at_a_time_and_again_if_it_was_queued_meanwhile() {
        let mut queue = Queue::default();
        queue.push(task("a"));
        queue.push(task("a"));
        assert_eq!((queue.pop(), queue.pop()), (Some(task("a")), None));
        queue.push(task("a"));
        queue.push(task("a"));
        assert_eq!(queue.pop(), None);
        queue.complete(&task("a"));
        assert_eq!((queue.pop(), queue.pop()), (Some(task("a")), None));
        queue.complete(&task("a"));
        assert!(!queue.has_ready() && queue.stages.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_task_is_retried_after_a_pause_or_after_a_change() {
        let mut queue = Queue::default();
        for (changes, times) in [(false, 3), (true, 1)] {
            queue.push(task("a"));
            for _ in 0..times {
                let running = queue.pop().unwrap();
                queue.failed(running, &Status::unauthorized());
                assert!(!queue.has_ready());
                if changes {
                    queue.push(task("a"));
                } else {
                    queue.due().await;
                    queue.take_due();
                }
            }
            assert_eq!(queue.pop(), Some(task("a")));
            queue.complete(&task("a"));
        }
        assert!(queue.failures.is_empty() && queue.stages.is_empty());
        // The entry of a retry that was not awaited is skipped.
        queue.due().await;
        queue.take_due();
        assert!(!queue.has_ready() && queue.later.is_empty());
    }

    #[test]
    fn a_bounded_number_of_absent_owners_is_remembered() {
        let mut absent = AbsentOwners::default();
        for n in 0..=ABSENT_MAX {
            absent.insert(&n.to_string(), n % 2 == 0);
            absent.insert(&n.to_string(), n % 2 == 0);
        }
        assert_eq!((absent.get("0"), absent.get("1"), absent.get("500")), (None, Some(false), Some(true)));
        assert_eq!((absent.order.len(), absent.elsewhere.len()), (ABSENT_MAX, ABSENT_MAX));
    }
}
