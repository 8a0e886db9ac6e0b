//! Compaction, coordinated among all servers on the same etcd, including kube-apiservers. A key contains the
//! compacted revision. The first server that changes this key in a round compacts
//! (docs/api/etcd.md#compaction).
//!
//! Each round compacts to the revision that was the newest in the previous round, so the history of at least
//! one interval is retained. All servers see the change of the key and compact their copies to the same
//! revision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use engine::{Engine, Revision};
use etcd::Error;
use etcd::rpc::{Compare, KeyValue, PutRequest, RangeRequest, Request, Response, TxnRequest};
use futures_util::FutureExt;

use super::{Replica, revision};

/// The key that all servers use, outside every prefix.
const KEY: &[u8] = b"compact_rev_key";

/// Returns the compacted revision in a change of the key.
pub(super) fn compacted_revision(kv: &KeyValue) -> Option<Revision> {
    if kv.key != KEY {
        return None;
    }
    let number = std::str::from_utf8(&kv.value).ok()?.parse().ok()?;
    (number > 0).then(|| revision(number))
}

/// Compacts the copy to the revision `compacted`, in the background.
pub(super) fn follow(engine: &Engine, compacted: Revision) {
    let engine = engine.clone();
    let following = async move {
        // An error means that the copy is already compacted to a later revision.
        let _ = engine.compact(compacted.min(engine.revision())).await;
    };
    tokio::spawn(following.boxed());
}

/// Compacts at every `interval` in which another server has not compacted.
pub async fn run(replica: Arc<Replica>, interval: Duration) {
    let (mut round, mut newest) = (0, 0);
    loop {
        match replica.compact_round(round, newest).await {
            Ok((next, revision)) => (round, newest) = (next, revision),
            Err(error) => tracing::warn!(%error, "etcd was not compacted"),
        }
        tokio::time::sleep(interval).await;
    }
}

impl Replica {
    /// Runs one round. `round` is the version of the key in the previous round, and `newest` is the revision
    /// of etcd at that time. Returns both values for the next round.
    async fn compact_round(&self, round: i64, newest: i64) -> Result<(i64, i64), Error> {
        let key = Bytes::from_static(KEY);
        let value = newest.to_string().into();
        let put = PutRequest { key: key.clone(), value, lease: 0 };
        let get = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let request = TxnRequest {
            compare: vec![Compare::version(key, round)],
            success: vec![Request::Put(put).into()],
            failure: vec![Request::Range(get).into()],
        };
        let answer = self.client.txn(&request).await?;
        let now = answer.header.unwrap_or_default().revision;
        if !answer.succeeded {
            let found = answer.responses.into_iter().find_map(|response| match response.response {
                Some(Response::Range(range)) => range.kvs.into_iter().next(),
                _ => None,
            });
            return Ok((found.map_or(0, |kv| kv.version), now));
        }
        if newest > 0 {
            match self.client.compact(newest).await {
                Err(error) if !error.is_compacted() => return Err(error),
                _ => tracing::debug!(revision = newest, "etcd is compacted"),
            }
        }
        Ok((round + 1, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_is_read_only_from_a_positive_number_under_its_key() {
        for (key, value, want) in [
            (KEY, "17", Some(17)),
            (KEY, "0", None),
            (KEY, "", None),
            (KEY, "-3", None),
            (b"/registry/pods/a/b", "17", None),
        ] {
            let kv = KeyValue { key: key.into(), value: value.into(), ..KeyValue::default() };
            assert_eq!(compacted_revision(&kv), want.map(Revision::new), "{value}");
        }
    }
}
