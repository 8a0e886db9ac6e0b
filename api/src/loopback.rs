//! Writes that the server makes on its own behalf: the objects every cluster starts with, and what controllers do.
//!
//! They pass defaulting, preparation and validation like any other write, under the server's own identity; no
//! request stands behind them, so there is no admission.

use auth::{Attributes, Authorized, User};
use engine::{Change, CommitError, Expected};

use crate::admission::namespace_lifecycle::{State as NamespaceState, state as namespace_state};
use crate::allocation::Reservation;
use crate::apply::{Reset, Versions, Writer, apply, take_managed_fields};
use crate::bootstrap::{ObjectStore, Target, Written};
use crate::context::Context as Api;
use crate::convert;
use crate::json::{Object, Value};
use crate::names;
use crate::object::{meta, metadata_mut, set_meta};
use crate::retry::{Attempts, Exhausted};
use crate::schema::defaults;
use crate::schema::registry::Resource;
use crate::status::{Status, Subject};
use crate::store::{self, Store, Stored};
use crate::strategy::{self, Endpoint};
use crate::validation;
use crate::verbs::ownership::{Owners, Tracking, keep_times_of_no_change};
use crate::verbs::write::{completes_deletion, is_same};

/// The server as a client of itself.
#[derive(Clone)]
pub struct Loopback<'a> {
    api: &'a Api,
    user: User,
    /// Who owns what it writes: a component of the system, by the name under which it is known.
    manager: String,
}

impl<'a> Loopback<'a> {
    /// The server's own identity: a member of the group that may everything.
    pub fn new(api: &'a Api) -> Self {
        let user = User::new("system:apiserver", [auth::identity::MASTERS]);
        Loopback { api, user, manager: api.naming.system("apiserver") }
    }

    /// The identity of one of the controllers, by which upstream's users know it: a service account of the system.
    pub fn controller(api: &'a Api, name: &str) -> Self {
        let account = auth::identity::service_account_user(&api.naming.system("system"), name);
        let user = User::new(account, [auth::identity::MASTERS]);
        Loopback { api, user, manager: api.naming.system("controller-manager") }
    }

    /// The server.
    pub fn api(&self) -> &'a Api {
        self.api
    }

    /// The store, opened by the server's own permission.
    pub fn store(&self) -> Store<'a> {
        let attributes = Attributes::path(&self.user, "update", "/");
        let proof = Authorized::for_loopback(&attributes);
        Store::open(&self.api.engine, &proof)
    }

    /// The resource of a target; its name does not matter.
    ///
    /// # Errors
    /// There is no such resource.
    pub fn resource(&self, target: &Target) -> Result<&'a Resource, Status> {
        let naming = self.api.naming;
        let is_it = |name: &str| name.strip_suffix(naming.group_suffix).unwrap_or(name) == target.group;
        let group = self.api.registry.groups().iter().find(|group| is_it(&group.name));
        let group = group.map(|group| group.name.as_str()).unwrap_or_default();
        let resource = self.api.registry.resource(group, target.version, target.resource);
        resource
            .map(|resource| &**resource)
            .ok_or_else(|| Status::internal(format!("{target:?} is not served")))
    }

    fn tracking<'t>(&'t self, resource: &'t Resource, endpoint: Endpoint) -> Tracking<'t> {
        Tracking { registry: &self.api.registry, resource, endpoint, manager: &self.manager }
    }

    /// The object as it is written: complete, prepared and checked. What it was given is its own once it is stored.
    fn complete(
        &self,
        resource: &Resource,
        object: Value,
        old: Option<&Object>,
        owners: Owners,
    ) -> Result<(Object, Option<Reservation<'a>>), Status> {
        let Value::Object(mut object) = object else { return Err(Status::internal("not an object")) };
        let naming = self.api.naming;
        let tracked = owners == Owners::Writer;
        if tracked {
            // Callers say what an object shall be, not who owns it.
            take_managed_fields(&mut object);
        }
        defaults::apply(&resource.table.message, &mut object, naming);
        validation::prepare(&resource.table, &mut object, old);
        if old.is_none() && tracked {
            self.tracking(resource, Endpoint::Main).create(&mut object);
        }
        let mut object = convert::to_stored(resource, object, naming)?;
        if let Some(old) = old.filter(|_| tracked) {
            self.tracking(resource, Endpoint::Main).update(old, &mut object)?;
        }
        let allocated = self.api.allocations.begin(resource, &mut object, old)?;
        let errors = match old {
            None => {
                set_meta(&mut object, "creationTimestamp", Some(crate::clock::now().into()));
                metadata_mut(&mut object).insert("uid", names::uid().into());
                strategy::prepare_create(resource, &mut object, &self.user, naming);
                validation::create(&resource.stored().table, naming, &object)
            }
            Some(old) => {
                strategy::prepare_update(resource, Endpoint::Main, &mut object, old);
                keep_times_of_no_change(old, &mut object);
                validation::update(&resource.stored().table, naming, &object, old)
            }
        };
        if errors.is_empty() {
            return Ok((object, allocated));
        }
        let name = meta(&object, "name").to_owned();
        let subject = Subject { group: &resource.group, kind: &resource.table.kind, name: &name };
        Err(Status::invalid(subject, &errors))
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
        mut make: impl FnMut(&Object) -> Option<Object>,
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
        (namespace, name): (&str, &str),
        endpoint: Endpoint,
        mut make: impl FnMut(&Stored, &Object) -> Option<Object>,
    ) -> Result<Option<u64>, Status> {
        let key = store::key(resource, namespace, name);
        let mut attempts = Attempts::new();
        loop {
            let Some(stored) = self.store().get(&key)? else { return Ok(None) };
            let old = stored.object(resource)?;
            let Some(mut new) = make(&stored, &old) else { return Ok(None) };
            validation::prepare(&resource.stored().table, &mut new, Some(&old));
            self.tracking(resource, endpoint).update(&old, &mut new)?;
            strategy::prepare_update(resource, endpoint, &mut new, &old);
            keep_times_of_no_change(&old, &mut new);
            let table = &resource.stored().table;
            let errors =
                validation::update_through(endpoint.subresource(), table, self.api.naming, &new, &old);
            if !errors.is_empty() {
                let subject = Subject { group: &resource.group, kind: &resource.table.kind, name };
                return Err(Status::invalid(subject, &errors));
            }
            let payload = store::payload(resource, &new);
            let removes = completes_deletion(resource, &new, &old);
            if !removes && is_same(&payload, &stored) {
                return Ok(Some(stored.entry.revision()));
            }
            let change = if removes { Change::Delete(Some(payload)) } else { Change::Put(payload) };
            let expected = Expected::Revision(stored.entry.revision());
            match self.store().commit(key.clone(), expected, change).await {
                Ok(committed) => return Ok((!removes).then_some(committed.revision)),
                Err(CommitError::Conflict { .. }) => {}
                Err(error) => return Err(self.api.commit_failed(&error)),
            }
            let subject = Subject { group: &resource.group, kind: &resource.table.plural, name };
            attempts.again().await.map_err(|Exhausted| Status::stale(subject))?;
        }
    }

    /// Applies `config` by force, as `manager`, to an object that was seen at revision `seen`; one that is not there or
    /// has changed since is left alone, which is a conflict. What changes nothing is not written.
    ///
    /// # Errors
    /// The configuration does not fit, what comes of it is not valid, or the store failed.
    pub async fn apply(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        seen: u64,
        manager: &str,
        config: &Object,
    ) -> Result<Written, Status> {
        let key = store::key(resource, namespace, name);
        let stored = self.store().get(&key)?.filter(|stored| stored.entry.revision() == seen);
        let Some(stored) = stored else { return Ok(Written::Conflict) };
        let old = stored.object(resource)?;
        let naming = self.api.naming;
        let live = convert::to_served(resource, old.clone(), naming)?;
        let (versions, reset) =
            (Versions::of(&self.api.registry, resource), Reset::of(resource, Endpoint::Main));
        let now = crate::clock::now();
        let writer = Writer { manager, subresource: "", now: &now };
        let applied = apply(&versions, &writer, &reset, &live, config, true)
            .map_err(|error| Status::internal(format!("{error:?}")))?;
        let object = applied.conformed(versions.message(), &live).map_err(Status::internal)?;
        let (object, _allocated) = self.complete(resource, object.into(), Some(&old), Owners::AsGiven)?;
        let payload = store::payload(resource, &object);
        if is_same(&payload, &stored) {
            return Ok(Written::Done);
        }
        self.commit(key, Expected::Revision(seen), Change::Put(payload)).await
    }

    /// Warns of something about an object with an event in `namespace`. Where nothing can be created any more, it is
    /// not said.
    ///
    /// # Errors
    /// The store failed.
    pub async fn warn(
        &self,
        resource: &Resource,
        (namespace, name): (&str, &str),
        uid: &str,
        warning: Warning,
    ) -> Result<(), Status> {
        let _creation = self.api.creations.begin();
        if namespace_state(self.api, &self.store(), namespace)? != NamespaceState::Active {
            return Ok(());
        }
        let object = |members: &[(&'static str, &str)]| {
            let present = members.iter().filter(|(_, text)| !text.is_empty());
            Object::from_iter(present.map(|(name, text)| ((*name).into(), Value::from(*text))))
        };
        let now = crate::clock::now();
        let event_name = names::generated(&format!("{}.", name.get(..40).unwrap_or(name)));
        let scope = if resource.namespaced() { namespace } else { "" };
        let mut event = object(&[("kind", "Event"), ("apiVersion", "v1")]);
        event.push("metadata", object(&[("name", &event_name), ("namespace", namespace)]).into());
        let regarding = [
            ("kind", &*resource.table.kind),
            ("namespace", scope),
            ("name", name),
            ("uid", uid),
            ("apiVersion", &resource.api_version),
        ];
        event.push("involvedObject", object(&regarding).into());
        event.push("reason", warning.reason.into());
        event.push("message", warning.message.into());
        event.push("source", object(&[("component", warning.component)]).into());
        event.push("firstTimestamp", now.as_str().into());
        event.push("lastTimestamp", now.into());
        event.push("count", Value::Int(1));
        event.push("type", "Warning".into());
        event.push("reportingComponent", warning.component.into());
        let (namespace, name) = (namespace.to_owned(), event_name);
        let target = Target { group: "", version: "v1", resource: "events", namespace, name };
        self.create(&target, event.into()).await.map(drop)
    }

    async fn commit(&self, key: bytes::Bytes, expected: Expected, change: Change) -> Result<Written, Status> {
        match self.store().commit(key, expected, change).await {
            Ok(_) => Ok(Written::Done),
            Err(CommitError::Conflict { .. }) => Ok(Written::Conflict),
            Err(error) => Err(self.api.commit_failed(&error)),
        }
    }
}

/// What an event warns of.
pub struct Warning {
    /// Why, in one word.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
    /// Which part of the system says so.
    pub component: &'static str,
}

/// The revision an object says it was read at.
fn revision_of(object: &Value) -> Result<u64, Status> {
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

    async fn create(&self, target: &Target, object: Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let (object, _allocated) = self.complete(resource, object, None, Owners::Writer)?;
        let key = store::key(resource, &target.namespace, &target.name);
        self.commit(key, Expected::Absent, Change::Put(store::payload(resource, &object))).await
    }

    async fn update(&self, target: &Target, object: Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let expected = Expected::Revision(revision_of(&object)?);
        let key = store::key(resource, &target.namespace, &target.name);
        let Some(stored) = self.store().get(&key)? else { return Ok(Written::Conflict) };
        let old = stored.object(resource)?;
        let (object, _allocated) = self.complete(resource, object, Some(&old), Owners::Writer)?;
        self.commit(key, expected, Change::Put(store::payload(resource, &object))).await
    }

    async fn delete(&self, target: &Target, existing: &Value) -> Result<Written, Status> {
        let resource = self.resource(target)?;
        let expected = Expected::Revision(revision_of(existing)?);
        self.commit(store::key(resource, &target.namespace, &target.name), expected, Change::Delete(None))
            .await
    }
}
