//! Makes the plan of an undo. The plan has a step for each difference between now and the point, in order.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Context, bail};
use futures_util::future::try_join;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{Method, StatusCode};
use jiff::Timestamp;

use super::super::discovery::{self, CONCURRENT, Discovery, ResourceType};
use super::super::point::Point;
use super::owners::OwnerLookup;
use super::step::{UndoAction, UndoPlan, UndoStep};
use super::survey::{self, ObjectKey, ObjectList, ObjectState, Scope};
use super::{Undo, authors, order};
use crate::remote::client::Client;

/// Types that are left out if no argument names them. Other components write these objects often, or derive them from
/// other objects.
const OMITTED: [&str; 9] = [
    "events",
    "leases",
    "endpoints",
    "endpointslices",
    "controllerrevisions",
    "nodes",
    "csinodes",
    "ipaddresses",
    "volumeattachments",
];

/// Compares the objects that the flags select with their states at the point.
///
/// # Errors
/// The server cannot be reached, the point cannot be read, or a type is unknown or cannot be listed.
pub async fn make(client: &Client, flags: &Undo) -> anyhow::Result<UndoPlan> {
    let point = &fixed(client, &flags.since).await?;
    let now = discovery::now(client).await?;
    let then = Discovery::read(client, &point.prefix()).await.context("cannot read the point")?;
    let definitions = definitions(client, &now).await?;
    let mut chosen = chosen(&now, &then, &flags.types)?;
    // The server has no history of resources that other servers serve, so all their objects would seem to be new.
    chosen.retain(|chosen| {
        let is_defined = |resource: &ResourceType| definitions.contains(&resource.qualified());
        chosen.then.is_some() || chosen.now.is_some_and(is_defined)
    });
    let scopes = chosen.iter().filter_map(|chosen| chosen.scoped(flags));
    let surveys = scopes.map(async |scoped| {
        let then = scoped.then(point);
        let listed = try_join(list(client, scoped.now), list(client, then)).await?;
        anyhow::Ok((scoped, listed))
    });
    let surveys: Vec<(Scoped<'_>, (ObjectList, ObjectList))> =
        stream::iter(surveys).buffered(CONCURRENT).try_collect().await?;
    let mut owners = OwnerLookup::new(client, &now, &then, point);
    for (_, (now, then)) in &surveys {
        owners.add_now(now.objects.values());
        owners.add_then(then.objects.values());
    }
    let mut plan = UndoPlan::default();
    for (scoped, (now, then)) in &surveys {
        let resource = scoped.resource;
        if now.is_forbidden || then.is_forbidden {
            if !flags.types.is_empty() {
                bail!("not permitted to list {}", resource.qualified());
            }
            plan.remarks.push(format!("{} are left out: not permitted to list them", resource.qualified()));
            continue;
        }
        // If one of the lists is not available, the states of its objects are unknown.
        if now.is_unavailable || then.is_unavailable {
            continue;
        }
        let mut comparison = Comparison { client, point, scoped, flags, now, then, owners: &mut owners };
        comparison.add_to(&mut plan).await?;
    }
    if let Some(user) = &flags.by {
        plan.steps = authors::only_of(client, plan.steps, user).await?;
    }
    plan.steps = order::ordered(plan.steps);
    Ok(plan)
}

/// Fixes the point, so that all requests read the same state. A duration before now is replaced by the revision at that
/// time, or by the time if the user may not list namespaces.
///
/// # Errors
/// The point cannot be read.
async fn fixed(client: &Client, point: &Point) -> anyhow::Result<Point> {
    let Point::Ago(ago, _) = point else { return Ok(point.clone()) };
    let path = format!("{}/api/v1/namespaces?limit=1", point.prefix());
    let response = client.exchange(Method::GET, &path, None).await?;
    if response.code == StatusCode::FORBIDDEN {
        let time = Timestamp::now().checked_sub(*ago).context("the duration before now is too long")?;
        return Ok(Point::Time(time, time.to_string()));
    }
    if response.code != StatusCode::OK {
        return Err(client.refused(&response)).context("cannot read the point");
    }
    let list = response.json()?;
    let revision = list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
    revision.map(Point::Revision).context("the server does not report the revision of the point")
}

/// Returns the names of all definitions of custom types. A name consists of the plural name and the group of
/// the type.
async fn definitions(client: &Client, now: &Discovery) -> anyhow::Result<HashSet<String>> {
    let resource = now.types.iter().find(|known| known.kind == "CustomResourceDefinition");
    let scope = resource.and_then(|resource| {
        let version = resource.versions.first()?;
        Some(Scope { resource, version, namespace: "", selector: None, point: None })
    });
    let listed = list(client, scope).await?;
    Ok(listed.objects.into_keys().map(|(_, name)| name).collect())
}

/// A type to compare: the type that the server serves now, and the type that it served at the earlier point.
struct Chosen<'d> {
    now: Option<&'d ResourceType>,
    then: Option<&'d ResourceType>,
}

/// The two lists of a type that are compared.
struct Scoped<'d> {
    resource: &'d ResourceType,
    now: Option<Scope<'d>>,
    then: Option<Scope<'d>>,
}

impl Scoped<'_> {
    fn then<'s>(&'s self, point: &'s Point) -> Option<Scope<'s>> {
        self.then.map(|scope| Scope { point: Some(point), ..scope })
    }
}

impl<'d> Chosen<'d> {
    /// Returns the lists to compare, or `None` if the flags exclude the type or its objects cannot be
    /// changed.
    fn scoped(&self, flags: &'d Undo) -> Option<Scoped<'d>> {
        // If a version is served both now and at the point, use this version for both lists, so that the states are
        // comparable.
        let known = |version: &&String| {
            let in_both =
                |known: Option<&ResourceType>| known.is_none_or(|known| known.versions.contains(version));
            in_both(self.now) && in_both(self.then)
        };
        let scope = |resource: &'d ResourceType| {
            let version = resource.versions.iter().find(known).or(resource.versions.first())?;
            let namespace = flags.namespace.as_deref().unwrap_or_default();
            let selector = flags.selector.as_deref();
            Some(Scope { resource, version, namespace, selector, point: None })
        };
        let is_chosen = |resource: &ResourceType| {
            flags.namespace.is_none() || resource.is_namespaced || resource.qualified() == "namespaces"
        };
        let either = self.now.or(self.then).filter(|resource| is_chosen(resource))?;
        let can_change = ["list", "create", "delete"].iter().all(|verb| either.has(verb));
        let (now, then) = (self.now.and_then(scope), self.then.and_then(scope));
        can_change.then_some(Scoped { resource: either, now, then })
    }
}

/// Returns the types that the arguments name. Returns all types except [`OMITTED`] if there are no arguments.
fn chosen<'d>(now: &'d Discovery, then: &'d Discovery, names: &[String]) -> anyhow::Result<Vec<Chosen<'d>>> {
    let mut chosen: BTreeMap<(&str, &str), Chosen<'d>> = BTreeMap::new();
    let mut add = |resource: &'d ResourceType| {
        let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
        let both = Chosen { now: now.find(group, plural), then: then.find(group, plural) };
        chosen.insert((group, plural), both);
    };
    if names.is_empty() {
        let all = now.types.iter().chain(&then.types);
        all.filter(|resource| !OMITTED.contains(&resource.plural.as_str())).for_each(&mut add);
    }
    for name in names {
        add(now.resolve(name).or_else(|error| then.resolve(name).map_err(|_| error))?);
    }
    Ok(chosen.into_values().collect())
}

/// Returns a list. The list is empty if the type does not exist.
async fn list(client: &Client, scope: Option<Scope<'_>>) -> anyhow::Result<ObjectList> {
    match scope {
        Some(scope) => survey::list(client, scope).await,
        None => Ok(ObjectList::default()),
    }
}

/// The comparison of the objects of one type.
struct Comparison<'c, 'o> {
    client: &'c Client,
    point: &'c Point,
    scoped: &'c Scoped<'c>,
    flags: &'c Undo,
    now: &'c ObjectList,
    then: &'c ObjectList,
    owners: &'c mut OwnerLookup<'o>,
}

impl Comparison<'_, '_> {
    /// Adds the steps for all objects of the type.
    async fn add_to(&mut self, plan: &mut UndoPlan) -> anyhow::Result<()> {
        let keys: BTreeSet<&ObjectKey> = self.now.objects.keys().chain(self.then.objects.keys()).collect();
        for key in keys {
            if !self.is_selected(key) {
                continue;
            }
            let (now, then) = (self.now.objects.get(key).cloned(), self.then.objects.get(key).cloned());
            if let (Some(now), Some(then)) = (&now, &then)
                && (now.version == then.version || now.fingerprint == then.fingerprint)
            {
                continue;
            }
            let (now, then) = self.with_unselected(key, now, then).await?;
            self.add(key, now, then, plan).await?;
        }
        Ok(())
    }

    /// Returns whether the namespace in the flags selects an object.
    fn is_selected(&self, key: &ObjectKey) -> bool {
        let (namespace, name) = key;
        match &self.flags.namespace {
            // With `--namespace`, the namespace object itself is selected only if it was deleted.
            Some(chosen) if namespace.is_empty() => name == chosen && !self.now.objects.contains_key(key),
            _ => true,
        }
    }

    /// Returns both states of an object. Reads the other state if the label selector matched only one state.
    async fn with_unselected(
        &self,
        key: &ObjectKey,
        now: Option<ObjectState>,
        then: Option<ObjectState>,
    ) -> anyhow::Result<(Option<ObjectState>, Option<ObjectState>)> {
        if self.flags.selector.is_none() {
            return Ok((now, then));
        }
        let other = async |scope: &Option<Scope<'_>>, prefix: &str| {
            let Some(scope) = scope else { return anyhow::Ok(None) };
            let path = format!("{prefix}{}", object_path(scope, key));
            let found = self.client.find(&path).await?;
            let resource = scope.resource;
            Ok(found
                .map(|object| ObjectState::from_object(object, &resource.qualified(), resource.has_status).1))
        };
        match (now, then) {
            (None, then) => Ok((other(&self.scoped.now, "").await?, then)),
            (now, None) => Ok((now, other(&self.scoped.then, &self.point.prefix()).await?)),
            both => Ok(both),
        }
    }

    /// Adds the step for an object whose states differ.
    async fn add(
        &mut self,
        key: &ObjectKey,
        now: Option<ObjectState>,
        then: Option<ObjectState>,
        plan: &mut UndoPlan,
    ) -> anyhow::Result<()> {
        let resource = self.scoped.resource;
        let label = || format!("{} {}", resource.qualified(), discovery::object_label(&key.0, &key.1));
        if now.as_ref().is_some_and(|now| now.is_deleting) {
            // A deletion that has begun cannot be stopped.
            if then.is_some() {
                let remark = "is being deleted: run the command again when it is gone";
                plan.remarks.push(format!("{} {remark}", label()));
            }
            return Ok(());
        }
        if then.as_ref().is_some_and(|then| then.is_deleting) {
            plan.remarks.push(format!("{} was being deleted at the point, and is left as it is", label()));
            return Ok(());
        }
        let action = match (&now, &then) {
            (None, Some(_)) => UndoAction::Create,
            (Some(_), None) => UndoAction::Delete,
            (Some(now), Some(then)) if now.fingerprint != then.fingerprint => UndoAction::Restore,
            _ => return Ok(()),
        };
        let Some(either) = then.as_ref().or(now.as_ref()) else { return Ok(()) };
        if self.flags.types.is_empty() && self.owners.is_managed(key, either).await? {
            return Ok(());
        }
        let scope = self.scoped.now.as_ref().or(self.scoped.then.as_ref());
        let point_revision = self.then.revision.or(match self.point {
            Point::Revision(revision) => Some(*revision),
            _ => None,
        });
        plan.steps.push(UndoStep {
            action,
            resource: resource.qualified(),
            namespace: key.0.clone(),
            name: key.1.clone(),
            revision: point_revision.filter(|_| action != UndoAction::Delete),
            path: scope.map(|scope| object_path(scope, key)).unwrap_or_default(),
            uid: either.uid.clone(),
            owners: either.owners.iter().map(|owner| owner.uid.clone()).collect(),
            version: now.as_ref().map(|now| now.version.clone()).unwrap_or_default(),
            fingerprint: now.as_ref().map(|now| now.fingerprint).unwrap_or_default(),
            has_status: resource.has_status,
            point_revision: point_revision.unwrap_or_default(),
        });
        Ok(())
    }
}

/// Returns the path of an object in the version of a list.
fn object_path(scope: &Scope<'_>, key: &ObjectKey) -> String {
    scope.resource.object_in(scope.version, &key.0, &key.1)
}
