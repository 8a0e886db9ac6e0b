//! The end of a write: the payload to store, whether it is a change at all, and the conditional commit.
//!
//! The condition of a commit is that the object is still at the revision from which the write was made. If it
//! is not, the caller begins another round, counted by [`values::retry::Attempts`].

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
    /// The condition failed; contains the newest state.
    Conflict(Option<Entry>),
    /// The condition held, but the write must start over.
    Again,
}

/// Commits a change if the condition holds.
///
/// # Errors
/// Every failure except a failed condition.
pub async fn commit(
    store: Store<'_>,
    key: Bytes,
    expected: Expected,
    change: Change,
) -> Result<Attempt, Status> {
    // A request that has ended stores nothing, even if none of its stages noticed.
    cancellation::check();
    match store.commit(key, expected, change).await {
        Ok(committed) => Ok(Attempt::Committed(committed)),
        Err(CommitFailure::Conflict { current }) => Ok(Attempt::Conflict(current)),
        Err(CommitFailure::Again) => Ok(Attempt::Again),
        Err(CommitFailure::Engine(error)) => Err(commit_failed(&error)),
        Err(CommitFailure::Status(status)) => Err(*status),
    }
}

/// Encodes an object for storage. `replaced` contains the selector attributes of the stored object that it
/// replaces. If the object is too large only because of managed fields that no client requested, it is stored
/// without them.
pub(super) fn fitting_payload(resource: &Resource, object: &mut Object, replaced: &[u8]) -> Payload {
    let payload = store::payload_of_change(resource, object, replaced);
    if payload.value.len() <= engine::VALUE_BYTES_MAX {
        return payload;
    }
    take_managed_fields(object);
    store::payload_of_change(resource, object, replaced)
}

/// Returns the bytes of a new object of a dry run, without a version.
pub(super) fn unversioned(resource: &Resource, object: &Object) -> Bytes {
    let mut out = Vec::new();
    encode(&resource.stored().message, object, &mut out);
    out.into()
}

/// Returns whether this update removes the last reason to keep a deleted object.
pub(super) fn completes_deletion(resource: &Resource, new: &Object, old: &Object) -> bool {
    let grace = old.get("metadata").and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    let namespace_content = resource.table.behavior.spec_finalizers
        && at(new, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    !meta(old, "deletionTimestamp").is_empty()
        && finalizers(new).is_empty()
        && grace.and_then(Value::as_i64).unwrap_or(0) == 0
        && !namespace_content
}

/// Returns whether the payload, stamped with the stored revision, equals the stored value, and the value is
/// encrypted with the current key.
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
