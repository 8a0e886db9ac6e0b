//! Moving a store into etcd, and out of it: the mark that keeps other writers away, and what makes the target equal to the
//! source (docs/api/etcd.md#moving).
//!
//! ```text
//! claim (mark: filling) ─► raise etcd's revision above the source's ─► level, follow ─► compare ─► conclude (no mark)
//! leave (mark: left)    ─► the copy has the revision of the mark     ─► compare
//! ```
//!
//! Each write's transaction demands that the mark is as the writer knows it. Levelling writes what differs and nothing else,
//! so that one that was interrupted is begun again at no cost. States that clients know of the source never have the revision of
//! another state here: each object is written at a revision above the source's newest.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use engine::{
    ApplyError, Change, Engine, Entry, EventKind, Expected, KeyRange, ReadError, Revision, Snapshot, Tail,
    TailError, Write,
};
use etcd::Error;
use etcd::rpc::{
    Compare, DeleteRangeRequest, EVENT_PUT, Event, KeyValue, PutRequest, RangeRequest, Request, TxnRequest,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest as _, Sha256};

use super::apply::Batch;
use super::values::{ValueError, content};
use super::{Replica, number, revision};
use crate::objects::store::CommitFailure;
use crate::values::json;
use crate::values::status::Reason;

/// Name of the mark, below the prefix.
pub(super) const MARK: &str = "migration";

/// Name of the key that is written to raise etcd's revision, below the prefix.
const FILLER: &str = "migration-revisions";

/// Most writes that raise a revision. A store that was restored is further above, and etcd takes no revision but by writes.
const RAISE_MAX: u64 = 50_000_000;

/// Writes under way at once.
const WRITES_MAX: usize = 32;

/// Writes that raise the revision after which etcd is compacted.
const RAISED_MAX: u64 = 100_000;

/// How often a write is begun again when etcd does not answer, or another one has changed the ports; and the pause.
const TRIES: (u32, Duration) = (100, Duration::from_millis(100));

/// How far the target may be behind when the source may stop.
const LAG_MAX: u64 = 256;

/// Most events taken from the source at once.
const EVENTS_MAX: usize = 1024;

/// Start of the keys of services, and of the addresses that they have.
const SERVICES: &[u8] = b"/core/services/";
const ADDRESSES: &[u8] = b"/networking/ipaddresses/";

/// Why a store was not moved. What was written until then is right; a repeated move goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// etcd did not answer, or refused.
    #[error("etcd: {0}")]
    Etcd(#[from] Error),
    /// The target is in use.
    #[error("{0}")]
    InUse(String),
    /// A state of the source cannot be read.
    #[error(transparent)]
    Damaged(#[from] ReadError),
    /// An object has no form in the target.
    #[error("{key}: {why}")]
    Object {
        /// Its key.
        key: String,
        /// Why.
        why: String,
    },
    /// The target's engine did not take it.
    #[error(transparent)]
    Engine(#[from] ApplyError),
    /// The source cannot be followed.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// Source and target differ.
    #[error("source and target differ: {0}")]
    Differ(String),
}

/// What is of one resource: how many objects, and what they are.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Digest {
    /// Objects.
    pub objects: u64,
    /// The sum of their keys and contents, in hexadecimal digits.
    pub sum: String,
}

/// By resource.
pub type Digests = BTreeMap<String, Digest>;

/// What levelling did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Levelled {
    /// Objects that were as they should be.
    pub equal: u64,
    /// Objects written.
    pub written: u64,
    /// Objects deleted.
    pub deleted: u64,
}

impl Replica {
    /// What the mark says, and its revision.
    ///
    /// # Errors
    /// etcd did not answer.
    pub async fn mark(&self) -> Result<Option<(String, i64)>, Error> {
        let request = RangeRequest { key: self.mark_key(), ..RangeRequest::default() };
        let found = self.client.range(&request).await?.kvs.into_iter().next();
        Ok(found.map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.mod_revision)))
    }

    /// How many keys there are below the prefix.
    ///
    /// # Errors
    /// etcd did not answer.
    pub async fn count(&self) -> Result<i64, Error> {
        let range = KeyRange::prefix(self.keys.prefix().as_bytes());
        let end = range.end.unwrap_or_else(|| Bytes::from_static(b"\0"));
        let request =
            RangeRequest { key: range.start, range_end: end, count_only: true, ..RangeRequest::default() };
        Ok(self.client.range(&request).await?.count)
    }

    /// Takes an etcd for the store `id`: it must be empty, or have been left or half filled by the same store. Returns whether it
    /// is empty.
    ///
    /// # Errors
    /// It is in use.
    pub async fn claim(&self, id: &str) -> Result<bool, MoveError> {
        let found = self.mark().await?;
        let wanted = format!("filling {id}");
        let known = match &found {
            None => match self.count().await? {
                0 => 0,
                count => {
                    let prefix = self.keys.prefix();
                    return Err(MoveError::InUse(format!(
                        "the target is not empty: {count} keys below {prefix}"
                    )));
                }
            },
            Some((text, at)) if *text == wanted => {
                self.claim.store(*at, Ordering::Release);
                return Ok(false);
            }
            Some((text, at)) if *text == format!("left {id}") => *at,
            Some((text, _)) => {
                return Err(MoveError::InUse(format!(
                    "the target belongs to another move: its mark is {text:?}"
                )));
            }
        };
        self.put_mark(&wanted, known).await?;
        Ok(found.is_none())
    }

    /// Marks an etcd as left by the store `id`: no server takes writes there from then on. Returns the last revision that counts.
    ///
    /// # Errors
    /// It is being filled, or was left by another store.
    pub async fn leave(&self, id: &str) -> Result<Revision, MoveError> {
        let wanted = format!("left {id}");
        match self.mark().await? {
            None => self.put_mark(&wanted, 0).await.map(revision),
            Some((text, at)) if text == wanted => {
                self.claim.store(at, Ordering::Release);
                Ok(revision(at))
            }
            Some((text, _)) => Err(MoveError::InUse(format!("the source has the mark {text:?}"))),
        }
    }

    async fn put_mark(&self, text: &str, known: i64) -> Result<i64, MoveError> {
        let key = self.mark_key();
        let put = PutRequest { key: key.clone(), value: text.to_owned().into(), lease: 0 };
        let request = TxnRequest {
            compare: vec![Compare::mod_revision(key, known)],
            success: vec![Request::Put(put).into()],
            failure: Vec::new(),
        };
        let answer = self.client.txn(&request).await?;
        if !answer.succeeded {
            return Err(MoveError::InUse("another move began meanwhile".to_owned()));
        }
        let at = answer.header.unwrap_or_default().revision;
        self.claim.store(at, Ordering::Release);
        Ok(at)
    }

    /// Takes the mark away: the etcd is a store like any other from then on.
    ///
    /// # Errors
    /// etcd did not answer, or the mark is another's.
    pub async fn conclude(&self) -> Result<(), MoveError> {
        let delete = |key| Request::Delete(DeleteRangeRequest { key, range_end: Bytes::new() }).into();
        let request = TxnRequest {
            compare: vec![Compare::mod_revision(self.mark_key(), self.claimed())],
            success: vec![delete(self.mark_key()), delete(self.filler_key())],
            failure: Vec::new(),
        };
        match self.client.txn(&request).await?.succeeded {
            true => {
                self.claim.store(0, Ordering::Release);
                Ok(())
            }
            false => Err(MoveError::InUse("the mark of the move is another's".to_owned())),
        }
    }

    /// Waits until the copy has a revision.
    ///
    /// # Errors
    /// It has not in time.
    pub async fn reach(&self, wanted: Revision) -> Result<(), MoveError> {
        self.follow_to(wanted).await.map_err(|status| MoveError::InUse(status.message))
    }

    /// Waits until the copy has what etcd has.
    ///
    /// # Errors
    /// etcd did not answer, or the copy does not follow.
    pub async fn catch_up(&self) -> Result<(), MoveError> {
        let newest = self.newest().await?;
        self.reach(newest).await
    }

    fn filler_key(&self) -> Bytes {
        format!("{}{FILLER}", self.keys.prefix()).into()
    }

    /// How many writes it takes to have etcd's revision at least `room` above `source`.
    ///
    /// # Errors
    /// etcd did not answer, or that are too many.
    pub async fn raising(&self, source: Revision, room: u64) -> Result<u64, MoveError> {
        let request = RangeRequest { key: self.filler_key(), ..RangeRequest::default() };
        let now = revision(self.client.range(&request).await?.header.unwrap_or_default().revision);
        match (source.get() + room).saturating_sub(now.get()) {
            writes if writes > RAISE_MAX => Err(MoveError::InUse(format!(
                "etcd is at revision {now}, the source at {source}: more than {RAISE_MAX} writes would be needed to get there"
            ))),
            writes => Ok(writes),
        }
    }

    /// Has etcd's revision be at least so far above `source`, by writes of one key.
    ///
    /// # Errors
    /// etcd did not answer, or too many writes would be needed.
    pub async fn raise(&self, source: Revision, room: u64) -> Result<Revision, MoveError> {
        self.raising(source, room).await?;
        let wanted = source.get() + room;
        let request = RangeRequest { key: self.filler_key(), ..RangeRequest::default() };
        let mut now = revision(self.client.range(&request).await?.header.unwrap_or_default().revision);
        while now.get() < wanted {
            let most = (wanted - now.get()).min(RAISED_MAX);
            let put = PutRequest { key: self.filler_key(), value: now.to_string().into(), lease: 0 };
            let request = TxnRequest { success: vec![Request::Put(put).into()], ..TxnRequest::default() };
            let writes =
                stream::iter(0..most).map(|_| self.client.txn(&request)).buffer_unordered(WRITES_MAX);
            let newest = writes.try_fold(0, async |newest: i64, answer| {
                Ok(newest.max(answer.header.unwrap_or_default().revision))
            });
            now = now.max(revision(newest.await?));
            if most == RAISED_MAX {
                match self.client.compact(number(now)).await {
                    Err(error) if !error.is_compacted() => return Err(error.into()),
                    _ => tracing::info!(revision = now.get(), wanted, "etcd's revision is raised"),
                }
            }
        }
        Ok(now)
    }

    /// Makes etcd what `source` is, every object at a revision above `floor`. `progress` hears of each object.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn level(
        &self,
        source: &Snapshot,
        floor: Revision,
        mut progress: impl FnMut(u64),
    ) -> Result<Levelled, MoveError> {
        let mut levelled = Levelled::default();
        let mut seen = 0;
        // Services share a value that says which ports are taken: one after the other.
        for (services, most) in [(false, WRITES_MAX), (true, 1)] {
            let entries = source.range(KeyRange::all());
            let entries = entries.filter(|entry| entry.key().starts_with(SERVICES) == services);
            let mut writes = stream::iter(entries)
                .map(async |entry| match self.is_moved(&entry)? {
                    true => self.level_one(&entry, floor).await.map(Some),
                    false => Ok(None),
                })
                .buffer_unordered(most);
            while let Some(wrote) = writes.try_next().await? {
                match wrote {
                    Some(true) => levelled.written += 1,
                    Some(false) => levelled.equal += 1,
                    None => {}
                }
                seen += 1;
                progress(seen);
            }
        }
        let copy = self.engine.snapshot();
        for entry in copy.range(KeyRange::all()) {
            if self.is_moved(&entry)? && source.get(entry.key()).is_none() {
                self.write(entry.key(), Change::Delete(None)).await?;
                levelled.deleted += 1;
            }
        }
        Ok(levelled)
    }

    /// Whether a state is an object that is moved. Addresses that the allocator has handed out come and go with their services.
    fn is_moved(&self, entry: &Entry) -> Result<bool, MoveError> {
        if self.keys.of(entry.key()).is_none() {
            return Ok(false);
        }
        if !entry.key().starts_with(ADDRESSES) {
            return Ok(true);
        }
        let value = entry.read()?.value;
        let label = format!("ipaddress.{}", self.naming.label("managed-by"));
        let object = json::parse(&value).map_err(|why| object_error(entry.key(), why))?;
        let manager = object.str_at(&["metadata", "labels", &label]);
        Ok(manager != format!("ipallocator{}", self.naming.group_suffix))
    }

    async fn level_one(&self, entry: &Entry, floor: Revision) -> Result<bool, MoveError> {
        let key = entry.key();
        let value = entry.read()?.value;
        if let Some(known) = self.engine.snapshot().get(key).filter(|known| known.revision() > floor)
            && contents_of(key, &known.read()?.value)? == contents_of(key, &value)?
        {
            return Ok(false);
        }
        let Some((_, resource)) = self.keys.of(key) else { return Ok(false) };
        let payload = self.values.restated(resource.map(|resource| &**resource), &value);
        let mut payload = payload.map_err(|why| object_error(key, why))?;
        payload.ttl = entry.expires_s().map(left_of);
        self.write(key, Change::Put(payload)).await?;
        Ok(true)
    }

    /// Writes a key of etcd, whatever it is there. Nothing else writes: so a write of which nothing is known is repeated.
    async fn write(&self, key: &Bytes, change: Change) -> Result<(), MoveError> {
        let mut tries = 0;
        loop {
            let write = Write { key: key.clone(), expected: Expected::Any, change: change.clone() };
            let failure = match self.decide(write).await {
                Ok(_) => return Ok(()),
                // What is to be deleted is gone.
                Err(CommitFailure::Conflict { current: None }) if matches!(change, Change::Delete(_)) => {
                    return Ok(());
                }
                Err(failure) => failure,
            };
            tries += 1;
            let waits = match &failure {
                CommitFailure::Again | CommitFailure::Conflict { .. } => true,
                CommitFailure::Status(status) => {
                    matches!(status.reason, Reason::Timeout | Reason::ServiceUnavailable)
                }
                CommitFailure::Engine(_) => false,
            };
            if !waits || tries == TRIES.0 {
                let why = match failure {
                    CommitFailure::Status(status) => status.message.clone(),
                    failure => format!("{failure:?}"),
                };
                return Err(object_error(key, why));
            }
            tokio::time::sleep(TRIES.1).await;
        }
    }

    /// Follows a source that changes. `ready` is told once the target is close behind; `stopped` says whether the source has
    /// stopped, and this ends when everything of it is there.
    ///
    /// # Errors
    /// See [`MoveError`]. One of the tail means that the source went ahead too far: level again.
    pub async fn keep_up(
        &self,
        source: &Engine,
        mut tail: Tail,
        floor: Revision,
        ready: &tokio::sync::Notify,
        mut stopped: tokio::sync::watch::Receiver<bool>,
    ) -> Result<u64, MoveError> {
        let mut written = 0;
        let mut at = tail.progress();
        loop {
            if source.revision().since(at) <= LAG_MAX {
                ready.notify_one();
            }
            if *stopped.borrow_and_update() && at >= source.revision() {
                return Ok(written);
            }
            let events = tokio::select! {
                events = tail.next(EVENTS_MAX) => events?,
                _ = stopped.changed() => continue,
            };
            // The newest state of each key is what counts.
            let mut newest: BTreeMap<Bytes, (EventKind, Entry)> = BTreeMap::new();
            for event in events {
                at = at.max(event.revision);
                newest.insert(event.key.clone(), (event.kind, event.entry.clone()));
            }
            let (services, others): (Vec<_>, Vec<_>) =
                newest.into_iter().partition(|(key, _)| key.starts_with(SERVICES));
            for (part, most) in [(others, WRITES_MAX), (services, 1)] {
                let writes = stream::iter(part)
                    .map(async |(key, (kind, entry))| {
                        if !self.is_moved(&entry)? {
                            return Ok::<_, MoveError>(0);
                        }
                        match kind {
                            EventKind::Put => self.level_one(&entry, floor).await.map(u64::from),
                            EventKind::Delete => self.write(&key, Change::Delete(None)).await.map(|()| 1),
                        }
                    })
                    .buffer_unordered(most);
                written += writes.try_fold(0, async |sum, one| Ok(sum + one)).await?;
            }
        }
    }

    /// Compares what two snapshots have, by resource, and returns what both have.
    ///
    /// # Errors
    /// They differ, or a state cannot be read.
    pub fn compare(&self, source: &Snapshot, target: &Snapshot) -> Result<Digests, MoveError> {
        let (ours, theirs) = (self.digests(source)?, self.digests(target)?);
        let mut differing = String::new();
        for resource in ours.keys().chain(theirs.keys().filter(|resource| !ours.contains_key(*resource))) {
            let (one, other) = (ours.get(resource), theirs.get(resource));
            if one != other {
                let count = |digest: Option<&Digest>| digest.map_or(0, |digest| digest.objects);
                let _ = write!(differing, "{resource} ({} and {} objects) ", count(one), count(other));
            }
        }
        match differing.is_empty() {
            true => Ok(ours),
            false => Err(MoveError::Differ(differing.trim_end().to_owned())),
        }
    }

    /// What a snapshot has, by resource. The values are read once, and none is kept.
    ///
    /// # Errors
    /// A state cannot be read.
    pub fn digests(&self, snapshot: &Snapshot) -> Result<Digests, MoveError> {
        let mut sums: BTreeMap<String, (u64, Sha256)> = BTreeMap::new();
        for entry in snapshot.range(KeyRange::all()) {
            if !self.is_moved(&entry)? {
                continue;
            }
            let key = String::from_utf8_lossy(entry.key()).into_owned();
            let resource: Vec<&str> = key.trim_start_matches('/').splitn(3, '/').take(2).collect();
            let (objects, sum) = sums.entry(resource.join("/")).or_default();
            *objects += 1;
            let content = contents_of(entry.key(), &entry.read()?.value)?;
            for part in [entry.key(), &content[..]] {
                sum.update((part.len() as u64).to_be_bytes());
                sum.update(part);
            }
        }
        let digest = |(objects, sum): (u64, Sha256)| {
            let sum = sum.finalize().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            Digest { objects, sum }
        };
        Ok(sums.into_iter().map(|(resource, sums)| (resource, digest(sums))).collect())
    }

    /// Fills an empty engine with states, which come by ascending revision, as of the revision `at`.
    ///
    /// # Errors
    /// One cannot be read: it would be lost. See also [`MoveError`].
    pub async fn import(
        &self,
        at: Revision,
        states: impl Iterator<Item = Result<KeyValue, MoveError>>,
    ) -> Result<(), MoveError> {
        let mut batch = Batch::new(self);
        let mut states = states.peekable();
        while let Some(first) = states.next() {
            let first = first?;
            let same = first.mod_revision;
            let mut group = vec![first];
            while let Some(next) =
                states.next_if(|next| next.as_ref().is_ok_and(|kv| kv.mod_revision == same))
            {
                group.push(next?);
            }
            batch.make_room(group.len() + 1, group.iter().map(|kv| 2 * kv.value.len()).sum()).await?;
            for kv in &group {
                if !batch.put(revision(same), kv) && self.keys.place(&kv.key).key().is_some() {
                    return Err(object_error(&kv.key, "its value cannot be read"));
                }
            }
        }
        batch.apply().await?;
        batch.mark(at);
        batch.apply().await?;
        let _ = self.engine.compact(at).await;
        Ok(())
    }

    /// Which objects of etcd the copy does not show, because they cannot be read; ten of them at most.
    ///
    /// # Errors
    /// etcd did not answer.
    pub async fn unreadable(&self) -> Result<Vec<String>, MoveError> {
        let range = KeyRange::prefix(self.keys.prefix().as_bytes());
        let end = range.end.unwrap_or_else(|| Bytes::from_static(b"\0"));
        let (mut key, mut hidden) = (range.start, Vec::new());
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit: 500,
                revision: number(self.engine.revision()),
                keys_only: true,
                ..RangeRequest::default()
            };
            let page = self.client.range(&request).await?;
            let snapshot = self.engine.snapshot();
            for kv in &page.kvs {
                let ours = self.keys.place(&kv.key);
                let is_hidden = ours.key().is_some_and(|ours| {
                    snapshot.get(ours).is_none_or(|entry| entry.revision() != revision(kv.mod_revision))
                });
                if is_hidden && hidden.len() < 10 {
                    hidden.push(String::from_utf8_lossy(&kv.key).into_owned());
                }
            }
            match page.kvs.last().filter(|_| page.more) {
                Some(last) => key = [&last.key[..], b"\0"].concat().into(),
                None => return Ok(hidden),
            }
        }
    }

    /// What a store that is left has to delete once it decides for itself: the mark of revisions, and the addresses of services.
    ///
    /// # Errors
    /// A state cannot be read.
    pub fn leftovers(&self, snapshot: &Snapshot) -> Result<Vec<Bytes>, MoveError> {
        let mut keys = Vec::new();
        for entry in snapshot.range(KeyRange::all()) {
            if !self.is_moved(&entry)? {
                keys.push(entry.key().clone());
            }
        }
        Ok(keys)
    }

    /// Notes that the store has left this etcd, or has come back, where a change says so.
    pub(super) fn note_move(&self, event: &Event) {
        let Some(kv) = event.kv.as_ref().filter(|kv| kv.key == self.mark_key()) else { return };
        let has_left = event.kind == EVENT_PUT && kv.value.starts_with(b"left ");
        if has_left {
            tracing::warn!("the store was moved from this etcd to another place");
        }
        self.has_left.store(has_left, Ordering::Release);
    }
}

fn contents_of(key: &Bytes, value: &[u8]) -> Result<Vec<u8>, MoveError> {
    content(value).map_err(|why: ValueError| object_error(key, why))
}

fn object_error(key: &Bytes, why: impl std::fmt::Display) -> MoveError {
    MoveError::Object { key: String::from_utf8_lossy(key).into_owned(), why: why.to_string() }
}

/// The time until a second since 1970, in full minutes where it is longer than one: objects share leases.
fn left_of(expires_s: u32) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let left = u64::from(expires_s).saturating_sub(now).max(1);
    Duration::from_secs(if left > 60 { left.next_multiple_of(60) } else { left })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_equal_whatever_their_order_and_revision() {
        let key = Bytes::from_static(b"/core/configmaps/a/b");
        let content = |text: &str| contents_of(&key, text.as_bytes()).unwrap();
        let one = r#"{"kind":"A","metadata":{"resourceVersion":"7","name":"x"},"data":{"b":1,"a":[{"d":1,"c":2}]}}"#;
        let same = r#"{"data":{"a":[{"c":2,"d":1}],"b":1},"metadata":{"name":"x","resourceVersion":"8"},"kind":"A"}"#;
        let other = r#"{"data":{"a":[{"c":2,"d":2}],"b":1},"metadata":{"name":"x"},"kind":"A"}"#;
        assert_eq!(content(one), content(same));
        assert_ne!(content(one), content(other));
        assert!(contents_of(&key, b"[]").is_err());
    }

    #[test]
    fn what_is_left_is_in_full_minutes() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as u32;
        for (seconds, least, most) in [(0, 1, 1), (30, 29, 30), (3600, 3600, 3600)] {
            let left = left_of(now + seconds).as_secs();
            assert!((least..=most).contains(&left), "{seconds}: {left}");
        }
    }
}
