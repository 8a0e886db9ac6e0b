//! Definitions of custom types: accepts names, decides when types are served, and deletes definitions
//! (docs/api/custom-resources.md).
//!
//! ```text
//! tail on definitions ─► names granted ─► types made ─► swap ─► status ─► store
//!                    └─ deleted ─► one task each (deletion.rs)
//! tail on definitions, on one server only ─► another storage version ─► one task each, if wanted (migration.rs)
//! ```
//!
//! The types are served before the status reports that the definition is established, so a client can use the
//! types as soon as it has read such a status. A name is granted to the first definition that requests it. When
//! a definition releases names, the definitions of its group that were refused a name are checked again.

mod deletion;
mod load;
mod migration;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use engine::EventKind;
use futures_util::FutureExt;
use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;

pub use self::load::load;
pub(super) use self::migration::follow as follow_migrating;
use super::{EVENTS_MAX, Ending, WRITES_MAX};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use objects::custom::definition::conditions::{State, derive};
use objects::custom::definition::naming::{NAMES_ACCEPTED, TakenNames};
use objects::custom::definition::{Definition, Names};
use objects::custom::established::Prepared;
use objects::custom::stored_definition::{holds, is_deleted, is_served, outlined, parsed};
use objects::store::{self, ObjectName, Stored};
use objects::strategy::Endpoint;
use objects::validation;
use values::clock;
use values::json::Object;
use values::status::{Status, StatusReason};

/// Maximum number of definitions that are in memory at once, each with the tree of its object.
const READ_MAX: usize = 64;

/// Maximum wait for the types of one definition. The largest definition takes less than a second.
const MAKING_MAX: Duration = Duration::from_secs(10);

/// Runs the controller, which follows the definitions.
pub(super) async fn follow(server: Arc<Server>) -> Ending {
    let prefix = store::collection(&server.types.definitions, "");
    let snapshot = server.store.engine().snapshot();
    let mut tail = server.store.engine().tail(snapshot.revision(), prefix.clone())?;
    let name_of = |key: &[u8]| store::object_name(&server.types.definitions, key).name.to_owned();
    let names = snapshot.prefix(&prefix).map(|entry| name_of(entry.key())).collect();
    drop(snapshot);
    let mut definitions = Definitions::new(&server);
    definitions.look_at(names).await?;
    let loaded = Arc::clone(&server);
    // The server does not wait for this task. The task is short. A request that arrives before the end of the
    // task reads the required schema itself.
    drop(tokio::task::spawn_blocking(move || load::complete(&loaded)));
    loop {
        tokio::select! {
            events = tail.next(EVENTS_MAX) => {
                let events = events?;
                let names = events.iter().map(|event| name_of(&event.key));
                for event in events.iter().filter(|event| event.kind == EventKind::Delete) {
                    definitions.stop_serving(&name_of(&event.key));
                }
                definitions.look_at(names.collect()).await?;
            }
            Some(ended) = definitions.deletions.join_next() => {
                // Tasks catch their panics, so an error means that the task was aborted together with the
                // set.
                if let Ok(name) = ended {
                    definitions.deleting.remove(&name);
                    // Another definition with this name may have been deleted just before the task ended.
                    definitions.look_at(vec![name]).await?;
                }
            }
        }
    }
}

/// State of the controller about all definitions.
struct Definitions<'a> {
    server: &'a Arc<Server>,
    /// Names and group of each definition, by the definition's name.
    known: BTreeMap<String, Known>,
    /// Names of definitions whose deletion is in progress, one task each.
    deleting: HashSet<String>,
    deletions: JoinSet<String>,
}

/// The data of a definition that concerns other definitions of its group.
struct Known {
    group: String,
    accepted: Names,
    /// Whether the definition was refused a name.
    is_refused: bool,
}

/// The newest state of a definition; `None` if it was deleted.
type Newest = Option<(Object, Definition)>;

/// A definition whose status must be written.
struct UnwrittenState {
    name: String,
    taken: TakenNames,
}

impl<'a> Definitions<'a> {
    fn new(server: &'a Arc<Server>) -> Self {
        Definitions { server, known: BTreeMap::new(), deleting: HashSet::new(), deletions: JoinSet::new() }
    }

    /// Stops serving the types of a deleted definition, even if a new definition has the same name now.
    fn stop_serving(&mut self, name: &str) {
        self.server.establish(|established, changes| established.remove(name, changes));
    }

    /// Processes the newest states of the definitions with these names. If a definition released names, the function
    /// also processes the definitions of the same group that were refused a name.
    async fn look_at(&mut self, mut names: Vec<String>) -> Result<(), Status> {
        while !names.is_empty() {
            let mut seen = HashSet::new();
            names.retain(|name| seen.insert(name.clone()));
            let mut freed = HashSet::new();
            if names.len() > READ_MAX {
                // The accepted names of all definitions must be known before the first decision.
                for name in &names {
                    self.read(std::slice::from_ref(name), outlined, &mut freed)?;
                }
            }
            for names in names.chunks(READ_MAX) {
                let read = self.read(names, parsed, &mut freed)?;
                let mut decided = Vec::with_capacity(read.len());
                for (name, read) in read {
                    decided.push(match read {
                        None => self.forget(name),
                        Some((object, definition)) => self.decide(name, object, definition),
                    });
                }
                let mut unwritten = Vec::new();
                for decided in decided {
                    freed.extend(decided.freed);
                    let is_served = self.carry_out(&decided.name, decided.types).await;
                    // A definition whose types could not be created is not reported as established.
                    unwritten.extend(decided.unwritten.filter(|_| is_served));
                }
                self.write_states(unwritten).await?;
            }
            let waits = |known: &Known| known.is_refused && freed.contains(&known.group);
            let waiting = self.known.iter().filter(|(name, known)| waits(known) && !seen.contains(*name));
            names = waiting.map(|(name, _)| name.clone()).collect();
        }
        Ok(())
    }

    /// Reads the newest states of definitions; `parse` converts a stored text to an object. This function
    /// also records the accepted names of each definition, which later decisions need. The function adds the
    /// groups in which names were released to `freed`.
    fn read<'n>(
        &mut self,
        names: &'n [String],
        parse: fn(&[u8]) -> Option<Object>,
        freed: &mut HashSet<String>,
    ) -> Result<Vec<(&'n str, Newest)>, Status> {
        let loopback = Loopback::new(self.server);
        let mut read = Vec::with_capacity(names.len());
        for name in names {
            let stored = loopback.store().get(&store::key(&self.server.types.definitions, "", name));
            let decoded = |stored: Stored| match parse(&stored.record.value) {
                Some(object) => Ok(object),
                None => stored.object(&self.server.types.definitions),
            };
            let object = stored.and_then(|stored| stored.map(decoded).transpose());
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

    /// Records the names of a definition. Returns the group of the definition if the names have changed.
    fn know(&mut self, name: &str, definition: &Definition) -> Option<String> {
        let known = Known {
            group: definition.group.clone(),
            accepted: definition.accepted.clone(),
            is_refused: !definition.is(NAMES_ACCEPTED),
        };
        let before = self.known.insert(name.to_owned(), known)?;
        (before.accepted != definition.accepted).then_some(before.group)
    }

    fn forget(&mut self, name: &str) -> Decided {
        let freed = self.known.remove(name).map(|known| known.group);
        Decided { name: name.to_owned(), freed, unwritten: None, types: Types::Remove }
    }

    /// Grants names to a definition, and decides about its types.
    fn decide(&mut self, name: &str, object: Object, mut definition: Definition) -> Decided {
        let server = self.server;
        let mut unwritten = None;
        let is_deleted = is_deleted(&object);
        let ends = is_deleted && holds(server.types.naming, &object) && self.deleting.insert(name.to_owned());
        if !is_deleted {
            let taken = self.names_in_use(&definition.group);
            let state = state(server, &object, &definition, &taken);
            if state != State::from_definition(&definition) {
                unwritten = Some(UnwrittenState { name: name.to_owned(), taken });
            }
            (definition.accepted, definition.conditions) = (state.accepted, state.conditions);
        }
        let freed = self.know(name, &definition);
        let types = match (is_served(server.types.naming, &object, &definition), is_deleted) {
            (true, false) => Types::Serve(Box::new((object, definition))),
            (true, true) => Types::End { types: Some(Box::new((object, definition))), deletes: ends },
            (false, true) => Types::End { types: None, deletes: ends },
            (false, false) => Types::Remove,
        };
        Decided { name: name.to_owned(), freed, unwritten, types }
    }

    /// Applies the decision about the types of a definition. Returns `false` if the types cannot be served.
    async fn carry_out(&mut self, name: &str, types: Types) -> bool {
        let server = self.server;
        let (to_serve, ends, deletes) = match types {
            Types::Remove => (None, false, false),
            Types::Serve(to_serve) => (Some(to_serve), false, false),
            Types::End { types, deletes } => (types, true, deletes),
        };
        let mut is_served = true;
        match to_serve {
            Some(to_serve) => {
                // A deletion that began earlier may have removed the types already.
                let how = if ends && !deletes { Serving::Replace } else { Serving::Put };
                is_served = serve(server, name, to_serve, how).await;
            }
            None => server.establish(|established, changes| established.remove(name, changes)),
        }
        if ends {
            server.establish(|established, changes| established.end(name, changes));
        }
        if deletes {
            self.deletions.spawn(deletion::end(server.clone(), name.to_owned()).boxed());
        }
        is_served
    }

    /// Returns the names in use in a group.
    fn names_in_use(&self, group: &str) -> TakenNames {
        let mut taken = TakenNames::default();
        self.known.values().filter(|known| known.group == group).for_each(|known| taken.add(&known.accepted));
        taken
    }

    /// Writes the states of definitions. If a definition becomes established, this function first writes the condition
    /// `Installing`, and then the final state.
    async fn write_states(&self, unwritten: Vec<UnwrittenState>) -> Result<(), Status> {
        let (server, loopback) = (self.server, &Loopback::new(self.server));
        let writes = unwritten.into_iter().map(|UnwrittenState { name, taken }| async move {
            let changed = |object: &Object, is_last: bool| {
                let definition = Definition::read(object);
                let mut state = state(server, object, &definition, &taken);
                if !is_last {
                    state = state.installing(&definition)?;
                }
                if is_deleted(object) || state == State::from_definition(&definition) {
                    return None;
                }
                let mut new = object.clone();
                state.write(&mut new);
                Some(new)
            };
            let write = async |is_last| {
                let change = |object: &Object| changed(object, is_last);
                loopback
                    .change(
                        &server.types.definitions,
                        ObjectName::cluster_scoped(&name),
                        Endpoint::Status,
                        change,
                    )
                    .await
            };
            let outcome = match write(false).await {
                Ok(()) => write(true).await,
                error => error,
            };
            match outcome {
                Err(error) if error.reason == StatusReason::Invalid => {
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

/// A decision about a definition.
struct Decided {
    name: String,
    /// Group in which names were released, if any.
    freed: Option<String>,
    /// The status to be written, if any.
    unwritten: Option<UnwrittenState>,
    types: Types,
}

/// A change to the served types because of a definition.
enum Types {
    /// The types are not served.
    Remove,
    /// The types are served.
    Serve(Box<(Object, Definition)>),
    /// The definition is being deleted. Types that were served before are served until all objects are gone.
    End { types: Option<Box<(Object, Definition)>>, deletes: bool },
}

/// Returns the desired state of a definition.
fn state(server: &Server, object: &Object, definition: &Definition, taken: &TakenNames) -> State {
    let findings = validation::findings(server.types.naming, definition, object);
    derive(server.types.naming, definition, taken, &findings, &clock::now())
}

/// How the types of a definition are served.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Serving {
    /// The types are added, or replace the served types of the definition.
    Put,
    /// The types replace the served types of the definition, if there are any.
    Replace,
}

/// Serves the types of a definition. The types are created on a separate thread and outside of all locks; the
/// controller waits at most [`MAKING_MAX`] for the types, and then continues with the next definition.
///
/// Returns `false` if the types cannot be created. In this case the definition keeps its previous types.
async fn serve(server: &Server, name: &str, to_serve: Box<(Object, Definition)>, serving: Serving) -> bool {
    let (object, definition) = &*to_serve;
    let is_done = server.establish(|established, _| {
        let is_removed = serving == Serving::Replace && established.resources(name).is_empty();
        is_removed || established.is_current(name, object, definition)
    });
    if is_done {
        return true;
    }
    let owned = name.to_owned();
    let making = tokio::task::spawn_blocking(move || {
        let (object, definition) = &*to_serve;
        Prepared::new(&owned, object, definition)
    });
    let why = match tokio::time::timeout(MAKING_MAX, making).await {
        Ok(Ok(Ok(prepared))) => {
            let naming = server.types.naming;
            server.establish(|established, changes| match serving {
                Serving::Put => established.put(prepared, naming, changes),
                Serving::Replace => established.replace(prepared, naming, changes),
            });
            return true;
        }
        Ok(Ok(Err(error))) => error.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("not made within {} s", MAKING_MAX.as_secs()),
    };
    tracing::error!(
        definition = name,
        error = why,
        "types of a definition cannot be served; change or delete the definition"
    );
    false
}
