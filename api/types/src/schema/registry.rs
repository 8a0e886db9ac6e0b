//! What the server serves, by name: groups, versions and resources under the names of one vocabulary.
//!
//! ```text
//! Registry ─ groups in discovery order ─ versions, preferred first ─ resources by plural ─ subresources by name
//! ```
//!
//! The views own their composed names and share everything else with the types. A registry that is in use never changes:
//! [`Registry::changed`] makes a new one, which shares all groups and versions but those that
//! differ. A type made at run time is dropped with the last registry, request or watch that has it.
//! This module knows no requests and no store: of keys it only makes the prefix of a resource.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::builtin;
use super::make::MakeError;
use super::published::Published;
use super::table::{GroupTable, Message, Ref, ResourceTable, Scope, StorageTable, SubresourceTable, Text};
use super::versioned::Versions;
use super::versions::compare_versions;
use values::naming::Naming;

/// All that is served.
#[derive(Clone, Debug)]
pub struct Registry {
    naming: &'static Naming,
    /// In discovery order: priority descending, then name.
    groups: Vec<Arc<Group>>,
    /// Positions in `groups`, sorted by name.
    by_name: Vec<usize>,
}

/// Where a group and a version stand in discovery when a resource brings them along; higher comes first.
#[derive(Clone, Copy, Debug)]
pub struct Priorities {
    /// Among the groups.
    pub group: u32,
    /// Among the versions of the group.
    pub version: u32,
}

impl Priorities {
    /// Those of custom types.
    pub const CUSTOM: Priorities = Priorities { group: 1000, version: 100 };
}

/// One API group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Full name; empty for the core group.
    pub name: String,
    /// Discovery priority; higher comes first.
    pub priority: u32,
    /// Preferred first.
    pub versions: Vec<Arc<Version>>,
}

/// One version of a group.
#[derive(Clone, Debug)]
pub struct Version {
    /// `<group>/<version>`, or the version alone for the core group.
    pub api_version: String,
    /// Full group name.
    pub group: String,
    /// `v1`, `v2`.
    pub version: Text,
    /// Order among the versions of the group; higher first.
    pub priority: u32,
    /// Sorted by plural.
    pub resources: Vec<Arc<Resource>>,
}

/// One resource of a group version.
#[derive(Debug)]
pub struct Resource {
    /// Its data: plural, kind, verbs, rules.
    pub table: Ref<ResourceTable>,
    /// Full group name.
    pub group: String,
    /// `v1`, `v2`.
    pub version: Text,
    /// `apiVersion` of its objects.
    pub api_version: String,
    /// How it is stored; `None` for virtual types.
    pub storage: Option<Storage>,
    /// Sorted by name.
    pub subresources: Vec<Subresource>,
    /// The schema that is published of its objects, as the author of the type wrote it; `None` where it follows from the
    /// type.
    pub published: Option<Ref<Published>>,
    /// Why the type cannot be made, of one whose making was put off; see [`Resource::fault`].
    pub fault: Option<Ref<Option<MakeError>>>,
    /// The versions of a custom type, each of which the server works with in its own form; `None` for other types.
    pub versions: Option<Arc<Versions>>,
    /// The same in versions of a custom type that are not served. Webhooks and policies may be about them all the same.
    pub unserved: Vec<Arc<Resource>>,
    /// Whether the type goes as soon as its objects are gone.
    pub ending: AtomicBool,
}

/// What can be done to objects that go with their type.
const ENDING_VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "watch"];

/// The stored form of a resource, which several versions, or even two groups, can share.
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
    /// Data of the stored form.
    pub table: Ref<ResourceTable>,
    /// Start of all its keys, `/<group>/<resource>/`. The group of a built-in type is written without the vendor's suffix (`core` for
    /// the core group), so that a data directory does not depend on the vocabulary.
    pub key_prefix: String,
    /// How long an object lives after each write; `None`: for ever.
    pub ttl: Option<Duration>,
}

/// One subresource.
#[derive(Debug)]
pub struct Subresource {
    /// Its data.
    pub table: SubresourceTable,
    /// Full group name of the body's kind.
    pub group: String,
    /// `apiVersion` of the body.
    pub api_version: String,
}

impl Registry {
    /// The built-in types under the names of `naming`, none of whose objects expire.
    pub fn new(naming: &'static Naming) -> Registry {
        Registry::with_event_ttl(naming, None)
    }

    /// The built-in types under the names of `naming`. Events live for `event_ttl` after each write; `None`: until
    /// a client deletes them.
    pub fn with_event_ttl(naming: &'static Naming, event_ttl: Option<Duration>) -> Registry {
        let tables = builtin::groups(naming);
        let group = |table| Arc::new(group(naming, table, tables, event_ttl));
        let mut groups: Vec<_> = tables.iter().map(group).collect();
        groups.sort_by(in_discovery_order);
        let by_name = by_name(&groups);
        Registry { naming, groups, by_name }
    }

    /// Nothing under the names of `naming`, to begin with.
    #[cfg(any(test, feature = "testing"))]
    pub fn empty(naming: &'static Naming) -> Registry {
        Registry { naming, groups: Vec::new(), by_name: Vec::new() }
    }

    /// The vocabulary of all names here.
    pub fn naming(&self) -> &'static Naming {
        self.naming
    }

    /// All groups, the core included, in discovery order: priority descending, then name.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// The group with this full name; the core group's is empty.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        let at = self.by_name.binary_search_by(|&at| self.groups[at].name.as_str().cmp(name)).ok()?;
        self.groups.get(self.by_name[at])
    }

    /// One version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Arc<Version>> {
        self.group(group)?.version(version)
    }

    /// A resource by its name in URLs.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resource(plural)
    }

    /// Whether a version of the group has a resource of this name in URLs.
    pub fn has(&self, group: &str, plural: &str) -> bool {
        let versions = self.group(group).map(|group| &group.versions);
        versions.into_iter().flatten().any(|version| version.resource(plural).is_some())
    }

    /// A resource by the kind of its objects. Kinds of lists and of operations are no resources.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.version(group, version)?.resources.iter().find(|resource| resource.table.kind == kind)
    }

    /// This registry with one more resource, or with another one in its place. `priorities` are those of the group and of
    /// the version where these are new; of equal versions the more stable comes first.
    #[must_use]
    pub fn with(&self, resource: Arc<Resource>, priorities: Priorities) -> Registry {
        self.changed(&[], [resource], priorities)
    }

    /// This registry without a resource, and without the version and group that have no other.
    #[must_use]
    pub fn without(&self, group: &str, version: &str, plural: &str) -> Registry {
        let gone = self.resource(group, version, plural).cloned();
        self.changed(gone.as_slice(), [], Priorities::CUSTOM)
    }

    /// This registry without some resources, and with others, or with others in their place. Costs one pass over the
    /// groups, however many change.
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

    /// Every resource of every version, in discovery order.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }

    /// Every stored form once, as one of the resources that are stored so: in the stored version where that is served.
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
    /// One of its versions.
    pub fn version(&self, version: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|candidate| candidate.version == version)
    }

    /// Adds resources, or puts them in the place of those with the same names. A definition can have thousands of
    /// versions, so versions are looked up in an index and sorted once.
    fn insert(&mut self, new: Vec<Arc<Resource>>, priority: u32) {
        let versions = self.versions.iter().enumerate();
        let mut places: HashMap<Text, usize> =
            versions.map(|(at, version)| (version.version.clone(), at)).collect();
        for resource in new {
            let at = *places.entry(resource.version.clone()).or_insert_with(|| {
                self.versions.push(Arc::new(Version {
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

impl Version {
    /// Path without slashes at the ends: `api/v1`, `apis/apps/v1`.
    pub fn path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("{root}/{}", self.api_version)
    }

    /// A resource by its name in URLs.
    pub fn resource(&self, plural: &str) -> Option<&Arc<Resource>> {
        let at = self.resources.binary_search_by(|resource| (*resource.table.plural).cmp(plural)).ok()?;
        self.resources.get(at)
    }
}

impl Resource {
    /// The verbs that discovery shows.
    pub fn shown_verbs(&self) -> &'static [&'static str] {
        if self.ending.load(Relaxed) { ENDING_VERBS } else { self.table.verbs }
    }

    /// Why there is no type for its objects. Makes the type, where that was put off.
    pub fn fault(&self) -> Option<&MakeError> {
        self.fault.as_deref()?.as_ref()
    }

    /// Makes the parts of its type whose making was put off.
    pub fn complete(&self) {
        let Resource { table, published, fault, .. } = self;
        let ResourceTable { message, rules, form, .. } = &**table;
        // A look makes it.
        let _ = (&**message, rules.as_deref(), form.as_deref(), published.as_deref(), fault.as_deref());
    }

    /// `<plural>.<group>`, or the plural alone in the core group: how messages name a resource.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.table.plural.clone().into_owned()
        } else {
            format!("{}.{}", self.table.plural, self.group)
        }
    }

    /// Whether it is built in, and so in every registry.
    pub fn is_builtin(&self) -> bool {
        matches!(self.table, Ref::Static(_))
    }

    /// Whether its objects are of a type made at run time. A type whose making is put off is not made for that.
    pub fn is_custom(&self) -> bool {
        match &self.table.message {
            Ref::Later(_) => true,
            message => message.custom,
        }
    }

    /// Whether it is this built-in resource; `stem` is its group's name without the suffix of the naming profile.
    pub fn is_of(&self, stem: &str, plural: &str) -> bool {
        let is_group = |group: &str| {
            group.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.table.plural == plural && self.is_builtin() && is_group(&self.group)
    }

    /// Whether its objects live in namespaces.
    pub fn namespaced(&self) -> bool {
        self.table.scope == Scope::Namespaced
    }

    /// How it is stored. Virtual types are served apart and never get as far as to ask.
    pub fn stored(&self) -> &Storage {
        self.storage.as_ref().expect("virtual types never reach the store")
    }

    /// Whether it has `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.table.verbs.contains(&verb)
    }

    /// Whether the served form is the stored form, so that stored bytes are served as they are.
    pub fn is_stored_form(&self) -> bool {
        self.storage.as_ref().is_none_or(|storage| storage.api_version == self.api_version)
    }

    /// Whether it is the version that objects are written to the store in.
    pub fn is_stored_version(&self) -> bool {
        self.is_stored_form() && self.stored_api_version() == self.api_version
    }

    /// `apiVersion` of the objects as they are written to the store.
    pub fn stored_api_version(&self) -> &str {
        match (&self.versions, &self.storage) {
            (Some(versions), _) => &versions.stored().api_version,
            (None, Some(storage)) => &storage.api_version,
            (None, None) => &self.api_version,
        }
    }

    /// One of its subresources.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        let at = self.subresources.binary_search_by(|subresource| subresource.table.name.cmp(name)).ok()?;
        self.subresources.get(at)
    }
}

impl Subresource {
    /// Whether it has `verb`.
    pub fn can(&self, verb: &str) -> bool {
        self.table.verbs.contains(&verb)
    }
}

/// By descending priority, then by name.
fn in_discovery_order(a: &Arc<Group>, b: &Arc<Group>) -> Ordering {
    b.priority.cmp(&a.priority).then_with(|| a.name.cmp(&b.name))
}

/// Positions of groups in the order of their names.
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
            Arc::new(Version {
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
        .expect("a test holds that every stored form is a built-in resource");
    let stem = if home.group.is_empty() { "core" } else { &*home.group };
    Storage {
        group: naming.group(&home.group, home.group_suffixed),
        api_version: naming.api_version(&home.group, home.group_suffixed, &home.version),
        kind: stored.kind.clone(),
        message: stored.message.clone(),
        table: Ref::Static(stored),
        key_prefix: format!("/{stem}/{}/", home.resource),
        // Both groups of events are stored as one.
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
