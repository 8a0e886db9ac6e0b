//! The loop over the rounds of a write: each round ends with a conditional commit.
//!
//! ```text
//! first round (freshness) ─► commit ─┬─ stored: done
//!            ▲                       └─ the object has changed: next round
//!            └─────────────────────────────┘
//! ```
//!
//! A round that finds the object changed starts over at the top, a bounded number of times.

use std::time::Instant;

use engine::{Change, Expected, Payload};

use super::commit::Attempt;
use super::freshness;
use super::intent::{Caller, Current, Outcome, Presence, Source, WriteIntent, Written};
use super::path::{Prepared, Round, WritePath};
use super::stages::{self, Encoded};
use crate::writes::admission::Operation;
use objects::store::{self, Stored};
use types::attributes::Attributes;
use values::json::Object;
use values::retry::{Attempts, AttemptsExhausted};
use values::status::{Status, Subject};

/// Maximum number of generated names that are tried.
const GENERATE_ATTEMPTS: u32 = 8;

/// Writes the object that `source` wants, on the conditions of `intent`.
///
/// The cost is one read of the object if it exists, and one commit, which waits for the store's sync.
///
/// # Errors
/// Returns the refusal of a stage, as a response to the client. Nothing is stored in this case.
pub async fn write<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    source: &mut dyn Source<C>,
) -> Result<Outcome, Status> {
    // Boxed because the combined future of the stages is large and would otherwise be embedded in every
    // caller.
    let outcome = Box::pin(async {
        let retries = Retries { attempts: Attempts::new(), names_tried: 0 };
        let mut path = WritePath::new(caller, intent, source);
        let first = freshness::first_round(&mut path).await?;
        rounds(path, retries, first).await
    })
    .await;
    intent.origin.conversions.clear();
    outcome
}

/// Stores the result of a round. If the object has changed since the round began, the next round starts over.
async fn rounds<'w, C: Caller>(
    mut path: WritePath<'_, 'w, C>,
    mut retries: Retries,
    mut round: Round<'w>,
) -> Result<Outcome, Status> {
    let intent = path.intent;
    loop {
        let ready = match round.end(intent)? {
            Prepared::Ready(ready) => *ready,
            Prepared::Over(outcome) => return Ok(outcome),
        };
        let name = if intent.presence == Presence::New { &*ready.name } else { intent.write.name };
        match store(intent, name, ready.encoded, &ready.new, ready.current.as_ref()).await? {
            Ended::Stored(outcome) => {
                ready.held.keep(outcome.revision());
                return Ok(outcome);
            }
            _ if intent.seen.is_some() => return Ok(Outcome::Changed),
            Ended::Conflict(taken) if intent.presence == Presence::New => {
                retries.confirm_name(intent, (name, ready.generated_from), taken)?;
            }
            Ended::Conflict(_) | Ended::Again => {}
        }
        retries.again(intent.subject(name)).await?;
        round = path.round().await;
    }
}

/// Limits on the rounds of one write.
struct Retries {
    attempts: Attempts,
    names_tried: u32,
}

impl Retries {
    /// Starts another round, after other tasks had the chance to run.
    ///
    /// # Errors
    /// 409 after the last round.
    async fn again(&mut self, subject: Subject<'_>) -> Result<(), Status> {
        self.attempts.again().await.map_err(|AttemptsExhausted| Status::stale(subject))
    }

    /// Checks whether the next round may create the object under another name, because the name was
    /// generated.
    ///
    /// # Errors
    /// 409 for a name that the writer chose, and after too many generated names.
    fn confirm_name(
        &mut self,
        intent: &WriteIntent<'_>,
        (name, generated_from): (&str, Option<String>),
        taken: Option<Stored>,
    ) -> Result<(), Status> {
        intent.api().accessed_untimed(intent.write.resource, "get");
        let Some(base) = generated_from else { return Err(already_exists(intent, name, taken.as_ref())) };
        self.names_tried += 1;
        if self.names_tried == GENERATE_ATTEMPTS {
            return Err(Status::generated_name_taken(intent.subject(&base)));
        }
        Ok(())
    }
}

/// The end of a round.
enum Ended {
    /// The change is stored, would be stored by a dry run, or was a no-op.
    Stored(Outcome),
    /// The object differs from the one with which the round began. Contains the object found, if the caller
    /// needs it.
    Conflict(Option<Stored>),
    /// Something that the write has to store together with the object was taken in the meantime.
    Again,
}

async fn store(
    intent: &WriteIntent<'_>,
    name: &str,
    encoded: Encoded,
    new: &Object,
    current: Option<&Current>,
) -> Result<Ended, Status> {
    let (change, shown) = match encoded {
        Encoded::Same => return Ok(Ended::Stored(Outcome::unchanged(current))),
        Encoded::Change { change, shown } => (change, shown),
    };
    let key = store::key(intent.write.resource, intent.write.namespace, name);
    let expected = match current {
        Some(current) if intent.write.dry_run() => {
            if intent.write.operation == Operation::Delete && matches!(change, Change::Put(_)) {
                intent.api().accessed_untimed(intent.write.resource, "get");
            }
            return Ok(Ended::Stored(dry(&change, shown, current)));
        }
        None if intent.write.dry_run() => {
            let began = Instant::now();
            let taken = intent.store.get(&key)?;
            intent.api().accessed(intent.write.resource, "get", began);
            return Ok(match taken {
                None => Ended::Stored(Outcome::Created(stages::shown_new(intent, new))),
                taken => Ended::Conflict(taken),
            });
        }
        Some(current) => Expected::Revision(current.revision()),
        None => Expected::Absent,
    };
    let removes = matches!(change, Change::Delete(_));
    let last = match (&change, current) {
        (Change::Delete(_), Some(current))
            if intent.write.operation == Operation::Update && shown.is_some() =>
        {
            Some(dry(&change, shown.clone(), current))
        }
        _ => None,
    };
    // With a ledger, a delete stores the previous version of the object; the caller gets the final one.
    let last_shown = match &change {
        Change::Delete(Some(_)) if intent.api().ledger().is_some() => shown,
        _ => None,
    };
    match stages::commit(intent, key, expected, change).await? {
        Attempt::Committed(committed) => {
            // An update that ends a deletion was not stored before the object was removed, so it has no
            // version of its own.
            if let Some(last) = last {
                return Ok(Ended::Stored(last));
            }
            let revision = committed.revision;
            if let Some(payload) = last_shown {
                let value = objects::representation::stamped(&payload, revision);
                return Ok(Ended::Stored(Outcome::Removed(Written { value, revision })));
            }
            let record = store::read(committed.entry)?.record;
            let record = intent.api().converter().convert_record(intent.write.resource, record).await?;
            let written = Written { value: record.value, revision };
            Ok(Ended::Stored(match current {
                None => Outcome::Created(written),
                Some(_) if removes => Outcome::Removed(written),
                Some(_) => Outcome::Updated(written),
            }))
        }
        // Only the refusal of a creation describes the existing object.
        Attempt::Conflict(taken) if intent.presence == Presence::New => {
            Ok(Ended::Conflict(taken.map(store::read).transpose()?))
        }
        Attempt::Conflict(_) => Ok(Ended::Conflict(None)),
        Attempt::Again => Ok(Ended::Again),
    }
}

/// Returns the result of a dry run of a change: the object as it would be stored, at the revision that it
/// would replace. `shown` is the object in the form of the resource.
fn dry(change: &Change, shown: Option<Payload>, current: &Current) -> Outcome {
    let revision = current.revision();
    let value = match &shown {
        Some(payload) => objects::representation::stamped(payload, revision),
        None => current.stored.record.value.clone(),
    };
    let written = Written { value, revision };
    match change {
        Change::Put(_) => Outcome::Updated(written),
        Change::Delete(_) => Outcome::Removed(written),
    }
}

fn already_exists(intent: &WriteIntent<'_>, name: &str, taken: Option<&Stored>) -> Status {
    let deleting = taken.is_some_and(|stored| Attributes::new(&stored.record.attributes).is_deleting());
    Status::already_exists(intent.subject(name), deleting)
}
