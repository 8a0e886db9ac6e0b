//! The authorization rule source and the service accounts that auth needs, read from the store.
//!
//! ```text
//! engine ─ tail on /rbac.authorization/ ─► EnginePolicy (auth::Policy in memory) ─► Authorizer
//!        └ snapshot ─► EngineAccounts ─► service account tokens
//! ```
//!
//! A decision must include every write acknowledged before it, so each read compares the tail's progress with
//! the store's revision. If no role or binding was written since the last read, the comparison costs two atomic loads.
//! After such a write, the reader itself applies the events before the decision. There is no background task
//! for this work, because a background task could lag.
//!
//! An object that cannot be read (damaged on disk) counts as absent: the object grants nothing, and bindings to the
//! object are reported as resolution errors.

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

/// The roles and bindings of the store, at the newest revision of the store at each read.
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
            apply_object(&mut policy, &entry);
        }
        Ok(State { policy, tail })
    }

    /// Applies all events up to `revision`. The revision is already published, so this function does not wait.
    fn catch_up(&mut self, engine: &Engine, revision: Revision) {
        while self.tail.progress() < revision {
            // A no-op waker is enough, because this loop polls the future again. A pending future either
            // yields to other tasks or waits for events after `revision`; in the second case the loop
            // condition ends the loop.
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
                        // The engine was closed, so no further events will follow.
                        Err(_) => return,
                    }
                }
            }
        }
    }
}

fn apply(policy: &mut Policy, event: &Event) {
    match event.kind {
        EventKind::Put => apply_object(policy, &event.entry),
        EventKind::Delete => {
            if let Some(place) = PolicyObject::parse(&event.key) {
                place.forget(policy);
            }
        }
    }
}

/// Applies one stored object.
fn apply_object(policy: &mut Policy, entry: &Entry) {
    let Some(place) = PolicyObject::parse(entry.key()) else { return };
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
enum PolicyObject<'k> {
    ClusterRole(&'k str),
    Role(&'k str, &'k str),
    /// Namespace (empty for cluster-wide bindings) and name.
    Binding(&'k str, &'k str),
}

impl<'k> PolicyObject<'k> {
    /// Parses `/rbac.authorization/<resource>/[<namespace>/]<name>`; returns `None` for any other key.
    fn parse(key: &'k [u8]) -> Option<PolicyObject<'k>> {
        let rest = std::str::from_utf8(key.strip_prefix(PREFIX)?).ok()?;
        let (resource, place) = rest.split_once('/')?;
        match resource {
            "clusterroles" => Some(PolicyObject::ClusterRole(place)),
            "clusterrolebindings" => Some(PolicyObject::Binding("", place)),
            "roles" => place.split_once('/').map(|(namespace, name)| PolicyObject::Role(namespace, name)),
            "rolebindings" => {
                place.split_once('/').map(|(namespace, name)| PolicyObject::Binding(namespace, name))
            }
            _ => None,
        }
    }

    fn set(self, policy: &mut Policy, object: &Value) {
        match self {
            PolicyObject::ClusterRole(name) => {
                policy.set_cluster_role(name, Some(rules::read_rules(object.get("rules")).into()));
            }
            PolicyObject::Role(namespace, name) => {
                policy.set_role(namespace, name, Some(rules::read_rules(object.get("rules")).into()));
            }
            PolicyObject::Binding(namespace, name) => policy.set_binding(Binding {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                role: rules::read_role_ref(object.get("roleRef")),
                subjects: rules::read_subjects(object),
            }),
        }
    }

    fn forget(self, policy: &mut Policy) {
        match self {
            PolicyObject::ClusterRole(name) => policy.set_cluster_role(name, None),
            PolicyObject::Role(namespace, name) => policy.set_role(namespace, name, None),
            PolicyObject::Binding(namespace, name) => policy.forget_binding(namespace, name),
        }
    }
}

#[cfg(test)]
#[path = "policy_test.rs"]
mod tests;
