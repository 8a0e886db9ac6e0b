//! The served custom types, grouped by the definition that declares them.
//!
//! ```text
//! definition (newest state) ─ is_current? ─┬─ yes: the types stay, and so do their watches
//!                                          └─ no: Prepared ─ put ─► new types replace them ─► Changes ─► Registry
//! ```
//!
//! [`Prepared`] contains nearly all of the work and depends on a single definition. Therefore many
//! definitions are prepared in parallel at start.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::definition::Definition;
use super::details::DeferredDetails;
use super::serving::Makers;
use types::schema::make_error::MakeError;
use types::schema::registry::{Priorities, Registry, Resource};
use types::schema::share::Pool;
use values::json::{self, Object, Value};
use values::naming::Naming;

/// The definitions whose types are served, and their types.
#[derive(Debug, Default)]
pub struct Established {
    by_name: HashMap<String, DefinitionTypes>,
    /// Parts that types share. Types that are made later share these parts as well.
    pool: Arc<Mutex<Pool>>,
}

/// Types that were made from a definition.
#[derive(Debug)]
struct DefinitionTypes {
    /// Hash of the accepted names and of the generation of the definition. A definition without a generation
    /// is identified by its spec instead.
    source: [u8; 32],
    resources: Vec<Arc<Resource>>,
}

/// A definition whose types are ready to be served.
#[derive(Debug)]
pub struct Prepared {
    name: String,
    source: [u8; 32],
    makers: Makers,
}

impl Prepared {
    /// Returns the name of the definition.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Prepares a definition.
    ///
    /// # Errors
    /// [`MakeError`] if a schema is not structural.
    pub fn new(name: &str, object: &Object, definition: &Definition) -> Result<Prepared, MakeError> {
        let makers = Makers::new(definition, object)?;
        Ok(Prepared { name: name.to_owned(), source: source(object, definition), makers })
    }

    /// Prepares a definition from its outline. The schemas of the definition are parsed from `text`, which is
    /// the whole definition, when the first schema is needed. Returns `None` if the definition has no
    /// generation or uid, because the outline alone then does not identify its state.
    pub fn deferred(
        name: &str,
        outline: &Object,
        definition: &Definition,
        text: Bytes,
        pool: &Arc<Mutex<Pool>>,
    ) -> Option<Prepared> {
        generation(outline)?;
        let unread = DeferredDetails::new(name, text, Arc::clone(pool));
        let makers = Makers::deferred(definition, outline, &unread);
        Some(Prepared { name: name.to_owned(), source: source(outline, definition), makers })
    }
}

/// Pending changes of a registry.
#[derive(Debug, Default)]
pub struct RegistryChanges {
    gone: Vec<Arc<Resource>>,
    new: Vec<Arc<Resource>>,
    /// Whether the discovery documents change.
    is_shown_anew: bool,
}

impl Established {
    /// Returns whether the served types of a definition match its spec and its accepted names.
    pub fn is_current(&self, name: &str, object: &Object, definition: &Definition) -> bool {
        self.by_name.get(name).is_some_and(|made| made.source == source(object, definition))
    }

    /// Serves the types of a prepared definition and replaces its earlier types.
    pub fn put(&mut self, prepared: Prepared, naming: &Naming, changes: &mut RegistryChanges) {
        let Prepared { name, source, makers } = prepared;
        let resources = makers.into_served(naming, &mut self.pool.lock());
        changes.new.extend(resources.iter().cloned());
        if let Some(before) = self.by_name.insert(name, DefinitionTypes { source, resources }) {
            changes.gone.extend(before.resources);
        }
    }

    /// Replaces the served types of a definition. Has no effect if the definition has no served types, because
    /// its deletion has removed them.
    pub fn replace(&mut self, prepared: Prepared, naming: &Naming, changes: &mut RegistryChanges) {
        if self.by_name.contains_key(prepared.name()) {
            self.put(prepared, naming, changes);
        }
    }

    /// Stops serving the types of a definition.
    pub fn remove(&mut self, name: &str, changes: &mut RegistryChanges) {
        if let Some(made) = self.by_name.remove(name) {
            changes.gone.extend(made.resources);
        }
    }

    /// Marks the types of a definition whose objects are being deleted.
    pub fn end(&self, name: &str, changes: &mut RegistryChanges) {
        for resource in self.resources(name) {
            changes.is_shown_anew |= !resource.ending.swap(true, Ordering::Relaxed);
        }
    }

    /// Returns the pool of parts that types share.
    pub fn pool(&self) -> &Arc<Mutex<Pool>> {
        &self.pool
    }

    /// Returns all served types.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_name.values().flat_map(|made| &made.resources)
    }

    /// Returns the types of a definition; empty if the definition is not served.
    pub fn resources(&self, name: &str) -> &[Arc<Resource>] {
        self.by_name.get(name).map_or(&[], |made| &made.resources)
    }
}

impl RegistryChanges {
    /// Returns whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty() && !self.is_shown_anew
    }

    /// Returns the groups and versions of the types that are added or removed.
    pub fn versions(&self) -> impl Iterator<Item = (String, String)> {
        let all = self.gone.iter().chain(&self.new);
        all.map(|resource| (resource.group.clone(), resource.version.to_string()))
    }

    /// Returns the registry with the changes. A type with the same name as a built-in type is not served.
    #[must_use]
    pub fn apply(self, registry: &Registry) -> Registry {
        let builtin = registry.resources().filter(|resource| resource.is_builtin());
        let builtin: HashSet<_> = builtin.map(|resource| name_of(resource)).collect();
        let is_free = |resource: &Arc<Resource>| !builtin.contains(&name_of(resource));
        let RegistryChanges { mut gone, mut new, .. } = self;
        gone.retain(is_free);
        new.retain(is_free);
        registry.changed(&gone, new, Priorities::CUSTOM)
    }
}

/// Returns the group, version and plural name, which identify a resource.
fn name_of(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.table.plural)
}

/// Returns the uid and generation of a definition; `None` if the uid or the generation is missing.
fn generation(object: &Object) -> Option<(&str, i64)> {
    let metadata = object.get("metadata")?;
    let uid = metadata.str_at(&["uid"]);
    let generation = metadata.get("generation").and_then(Value::as_i64)?;
    (!uid.is_empty() && generation > 0).then_some((uid, generation))
}

fn source(object: &Object, definition: &Definition) -> [u8; 32] {
    let mut text = Vec::new();
    match generation(object) {
        // The generation changes with the spec.
        Some((uid, generation)) => text.extend_from_slice(format!("{uid} {generation} ").as_bytes()),
        None => json::write(object.get("spec").unwrap_or(&Value::Null), &mut text),
    }
    json::write(&definition.accepted.to_value(), &mut text);
    Sha256::digest(&text).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use values::naming::KUBERNETES;
    use values::testing::object;

    fn definition(group: &str, plural: &str, versions: &str) -> Object {
        let names = format!(r#"{{"plural":"{plural}","kind":"Thing","listKind":"ThingList"}}"#);
        let versions = versions.split(' ').enumerate().map(|(at, name)| {
            format!(r#"{{"name":"{name}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}"#, at == 0)
        });
        let versions = versions.collect::<Vec<_>>().join(",");
        object(&format!(
            r#"{{"spec":{{"group":"{group}","scope":"Cluster","names":{names},"versions":[{versions}]}},"status":{{"acceptedNames":{names}}}}}"#
        ))
    }

    /// Serves the types of a definition named `a`, unless they are already served.
    fn serve(established: &mut Established, object: &Object, changes: &mut RegistryChanges) {
        let definition = Definition::read(object);
        if !established.is_current("a", object, &definition) {
            let prepared = Prepared::new("a", object, &definition).unwrap();
            established.put(prepared, &KUBERNETES, changes);
        }
    }

    #[test]
    fn a_custom_type_is_replaced_only_if_its_definition_changed() {
        let (mut established, mut registry) = (Established::default(), Registry::new(&KUBERNETES));
        let builtin = registry.resources().count();
        let mut set = |object: &Object, registry: &mut Registry| {
            let mut changes = RegistryChanges::default();
            serve(&mut established, object, &mut changes);
            *registry = changes.apply(registry);
            registry.resource("g.example", "v1", "things").cloned()
        };
        let mut object = definition("g.example", "things", "v1 v2");
        let first = set(&object, &mut registry).unwrap();
        assert_eq!(registry.resources().count(), builtin + 2);
        object.object_entry("status").insert("conditions", Value::Null);
        assert!(Arc::ptr_eq(&first, &set(&object, &mut registry).unwrap()));
        let second = set(&definition("g.example", "things", "v1"), &mut registry).unwrap();
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(registry.resource("g.example", "v2", "things").is_none());
        let mut changes = RegistryChanges::default();
        established.end("a", &mut changes);
        assert!(!changes.is_empty());
        registry = changes.apply(&registry);
        let shown = registry.resource("g.example", "v1", "things").unwrap();
        assert!(Arc::ptr_eq(&second, shown));
        assert_eq!(shown.discovery_verbs(), ["delete", "deletecollection", "get", "list", "watch"]);
        let mut changes = RegistryChanges::default();
        established.end("a", &mut changes);
        assert!(changes.is_empty());
        established.remove("a", &mut changes);
        registry = changes.apply(&registry);
        assert_eq!(registry.resources().count(), builtin);
        assert!(registry.group("g.example").is_none());
    }

    #[test]
    fn removed_types_cannot_be_replaced() {
        let (mut established, mut changes) = (Established::default(), RegistryChanges::default());
        let [old, new] = ["v1", "v2"].map(|version| definition("g.example", "things", version));
        serve(&mut established, &old, &mut changes);
        let replace = |established: &mut Established, changes: &mut RegistryChanges| {
            let prepared = Prepared::new("a", &new, &Definition::read(&new)).unwrap();
            established.replace(prepared, &KUBERNETES, changes);
            established.resources("a").iter().map(|resource| resource.version.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(replace(&mut established, &mut changes), ["v2"]);
        established.remove("a", &mut changes);
        assert_eq!(replace(&mut established, &mut changes), [""; 0]);
    }

    #[test]
    fn a_definition_cannot_replace_a_builtin_type() {
        let registry = Registry::new(&KUBERNETES);
        let group = KUBERNETES.group("networking", true);
        let (mut established, mut changes) = (Established::default(), RegistryChanges::default());
        let object = definition(&group, "ingresses", "v1 v9");
        serve(&mut established, &object, &mut changes);
        let next = changes.apply(&registry);
        assert!(next.resource(&group, "v1", "ingresses").unwrap().is_builtin());
        assert!(!next.resource(&group, "v9", "ingresses").unwrap().is_builtin());
        let mut changes = RegistryChanges::default();
        established.remove("a", &mut changes);
        let next = changes.apply(&next);
        assert!(next.resource(&group, "v1", "ingresses").is_some());
        assert!(next.version(&group, "v9").is_none());
    }
}
