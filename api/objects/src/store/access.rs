//! The store as one permission opens it: the only way from a request to the engine.
//!
//! ```text
//! authorize stage ─ Authorized ─┐
//!                               ├─► open: the proof is for this verb, resource, namespace and name ─► Store
//! a part of the server ─ Part ──┘   each access: the key is within reach, and the verb writes          │
//!                                                                            View, tail, get, commit ◄─┘
//! ```
//!
//! A proof for something else, and a key out of reach, are broken invariants, never input: they panic, which in a
//! handler is that request's 500 and leaves the store as it was. It knows no HTTP and no rules of permission.

use std::future::Future;

use auth::Authorized;
use bytes::Bytes;
use engine::{
    Change, CommitError, Committed, Engine, Entry, Expected, KeyRange, Refusal, Revision, Scan, Snapshot,
    SnapshotError, Tail, TailError, Write,
};

use super::backends::{Backend, Backends};
use super::{CommitFailure, Stored, collection, identity, read};
use crate::request::Verb;
use types::schema::registry::Resource;
use values::status::Status;

/// What one request may reach.
#[derive(Clone, Copy)]
pub struct Reach<'r> {
    /// What is done.
    pub verb: Verb,
    /// To which resource.
    pub resource: &'r Resource,
    /// In which namespace; empty for all of them, and for resources that have none.
    pub namespace: &'r str,
    /// To which object; empty for all of them, and for a new one, which is named by what is written.
    pub name: &'r str,
}

/// A part of the server that opens the store by its own name, without a request's permission. The list is closed: a new
/// way to the store is a line here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// Start-up, controllers, and what they and requests write on the server's own account.
    Loopback,
    /// Estimates of what a request will cost, made before it is known to be permitted.
    Estimates,
    /// Endpoints behind a name: services of extension servers, pods behind services, nodes of pods.
    Routing,
    /// Objects that a token is bound to.
    TokenBinding,
    /// Disruption budgets that count the pod of an eviction.
    Evictions,
    /// Definitions of the custom types of objects that are created.
    Definitions,
}

impl Part {
    /// All but the loopback only read.
    fn may_write(self) -> bool {
        self == Part::Loopback
    }
}

#[derive(Clone, Copy)]
enum Opened<'r> {
    By(Part),
    For(Reach<'r>),
}

/// The store, as far as the permission reaches that opened it.
#[derive(Clone, Copy)]
pub struct Store<'r> {
    backends: &'r Backends,
    /// The backend of what the store is opened for.
    backend: &'r Backend,
    opened: Opened<'r>,
}

impl<'r> Store<'r> {
    /// Opens the store for a request that was allowed.
    ///
    /// # Panics
    /// The proof is for another verb, resource, namespace or name than `reach`.
    pub fn open(backends: &'r Backends, proof: &Authorized<'_>, reach: Reach<'r>) -> Store<'r> {
        reach.check(proof);
        Store { backends, backend: backends.of(reach.resource), opened: Opened::For(reach) }
    }

    /// Opens the store for one object of another resource, where the permission for `asked` is by definition the one
    /// for that object: creating bindings is binding pods.
    ///
    /// # Panics
    /// The proof is not for `asked`, or `reach` has another verb or namespace, or names no object.
    pub fn open_derived(
        backends: &'r Backends,
        proof: &Authorized<'_>,
        (asked, reach): (Reach<'_>, Reach<'r>),
    ) -> Store<'r> {
        asked.check(proof);
        let is_narrower =
            (asked.verb, asked.namespace) == (reach.verb, reach.namespace) && !reach.name.is_empty();
        assert!(is_narrower, "{} reaches for more than {}", reach.shown(), asked.shown());
        Store { backends, backend: backends.of(reach.resource), opened: Opened::For(reach) }
    }

    /// Opens the store for a part of the server. Views and revisions are those of the main backend.
    pub fn open_for(backends: &'r Backends, part: Part) -> Store<'r> {
        Store { backends, backend: backends.main(), opened: Opened::By(part) }
    }

    /// The same whose views and revisions are those of the backend of a resource.
    #[must_use]
    pub fn about(self, resource: &Resource) -> Store<'r> {
        Store { backend: self.backends.of(resource), ..self }
    }

    /// The backend of a key within reach.
    fn holding(&self, key: &[u8]) -> &'r Backend {
        match self.opened {
            Opened::By(_) => self.backends.holding(key),
            Opened::For(_) => self.backend,
        }
    }

    /// The newest state of one object, read and checked.
    ///
    /// # Errors
    /// 500 for bytes that cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Stored>, Status> {
        self.entry(key).map(read).transpose()
    }

    /// The newest state of one object, not yet read.
    pub fn entry(&self, key: &[u8]) -> Option<Entry> {
        self.check_key(key);
        self.holding(key).engine().snapshot().get(key)
    }

    /// The newest state of everything within reach.
    pub fn view(&self) -> View {
        self.as_view(self.backend.engine().snapshot())
    }

    /// The state at `revision` of everything within reach.
    ///
    /// # Errors
    /// The revision is compacted, or has not happened.
    pub fn view_at(&self, revision: Revision) -> Result<View, SnapshotError> {
        Ok(self.as_view(self.backend.engine().snapshot_at(revision)?))
    }

    /// The events after `start` of the keys that begin with `prefix`, all of them.
    ///
    /// # Errors
    /// As [`Engine::tail`] and [`Tail::complete`].
    pub fn tail(&self, start: Revision, prefix: Bytes) -> Result<Tail, TailError> {
        let whole = self.whole();
        assert!(prefix.starts_with(&whole), "a tail of {prefix:?} is not within {whole:?}");
        self.holding(&prefix).engine().tail(start, prefix)?.complete()
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.backend.engine().revision()
    }

    /// Resolves once the store has reached `revision`.
    pub fn reached(&self, revision: Revision) -> impl Future<Output = ()> + Send + use<> {
        let engine = self.backend.engine().clone();
        async move { engine.reached(revision).await }
    }

    /// Whether the engine takes writes; if not, why.
    ///
    /// # Errors
    /// As [`Engine::health`].
    pub fn health(&self) -> Result<(), Refusal> {
        self.backend.engine().health()
    }

    /// Commits one write, by the engine or by the ledger that it follows.
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
        assert!(may_write, "{} does not permit a write of {key:?}", self.shown());
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

    fn as_view(&self, snapshot: Snapshot) -> View {
        View { snapshot, within: self.whole() }
    }

    /// What all keys within reach begin with. The name that a list or watch was permitted for is a selector, which
    /// decides about each object that the range has.
    fn whole(&self) -> Bytes {
        match self.opened {
            Opened::By(_) => Bytes::new(),
            Opened::For(reach) => collection(reach.resource, reach.namespace),
        }
    }

    fn check_key(&self, key: &[u8]) {
        if let Opened::For(reach) = self.opened {
            let key_text = || String::from_utf8_lossy(key);
            assert!(reach.has(key), "{} does not reach {}", reach.shown(), key_text());
        }
    }

    fn shown(&self) -> String {
        match self.opened {
            Opened::By(part) => format!("{part:?}"),
            Opened::For(reach) => reach.shown(),
        }
    }
}

impl Reach<'_> {
    fn check(&self, proof: &Authorized<'_>) {
        let of = proof.attributes();
        let namespace = if self.resource.namespaced() { of.namespace } else { "" };
        // A permission to create is one for a new object of whatever name.
        let makes_new = self.verb == Verb::Create && self.name.is_empty() && of.subresource.is_empty();
        let name = if makes_new { "" } else { of.name };
        let permitted = (of.resource_request, of.verb, of.group, of.resource, namespace, name);
        let resource = (&*self.resource.group, &*self.resource.table.plural);
        let wanted = (true, self.verb.as_str(), resource.0, resource.1, self.namespace, self.name);
        assert!(permitted == wanted, "the store is opened for {} with a permission of {of}", self.shown());
    }

    fn has(&self, key: &[u8]) -> bool {
        let Some(storage) = &self.resource.storage else { return false };
        let (namespace, name) = identity(self.resource, key);
        key.starts_with(storage.key_prefix.as_bytes())
            && (self.namespace.is_empty() || self.namespace == namespace)
            && (self.name.is_empty() || self.name == name)
    }

    fn may_write(&self) -> bool {
        use Verb::{Create, Delete, DeleteCollection, Patch, Update};
        matches!(self.verb, Create | Update | Patch | Delete | DeleteCollection)
    }

    fn shown(&self) -> String {
        let Reach { verb, resource, namespace, name } = self;
        format!("{} {} {namespace:?}/{name:?}", verb.as_str(), resource.qualified())
    }
}

/// The state at one revision, as far as the permission reaches that opened the store. It outlives the request's frame,
/// so that an answer can be a stream.
pub struct View {
    snapshot: Snapshot,
    within: Bytes,
}

impl View {
    /// The revision.
    pub fn revision(&self) -> Revision {
        self.snapshot.revision()
    }

    /// The entries of a range, in key order.
    ///
    /// # Panics
    /// The range is not within reach.
    pub fn range(&self, range: KeyRange) -> Scan {
        self.check(&range);
        self.snapshot.range(range)
    }

    /// The entries whose keys begin with `prefix`, in key order.
    ///
    /// # Panics
    /// They are not within reach.
    pub fn prefix(&self, prefix: &[u8]) -> Scan {
        self.range(KeyRange::prefix(prefix))
    }

    /// How many entries a range has.
    ///
    /// # Panics
    /// The range is not within reach.
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

/// The whole engine, for a path outside the resources: backups, health and metrics are about all of it.
///
/// # Panics
/// The proof is for another path, or for a resource.
pub fn engine_for_path<'e>(engine: &'e Engine, proof: &Authorized<'_>, path: &str) -> &'e Engine {
    let of = proof.attributes();
    assert!(
        !of.resource_request && of.path == path,
        "the engine is opened for {path} with a permission of {of}"
    );
    engine
}
