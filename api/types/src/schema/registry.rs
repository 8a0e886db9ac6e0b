//! The served types by name: groups, versions and resources under the names of one naming profile.
//!
//! ```text
//! Registry ─ groups in discovery order ─ versions, preferred first ─ resources by plural ─ subresources by name
//! ```
//!
//! The entries of a registry own their composed names and share all other data with the types. A registry in
//! use never changes: [`Registry::changed`] creates a new registry that shares all unchanged groups and
//! versions. A type made at run time is dropped with the last registry, request or watch that refers to it.
//! This module depends on neither requests nor the store; it only composes the key prefix of a resource.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::builtin;
use super::make_error::MakeError;
use super::published::Published;
use super::table::{GroupTable, Message, Ref, ResourceTable, Scope, StorageTable, SubresourceTable, Text};
use super::versioned::Versions;
use super::versions::compare_versions;
use values::naming::Naming;

/// All groups, versions and resources that are served.
#[derive(Clone, Debug)]
pub struct Registry {
    naming: &'static Naming,
    /// Groups in discovery order: priority descending, then name.
    groups: Vec<Arc<Group>>,
    /// Positions in `groups`, sorted by name.
    by_name: Vec<usize>,
}

/// Discovery priorities of a group and a version that a new resource introduces. Higher values come first.
#[derive(Clone, Copy, Debug)]
pub struct Priorities {
    /// Priority of the group among all groups.
    pub group: u32,
    /// Priority of the version within the group.
    pub version: u32,
}

impl Priorities {
    /// Priorities of custom types' groups and versions.
    pub const CUSTOM: Priorities = Priorities { group: 1000, version: 100 };
}

/// An API group with its versions.
#[derive(Clone, Debug)]
pub struct Group {
    /// Full name; empty for the core group.
    pub name: String,
    /// Discovery priority; higher values come first.
    pub priority: u32,
    /// Versions of the group, with the preferred version first.
    pub versions: Vec<Arc<GroupVersion>>,
}

/// A version of a group with its resources.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    /// `<group>/<version>`, or the version alone for the core group.
    pub api_version: String,
    /// Full name of the group.
    pub group: String,
    /// Name of the version, such as `v1`.
    pub version: Text,
    /// Priority among the versions of the group; higher values come first.
    pub priority: u32,
    /// Resources of the version, sorted by plural.
    pub resources: Vec<Arc<Resource>>,
}

/// A resource type of a group version.
#[derive(Debug)]
pub struct Resource {
    /// Data of the type: plural, kind, verbs, rules.
    pub table: Ref<ResourceTable>,
    /// Full name of the group.
    pub group: String,
    /// Name of the version, such as `v1`.
    pub version: Text,
    /// `apiVersion` of the objects.
    pub api_version: String,
    /// Storage of the objects; `None` for virtual types.
    pub storage: Option<Storage>,
    /// Subresources of the resource, sorted by name.
    pub subresources: Vec<Subresource>,
    /// The author's schema, for publication; `None` if the published schema is derived from the type.
    pub published: Option<Ref<Published>>,
    /// Error of a lazy type; see [`Resource::fault`].
    pub fault: Option<Ref<Option<MakeError>>>,
    /// Versions of a custom type, each of which has its own schema; `None` for other types.
    pub versions: Option<Arc<Versions>>,
    /// The same resource in versions of a custom type that are not served. Webhooks and admission policies may still
    /// refer to these versions.
    pub unserved: Vec<Arc<Resource>>,
    /// Whether the type is removed as soon as its last object is deleted.
    pub ending: AtomicBool,
}

/// Verbs of a type that is being removed.
const ENDING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

/// The stored form of a resource. Several versions, or even two groups, can share one stored form.
#[derive(Clone, Debug)]
pub struct Storage {
    /// Full group name of the stored form.
    pub group: String,
    /// `apiVersion` of the stored form.
    pub api_version: String,
    /// Kind of the stored form.
    pub kind: Text,
    /// Type of the stored form.
    pub message: Ref<Message>,
    /// Table of the stored version of the resource.
    pub table: Ref<ResourceTable>,
    /// Prefix of all keys, `/<group>/<resource>/`. The group of a built-in type is written without the suffix
    /// of the naming profile (`core` for the core group), so that a data directory does not depend on the
    /// profile.
    pub key_prefix: String,
    /// Lifetime of an object after each write; `None` for unlimited.
    pub ttl: Option<Duration>,
}

/// A subresource of a resource.
#[derive(Debug)]
pub struct Subresource {
    /// Data of the subresource: name, verbs, body.
    pub table: SubresourceTable,
    /// Full group name of the body's kind.
    pub group: String,
    /// `apiVersion` of the body.
    pub api_version: String,
}

impl Registry {
    /// Creates a registry of the built-in types under the names of `naming`. Objects do not expire.
    pub fn new(naming: &'static Naming) -> Registry {
        Registry::with_event_ttl(naming, None)
    }

    /// Creates a registry of the built-in types under the names of `naming`. Events expire `event_ttl` after
    /// each write; with `None`, only clients delete them.
    pub fn with_event_ttl(naming: &'static Naming, event_ttl: Option<Duration>) -> Registry {
        let tables = builtin::groups(naming);
        let group = |table| Arc::new(group(naming, table, tables, event_ttl));
        let mut groups: Vec<_> = tables.iter().map(group).collect();
        groups.sort_by(in_discovery_order);
        let by_name = by_name(&groups);
        Registry { naming, groups, by_name }
    }

    /// Creates an empty registry under the names of `naming`.
    #[cfg(any(test, feature = "testing"))]
    pub fn empty(naming: &'static Naming) -> Registry {
        Registry { naming, groups: Vec::new(), by_name: Vec::new() }
    }

    /// Returns the naming profile of all names in the registry.
    pub fn naming(&self) -> &'static Naming {
        self.naming
    }

    /// Returns all groups, including the core group, in discovery order: priority descending, then name.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Returns the group with this full name, which is empty for the core group.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        let at = self.by_name.binary_search_by(|&at| self.groups[at].name.as_str().cmp(name)).ok()?;
        self.groups.get(self.by_name[at])
    }

    /// Returns a version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Arc<GroupVersion>> {
        self.group(group)?.version(version)
    }

    /// Returns a resource by its name in URLs.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resource(plural)
    }

    /// Returns whether any version of the group has a resource with this name in URLs.
    pub fn has(&self, group: &str, plural: &str) -> bool {
        let versions = self.group(group).map(|group| &group.versions);
        versions.into_iter().flatten().any(|version| version.resource(plural).is_some())
    }

    /// Returns a resource by the kind of its objects. Kinds of lists and of operations are not resources.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.iter().find(|resource| resource.table.kind == kind)
    }

    /// Returns a registry to which `resource` is added. `resource` replaces a resource with the same name.
    /// `priorities` apply to a new group and to a new version. Among versions of equal priority,
    /// the more stable version comes first.
    #[must_use]
    pub fn with(&self, resource: Arc<Resource>, priorities: Priorities) -> Registry {
        self.changed(&[], [resource], priorities)
    }

    /// Returns a registry without a resource. A version and a group that become empty are removed as well.
    #[must_use]
    pub fn without(&self, group: &str, version: &str, plural: &str) -> Registry {
        let gone = self.resource(group, version, plural).cloned();
        self.changed(gone.as_slice(), [], Priorities::CUSTOM)
    }

    /// Returns a registry without the resources `gone`, and with the resources `new` added or replaced. Costs
    /// one pass over the groups, regardless of the number of changes.
    #[must_use]
    pub fn changed(
        &self,
        gone: &[Arc<Resource>],
        new: impl IntoIterator<Item = Arc<Resource>>,
        priorities: Priorities,
    ) -> Registry {
        let named = |group: &Arc<Group>| (group.name.clone(), group.clone());
        let mut groups: BTreeMap<String, Arc<Group>> = self.groups.iter().map(named).collect();
        let mut gone_by_group: BTreeMap<&str, Vec<&Resource>> = BTreeMap::new();
        for resource in gone {
            gone_by_group.entry(&resource.group).or_default().push(resource);
        }
        for (name, gone) in gone_by_group {
            if let Some(group) = groups.get_mut(name) {
                Arc::make_mut(group).remove(&gone);
            }
        }
        let mut new_by_group: BTreeMap<String, Vec<Arc<Resource>>> = BTreeMap::new();
        for resource in new {
            new_by_group.entry(resource.group.clone()).or_default().push(resource);
        }
        for (name, new) in new_by_group {
            let group = groups.entry(name.clone()).or_insert_with(|| {
                Arc::new(Group { name, priority: priorities.group, versions: Vec::new() })
            });
            Arc::make_mut(group).insert(new, priorities.version);
        }
        let mut groups: Vec<_> = groups.into_values().filter(|group| !group.versions.is_empty()).collect();
        groups.sort_by(in_discovery_order);
        let by_name = by_name(&groups);
        Registry { naming: self.naming, groups, by_name }
    }

    /// Returns every resource of every version, in discovery order.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }

    /// Returns one resource for each stored form. The resource has the stored version if this version is
    /// served.
    pub fn stored(&self) -> Vec<&Arc<Resource>> {
        let mut by_prefix: BTreeMap<&str, &Arc<Resource>> = BTreeMap::new();
        for resource in self.resources() {
            let Some(storage) = &resource.storage else { continue };
            let known = by_prefix.entry(&storage.key_prefix).or_insert(resource);
            if resource.is_stored_version() {
                *known = resource;
            }
        }
        by_prefix.into_values().collect()
    }
}

impl Group {
    /// Returns a version of the group.
    pub fn version(&self, version: &str) -> Option<&Arc<GroupVersion>> {
        self.versions.iter().find(|candidate| candidate.version == version)
    }

    /// Adds resources. A new resource replaces a resource with the same name. A definition can have thousands
    /// of versions, so versions are looked up in an index and sorted once.
    fn insert(&mut self, new: Vec<Arc<Resource>>, priority: u32) {
        let versions = self.versions.iter().enumerate();
        let mut places: HashMap<Text, usize> =
            versions.map(|(at, version)| (version.version.clone(), at)).collect();
        for resource in new {
            let at = *places.entry(resource.version.clone()).or_insert_with(|| {
                self.versions.push(Arc::new(GroupVersion {
                    api_version: resource.api_version.clone(),
                    group: resource.group.clone(),
                    version: resource.version.clone(),
                    priority,
                    resources: Vec::new(),
                }));
                self.versions.len() - 1
            });
            let resources = &mut Arc::make_mut(&mut self.versions[at]).resources;
            match resources.binary_search_by(|other| other.table.plural.cmp(&resource.table.plural)) {
                Ok(at) => resources[at] = resource,
                Err(at) => resources.insert(at, resource),
            }
        }
        self.versions.sort_by(|a, b| {
            b.priority.cmp(&a.priority).then_with(|| compare_versions(&a.version, &b.version))
        });
    }

    fn remove(&mut self, gone: &[&Resource]) {
        let gone: HashSet<(&str, &str)> =
            gone.iter().map(|resource| (&*resource.version, &*resource.table.plural)).collect();
        for version in &mut self.versions {
            let is_gone =
                |resource: &Arc<Resource>| gone.contains(&(&*resource.version, &*resource.table.plural));
            if version.resources.iter().any(is_gone) {
                Arc::make_mut(version).resources.retain(|resource| !is_gone(resource));
            }
        }
        self.versions.retain(|version| !version.resources.is_empty());
    }
}

impl GroupVersion {
    /// Returns the path without slashes at both ends: `api/v1`, `apis/apps/v1`.
    pub fn path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("{root}/{}", self.api_version)
    }

    /// Returns a resource by its name in URLs.
    pub fn resource(&self, plural: &str) -> Option<&Arc<Resource>> {
        let at = self.resources.binary_search_by(|resource| (*resource.table.plural).cmp(plural)).ok()?;
        self.resources.get(at)
    }
}

impl Resource {
    /// Returns the verbs that discovery lists.
    pub fn discovery_verbs(&self) -> &'static [&'static str] {
        if self.ending.load(Relaxed) { ENDING_VERBS } else { self.table.verbs }
    }

    /// Returns the reason why the objects have no type; `None` if the objects have a type. Creates a lazy
    /// type first.
    pub fn fault(&self) -> Option<&MakeError> {
        self.fault.as_deref()?.as_ref()
    }

    /// Creates the parts of the type that are normally created at their first use.
    pub fn complete(&self) {
        let Resource { table, published, fault, .. } = self;
        let ResourceTable { message, rules, form, .. } = &**table;
        // The first access to a part creates the part.
        let _ = (&**message, rules.as_deref(), form.as_deref(), published.as_deref(), fault.as_deref());
    }

    /// Returns `<plural>.<group>`, or the plural alone in the core group, as messages write it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.table.plural.clone().into_owned()
        } else {
            format!("{}.{}", self.table.plural, self.group)
        }
    }

    /// Returns whether the resource is built in; every registry contains the built-in resources.
    pub fn is_builtin(&self) -> bool {
        matches!(self.table, Ref::Static(_))
    }

    /// Returns whether the type of the objects was made at run time. Does not make a lazy type.
    pub fn is_custom(&self) -> bool {
        match &self.table.message {
            Ref::Later(_) => true,
            message => message.custom,
        }
    }

    /// Returns whether the resource is the built-in resource `plural` of the group `stem`. `stem` is a group
    /// name without the suffix of the naming profile.
    pub fn is_of(&self, stem: &str, plural: &str) -> bool {
        let is_group = |group: &str| {
            group.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.table.plural == plural && self.is_builtin() && is_group(&self.group)
    }

    /// Returns whether the objects belong to namespaces.
    pub fn namespaced(&self) -> bool {
        self.table.scope == Scope::Namespaced
    }

    /// Returns the storage of the objects. Panics for a virtual type, whose requests are served without the
    /// store.
    pub fn stored(&self) -> &Storage {
        self.storage.as_ref().expect("virtual types never reach the store")
    }

    /// Returns whether the resource has `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.table.verbs.contains(&verb)
    }

    /// Returns whether the served form is the stored form, so that stored bytes can be served unchanged.
    pub fn is_stored_form(&self) -> bool {
        self.storage.as_ref().is_none_or(|storage| storage.api_version == self.api_version)
    }

    /// Returns whether objects are written to the store in the version of this resource.
    pub fn is_stored_version(&self) -> bool {
        self.is_stored_form() && self.stored_api_version() == self.api_version
    }

    /// Returns the `apiVersion` of objects as written to the store.
    pub fn stored_api_version(&self) -> &str {
        match (&self.versions, &self.storage) {
            (Some(versions), _) => &versions.stored().api_version,
            (None, Some(storage)) => &storage.api_version,
            (None, None) => &self.api_version,
        }
    }

    /// Returns the subresource called `name`.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        let at = self.subresources.binary_search_by(|subresource| subresource.table.name.cmp(name)).ok()?;
        self.subresources.get(at)
    }
}

impl Subresource {
    /// Returns whether the subresource has `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.table.verbs.contains(&verb)
    }
}

/// Orders groups by descending priority, then by name.
fn in_discovery_order(a: &Arc<Group>, b: &Arc<Group>) -> Ordering {
    b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name))
}

/// Returns the positions of groups, sorted by their names.
fn by_name(groups: &[Arc<Group>]) -> Vec<usize> {
    let mut by_name: Vec<_> = (0..groups.len()).collect();
    by_name.sort_by(|&a, &b| groups[a].name.cmp(&groups[b].name));
    by_name
}

fn group(
    naming: &Naming,
    table: &GroupTable,
    tables: &'static [GroupTable],
    event_ttl: Option<Duration>,
) -> Group {
    let name = naming.group(&table.stem, table.suffixed);
    let versions = table
        .versions
        .iter()
        .map(|version| {
            let api_version = naming.api_version(&table.stem, table.suffixed, &version.version);
            let resources = version.resources.iter().map(|resource| {
                Arc::new(Resource {
                    table: Ref::Static(resource),
                    group: name.clone(),
                    version: version.version.clone(),
                    api_version: api_version.clone(),
                    storage: resource.storage.as_ref().map(|home| storage(naming, home, tables, event_ttl)),
                    subresources: resource
                        .subresources
                        .iter()
                        .map(|table| subresource(naming, table))
                        .collect(),
                    published: None,
                    fault: None,
                    versions: None,
                    unserved: Vec::new(),
                    ending: AtomicBool::new(false),
                })
            });
            let resources = resources.collect();
            Arc::new(GroupVersion {
                api_version: api_version.clone(),
                group: name.clone(),
                version: version.version.clone(),
                priority: version.priority,
                resources,
            })
        })
        .collect();
    Group { name, priority: table.priority, versions }
}

fn storage(
    naming: &Naming,
    home: &StorageTable,
    tables: &'static [GroupTable],
    event_ttl: Option<Duration>,
) -> Storage {
    let stored = tables
        .iter()
        .filter(|group| group.stem == home.group)
        .flat_map(|group| group.versions)
        .filter(|version| version.version == home.version)
        .flat_map(|version| version.resources)
        .find(|resource| resource.plural == home.resource)
        .expect("a test checks that every stored form is a built-in resource");
    let stem = if home.group.is_empty() { "core" } else { &*home.group };
    Storage {
        group: naming.group(&home.group, home.group_suffixed),
        api_version: naming.api_version(&home.group, home.group_suffixed, &home.version),
        kind: stored.kind.clone(),
        message: stored.message.clone(),
        table: Ref::Static(stored),
        key_prefix: format!("/{stem}/{}/", home.resource),
        // The stored form determines the lifetime, because the two groups of events share one stored form.
        ttl: event_ttl.filter(|_| stored.behavior.expires),
    }
}

pub(crate) fn subresource(naming: &Naming, table: &SubresourceTable) -> Subresource {
    Subresource {
        table: table.clone(),
        group: naming.group(&table.group, table.group_suffixed),
        api_version: naming.api_version(&table.group, table.group_suffixed, &table.version),
    }
}

#[cfg(test)]
#[path = "registry_test.rs"]
mod tests;
