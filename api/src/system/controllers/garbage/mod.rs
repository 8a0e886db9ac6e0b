//! The garbage collector: deletes objects whose last owner is gone, and handles deleted owners that wait for
//! their dependents (docs/api/controllers.md#garbage-collector).
//!
//! ```text
//! tail on everything ─► graph ─► tasks ─► decide (graph + newest state) ─► action ─► Loopback ─► engine
//!                                  ▲                                         │
//!                                  └──────────── failed: later ──────────────┘
//! ```
//!
//! The graph only selects the objects to check. The decision uses the newest state: every owner is looked up
//! at the time of the check, and a write is conditional on the object that was checked. Therefore no state
//! needs to be stored: at the start the collector reads all objects once and checks every dependent. Events
//! are never collected and have no dependents.

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

use self::action::{Action, ActionOutcome, ObjectLocation, Write};
use self::graph::{Graph, Task};
use self::head::{Ending, Head, OwnerReference};
use self::queue::{AbsentOwners, Queue};
use super::{EVENTS_MAX, Ending as ControllerEnd, GATHERED, WRITES_MAX};
use crate::writes::loopback::Loopback;
use crate::writes::server::Server;
use crate::writes::write::deletion::{FOREGROUND, ORPHAN};
use objects::store;
use objects::store::backends::Snapshots;
use types::options::Propagation;
use types::schema::registry::Resource;
use types::served::Served;
use values::status::{Status, StatusReason};

/// Name of the controller for authorization.
const NAME: &str = "generic-garbage-collector";

/// Number of steps (events observed, tasks decided) before the collector yields.
const STEPS_IN_A_ROW: usize = 256;

/// Runs the collector, which follows all resources.
pub(super) async fn follow(server: Arc<Server>) -> ControllerEnd {
    let mut changes = server.types.changes();
    let snapshots = server.store.backends.snapshots();
    let mut events = server.store.backends.changes(&snapshots, GATHERED)?;
    let mut collector = Collector::new(&server);
    let all: Vec<Vec<u8>> = collector.resources.keys().cloned().collect();
    collector.begin_with(&snapshots, &all).await;
    drop(snapshots);
    server.store.backends.all().for_each(|backend| backend.engine().release_pages());
    let writes = Semaphore::new(WRITES_MAX);
    let mut running = FuturesUnordered::new();
    loop {
        for _ in 0..STEPS_IN_A_ROW {
            if running.len() >= WRITES_MAX {
                break;
            }
            let Some(task) = collector.queue.pop() else { break };
            match collector.decide(&task) {
                Ok(None) => collector.queue.complete(&task),
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
                Ok(ActionOutcome::Done) => collector.queue.complete(&task),
                Ok(ActionOutcome::Changed) => collector.queue.again(task),
                Ok(ActionOutcome::Newest) => {
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

/// The graph, the tasks, and the data that decisions about tasks need.
struct Collector<'a> {
    server: &'a Server,
    loopback: Loopback<'a>,
    /// Resources by their key prefix, `/<group>/<resource>/`.
    resources: HashMap<Vec<u8>, Arc<Resource>>,
    /// Keys of dependents that have an owner of a kind that is not served.
    strangers: HashSet<Bytes>,
    /// Keys of dependents whose owners were looked up in the newest state of separate stores.
    confirmed: HashSet<Bytes>,
    graph: Graph,
    queue: Queue,
    absent: AbsentOwners,
}

/// The state of an owner according to a lookup.
enum Standing {
    /// The owner exists.
    Solid,
    /// The owner exists and waits for the deletion of its dependents.
    Waiting,
    /// The owner does not exist, or an object with another uid has its name. `elsewhere`: the owner is in
    /// another namespace.
    Absent { elsewhere: bool },
    /// The state is unknown: the owner's kind is not served, or is namespaced while the dependent is
    /// cluster-scoped.
    Unknown { elsewhere: bool },
}

impl<'a> Collector<'a> {
    fn new(server: &'a Server) -> Self {
        let loopback = Loopback::controller(server, NAME);
        Collector {
            server,
            resources: collected(loopback.types()),
            loopback,
            strangers: HashSet::new(),
            confirmed: HashSet::new(),
            graph: Graph::default(),
            queue: Queue::default(),
            absent: AbsentOwners::default(),
        }
    }

    /// Handles a change of the served types: reads the objects of new types, and checks dependents with
    /// owners of unknown kinds.
    async fn take_types(&mut self) {
        self.loopback = Loopback::controller(self.server, NAME);
        let before = std::mem::replace(&mut self.resources, collected(self.loopback.types()));
        let new: Vec<Vec<u8>> =
            self.resources.keys().filter(|prefix| !before.contains_key(*prefix)).cloned().collect();
        self.begin_with(&self.server.store.backends.snapshots(), &new).await;
        self.strangers.drain().for_each(|key| self.queue.push(Task::Check(key)));
    }

    /// Returns the resource of a key, if the collector handles the objects of this resource.
    fn resource_of(&self, key: &[u8]) -> Option<&Arc<Resource>> {
        let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let (third, _) = slashes.take(3).nth(2)?;
        self.resources.get(&key[..=third])
    }

    /// Reads the states at the beginning of the tail, for the resources with these key prefixes.
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

    /// Updates the graph with a change.
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

    /// Returns the action for a task according to the newest state, if any.
    fn decide(&mut self, task: &Task) -> Result<Option<Action>, Status> {
        let (Task::Check(key) | Task::Orphan(key) | Task::Release(key)) = task;
        let Some(resource) = self.resource_of(key) else { return Ok(None) };
        let Some(stored) = self.loopback.store().get(key)? else { return Ok(None) };
        let Some(head) = Head::read(&stored.record.value) else { return Ok(None) };
        let place = ObjectLocation::from_key(resource, key);
        let write = match task {
            Task::Orphan(_) if head.ending() == Some(Ending::Orphan) => {
                let keys = self.graph.dependents(&head.uid);
                let dependents = keys
                    .filter_map(|key| Some(ObjectLocation::from_key(self.resource_of(key)?, key)))
                    .collect();
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

    /// Returns the action for a dependent, if any.
    fn check(
        &mut self,
        place: ObjectLocation,
        head: &Head,
        revision: Revision,
    ) -> Result<Option<Action>, Status> {
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
                && !self.server.store.backends.are_together(&resource, &place.resource)
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
            // Two objects that wait for each other would wait forever, so the object that is checked second
            // stops blocking.
            let unblocks = waiting && self.graph.has_waiting_dependent(&head.uid);
            Some(Write::Delete { revision, propagation, unblocks })
        };
        let is_something = write.is_some() || !strays.is_empty();
        Ok(is_something.then(|| Action { place, uid: head.uid.clone(), write, strays }))
    }

    fn resource_of_owner(&self, owner: &OwnerReference) -> Option<Arc<Resource>> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resource = self.loopback.types().registry().by_kind(group, version, &owner.kind);
        resource.filter(|resource| resource.storage.is_some()).cloned()
    }

    /// Looks up an owner, for a reference in the dependent at `place`.
    fn standing(&mut self, place: &ObjectLocation, owner: &OwnerReference) -> Result<Standing, Status> {
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

    /// Returns the owner in `namespace`, if it exists with the uid in the reference.
    ///
    /// # Errors
    /// The owner cannot be read, so its uid is unknown.
    fn look_up(
        &self,
        resource: &Resource,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Option<Head>, Status> {
        let key = store::key(resource, namespace, &owner.name);
        let Some(stored) = self.loopback.store().get(&key)? else { return Ok(None) };
        let head = Head::read(&stored.record.value).ok_or_else(|| {
            let key = String::from_utf8_lossy(&key);
            Status::new(StatusReason::StorageReadError, format!("the metadata of {key:?} cannot be read"))
        })?;
        Ok(Some(head).filter(|head| head.uid == owner.uid))
    }

    /// Returns whether an absent owner is in another namespace than its dependent. Each owner is searched for
    /// once.
    fn is_elsewhere(&mut self, resource: &Resource, owner: &OwnerReference) -> Result<bool, Status> {
        if let Some(known) = self.absent.get(&owner.uid) {
            return Ok(known);
        }
        let namespaces = &self.server.types.namespaces;
        let mut elsewhere = false;
        for entry in self.server.store.engine().snapshot().prefix(&store::collection(namespaces, "")) {
            let namespace = store::object_name(namespaces, entry.key()).name;
            if self.look_up(resource, namespace, owner)?.is_some() {
                elsewhere = true;
                break;
            }
        }
        self.absent.insert(&owner.uid, elsewhere);
        Ok(elsewhere)
    }
}

/// Returns the resources whose objects the collector handles, by key prefix.
fn collected(types: &Served) -> HashMap<Vec<u8>, Arc<Resource>> {
    let is_collected =
        |resource: &&Arc<Resource>| !resource.stored().table.behavior.uncollected && resource.can("delete");
    let collected = types.registry().stored().into_iter().filter(is_collected);
    collected.map(|resource| (resource.stored().key_prefix.clone().into_bytes(), resource.clone())).collect()
}
