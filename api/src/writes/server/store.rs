//! The part of the server that stores objects: the stores, the encryption of their values, and the addresses
//! and ports that writes allocate.

use std::sync::Arc;
use std::time::Duration;

use auth::Authorized;
use engine::{CommitError, Engine, Revision, Snapshot};
use futures_util::future::try_join;

use crate::state::allocation::{Allocations, Ranges};
use crate::state::backup::Backups;
use crate::state::secrecy::Secrecy;
use objects::store::backends::Backends;
use objects::store::{self, Component, Ledger, Reach, Store, Stored};
use types::schema::registry::{Registry, Resource};
use values::json::Object;
use values::status::{Status, StatusReason};

/// Longest time for which a read waits for a revision that does not exist yet
/// (docs/api/lists.md#read-consistency).
const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// The configuration of [`ObjectStorage`].
pub struct Settings {
    /// The stores that keep the objects.
    pub backends: Backends,
    /// Encryption of stored values, if configured.
    pub secrecy: Option<Arc<Secrecy>>,
    /// Ranges of addresses and ports for services.
    pub ranges: Ranges,
}

/// The stores of the objects.
pub struct ObjectStorage {
    /// The stores that keep the objects.
    pub backends: Backends,
    /// Encryption of stored values, if configured.
    pub secrecy: Option<Arc<Secrecy>>,
    /// The allocations of service addresses and ports.
    pub allocations: Allocations,
    /// The limit on concurrent backups.
    pub backups: Backups,
}

impl ObjectStorage {
    /// Creates the part for the built-in types of a server.
    pub(super) fn new(settings: Settings, builtin: &Registry) -> ObjectStorage {
        let Settings { backends, secrecy, ranges } = settings;
        let allocations = Allocations::new(backends.main().engine().clone(), builtin, ranges);
        ObjectStorage { backends, secrecy, allocations, backups: Backups::default() }
    }

    /// Returns the revision log of all resources that have no separate store, for parts of the server that
    /// follow the log. Requests use [`open`](Self::open).
    pub fn engine(&self) -> &Engine {
        self.backends.main().engine()
    }

    /// Returns the revision log of a resource.
    pub fn engine_of(&self, resource: &Resource) -> &Engine {
        self.backends.of(resource).engine()
    }

    /// Opens the store with the permission of a request.
    ///
    /// # Panics
    /// Panics if the permission is for something else. This is a broken invariant, and the request gets a
    /// 500.
    pub fn open<'c>(&'c self, proof: &Authorized<'_>, reach: Reach<'c>) -> Store<'c> {
        Store::open(&self.backends, proof, reach)
    }

    /// Opens the store for one object of another resource to which the permission extends by definition.
    ///
    /// # Panics
    /// As [`open`](Self::open).
    pub fn open_derived<'c>(
        &'c self,
        proof: &Authorized<'_>,
        asked: Reach<'_>,
        reach: Reach<'c>,
    ) -> Store<'c> {
        Store::open_derived(&self.backends, proof, asked, reach)
    }

    /// Opens the store for a part of the server.
    pub fn open_for(&self, component: Component) -> Store<'_> {
        Store::open_for(&self.backends, component)
    }

    /// Returns the whole main engine, with the permission for a path that is not a resource.
    ///
    /// # Panics
    /// Panics if the permission is for something else.
    pub fn engine_for_path(&self, proof: &Authorized<'_>, path: &str) -> &Engine {
        store::engine_for_path(self.engine(), proof, path)
    }

    /// Returns the ledger that decides writes, if the engine follows one.
    pub fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.backends.main().ledger()
    }

    /// Resolves once the engine has every write to a resource that any server acknowledged before the call.
    /// Resolves immediately if this server is the only one on its store.
    ///
    /// # Errors
    /// As [`Ledger::current`].
    pub async fn current(&self, resource: &Resource) -> Result<(), Status> {
        match self.backends.of(resource).ledger() {
            None => Ok(()),
            Some(ledger) => ledger.current().await,
        }
    }

    /// Like [`current`](Self::current), for everything that a write to the resource reads. This includes the
    /// main backend, which has the namespace of the object and what admission looks up.
    ///
    /// # Errors
    /// As [`Ledger::current`].
    pub async fn current_for_write(&self, resource: &Resource) -> Result<(), Status> {
        let main = self.backends.main();
        match main.ledger().filter(|_| !std::ptr::eq(main, self.backends.of(resource))) {
            None => self.current(resource).await,
            Some(ledger) => try_join(ledger.current(), self.current(resource)).await.map(drop),
        }
    }

    /// Returns a snapshot of the main revision log at its newest revision.
    pub fn snapshot(&self) -> Snapshot {
        self.engine().snapshot()
    }

    /// Returns one object at the newest revision, in its stored form. `namespace` is empty for cluster-scoped
    /// objects.
    ///
    /// # Errors
    /// Fails if the object cannot be read.
    pub fn stored(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Stored>, Status> {
        let snapshot = self.engine_of(resource).snapshot();
        snapshot.get(&store::key(resource, namespace, name)).map(store::read).transpose()
    }

    /// Returns one object at the newest revision, in the stored version.
    ///
    /// # Errors
    /// Fails if the object cannot be read.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Object>, Status> {
        self.stored(resource, namespace, name)?.map(|stored| stored.object(resource)).transpose()
    }

    /// Returns the objects of a namespace at the newest revision, in the order of their names. An empty
    /// `namespace` means the whole cluster.
    ///
    /// # Errors
    /// Fails if an object cannot be read.
    pub fn list(&self, resource: &Resource, namespace: &str) -> Result<Vec<Object>, Status> {
        let snapshot = self.engine_of(resource).snapshot();
        let entries = snapshot.prefix(&store::collection(resource, namespace));
        entries.map(|entry| store::read(entry)?.object(resource)).collect()
    }

    /// Waits for a bounded time until the store of a resource has reached `revision`. Revision 0 counts as
    /// reached.
    pub async fn wait_for_revision(&self, resource: &Resource, revision: Revision) -> Result<(), Status> {
        let engine = self.engine_of(resource);
        if revision <= engine.revision() {
            return Ok(());
        }
        let reached = tokio::time::timeout(FRESHNESS_WAIT, engine.reached(revision)).await;
        reached.map_err(|_| Status::too_large_resource_version(revision.get(), engine.revision().get(), 1))
    }
}

/// Returns the error for the client when the engine did not commit a write for a reason other than a
/// conflict.
pub fn commit_failed(error: &CommitError) -> Status {
    match error {
        CommitError::Conflict { .. } => Status::internal("unexpected conflict"),
        CommitError::KeyLength { .. }
        | CommitError::AttributesTooLarge { .. }
        | CommitError::ValueTooLarge { .. } => {
            Status::new(StatusReason::RequestEntityTooLarge, error.to_string())
        }
        CommitError::Refused { .. } | CommitError::Closed => {
            tracing::error!(%error, "write refused by the store");
            Status::new(StatusReason::ServiceUnavailable, error.to_string())
        }
        // The API conventions assign this reason to an unknown outcome of a call.
        CommitError::OutcomeUnknown(_) => {
            tracing::error!(%error, "outcome of a write is unknown");
            Status::internal(error)
        }
        CommitError::Damaged(error) => Status::new(StatusReason::StorageReadError, error.to_string()),
        CommitError::StampOutOfRange { .. } => Status::internal(error),
    }
}
