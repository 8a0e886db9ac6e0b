//! Writes that the server makes on its own behalf: the objects every cluster starts with, and the writes of
//! controllers.
//!
//! These writes take the same write path as any other write, under the identities that users of Kubernetes
//! know, and pass admission: quotas count them, and webhooks and policies see them and may refuse them. They
//! skip the steps that apply to requests only: the comparison with a version in the object, the privilege
//! escalation check, and the check which parameters the writer may read. Admission is not asked about writes
//! before the first request, about repairs, and about what the reference server writes below its API
//! ([`Loopback::unasked`]).

mod event;
mod plugins;

use auth::User;
use engine::{Change, Expected, Revision};

use crate::writes::admission::namespace_lifecycle::State as NamespaceState;
use crate::writes::bootstrap::{ObjectStore, Target, Written};
use crate::writes::origin::Origin;
use crate::writes::plugin::{Operation, Options, WriteAttributes};
use crate::writes::server::Server;
use crate::writes::write::commit::{Attempt, commit};
use crate::writes::write::deletion::delete_object;
use crate::writes::write::intent::{
    BACKFILL, BY_SERVER, BY_SERVER_APPLIED, BY_SERVER_APPLIED_UNASKED, BY_SERVER_UNASKED, DELETION,
    DELETION_UNASKED,
};
use crate::writes::write::{Caller, Current, Made, Outcome, Presence, Source, Wanted, WriteIntent, write};
use objects::apply::{Reset, Versions, Writer, apply, take_managed_fields};
use objects::store::{self, Component, Store, Stored};
use objects::strategy::Endpoint;
use types::convert;
use types::options::DeleteOptions;
use types::schema::registry::Resource;
use types::served::Served;
use values::json::{Object, Value};
use values::query::{FieldValidation, WriteOptions};
use values::status::{Status, StatusReason};

pub use event::Warning;
pub use plugins::ControllerWriter;

/// The empty options of the server's own writes.
static NO_OPTIONS: WriteOptions = WriteOptions {
    dry_run: false,
    field_manager: String::new(),
    field_validation: FieldValidation::Warn,
    names_validation: false,
    force: None,
};

/// A client with which the server writes to itself.
#[derive(Clone)]
pub struct Loopback<'a> {
    /// The server, and the types that were served when this client was made.
    origin: Origin<'a>,
    user: User,
    /// The field manager: the known name of the component of the system that writes.
    manager: String,
    /// Whether its writes pass admission.
    is_admitted: bool,
}

impl<'a> Loopback<'a> {
    /// Returns a client with the server's own identity, a member of the group with all permissions.
    pub fn new(server: &'a Server) -> Self {
        let user = User::new("system:apiserver", [auth::identity::MASTERS]);
        let manager = server.types.naming.system("apiserver");
        Loopback { origin: Origin::new(server), user, manager, is_admitted: true }
    }

    /// Returns a client with the server's own identity and the name of one of its parts as field manager.
    pub fn named(server: &'a Server, manager: &str) -> Self {
        Loopback { manager: manager.to_owned(), ..Loopback::new(server) }
    }

    /// Returns a client with the identity of a controller: the service account of the system that users of
    /// Kubernetes know.
    pub fn controller(server: &'a Server, name: &str) -> Self {
        let namespace = server.types.naming.system("system");
        let groups = auth::identity::service_account_groups(&namespace).into_iter();
        let groups = groups.chain([auth::identity::AUTHENTICATED.to_owned()]);
        let user = User::new(auth::identity::service_account_user(&namespace, name), groups);
        let manager = server.types.naming.system("controller-manager");
        Loopback { user, manager, ..Loopback::new(server) }
    }

    /// Returns the same client, without admission for its writes.
    pub fn unasked(self) -> Self {
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

    /// Returns the resource of a target of a built-in type, without looking at the name of the target.
    ///
    /// # Errors
    /// Fails if there is no such resource.
    pub fn resource(&self, target: &Target) -> Result<&'a Resource, Status> {
        let naming = self.origin.server.types.naming;
        let is_it = |name: &str| name.strip_suffix(naming.group_suffix).unwrap_or(name) == target.group;
        let group = self.origin.server.types.builtin.groups().iter().find(|group| is_it(&group.name));
        let group = group.map(|group| group.name.as_str()).unwrap_or_default();
        let resource = self.origin.server.types.builtin.resource(group, target.version, target.resource);
        resource
            .map(|resource| &**resource)
            .ok_or_else(|| Status::internal(format!("{target:?} is not served")))
    }

    /// Returns the intent of a write by the server to one existing object.
    fn intent<'s>(
        &'s self,
        resource: &'s Resource,
        (namespace, name): (&'s str, &'s str),
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
            leaves_out: if self.is_admitted { BY_SERVER } else { BY_SERVER_UNASKED },
        }
    }

    /// Returns the intent of a write by the server that creates an object.
    fn creation<'s>(&'s self, resource: &'s Resource, at: (&'s str, &'s str)) -> WriteIntent<'s> {
        let mut intent = self.intent(resource, at);
        (intent.write.operation, intent.write.options) = (Operation::Create, Options::Create(&NO_OPTIONS));
        intent.presence = Presence::New;
        intent
    }

    async fn write<'s>(
        &'s self,
        intent: &WriteIntent<'_>,
        source: &mut dyn Source<&'s Loopback<'a>>,
    ) -> Result<Outcome, Status> {
        let mut caller = self;
        write(&mut caller, intent, source).await
    }

    /// Changes the newest version of an object to what `make` returns, through `endpoint`, and starts over if
    /// the object changes in the meantime. `make` gets the current version and returns the wanted one, or
    /// `None` to leave the object unchanged. If the change removes the last finalizer of a deleted object,
    /// the object is removed. A no-op change is not written, and a missing object is left missing.
    ///
    /// # Errors
    /// The wanted version is invalid, or the store failed.
    pub async fn change(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        endpoint: Endpoint,
        mut make: impl FnMut(&Object) -> Option<Object> + Send + Sync,
    ) -> Result<(), Status> {
        self.change_reporting(resource, (namespace, name), endpoint, |_, old| make(old)).await.map(drop)
    }

    /// Like [`Loopback::change`], but passes `make` the stored record, and returns the revision of the object
    /// afterwards: `None` if the object is missing, was removed or was left unchanged.
    ///
    /// # Errors
    /// As [`Loopback::change`].
    pub async fn change_reporting(
        &self,
        resource: &Resource,
        at: (&str, &str),
        endpoint: Endpoint,
        mut make: impl FnMut(&Stored, &Object) -> Option<Object> + Send + Sync,
    ) -> Result<Option<Revision>, Status> {
        let mut intent = self.intent(resource, at);
        intent.endpoint = endpoint;
        let mut is_left = false;
        let mut source = Made::stored(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(Wanted::AsItIs) };
            let old = current.take(resource)?;
            let wanted = make(&current.stored, &old);
            is_left = wanted.is_none();
            current.put_back(old);
            Ok(wanted.map_or(Wanted::AsItIs, Wanted::Object))
        });
        let outcome = self.write(&intent, &mut source).await?;
        Ok(match outcome {
            Outcome::Created(written) | Outcome::Updated(written) => Some(written.revision),
            Outcome::Unchanged(written) if !is_left => Some(written.revision),
            Outcome::Unchanged(_) | Outcome::Removed(_) | Outcome::Missing | Outcome::Changed => None,
        })
    }

    /// Applies `config` by force, as `manager` and through `endpoint`, to an object that was read at revision
    /// `seen`. If the object is missing or has changed since then, it is left alone and the result is a
    /// conflict. A no-op apply is not written.
    ///
    /// # Errors
    /// The configuration does not fit the object, the result is invalid, or the store failed.
    pub async fn apply(
        &self,
        resource: &Resource,
        at: (&str, &str),
        (seen, endpoint): (Revision, Endpoint),
        manager: &str,
        config: &Object,
    ) -> Result<Written, Status> {
        let mut intent = self.intent(resource, at);
        (intent.seen, intent.endpoint) = (Some(seen), endpoint);
        intent.leaves_out = if self.is_admitted { BY_SERVER_APPLIED } else { BY_SERVER_APPLIED_UNASKED };
        let (versions, reset) = (
            Versions::of(self.origin.types.registry(), resource).with(&self.origin.conversions),
            Reset::of(resource, endpoint),
        );
        let mut source = Made::served(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(Wanted::AsItIs) };
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
            Ok(Wanted::Object(object))
        });
        self.write(&intent, &mut source).await.map(as_written)
    }

    /// Gives an object that was read at revision `seen` the defaults of this release, and returns whether a
    /// default was missing. An object that changed since then has them already.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn backfill(
        &self,
        resource: &Resource,
        at: (&str, &str),
        seen: Revision,
    ) -> Result<bool, Status> {
        let mut intent = self.intent(resource, at);
        (intent.seen, intent.leaves_out) = (Some(seen), BACKFILL);
        let mut source = Made::stored(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(Wanted::AsItIs) };
            // Skip an object that cannot be read, since reads of it fail anyway.
            let Ok(object) = current.take(resource) else { return Ok(Wanted::AsItIs) };
            Ok(Wanted::Marked(object))
        });
        Ok(matches!(self.write(&intent, &mut source).await?, Outcome::Updated(_)))
    }

    /// Deletes an object, or marks it as deleted if finalizers keep it.
    ///
    /// # Errors
    /// 404 if the object does not exist, 409 if a precondition in the options does not match, 503 while the
    /// store has losses that the operator has not accepted, or a failure of the store.
    pub async fn delete_object(
        &self,
        resource: &Resource,
        at: (&str, &str),
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        self.delete_as(self.deletion(resource, at, options), options).await
    }

    /// Like [`Loopback::delete_object`], for an object of a collection that is deleted as a whole.
    ///
    /// # Errors
    /// As [`Loopback::delete_object`].
    pub async fn delete_of_collection(
        &self,
        resource: &Resource,
        at: (&str, &str),
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let mut intent = self.deletion(resource, at, options);
        intent.is_of_collection = true;
        self.delete_as(intent, options).await
    }

    async fn delete_as(&self, mut intent: WriteIntent<'_>, options: &DeleteOptions) -> Result<(), Status> {
        // Controllers that delete do not run in this state. This check catches a controller that was missed,
        // and one that is about to stop.
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

    /// Returns the intent of a deletion by the server of one existing object.
    fn deletion<'s>(
        &'s self,
        resource: &'s Resource,
        at: (&'s str, &'s str),
        options: &'s DeleteOptions,
    ) -> WriteIntent<'s> {
        let mut intent = self.intent(resource, at);
        (intent.write.operation, intent.write.options) = (Operation::Delete, Options::Delete(options));
        intent.leaves_out = if self.is_admitted { DELETION } else { DELETION_UNASKED };
        intent
    }

    /// Returns the state of a namespace at the newest revision.
    ///
    /// # Errors
    /// Fails if the namespace cannot be read.
    pub fn namespace_state(&self, namespace: &str) -> Result<NamespaceState, Status> {
        let stored = self.store().get(&store::key(&self.origin.server.types.namespaces, "", namespace))?;
        Ok(NamespaceState::of(stored.as_ref()))
    }
}

impl Loopback<'_> {
    /// Removes the record of a target that cannot be read, so that the object can be written again. Returns
    /// whether there was such a record. A record that another writer replaces in the meantime stays.
    ///
    /// # Errors
    /// Fails if the store failed.
    pub async fn remove_damaged(&self, target: &Target) -> Result<bool, Status> {
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
        let attempt = commit(self.store(), key, expected, change).await?;
        Ok(matches!(attempt, Attempt::Committed(_)))
    }
}

/// Returns the revision at which an object says it was read.
fn revision_of(object: &Value) -> Result<Revision, Status> {
    let text = object.str_at(&["metadata", "resourceVersion"]);
    text.parse().map_err(|_| Status::internal(format!("no revision in {text:?}")))
}

impl ObjectStore for Loopback<'_> {
    type Error = Status;

    fn get(&self, target: &Target) -> Result<Option<Value>, Status> {
        let resource = self.resource(target)?;
        let stored = self.store().get(&store::key(resource, &target.namespace, &target.name))?;
        stored.map(|stored| stored.object(resource).map(Value::Object)).transpose()
    }

    fn is_unreadable(error: &Status) -> bool {
        error.reason == StatusReason::StorageReadError
    }

    async fn create(&self, target: &Target, object: Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let object = given(resource, object)?;
        let intent = self.creation(resource, (&target.namespace, &target.name));
        let mut source =
            Made::served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| Ok(Wanted::Object(object.clone())));
        match self.write(&intent, &mut source).await {
            Ok(outcome) => Ok(as_written(outcome)),
            Err(status) if status.reason == StatusReason::AlreadyExists => Ok(Written::Conflict),
            Err(status) => Err(status),
        }
    }

    async fn update(&self, target: &Target, object: Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let mut intent = self.intent(resource, (&target.namespace, &target.name));
        intent.seen = Some(revision_of(&object)?);
        let mut object = given(resource, object)?;
        let mut source = Made::served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| {
            Ok(Wanted::Object(std::mem::take(&mut object)))
        });
        self.write(&intent, &mut source).await.map(as_written)
    }

    async fn delete(&self, target: &Target, existing: &Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let options = DeleteOptions::default();
        let mut intent = self.deletion(resource, (&target.namespace, &target.name), &options);
        intent.seen = Some(revision_of(existing)?);
        let mut source = Made::stored(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(Wanted::AsItIs) };
            current.take(resource).map(Wanted::GoneAsStored)
        });
        self.write(&intent, &mut source).await.map(as_written)
    }
}

/// Completes an object that a controller wants to write. Controllers describe the object without its managed
/// fields, and may leave out its type.
fn given(resource: &Resource, object: Value) -> Result<Object, Status> {
    let Value::Object(mut object) = object else { return Err(Status::internal("not an object")) };
    object.insert("kind", (&*resource.table.kind).into());
    object.insert("apiVersion", resource.api_version.as_str().into());
    take_managed_fields(&mut object);
    Ok(object)
}

fn as_written(outcome: Outcome) -> Written {
    match outcome {
        Outcome::Created(_) | Outcome::Updated(_) | Outcome::Unchanged(_) | Outcome::Removed(_) => {
            Written::Done
        }
        Outcome::Missing | Outcome::Changed => Written::Conflict,
    }
}

/// The server ignores warnings, and may create all objects that it writes.
impl Caller for &Loopback<'_> {
    fn warnings(&mut self) -> Option<&mut Vec<String>> {
        None
    }

    async fn confirm_create(&self) -> Result<(), Status> {
        Ok(())
    }
}
