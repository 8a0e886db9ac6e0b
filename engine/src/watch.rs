//! Tails: readers that follow the log from any retained revision on.
//!
//! ```text
//! sequencer ─ publish ─► ring of the newest events ──────────► Tail::next
//!                 │                        (further back) log ─┘
//!                 └─► registry: prefix → tails ─ pending, wake ─► Tail
//! ```
//!
//! A tail is a position in the committed log, not a queue. The store buffers nothing for it, so a tail that
//! is not read costs only its struct. A tail that keeps up finds its events, shared by all tails, in the
//! ring. A tail that lags reads records from the log and returns to the ring by itself.
//!
//! The publisher sets `pending` of a live tail to the first revision that concerns it since it last looked.
//! The tail looks at nothing before that revision, because nothing before it can match. So a thousand tails
//! on quiet prefixes cost nothing while a busy prefix is written, and the progress of a tail is known without
//! looking.
//!
//! A publication holds the registry's lock and proceeds in this order: set the pending marks, extend the
//! ring, store the root, store the published revision. A tail reads the published revision before its pending
//! mark.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::error::TailError;
use crate::event::{Event, Memo};
use crate::header::Numbering;
use crate::last_change::{LastChange, LastChanges};
use crate::sabotage;
use crate::segment::FoundRecord;
use crate::snapshot::{Entry, Root};
use crate::types::Revision;

/// Maximum number of events in the ring. At a thousand writes a second, a tail may pause for a quarter of a
/// minute before it has to read from the log.
pub(crate) const RING_EVENTS_MAX: usize = 16 * 1024;
/// Maximum record bytes that the ring's events stand for. The ring holds no values, but the representations
/// cached in its events are about as large as the records.
const RING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum number of events or records that a tail examines before it yields to other tasks.
const EXAMINED_MAX: usize = 1024;
/// The newest events, in order.
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// Lowest revision from which on the ring has all published events.
    first: Revision,
    bytes: usize,
    events_max: usize,
}

impl Ring {
    fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.entry.stored_len();
        self.events.push_back(event);
        while self.events.len() > self.events_max || self.bytes > RING_BYTES_MAX {
            let Some(gone) = self.events.pop_front() else { break };
            self.bytes -= gone.entry.stored_len();
            self.first = gone.revision.next();
        }
    }
}

impl Ring {
    /// Drops the events up to `oldest`, because they keep segments that could otherwise be deleted.
    fn forget(&mut self, oldest: Revision) {
        while self.events.front().is_some_and(|first| first.revision <= oldest)
            && let Some(gone) = self.events.pop_front()
        {
            self.bytes -= gone.entry.stored_len();
            self.first = gone.revision.next();
        }
    }
}

/// State shared by a tail and the publisher.
#[derive(Default)]
struct TailSlot {
    /// The first revision that concerns the tail since it last looked, otherwise 0. Written only under
    /// the registry's lock.
    pending: AtomicU64,
    wake: Notify,
}

#[derive(Default)]
struct Registry {
    tails: BTreeMap<Bytes, Vec<Arc<TailSlot>>>,
    count: u64,
    /// The waiters for a revision, by the revision and a number that makes them unique.
    waiters: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    waiters_so_far: u64,
    changes: LastChanges,
    closed: bool,
}

impl Registry {
    /// Calls `each` for every tail whose prefix `key` begins with.
    fn visit_matching(&self, key: &[u8], mut each: impl FnMut(&Arc<TailSlot>)) {
        // The search goes downwards from the greatest prefix that is not after the key. The next match is no
        // longer than the common part of the candidate and the key, so each step shortens the search key.
        let mut search = key;
        while let Some((prefix, slots)) =
            self.tails.range::<[u8], _>((Bound::Unbounded, Bound::Included(search))).next_back()
        {
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                search = &key[..common];
                continue;
            }
            slots.iter().for_each(&mut each);
            match common.checked_sub(1) {
                Some(shorter) => search = &key[..shorter],
                None => return,
            }
        }
    }
}

/// The shared state of the publisher and the tails.
pub(crate) struct Hub {
    root: ArcSwap<Root>,
    published: AtomicU64,
    /// The newest range of revisions in which some changes are not reported: the revision published before
    /// the range, and the last revision in it.
    gap_after: AtomicU64,
    gap_until: AtomicU64,
    registry: Mutex<Registry>,
    ring: RwLock<Ring>,
    /// Start of the intervals in which gathering tails are woken.
    since: Instant,
}

impl Hub {
    /// Creates a hub with `root` as the newest version and without events before it.
    pub fn new(root: Root, ring_events_max: usize) -> Hub {
        let first = root.revision.next();
        Hub {
            published: AtomicU64::new(root.revision.get()),
            root: ArcSwap::from_pointee(root),
            gap_after: AtomicU64::new(0),
            gap_until: AtomicU64::new(0),
            registry: Mutex::default(),
            ring: RwLock::new(Ring { events: VecDeque::new(), first, bytes: 0, events_max: ring_events_max }),
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

    /// Drops all published events, and with them the segments that they keep. Tails that have not seen these
    /// events read them from the log.
    pub fn release_events(&self) {
        let published = self.revision();
        self.ring.write().forget(published);
    }

    /// Returns once `revision` is published or the hub is closed.
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
        // A gap that is extended keeps its beginning.
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

    /// Creates a tail of the events after `after` whose key begins with `prefix`.
    pub fn tail(self: &Arc<Hub>, after: Revision, prefix: Bytes) -> Result<Tail, TailError> {
        let slot = Arc::new(TailSlot::default());
        let mut registry = self.registry.lock();
        if registry.closed {
            return Err(TailError::Closed);
        }
        let oldest = self.root.load().oldest;
        if after < oldest {
            return Err(TailError::Compacted { oldest });
        }
        registry.tails.entry(prefix.clone()).or_default().push(slot.clone());
        registry.count += 1;
        // Read under the lock: every later event sets the pending mark, and the tail itself looks for every
        // earlier one.
        let look_until = self.revision();
        drop(registry);
        Ok(Tail {
            hub: self.clone(),
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
}

/// Returns the first time after `now` that is a multiple of `period` after `since`. `period` is not zero.
fn next_multiple(since: Instant, now: Instant, period: Duration) -> Instant {
    let over = now.saturating_duration_since(since).as_nanos() % period.as_nanos();
    now + period.saturating_sub(Duration::from_nanos(u64::try_from(over).unwrap_or(0)))
}

/// Removes a waiter from the registry when its future is dropped: the revision that it waits for may never
/// come.
struct Waiting<'h> {
    hub: &'h Hub,
    place: (Revision, u64),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hub.registry.lock().waiters.remove(&self.place);
    }
}

/// A position in the log and a key prefix. See [`Engine::tail`](crate::Engine::tail).
pub struct Tail {
    hub: Arc<Hub>,
    slot: Arc<TailSlot>,
    prefix: Bytes,
    /// The revision after which the tail began.
    after: Revision,
    /// Every revision up to this one was examined or is known not to match.
    looked: Revision,
    /// The tail examines revisions up to this one by itself; later ones are announced through the slot.
    look_until: Revision,
    /// Whether the tail ends instead of skipping changes.
    is_complete: bool,
    /// Minimum interval in which changes gather before they are returned; zero returns them at once.
    gathers: Duration,
    /// Earliest time at which the next changes may be returned.
    due: Option<Instant>,
}

impl Tail {
    /// Returns this tail in a mode in which it ends where changes are missing
    /// ([`Engine::pass_over`](crate::Engine::pass_over)). Without this, a tail only guarantees the final
    /// states of keys.
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
    /// counts as 1), or more only to complete a revision that several records share. Waits while there is no
    /// event. Dropping the future loses nothing.
    ///
    /// # Errors
    /// After an error the tail stays where it is. To continue, take a new snapshot and create a new tail.
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

    /// Returns once [`Tail::next`] has revisions to examine, or would return an error. Takes no event.
    /// Dropping the future loses nothing.
    pub async fn announced(&self) {
        while !self.has_news() {
            if self.lacks_changes() || self.hub.registry.lock().closed {
                return;
            }
            self.slot.wake.notified().await;
        }
    }

    /// Returns the revision up to which (inclusive) [`Tail::next`] has returned every matching event. The
    /// revision never falls, and it rises with the store's revision as long as nothing matches, even while
    /// `next` is not called. The revision is at least the one after which the tail began, also if that is in
    /// the future.
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
            return self.examine_log(max);
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

    fn examine_log(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        let root = self.hub.root();
        if self.looked < root.oldest {
            return Err(TailError::Compacted { oldest: root.oldest });
        }
        let mut found = Vec::new();
        let mut budget = EXAMINED_MAX;
        for segment in root.segments.starting_at(self.looked.next()) {
            // No revision is missing between two consecutive segments, whether or not revisions are missing
            // within them.
            if segment.header.first_revision > self.looked.next() && !sabotage::hole_passed_over() {
                return self.events_or_damage(found, segment.header.first_revision.before());
            }
            let missing = TailError::Damaged { revision: self.looked.next() };
            let mut walk = segment.walk_from(self.looked.next()).map_err(|_| missing)?;
            // The events of a revision whose records are not all read yet.
            let mut part: Option<(Revision, Vec<Arc<Event>>)> = None;
            while let Some(record) = walk.next() {
                let revision = record.head.revision;
                if revision <= self.looked {
                    continue;
                }
                if revision > self.look_until {
                    return self.events_or_damage(found, self.look_until);
                }
                let is_missing = match segment.header.numbering {
                    Numbering::Dense => revision != self.looked.next(),
                    Numbering::Sparse => {
                        record.skipped > 0 || part.as_ref().is_some_and(|(part, _)| *part != revision)
                    }
                };
                if is_missing && !sabotage::hole_passed_over() {
                    // Opening has reported this revision as lost, unless the record was sound then.
                    segment.note_damaged(self.looked.next());
                    return self.events_or_damage(found, revision.max(self.looked.next().next()).before());
                }
                let (_, events) = part.get_or_insert_with(|| (revision, Vec::new()));
                if record.head.key(&record.bytes).starts_with(&self.prefix) {
                    events.extend(event(&root, segment.clone(), &record));
                }
                budget = budget.saturating_sub(1);
                if record.head.more {
                    continue;
                }
                found.extend(part.take().into_iter().flat_map(|(_, events)| events));
                self.looked = revision;
                if found.len() >= max || budget == 0 || revision == self.look_until {
                    return Ok(found);
                }
            }
        }
        // The log ends although later revisions were published: its last records are unreadable.
        self.events_or_damage(found, self.look_until)
    }

    /// Returns the events found before the unreadable revisions up to `until`, or an error if the unreadable
    /// revisions come next.
    fn events_or_damage(
        &self,
        found: Vec<Arc<Event>>,
        until: Revision,
    ) -> Result<Vec<Arc<Event>>, TailError> {
        if found.is_empty() && self.looked < until {
            return Err(TailError::Damaged { revision: self.looked.next() });
        }
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

/// Returns the event of a record read from the log.
fn event(root: &Root, segment: Arc<crate::segment::Segment>, record: &FoundRecord) -> Option<Arc<Event>> {
    let head = &record.head;
    let key = Bytes::copy_from_slice(head.key(&record.bytes));
    let version = record.version(segment.header.number);
    let previous =
        root.tree.at(&key, head.revision.before()).filter(|previous| !previous.is_delete()).copied();
    let previous = previous.and_then(|previous| root.entry(key.clone(), previous));
    Some(Arc::new(Event {
        revision: head.revision,
        kind: head.kind,
        entry: Entry::new(key.clone(), version, segment).ending(previous.as_ref()),
        previous,
        key,
        memo: Memo::default(),
        audience: AtomicU32::new(0),
    }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Segments;
    use crate::testing::Random;

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
    fn exactly_the_tails_whose_prefix_a_key_begins_with_are_concerned() {
        let mut random = Random(3);
        let mut word = |len: u64| -> Vec<u8> {
            let len = random.below(len + 1);
            (0..len).map(|_| b"ab\xff/"[random.below(4) as usize]).collect()
        };
        for _ in 0..300 {
            let mut registry = Registry::default();
            for _ in 0..word(40).len() {
                registry.tails.entry(word(6).into()).or_default().push(Arc::new(TailSlot::default()));
            }
            for _ in 0..30 {
                let key = word(8);
                let mut got = Vec::new();
                registry.visit_matching(&key, |slot| got.push(Arc::as_ptr(slot)));
                let expected = registry.tails.iter().filter(|(prefix, _)| key.starts_with(prefix));
                let mut expected: Vec<_> = expected.flat_map(|(_, slots)| slots).map(Arc::as_ptr).collect();
                got.sort();
                expected.sort();
                assert_eq!(got, expected, "{key:?}");
            }
        }
    }

    #[test]
    fn tails_that_let_changes_gather_for_as_long_are_due_together() {
        let (since, period) = (Instant::now(), Duration::from_millis(10));
        for (elapsed_us, due_ms) in
            [(0, 10), (1, 10), (9_999, 10), (10_000, 20), (10_001, 20), (123_456, 130)]
        {
            let due = next_multiple(since, since + Duration::from_micros(elapsed_us), period);
            assert_eq!(due - since, Duration::from_millis(due_ms), "{elapsed_us}");
        }
    }

    #[tokio::test]
    async fn who_gives_up_waiting_for_a_revision_leaves_nothing_behind() {
        let hub = Hub::new(empty(0, 0), 4);
        for revision in 1..100 {
            let wait = hub.reached(Revision::new(revision * 1_000));
            assert!(tokio::time::timeout(std::time::Duration::ZERO, wait).await.is_err());
        }
        assert!(hub.registry.lock().waiters.is_empty());
    }

    #[tokio::test]
    async fn a_tail_that_must_be_told_everything_ends_at_a_gap() {
        let hub = Arc::new(Hub::new(empty(9, 5), 4));
        let tail = |after| hub.tail(Revision::new(after), Bytes::new());
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
    async fn what_was_compacted_cannot_be_followed() {
        let hub = Arc::new(Hub::new(empty(9, 5), 4));
        assert_eq!(
            hub.tail(Revision::new(4), Bytes::new()).unwrap_err(),
            TailError::Compacted { oldest: Revision::new(5) }
        );
        assert!(hub.tail(Revision::new(5), Bytes::new()).is_ok());
        assert_eq!(hub.tails(), 0);
    }
}
