//! The server's own writes: the writes of bootstrap objects, and the writes of controllers.
//!
//! The server's own writes take the write path of all writes and use the identities that Kubernetes uses. These
//! writes pass admission, so quotas count them, and webhooks and policies may refuse them. The server's own writes skip
//! the steps that apply only to requests: the comparison with a resourceVersion in the object, the privilege escalation
//! check, and the check of the permission to read parameters. Admission does not run for writes before the first
//! request, for repairs, and for writes that kube-apiserver makes directly to its store
//! ([`Loopback::without_admission`]).

mod event;
mod plugins;

use auth::User;
use engine::{Change, Expected, Revision};

use crate::writes::admission::namespace_lifecycle::State as NamespaceState;
use crate::writes::bootstrap::{ObjectStore, ObjectTarget, WriteResult};
use crate::writes::origin::Origin;
use crate::writes::plugin::{Operation, Options, WriteAttributes};
use crate::writes::server::Server;
use crate::writes::write::author::{WritingUser, authored_by};
use crate::writes::write::commit::{Attempt, commit};
use crate::writes::write::deletion::delete_object;
use crate::writes::write::intent::{
    BACKFILL, BY_SERVER, BY_SERVER_APPLIED, BY_SERVER_APPLIED_WITHOUT_ADMISSION, BY_SERVER_WITHOUT_ADMISSION,
    DELETION, DELETION_WITHOUT_ADMISSION,
};
use crate::writes::write::{
    Caller, Current, FunctionSource, ObjectSource, Presence, RequestedChange, WriteIntent, WriteOutcome,
    write,
};
use objects::apply::{Reset, Versions, Writer, apply, take_managed_fields};
use objects::store::{self, Component, ObjectName, Store, Stored};
use objects::strategy::Endpoint;
use types::convert;
use types::options::DeleteOptions;
use types::schema::registry::Resource;
use types::served::Served;
use values::json::{Object, Value};
use values::query::{FieldValidation, WriteOptions};
use values::status::{Status, StatusReason};

pub use event::WarningEvent;
pub use plugins::ControllerWriter;

/// The empty options of the server's own writes.
static NO_OPTIONS: WriteOptions = WriteOptions {
    dry_run: false,
    field_manager: String::new(),
    field_validation: FieldValidation::Warn,
    names_validation: false,
    force: None,
};

/// A client with which the server writes objects to its own store.
#[derive(Clone)]
pub struct Loopback<'a> {
    /// The server, and the types that were served when this client was made.
    origin: Origin<'a>,
    user: User,
    /// The field manager: the well-known name of the component that writes.
    manager: String,
    /// Whether the writes of this client pass admission.
    is_admitted: bool,
}

impl<'a> Loopback<'a> {
    /// Returns a client with the server's own identity, which is a member of the group with all permissions.
    pub fn new(server: &'a Server) -> Self {
        let user = User::new("system:apiserver", [auth::identity::MASTERS]);
        let manager = server.types.naming.system("apiserver");
        Loopback { origin: Origin::new(server), user, manager, is_admitted: true }
    }

    /// Returns a client with the server's own identity and the field manager `manager`, the name of a
    /// component of the server.
    pub fn named(server: &'a Server, manager: &str) -> Self {
        Loopback { manager: manager.to_owned(), ..Loopback::new(server) }
    }

    /// Returns a client with the identity of a controller: the service account that the controller has in
    /// Kubernetes.
    pub fn controller(server: &'a Server, name: &str) -> Self {
        let namespace = server.types.naming.system("system");
        let groups = auth::identity::service_account_groups(&namespace).into_iter();
        let groups = groups.chain([auth::identity::AUTHENTICATED.to_owned()]);
        let user = User::new(auth::identity::service_account_user(&namespace, name), groups);
        let manager = server.types.naming.system("controller-manager");
        Loopback { user, manager, ..Loopback::new(server) }
    }

    /// Returns a client with the same identity whose writes do not pass admission.
    pub fn without_admission(self) -> Self {
        Loopback { is_admitted: false, ..self }
    }

    /// Returns the context of the server.
    pub fn server(&self) -> &'a Server {
        self.origin.server
    }

    /// Returns the types that were served when this client was made.
    pub fn types(&self) -> &Served {
        &self.origin.types
    }

    /// Opens the store with the server's own permission.
    pub fn store(&self) -> Store<'a> {
        self.origin.server.store.open_for(Component::Loopback)
    }

    /// Returns the resource of a target with a built-in type. The name of the target is ignored.
    ///
    /// # Errors
    /// Fails if there is no such resource.
    pub fn resource(&self, target: &ObjectTarget) -> Result<&'a Resource, Status> {
        let naming = self.origin.server.types.naming;
        let is_it = |name: &str| name.strip_suffix(naming.group_suffix).unwrap_or(name) == target.group;
        let group = self.origin.server.types.builtin.groups().iter().find(|group| is_it(&group.name));
        let group = group.map(|group| group.name.as_str()).unwrap_or_default();
        let resource = self.origin.server.types.builtin.resource(group, target.version, target.resource);
        resource
            .map(|resource| &**resource)
            .ok_or_else(|| Status::internal(format!("{target:?} is not served")))
    }

    /// Returns the intent of a write of the server to one existing object.
    fn intent<'s>(
        &'s self,
        resource: &'s Resource,
        ObjectName { namespace, name }: ObjectName<'s>,
    ) -> WriteIntent<'s> {
        WriteIntent {
            origin: &self.origin,
            store: self.store().about(resource),
            permission: None,
            write: WriteAttributes {
                user: &self.user,
                operation: Operation::Update,
                options: Options::Update(&NO_OPTIONS),
                resource,
                namespace,
                name,
            },
            endpoint: Endpoint::Main,
            is_of_collection: false,
            presence: Presence::IfThere,
            seen: None,
            manager: &self.manager,
            may_be_behind: false,
            leaves_out: if self.is_admitted { BY_SERVER } else { BY_SERVER_WITHOUT_ADMISSION },
        }
    }

    /// Returns the intent of a write of the server that creates an object.
    fn creation<'s>(&'s self, resource: &'s Resource, at: ObjectName<'s>) -> WriteIntent<'s> {
        let mut intent = self.intent(resource, at);
        (intent.write.operation, intent.write.options) = (Operation::Create, Options::Create(&NO_OPTIONS));
        intent.presence = Presence::New;
        intent
    }

    async fn write<'s>(
        &'s self,
        intent: &WriteIntent<'_>,
        source: &mut dyn ObjectSource<&'s Loopback<'a>>,
    ) -> Result<WriteOutcome, Status> {
        let mut caller = self;
        write(&mut caller, intent, source).await
    }

    /// Changes an object through `endpoint`. `make` gets the newest version and returns the wanted version,
    /// or `None` to leave the object unchanged. If the object changes in the meantime, the change starts
    /// again. If the change removes the last finalizer of a deleted object, the object is removed. A no-op
    /// change is not written, and a missing object is not created.
    ///
    /// # Errors
    /// Fails if the wanted version is invalid, or if the store failed.
    pub async fn change(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        endpoint: Endpoint,
        mut make: impl FnMut(&Object) -> Option<Object> + Send + Sync,
    ) -> Result<(), Status> {
        self.change_by(resource, at, endpoint, &mut |_, old| make(old)).await.map(drop)
    }

    /// Changes an object like [`Loopback::change`]. In addition, `make` gets the stored record. Returns the
    /// revision of the object after the change, or `None` if the object is missing, was removed, or if `make`
    /// returned `None`.
    ///
    /// # Errors
    /// Fails in the same cases as [`Loopback::change`].
    pub async fn change_reporting(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        endpoint: Endpoint,
        mut make: impl FnMut(&Stored, &Object) -> Option<Object> + Send + Sync,
    ) -> Result<Option<Revision>, Status> {
        self.change_by(resource, at, endpoint, &mut make).await
    }

    /// Implements [`Loopback::change_reporting`]. `make` is a trait object, because with a type parameter the whole
    /// write path would be compiled again for each caller.
    async fn change_by(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        endpoint: Endpoint,
        make: &mut (dyn FnMut(&Stored, &Object) -> Option<Object> + Send + Sync),
    ) -> Result<Option<Revision>, Status> {
        let mut intent = self.intent(resource, at);
        intent.endpoint = endpoint;
        let mut is_left = false;
        let mut source =
            FunctionSource::for_stored(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
                let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
                let old = current.take(resource)?;
                let changed = make(&current.stored, &old);
                is_left = changed.is_none();
                current.put_back(old);
                Ok(changed.map_or(RequestedChange::AsItIs, RequestedChange::Object))
            });
        let outcome = self.write(&intent, &mut source).await?;
        Ok(match outcome {
            WriteOutcome::Created(written) | WriteOutcome::Updated(written) => Some(written.revision),
            WriteOutcome::Unchanged(written) if !is_left => Some(written.revision),
            WriteOutcome::Unchanged(_)
            | WriteOutcome::Removed(_)
            | WriteOutcome::Missing
            | WriteOutcome::Changed => None,
        })
    }

    /// Applies `config` by force, as `manager` and through `endpoint`, to an object that was read at revision
    /// `seen`. If the object is missing or has changed since then, the object stays unchanged and the result is a
    /// conflict. A no-op apply is not written.
    ///
    /// # Errors
    /// Fails if the configuration cannot be applied to the object, if the result is invalid, or if the store
    /// failed.
    pub async fn apply(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        seen: Revision,
        endpoint: Endpoint,
        manager: &str,
        config: &Object,
    ) -> Result<WriteResult, Status> {
        let mut intent = self.intent(resource, at);
        (intent.seen, intent.endpoint) = (Some(seen), endpoint);
        intent.leaves_out =
            if self.is_admitted { BY_SERVER_APPLIED } else { BY_SERVER_APPLIED_WITHOUT_ADMISSION };
        let (versions, reset) = (
            Versions::for_resource(self.origin.types.registry(), resource).with(&self.origin.conversions),
            Reset::for_endpoint(resource, endpoint),
        );
        let mut source =
            FunctionSource::for_served(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
                let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
                let live = convert::to_served(
                    resource,
                    current.object(resource)?.clone(),
                    self.origin.server.types.naming,
                )?;
                let now = values::clock::now();
                let subresource = if endpoint == Endpoint::Status { "status" } else { "" };
                let writer = Writer { manager, subresource, now: &now };
                let applied = apply(&versions, &writer, &reset, &live, config, true)
                    .map_err(|error| Status::internal(format!("{error:?}")))?;
                let object = applied.conformed(versions.message(), &live).map_err(Status::internal)?;
                Ok(RequestedChange::Object(object))
            });
        self.write(&intent, &mut source).await.map(as_written)
    }

    /// Sets the defaults of this release in an object that was read at revision `seen`. Returns whether a
    /// default was missing. If the object is no longer at revision `seen`, a later write has already set these
    /// defaults.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn backfill(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        seen: Revision,
    ) -> Result<bool, Status> {
        let mut intent = self.intent(resource, at);
        (intent.seen, intent.leaves_out) = (Some(seen), BACKFILL);
        let mut source =
            FunctionSource::for_stored(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
                let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
                // Skip an object that cannot be read, because clients cannot read it either.
                let Ok(object) = current.take(resource) else { return Ok(RequestedChange::AsItIs) };
                Ok(RequestedChange::Marked(object))
            });
        Ok(matches!(self.write(&intent, &mut source).await?, WriteOutcome::Updated(_)))
    }

    /// Deletes an object, or marks it as deleted if finalizers keep it.
    ///
    /// # Errors
    /// 404 if the object does not exist, 409 if a precondition in the options fails, and 503 while the store
    /// has losses that the operator has not accepted. Also fails if the store failed.
    pub async fn delete_object(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        self.delete_as(self.deletion(resource, at, options), options).await
    }

    /// Deletes one object of a collection that is deleted as a whole, like [`Loopback::delete_object`].
    ///
    /// # Errors
    /// Fails in the same cases as [`Loopback::delete_object`].
    pub async fn delete_of_collection(
        &self,
        resource: &Resource,
        at: ObjectName<'_>,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let mut intent = self.deletion(resource, at, options);
        intent.is_of_collection = true;
        self.delete_as(intent, options).await
    }

    async fn delete_as(&self, mut intent: WriteIntent<'_>, options: &DeleteOptions) -> Result<(), Status> {
        // Controllers that delete objects do not run while the store has unreadable records. This check also
        // stops the deletions of a controller that is not stopped yet.
        if !self.origin.server.store.backends.is_whole() {
            return Err(Status::new(
                StatusReason::ServiceUnavailable,
                "the server deletes nothing while the store has records that it cannot read: accept-loss accepts their loss",
            ));
        }
        intent.presence = Presence::Existing;
        let mut caller = self;
        delete_object(&mut caller, &intent, options).await.map(drop)
    }

    /// Returns the intent of a write of the server that deletes one existing object.
    fn deletion<'s>(
        &'s self,
        resource: &'s Resource,
        at: ObjectName<'s>,
        options: &'s DeleteOptions,
    ) -> WriteIntent<'s> {
        let mut intent = self.intent(resource, at);
        (intent.write.operation, intent.write.options) = (Operation::Delete, Options::Delete(options));
        intent.leaves_out = if self.is_admitted { DELETION } else { DELETION_WITHOUT_ADMISSION };
        intent
    }

    /// Returns the current state of a namespace.
    ///
    /// # Errors
    /// Fails if the namespace cannot be read.
    pub fn namespace_state(&self, namespace: &str) -> Result<NamespaceState, Status> {
        let stored = self.store().get(&store::key(&self.origin.server.types.namespaces, "", namespace))?;
        Ok(NamespaceState::from_stored(stored.as_ref()))
    }
}

impl Loopback<'_> {
    /// If the record of a target cannot be read, removes the record, so that the object can be written again.
    /// Returns whether the record was unreadable. A record that another writer replaces in the meantime
    /// stays.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn remove_damaged(&self, target: &ObjectTarget) -> Result<bool, Status> {
        let resource = self.resource(target)?;
        let key = store::key(resource, &target.namespace, &target.name);
        let Some(entry) = self.store().entry(&key) else { return Ok(false) };
        let expected = Expected::Revision(entry.revision());
        match store::read(entry).and_then(|stored| stored.object(resource)) {
            Err(error) if error.reason == StatusReason::StorageReadError => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error),
        }
        let remains = store::remains(resource, &target.namespace, &target.name);
        let change = Change::Delete(Some(store::payload(resource, &remains)));
        let user = &self.user.name;
        let writer = WritingUser { user, manager: "", subresource: "", is_client: false };
        let change = authored_by(self.origin.server, &self.store(), writer, change, &[]);
        let attempt = commit(self.store(), key, expected, change).await?;
        Ok(matches!(attempt, Attempt::Committed(_)))
    }
}

/// Returns the revision at which an object was read, from the `resourceVersion` in the object.
fn revision_of(object: &Value) -> Result<Revision, Status> {
    let text = object.str_at(&["metadata", "resourceVersion"]);
    text.parse().map_err(|_| Status::internal(format!("no revision in {text:?}")))
}

impl ObjectStore for Loopback<'_> {
    type Error = Status;

    fn get(&self, target: &ObjectTarget) -> Result<Option<Value>, Status> {
        let resource = self.resource(target)?;
        let stored = self.store().get(&store::key(resource, &target.namespace, &target.name))?;
        stored.map(|stored| stored.object(resource).map(Value::Object)).transpose()
    }

    fn is_unreadable(error: &Status) -> bool {
        error.reason == StatusReason::StorageReadError
    }

    async fn create(&self, target: &ObjectTarget, object: Value) -> Result<WriteResult, Status> {
        let resource = self.resource(target)?;
        let object = complete_object(resource, object)?;
        let intent = self.creation(resource, target.object_name());
        let mut source = FunctionSource::for_served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
            Ok(RequestedChange::Object(object.clone()))
        });
        match self.write(&intent, &mut source).await {
            Ok(outcome) => Ok(as_written(outcome)),
            Err(status) if status.reason == StatusReason::AlreadyExists => Ok(WriteResult::Conflict),
            Err(status) => Err(status),
        }
    }

    async fn update(&self, target: &ObjectTarget, object: Value) -> Result<WriteResult, Status> {
        let resource = self.resource(target)?;
        let mut intent = self.intent(resource, target.object_name());
        intent.seen = Some(revision_of(&object)?);
        let mut object = complete_object(resource, object)?;
        let mut source = FunctionSource::for_served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
            Ok(RequestedChange::Object(std::mem::take(&mut object)))
        });
        self.write(&intent, &mut source).await.map(as_written)
    }

    async fn delete(&self, target: &ObjectTarget, existing: &Value) -> Result<WriteResult, Status> {
        let resource = self.resource(target)?;
        let options = DeleteOptions::default();
        let mut intent = self.deletion(resource, target.object_name(), &options);
        intent.seen = Some(revision_of(existing)?);
        let mut source =
            FunctionSource::for_stored(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
                let Some(current) = current else { return Ok(RequestedChange::AsItIs) };
                current.take(resource).map(RequestedChange::GoneAsStored)
            });
        self.write(&intent, &mut source).await.map(as_written)
    }
}

/// Completes an object that a controller writes: sets the kind and version, and removes managed fields.
fn complete_object(resource: &Resource, object: Value) -> Result<Object, Status> {
    let Value::Object(mut object) = object else { return Err(Status::internal("not an object")) };
    object.insert("kind", (&*resource.table.kind).into());
    object.insert("apiVersion", resource.api_version.as_str().into());
    take_managed_fields(&mut object);
    Ok(object)
}

fn as_written(outcome: WriteOutcome) -> WriteResult {
    match outcome {
        WriteOutcome::Created(_)
        | WriteOutcome::Updated(_)
        | WriteOutcome::Unchanged(_)
        | WriteOutcome::Removed(_) => WriteResult::Done,
        WriteOutcome::Missing | WriteOutcome::Changed => WriteResult::Conflict,
    }
}

/// The server ignores warnings, and has permission to create all objects that it writes.
impl Caller for &Loopback<'_> {
    fn warnings(&mut self) -> Option<&mut Vec<String>> {
        None
    }

    async fn confirm_create(&self) -> Result<(), Status> {
        Ok(())
    }
}
