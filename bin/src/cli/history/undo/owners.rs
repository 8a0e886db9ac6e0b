//! Finds objects that a controller manages for an owner. If the owner exists, the controller itself brings such an
//! object to the state that the owner describes, so an undo leaves the object out.

use std::collections::{HashMap, HashSet};

use super::super::discovery::Discovery;
use super::super::point::Point;
use super::survey::{ObjectKey, ObjectState, OwnerReference};
use crate::remote::client::Client;

/// Maximum length of a chain of controllers above an object. This limit also ends circular references.
const DEPTH_MAX: usize = 8;

/// A lookup of owners, with a cache of the owners that are known so far.
pub struct OwnerLookup<'o> {
    pub client: &'o Client,
    pub now: &'o Discovery,
    pub then: &'o Discovery,
    pub point: &'o Point,
    /// Whether an object exists now, by its uid.
    exists: HashMap<String, bool>,
    /// The controller of an object at the point, by the uid of the object.
    controllers: HashMap<String, Option<OwnerReference>>,
}

impl<'o> OwnerLookup<'o> {
    /// Creates a lookup without known owners.
    pub fn new(
        client: &'o Client,
        now: &'o Discovery,
        then: &'o Discovery,
        point: &'o Point,
    ) -> OwnerLookup<'o> {
        OwnerLookup { client, now, then, point, exists: HashMap::new(), controllers: HashMap::new() }
    }

    /// Adds objects that exist now to the cache.
    pub fn add_now<'s>(&mut self, objects: impl Iterator<Item = &'s ObjectState>) {
        self.exists.extend(objects.map(|object| (object.uid.clone(), true)));
    }

    /// Adds the controllers of objects that existed at the point to the cache.
    pub fn add_then<'s>(&mut self, objects: impl Iterator<Item = &'s ObjectState>) {
        self.controllers.extend(objects.map(|object| (object.uid.clone(), object.controller().cloned())));
    }

    /// Returns whether an owner of the object exists and a controller manages the object for this owner. The owner may
    /// be an indirect owner: the controller of a controller of the object.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses to read an owner.
    pub async fn is_managed(&mut self, key: &ObjectKey, object: &ObjectState) -> anyhow::Result<bool> {
        let mut seen = HashSet::new();
        let mut next = object.controller().cloned();
        for _ in 0..DEPTH_MAX {
            let Some(owner) = next.take().filter(|owner| seen.insert(owner.uid.clone())) else { break };
            if self.exists(&key.0, &owner).await? {
                return Ok(true);
            }
            next = self.controller_of(&key.0, &owner).await?;
        }
        Ok(false)
    }

    /// Returns whether an owner exists. `namespace` is the namespace of its dependent.
    async fn exists(&mut self, namespace: &str, owner: &OwnerReference) -> anyhow::Result<bool> {
        if let Some(known) = self.exists.get(&owner.uid) {
            return Ok(*known);
        }
        let found = match self.now.of_kind(&owner.api_version, &owner.kind) {
            None => None,
            Some(resource) => self.client.find(&resource.object(namespace, &owner.name)).await?,
        };
        let exists = found.is_some_and(|found| found["metadata"]["uid"].as_str() == Some(&owner.uid));
        self.exists.insert(owner.uid.clone(), exists);
        Ok(exists)
    }

    /// Returns the controller of an owner at the point. `namespace` is the namespace of the dependent.
    async fn controller_of(
        &mut self,
        namespace: &str,
        owner: &OwnerReference,
    ) -> anyhow::Result<Option<OwnerReference>> {
        if let Some(known) = self.controllers.get(&owner.uid) {
            return Ok(known.clone());
        }
        let found = match self.then.of_kind(&owner.api_version, &owner.kind) {
            None => None,
            Some(resource) => {
                let path = format!("{}{}", self.point.prefix(), resource.object(namespace, &owner.name));
                self.client.find(&path).await?
            }
        };
        let found = found
            .map(|object| ObjectState::from_object(object, "", true).1)
            .filter(|found| found.uid == owner.uid);
        let controller = found.and_then(|found| found.controller().cloned());
        self.controllers.insert(owner.uid.clone(), controller.clone());
        Ok(controller)
    }
}
