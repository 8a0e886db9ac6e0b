//! A conditional write that etcd decides. The write is one transaction, whose condition is the revision of
//! the key. The server then waits until the engine has the revision of the transaction.
//!
//! A transaction is sent once. If the response is lost, the outcome is unknown, and the error for the caller
//! states that the outcome is unknown. A retry could overwrite changes that were made after the first attempt
//! succeeded.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use engine::{Change, Committed, Engine, Entry, Expected, Revision, Write};
use etcd::rpc::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, Response, TxnRequest, TxnResponse,
};
use etcd::{Code, Error};

use super::allocated::{Parts, Service};
use super::stored_values::{ValueError, Values, has_unknown};
use super::{Replica, number, revision};
use objects::store::{Addresses, CommitFailure, Ledger, Pending};
use types::schema::registry::Resource;
use values::status::{Status, StatusReason};

/// Prefix of the keys of services.
const SERVICES: &str = "/core/services/";

impl Ledger for Replica {
    fn commit(&self, write: Write) -> Pending<'_, Result<Committed, CommitFailure>> {
        Box::pin(self.decide(write))
    }

    fn current(&self) -> Pending<'_, Result<(), Status>> {
        Box::pin(Replica::current(self))
    }

    fn announce<'l>(
        &'l self,
        server: &'l str,
        address: SocketAddr,
        round: i64,
    ) -> Pending<'l, Result<(), Status>> {
        Box::pin(self.write_address(server, address, round))
    }

    fn withdraw<'l>(&'l self, server: &'l str) -> Pending<'l, Result<(), Status>> {
        Box::pin(self.remove_address(server))
    }

    fn announced(&self) -> Pending<'_, Result<Addresses, Status>> {
        Box::pin(self.read_addresses())
    }

    fn enter_service(&self, address: IpAddr, round: i64) -> Pending<'_, Result<(), Status>> {
        Box::pin(self.write_in_service(address, round))
    }

    fn leave_service(&self, address: IpAddr) -> Pending<'_, Result<(), Status>> {
        Box::pin(self.remove_in_service(address))
    }

    fn in_service(&self) -> Pending<'_, Result<Vec<IpAddr>, Status>> {
        Box::pin(self.read_in_service())
    }

    fn repair_allocations(&self) -> Pending<'_, Result<bool, Status>> {
        Box::pin(self.repair())
    }

    fn health(&self) -> Result<(), String> {
        self.health.lock().clone()?;
        if self.has_left() {
            return Err("the store was moved to another location".to_owned());
        }
        self.trouble().map_or(Ok(()), Err)
    }
}

impl Replica {
    pub(super) async fn decide(&self, write: Write) -> Result<Committed, CommitFailure> {
        let Write { key, expected, change } = write;
        let Some((etcd_key, resource)) = self.keys.etcd_key(&key) else {
            return Err(Status::internal("the key is not that of an object").into());
        };
        let old = self.replaced(&key, &etcd_key, expected).await?;
        // The entry must exist until the transaction is decided, because the stream may return the value
        // until then.
        let mut _noted = None;
        let (operation, ttl) = match &change {
            Change::Delete(_) | Change::DeleteStored(_) => {
                let delete = DeleteRangeRequest { key: etcd_key.clone(), range_end: Bytes::new() };
                (Request::Delete(delete), None)
            }
            Change::Put(payload) => {
                let value = match resource {
                    Some(resource) => self.values.encode(resource, payload, old.as_deref()),
                    None => self.values.encode_custom(payload),
                };
                let value = value.map_err(|error: ValueError| Status::internal(error))?;
                let value = match &self.secrecy {
                    Some(secrecy) => {
                        secrecy.seal_outside(&key, &etcd_key, value).map_err(Status::internal)?
                    }
                    None => value,
                };
                if resource.is_some_and(|resource| self.reads_back(resource, old.as_ref())) {
                    _noted = Some(self.own.note(&etcd_key, &value, payload));
                }
                (Request::Put(PutRequest { key: etcd_key.clone(), value, lease: 0 }), payload.ttl)
            }
        };
        let parts = self.parts(&key, expected, &change).await?;
        let mut compare = match expected {
            Expected::Absent => vec![Compare::mod_revision(etcd_key.clone(), 0)],
            Expected::Revision(at) => vec![Compare::mod_revision(etcd_key.clone(), number(at))],
            Expected::Any if !matches!(change, Change::Put(_)) => vec![Compare::exists(etcd_key.clone())],
            Expected::Any => Vec::new(),
        };
        let read = RangeRequest { key: etcd_key, keys_only: true, ..RangeRequest::default() };
        compare.extend(parts.compare);
        let mut success = vec![operation.into()];
        success.extend(parts.operations);
        // During and after a move of the store, etcd accepts only the writes of the move.
        let mark = self.mark_key();
        compare.push(Compare::mod_revision(mark.clone(), self.claimed()));
        let mark = RangeRequest { key: mark, keys_only: true, ..RangeRequest::default() };
        let failure = vec![Request::Range(read).into(), Request::Range(mark).into()];
        let request = TxnRequest { compare, success, failure };
        let answer = self.send(request, ttl).await.map_err(|error| self.undecided(&error))?;
        self.decided(&key, expected, &answer).await
    }

    /// Returns whether decoding the new value gives the payload from which it was encoded. During a move this
    /// need not be true: a value may lack defaults of this release, and decoding adds these defaults.
    fn reads_back(&self, resource: &Resource, old: Option<&Bytes>) -> bool {
        old.is_none() && self.claimed() == 0 && Values::needs_no_conversion(resource)
    }

    /// Returns the additional parts of the transaction, which are the allocations of a service.
    async fn parts(&self, key: &Bytes, expected: Expected, change: &Change) -> Result<Parts, CommitFailure> {
        let place = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix(SERVICES));
        let Some((namespace, name)) = place.and_then(|place| place.split_once('/')) else {
            return Ok(Parts::default());
        };
        let before = match expected {
            Expected::Absent => None,
            Expected::Any | Expected::Revision(_) => self.engine.snapshot().get(key),
        };
        let before = before.map(|entry| entry.read()).transpose().map_err(objects::store::damaged)?;
        let before = before.as_ref().map(|record| &record.value[..]);
        let after = match change {
            Change::Put(payload) => Some(&payload.value[..]),
            Change::Delete(_) | Change::DeleteStored(_) => None,
        };
        Ok(self.allocated(&Service { namespace, name, before, after }).await?)
    }

    /// Returns the value that the write replaces, if that value has fields that this release does not know.
    async fn replaced(
        &self,
        key: &Bytes,
        etcd_key: &Bytes,
        expected: Expected,
    ) -> Result<Option<Bytes>, CommitFailure> {
        let Expected::Revision(at) = expected else { return Ok(None) };
        let Some(entry) = self.engine.snapshot().get(key).filter(|entry| entry.revision() == at) else {
            return Ok(None);
        };
        let attributes = entry.attributes().map_err(objects::store::damaged)?;
        if !has_unknown(&attributes) {
            return Ok(None);
        }
        // Read the newest value. If the newest value is not the expected value, the transaction fails.
        let request = RangeRequest { key: etcd_key.clone(), ..RangeRequest::default() };
        let found = self.client.range(&request).await.map_err(|error| self.unanswered(&error))?;
        let found = found.kvs.into_iter().next();
        let opened = found.map(|kv| self.opened(etcd_key, &kv.value)).transpose();
        Ok(opened.map_err(Status::internal)?)
    }

    /// Sends a transaction, with a lease if the payload has a time to live.
    async fn send(
        &self,
        mut request: TxnRequest,
        ttl: Option<std::time::Duration>,
    ) -> Result<TxnResponse, Error> {
        let Some(ttl) = ttl else { return self.client.txn(&request).await };
        let mut is_second = false;
        loop {
            let id = self.leases.lease_for(&self.client, ttl).await?;
            for operation in &mut request.success {
                if let Some(Request::Put(put)) = &mut operation.request {
                    put.lease = id;
                }
            }
            match self.client.txn(&request).await {
                // The lease no longer exists and nothing was written, so retry once with another lease.
                Err(Error::Answered { code: Code::NOT_FOUND, .. }) if !is_second => {
                    self.leases.forget(id).await;
                    is_second = true;
                }
                answer => return answer,
            }
        }
    }

    /// Returns the outcome of a transaction after the engine has reached its revision.
    async fn decided(
        &self,
        key: &Bytes,
        expected: Expected,
        answer: &TxnResponse,
    ) -> Result<Committed, CommitFailure> {
        let at = revision(answer.header.unwrap_or_default().revision);
        if !answer.succeeded {
            self.follow_to(at).await?;
            let mut found = answer.responses.iter().filter_map(|response| match &response.response {
                Some(Response::Range(range)) => Some(range.kvs.first().map_or(0, |kv| kv.mod_revision)),
                _ => None,
            });
            let (found, mark) = (found.next(), found.next());
            if mark.is_some_and(|mark| mark != self.claimed()) {
                return Err(self.moved().into());
            }
            let is_as_expected = match expected {
                Expected::Absent => found == Some(0),
                Expected::Revision(seen) => found == Some(number(seen)),
                Expected::Any => false,
            };
            return Err(if is_as_expected {
                // The write failed on a condition that does not concern the object itself, such as the
                // condition of an allocation.
                CommitFailure::Again
            } else {
                CommitFailure::Conflict { current: self.engine.snapshot().get(key) }
            });
        }
        if let Err(status) = self.follow_to(at).await {
            let message = format!("{}; the write is stored at revision {at}", status.message);
            return Err(Status::new(StatusReason::Timeout, message).into());
        }
        let entry = written(&self.engine, key, at).await.ok_or_else(|| {
            // The value that this server wrote cannot be read.
            Status::internal(format!("the object written at revision {at} cannot be read"))
        })?;
        Ok(Committed { revision: at, entry })
    }

    /// Returns the error for a write whose outcome etcd did not report.
    fn undecided(&self, error: &Error) -> CommitFailure {
        tracing::warn!(%error, unknown = error.outcome_is_unknown(), "write to etcd failed");
        if error.outcome_is_unknown() {
            let message = format!("Timeout: it is unknown whether the write was stored: {error}");
            return Status::new(StatusReason::Timeout, message).into();
        }
        match error {
            Error::Answered { .. } => Status::internal(error).into(),
            _ => Status::new(StatusReason::ServiceUnavailable, error.to_string()).into(),
        }
    }
}

/// Returns the entry of a key at a revision. For a delete, the entry has the final state of the key.
async fn written(engine: &Engine, key: &Bytes, at: Revision) -> Option<Entry> {
    if let Some(entry) = engine.snapshot().get(key).filter(|entry| entry.revision() == at) {
        return Some(entry);
    }
    let before = Revision::new(at.get().checked_sub(1)?);
    let mut tail = engine.tail(before, key.clone()).ok()?;
    let events = tail.next(1).await.ok()?;
    let event = events.first().filter(|event| event.revision == at && event.key == *key)?;
    Some(event.entry.clone())
}
