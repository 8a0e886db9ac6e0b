//! Values of many keys at one revision, a bounded number at a time: one read-only transaction for each part.

use std::collections::HashMap;

use bytes::Bytes;
use etcd::Error;
use etcd::rpc::{KeyValue, RangeRequest, Request, Response, TxnRequest};

use super::Replica;

/// Most keys of one transaction: etcd takes 128 operations unless it is configured otherwise.
pub(super) const KEYS_MAX: usize = 100;

impl Replica {
    /// The states of `keys` at `revision`.
    ///
    /// # Errors
    /// etcd did not answer, or has forgotten that revision.
    pub(super) async fn fetch(&self, keys: &[Bytes], at: i64) -> Result<HashMap<Bytes, KeyValue>, Error> {
        let mut found = HashMap::with_capacity(keys.len());
        let (mut done, mut most) = (0, KEYS_MAX);
        while done < keys.len() {
            let part = &keys[done..keys.len().min(done + most)];
            let range = |key: &Bytes| {
                Request::Range(RangeRequest { key: key.clone(), revision: at, ..RangeRequest::default() })
            };
            let request = TxnRequest {
                success: part.iter().map(|key| range(key).into()).collect(),
                ..TxnRequest::default()
            };
            let answer = match self.client.txn(&request).await {
                // Very large values: fewer at once.
                Err(Error::Malformed(_)) if most > 1 => {
                    most = (most / 4).max(1);
                    continue;
                }
                answer => answer?,
            };
            for response in answer.responses {
                let Some(Response::Range(range)) = response.response else { continue };
                // A value must not hold on to the whole answer.
                let kvs = range.kvs.into_iter();
                found.extend(
                    kvs.map(|kv| {
                        (kv.key.clone(), KeyValue { value: Bytes::copy_from_slice(&kv.value), ..kv })
                    }),
                );
            }
            done += part.len();
        }
        Ok(found)
    }
}
