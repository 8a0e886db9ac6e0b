//! The stages of a write, in order, and the one loop around them.
//!
//! ```text
//! locate ─► decode ─► default ─► (own a new object) ─► mutating admission ─► convert ─► escalate ─► compare ─► own a change
//!    ▲                                                                                                               │
//!    │ conflict                 commit ◄─ encode ◄─ validating admission ◄─ confirm ◄─ validate ◄─ prepare ◄─ allocate
//!    └────────────────────────────┘
//! ```
//!
//! The reasons for this order:
//! - Ownership comes before what the server adds (allocation, strategy), because what the server adds belongs
//!   to no manager.
//! - Ownership of a new object is computed on the object as sent, in the version of the request, so that
//!   fields that a plugin adds belong to no manager either. For an update the two stored versions are
//!   compared, so ownership comes after the conversion.
//! - The privilege escalation check comes before all other refusals of the object, so that the writer learns
//!   first which permissions are missing. The check whether the writer of a policy may read its parameters
//!   runs only for a valid object, as one more of its rules.
//! - A creation is registered before the definition of its type and (in mutating admission) its namespace are
//!   looked up, and until the commit is over. The controllers that empty a type or a namespace wait for the
//!   creations that may have seen it active.
//! - Allocated addresses and ports are held until the commit is over, whatever its outcome. The charges that
//!   admission took for the write, such as a share of a quota, are given back unless the object is stored.
//!
//! A round that finds the object changed starts over at the top, a bounded number of times. No data of a
//! round survives except what the source keeps.
//!
//! If other servers write too, the first round begins with the local store, without asking whether it lags.
//! If the local store lags, the commit detects that. A refusal and a no-op write have no commit. Before such
//! a result is returned, the server checks whether the local store lags, and repeats the round if it does. A
//! webhook that was called is called again only if the object has changed or another plugin refused, so that
//! it sees a write once for each version of the object.

use std::time::{Duration, Instant};

use engine::{Change, Expected, Payload, Revision};

use super::commit::Attempt;
use super::intent::{Caller, Current, Intent, Outcome, Presence, Source, Written};
use super::stages::{self, Encoded, Refusal, Refuser};
use crate::state::allocation::Reservation;
use crate::writes::accesses;
use crate::writes::admission::namespace_lifecycle::Creation;
use crate::writes::admission::{Charge, Operation};
use objects::store::{self, Stored};
use types::attributes::Attributes;
use values::json::Object;
use values::memory;
use values::object::meta;
use values::retry::{Attempts, AttemptsExhausted};
use values::status::Status;

/// Maximum number of generated names that are tried.
const GENERATE_ATTEMPTS: u32 = 8;

/// Writes the object that `source` wants, on the conditions of `intent`.
///
/// The cost is one read of the object if it exists, and one commit, which waits for the store's sync.
///
/// # Errors
/// Returns the refusal of a stage, as a response to the client. Nothing is stored in this case.
pub async fn write<C: Caller, S: Source<C>>(
    caller: &mut C,
    intent: &Intent<'_>,
    source: &mut S,
) -> Result<Outcome, Status> {
    // Boxed because the combined future of the stages is large and would otherwise be embedded in every
    // caller.
    let outcome = Box::pin(rounds(caller, intent, source)).await;
    intent.conversions.clear();
    outcome
}

async fn rounds<C: Caller, S: Source<C>>(
    caller: &mut C,
    intent: &Intent<'_>,
    source: &mut S,
) -> Result<Outcome, Status> {
    let warned = caller.warnings().map_or(0, |warnings| warnings.len());
    let mut attempts = Attempts::new();
    let mut names_tried = 0;
    let mut is_behind = intent.may_be_behind && intent.api.ledger().is_some();
    if is_behind && intent.dry_run {
        intent.api.current_for_write(intent.resource).await?;
        is_behind = false;
    }
    loop {
        if let Some(warnings) = caller.warnings() {
            warnings.truncate(warned);
        }
        let mut seen = Seen::before(intent);
        let round = prepared(caller, intent, source, &mut seen).await;
        if is_behind && says_what_is_stored(&round) {
            intent.api.current_for_write(intent.resource).await?;
            is_behind = false;
            if seen.lacks_something(intent, &round) {
                continue;
            }
        }
        if seen.object.is_some() && accesses::begins_with_kept(intent) && !is_replacement(intent, &round) {
            intent.api.accessed_for(intent.resource, "get", seen.took);
        }
        let round = round.map_err(|refusal| refusal.status)?;
        let Ready { name, encoded, new, current, generated_from, held } = match round {
            Round::Ready(ready) => *ready,
            Round::Over(outcome) => return Ok(outcome),
        };
        let name = if intent.presence == Presence::New { &name } else { intent.name };
        let taken = match store(intent, name, encoded, &new, current.as_ref()).await? {
            Ended::Stored(outcome) => {
                let revision = outcome.revision();
                held.charges.into_iter().for_each(|charge| charge.keep(revision));
                return Ok(outcome);
            }
            Ended::Conflict(taken) => taken,
            Ended::Again if intent.seen.is_some() => return Ok(Outcome::Changed),
            Ended::Again => {
                is_behind = false;
                attempts.again().await.map_err(|AttemptsExhausted| Status::stale(intent.subject(name)))?;
                continue;
            }
        };
        // The conflict was found in the newest state, which the local store has now.
        is_behind = false;

        if intent.seen.is_some() {
            return Ok(Outcome::Changed);
        }
        if intent.presence == Presence::New {
            intent.api.accessed_untimed(intent.resource, "get");
            let Some(base) = generated_from else { return Err(already_exists(intent, name, taken.as_ref())) };
            names_tried += 1;
            if names_tried == GENERATE_ATTEMPTS {
                return Err(Status::generated_name_taken(intent.subject(&base)));
            }
        }
        attempts.again().await.map_err(|AttemptsExhausted| Status::stale(intent.subject(name)))?;
    }
}

/// The result of the stages before the commit.
enum Round<'w> {
    /// There is something to store.
    Ready(Box<Ready<'w>>),
    /// There is nothing to store.
    Over(Outcome),
}

/// A write before its commit.
struct Ready<'w> {
    /// The name of the object if it must be new, which may be a generated name. Empty for other writes, which
    /// use the name of the intent.
    name: String,
    encoded: Encoded,
    new: Object,
    current: Option<Current>,
    /// The prefix of the name, if the name was generated.
    generated_from: Option<String>,
    held: Held<'w>,
}

/// Resources that are released when the commit is over. Charges are kept if the write was stored.
struct Held<'w> {
    charges: Vec<Box<dyn Charge>>,
    _structures: memory::Charge,
    _creation: Option<Creation<'w>>,
    _allocated: Option<Reservation<'w>>,
}

/// Runs the stages from reading the object to encoding the change. Records the state that was read in `seen`,
/// even if a stage refuses.
async fn prepared<'w, C: Caller, S: Source<C>>(
    caller: &mut C,
    intent: &Intent<'w>,
    source: &mut S,
    seen: &mut Seen,
) -> Result<Round<'w>, Refusal> {
    let mut current = match locate(caller, intent, seen).await? {
        Located::At(current) => current,
        Located::Out(outcome) => return Ok(Round::Over(outcome)),
    };
    seen.object = current.as_ref().map(Current::revision);
    let wanted = stages::decode(caller, intent, source, current.as_mut()).await?;
    let Some((mut object, fate)) = wanted else { return Ok(Round::Over(unchanged(current.as_ref()))) };
    // Defaults and managed fields may make a small object large.
    let structures = intent.api.memory().structures(object.structures());
    let structures = structures.map_err(Status::no_memory)?;
    let is_labelled = stages::is_labelled(&object);
    stages::default(intent, source, &mut object);
    let creation = current.is_none().then(|| intent.api.creations().begin());
    if current.is_none() {
        stages::defined(intent)?;
        stages::own_new(intent, &mut object).await?;
    }
    stages::same(intent, &object, current.as_mut())?;
    seen.asked_webhooks = stages::mutate(caller, intent, source, current.as_mut(), &mut object).await?;
    let (mut new, old) = stages::convert(intent, source, object, current.as_mut())?;
    stages::escalate(intent, &new, old.as_ref()).await?;
    let generated_from = match &current {
        None => stages::identify(&mut new),
        Some(current) => stages::compare(intent, &mut new, old.as_ref(), current).map(|()| None)?,
    };
    if let Some(old) = &old {
        stages::own_change(intent, &mut new, old).await?;
    }
    let allocated = stages::allocate(intent, &mut new, old.as_ref())?;
    stages::prepare(caller, intent, &mut new, old.as_ref(), is_labelled);
    stages::validate(caller, intent, &new, old.as_ref()).await?;
    stages::warn(caller, intent, &new, old.as_ref());
    stages::confirm_parameters(intent, &new, old.as_ref()).await?;
    let charges = stages::admit(caller, intent, source, (&new, fate), old.as_ref(), current.as_mut()).await?;
    if current.is_none() {
        stages::check_unversioned(intent, &mut new)?;
    }
    let encoded = stages::encode(intent, &mut new, fate, old.as_ref(), current.as_ref()).await?;
    // A plugin may have changed the name of a new object.
    let name = if intent.presence == Presence::New { meta(&new, "name").to_owned() } else { String::new() };
    let held = Held { charges, _structures: structures, _creation: creation, _allocated: allocated };
    Ok(Round::Ready(Box::new(Ready { name, encoded, new, current, generated_from, held })))
}

/// The state of the store that a round has seen.
struct Seen {
    /// The revisions at the start of the round: of the store of the resource, and of the main store, which
    /// has what admission reads.
    revisions: [Revision; 2],
    /// The revision of the object, if the round found it.
    object: Option<Revision>,
    /// Whether a mutating webhook was called and allowed the write.
    asked_webhooks: bool,
    /// Duration of the lookup of the object.
    took: Duration,
}

impl Seen {
    fn before(intent: &Intent<'_>) -> Seen {
        Seen {
            revisions: intent.api.backends().revisions(intent.resource),
            object: None,
            asked_webhooks: false,
            took: Duration::ZERO,
        }
    }

    /// Returns whether the round might have another result with the current state of the store. Plugins read
    /// the whole store. So do the other stages, but once a webhook was called, only a change of the object
    /// counts for them. The result of a webhook, and whether a write is a no-op, depend on the object only.
    fn lacks_something(&self, intent: &Intent<'_>, round: &Result<Round<'_>, Refusal>) -> bool {
        let looks_at_all = round.as_ref().is_err_and(|refusal| match refusal.by {
            Refuser::Plugin => true,
            Refuser::Webhook => false,
            Refuser::Stage => !self.asked_webhooks,
        });
        if looks_at_all {
            return intent.api.backends().revisions(intent.resource) != self.revisions;
        }
        // The name of a new object is not looked up before its commit.
        let is_named = intent.presence != Presence::New;
        let key = is_named.then(|| store::key(intent.resource, intent.namespace, intent.name));
        key.and_then(|key| intent.store.entry(&key)).map(|entry| entry.revision()) != self.object
    }
}

/// Returns whether the result of a round depends on the state of the store, so that a newer state may change
/// it: a refusal, or a no-op. A server error does not depend on the state.
fn says_what_is_stored(round: &Result<Round<'_>, Refusal>) -> bool {
    match round {
        Err(refusal) => refusal.status.code.is_client_error(),
        Ok(Round::Over(_)) => true,
        Ok(Round::Ready(ready)) => matches!(ready.encoded, Encoded::Same),
    }
}

/// Returns whether a round ends with a new version of the object that is to be stored.
fn is_replacement(intent: &Intent<'_>, round: &Result<Round<'_>, Refusal>) -> bool {
    let Ok(Round::Ready(ready)) = round else { return false };
    !intent.dry_run && matches!(&ready.encoded, Encoded::Change { change: Change::Put(_), .. })
}

/// The start of a round.
enum Located {
    /// The newest state; `None` for an object that is to be created.
    At(Option<Current>),
    /// There is nothing to write.
    Out(Outcome),
}

async fn locate<C: Caller>(caller: &C, intent: &Intent<'_>, seen: &mut Seen) -> Result<Located, Status> {
    if intent.presence == Presence::New {
        // The commit detects whether the object exists.
        return Ok(Located::At(None));
    }
    store::check_key_name(intent.name)?;
    let key = store::key(intent.resource, intent.namespace, intent.name);
    let began = Instant::now();
    let found = intent.store.get(&key)?;
    seen.took = began.elapsed();
    if found.is_none() || !accesses::begins_with_kept(intent) {
        intent.api.accessed_for(intent.resource, "get", seen.took);
    }
    match (found, intent.presence) {
        (Some(stored), _) if intent.seen.is_some_and(|seen| seen != stored.entry.revision()) => {
            Ok(Located::Out(Outcome::Changed))
        }
        (Some(stored), _) => Ok(Located::At(Some(Current::found(intent, stored).await?))),
        (None, Presence::IfThere) => Ok(Located::Out(Outcome::Missing)),
        (None, Presence::Either) => {
            caller.confirm_create().await?;
            Ok(Located::At(None))
        }
        (None, Presence::Existing | Presence::New) => Err(stages::not_found(intent)),
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
    intent: &Intent<'_>,
    name: &str,
    encoded: Encoded,
    new: &Object,
    current: Option<&Current>,
) -> Result<Ended, Status> {
    let (change, shown) = match encoded {
        Encoded::Same => return Ok(Ended::Stored(unchanged(current))),
        Encoded::Change { change, shown } => (change, shown),
    };
    let key = store::key(intent.resource, intent.namespace, name);
    let expected = match current {
        Some(current) if intent.dry_run => {
            if intent.operation == Operation::Delete && matches!(change, Change::Put(_)) {
                intent.api.accessed_untimed(intent.resource, "get");
            }
            return Ok(Ended::Stored(dry(&change, shown, current)));
        }
        None if intent.dry_run => {
            let began = Instant::now();
            let taken = intent.store.get(&key)?;
            intent.api.accessed(intent.resource, "get", began);
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
        (Change::Delete(_), Some(current)) if intent.operation == Operation::Update && shown.is_some() => {
            Some(dry(&change, shown.clone(), current))
        }
        _ => None,
    };
    // With a ledger, a delete stores the previous version of the object; the caller gets the final one.
    let last_shown = match &change {
        Change::Delete(Some(_)) if intent.api.ledger().is_some() => shown,
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
            let record = intent.api.converter().brought(intent.resource, record).await?;
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

fn unchanged(current: Option<&Current>) -> Outcome {
    current.map_or(Outcome::Missing, |current| {
        let revision = current.revision();
        Outcome::Unchanged(Written { value: current.stored.record.value.clone(), revision })
    })
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

fn already_exists(intent: &Intent<'_>, name: &str, taken: Option<&Stored>) -> Status {
    let deleting = taken.is_some_and(|stored| Attributes::new(&stored.record.attributes).is_deleting());
    Status::already_exists(intent.subject(name), deleting)
}
