//! The published state: the newest root, the ring of events, and the registry of tails. The sequencer publishes this
//! state, and all other components read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::registry::Registry;
use super::ring::Ring;
use crate::event::Event;
use crate::last_change::LastChange;
use crate::snapshot::Root;
use crate::types::Revision;

/// The shared state of the publisher and the tails.
pub(crate) struct Hub {
    root: ArcSwap<Root>,
    published: AtomicU64,
    /// The newest range of revisions in which some changes are not reported: the revision published before
    /// the range, and the last revision in it.
    pub(super) gap_after: AtomicU64,
    gap_until: AtomicU64,
    pub(super) registry: Mutex<Registry>,
    pub(super) ring: RwLock<Ring>,
    /// Start of the intervals in which gathering tails are woken.
    pub(super) since: Instant,
}

impl Hub {
    /// Creates a hub with `root` as the newest version and without events.
    pub fn new(root: Root, ring_events_max: usize) -> Hub {
        let first = root.revision.next();
        Hub {
            published: AtomicU64::new(root.revision.get()),
            root: ArcSwap::from_pointee(root),
            gap_after: AtomicU64::new(0),
            gap_until: AtomicU64::new(0),
            registry: Mutex::default(),
            ring: RwLock::new(Ring::new(first, ring_events_max)),
            since: Instant::now(),
        }
    }

    /// Returns the newest published root.
    pub fn root(&self) -> Arc<Root> {
        self.root.load_full()
    }

    /// Returns the newest published revision.
    pub fn revision(&self) -> Revision {
        Revision::new(self.published.load(Ordering::Acquire))
    }

    /// Makes `root` the newest version; `events` are all events between the previous root and this one.
    pub fn publish(&self, root: Root, events: &[Arc<Event>]) {
        let revision = root.revision;
        let mut wake = Vec::new();
        let mut reached = BTreeMap::new();
        {
            let mut registry = self.registry.lock();
            let mut ring = self.ring.write();
            for event in events {
                registry.changes.note(&event.key, event.revision);
                let mut audience = 0;
                registry.visit_matching(&event.key, |slot| {
                    audience += 1;
                    if slot.pending.load(Ordering::Relaxed) == 0 {
                        slot.pending.store(event.revision.get(), Ordering::Release);
                        wake.push(slot.clone());
                    }
                });
                event.audience.store(audience, Ordering::Relaxed);
                ring.push(event.clone());
            }
            ring.forget(root.oldest);
            drop(ring);
            self.root.store(Arc::new(root));
            self.published.store(revision.get(), Ordering::Release);
            if registry.waiters.first_key_value().is_some_and(|(first, _)| first.0 <= revision) {
                let later = registry.waiters.split_off(&(revision.next(), 0));
                reached = std::mem::replace(&mut registry.waiters, later);
            }
        }
        for slot in wake {
            slot.wake.notify_one();
        }
        for waiter in reached.into_values() {
            let _ = waiter.send(());
        }
    }

    /// Drops all published events, and the segments that these events keep. Tails that have not returned
    /// these events yet read them from the log.
    pub fn release_events(&self) {
        let published = self.revision();
        self.ring.write().forget(published);
    }

    /// Resolves once `revision` is published or the hub is closed.
    pub async fn reached(&self, revision: Revision) {
        let (outcome, _waiting) = {
            let mut registry = self.registry.lock();
            if self.revision() >= revision || registry.closed {
                return;
            }
            let (sender, outcome) = oneshot::channel();
            registry.waiters_so_far += 1;
            let place = (revision, registry.waiters_so_far);
            registry.waiters.insert(place, sender);
            (outcome, Waiting { hub: self, place })
        };
        let _ = outcome.await;
    }

    /// Notes that some changes up to `until` will not be reported. Tails that require all changes end.
    pub fn pass_over(&self, until: Revision) {
        let registry = self.registry.lock();
        let published = self.revision();
        // If `until` extends an existing gap, the beginning of the gap stays.
        if self.gap_until() <= published {
            self.gap_after.store(published.get(), Ordering::Release);
        }
        self.gap_until.fetch_max(until.get(), Ordering::AcqRel);
        for slot in registry.tails.values().flatten() {
            slot.wake.notify_one();
        }
    }

    /// Returns the last revision up to which changes may be missing.
    pub fn gap_until(&self) -> Revision {
        Revision::new(self.gap_until.load(Ordering::Acquire))
    }

    /// Ends all tails and all waits for a revision.
    pub fn close(&self) {
        let mut registry = self.registry.lock();
        registry.closed = true;
        registry.waiters.clear();
        for slot in registry.tails.values().flatten() {
            slot.wake.notify_one();
        }
    }

    /// Returns the number of existing tails.
    pub fn tails(&self) -> u64 {
        self.registry.lock().count
    }

    /// Returns a tracker of the newest change of keys that begin with `prefix`, starting now.
    pub fn last_change(&self, prefix: Bytes) -> LastChange {
        self.registry.lock().changes.add(prefix)
    }
}

/// Removes a waiter from the registry when its future is dropped, because the revision that it waits for may
/// never be published.
struct Waiting<'h> {
    hub: &'h Hub,
    place: (Revision, u64),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hub.registry.lock().waiters.remove(&self.place);
    }
}
