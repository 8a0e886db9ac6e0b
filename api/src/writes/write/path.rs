//! The stages of a write before its commit, in order: one round.
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
//! `rounds` commits the result, and begins another round if the object has changed in the meantime. No data
//! of a round survives except what the source keeps.

use std::time::{Duration, Instant};

use engine::{Change, Revision};

use super::intent::{Caller, Current, Outcome, Presence, Source, WriteIntent};
use super::stages::{self, Encoded, Refusal};
use crate::state::allocation::Reservation;
use crate::writes::accesses;
use crate::writes::creations::Creation;
use crate::writes::plugin::Charge;
use objects::store;
use values::json::Object;
use values::memory;
use values::object::meta;
use values::status::Status;

/// A write on its way through the stages, once in each round.
pub(super) struct WritePath<'p, 'w, C> {
    caller: &'p mut C,
    pub(super) intent: &'p WriteIntent<'w>,
    source: &'p mut dyn Source<C>,
    /// Number of warnings that the caller had before the write.
    warned: usize,
}

impl<'p, 'w, C: Caller> WritePath<'p, 'w, C> {
    /// Starts a write with its first round.
    pub(super) fn new(caller: &'p mut C, intent: &'p WriteIntent<'w>, source: &'p mut dyn Source<C>) -> Self {
        let warned = caller.warnings().map_or(0, |warnings| warnings.len());
        WritePath { caller, intent, source, warned }
    }

    /// Runs the stages from reading the object to encoding the change. Removes the warnings of an earlier
    /// round.
    pub(super) async fn round(&mut self) -> Round<'w> {
        if let Some(warnings) = self.caller.warnings() {
            warnings.truncate(self.warned);
        }
        let mut seen = RoundState::default();
        let result = prepared(self.caller, self.intent, self.source, &mut seen).await;
        Round { result, seen }
    }
}

/// A round: its result, and the state that it has seen, even if a stage refused the write.
pub(super) struct Round<'w> {
    pub(super) result: Result<Prepared<'w>, Refusal>,
    pub(super) seen: RoundState,
}

impl<'w> Round<'w> {
    /// Returns the result, and counts the access to the store if the round asked for more than the object
    /// that is kept in memory.
    ///
    /// # Errors
    /// The refusal of a stage.
    pub(super) fn end(self, intent: &WriteIntent<'_>) -> Result<Prepared<'w>, Status> {
        let Round { result, seen } = self;
        if seen.object.is_some() && accesses::begins_with_kept(intent) && !is_replacement(intent, &result) {
            intent.server().accessed_for(intent.write.resource, "get", seen.took);
        }
        result.map_err(|refusal| refusal.status)
    }
}

/// Returns whether a round ends with a new version of the object that is to be stored.
fn is_replacement(intent: &WriteIntent<'_>, result: &Result<Prepared<'_>, Refusal>) -> bool {
    let Ok(Prepared::Ready(ready)) = result else { return false };
    !intent.write.dry_run() && matches!(&ready.encoded, Encoded::Change { change: Change::Put(_), .. })
}

/// The state of the object that a round has seen.
#[derive(Default)]
pub(super) struct RoundState {
    /// The revision of the object, if the round found it.
    pub(super) object: Option<Revision>,
    /// Whether a mutating webhook was called and allowed the write.
    pub(super) asked_webhooks: bool,
    /// Duration of the lookup of the object.
    took: Duration,
}

/// The result of the stages before the commit.
pub(super) enum Prepared<'w> {
    /// There is something to store.
    Ready(Box<Ready<'w>>),
    /// There is nothing to store.
    Over(Outcome),
}

/// A write before its commit.
pub(super) struct Ready<'w> {
    /// The name of the object if it must be new, which may be a generated name. Empty for other writes, which
    /// use the name of the intent.
    pub(super) name: String,
    pub(super) encoded: Encoded,
    pub(super) new: Object,
    pub(super) current: Option<Current>,
    /// The prefix of the name, if the name was generated.
    pub(super) generated_from: Option<String>,
    pub(super) held: Held<'w>,
}

/// Resources that are released when the commit is over. Charges are kept if the write was stored.
pub(super) struct Held<'w> {
    charges: Vec<Box<dyn Charge>>,
    _structures: memory::Charge,
    _creation: Option<Creation<'w>>,
    _allocated: Option<Reservation<'w>>,
}

impl Held<'_> {
    /// Keeps the charges, because the write succeeded. `stored` is the revision at which the object is stored;
    /// `None` if it is not stored.
    pub(super) fn keep(self, stored: Option<Revision>) {
        self.charges.into_iter().for_each(|charge| charge.keep(stored));
    }
}

/// Runs the stages from reading the object to encoding the change. Records the state that was read in `seen`,
/// even if a stage refuses.
async fn prepared<'w, C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'w>,
    source: &mut dyn Source<C>,
    seen: &mut RoundState,
) -> Result<Prepared<'w>, Refusal> {
    let mut current = match locate(caller, intent, seen).await? {
        Located::At(current) => current,
        Located::Out(outcome) => return Ok(Prepared::Over(outcome)),
    };
    seen.object = current.as_ref().map(Current::revision);
    let wanted = stages::decode(caller, intent, source, current.as_mut()).await?;
    let Some((mut object, fate)) = wanted else {
        return Ok(Prepared::Over(Outcome::unchanged(current.as_ref())));
    };
    // Defaults and managed fields may make a small object large.
    let structures = intent.server().operations.memory.structures(object.structures());
    let structures = structures.map_err(Status::no_memory)?;
    let is_labelled = stages::is_labelled(&object);
    stages::default(intent, source, &mut object);
    let creation = current.is_none().then(|| intent.server().creations.begin());
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
    Ok(Prepared::Ready(Box::new(Ready { name, encoded, new, current, generated_from, held })))
}

/// The start of a round.
enum Located {
    /// The newest state; `None` for an object that is to be created.
    At(Option<Current>),
    /// There is nothing to write.
    Out(Outcome),
}

async fn locate<C: Caller>(
    caller: &C,
    intent: &WriteIntent<'_>,
    seen: &mut RoundState,
) -> Result<Located, Status> {
    if intent.presence == Presence::New {
        // The commit detects whether the object exists.
        return Ok(Located::At(None));
    }
    store::check_key_name(intent.write.name)?;
    let key = store::key(intent.write.resource, intent.write.namespace, intent.write.name);
    let began = Instant::now();
    let found = intent.store.get(&key)?;
    seen.took = began.elapsed();
    if found.is_none() || !accesses::begins_with_kept(intent) {
        intent.server().accessed_for(intent.write.resource, "get", seen.took);
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
