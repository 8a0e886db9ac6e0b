//! Tails: following the log from any retained revision on.
//!
//! ```text
//! sequencer ─ publish ─► ring of the newest events ──────────► Tail::next
//!                 │                        (further back) log ─┘
//!                 └─► registry: prefix → tails ─ pending, wake ─► Tail
//! ```
//!
//! A tail is a place in the committed log, not a queue. Nothing is put aside for it: a stopped one costs its
//! struct. One that keeps up finds its events, shared by all tails, in the ring; one that fell behind reads
//! records from the log and comes back to the ring by itself.
//!
//! A live tail is told the first revision that concerns it since it last looked (`pending`) and only then looks
//! at all: what lies before that is known not to match. So a thousand tails on quiet prefixes cost nothing
//! while a busy one is written, and progress is known without looking.
//!
//! Order within a publication, under the registry's lock: mark pending, extend the ring, store the root, store
//! the published revision. A tail reads the published revision before its pending mark.

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
use crate::segment::Found;
use crate::snapshot::{Entry, Root};
use crate::types::Revision;

/// Most events in the ring. At a thousand writes a second, a tail may stand still for a quarter of a minute
/// before it has to read from the log.
pub(crate) const RING_EVENTS_MAX: usize = 16 * 1024;
/// Most record bytes that the ring's events stand for. The ring holds no bodies, but the representations cached in
/// its events are about as large as these.
const RING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most events or records looked at in one go, before other tasks get their turn.
const LOOK_MAX: usize = 1024;
/// The newest events, in order.
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// All published events of this revision and later are in it.
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
    /// Lets go of the events up to `oldest`: they keep segments that would otherwise be given back.
    fn forget(&mut self, oldest: Revision) {
        while self.events.front().is_some_and(|first| first.revision <= oldest)
            && let Some(gone) = self.events.pop_front()
        {
            self.bytes -= gone.entry.stored_len();
            self.first = gone.revision.next();
        }
    }
}

/// What a tail and the publisher share.
#[derive(Default)]
struct Slot {
    /// The first revision that concerns the tail since it last looked; 0: none. Written under the registry's
    /// lock only.
    pending: AtomicU64,
    wake: Notify,
}

#[derive(Default)]
struct Registry {
    tails: BTreeMap<Bytes, Vec<Arc<Slot>>>,
    count: u64,
    /// Who waits for which revision, with a number to tell them apart.
    waiters: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    waiters_so_far: u64,
    changes: LastChanges,
    closed: bool,
}

impl Registry {
    /// Calls `each` for every tail whose prefix `key` begins with.
    fn concerned(&self, key: &[u8], mut each: impl FnMut(&Arc<Slot>)) {
        // From the greatest prefix not after the key downwards. Whatever matches next is no longer than what
        // the candidate has in common with the key, so each step shortens the search key.
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

/// The meeting point of publisher and followers.
pub(crate) struct Hub {
    root: ArcSwap<Root>,
    published: AtomicU64,
    /// The last revisions of which not every change is told: what was published before them, and the last of them.
    gap_after: AtomicU64,
    gap_until: AtomicU64,
    registry: Mutex<Registry>,
    ring: RwLock<Ring>,
    /// From when on the times of tails that let changes gather are counted.
    since: Instant,
}

impl Hub {
    /// A hub that starts out with `root`, remembering no event before it.
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

    /// The newest published state.
    pub fn root(&self) -> Arc<Root> {
        self.root.load_full()
    }

    /// Its revision.
    pub fn revision(&self) -> Revision {
        Revision::new(self.published.load(Ordering::Acquire))
    }

    /// Makes `root` the newest state; `events` are all that lies between it and the last.
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
                registry.concerned(&event.key, |slot| {
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

    /// Lets go of all published events, and with them of the segments that they keep. Tails that have not looked at them yet
    /// find them in the log.
    pub fn let_go_of_events(&self) {
        let published = self.revision();
        self.ring.write().forget(published);
    }

    /// Returns once `revision` is published, or the hub closed.
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

    /// Notes that not every change up to `until` will be told. Tails that must be told all of them end.
    pub fn pass_over(&self, until: Revision) {
        let registry = self.registry.lock();
        let published = self.revision();
        // A gap that becomes longer began where it began.
        if self.gap_until() <= published {
            self.gap_after.store(published.get(), Ordering::Release);
        }
        self.gap_until.fetch_max(until.get(), Ordering::AcqRel);
        for slot in registry.tails.values().flatten() {
            slot.wake.notify_one();
        }
    }

    /// The last revision of which not every change is told.
    pub fn gap_until(&self) -> Revision {
        Revision::new(self.gap_until.load(Ordering::Acquire))
    }

    /// Ends all tails and waits.
    pub fn close(&self) {
        let mut registry = self.registry.lock();
        registry.closed = true;
        registry.waiters.clear();
        for slot in registry.tails.values().flatten() {
            slot.wake.notify_one();
        }
    }

    /// Tails that exist.
    pub fn tails(&self) -> u64 {
        self.registry.lock().count
    }

    /// When keys that begin with `prefix` last change from now on.
    pub fn last_change(&self, prefix: Bytes) -> LastChange {
        self.registry.lock().changes.of(prefix)
    }

    /// A tail of the events after `after` whose key begins with `prefix`.
    pub fn tail(self: &Arc<Hub>, after: Revision, prefix: Bytes) -> Result<Tail, TailError> {
        let slot = Arc::new(Slot::default());
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
        // Under the lock: every later event marks the slot, every earlier one is looked for.
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

/// The next time after `now` that is a multiple of `period`, which is not zero, after `since`.
fn next_multiple(since: Instant, now: Instant, period: Duration) -> Instant {
    let over = now.saturating_duration_since(since).as_nanos() % period.as_nanos();
    now + period.saturating_sub(Duration::from_nanos(u64::try_from(over).unwrap_or(0)))
}

/// Takes a waiter out of the registry when it gives up: the revision it waits for may never come.
struct Waiting<'h> {
    hub: &'h Hub,
    place: (Revision, u64),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.hub.registry.lock().waiters.remove(&self.place);
    }
}

/// A place in the log, and a prefix. See [`Engine::tail`](crate::Engine::tail).
pub struct Tail {
    hub: Arc<Hub>,
    slot: Arc<Slot>,
    prefix: Bytes,
    /// Where it began.
    after: Revision,
    /// Everything up to here was looked at or is known not to match.
    looked: Revision,
    /// Up to here it must look for itself; what comes later is announced through the slot.
    look_until: Revision,
    /// Whether it ends rather than pass changes over.
    is_complete: bool,
    /// How long changes gather before they are told.
    gathers: Duration,
    /// When the next may be told.
    due: Option<Instant>,
}

impl Tail {
    /// The same, which ends where changes are not told ([`Engine::pass_over`](crate::Engine::pass_over)). Without this, only the
    /// states of keys in the end are sure to be told.
    ///
    /// # Errors
    /// There are such changes between its beginning and now.
    pub fn complete(mut self) -> Result<Tail, TailError> {
        self.is_complete = true;
        self.check_complete()?;
        Ok(self)
    }

    /// The same, which lets changes gather for up to so long after it told some; the first change after a quiet time is told without
    /// delay. While others write often, a follower that has time costs a wake-up in that time instead of one for each commit, and
    /// all who let changes gather for as long are woken together.
    pub fn gathering(mut self, gathers: Duration) -> Tail {
        self.gathers = gathers;
        self
    }

    fn lacks_changes(&self) -> bool {
        self.is_complete && self.looked < self.hub.gap_until()
    }

    fn check_complete(&self) -> Result<(), TailError> {
        match self.lacks_changes() {
            true => Err(TailError::Compacted { oldest: self.hub.gap_until() }),
            false => Ok(()),
        }
    }

    /// The next events, in order, each exactly once: at least one, at most `max` (a `max` of 0 counts as 1), and more
    /// only to complete a revision that several records share.
    /// Waits while there is none. Dropping the future loses nothing.
    ///
    /// # Errors
    /// After an error the tail stays where it is; following events need a fresh snapshot and a new tail.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
        let events = self.next_at_once(max).await?;
        // Who is behind goes on.
        let has_all = self.looked >= self.look_until && !self.gathers.is_zero();
        self.due = has_all.then(|| next_multiple(self.hub.since, Instant::now(), self.gathers));
        Ok(events)
    }

    async fn next_at_once(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        loop {
            self.check_complete()?;
            while self.looked < self.look_until {
                let before = self.looked;
                let events = self.look(max.max(1))?;
                // A gap is noted before what lies in it is published.
                if self.is_complete && before < self.hub.gap_until() {
                    self.looked = before;
                    self.check_complete()?;
                }
                if !events.is_empty() {
                    return Ok(events);
                }
                if self.looked < self.look_until {
                    let_others_run().await;
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

    /// Whether [`Tail::next`] has something to look at, which is not to say that it finds an event in it.
    pub fn has_news(&self) -> bool {
        self.looked < self.look_until || self.slot.pending.load(Ordering::Acquire) > 0
    }

    /// Returns once [`Tail::next`] has something to look at, and takes nothing. Dropping the future loses nothing.
    pub async fn announced(&self) {
        while !self.has_news() {
            if self.lacks_changes() || self.hub.registry.lock().closed {
                return;
            }
            self.slot.wake.notified().await;
        }
    }

    /// Every matching event up to and including this revision has been returned by [`Tail::next`]. Never
    /// falls, and rises with the store's revision as long as nothing matches, also while `next` is not called.
    /// At least the revision the tail began after, even when that lies in the future.
    pub fn progress(&self) -> Revision {
        if self.looked < self.look_until {
            return self.looked;
        }
        // In this order: a mark for an event is set before the event's revision is published.
        let published = self.hub.revision();
        let published = match self.lacks_changes() {
            true => published.min(Revision::new(self.hub.gap_after.load(Ordering::Acquire))),
            false => published,
        };
        let seen = match self.slot.pending.load(Ordering::Acquire) {
            0 => published,
            pending => published.min(Revision::new(pending).before()),
        };
        seen.max(self.looked).max(self.after)
    }

    /// Looks at some of what lies between `looked` and `look_until`.
    fn look(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        let ring = self.hub.ring.read();
        if ring.first > self.looked.next() {
            drop(ring);
            return self.look_in_log(max);
        }
        let start = ring.events.partition_point(|event| event.revision <= self.looked);
        let mut found = Vec::new();
        let mut looked = self.look_until;
        let mut newest = self.looked;
        for (n, event) in ring.events.range(start..).enumerate() {
            if event.revision > self.look_until {
                break;
            }
            // A revision is looked at as a whole.
            if event.revision > newest && (n >= LOOK_MAX || found.len() >= max) {
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

    fn look_in_log(&mut self, max: usize) -> Result<Vec<Arc<Event>>, TailError> {
        let root = self.hub.root();
        if self.looked < root.oldest {
            return Err(TailError::Compacted { oldest: root.oldest });
        }
        let mut found = Vec::new();
        let mut budget = LOOK_MAX;
        for segment in root.segments.starting_at(self.looked.next()) {
            // Nothing is missing between two segments, whether or not revisions are within them.
            if segment.header.first_revision > self.looked.next() && !sabotage::hole_passed_over() {
                return self.unless_missing(found, segment.header.first_revision.before());
            }
            let missing = TailError::Damaged { revision: self.looked.next() };
            let mut walk = segment.walk_from(self.looked.next()).map_err(|_| missing)?;
            // The events of a revision that has more.
            let mut part: Option<(Revision, Vec<Arc<Event>>)> = None;
            while let Some(record) = walk.next() {
                let revision = record.head.revision;
                if revision <= self.looked {
                    continue;
                }
                if revision > self.look_until {
                    return self.unless_missing(found, self.look_until);
                }
                let is_missing = match segment.header.numbering {
                    Numbering::Dense => revision != self.looked.next(),
                    Numbering::Sparse => {
                        record.skipped > 0 || part.as_ref().is_some_and(|(part, _)| *part != revision)
                    }
                };
                if is_missing && !sabotage::hole_passed_over() {
                    // Opening has reported it as lost, unless it was sound then.
                    segment.note_damaged(self.looked.next());
                    return self.unless_missing(found, revision.max(self.looked.next().next()).before());
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
        // The log ended although more was published: its last records are unreadable.
        self.unless_missing(found, self.look_until)
    }

    /// What was found before unreadable revisions up to `until`; they themselves when they are next.
    fn unless_missing(&self, found: Vec<Arc<Event>>, until: Revision) -> Result<Vec<Arc<Event>>, TailError> {
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

/// The event of a record read from the log.
fn event(root: &Root, segment: Arc<crate::segment::Segment>, record: &Found) -> Option<Arc<Event>> {
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

/// Gives way once, so that a long catch-up does not keep a worker thread to itself.
async fn let_others_run() {
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

    /// A store of that revision without any key, readable from `oldest` on.
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
        let mut random = Random::new(3);
        let mut word = |len: u64| -> Vec<u8> {
            let len = random.below(len + 1);
            (0..len).map(|_| b"ab\xff/"[random.below(4) as usize]).collect()
        };
        for _ in 0..300 {
            let mut registry = Registry::default();
            for _ in 0..word(40).len() {
                registry.tails.entry(word(6).into()).or_default().push(Arc::new(Slot::default()));
            }
            for _ in 0..30 {
                let key = word(8);
                let mut got = Vec::new();
                registry.concerned(&key, |slot| got.push(Arc::as_ptr(slot)));
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
        // It had nothing to wait for but the gap.
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
