//! The end of a write: encodes the payload, detects no-op writes, and makes the conditional commit.
//!
//! A commit has the condition that the object is still at the revision that the write has read. If the
//! condition fails, the caller begins another round. [`values::retry::Attempts`] limits the number of rounds.

use bytes::Bytes;
use engine::{Change, Committed, Entry, Expected, Payload, Record};

use crate::writes::server::store::commit_failed;
use objects::apply::take_managed_fields;
use objects::store::{self, CommitFailure, Store};
use types::schema::encode::encode;
use types::schema::registry::Resource;
use values::cancellation;
use values::json::{Object, Value};
use values::object::{at, finalizers, meta};
use values::status::Status;

/// The outcome of one conditional commit.
pub enum Attempt {
    /// The change is stored.
    Committed(Committed),
    /// The condition failed. The value is the newest state, if the newest state is known.
    Conflict(Option<Entry>),
    /// The condition did not fail, but the write must start again.
    Again,
}

/// Commits a change if the condition `expected` is met.
///
/// # Errors
/// Fails in all cases except a failed condition.
pub async fn commit(
    store: Store<'_>,
    key: Bytes,
    expected: Expected,
    change: Change,
) -> Result<Attempt, Status> {
    // A request that has ended must not store an object, even if no stage has detected the end.
    cancellation::check();
    match store.commit(key, expected, change).await {
        Ok(committed) => Ok(Attempt::Committed(committed)),
        Err(CommitFailure::Conflict { current }) => Ok(Attempt::Conflict(current)),
        Err(CommitFailure::Again) => Ok(Attempt::Again),
        Err(CommitFailure::Engine(error)) => Err(commit_failed(&error)),
        Err(CommitFailure::Status(status)) => Err(*status),
    }
}

/// Encodes an object for storage. `replaced` contains the selector attributes of the stored object that is
/// replaced. If the object is too large, its managed fields are removed, because no client requested them.
pub(super) fn fitting_payload(resource: &Resource, object: &mut Object, replaced: &[u8]) -> Payload {
    let payload = store::payload_of_change(resource, object, replaced);
    if payload.value.len() <= engine::VALUE_BYTES_MAX {
        return payload;
    }
    take_managed_fields(object);
    store::payload_of_change(resource, object, replaced)
}

/// Encodes a new object for the response to a dry run. The object has no resourceVersion.
pub(super) fn unversioned(resource: &Resource, object: &Object) -> Bytes {
    let mut out = Vec::new();
    encode(&resource.stored().message, object, &mut out);
    out.into()
}

/// Returns whether an update removes the last reason to keep a deleted object.
pub(super) fn completes_deletion(resource: &Resource, new: &Object, old: &Object) -> bool {
    let grace = old.get("metadata").and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    let namespace_content = resource.table.behavior.spec_finalizers
        && at(new, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    !meta(old, "deletionTimestamp").is_empty()
        && finalizers(new).is_empty()
        && grace.and_then(Value::as_i64).unwrap_or(0) == 0
        && !namespace_content
}

/// Returns whether a write of the payload would be a no-op: apart from the revision, the payload equals the
/// stored value, and the stored value is encrypted with the current key.
pub(super) fn is_same(payload: &Payload, stored: &Record) -> bool {
    let value = &stored.value;
    let at = payload.stamp_at.unwrap_or(0) as usize;
    let digits = value.len().checked_sub(payload.value.len());
    let (Some(digits), Some(head)) = (digits, value.get(..at)) else { return false };
    digits > 0
        && !stored.outdated
        && head == &payload.value[..at]
        && value.get(at + digits..) == payload.value.get(at..)
}
