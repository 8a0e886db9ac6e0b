//! Freshness on a shared store: the first round of a write at a server whose local store may lag the writes
//! that other servers have acknowledged.
//!
//! The first round begins with the state of the local store, without a check whether this state is the
//! newest. If the local store lags, the commit detects the lag, and a later round begins with the newest state.
//! A refused write and a no-op write do not reach the commit. Before the server returns such a result, it
//! waits until the local store has the newest state, and repeats the round if the result may be different. If
//! the round has called a webhook, the round is repeated only if the object has changed or a plugin refused
//! the write, so that webhooks are usually called once for each version of the object.
//!
//! A store that is not shared never lags, so this module does nothing.

use engine::Revision;

use super::intent::{Caller, Presence, WriteIntent};
use super::path::{Prepared, Round, WritePath};
use super::stages::{Encoded, Refuser};
use objects::store;
use values::status::Status;

/// Runs the first round of a write. The result either depends on the newest state of the store, or is a change
/// whose commit detects whether the local store lags.
///
/// # Errors
/// Fails if the newest state of the shared store cannot be determined.
pub(super) async fn first_round<'w, C: Caller>(path: &mut WritePath<'_, 'w, C>) -> Result<Round<'w>, Status> {
    let intent = path.intent;
    let mut may_lag = intent.may_be_behind && intent.server().store.ledger().is_some();
    if may_lag && intent.write.dry_run() {
        intent.server().store.current_for_write(intent.write.resource).await?;
        may_lag = false;
    }
    loop {
        let before = revisions(intent);
        let round = path.round().await;
        if !may_lag || !depends_on_state(&round) {
            return Ok(round);
        }
        intent.server().store.current_for_write(intent.write.resource).await?;
        may_lag = false;
        if !lacks_something(intent, &round, before) {
            return Ok(round);
        }
    }
}

/// Returns two revisions: of the store of the resource, and of the main store, which contains the objects
/// that admission reads.
fn revisions(intent: &WriteIntent<'_>) -> [Revision; 2] {
    intent.server().store.backends.revisions(intent.write.resource)
}

/// Returns whether a newer state of the store may change the result of a round. A newer state may change a refusal or a
/// no-op, but not a server error.
fn depends_on_state(round: &Round<'_>) -> bool {
    match &round.result {
        Err(refusal) => refusal.status.code.is_client_error(),
        Ok(Prepared::Over(_)) => true,
        Ok(Prepared::Ready(ready)) => matches!(ready.encoded, Encoded::Same),
    }
}

/// Returns whether to repeat a round that began at the revisions `before`, because the current state of the
/// store may lead to another result. The refusal of a plugin or of another stage may depend on any object in
/// the store. The refusal of a webhook and a no-op depend only on the written object. After a webhook was called, the
/// refusal of another stage also counts as dependent only on the written object, to avoid a second call.
fn lacks_something(intent: &WriteIntent<'_>, round: &Round<'_>, before: [Revision; 2]) -> bool {
    let looks_at_all = round.result.as_ref().is_err_and(|refusal| match refusal.by {
        Refuser::Plugin => true,
        Refuser::Webhook => false,
        Refuser::Stage => !round.seen.asked_webhooks,
    });
    if looks_at_all {
        return revisions(intent) != before;
    }
    // A creation does not look up the object before the commit.
    let is_named = intent.presence != Presence::New;
    let key = is_named.then(|| store::key(intent.write.resource, intent.write.namespace, intent.write.name));
    key.and_then(|key| intent.store.entry(&key)).map(|entry| entry.revision()) != round.seen.object
}
