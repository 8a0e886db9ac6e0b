//! Freshness on a shared store: the first round of a write at a server whose store may lag the writes that
//! other servers on the same store have acknowledged.
//!
//! The first round begins with the local store, without asking whether it lags. If the local store lags, the
//! commit detects that, and a later round begins with the newest state. A refusal and a no-op write have no
//! commit. Before such a result is returned, the server checks whether the local store lags, and repeats the
//! round if it does. A webhook that was called is called again only if the object has changed or another
//! plugin refused, so that it sees a write once for each version of the object.
//!
//! A store that is not shared never lags, so this module does nothing.

use engine::Revision;

use super::intent::{Caller, Presence, WriteIntent};
use super::path::{Prepared, Round, WritePath};
use super::stages::{Encoded, Refuser};
use objects::store;
use values::status::Status;

/// Runs the first round of a write. The result depends only on a state of the store that does not lag, or is a
/// change whose commit detects whether it lags.
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

/// Returns the revisions of the store of the resource, and of the main store, which has the objects that
/// admission reads.
fn revisions(intent: &WriteIntent<'_>) -> [Revision; 2] {
    intent.server().store.backends.revisions(intent.write.resource)
}

/// Returns whether the result of a round depends on the state of the store, so that a newer state may change
/// it: a refusal, or a no-op. A server error does not depend on the state.
fn depends_on_state(round: &Round<'_>) -> bool {
    match &round.result {
        Err(refusal) => refusal.status.code.is_client_error(),
        Ok(Prepared::Over(_)) => true,
        Ok(Prepared::Ready(ready)) => matches!(ready.encoded, Encoded::Same),
    }
}

/// Returns whether a round that began at the revisions `before` might have another result with the current
/// state of the store. Plugins read the whole store. So do the other stages, but once a webhook was called,
/// only a change of the object counts for them. The result of a webhook, and whether a write is a no-op,
/// depend on the object only.
fn lacks_something(intent: &WriteIntent<'_>, round: &Round<'_>, before: [Revision; 2]) -> bool {
    let looks_at_all = round.result.as_ref().is_err_and(|refusal| match refusal.by {
        Refuser::Plugin => true,
        Refuser::Webhook => false,
        Refuser::Stage => !round.seen.asked_webhooks,
    });
    if looks_at_all {
        return revisions(intent) != before;
    }
    // The name of a new object is not looked up before its commit.
    let is_named = intent.presence != Presence::New;
    let key = is_named.then(|| store::key(intent.write.resource, intent.write.namespace, intent.write.name));
    key.and_then(|key| intent.store.entry(&key)).map(|entry| entry.revision()) != round.seen.object
}
