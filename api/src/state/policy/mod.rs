//! The authorization rule source and the service accounts that auth needs, read from the store.
//!
//! ```text
//! engine ─ tail on /rbac.authorization/ ─► EnginePolicy (auth::Policy in memory) ─► Authorizer
//!        └ snapshot ─► EngineAccounts ─► service account tokens
//! ```
//!
//! A decision must include every write acknowledged before it, so each read compares the tail's progress with
//! the store's revision. While no role or binding was written, this costs two atomic loads. After such a
//! write, the reader applies the events itself before it decides. There is no background task that could lag.
//!
//! An object that cannot be read (damaged on disk) counts as absent: it grants nothing, and bindings to it
//! are reported as resolution errors.

mod accounts;
mod aggregation;
mod escalation;
mod node;
pub mod rules;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use auth::authz::{Binding, Policy, PolicySource};
use bytes::Bytes;
use engine::{Engine, Entry, Event, EventKind, Revision, Tail, TailError};
use parking_lot::{RwLock, RwLockWriteGuard};

use values::json::{self, Value};

pub use accounts::EngineAccounts;
pub use aggregation::{aggregated, labels_of, selectors_of};
pub use escalation::confirm_no_escalation;
pub use node::NodeAuthorizer;

/// Key prefix of the objects of the RBAC group.
const PREFIX: &[u8] = b"/rbac.authorization/";

/// Maximum number of events applied at once.
const BATCH_MAX: usize = 1024;

/// The roles and bindings of the store, always as new as the store.
pub struct EnginePolicy {
    engine: Engine,
    state: RwLock<State>,
}

struct State {
    policy: Policy,
    tail: Tail,
}

impl EnginePolicy {
    /// Reads all roles and bindings, which takes about ten microseconds each.
    ///
    /// # Errors
    /// Fails if the engine was closed.
    pub fn new(engine: Engine) -> Result<EnginePolicy, TailError> {
        let state = RwLock::new(State::load(&engine)?);
        Ok(EnginePolicy { engine, state })
    }
}

impl PolicySource for EnginePolicy {
    fn read(&self, read: &mut dyn FnMut(&Policy)) {
        let revision = self.engine.revision();
        {
            let state = self.state.read();
            if state.tail.progress() >= revision {
                return read(&state.policy);
            }
        }
        let mut state = self.state.write();
        state.catch_up(&self.engine, revision);
        read(&RwLockWriteGuard::downgrade(state).policy);
    }
}

impl State {
    fn load(engine: &Engine) -> Result<State, TailError> {
        let snapshot = engine.snapshot();
        let tail = engine.tail(snapshot.revision(), Bytes::from_static(PREFIX))?;
        let mut policy = Policy::default();
        for entry in snapshot.prefix(PREFIX) {
            put(&mut policy, &entry);
        }
        Ok(State { policy, tail })
    }

    /// Applies all events up to `revision`, which is already published, so this does not wait.
    fn catch_up(&mut self, engine: &Engine, revision: Revision) {
        while self.tail.progress() < revision {
            // A no-op waker is enough. If the future is not ready, it either yields to other tasks, or it
            // waits for events after `revision`. In the second case the loop condition ends the loop.
            let next = pin!(self.tail.next(BATCH_MAX)).poll(&mut Context::from_waker(Waker::noop()));
            match next {
                Poll::Ready(Ok(events)) => events.iter().for_each(|event| apply(&mut self.policy, event)),
                Poll::Pending => {}
                Poll::Ready(Err(TailError::Closed)) => return,
                Poll::Ready(Err(error @ (TailError::Compacted { .. } | TailError::Damaged { .. }))) => {
                    // If a server has had no requests for long, events that the tail has not read may already
                    // be compacted.
                    match error {
                        TailError::Compacted { .. } => {
                            tracing::debug!("reading all roles and bindings again")
                        }
                        _ => tracing::warn!(%error, "reading all roles and bindings again"),
                    }
                    match State::load(engine) {
                        Ok(fresh) => *self = fresh,
                        // The engine was closed: there will be no further events.
                        Err(_) => return,
                    }
                }
            }
        }
    }
}

fn apply(policy: &mut Policy, event: &Event) {
    match event.kind {
        EventKind::Put => put(policy, &event.entry),
        EventKind::Delete => {
            if let Some(place) = Place::of(&event.key) {
                place.forget(policy);
            }
        }
    }
}

/// Applies one stored object.
fn put(policy: &mut Policy, entry: &Entry) {
    let Some(place) = Place::of(entry.key()) else { return };
    let object = entry
        .read()
        .map_err(|error| error.to_string())
        .and_then(|record| json::parse(&record.value).map_err(|error| error.to_string()));
    match object {
        Ok(object) => place.set(policy, &object),
        Err(error) => {
            let key = String::from_utf8_lossy(entry.key());
            tracing::error!(%key, %error, "role or binding cannot be read and grants nothing");
            place.forget(policy);
        }
    }
}

/// The object that a key names.
enum Place<'k> {
    ClusterRole(&'k str),
    Role(&'k str, &'k str),
    /// Namespace (empty for cluster-wide bindings) and name.
    Binding(&'k str, &'k str),
}

impl<'k> Place<'k> {
    /// Parses `/rbac.authorization/<resource>/[<namespace>/]<name>`; returns `None` for any other key.
    fn of(key: &'k [u8]) -> Option<Place<'k>> {
        let rest = std::str::from_utf8(key.strip_prefix(PREFIX)?).ok()?;
        let (resource, place) = rest.split_once('/')?;
        match resource {
            "clusterroles" => Some(Place::ClusterRole(place)),
            "clusterrolebindings" => Some(Place::Binding("", place)),
            "roles" => place.split_once('/').map(|(namespace, name)| Place::Role(namespace, name)),
            "rolebindings" => place.split_once('/').map(|(namespace, name)| Place::Binding(namespace, name)),
            _ => None,
        }
    }

    fn set(self, policy: &mut Policy, object: &Value) {
        match self {
            Place::ClusterRole(name) => {
                policy.set_cluster_role(name, Some(rules::read_rules(object.get("rules")).into()));
            }
            Place::Role(namespace, name) => {
                policy.set_role(namespace, name, Some(rules::read_rules(object.get("rules")).into()));
            }
            Place::Binding(namespace, name) => policy.set_binding(Binding {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                role: rules::read_role_ref(object.get("roleRef")),
                subjects: rules::read_subjects(object),
            }),
        }
    }

    fn forget(self, policy: &mut Policy) {
        match self {
            Place::ClusterRole(name) => policy.set_cluster_role(name, None),
            Place::Role(namespace, name) => policy.set_role(namespace, name, None),
            Place::Binding(namespace, name) => policy.forget_binding(namespace, name),
        }
    }
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
