//! Fills the copy: applies everything that etcd has at one revision, as changes of the engine's state.
//!
//! The procedure is the same for an empty engine and for an engine that lags too far behind for the stream.
//! States are applied in the order of revisions. A key that no longer exists in etcd is deleted. A key that
//! was deleted and created again gets both changes. A fill skips intermediate changes. Therefore watches that
//! would miss changes end with a 410 before the fill and must start over. After the fill, the history before
//! the target revision is compacted.
//!
//! During a fill the copy does not represent any revision, because the copy still contains keys that no
//! longer exist in etcd. Therefore the first record of the fill also writes the target revision to a key of
//! the copy. If a fill is interrupted, even by the end of the process, the fill is repeated before the server
//! follows the stream.
//!
//! Memory: all differing keys are in memory until they are sorted. The values of the keys are then read in
//! this order, with a bounded read-ahead (`fetch.rs`).

use std::sync::Arc;

use bytes::Bytes;
use engine::{ApplyError, EventKind, KeyRange, Revision};
use etcd::Error;
use etcd::rpc::RangeRequest;

use super::apply::Batch;
use super::fetch::{ReadAhead, Ready, Step};
use super::{Replica, number, revision};

/// Number of keys per page. For each page, etcd scans all keys after the first key, so a few large pages are
/// faster. A page is smaller than one megabyte.
const PAGE_KEYS: i64 = 5000;

/// Whether an existing copy can still be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Continuation {
    /// The copy is empty, or is a state of this etcd's store.
    Fits,
    /// The copy does not match. Contains the reason.
    Discard(String),
}

/// The reason why the copy was not filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// The request to etcd failed.
    #[error(transparent)]
    Etcd(#[from] Error),
    /// The engine refused the records.
    #[error("the local copy of etcd: {0}")]
    Engine(#[from] ApplyError),
}

/// Returns the first key after all keys with `prefix`.
fn end_of(prefix: &str) -> Bytes {
    KeyRange::prefix(prefix.as_bytes()).end.unwrap_or_else(|| Bytes::from_static(b"\0"))
}

impl Replica {
    /// Compares an existing copy with etcd. The comparison uses the revision and the newest change of the
    /// copy.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
    pub async fn continuation(&self) -> Result<Continuation, Error> {
        let had = self.engine.revision();
        let newest = self.newest().await?;
        if had == Revision::ZERO {
            return Ok(Continuation::Fits);
        }
        if newest < had {
            return Ok(Continuation::Discard(format!("etcd is at revision {newest}, the copy at {had}")));
        }
        let before = Revision::new(had.get() - 1);
        let Ok(mut tail) = self.engine.tail(before, Bytes::new()) else {
            return Ok(Continuation::Discard("the copy has no history".to_owned()));
        };
        let Ok(events) = tail.next(1).await else {
            return Ok(Continuation::Discard("the newest change of the copy cannot be read".to_owned()));
        };
        for event in events.iter().filter(|event| event.revision == had) {
            let Some((key, _)) = self.keys.etcd_key(&event.key) else { continue };
            let request =
                RangeRequest { key, revision: number(had), keys_only: true, ..RangeRequest::default() };
            let found = match self.client.range(&request).await {
                Ok(found) => found.kvs.first().map(|kv| revision(kv.mod_revision)),
                Err(error) if error.is_compacted() => continue,
                Err(error) => return Err(error),
            };
            let expected = (event.kind == EventKind::Put).then_some(had);
            if found != expected {
                return Ok(Continuation::Discard(format!("etcd had another change at revision {had}")));
            }
        }
        Ok(Continuation::Fits)
    }

    /// Returns whether the copy is empty, or has an unfinished fill.
    pub fn is_to_be_filled(&self) -> bool {
        self.engine.revision() == Revision::ZERO || self.engine.revision() < self.filled_until()
    }

    /// Compacts the incomplete history of a previous fill, if the fill did not compact that history itself.
    pub async fn forget_filled(&self) {
        let until = self.filled_until().min(self.engine.revision());
        if self.engine.stats().oldest < until {
            let _ = self.engine.compact(until).await;
        }
    }

    /// Fills the engine with the state of etcd at its newest revision, and returns that revision.
    ///
    /// # Errors
    /// See `FillError`. The changes that were applied before an error are correct.
    pub async fn fill(self: &Arc<Self>) -> Result<Revision, FillError> {
        let had = self.engine.revision();
        let (states, at) = self.differing().await?;
        let mut batch = Batch::new(self);
        // Keys that no longer exist in etcd are removed last. A key that was deleted and created again is
        // removed just before its creation.
        let mut steps: Vec<(Revision, Step)> = Vec::new();
        for changed in states.changed {
            if let Some(key) = self.keys.place(&changed.key).key()
                && self.engine.snapshot().get(key).is_some_and(|entry| entry.created() != changed.created)
            {
                let before = changed.created.before().max(had.next());
                steps.push((before, Step::Remove(key.clone())));
            }
            steps.push((changed.revision, Step::Put(changed.key)));
        }
        steps.extend(states.gone.into_iter().map(|key| (at, Step::Remove(key))));
        steps.sort_by_key(|(revision, _)| *revision);
        if had < at {
            self.engine.pass_over(at);
        }
        let (mut ahead, mut is_first) = (ReadAhead::new(self, &steps, at), true);
        while let Some(window) = ahead.next().await? {
            let mut window = window.into_iter().peekable();
            while let Some((revision, first)) = window.next() {
                let others = std::iter::from_fn(|| window.next_if(|(next, _)| *next == revision));
                let same: Vec<Ready> = std::iter::once(first).chain(others.map(|(_, ready)| ready)).collect();
                batch.make_room(same.len() + 2, same.iter().map(Ready::bytes).sum()).await?;
                let mut has_record = false;
                for ready in same {
                    has_record |= match ready {
                        Ready::Put(state) => batch.take(revision, state),
                        Ready::Remove(key) => batch.remove(revision, key),
                    };
                }
                if !has_record {
                    batch.mark(revision);
                }
                if std::mem::take(&mut is_first) {
                    batch.filling(revision, at);
                }
            }
            // Do not wait for a full batch, because the next windows are converted at the same time.
            batch.apply().await?;
        }
        if self.engine.revision() < at {
            batch.mark(at);
            if is_first {
                batch.filling(at, at);
            }
            batch.apply().await?;
        }
        self.forget_filled().await;
        Ok(at)
    }

    /// Returns all differences between etcd at its newest revision and the engine.
    async fn differing(&self) -> Result<(Differing, Revision), Error> {
        let (had, end) = (self.engine.revision(), end_of(self.keys.prefix()));
        let mut key = Bytes::copy_from_slice(self.keys.prefix().as_bytes());
        let mut at = 0;
        let mut changed = Vec::new();
        let mut seen = std::collections::HashSet::new();
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit: PAGE_KEYS,
                revision: at,
                keys_only: true,
                ..RangeRequest::default()
            };
            let page = self.client.range(&request).await?;
            if at == 0 {
                at = page.header.unwrap_or_default().revision;
            }
            let snapshot = self.engine.snapshot();
            let Some(last) = page.kvs.last().map(|kv| kv.key.clone()) else { break };
            for kv in page.kvs {
                let place = self.keys.place(&kv.key);
                let Some(ours) = place.key() else { continue };
                let known = snapshot.get(ours).map(|entry| entry.revision());
                if known.is_some() {
                    seen.insert(ours.clone());
                }
                // If the copy has reached the revision of a key but lacks the key, the value of the key
                // cannot be read.
                let is_hidden = known.is_none() && revision(kv.mod_revision) <= had;
                if known != Some(revision(kv.mod_revision)) && !is_hidden {
                    changed.push(Changed {
                        // Copy the key, so that it does not keep the memory of the whole page.
                        key: Bytes::copy_from_slice(&kv.key),
                        created: revision(kv.create_revision),
                        revision: revision(kv.mod_revision),
                    });
                }
            }
            if !page.more {
                break;
            }
            key = [&last[..], b"\0"].concat().into();
        }
        let snapshot = self.engine.snapshot();
        let is_gone = |key: &Bytes| !seen.contains(key) && self.keys.etcd_key(key).is_some();
        let entries = snapshot.range(KeyRange::all()).map(|entry| entry.key().clone());
        let gone = entries.filter(is_gone).collect();
        Ok((Differing { changed, gone }, revision(at)))
    }
}

struct Differing {
    changed: Vec<Changed>,
    gone: Vec<Bytes>,
}

/// An etcd key with a state that the engine does not have.
struct Changed {
    key: Bytes,
    created: Revision,
    revision: Revision,
}
