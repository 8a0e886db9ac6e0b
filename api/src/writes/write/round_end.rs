//! The end of a round of a write: a conditional commit, or the result of a dry run.

use std::time::Instant;

use bytes::Bytes;
use engine::{Change, Committed, Expected, Payload};

use super::commit::Attempt;
use super::intent::{Current, Outcome, Presence, WriteIntent, Written};
use super::stages::{self, Encoded};
use crate::writes::plugin::Operation;
use objects::representation::stamped;
use objects::store::{self, Stored};
use values::json::Object;
use values::status::Status;

/// The end of a round.
pub(super) enum RoundEnd {
    /// The change is stored, would be stored by a dry run, or was a no-op.
    Stored(Outcome),
    /// The object differs from the one with which the round began. Contains the object found, if the caller
    /// needs it.
    Conflict(Option<Stored>),
    /// Something that the write has to store together with the object was taken in the meantime.
    Again,
}

/// Commits the result of a round, on the condition that the object is still the one with which the round began.
///
/// # Errors
/// Every failure except a failed condition.
pub(super) async fn end_round(
    intent: &WriteIntent<'_>,
    name: &str,
    encoded: Encoded,
    new: &Object,
    current: Option<&Current>,
) -> Result<RoundEnd, Status> {
    let (change, shown) = match encoded {
        Encoded::Same => return Ok(RoundEnd::Stored(Outcome::unchanged(current))),
        Encoded::Change { change, shown } => (change, shown),
    };
    let key = store::key(intent.write.resource, intent.write.namespace, name);
    let expected = match current {
        Some(current) if intent.write.dry_run() => {
            if intent.write.operation == Operation::Delete && matches!(change, Change::Put(_)) {
                intent.server().accessed_untimed(intent.write.resource, "get");
            }
            return Ok(RoundEnd::Stored(dry(&change, shown, current)));
        }
        None if intent.write.dry_run() => return dry_creation(intent, &key, new),
        Some(current) => Expected::Revision(current.revision()),
        None => Expected::Absent,
    };
    // An update that ends a deletion is not stored before the object is removed, so it has no version of its
    // own.
    let ends_deletion = intent.write.operation == Operation::Update;
    let last = match (&change, current) {
        (Change::Delete(_) | Change::DeleteStored(_), Some(current)) if ends_deletion && shown.is_some() => {
            Some(dry(&change, shown.clone(), current))
        }
        _ => None,
    };
    // With a ledger, a delete stores the previous version of the object; the caller gets the final one.
    let last_shown = match &change {
        Change::Delete(Some(_)) if intent.server().store.ledger().is_some() => shown,
        _ => None,
    };
    let removes = !matches!(change, Change::Put(_));
    match stages::commit(intent, key, expected, change).await? {
        Attempt::Committed(committed) => Ok(RoundEnd::Stored(match (last, last_shown) {
            (Some(last), _) => last,
            (None, Some(payload)) => {
                let revision = committed.revision;
                Outcome::Removed(Written { value: stamped(&payload, revision), revision })
            }
            (None, None) => match (written(intent, committed).await?, current) {
                (written, None) => Outcome::Created(written),
                (written, Some(_)) if removes => Outcome::Removed(written),
                (written, Some(_)) => Outcome::Updated(written),
            },
        })),
        // Only the refusal of a creation describes the existing object.
        Attempt::Conflict(taken) if intent.presence == Presence::New => {
            Ok(RoundEnd::Conflict(taken.map(store::read).transpose()?))
        }
        Attempt::Conflict(_) => Ok(RoundEnd::Conflict(None)),
        Attempt::Again => Ok(RoundEnd::Again),
    }
}

/// Returns the committed version, in the form of the resource.
async fn written(intent: &WriteIntent<'_>, committed: Committed) -> Result<Written, Status> {
    let Committed { revision, entry } = committed;
    let record = store::read(entry)?.record;
    let record = intent.server().outgoing.converter.convert_record(intent.write.resource, record).await?;
    Ok(Written { value: record.value, revision })
}

/// Returns the result of a dry run of a creation.
fn dry_creation(intent: &WriteIntent<'_>, key: &Bytes, new: &Object) -> Result<RoundEnd, Status> {
    let began = Instant::now();
    let taken = intent.store.get(key)?;
    intent.server().accessed(intent.write.resource, "get", began);
    Ok(match taken {
        None => RoundEnd::Stored(Outcome::Created(stages::shown_new(intent, new))),
        taken => RoundEnd::Conflict(taken),
    })
}

/// Returns the result of a dry run of a change: the object as it would be stored, at the revision that it
/// would replace. `shown` is the object in the form of the resource.
fn dry(change: &Change, shown: Option<Payload>, current: &Current) -> Outcome {
    let revision = current.revision();
    let value = match &shown {
        Some(payload) => stamped(payload, revision),
        None => current.stored.record.value.clone(),
    };
    let written = Written { value, revision };
    match change {
        Change::Put(_) => Outcome::Updated(written),
        Change::Delete(_) | Change::DeleteStored(_) => Outcome::Removed(written),
    }
}
