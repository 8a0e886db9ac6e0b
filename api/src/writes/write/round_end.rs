//! The end of a round of a write: a conditional commit, or the result of a dry run.

use std::time::Instant;

use bytes::Bytes;
use engine::{Change, Committed, Expected, Payload};

use super::commit::Attempt;
use super::intent::{Current, Presence, WriteIntent, WriteOutcome, WrittenObject};
use super::stages::{self, Encoded};
use crate::writes::plugin::Operation;
use objects::representation::stamped;
use objects::store::{self, Stored};
use values::json::Object;
use values::status::Status;

/// The end of a round.
pub(super) enum RoundEnd {
    /// The change is stored, is the result of a dry run, or is a no-op.
    Stored(WriteOutcome),
    /// The object has changed since the round began. The value is the existing object, if the caller needs
    /// it.
    Conflict(Option<Stored>),
    /// Another write has taken data that this write must store together with the object.
    Again,
}

/// Commits the result of a round, on the condition that the object has not changed since the round began.
///
/// # Errors
/// Fails in all cases except a failed condition.
pub(super) async fn end_round(
    intent: &WriteIntent<'_>,
    name: &str,
    encoded: Encoded,
    new: &Object,
    current: Option<&Current>,
) -> Result<RoundEnd, Status> {
    let (change, requested) = match encoded {
        Encoded::Same => return Ok(RoundEnd::Stored(WriteOutcome::unchanged(current))),
        Encoded::Change { change, requested } => (change, requested),
    };
    let key = store::key(intent.write.resource, intent.write.namespace, name);
    let expected = match current {
        Some(current) if intent.write.dry_run() => {
            if intent.write.operation == Operation::Delete && matches!(change, Change::Put(_)) {
                intent.server().accessed_untimed(intent.write.resource, "get");
            }
            return Ok(RoundEnd::Stored(dry(&change, requested, current)));
        }
        None if intent.write.dry_run() => return dry_creation(intent, &key, new),
        Some(current) => Expected::Revision(current.revision()),
        None => Expected::Absent,
    };
    // An update that ends a deletion is not stored before the object is removed, so it gets no revision.
    let ends_deletion = intent.write.operation == Operation::Update;
    let last = match (&change, current) {
        (Change::Delete(_) | Change::DeleteStored(_), Some(current))
            if ends_deletion && requested.is_some() =>
        {
            Some(dry(&change, requested.clone(), current))
        }
        _ => None,
    };
    // With a ledger, a delete stores the previous version of the object, but the caller gets the final
    // version.
    let last_requested = match &change {
        Change::Delete(Some(_)) if intent.server().store.ledger().is_some() => requested,
        _ => None,
    };
    let removes = !matches!(change, Change::Put(_));
    match stages::commit(intent, key, expected, change).await? {
        Attempt::Committed(committed) => Ok(RoundEnd::Stored(match (last, last_requested) {
            (Some(last), _) => last,
            (None, Some(payload)) => {
                let revision = committed.revision;
                WriteOutcome::Removed(WrittenObject { value: stamped(&payload, revision), revision })
            }
            (None, None) => match (written(intent, committed).await?, current) {
                (written, None) => WriteOutcome::Created(written),
                (written, Some(_)) if removes => WriteOutcome::Removed(written),
                (written, Some(_)) => WriteOutcome::Updated(written),
            },
        })),
        // Only the refusal of a creation needs the existing object.
        Attempt::Conflict(taken) if intent.presence == Presence::New => {
            Ok(RoundEnd::Conflict(taken.map(store::read).transpose()?))
        }
        Attempt::Conflict(_) => Ok(RoundEnd::Conflict(None)),
        Attempt::Again => Ok(RoundEnd::Again),
    }
}

/// Returns the committed version, converted to the form of the resource.
async fn written(intent: &WriteIntent<'_>, committed: Committed) -> Result<WrittenObject, Status> {
    let Committed { revision, entry } = committed;
    let record = store::read(entry)?.record;
    let record = intent.server().outgoing.converter.convert_record(intent.write.resource, record).await?;
    Ok(WrittenObject { value: record.value, revision })
}

/// Returns the result of a dry run of a creation.
fn dry_creation(intent: &WriteIntent<'_>, key: &Bytes, new: &Object) -> Result<RoundEnd, Status> {
    let began = Instant::now();
    let taken = intent.store.get(key)?;
    intent.server().accessed(intent.write.resource, "get", began);
    Ok(match taken {
        None => RoundEnd::Stored(WriteOutcome::Created(stages::new_object_outcome(intent, new))),
        taken => RoundEnd::Conflict(taken),
    })
}

/// Returns the result of a dry run of a change: the bytes that would be stored, with the revision that the write would
/// replace. `requested` is the object in the version of the request.
fn dry(change: &Change, requested: Option<Payload>, current: &Current) -> WriteOutcome {
    let revision = current.revision();
    let value = match &requested {
        Some(payload) => stamped(payload, revision),
        None => current.stored.record.value.clone(),
    };
    let written = WrittenObject { value, revision };
    match change {
        Change::Put(_) => WriteOutcome::Updated(written),
        Change::Delete(_) | Change::DeleteStored(_) => WriteOutcome::Removed(written),
    }
}
