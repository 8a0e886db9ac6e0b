//! Moves a store into and out of etcd: makes the target equal to the source, and verifies that both are equal
//! (docs/api/etcd.md#moving).
//!
//! ```text
//! claim (mark: filling) ─► raise etcd's revision above the source's ─► level, follow ─► compare ─► conclude (no mark)
//! leave (mark: left)    ─► the copy has the revision of the mark     ─► compare
//! ```
//!
//! The mark excludes other writers (`migration_mark.rs`). Levelling writes only differences, so repeating an
//! interrupted run is cheap. Each object is written to etcd at a revision above the newest revision of the
//! source. Therefore a read at a revision of the source never returns another state from etcd.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use engine::{
    ApplyError, Change, Engine, Entry, EventKind, Expected, KeyRange, ReadError, Revision, Snapshot, Tail,
    TailError, Write,
};
use etcd::Error;
use etcd::rpc::{KeyValue, RangeRequest};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::apply::Batch;
use super::digests::{Digest, Digests, Sums};
use super::stored_values::{ValueError, content};
use super::{Replica, number, revision};
use objects::store::CommitFailure;
use values::json;
use values::status::StatusReason;

/// Maximum number of concurrent writes.
const WRITES_MAX: usize = 32;

/// Number of attempts of a write, and the pause between them. A write is repeated if etcd does not respond,
/// or if another write has changed the ports.
const TRIES: (u32, Duration) = (100, Duration::from_millis(100));

/// Maximum number of objects that are not yet written when the source may stop. Only the newest version of an
/// object is moved, however often the object changes.
const LEFT_MAX: usize = 256;

/// Maximum number of events that are taken from the source at once. A busy source makes this number of events in a few
/// seconds.
const EVENTS_MAX: usize = 8192;

/// Key prefix of services.
const SERVICES: &[u8] = b"/core/services/";
/// Key prefix of the addresses of services.
const ADDRESSES: &[u8] = b"/networking/ipaddresses/";

/// The reason why a store was not moved. Everything that was written before the failure is correct, and a
/// repeated move completes the rest.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The request to etcd failed.
    #[error("etcd: {0}")]
    Etcd(#[from] Error),
    /// The target is in use.
    #[error("{0}")]
    InUse(String),
    /// A record of the source cannot be read.
    #[error(transparent)]
    Damaged(#[from] ReadError),
    /// An object cannot be represented in the target.
    #[error("{key}: {why}")]
    Object {
        /// Key of the object.
        key: String,
        /// Description of the problem.
        why: String,
    },
    /// The engine of the target refused the records.
    #[error(transparent)]
    Engine(#[from] ApplyError),
    /// The changes of the source cannot be followed.
    #[error(transparent)]
    Tail(#[from] TailError),
    /// Source and target differ.
    #[error("source and target differ: {0}")]
    Differ(String),
}

/// The result of levelling.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Levelled {
    /// Number of objects that were already equal.
    pub equal: u64,
    /// Number of objects written.
    pub written: u64,
    /// Number of objects deleted.
    pub deleted: u64,
}

impl Replica {
    /// Makes etcd equal to `source`, with every object at a revision above `floor`. Calls `progress` with the
    /// number of processed entries.
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
        // All services use the one value with the allocated ports, so they are written one after the other.
        for (services, most) in [(false, WRITES_MAX), (true, 1)] {
            let entries = source.range(KeyRange::all());
            let entries = entries.filter(|entry| entry.key().starts_with(SERVICES) == services);
            let mut writes = stream::iter(entries)
                .map(async |entry| {
                    if self.is_moved(&entry)? {
                        self.level_one(&entry, floor).await.map(Some)
                    } else {
                        Ok(None)
                    }
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

    /// Returns whether an entry is an object that is moved. Addresses that the allocator created are not
    /// moved, because writes of services create and delete them.
    fn is_moved(&self, entry: &Entry) -> Result<bool, MoveError> {
        if self.keys.etcd_key(entry.key()).is_none() {
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
        let Some((_, resource)) = self.keys.etcd_key(key) else { return Ok(false) };
        let payload = self.values.restated(resource.map(|resource| &**resource), &value);
        let mut payload = payload.map_err(|why| object_error(key, why))?;
        payload.ttl = entry.expires_s().map(remaining_time);
        self.write(key, Change::Put(payload)).await?;
        Ok(true)
    }

    /// Writes a key of etcd regardless of its current state. There are no other writers, so a write with an
    /// unknown outcome is repeated.
    async fn write(&self, key: &Bytes, change: Change) -> Result<(), MoveError> {
        let mut tries = 0;
        loop {
            let write = Write { key: key.clone(), expected: Expected::Any, change: change.clone() };
            let failure = match self.decide(write).await {
                Ok(_) => return Ok(()),
                // The object to delete is already gone.
                Err(CommitFailure::Conflict { current: None }) if !matches!(change, Change::Put(_)) => {
                    return Ok(());
                }
                Err(failure) => failure,
            };
            tries += 1;
            let waits = match &failure {
                CommitFailure::Again | CommitFailure::Conflict { .. } => true,
                CommitFailure::Status(status) => {
                    matches!(status.reason, StatusReason::Timeout | StatusReason::ServiceUnavailable)
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

    /// Follows the changes of a source. Notifies `ready` when the target lags only a little. Returns after
    /// `stopped` has reported that the source has stopped, and the target has received all changes.
    ///
    /// # Errors
    /// See [`MoveError`]. An error of the tail means that the target lagged too far. The caller must then
    /// call `level` again.
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
            if at >= source.revision() {
                ready.notify_one();
            }
            if *stopped.borrow_and_update() && at >= source.revision() {
                return Ok(written);
            }
            let events = tokio::select! {
                events = tail.next(EVENTS_MAX) => events?,
                _ = stopped.changed() => continue,
            };
            let are_all = events.len() < EVENTS_MAX;
            // Only the newest state of each key is written.
            let mut newest: BTreeMap<Bytes, (EventKind, Entry)> = BTreeMap::new();
            for event in events {
                at = at.max(event.revision);
                newest.insert(event.key.clone(), (event.kind, event.entry.clone()));
            }
            let changed = newest.len();
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
            // About `changed` further objects changed during these writes, so the target lags only a little.
            if are_all && changed <= LEFT_MAX {
                ready.notify_one();
            }
        }
    }

    /// Compares two snapshots by resource, and returns the digests, which are equal.
    ///
    /// # Errors
    /// Fails if the snapshots differ, or if a record cannot be read.
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
        if differing.is_empty() { Ok(ours) } else { Err(MoveError::Differ(differing.trim_end().to_owned())) }
    }

    /// Returns the digests of a snapshot by resource. Each value is read once and not kept in memory.
    ///
    /// # Errors
    /// Fails if a record cannot be read.
    pub fn digests(&self, snapshot: &Snapshot) -> Result<Digests, MoveError> {
        let mut sums = Sums::default();
        for entry in snapshot.range(KeyRange::all()) {
            if !self.is_moved(&entry)? {
                continue;
            }
            let key = String::from_utf8_lossy(entry.key()).into_owned();
            let resource: Vec<&str> = key.trim_start_matches('/').splitn(3, '/').take(2).collect();
            sums.add(resource.join("/"), entry.key(), &contents_of(entry.key(), &entry.read()?.value)?);
        }
        Ok(sums.finish())
    }

    /// Fills an empty engine with the states at revision `at`. The states must be in the order of revisions.
    ///
    /// # Errors
    /// Fails if a state cannot be read, because the state would be lost. See also [`MoveError`].
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

    /// Returns the etcd keys of at most ten objects that the copy hides because their values cannot be read.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
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

    /// Returns the keys that a store must delete after it leaves etcd and decides its own writes: the mark of
    /// revisions, and the addresses of services.
    ///
    /// # Errors
    /// Fails if a record cannot be read.
    pub fn leftovers(&self, snapshot: &Snapshot) -> Result<Vec<Bytes>, MoveError> {
        let mut keys = Vec::new();
        for entry in snapshot.range(KeyRange::all()) {
            if !self.is_moved(&entry)? {
                keys.push(entry.key().clone());
            }
        }
        Ok(keys)
    }
}

fn contents_of(key: &Bytes, value: &[u8]) -> Result<Vec<u8>, MoveError> {
    content(value).map_err(|why: ValueError| object_error(key, why))
}

fn object_error(key: &Bytes, why: impl std::fmt::Display) -> MoveError {
    MoveError::Object { key: String::from_utf8_lossy(key).into_owned(), why: why.to_string() }
}

/// Returns the remaining time until `expires_s`, which is in seconds since 1970. A time of more than one
/// minute is rounded up to full minutes, so that objects can use the same lease.
fn remaining_time(expires_s: u32) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let left = u64::from(expires_s).saturating_sub(now).max(1);
    Duration::from_secs(if left > 60 { left.next_multiple_of(60) } else { left })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrated_contents_are_compared_without_member_order_and_resource_version() {
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
    fn the_remaining_time_of_a_lease_above_a_minute_is_rounded_up_to_full_minutes() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as u32;
        for (seconds, least, most) in [(0, 1, 1), (30, 29, 30), (3600, 3600, 3600)] {
            let left = remaining_time(now + seconds).as_secs();
            assert!((least..=most).contains(&left), "{seconds}: {left}");
        }
    }
}
