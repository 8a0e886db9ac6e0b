//! The requests to a store and its answers, and the guarantees that follow from them, each checked by name.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::fault::now;
use engine::{
    BloomFilter, BloomQuery, BloomScheme, Change, Engine, Entry, Event, EventKind, Expected, KeyRange,
    Payload, Revision, Snapshot, Tail, TailError,
};

/// A guarantee of a store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Guarantee {
    /// Every write that was acknowledged, or that a reader got, is in the store and can be read.
    Durable,
    /// Revisions are assigned in the order of the proposals, without gaps, and events come in the order of
    /// revisions.
    Ordered,
    /// A write is there completely or not at all.
    Atomic,
    /// A condition is checked against the newest state, and a read at a revision returns exactly the states
    /// of that revision.
    ExactVersion,
    /// A tail that begins after a revision returns every later event once, or an error.
    Resumable,
    /// Opening begins with the newest checkpoint.
    QuickOpen,
    /// A query returns every matching state, and skips most other states.
    Filtered,
    /// The store contains nothing that was not requested, that was refused, or that was already deleted.
    NoGhost,
}

/// A violated guarantee with a description.
#[derive(Debug)]
pub struct Violation {
    pub guarantee: Guarantee,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.guarantee, self.what)
    }
}

pub type Checked<T = ()> = Result<T, Violation>;

/// Returns the violation of `guarantee` unless `holds` is true.
pub fn check(guarantee: Guarantee, holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { guarantee, what: what() }) }
}

/// The content of a write: attributes, and a value around its stamp.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Content {
    pub attributes: Bytes,
    pub value: Bytes,
    /// The part of the value after the stamp, if the value is stamped.
    pub rest: Option<Bytes>,
    pub ttl: Option<Duration>,
}

impl Content {
    fn stored(&self, revision: Revision) -> Vec<u8> {
        let mut stored = self.value.to_vec();
        if let Some(rest) = &self.rest {
            stored.extend_from_slice(revision.to_string().as_bytes());
            stored.extend_from_slice(rest);
        }
        stored
    }

    fn payload(&self) -> Payload {
        Payload {
            attributes: self.attributes.clone(),
            value: [&self.value[..], self.rest.as_deref().unwrap_or_default()].concat().into(),
            stamp_at: self.rest.as_ref().map(|_| self.value.len() as u32),
            ttl: self.ttl,
            ..Payload::default()
        }
    }
}

/// A write that was requested.
#[derive(Clone, Debug)]
pub struct Proposal {
    pub key: Bytes,
    pub expected: Expected,
    /// The content of a put, or the final state of a delete; `None` for a delete that keeps the stored state.
    pub content: Option<Content>,
    pub deleting: bool,
    /// Time at which the write may have been committed, in milliseconds since 1970.
    pub time_ms: u64,
}

impl Proposal {
    pub fn write(&self) -> engine::Write {
        let payload = self.content.as_ref().map(Content::payload);
        let change = match payload {
            Some(payload) if !self.deleting => Change::Put(payload),
            payload => Change::Delete(payload),
        };
        engine::Write { key: self.key.clone(), expected: self.expected, change }
    }
}

/// The write of a revision.
#[derive(Clone, Debug)]
pub struct Happened {
    pub revision: Revision,
    pub key: Bytes,
    pub deleted: bool,
    pub created: Revision,
    /// Revision of the previous state; `None` if the key did not exist.
    pub previous: Option<Revision>,
    pub content: Content,
    /// Commit time, in milliseconds since 1970.
    pub time_ms: u64,
}

impl Happened {
    /// Returns whether the store may delete the key of this state by itself.
    pub fn is_over(&self, now_ms: u64) -> bool {
        let over = |ttl: Duration| (self.time_ms + ttl.as_millis() as u64).div_ceil(1000) <= now_ms / 1000;
        !self.deleted && self.content.ttl.is_some_and(over)
    }
}

/// Everything that is known to have happened, and everything that may have happened.
#[derive(Default)]
pub struct History {
    /// The writes by revision, from 1.
    happened: Vec<Happened>,
    /// The revisions of each key, in ascending order.
    keys: BTreeMap<Bytes, Vec<Revision>>,
    /// Proposals with an unknown outcome, in the order in which they were made.
    pub unknown: VecDeque<Proposal>,
    /// History up to this revision may be compacted.
    pub forgettable: Revision,
    /// Whether the store may have refused some of the unknown proposals and committed others.
    pub refusals: bool,
}

impl History {
    /// Returns the newest revision that is known.
    pub fn revision(&self) -> Revision {
        Revision::new(self.happened.len() as u64)
    }

    pub fn get(&self, revision: Revision) -> Option<&Happened> {
        self.happened.get((revision.get() as usize).checked_sub(1)?)
    }

    /// Returns the write that made the state of `key` at `revision`, if the key existed.
    pub fn at(&self, key: &[u8], revision: Revision) -> Option<&Happened> {
        let revisions = self.keys.get(key)?;
        let newest = revisions[..revisions.partition_point(|&r| r <= revision)].last()?;
        self.get(*newest).filter(|happened| !happened.deleted)
    }

    pub fn now(&self, key: &[u8]) -> Option<&Happened> {
        self.at(key, self.revision())
    }

    /// Returns the whole store at `revision`, in the order of keys.
    pub fn state(&self, revision: Revision) -> impl Iterator<Item = &Happened> {
        self.keys.keys().filter_map(move |key| self.at(key, revision))
    }

    /// Returns the newest write of each key up to `revision`, in the order of keys.
    pub fn newest_states(&self, revision: Revision) -> impl Iterator<Item = &Happened> {
        let newest = move |revisions: &Vec<Revision>| {
            revisions[..revisions.partition_point(|&r| r <= revision)].last().copied()
        };
        self.keys.values().filter_map(newest).filter_map(|newest| self.get(newest))
    }

    /// Returns whether a proposal must succeed now.
    pub fn holds(&self, proposal: &Proposal) -> bool {
        let current = self.now(&proposal.key);
        let as_expected = match proposal.expected {
            Expected::Any => true,
            Expected::Absent => current.is_none(),
            Expected::Revision(revision) => current.is_some_and(|state| state.revision == revision),
        };
        as_expected && (!proposal.deleting || current.is_some())
    }

    /// Returns the write that results from a proposal that succeeds now.
    fn outcome(&self, proposal: &Proposal) -> Happened {
        let revision = self.revision().next();
        let current = self.now(&proposal.key);
        let kept = || current.map(|state| state.content.clone());
        Happened {
            revision,
            key: proposal.key.clone(),
            deleted: proposal.deleting,
            created: current.map_or(revision, |state| state.created),
            previous: current.map(|state| state.revision),
            content: proposal.content.clone().or_else(kept).expect("only what exists is deleted"),
            time_ms: proposal.time_ms,
        }
    }

    /// Adds the write of a proposal.
    pub fn apply(&mut self, proposal: &Proposal) -> &Happened {
        let happened = self.outcome(proposal);
        self.keys.entry(happened.key.clone()).or_default().push(happened.revision);
        self.happened.push(happened);
        &self.happened[self.happened.len() - 1]
    }

    /// Returns the newest revision committed at or before `time_ms`.
    pub fn newest_at(&self, time_ms: u64) -> Revision {
        Revision::new(self.happened.partition_point(|happened| happened.time_ms <= time_ms) as u64)
    }

    /// Removes all writes after `revision`, because a crash has undone them.
    pub fn forget_after(&mut self, revision: Revision) {
        self.happened.truncate(revision.get() as usize);
        for revisions in self.keys.values_mut() {
            revisions.truncate(revisions.partition_point(|&r| r <= revision));
        }
        self.keys.retain(|_, revisions| !revisions.is_empty());
    }

    /// Finds out from a store that was just opened which of the unknown proposals were committed: all
    /// proposals up to some point.
    pub fn learn(&mut self, engine: &Engine, now_ms: u64) -> Checked {
        let newest = engine.revision();
        let known = self.revision();
        check(Guarantee::Durable, newest >= known, || format!("the store ends at {newest}, not at {known}"))?;
        let lost = engine.stats().lost_revisions;
        check(Guarantee::Durable, lost == 0, || format!("{lost} revisions are lost"))?;
        for event in news(engine, known)? {
            self.learn_event(&event, now_ms)?;
        }
        self.unknown.clear();
        Ok(())
    }

    /// Adds the delete of a key by the store, at `time_ms` or later, because of its expiry. Returns false if
    /// the event is not such a delete.
    pub fn expire(&mut self, event: &Event, now_ms: u64, time_ms: u64) -> Checked<bool> {
        let over = self.now(&event.key).is_some_and(|state| state.is_over(now_ms));
        if !over
            || event.kind != EventKind::Delete
            || event.revision != Revision::new(self.revision().next().get())
        {
            return Ok(false);
        }
        let (key, expected) = (event.key.clone(), Expected::Any);
        let delete = Proposal { key, expected, content: None, deleting: true, time_ms };
        if check_entry(&event.entry, &self.outcome(&delete)).is_err() {
            return Ok(false);
        }
        self.apply(&delete);
        check_previous(event, self)?;
        Ok(true)
    }

    fn learn_event(&mut self, event: &Event, now_ms: u64) -> Checked {
        let revision = self.revision().next();
        check(Guarantee::Ordered, event.revision == Revision::new(revision.get()), || {
            format!("{event:?} instead of {revision}")
        })?;
        // The delete may have taken place some time before the store was opened.
        let since_ms = self.happened.last().map_or(0, |last| last.time_ms);
        if self.expire(event, now_ms, since_ms)? {
            return Ok(());
        }
        while let Some(proposal) = self.unknown.pop_front() {
            if !self.holds(&proposal) {
                continue;
            }
            let this = proposal.key == event.key && proposal.deleting == (event.kind == EventKind::Delete);
            if this {
                let happened = self.outcome(&proposal);
                let torn = check_entry(&event.entry, &happened);
                if torn.is_ok() || !self.refusals {
                    torn?;
                    self.apply(&proposal);
                    return check_previous(event, self);
                }
            }
            let skipped = self.refusals;
            check(Guarantee::Ordered, skipped, || format!("{event:?} overtook {proposal:?}"))?;
        }
        Err(Violation { guarantee: Guarantee::NoGhost, what: format!("{event:?} was not asked for") })
    }

    /// Checks that a snapshot contains exactly the states of its revision.
    pub fn check_snapshot(&self, snapshot: &Snapshot) -> Checked {
        let at = snapshot.revision();
        let mut found = snapshot.range(KeyRange::all()).peekable();
        let mut count = 0;
        for expected in self.state(at) {
            count += 1;
            let entry = found.next_if(|entry| entry.key() <= &expected.key);
            let ghost = entry.as_ref().is_some_and(|entry| entry.key() < &expected.key);
            check(Guarantee::NoGhost, !ghost, || format!("{entry:?} at {at} although it does not exist"))?;
            let Some(entry) = entry else {
                let what = format!("{:?} is missing at {at}, written at {}", expected.key, expected.revision);
                return Err(Violation { guarantee: Guarantee::Durable, what });
            };
            check_entry(&entry, expected)?;
        }
        let more = found.next();
        check(Guarantee::NoGhost, more.is_none(), || format!("{more:?} at {at} although it does not exist"))?;
        let counted = snapshot.count(&KeyRange::all());
        check(Guarantee::ExactVersion, counted == count, || format!("{counted} keys at {at}, not {count}"))
    }

    /// Checks that a query made for the newest write returns the state of that write and all states with the
    /// same Bloom filter. If all states have Bloom filters, the query must return no other state.
    pub fn check_filtered(
        &self,
        snapshot: &Snapshot,
        bloom_scheme: BloomScheme,
        all_have_blooms: bool,
    ) -> Checked {
        let at = snapshot.revision();
        let filter = |happened: &Happened| (bloom_scheme.filter)(&happened.content.attributes);
        let Some(expected) = self.get(at).map(filter) else { return Ok(()) };
        let mut query = BloomQuery::default();
        query.require(vec![expected]);
        let found: Vec<_> = snapshot.range(KeyRange::all()).filtered(query).flatten().collect();
        for state in self.state(at) {
            let is_found = found.iter().any(|entry| entry.key() == &state.key);
            let is_expected = filter(state) == expected;
            check(Guarantee::Filtered, is_found || !is_expected, || {
                format!("{state:?} is held back at {at}")
            })?;
            let is_right = !is_found || is_expected || !all_have_blooms || bloom_scheme.kind == 0;
            check(Guarantee::Filtered, is_right, || format!("{state:?} is not signed at {at}"))?;
        }
        Ok(())
    }

    /// Returns the next write after `seen` that a tail on `prefix` must return.
    fn next(&self, seen: Revision, prefix: &[u8]) -> Option<&Happened> {
        let after = self.happened.get(seen.get() as usize..).unwrap_or_default();
        after.iter().find(|happened| happened.key.starts_with(prefix))
    }
}

/// Returns a scheme whose filter depends on the last digit of the attributes in [`Content`].
pub fn bloom_scheme(kind: u32) -> BloomScheme {
    let filter: fn(&[u8]) -> BloomFilter = match kind {
        0 => return BloomScheme::default(),
        1 => |attributes| BloomFilter::from_bits(1 << (attributes.last().map_or(0, |digit| digit % 10))),
        _ => |attributes| BloomFilter::from_bits(1 << (attributes.last().map_or(0, |digit| 70 + digit % 10))),
    };
    BloomScheme { kind, filter }
}

/// Returns the events of a store after `known`.
pub fn news(engine: &Engine, known: Revision) -> Checked<Vec<Arc<Event>>> {
    let newest = engine.revision();
    let mut tail = engine.tail(known, Bytes::new()).expect("the newest that is known can be followed");
    let mut news = Vec::new();
    while known.get() + (news.len() as u64) < newest.get() {
        match now(tail.next(64)) {
            Some(Ok(events)) => news.extend(events),
            other => {
                let what = format!("the tail from {known} does not reach {newest}: {other:?}");
                return Err(Violation { guarantee: Guarantee::Resumable, what });
            }
        }
    }
    Ok(news)
}

/// Checks that an entry is the state that `expected` made.
pub fn check_entry(entry: &Entry, expected: &Happened) -> Checked {
    let right = (entry.revision(), entry.created()) == (expected.revision, expected.created);
    check(Guarantee::ExactVersion, right, || format!("{entry:?} instead of {expected:?}"))?;
    let record = entry.read();
    let Ok(record) = record else {
        return Err(Violation { guarantee: Guarantee::Durable, what: format!("{entry:?}: {record:?}") });
    };
    let whole = record.key == expected.key
        && record.attributes == expected.content.attributes
        && record.value == expected.content.stored(expected.revision);
    check(Guarantee::Atomic, whole, || format!("{record:?} instead of {expected:?}"))
}

/// Checks that the previous state of an event is the state in the history.
fn check_previous(event: &Event, history: &History) -> Checked {
    let expected = history.get(event.revision).and_then(|happened| happened.previous);
    let found = event.previous.as_ref().map(Entry::revision);
    check(Guarantee::ExactVersion, found == expected, || {
        format!("{event:?} instead of one that follows {expected:?}")
    })
}

/// A reader that follows a prefix through all crashes.
pub struct Follower {
    pub tail: Option<Tail>,
    pub prefix: Bytes,
    /// Revision up to which the tail has returned every event.
    pub seen: Revision,
}

impl Follower {
    /// Continues after the last seen revision, on a store that was opened again.
    pub fn resume(&mut self, engine: &Engine, history: &History) -> Checked {
        match engine.tail(Revision::new(self.seen.get()), self.prefix.clone()) {
            Ok(tail) => self.tail = Some(tail),
            Err(error) => self.start_over(error, history)?,
        }
        Ok(())
    }

    /// Checks that the next events are compacted; then the reader begins with the newest revision.
    fn start_over(&mut self, error: TailError, history: &History) -> Checked {
        let is_compacted = matches!(error, TailError::Compacted { oldest } if self.seen < oldest);
        let allowed = is_compacted && self.seen < history.forgettable;
        check(Guarantee::Resumable, allowed, || format!("a tail from {} ended: {error}", self.seen))?;
        self.tail = None;
        self.seen = history.revision();
        Ok(())
    }

    /// Reads at most `max` events and compares them with the known history.
    pub fn look(&mut self, history: &History, max: usize) -> Checked {
        let Some(tail) = &mut self.tail else { return Ok(()) };
        let events = match now(tail.next(max)) {
            None => {
                let missing = history.next(self.seen, &self.prefix);
                let what = || format!("a tail from {} on {:?} misses {missing:?}", self.seen, self.prefix);
                return check(Guarantee::Resumable, missing.is_none(), what);
            }
            Some(Ok(events)) => events,
            Some(Err(error)) => return self.start_over(error, history),
        };
        for event in events {
            let (revision, seen) = (event.revision, self.seen);
            check(Guarantee::Ordered, revision > seen, || format!("{event:?} after {seen}"))?;
            let expected = history.next(seen, &self.prefix);
            let next = expected.map_or(Revision::MAX, |happened| happened.revision);
            check(Guarantee::NoGhost, revision >= next, || format!("{event:?} was never told"))?;
            check(Guarantee::Resumable, revision == next, || format!("{event:?} instead of {expected:?}"))?;
            if let Some(expected) = expected {
                let same = event.key == expected.key && (event.kind == EventKind::Delete) == expected.deleted;
                check(Guarantee::NoGhost, same, || format!("{event:?} instead of {expected:?}"))?;
                check_entry(&event.entry, expected)?;
                check_previous(&event, history)?;
            }
            self.seen = revision;
        }
        Ok(())
    }
}
