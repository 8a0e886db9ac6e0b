//! The loop over the rounds of a write: each round ends with a conditional commit.
//!
//! ```text
//! first round (freshness) ─► commit ─┬─ stored: done
//!            ▲                       └─ the object has changed: next round
//!            └─────────────────────────────┘
//! ```
//!
//! The number of rounds is bounded.

use super::freshness;
use super::intent::{Caller, ObjectSource, Presence, WriteIntent, WriteOutcome};
use super::path::{Prepared, Round, WritePath};
use super::round_end::{RoundEnd, end_round};
use objects::store::Stored;
use types::attributes::Attributes;
use values::retry::{Attempts, AttemptsExhausted};
use values::status::{Status, Subject};

/// Maximum number of generated names that are tried.
const GENERATE_ATTEMPTS: u32 = 8;

/// Writes the object that `source` returns, as `intent` describes.
///
/// A write reads the object if it exists, and makes one commit, which waits for the sync of the store.
///
/// # Errors
/// Returns the refusal of a stage. After a refusal, the write stores nothing.
pub async fn write<C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'_>,
    source: &mut dyn ObjectSource<C>,
) -> Result<WriteOutcome, Status> {
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

/// Commits the result of a round. If the object has changed since the round began, runs another round.
async fn rounds<'w, C: Caller>(
    mut path: WritePath<'_, 'w, C>,
    mut retries: Retries,
    mut round: Round<'w>,
) -> Result<WriteOutcome, Status> {
    let intent = path.intent;
    loop {
        let ready = match round.end(intent)? {
            Prepared::Ready(ready) => *ready,
            Prepared::Over(outcome) => return Ok(outcome),
        };
        let name = if intent.presence == Presence::New { &*ready.name } else { intent.write.name };
        match end_round(intent, name, ready.encoded, &ready.new, ready.current.as_ref()).await? {
            RoundEnd::Stored(outcome) => {
                ready.held.keep(outcome.revision());
                return Ok(outcome);
            }
            _ if intent.seen.is_some() => return Ok(WriteOutcome::Changed),
            RoundEnd::Conflict(taken) if intent.presence == Presence::New => {
                retries.confirm_name(intent, name, ready.generated_from, taken)?;
            }
            RoundEnd::Conflict(_) | RoundEnd::Again => {}
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
    /// Prepares another round: waits until other tasks had a chance to run.
    ///
    /// # Errors
    /// 409 after the last round.
    async fn again(&mut self, subject: Subject<'_>) -> Result<(), Status> {
        self.attempts.again().await.map_err(|AttemptsExhausted| Status::stale(subject))
    }

    /// Checks whether the next round may generate another name, because an object with this name exists.
    ///
    /// # Errors
    /// 409 if the client chose the name, and after too many generated names.
    fn confirm_name(
        &mut self,
        intent: &WriteIntent<'_>,
        name: &str,
        generated_from: Option<String>,
        taken: Option<Stored>,
    ) -> Result<(), Status> {
        intent.server().accessed_untimed(intent.write.resource, "get");
        let Some(base) = generated_from else { return Err(already_exists(intent, name, taken.as_ref())) };
        self.names_tried += 1;
        if self.names_tried == GENERATE_ATTEMPTS {
            return Err(Status::generated_name_taken(intent.subject(&base)));
        }
        Ok(())
    }
}

fn already_exists(intent: &WriteIntent<'_>, name: &str, taken: Option<&Stored>) -> Status {
    let deleting = taken.is_some_and(|stored| Attributes::new(&stored.record.attributes).is_deleting());
    Status::already_exists(intent.subject(name), deleting)
}
