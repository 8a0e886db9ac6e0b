//! Filling the copy: everything that etcd has at one revision, as changes of what the engine has.
//!
//! The same for an empty engine and for one that is too far behind for the stream: states are taken over by ascending
//! revision, what is gone is deleted, what was deleted and made again is both. Watches that would miss what happened in between end
//! before, and begin again (410); afterwards history before that revision is forgotten.
//!
//! Until its end the copy is none of any revision: what is gone is still there. So a key of the copy says how far a filling goes, with
//! the first of its records, and one that broke off, or whose process ended, is begun again before anything is followed.
//!
//! Memory: the keys of what differs are held until they are sorted; the values come in that order, a bounded number ahead of what is
//! applied (`fetch.rs`).

use std::sync::Arc;

use bytes::Bytes;
use engine::{ApplyError, EventKind, KeyRange, Revision};
use etcd::Error;
use etcd::rpc::RangeRequest;

use super::apply::Batch;
use super::fetch::{Ahead, Ready, Step};
use super::{Replica, number, revision};

/// Keys of one page. Etcd looks through all keys behind the first one for each page: few and long ones, of less than a megabyte.
const PAGE_KEYS: i64 = 5000;

/// Whether the copy that a server has from before can go on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Continuation {
    /// It is a state of this etcd's store, or empty.
    Fits,
    /// It is not, and why.
    Discard(String),
}

/// Why the copy was not filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// etcd did not answer.
    #[error(transparent)]
    Etcd(#[from] Error),
    /// The engine did not take it.
    #[error("the copy of etcd's store: {0}")]
    Engine(#[from] ApplyError),
}

/// The key after all that begin with `prefix`.
fn end_of(prefix: &str) -> Bytes {
    KeyRange::prefix(prefix.as_bytes()).end.unwrap_or_else(|| Bytes::from_static(b"\0"))
}

impl Replica {
    /// Compares the copy from before with etcd: its revision, and the newest change that it knows.
    ///
    /// # Errors
    /// etcd did not answer.
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
            let Some((key, _)) = self.keys.of(&event.key) else { continue };
            let request =
                RangeRequest { key, revision: number(had), keys_only: true, ..RangeRequest::default() };
            let found = match self.client.range(&request).await {
                Ok(found) => found.kvs.first().map(|kv| revision(kv.mod_revision)),
                Err(error) if error.is_compacted() => continue,
                Err(error) => return Err(error),
            };
            let wanted = (event.kind == EventKind::Put).then_some(had);
            if found != wanted {
                return Ok(Continuation::Discard(format!("etcd had another change at revision {had}")));
            }
        }
        Ok(Continuation::Fits)
    }

    /// Whether the copy is empty, or a filling of it was begun and not ended.
    pub fn is_to_be_filled(&self) -> bool {
        self.engine.revision() == Revision::ZERO || self.engine.revision() < self.filled_until()
    }

    /// Has history be forgotten that a filling left incomplete and did not come to forget.
    pub async fn forget_filled(&self) {
        let until = self.filled_until().min(self.engine.revision());
        if self.engine.stats().oldest < until {
            let _ = self.engine.compact(until).await;
        }
    }

    /// Makes the engine what etcd is at its newest revision, which is returned.
    ///
    /// # Errors
    /// See `FillError`. What was applied until then is right.
    pub async fn fill(self: &Arc<Self>) -> Result<Revision, FillError> {
        let had = self.engine.revision();
        let (states, at) = self.differing().await?;
        let mut batch = Batch::new(self);
        // What is gone is taken away last; but before a key that was made again, just before that.
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
        let (mut ahead, mut is_first) = (Ahead::new(self, &steps, at), true);
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
            // At once: the next windows are brought into form meanwhile.
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

    /// What etcd has at its newest revision that the engine has not, and the other way round.
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
                // What is as old as the copy and not in it cannot be read.
                let is_hidden = known.is_none() && revision(kv.mod_revision) <= had;
                if known != Some(revision(kv.mod_revision)) && !is_hidden {
                    changed.push(Changed {
                        // The page goes; what stays must not hold on to it.
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
        let is_gone = |key: &Bytes| !seen.contains(key) && self.keys.of(key).is_some();
        let entries = snapshot.range(KeyRange::all()).map(|entry| entry.key().clone());
        let gone = entries.filter(is_gone).collect();
        Ok((Differing { changed, gone }, revision(at)))
    }
}

struct Differing {
    changed: Vec<Changed>,
    gone: Vec<Bytes>,
}

/// A key of etcd whose state the engine has not.
struct Changed {
    key: Bytes,
    created: Revision,
    revision: Revision,
}
