//! The end of a write: what to store, whether that is a change at all, and the conditional commit.
//!
//! A commit holds on condition that the object still is what the write was made from. When it is not, the caller
//! begins another round, counted by [`values::retry::Attempts`].

use bytes::Bytes;
use engine::{Change, Committed, Entry, Expected, Payload, Record};

use crate::writes::context::Context;
use objects::apply::take_managed_fields;
use objects::store::{self, CommitFailure, Store};
use types::schema::encode::encode;
use types::schema::registry::Resource;
use values::cancellation;
use values::json::{Object, Value};
use values::object::{at, finalizers, meta};
use values::status::Status;

/// How one conditional commit ended.
pub enum Attempt {
    /// It is stored.
    Committed(Committed),
    /// The condition did not hold; the newest state.
    Conflict(Option<Entry>),
    /// It held, but the write must be made anew.
    Again,
}

/// Commits on condition.
///
/// # Errors
/// Every failure but that of the condition.
pub async fn commit(
    (api, store): (&Context, Store<'_>),
    key: Bytes,
    expected: Expected,
    change: Change,
) -> Result<Attempt, Status> {
    // A request that is over stores nothing, whatever its stages did not notice.
    cancellation::check();
    match store.commit(key, expected, change).await {
        Ok(committed) => Ok(Attempt::Committed(committed)),
        Err(CommitFailure::Conflict { current }) => Ok(Attempt::Conflict(current)),
        Err(CommitFailure::Again) => Ok(Attempt::Again),
        Err(CommitFailure::Engine(error)) => Err(api.commit_failed(&error)),
        Err(CommitFailure::Status(status)) => Err(*status),
    }
}

/// Encodes an object for storage that replaces one with the attributes `replaced`. One that would be too large only because
/// of managed fields that no client asked for is stored without them.
pub(super) fn fitting_payload(resource: &Resource, object: &mut Object, replaced: &[u8]) -> Payload {
    let payload = store::payload_of_change(resource, object, replaced);
    if payload.value.len() <= engine::VALUE_BYTES_MAX {
        return payload;
    }
    take_managed_fields(object);
    store::payload_of_change(resource, object, replaced)
}

/// The bytes that show a new object of a dry run: it has no version.
pub(super) fn unversioned(resource: &Resource, object: &Object) -> Bytes {
    let mut out = Vec::new();
    encode(&resource.stored().message, object, &mut out);
    out.into()
}

/// Whether this update takes away the last thing that kept a deleted object.
pub(super) fn completes_deletion(resource: &Resource, new: &Object, old: &Object) -> bool {
    let grace = old.get("metadata").and_then(|metadata| metadata.get("deletionGracePeriodSeconds"));
    let namespace_content = resource.table.behavior.spec_finalizers
        && at(new, "spec.finalizers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    !meta(old, "deletionTimestamp").is_empty()
        && finalizers(new).is_empty()
        && grace.and_then(Value::as_i64).unwrap_or(0) == 0
        && !namespace_content
}

/// Whether the payload, stamped with the stored revision, is what is stored, and encrypted as it would be now.
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
