//! A round of a write: the stages before the commit, in order.
//!
//! ```text
//! locate ─► decode ─► default ─► (own a new object) ─► mutating admission ─► convert ─► escalate ─► compare ─► own a change
//!    ▲                                                                                                               │
//!    │ conflict                 commit ◄─ encode ◄─ validating admission ◄─ confirm ◄─ validate ◄─ prepare ◄─ allocate
//!    └────────────────────────────┘
//! ```
//!
//! The reasons for this order:
//! - Ownership is computed before the server adds values (allocation, strategy), because no manager may own these
//!   values.
//! - Ownership of a new object is computed on the object that the client sent, in the version of the request.
//!   Therefore fields that a plugin adds have no owner. Ownership of an update is computed by comparing the
//!   old and the new object in the stored version, so this stage comes after the conversion.
//! - The privilege escalation check comes before the other stages that can refuse the object, so that the
//!   client gets the error about missing permissions first. The check that the writer of a policy may read
//!   the parameters runs after the validation rules, and only if the object is valid.
//! - A creation is registered before the lookup of the type's definition and of the namespace (in mutating
//!   admission), and stays registered until the commit ends. Before a controller deletes all objects of a
//!   type or namespace, it waits for the creations that may have read the type or namespace as active.
//! - Allocated addresses and ports stay reserved until the commit ends. The charges that admission took for
//!   the write, such as a share of a quota, are given back if the object is not stored.
//!
//! The module `rounds` commits the result, and begins another round if the object has changed in the
//! meantime. The next round uses no data of the previous round, except data that the source keeps.

use std::time::{Duration, Instant};

use engine::{Change, Revision};

use super::intent::{Caller, Current, ObjectSource, Presence, WriteIntent, WriteOutcome};
use super::stages::{self, Encoded, WriteRefusal};
use crate::state::allocation::Reservation;
use crate::writes::accesses;
use crate::writes::creations::Creation;
use crate::writes::plugin::Charge;
use objects::store;
use values::json::Object;
use values::memory;
use values::object::meta;
use values::status::Status;

/// A write that passes the stages once in each round.
pub(super) struct WritePath<'p, 'w, C> {
    caller: &'p mut C,
    pub(super) intent: &'p WriteIntent<'w>,
    source: &'p mut dyn ObjectSource<C>,
    /// Number of warnings in the caller's list before the write.
    warned: usize,
}

impl<'p, 'w, C: Caller> WritePath<'p, 'w, C> {
    /// Prepares a write. [`WritePath::round`] runs the first round.
    pub(super) fn new(
        caller: &'p mut C,
        intent: &'p WriteIntent<'w>,
        source: &'p mut dyn ObjectSource<C>,
    ) -> Self {
        let warned = caller.warnings().map_or(0, |warnings| warnings.len());
        WritePath { caller, intent, source, warned }
    }

    /// Runs the stages from the lookup of the object to the encoding of the change. First removes the
    /// warnings of an earlier round.
    pub(super) async fn round(&mut self) -> Round<'w> {
        if let Some(warnings) = self.caller.warnings() {
            warnings.truncate(self.warned);
        }
        let mut seen = RoundState::default();
        let result = prepared(self.caller, self.intent, self.source, &mut seen).await;
        Round { result, seen }
    }
}

/// The result of a round, and the state that the round has read. The state is set even if a stage refused the
/// write.
pub(super) struct Round<'w> {
    pub(super) result: Result<Prepared<'w>, WriteRefusal>,
    pub(super) seen: RoundState,
}

impl<'w> Round<'w> {
    /// Returns the result of the round. If kube-apiserver would have read the object from its store, in
    /// addition to the object in its memory, this method counts an access to the store.
    ///
    /// # Errors
    /// Returns the refusal of a stage.
    pub(super) fn end(self, intent: &WriteIntent<'_>) -> Result<Prepared<'w>, Status> {
        let Round { result, seen } = self;
        if seen.object.is_some()
            && accesses::begins_with_cached_object(intent)
            && !is_replacement(intent, &result)
        {
            intent.server().accessed_for(intent.write.resource, "get", seen.took);
        }
        result.map_err(|refusal| refusal.status)
    }
}

/// Returns whether the result of a round is a new version of the object to store.
fn is_replacement(intent: &WriteIntent<'_>, result: &Result<Prepared<'_>, WriteRefusal>) -> bool {
    let Ok(Prepared::Ready(ready)) = result else { return false };
    !intent.write.dry_run() && matches!(&ready.encoded, Encoded::Change { change: Change::Put(_), .. })
}

/// The state of the object that a round has read.
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
    /// The write needs a commit.
    Ready(Box<Ready<'w>>),
    /// The write ends without a commit, with this outcome.
    Over(WriteOutcome),
}

/// A write before its commit.
pub(super) struct Ready<'w> {
    /// For a creation, the name of the new object, which may be generated. Empty for other writes, which use
    /// the name in the intent.
    pub(super) name: String,
    pub(super) encoded: Encoded,
    pub(super) new: Object,
    pub(super) current: Option<Current>,
    /// The prefix of the name, if the name was generated.
    pub(super) generated_from: Option<String>,
    pub(super) held: HeldResources<'w>,
}

/// Resources of a write. Dropping the value releases the resources; [`HeldResources::keep`] keeps the
/// charges.
pub(super) struct HeldResources<'w> {
    charges: Vec<Box<dyn Charge>>,
    _structures: memory::Charge,
    _creation: Option<Creation<'w>>,
    _allocated: Option<Reservation<'w>>,
}

impl HeldResources<'_> {
    /// Keeps the charges, because the write succeeded. `stored` is the revision at which the object is stored;
    /// `None` if the object is not stored.
    pub(super) fn keep(self, stored: Option<Revision>) {
        self.charges.into_iter().for_each(|charge| charge.keep(stored));
    }
}

/// Runs the stages from the lookup of the object to the encoding of the change. Records the state that was
/// read in `seen`, even if a stage refuses the write.
async fn prepared<'w, C: Caller>(
    caller: &mut C,
    intent: &WriteIntent<'w>,
    source: &mut dyn ObjectSource<C>,
    seen: &mut RoundState,
) -> Result<Prepared<'w>, WriteRefusal> {
    let mut current = match locate(caller, intent, seen).await? {
        Located::At(current) => current,
        Located::Out(outcome) => return Ok(Prepared::Over(outcome)),
    };
    seen.object = current.as_ref().map(Current::revision);
    let decoded = stages::decode(caller, intent, source, current.as_mut()).await?;
    let Some((mut object, fate)) = decoded else {
        return Ok(Prepared::Over(WriteOutcome::unchanged(current.as_ref())));
    };
    // Charge memory here, because defaults and managed fields can make a small object large.
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
    let charges = stages::admit(caller, intent, source, &new, fate, old.as_ref(), current.as_mut()).await?;
    if current.is_none() {
        stages::check_unversioned(intent, &mut new)?;
    }
    let encoded = stages::encode(intent, &mut new, fate, old.as_ref(), current.as_ref()).await?;
    // Read the name again, because a plugin may have changed the name of a new object.
    let name = if intent.presence == Presence::New { meta(&new, "name").to_owned() } else { String::new() };
    let held = HeldResources { charges, _structures: structures, _creation: creation, _allocated: allocated };
    Ok(Prepared::Ready(Box::new(Ready { name, encoded, new, current, generated_from, held })))
}

/// The start of a round.
enum Located {
    /// The round begins with this state of the object; `None` for a creation.
    At(Option<Current>),
    /// The write ends here, with this outcome.
    Out(WriteOutcome),
}

async fn locate<C: Caller>(
    caller: &C,
    intent: &WriteIntent<'_>,
    seen: &mut RoundState,
) -> Result<Located, Status> {
    if intent.presence == Presence::New {
        // The commit of a creation detects whether the object exists.
        return Ok(Located::At(None));
    }
    store::check_key_name(intent.write.name)?;
    let key = store::key(intent.write.resource, intent.write.namespace, intent.write.name);
    let began = Instant::now();
    let found = intent.store.get(&key)?;
    seen.took = began.elapsed();
    if found.is_none() || !accesses::begins_with_cached_object(intent) {
        intent.server().accessed_for(intent.write.resource, "get", seen.took);
    }
    match (found, intent.presence) {
        (Some(stored), _) if intent.seen.is_some_and(|seen| seen != stored.entry.revision()) => {
            Ok(Located::Out(WriteOutcome::Changed))
        }
        (Some(stored), _) => Ok(Located::At(Some(Current::from_stored(intent, stored).await?))),
        (None, Presence::IfThere) => Ok(Located::Out(WriteOutcome::Missing)),
        (None, Presence::Either) => {
            caller.confirm_create().await?;
            Ok(Located::At(None))
        }
        (None, Presence::Existing | Presence::New) => Err(stages::not_found(intent)),
    }
}
