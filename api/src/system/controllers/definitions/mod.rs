//! Definitions of custom types: which names they get, when their types are served, and how they end
//! (docs/api/custom-resources.md).
//!
//! ```text
//! tail on definitions ─► names granted ─► types made ─► swap ─► status ─► store
//!                    └─ deleted ─► one task each (deletion.rs)
//! the same tail, on one server of several ─► another storage version ─► one task each, if wanted (migration.rs)
//! ```
//!
//! The types are served before the status says so: who sees a definition established finds its objects. Names go to the
//! definition that asks first; when one gives names back, those of its group that were refused some are looked at again.

mod deletion;
mod load;
mod migration;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use engine::EventKind;
use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;

pub use self::load::load;
pub(super) use self::migration::follow as follow_migrating;
use super::{EVENTS_MAX, Ending, WRITES_MAX};
use crate::objects::custom::definition::conditions::{State, derive};
use crate::objects::custom::definition::naming::{ESTABLISHED, NAMES_ACCEPTED, Taken};
use crate::objects::custom::definition::{Definition, Names};
use crate::objects::custom::established::{Changes, Established};
use crate::objects::store::{self, Stored};
use crate::objects::strategy::Endpoint;
use crate::objects::validation;
use crate::values::clock;
use crate::values::json::Object;
use crate::values::object::meta;
use crate::values::status::{Reason, Status};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;

/// Most definitions that are held at once, each with the tree of its object, to be decided about.
const READ_MAX: usize = 64;

/// Follows the definitions.
pub(super) async fn follow(api: Arc<Context>) -> Ending {
    let prefix = store::collection(api.definitions(), "");
    let snapshot = api.engine().snapshot();
    let mut tail = api.engine().tail(snapshot.revision(), prefix.clone())?;
    let name_of = |key: &[u8]| store::identity(api.definitions(), key).1.to_owned();
    let names = snapshot.prefix(&prefix).map(|entry| name_of(entry.key())).collect();
    drop(snapshot);
    let mut definitions = Definitions::new(&api);
    definitions.look_at(names).await?;
    let context = Arc::clone(&api);
    // Not waited for: it is short, and requests do its work where it comes too late.
    drop(tokio::task::spawn_blocking(move || load::complete(&context)));
    loop {
        tokio::select! {
            events = tail.next(EVENTS_MAX) => {
                let events = events?;
                let names = events.iter().map(|event| name_of(&event.key));
                for event in events.iter().filter(|event| event.kind == EventKind::Delete) {
                    definitions.gone(&name_of(&event.key));
                }
                definitions.look_at(names.collect()).await?;
            }
            Some(ended) = definitions.deletions.join_next() => {
                // They catch their panics, so an error means that they were aborted with the set.
                if let Ok(name) = ended {
                    definitions.deleting.remove(&name);
                    // Another definition of that name may have been deleted while the task was about to end.
                    definitions.look_at(vec![name]).await?;
                }
            }
        }
    }
}

/// What is known of all definitions.
struct Definitions<'a> {
    api: &'a Arc<Context>,
    /// By name.
    known: BTreeMap<String, Known>,
    /// Names of those whose deletion is under way, one task each.
    deleting: HashSet<String>,
    deletions: JoinSet<String>,
}

/// What others of its group need to know of a definition.
struct Known {
    group: String,
    accepted: Names,
    /// Whether it was refused a name.
    is_refused: bool,
}

/// The newest state of a definition; `None` where it is gone.
type Newest = Option<(Object, Definition)>;

/// A definition whose status is not as it should be.
struct Untold {
    name: String,
    taken: Taken,
}

impl<'a> Definitions<'a> {
    fn new(api: &'a Arc<Context>) -> Self {
        Definitions { api, known: BTreeMap::new(), deleting: HashSet::new(), deletions: JoinSet::new() }
    }

    /// Takes the types of a definition that is gone away, even if there is another one of its name by now.
    fn gone(&mut self, name: &str) {
        self.api.establish(|established, changes| established.remove(name, changes));
    }

    /// Brings definitions of these names, and those that they had taken names from, to what their newest states ask for.
    async fn look_at(&mut self, mut names: Vec<String>) -> Result<(), Status> {
        while !names.is_empty() {
            let mut seen = HashSet::new();
            names.retain(|name| seen.insert(name.clone()));
            let mut freed = HashSet::new();
            if names.len() > READ_MAX {
                // The names that all of them have are known when the first is decided about.
                for name in &names {
                    self.read(std::slice::from_ref(name), load::outlined, &mut freed)?;
                }
            }
            for names in names.chunks(READ_MAX) {
                let read = self.read(names, load::object, &mut freed)?;
                let mut untold = Vec::new();
                let api = self.api;
                api.establish(|established, changes| {
                    for (name, read) in read {
                        let outcome = match read {
                            None => self.forget(name, established, changes),
                            Some((object, definition)) => {
                                self.decide(name, &object, definition, established, changes)
                            }
                        };
                        freed.extend(outcome.freed);
                        untold.extend(outcome.untold);
                    }
                });
                self.tell(untold).await?;
            }
            let waits = |known: &Known| known.is_refused && freed.contains(&known.group);
            let waiting = self.known.iter().filter(|(name, known)| waits(known) && !seen.contains(*name));
            names = waiting.map(|(name, _)| name.clone()).collect();
        }
        Ok(())
    }

    /// The newest states of definitions, whose stored texts `parse` makes objects of. The names that they have are known
    /// when the first is decided about; groups in which some were given back are added to `freed`.
    fn read<'n>(
        &mut self,
        names: &'n [String],
        parse: fn(&[u8]) -> Option<Object>,
        freed: &mut HashSet<String>,
    ) -> Result<Vec<(&'n str, Newest)>, Status> {
        let loopback = Loopback::new(self.api);
        let mut read = Vec::with_capacity(names.len());
        for name in names {
            let stored = loopback.store().get(&store::key(self.api.definitions(), "", name))?;
            let decoded = |stored: Stored| match parse(&stored.record.value) {
                Some(object) => Ok(object),
                None => stored.object(self.api.definitions()),
            };
            let object = stored.map(decoded).transpose();
            let object = match object {
                Ok(object) => object,
                Err(error) => {
                    tracing::error!(definition = name, %error, "definition cannot be read");
                    continue;
                }
            };
            let read_one = object.map(|object| {
                let definition = Definition::read(&object);
                freed.extend(self.know(name, &definition));
                (object, definition)
            });
            read.push((name.as_str(), read_one));
        }
        Ok(read)
    }

    /// Notes the names of a definition; returns its group if it had others.
    fn know(&mut self, name: &str, definition: &Definition) -> Option<String> {
        let known = Known {
            group: definition.group.clone(),
            accepted: definition.accepted.clone(),
            is_refused: !definition.is(NAMES_ACCEPTED),
        };
        let before = self.known.insert(name.to_owned(), known)?;
        (before.accepted != definition.accepted).then_some(before.group)
    }

    fn forget(&mut self, name: &str, established: &mut Established, changes: &mut Changes) -> Decided {
        established.remove(name, changes);
        Decided { freed: self.known.remove(name).map(|known| known.group), untold: None }
    }

    /// Grants names to a definition and serves its types, or begins to delete them.
    fn decide(
        &mut self,
        name: &str,
        object: &Object,
        mut definition: Definition,
        established: &mut Established,
        changes: &mut Changes,
    ) -> Decided {
        let api = self.api;
        let mut untold = None;
        if deletion::is_deleted(object) {
            if deletion::holds(api, object) && self.deleting.insert(name.to_owned()) {
                self.deletions.spawn(deletion::end(api.clone(), name.to_owned()));
            }
        } else {
            let taken = self.taken(&definition.group);
            let state = state(api, object, &definition, &taken);
            if state != State::of(&definition) {
                untold = Some(Untold { name: name.to_owned(), taken });
            }
            (definition.accepted, definition.conditions) = (state.accepted, state.conditions);
        }
        if is_served(api, object, &definition) {
            serve(api, object, &definition, established, changes);
        } else {
            established.remove(name, changes);
        }
        if deletion::is_deleted(object) {
            established.end(name, changes);
        }
        Decided { freed: self.know(name, &definition), untold }
    }

    /// The names in use in a group.
    fn taken(&self, group: &str) -> Taken {
        let mut taken = Taken::default();
        self.known.values().filter(|known| known.group == group).for_each(|known| taken.add(&known.accepted));
        taken
    }

    /// Writes the states of definitions; one that gets established is first said to be about to.
    async fn tell(&self, untold: Vec<Untold>) -> Result<(), Status> {
        let (api, loopback) = (self.api, &Loopback::new(self.api));
        let writes = untold.into_iter().map(|Untold { name, taken }| async move {
            let told = |object: &Object, is_last: bool| {
                let definition = Definition::read(object);
                let mut state = state(api, object, &definition, &taken);
                if !is_last {
                    state = state.installing(&definition)?;
                }
                if deletion::is_deleted(object) || state == State::of(&definition) {
                    return None;
                }
                let mut wanted = object.clone();
                state.write(&mut wanted);
                Some(wanted)
            };
            let write = async |is_last| {
                let tell = |object: &Object| told(object, is_last);
                loopback.change(api.definitions(), ("", &name), Endpoint::Status, tell).await
            };
            let outcome = match write(false).await {
                Ok(()) => write(true).await,
                error => error,
            };
            match outcome {
                Err(error) if error.reason == Reason::Invalid => {
                    tracing::error!(definition = name, %error, "status of a definition cannot be written");
                    Ok(())
                }
                outcome => outcome,
            }
        });
        let mut outcomes = stream::iter(writes).buffer_unordered(WRITES_MAX);
        while let Some(outcome) = outcomes.next().await {
            outcome?;
        }
        Ok(())
    }
}

/// What a decision about a definition leads to.
struct Decided {
    /// The group in which names were given back.
    freed: Option<String>,
    /// Its status is to be written.
    untold: Option<Untold>,
}

/// The state that a definition should have.
fn state(api: &Context, object: &Object, definition: &Definition, taken: &Taken) -> State {
    let findings = validation::findings(api.naming(), definition, object);
    derive(api.naming(), definition, taken, &findings, &clock::now())
}

/// Whether the types of a definition are served: from when it is established until its objects are gone.
fn is_served(api: &Context, object: &Object, definition: &Definition) -> bool {
    let is_there = !deletion::is_deleted(object) || deletion::holds(api, object);
    is_there && definition.is(ESTABLISHED)
}

fn serve(
    api: &Context,
    object: &Object,
    definition: &Definition,
    established: &mut Established,
    changes: &mut Changes,
) {
    let name = meta(object, "name");
    if let Err(error) = established.set((name, object), definition, api.naming(), changes) {
        tracing::error!(definition = name, %error, "types of a definition cannot be served");
    }
}
