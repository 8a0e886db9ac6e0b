//! A tail: a position in the log, the wait for events, and the progress. `replay.rs` reads events back from the log.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::hub::Hub;
use super::registry::TailSlot;
use super::replay::{EXAMINED_MAX, Unexamined};
use crate::error::TailError;
use crate::event::Event;
use crate::types::Revision;

/// A position in the log and a key prefix. See [`Engine::tail`](crate::Engine::tail).
pub struct Tail {
    hub: Arc<Hub>,
    slot: Arc<TailSlot>,
    prefix: Bytes,
    /// The revision after which the tail began.
    after: Revision,
    /// Every revision up to this one was examined or is known not to match.
    looked: Revision,
    /// The tail examines revisions up to this one by itself; later revisions are announced through the slot.
    look_until: Revision,
    /// Whether the tail ends instead of skipping changes.
    is_complete: bool,
    /// Minimum interval in which changes gather before they are returned; zero returns them at once.
    gathers: Duration,
    /// Earliest time at which the next changes may be returned.
    due: Option<Instant>,
}

impl Tail {
    /// Creates a tail of the events after `after` whose key begins with `prefix`.
    pub(crate) fn begin(hub: &Arc<Hub>, after: Revision, prefix: Bytes) -> Result<Tail, TailError> {
        let slot = Arc::new(TailSlot::default());
        let mut registry = hub.registry.lock();
        if registry.closed {
            return Err(TailError::Closed);
        }
        let oldest = hub.root().oldest;
        if after < oldest {
            return Err(TailError::Compacted { oldest });
        }
        registry.tails.entry(prefix.clone()).or_default().push(slot.clone());
        registry.count += 1;
        // The revision is read under the lock, so every later event sets the pending mark, and the tail itself examines
        // every earlier event.
        let look_until = hub.revision();
        drop(registry);
        Ok(Tail {
            hub: hub.clone(),
            slot,
            prefix,
            after,
            looked: after,
            look_until,
            is_complete: false,
            gathers: Duration::ZERO,
            due: None,
        })
    }

    /// Returns this tail in a mode in which it ends where changes are missing
    /// ([`Engine::pass_over`](crate::Engine::pass_over)). In any other mode, a tail only guarantees the final states
    /// of keys.
    ///
    /// # Errors
    /// Changes between the start of the tail and now are missing already.
    pub fn complete(mut self) -> Result<Tail, TailError> {
        self.is_complete = true;
        self.check_complete()?;
        Ok(self)
    }

    /// Returns this tail in a mode in which it lets changes gather for up to `gathers` after each return; the
    /// first change after a quiet time is returned without delay. Under frequent writes such a tail wakes its
    /// task once per interval instead of once per commit, and all tails with the same interval are woken
    /// together.
    pub fn gathering(mut self, gathers: Duration) -> Tail {
        self.gathers = gathers;
        self
    }

    fn lacks_changes(&self) -> bool {
        self.is_complete && self.looked < self.hub.gap_until()
    }

    fn check_complete(&self) -> Result<(), TailError> {
        if self.lacks_changes() { Err(TailError::Compacted { oldest: self.hub.gap_until() }) } else { Ok(()) }
    }

    /// Returns the next events, in order, each exactly once: at least one and at most `max` (a `max` of 0
    /// counts as 1), or a few more to complete a revision that several records share. Waits while there is no
    /// event. Dropping the future loses no event.
    ///
    /// # Errors After an error the position of the tail is unchanged. To continue, take a new snapshot and
    /// create a new tail.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
        let events = self.next_at_once(max).await?;
        // A tail that lags is not delayed.
        let has_all = self.looked >= self.look_until && !self.gathers.is_zero();
        self.due = has_all.then(|| next_multiple(self.hub.since, Instant::now(), self.gathers));
        Ok(events)
    }

    async fn next_at_once(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        loop {
            self.check_complete()?;
            while self.looked < self.look_until {
                let before = self.looked;
                let events = self.examine(max.max(1))?;
                // A gap is noted before the revisions in it are published.
                if self.is_complete && before < self.hub.gap_until() {
                    self.looked = before;
                    self.check_complete()?;
                }
                if !events.is_empty() {
                    return Ok(events);
                }
                if self.looked < self.look_until {
                    yield_once().await;
                }
            }
            {
                let registry = self.hub.registry.lock();
                let pending = self.slot.pending.swap(0, Ordering::AcqRel);
                if pending > 0 {
                    self.looked = self.looked.max(Revision::new(pending).before());
                    self.look_until = self.hub.revision();
                    continue;
                }
                if registry.closed {
                    return Err(TailError::Closed);
                }
            }
            self.slot.wake.notified().await;
        }
    }

    /// Returns whether [`Tail::next`] has revisions to examine, which need not contain a matching event.
    pub fn has_news(&self) -> bool {
        self.looked < self.look_until || self.slot.pending.load(Ordering::Acquire) > 0
    }

    /// Resolves once [`Tail::next`] has revisions to examine, or would return an error. This function takes
    /// no event, so the future can be dropped at any time.
    pub async fn announced(&self) {
        while !self.has_news() {
            if self.lacks_changes() || self.hub.registry.lock().closed {
                return;
            }
            self.slot.wake.notified().await;
        }
    }

    /// Returns the revision up to which (inclusive) [`Tail::next`] has returned every matching event. The revision
    /// never falls, and it rises with the store's revision as long as nothing matches, even while `next` is not called.
    /// The revision is at least the revision after which the tail began, even if that revision is in the future.
    pub fn progress(&self) -> Revision {
        if self.looked < self.look_until {
            return self.looked;
        }
        // The order matters: a pending mark is set before the revision of its event is published.
        let published = self.hub.revision();
        let published = if self.lacks_changes() {
            published.min(Revision::new(self.hub.gap_after.load(Ordering::Acquire)))
        } else {
            published
        };
        let seen = match self.slot.pending.load(Ordering::Acquire) {
            0 => published,
            pending => published.min(Revision::new(pending).before()),
        };
        seen.max(self.looked).max(self.after)
    }

    /// Examines some of the revisions between `looked` and `look_until`.
    fn examine(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        let ring = self.hub.ring.read();
        if ring.first > self.looked.next() {
            drop(ring);
            let (looked, until) = (self.looked, self.look_until);
            let mut unexamined = Unexamined { prefix: &self.prefix, looked, until };
            let events = unexamined.examine(&self.hub.root(), max);
            self.looked = unexamined.looked;
            return events;
        }
        let start = ring.events.partition_point(|event| event.revision <= self.looked);
        let mut found = Vec::new();
        let mut looked = self.look_until;
        let mut newest = self.looked;
        for (n, event) in ring.events.range(start..).enumerate() {
            if event.revision > self.look_until {
                break;
            }
            // Records of one revision are examined together.
            if event.revision > newest && (n >= EXAMINED_MAX || found.len() >= max) {
                looked = newest;
                break;
            }
            newest = event.revision;
            if event.key.starts_with(&self.prefix) {
                found.push(event.clone());
            }
        }
        drop(ring);
        self.looked = looked;
        Ok(found)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let mut registry = self.hub.registry.lock();
        registry.count -= 1;
        if let Some(slots) = registry.tails.get_mut(&self.prefix) {
            if let Some(at) = slots.iter().position(|slot| Arc::ptr_eq(slot, &self.slot)) {
                slots.swap_remove(at);
            }
            if slots.is_empty() {
                registry.tails.remove(&self.prefix);
            }
        }
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("prefix", &String::from_utf8_lossy(&self.prefix))
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

/// Returns the first time after `now` that is a multiple of `period` after `since`. `period` must not be
/// zero.
pub(super) fn next_multiple(since: Instant, now: Instant, period: Duration) -> Instant {
    let over = now.saturating_duration_since(since).as_nanos() % period.as_nanos();
    now + period.saturating_sub(Duration::from_nanos(u64::try_from(over).unwrap_or(0)))
}

/// Yields once, so that a long catch-up does not occupy a worker thread.
async fn yield_once() {
    let mut gave_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
