//! The garbage collector: objects go when the last of their owners is gone, and deleted owners wait for their
//! dependents where they were told to (docs/api/controllers.md#garbage-collector).
//!
//! ```text
//! tail on everything ─► graph ─► tasks ─► decide (graph + newest state) ─► action ─► Loopback ─► engine
//!                                  ▲                                         │
//!                                  └──────────── failed: later ──────────────┘
//! ```
//!
//! The graph says where to look, the newest state what to do: every owner is looked up at that moment, and what is
//! written holds only if the object is still the one that was looked at. So nothing needs to be remembered: a start
//! reads the state once and looks at every dependent. Events are never collected and have no dependents.

mod action;
mod graph;
mod head;
mod queue;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use engine::{Entry, Event, EventKind, Revision};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;

use self::action::{Action, Outcome, Place, Write};
use self::graph::{Graph, Task};
use self::head::{Ending, Head, Owner};
use self::queue::{AbsentOwners, Queue};
use super::{EVENTS_MAX, Ending as ControllerEnd, GATHERED, WRITES_MAX};
use crate::writes::context::Context;
use crate::writes::loopback::Loopback;
use crate::writes::write::deletion::{FOREGROUND, ORPHAN};
use objects::store;
use objects::store::backends::Snapshots;
use types::options::Propagation;
use types::schema::registry::Resource;
use types::served::Served;
use values::status::{Reason, Status};

/// By this name it is known to authorization.
const NAME: &str = "generic-garbage-collector";

/// Steps (events observed, tasks decided) before other futures of the process get their turn.
const STEPS_IN_A_ROW: usize = 256;

/// Follows everything.
pub(super) async fn follow(api: Arc<Context>) -> ControllerEnd {
    let mut changes = api.type_changes();
    let snapshots = api.backends().snapshots();
    let mut events = api.backends().changes(&snapshots, GATHERED)?;
    let mut collector = Collector::new(&api);
    let all: Vec<Vec<u8>> = collector.resources.keys().cloned().collect();
    collector.begin_with(&snapshots, &all).await;
    drop(snapshots);
    api.backends().all().for_each(|backend| backend.engine().let_go());
    let writes = Semaphore::new(WRITES_MAX);
    let mut running = FuturesUnordered::new();
    loop {
        for _ in 0..STEPS_IN_A_ROW {
            if running.len() >= WRITES_MAX {
                break;
            }
            let Some(task) = collector.queue.pop() else { break };
            match collector.decide(&task) {
                Ok(None) => collector.queue.done(&task),
                Ok(Some(action)) => {
                    let (loopback, writes) = (collector.loopback.clone(), &writes);
                    running.push(async move { (action.carry_out(&loopback, writes).await, task) });
                }
                Err(error) => collector.queue.failed(task, &error),
            }
        }
        let has_more = running.len() < WRITES_MAX && collector.queue.has_ready();
        tokio::select! {
            biased;
            Ok(()) = changes.changed() => collector.take_types().await,
            events = events.next(EVENTS_MAX) => events?.iter().for_each(|event| collector.observe(event)),
            Some((outcome, task)) = running.next() => match outcome {
                Ok(Outcome::Done) => collector.queue.done(&task),
                Ok(Outcome::Changed) => collector.queue.again(task),
                Ok(Outcome::Newest) => {
                    let (Task::Check(key) | Task::Orphan(key) | Task::Release(key)) = &task;
                    collector.confirmed.insert(key.clone());
                    collector.queue.again(task);
                }
                Err(error) => collector.queue.failed(task, &error),
            },
            () = collector.queue.due() => collector.queue.take_due(),
            () = tokio::task::yield_now(), if has_more => {}
        }
    }
}

/// The graph, what is to be looked at, and what is needed to do so.
struct Collector<'a> {
    api: &'a Context,
    loopback: Loopback<'a>,
    /// Resources by the start of their keys, `/<group>/<resource>/`.
    resources: HashMap<Vec<u8>, Arc<Resource>>,
    /// Keys of dependents that have an owner of a kind that is not served.
    strangers: HashSet<Bytes>,
    /// Keys of dependents whose owners were looked for in the newest state, where they are kept apart.
    confirmed: HashSet<Bytes>,
    graph: Graph,
    queue: Queue,
    absent: AbsentOwners,
}

/// What an owner reference comes to.
enum Standing {
    /// The owner is there.
    Solid,
    /// It is there, and waits for its dependents to go.
    Waiting,
    /// It is not, or another life of its name is. The flag: it is one in another namespace.
    Absent { elsewhere: bool },
    /// Unknown: its kind is not served, or lives in namespaces while the dependent lives in none.
    Unknown { elsewhere: bool },
}

impl<'a> Collector<'a> {
    fn new(api: &'a Context) -> Self {
        let loopback = Loopback::controller(api, NAME);
        Collector {
            api,
            resources: collected(loopback.types()),
            loopback,
            strangers: HashSet::new(),
            confirmed: HashSet::new(),
            graph: Graph::default(),
            queue: Queue::default(),
            absent: AbsentOwners::default(),
        }
    }

    /// Takes in a change of the served types: the objects of new ones, and dependents with owners of unknown kinds.
    async fn take_types(&mut self) {
        self.loopback = Loopback::controller(self.api, NAME);
        let before = std::mem::replace(&mut self.resources, collected(self.loopback.types()));
        let new: Vec<Vec<u8>> =
            self.resources.keys().filter(|prefix| !before.contains_key(*prefix)).cloned().collect();
        self.begin_with(&self.api.backends().snapshots(), &new).await;
        self.strangers.drain().for_each(|key| self.queue.push(Task::Check(key)));
    }

    /// The resource of a key, if its objects are collected.
    fn resource_of(&self, key: &[u8]) -> Option<&Arc<Resource>> {
        let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let (third, _) = slashes.take(3).nth(2)?;
        self.resources.get(&key[..=third])
    }

    /// Takes in the states from before the tail of resources whose keys begin so.
    async fn begin_with(&mut self, snapshots: &Snapshots, prefixes: &[Vec<u8>]) {
        for prefix in prefixes {
            for (at, entry) in snapshots.prefix(prefix).enumerate() {
                self.take_in(&entry);
                if at % STEPS_IN_A_ROW == STEPS_IN_A_ROW - 1 {
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn take_in(&mut self, entry: &Entry) {
        let head = match entry.read() {
            Ok(record) => Head::of_interest(&record.attributes, &record.value),
            Err(error) => return tracing::error!(%error, "object cannot be read, its owners are not known"),
        };
        let tasks = self.graph.put(entry.key(), head.as_ref());
        tasks.into_iter().for_each(|task| self.queue.push(task));
    }

    /// Takes in a change.
    fn observe(&mut self, event: &Event) {
        if self.resource_of(&event.key).is_none() {
            return;
        }
        let record = match event.entry.read() {
            Ok(record) => record,
            Err(error) => return tracing::error!(%error, "object cannot be read, its owners are not known"),
        };
        let tasks = match event.kind {
            EventKind::Put => {
                self.graph.put(&event.key, Head::of_interest(&record.attributes, &record.value).as_ref())
            }
            EventKind::Delete => {
                let uid = Head::read(&record.value).map(|head| head.uid).unwrap_or_default();
                self.absent.insert(&uid, false);
                self.strangers.remove(&event.key);
                self.confirmed.remove(&event.key);
                self.graph.removed(&event.key, &uid)
            }
        };
        tasks.into_iter().for_each(|task| self.queue.push(task));
    }

    /// What is to be done about a task in the newest state, if anything.
    fn decide(&mut self, task: &Task) -> Result<Option<Action>, Status> {
        let (Task::Check(key) | Task::Orphan(key) | Task::Release(key)) = task;
        let Some(resource) = self.resource_of(key) else { return Ok(None) };
        let Some(stored) = self.loopback.store().get(key)? else { return Ok(None) };
        let Some(head) = Head::read(&stored.record.value) else { return Ok(None) };
        let place = Place::of(resource, key);
        let write = match task {
            Task::Orphan(_) if head.ending() == Some(Ending::Orphan) => {
                let keys = self.graph.dependents(&head.uid);
                let dependents =
                    keys.filter_map(|key| Some(Place::of(self.resource_of(key)?, key))).collect();
                Write::Orphan { dependents }
            }
            Task::Release(_)
                if head.ending() == Some(Ending::Foreground) && !self.graph.is_blocked(&head.uid) =>
            {
                Write::Release
            }
            Task::Check(_) if !head.is_deleting() => {
                return self.check(place, &head, stored.entry.revision());
            }
            _ => return Ok(None),
        };
        Ok(Some(Action { place, uid: head.uid, write: Some(write), strays: Vec::new() }))
    }

    /// What is to be done about a dependent.
    fn check(&mut self, place: Place, head: &Head, revision: Revision) -> Result<Option<Action>, Status> {
        let (mut solid, mut waiting, mut unknown) = (false, false, false);
        let mut lost = Vec::new();
        let mut strays = Vec::new();
        let mut unconfirmed = Vec::new();
        for owner in &head.owner_references {
            let standing = self.standing(&place, owner)?;
            match standing {
                Standing::Solid => solid = true,
                Standing::Unknown { .. } => unknown = true,
                Standing::Waiting | Standing::Absent { .. } => lost.push(owner.uid.clone()),
            }
            if let Standing::Absent { .. } = standing
                && let Some(resource) = self.resource_of_owner(owner)
                && !self.api.backends().are_together(&resource, &place.resource)
            {
                unconfirmed.push(resource);
            }
            waiting |= matches!(standing, Standing::Waiting);
            if matches!(
                standing,
                Standing::Unknown { elsewhere: true } | Standing::Absent { elsewhere: true }
            ) {
                strays.push(owner.clone());
            }
        }
        let key = store::key(&place.resource, &place.namespace, &place.name);
        let is_confirmed = self.confirmed.remove(&key);
        let write = if unknown || lost.is_empty() {
            None
        } else if !unconfirmed.is_empty() && !is_confirmed {
            Some(Write::LookAgain { owners: unconfirmed })
        } else if solid {
            Some(Write::Disown { owners: lost })
        } else {
            let has_dependents = self.graph.dependents(&head.uid).next().is_some();
            let propagation = match () {
                () if waiting && has_dependents => Propagation::Foreground,
                () if head.has_finalizer(ORPHAN) => Propagation::Orphan,
                () if head.has_finalizer(FOREGROUND) => Propagation::Foreground,
                () => Propagation::Background,
            };
            // Two that wait for each other would wait for ever; so the one that is met second blocks no more.
            let unblocks = waiting && self.graph.has_waiting_dependent(&head.uid);
            Some(Write::Delete { revision, propagation, unblocks })
        };
        let is_something = write.is_some() || !strays.is_empty();
        Ok(is_something.then(|| Action { place, uid: head.uid.clone(), write, strays }))
    }

    fn resource_of_owner(&self, owner: &Owner) -> Option<Arc<Resource>> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resource = self.loopback.types().registry().by_kind(group, version, &owner.kind);
        resource.filter(|resource| resource.storage.is_some()).cloned()
    }

    /// Looks an owner up, where the dependent at `place` says it is.
    fn standing(&mut self, place: &Place, owner: &Owner) -> Result<Standing, Status> {
        let Some(resource) = self.resource_of_owner(owner) else {
            self.strangers.insert(store::key(&place.resource, &place.namespace, &place.name));
            return Ok(Standing::Unknown { elsewhere: false });
        };
        let namespace = if resource.namespaced() { place.namespace.as_str() } else { "" };
        if resource.namespaced() && namespace.is_empty() {
            return Ok(Standing::Unknown { elsewhere: true });
        }
        if let Some(found) = self.look_up(&resource, namespace, owner)? {
            let waits = found.ending() == Some(Ending::Foreground);
            return Ok(if waits { Standing::Waiting } else { Standing::Solid });
        }
        Ok(Standing::Absent { elsewhere: resource.namespaced() && self.is_elsewhere(&resource, owner)? })
    }

    /// The owner as it is in `namespace`, if it is there in the life that is meant.
    ///
    /// # Errors
    /// It cannot be read, so that its life is not known.
    fn look_up(&self, resource: &Resource, namespace: &str, owner: &Owner) -> Result<Option<Head>, Status> {
        let key = store::key(resource, namespace, &owner.name);
        let Some(stored) = self.loopback.store().get(&key)? else { return Ok(None) };
        let head = Head::read(&stored.record.value).ok_or_else(|| {
            let key = String::from_utf8_lossy(&key);
            Status::new(Reason::StorageReadError, format!("the metadata of {key:?} cannot be read"))
        })?;
        Ok(Some(head).filter(|head| head.uid == owner.uid))
    }

    /// Whether an absent owner lives in another namespace than its dependent. Each is searched for once.
    fn is_elsewhere(&mut self, resource: &Resource, owner: &Owner) -> Result<bool, Status> {
        if let Some(known) = self.absent.get(&owner.uid) {
            return Ok(known);
        }
        let namespaces = self.api.namespaces();
        let mut elsewhere = false;
        for entry in self.api.engine().snapshot().prefix(&store::collection(namespaces, "")) {
            let (_, namespace) = store::identity(namespaces, entry.key());
            if self.look_up(resource, namespace, owner)?.is_some() {
                elsewhere = true;
                break;
            }
        }
        self.absent.insert(&owner.uid, elsewhere);
        Ok(elsewhere)
    }
}

/// The resources whose objects are collected, by the start of their keys.
fn collected(types: &Served) -> HashMap<Vec<u8>, Arc<Resource>> {
    let is_collected =
        |resource: &&Arc<Resource>| !resource.stored().table.behavior.uncollected && resource.can("delete");
    let collected = types.registry().stored().into_iter().filter(is_collected);
    collected.map(|resource| (resource.stored().key_prefix.clone().into_bytes(), resource.clone())).collect()
}
