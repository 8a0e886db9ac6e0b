//! The migration mark in etcd, and the increase of etcd's revision (docs/api/etcd.md#moving).
//!
//! ```text
//! no mark ─ claim ─► filling <store> ─ conclude ─► no mark ─ leave ─► left <store> ─ claim by the same store ─► filling <store>
//! ```
//!
//! The transaction of each write requires that the mark has not changed since the writer read it. Each change
//! in etcd gets the next revision. Therefore the server increases the revision by writing one key repeatedly.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use engine::{KeyRange, Revision};
use etcd::Error;
use etcd::rpc::{
    Compare, DeleteRangeRequest, EVENT_PUT, Event, PutRequest, RangeRequest, Request, TxnRequest,
};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::migration::MoveError;
use super::{Replica, number, revision};

/// Name of the mark. The key of the mark is the prefix, followed by this name.
pub(super) const MARK: &str = "migration";

/// Name of the key whose writes increase etcd's revision. The prefix precedes the name.
const FILLER: &str = "migration-revisions";

/// Maximum number of writes that increase the revision. A store that needs more writes was probably restored.
const RAISE_MAX: u64 = 50_000_000;

/// Maximum number of concurrent writes that increase the revision.
const WRITES_MAX: usize = 32;

/// Number of writes that increase the revision between two compactions of etcd.
const RAISED_MAX: u64 = 100_000;

impl Replica {
    /// Returns the text and the revision of the mark; `None` if there is no mark.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
    pub async fn mark(&self) -> Result<Option<(String, i64)>, Error> {
        let request = RangeRequest { key: self.mark_key(), ..RangeRequest::default() };
        let found = self.client.range(&request).await?.kvs.into_iter().next();
        Ok(found.map(|kv| (String::from_utf8_lossy(&kv.value).into_owned(), kv.mod_revision)))
    }

    /// Returns the number of keys below the prefix.
    ///
    /// # Errors
    /// Fails if etcd does not respond.
    pub async fn count(&self) -> Result<i64, Error> {
        let range = KeyRange::prefix(self.keys.prefix().as_bytes());
        let end = range.end.unwrap_or_else(|| Bytes::from_static(b"\0"));
        let request =
            RangeRequest { key: range.start, range_end: end, count_only: true, ..RangeRequest::default() };
        Ok(self.client.range(&request).await?.count)
    }

    /// Claims an etcd for the store `id`. The etcd must be empty, or its mark must name the same store: the
    /// store was moved away from this etcd, or an earlier move to this etcd was not finished. Returns
    /// whether the etcd is empty.
    ///
    /// # Errors
    /// Fails if the etcd is in use.
    pub async fn claim(&self, id: &str) -> Result<bool, MoveError> {
        let found = self.mark().await?;
        let expected = format!("filling {id}");
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
            Some((text, at)) if *text == expected => {
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
        self.put_mark(&expected, known).await?;
        Ok(found.is_none())
    }

    /// Marks an etcd as left by the store `id`. After this call, no server can write to the etcd. Returns the
    /// revision of the mark, which is the last revision to be moved.
    ///
    /// # Errors
    /// Fails if the etcd is being filled, or if the mark says that another store has left the etcd.
    pub async fn leave(&self, id: &str) -> Result<Revision, MoveError> {
        let expected = format!("left {id}");
        match self.mark().await? {
            None => self.put_mark(&expected, 0).await.map(revision),
            Some((text, at)) if text == expected => {
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

    /// Removes the mark. The etcd is then an ordinary store.
    ///
    /// # Errors
    /// Fails if etcd does not respond, or if the mark belongs to another move.
    pub async fn conclude(&self) -> Result<(), MoveError> {
        let delete = |key| Request::Delete(DeleteRangeRequest { key, range_end: Bytes::new() }).into();
        let request = TxnRequest {
            compare: vec![Compare::mod_revision(self.mark_key(), self.claimed())],
            success: vec![delete(self.mark_key()), delete(self.filler_key())],
            failure: Vec::new(),
        };
        if self.client.txn(&request).await?.succeeded {
            self.claim.store(0, Ordering::Release);
            Ok(())
        } else {
            Err(MoveError::InUse("the mark of the move is another's".to_owned()))
        }
    }

    /// Waits until the copy has reached a revision.
    ///
    /// # Errors
    /// Fails if the copy does not reach the revision in time.
    pub async fn reach(&self, target: Revision) -> Result<(), MoveError> {
        self.follow_to(target).await.map_err(|status| MoveError::InUse(status.into_message()))
    }

    /// Waits until the copy has reached etcd's newest revision.
    ///
    /// # Errors
    /// Fails if etcd does not respond, or if the copy does not reach the revision in time.
    pub async fn catch_up(&self) -> Result<(), MoveError> {
        let newest = self.newest().await?;
        self.reach(newest).await
    }

    fn filler_key(&self) -> Bytes {
        format!("{}{FILLER}", self.keys.prefix()).into()
    }

    /// Returns the number of writes that increase etcd's revision to at least `room` above `source`.
    ///
    /// # Errors
    /// Fails if etcd does not respond, or if too many writes are necessary.
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

    /// Increases etcd's revision to at least `room` above `source` by writing one key repeatedly.
    ///
    /// # Errors
    /// Fails if etcd does not respond, or if too many writes are necessary.
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
                    _ => tracing::info!(revision = now.get(), wanted, "etcd revision raised"),
                }
            }
        }
        Ok(now)
    }

    /// Records whether the store was moved away from this etcd. Ignores events of other keys than the mark.
    pub(super) fn note_move(&self, event: &Event) {
        let Some(kv) = event.kv.as_ref().filter(|kv| kv.key == self.mark_key()) else { return };
        let has_left = event.kind == EVENT_PUT && kv.value.starts_with(b"left ");
        if has_left {
            tracing::warn!("the store was moved away from this etcd");
        }
        self.has_left.store(has_left, Ordering::Release);
    }
}
