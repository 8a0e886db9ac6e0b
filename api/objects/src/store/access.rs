//! The store as opened for one permission. Requests reach the engine only through this module.
//!
//! ```text
//! authorize stage ─ Authorized ─┐
//!                               ├─► open: the proof is for this verb, resource, namespace and name ─► Store
//! component of the server ──────┘   each access: the key is within reach, and the verb writes          │
//!                                                                            View, tail, get, commit ◄─┘
//! ```
//!
//! A wrong proof or a key out of reach is a bug of the server and never caused by input, so the store panics.
//! A panic in a handler becomes the 500 of the request and leaves the store unchanged. This module does not
//! depend on HTTP or on the authorization rules.

use std::future::Future;
use std::time::SystemTime;

use auth::Authorized;
use bytes::Bytes;
use engine::{
    Change, CommitError, Committed, Engine, Entry, Expected, KeyRange, OldestPoint, RangeScan, Refusal,
    Revision, Snapshot, SnapshotError, Tail, TailError, Write,
};

use super::backends::{Backend, Backends};
use super::{CommitFailure, ObjectName, Stored, collection, object_name, read};
use crate::request::Verb;
use types::schema::registry::Resource;
use values::status::Status;

/// The part of the store that one request may access.
#[derive(Clone, Copy)]
pub struct StoreScope<'r> {
    /// Verb of the access. Only writing verbs permit a commit.
    pub verb: Verb,
    /// Resource that the request accesses.
    pub resource: &'r Resource,
    /// Namespace of the access; empty for all namespaces and for cluster-scoped resources.
    pub namespace: &'r str,
    /// Name of the object; empty for all objects. Also empty for a new object, whose name is in the written
    /// content.
    pub name: &'r str,
}

/// A component of the server that opens the store in its own name, without the permission of a request. The
/// list is complete: new components that open the store must be added here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Component {
    /// Start-up, controllers, and writes that controllers and requests make in the name of the server.
    Loopback,
    /// Cost estimates of requests before authorization.
    Estimates,
    /// Lookup of endpoints by name: services of extension servers, pods behind services, nodes of pods.
    Routing,
    /// Lookup of the objects to which a token is bound.
    TokenBinding,
    /// Lookup of the disruption budgets that apply to the pod of an eviction.
    Evictions,
    /// Lookup of the definitions of custom resources, when their objects are created, and for the types at an
    /// earlier point.
    Definitions,
    /// Lookup of the owners of an object when an earlier version of the object is restored.
    Owners,
}

impl Component {
    /// Returns whether the component may write. Only the loopback may write.
    fn may_write(self) -> bool {
        self == Component::Loopback
    }
}

#[derive(Clone, Copy)]
enum Opened<'r> {
    By(Component),
    For(StoreScope<'r>),
}

/// The store, limited to the part that the permission includes.
#[derive(Clone, Copy)]
pub struct Store<'r> {
    backends: &'r Backends,
    /// Backend of the resource for which the store is opened.
    backend: &'r Backend,
    opened: Opened<'r>,
}

impl<'r> Store<'r> {
    /// Opens the store for an authorized request.
    ///
    /// # Panics
    /// Panics if the proof is for another verb, resource, namespace or name than `reach`.
    pub fn open(backends: &'r Backends, proof: &Authorized<'_>, reach: StoreScope<'r>) -> Store<'r> {
        reach.check(proof);
        Store { backends, backend: backends.backend_for(reach.resource), opened: Opened::For(reach) }
    }

    /// Opens the store for one object of another resource. The permission for `requested` must imply the
    /// permission for the opened object: the permission to create a binding, for example, permits writing the
    /// pod.
    ///
    /// # Panics
    /// Panics if the proof is not for `requested`, if `reach` has another verb or namespace than `requested`,
    /// or if `reach` contains no object name.
    pub fn open_derived(
        backends: &'r Backends,
        proof: &Authorized<'_>,
        requested: StoreScope<'_>,
        reach: StoreScope<'r>,
    ) -> Store<'r> {
        requested.check(proof);
        let is_narrower =
            (requested.verb, requested.namespace) == (reach.verb, reach.namespace) && !reach.name.is_empty();
        assert!(is_narrower, "{} reaches for more than {}", reach.describe(), requested.describe());
        Store { backends, backend: backends.backend_for(reach.resource), opened: Opened::For(reach) }
    }

    /// Opens the store for a component of the server. Views and revisions come from the main backend.
    pub fn open_for(backends: &'r Backends, part: Component) -> Store<'r> {
        Store { backends, backend: backends.main(), opened: Opened::By(part) }
    }

    /// Returns this store with the views and revisions from the backend of a resource.
    #[must_use]
    pub fn about(self, resource: &Resource) -> Store<'r> {
        Store { backend: self.backends.backend_for(resource), ..self }
    }

    /// Returns the backend that contains a key.
    fn holding(&self, key: &[u8]) -> &'r Backend {
        match self.opened {
            Opened::By(_) => self.backends.holding(key),
            Opened::For(_) => self.backend,
        }
    }

    /// Returns the newest state of one object, after reading and checking the record.
    ///
    /// # Errors
    /// 500 if the record cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Stored>, Status> {
        self.entry(key).map(read).transpose()
    }

    /// Returns the newest state of one object without reading its record.
    pub fn entry(&self, key: &[u8]) -> Option<Entry> {
        self.check_key(key);
        self.holding(key).engine().snapshot().get(key)
    }

    /// Returns a view of the newest state of all objects that the permission includes.
    pub fn view(&self) -> StoreView {
        self.as_view(self.backend.engine().snapshot())
    }

    /// Returns a view of the state at `revision` of all objects that the permission includes.
    ///
    /// # Errors
    /// Fails if the revision is compacted or in the future.
    pub fn view_at(&self, revision: Revision) -> Result<StoreView, SnapshotError> {
        Ok(self.as_view(self.backend.engine().snapshot_at(revision)?))
    }

    /// Returns the oldest point that can be read.
    pub fn oldest(&self) -> OldestPoint {
        self.backend.engine().oldest()
    }

    /// Returns the newest revision that was committed at or before `time`.
    ///
    /// # Errors
    /// The errors of [`Engine::readable_revision_at`].
    pub fn readable_revision_at(&self, time: SystemTime) -> Result<Revision, SnapshotError> {
        self.backend.engine().readable_revision_at(time)
    }

    /// Returns the commit time of a revision; `None` if the record of the revision is no longer in the log.
    pub fn time_of(&self, revision: Revision) -> Option<SystemTime> {
        self.backend.engine().time_of(revision)
    }

    /// Returns the commit time of the first write after a revision; `None` if the log contains no such write.
    pub fn superseded_at(&self, revision: Revision) -> Option<SystemTime> {
        self.backend.engine().superseded_at(revision)
    }

    /// Returns a tail of all events after `start` whose keys begin with `prefix`.
    ///
    /// # Errors
    /// The errors of [`Engine::tail`] and [`Tail::complete`].
    pub fn tail(&self, start: Revision, prefix: Bytes) -> Result<Tail, TailError> {
        let whole = self.whole();
        assert!(prefix.starts_with(&whole), "a tail of {prefix:?} is not within {whole:?}");
        self.holding(&prefix).engine().tail(start, prefix)?.complete()
    }

    /// Returns the newest revision of the backend.
    pub fn revision(&self) -> Revision {
        self.backend.engine().revision()
    }

    /// Resolves when the store has reached `revision`.
    pub fn reached(&self, revision: Revision) -> impl Future<Output = ()> + Send + use<> {
        let engine = self.backend.engine().clone();
        async move { engine.reached(revision).await }
    }

    /// Returns whether a ledger decides the writes of the backend.
    pub fn has_ledger(&self) -> bool {
        self.backend.ledger().is_some()
    }

    /// Checks whether the engine accepts writes.
    ///
    /// # Errors
    /// The errors of [`Engine::health`].
    pub fn health(&self) -> Result<(), Refusal> {
        self.backend.engine().health()
    }

    /// Commits one write through the engine, or through the ledger that the engine follows.
    ///
    /// # Errors
    /// See [`CommitFailure`].
    pub async fn commit(
        &self,
        key: Bytes,
        expected: Expected,
        change: Change,
    ) -> Result<Committed, CommitFailure> {
        self.check_key(&key);
        let may_write = match self.opened {
            Opened::By(part) => part.may_write(),
            Opened::For(reach) => reach.may_write(),
        };
        assert!(may_write, "{} does not permit a write of {key:?}", self.describe());
        let backend = self.holding(&key);
        let write = Write { key, expected, change };
        match backend.ledger() {
            Some(ledger) => ledger.commit(write).await,
            None => backend.engine().commit(write).await.map_err(|error| match error {
                CommitError::Conflict { current } => CommitFailure::Conflict { current },
                error => CommitFailure::Engine(error),
            }),
        }
    }

    fn as_view(&self, snapshot: Snapshot) -> StoreView {
        StoreView { snapshot, within: self.whole() }
    }

    /// Returns the common prefix of all keys that the permission includes. A permitted name in a list or
    /// watch is a selector, which the caller applies to each object in the range.
    fn whole(&self) -> Bytes {
        match self.opened {
            Opened::By(_) => Bytes::new(),
            Opened::For(reach) => collection(reach.resource, reach.namespace),
        }
    }

    fn check_key(&self, key: &[u8]) {
        if let Opened::For(reach) = self.opened {
            let key_text = || String::from_utf8_lossy(key);
            assert!(reach.has(key), "{} does not reach {}", reach.describe(), key_text());
        }
    }

    fn describe(&self) -> String {
        match self.opened {
            Opened::By(part) => format!("{part:?}"),
            Opened::For(reach) => reach.describe(),
        }
    }
}

impl StoreScope<'_> {
    fn check(&self, proof: &Authorized<'_>) {
        let of = proof.attributes();
        let namespace = if self.resource.namespaced() { of.namespace } else { "" };
        // A permission to create applies to a new object of any name.
        let makes_new = self.verb == Verb::Create && self.name.is_empty() && of.subresource.is_empty();
        let name = if makes_new { "" } else { of.name };
        let permitted = (of.resource_request, of.verb, of.group, of.resource, namespace, name);
        let resource = (&*self.resource.group, &*self.resource.table.plural);
        let required = (true, self.verb.as_str(), resource.0, resource.1, self.namespace, self.name);
        assert!(
            permitted == required,
            "the store is opened for {} with a permission of {of}",
            self.describe()
        );
    }

    fn has(&self, key: &[u8]) -> bool {
        let Some(storage) = &self.resource.storage else { return false };
        let ObjectName { namespace, name } = object_name(self.resource, key);
        key.starts_with(storage.key_prefix.as_bytes())
            && (self.namespace.is_empty() || self.namespace == namespace)
            && (self.name.is_empty() || self.name == name)
    }

    fn may_write(&self) -> bool {
        use Verb::{Create, Delete, DeleteCollection, Patch, Update};
        matches!(self.verb, Create | Update | Patch | Delete | DeleteCollection)
    }

    fn describe(&self) -> String {
        let StoreScope { verb, resource, namespace, name } = self;
        format!("{} {} {namespace:?}/{name:?}", verb.as_str(), resource.qualified())
    }
}

/// The state at one revision, limited to the part that the permission includes. A view has no reference to
/// the request, so a response can stream from the view after the handler returns.
pub struct StoreView {
    snapshot: Snapshot,
    within: Bytes,
}

impl StoreView {
    /// Returns the revision of this view.
    pub fn revision(&self) -> Revision {
        self.snapshot.revision()
    }

    /// Returns the state of one object at the revision of this view.
    ///
    /// # Panics
    /// Panics if the key is not within reach.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        assert!(key.starts_with(&self.within), "{key:?} is not within {:?}", self.within);
        self.snapshot.get(key)
    }

    /// Returns the retained versions of one object at or before `until`, newest first. See
    /// [`Snapshot::versions`].
    ///
    /// # Panics
    /// Panics if the key is not within reach.
    pub fn versions(&self, key: &[u8], until: Revision, most: usize) -> Vec<Entry> {
        assert!(key.starts_with(&self.within), "{key:?} is not within {:?}", self.within);
        self.snapshot.versions(key, until, most)
    }

    /// Returns the entries of a range, in key order.
    ///
    /// # Panics
    /// Panics if the range is not within reach.
    pub fn range(&self, range: KeyRange) -> RangeScan {
        self.check(&range);
        self.snapshot.range(range)
    }

    /// Returns the entries whose keys begin with `prefix`, in key order.
    ///
    /// # Panics
    /// Panics if these keys are not within reach.
    pub fn prefix(&self, prefix: &[u8]) -> RangeScan {
        self.range(KeyRange::prefix(prefix))
    }

    /// Returns the number of entries in a range.
    ///
    /// # Panics
    /// Panics if the range is not within reach.
    pub fn count(&self, range: &KeyRange) -> u64 {
        self.check(range);
        self.snapshot.count(range)
    }

    fn check(&self, range: &KeyRange) {
        let whole = KeyRange::prefix(&self.within);
        let ends_within = match (&range.end, &whole.end) {
            (_, None) => true,
            (Some(end), Some(last)) => end <= last,
            (None, Some(_)) => false,
        };
        let is_within = range.start.starts_with(&self.within) && ends_within;
        assert!(is_within, "a range of {:?} is not within {:?}", range.start, self.within);
    }
}

/// Returns the whole engine, for requests of a non-resource path: backups, health and metrics refer to the
/// whole engine.
///
/// # Panics
/// Panics if the proof is for another path or for a resource.
pub fn engine_for_path<'e>(engine: &'e Engine, proof: &Authorized<'_>, path: &str) -> &'e Engine {
    let of = proof.attributes();
    assert!(
        !of.resource_request && of.path == path,
        "the engine is opened for {path} with a permission of {of}"
    );
    engine
}
