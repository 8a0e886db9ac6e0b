//! The component of the server that stores objects: the stores, the encryption of their values, and the
//! addresses and ports that writes allocate.

use std::sync::Arc;
use std::time::Duration;

use auth::Authorized;
use engine::{CommitError, Engine, Revision, Snapshot};
use futures_util::future::try_join;

use crate::state::allocation::{Allocations, Ranges};
use crate::state::backup::{BackupRecord, Backups};
use crate::state::secrecy::Secrecy;
use objects::store::backends::Backends;
use objects::store::{self, Component, Ledger, Store, StoreScope, Stored};
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
    /// The record of the newest backup, if the server keeps this record.
    pub last_backup: Option<Arc<dyn BackupRecord>>,
}

/// The stores of the objects.
pub struct ObjectStorage {
    /// The stores that keep the objects.
    pub backends: Backends,
    /// Encryption of stored values, if configured.
    pub secrecy: Option<Arc<Secrecy>>,
    /// The allocations of service addresses and ports.
    pub allocations: Allocations,
    /// The limit on concurrent backups, and the record of the newest backup.
    pub backups: Backups,
}

impl ObjectStorage {
    /// Creates the component for a server with these built-in types.
    pub(super) fn new(settings: Settings, builtin: &Registry) -> ObjectStorage {
        let Settings { backends, secrecy, ranges, last_backup } = settings;
        let allocations = Allocations::new(backends.main().engine().clone(), builtin, ranges);
        ObjectStorage { backends, secrecy, allocations, backups: Backups::recorded_in(last_backup) }
    }

    /// Returns the revision log of all resources that have no separate store, for components that follow the
    /// log. Requests use [`open`](Self::open).
    pub fn engine(&self) -> &Engine {
        self.backends.main().engine()
    }

    /// Returns the revision log of a resource.
    pub fn engine_of(&self, resource: &Resource) -> &Engine {
        self.backends.backend_for(resource).engine()
    }

    /// Opens the store with the permission of a request.
    ///
    /// # Panics
    /// Panics if the permission does not cover `reach`. Such a call is a bug of the server, and the request gets a 500.
    pub fn open<'c>(&'c self, proof: &Authorized<'_>, reach: StoreScope<'c>) -> Store<'c> {
        Store::open(&self.backends, proof, reach)
    }

    /// Opens the store for an object of another resource. The permission for `scope` includes the access to
    /// this object by definition.
    ///
    /// # Panics
    /// Panics in the same cases as [`open`](Self::open).
    pub fn open_derived<'c>(
        &'c self,
        proof: &Authorized<'_>,
        scope: StoreScope<'_>,
        reach: StoreScope<'c>,
    ) -> Store<'c> {
        Store::open_derived(&self.backends, proof, scope, reach)
    }

    /// Opens the store for a component of the server.
    pub fn open_for(&self, component: Component) -> Store<'_> {
        Store::open_for(&self.backends, component)
    }

    /// Returns the main engine without restrictions. The proof must be for the path `path`, which is outside
    /// the resource API.
    ///
    /// # Panics
    /// Panics if the permission is not for `path`.
    pub fn engine_for_path(&self, proof: &Authorized<'_>, path: &str) -> &Engine {
        store::engine_for_path(self.engine(), proof, path)
    }

    /// Returns the ledger that decides the writes to the main engine, if there is one.
    pub fn ledger(&self) -> Option<&Arc<dyn Ledger>> {
        self.backends.main().ledger()
    }

    /// Waits until the engine has every write to a resource that any server acknowledged before the call.
    /// Returns immediately if the store is not shared.
    ///
    /// # Errors
    /// Fails in the same cases as [`Ledger::current`].
    pub async fn current(&self, resource: &Resource) -> Result<(), Status> {
        match self.backends.backend_for(resource).ledger() {
            None => Ok(()),
            Some(ledger) => ledger.current().await,
        }
    }

    /// Waits like [`current`](Self::current), for all backends that a write to the resource reads. These
    /// always include the main backend, which contains namespaces and the objects that admission reads.
    ///
    /// # Errors
    /// Fails in the same cases as [`Ledger::current`].
    pub async fn current_for_write(&self, resource: &Resource) -> Result<(), Status> {
        let main = self.backends.main();
        match main.ledger().filter(|_| !std::ptr::eq(main, self.backends.backend_for(resource))) {
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

    /// Waits for a bounded time until the store of a resource has reached `revision`.
    pub async fn wait_for_revision(&self, resource: &Resource, revision: Revision) -> Result<(), Status> {
        let engine = self.engine_of(resource);
        if revision <= engine.revision() {
            return Ok(());
        }
        let reached = tokio::time::timeout(FRESHNESS_WAIT, engine.reached(revision)).await;
        reached.map_err(|_| Status::too_large_resource_version(revision.get(), engine.revision().get(), 1))
    }
}

/// Returns the error for the client if the engine did not commit a write. A conflict is not expected here.
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
        // The API conventions define this reason for a call with an unknown outcome.
        CommitError::OutcomeUnknown(_) => {
            tracing::error!(%error, "outcome of a write is unknown");
            Status::internal(error)
        }
        CommitError::Damaged(error) => Status::new(StatusReason::StorageReadError, error.to_string()),
        CommitError::StampOutOfRange { .. } => Status::internal(error),
    }
}
