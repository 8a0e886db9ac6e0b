//! Writes that the server makes on its own behalf: the objects every cluster starts with, and what controllers do.
//!
//! They take the write path like any other write, under the identity that upstream's users know, and pass admission: quotas
//! count them, webhooks and policies see them and may refuse them. They leave out what is for requests only: the comparison
//! with a version in the object, and the questions what the writer may grant and which parameters it may read. What comes before the first request, repairs
//! and what the reference server writes beneath its API is not asked about ([`Loopback::unasked`]).

mod event;
mod plugins;

use std::sync::Arc;

use auth::User;
use engine::{Change, Expected, Revision};

use crate::writes::admission::namespace_lifecycle::State as NamespaceState;
use crate::writes::admission::{Operation, Options};
use crate::writes::bootstrap::{ObjectStore, Target, Written};
use crate::writes::context::Context;
use crate::writes::write::commit::{Attempt, commit};
use crate::writes::write::deletion::delete_object;
use crate::writes::write::intent::{
    BACKFILL, BY_SERVER, BY_SERVER_APPLIED, BY_SERVER_APPLIED_UNASKED, BY_SERVER_UNASKED, DELETION,
    DELETION_UNASKED,
};
use crate::writes::write::{Caller, Current, Intent, Made, Outcome, Presence, Source, Wanted, write};
use objects::apply::{Reset, Versions, Writer, apply, take_managed_fields};
use objects::conversion::Conversions;
use objects::store::{self, Part, Store, Stored};
use objects::strategy::Endpoint;
use types::convert;
use types::options::DeleteOptions;
use types::schema::registry::Resource;
use types::served::Served;
use values::json::{Object, Value};
use values::query::{FieldValidation, WriteOptions};
use values::status::{Reason, Status};

pub use event::Warning;
pub use plugins::ControllerWriter;

/// The server's own writes have no options.
static NO_OPTIONS: WriteOptions = WriteOptions {
    dry_run: false,
    field_manager: String::new(),
    field_validation: FieldValidation::Warn,
    names_validation: false,
    force: None,
};

/// The server as a client of itself.
#[derive(Clone)]
pub struct Loopback<'a> {
    api: &'a Context,
    /// The types that were served when this was made.
    types: Arc<Served>,
    user: User,
    /// Who owns what it writes: a component of the system, by the name under which it is known.
    manager: String,
    /// Whether admission is asked about its writes.
    is_admitted: bool,
    conversions: Arc<Conversions>,
}

impl<'a> Loopback<'a> {
    /// The server's own identity: a member of the group that may everything.
    pub fn new(api: &'a Context) -> Self {
        let user = User::new("system:apiserver", [auth::identity::MASTERS]);
        let manager = api.naming().system("apiserver");
        Loopback { api, types: api.types(), user, manager, is_admitted: true, conversions: Arc::default() }
    }

    /// The server itself, which owns what it writes by the name of one of its parts.
    pub fn named(api: &'a Context, manager: &str) -> Self {
        Loopback { manager: manager.to_owned(), ..Loopback::new(api) }
    }

    /// The identity of one of the controllers, by which upstream's users know it: a service account of the system.
    pub fn controller(api: &'a Context, name: &str) -> Self {
        let namespace = api.naming().system("system");
        let groups = auth::identity::service_account_groups(&namespace).into_iter();
        let groups = groups.chain([auth::identity::AUTHENTICATED.to_owned()]);
        let user = User::new(auth::identity::service_account_user(&namespace, name), groups);
        let manager = api.naming().system("controller-manager");
        Loopback { user, manager, ..Loopback::new(api) }
    }

    /// The same, but admission is not asked about what it writes.
    pub fn unasked(self) -> Self {
        Loopback { is_admitted: false, ..self }
    }

    /// The server.
    pub fn api(&self) -> &'a Context {
        self.api
    }

    /// The types that were served when this was made.
    pub fn types(&self) -> &Served {
        &self.types
    }

    /// The store, opened by the server's own permission.
    pub fn store(&self) -> Store<'a> {
        self.api.open_for(Part::Loopback)
    }

    /// The resource of a target, which is of a built-in type; its name does not matter.
    ///
    /// # Errors
    /// There is no such resource.
    pub fn resource(&self, target: &Target) -> Result<&'a Resource, Status> {
        let naming = self.api.naming();
        let is_it = |name: &str| name.strip_suffix(naming.group_suffix).unwrap_or(name) == target.group;
        let group = self.api.builtin().groups().iter().find(|group| is_it(&group.name));
        let group = group.map(|group| group.name.as_str()).unwrap_or_default();
        let resource = self.api.builtin().resource(group, target.version, target.resource);
        resource
            .map(|resource| &**resource)
            .ok_or_else(|| Status::internal(format!("{target:?} is not served")))
    }

    /// A write of the server of one object that is there.
    fn intent<'s>(&'s self, resource: &'s Resource, (namespace, name): (&'s str, &'s str)) -> Intent<'s> {
        Intent {
            api: self.api,
            types: &self.types,
            store: self.store().about(resource),
            user: &self.user,
            permission: None,
            operation: Operation::Update,
            options: Options::Update(&NO_OPTIONS),
            resource,
            endpoint: Endpoint::Main,
            namespace,
            name,
            is_of_collection: false,
            presence: Presence::IfThere,
            seen: None,
            manager: &self.manager,
            conversions: &self.conversions,
            dry_run: false,
            may_be_behind: false,
            leaves_out: if self.is_admitted { BY_SERVER } else { BY_SERVER_UNASKED },
        }
    }

    /// The same of one that is not there.
    fn creation<'s>(&'s self, resource: &'s Resource, at: (&'s str, &'s str)) -> Intent<'s> {
        let mut intent = self.intent(resource, at);
        (intent.operation, intent.options) = (Operation::Create, Options::Create(&NO_OPTIONS));
        intent.presence = Presence::New;
        intent
    }

    async fn write<'s>(
        &'s self,
        intent: &Intent<'_>,
        source: &mut impl Source<&'s Loopback<'a>>,
    ) -> Result<Outcome, Status> {
        let mut caller = self;
        write(&mut caller, intent, source).await
    }

    /// Changes the newest state of an object to what `make` says, through `endpoint`, beginning again when it
    /// changes meanwhile. `make` gets the state and returns the wanted one, or `None` to leave it. A change that
    /// takes away the last thing that kept a deleted object removes it; one that changes nothing writes nothing.
    /// An object that is not there is left so.
    ///
    /// # Errors
    /// The wanted state is not valid, or the store failed.
    pub async fn change(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        endpoint: Endpoint,
        mut make: impl FnMut(&Object) -> Option<Object> + Send + Sync,
    ) -> Result<(), Status> {
        self.change_reporting(resource, (namespace, name), endpoint, |_, old| make(old)).await.map(drop)
    }

    /// [`Loopback::change`] that shows `make` how the object is stored, and says at which revision it is afterwards:
    /// `None` when it is not there, was removed or was left.
    ///
    /// # Errors
    /// As there.
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

    /// Applies `config` by force, as `manager` and through `endpoint`, to an object that was seen at revision `seen`; one
    /// that is not there or has changed since is left alone, which is a conflict. What changes nothing is not written.
    ///
    /// # Errors
    /// The configuration does not fit, what comes of it is not valid, or the store failed.
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
            Versions::of(self.types.registry(), resource).with(&self.conversions),
            Reset::of(resource, endpoint),
        );
        let mut source = Made::served(|_: &mut &Loopback<'_>, current: Option<&mut Current>| {
            let Some(current) = current else { return Ok(Wanted::AsItIs) };
            let live = convert::to_served(resource, current.object(resource)?.clone(), self.api.naming())?;
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

    /// Gives an object that was seen at revision `seen` the defaults of this release; says whether it lacked one. An
    /// object that changed since has them.
    ///
    /// # Errors
    /// The store failed.
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
            // An object that cannot be read is passed over: it is served as an error anyway.
            let Ok(object) = current.take(resource) else { return Ok(Wanted::AsItIs) };
            Ok(Wanted::Marked(object))
        });
        Ok(matches!(self.write(&intent, &mut source).await?, Outcome::Updated(_)))
    }

    /// Deletes an object, or marks it as deleted where something holds it.
    ///
    /// # Errors
    /// 404 if there is none, 409 if it is not the one that the options mean, 503 while the store has losses that nobody
    /// accepted, or the store failed.
    pub async fn delete_object(
        &self,
        resource: &Resource,
        at: (&str, &str),
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        self.delete_as(self.deletion(resource, at, options), options).await
    }

    /// [`Loopback::delete_object`] of one of a collection, which is deleted as a whole.
    ///
    /// # Errors
    /// As there.
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

    async fn delete_as(&self, mut intent: Intent<'_>, options: &DeleteOptions) -> Result<(), Status> {
        // Controllers that delete are off then; this holds for one that was forgotten, and for one that is about to end.
        if !self.api.backends().is_whole() {
            return Err(Status::new(
                Reason::ServiceUnavailable,
                "the server deletes nothing while the store has records that it cannot read: accept-loss accepts their loss",
            ));
        }
        intent.presence = Presence::Existing;
        let mut caller = self;
        delete_object(&mut caller, &intent, options).await.map(drop)
    }

    /// A deletion by the server of one object that is there.
    fn deletion<'s>(
        &'s self,
        resource: &'s Resource,
        at: (&'s str, &'s str),
        options: &'s DeleteOptions,
    ) -> Intent<'s> {
        let mut intent = self.intent(resource, at);
        (intent.operation, intent.options) = (Operation::Delete, Options::Delete(options));
        intent.leaves_out = if self.is_admitted { DELETION } else { DELETION_UNASKED };
        intent
    }

    /// What a namespace is in the newest state.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn namespace_state(&self, namespace: &str) -> Result<NamespaceState, Status> {
        let stored = self.store().get(&store::key(self.api.namespaces(), "", namespace))?;
        Ok(NamespaceState::of(stored.as_ref()))
    }
}

impl Loopback<'_> {
    /// Removes the record of a target that cannot be read, so that the object can be written anew. Says whether there was
    /// such a record; one that another writer replaces in the meantime stays.
    ///
    /// # Errors
    /// The store failed.
    pub async fn remove_damaged(&self, target: &Target) -> Result<bool, Status> {
        let resource = self.resource(target)?;
        let key = store::key(resource, &target.namespace, &target.name);
        let Some(entry) = self.store().entry(&key) else { return Ok(false) };
        let expected = Expected::Revision(entry.revision());
        match store::read(entry).and_then(|stored| stored.object(resource)) {
            Err(error) if error.reason == Reason::StorageReadError => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error),
        }
        let remains = store::remains(resource, &target.namespace, &target.name);
        let change = Change::Delete(Some(store::payload(resource, &remains)));
        let attempt = commit((self.api, self.store()), key, expected, change).await?;
        Ok(matches!(attempt, Attempt::Committed(_)))
    }
}

/// The revision an object says it was read at.
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
        error.reason == Reason::StorageReadError
    }

    async fn create(&self, target: &Target, object: Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let object = given(resource, object)?;
        let intent = self.creation(resource, (&target.namespace, &target.name));
        let mut source =
            Made::served(|_: &mut &Loopback<'_>, _: Option<&mut Current>| Ok(Wanted::Object(object.clone())));
        match self.write(&intent, &mut source).await {
            Ok(outcome) => Ok(as_written(outcome)),
            Err(status) if status.reason == Reason::AlreadyExists => Ok(Written::Conflict),
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

/// The object that a controller wants. Controllers say what an object shall be, not who owns it, and need not say its type.
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

/// The server hears no warnings, and may create whatever it writes.
impl Caller for &Loopback<'_> {
    fn warnings(&mut self) -> Option<&mut Vec<String>> {
        None
    }

    async fn confirm_create(&self) -> Result<(), Status> {
        Ok(())
    }
}
