//! The stages of a write, in order, and the one loop around them.
//!
//! ```text
//! locate ─► decode ─► default ─► (own a new object) ─► mutating admission ─► convert ─► escalate ─► compare ─► own a change
//!    ▲                                                                                                               │
//!    │ conflict                 commit ◄─ encode ◄─ validating admission ◄─ confirm ◄─ validate ◄─ prepare ◄─ allocate
//!    └────────────────────────────┘
//! ```
//!
//! Why this order and no other:
//! - Ownership comes before what the server adds (allocation, strategy), because what the server adds belongs to no
//!   manager.
//! - A new object is owned as it was sent, in the version of the request, so that what a plugin adds to it belongs to
//!   no manager either. Of an update the two stored states are compared, so its ownership comes after the conversion.
//! - What a role grants is looked at before anything of the object is refused: its writer is told of what it lacks first.
//!   Whether the writer of a policy may read its parameters is confirmed of a valid object only, as one more of its rules.
//! - The creation is registered before the definition of its type is looked at, and the namespace by mutating admission,
//!   and until the commit is over: the controllers that empty either wait for the creations that may have seen it alive.
//! - What was allocated is held until the commit is over, whatever becomes of it; what admission took for the write, such
//!   as a share of a quota, is given back unless the object is stored.
//!
//! A round that finds the object changed begins again at the top, a bounded number of times. Nothing of a round
//! survives it but what the source keeps.
//!
//! Where other servers write too, the first round begins with the store as it is, without asking whether that is the newest
//! state: if it is not, the commit finds that out. What is not decided by the commit (a refusal, a write that changes nothing)
//! is told only of a state that lacks nothing: the round is made again where the store lacked something. A webhook that was asked
//! is asked again only where the object has changed, or another plugin refused: it is told of a write once for each state of the
//! object.

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
use values::retry::{Attempts, Exhausted};
use values::status::Status;

/// How often a taken generated name is tried anew.
const GENERATE_ATTEMPTS: u32 = 8;

/// Writes what `source` wants, on the conditions of `intent`.
///
/// Costs one read of the object where there is one, and one commit; waits for the store's sync.
///
/// # Errors
/// What a stage refused, as it is to be answered. Nothing is stored then.
pub async fn write<C: Caller, S: Source<C>>(
    caller: &mut C,
    intent: &Intent<'_>,
    source: &mut S,
) -> Result<Outcome, Status> {
    // The stages' futures are large together, and are held by those of every caller: on the heap they are so once.
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
                attempts.again().await.map_err(|Exhausted| Status::stale(intent.subject(name)))?;
                continue;
            }
        };
        // The conflict was found in the newest state, and the store has that now.
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
        attempts.again().await.map_err(|Exhausted| Status::stale(intent.subject(name)))?;
    }
}

/// What the stages before the commit come to.
enum Round<'w> {
    /// This is to be stored.
    Ready(Box<Ready<'w>>),
    /// There is nothing to store.
    Over(Outcome),
}

/// A write before its commit.
struct Ready<'w> {
    /// The name of an object that must be new; empty for others, whose name is that of the intent.
    name: String,
    encoded: Encoded,
    new: Object,
    current: Option<Current>,
    /// What the name was generated from, if it was.
    generated_from: Option<String>,
    held: Held<'w>,
}

/// What is given back when the commit is over, whatever comes of it.
struct Held<'w> {
    charges: Vec<Box<dyn Charge>>,
    _structures: memory::Charge,
    _creation: Option<Creation<'w>>,
    _allocated: Option<Reservation<'w>>,
}

/// The stages from the newest state to what is to be stored. Notes what it saw, also where a stage refuses.
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
    // Defaults and managed fields may make much of little.
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
    // A plugin may have given a new object another name.
    let name = if intent.presence == Presence::New { meta(&new, "name").to_owned() } else { String::new() };
    let held = Held { charges, _structures: structures, _creation: creation, _allocated: allocated };
    Ok(Round::Ready(Box::new(Ready { name, encoded, new, current, generated_from, held })))
}

/// What a round sees of the store.
struct Seen {
    /// The revision of the store when the round begins, and of the main one, which has what admission looks at.
    revisions: [Revision; 2],
    /// The revision of the object, if the round found it.
    object: Option<Revision>,
    /// Whether a webhook that may change the object was asked, and let the write through.
    asked_webhooks: bool,
    /// How long it took to look for the object.
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

    /// Whether the round might have come to something else with what the store has now. The stages look at all of the store; what a
    /// webhook is told, and whether a write changes anything, depends on the object. Once a webhook was asked, only plugins that
    /// are none refuse from the newest state of all.
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

/// Whether a round ends with what the store says, which another look may deny: a refusal, or that nothing is to be done. That a
/// part of the server failed is true of any state.
fn says_what_is_stored(round: &Result<Round<'_>, Refusal>) -> bool {
    match round {
        Err(refusal) => refusal.status.code.is_client_error(),
        Ok(Round::Over(_)) => true,
        Ok(Round::Ready(ready)) => matches!(ready.encoded, Encoded::Same),
    }
}

/// Whether a round ends with another state of the object that is to be stored.
fn is_replacement(intent: &Intent<'_>, round: &Result<Round<'_>, Refusal>) -> bool {
    let Ok(Round::Ready(ready)) = round else { return false };
    !intent.dry_run && matches!(&ready.encoded, Encoded::Change { change: Change::Put(_), .. })
}

/// What a round begins with.
enum Located {
    /// The newest state; `None` for an object that is to be created.
    At(Option<Current>),
    /// Nothing to write.
    Out(Outcome),
}

async fn locate<C: Caller>(caller: &C, intent: &Intent<'_>, seen: &mut Seen) -> Result<Located, Status> {
    if intent.presence == Presence::New {
        // The commit finds out whether there is one.
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

/// How a round ends.
enum Ended {
    /// It is stored, or would be, or was before.
    Stored(Outcome),
    /// The object is not the one that the round began with; it is this one where that matters.
    Conflict(Option<Stored>),
    /// What the write takes along was taken meanwhile.
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
    // A ledger keeps of a delete what was there before; the caller is shown the object as it went.
    let last_shown = match &change {
        Change::Delete(Some(_)) if intent.api.ledger().is_some() => shown,
        _ => None,
    };
    match stages::commit(intent, key, expected, change).await? {
        Attempt::Committed(committed) => {
            // An update that ends a deletion was not stored before the object went: it has no version of its own.
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
        // Only the refusal of a creation says something of what is there.
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

/// What a dry run of a change shows: the object as it would be stored, at the revision that it would replace. `shown` is
/// the object in the form of the resource.
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
